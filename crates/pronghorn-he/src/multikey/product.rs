//! Products and their relinearisation.

use pronghorn_ring::{
    Prime, SimdLevel, Word,
    rns::{CHUNK, RnsBasis},
    vector,
};

use super::{
    Extended, KeyRing, MultiKeyError, Party, PublicKeys,
    gadget::{Factor, Place, Quotients, Sums, Use, key_limb},
};
use crate::rns::{
    digits::Digits,
    pool::{Buffer, Pool},
    simd,
    tasks::{by_limb, each},
};

/// The algorithm that brings a product back to one polynomial a party.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relinearisation {
    /// Algorithm 2 of ePrint 2019/524 (section 3.3): every pair of parties takes a gadget product.
    ///
    /// Departures, none of which changes the keys' meaning: `c_ij` and `c_ji` are one polynomial,
    /// as `s_i s_j = s_j s_i`; products are summed modulo all primes and divided once for each
    /// result; squares of one secret take that party's key from `s^2`. For `k` parties
    /// `k (k + 1) / 2 + k - 1` polynomials are raised and `2 k` divided, where the paper's
    /// algorithm raises `2 k^2` and divides `4 k^2`.
    Quadratic,
    /// Homomorphic gadget decomposition (Kim, Kwak, Lee, Seo, Song, ePrint 2022/347, section 4):
    /// the digits of a product are the products of the operands' digits, so sums over one party
    /// come out of the other's. `3 k` polynomials are raised (`2 k` of a square), `2 k + 1`
    /// divided.
    ///
    /// Digits are one limb each and their products twice as long, so there are more of them, and
    /// their noise grows by a limb and `sqrt(N)`: `P` should be two limbs or more.
    Linear,
}

/// A product before relinearisation, of `k` parties.
pub(super) struct Tensor<'a, W: Word> {
    /// `[poly][limb][N]`: `c_00`, then `c_0i + c_i0` for each party.
    pub low: Buffer<'a, W>,
    /// Parties `i <= j` by their places.
    pub pairs: Vec<(usize, usize)>,
    /// `[pair][limb][N]`: `c_ij + c_ji`, or `c_ii`.
    pub high: Buffer<'a, W>,
}

/// Terms `x_i y_j` of one polynomial of a product.
type Terms = Vec<(usize, usize)>;

impl<W: Word> Extended<W> {
    /// The product, relinearised, divided by the last `dropped` primes in the same division.
    ///
    /// # Errors
    /// When common reference strings or limbs differ, a party's keys are missing, or no limb would
    /// be left.
    pub fn multiply(
        &self,
        other: &Self,
        keys: &KeyRing<W>,
        dropped: usize,
        relinearisation: Relinearisation,
    ) -> Result<Self, MultiKeyError> {
        match relinearisation {
            Relinearisation::Quadratic => Self::inner_product(&[(self, other)], keys, dropped),
            Relinearisation::Linear => {
                self.common().same(keys.common())?;
                let parties = self.union(other)?;
                let keys = keys.all(&parties)?;
                let mut out = self.room(parties.len(), dropped)?;
                linear(self, other, &parties, &keys, dropped, &mut out)?;
                Self::from_words(self.common(), parties, self.limbs() - dropped, out)
            }
        }
    }

    /// The sum of products, with one relinearisation ([`Relinearisation::Quadratic`]) and one
    /// division by the last `dropped` primes. All left factors have the same parties, and so have
    /// all right ones.
    ///
    /// # Errors
    /// When there are no products, common reference strings, parties or limbs differ, a party's
    /// keys are missing, or no limb would be left.
    pub fn inner_product(
        products: &[(&Self, &Self)],
        keys: &KeyRing<W>,
        dropped: usize,
    ) -> Result<Self, MultiKeyError> {
        let &[(first, second), ..] = products else {
            return Err(MultiKeyError::NoProducts);
        };
        let common = first.common();
        common.same(keys.common())?;
        let parties = first.union(second)?;
        for &(x, y) in products {
            first.alike(x)?;
            second.alike(y)?;
        }
        let mut out = first.room(parties.len(), dropped)?;
        let ring = common.ring();
        let operands: Vec<_> = (products.iter())
            .map(|&(x, y)| [Operand::of(x), Operand::of(y)])
            .collect();
        let tensor = Tensor::new(ring.pool(), ring.basis(), &operands, &parties, false);
        quadratic(first.limbs(), dropped, keys, &parties, &tensor, &mut out)?;
        Self::from_words(common, parties, first.limbs() - dropped, out)
    }

    /// Refuses ciphertexts of other parties or limbs.
    fn alike(&self, other: &Self) -> Result<(), MultiKeyError> {
        let parties = self.union(other)?;
        if parties == self.parties() && parties == other.parties() {
            Ok(())
        } else {
            Err(MultiKeyError::Factors)
        }
    }

    /// The square, as [`multiply`](Self::multiply), with fewer products and in the linear algorithm
    /// fewer digits.
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    pub fn square(
        &self,
        keys: &KeyRing<W>,
        dropped: usize,
        relinearisation: Relinearisation,
    ) -> Result<Self, MultiKeyError> {
        self.multiply(self, keys, dropped, relinearisation)
    }
}

/// A factor of a product: `[poly][limb][N]`, a polynomial and one for each party.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a, W> {
    pub parties: &'a [Party],
    pub words: &'a [W],
}

impl<'a, W: Word> Operand<'a, W> {
    fn of(x: &'a Extended<W>) -> Self {
        Self {
            parties: x.parties(),
            words: x.data(),
        }
    }

    fn poly(&self, index: usize) -> &'a [W] {
        let words = self.words.len() / (self.parties.len() + 1);
        &self.words[index * words..][..words]
    }
}

impl<'a, W: Word> Tensor<'a, W> {
    /// The sum of products `x y`, polynomials on the first primes of `basis`, under the keys of
    /// `parties`; without pairs where `only_low`. All `x` have one list of parties, all `y` have
    /// one.
    ///
    /// # Panics
    /// When there are no products.
    pub fn new(
        pool: &'a Pool<W>,
        basis: &RnsBasis<W>,
        products: &[[Operand<'_, W>; 2]],
        parties: &[Party],
        only_low: bool,
    ) -> Self {
        let [x, y] = products[0];
        let (low_terms, mut pairs, mut high_terms) = terms(x.parties, y.parties, parties);
        if only_low {
            (pairs, high_terms) = (Vec::new(), Vec::new());
        }
        let words = x.poly(0).len();
        let square = products.len() == 1 && std::ptr::eq(x.words, y.words);
        let n = basis.n();
        let multiply = |terms: &[Terms]| {
            let mut out = pool.take(terms.len() * words);
            let limbs = by_limb(&mut out, words / n, n).into_iter().enumerate();
            each(n, limbs.collect(), |(limb, mut outs)| {
                for start in (0..n).step_by(CHUNK) {
                    let end = n.min(start + CHUNK);
                    let part = limb * n + start..limb * n + end;
                    for (terms, out) in terms.iter().zip(&mut outs) {
                        let pairs = products.iter().flat_map(|[x, y]| {
                            let terms = terms.iter();
                            terms
                                .map(|&(i, j)| (&x.poly(i)[part.clone()], &y.poly(j)[part.clone()]))
                        });
                        let (xs, ys): (Vec<&[W]>, Vec<&[W]>) = pairs.unzip();
                        let out = &mut out[start..end];
                        sum_of_products(basis.prime(limb), square, &xs, &ys, out);
                    }
                }
            });
            out
        };
        let (low, high) = (multiply(&low_terms), multiply(&high_terms));
        Self { low, pairs, high }
    }
}

/// `out = sum x y`; of a square, `x_i x_j + x_j x_i` with one product.
fn sum_of_products<W: Word>(q: &Prime<W>, square: bool, xs: &[&[W]], ys: &[&[W]], out: &mut [W]) {
    match xs.len() {
        0 => out.fill(W::default()),
        1 => vector::mul(q, xs[0], ys[0], out),
        2 if square => {
            vector::mul(q, xs[0], ys[0], out);
            simd::double(SimdLevel::detect(), q, out);
        }
        _ => vector::inner_product(q, xs, ys, out),
    }
}

/// The polynomials of `x` and `y` that meet: for `c_00` and each `c_0i`; the pairs of parties there
/// are; and for each of them.
fn terms(
    x: &[Party],
    y: &[Party],
    parties: &[Party],
) -> (Vec<Terms>, Vec<(usize, usize)>, Vec<Terms>) {
    let place = |x: &[Party], party: &Party| x.binary_search(party).ok();
    // Polynomial 0 is everyone's.
    let of_x: Vec<_> = parties.iter().map(|party| place(x, party)).collect();
    let of_y: Vec<_> = parties.iter().map(|party| place(y, party)).collect();
    let of_party = |i: usize| {
        let left = of_x[i].map(|i| (i + 1, 0));
        let right = of_y[i].map(|i| (0, i + 1));
        left.into_iter().chain(right).collect()
    };
    let low = std::iter::once(vec![(0, 0)]).chain((0..parties.len()).map(of_party));
    let term = |i: usize, j: usize| Some((of_x[i]? + 1, of_y[j]? + 1));
    let of_pair = |i: usize, j: usize| -> Terms {
        let other = if i == j { None } else { term(j, i) };
        term(i, j).into_iter().chain(other).collect()
    };
    let count = parties.len();
    let pairs = (0..count).flat_map(|i| (i..count).map(move |j| (i, j)));
    let (pairs, high) = pairs
        .map(|(i, j)| ((i, j), of_pair(i, j)))
        .filter(|(_, terms)| !terms.is_empty())
        .unzip();
    (low.collect(), pairs, high)
}

/// [`Relinearisation::Quadratic`]. `out` is `[poly][limb][N]` of what is left. Parties that have a
/// [`PairKey`](super::PairKey) take it, with one gadget product and no `t_i`.
pub(super) fn quadratic<W: Word>(
    limbs: usize,
    dropped: usize,
    key_ring: &KeyRing<W>,
    parties: &[Party],
    tensor: &Tensor<'_, W>,
    out: &mut [W],
) -> Result<(), MultiKeyError> {
    let keys = &key_ring.all(parties)?[..];
    let ring = key_ring.common().ring();
    let words = limbs * ring.n();
    // Sums 0 to k are the result's, the others the `t_i` of parties that are first in a pair.
    let outputs = keys.len() + 1;
    let polys = || tensor.pairs.iter().zip(tensor.high.chunks_exact(words));
    let pair = |i: usize, j: usize| key_ring.pair([parties[i], parties[j]]);
    let is_apart = |&&(i, j): &&(usize, usize)| i != j && pair(i, j).is_none();
    let apart = tensor.pairs.iter().filter(is_apart);
    let mut firsts: Vec<usize> = apart.map(|&(i, _)| i).collect();
    firsts.dedup();
    let (mut paired, mut apart) = (Vec::new(), Vec::new());
    for (&(i, j), poly) in polys().filter(|((i, j), _)| i != j) {
        if let Some(pair) = pair(i, j) {
            let place = if pair.under() == parties[i] { i } else { j };
            let each = Use {
                keys: pair.halves(),
                sums: [0, place + 1],
            };
            let uses = vec![each];
            paired.push(Factor { poly, uses });
        } else {
            let first = firsts.partition_point(|&first| first < i);
            let each = Use {
                keys: [&keys[j].pairwise()?.b, &keys[i].pairwise()?.d2],
                sums: [outputs + first, j + 1],
            };
            let uses = vec![each];
            apart.push(Factor { poly, uses });
        }
    }
    let squares = polys()
        .filter(|((i, j), _)| i == j)
        .map(|(&(i, _), poly)| Factor {
            poly,
            uses: vec![Use {
                keys: keys[i].own.square().halves(),
                sums: [0, i + 1],
            }],
        });
    let mut sums = Sums::new(ring, limbs, outputs + firsts.len());
    let mut inner = ring.pool().take(firsts.len() * words);
    let quotients = Quotients {
        first: outputs,
        dropped: 0,
        low: &vec![None; firsts.len()],
    };
    sums.add_and_divide(&apart, &quotients, &mut inner);
    let mut factors = inner_factors(keys, &firsts, &inner, words)?;
    factors.extend(paired);
    factors.extend(squares);
    finish(limbs, dropped, &factors, sums, &tensor.low, out);
    Ok(())
}

/// [`Relinearisation::Linear`].
fn linear<W: Word>(
    x: &Extended<W>,
    y: &Extended<W>,
    parties: &[Party],
    keys: &[&PublicKeys<W>],
    dropped: usize,
    out: &mut [W],
) -> Result<(), MultiKeyError> {
    let (common, limbs) = (x.common(), x.limbs());
    let (ring, single, n) = (common.ring(), common.single()?, common.ring().n());
    let linear = keys.iter().map(|keys| keys.linear());
    let linear = linear.collect::<Result<Vec<_>, _>>()?;
    // The places of the operands' parties.
    let places = |of: &Extended<W>| -> Vec<usize> {
        let indices = 0..parties.len();
        indices.filter(|&i| of.part(parties[i]).is_some()).collect()
    };
    let (firsts, seconds) = (places(x), places(y));
    let square = std::ptr::eq(x, y);
    let polys = |of: &'_ Extended<W>| 1..of.parties().len() + 1;
    let mut high: Vec<&[W]> = polys(x).map(|i| x.poly(i)).collect();
    if !square {
        high.extend(polys(y).map(|i| y.poly(i)));
    }
    let digits = Digits::new(single, limbs, &high);
    let count = digits.count();
    let outputs = keys.len() + 1;
    let mut sums = Sums::new(ring, limbs, outputs + firsts.len());
    let add = |place: &mut Place<'_, W>| {
        let (limb, q) = (place.limb, ring.basis().prime(place.limb));
        let mut room = ring.pool().take(n);
        let mut raised = ring.pool().take(high.len() * count * n);
        let [mut left, mut right] = [(); 2].map(|()| ring.pool().take(count * n));
        let raised = digits.raise(limb, &mut raised, &mut room);
        let (of_x, of_y) = if square {
            (&raised[..], &raised[..])
        } else {
            raised.split_at(firsts.len() * count)
        };
        for digit in 0..count {
            let digit_of = |digits: &[&'_ [W]], out: &mut [W], keys: &[&[W]]| {
                let digits: Vec<&[W]> = digits.iter().skip(digit).step_by(count).copied().collect();
                vector::inner_product(q, &digits, keys, out);
            };
            let b = seconds.iter().map(|&j| &linear[j].b[..]);
            let d2 = firsts.iter().map(|&i| &linear[i].d2[..]);
            let b: Vec<_> = b.map(|key| key_limb(ring, key, digit, limb)).collect();
            let d2: Vec<_> = d2.map(|key| key_limb(ring, key, digit, limb)).collect();
            digit_of(of_y, &mut left[digit * n..][..n], &b);
            digit_of(of_x, &mut right[digit * n..][..n], &d2);
        }
        let left: Vec<&[W]> = left.chunks_exact(n).collect();
        let right: Vec<&[W]> = right.chunks_exact(n).collect();
        for (first, of_x) in of_x.chunks_exact(count).enumerate() {
            vector::inner_product(q, of_x, &left, place.put(outputs + first));
        }
        for (&second, of_y) in seconds.iter().zip(of_y.chunks_exact(count)) {
            vector::inner_product(q, of_y, &right, place.put(second + 1));
        }
    };
    let words = limbs * n;
    let mut inner = ring.pool().take(firsts.len() * words);
    let quotients = Quotients {
        first: outputs,
        dropped: 0,
        low: &vec![None; firsts.len()],
    };
    sums.divide(add, &quotients, &mut inner);
    let factors = inner_factors(keys, &firsts, &inner, words)?;
    let operands = [x, y].map(Operand::of);
    let low = Tensor::new(ring.pool(), ring.basis(), &[operands], parties, true).low;
    finish(limbs, dropped, &factors, sums, &low, out);
    Ok(())
}

/// The `t_i`, `[i][limb][N]`, for `<g^-1(t_i), (d_i0, d_i1)>` at polynomials 0 and `i`.
fn inner_factors<'a, W: Word>(
    keys: &[&'a PublicKeys<W>],
    firsts: &[usize],
    inner: &'a [W],
    words: usize,
) -> Result<Vec<Factor<'a, W>>, MultiKeyError> {
    let factors = firsts.iter().zip(inner.chunks_exact(words));
    let factors = factors.map(|(&i, poly)| {
        let keys = keys[i].pairwise()?;
        let uses = vec![Use {
            keys: [&keys.d0, &keys.d1],
            sums: [0, i + 1],
        }];
        Ok(Factor { poly, uses })
    });
    factors.collect()
}

/// Adds the last factors to the result's sums, and divides these.
fn finish<W: Word>(
    limbs: usize,
    dropped: usize,
    factors: &[Factor<'_, W>],
    mut sums: Sums<'_, W>,
    low: &[W],
    out: &mut [W],
) {
    let words = limbs * sums.n();
    let low: Vec<_> = low.chunks_exact(words).map(Some).collect();
    let quotients = Quotients {
        first: 0,
        dropped,
        low: &low,
    };
    sums.add_and_divide(factors, &quotients, out);
}
