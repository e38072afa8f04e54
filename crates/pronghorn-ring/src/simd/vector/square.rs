//! Squares of polynomials of degree 1, whose coefficients are slices of residues.

use bytemuck::{cast_slice, cast_slice_mut};

use super::narrow::{self, Narrow};
use crate::simd::Routine;
use crate::simd::lanes::{Lanes, Scalar};
use crate::simd::residues::{Product, Residues};
use crate::{Prime, SimdLevel, Word};

/// `out[0] = x[0] x[0]`, `out[1] = 2 x[0] x[1]`, `out[2] = x[1] x[1] mod q`, all of one length.
pub fn square_linear<W: Word>(level: SimdLevel, q: &Prime<W>, x: [&[W]; 2], out: [&mut [W]; 3]) {
    if narrow::takes(q) {
        let x = x.map(cast_slice);
        let [out0, out1, out2] = out.map(cast_slice_mut);
        narrow::square_linear(level, &Narrow::new(q), x[0], x[1], out0, out1, out2);
    } else {
        let product = Product::new(q);
        W::run(level, q, Square { q, product, x, out });
    }
}

struct Square<'a, W> {
    q: &'a Prime<W>,
    product: Product<W>,
    x: [&'a [W]; 2],
    out: [&'a mut [W]; 3],
}

impl<W: Word> Routine<W> for Square<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes<Word = W>>(self, lanes: L) {
        let Self { q, product, x, out } = self;
        let whole = x[0].len() - x[0].len() % L::COUNT;
        let [(head0, tail0), (head1, tail1), (head2, tail2)] =
            out.map(|out| out.split_at_mut(whole));
        let [start, end] =
            [0, 1].map(|half| x.map(|x| if half == 0 { &x[..whole] } else { &x[whole..] }));
        square(lanes, q, product, start, [head0, head1, head2]);
        square(Scalar::NEW, q, product, end, [tail0, tail1, tail2]);
    }
}

/// The square of slices of one length, a multiple of `COUNT`.
#[inline(always)]
fn square<L: Lanes>(
    lanes: L,
    q: &Prime<L::Word>,
    product: Product<L::Word>,
    x: [&[L::Word]; 2],
    out: [&mut [L::Word]; 3],
) {
    let length = x[0].len();
    let q = Residues::new(lanes, q);
    assert!(length.is_multiple_of(L::COUNT) && x[1].len() == length);
    assert!(out.iter().all(|out| out.len() == length));
    let [out0, out1, out2] = out;
    for i in (0..length).step_by(L::COUNT) {
        // SAFETY: i + COUNT <= length, as that is a multiple of COUNT.
        unsafe {
            let (x0, x1) = (
                lanes.load(x[0].as_ptr().add(i)),
                lanes.load(x[1].as_ptr().add(i)),
            );
            let mixed = q.mul(x0, x1, product);
            lanes.store(out0.as_mut_ptr().add(i), q.mul(x0, x0, product));
            lanes.store(out1.as_mut_ptr().add(i), q.add(mixed, mixed));
            lanes.store(out2.as_mut_ptr().add(i), q.mul(x1, x1, product));
        }
    }
}
