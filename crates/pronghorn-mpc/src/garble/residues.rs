//! The words that labels project to: one for each instance of a tile, in the modulus of their
//! register.

use pronghorn_ring::modulus::Modulus as Residues;
use pronghorn_ring::{PowerOfTwo, Prime};

use crate::Block;
use crate::circuit::{Modulus, Program, TILE, Use, Weight};

/// A word for each instance.
pub(super) type Words = [u64; TILE];

/// A modulus that hashes can be cut to.
trait Uniform: Residues<u64> {
    /// A residue out of a hash, uniform up to `2^-64`. Modulo a power of two a hash has two, number
    /// 0 and number 1.
    fn uniform(self, hash: Block, word: usize) -> u64;
}

impl Uniform for PowerOfTwo<u64> {
    #[inline(always)]
    fn uniform(self, hash: Block, word: usize) -> u64 {
        self.reduce((hash.to_u128() >> (64 * word)) as u64)
    }
}

impl Uniform for Prime<u64> {
    #[inline(always)]
    fn uniform(self, hash: Block, _word: usize) -> u64 {
        // upper 2^64 + lower: the Shoup product reduces any word.
        let hash = hash.to_u128();
        let (upper, lower) = ((hash >> 64) as u64, hash as u64);
        let one = self.shoup(1);
        let two_64 = self.add(self.mul_shoup(u64::MAX, 1, one), 1);
        let upper = self.mul_shoup(upper, two_64, self.shoup(two_64));
        self.add(upper, self.mul_shoup(lower, 1, one))
    }
}

/// Runs a block for either kind of modulus, so that the choice is made outside of its loops.
macro_rules! for_modulus {
    ($modulus:expr, $name:ident => $block:expr) => {
        match $modulus {
            Modulus::PowerOfTwo($name) => $block,
            Modulus::Prime($name) => $block,
        }
    };
}

/// All bits of `bit`.
#[inline(always)]
fn mask(bits: u32, i: usize) -> u64 {
    u64::from(bits >> i & 1).wrapping_neg()
}

/// The weights of the instances, at the garbler.
#[inline(always)]
fn weights<M: Uniform>(modulus: M, registers: &[Words], weight: Weight) -> Words {
    match weight {
        Weight::Public(factor) => [factor; TILE],
        Weight::Share { factor, register } => {
            let share = &registers[register as usize];
            let mut weights = [0; TILE];
            for (weight, &share) in weights.iter_mut().zip(share) {
                *weight = modulus.mul(share, factor);
            }
            weights
        }
    }
}

/// Adds `2^shift * words` to a register.
#[inline(always)]
fn accumulate(registers: &mut [Words], program: &Program, each: &Use, words: &Words) {
    let register = &mut registers[each.register as usize];
    let modulus = program.registers[each.register as usize];
    for_modulus!(modulus, modulus => {
        for (total, word) in register.iter_mut().zip(words) {
            *total = modulus.add(*total, word << each.shift);
        }
    });
}

/// The garbler's side of a projection: adds its share to the register; the corrections for the
/// evaluator.
///
/// `pads[c]` are the hashes of the labels of colour `c`, and the bit is `colour + colours`. The
/// evaluator's share is its pad, plus the correction where its colour is 1.
#[inline(always)]
pub(super) fn garble(
    registers: &mut [Words],
    program: &Program,
    each: &Use,
    pads: [&[Block; TILE]; 2],
    word: usize,
    colours: u32,
) -> Words {
    let (mut shares, mut corrections) = ([0; TILE], [0; TILE]);
    for_modulus!(each.modulus, modulus => {
        let weights = weights(modulus, registers, each.weight);
        for i in 0..TILE {
            // The bit is `flip` at colour 0 and its opposite at colour 1.
            let flip = mask(colours, i);
            let pad0 = modulus.uniform(pads[0][i], word);
            let pad1 = modulus.uniform(pads[1][i], word);
            shares[i] = modulus.sub(weights[i] & flip, pad0);
            let (plus, minus) = (weights[i], modulus.neg(weights[i]));
            let step = plus ^ (plus ^ minus) & flip;
            corrections[i] = modulus.add(step, modulus.sub(pad0, pad1));
        }
    });
    accumulate(registers, program, each, &shares);
    corrections
}

/// The evaluator's side.
#[inline(always)]
pub(super) fn evaluate(
    registers: &mut [Words],
    program: &Program,
    each: &Use,
    pads: &[Block; TILE],
    word: usize,
    colours: u32,
    corrections: &Words,
) {
    let mut shares = [0; TILE];
    for_modulus!(each.modulus, modulus => {
        for i in 0..TILE {
            let pad = modulus.uniform(pads[i], word);
            // Reduced, since a peer may send what is not.
            let correction = modulus.add(corrections[i], 0);
            shares[i] = modulus.add(pad, correction & mask(colours, i));
        }
    });
    accumulate(registers, program, each, &shares);
}

/// Adds bits that this party knows, times their weight.
#[inline(always)]
pub(super) fn add_known(registers: &mut [Words], program: &Program, each: &Use, bits: u32) {
    let mut words = for_modulus!(each.modulus, modulus => weights(modulus, registers, each.weight));
    for (i, word) in words.iter_mut().enumerate() {
        *word &= mask(bits, i);
    }
    accumulate(registers, program, each, &words);
}

/// `out + u l`, or `out - u l` for the garbler; `u` and `l` are then 0 again.
#[inline(always)]
pub(super) fn multiply(
    registers: &mut [Words],
    program: &Program,
    [out, u, l]: [u32; 3],
    garbler: bool,
) {
    let u = std::mem::replace(&mut registers[u as usize], [0; TILE]);
    let l = std::mem::replace(&mut registers[l as usize], [0; TILE]);
    let register = &mut registers[out as usize];
    for_modulus!(program.registers[out as usize], modulus => {
        for i in 0..TILE {
            let product = modulus.mul(u[i], l[i]);
            let product = if garbler { modulus.neg(product) } else { product };
            register[i] = modulus.add(register[i], product);
        }
    });
}

/// Appends words of `width` bits as one little-endian bit stream, padded with zeros to a whole
/// byte.
#[inline(always)]
pub(super) fn pack(words: &[u64], width: u32, out: &mut Vec<u8>) {
    let (mut row, mut filled) = (0u128, 0);
    for &word in words {
        row |= u128::from(word) << filled;
        filled += width;
        if filled >= 64 {
            out.extend_from_slice(&(row as u64).to_le_bytes());
            row >>= 64;
            filled -= 64;
        }
    }
    out.extend_from_slice(&(row as u64).to_le_bytes()[..filled.div_ceil(8) as usize]);
}

/// The inverse of [`pack`] for `count` words, as residues of this many bits; bits that are missing
/// are 0.
#[inline(always)]
pub(super) fn unpack(mut bytes: &[u8], count: usize, width: u32) -> Words {
    let mask = u64::MAX >> (64 - width);
    let (mut words, mut row, mut held) = ([0; TILE], 0u128, 0);
    for word in &mut words[..count] {
        if held < width {
            let mut next = [0; 8];
            let taken = bytes.split_off(..bytes.len().min(8)).unwrap_or_default();
            next[..taken.len()].copy_from_slice(taken);
            row |= u128::from(u64::from_le_bytes(next)) << held;
            held += 64;
        }
        *word = row as u64 & mask;
        row >>= width;
        held -= width;
    }
    words
}
