//! Base OTs: random ones from public-key cryptography, two messages; 128 for a set-up.
//!
//! For every OT the receiver has a choice bit `c` and learns the key `K_c`, the sender learns `K_0`
//! and `K_1`.
//!
//! # Protocol
//! "Endemic oblivious transfer" (D. Masny and P. Rindal, CCS 2019, ePrint 2019/706), in the random
//! oracle model: the receiver makes a key pair `(sk, pk)`, a random element `R_(1-c)` of the group
//! that public keys look uniform in, and `R_c = pk - H_c(R_(1-c))`. It sends `R_0` and `R_1`, which
//! are both uniform to the eye. The sender encrypts a fresh key to each of
//! `pk_b = R_b + H_b(R_(1-b))`. Whichever of the two hashes the receiver asked for last came out
//! random, so it does not know a secret key for both. With the session and the number of the OT in
//! the hashes (the flaw of batches that leave them out: McQuoid, Rosulek and Roy, "Batching base
//! oblivious transfers", ASIACRYPT 2021).
//!
//! Both parties may be malicious; what a cheat can do is choose its own keys (hence "endemic"),
//! which OT extension allows. A sender whose answer is garbage for one choice makes the receiver
//! learn a key that nobody else has, and the extension's check then fails for that choice: the loss
//! that it accounts for.
//!
//! * [`BaseOt::MlKem`]: public keys of ML-KEM-512 (FIPS 203), 400 KB in all. Withstands quantum
//!   computers (module-LWE: the key `t = A s + e` is uniform to the eye, and encryption to a
//!   uniform `t` hides the message). The group is the vectors of residues modulo 3329. Category 1,
//!   as hard as AES-128, which is what OT extension rests on too.
//! * [`BaseOt::Ristretto`]: Diffie and Hellman on ristretto255 (RFC 9496), with one key `A` of the
//!   sender for all OTs; 8 KB in all. The assumption is gap Diffie-Hellman: a quantum computer
//!   opens recorded sessions.

mod ml_kem;
mod ristretto;

use pronghorn_ring::random::Stream;
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

pub(super) use self::ml_kem::check as check_ml_kem;
use super::error::OtError;
use crate::Block;

/// Base OTs of a set-up.
pub const COUNT: usize = Block::BITS;

/// A key that comes out of a base OT.
pub type Key = [u8; 32];

/// The public-key cryptography.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BaseOt {
    /// Post-quantum.
    #[default]
    MlKem,
    /// Elliptic curve: few bytes.
    Ristretto,
}

impl BaseOt {
    /// Bytes of the receiver's message of a set-up.
    pub fn receiver_bytes(self) -> usize {
        self.receiver_bytes_of(COUNT)
    }

    /// Bytes of the sender's message of a set-up.
    pub fn sender_bytes(self) -> usize {
        self.sender_bytes_of(COUNT)
    }

    /// Bytes of the receiver's message of `count` OTs.
    pub(super) fn receiver_bytes_of(self, count: usize) -> usize {
        count
            * match self {
                Self::MlKem => ml_kem::RECEIVER_BYTES,
                Self::Ristretto => ristretto::RECEIVER_BYTES,
            }
    }

    /// Bytes of the sender's message of `count` OTs.
    pub(super) fn sender_bytes_of(self, count: usize) -> usize {
        match self {
            Self::MlKem => count * ml_kem::SENDER_BYTES,
            Self::Ristretto => ristretto::SENDER_BYTES,
        }
    }
}

/// The receiver between its message and the sender's. Its secrets are wiped on drop.
pub struct BaseReceiver(Receiver);

enum Receiver {
    MlKem(ml_kem::Receiver),
    Ristretto(ristretto::Receiver),
}

impl BaseReceiver {
    /// Starts [`COUNT`] OTs with the bits of `choices`; appends the message to `out`.
    ///
    /// `session` should be different every time, but only the sender and the receiver need agree on
    /// it; `stream` is this party's fresh randomness.
    pub fn start(
        base: BaseOt,
        session: &[u8; 32],
        choices: Block,
        stream: &mut Stream,
        out: &mut Vec<u8>,
    ) -> Self {
        Self::start_some(base, session, COUNT, choices, stream, out)
    }

    /// Starts `count` OTs, at most [`COUNT`], with the lowest bits of `choices`.
    pub(super) fn start_some(
        base: BaseOt,
        session: &[u8; 32],
        count: usize,
        choices: Block,
        stream: &mut Stream,
        out: &mut Vec<u8>,
    ) -> Self {
        use self::{ml_kem::Receiver as MlKem, ristretto::Receiver as Ristretto};
        Self(match base {
            BaseOt::MlKem => Receiver::MlKem(MlKem::start(session, count, choices, stream, out)),
            BaseOt::Ristretto => {
                Receiver::Ristretto(Ristretto::start(session, count, choices, stream, out))
            }
        })
    }

    /// The keys of the choices, from the sender's message.
    ///
    /// # Errors
    /// When the message is malformed.
    pub fn finish(self, message: &[u8]) -> Result<Zeroizing<Vec<Key>>, OtError> {
        match self.0 {
            Receiver::MlKem(receiver) => receiver.finish(message),
            Receiver::Ristretto(receiver) => receiver.finish(message),
        }
    }
}

/// Answers the receiver's `message`: appends the sender's message to `out` and gives both keys of
/// each OT.
///
/// # Errors
/// When the message is malformed; `out` is unchanged then.
pub fn respond(
    base: BaseOt,
    session: &[u8; 32],
    message: &[u8],
    stream: &mut Stream,
    out: &mut Vec<u8>,
) -> Result<Zeroizing<Vec<[Key; 2]>>, OtError> {
    respond_some(base, session, COUNT, message, stream, out)
}

/// Answers the message of a receiver of `count` OTs.
///
/// # Errors
/// As [`respond`].
pub(super) fn respond_some(
    base: BaseOt,
    session: &[u8; 32],
    count: usize,
    message: &[u8],
    stream: &mut Stream,
    out: &mut Vec<u8>,
) -> Result<Zeroizing<Vec<[Key; 2]>>, OtError> {
    match base {
        BaseOt::MlKem => ml_kem::respond(session, count, message, stream, out),
        BaseOt::Ristretto => ristretto::respond(session, count, message, stream, out),
    }
}

/// What both kinds hash: which OT of which session, and which of its two keys.
#[derive(Clone, Copy)]
struct Tag<'a> {
    session: &'a [u8; 32],
    index: usize,
    /// 0 or 1; the receiver's is secret.
    key: Choice,
}

impl<'a> Tag<'a> {
    fn new(session: &'a [u8; 32], index: usize, key: Choice) -> Self {
        Self {
            session,
            index,
            key,
        }
    }

    /// A hash of `parts`, each of a length that `domain` fixes, under this tag.
    fn hasher(self, domain: &'static str, parts: &[&[u8]]) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_derive_key(domain);
        hasher.update(self.session);
        hasher.update(&(self.index as u64).to_le_bytes());
        hasher.update(&[self.key.unwrap_u8()]);
        for part in parts {
            hasher.update(part);
        }
        hasher
    }

    /// That hash as a key.
    fn key(self, domain: &'static str, parts: &[&[u8]]) -> Key {
        let mut hasher = self.hasher(domain, parts);
        let mut hash = hasher.finalize();
        let key = *hash.as_bytes();
        hash.zeroize();
        hasher.zeroize();
        key
    }
}

/// Choice `index` of `choices`.
fn choice(choices: Block, index: usize) -> Choice {
    Choice::from((choices.to_u128() >> index & 1) as u8)
}

/// Appends `chosen` and `other`, in this order where `choice` is 0, else the other way round.
fn push_in_order(chosen: &[u8], other: &[u8], choice: Choice, out: &mut Vec<u8>) {
    let select = |zero: &[u8], one: &[u8], out: &mut Vec<u8>| {
        let bytes = zero.iter().zip(one);
        out.extend(bytes.map(|(zero, one)| u8::conditional_select(zero, one, choice)));
    };
    select(chosen, other, out);
    select(other, chosen, out);
}
