//! Polynomials in the digits of a key switch.
//!
//! With special primes a digit is some consecutive limbs, exact and centred (see
//! [`pronghorn_ring::rns`]), which leaves no multiples of the digit's modulus in the noise.
//! Without, it is some bits of one limb, signed.

use pronghorn_ring::{SimdLevel, Word};

use super::{
    Parameters,
    parameters::{Digit, Piece},
    pool::Buffer,
    simd,
};

/// Polynomials that are raised together, in coefficients.
pub(crate) struct Digits<'a, W: Word> {
    parameters: &'a Parameters<W>,
    limbs: usize,
    /// `[limb][N]` each, in the NTT domain.
    polys: &'a [&'a [W]],
    /// `[poly][limb][N]`, ready to be raised.
    coefficients: Buffer<'a, W>,
}

impl<'a, W: Word> Digits<'a, W> {
    /// Of polynomials of `limbs` limbs: an inverse NTT a limb. `room` is `N` words.
    pub fn new(
        parameters: &'a Parameters<W>,
        limbs: usize,
        polys: &'a [&'a [W]],
        room: &mut [W],
    ) -> Self {
        let words = limbs * parameters.n();
        let mut coefficients = parameters.pool().take(polys.len() * words);
        for (from, poly) in polys.iter().zip(coefficients.chunks_exact_mut(words)) {
            poly.copy_from_slice(from);
            parameters.basis().inverse(poly);
            if parameters.special_limbs() > 0 {
                centre_digits(parameters, limbs, poly, room);
            } else {
                lift_limbs(parameters, poly);
            }
        }
        Self {
            parameters,
            limbs,
            polys,
            coefficients,
        }
    }

    /// Digits of one polynomial.
    pub fn count(&self) -> usize {
        self.pieces().len()
    }

    fn pieces(&self) -> &'a [Piece] {
        let pieces = self.parameters.pieces();
        &pieces[..pieces.partition_point(|piece| piece.limbs.start < self.limbs)]
    }

    /// The digits of all polynomials modulo the prime of a limb, in the NTT domain:
    /// `[poly][digit]`, of `N` words each. `raised` has room for all of them, `room` for one. In
    /// its own limbs a digit of whole limbs is the polynomial itself.
    pub fn raise<'b>(&'b self, limb: usize, raised: &'b mut [W], room: &mut [W]) -> Vec<&'b [W]> {
        let words = self.count() * self.parameters.n();
        let polys = raised.chunks_exact_mut(words).enumerate();
        let digits = polys.map(|(poly, raised)| self.raise_one(poly, limb, raised, &mut *room));
        digits.flatten().collect()
    }

    /// [`raise`](Self::raise) of one of the polynomials.
    pub fn raise_one<'b>(
        &'b self,
        poly: usize,
        limb: usize,
        raised: &'b mut [W],
        room: &mut [W],
    ) -> Vec<&'b [W]> {
        let n = self.parameters.n();
        let raise = |((digit, piece), out): ((usize, &Piece), &'b mut [W])| {
            let words = self.limbs * n;
            let end = piece.limbs.end.min(self.limbs);
            let from = &self.coefficients[poly * words..][piece.limbs.start * n..end * n];
            if self.parameters.special_limbs() == 0 {
                self.cut(limb, piece, from, out);
            } else if piece.limbs.contains(&limb) {
                return &self.polys[poly][limb * n..][..n];
            } else {
                let Digit { conversion, .. } = &self.parameters.digits()[digit];
                conversion.apply_forward(self.parameters.basis(), limb, from, out, room);
            }
            &*out
        };
        let pieces = self.pieces().iter().enumerate();
        pieces.zip(raised.chunks_exact_mut(n)).map(raise).collect()
    }

    /// A digit that is smaller than a limb, in the NTT domain.
    fn cut(&self, limb: usize, piece: &Piece, from: &[W], out: &mut [W]) {
        let basis = self.parameters.basis();
        let last =
            pieces_of(self.parameters, piece.limbs.start).all(|other| other.shift <= piece.shift);
        let width = if last { W::BITS } else { piece.bits };
        let mask = W::from_u64(u64::MAX >> (64 - width));
        let (level, q) = (SimdLevel::detect(), basis.prime(limb));
        simd::digit(level, q, piece.shift, mask, half(piece), from, out);
        basis.ntt(limb).forward(out);
    }
}

/// Brings every digit of whole limbs to what its conversion reads.
fn centre_digits<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    poly: &mut [W],
    room: &mut [W],
) {
    let n = parameters.n();
    for digit in &parameters.digits()[..parameters.digit_count(limbs)] {
        let place = digit.start * n..digit.end.min(limbs) * n;
        digit.conversion.digits(&mut poly[place], room);
    }
}

/// Adds to every limb what makes all of its digits positive.
fn lift_limbs<W: Word>(parameters: &Parameters<W>, poly: &mut [W]) {
    for (limb, words) in poly.chunks_exact_mut(parameters.n()).enumerate() {
        let offset = pieces_of(parameters, limb)
            .map(|piece| half::<W>(piece) << piece.shift)
            .fold(W::default(), W::wrapping_add);
        simd::lift(
            SimdLevel::detect(),
            parameters.basis().prime(limb),
            offset,
            words,
        );
    }
}

fn pieces_of<W: Word>(parameters: &Parameters<W>, limb: usize) -> impl Iterator<Item = &Piece> {
    let pieces = parameters.pieces().iter();
    pieces.filter(move |piece| piece.limbs.start == limb)
}

/// What a digit is lowered by to be centred.
fn half<W: Word>(piece: &Piece) -> W {
    W::from_u64(1 << (piece.bits - 1))
}
