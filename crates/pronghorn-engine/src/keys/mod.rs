//! A client's keys: of encrypted networks, checked by cut and choose, and of steps on slots.
//!
//! Under `encrypted` false keys tell their maker weights: under a public key that is no RLWE sample
//! the answer's mask can be read, and what hides the weights is taken off. So the client makes `K`
//! sets of keys (`key_checks` of the plan), each from a seed, and commits itself to all. The server
//! makes all sets but one anew from their seeds, compares every byte, and uses the one that is left.
//! It picks that one, and the client learns which when it can change nothing more.
//!
//! On slots answers are masked modulo `Q`. False keys tell nothing by themselves, and weights where
//! the layer's values are opened too ([`pronghorn_he::bfv::Hider`]). A client who departs from the
//! protocol can extract the model from shares anyway. There is one set, and no check.
//!
//! Messages before the first batch of a connection:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the digest of the keys, of steps on slots: keys that the client keeps, or zeros | client | 32 |
//! | the server's wish, of steps on slots: 0 if it has keys of this digest, 1 if it wants these and has had them before, 2 if it wants new ones | server | 1 |
//! | the challenge, of new keys that are checked, as the next three are: a nonce, and the keys of `log2 K` oblivious transfers | server | 32 and 1,568 a transfer |
//! | the opening: the version of the keys, and the answer of the transfers: all seeds but one | client | 2 and 1,600 a transfer |
//! | commitments: the digests of some sets | client | 32 a set, of 8 sets at most |
//! | the choice: the number of the set that is used, and a proof that the server misses its seed | server | 33 |
//! | a piece of the keys | client | 1 MiB, the last one less |
//!
//! # The bound
//!
//! The server accepts a set that does not follow from a seed with probability `1 / K` at most, and
//! the sum of what breaks ML-KEM-512, BLAKE3 and the generators. For say that it would accept with
//! set `i` left out, and with set `j`. The first says that set `j` follows from a seed, by its
//! digest, and the second that set `i` does. So one set at most is false, and the server must have
//! left out that one. It draws its number uniformly, and the transfers hide it until it has checked
//! the others ([`all_but_one`]). A client cannot escape by leaving:
//! before the choice it knows nothing of it, and after it the check is over. This is covert
//! security with deterrence factor `1 - 1 / K` (Y. Aumann, Y. Lindell, TCC 2007; challenges by
//! oblivious transfer as there).
//!
//! # Uses
//!
//! A set serves as many batches as floods are made for ([`CheckedPlan::flood`]), and at most
//! [`BATCHES`]. Both parties count, the server by digest over all connections, for the digests that
//! it saw last. A client whose keys are used up draws new ones.
//!
//! What is checked is that the keys are some seed's. Whether a client sends ciphertexts of values
//! within their range is not.
//!
//! # What is revealed
//!
//! To the server nothing of the seed that is left: digests are of bytes that it gets anyway, and
//! the seeds are the leaves of a puncturable function. A server that names another set than the one
//! that it misses, to have the secret of the keys in use, has no proof for it (as in C. Hong, J.
//! Katz, V. Kolesnikov, W. Lu, X. Wang, EUROCRYPT 2019): the client ends the session. Seeds that
//! were opened are never used. A new cut has new seeds, and no seed is in two cuts: a second choice
//! would open what the first has left.
//!
//! # Departures
//!
//! Aumann and Lindell let the honest party output `corrupted` with a proof. Here it logs it. The
//! secret key is drawn until its embedding is small, which is decided in floating point: two
//! machines whose sums differ in the last bits decide otherwise once in some `2^40` sets, and an
//! honest client is then refused.

mod cache;
mod client;
mod preludes;
mod server;
#[cfg(test)]
mod tests;

pub use cache::KeyCache;
pub(crate) use client::KeptSeed;
pub(crate) use preludes::{client, server};

use pronghorn_mpc::ot::all_but_one;
use pronghorn_plan::CheckedPlan;
use pronghorn_ring::random::{Prg, Seed};
use zeroize::Zeroizing;

use crate::{
    error::EngineError,
    exchange::{Message, Messages, Parts, Party},
    secret::keyed,
};

/// Of the way from a seed to keys. Another way from the same seed needs another number: equal
/// randomness for other keys gives both away.
pub const VERSION: u16 = 2;

/// Bytes of a digest, and of a seed.
const DIGEST: usize = 32;
/// Bytes of a piece of the keys.
const PIECE: usize = 1 << 20;
/// Sets that are made between two messages.
const GROUP: usize = 8;
/// Most batches that one set of keys serves, on a connection and by a client's store. A client whose
/// check of decrypted values fails goes on with its keys, as new ones would show it. If its user
/// then reacts for all to see, that is a bit of the secret key: of one key so many at most.
pub const BATCHES: usize = 1 << 6;
/// Stands for the step in errors.
pub(crate) const STEP: &str = "the client's keys";

const DIGEST_OF_KEYS: &str = "the digest of the keys";
const WISH: &str = "the server's wish";
const CHALLENGE: &str = "the challenge";
const OPENING: &str = "the opening";
const COMMITMENTS: &str = "commitments";
const CHOICE: &str = "the choice";
const KEYS: &str = "a piece of the keys";

/// The keys that a plan needs, and how a set of them follows from a seed.
pub(crate) trait KeySets: Send + Sync + 'static {
    /// The client's half of a set.
    type Client: Send + Sync + 'static;
    /// The server's half.
    type Server: Send + Sync + 'static;

    /// Whether clients keep seeds and servers keep keys for later connections.
    const KEPT: bool;

    /// Whether the server checks them.
    const CHECKED: bool;

    /// The plan that the keys are for.
    fn plan(&self) -> &CheckedPlan;

    /// Bytes of the keys of a set.
    fn bytes(&self) -> usize;

    /// Hands the bytes of a seed's keys to `out`, part by part. They depend on nothing else, and
    /// not on the machine.
    ///
    /// # Errors
    /// The plan is not one to follow.
    fn encode(&self, seed: &Seed, out: &mut dyn FnMut(&[u8])) -> Result<(), EngineError>;

    /// The secret keys of a seed.
    fn client(&self, seed: &Seed) -> Self::Client;

    /// The keys of these bytes.
    ///
    /// # Errors
    /// They are no keys of the plan.
    fn server(&self, bytes: &[u8]) -> Result<Self::Server, EngineError>;
}

/// Batches that a set of keys serves: as many as floods are made for, and at most [`BATCHES`]. Both
/// parties count.
pub(crate) fn most_batches(plan: &CheckedPlan) -> usize {
    let floods = plan.flood().map_or(u64::MAX, |floods| floods.count);
    BATCHES.min(usize::try_from(floods).unwrap_or(usize::MAX))
}

/// The digest of a seed's keys.
fn digest_of<S: KeySets>(sets: &S, seed: &Seed) -> Result<[u8; DIGEST], EngineError> {
    let mut hasher = hasher(sets.plan());
    sets.encode(seed, &mut |part| {
        hasher.update(part);
    })?;
    Ok(*hasher.finalize().as_bytes())
}

/// Hashes the bytes of a set.
fn hasher(plan: &CheckedPlan) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 digest of a client's keys");
    hasher.update(&plan.hash());
    hasher
}

/// Three seeds for what `parts` name, from that of a set: of this version, this plan and these
/// parts alone.
pub(crate) fn derived(seed: &Seed, plan: &CheckedPlan, parts: &[&[u8]]) -> [Seed; 3] {
    let (version, plan) = (VERSION.to_le_bytes(), plan.hash());
    let own: [&[u8]; 2] = [&version, &plan];
    let own = keyed(seed, &[&own, parts].concat());
    let prg = Prg::new(&own, "pronghorn 2026 seeds of a client's keys");
    [0, 1, 2].map(|number| {
        let mut bytes = Zeroizing::new([0; 32]);
        prg.stream(number).fill(&mut *bytes);
        Seed::from_bytes(*bytes)
    })
}

/// The sizes that both parties' machines share.
#[derive(Clone, Copy)]
struct Shape {
    /// Sets are `2^levels`.
    levels: usize,
    key_bytes: usize,
    kept: bool,
}

impl Shape {
    fn of<S: KeySets>(sets: &S) -> Self {
        Self {
            levels: match S::CHECKED {
                true => sets.plan().key_checks.trailing_zeros() as usize,
                false => 0,
            },
            key_bytes: sets.bytes(),
            kept: S::KEPT,
        }
    }

    /// Whether there is a choice among sets.
    fn is_checked(self) -> bool {
        self.levels > 0
    }

    /// The commitments of each message.
    fn groups(self) -> Parts {
        Parts {
            items: 1 << self.levels,
            most: GROUP,
        }
    }

    /// The bytes of each piece.
    fn pieces(self) -> Parts {
        Parts {
            items: self.key_bytes,
            most: PIECE,
        }
    }

    fn messages(self) -> Messages {
        let kept = [
            Message::client(DIGEST_OF_KEYS, DIGEST),
            Message::server(WISH, 1),
        ];
        let challenge = DIGEST + all_but_one::receiver_bytes(self.levels);
        let opening = size_of_val(&VERSION) + all_but_one::sender_bytes(self.levels);
        let cut = [
            Message::server(CHALLENGE, challenge).optional(),
            Message::client(OPENING, opening).optional(),
        ];
        let groups = self.groups().messages(Party::Client, COMMITMENTS, DIGEST);
        let pieces = self.pieces().messages(Party::Client, KEYS, 1);
        let choice = Message::server(CHOICE, 1 + DIGEST);
        let checks = cut.into_iter().chain(groups.map(Message::optional));
        let checks = checks.chain([choice.optional()]);
        Messages::new(STEP)
            .with_all(kept.into_iter().filter(|_| self.kept))
            .with_all(checks.filter(|_| self.is_checked()))
            .with_all(pieces.map(Message::optional))
    }
}

/// What the server says to the digest of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// It has them.
    Nothing = 0,
    /// It had them, and has them no more.
    Keys = 1,
    /// It wants new ones.
    Cut = 2,
}

impl Wish {
    fn is_due(self, message: &'static str) -> bool {
        match message {
            KEYS => self != Self::Nothing,
            CHALLENGE | OPENING | COMMITMENTS | CHOICE => self == Self::Cut,
            _ => true,
        }
    }
}

/// What the transfers of a cut are hashed with.
fn session(plan: &CheckedPlan, binding: Option<[u8; 32]>, nonce: &[u8; DIGEST]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 cut of a client's keys");
    hasher.update(&plan.hash());
    hasher.update(&binding.unwrap_or_default());
    hasher.update(nonce);
    *hasher.finalize().as_bytes()
}
