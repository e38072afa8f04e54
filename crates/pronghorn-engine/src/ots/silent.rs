//! Silent OTs of lean steps, in both directions.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the server's base of silent transfers | server | those of the chain's first set |
//! | the client's base of silent transfers | client | those of the chain's first set |
//!
//! The chain follows from the plan. What comes after are rounds, whenever OTs run out
//! ([`crate::lean`]). The messages reveal nothing ([`pronghorn_mpc::ot::silent`]).

use pronghorn_mpc::ot::{
    CotReceiver, CotSender, OtError, OtParameters,
    silent::{Chain, SilentReceiver, SilentSender},
};
use pronghorn_ring::random::Seed;

use super::{Lean, ReceiverOts, SenderOts, use_kept};
use crate::{
    connection::Kept,
    error::EngineError,
    exchange::{Exchange, Message, Messages, Party, Protocol, Turn},
};

/// Stands for the step in errors.
const STEP: &str = "the set-up of silent oblivious transfers";

const SERVER_BASE: &str = "the server's base of silent transfers";
const CLIENT_BASE: &str = "the client's base of silent transfers";

/// Silent OTs of a connection at their sender. Copies are the same OTs. Secret: no Debug.
#[derive(Clone, Default)]
pub struct SilentSends(Kept<SilentSender>);

/// Silent OTs of a connection at their receiver. Copies are the same OTs. Secret: no Debug.
#[derive(Clone, Default)]
pub struct SilentReceives(Kept<SilentReceiver>);

macro_rules! handle {
    ($handle:ty, $inner:ty) => {
        impl $handle {
            /// Whether they are set up.
            pub fn is_ready(&self) -> bool {
                self.0.is_some()
            }

            /// Forgets them: the peer failed a check.
            pub(crate) fn forget(&self) {
                self.0.take();
            }

            /// Something done with them, in a step of this name. A failed check destroys them.
            ///
            /// # Errors
            /// When there are none, or it fails.
            pub(crate) fn with<T>(
                &self,
                step: &str,
                act: impl FnOnce(&mut $inner) -> Result<T, OtError>,
            ) -> Result<T, EngineError> {
                let state = "has no silent oblivious transfers: set them up first";
                use_kept(&self.0, (step, state), act)
            }
        }
    };
}

handle!(SilentSends, SilentSender);
handle!(SilentReceives, SilentReceiver);

/// The messages: a receiver of OTs sends their base.
fn messages(chain: Chain) -> Messages {
    let bytes = chain.begin_bytes(OtParameters::LEAST_TRAFFIC.width());
    Messages::new(STEP)
        .with(Message::server(SERVER_BASE, bytes).rows(1))
        .with(Message::client(CLIENT_BASE, bytes).rows(1))
}

/// Both parties' halves.
struct SilentSetup {
    chain: Chain,
    base: (Lean<SenderOts>, Lean<ReceiverOts>),
    sends: SilentSends,
    receives: SilentReceives,
}

impl SilentSetup {
    /// As the receiver.
    fn make(&self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let seed = Seed::from_os()?;
        let begin = |ots: &mut CotReceiver| SilentReceiver::begin(self.chain, ots, &seed, out);
        self.receives.0.put(self.base.1.0.with(STEP, begin)?);
        Ok(())
    }

    /// As the sender.
    fn take(&self, message: &[u8]) -> Result<(), EngineError> {
        let seed = Seed::from_os()?;
        let begin = |ots: &mut CotSender| SilentSender::begin(self.chain, ots, &seed, message);
        self.sends.0.put(self.base.0.0.with(STEP, begin)?);
        Ok(())
    }
}

macro_rules! party {
    ($name:ident, $party:ident, $make:ident, $take:ident, $doc:literal) => {
        #[doc = $doc]
        pub struct $name(SilentSetup);

        impl $name {
            /// Fills both handles by the OTs of the lean set-up, which must be there by then.
            pub fn new(
                chain: Chain,
                base: (Lean<SenderOts>, Lean<ReceiverOts>),
                sends: SilentSends,
                receives: SilentReceives,
            ) -> Exchange<Self> {
                let party = Self(SilentSetup {
                    chain,
                    base,
                    sends,
                    receives,
                });
                Exchange::new(messages(chain), party)
            }
        }

        impl Protocol for $name {
            const PARTY: Party = Party::$party;

            fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
                match turn.name {
                    $make => self.0.make(out),
                    _ => Err(turn.unknown()),
                }
            }

            fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
                match turn.name {
                    $take => self.0.take(message),
                    _ => Err(turn.unknown()),
                }
            }
        }
    };
}

party!(
    SilentSetupClient,
    Client,
    CLIENT_BASE,
    SERVER_BASE,
    "The client's half."
);
party!(
    SilentSetupServer,
    Server,
    SERVER_BASE,
    CLIENT_BASE,
    "The server's half."
);
