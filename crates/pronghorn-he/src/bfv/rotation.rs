//! Rotations, and sums of products of rotations.
//!
//! The diagonal and hybrid matrix products and the convolutions of Gazelle (sections V and VI), and baby-step giant-step products, are sums
//! `sum_j rot_j(x) p_j`. Digits of each input are raised once (hoisting: S. Halevi, V. Shoup, CRYPTO 2018, section 5), rotations stay
//! modulo `Q P`, are multiplied and summed there, and the sum is divided by `P` once (double hoisting: Bossuat, Mouchet,
//! Troncoso-Pastoriza, Hubaux, "Efficient bootstrapping for approximate homomorphic encryption with non-sparse keys", ePrint 2020/1203,
//! section 4): a rotation takes no NTT of its own, and the rounding of the division is not multiplied. Without special primes there is
//! nothing to divide by, and each limb is cut into digits of some bits.
//!
//! Cost of `r` rotations of `i` inputs into `o` outputs, for `l` limbs and `k` special primes in `d` digits: `i d (l + k)` NTTs at most to raise,
//! `o (2 k + 2 l)` to divide where there are special primes, and `2 (l + k)` times `r d + p` products a coefficient, `p` being the number of
//! factors that are multipliers. Keys are read once for all outputs.

use pronghorn_ring::{Prime, SimdLevel, Word, rns::CHUNK, vector};

use super::{BfvError, Ciphertext, EvaluationKeys, Multiplier, Parameters, simd};
use crate::ckks::{
    keyswitch::{GaloisKey, special_product},
    parameters::Piece,
    pool::Buffer,
};

/// A rotation of one of the inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotation {
    /// Both rows to the left by some steps, around the end; none leaves them.
    Left {
        /// Which input.
        input: usize,
        /// Slots to the left; negative ones go right.
        steps: i64,
    },
    /// The two rows in each other's place.
    Swap {
        /// Which input.
        input: usize,
    },
}

/// What a rotation is multiplied with in an output.
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
/// When parameters differ, a rotation is of an input that does not exist or has no key, or an output has not as many factors as there
/// are rotations.
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

/// A rotation with its key, none where nothing moves.
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
        let mut raised = pool.take(self.inputs.len() * self.parameters.pieces().len() * n);
        let mut rotated = pool.take(GROUP * 2 * n);
        let mut sums = pool.take(outputs * 2 * n);
        let mut digits = pool.take(outputs * 2 * special * n);
        let mut room = pool.take(n);
        let coefficients: Vec<_> = (0..self.inputs.len())
            .map(|input| self.coefficients(input))
            .collect();

        for (place, limb) in (limbs..limbs + special).enumerate() {
            self.raise(limb, &coefficients, &mut raised, &mut room);
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
            self.raise(limb, &coefficients, &mut raised, &mut room);
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

    /// What [`raise`](Self::raise) reads of the `a` of an input: coefficients, with what each way of switching needs done once.
    fn coefficients(&self, input: usize) -> Buffer<'_, W> {
        let (ring, n) = (self.parameters.ring(), self.parameters.n());
        let mut a = ring.pool().take(ring.limbs() * n);
        a.copy_from_slice(self.inputs[input].inner().poly(1));
        ring.basis().inverse(&mut a);
        if ring.special_limbs() > 0 {
            let mut room = ring.pool().take(n);
            for digit in ring.digits() {
                digit
                    .conversion
                    .digits(&mut a[digit.start * n..digit.end * n], &mut room);
            }
        } else {
            for (limb, a) in a.chunks_exact_mut(n).enumerate() {
                let offset = self
                    .pieces_of(limb)
                    .map(|piece| half::<W>(piece) << piece.shift);
                let offset = offset.fold(W::default(), W::wrapping_add);
                simd::lift(SimdLevel::detect(), ring.basis().prime(limb), offset, a);
            }
        }
        a
    }

    fn pieces_of(&self, limb: usize) -> impl Iterator<Item = &Piece> {
        let pieces = self.parameters.pieces().iter();
        pieces.filter(move |piece| piece.limbs.start == limb)
    }

    /// The digits of all inputs modulo the prime of a limb, in the NTT domain: `[input][piece][N]`.
    fn raise(&self, limb: usize, coefficients: &[Buffer<'_, W>], raised: &mut [W], room: &mut [W]) {
        let (ring, n) = (self.parameters.ring(), self.parameters.n());
        let pieces = self.parameters.pieces();
        for ((input, coefficients), raised) in self
            .inputs
            .iter()
            .zip(coefficients)
            .zip(raised.chunks_exact_mut(pieces.len() * n))
        {
            for (index, (piece, raised)) in
                pieces.iter().zip(raised.chunks_exact_mut(n)).enumerate()
            {
                let from = &coefficients[piece.limbs.start * n..piece.limbs.end * n];
                if ring.special_limbs() == 0 {
                    self.cut(limb, piece, from, raised);
                    ring.basis().ntt(limb).forward(raised);
                } else if piece.limbs.contains(&limb) {
                    // The digit is the polynomial itself, which is there in the NTT domain.
                    raised.copy_from_slice(&input.inner().poly(1)[limb * n..][..n]);
                } else {
                    let conversion = &ring.digits()[index].conversion;
                    conversion.apply_forward(ring.basis(), limb, from, raised, room);
                }
            }
        }
    }

    /// A digit that is smaller than a limb.
    fn cut(&self, limb: usize, piece: &Piece, from: &[W], out: &mut [W]) {
        let q = self.parameters.ring().basis().prime(limb);
        let last = self
            .pieces_of(piece.limbs.start)
            .all(|other| other.shift <= piece.shift);
        let width = if last { W::BITS } else { piece.bits };
        let mask = W::from_u64(u64::MAX >> (64 - width));
        simd::digit(
            SimdLevel::detect(),
            q,
            piece.shift,
            mask,
            half(piece),
            from,
            out,
        );
    }

    /// `sums[output][poly][N]` in one limb, of what is to be divided by the special primes.
    fn sum(&self, limb: usize, raised: &[W], rotated: &mut [W], sums: &mut [W]) {
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
        raised: &[W],
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
        let words = self.parameters.pieces().len() * n;
        let digits: Vec<&[W]> = raised[rotation.input * words..][..words]
            .chunks_exact(n)
            .collect();
        let keys = (0..digits.len()).map(|digit| galois.key.limb(ring, digit, limb));
        let (keys_b, keys_a): (Vec<_>, Vec<_>) = keys.map(|[b, a]| (b, a)).unzip();
        let (switched_b, switched_a) = switched.split_at_mut(n);
        vector::inner_product_pair(
            q,
            &digits,
            [&keys_b, &keys_a],
            [&mut *switched_b, switched_a],
        );
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

/// What a digit is lowered by to be centred.
fn half<W: Word>(piece: &Piece) -> W {
    W::from_u64(1 << (piece.bits - 1))
}
