//! Tables of powers of the root.

use crate::{Prime, Word};

/// Powers of a primitive `2n`-th root of unity with their quotients for Shoup's product.
#[derive(Clone)]
pub struct Twiddles<W> {
    pub(super) forward: Factors<W>,
    pub(super) inverse: Factors<W>,
    /// `1/n`, and `1/n` times the twiddle of the last inverse stage.
    pub(super) scale: Factors<W>,
}

/// Factors `w` with `floor(w 2^BITS / q)` or one more for each size of multiplier. Each list of
/// quotients has a word of padding, for
/// [`load_cycle_high`](crate::simd::lanes::Lanes::load_cycle_high).
#[derive(Clone)]
pub(super) struct Factors<W> {
    pub(super) words: Vec<W>,
    /// For a multiplier of whole words.
    quotients: Vec<W>,
    /// For [`SHORT_MULTIPLIER`], where the word is longer and the prime short enough.
    short_quotients: Vec<W>,
}

/// Bits of the multiplier of IFMA.
pub(super) const SHORT_MULTIPLIER: u32 = 52;

/// True if Shoup's quotients are rounded down or to the next integer above.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Down,
    Up,
}

impl<W: Word> Twiddles<W> {
    /// For degree `n = 2^k >= 2` and `root^n = -1`.
    pub fn new(n: usize, q: &Prime<W>, root: W) -> Option<Self> {
        let inverse = bit_reversed_powers(n, q, q.inverse(root)?);
        let unscale = q.inverse(W::from_u64(n as u64 % q.value()))?;
        let scale = vec![unscale, q.mul(unscale, inverse[1])];
        Some(Self {
            forward: Factors::new(q, bit_reversed_powers(n, q, root), Rounding::Up),
            inverse: Factors::new(q, inverse, Rounding::Down),
            scale: Factors::new(q, scale, Rounding::Down),
        })
    }

    /// Degree.
    pub fn n(&self) -> usize {
        self.forward.words.len()
    }
}

impl<W: Word> Factors<W> {
    fn new(q: &Prime<W>, words: Vec<W>, rounding: Rounding) -> Self {
        let above = W::from_u64(u64::from(rounding == Rounding::Up));
        let quotients = |shift: u32| -> Vec<W> {
            let quotient = |&word: &W| (q.shoup(word) >> shift).wrapping_add(above);
            let padding = std::iter::once(W::default());
            words.iter().map(quotient).chain(padding).collect()
        };
        let short_quotients = if q.fits_short_multiplier() {
            quotients(W::BITS - SHORT_MULTIPLIER)
        } else {
            Vec::new()
        };
        Self {
            quotients: quotients(0),
            short_quotients,
            words,
        }
    }

    /// For a multiplier of `bits` bits.
    #[inline(always)]
    pub(super) fn quotients(&self, bits: u32) -> &[W] {
        if bits == W::BITS {
            &self.quotients
        } else {
            &self.short_quotients
        }
    }
}

/// `root^i` at the index whose `log2 n` bits are those of `i` reversed.
fn bit_reversed_powers<W: Word>(n: usize, q: &Prime<W>, root: W) -> Vec<W> {
    let mut powers = vec![W::default(); n];
    let mut power = W::from_u64(1);
    for i in 0..n {
        powers[i.reverse_bits() >> (usize::BITS - n.trailing_zeros())] = power;
        power = q.mul(power, root);
    }
    powers
}
