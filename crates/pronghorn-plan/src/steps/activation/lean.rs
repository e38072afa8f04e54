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
    lean::{Input, Party, Program},
    ot::{
        OtParameters, extension,
        silent::{Chain, LpnParameters},
    },
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
    /// Silent OT, at half a bit, which assumes learning parity with noise (LPN), too.
    Silent,
}

/// The OTs of lean steps.
const TRANSFERS: OtParameters = OtParameters::LEAST_TRAFFIC;

/// Images that a choice of silent OT is made for: its set-up takes some hundred kB.
const IMAGES: u64 = 16;

impl Transfers {
    /// Where OTs of so many an image, of either direction, take fewer bytes.
    pub fn cheaper(ots: [u64; 2]) -> Self {
        let width = TRANSFERS.width();
        let bytes = |ots: u64| {
            let ots = ots.saturating_mul(IMAGES);
            let extension =
                extension::message_bytes(usize::try_from(ots).unwrap_or(usize::MAX), width);
            [extension as u64, chain(ots / IMAGES).bytes(ots, width)]
        };
        let [server, client] = ots.map(bytes);
        match server[1] + client[1] < server[0] + client[0] {
            true => Self::Silent,
            false => Self::Extension,
        }
    }

    /// Bytes of so many OTs, the first of a connection left out.
    fn bytes(self, count: usize) -> u64 {
        let set = LpnParameters::LARGE;
        match self {
            Self::Extension => extension::message_bytes(count, TRANSFERS.width()) as u64,
            Self::Silent => {
                let usable = set.outputs() - set.base();
                (count as u64).saturating_mul(set.round_bytes() as u64) / usable as u64
            }
        }
    }

    /// Seconds of an OT, both parties.
    fn rate(self) -> f64 {
        match self {
            Self::Extension => rate::LEAN_TRANSFER,
            Self::Silent => rate::SILENT_TRANSFER,
        }
    }
}

/// The sets of silent OT for so many OTs an image.
pub fn chain(ots: u64) -> Chain {
    Chain::cheapest(ots.saturating_mul(IMAGES), TRANSFERS.width())
}

/// Elements of a tile: its planes and words stay in the cache.
pub const TILE: usize = 1 << 12;

/// OTs of a part in either direction, about: its messages of a turn are one.
const PART: usize = 1 << 20;

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
            let count = made.elements.len() * images;
            let firsts = (0..count).step_by(TILE);
            firsts.map(move |first| Tile {
                group,
                instances: first..count.min(first + TILE),
            })
        };
        let groups = self.groups.iter().enumerate();
        groups.flat_map(of_group).collect()
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
        let program = self.program(tile);
        let levels = Self::levels(turn).filter(|&level| level < program.levels());
        let count = tile.instances.len();
        levels
            .map(|level| program.bytes(level, Self::sender(turn), count))
            .sum()
    }

    /// Random OTs of tiles whose sender is `party`.
    pub fn ots(&self, tiles: &[Tile], party: Party) -> usize {
        let of = |tile: &Tile| self.program(tile).batch_ots(party, tile.instances.len());
        tiles.iter().map(of).sum()
    }

    fn memory(&self, tiles: &[Tile]) -> u64 {
        let of = |tile: &Tile| self.program(tile).memory(tile.instances.len()) as u64;
        tiles.iter().map(of).sum()
    }
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
        let tiles = programs.tiles(batch);
        let parts = programs.parts(&tiles);
        let transfers = |sender: Party| -> u64 {
            let ots = parts
                .iter()
                .map(|part| programs.ots(&tiles[part.clone()], sender));
            ots.map(|count| self.transfers.bytes(count)).sum()
        };
        let sent = |party: Party| -> u64 {
            let turns = (0..programs.turns()).filter(|&turn| Programs::sender(turn) == party);
            let bytes = |turn| {
                tiles
                    .iter()
                    .map(move |tile| programs.tile_bytes(tile, turn) as u64)
            };
            turns.flat_map(bytes).sum()
        };
        let parties = [Party::Server, Party::Client];
        let ots: usize = parties
            .map(|party| programs.ots(&tiles, party))
            .iter()
            .sum();
        // The receiver of the extension sends, and the sender of silent OTs.
        let uploads = match self.transfers {
            Transfers::Extension => Party::Server,
            Transfers::Silent => Party::Client,
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
        let kept = Memory::both(programs.memory(&tiles));
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
        Memory::both(programs.memory(&programs.tiles(batch)))
    }

    fn silent_ots(&self, step: &Compiled<'_>, sender: Party) -> u64 {
        match step.derived {
            Derived::Lean(programs) if self.transfers == Transfers::Silent => {
                programs.ots(&programs.tiles(1), sender) as u64
            }
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
