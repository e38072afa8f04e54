//! What a store asks of one party's half of a prepared batch.

use std::io;

use pronghorn_engine::{ClientPrepared, EngineError, ServerPrepared};

use super::file::Party;

/// One party's half of a prepared batch.
pub trait Half: Sized + Send {
    /// Whose.
    const PARTY: Party;

    /// Images.
    fn batch(&self) -> usize;

    /// The set-up of OTs it was made with.
    fn setup(&self) -> [u8; 32];

    /// Hands its bytes to `sink`.
    ///
    /// # Errors
    /// The sink's.
    fn write(&self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// Reads a half's bytes: of a batch of so many images, made with this set-up.
pub type Read<'a, H> = &'a dyn Fn(usize, [u8; 32], &[u8]) -> Result<H, EngineError>;

macro_rules! half {
    ($prepared:ty, $party:expr) => {
        impl Half for $prepared {
            const PARTY: Party = $party;

            fn batch(&self) -> usize {
                self.batch()
            }

            fn setup(&self) -> [u8; 32] {
                self.setup()
            }

            fn write(&self, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
                self.write(sink)
            }
        }
    };
}

half!(ClientPrepared, Party::Client);
half!(ServerPrepared, Party::Server);
