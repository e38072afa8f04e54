//! From residues to signed 16-bit limbs and back, on arrays as long as a vector.
//!
//! Plain loops over arrays: inlined into the entry points of [`simd`](crate::simd), the compiler
//! turns them into the vector instructions of each level.

use pronghorn_ring::{Prime, Word};

/// What packing and reduction need to know about the modulus.
pub(crate) struct Modulus {
    q: u64,
    /// The largest residue that stands for itself; larger ones stand for `residue - q`.
    largest: u64,
    /// Packed words stand for `residue - offset`, which lies within the limbs' range.
    offset: u64,
    /// True if the low limb's sum is worth less than a quarter of `q` beyond its upper half.
    is_wide: bool,
    /// Limbs a centred residue needs: 2, 3 or 4.
    pub(crate) limbs: usize,
    /// `2^(16 j) / q`.
    quotient: [f64; 4],
}

/// Adding this to a float of small magnitude rounds it to an integer, left in the low bits.
const ROUND_F32: f32 = 12_582_912.0; // 1.5 * 2^23
const ROUND_F64: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52

impl Modulus {
    /// # Panics
    ///
    /// If `q` is 2^31 or more for 32-bit words, 2^62 or more for 64-bit words.
    pub(crate) fn new<W: Word>(q: &Prime<W>) -> Self {
        let q = q.value();
        let bound = if W::BITS == 32 { 1 << 31 } else { 1 << 62 };
        assert!(
            q > 1 && q < bound,
            "modulus {q} of {}-bit words is not in 2..{bound}",
            W::BITS
        );
        let limbs = (u64::BITS - q.leading_zeros()).div_ceil(16).max(2);
        // Signed 16-bit limbs hold 2^(16 limbs) numbers, a little more of them negative.
        let most = 0x7fff_7fff_7fff_7fff_u64 >> (64 - 16 * limbs);
        let largest = most.min(q / 2);
        Self {
            q,
            largest,
            offset: q - 1 - largest,
            is_wide: q >= 1 << 18,
            limbs: limbs as usize,
            quotient: [0, 16, 32, 48].map(|shift| (1_u64 << shift) as f64 / q as f64),
        }
    }

    /// The modulus itself.
    pub(crate) fn value(&self) -> u64 {
        self.q
    }

    /// The residue's representative of smallest magnitude, or nearly, that the limbs hold.
    #[inline(always)]
    fn centre(&self, residue: u64) -> i64 {
        let low = residue as i64;
        if residue > self.largest {
            low.wrapping_sub(self.q as i64)
        } else {
            low
        }
    }

    /// `sum * offset mod q`: by so much a sum of packed words falls short, whose weights add up to
    /// `sum`.
    pub(crate) fn correction(&self, sum: i64) -> u64 {
        let q = u128::from(self.q);
        let sum = i128::from(sum).rem_euclid(q as i128) as u128;
        (sum * u128::from(self.offset) % q) as u64
    }

    /// `a + b mod q`, for residues; anything for other words.
    #[inline(always)]
    pub(crate) fn add(&self, a: u64, b: u64) -> u64 {
        let sum = a.wrapping_add(b);
        if sum >= self.q { sum - self.q } else { sum }
    }

    /// The limbs of one residue, lowest first: `residue = sum_j limb_j * 2^(16 j) mod q`.
    #[inline(always)]
    pub(crate) fn limbs<const L: usize>(&self, residue: u64) -> [i32; L] {
        let fields = fields64(self.centre(residue));
        std::array::from_fn(|j| i32::from((fields >> (16 * j)) as i16))
    }
}

/// Added to a number, these carry out of each 16-bit field whose value is 2^15 or more; flipped
/// then, the fields read as signed numbers are the number's limbs.
const HALVES: u64 = 0x8000_8000_8000;

/// The limbs of `value`, as 16-bit fields.
#[inline(always)]
fn fields64(value: i64) -> i64 {
    (value as u64).wrapping_add(HALVES) as i64 ^ HALVES as i64
}

/// Packs `N` words of two rows into `L` vectors of `N` lanes, one vector a limb: `first`'s limb
/// in the low half of a lane, `second`'s in the high half.
///
/// The limbs are those of `residue - modulus.offset`: centred without a comparison.
#[inline(always)]
pub(crate) fn pack<W: Word, const L: usize, const N: usize>(
    modulus: &Modulus,
    first: &[W; N],
    second: &[W; N],
    packed: &mut [[u32; N]],
) {
    /// The top bits of both halves of a lane.
    const SIGNS: u32 = 0x8000_8000;
    let packed = &mut packed[..L];
    let shift = HALVES.wrapping_sub(modulus.offset);
    for lane in 0..N {
        if W::BITS == 32 {
            let shift = 0x8000_u32.wrapping_sub(modulus.offset as u32);
            let low = (first[lane].to_u64() as u32).wrapping_add(shift);
            let high = (second[lane].to_u64() as u32).wrapping_add(shift);
            packed[0][lane] = ((low & 0xffff) | (high << 16)) ^ SIGNS;
            packed[1][lane] = (low >> 16) | (high & 0xffff_0000);
        } else {
            let low = first[lane].to_u64().wrapping_add(shift);
            let high = second[lane].to_u64().wrapping_add(shift);
            for (limb, vector) in packed.iter_mut().enumerate() {
                let (low, high) = ((low >> (16 * limb)) as u32, (high >> (16 * limb)) as u32);
                let flipped = if limb < 3 { SIGNS } else { 0 };
                vector[lane] = ((low & 0xffff) | (high << 16)) ^ flipped;
            }
        }
    }
}

/// `sum_j sums[j] * 2^(16 j) mod q`, for sums below 2^31: those over one chunk of weights, with an
/// addend's limbs.
#[inline(always)]
pub(crate) fn reduce<W: Word, const L: usize, const N: usize>(
    modulus: &Modulus,
    sums: &[[i32; N]],
    out: &mut [W; N],
) {
    let sums = &sums[..L];
    if W::BITS != 32 {
        for lane in 0..N {
            let limbs: [i64; L] = std::array::from_fn(|j| i64::from(sums[j][lane]));
            out[lane] = W::from_u64(reduce_lane(modulus, limbs));
        }
    } else if modulus.is_wide {
        reduce_wide(modulus, &sums[0], &sums[1], out);
    } else {
        reduce_narrow(modulus, &sums[0], &sums[1], out);
    }
}

/// [`reduce`] of words of 32 bits, for `q >= 2^18`.
///
/// The quotient is taken from the sum's upper half alone, at most `sum |w| * 2^14 + 2^16`. What is
/// left out is below `2^16 / q <= 1/4`. The rest of the quotient, at most 2^16 in magnitude, is known
/// to 2^16 * 3 * 2^-24 < 0.02 in `f32`. So after rounding the remainder lies between -0.52 q and
/// 0.77 q, and its low word is all of it.
#[inline(always)]
fn reduce_wide<W: Word, const N: usize>(
    modulus: &Modulus,
    low: &[i32; N],
    high: &[i32; N],
    out: &mut [W; N],
) {
    let q = modulus.q as u32;
    let factor = modulus.quotient[1] as f32;
    // The bits of a rounded float are the integer and these.
    let rounding = ROUND_F32.to_bits().wrapping_mul(q);
    let rounding_and_q = rounding.wrapping_add(q);
    for lane in 0..N {
        let upper = high[lane].wrapping_add(low[lane] >> 16);
        let quotient = (upper as f32 * factor + ROUND_F32).to_bits();
        let sum = (low[lane] as u32).wrapping_add((high[lane] as u32) << 16);
        let rest = sum.wrapping_sub(quotient.wrapping_mul(q));
        // A negative remainder is a huge unsigned number.
        let rest = rest
            .wrapping_add(rounding)
            .min(rest.wrapping_add(rounding_and_q));
        out[lane] = W::from_u64(u64::from(rest));
    }
}

/// [`reduce`] of words of 32 bits, for any `q`.
///
/// The quotient by `q` is at most `sum |w|` <= 2^16 and known to 2^16 * 6 * 2^-24 in `f32` (less
/// than 0.03; the limbs of a centred residue are at most `q` in total), so after rounding the
/// remainder lies within 0.53 q of zero and its low word is all of it.
#[inline(always)]
fn reduce_narrow<W: Word, const N: usize>(
    modulus: &Modulus,
    low: &[i32; N],
    high: &[i32; N],
    out: &mut [W; N],
) {
    let q = modulus.q as u32;
    let [unit, shifted, ..] = modulus.quotient.map(|factor| factor as f32);
    for lane in 0..N {
        let (low, high) = (low[lane], high[lane]);
        let quotient = high as f32 * shifted + low as f32 * unit + ROUND_F32;
        let quotient = quotient.to_bits().wrapping_sub(ROUND_F32.to_bits());
        let sum = (low as u32).wrapping_add((high as u32) << 16);
        let rest = sum.wrapping_sub(quotient.wrapping_mul(q));
        // A negative remainder is a huge unsigned number.
        out[lane] = W::from_u64(u64::from(rest.min(rest.wrapping_add(q))));
    }
}

/// [`reduce`] for sums over several chunks, below 2^53 in magnitude.
#[inline(always)]
pub(crate) fn reduce_chunks<W: Word, const L: usize, const N: usize>(
    modulus: &Modulus,
    sums: &[[i64; N]],
    out: &mut [W; N],
) {
    let sums = &sums[..L];
    for lane in 0..N {
        let limbs: [i64; L] = std::array::from_fn(|j| sums[j][lane]);
        out[lane] = W::from_u64(reduce_lane(modulus, limbs));
    }
}

/// `sum_j limbs[j] * 2^(16 j) mod q`. The quotient, below 2^47, is exact to far less than 0.01 in
/// `f64`, so the remainder lies within 0.51 q < 2^62 of zero and its low word is all of it.
#[inline(always)]
fn reduce_lane<const L: usize>(modulus: &Modulus, limbs: [i64; L]) -> u64 {
    let mut quotient = 0.0;
    let mut sum = 0_i64;
    for j in (0..L).rev() {
        quotient += limbs[j] as f64 * modulus.quotient[j];
        sum = sum.wrapping_shl(16).wrapping_add(limbs[j]);
    }
    let quotient = (quotient + ROUND_F64).to_bits();
    let quotient = quotient.wrapping_sub(ROUND_F64.to_bits()) as i64;
    let q = modulus.q as i64;
    let rest = sum.wrapping_sub(quotient.wrapping_mul(q));
    (if rest < 0 { rest + q } else { rest }) as u64
}
