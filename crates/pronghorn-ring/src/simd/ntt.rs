//! The negacyclic NTT over any [`Lanes`].
//!
//! Cooley and Tukey's butterflies forward, Gentleman and Sande's back, twiddles in bit-reversed
//! order (Longa and Naehrig, "Speeding up the number theoretic transform for faster ideal
//! lattice-based cryptography", CANS 2016), products by Shoup's method with remainders below `2q`
//! (Harvey, "Faster arithmetic for number-theoretic transforms", 2014). As `q` may take all but one
//! bit of a word, residues rest below `2q` between forward stages and below `q` between inverse ones.
//!
//! Stages go two at a time through memory; those of partners `COUNT` apart and less stay in a pair of vectors.
//! There, the stage of `GROUPS` groups wants lane `i` to be of group `i mod GROUPS`, so that its twiddles are read
//! as they stand, over and over: [`Lanes::zip`] leads from each stage to the next, and to the order of the result.
//!
//! A butterfly is a chain of some 25 cycles, so several independent ones go together, operation by
//! operation: the CPU does not look far enough ahead to find them by itself. (Arrays are filled by
//! loops, not closures: closures are compiled without the CPU features and stay calls.)

use super::lanes::Lanes;
use crate::{Prime, Word};

/// Powers of a primitive `2n`-th root of unity with their Shoup quotients.
#[derive(Clone)]
pub struct Twiddles<W> {
    forward: Factors<W>,
    inverse: Factors<W>,
    /// `1/n`, and `1/n` times the twiddle of the last inverse stage.
    scale: Factors<W>,
}

#[derive(Clone)]
struct Factors<W> {
    words: Vec<W>,
    /// One more than `words`, for [`Lanes::load_cycle_odd`].
    quotients: Vec<W>,
}

impl<W: Word> Twiddles<W> {
    /// For degree `n = 2^k >= 2` and `root^n = -1`.
    pub fn new(n: usize, q: &Prime<W>, root: W) -> Option<Self> {
        let inverse = Factors::new(q, bit_reversed_powers(n, q, q.inverse(root)?));
        let unscale = q.inverse(W::from_u64(n as u64 % q.value()))?;
        let scale = Factors::new(q, vec![unscale, q.mul(unscale, inverse.words[1])]);
        Some(Self {
            forward: Factors::new(q, bit_reversed_powers(n, q, root)),
            inverse,
            scale,
        })
    }

    /// Degree.
    pub fn n(&self) -> usize {
        self.forward.words.len()
    }
}

impl<W: Word> Factors<W> {
    fn new(q: &Prime<W>, words: Vec<W>) -> Self {
        let padding = std::iter::once(W::default());
        let quotients = words
            .iter()
            .map(|&word| q.shoup(word))
            .chain(padding)
            .collect();
        Self { words, quotients }
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

/// Forward transform in place: coefficients in order, below `q`; values in bit-reversed order, below `q`.
#[inline(always)]
pub fn forward<L: Lanes>(
    lanes: L,
    q: &Prime<L::Word>,
    twiddles: &Twiddles<L::Word>,
    x: &mut [L::Word],
) {
    let pass = Pass::new(lanes, q, &twiddles.forward, &twiddles.scale, x);
    let pairs = x.len() / (2 * L::COUNT);
    let mut groups = 1;
    if pairs.trailing_zeros() % 2 == 1 {
        pass.forward_stage(x);
        groups = 2;
    }
    while groups < pairs {
        pass.forward_two_stages(groups, x);
        groups *= 4;
    }
    match pairs {
        1 => pass.forward_pairs::<1>(x),
        2 => pass.forward_pairs::<2>(x),
        _ => pass.forward_pairs::<4>(x),
    }
}

/// Inverse transform in place, `1/n` included: the reverse of [`forward`].
#[inline(always)]
pub fn inverse<L: Lanes>(
    lanes: L,
    q: &Prime<L::Word>,
    twiddles: &Twiddles<L::Word>,
    x: &mut [L::Word],
) {
    let pass = Pass::new(lanes, q, &twiddles.inverse, &twiddles.scale, x);
    let mut groups = x.len() / (2 * L::COUNT);
    match groups {
        1 => return pass.inverse_pairs::<1, true>(x),
        2 => pass.inverse_pairs::<2, false>(x),
        _ => pass.inverse_pairs::<4, false>(x),
    }
    while groups > 4 {
        groups /= 4;
        pass.inverse_two_stages::<false>(groups, x);
    }
    match groups {
        4 => pass.inverse_two_stages::<true>(1, x),
        _ => pass.inverse_stage(x),
    }
}

/// A factor in lanes, ready for Shoup's product.
#[derive(Clone, Copy)]
struct Factor<V> {
    word: V,
    quotient: V,
    quotient_odd: V,
}

/// What all stages of one transform share.
struct Pass<'a, L: Lanes> {
    lanes: L,
    q: L::Vector,
    factors: &'a Factors<L::Word>,
    scale: &'a Factors<L::Word>,
}

impl<'a, L: Lanes> Pass<'a, L> {
    /// Checks what the unchecked loads and stores below rely on: `x` and the factors have `n`
    /// words, a power of two and at least a pair of vectors.
    #[inline(always)]
    fn new(
        lanes: L,
        q: &Prime<L::Word>,
        factors: &'a Factors<L::Word>,
        scale: &'a Factors<L::Word>,
        x: &[L::Word],
    ) -> Self {
        let n = x.len();
        assert!(n.is_power_of_two() && n >= 2 * L::COUNT);
        assert!(factors.words.len() == n && factors.quotients.len() > n);
        Self {
            lanes,
            q: lanes.splat(q.word()),
            factors,
            scale,
        }
    }

    /// Stage of one group: coefficients `n/2` apart.
    #[inline(always)]
    fn forward_stage(&self, x: &mut [L::Word]) {
        let half = x.len() / 2;
        let factor = self.one(self.factors, 1);
        let x = x.as_mut_ptr();
        // Outer stages exist only where half is at least 2 COUNT.
        for i in (0..half).step_by(2 * L::COUNT) {
            // SAFETY: i + 2 COUNT <= half, a multiple of 2 COUNT, and both halves have that many words.
            unsafe {
                let (u, v) = (self.load(x.add(i)), self.load(x.add(half + i)));
                let (u, v) = self.forward_butterflies(u, v, [factor; 2]);
                self.store(x.add(i), u);
                self.store(x.add(half + i), v);
            }
        }
    }

    /// Stages of `groups` and of `2 groups` groups.
    #[inline(always)]
    fn forward_two_stages(&self, groups: usize, x: &mut [L::Word]) {
        let quarter = x.len() / (4 * groups);
        for (group, x) in x.chunks_exact_mut(4 * quarter).enumerate() {
            let outer = self.one(self.factors, groups + group);
            let low = self.one(self.factors, 2 * (groups + group));
            let high = self.one(self.factors, 2 * (groups + group) + 1);
            let x = x.as_mut_ptr();
            for i in (0..quarter).step_by(2 * L::COUNT) {
                // SAFETY: i + 2 COUNT <= quarter, a multiple of 2 COUNT, and the chunk has four quarters.
                unsafe {
                    let ([a, e], [b, f]) = (self.load(x.add(i)), self.load(x.add(i + quarter)));
                    let ([c, g], [d, h]) = (
                        self.load(x.add(i + 2 * quarter)),
                        self.load(x.add(i + 3 * quarter)),
                    );
                    let ([a, b, e, f], [c, d, g, h]) =
                        self.forward_butterflies([a, b, e, f], [c, d, g, h], [outer; 4]);
                    let ([a, c, e, g], [b, d, f, h]) = self.forward_butterflies(
                        [a, c, e, g],
                        [b, d, f, h],
                        [low, high, low, high],
                    );
                    self.store(x.add(i), [a, e]);
                    self.store(x.add(i + quarter), [b, f]);
                    self.store(x.add(i + 2 * quarter), [c, g]);
                    self.store(x.add(i + 3 * quarter), [d, h]);
                }
            }
        }
    }

    /// The stages from `COUNT` apart to neighbours, and the full reduction; `K` pairs at a time.
    #[inline(always)]
    fn forward_pairs<const K: usize>(&self, x: &mut [L::Word]) {
        let pairs = x.len() / (2 * L::COUNT);
        for (step, x) in x.chunks_exact_mut(2 * L::COUNT * K).enumerate() {
            // SAFETY: the chunk has K pairs.
            let (u, v) = unsafe { self.load_pairs::<K>(x.as_ptr()) };
            let first = pairs + step * K; // index of the first pair's twiddle in the stage of `pairs` groups
            let (u, v) = self.forward_butterflies(u, v, self.singles(first));
            let (u, v) = self.forward_cycle::<2, K>(u, v, first);
            let (u, v) = self.forward_cycle::<4, K>(u, v, first);
            let (u, v) = self.forward_cycle::<8, K>(u, v, first);
            let (mut u, mut v) = self.forward_cycle::<16, K>(u, v, first);
            for k in 0..K {
                (u[k], v[k]) = self.lanes.zip(self.reduce(u[k]), self.reduce(v[k]));
            }
            // SAFETY: as for the loads.
            unsafe { self.store_pairs(x.as_mut_ptr(), u, v) }
        }
    }

    /// The stage of `GROUPS` groups a pair, after that of half as many; nothing where vectors are too short.
    #[inline(always)]
    fn forward_cycle<const GROUPS: usize, const K: usize>(
        &self,
        mut u: [L::Vector; K],
        mut v: [L::Vector; K],
        first: usize,
    ) -> ([L::Vector; K], [L::Vector; K]) {
        if GROUPS > L::COUNT {
            return (u, v);
        }
        for k in 0..K {
            (u[k], v[k]) = self.lanes.zip(u[k], v[k]);
        }
        self.forward_butterflies(u, v, self.cycles::<GROUPS, K>(first))
    }

    /// The stages from neighbours to `COUNT` apart, `K` pairs at a time; `SCALED` where the last of
    /// them is the transform's last.
    #[inline(always)]
    fn inverse_pairs<const K: usize, const SCALED: bool>(&self, x: &mut [L::Word]) {
        let pairs = x.len() / (2 * L::COUNT);
        for (step, x) in x.chunks_exact_mut(2 * L::COUNT * K).enumerate() {
            // SAFETY: the chunk has K pairs.
            let (mut u, mut v) = unsafe { self.load_pairs::<K>(x.as_ptr()) };
            let first = pairs + step * K;
            (u, v) = self.inverse_cycle::<16, K>(u, v, first);
            (u, v) = self.inverse_cycle::<8, K>(u, v, first);
            (u, v) = self.inverse_cycle::<4, K>(u, v, first);
            (u, v) = self.inverse_cycle::<2, K>(u, v, first);
            for k in 0..K {
                (u[k], v[k]) = self.lanes.unzip(u[k], v[k]);
            }
            let (u, v) = if SCALED {
                self.last_butterflies(u, v)
            } else {
                self.inverse_butterflies(u, v, self.singles(first))
            };
            // SAFETY: as for the loads.
            unsafe { self.store_pairs(x.as_mut_ptr(), u, v) }
        }
    }

    /// The stage of `GROUPS` groups a pair, after that of twice as many; nothing where vectors are too short.
    #[inline(always)]
    fn inverse_cycle<const GROUPS: usize, const K: usize>(
        &self,
        mut u: [L::Vector; K],
        mut v: [L::Vector; K],
        first: usize,
    ) -> ([L::Vector; K], [L::Vector; K]) {
        if GROUPS > L::COUNT {
            return (u, v);
        }
        for k in 0..K {
            (u[k], v[k]) = self.lanes.unzip(u[k], v[k]);
        }
        self.inverse_butterflies(u, v, self.cycles::<GROUPS, K>(first))
    }

    /// Stages of `2 groups` and of `groups` groups; `SCALED` where the second is the transform's last.
    #[inline(always)]
    fn inverse_two_stages<const SCALED: bool>(&self, groups: usize, x: &mut [L::Word]) {
        let quarter = x.len() / (4 * groups);
        for (group, x) in x.chunks_exact_mut(4 * quarter).enumerate() {
            let outer = self.one(self.factors, groups + group);
            let low = self.one(self.factors, 2 * (groups + group));
            let high = self.one(self.factors, 2 * (groups + group) + 1);
            let x = x.as_mut_ptr();
            for i in (0..quarter).step_by(2 * L::COUNT) {
                // SAFETY: i + 2 COUNT <= quarter, a multiple of 2 COUNT, and the chunk has four quarters.
                unsafe {
                    let ([a, e], [b, f]) = (self.load(x.add(i)), self.load(x.add(i + quarter)));
                    let ([c, g], [d, h]) = (
                        self.load(x.add(i + 2 * quarter)),
                        self.load(x.add(i + 3 * quarter)),
                    );
                    let ([a, c, e, g], [b, d, f, h]) = self.inverse_butterflies(
                        [a, c, e, g],
                        [b, d, f, h],
                        [low, high, low, high],
                    );
                    let ([a, b, e, f], [c, d, g, h]) = if SCALED {
                        self.last_butterflies([a, b, e, f], [c, d, g, h])
                    } else {
                        self.inverse_butterflies([a, b, e, f], [c, d, g, h], [outer; 4])
                    };
                    self.store(x.add(i), [a, e]);
                    self.store(x.add(i + quarter), [b, f]);
                    self.store(x.add(i + 2 * quarter), [c, g]);
                    self.store(x.add(i + 3 * quarter), [d, h]);
                }
            }
        }
    }

    /// The last stage: coefficients `n/2` apart, and the factor `1/n`.
    #[inline(always)]
    fn inverse_stage(&self, x: &mut [L::Word]) {
        let half = x.len() / 2;
        let x = x.as_mut_ptr();
        for i in (0..half).step_by(2 * L::COUNT) {
            // SAFETY: i + 2 COUNT <= half, a multiple of 2 COUNT, and both halves have that many words.
            unsafe {
                let (u, v) = (self.load::<2>(x.add(i)), self.load(x.add(half + i)));
                let (u, v) = self.last_butterflies(u, v);
                self.store(x.add(i), u);
                self.store(x.add(half + i), v);
            }
        }
    }

    /// `u + v w` and `u - v w`, all below `2q`, for `u < 2q` and any `v`.
    #[inline(always)]
    fn forward_butterflies<const K: usize>(
        &self,
        mut u: [L::Vector; K],
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let mut v = self.products(v, w);
        for u in &mut u {
            *u = self.reduce(*u);
        }
        for k in 0..K {
            let (product, lifted) = (v[k], self.lanes.add(u[k], self.q));
            v[k] = self.lanes.sub(lifted, product);
            u[k] = self.lanes.add(u[k], product);
        }
        (u, v)
    }

    /// `u + v` and `(u - v) w`, all below `q`, for `u, v < q`.
    #[inline(always)]
    fn inverse_butterflies<const K: usize>(
        &self,
        u: [L::Vector; K],
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let (mut sums, differences) = self.sums_and_differences(u, v);
        for sum in &mut sums {
            *sum = self.reduce(*sum);
        }
        (sums, self.products(differences, w))
    }

    /// [`inverse_butterflies`](Self::inverse_butterflies) of the last stage, times `1/n`.
    #[inline(always)]
    fn last_butterflies<const K: usize>(
        &self,
        u: [L::Vector; K],
        v: [L::Vector; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let (sums, differences) = self.sums_and_differences(u, v);
        let sums = self.products(sums, [self.one(self.scale, 0); K]);
        (
            sums,
            self.products(differences, [self.one(self.scale, 1); K]),
        )
    }

    /// `u + v` and `u - v + q`, below `2q`.
    #[inline(always)]
    fn sums_and_differences<const K: usize>(
        &self,
        mut u: [L::Vector; K],
        mut v: [L::Vector; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        for k in 0..K {
            let difference = self.lanes.sub(self.lanes.add(u[k], self.q), v[k]);
            u[k] = self.lanes.add(u[k], v[k]);
            v[k] = difference;
        }
        (u, v)
    }

    /// `v w mod q` for any `v`, by Shoup's method.
    #[inline(always)]
    fn products<const K: usize>(
        &self,
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> [L::Vector; K] {
        let (mut high, mut low) = (v, v);
        for k in 0..K {
            high[k] = self.lanes.mul_high(v[k], w[k].quotient, w[k].quotient_odd);
        }
        high = self.lanes.side_by_side(high);
        for k in 0..K {
            low[k] = self.lanes.mul_low(v[k], w[k].word);
            high[k] = self.lanes.mul_low(high[k], self.q);
        }
        low = self.lanes.side_by_side(low);
        high = self.lanes.side_by_side(high);
        for k in 0..K {
            low[k] = self.reduce(self.lanes.sub(low[k], high[k]));
        }
        low
    }

    /// From below `2q` to below `q`: where `x < q`, `x - q` wraps and is the larger.
    #[inline(always)]
    fn reduce(&self, x: L::Vector) -> L::Vector {
        self.lanes.min(x, self.lanes.sub(x, self.q))
    }

    /// Factor `index` in all lanes.
    #[inline(always)]
    fn one(&self, factors: &Factors<L::Word>, index: usize) -> Factor<L::Vector> {
        let quotient_odd = self.lanes.splat_odd(factors.quotients[index]);
        let quotient = self.lanes.splat(factors.quotients[index]);
        Factor {
            word: self.lanes.splat(factors.words[index]),
            quotient,
            quotient_odd,
        }
    }

    /// Factors from `first` on, each in all lanes.
    #[inline(always)]
    fn singles<const K: usize>(&self, first: usize) -> [Factor<L::Vector>; K] {
        let mut factors = [self.one(self.factors, first); K];
        for (k, factor) in factors.iter_mut().enumerate() {
            *factor = self.one(self.factors, first + k);
        }
        factors
    }

    /// For each of `K` pairs the twiddles of its `GROUPS` groups, over and over. `first` is the index of the
    /// first pair's twiddle in the stage where a pair is one group; each later stage doubles the index.
    #[inline(always)]
    fn cycles<const GROUPS: usize, const K: usize>(&self, first: usize) -> [Factor<L::Vector>; K] {
        let (start, end) = (first * GROUPS, (first + K) * GROUPS);
        let words = self.factors.words[start..end].as_ptr();
        let quotients = self.factors.quotients[start..end + 1].as_ptr();
        let mut factors = [Factor {
            word: self.q,
            quotient: self.q,
            quotient_odd: self.q,
        }; K];
        for (k, factor) in factors.iter_mut().enumerate() {
            // SAFETY: the slices have K GROUPS words, and the second one more.
            unsafe {
                factor.word = self.lanes.load_cycle::<GROUPS>(words.add(k * GROUPS));
                factor.quotient = self.lanes.load_cycle::<GROUPS>(quotients.add(k * GROUPS));
                factor.quotient_odd = self
                    .lanes
                    .load_cycle_odd::<GROUPS>(quotients.add(k * GROUPS));
            }
        }
        factors
    }

    /// # Safety
    /// `K` vectors from `x` on must be valid for reading.
    #[inline(always)]
    unsafe fn load<const K: usize>(&self, x: *const L::Word) -> [L::Vector; K] {
        let mut vectors = [self.q; K];
        for (k, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: valid by contract.
            *vector = unsafe { self.lanes.load(x.add(k * L::COUNT)) };
        }
        vectors
    }

    /// # Safety
    /// `K` vectors from `x` on must be valid for writing.
    #[inline(always)]
    unsafe fn store<const K: usize>(&self, x: *mut L::Word, vectors: [L::Vector; K]) {
        for (k, &vector) in vectors.iter().enumerate() {
            // SAFETY: valid by contract.
            unsafe { self.lanes.store(x.add(k * L::COUNT), vector) }
        }
    }

    /// # Safety
    /// `2 K` vectors from `x` on must be valid for reading.
    #[inline(always)]
    unsafe fn load_pairs<const K: usize>(
        &self,
        x: *const L::Word,
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let (mut u, mut v) = ([self.q; K], [self.q; K]);
        for k in 0..K {
            // SAFETY: valid by contract.
            unsafe { [u[k], v[k]] = self.load(x.add(2 * k * L::COUNT)) }
        }
        (u, v)
    }

    /// # Safety
    /// `2 K` vectors from `x` on must be valid for writing.
    #[inline(always)]
    unsafe fn store_pairs<const K: usize>(
        &self,
        x: *mut L::Word,
        u: [L::Vector; K],
        v: [L::Vector; K],
    ) {
        for k in 0..K {
            // SAFETY: valid by contract.
            unsafe { self.store(x.add(2 * k * L::COUNT), [u[k], v[k]]) }
        }
    }
}
