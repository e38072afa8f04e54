//! Random OTs of a lean step, made before its inputs are known: they need none.

use pronghorn_mpc::lean::{self, CascadeReceived, CascadeSent};
use zeroize::Zeroizing;

use super::{
    ots::{OtMessages, Ots, Randoms, Supply},
    work::{Layout, Work},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Messages, Party, Protocol, StepProtocol, Turn},
    garbled::prepared::{HEADER, Name, at_end, damaged, read_header, write_header},
    machine::{Made, PreparedStep},
    share::Share,
};

/// The kinds of stored halves, behind those of garbled steps.
const CLIENT: u8 = 7;
const SERVER: u8 = 8;

/// One party's OTs for a lean step. Used once. Wiped on drop; no Debug.
pub struct PreparedLean {
    pub(super) work: Work,
    pub(super) party: lean::Party,
    /// What both parties call it.
    pub(super) name: Name,
    pub(super) randoms: Vec<Randoms>,
}

impl PreparedLean {
    /// Bytes of the stored half.
    fn size(&self) -> usize {
        let tiles = self.work.tiles.iter().map(|tile| {
            let (program, count) = (
                self.work.layout.programs.program(tile),
                tile.instances.len(),
            );
            program.stored_bytes(self.party, count)
        });
        HEADER + tiles.sum::<usize>()
    }

    fn kind(party: lean::Party) -> u8 {
        match party {
            lean::Party::Client => CLIENT,
            lean::Party::Server => SERVER,
        }
    }

    fn sizes(work: &Work) -> [usize; 2] {
        [work.layout.outputs * work.layout.images, work.tiles.len()]
    }

    /// Reads what [`PreparedStep::to_bytes`] wrote, for the step that it was made for.
    ///
    /// # Errors
    /// The bytes are nothing that was made for it.
    pub fn from_bytes(
        layout: Layout,
        party: lean::Party,
        bytes: &[u8],
    ) -> Result<Self, EngineError> {
        let work = Work::new(layout)?;
        let step = &work.layout.step;
        let (name, mut bytes) = read_header(step, Self::kind(party), Self::sizes(&work), bytes)?;
        let mut randoms = Vec::with_capacity(work.tiles.len());
        for tile in &work.tiles {
            let (program, count) = (work.layout.programs.program(tile), tile.instances.len());
            let sent = CascadeSent::read(program, party, count, &mut bytes);
            let received = CascadeReceived::read(program, party.peer(), count, &mut bytes);
            if sent.is_none() || received.is_none() {
                return Err(damaged(step, "is cut short, or not of this step"));
            }
            randoms.push(Randoms { sent, received });
        }
        at_end(step, bytes)?;
        Ok(Self {
            party,
            name,
            randoms,
            work,
        })
    }
}

impl PreparedStep for PreparedLean {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // All at once: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.size()));
        write_header(
            Self::kind(self.party),
            &self.name,
            Self::sizes(&self.work),
            &mut bytes,
        );
        for (tile, randoms) in self.work.tiles.iter().zip(&self.randoms) {
            let (program, count) = (
                self.work.layout.programs.program(tile),
                tile.instances.len(),
            );
            if let (Some(sent), Some(received)) = (&randoms.sent, &randoms.received) {
                sent.write(program, self.party, count, &mut bytes);
                received.write(program, self.party.peer(), count, &mut bytes);
            }
        }
        bytes
    }
}

/// Both parties' making of OTs ahead.
struct Preparing {
    prepared: PreparedLean,
    supply: Supply,
}

impl Preparing {
    fn new(layout: Layout, party: lean::Party, ots: Ots) -> Result<(Messages, Self), EngineError> {
        let (work, supply) = (Work::new(layout)?, Supply::new(ots, party)?);
        let ots = match work.layout.programs.turns() {
            0 => OtMessages::default(),
            _ => supply.messages(&work)?,
        };
        let messages = Messages::new(&work.layout.step).in_rows(work.layout.outputs);
        let prepared = PreparedLean {
            party,
            name: supply.name(&work)?,
            randoms: Randoms::of(&work),
            work,
        };
        let messages = messages.with_all(ots.before).with_all(ots.after);
        Ok((messages, Self { prepared, supply }))
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let PreparedLean { work, randoms, .. } = &mut self.prepared;
        self.supply.make(work, randoms, turn, out)
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let PreparedLean { work, randoms, .. } = &mut self.prepared;
        self.supply.take(work, randoms, turn, message)
    }

    /// Takes silent OTs that are there.
    fn hand_out(&mut self) -> Result<(), EngineError> {
        let PreparedLean { work, randoms, .. } = &mut self.prepared;
        match work.layout.programs.turns() {
            0 => Ok(()),
            _ => self.supply.hand_out(work, randoms),
        }
    }

    /// What was prepared. Silent OTs may have been there without a message.
    fn finish(mut self) -> Result<PreparedLean, EngineError> {
        self.hand_out()?;
        Ok(self.prepared)
    }
}

macro_rules! preparing {
    ($name:ident, $party:ident, $doc:literal) => {
        #[doc = $doc]
        pub struct $name(Preparing);

        impl $name {
            /// Prepares a step.
            ///
            /// # Errors
            /// Its numbers are out of range, or the system gives no randomness.
            pub fn new(layout: Layout, ots: Ots) -> Result<Exchange<Self>, EngineError> {
                let (messages, preparing) = Preparing::new(layout, lean::Party::$party, ots)?;
                Ok(Exchange::new(messages, Self(preparing)))
            }
        }

        impl Exchange<$name> {
            /// What was prepared.
            ///
            /// # Errors
            /// The machine is not done.
            pub fn into_prepared(self) -> Result<PreparedLean, EngineError> {
                self.finish()?.0.finish()
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
                let Preparing { prepared, supply } = &self.0;
                supply.is_ready(&prepared.work, turn)
            }

            fn meanwhile(&mut self) -> Result<(), EngineError> {
                self.0.hand_out()
            }
        }

        impl StepProtocol for $name {
            /// No share: the server's depends on the client's messages.
            fn into_made(self) -> Result<Made, EngineError> {
                Ok(Made {
                    prepared: Some(Box::new(self.0.finish()?)),
                    ..Made::share(Share::Zero)
                })
            }
        }
    };
}

preparing!(
    PrepareLeanClient,
    Client,
    "The client's half of a preparation."
);
preparing!(
    PrepareLeanServer,
    Server,
    "The server's half of a preparation."
);
