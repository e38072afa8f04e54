//! Endemic OT from ML-KEM.
//!
//! An encapsulation key of ML-KEM is `(t, rho)`: the seed `rho` of the matrix `A`, and
//! `t = A s + e` as residues modulo 3329 in 12 bits each (FIPS 203, algorithm 13; `t` is in the NTT
//! domain, which does not matter to sums). The group is the vectors `t`. Both keys of an OT have
//! one `rho`, which the receiver sends and the masks hash; `A` is a hash of it (a random oracle),
//! so choosing it gains nothing.

use ml_kem::{
    DecapsulationKey512, EncapsulationKey512, Seed,
    array::Array,
    kem::{Decapsulate, KeyExport},
    ml_kem_512::Ciphertext,
};
use pronghorn_ring::random::Stream;
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{Key, Tag, choice, push_in_order};
use crate::{
    Block,
    ot::error::{OtError, check_length},
};

/// The modulus of ML-KEM.
const Q: u16 = 3329;
/// Residues of a `t`.
const RESIDUES: usize = 512;
/// Bytes of a `t`.
const VECTOR: usize = RESIDUES * 12 / 8;
const RHO: usize = 32;
const CIPHERTEXT: usize = 768;

/// Bytes of the receiver's message for one OT: `rho`, `R_0` and `R_1`.
pub(super) const RECEIVER_BYTES: usize = RHO + 2 * VECTOR;
/// Bytes of the sender's message for one OT: a ciphertext under each key.
pub(super) const SENDER_BYTES: usize = 2 * CIPHERTEXT;

const MASK: &str = "pronghorn ot base ml-kem-512 mask of a public key";
const KEY: &str = "pronghorn ot base ml-kem-512 key";

type Vector = Zeroizing<[u16; RESIDUES]>;

/// The receiver between the messages.
#[derive(ZeroizeOnDrop)]
pub(super) struct Receiver {
    #[zeroize(skip)]
    session: [u8; 32],
    choices: Block,
    /// Wipes itself.
    #[zeroize(skip)]
    secrets: Vec<DecapsulationKey512>,
}

impl Receiver {
    pub fn start(
        session: &[u8; 32],
        count: usize,
        choices: Block,
        stream: &mut Stream,
        out: &mut Vec<u8>,
    ) -> Self {
        let mut secrets = Vec::with_capacity(count);
        for index in 0..count {
            let choice = choice(choices, index);
            let mut seed = Seed::default();
            stream.fill(&mut seed);
            let secret = DecapsulationKey512::from_seed(seed);
            seed.zeroize();

            let key = secret.encapsulation_key().to_bytes();
            let (t, rho) = key.split_at(VECTOR);
            let other = encode(&uniform(|bytes| stream.fill(bytes)));
            let mask = mask(Tag::new(session, index, choice), rho, &*other);
            let masked = encode(&combine(&decode(t), &mask, subtract));
            out.extend_from_slice(rho);
            push_in_order(&*masked, &*other, choice, out);
            secrets.push(secret);
        }
        Self {
            session: *session,
            choices,
            secrets,
        }
    }

    pub fn finish(self, message: &[u8]) -> Result<Zeroizing<Vec<Key>>, OtError> {
        let count = self.secrets.len();
        check_length(
            "the sender's base OT ciphertexts",
            message,
            count * SENDER_BYTES,
        )?;
        let sent = message.chunks_exact(SENDER_BYTES);
        let mut keys = Zeroizing::new(Vec::with_capacity(count));
        for (index, (secret, sent)) in self.secrets.iter().zip(sent).enumerate() {
            let choice = choice(self.choices, index);
            let (zero, one) = sent.split_at(CIPHERTEXT);
            let mut ciphertext = Ciphertext::default();
            for ((out, zero), one) in ciphertext.iter_mut().zip(zero).zip(one) {
                *out = u8::conditional_select(zero, one, choice);
            }
            let mut shared = secret.decapsulate(&ciphertext);
            keys.push(Tag::new(&self.session, index, choice).key(KEY, &[&shared]));
            shared.zeroize();
            ciphertext.zeroize();
        }
        Ok(keys)
    }
}

pub(super) fn respond(
    session: &[u8; 32],
    count: usize,
    message: &[u8],
    stream: &mut Stream,
    out: &mut Vec<u8>,
) -> Result<Zeroizing<Vec<[Key; 2]>>, OtError> {
    check(count, message)?;
    let mut keys = Zeroizing::new(Vec::with_capacity(count));
    let mut ciphertexts = Vec::with_capacity(count * SENDER_BYTES);
    for (index, sent) in message.chunks_exact(RECEIVER_BYTES).enumerate() {
        let (rho, vectors) = sent.split_at(RHO);
        let (zero, one) = vectors.split_at(VECTOR);
        let mut pair = Zeroizing::new([[0; 32]; 2]);
        for ((key, bit), [own, other]) in pair.iter_mut().zip(0..).zip([[zero, one], [one, zero]]) {
            let tag = Tag::new(session, index, Choice::from(bit));
            let t = encode(&combine(&decode(own), &mask(tag, rho, other), add));
            let public = encapsulation_key(&*t, rho);
            let mut seed = Array([0; 32]);
            stream.fill(&mut seed);
            // The key of FIPS 203 for the message `seed`, which is fresh.
            let (ciphertext, mut shared) = public.encapsulate_deterministic(&seed);
            *key = tag.key(KEY, &[&shared]);
            ciphertexts.extend_from_slice(&ciphertext);
            seed.zeroize();
            shared.zeroize();
        }
        keys.push(*pair);
    }
    out.append(&mut ciphertexts);
    Ok(keys)
}

/// Refuses what is no message of the receiver's.
pub(in crate::ot) fn check(count: usize, message: &[u8]) -> Result<(), OtError> {
    check_length(
        "the receiver's base OT keys",
        message,
        count * RECEIVER_BYTES,
    )?;
    let mut keys = message.chunks_exact(RECEIVER_BYTES);
    let is_wrong = |sent: &[u8]| !sent[RHO..].chunks_exact(VECTOR).all(is_reduced);
    match keys.position(is_wrong) {
        Some(index) => Err(OtError::Coefficient { index }),
        None => Ok(()),
    }
}

fn encapsulation_key(t: &[u8], rho: &[u8]) -> EncapsulationKey512 {
    let mut bytes = Array::default();
    let (out_t, out_rho) = bytes.split_at_mut(VECTOR);
    out_t.copy_from_slice(t);
    out_rho.copy_from_slice(rho);
    EncapsulationKey512::new(&bytes).expect("every coefficient is reduced")
}

/// `H_b(rho, other)`.
fn mask(tag: Tag, rho: &[u8], other: &[u8]) -> Vector {
    let mut hasher = tag.hasher(MASK, &[rho, other]);
    let mut output = hasher.finalize_xof();
    let vector = uniform(|bytes| output.fill(bytes));
    output.zeroize();
    hasher.zeroize();
    vector
}

/// Residues of 128 random bits each: at most 2^-98 away from uniform for the whole of a set-up, in
/// constant time.
fn uniform(fill: impl FnOnce(&mut [u8])) -> Vector {
    let mut bytes = Zeroizing::new([[0; 16]; RESIDUES]);
    fill(bytes.as_flattened_mut());
    let mut vector = Zeroizing::new([0; RESIDUES]);
    for (out, bytes) in vector.iter_mut().zip(bytes.iter()) {
        let (limbs, _) = bytes.as_chunks::<4>();
        let limbs = limbs.iter().map(|&limb| u32::from_le_bytes(limb));
        // The remainder by a constant is a multiplication.
        let residue = limbs.fold(0, |high, limb| {
            (high << 32 | u64::from(limb)) % u64::from(Q)
        });
        *out = residue as u16;
    }
    vector
}

fn combine(
    x: &[u16; RESIDUES],
    y: &[u16; RESIDUES],
    operation: impl Fn(u16, u16) -> u16,
) -> Vector {
    Zeroizing::new(std::array::from_fn(|i| operation(x[i], y[i])))
}

/// `x + y mod Q`.
fn add(x: u16, y: u16) -> u16 {
    let sum = x + y;
    sum.min(sum.wrapping_sub(Q))
}

/// `x - y mod Q`.
fn subtract(x: u16, y: u16) -> u16 {
    let difference = x.wrapping_sub(y);
    difference.min(difference.wrapping_add(Q))
}

/// The residues of [`VECTOR`] bytes: ByteDecode of FIPS 203 with 12 bits, not reduced.
fn decode(bytes: &[u8]) -> Vector {
    let mut vector = Zeroizing::new([0; RESIDUES]);
    let (triples, _) = bytes.as_chunks::<3>();
    let (pairs, _) = vector.as_chunks_mut::<2>();
    for (pair, &[low, middle, high]) in pairs.iter_mut().zip(triples) {
        let [low, middle, high] = [low, middle, high].map(u16::from);
        *pair = [low | (middle & 0xf) << 8, middle >> 4 | high << 4];
    }
    vector
}

/// ByteEncode of FIPS 203 with 12 bits.
fn encode(vector: &[u16; RESIDUES]) -> Zeroizing<[u8; VECTOR]> {
    let mut bytes = Zeroizing::new([0; VECTOR]);
    let (triples, _) = bytes.as_chunks_mut::<3>();
    let (pairs, _) = vector.as_chunks::<2>();
    for (triple, &[first, second]) in triples.iter_mut().zip(pairs) {
        *triple = [first, first >> 8 | second << 4, second >> 4].map(|word| word as u8);
    }
    bytes
}

/// True if all residues of the peer's vector are below `Q`.
fn is_reduced(bytes: &[u8]) -> bool {
    decode(bytes).iter().all(|&residue| residue < Q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residues_survive_their_encoding() {
        let vector: [u16; RESIDUES] = std::array::from_fn(|i| (i * 991 % usize::from(Q)) as u16);
        assert_eq!(*decode(&*encode(&vector)), vector);
        assert!(is_reduced(&*encode(&vector)));
        let mut too_large = vector;
        too_large[511] = Q;
        assert!(!is_reduced(&*encode(&too_large)));
    }

    #[test]
    fn sums_are_modulo_q() {
        for (x, y) in [(0, 0), (1, Q - 1), (Q - 1, Q - 1), (5, 7), (7, 5)] {
            assert_eq!(add(x, y), (x + y) % Q);
            assert_eq!(subtract(add(x, y), y), x);
        }
    }

    #[test]
    fn uniform_residues_are_the_128_bits_modulo_q() {
        let vector = uniform(|bytes| {
            for (i, bytes) in bytes.chunks_exact_mut(16).enumerate() {
                bytes.copy_from_slice(&(u128::MAX / (i as u128 + 1)).to_le_bytes());
            }
        });
        for (i, &residue) in vector.iter().enumerate() {
            // The highest limb comes first in the fold: limbs in reverse order.
            let value = u128::MAX / (i as u128 + 1);
            let limbs = (0..4).map(|l| value >> (32 * l) & 0xffff_ffff);
            let reversed = limbs.fold(0, |high, limb| high << 32 | limb);
            assert_eq!(u128::from(residue), reversed % u128::from(Q));
        }
    }
}
