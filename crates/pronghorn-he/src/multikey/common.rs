//! The common reference string and the names of parties.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use pronghorn_ring::Word;

use super::MultiKeyError;
use crate::rns::Parameters;

/// A ring and the public seed of the `a` that all parties share. A cheap handle.
///
/// Whoever chooses the seed must not have chosen it for a trapdoor: take a hash of something public
/// or the exclusive or of what each party committed to. `a` comes out of the seed by a random
/// function.
#[derive(Clone)]
pub struct Common<W: Word>(Arc<Inner<W>>);

struct Inner<W: Word> {
    ring: Parameters<W>,
    seed: [u8; 32],
    id: [u8; 32],
    single: OnceLock<Parameters<W>>,
}

/// The `a` of the common reference string, by number.
pub(super) enum Reference {
    /// Of encryption: number 0, which [`rns::PublicKey`](crate::rns::PublicKey) expands.
    Encryption,
    /// Of a digit of the gadget.
    Gadget(usize),
    /// Of a limb of the gadget of the linear relinearisation.
    Linear(usize),
}

impl Reference {
    pub fn number(&self) -> u64 {
        match *self {
            Self::Encryption => 0,
            Self::Gadget(digit) => 3 << 40 | digit as u64,
            Self::Linear(limb) => 4 << 40 | limb as u64,
        }
    }
}

impl<W: Word> Common<W> {
    /// The common reference string of this seed.
    ///
    /// # Errors
    /// When the ring has no special primes, without which keys cannot be switched.
    pub fn new(ring: &Parameters<W>, seed: [u8; 32]) -> Result<Self, MultiKeyError> {
        if ring.special_limbs() == 0 {
            return Err(crate::rns::RingError::NoSpecialPrimes.into());
        }
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 multi-key reference");
        hasher.update(ring.hash()).update(&seed);
        Ok(Self(Arc::new(Inner {
            ring: ring.clone(),
            seed,
            id: *hasher.finalize().as_bytes(),
            single: OnceLock::new(),
        })))
    }

    /// The ring.
    pub fn ring(&self) -> &Parameters<W> {
        &self.0.ring
    }

    /// The seed.
    pub fn seed(&self) -> &[u8; 32] {
        &self.0.seed
    }

    /// BLAKE3 of parameters and seed: what every serialised object carries.
    pub fn id(&self) -> &[u8; 32] {
        &self.0.id
    }

    /// The ring with digits of one limb each, for the linear relinearisation.
    pub(super) fn single(&self) -> Result<&Parameters<W>, MultiKeyError> {
        if let Some(single) = self.0.single.get() {
            return Ok(single);
        }
        let single = self.0.ring.with_single_limbs()?;
        Ok(self.0.single.get_or_init(|| single))
    }

    /// Refuses objects of another common reference string.
    pub(super) fn same(&self, other: &Self) -> Result<(), MultiKeyError> {
        if self.id() == other.id() {
            Ok(())
        } else {
            Err(MultiKeyError::Common)
        }
    }
}

/// The name of a party: BLAKE3 of its public encryption key, which stands for its secret.
///
/// Names are ordered, and so are the polynomials of ciphertexts. Who owns a name is for the
/// transport to say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party(pub [u8; 32]);

/// The first bytes.
impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
