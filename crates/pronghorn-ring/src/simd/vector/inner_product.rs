//! Sums of products in double words, reduced in the end and where they might overflow.

use crate::simd::lanes::Lanes;
use crate::simd::residues::{Factor, Residues, largest};
use crate::simd::{Routine, vectorised};
use crate::{Prime, SimdLevel, Word};

/// Words whose sums are kept at a time: of 64 bits in the first-level cache, and of 128 bits in
/// registers.
const NARROW_BLOCK: usize = 64;
const WIDE_BLOCK: usize = 4;

/// How many bytes ahead of its use the second factor, which is read once, is asked for.
const AHEAD: usize = 2048;

/// `out[p] = xs[0] * ys[p][0] + xs[1] * ys[p][1] + ... mod q`.
pub struct InnerProducts<'a, W, const P: usize> {
    pub q: &'a Prime<W>,
    pub xs: &'a [&'a [W]],
    pub ys: [&'a [&'a [W]]; P],
    pub out: [&'a mut [W]; P],
}

impl<W: Word, const P: usize> InnerProducts<'_, W, P> {
    /// At a level.
    pub fn run(self, level: SimdLevel) {
        if W::BITS > 32 {
            return W::run(level, self.q, self);
        }
        for (ys, out) in self.ys.into_iter().zip(self.out) {
            narrow(level, self.q, self.xs, ys, out);
        }
    }
}

vectorised! {
    /// Words of 32 bits.
    fn narrow<W: Word>(q: &Prime<W>, xs: &[&[W]], ys: &[&[W]], out: &mut [W]) {
        let sums = Plain::new(q, xs, ys);
        let whole = out.len() - out.len() % NARROW_BLOCK;
        for at in (0..whole).step_by(NARROW_BLOCK) {
            out[at..at + NARROW_BLOCK].copy_from_slice(&sums.narrow::<NARROW_BLOCK>(at));
        }
        for at in whole..out.len() {
            out[at..at + 1].copy_from_slice(&sums.narrow::<1>(at));
        }
    }
}

/// With sums in integers of twice the word's length.
struct Plain<'a, W> {
    q: &'a Prime<W>,
    xs: &'a [&'a [W]],
    ys: &'a [&'a [W]],
    /// Products that such an integer holds.
    most: usize,
    /// `2^BITS mod q`.
    radix: Radix<W>,
}

impl<'a, W: Word> Plain<'a, W> {
    #[inline(always)]
    fn new(q: &'a Prime<W>, xs: &'a [&'a [W]], ys: &'a [&'a [W]]) -> Self {
        // One product less than fit leaves room for a residue.
        let square = u128::from(q.value()) * u128::from(q.value());
        let most = (u128::MAX >> (128 - 2 * W::BITS)) / square - 1;
        let most = most.min(1 << 16) as usize;
        Self {
            q,
            xs,
            ys,
            most,
            radix: power_of_two(q, u64::from(W::BITS)),
        }
    }

    /// `N` words of 32 bits from word `at` on.
    #[inline(always)]
    fn narrow<const N: usize>(&self, at: usize) -> [W; N] {
        let (mut sums, mut residues) = ([0u64; N], [W::default(); N]);
        for (xs, ys) in self.xs.chunks(self.most).zip(self.ys.chunks(self.most)) {
            for (x, y) in xs.iter().zip(ys) {
                let (x, y) = (&x[at..at + N], &y[at..at + N]);
                for i in 0..N {
                    sums[i] += x[i].to_u64() * y[i].to_u64();
                }
            }
            for i in 0..N {
                residues[i] = self.reduce(sums[i] & 0xffff_ffff, sums[i] >> 32);
                sums[i] = residues[i].to_u64();
            }
        }
        residues
    }

    /// `N` words of 64 bits from word `at` on.
    #[inline(always)]
    fn wide<const N: usize>(&self, at: usize) -> [W; N] {
        let (mut sums, mut residues) = ([0u128; N], [W::default(); N]);
        for (xs, ys) in self.xs.chunks(self.most).zip(self.ys.chunks(self.most)) {
            for (x, y) in xs.iter().zip(ys) {
                let (x, y) = (&x[at..at + N], &y[at..at + N]);
                for i in 0..N {
                    sums[i] += u128::from(x[i].to_u64()) * u128::from(y[i].to_u64());
                }
            }
            for i in 0..N {
                residues[i] = self.reduce(sums[i] as u64, (sums[i] >> 64) as u64);
                sums[i] = u128::from(residues[i].to_u64());
            }
        }
        residues
    }

    /// `high 2^BITS + low mod q`.
    #[inline(always)]
    fn reduce(&self, low: u64, high: u64) -> W {
        let upper = self
            .q
            .mul_shoup(W::from_u64(high), self.radix.word, self.radix.quotient);
        self.q.add(upper, self.q.reduce_word(W::from_u64(low)))
    }
}

/// `2^exponent mod q` with Shoup's quotient.
struct Radix<W> {
    word: W,
    quotient: W,
}

fn power_of_two<W: Word>(q: &Prime<W>, exponent: u64) -> Radix<W> {
    let word = q.pow(W::from_u64(2), exponent);
    Radix {
        word,
        quotient: q.shoup(word),
    }
}

/// Of words of 64 bits.
impl<W: Word, const P: usize> Routine<W> for InnerProducts<'_, W, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        let Self { q, xs, ys, mut out } = self;
        let Some(length) = out.first().map(|out| out.len()) else {
            return;
        };
        assert!(out.iter().all(|out| out.len() == length));
        for ys in ys {
            assert!(xs.len() == ys.len());
            assert!(xs.iter().chain(ys).all(|slice| slice.len() == length));
        }
        let mut done = 0;
        if L::FUSED {
            let sums = Fused::new(lanes, q, xs, ys);
            while length - done >= 4 * L::COUNT {
                // SAFETY: all slices have four vectors from `done` on.
                unsafe { sums.store::<4>(&mut out, done) };
                done += 4 * L::COUNT;
            }
            while length - done >= L::COUNT {
                // SAFETY: all slices have a vector from `done` on.
                unsafe { sums.store::<1>(&mut out, done) };
                done += L::COUNT;
            }
        }
        for (ys, out) in ys.into_iter().zip(out) {
            let (sums, mut done) = (Plain::new(q, xs, ys), done);
            while length - done >= WIDE_BLOCK {
                out[done..done + WIDE_BLOCK].copy_from_slice(&sums.wide::<WIDE_BLOCK>(done));
                done += WIDE_BLOCK;
            }
            for at in done..length {
                out[at..at + 1].copy_from_slice(&sums.wide::<1>(at));
            }
        }
    }
}

/// With a fused multiplier: sums of the lower halves of products, of `BITS` bits, and of the upper
/// halves, both in words.
struct Fused<'a, L: Lanes, const P: usize> {
    lanes: L,
    residues: Residues<L>,
    /// `2^BITS mod q`.
    radix: Factor<L::Vector>,
    xs: &'a [&'a [L::Word]],
    ys: [&'a [&'a [L::Word]]; P],
    most: usize,
}

impl<'a, L: Lanes, const P: usize> Fused<'a, L, P> {
    #[inline(always)]
    fn new(
        lanes: L,
        q: &Prime<L::Word>,
        xs: &'a [&'a [L::Word]],
        ys: [&'a [&'a [L::Word]]; P],
    ) -> Self {
        let residues = Residues::new(lanes, q);
        let radix = power_of_two(q, u64::from(L::BITS));
        // The upper sum and what the lower carries into it have BITS bits, so that it is a factor
        // again. The carry is less than one for each term and one for the residue.
        let upper = ((u128::from(q.value()) * u128::from(q.value())) >> L::BITS) as u64 + 1;
        let most = (largest(L::BITS) - 1) / upper;
        let most = most.min(largest(L::Word::BITS - L::BITS) - 1) as usize;
        Self {
            lanes,
            residues,
            radix: residues.scalar(radix.word, radix.quotient),
            xs,
            ys,
            most,
        }
    }

    /// `K` vectors of each `out` from word `start` on.
    ///
    /// # Safety
    /// `out` and all factors must have as many words.
    #[inline(always)]
    unsafe fn store<const K: usize>(&self, out: &mut [&mut [L::Word]; P], start: usize) {
        let lanes = self.lanes;
        let zero = lanes.splat(L::Word::default());
        let (mut low, mut high) = ([[zero; K]; P], [[zero; K]; P]);
        let mut first = 0;
        while first < self.xs.len() {
            let end = self.xs.len().min(first + self.most);
            for term in first..end {
                for k in 0..K {
                    let at = start + k * L::COUNT;
                    // SAFETY: by contract.
                    let x = unsafe { lanes.load(self.xs[term].as_ptr().add(at)) };
                    for p in 0..P {
                        let y = self.ys[p][term].as_ptr();
                        lanes.prefetch(y.wrapping_add(at + AHEAD / size_of::<L::Word>()));
                        // SAFETY: by contract.
                        let y = unsafe { lanes.load(y.add(at)) };
                        low[p][k] = lanes.mul_add_low(low[p][k], x, y);
                        high[p][k] = lanes.mul_add_high(high[p][k], x, lanes.high(y));
                    }
                }
            }
            for (low, high) in low.iter_mut().zip(&mut high) {
                for (low, high) in low.iter_mut().zip(high) {
                    *low = self.reduce(*low, *high);
                    *high = zero;
                }
            }
            first = end;
        }
        for (out, low) in out.iter_mut().zip(&low) {
            for (k, &sum) in low.iter().enumerate() {
                // SAFETY: by contract.
                unsafe { lanes.store(out.as_mut_ptr().add(start + k * L::COUNT), sum) };
            }
        }
    }

    /// `high 2^BITS + low mod q`.
    #[inline(always)]
    fn reduce(&self, low: L::Vector, high: L::Vector) -> L::Vector {
        let carry = self.lanes.shift_right(low, L::BITS);
        let high = self.lanes.add(high, carry);
        let upper = self.residues.mul_factor(high, self.radix);
        self.residues.add(upper, self.residues.reduce(low))
    }
}

/// Words of a block of [`StreamedSums`]: four vectors of 64-bit words.
pub const STREAM_BLOCK: usize = 32;

/// How many bytes ahead of its use the stream is asked for.
const STREAM_AHEAD: usize = 16384;

/// `out[s][p] = sum over j of words[s][j] * inputs[sums[s][j]][p] mod q`, `words` being a stream
/// that is read once: by block of [`STREAM_BLOCK`] words (or all, of shorter inputs), then by sum,
/// then by product.
pub struct StreamedSums<'a, 'b, W> {
    pub q: &'a Prime<W>,
    pub sums: &'a [Vec<usize>],
    pub words: &'a [W],
    pub inputs: &'a [[&'a [W]; 2]],
    pub out: &'a mut [[&'b mut [W]; 2]],
}

impl<W: Word> Routine<W> for StreamedSums<'_, '_, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        let Some(n) = self.inputs.first().map(|input| input[0].len()) else {
            return;
        };
        let block = n.min(STREAM_BLOCK);
        // Inputs lie at like places of pages, which the first cache has few of: their blocks are
        // copied beside each other.
        let mut near = vec![W::default(); self.inputs.len() * 2 * block];
        let fused = (L::FUSED && block == 4 * L::COUNT)
            .then(|| Fused::<L, 2>::new(lanes, self.q, &[], [&[], &[]]));
        let mut stream = self.words;
        for start in (0..n).step_by(block) {
            let polys = self.inputs.iter().flatten();
            for (near, poly) in near.chunks_exact_mut(block).zip(polys) {
                near.copy_from_slice(&poly[start..start + block]);
            }
            for (products, out) in self.sums.iter().zip(self.out.iter_mut()) {
                let (words, rest) = stream.split_at(products.len() * block);
                stream = rest;
                let out = out.each_mut().map(|out| &mut out[start..start + block]);
                if let Some(fused) = &fused {
                    // SAFETY: the products' words, inputs that exist (the slice of them is
                    // checked), and both outputs are blocks.
                    unsafe { fused.streamed(words, products, &near, out) };
                    continue;
                }
                let xs: Vec<&[W]> = words.chunks_exact(block).collect();
                for (poly, out) in out.into_iter().enumerate() {
                    let of = |&input: &usize| &near[(2 * input + poly) * block..][..block];
                    let ys: Vec<&[W]> = products.iter().map(of).collect();
                    let sums = Plain::new(self.q, &xs, &ys);
                    for (at, out) in out.iter_mut().enumerate() {
                        *out = match W::BITS {
                            32 => sums.narrow::<1>(at)[0],
                            _ => sums.wide::<1>(at)[0],
                        };
                    }
                }
            }
        }
    }
}

impl<L: Lanes> Fused<'_, L, 2> {
    /// A block of a sum of products of `words` with the blocks of `near`, `[input][poly]`.
    ///
    /// # Safety
    /// Blocks must have four vectors, `words` as many blocks as there are products.
    #[inline(always)]
    unsafe fn streamed(
        &self,
        words: &[L::Word],
        products: &[usize],
        near: &[L::Word],
        out: [&mut [L::Word]; 2],
    ) {
        const K: usize = 4;
        let (lanes, block) = (self.lanes, K * L::COUNT);
        let zero = lanes.splat(L::Word::default());
        let (mut low, mut high) = ([[zero; K]; 2], [[zero; K]; 2]);
        let mut x = words.as_ptr();
        for products in products.chunks(self.most) {
            for &input in products {
                let y = near[2 * input * block..][..2 * block].as_ptr();
                for k in 0..K {
                    lanes.prefetch(x.wrapping_add(STREAM_AHEAD / size_of::<L::Word>()));
                    // SAFETY: by contract.
                    let factor = unsafe { lanes.load(x) };
                    x = x.wrapping_add(L::COUNT);
                    for p in 0..2 {
                        // SAFETY: within the two blocks of the input.
                        let y = unsafe { lanes.load(y.add(p * block + k * L::COUNT)) };
                        low[p][k] = lanes.mul_add_low(low[p][k], factor, y);
                        high[p][k] = lanes.mul_add_high(high[p][k], factor, lanes.high(y));
                    }
                }
            }
            for (low, high) in low.iter_mut().zip(&mut high) {
                for (low, high) in low.iter_mut().zip(high) {
                    *low = self.reduce(*low, *high);
                    *high = zero;
                }
            }
        }
        for (out, low) in out.into_iter().zip(&low) {
            for (out, &sum) in out.chunks_exact_mut(L::COUNT).zip(low) {
                // SAFETY: a vector's words.
                unsafe { lanes.store(out.as_mut_ptr(), sum) };
            }
        }
    }
}
