//! The oblivious transfers (OTs) of a connection, which its steps share.
//!
//! The server is the sender, the client the receiver: [`SetupClient`] and [`SetupServer`] leave
//! [`ReceiverOts`] and [`SenderOts`]. Plans with lean steps have OTs of their own, in both
//! directions: [`LeanSetupClient`] and [`LeanSetupServer`] make these from the former, and leave
//! [`Lean`] handles.

mod prelude;
mod reverse;
mod setup;
mod silent;

use std::sync::Arc;

pub(crate) use prelude::{client_preludes, server_preludes};
use pronghorn_mpc::{
    Block,
    ot::{CotReceiver, CotSender, OtError, ReceiverSetup, SenderSetup},
};
pub use reverse::{LeanSetupClient, LeanSetupServer};
pub use setup::{SetupClient, SetupServer};
pub use silent::{SilentReceives, SilentSends, SilentSetupClient, SilentSetupServer};
use zeroize::Zeroizing;

use crate::{
    connection::{Connection, Kept},
    error::EngineError,
};

/// The OTs of a connection at their receiver. Copies are the same OTs. Secret: no Debug.
#[derive(Clone, Default)]
pub struct ReceiverOts(Kept<(Arc<ReceiverSetup>, CotReceiver)>);

/// The OTs of a connection at their sender. Copies are the same OTs. Secret: no Debug.
#[derive(Clone, Default)]
pub struct SenderOts(Kept<(Arc<SenderSetup>, CotSender)>);

macro_rules! slot {
    ($ots:ty, $setup:ty, $extension:ty) => {
        impl $ots {
            /// Whether they are set up.
            pub fn is_ready(&self) -> bool {
                self.0.is_some()
            }

            /// The set-up, to resume from on other connections with the same peer; none before it
            /// is made, or when the peer failed a check.
            pub fn setup(&self) -> Option<Arc<$setup>> {
                self.0.with(|(setup, _)| setup.clone())
            }

            /// The name of the set-up, which both parties have and no other set-up shares.
            pub(crate) fn name(&self) -> Option<[u8; 32]> {
                self.setup().map(|setup| *setup.name())
            }

            /// Forgets them: the peer failed a check.
            pub(crate) fn forget(&self) {
                self.0.take();
            }

            /// Keeps what a set-up made.
            pub(crate) fn fill(&self, setup: Arc<$setup>, extension: $extension) {
                self.0.put((setup, extension));
            }

            /// Bytes of the receiver's message for so many OTs; 0 where there are none.
            pub(crate) fn message_bytes(&self, count: usize) -> usize {
                let bytes = self.0.with(|(_, extension)| extension.message_bytes(count));
                bytes.unwrap_or(0)
            }

            /// Something done with them, in a step of this name.
            ///
            /// # Errors
            /// When there are none, or it fails.
            pub(crate) fn with<T>(
                &self,
                step: &str,
                act: impl FnOnce(&mut $extension) -> Result<T, OtError>,
            ) -> Result<T, EngineError> {
                let state = "has no oblivious transfers: set them up first";
                use_kept(&self.0, (step, state), |(_, extension)| act(extension))
            }
        }
    };
}

/// Something done with kept OTs, in a step of this name; `state` says that there are none. A failed
/// check destroys them, and the set-up they came from.
fn use_kept<T, U>(
    kept: &Kept<T>,
    (step, state): (&str, &'static str),
    act: impl FnOnce(&mut T) -> Result<U, OtError>,
) -> Result<U, EngineError> {
    let done = kept.with(act).ok_or(EngineError::OutOfTurn { state })?;
    done.map_err(|source| {
        let step = step.to_owned();
        let error = EngineError::Ot { step, source };
        if is_failed_check(&error) {
            kept.take();
        }
        error
    })
}

/// OTs of lean steps, apart from those of garbled ones.
#[derive(Clone, Default)]
pub struct Lean<T>(pub T);

slot!(ReceiverOts, ReceiverSetup, CotReceiver);
slot!(SenderOts, SenderSetup, CotSender);

/// Whether a failed check of OTs ended a step: bits of a `Delta` may be known.
pub(crate) fn is_failed_check(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Ot {
            source: OtError::Inconsistent | OtError::FalseCorrections | OtError::Burnt,
            ..
        }
    )
}

impl Connection {
    /// Forgets the OTs of all kinds and directions: a check of one of them failed. The connection
    /// then has no [`setup`](Self::setup), so that stores destroy what was prepared with it.
    pub(crate) fn forget_ots(&self) {
        self.kept::<ReceiverOts>().forget();
        self.kept::<SenderOts>().forget();
        self.kept::<Lean<ReceiverOts>>().0.forget();
        self.kept::<Lean<SenderOts>>().0.forget();
        self.kept::<SilentReceives>().forget();
        self.kept::<SilentSends>().forget();
    }

    /// The name of the set-up of oblivious transfers, which both parties have and no other set-up
    /// shares. `None` before there is one, and once it has failed a check: whatever was prepared
    /// with it must then be destroyed, since bits of `Delta` may be known.
    pub fn setup(&self) -> Option<[u8; 32]> {
        let client = self.kept::<ReceiverOts>().name();
        client.or_else(|| self.kept::<SenderOts>().name())
    }
}

/// New OTs: the number of the first, and a block each.
pub(crate) type Ots = (u64, Zeroizing<Vec<Block>>);

impl ReceiverOts {
    /// New OTs with these choices, a bit each in whole bytes; appends the message to the sender.
    ///
    /// # Errors
    /// When there is no set-up, or it is used up.
    pub(crate) fn send(
        &self,
        step: &str,
        choices: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Ots, EngineError> {
        let mut blocks = Zeroizing::new(vec![Block::ZERO; 8 * choices.len()]);
        let first = self.with(step, |ots| ots.extend(choices, &mut blocks, out))?;
        Ok((first, blocks))
    }
}

impl SenderOts {
    /// `count` new OTs of the receiver's message.
    ///
    /// # Errors
    /// When there is no set-up, or the message is refused: one that fails the check destroys the
    /// set-up.
    pub(crate) fn receive(
        &self,
        step: &str,
        message: &[u8],
        count: usize,
    ) -> Result<Ots, EngineError> {
        let mut blocks = Zeroizing::new(vec![Block::ZERO; count]);
        let first = self.with(step, |ots| ots.extend(message, &mut blocks))?;
        Ok((first, blocks))
    }
}
