//! Arithmetic modulo a prime. Modulo `2^k` it is that of [words](super::Builder::add).
//!
//! Words have the bits of the prime and hold residues. Whatever is not reduced makes wrong
//! residues, nothing worse.

use super::{Bit, Builder};

impl Builder {
    /// `x - y mod p` for a `k`-bit prime: `2k - 1` ANDs, and one of them half where `y` is known to
    /// the garbler.
    ///
    /// # Panics
    /// Unless both words have `k` bits; so do the others here.
    pub fn sub_mod_prime(&mut self, x: &[Bit], y: &[Bit], p: u64) -> Vec<Bit> {
        self.check_residues(x, y, p);
        let (difference, borrow) = self.subtract(x, y);
        let p = self.constant(p as i64, x.len());
        let p = self.gate(borrow, &p);
        self.add(&difference, &p)
    }

    /// `x + y mod p` for a `k`-bit prime, as `x - (p - y)`: up to `3k - 2` ANDs, `2k - 1` of them,
    /// one half, where `y` is known to the garbler.
    pub fn add_mod_prime(&mut self, x: &[Bit], y: &[Bit], p: u64) -> Vec<Bit> {
        self.check_residues(x, y, p);
        let (x, y) = if x.iter().all(|bit| bit.is_known()) {
            (y, x)
        } else {
            (x, y)
        };
        let modulus = self.constant(p as i64, y.len());
        // p where y = 0: then x - p borrows and comes back as x.
        let minus_y = self.sub(&modulus, y);
        self.sub_mod_prime(x, &minus_y, p)
    }

    /// `x mod p` of a word without sign for a `k`-bit prime: `2k` ANDs or fewer for each of its
    /// bits from the `k`-th on.
    pub fn reduce_mod_prime(&mut self, x: &[Bit], p: u64) -> Vec<Bit> {
        let k = (u64::BITS - p.leading_zeros()) as usize;
        // p has k bits, so the top k - 1 of x are a residue; then one bit joins at a time.
        let rest = x.len().saturating_sub(k - 1);
        let mut residue = self.resize(&x[rest..], k);
        let modulus = self.constant(p as i64, k + 1);
        for &bit in x[..rest].iter().rev() {
            let mut doubled = vec![bit];
            doubled.extend_from_slice(&residue);
            let (reduced, borrow) = self.subtract(&doubled, &modulus);
            residue = self.multiplex(borrow, &doubled[..k], &reduced[..k]);
        }
        residue
    }

    fn check_residues(&self, x: &[Bit], y: &[Bit], p: u64) {
        let k = (u64::BITS - p.leading_zeros()) as usize;
        assert!(
            x.len() == k && y.len() == k,
            "residues of {p} have {k} bits"
        );
    }
}
