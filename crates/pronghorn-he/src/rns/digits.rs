//! Polynomials in the digits of a key switch.
//!
//! With special primes a digit is some consecutive limbs, exact and centred (see
//! [`pronghorn_ring::rns`]), which leaves no multiples of the digit's modulus in the noise.
//! Without, it is some bits of one limb, signed.

use std::ops::Range;

use pronghorn_ring::{SimdLevel, Word};

use super::{
    Parameters,
    parameters::{Digit, Piece},
    pool::Buffer,
    simd,
    tasks::each,
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
    /// Of polynomials of `limbs` limbs: an inverse NTT a limb. On rayon's current threads where
    /// polynomials are large.
    pub fn new(parameters: &'a Parameters<W>, limbs: usize, polys: &'a [&'a [W]]) -> Self {
        let (n, words) = (parameters.n(), limbs * parameters.n());
        let mut coefficients = parameters.pool().take(polys.len() * words);
        let runs = runs(parameters, limbs);
        let mut tasks = Vec::with_capacity(polys.len() * runs.len());
        for (from, mut rest) in polys.iter().zip(coefficients.chunks_exact_mut(words)) {
            for (index, run) in runs.iter().enumerate() {
                let (out, after) = rest.split_at_mut(run.len() * n);
                tasks.push((index, &from[run.start * n..run.end * n], out));
                rest = after;
            }
        }
        each(n, tasks, |(index, from, out)| {
            out.copy_from_slice(from);
            for (limb, out) in runs[index].clone().zip(out.chunks_exact_mut(n)) {
                parameters.basis().ntt(limb).inverse(out);
            }
            match parameters.digits().get(index) {
                Some(digit) => digit.conversion.digits(out, &mut parameters.pool().take(n)),
                None => lift(parameters, index, out),
            }
        });
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

/// Limbs that are made ready together: those of a digit, or one that has several digits.
fn runs<W: Word>(parameters: &Parameters<W>, limbs: usize) -> Vec<Range<usize>> {
    if parameters.special_limbs() == 0 {
        return (0..limbs).map(|limb| limb..limb + 1).collect();
    }
    let digits = parameters.digit_ranges();
    let digits = digits.take_while(|digit| digit.start < limbs);
    digits
        .map(|digit| digit.start..digit.end.min(limbs))
        .collect()
}

/// Adds to a limb what makes all of its digits positive.
fn lift<W: Word>(parameters: &Parameters<W>, limb: usize, words: &mut [W]) {
    let offset = pieces_of(parameters, limb)
        .map(|piece| half::<W>(piece) << piece.shift)
        .fold(W::default(), W::wrapping_add);
    let q = parameters.basis().prime(limb);
    simd::lift(SimdLevel::detect(), q, offset, words);
}

fn pieces_of<W: Word>(parameters: &Parameters<W>, limb: usize) -> impl Iterator<Item = &Piece> {
    let pieces = parameters.pieces().iter();
    pieces.filter(move |piece| piece.limbs.start == limb)
}

/// What a digit is lowered by to be centred.
fn half<W: Word>(piece: &Piece) -> W {
    W::from_u64(1 << (piece.bits - 1))
}
