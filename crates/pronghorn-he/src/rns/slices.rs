//! The operations on bare words, for engines that keep many ciphertexts in one buffer.
//!
//! A ciphertext of `k` polynomials and `l` limbs is `k l N` words `[poly][limb][N]` in the NTT
//! domain, each below the prime of its limb. Scales are the caller's. Everything is constant time.
//! All functions panic when lengths do not fit together.

use std::ops::Range;

use pronghorn_ring::{Prime, SimdLevel, Word, rns::CHUNK, vector};

use super::{Parameters, simd, tasks::each};

/// `x += y`.
///
/// # Panics
/// Unless both are whole polynomials of `limbs` limbs and `y` is no longer than `x`.
pub fn add_assign<W: Word>(parameters: &Parameters<W>, limbs: usize, x: &mut [W], y: &[W]) {
    pairs(parameters, limbs, x, y).for_each(|(q, x, y)| vector::add_assign(q, x, y));
}

/// `x -= y`.
///
/// # Panics
/// As [`add_assign`].
pub fn sub_assign<W: Word>(parameters: &Parameters<W>, limbs: usize, x: &mut [W], y: &[W]) {
    pairs(parameters, limbs, x, y).for_each(|(q, x, y)| vector::sub_assign(q, x, y));
}

/// `x = -x`.
///
/// # Panics
/// Unless `x` is whole polynomials of `limbs` limbs.
pub fn neg_assign<W: Word>(parameters: &Parameters<W>, limbs: usize, x: &mut [W]) {
    each_limb(parameters, limbs, x)
        .for_each(|(limb, x)| vector::neg_assign(parameters.basis().prime(limb), x));
}

/// Every polynomial of `x` times `plain`, which is one polynomial.
///
/// # Panics
/// Unless both are whole polynomials of `limbs` limbs.
pub fn mul_plain_assign<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    x: &mut [W],
    plain: &[W],
) {
    let n = parameters.n();
    assert_eq!(
        plain.len(),
        limbs * n,
        "a plaintext has as many limbs as the ciphertext"
    );
    for (limb, x) in each_limb(parameters, limbs, x) {
        vector::mul_assign(parameters.basis().prime(limb), x, &plain[limb * n..][..n]);
    }
}

/// Every polynomial of `x` times a number of one residue a limb.
///
/// # Panics
/// Unless `x` is whole polynomials of `limbs` limbs, and `words` has that many.
pub fn mul_scalar_assign<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    x: &mut [W],
    words: &[W],
) {
    assert!(words.len() >= limbs, "a scalar has a word for each limb");
    for (limb, x) in each_limb(parameters, limbs, x) {
        vector::mul_scalar_assign(parameters.basis().prime(limb), x, words[limb]);
    }
}

/// `acc += x * number` for a number of one residue a limb.
///
/// # Panics
/// As [`mul_scalar_assign`]; `x` is no longer than `acc`.
pub fn mul_scalar_add_assign<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    acc: &mut [W],
    x: &[W],
    words: &[W],
) {
    assert!(words.len() >= limbs, "a scalar has a word for each limb");
    let words = words[..limbs].iter().cycle();
    for ((q, acc, x), &word) in pairs(parameters, limbs, acc, x).zip(words) {
        vector::mul_scalar_add_assign(q, acc, x, word);
    }
}

/// The first polynomial of `x` plus a number of one residue a limb in all slots.
///
/// # Panics
/// As [`mul_scalar_assign`].
pub fn add_scalar_assign<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    x: &mut [W],
    words: &[W],
) {
    assert!(words.len() >= limbs, "a scalar has a word for each limb");
    for (limb, x) in each_limb(parameters, limbs, x).take(limbs) {
        simd::add_word(
            SimdLevel::detect(),
            parameters.basis().prime(limb),
            x,
            words[limb],
        );
    }
}

/// `out = x * y`: the tensor product, `a + b - 1` polynomials for `a` and `b`, each pair of
/// polynomials multiplied once.
///
/// # Panics
/// Unless all are whole polynomials of `limbs` limbs, and `out` has as many as the product.
pub fn multiply<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    x: &[W],
    y: &[W],
    out: &mut [W],
) {
    let (a, b) = (polys(parameters, limbs, x), polys(parameters, limbs, y));
    assert_eq!(
        polys(parameters, limbs, out),
        a + b - 1,
        "polynomials of a product"
    );
    each_chunk(parameters, limbs, |q, place| {
        for k in 0..a + b - 1 {
            let terms = k.saturating_sub(b - 1)..=k.min(a - 1);
            let out = &mut out[place.of(k)];
            if terms.start() == terms.end() {
                let i = *terms.start();
                vector::mul(q, &x[place.of(i)], &y[place.of(k - i)], out);
            } else {
                let xs: Vec<&[W]> = terms.clone().map(|i| &x[place.of(i)]).collect();
                let ys: Vec<&[W]> = terms.map(|i| &y[place.of(k - i)]).collect();
                vector::inner_product(q, &xs, &ys, out);
            }
        }
    });
}

/// `out = x * x`: as [`multiply`] with about half the products.
///
/// # Panics
/// As [`multiply`].
pub fn square<W: Word>(parameters: &Parameters<W>, limbs: usize, x: &[W], out: &mut [W]) {
    let a = polys(parameters, limbs, x);
    assert_eq!(
        polys(parameters, limbs, out),
        2 * a - 1,
        "polynomials of a square"
    );
    each_chunk(parameters, limbs, |q, place| {
        for k in 0..2 * a - 1 {
            let out = &mut out[place.of(k)];
            let middle = &x[place.of(k / 2)];
            // x_i x_(k-i) occurs twice but for i = k - i.
            let terms = (k + 1).saturating_sub(a)..k.div_ceil(2);
            match terms.len() {
                0 => vector::mul(q, middle, middle, out),
                1 => vector::mul(
                    q,
                    &x[place.of(terms.start)],
                    &x[place.of(k - terms.start)],
                    out,
                ),
                _ => {
                    let xs: Vec<&[W]> = terms.clone().map(|i| &x[place.of(i)]).collect();
                    let ys: Vec<&[W]> = terms.clone().map(|i| &x[place.of(k - i)]).collect();
                    vector::inner_product(q, &xs, &ys, out);
                }
            }
            if !terms.is_empty() {
                simd::double(SimdLevel::detect(), q, out);
                if k % 2 == 0 {
                    vector::mul_add_assign(q, out, middle, middle);
                }
            }
        }
    });
}

/// `out = round(x / (q_(l-k) ... q_(l-1)))` for `l = limbs` and `k = dropped`: every polynomial
/// loses its last `k` limbs. Rounds once, to the nearest integer. `l` NTTs a polynomial.
///
/// # Panics
/// Unless `x` is whole polynomials of `limbs` limbs, `out` as many of `limbs - dropped`, and
/// `dropped < limbs`.
pub fn rescale<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    dropped: usize,
    x: &[W],
    out: &mut [W],
) {
    let (n, kept) = (parameters.n(), limbs - dropped);
    assert!(kept > 0, "one limb must stay");
    assert_eq!(
        polys(parameters, limbs, x),
        polys(parameters, kept, out),
        "as many polynomials as before"
    );
    if dropped == 0 {
        return out.copy_from_slice(x);
    }
    let division = parameters.rescaling(limbs, dropped);
    let mut digits = parameters.pool().take(dropped * n);
    let mut room = parameters.pool().take(n);
    for (x, out) in x
        .chunks_exact(limbs * n)
        .zip(out.chunks_exact_mut(kept * n))
    {
        let (x, last) = x.split_at(kept * n);
        digits.copy_from_slice(last);
        for (limb, digit) in (kept..).zip(digits.chunks_exact_mut(n)) {
            parameters.basis().ntt(limb).inverse(digit);
        }
        division.digits(&mut digits, &mut room);
        let limbs = x.chunks_exact(n).zip(out.chunks_exact_mut(n)).enumerate();
        each(n, limbs.collect(), |(limb, (x, out))| {
            let mut room = parameters.pool().take(n);
            division.apply(parameters.basis(), limb, &digits, x, out, &mut room);
        });
    }
}

/// `out` = the first `kept` limbs of every polynomial of `x`: the same numbers modulo a smaller
/// modulus.
///
/// # Panics
/// Unless `x` is whole polynomials of `limbs` limbs, `out` as many of `kept`, and
/// `1 <= kept <= limbs`.
pub fn drop_limbs<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    kept: usize,
    x: &[W],
    out: &mut [W],
) {
    assert!((1..=limbs).contains(&kept), "one limb must stay");
    assert_eq!(
        polys(parameters, limbs, x),
        polys(parameters, kept, out),
        "as many polynomials as before"
    );
    let n = parameters.n();
    for (x, out) in x
        .chunks_exact(limbs * n)
        .zip(out.chunks_exact_mut(kept * n))
    {
        out.copy_from_slice(&x[..kept * n]);
    }
}

/// A run of words at the same place in every polynomial.
struct Place {
    poly_words: usize,
    start: usize,
    length: usize,
}

impl Place {
    /// The run in polynomial `poly`.
    fn of(&self, poly: usize) -> Range<usize> {
        let start = poly * self.poly_words + self.start;
        start..start + self.length
    }
}

/// Calls `f` with the prime of every run of words that is short enough for several of them to stay
/// in the first cache.
fn each_chunk<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    mut f: impl FnMut(&Prime<W>, Place),
) {
    let n = parameters.n();
    for limb in 0..limbs {
        for start in (0..n).step_by(CHUNK) {
            let place = Place {
                poly_words: limbs * n,
                start: limb * n + start,
                length: CHUNK.min(n - start),
            };
            f(parameters.basis().prime(limb), place);
        }
    }
}

/// The limbs of whole polynomials, with their indices.
pub(crate) fn each_limb<'a, W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    x: &'a mut [W],
) -> impl Iterator<Item = (usize, &'a mut [W])> {
    polys(parameters, limbs, x);
    (0..limbs).cycle().zip(x.chunks_exact_mut(parameters.n()))
}

fn pairs<'a, W: Word>(
    parameters: &'a Parameters<W>,
    limbs: usize,
    x: &'a mut [W],
    y: &'a [W],
) -> impl Iterator<Item = (&'a Prime<W>, &'a mut [W], &'a [W])> {
    assert!(
        y.len() <= x.len(),
        "the right operand has no more polynomials"
    );
    polys(parameters, limbs, y);
    let y = y.chunks_exact(parameters.n());
    each_limb(parameters, limbs, x)
        .zip(y)
        .map(|((limb, x), y)| (parameters.basis().prime(limb), x, y))
}

/// The number of polynomials.
fn polys<W: Word>(parameters: &Parameters<W>, limbs: usize, x: &[W]) -> usize {
    let words = limbs * parameters.n();
    assert!(
        words > 0 && x.len().is_multiple_of(words),
        "ciphertexts are whole polynomials of whole limbs"
    );
    x.len() / words
}
