//! The programs of lean steps: tiles, turns, and their bytes.

use std::{
    ops::{Range, RangeInclusive},
    sync::Arc,
};

use pronghorn_mpc::lean::{Cascade, LANE, Party};

use super::circuits::Group;

/// Most elements of a tile: its planes, words and OTs stay in the cache.
const TILE: usize = 1 << 10;

/// OTs of a part in either direction, about: its messages of a turn are one.
pub const PART: usize = 1 << 20;

/// The programs of a lean step. Both parties have the same ones, from the plan.
#[derive(Clone)]
pub struct Programs {
    /// The elements of the output by program: each of them is in one group, once.
    pub groups: Vec<Group<Cascade>>,
    /// Levels of the deepest program.
    levels: usize,
}

/// Instances of a group that are run together: by element, then by image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The group.
    pub group: usize,
    /// Its instances.
    pub instances: Range<usize>,
}

impl Programs {
    /// These groups of programs.
    pub fn new(groups: Vec<Group<Cascade>>) -> Self {
        let levels = groups.iter().map(|group| group.circuit.levels());
        Self {
            levels: levels.max().unwrap_or(0),
            groups,
        }
    }

    /// The tiles of a batch.
    pub fn tiles(&self, images: usize) -> Vec<Tile> {
        let of_group = |(group, made): (usize, &Group<Cascade>)| {
            let (count, size) = (made.elements.len() * images, tile_size(&made.circuit));
            let firsts = (0..count).step_by(size);
            firsts.map(move |first| Tile {
                group,
                instances: first..count.min(first + size),
            })
        };
        let groups = self.groups.iter().enumerate();
        groups.flat_map(of_group).collect()
    }

    /// The sum over all tiles of a batch, by program and elements.
    pub(super) fn sum(&self, images: usize, of: impl Fn(&Cascade, usize) -> u64) -> u64 {
        let of_group = |made: &Group<Cascade>| {
            let (count, size) = (made.elements.len() * images, tile_size(&made.circuit));
            let full = (count / size) as u64;
            let rest = match count % size {
                0 => 0,
                rest => of(&made.circuit, rest),
            };
            full.saturating_mul(of(&made.circuit, size))
                .saturating_add(rest)
        };
        let groups = self.groups.iter().map(of_group);
        groups.fold(0, u64::saturating_add)
    }

    /// The tiles of each part of a batch, whose messages of a turn are one.
    pub fn parts(&self, tiles: &[Tile]) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut held = [0; 2];
        for (index, tile) in tiles.iter().enumerate() {
            let tile = std::slice::from_ref(tile);
            let more = [Party::Server, Party::Client].map(|party| self.ots(tile, party));
            match parts.last_mut() {
                Some(part) if (0..2).all(|way| held[way] + more[way] <= PART) => {
                    part.end = index + 1;
                    (0..2).for_each(|way| held[way] += more[way]);
                }
                _ => {
                    parts.push(index..index + 1);
                    held = more;
                }
            }
        }
        parts
    }

    /// The program of a tile.
    pub fn program(&self, tile: &Tile) -> &Arc<Cascade> {
        &self.groups[tile.group].circuit
    }

    /// Messages one after the other, each with the end of a level and the start of the next. The
    /// server has the first, and none of them where nothing is to be said.
    pub fn turns(&self) -> usize {
        match self.levels {
            0 => 0,
            levels => levels + 1,
        }
    }

    /// The sender of a turn.
    pub fn sender(turn: usize) -> Party {
        Party::first_of(turn)
    }

    /// The levels whose messages a turn has; programs may have fewer.
    pub fn levels(turn: usize) -> RangeInclusive<usize> {
        turn.saturating_sub(1)..=turn
    }

    /// Bytes of a tile in the message of a turn.
    pub fn tile_bytes(&self, tile: &Tile, turn: usize) -> usize {
        turn_bytes(self.program(tile), turn, tile.instances.len()) as usize
    }

    /// Random OTs of tiles whose sender is `party`.
    pub fn ots(&self, tiles: &[Tile], party: Party) -> usize {
        let of = |tile: &Tile| self.program(tile).batch_ots(party, tile.instances.len());
        tiles.iter().map(of).sum()
    }

    /// Bits and OTs of an element of the output, the most of all programs.
    pub(crate) fn most(&self) -> [usize; 2] {
        let of = |group: &Group<Cascade>| {
            let program = &group.circuit;
            let ots = [Party::Server, Party::Client].map(|party| program.ots(party));
            [program.all_bits(), ots.iter().sum()]
        };
        self.groups.iter().map(of).max().unwrap_or_default()
    }

    /// Bytes that a party holds for a batch: values and strings of all tiles, and the blocks of a
    /// part.
    pub(super) fn memory(&self, images: usize) -> u64 {
        let tiles = self.sum(images, |program, count| program.memory(count) as u64);
        let of_tile = |made: &Group<Cascade>| {
            let size = tile_size(&made.circuit).min(made.elements.len() * images);
            let parties = [Party::Server, Party::Client];
            let ots = parties.map(|party| made.circuit.batch_ots(party, size));
            ots[0].max(ots[1])
        };
        let largest = self.groups.iter().map(of_tile).max().unwrap_or(0);
        let all = [Party::Server, Party::Client].map(|party| self.all_ots(images, party));
        let part = (largest.max(PART) as u64).min(all[0].max(all[1]));
        // Strings of both choices, and the message.
        tiles.saturating_add(part.saturating_mul(3 * 16))
    }

    /// Bytes of the random OTs that a party keeps of a batch, once they are made.
    pub(super) fn stored(&self, images: usize, party: Party) -> u64 {
        self.sum(images, |program, count| {
            program.stored_bytes(party, count) as u64
        })
    }

    /// Random OTs of a batch whose sender is `party`.
    pub(crate) fn all_ots(&self, images: usize, party: Party) -> u64 {
        self.sum(images, |program, count| {
            program.batch_ots(party, count) as u64
        })
    }
}

/// Bytes of so many elements in the message of a turn.
pub(super) fn turn_bytes(program: &Cascade, turn: usize, count: usize) -> u64 {
    let levels = Programs::levels(turn).filter(|&level| level < program.levels());
    let bytes = |level| program.bytes(level, Programs::sender(turn), count) as u64;
    levels.map(bytes).sum()
}

/// Elements of a tile: as many as have OTs for a part, in whole words of the widest plane.
fn tile_size(program: &Cascade) -> usize {
    let ots = program.ots(Party::Server).max(program.ots(Party::Client));
    let least = LANE.div_ceil(program.width());
    (PART / ots.max(1)).clamp(least, TILE) / least * least
}
