//! Products of two 32-bit words that both vary, on 64-bit integers.

use super::vectorised;
use crate::{Prime, Word};

/// A prime of at most 31 bits, for Barrett's reduction of products.
#[derive(Clone, Copy)]
pub struct Narrow {
    q: u32,
    bits: u32,
    /// `floor(2^(31 + bits) / q)`.
    reciprocal: u32,
}

/// True if a prime is for these, being of 31 bits and so too long for vectors of 32.
pub fn takes<W: Word>(q: &Prime<W>) -> bool {
    W::BITS == 32 && q.bits() > 30
}

impl Narrow {
    pub fn new<W: Word>(q: &Prime<W>) -> Self {
        Self {
            q: q.value() as u32,
            bits: q.bits(),
            reciprocal: (q.scaled_reciprocal() >> (W::BITS - 31)) as u32,
        }
    }

    /// `x y mod q` of residues (P. Barrett, CRYPTO 1986). The estimate of the quotient is at most 2
    /// too small.
    #[inline(always)]
    fn mul(&self, x: u32, y: u32) -> u32 {
        let product = u64::from(x) * u64::from(y);
        let upper = (product >> (self.bits - 1)) as u32;
        let quotient = (u64::from(upper) * u64::from(self.reciprocal)) >> 32;
        let remainder = product - quotient * u64::from(self.q);
        let remainder = remainder.min(remainder.wrapping_sub(u64::from(self.q))) as u32;
        self.reduce_once(remainder)
    }

    #[inline(always)]
    fn add(&self, x: u32, y: u32) -> u32 {
        self.reduce_once(x + y)
    }

    #[inline(always)]
    fn reduce_once(&self, x: u32) -> u32 {
        x.min(x.wrapping_sub(self.q))
    }
}

vectorised! {
    /// `out = x * y mod q`.
    pub fn mul(q: &Narrow, x: &[u32], y: &[u32], out: &mut [u32]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = q.mul(x, y);
        }
    }
}

vectorised! {
    /// `x *= y mod q`.
    pub fn mul_assign(q: &Narrow, x: &mut [u32], y: &[u32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = q.mul(*x, y);
        }
    }
}

vectorised! {
    /// `acc += x * y mod q`.
    pub fn mul_add_assign(q: &Narrow, acc: &mut [u32], x: &[u32], y: &[u32]) {
        for ((acc, &x), &y) in acc.iter_mut().zip(x).zip(y) {
            *acc = q.add(*acc, q.mul(x, y));
        }
    }
}

vectorised! {
    /// [`square_linear`](super::square_linear).
    pub fn square_linear(q: &Narrow, x0: &[u32], x1: &[u32], out0: &mut [u32], out1: &mut [u32], out2: &mut [u32]) {
        let outs = out0.iter_mut().zip(out1).zip(out2);
        for ((&x0, &x1), ((out0, out1), out2)) in x0.iter().zip(x1).zip(outs) {
            let mixed = q.mul(x0, x1);
            *out0 = q.mul(x0, x0);
            *out1 = q.add(mixed, mixed);
            *out2 = q.mul(x1, x1);
        }
    }
}
