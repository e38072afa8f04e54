//! 128 bits.

use std::ops::{BitAnd, BitXor, BitXorAssign};

use bytemuck::{Pod, Zeroable};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroize;

/// 128 bits: a label, an OT string, a key. Bit 0 is the lowest bit of the first byte.
///
/// Equality takes constant time. No `Debug`: most blocks are secret. `Copy`, so whoever keeps a
/// secret one wipes it, mostly as `Zeroizing<Vec<Block>>`.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct Block([u8; 16]);

impl Block {
    /// Bits of a block.
    pub const BITS: usize = 128;
    /// Bytes of a block.
    pub const BYTES: usize = 16;
    /// All bits zero.
    pub const ZERO: Self = Self([0; 16]);
    /// All bits one.
    pub const ONES: Self = Self([0xff; 16]);

    /// The block of these bytes.
    #[inline(always)]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The block whose bytes are those of `value`, little-endian: bit `i` of one is bit `i` of the
    /// other.
    #[inline(always)]
    pub const fn from_u128(value: u128) -> Self {
        Self(value.to_le_bytes())
    }

    /// The inverse of [`Block::from_u128`].
    #[inline(always)]
    pub const fn to_u128(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    /// Bit 0, the colour bit of a label.
    #[inline(always)]
    pub const fn lsb(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// This block with bit 0 set.
    #[inline(always)]
    pub const fn with_lsb(self) -> Self {
        Self::from_u128(self.to_u128() | 1)
    }

    /// This block where `bit`, else zero; without a branch. Plain masks become branches in compiled
    /// code, so the bit goes through the barrier of [`Choice`].
    #[inline(always)]
    pub fn masked(self, bit: bool) -> Self {
        Self::conditional_select(&Self::ZERO, &self, Choice::from(u8::from(bit)))
    }

    /// The linear orthomorphism `(l, r) -> (l + r, l)` of halves, `l` the upper one: both it and
    /// `x -> sigma(x) + x` are permutations (Guo, Katz, Wang and Yu, IEEE S&P 2020, section 7.3).
    #[inline(always)]
    pub const fn sigma(self) -> Self {
        let x = self.to_u128();
        let (upper, lower) = ((x >> 64) as u64, x as u64);
        Self::from_u128(((upper ^ lower) as u128) << 64 | upper as u128)
    }

    /// Times `x` in GF(2^128), modulo `x^128 + x^7 + x^2 + x + 1`; without a branch.
    #[inline(always)]
    pub const fn doubled(self) -> Self {
        let x = self.to_u128();
        Self::from_u128(x << 1 ^ (x >> 127).wrapping_neg() & 0x87)
    }
}

impl Zeroize for Block {
    /// By words: a volatile write of 16 bytes goes through the stack, at a third of the speed.
    #[inline(always)]
    fn zeroize(&mut self) {
        bytemuck::cast_mut::<Self, [u64; 2]>(self).zeroize();
    }
}

impl BitXor for Block {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Self::from_u128(self.to_u128() ^ other.to_u128())
    }
}

impl BitXorAssign for Block {
    #[inline(always)]
    fn bitxor_assign(&mut self, other: Self) {
        *self = *self ^ other;
    }
}

impl BitAnd for Block {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self::from_u128(self.to_u128() & other.to_u128())
    }
}

impl ConstantTimeEq for Block {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.to_u128().ct_eq(&other.to_u128())
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for Block {}

impl ConditionallySelectable for Block {
    #[inline(always)]
    fn conditional_select(a: &Self, b: &Self, choice: Choice) -> Self {
        Self::from_u128(u128::conditional_select(&a.to_u128(), &b.to_u128(), choice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_little_endian() {
        let x = Block::from_u128(1 << 9 | 1);
        assert_eq!(x.to_bytes()[..3], [1, 2, 0]);
        assert!(x.lsb() && !Block::from_u128(2).lsb() && Block::from_u128(2).with_lsb().lsb());
        assert!(x.masked(true) == x && x.masked(false) == Block::ZERO);
    }

    #[test]
    fn sigma_is_a_linear_orthomorphism() {
        let (x, y) = (Block::from_u128(0x0123 << 64 | 0x4567), Block::from_u128(7));
        assert!(x.sigma().to_u128() == (0x0123 ^ 0x4567) << 64 | 0x0123);
        assert!((x ^ y).sigma() == x.sigma() ^ y.sigma());
        // Three applications are the identity, and so is 1 + sigma + sigma^2 = 0: sigma + 1 =
        // sigma^2.
        assert!(x.sigma().sigma().sigma() == x);
        assert!(x.sigma() ^ x == x.sigma().sigma());
    }

    #[test]
    fn doubling_reduces_modulo_the_polynomial() {
        assert!(Block::from_u128(5).doubled() == Block::from_u128(10));
        assert!(Block::from_u128(1 << 127 | 1).doubled() == Block::from_u128(0x87 ^ 2));
    }
}
