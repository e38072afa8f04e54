//! Rotations, and sums of products of rotations.
//!
//! The diagonal and hybrid matrix products and the convolutions of Gazelle (sections V and VI), and
//! baby-step giant-step products, are sums `sum_j rot_j(x) p_j`. Digits of each input are raised
//! once (hoisting: S. Halevi, V. Shoup, CRYPTO 2018, section 5), rotations stay modulo `Q P`, are
//! multiplied and summed there, and the sum is divided by `P` once (double hoisting: Bossuat,
//! Mouchet, Troncoso-Pastoriza, Hubaux, "Efficient bootstrapping for approximate homomorphic
//! encryption with non-sparse keys", ePrint 2020/1203, section 4): a rotation takes no NTT of its
//! own, and the rounding of the division is not multiplied. Without special primes there is nothing
//! to divide by, and each limb is cut into digits of some bits.
//!
//! Cost of `r` rotations of `i` inputs into `o` outputs, for `l` limbs and `k` special primes in
//! `d` digits: `i d (l + k)` NTTs at most to raise, `o (2 k + 2 l)` to divide where there are
//! special primes, and `2 (l + k)` times `r d + p` products a coefficient, `p` being the number of
//! factors that are multipliers. Keys are read once for all outputs.

use pronghorn_ring::{Prime, Word, rns::CHUNK, vector};

use super::{BfvError, Ciphertext, EvaluationKeys, Multiplier, Parameters};
use crate::rns::{
    digits::Digits,
    keys::{GaloisKey, SwitchingKey, special_product},
};

/// A rotation of one of the inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// Both rows to the left by some steps, around the end of each.
    Left {
        /// The input.
        input: usize,
        /// Slots to the left; negative ones go right.
        steps: i64,
    },
    /// The two rows in each other's place.
    Swap {
        /// The input.
        input: usize,
    },
}

/// The factor of a rotation in an output.
pub enum Factor<'a, W: Word> {
    /// Left out.
    Zero,
    /// Added as it is.
    One,
    /// Multiplied, slot by slot.
    Times(&'a Multiplier<W>),
}

impl<W: Word> Clone for Factor<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Word> Copy for Factor<'_, W> {}

impl Rotation {
    /// Both rows of `input` to the left.
    pub fn left(input: usize, steps: i64) -> Self {
        Self::Left { input, steps }
    }

    fn input(self) -> usize {
        match self {
            Self::Left { input, .. } | Self::Swap { input } => input,
        }
    }
}

/// `outputs[o] = sum_j factors[o][j] rotations[j]`: a factor for each rotation in each output.
///
/// # Errors
/// When parameters differ, a rotation is of an input that does not exist or has no key, or an
/// output has not as many factors as there are rotations.
pub fn rotated_products<W: Word>(
    inputs: &[&Ciphertext<W>],
    rotations: &[Rotation],
    factors: &[Vec<Factor<'_, W>>],
    keys: &EvaluationKeys<W>,
) -> Result<Vec<Ciphertext<W>>, BfvError> {
    let parameters = &keys.parameters;
    for input in inputs {
        parameters.ring().same(input.parameters().ring())?;
    }
    for row in factors {
        check_row(parameters, row, rotations.len())?;
    }
    let moves = rotations
        .iter()
        .map(|&rotation| Move::new(rotation, inputs.len(), keys))
        .collect::<Result<Vec<_>, _>>()?;
    let sums = Sums {
        parameters,
        inputs,
        moves: &moves,
        factors,
    };
    Ok(sums.run())
}

pub(super) fn check_input(found: usize, limit: usize) -> Result<(), BfvError> {
    if found < limit {
        return Ok(());
    }
    let field = "the input of a rotation";
    Err(BfvError::Shape {
        field,
        found,
        limit,
    })
}

fn check_row<W: Word>(
    parameters: &Parameters<W>,
    row: &[Factor<'_, W>],
    limit: usize,
) -> Result<(), BfvError> {
    if row.len() != limit {
        let (field, found) = ("the number of factors of an output", row.len());
        return Err(BfvError::Shape {
            field,
            found,
            limit,
        });
    }
    for factor in row {
        if let Factor::Times(plain) = factor {
            parameters.ring().same(plain.parameters().ring())?;
        }
    }
    Ok(())
}

/// A rotation with its key; `None` where nothing moves.
struct Move<'a, W: Word> {
    input: usize,
    key: Option<&'a GaloisKey<W>>,
}

impl<'a, W: Word> Move<'a, W> {
    fn new(
        rotation: Rotation,
        inputs: usize,
        keys: &'a EvaluationKeys<W>,
    ) -> Result<Self, BfvError> {
        let input = rotation.input();
        check_input(input, inputs)?;
        let key = match rotation {
            Rotation::Left { steps, .. } => keys.keys.rotation(steps)?,
            Rotation::Swap { .. } => Some(keys.keys.conjugation()?),
        };
        Ok(Self { input, key })
    }
}

struct Sums<'a, W: Word> {
    parameters: &'a Parameters<W>,
    inputs: &'a [&'a Ciphertext<W>],
    moves: &'a [Move<'a, W>],
    factors: &'a [Vec<Factor<'a, W>>],
}

/// Rotations that are multiplied and summed together, while their words are in cache.
const GROUP: usize = 8;

impl<W: Word> Sums<'_, W> {
    /// First the special limbs, to divide by, then limb by limb the others.
    fn run(&self) -> Vec<Ciphertext<W>> {
        let (ring, n) = (self.parameters.ring(), self.parameters.n());
        let (basis, pool, limbs) = (ring.basis(), ring.pool(), ring.limbs());
        let (outputs, special) = (self.factors.len(), ring.special_limbs());
        let mut out: Vec<Vec<W>> = (0..outputs)
            .map(|_| pool.take_words(2 * limbs * n))
            .collect();
        let mut rotated = pool.take(GROUP * 2 * n);
        let mut sums = pool.take(outputs * 2 * n);
        let mut digits = pool.take(outputs * 2 * special * n);
        let mut room = pool.take(n);
        let a: Vec<&[W]> = self.inputs.iter().map(|x| x.inner().poly(1)).collect();
        let a = Digits::new(ring, limbs, &a);
        let mut raised = pool.take(self.inputs.len() * a.count() * n);

        for (place, limb) in (limbs..limbs + special).enumerate() {
            let raised = a.raise(limb, &mut raised, &mut room);
            self.sum(limb, &raised, &mut rotated, &mut sums);
            for (poly, sums) in sums.chunks_exact_mut(n).enumerate() {
                basis.ntt(limb).inverse(sums);
                digits[(poly * special + place) * n..][..n].copy_from_slice(sums);
            }
        }
        let division = (special > 0).then(|| ring.leaving(limbs, 0));
        if let Some(division) = division {
            for digits in digits.chunks_exact_mut(special * n) {
                division.digits(digits, &mut room);
            }
        }
        for limb in 0..limbs {
            let raised = a.raise(limb, &mut raised, &mut room);
            self.sum(limb, &raised, &mut rotated, &mut sums);
            for (poly, sums) in sums.chunks_exact(n).enumerate() {
                let out = &mut out[poly / 2][(poly % 2 * limbs + limb) * n..][..n];
                match division {
                    Some(division) => {
                        let digits = &digits[poly * special * n..][..special * n];
                        division.apply(basis, limb, digits, sums, out, &mut room);
                    }
                    None => out.copy_from_slice(sums),
                }
            }
        }
        out.into_iter()
            .map(|words| Ciphertext::from_words(self.parameters, words))
            .collect()
    }

    /// `sums[output][poly][N]` in one limb, of what is to be divided by the special primes.
    fn sum(&self, limb: usize, raised: &[&[W]], rotated: &mut [W], sums: &mut [W]) {
        let (ring, n) = (self.parameters.ring(), self.parameters.n());
        let q = ring.basis().prime(limb);
        let mut switched = ring.pool().take(2 * n);
        if let ([rotation], [factors]) = (self.moves, self.factors)
            && matches!(factors[..], [Factor::One])
        {
            // A rotation alone.
            return self.rotate(limb, rotation, raised, &mut switched, sums);
        }
        sums.fill(W::default());
        for (group, moves) in self.moves.chunks(GROUP).enumerate() {
            for (rotation, rotated) in moves.iter().zip(rotated.chunks_exact_mut(2 * n)) {
                self.rotate(limb, rotation, raised, &mut switched, rotated);
            }
            for (output, sums) in self.factors.iter().zip(sums.chunks_exact_mut(2 * n)) {
                let factors = &output[group * GROUP..][..moves.len()];
                add_products(q, limb, factors, rotated, sums);
            }
        }
    }

    /// `P` times the rotation, in one limb: `[poly][N]`.
    fn rotate(
        &self,
        limb: usize,
        rotation: &Move<'_, W>,
        raised: &[&[W]],
        switched: &mut [W],
        out: &mut [W],
    ) {
        let (ring, n) = (self.parameters.ring(), self.parameters.n());
        let (q, input) = (
            ring.basis().prime(limb),
            self.inputs[rotation.input].inner(),
        );
        let low =
            (limb < ring.limbs()).then(|| [0, 1].map(|poly| &input.poly(poly)[limb * n..][..n]));
        let special = special_product(ring, limb);
        let add = |low: &[W], out: &mut [W]| {
            if ring.special_limbs() == 0 {
                vector::add_assign(q, out, low);
            } else {
                vector::mul_scalar_add_assign(q, out, low, special);
            }
        };
        let Some(galois) = rotation.key else {
            out.fill(W::default());
            if let Some(low) = low {
                low.iter()
                    .zip(out.chunks_exact_mut(n))
                    .for_each(|(low, out)| add(low, out));
            }
            return;
        };
        let digits = raised.len() / self.inputs.len();
        let digits = &raised[rotation.input * digits..][..digits];
        let (switched_b, switched_a) = switched.split_at_mut(n);
        let sums = [&mut *switched_b, switched_a];
        SwitchingKey::multiply(&[&galois.key], ring, limb, digits, sums);
        if let Some([b, _]) = low {
            add(b, switched_b);
        }
        for (switched, out) in switched.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            galois.automorphism.apply(switched, out);
        }
    }
}

/// `sums += sum_j factors[j] rotated[j]`, two polynomials each.
fn add_products<W: Word>(
    q: &Prime<W>,
    limb: usize,
    factors: &[Factor<'_, W>],
    rotated: &[W],
    sums: &mut [W],
) {
    let n = sums.len() / 2;
    let mut room = [[W::default(); CHUNK]; 2];
    let [room_b, room_a] = room.each_mut().map(|room| &mut room[..CHUNK.min(n)]);
    let (sums_b, sums_a) = sums.split_at_mut(n);
    let chunks = sums_b.chunks_mut(CHUNK).zip(sums_a.chunks_mut(CHUNK));
    for (chunk, (sums_b, sums_a)) in chunks.enumerate() {
        let place = chunk * CHUNK..chunk * CHUNK + sums_b.len();
        let of = |index: usize, poly| &rotated[(2 * index + poly) * n..][place.clone()];
        let mut plains = Vec::with_capacity(factors.len());
        let (mut xs_b, mut xs_a) = (plains.clone(), plains.clone());
        for (index, factor) in factors.iter().enumerate() {
            match factor {
                Factor::Zero => {}
                Factor::One => {
                    vector::add_assign(q, sums_b, of(index, 0));
                    vector::add_assign(q, sums_a, of(index, 1));
                }
                Factor::Times(plain) => {
                    plains.push(&plain.limb(limb)[place.clone()]);
                    xs_b.push(of(index, 0));
                    xs_a.push(of(index, 1));
                }
            }
        }
        if !plains.is_empty() {
            vector::inner_product_pair(q, &plains, [&xs_b, &xs_a], [&mut *room_b, &mut *room_a]);
            vector::add_assign(q, sums_b, room_b);
            vector::add_assign(q, sums_a, room_a);
        }
    }
}
