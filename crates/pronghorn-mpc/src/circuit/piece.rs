//! Selected words, and what circuits of activations do with them.

use super::share::signed_width;
use super::{Bit, Builder, Shared, Sum, Term};

/// `select * scale * word`: a value is a sum of pieces.
pub(super) struct Piece {
    pub select: Bit,
    /// In two's complement.
    pub word: Vec<Bit>,
    /// True if the word is below 0.
    pub sign: Bit,
    /// The range of the word where it is selected.
    pub low: i64,
    pub high: i64,
    pub scale: i64,
    /// True if the word is the first input itself, and the input's shares are shares of it in the
    /// output's modulus.
    pub whole: bool,
}

impl Piece {
    /// The word in the bits that its range takes; a sign that the range fixes is a constant.
    pub fn fit(&mut self, builder: &mut Builder) {
        let width = signed_width(self.low, self.high) as usize;
        self.word = builder.resize_signed(&self.word, width);
        if let (Some(top), true) = (self.word.last_mut(), self.low >= 0) {
            *top = Bit::ZERO;
        }
        self.sign = self.word.last().copied().unwrap_or(Bit::ZERO);
    }

    /// Adds it to a sum: the input's shares, or the word's bits, whichever project to fewer bits.
    pub fn add_to(self, sum: &mut Sum, input: &Shared) {
        let modulus = sum.modulus();
        let word = Term::signed(modulus, &self.word, self.scale);
        let shares = self
            .whole
            .then(|| input.terms(modulus, self.scale))
            .filter(|shares| shares.len() / 2 < 2 * word.len());
        sum.add_product(self.select, shares.unwrap_or(word));
    }
}

/// Adds a multiple of a bit to a sum.
pub(super) fn add_multiple(sum: &mut Sum, bit: Bit, factor: i64) {
    let weight = sum.modulus().from_i64(factor);
    sum.add_terms([Term { bit, weight }]);
}

/// `word >= bound` in two's complement; the zeros at the end of the bound cost nothing.
pub(super) fn at_least_constant(builder: &mut Builder, word: &[Bit], bound: i64) -> Bit {
    let width = word.len().max(signed_width(bound, bound) as usize);
    let bound = builder.constant(bound, width);
    let word = builder.resize_signed(word, width);
    let below = builder.less_than_signed(&word, &bound);
    builder.not(below)
}
