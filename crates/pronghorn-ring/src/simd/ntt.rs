//! The negacyclic NTT over any [`Lanes`].
//!
//! Cooley and Tukey's butterflies forward, Gentleman and Sande's back, twiddles in bit-reversed
//! order (Longa and Naehrig, "Speeding up the number theoretic transform for faster ideal
//! lattice-based cryptography", CANS 2016), products by Shoup's method (Harvey, "Faster arithmetic
//! for number-theoretic transforms", 2014). What becomes of the size of residues is the matter of
//! [`bounds`].
//!
//! Groups of a stage are the nodes of a binary tree: the halves of node `i` are nodes `2i` and
//! `2i + 1` of the next stage, and the twiddle of node `i` is number `i` of its table. Stages go
//! two at a time through memory, and a part of [`BLOCK_BYTES`] through all of its stages at once.
//!
//! Stages of partners `COUNT` apart and less stay in a pair of vectors. There, the stage of
//! `GROUPS` groups wants lane `i` to be of group `i mod GROUPS`, so that its twiddles are read as
//! they stand, over and over: [`Registers::zip`] leads from each stage to the next, and to the
//! order of the result.
//!
//! A butterfly is a chain of some 25 cycles, so several independent ones go together, operation by
//! operation: the CPU does not look far enough ahead to find them by itself. (Arrays are filled by
//! loops, not closures: closures are compiled without the CPU features and stay calls.)
//!
//! [`Registers::zip`]: super::lanes::Registers::zip

mod bounds;
mod twiddles;

use super::Routine;
use super::lanes::{Lanes, Scalar};
use super::residues::{Factor, Residues};
use super::vector::CentredFrom;
use crate::{Prime, Word};
use bounds::Bounds;
use twiddles::Factors;
pub use twiddles::Twiddles;

/// What the stages of a part keep in the first-level cache, of 32 KiB and more, beside their
/// twiddles.
const BLOCK_BYTES: usize = 1 << 14;

/// Which way a transform goes.
#[derive(Clone, Copy)]
pub enum Direction {
    /// Coefficients in order to values in bit-reversed order.
    Forward,
    /// The reverse, `1/n` included.
    Inverse,
}

/// A transform in place, or, where there is one, of the source. Inputs and outputs are below `q`.
pub struct Transform<'a, W> {
    pub direction: Direction,
    pub q: &'a Prime<W>,
    pub twiddles: &'a Twiddles<W>,
    pub source: Option<Source<'a, W>>,
    pub x: &'a mut [W],
}

/// Residues of another prime, as many as are transformed, which a forward transform takes to `q` as
/// it reads them first.
#[derive(Clone, Copy)]
pub struct Source<'a, W> {
    pub centred: CentredFrom<W>,
    pub x: &'a [W],
}

/// Where the first stages of a transform read word `i`: `x` itself, or a source.
trait First<L: Lanes>: Copy {
    /// To be `inline(always)`.
    ///
    /// # Safety
    /// `x` is at word `i`, and there are two vectors from it on.
    unsafe fn load(
        self,
        residues: &Residues<L>,
        lanes: L,
        x: *const L::Word,
        i: usize,
    ) -> [L::Vector; 2];
}

/// `x` itself.
#[derive(Clone, Copy)]
struct InPlace;

impl<L: Lanes> First<L> for InPlace {
    #[inline(always)]
    unsafe fn load(self, _: &Residues<L>, lanes: L, x: *const L::Word, _: usize) -> [L::Vector; 2] {
        // SAFETY: by contract.
        unsafe { [lanes.load(x), lanes.load(x.add(L::COUNT))] }
    }
}

impl<L: Lanes> First<L> for Source<'_, L::Word> {
    #[inline(always)]
    unsafe fn load(
        self,
        residues: &Residues<L>,
        lanes: L,
        _: *const L::Word,
        i: usize,
    ) -> [L::Vector; 2] {
        let Self { centred, x } = self;
        // SAFETY: the source has as many words as are transformed.
        let [u, v] = unsafe {
            let x = x.as_ptr().add(i);
            [lanes.load(x), lanes.load(x.add(L::COUNT))]
        };
        [centred.modulo(residues, u), centred.modulo(residues, v)]
    }
}

impl<W: Word> Routine<W> for Transform<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        // A pair of vectors is the least the stages below handle.
        if L::COUNT == 1 || self.x.len() < 2 * L::COUNT {
            return self.portable();
        }
        self.run_on(lanes);
    }
}

impl<W: Word> Transform<'_, W> {
    /// Compiled once for all levels.
    #[inline(never)]
    fn portable(self) {
        self.run_on(Scalar::NEW);
    }

    #[inline(always)]
    fn run_on<L: Lanes<Word = W>>(self, lanes: L) {
        // A constant, so that nobody compiles transforms that there are not.
        if const { L::BITS == W::BITS } && self.q.bits() == L::BITS - 1 {
            self.run_within::<L, true>(lanes);
        } else {
            self.run_within::<L, false>(lanes);
        }
    }

    #[inline(always)]
    fn run_within<L: Lanes<Word = W>, const TIGHT: bool>(self, lanes: L) {
        match self.direction {
            Direction::Forward => lanes.apart(Forward::<_, TIGHT>(self)),
            Direction::Inverse => lanes.apart(Inverse::<_, TIGHT>(self)),
        }
    }
}

/// A forward transform; `TIGHT` where there is one bit of room.
struct Forward<'a, W, const TIGHT: bool>(Transform<'a, W>);

impl<W: Word, const TIGHT: bool> Routine<W> for Forward<'_, W, TIGHT> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        let Transform {
            q,
            twiddles,
            source,
            x,
            ..
        } = self.0;
        assert!(source.is_none_or(|source| source.x.len() == x.len()));
        let bounds = Bounds::<L, TIGHT>::forward(lanes, q, x.len().trailing_zeros());
        Pass::new(lanes, bounds, &twiddles.forward, &twiddles.scale, x).forward(source, x);
    }
}

/// An inverse transform; `TIGHT` where there is one bit of room.
struct Inverse<'a, W, const TIGHT: bool>(Transform<'a, W>);

impl<W: Word, const TIGHT: bool> Routine<W> for Inverse<'_, W, TIGHT> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        let Transform { q, twiddles, x, .. } = self.0;
        let bounds = Bounds::<L, TIGHT>::inverse(lanes, q, x.len().trailing_zeros());
        Pass::new(lanes, bounds, &twiddles.inverse, &twiddles.scale, x).inverse(x);
    }
}

/// What all stages of one transform share.
struct Pass<'a, L: Lanes, const TIGHT: bool> {
    lanes: L,
    bounds: Bounds<L, TIGHT>,
    factors: &'a Factors<L::Word>,
    scale: &'a Factors<L::Word>,
}

impl<'a, L: Lanes, const TIGHT: bool> Pass<'a, L, TIGHT> {
    /// Checks what the unchecked loads and stores below rely on: `x` and the factors have `n`
    /// words, a power of two and at least a pair of vectors.
    #[inline(always)]
    fn new(
        lanes: L,
        bounds: Bounds<L, TIGHT>,
        factors: &'a Factors<L::Word>,
        scale: &'a Factors<L::Word>,
        x: &[L::Word],
    ) -> Self {
        let n = x.len();
        assert!(n.is_power_of_two() && n >= 2 * L::COUNT);
        assert!(factors.words.len() == n && factors.quotients(L::BITS).len() > n);
        Self {
            lanes,
            bounds,
            factors,
            scale,
        }
    }

    #[inline(always)]
    fn residues(&self) -> &Residues<L> {
        self.bounds.residues()
    }

    /// The part of the transform of `n` words that goes through its stages at once: a power of four
    /// of them makes the whole.
    #[inline(always)]
    fn block(n: usize) -> usize {
        let mut block = n;
        while block * size_of::<L::Word>() > BLOCK_BYTES {
            block /= 4;
        }
        block
    }

    /// A source has as many words as `x`. The stages after the first are compiled once for both.
    #[inline(always)]
    fn forward(&self, source: Option<Source<'_, L::Word>>, x: &mut [L::Word]) {
        let (n, block) = (x.len(), Self::block(x.len()));
        match source {
            None if block < n => self.forward_two_stages(InPlace, 1, n, x),
            None => {}
            Some(source) if block < n => self.forward_two_stages(source, 1, n, x),
            Some(source) => self.read(source, x),
        }
        for start in (0..n).step_by(block) {
            // The parts that start here, largest first.
            let mut part = n / 4;
            while part > block {
                if start % part == 0 {
                    let x = &mut x[start..start + part];
                    self.forward_two_stages(InPlace, (n + start) / part, part, x);
                }
                part /= 4;
            }
            self.forward_block((n + start) / block, &mut x[start..start + block]);
        }
    }

    /// `x` from its source.
    #[inline(always)]
    fn read(&self, source: Source<'_, L::Word>, x: &mut [L::Word]) {
        for i in (0..x.len()).step_by(2 * L::COUNT) {
            // SAFETY: x has a multiple of two vectors, and a source as many.
            unsafe {
                let at = x.as_mut_ptr().add(i);
                self.store(at, source.load(self.residues(), self.lanes, at, i));
            }
        }
    }

    #[inline(always)]
    fn inverse(&self, x: &mut [L::Word]) {
        let (n, block) = (x.len(), Self::block(x.len()));
        for end in (block..n + 1).step_by(block) {
            let node = (n + end - block) / block;
            self.inverse_block(node, block == n, &mut x[end - block..end]);
            // The parts that end here, smallest first.
            let mut part = 4 * block;
            while part < n {
                if end % part == 0 {
                    let x = &mut x[end - part..end];
                    self.inverse_two_stages::<false>((n + end - part) / part, part, x);
                }
                part *= 4;
            }
        }
        if block < n {
            self.inverse_two_stages::<true>(1, n, x);
        }
    }

    /// All stages of node `node`.
    #[inline(always)]
    fn forward_block(&self, node: usize, x: &mut [L::Word]) {
        let pairs = x.len() / (2 * L::COUNT);
        let mut groups = 1;
        if pairs.trailing_zeros() % 2 == 1 {
            self.forward_stage(node, x);
            groups = 2;
        }
        while groups < pairs {
            self.forward_two_stages(InPlace, node * groups, x.len() / groups, x);
            groups *= 4;
        }
        match pairs {
            1 | 2 => self.forward_pairs::<1>(node * pairs, x),
            _ => self.forward_pairs::<4>(node * pairs, x),
        }
    }

    /// All stages of node `node`; `scaled` where the last of them is the transform's last.
    #[inline(always)]
    fn inverse_block(&self, node: usize, scaled: bool, x: &mut [L::Word]) {
        let mut groups = x.len() / (2 * L::COUNT);
        match (groups, scaled) {
            (1, true) => return self.inverse_pairs::<1, true>(node, x),
            (1, false) => return self.inverse_pairs::<1, false>(node, x),
            (2, _) => self.inverse_pairs::<1, false>(node * 2, x),
            _ => self.inverse_pairs::<4, false>(node * groups, x),
        }
        while groups > 4 {
            groups /= 4;
            self.inverse_two_stages::<false>(node * groups, x.len() / groups, x);
        }
        match (groups, scaled) {
            (4, true) => self.inverse_two_stages::<true>(node, x.len(), x),
            (4, false) => self.inverse_two_stages::<false>(node, x.len(), x),
            (_, true) => self.inverse_stage::<true>(node, x),
            (_, false) => self.inverse_stage::<false>(node, x),
        }
    }

    /// The stage of node `node`: words half of `x` apart.
    #[inline(always)]
    fn forward_stage(&self, node: usize, x: &mut [L::Word]) {
        let half = x.len() / 2;
        let factor = self.one(self.factors, node);
        let stage = node.ilog2();
        let x = x.as_mut_ptr();
        // Outer stages exist only where half is at least 2 COUNT.
        for i in (0..half).step_by(2 * L::COUNT) {
            // SAFETY: i + 2 COUNT <= half, a multiple of 2 COUNT, and both halves have that many
            // words.
            unsafe {
                let (u, v) = (self.load(x.add(i)), self.load(x.add(half + i)));
                let (u, v) = self.forward_butterflies(stage, u, v, [factor; 2]);
                self.store(x.add(i), u);
                self.store(x.add(half + i), v);
            }
        }
    }

    /// The stages of the nodes from `node` on, of `part` words each, and of their halves. Only one
    /// part reads from a source.
    #[inline(always)]
    fn forward_two_stages<F: First<L>>(
        &self,
        first: F,
        node: usize,
        part: usize,
        x: &mut [L::Word],
    ) {
        let quarter = part / 4;
        let stage = node.ilog2();
        assert!(2 * (node + x.len() / part) <= self.factors.words.len());
        for (group, x) in x.chunks_exact_mut(4 * quarter).enumerate() {
            // SAFETY: as many nodes were checked above.
            let ([outer], [low, high]) = unsafe {
                (
                    self.cycles::<1, 1>(node + group),
                    self.cycles::<1, 2>(2 * (node + group)),
                )
            };
            let x = x.as_mut_ptr();
            let (lanes, residues) = (self.lanes, self.residues());
            for i in (0..quarter).step_by(2 * L::COUNT) {
                // SAFETY: i + 2 COUNT <= quarter, a multiple of 2 COUNT, and the chunk has four
                // quarters.
                unsafe {
                    let [a, e] = first.load(residues, lanes, x.add(i), i);
                    let (at, i1) = (x.add(i + quarter), i + quarter);
                    let [b, f] = first.load(residues, lanes, at, i1);
                    let (at, i2) = (x.add(i + 2 * quarter), i + 2 * quarter);
                    let [c, g] = first.load(residues, lanes, at, i2);
                    let (at, i3) = (x.add(i + 3 * quarter), i + 3 * quarter);
                    let [d, h] = first.load(residues, lanes, at, i3);
                    let ([a, b, e, f], [c, d, g, h]) =
                        self.forward_butterflies(stage, [a, b, e, f], [c, d, g, h], [outer; 4]);
                    let ([a, c, e, g], [b, d, f, h]) = self.forward_butterflies(
                        stage + 1,
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

    /// The stages of the nodes from `node` on, a pair of vectors each, and of all below them, and
    /// the full reduction; `K` pairs at a time.
    #[inline(always)]
    fn forward_pairs<const K: usize>(&self, node: usize, x: &mut [L::Word]) {
        let stage = node.ilog2();
        self.check_pairs(node, x);
        for (step, x) in x.chunks_exact_mut(2 * L::COUNT * K).enumerate() {
            let node = node + step * K;
            // SAFETY: the chunk has K pairs, and as many nodes were checked above.
            unsafe {
                let (u, v) = self.load_pairs::<K>(x.as_ptr());
                let (u, v) = self.forward_butterflies(stage, u, v, self.cycles::<1, K>(node));
                let (u, v) = self.forward_cycle::<2, K>(stage, u, v, node);
                let (u, v) = self.forward_cycle::<4, K>(stage, u, v, node);
                let (u, v) = self.forward_cycle::<8, K>(stage, u, v, node);
                let (mut u, mut v) = self.forward_cycle::<16, K>(stage, u, v, node);
                for k in 0..K {
                    let (low, high) = (self.bounds.reduce(u[k]), self.bounds.reduce(v[k]));
                    (u[k], v[k]) = self.lanes.zip(low, high);
                }
                self.store_pairs(x.as_mut_ptr(), u, v);
            }
        }
    }

    /// Panics unless the nodes from `node` on, a pair of vectors of `x` each, have twiddles for all
    /// stages in a pair.
    #[inline(always)]
    fn check_pairs(&self, node: usize, x: &[L::Word]) {
        let pairs = x.len() / (2 * L::COUNT);
        assert!((node + pairs) * L::COUNT <= self.factors.words.len());
    }

    /// The stage of `GROUPS` groups a pair, after that of half as many; nothing where vectors are
    /// too short. `node` is the first pair, `stage` its stage.
    ///
    /// # Safety
    /// `(node + K) COUNT` must be at most `n`.
    #[inline(always)]
    unsafe fn forward_cycle<const GROUPS: usize, const K: usize>(
        &self,
        stage: u32,
        mut u: [L::Vector; K],
        mut v: [L::Vector; K],
        node: usize,
    ) -> ([L::Vector; K], [L::Vector; K]) {
        if GROUPS > L::COUNT {
            return (u, v);
        }
        for k in 0..K {
            (u[k], v[k]) = self.lanes.zip(u[k], v[k]);
        }
        // SAFETY: there are at most COUNT groups.
        let factors = unsafe { self.cycles::<GROUPS, K>(node) };
        self.forward_butterflies(stage + GROUPS.ilog2(), u, v, factors)
    }

    /// The stages that end with those of the nodes from `node` on, a pair of vectors each; `K`
    /// pairs at a time, `SCALED` where the last of them is the transform's last.
    #[inline(always)]
    fn inverse_pairs<const K: usize, const SCALED: bool>(&self, node: usize, x: &mut [L::Word]) {
        let stage = node.ilog2();
        self.check_pairs(node, x);
        for (step, x) in x.chunks_exact_mut(2 * L::COUNT * K).enumerate() {
            let node = node + step * K;
            // SAFETY: the chunk has K pairs, and as many nodes were checked above.
            unsafe {
                let (u, v) = self.load_pairs::<K>(x.as_ptr());
                let (u, v) = self.inverse_cycle::<16, K>(stage, u, v, node);
                let (u, v) = self.inverse_cycle::<8, K>(stage, u, v, node);
                let (u, v) = self.inverse_cycle::<4, K>(stage, u, v, node);
                let (mut u, mut v) = self.inverse_cycle::<2, K>(stage, u, v, node);
                for k in 0..K {
                    (u[k], v[k]) = self.lanes.unzip(u[k], v[k]);
                }
                let factors = self.cycles::<1, K>(node);
                let (u, v) = self.inverse_butterflies_scaled::<K, SCALED>(stage, u, v, factors);
                self.store_pairs(x.as_mut_ptr(), u, v);
            }
        }
    }

    /// The stage of `GROUPS` groups a pair, after that of twice as many; nothing where vectors are
    /// too short.
    ///
    /// # Safety
    /// `(node + K) COUNT` must be at most `n`.
    #[inline(always)]
    unsafe fn inverse_cycle<const GROUPS: usize, const K: usize>(
        &self,
        stage: u32,
        mut u: [L::Vector; K],
        mut v: [L::Vector; K],
        node: usize,
    ) -> ([L::Vector; K], [L::Vector; K]) {
        if GROUPS > L::COUNT {
            return (u, v);
        }
        for k in 0..K {
            (u[k], v[k]) = self.lanes.unzip(u[k], v[k]);
        }
        // SAFETY: there are at most COUNT groups.
        let factors = unsafe { self.cycles::<GROUPS, K>(node) };
        self.inverse_butterflies(stage + GROUPS.ilog2(), u, v, factors)
    }

    /// The stages of the halves of the nodes from `node` on, of `part` words each, and of the nodes
    /// themselves; `SCALED` where that is the transform's last.
    #[inline(always)]
    fn inverse_two_stages<const SCALED: bool>(&self, node: usize, part: usize, x: &mut [L::Word]) {
        let quarter = part / 4;
        let stage = node.ilog2();
        assert!(2 * (node + x.len() / part) <= self.factors.words.len());
        for (group, x) in x.chunks_exact_mut(4 * quarter).enumerate() {
            // SAFETY: as many nodes were checked above.
            let ([outer], [low, high]) = unsafe {
                (
                    self.cycles::<1, 1>(node + group),
                    self.cycles::<1, 2>(2 * (node + group)),
                )
            };
            let x = x.as_mut_ptr();
            for i in (0..quarter).step_by(2 * L::COUNT) {
                // SAFETY: i + 2 COUNT <= quarter, a multiple of 2 COUNT, and the chunk has four
                // quarters.
                unsafe {
                    let ([a, e], [b, f]) = (self.load(x.add(i)), self.load(x.add(i + quarter)));
                    let ([c, g], [d, h]) = (
                        self.load(x.add(i + 2 * quarter)),
                        self.load(x.add(i + 3 * quarter)),
                    );
                    let ([a, c, e, g], [b, d, f, h]) = self.inverse_butterflies(
                        stage + 1,
                        [a, c, e, g],
                        [b, d, f, h],
                        [low, high, low, high],
                    );
                    let ([a, b, e, f], [c, d, g, h]) = self
                        .inverse_butterflies_scaled::<4, SCALED>(
                            stage,
                            [a, b, e, f],
                            [c, d, g, h],
                            [outer; 4],
                        );
                    self.store(x.add(i), [a, e]);
                    self.store(x.add(i + quarter), [b, f]);
                    self.store(x.add(i + 2 * quarter), [c, g]);
                    self.store(x.add(i + 3 * quarter), [d, h]);
                }
            }
        }
    }

    /// The stage of node `node`: words half of `x` apart; `SCALED` where it is the transform's
    /// last.
    #[inline(always)]
    fn inverse_stage<const SCALED: bool>(&self, node: usize, x: &mut [L::Word]) {
        let half = x.len() / 2;
        let factor = self.one(self.factors, node);
        let stage = node.ilog2();
        let x = x.as_mut_ptr();
        for i in (0..half).step_by(2 * L::COUNT) {
            // SAFETY: i + 2 COUNT <= half, a multiple of 2 COUNT, and both halves have that many
            // words.
            unsafe {
                let (u, v) = (self.load::<2>(x.add(i)), self.load(x.add(half + i)));
                let (u, v) = self.inverse_butterflies_scaled::<2, SCALED>(stage, u, v, [factor; 2]);
                self.store(x.add(i), u);
                self.store(x.add(half + i), v);
            }
        }
    }

    /// `u + v w` and `u - v w`, for any `v`.
    #[inline(always)]
    fn forward_butterflies<const K: usize>(
        &self,
        stage: u32,
        mut u: [L::Vector; K],
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let mut v = self.products(v, w);
        if TIGHT {
            for k in 0..K {
                let sum_end = self.residues().reduce_once(u[k]);
                let product = self.residues().make_positive(v[k]);
                v[k] = self
                    .lanes
                    .sub(self.lanes.add(sum_end, self.residues().q), product);
                u[k] = self.lanes.add(sum_end, product);
            }
            return (u, v);
        }
        if stage == 0 {
            for u in &mut u {
                *u = self.bounds.first_lift(*u);
            }
        } else if self.bounds.shrinks(stage) {
            for u in &mut u {
                *u = self.bounds.shrink_and_lift(*u);
            }
        }
        for k in 0..K {
            let product = v[k];
            v[k] = self.lanes.sub(u[k], product);
            u[k] = self.lanes.add(u[k], product);
        }
        (u, v)
    }

    /// [`inverse_butterflies`](Self::inverse_butterflies) or, in the transform's last stage, those
    /// times `1/n`.
    #[inline(always)]
    fn inverse_butterflies_scaled<const K: usize, const SCALED: bool>(
        &self,
        stage: u32,
        u: [L::Vector; K],
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        if SCALED {
            self.last_butterflies(u, v)
        } else {
            self.inverse_butterflies(stage, u, v, w)
        }
    }

    /// `u + v` and `(u - v) w`.
    #[inline(always)]
    fn inverse_butterflies<const K: usize>(
        &self,
        stage: u32,
        u: [L::Vector; K],
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let (mut sums, differences) = self.sums_and_differences(u, v);
        // Products first: they take longest.
        let mut products = self.products(differences, w);
        if TIGHT {
            for product in &mut products {
                *product = self.residues().reduce_once(*product);
            }
        }
        if self.bounds.shrinks(stage) {
            for sum in &mut sums {
                *sum = self.bounds.shrink(*sum);
            }
        }
        (sums, products)
    }

    /// `(u + v) / n` and `(u - v) w / n`, below `q`.
    #[inline(always)]
    fn last_butterflies<const K: usize>(
        &self,
        u: [L::Vector; K],
        v: [L::Vector; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        let (sums, differences) = self.sums_and_differences(u, v);
        let sums = self.scaled(sums, 0);
        let differences = self.scaled(differences, 1);
        (sums, differences)
    }

    /// `v` times factor `index` of the last stage, below `q`.
    #[inline(always)]
    fn scaled<const K: usize>(&self, v: [L::Vector; K], index: usize) -> [L::Vector; K] {
        let mut products = self.products(v, [self.one(self.scale, index); K]);
        for product in &mut products {
            *product = self.residues().reduce_once(self.lanes.clean(*product));
        }
        products
    }

    /// `u + v` and `u - v`, both positive.
    #[inline(always)]
    fn sums_and_differences<const K: usize>(
        &self,
        mut u: [L::Vector; K],
        mut v: [L::Vector; K],
    ) -> ([L::Vector; K], [L::Vector; K]) {
        for k in 0..K {
            let difference = self.bounds.difference(u[k], v[k]);
            u[k] = self.lanes.add(u[k], v[k]);
            v[k] = difference;
        }
        (u, v)
    }

    /// `v w mod q` for any `v`, by Shoup's method: in `(-q, q)` where the quotient of `w` was
    /// rounded up, in `[0, 2q)` where it was rounded down.
    #[inline(always)]
    fn products<const K: usize>(
        &self,
        v: [L::Vector; K],
        w: [Factor<L::Vector>; K],
    ) -> [L::Vector; K] {
        let (mut high, mut low) = (v, v);
        for k in 0..K {
            high[k] = self.lanes.mul_high(v[k], w[k].quotient);
        }
        high = self.lanes.side_by_side(high);
        for k in 0..K {
            low[k] = self.lanes.mul_low(v[k], w[k].word);
            high[k] = self.residues().multiple(high[k]);
        }
        low = self.lanes.side_by_side(low);
        high = self.lanes.side_by_side(high);
        for k in 0..K {
            low[k] = self.residues().subtract(low[k], high[k]);
        }
        low
    }

    /// Factor `index` in all lanes.
    #[inline(always)]
    fn one(&self, factors: &Factors<L::Word>, index: usize) -> Factor<L::Vector> {
        Factor {
            word: self.lanes.splat(factors.words[index]),
            quotient: self.lanes.splat_high(factors.quotients(L::BITS)[index]),
        }
    }

    /// For each of `K` pairs from `node` on the twiddles of its `GROUPS` groups, over and over.
    ///
    /// # Safety
    /// `(node + K) GROUPS` must be at most `n`.
    #[inline(always)]
    unsafe fn cycles<const GROUPS: usize, const K: usize>(
        &self,
        node: usize,
    ) -> [Factor<L::Vector>; K] {
        let words = self.factors.words.as_ptr();
        let quotients = self.factors.quotients(L::BITS).as_ptr();
        let mut factors = [self.one(self.scale, 0); K];
        for (k, factor) in factors.iter_mut().enumerate() {
            let at = (node + k) * GROUPS;
            // SAFETY: the tables have n words by `new`, and that of quotients one more.
            unsafe {
                factor.word = self.lanes.load_cycle::<GROUPS>(words.add(at));
                factor.quotient = self.lanes.load_cycle_high::<GROUPS>(quotients.add(at));
            }
        }
        factors
    }

    /// # Safety
    /// `K` vectors from `x` on must be valid for reading.
    #[inline(always)]
    unsafe fn load<const K: usize>(&self, x: *const L::Word) -> [L::Vector; K] {
        let mut vectors = [self.residues().q; K];
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
        let (mut u, mut v) = ([self.residues().q; K], [self.residues().q; K]);
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
