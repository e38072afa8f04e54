//! Activations on shares by products of bits: few bits and many short messages.
//!
//! A chain of functions is a [`Program`] for each size of window, which both parties run level by
//! level on tiles of elements. Random OTs in both directions are its only cost beside these
//! messages. Neither party learns anything.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec},
    shape::OperatorError,
};
use pronghorn_mpc::{
    lean::{Cascade, Input, Party, Program},
    ot::{OtParameters, extension, silent::Chain},
};
use serde::{Deserialize, Serialize};

use super::{
    chain::{self, Stage},
    names, pooled,
    programs::{PART, Programs, turn_bytes},
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
    /// Silent OT at 1.5 bits, which assumes learning parity with noise (LPN), too: tables of 2 MiB,
    /// which most caches hold.
    Silent,
    /// Silent OT at 0.4 bits, with tables of 8 MiB: the least traffic.
    SilentLarge,
}

/// Parts whose messages are counted one by one.
const PARTS_COUNTED: usize = 64;

/// The OTs of lean steps.
const TRANSFERS: OtParameters = OtParameters::LEAST_TRAFFIC;

impl Transfers {
    /// All.
    pub const ALL: [Self; 3] = [Self::Extension, Self::Silent, Self::SilentLarge];

    /// The sets of silent OT; `None` for the extension.
    pub fn chain(self) -> Option<Chain> {
        match self {
            Self::Extension => None,
            Self::Silent => Some(Chain::MEDIUM),
            Self::SilentLarge => Some(Chain::LARGE),
        }
    }

    /// Bytes of so many OTs of a connection.
    pub fn all_bytes(self, count: u64) -> u64 {
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
    fn bytes(self, count: u64) -> u64 {
        match self.chain() {
            Some(chain) => {
                let round = chain.sets().len() as u64;
                let bytes = count.saturating_mul(chain.set(round).round_bytes() as u64);
                bytes / chain.usable(round) as u64
            }
            None => self.all_bytes(count),
        }
    }

    /// Bytes that a connection holds for silent OTs: tables of both directions, twice while a round
    /// ends.
    fn state(self) -> u64 {
        let last = |chain: Chain| chain.set(chain.sets().len() as u64);
        let table = |chain| 16 * last(chain).base() as u64;
        self.chain().map_or(0, |chain| 4 * table(chain))
    }

    /// In a word, for people.
    pub(crate) fn source(self) -> &'static str {
        match self.chain() {
            None => "extended",
            Some(_) => "silent",
        }
    }

    /// The cost of programs for a batch, with their OTs.
    pub(crate) fn cost(self, programs: &Programs, batch: usize) -> Cost {
        let parties = [Party::Server, Party::Client];
        let transfers = |sender: Party| -> u64 {
            let all = programs.all_ots(batch, sender);
            // Messages of parts have a header each, which counts in small batches alone.
            if all > (PARTS_COUNTED * PART) as u64 {
                return self.bytes(all);
            }
            let tiles = programs.tiles(batch);
            let parts = programs.parts(&tiles).into_iter();
            let ots = parts.map(|part| programs.ots(&tiles[part], sender));
            ots.map(|count| self.bytes(count as u64)).sum()
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
        let uploads = match self.chain() {
            None => Party::Server,
            Some(_) => Party::Client,
        };
        let offline = StepCost {
            bytes_up: transfers(uploads),
            bytes_down: transfers(uploads.peer()),
            seconds: Seconds::transfers(ots as f64 * self.rate()),
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
        let kept = Memory {
            server: programs.stored(batch, Party::Server),
            client: programs.stored(batch, Party::Client),
        };
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

    /// Bytes that programs hold for a batch, with their OTs.
    pub(crate) fn memory(self, programs: &Programs, batch: usize) -> StepMemory {
        Memory::both(programs.memory(batch).saturating_add(self.state()))
    }

    /// Seconds of an OT, both parties.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Self::Extension => rate::LEAN_TRANSFER,
            Self::Silent => rate::SILENT_TRANSFER,
            Self::SilentLarge => rate::SILENT_LARGE_TRANSFER,
        }
    }
}

impl Derived {
    /// The programs of a lean step; `None` of others.
    pub fn lean(&self) -> Option<&Arc<Programs>> {
        match self {
            Self::Lean(programs) => Some(programs),
            _ => None,
        }
    }
}

impl From<Programs> for Derived {
    fn from(programs: Programs) -> Self {
        Self::Lean(programs.into())
    }
}

/// The input of programs.
pub fn input((value, form): (&ValueSpec, &ShareForm)) -> Input {
    Input {
        bits: form.bits,
        prime: form.prime,
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
        let modulus = output.modulus().map_err(|error| error.to_string())?;
        let program = |kind| {
            let (activation, input) = (self.activation(kind), input(from));
            let program = match self.dithered {
                true => Program::dithered(&activation, input, modulus),
                false => Program::activation(&activation, input, modulus),
            };
            program.map(Cascade::from)
        };
        self.groups(from.0, program).map(Programs::new)
    }
}

impl ShareRules for Lean {
    fn takes(&self) -> Takes {
        chain::takes(&self.ops)
    }

    fn makes_residues(&self, inputs: bool, readers: Readers) -> bool {
        chain::makes_residues(&self.ops, inputs, readers)
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
    fn kind(&self) -> &'static str {
        "activation"
    }

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
        let programs = step.derived.lean();
        programs.map_or_else(Cost::default, |programs| {
            self.transfers.cost(programs, batch)
        })
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        let programs = step.derived.lean();
        programs.map_or_else(StepMemory::default, |programs| {
            self.transfers.memory(programs, batch)
        })
    }

    fn silent(&self) -> Option<Chain> {
        self.transfers.chain()
    }

    fn dithers(&self) -> Option<&[u32]> {
        chain::dithers(&self.ops)
    }

    fn random_ots(&self, step: &Compiled<'_>, sender: Party) -> u64 {
        let programs = step.derived.lean();
        programs.map_or(0, |programs| programs.all_ots(1, sender))
    }

    fn describe(&self, step: &Compiled<'_>) -> Description {
        let names = names(&self.ops);
        let Some(programs) = step.derived.lean() else {
            return Description::of(format!("lean: {names}"));
        };
        let ([bits, ots], source) = (programs.most(), self.transfers.source());
        Description::of(format!(
            "lean {names}: {bits} bits and {ots} {source} OTs a value, {} messages",
            programs.turns()
        ))
    }
}
