//! Elementwise arithmetic on slices of residues below `q`, constant time.
//!
//! Each function runs at the detected level; the `_at` forms take one, for tests and benchmarks.

use crate::simd::{self, InnerProducts, StreamedSums};
use crate::{Prime, SimdLevel, Word};

/// Defines a function at the detected level and its `_at` twin, which check that the slices named
/// after the arguments have one length and call the routine of that name in `simd::vector`.
macro_rules! elementwise {
    ($(#[$meta:meta])* $name:ident, $name_at:ident, ($($arg:ident : $ty:ty),*), $first:ident $(, $slice:ident)*) => {
        $(#[$meta])*
        ///
        /// # Panics
        /// Unless all slices have one length.
        pub fn $name<W: Word>(q: &Prime<W>, $($arg: $ty),*) {
            $name_at(SimdLevel::detect(), q, $($arg),*);
        }

        #[doc = concat!("[`", stringify!($name), "`] at `level`, or the best below it that the CPU has.")]
        ///
        /// # Panics
        /// Unless all slices have one length.
        pub fn $name_at<W: Word>(level: SimdLevel, q: &Prime<W>, $($arg: $ty),*) {
            $(assert!($first.len() == $slice.len(), "{UNEQUAL}");)*
            simd::vector::$name(level, q, $($arg),*);
        }
    };
}

elementwise! {
    /// `out = x + y mod q`.
    add, add_at, (x: &[W], y: &[W], out: &mut [W]), out, x, y
}

elementwise! {
    /// `x += y mod q`.
    add_assign, add_assign_at, (x: &mut [W], y: &[W]), x, y
}

elementwise! {
    /// `out = x - y mod q`.
    sub, sub_at, (x: &[W], y: &[W], out: &mut [W]), out, x, y
}

elementwise! {
    /// `x -= y mod q`.
    sub_assign, sub_assign_at, (x: &mut [W], y: &[W]), x, y
}

elementwise! {
    /// `x = -x mod q`.
    neg_assign, neg_assign_at, (x: &mut [W]), x
}

elementwise! {
    /// `out = x * y mod q`. Where `y` serves many times, [`mul_shoup`] is cheaper.
    mul, mul_at, (x: &[W], y: &[W], out: &mut [W]), out, x, y
}

elementwise! {
    /// `x *= y mod q`.
    mul_assign, mul_assign_at, (x: &mut [W], y: &[W]), x, y
}

elementwise! {
    /// `acc += x * y mod q`. For sums of many products, [`inner_product`] is cheaper.
    mul_add_assign, mul_add_assign_at, (acc: &mut [W], x: &[W], y: &[W]), acc, x, y
}

elementwise! {
    /// `x *= w mod q` for a residue `w`.
    mul_scalar_assign, mul_scalar_assign_at, (x: &mut [W], w: W), x
}

elementwise! {
    /// `acc += x * w mod q` for a residue `w`.
    mul_scalar_add_assign, mul_scalar_add_assign_at, (acc: &mut [W], x: &[W], w: W), acc, x
}

elementwise! {
    /// `out = (x - out) * w mod q` for a residue `w`: the end of a division by some primes of an
    /// RNS.
    divide, divide_at, (x: &[W], out: &mut [W], w: W), out, x
}

elementwise! {
    /// `out = (x - out) * w + y mod q` for a residue `w`.
    divide_add, divide_add_at, (x: &[W], y: &[W], out: &mut [W], w: W), out, x, y
}

elementwise! {
    /// `out = x * y mod q`, with `y_shoup[i] = q.shoup(y[i])`.
    mul_shoup, mul_shoup_at, (x: &[W], y: &[W], y_shoup: &[W], out: &mut [W]), out, x, y, y_shoup
}

elementwise! {
    /// `acc += x * y mod q`, with `y_shoup[i] = q.shoup(y[i])`.
    mul_shoup_add_assign, mul_shoup_add_assign_at,
    (acc: &mut [W], x: &[W], y: &[W], y_shoup: &[W]), acc, x, y, y_shoup
}

elementwise! {
    /// `out` = the representative of `x mod p` in `(-p/2, p/2]`, modulo `q`; `x` is below `p`, and
    /// either prime may be the larger. The inner loop of rescaling and basis conversion in an RNS.
    reduce_from, reduce_from_at, (p: &Prime<W>, x: &[W], out: &mut [W]), out, x
}

/// `x >>= bits`.
pub fn shift_right<W: Word>(x: &mut [W], bits: u32) {
    shift_right_at(SimdLevel::detect(), x, bits);
}

/// [`shift_right`] at `level`, or the best below it that the CPU has.
pub fn shift_right_at<W: Word>(level: SimdLevel, x: &mut [W], bits: u32) {
    simd::vector::shift_right(level, x, bits);
}

/// `x = (x << bits) + 2^bits / 2 mod q`, for words that [`shift_right`] leaves of residues, and
/// fewer bits than `q` has.
pub fn shift_back<W: Word>(q: &Prime<W>, x: &mut [W], bits: u32) {
    shift_back_at(SimdLevel::detect(), q, x, bits);
}

/// [`shift_back`] at `level`, or the best below it that the CPU has.
pub fn shift_back_at<W: Word>(level: SimdLevel, q: &Prime<W>, x: &mut [W], bits: u32) {
    simd::vector::shift_back(level, x, bits, q);
}

/// The largest word; 0 for no words.
pub fn largest<W: Word>(words: &[W]) -> W {
    largest_at(SimdLevel::detect(), words)
}

/// [`largest`] at `level`, or the best below it that the CPU has.
pub fn largest_at<W: Word>(level: SimdLevel, words: &[W]) -> W {
    simd::vector::largest(level, words)
}

/// `out = xs[0] * ys[0] + xs[1] * ys[1] + ... mod q`, elementwise: the products of a key switch.
/// Sums are kept in double words and reduced only where they might overflow: after 3 terms of 31
/// bits, 15 of 30 and 255 of 28 in `u32`; in `u64` after 15 of 62 bits and 255 of 60, and with
/// AVX-512 IFMA after 15 of 50 bits and 63 of 49. Zero for no terms.
///
/// # Panics
/// Unless `xs` and `ys` have as many slices, all of the length of `out`.
pub fn inner_product<W: Word>(q: &Prime<W>, xs: &[&[W]], ys: &[&[W]], out: &mut [W]) {
    inner_product_at(SimdLevel::detect(), q, xs, ys, out);
}

/// [`inner_product`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// Unless `xs` and `ys` have as many slices, all of the length of `out`.
pub fn inner_product_at<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    xs: &[&[W]],
    ys: &[&[W]],
    out: &mut [W],
) {
    check_inner_product(xs, ys, out);
    let (ys, out) = ([ys], [out]);
    W::inner_product(level, InnerProducts { q, xs, ys, out });
}

fn check_inner_product<W>(xs: &[&[W]], ys: &[&[W]], out: &[W]) {
    assert!(
        xs.len() == ys.len(),
        "an inner product has as many factors on both sides"
    );
    for slice in xs.iter().chain(ys) {
        assert!(slice.len() == out.len(), "{UNEQUAL}");
    }
}

/// [`inner_product`] of the same `xs` with two `ys`, which reads each `x` once.
///
/// # Panics
/// Unless `xs` and both `ys` have as many slices, all of the length of each `out`.
pub fn inner_product_pair<W: Word>(
    q: &Prime<W>,
    xs: &[&[W]],
    ys: [&[&[W]]; 2],
    out: [&mut [W]; 2],
) {
    inner_product_pair_at(SimdLevel::detect(), q, xs, ys, out);
}

/// [`inner_product_pair`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// Unless `xs` and both `ys` have as many slices, all of the length of each `out`.
pub fn inner_product_pair_at<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    xs: &[&[W]],
    ys: [&[&[W]]; 2],
    out: [&mut [W]; 2],
) {
    for (ys, out) in ys.iter().zip(&out) {
        check_inner_product(xs, ys, out);
    }
    W::inner_product_pair(level, InnerProducts { q, xs, ys, out });
}

/// Words of each factor that [`streamed_sums`] reads together.
pub const STREAM_BLOCK: usize = simd::STREAM_BLOCK;

/// `out[s][p] = sum over j of words[s][j] * inputs[sums[s][j]][p] mod q`, elementwise: products of
/// two polynomials each with many more that come from memory, as one stream. `words` are all of
/// them by block of [`STREAM_BLOCK`] words (or of all, of shorter inputs), then by sum, then by
/// product.
///
/// # Panics
/// Unless all inputs and outputs have one length, which blocks divide, every sum is of inputs that
/// exist, and `words` are as many as its products.
pub fn streamed_sums<W: Word>(
    q: &Prime<W>,
    sums: &[Vec<usize>],
    words: &[W],
    inputs: &[[&[W]; 2]],
    out: &mut [[&mut [W]; 2]],
) {
    streamed_sums_at(SimdLevel::detect(), q, sums, words, inputs, out);
}

/// [`streamed_sums`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// As there.
pub fn streamed_sums_at<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    sums: &[Vec<usize>],
    words: &[W],
    inputs: &[[&[W]; 2]],
    out: &mut [[&mut [W]; 2]],
) {
    let n = inputs.first().map_or(0, |input| input[0].len());
    assert!(sums.len() == out.len(), "{UNEQUAL}");
    assert!(inputs.iter().flatten().all(|x| x.len() == n), "{UNEQUAL}");
    assert!(
        out.iter()
            .flatten()
            .all(|x| x.len() == n || inputs.is_empty()),
        "{UNEQUAL}"
    );
    assert!(n == 0 || n.is_multiple_of(STREAM_BLOCK.min(n)), "{UNEQUAL}");
    let products: usize = sums.iter().map(Vec::len).sum();
    assert!(words.len() == products * n, "{UNEQUAL}");
    assert!(
        sums.iter().flatten().all(|&input| input < inputs.len()),
        "sums are of inputs that exist"
    );
    W::streamed_sums(
        level,
        StreamedSums {
            q,
            sums,
            words,
            inputs,
            out,
        },
    );
}

/// The square of `x0 + x1 s` as a polynomial in `s`: `out0 = x0 x0`, `out1 = 2 x0 x1` and
/// `out2 = x1 x1 mod q`, elementwise, reading and writing each word once.
///
/// # Panics
/// Unless all slices have one length.
pub fn square_linear<W: Word>(q: &Prime<W>, x: [&[W]; 2], out: [&mut [W]; 3]) {
    square_linear_at(SimdLevel::detect(), q, x, out);
}

/// [`square_linear`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// Unless all slices have one length.
pub fn square_linear_at<W: Word>(level: SimdLevel, q: &Prime<W>, x: [&[W]; 2], out: [&mut [W]; 3]) {
    let lengths = [x[0].len(), out[0].len(), out[1].len(), out[2].len()];
    assert!(
        lengths.iter().all(|&length| length == x[1].len()),
        "{UNEQUAL}"
    );
    simd::vector::square_linear(level, q, x, out);
}

const UNEQUAL: &str = "elementwise operands have one length";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each operation at each level against the scalar one.
    fn check<W: Word>(prime: u64, words: &[(u64, u64, u64)]) {
        let q = Prime::<W>::new(prime).unwrap();
        let column = |pick: &dyn Fn(&(u64, u64, u64)) -> u64| -> Vec<W> {
            words
                .iter()
                .map(|row| W::from_u64(pick(row) % prime))
                .collect()
        };
        let (x, y, z) = (
            column(&|row| row.0),
            column(&|row| row.1),
            column(&|row| row.2),
        );
        let y_shoup: Vec<W> = y.iter().map(|&y| q.shoup(y)).collect();
        let w = y[0];
        let rows = || x.iter().zip(&y).zip(&z).map(|((&x, &y), &z)| (x, y, z));
        for level in SimdLevel::available() {
            // `run` starts from z.
            let check = |name: &str, run: &dyn Fn(&mut [W]), expect: &dyn Fn(W, W, W) -> W| {
                let mut out = z.clone();
                run(&mut out);
                let expect: Vec<W> = rows().map(|(x, y, z)| expect(x, y, z)).collect();
                assert!(out == expect, "{name} modulo {prime}, {level:?}");
            };
            check("add", &|out| add_at(level, &q, &x, &y, out), &|x, y, _| {
                q.add(x, y)
            });
            check(
                "add_assign",
                &|out| add_assign_at(level, &q, out, &y),
                &|_, y, z| q.add(z, y),
            );
            check("sub", &|out| sub_at(level, &q, &x, &y, out), &|x, y, _| {
                q.sub(x, y)
            });
            check(
                "sub_assign",
                &|out| sub_assign_at(level, &q, out, &y),
                &|_, y, z| q.sub(z, y),
            );
            check(
                "neg_assign",
                &|out| neg_assign_at(level, &q, out),
                &|_, _, z| q.neg(z),
            );
            check("mul", &|out| mul_at(level, &q, &x, &y, out), &|x, y, _| {
                q.mul(x, y)
            });
            check(
                "mul_assign",
                &|out| mul_assign_at(level, &q, out, &y),
                &|_, y, z| q.mul(z, y),
            );
            check(
                "mul_add_assign",
                &|out| mul_add_assign_at(level, &q, out, &x, &y),
                &|x, y, z| q.add(z, q.mul(x, y)),
            );
            check(
                "mul_scalar_assign",
                &|out| mul_scalar_assign_at(level, &q, out, w),
                &|_, _, z| q.mul(z, w),
            );
            check(
                "mul_scalar_add_assign",
                &|out| mul_scalar_add_assign_at(level, &q, out, &x, w),
                &|x, _, z| q.add(z, q.mul(x, w)),
            );
            check(
                "mul_shoup",
                &|out| mul_shoup_at(level, &q, &x, &y, &y_shoup, out),
                &|x, y, _| q.mul(x, y),
            );
            check(
                "mul_shoup_add_assign",
                &|out| mul_shoup_add_assign_at(level, &q, out, &x, &y, &y_shoup),
                &|x, y, z| q.add(z, q.mul(x, y)),
            );
            for part in 0..3 {
                check(
                    "square_linear",
                    &|out| {
                        let mut parts = [z.clone(), z.clone(), z.clone()];
                        square_linear_at(
                            level,
                            &q,
                            [&x, &y],
                            parts.each_mut().map(|part| &mut part[..]),
                        );
                        out.copy_from_slice(&parts[part]);
                    },
                    &|x, y, _| match part {
                        0 => q.mul(x, x),
                        1 => q.add(q.mul(x, y), q.mul(x, y)),
                        _ => q.mul(y, y),
                    },
                );
            }
            for terms in [0, 1, 2, 3, 4, 5, 15, 16, 17, 40] {
                check(
                    "inner_product",
                    &|out| {
                        inner_product_at(level, &q, &vec![&x[..]; terms], &vec![&y[..]; terms], out)
                    },
                    &|x, y, _| q.mul(q.mul(x, y), W::from_u64(terms as u64 % prime)),
                );
            }
            check(
                "inner_product_pair",
                &|out| {
                    let mut other = z.clone();
                    let (xs, ys) = ([&x[..], &z[..]], [&y[..], &x[..]]);
                    inner_product_pair_at(level, &q, &xs, [&ys, &xs], [&mut other, out]);
                    let expect: Vec<W> = rows()
                        .map(|(x, y, z)| q.add(q.mul(x, y), q.mul(z, x)))
                        .collect();
                    assert!(other == expect, "the first inner product, {level:?}");
                },
                &|x, _, z| q.add(q.mul(x, x), q.mul(z, z)),
            );
            check(
                "divide",
                &|out| divide_at(level, &q, &x, out, w),
                &|x, _, z| q.mul(q.sub(x, z), w),
            );
            check(
                "divide_add",
                &|out| divide_add_at(level, &q, &x, &y, out, w),
                &|x, y, z| q.add(q.mul(q.sub(x, z), w), y),
            );
            let largest = z.iter().copied().max().unwrap_or_default();
            assert!(largest_at(level, &z) == largest, "largest, {level:?}");
            assert!(largest_at::<W>(level, &[]) == W::default(), "{level:?}");
            for bits in [0, 1, q.bits() / 2, q.bits() - 1] {
                check(
                    "shift_right",
                    &|out| shift_right_at(level, out, bits),
                    &|_, _, z| W::from_u64(z.to_u64() >> bits),
                );
                check(
                    "shift_back",
                    &|out| {
                        shift_right_at(level, out, bits);
                        shift_back_at(level, &q, out, bits);
                    },
                    &|_, _, z| {
                        let low = (1 << bits) - 1;
                        W::from_u64(((z.to_u64() & !low) + low.div_ceil(2)) % prime)
                    },
                );
            }
            for other in OTHERS
                .into_iter()
                .filter(|other| other >> (W::MAX_PRIME_BITS) == 0)
            {
                let p = Prime::<W>::new(other).unwrap();
                let x: Vec<W> = words.iter().map(|row| W::from_u64(row.0 % other)).collect();
                let expect: Vec<W> = x.iter().map(|&x| q.from_i64(p.centre(x))).collect();
                let mut out = z.clone();
                reduce_from_at(level, &q, &p, &x, &mut out);
                assert!(out == expect, "reduce_from {other} to {prime}, {level:?}");
            }
        }
    }

    #[test]
    fn streamed_sums_at_every_level() {
        fn check<W: Word>(prime: u64) {
            let q = Prime::<W>::new(prime).unwrap();
            for n in [8, 32, 128] {
                let words = |from: u64, count: usize| -> Vec<W> {
                    let word = |i: u64| {
                        W::from_u64((i + from).wrapping_mul(0x9e37_79b9_7f4a_7c15) % prime)
                    };
                    (0..count as u64).map(word).collect()
                };
                let polys: Vec<Vec<W>> = (0..6).map(|poly| words(poly * 1000, n)).collect();
                let inputs: Vec<[&[W]; 2]> =
                    polys.chunks(2).map(|x| [&x[0][..], &x[1][..]]).collect();
                // Some longer than what is summed up before a reduction.
                let sums: Vec<Vec<usize>> =
                    vec![vec![2, 0], vec![], (0..40).map(|j| j % 3).collect()];
                let stream = words(7, 42 * n);
                let block = n.min(STREAM_BLOCK);
                let factor = |sum: usize, product: usize, at: usize| {
                    let before: usize = sums[..sum].iter().map(Vec::len).sum();
                    stream[(at / block * 42 + before + product) * block + at % block]
                };
                for level in SimdLevel::available() {
                    let mut found = vec![vec![W::from_u64(1); n]; 6];
                    let mut pairs: Vec<[&mut [W]; 2]> = Vec::new();
                    for pair in found.chunks_mut(2) {
                        let (first, second) = pair.split_at_mut(1);
                        pairs.push([&mut first[0], &mut second[0]]);
                    }
                    streamed_sums_at(level, &q, &sums, &stream, &inputs, &mut pairs);
                    for (place, found) in found.iter().enumerate() {
                        let (sum, poly) = (place / 2, place % 2);
                        for (at, &found) in found.iter().enumerate() {
                            let terms = sums[sum].iter().enumerate();
                            let expected = terms.fold(W::default(), |so_far, (product, &input)| {
                                q.add(
                                    so_far,
                                    q.mul(factor(sum, product, at), inputs[input][poly][at]),
                                )
                            });
                            assert!(found == expected, "{prime} {n} {place} {level:?}");
                        }
                    }
                }
            }
        }
        check::<u32>(1_073_741_789);
        check::<u64>((1 << 50) - 27);
        check::<u64>((1 << 62) - 57);
    }

    /// Moduli to reduce from.
    const OTHERS: [u64; 7] = [
        3,
        65_537,
        1_073_741_789,
        2_147_483_647,
        (1 << 50) - 27,
        (1 << 61) - 1,
        (1 << 62) - 57,
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_level_agrees_with_scalars(mut words in prop::collection::vec(any::<(u64, u64, u64)>(), 0..70)) {
            words.extend([(0, 0, 0), (u64::MAX, 0, 1)]);
            for prime in [3, 65_537, 1_073_741_789, 2_147_483_647] {
                check::<u32>(prime, &words);
                check::<u64>(prime, &words);
            }
            for prime in [(1 << 50) - 27, (1 << 51) - 129, (1 << 61) - 1, (1 << 62) - 57] {
                check::<u64>(prime, &words);
            }
        }
    }

    #[test]
    fn every_level_agrees_at_the_edges() {
        // Around 0, q/2 and q for each prime of the tests above, both as q and as the p reduced
        // from.
        for prime in OTHERS.into_iter().chain([(1 << 51) - 129]) {
            let edges = [0, 1, prime / 2, prime / 2 + 1, prime - 2, prime - 1];
            let mut words = Vec::new();
            for x in edges {
                words.extend(edges.map(|y| (x, y, prime - 1)));
            }
            if prime < 1 << 31 {
                check::<u32>(prime, &words);
            }
            check::<u64>(prime, &words);
        }
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn unequal_lengths_panic() {
        let q = Prime::<u32>::new(17).unwrap();
        mul_shoup(&q, &[1], &[1, 2], &[1, 2], &mut [0, 0]);
    }
}
