//! Elementwise operations on slices of residues, all of one length.
//!
//! Sums are plain loops. Products are written over [`Lanes`], but for those of two 32-bit words
//! that both vary, which take plain loops on 64-bit integers: primes of 31 bits leave a quotient of
//! 32 no room for error.

mod inner_product;
mod narrow;
mod square;

use bytemuck::{cast_slice, cast_slice_mut};

use self::narrow::Narrow;
use super::lanes::{Lanes, Scalar};
use super::residues::{Product, Residues};
use super::{Routine, vectorised};
use crate::{Prime, SimdLevel, Word};

pub use inner_product::{InnerProducts, STREAM_BLOCK, StreamedSums};
pub use square::square_linear;

/// `out[i]` from itself and word `i` of each input.
trait Operation<W: Word, const INPUTS: usize>: Copy {
    /// To be `inline(always)`. All are residues below `q`.
    fn apply<L: Lanes<Word = W>>(
        self,
        q: &Residues<L>,
        out: L::Vector,
        inputs: [L::Vector; INPUTS],
    ) -> L::Vector;
}

/// An operation on all words of slices of one length.
struct Elementwise<'a, W, O, const INPUTS: usize> {
    q: &'a Prime<W>,
    operation: O,
    out: &'a mut [W],
    inputs: [&'a [W]; INPUTS],
}

impl<W: Word, O: Operation<W, INPUTS>, const INPUTS: usize> Routine<W>
    for Elementwise<'_, W, O, INPUTS>
{
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        let whole = self.out.len() - self.out.len() % L::COUNT;
        let (out, rest) = self.out.split_at_mut(whole);
        apply(lanes, self.q, self.operation, out, self.inputs, 0);
        apply(
            Scalar::NEW,
            self.q,
            self.operation,
            rest,
            self.inputs,
            whole,
        );
    }
}

/// The operation on `out`, a multiple of `COUNT` words, and the inputs from `start` on.
#[inline(always)]
fn apply<L: Lanes, O: Operation<L::Word, INPUTS>, const INPUTS: usize>(
    lanes: L,
    q: &Prime<L::Word>,
    operation: O,
    out: &mut [L::Word],
    inputs: [&[L::Word]; INPUTS],
    start: usize,
) {
    let q = Residues::new(lanes, q);
    for input in inputs {
        assert!(input.len() >= start + out.len());
    }
    for i in (0..out.len()).step_by(L::COUNT) {
        let mut vectors = [q.q; INPUTS];
        // SAFETY: i + COUNT <= out.len(), a multiple of COUNT, and as much is left of the inputs
        // from `start` on.
        unsafe {
            for (vector, input) in vectors.iter_mut().zip(inputs) {
                *vector = lanes.load(input.as_ptr().add(start + i));
            }
            let at = out.as_mut_ptr().add(i);
            lanes.store(at, operation.apply(&q, lanes.load(at), vectors));
        }
    }
}

/// Runs an operation at a level.
fn run<W: Word, const INPUTS: usize>(
    level: SimdLevel,
    q: &Prime<W>,
    operation: impl Operation<W, INPUTS>,
    out: &mut [W],
    inputs: [&[W]; INPUTS],
) {
    W::run(
        level,
        q,
        Elementwise {
            q,
            operation,
            out,
            inputs,
        },
    );
}

/// [`Operation`]s by their formulas.
macro_rules! operations {
    ($($(#[$meta:meta])* $name:ident $(<$word:ident>)? { $($field:ident : $ty:ty),* }
        [$inputs:literal] |$q:ident, $out:tt, [$($input:tt),*]| $body:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        struct $name $(<$word>)? { $($field: $ty),* }
        impl<W: Word> Operation<W, $inputs> for $name $(<$word>)? {
            #[inline(always)]
            fn apply<L: Lanes<Word = W>>(
                self,
                $q: &Residues<L>,
                $out: L::Vector,
                [$($input),*]: [L::Vector; $inputs],
            ) -> L::Vector {
                let Self { $($field),* } = self;
                $body
            }
        }
    )*};
}

operations! {
    Mul<W> { product: Product<W> } [2] |q, _, [x, y]| q.mul(x, y, product);
    MulAssign<W> { product: Product<W> } [1] |q, out, [y]| q.mul(out, y, product);
    MulAdd<W> { product: Product<W> } [2] |q, out, [x, y]| q.add(out, q.mul(x, y, product));
    Scale<W> { w: W, w_shoup: W } [0] |q, out, []| q.mul_factor(out, q.scalar(w, w_shoup));
    ScaleAdd<W> { w: W, w_shoup: W } [1]
        |q, out, [x]| q.add(out, q.mul_factor(x, q.scalar(w, w_shoup)));
    DivideAdd<W> { w: W, w_shoup: W } [2]
        |q, out, [x, y]| q.add(q.mul_factor(q.sub(x, out), q.scalar(w, w_shoup)), y);
    Divide<W> { w: W, w_shoup: W } [1]
        |q, out, [x]| q.mul_factor(q.sub(x, out), q.scalar(w, w_shoup));
    MulShoup {} [3] |q, _, [x, y, y_shoup]| q.mul_factor(x, q.factor(y, y_shoup));
    MulShoupAdd {} [3]
        |q, out, [x, y, y_shoup]| q.add(out, q.mul_factor(x, q.factor(y, y_shoup)));
    ReduceFrom<W> { centred: CentredFrom<W> } [1] |q, _, [x]| centred.modulo(q, x);
}

/// Takes centred residues of a prime `p` to another, `q`.
#[derive(Clone, Copy)]
pub struct CentredFrom<W> {
    p: W,
    half: W,
    half_mod_q: W,
    relation: Relation,
}

impl<W: Word> CentredFrom<W> {
    pub fn new(p: &Prime<W>, q: &Prime<W>) -> Self {
        let half = p.value() / 2; // (p - 1) / 2
        Self {
            p: p.word(),
            half: W::from_u64(half),
            half_mod_q: W::from_u64(half % q.value()),
            relation: Relation::new(p.value(), q.value()),
        }
    }

    /// The best level that takes both primes.
    pub fn level(p: &Prime<W>, level: SimdLevel) -> SimdLevel {
        match p.fits_short_multiplier() {
            true => level,
            false => level.min(SimdLevel::Avx512),
        }
    }

    /// The centred residue modulo `p` of `x < p`, modulo `q`.
    #[inline(always)]
    pub fn modulo<L: Lanes<Word = W>>(self, q: &Residues<L>, x: L::Vector) -> L::Vector {
        // Moved up by half of p, the centred residues are 0 .. p; moved down again modulo q.
        let moved = q.add_modulo(x, self.half, self.p);
        let residue = match self.relation {
            Relation::UpToOne => moved,
            Relation::UpToTwo => q.reduce_once(moved),
            Relation::Above => q.reduce(moved),
        };
        q.sub_scalar(residue, self.half_mod_q)
    }
}

/// How large `p / q` is.
#[derive(Clone, Copy)]
enum Relation {
    UpToOne,
    UpToTwo,
    Above,
}

impl Relation {
    fn new(p: u64, q: u64) -> Self {
        match p {
            _ if p <= q => Self::UpToOne,
            _ if p <= 2 * q => Self::UpToTwo,
            _ => Self::Above,
        }
    }
}

/// `out = x * y mod q`.
pub fn mul<W: Word>(level: SimdLevel, q: &Prime<W>, x: &[W], y: &[W], out: &mut [W]) {
    match narrow::takes(q) {
        true => narrow::mul(
            level,
            &Narrow::new(q),
            cast_slice(x),
            cast_slice(y),
            cast_slice_mut(out),
        ),
        false => run(
            level,
            q,
            Mul {
                product: Product::new(q),
            },
            out,
            [x, y],
        ),
    }
}

/// `x *= y mod q`.
pub fn mul_assign<W: Word>(level: SimdLevel, q: &Prime<W>, x: &mut [W], y: &[W]) {
    match narrow::takes(q) {
        true => narrow::mul_assign(level, &Narrow::new(q), cast_slice_mut(x), cast_slice(y)),
        false => run(
            level,
            q,
            MulAssign {
                product: Product::new(q),
            },
            x,
            [y],
        ),
    }
}

/// `acc += x * y mod q`.
pub fn mul_add_assign<W: Word>(level: SimdLevel, q: &Prime<W>, acc: &mut [W], x: &[W], y: &[W]) {
    match narrow::takes(q) {
        true => narrow::mul_add_assign(
            level,
            &Narrow::new(q),
            cast_slice_mut(acc),
            cast_slice(x),
            cast_slice(y),
        ),
        false => run(
            level,
            q,
            MulAdd {
                product: Product::new(q),
            },
            acc,
            [x, y],
        ),
    }
}

/// `x *= w mod q`.
pub fn mul_scalar_assign<W: Word>(level: SimdLevel, q: &Prime<W>, x: &mut [W], w: W) {
    run(
        level,
        q,
        Scale {
            w,
            w_shoup: q.shoup(w),
        },
        x,
        [],
    );
}

/// `acc += x * w mod q`.
pub fn mul_scalar_add_assign<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    acc: &mut [W],
    x: &[W],
    w: W,
) {
    run(
        level,
        q,
        ScaleAdd {
            w,
            w_shoup: q.shoup(w),
        },
        acc,
        [x],
    );
}

/// `out = (x - out) * w mod q`.
pub fn divide<W: Word>(level: SimdLevel, q: &Prime<W>, x: &[W], out: &mut [W], w: W) {
    let w_shoup = q.shoup(w);
    run(level, q, Divide { w, w_shoup }, out, [x]);
}

/// `out = (x - out) * w + y mod q`.
pub fn divide_add<W: Word>(level: SimdLevel, q: &Prime<W>, x: &[W], y: &[W], out: &mut [W], w: W) {
    let w_shoup = q.shoup(w);
    run(level, q, DivideAdd { w, w_shoup }, out, [x, y]);
}

/// `out = x * y mod q`.
pub fn mul_shoup<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    x: &[W],
    y: &[W],
    y_shoup: &[W],
    out: &mut [W],
) {
    run(level, q, MulShoup {}, out, [x, y, y_shoup]);
}

/// `acc += x * y mod q`.
pub fn mul_shoup_add_assign<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    acc: &mut [W],
    x: &[W],
    y: &[W],
    y_shoup: &[W],
) {
    run(level, q, MulShoupAdd {}, acc, [x, y, y_shoup]);
}

/// `out` = the centred residue `x` of `p` modulo `q`.
pub fn reduce_from<W: Word>(level: SimdLevel, q: &Prime<W>, p: &Prime<W>, x: &[W], out: &mut [W]) {
    let centred = CentredFrom::new(p, q);
    let level = CentredFrom::level(p, level);
    run(level, q, ReduceFrom { centred }, out, [x]);
}

vectorised! {
    /// `out = x + y mod q`.
    pub fn add<W: Word>(q: &Prime<W>, x: &[W], y: &[W], out: &mut [W]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = q.add(x, y);
        }
    }
}

vectorised! {
    /// `out = x - y mod q`.
    pub fn sub<W: Word>(q: &Prime<W>, x: &[W], y: &[W], out: &mut [W]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = q.sub(x, y);
        }
    }
}

vectorised! {
    /// `x += y mod q`.
    pub fn add_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = q.add(*x, y);
        }
    }
}

vectorised! {
    /// `x -= y mod q`.
    pub fn sub_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = q.sub(*x, y);
        }
    }
}

vectorised! {
    /// `x = -x mod q`.
    pub fn neg_assign<W: Word>(q: &Prime<W>, x: &mut [W]) {
        for x in x {
            *x = q.neg(*x);
        }
    }
}

vectorised! {
    /// `x >>= bits`.
    pub fn shift_right<W: Word>(x: &mut [W], bits: u32) {
        x.iter_mut().for_each(|word| *word = *word >> bits);
    }
}

vectorised! {
    /// `x = (x << bits) + 2^bits / 2 mod q`.
    pub fn shift_back<W: Word>(x: &mut [W], bits: u32, q: &Prime<W>) {
        let middle = W::from_u64((1 << bits) >> 1);
        x.iter_mut().for_each(|word| *word = q.reduce_once((*word << bits) | middle));
    }
}

vectorised! {
    /// The largest word.
    pub fn largest<W: Word>(words: &[W]) -> W {
        words.iter().fold(W::default(), |largest, &word| largest.max(word))
    }
}

vectorised! {
    /// Reads the words as little-endian and clears what `mask` lacks; the largest result.
    pub fn mask_and_largest<W: Word>(words: &mut [W], mask: W) -> W {
        let mut largest = W::default();
        for word in words {
            *word = word.swap_little_endian() & mask;
            largest = largest.max(*word);
        }
        largest
    }
}
