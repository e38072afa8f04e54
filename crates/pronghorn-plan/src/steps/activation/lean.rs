//! Activations on shares by products of bits: few bits and many short messages.
//!
//! A chain of functions is a [`Program`] for each size of window, which both parties run level by
//! level on tiles of elements. Random OTs in both directions are its only cost beside these
//! messages. Neither party learns anything.

use std::ops::{Range, RangeInclusive};

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec},
    shape::OperatorError,
};
use pronghorn_mpc::{
    lean::{Input, LANE, Party, Program},
    ot::{OtParameters, extension, silent::Chain},
};
use serde::{Deserialize, Serialize};

use super::{
    chain::{self, Stage},
    circuits::Group,
    names, pooled,
};
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, StepMemory, rate},
    description::Description,
    objective::Goal,
    share_form::{Node, Readers, ShareForm, ShareRules, Takes, Tolerates},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// Functions by products of bits. Without functions: the same value, in exact shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lean {
    /// Applied in order, each to the result of the one before.
    pub ops: Vec<ActivationOp>,
    /// Where random OTs come from.
    pub transfers: Transfers,
}

/// Where the random OTs of a lean step come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfers {
    /// The extension, at 16 bits an OT. It assumes AES alone.
    #[default]
    Extension,
    /// Silent OT at 1.5 bits, which assumes learning parity with noise (LPN), too: tables of 2 MiB,
    /// which most caches hold.
    Silent,
    /// Silent OT at 0.4 bits, with tables of 8 MiB: the least traffic.
    SilentLarge,
}

/// The OTs of lean steps.
const TRANSFERS: OtParameters = OtParameters::LEAST_TRAFFIC;

/// Images that OTs are chosen for: a set-up of silent OT takes some hundred kB.
const IMAGES: u64 = 16;

impl Transfers {
    const ALL: [Self; 3] = [Self::Extension, Self::Silent, Self::SilentLarge];

    /// The best by the goal for so many OTs an image, in each direction.
    pub(crate) fn best(ots: [u64; 2], goal: Goal) -> Self {
        let cost = |transfers: &Self| {
            let ots = ots.map(|ots| ots.saturating_mul(IMAGES));
            let bytes: u64 = ots.iter().map(|&ots| transfers.all_bytes(ots)).sum();
            let seconds = (ots[0] + ots[1]) as f64 * transfers.rate();
            goal.of_one(
                &StepCost {
                    bytes_up: bytes,
                    seconds: Seconds::transfers(seconds),
                    ..StepCost::default()
                },
                0.0,
            )
        };
        let all = Self::ALL.into_iter();
        let best = all.min_by(|one, other| cost(one).total_cmp(&cost(other)));
        best.unwrap_or_default()
    }

    /// The sets of silent OT; `None` for the extension.
    pub fn chain(self) -> Option<Chain> {
        match self {
            Self::Extension => None,
            Self::Silent => Some(Chain::MEDIUM),
            Self::SilentLarge => Some(Chain::LARGE),
        }
    }

    /// Bytes of so many OTs of a connection.
    fn all_bytes(self, count: u64) -> u64 {
        let width = TRANSFERS.width();
        match self.chain() {
            Some(chain) => chain.bytes(count, width),
            None => {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                extension::message_bytes(count, width) as u64
            }
        }
    }

    /// Bytes of so many OTs, the first of a connection left out.
    fn bytes(self, count: usize) -> u64 {
        match self.chain() {
            Some(chain) => {
                let round = chain.sets().len() as u64;
                let bytes = (count as u64).saturating_mul(chain.set(round).round_bytes() as u64);
                bytes / chain.usable(round) as u64
            }
            None => extension::message_bytes(count, TRANSFERS.width()) as u64,
        }
    }

    /// Bytes that a connection holds for silent OTs: tables of both directions, twice while a round
    /// ends.
    fn state(self) -> u64 {
        let last = |chain: Chain| chain.set(chain.sets().len() as u64);
        let table = |chain| 16 * last(chain).base() as u64;
        self.chain().map_or(0, |chain| 4 * table(chain))
    }

    /// Seconds of an OT, both parties.
    fn rate(self) -> f64 {
        match self {
            Self::Extension => rate::LEAN_TRANSFER,
            Self::Silent => rate::SILENT_TRANSFER,
            Self::SilentLarge => rate::SILENT_LARGE_TRANSFER,
        }
    }
}

/// Most elements of a tile: its planes, words and OTs stay in the cache.
const TILE: usize = 1 << 10;

/// OTs of a part in either direction, about: its messages of a turn are one.
const PART: usize = 1 << 20;

/// Parts whose messages are counted one by one.
const PARTS_COUNTED: usize = 64;

/// The programs of a lean step. Both parties have the same ones, from the plan.
#[derive(Clone)]
pub struct Programs {
    /// The elements of the output by program: each of them is in one group, once.
    pub groups: Vec<Group<Program>>,
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
    pub fn new(groups: Vec<Group<Program>>) -> Self {
        let levels = groups.iter().map(|group| group.circuit.levels());
        Self {
            levels: levels.max().unwrap_or(0),
            groups,
        }
    }

    /// The tiles of a batch.
    pub fn tiles(&self, images: usize) -> Vec<Tile> {
        let of_group = |(group, made): (usize, &Group<Program>)| {
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
    fn sum(&self, images: usize, of: impl Fn(&Program, usize) -> u64) -> u64 {
        let of_group = |made: &Group<Program>| {
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
    pub fn program(&self, tile: &Tile) -> &std::sync::Arc<Program> {
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
        match turn % 2 {
            0 => Party::Server,
            _ => Party::Client,
        }
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

    /// Bytes that a party holds for a batch: values and strings of all tiles, and the blocks of a
    /// part.
    fn memory(&self, images: usize) -> u64 {
        let tiles = self.sum(images, |program, count| program.memory(count) as u64);
        let of_tile = |made: &Group<Program>| {
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

    /// Random OTs of a batch whose sender is `party`.
    fn all_ots(&self, images: usize, party: Party) -> u64 {
        self.sum(images, |program, count| {
            program.batch_ots(party, count) as u64
        })
    }
}

/// Bytes of so many elements in the message of a turn.
fn turn_bytes(program: &Program, turn: usize, count: usize) -> u64 {
    let levels = Programs::levels(turn).filter(|&level| level < program.levels());
    let bytes = |level| program.bytes(level, Programs::sender(turn), count) as u64;
    levels.map(bytes).sum()
}

/// Elements of a tile: as many as have OTs for a part, in whole words of a plane.
fn tile_size(program: &Program) -> usize {
    let ots = program.ots(Party::Server).max(program.ots(Party::Client));
    (PART / ots.max(1)).clamp(LANE, TILE) / LANE * LANE
}

impl From<Programs> for Derived {
    fn from(programs: Programs) -> Self {
        Self::Lean(programs.into())
    }
}

/// The input of programs.
fn input((value, form): (&ValueSpec, &ShareForm)) -> Input {
    Input {
        bits: form.bits,
        guard: form.guard,
        error: form.error,
        low: value.low.into(),
        high: value.high.into(),
    }
}

impl Stage {
    /// The programs of the stage.
    ///
    /// # Errors
    /// Ranges, forms and functions do not go together.
    pub(crate) fn programs(
        &self,
        from: (&ValueSpec, &ShareForm),
        output: &ShareForm,
    ) -> Result<Programs, String> {
        if from.1.prime.is_some() {
            return Err("its input is shared modulo a prime: it takes a garbled circuit".into());
        }
        let modulus = output.modulus().map_err(|error| error.to_string())?;
        let program = |kind| Program::activation(&self.activation(kind), input(from), modulus);
        self.groups(from.0, program).map(Programs::new)
    }
}

impl ShareRules for Lean {
    fn makes_residues(&self, inputs: bool, readers: Readers) -> bool {
        chain::makes_residues(&self.ops, inputs, readers)
    }

    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }

    fn tolerates(&self) -> Tolerates {
        chain::tolerates(&self.ops)
    }

    fn input_bits(&self, _bits: u32, _place: usize, input: &Node<'_>) -> u32 {
        chain::input_bits(&self.ops, input)
    }

    fn is_ahead(&self, _inputs: bool) -> bool {
        false
    }
}

impl StepPlan for Lean {
    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        chain::range(&self.ops, inputs, value)
    }

    fn pooled(&self, outputs: usize) -> usize {
        pooled(&self.ops, outputs)
    }

    fn circuit_values(&self, place: &Place<'_>) -> Result<[usize; 2], String> {
        chain::circuit_values(&self.ops, place)
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        let stage = chain::stage(&self.ops)?;
        let from = (place.input(), place.input_form());
        stage.programs(from, place.form()).map(Derived::from)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let Derived::Lean(programs) = step.derived else {
            return Cost::default();
        };
        let parties = [Party::Server, Party::Client];
        let transfers = |sender: Party| -> u64 {
            let all = programs.all_ots(batch, sender);
            // Messages of parts have a header each, which counts in small batches alone.
            if all > (PARTS_COUNTED * PART) as u64 {
                return self
                    .transfers
                    .bytes(usize::try_from(all).unwrap_or(usize::MAX));
            }
            let tiles = programs.tiles(batch);
            let parts = programs.parts(&tiles).into_iter();
            let ots = parts.map(|part| programs.ots(&tiles[part], sender));
            ots.map(|count| self.transfers.bytes(count)).sum()
        };
        let sent = |party: Party| -> u64 {
            let turns = (0..programs.turns()).filter(|&turn| Programs::sender(turn) == party);
            let bytes =
                |turn| programs.sum(batch, |program, count| turn_bytes(program, turn, count));
            turns.map(bytes).sum()
        };
        let ots: u64 = parties
            .map(|party| programs.all_ots(batch, party))
            .iter()
            .sum();
        // The receiver of the extension sends, and the sender of silent OTs.
        let uploads = match self.transfers.chain() {
            None => Party::Server,
            Some(_) => Party::Client,
        };
        let offline = StepCost {
            bytes_up: transfers(uploads),
            bytes_down: transfers(uploads.peer()),
            seconds: Seconds::transfers(ots as f64 * self.transfers.rate()),
            ..StepCost::default()
        };
        let online = StepCost {
            bytes_up: sent(Party::Client),
            bytes_down: sent(Party::Server),
            // The first message rides with one before it, and the client's last with the next.
            rounds: (programs.turns().saturating_sub(1) / 2) as u32,
            seconds: Seconds::transfers(ots as f64 * rate::LEAN_PRODUCT),
            ..StepCost::default()
        }
        .with_waits();
        let kept = Memory::both(programs.memory(batch));
        Cost {
            at_once: offline.plus(online),
            offline: StepCost {
                rounds: 1,
                memory: kept,
                ..offline
            },
            online,
        }
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        let Derived::Lean(programs) = step.derived else {
            return StepMemory::default();
        };
        Memory::both(
            programs
                .memory(batch)
                .saturating_add(self.transfers.state()),
        )
    }

    fn silent(&self) -> Option<Chain> {
        self.transfers.chain()
    }

    fn random_ots(&self, step: &Compiled<'_>, sender: Party) -> u64 {
        match step.derived {
            Derived::Lean(programs) => programs.all_ots(1, sender),
            _ => 0,
        }
    }

    fn describe(&self, step: &Compiled<'_>) -> Description {
        let text = format!("{} by products of bits", names(&self.ops));
        let Derived::Lean(programs) = step.derived else {
            return Description::of(text);
        };
        let parties = [Party::Server, Party::Client];
        let of = |group: &Group<Program>| {
            let ots: usize = parties.map(|party| group.circuit.ots(party)).iter().sum();
            (group.circuit.all_bits(), ots)
        };
        let most = programs.groups.iter().map(of).max().unwrap_or_default();
        Description::of(format!(
            "{text}: {} bits and {} OTs an element, {} messages",
            most.0,
            most.1,
            programs.turns()
        ))
    }
}
