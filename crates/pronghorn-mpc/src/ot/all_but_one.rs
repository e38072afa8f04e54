//! All of the sender's random strings but one: the receiver draws which, and the sender does not
//! learn it.
//!
//! `2^w` strings are the leaves of the sender's tree, of which the receiver misses leaf `alpha`:
//! the punctured tree of SoftSpokenOT (L. Roy, CRYPTO 2022) from `w` base OTs, the module
//! `puncture`. Two messages: the receiver's keys, and the sender's ciphertexts with two masked sums
//! a level.
//!
//! # Security
//! The base OTs are endemic ones of ML-KEM-512 against malicious parties ([`base`](super::base)).
//! * A malicious receiver misses one leaf at least. It may say that it misses another one, whose
//!   string it has. So it sends a proof with the number: a hash of the base OTs' keys that lead
//!   away from that leaf, of which it has one a level. The sender checks it ([`Pairs::check`]).
//! * A malicious sender learns nothing of `alpha`. It can make the receiver's leaves be of no one
//!   tree, and other ones for each `alpha`. So the receiver must compare what it makes of the
//!   leaves with what the sender has committed itself to, whatever `alpha` is.

use pronghorn_ring::random::Stream;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

use super::{
    base::{BaseOt, BaseReceiver, Key, check_ml_kem, respond_some},
    error::{OtError, check_length},
    puncture,
};
use crate::Block;

/// Most levels of a tree.
pub const MOST_LEVELS: usize = 16;

/// Bytes of the receiver's message for `2^levels` strings.
pub fn receiver_bytes(levels: usize) -> usize {
    BaseOt::MlKem.receiver_bytes_of(levels)
}

/// Bytes of the sender's message for `2^levels` strings.
pub fn sender_bytes(levels: usize) -> usize {
    BaseOt::MlKem.sender_bytes_of(levels) + levels * size_of::<[Key; 2]>()
}

/// All `2^levels` strings of a tree, which its root alone determines.
pub fn strings(root: &Key, levels: usize) -> Zeroizing<Vec<Key>> {
    puncture::leaves(root, levels)
}

/// The keys of the sender's base OTs, two a level: what it checks the receiver's number with.
/// Secret: no Debug.
pub struct Pairs {
    session: [u8; 32],
    keys: Zeroizing<Vec<[Key; 2]>>,
}

impl Pairs {
    /// Whether the receiver misses string `number`, by its [proof](Missing::proof).
    pub fn check(&self, number: usize, proof: &[u8]) -> bool {
        let keys = self.keys.iter().enumerate();
        let away = keys.map(|(level, pair)| &pair[1 - (number >> level & 1)]);
        number >> self.keys.len() == 0 && bool::from(hash(&self.session, away).ct_eq(proof))
    }
}

/// The proof of the receiver whose keys these are.
fn hash<'a>(session: &[u8; 32], keys: impl Iterator<Item = &'a Key>) -> [u8; 32] {
    let mut hasher =
        blake3::Hasher::new_derive_key("pronghorn 2026 OT: the string that is missing");
    hasher.update(session);
    for key in keys {
        hasher.update(key);
    }
    let hash = *hasher.finalize().as_bytes();
    hasher.zeroize();
    hash
}

/// Refuses what [`respond`] would, where a message comes before its answer is due.
///
/// # Errors
/// The message is malformed.
pub fn check(levels: usize, message: &[u8]) -> Result<(), OtError> {
    check_ml_kem(levels, message)
}

/// The sender's answer to the receiver's `message`, appended to `out`, and what it checks the
/// receiver's number with. `session` is as in [`BaseReceiver::start`], `stream` fresh randomness.
///
/// # Errors
/// The message is malformed; `out` is unchanged then.
pub fn respond(
    session: &[u8; 32],
    root: &Key,
    levels: usize,
    message: &[u8],
    stream: &mut Stream,
    out: &mut Vec<u8>,
) -> Result<Pairs, OtError> {
    let keys = respond_some(BaseOt::MlKem, session, levels, message, stream, out)?;
    let sums = puncture::masked_sums(root, &keys);
    out.extend_from_slice(sums.as_flattened().as_flattened());
    Ok(Pairs {
        session: *session,
        keys,
    })
}

/// The receiver between its message and the sender's. Its secrets are wiped on drop.
pub struct Receiver {
    session: [u8; 32],
    base: BaseReceiver,
    missing: Missing,
}

/// The number of the string that the receiver misses. Secret until the receiver says it: no Debug.
pub struct Missing {
    alpha: u32,
    levels: usize,
    proof: [u8; 32],
}

impl Drop for Missing {
    fn drop(&mut self) {
        self.alpha.zeroize();
        self.proof.zeroize();
    }
}

impl Missing {
    /// Draws one of `2^levels`.
    fn draw(levels: usize, stream: &mut Stream) -> Self {
        let mut bytes = Zeroizing::new([0; 4]);
        stream.fill(&mut *bytes);
        let alpha = u32::from_le_bytes(*bytes) & ((1 << levels) - 1);
        Self {
            alpha,
            levels,
            proof: [0; 32],
        }
    }

    fn bit(&self, level: usize) -> Choice {
        Choice::from((self.alpha >> level & 1) as u8)
    }

    /// The number, for the sender, when it can change nothing more.
    pub fn reveal(&self) -> usize {
        self.alpha as usize
    }

    /// Shows the sender that the string of this number is missing, with the number.
    pub fn proof(&self) -> &[u8; 32] {
        &self.proof
    }

    /// Whether string `number` is missing.
    pub fn is(&self, number: usize) -> Choice {
        self.alpha.ct_eq(&(number as u32))
    }

    /// The strings in the sender's order, from those in the order of `number ^ alpha`.
    fn in_order(&self, mut strings: Zeroizing<Vec<Key>>) -> Zeroizing<Vec<Key>> {
        for level in 0..self.levels {
            for pair in strings.chunks_exact_mut(2 << level) {
                let (zeros, ones) = pair.split_at_mut(1 << level);
                for (zero, one) in zeros.iter_mut().zip(ones) {
                    Key::conditional_swap(zero, one, self.bit(level));
                }
            }
        }
        strings
    }
}

impl Receiver {
    /// Draws which of `2^levels` strings to miss, and appends the message to `out`.
    ///
    /// # Panics
    /// With more than [`MOST_LEVELS`].
    pub fn start(
        session: &[u8; 32],
        levels: usize,
        stream: &mut Stream,
        out: &mut Vec<u8>,
    ) -> Self {
        assert!(levels <= MOST_LEVELS, "a tree has at most 2^16 strings");
        let missing = Missing::draw(levels, stream);
        let choices = Block::from_u128(!u128::from(missing.alpha));
        let base = BaseReceiver::start_some(BaseOt::MlKem, session, levels, choices, stream, out);
        Self {
            session: *session,
            base,
            missing,
        }
    }

    /// The strings in the sender's order, with zeros in the place of the one that is missing, and
    /// which that is. No branch and no address depends on it.
    ///
    /// # Errors
    /// The message has another length.
    pub fn finish(mut self, message: &[u8]) -> Result<(Zeroizing<Vec<Key>>, Missing), OtError> {
        let levels = self.missing.levels;
        check_length("the sender's sums", message, sender_bytes(levels))?;
        let (answer, sums) = message.split_at(BaseOt::MlKem.sender_bytes_of(levels));
        let keys = self.base.finish(answer)?;
        self.missing.proof = hash(&self.session, keys.iter());
        let (sums, _) = sums.as_chunks::<32>();
        let (sums, _) = sums.as_chunks::<2>();
        let alpha = |level| self.missing.bit(level);
        let mut siblings = Zeroizing::new(vec![[0; 32]; levels]);
        puncture::siblings(alpha, &keys, sums, &mut siblings);
        let strings = puncture::punctured_leaves(alpha, &siblings);
        let mut strings = self.missing.in_order(strings);
        for (number, string) in strings.iter_mut().enumerate() {
            string.conditional_assign(&[0; 32], self.missing.is(number));
        }
        Ok((strings, self.missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pronghorn_ring::random::{Prg, Seed};

    const SESSION: [u8; 32] = [7; 32];

    fn stream(seed: u8) -> Stream {
        Prg::new(&Seed::from_bytes([seed; 32]), "pronghorn test").stream(0)
    }

    /// The receiver's message, the sender's, and the receiver.
    fn exchanged(levels: usize, seed: u8) -> (Receiver, Vec<u8>) {
        let (receiver, down, _) = with_pairs(levels, seed);
        (receiver, down)
    }

    fn with_pairs(levels: usize, seed: u8) -> (Receiver, Vec<u8>, Pairs) {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let receiver = Receiver::start(&SESSION, levels, &mut stream(seed), &mut up);
        assert_eq!(up.len(), receiver_bytes(levels));
        let answered = respond(&SESSION, &[9; 32], levels, &up, &mut stream(99), &mut down);
        let pairs = answered.expect("an honest message");
        assert_eq!(down.len(), sender_bytes(levels));
        (receiver, down, pairs)
    }

    /// The proof is of the number that is missing, and of no other.
    #[test]
    fn another_number_has_no_proof() {
        for levels in 0..=4 {
            for seed in 0..10 {
                let (receiver, message, pairs) = with_pairs(levels, seed);
                let (_, missing) = receiver.finish(&message).expect("an honest message");
                for number in 0..2 << levels {
                    let is_missing = number == missing.reveal();
                    assert_eq!(pairs.check(number, missing.proof()), is_missing);
                    assert!(!pairs.check(number, &[0; 32]));
                    assert!(!pairs.check(number, &missing.proof()[1..]));
                }
            }
        }
    }

    #[test]
    fn the_receiver_has_all_strings_but_one() {
        for levels in 0..=4 {
            let strings = strings(&[9; 32], levels);
            let mut missed = std::collections::BTreeSet::new();
            for seed in 0..40 {
                let (receiver, message) = exchanged(levels, seed);
                let (found, missing) = receiver.finish(&message).expect("an honest message");
                let alpha = missing.reveal();
                missed.insert(alpha);
                for (number, (found, string)) in found.iter().zip(strings.iter()).enumerate() {
                    let expected = if number == alpha { &[0; 32] } else { string };
                    assert_eq!(found, expected, "string {number} of 2^{levels}");
                    assert_eq!(bool::from(missing.is(number)), number == alpha);
                }
            }
            assert!(missed.len() > (1 << levels) / 2, "{missed:?}");
        }
    }

    /// A sum that is changed changes strings, and those alone that need it.
    #[test]
    fn changed_sums_show_in_strings() {
        let levels = 3;
        let strings = strings(&[9; 32], levels);
        let start = BaseOt::MlKem.sender_bytes_of(levels);
        for level in 0..levels {
            for side in 0..2 {
                for seed in 0..8 {
                    let (receiver, mut message) = exchanged(levels, seed);
                    message[start + 64 * level + 32 * side] ^= 1;
                    let (found, missing) = receiver.finish(&message).expect("of its length");
                    let alpha = missing.reveal();
                    let differs = |&number: &usize| found[number] != strings[number];
                    let changed = (0..8).filter(|&x| x != alpha).filter(differs).count();
                    // The receiver took the sum of the other side.
                    let took = alpha >> level & 1 != side;
                    assert_eq!(
                        changed > 0,
                        took,
                        "alpha {alpha}, level {level}, side {side}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        let (receiver, message) = exchanged(2, 1);
        assert!(receiver.finish(&message[1..]).is_err());
        let (mut up, mut down) = (Vec::new(), Vec::new());
        Receiver::start(&SESSION, 2, &mut stream(1), &mut up);
        up.pop();
        let answered = respond(&SESSION, &[9; 32], 2, &up, &mut stream(2), &mut down);
        assert!(answered.is_err() && down.is_empty());
        assert!(check(2, &up).is_err());
    }

    #[test]
    fn what_is_no_key_is_refused_before_its_answer() {
        let mut up = Vec::new();
        Receiver::start(&SESSION, 2, &mut stream(1), &mut up);
        assert!(check(2, &up).is_ok());
        let end = up.len() - 3;
        up[end..].fill(0xff);
        let refused = check(2, &up);
        assert!(matches!(refused, Err(OtError::Coefficient { index: 1 })));
    }
}
