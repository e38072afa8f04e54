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
        Self {
            q,
            largest: most.min(q / 2),
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

    /// The same in 32 bits, for `q < 2^31`.
    #[inline(always)]
    fn centre32(&self, residue: u32) -> i32 {
        let low = residue as i32;
        if residue > self.largest as u32 {
            low.wrapping_sub(self.q as i32)
        } else {
            low
        }
    }

    /// The limbs of one residue, lowest first: `residue = sum_j limb_j * 2^(16 j) mod q`.
    #[inline(always)]
    pub(crate) fn limbs<const L: usize>(&self, residue: u64) -> [i32; L] {
        let fields = fields64(self.centre(residue));
        std::array::from_fn(|j| i32::from((fields >> (16 * j)) as i16))
    }
}

/// The 16-bit fields of the result, read as signed numbers, are limbs of `value`: adding 2^15
/// to a field carries where its value would be 2^15 or more.
#[inline(always)]
fn fields64(value: i64) -> i64 {
    const HALVES: i64 = 0x8000_8000_8000;
    value.wrapping_add(HALVES) ^ HALVES
}

#[inline(always)]
fn fields32(value: i32) -> i32 {
    value.wrapping_add(0x8000) ^ 0x8000
}

/// Packs `N` words of two rows into `L` vectors of `N` lanes, one vector a limb: `first`'s limb
/// in the low half of a lane, `second`'s in the high half.
#[inline(always)]
pub(crate) fn pack<W: Word, const L: usize, const N: usize>(
    modulus: &Modulus,
    first: &[W; N],
    second: &[W; N],
    packed: &mut [[u32; N]],
) {
    let packed = &mut packed[..L];
    for lane in 0..N {
        if W::BITS == 32 {
            let low = fields32(modulus.centre32(first[lane].to_u64() as u32)) as u32;
            let high = fields32(modulus.centre32(second[lane].to_u64() as u32)) as u32;
            packed[0][lane] = (low & 0xffff) | (high << 16);
            packed[1][lane] = (low >> 16) | (high & 0xffff_0000);
        } else {
            let low = fields64(modulus.centre(first[lane].to_u64()));
            let high = fields64(modulus.centre(second[lane].to_u64()));
            for (limb, vector) in packed.iter_mut().enumerate() {
                let (low, high) = ((low >> (16 * limb)) as u32, (high >> (16 * limb)) as u32);
                vector[lane] = (low & 0xffff) | (high << 16);
            }
        }
    }
}

/// `addend + sum_j sums[j] * 2^(16 j) mod q`, for sums over one chunk of weights: with the
/// addend's limbs they stay below 2^31.
///
/// The quotient by `q` is at most `sum |w|` <= 2^16 and known to 2^16 * 6 * 2^-24 in `f32` (less
/// than 0.03; the limbs of a centred residue are at most `q` in total), so after rounding the
/// remainder lies within 0.53 q of zero and its low word is all of it.
#[inline(always)]
pub(crate) fn reduce<W: Word, const L: usize, const N: usize>(
    modulus: &Modulus,
    sums: &[[i32; N]],
    addend: &[i32; L],
    out: &mut [W; N],
) {
    let sums = &sums[..L];
    for lane in 0..N {
        if W::BITS == 32 {
            let low = sums[0][lane].wrapping_add(addend[0]);
            let high = sums[1][lane].wrapping_add(addend[1]);
            let [unit, shifted, ..] = modulus.quotient.map(|factor| factor as f32);
            let quotient = high as f32 * shifted + low as f32 * unit + ROUND_F32;
            let quotient = quotient.to_bits().wrapping_sub(ROUND_F32.to_bits());
            let q = modulus.q as u32;
            let sum = (low as u32).wrapping_add((high as u32) << 16);
            let rest = sum.wrapping_sub(quotient.wrapping_mul(q));
            // A negative remainder is a huge unsigned number.
            out[lane] = W::from_u64(u64::from(rest.min(rest.wrapping_add(q))));
        } else {
            let limbs: [i64; L] =
                std::array::from_fn(|j| i64::from(sums[j][lane].wrapping_add(addend[j])));
            out[lane] = W::from_u64(reduce_lane(modulus, limbs));
        }
    }
}

/// [`reduce`] for sums over several chunks, below 2^53 in magnitude.
#[inline(always)]
pub(crate) fn reduce_chunks<W: Word, const L: usize, const N: usize>(
    modulus: &Modulus,
    sums: &[[i64; N]],
    addend: &[i32; L],
    out: &mut [W; N],
) {
    let sums = &sums[..L];
    for lane in 0..N {
        let limbs: [i64; L] = std::array::from_fn(|j| sums[j][lane] + i64::from(addend[j]));
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
