//! One party's half of a lean step: random OTs, then levels in turn.

use std::ops::Range;

use pronghorn_mpc::lean::{self, CascadeRun, LeanError};
use pronghorn_plan::steps::activation::programs::Programs;
use rayon::prelude::*;

use super::{
    ots::{OtMessages, Ots, Randoms, Supply, named},
    prepared::PreparedLean,
    work::{Layout, Work},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Message, Messages, Party, Protocol, StepProtocol, Turn},
    garbled::prepared::{Name, damaged},
    machine::Made,
    share::Share,
};

const PRODUCTS: &str = "the products of bits";

/// Both parties' halves.
pub struct LeanParty {
    work: Work,
    party: lean::Party,
    /// Absent where the OTs are prepared, or none are needed.
    supply: Option<Supply>,
    /// In front of the first message of the levels, where the OTs are prepared.
    name: Option<Name>,
    share: Share,
    randoms: Vec<Randoms>,
    runs: Vec<Run>,
    /// Messages of the turns that were taken, in their order.
    heard: usize,
    /// Messages of the first turn, which come before the client has chosen its OTs.
    early: Vec<(Turn, Vec<u8>)>,
    /// Whether a message was refused, or not made: some tiles may be a part of the way.
    failed: bool,
}

/// A tile under way.
struct Run {
    evaluation: CascadeRun,
    /// Its part of the turn's message.
    made: Vec<u8>,
}

impl LeanParty {
    fn at_once(
        layout: Layout,
        party: lean::Party,
        share: Share,
        ots: Ots,
    ) -> Result<(Messages, Self), EngineError> {
        let work = Work::new(layout)?;
        work.check(&share)?;
        let mut randoms = Randoms::of(&work);
        if work.layout.programs.turns() == 0 {
            // Without products a step takes no OTs.
            let messages = messages(&work, OtMessages::default(), 0);
            return Ok((messages, Self::new(work, party, share, randoms, None, None)));
        }
        let mut supply = Supply::new(ots, party)?;
        let messages = messages(&work, supply.messages(&work)?, 0);
        // The server does so when it writes its first message. Meanwhile the client waits for it.
        if party == lean::Party::Client {
            supply.hand_out(&work, &mut randoms)?;
        }
        Ok((
            messages,
            Self::new(work, party, share, randoms, Some(supply), None),
        ))
    }

    fn online(prepared: PreparedLean, share: Share) -> Result<(Messages, Self), EngineError> {
        let PreparedLean {
            work,
            party,
            name,
            randoms,
        } = prepared;
        work.check(&share)?;
        let messages = messages(&work, OtMessages::default(), size_of::<Name>());
        let party = Self::new(work, party, share, randoms, None, Some(name));
        Ok((messages, party))
    }

    fn new(
        work: Work,
        party: lean::Party,
        share: Share,
        randoms: Vec<Randoms>,
        supply: Option<Supply>,
        name: Option<Name>,
    ) -> Self {
        Self {
            work,
            party,
            supply,
            name,
            share,
            randoms,
            runs: Vec::new(),
            heard: 0,
            early: Vec::new(),
            failed: false,
        }
    }

    /// Starts the tiles, once the OTs that this party receives are made.
    fn start(&mut self) -> Result<(), EngineError> {
        if !self.runs.is_empty() {
            return Ok(());
        }
        self.hand_out()?;
        let (work, share, party) = (&self.work, &self.share, self.party);
        let start = |(tile, randoms): (&_, &mut Randoms)| {
            let received = randoms.received.take().ok_or(EngineError::OutOfTurn {
                state: "has no oblivious transfers for its step",
            })?;
            let (program, inputs) = (work.layout.programs.program(tile), work.inputs(tile, share));
            Ok(Run {
                evaluation: CascadeRun::new(program.clone(), party, inputs, received),
                made: Vec::new(),
            })
        };
        let tiles = work.tiles.par_iter().zip(&mut self.randoms);
        self.runs = tiles.map(start).collect::<Result<_, EngineError>>()?;
        self.share = Share::Zero;
        Ok(())
    }

    /// Takes silent OTs that are there already.
    fn hand_out(&mut self) -> Result<(), EngineError> {
        match &mut self.supply {
            Some(supply) if self.runs.is_empty() => supply.hand_out(&self.work, &mut self.randoms),
            _ => Ok(()),
        }
    }

    /// Hands the OTs that this party sends to its tiles, as far as they are made.
    fn provide(&mut self) {
        for (run, randoms) in self.runs.iter_mut().zip(&mut self.randoms) {
            if let Some(sent) = randoms.sent.take() {
                run.evaluation.provide(sent);
            }
        }
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let made = self.make_once(turn, out);
        self.failed |= made.is_err();
        made
    }

    fn make_once(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if turn.name != PRODUCTS {
            let supply = self.supply.as_mut().ok_or_else(|| turn.unknown())?;
            return supply.make(&self.work, &mut self.randoms, turn, out);
        }
        self.begin()?;
        let (index, part) = self.place(turn);
        if let (0, Some(name)) = (turn.index, self.name) {
            out.extend_from_slice(&name);
        }
        let made = self.runs[part.clone()]
            .par_iter_mut()
            .try_for_each(|run| run.make_up_to(*Programs::levels(index).end()));
        made.map_err(|source| self.work.error(source))?;
        for run in &mut self.runs[part] {
            out.append(&mut run.made);
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        if self.failed {
            return Err(EngineError::OutOfTurn {
                state: "has refused a message",
            });
        }
        let taken = self.take_once(turn, message);
        self.failed |= taken.is_err();
        taken
    }

    fn take_once(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        if turn.name != PRODUCTS {
            let supply = self.supply.as_mut().ok_or_else(|| turn.unknown())?;
            return supply.take(&self.work, &mut self.randoms, turn, message);
        }
        self.hand_out()?;
        if self.runs.is_empty() && self.randoms.iter().any(Randoms::waits) {
            self.early.push((turn, message.to_vec()));
            return Ok(());
        }
        self.begin()?;
        self.take_products(turn, message)
    }

    /// Starts the tiles with their OTs, and takes what came before there were any.
    fn begin(&mut self) -> Result<(), EngineError> {
        self.start()?;
        self.provide();
        let early = std::mem::take(&mut self.early);
        let mut messages = early.iter();
        messages.try_for_each(|(turn, message)| self.take_products(*turn, message))
    }

    fn take_products(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let message = self.without_name(turn, message)?;
        let (index, part) = self.place(turn);
        let (work, mut rest) = (&self.work, message);
        let pieces: Vec<&[u8]> = work.tiles[part.clone()]
            .iter()
            .map(|tile| {
                let bytes = work.layout.programs.tile_bytes(tile, index);
                let (piece, after) = rest.split_at(bytes);
                rest = after;
                piece
            })
            .collect();
        let runs = self.runs[part].par_iter_mut().zip(pieces);
        let taken = runs.try_for_each(|(run, piece)| {
            run.take(Programs::levels(index), Programs::sender(index), piece)
        });
        taken.map_err(|source| self.work.error(source))?;
        self.heard += 1;
        Ok(())
    }

    /// Whether a message can be made. One of products can when the peer's of the same part, in the
    /// turn before it, was taken: all OTs are there by then.
    fn is_ready(&self, turn: Turn) -> bool {
        if turn.name != PRODUCTS {
            let supply = self.supply.as_ref();
            return supply.is_some_and(|supply| supply.is_ready(&self.work, turn));
        }
        if self.runs.is_empty() || self.failed {
            return false;
        }
        let parts = self.work.parts.len();
        let (index, part) = (turn.index / parts, turn.index % parts);
        match index.checked_sub(1) {
            None => false,
            // Every second turn is the peer's.
            Some(before) => self.heard > before / 2 * parts + part,
        }
    }

    /// The message behind the name of what was prepared.
    fn without_name<'a>(&self, turn: Turn, message: &'a [u8]) -> Result<&'a [u8], EngineError> {
        let (0, Some(own)) = (turn.index, self.name) else {
            return Ok(message);
        };
        match message.strip_prefix(&own) {
            Some(rest) => Ok(rest),
            None => {
                let reason = "is not the one that the server uses";
                Err(damaged(&self.work.layout.step, reason))
            }
        }
    }

    /// The turn of the levels, and the part, of a message.
    fn place(&self, turn: Turn) -> (usize, Range<usize>) {
        let parts = self.work.parts.len();
        (
            turn.index / parts,
            self.work.parts[turn.index % parts].clone(),
        )
    }

    fn made(mut self) -> Result<Made, EngineError> {
        // A step without messages starts here.
        self.start()?;
        let mut output = self.work.output();
        let mut runs = std::mem::take(&mut self.runs);
        for (tile, run) in self.work.tiles.iter().zip(&mut runs) {
            let residues = run.evaluation.output();
            let residues = residues.map_err(|source| self.work.error(source))?;
            self.work.scatter(tile, residues, &mut output);
        }
        Ok(Made::share(Share::Words(output)))
    }
}

impl Run {
    /// Makes levels up to this one, as far as the program has them.
    fn make_up_to(&mut self, level: usize) -> Result<(), LeanError> {
        while self.evaluation.made() <= level && !self.evaluation.is_done() {
            self.evaluation.make(&mut self.made)?;
        }
        Ok(())
    }

    /// Takes the peer's part of some levels.
    fn take(
        &mut self,
        levels: std::ops::RangeInclusive<usize>,
        peer: lean::Party,
        mut message: &[u8],
    ) -> Result<(), LeanError> {
        for level in levels {
            if level >= self.evaluation.cascade().levels() {
                break;
            }
            let instances = self.evaluation.instances();
            let bytes = self.evaluation.cascade().bytes(level, peer, instances);
            let (now, later) = message.split_at(bytes);
            self.evaluation.take(now)?;
            message = later;
        }
        Ok(())
    }
}

/// All messages: OTs of both parties, then the turns, the first of the server behind its OTs.
fn messages(work: &Work, ots: OtMessages, name: usize) -> Messages {
    let programs = &work.layout.programs;
    let turn = |turn: usize| {
        work.parts.iter().enumerate().map(move |(index, part)| {
            let tiles = work.tiles[part.clone()].iter();
            let bytes: usize = tiles.map(|tile| programs.tile_bytes(tile, turn)).sum();
            let name = match (turn, index) {
                (0, 0) => name,
                _ => 0,
            };
            Message::new(named(Programs::sender(turn)), PRODUCTS, name + bytes).rows(1)
        })
    };
    let turns = programs.turns();
    let messages = Messages::new(&work.layout.step).in_rows(work.layout.outputs);
    if turns == 0 {
        return messages;
    }
    messages
        .with_all(ots.before)
        .with_all(turn(0))
        .with_all(ots.after)
        .with_all((1..turns).flat_map(turn))
}

macro_rules! party {
    ($name:ident, $party:ident, $doc:literal) => {
        #[doc = $doc]
        pub struct $name(LeanParty);

        impl $name {
            /// Runs a step with this party's share of its input.
            ///
            /// # Errors
            /// The share is not of the shape, or the system gives no randomness.
            pub fn new(
                layout: Layout,
                share: Share,
                ots: Ots,
            ) -> Result<Exchange<Self>, EngineError> {
                let (messages, party) =
                    LeanParty::at_once(layout, lean::Party::$party, share, ots)?;
                Ok(Exchange::new(messages, Self(party)))
            }

            /// Uses up OTs that were prepared.
            ///
            /// # Errors
            /// The share is not of the shape.
            pub fn online(
                prepared: PreparedLean,
                share: Share,
            ) -> Result<Exchange<Self>, EngineError> {
                let (messages, party) = LeanParty::online(prepared, share)?;
                Ok(Exchange::new(messages, Self(party)))
            }
        }

        impl Protocol for $name {
            const PARTY: Party = Party::$party;

            fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
                self.0.make(turn, out)
            }

            fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
                self.0.take(turn, message)
            }

            fn is_ready(&self, turn: Turn) -> bool {
                self.0.is_ready(turn)
            }

            fn meanwhile(&mut self) -> Result<(), EngineError> {
                self.0.hand_out()
            }
        }

        impl StepProtocol for $name {
            fn into_made(self) -> Result<Made, EngineError> {
                self.0.made()
            }
        }
    };
}

party!(LeanClient, Client, "The client's half.");
party!(LeanServer, Server, "The server's half.");
