//! Products of shares: what is multiplied with what.

use std::{ops::Range, sync::Arc};

use pronghorn_graph::{layout, matrices::Matrices};
use rayon::prelude::*;

use super::{layout::check_shape, open::check_bits};
use crate::{
    error::EngineError,
    share::{Batch, Share},
};

/// Products of values on shares. Both parties have the same, from the plan.
///
/// A party hands in one share of all factors: the elements of the second follow those of the first.
#[derive(Clone)]
pub struct Products {
    /// Name of the step, for messages.
    pub step: String,
    /// Elements of one image's result.
    pub elements: usize,
    /// Images.
    pub images: usize,
    /// Shares are modulo `2^bits`, coming in and going out; 1 to 32.
    pub bits: u32,
    /// What is multiplied.
    pub factors: Factors,
}

/// The factors of products.
#[derive(Clone)]
pub enum Factors {
    /// A value with itself.
    Same,
    /// Two values.
    Two(Arc<[Factor; 2]>),
    /// Two matrices, part by part: each row with each column.
    Matrices(Matrices),
}

/// One factor of a product of two values.
pub struct Factor {
    /// Its elements in a share of both factors.
    elements: Range<usize>,
    /// The element of that share that each product reads.
    sources: Vec<usize>,
    /// The products in the order of the elements that they read, as many for each.
    readers: Vec<usize>,
}

impl Factors {
    /// Values of these shapes, broadcast to the shape `product`: as
    /// [`pronghorn_graph::shape::broadcast`] accepts them.
    pub fn two(shapes: [&[usize]; 2], product: &[usize]) -> Self {
        let mut first = 0;
        Self::Two(Arc::new(shapes.map(|shape| {
            let elements = first..first + shape.iter().product::<usize>();
            first = elements.end;
            let sources = layout::broadcast(shape, product).into_iter();
            let sources: Vec<usize> = sources.map(|source| elements.start + source).collect();
            let mut readers: Vec<usize> = (0..sources.len()).collect();
            readers.sort_by_key(|&product| sources[product]);
            Factor {
                elements,
                sources,
                readers,
            }
        })))
    }

    /// The elements of a factor in a share of all.
    pub(crate) fn elements(&self, place: usize) -> Range<usize> {
        match self {
            Self::Same => 0..0,
            Self::Two(two) => two[place].elements.clone(),
            Self::Matrices(matrices) => {
                let [first, second] = matrices.factors().map(|elements| matrices.parts * elements);
                [0..first, first..first + second][place].clone()
            }
        }
    }

    /// Products that read an element of a factor.
    fn readers(&self, place: usize) -> usize {
        match self {
            Self::Same => 1,
            Self::Two(two) => two[place].readers.len() / two[place].elements.len().max(1),
            Self::Matrices(matrices) => [matrices.columns, matrices.rows][place],
        }
    }

    /// Of a product that reads element `element` of a factor, number `reader` of them: the element
    /// of the result, and that of the other factor in a share of all.
    fn pair_of(&self, place: usize, element: usize, reader: usize) -> [usize; 2] {
        match self {
            Self::Same => [element; 2],
            Self::Two(two) => {
                let product = two[place].readers[element * self.readers(place) + reader];
                [product, two[1 - place].sources[product]]
            }
            Self::Matrices(matrices) => {
                let &Matrices {
                    rows,
                    inner,
                    columns,
                    ..
                } = matrices;
                let second = self.elements(1).start;
                match place {
                    0 => {
                        let (row, step) = (element / inner, element % inner);
                        let other = (row / rows * inner + step) * columns + reader;
                        [row * columns + reader, second + other]
                    }
                    _ => {
                        let (line, column) = (element / columns, element % columns);
                        let row = line / inner * rows + reader;
                        [row * columns + column, row * inner + line % inner]
                    }
                }
            }
        }
    }
}

impl Products {
    /// Squares of a value.
    pub fn squares(step: String, elements: usize, images: usize, bits: u32) -> Self {
        Self {
            step,
            elements,
            images,
            bits,
            factors: Factors::Same,
        }
    }

    /// Elements of all factors of one image.
    pub fn inputs(&self) -> usize {
        match &self.factors {
            Factors::Same => self.elements,
            two => two.elements(1).end,
        }
    }

    /// Words of a share of all factors, whose shape is checked.
    pub(super) fn check(&self, share: &Share) -> Result<usize, EngineError> {
        check_bits(&self.step, self.bits)?;
        check_shape(&self.step, &Share::Zero, self.elements, self.images)?;
        check_shape(&self.step, share, self.inputs(), self.images)
    }

    /// One share of all factors, in words.
    pub(super) fn words_of(&self, share: Share) -> Batch {
        match share {
            Share::Words(words) => words,
            Share::Zero => Batch::zeros(self.inputs(), self.images),
        }
    }

    /// The share of all factors from the shares of each.
    ///
    /// # Errors
    /// One is not of the shape of its factor.
    pub(crate) fn join(&self, shares: Vec<Share>) -> Result<Share, EngineError> {
        if let Factors::Same = &self.factors {
            return Ok(shares.into_iter().next().unwrap_or(Share::Zero));
        }
        let words = self.check(&Share::Zero)?;
        if shares.iter().all(|share| matches!(share, Share::Zero)) {
            return Ok(Share::Zero);
        }
        let mut joined = Batch::zeros(self.inputs(), self.images);
        let mut rest = &mut joined.words_mut()[..words];
        for (place, share) in shares.iter().enumerate().take(2) {
            let elements = self.factors.elements(place).len();
            let words = check_shape(&self.step, share, elements, self.images)?;
            let (part, after) = std::mem::take(&mut rest).split_at_mut(words);
            if let Share::Words(share) = share {
                part.copy_from_slice(share.words());
            }
            rest = after;
        }
        Ok(Share::Words(joined))
    }

    /// `output[p] += sign x y` for each product `p` of an element `x` of a share with an element
    /// `y` of another.
    fn accumulate(&self, [x, y]: [&Batch; 2], sign: i32, output: &mut Batch) {
        if let Factors::Matrices(matrices) = &self.factors {
            return self.accumulate_rows(matrices, [x, y], sign, output);
        }
        let pair = |element: usize| match &self.factors {
            Factors::Two(two) => [0, 1].map(|place| two[place].sources[element]),
            _ => [element; 2],
        };
        let rows = output.words_mut().chunks_mut(self.images);
        for (element, row) in rows.enumerate() {
            let [left, right] = pair(element);
            let pairs = x.row(left).iter().zip(y.row(right));
            for (word, (&x, &y)) in row.iter_mut().zip(pairs) {
                *word = word.wrapping_add(x.wrapping_mul(y).wrapping_mul(sign));
            }
        }
    }

    /// The same of matrices: a number of a row of the first with all of a row of the second.
    fn accumulate_rows(
        &self,
        matrices: &Matrices,
        [x, y]: [&Batch; 2],
        sign: i32,
        output: &mut Batch,
    ) {
        let &Matrices {
            rows,
            inner,
            columns,
            ..
        } = matrices;
        let (images, second) = (self.images, self.factors.elements(1).start);
        let of_row = |(row, sums): (usize, &mut [i32])| {
            for step in 0..inner {
                let numbers = x.row(row * inner + step);
                let first = second + (row / rows * inner + step) * columns;
                let others = &y.words()[first * images..][..columns * images];
                let pairs = sums.chunks_mut(images).zip(others.chunks(images));
                if let &[x] = numbers {
                    // In one plain loop, which the compiler keeps in vectors.
                    let x = x.wrapping_mul(sign);
                    let pairs = sums.iter_mut().zip(others);
                    pairs.for_each(|(sum, &y)| *sum = sum.wrapping_add(x.wrapping_mul(y)));
                    continue;
                }
                for (sums, others) in pairs {
                    for ((sum, &x), &y) in sums.iter_mut().zip(numbers).zip(others) {
                        *sum = sum.wrapping_add(x.wrapping_mul(y).wrapping_mul(sign));
                    }
                }
            }
        };
        let each = output.words_mut().par_chunks_mut(columns * images);
        each.enumerate().for_each(of_row);
    }

    /// The products of a party's own share.
    pub(crate) fn own(&self, share: &Batch) -> Batch {
        let mut output = Batch::zeros(self.elements, self.images);
        self.add_own(share, 1, &mut output);
        output
    }

    /// Adds the products of a party's own share, or takes them off.
    pub(super) fn add_own(&self, share: &Batch, sign: i32, output: &mut Batch) {
        self.accumulate([share, share], sign, output);
    }

    /// Adds what the products of a sum of two shares have beyond the products of each.
    pub(super) fn add_mixed(&self, share: &Batch, other: &Batch, output: &mut Batch) {
        self.accumulate([share, other], 1, output);
        self.accumulate([other, share], 1, output);
    }

    /// The sums of [`super::product`], one for each factor by whose bits the client chooses.
    pub(super) fn sums(&self) -> Vec<Sum<'_>> {
        match &self.factors {
            Factors::Same => vec![Sum {
                products: self,
                place: 0,
                words: 0..self.elements * self.images,
                bits: self.bits - 1,
                shift: 1,
                run: 1,
                padded: true,
            }],
            two => {
                let sum = |place: usize| {
                    let elements = two.elements(place);
                    Sum {
                        products: self,
                        place,
                        words: elements.start * self.images..elements.end * self.images,
                        bits: self.bits,
                        shift: 0,
                        run: two.readers(place),
                        padded: false,
                    }
                };
                vec![sum(0), sum(1)]
            }
        }
    }
}

/// Products of the client's words of one factor with the server's of the other: sums over the bits
/// of the former.
pub(super) struct Sum<'a> {
    products: &'a Products,
    /// The factor that the client chooses by.
    place: usize,
    /// Its words in a share of all factors.
    pub words: Range<usize>,
    /// Bits that choose, the lowest of a word.
    pub bits: u32,
    /// The lowest bit stands for `2^shift`.
    pub shift: u32,
    /// Products of each word.
    pub run: usize,
    /// Whether corrections come for a multiple of 8 words.
    pub padded: bool,
}

impl Sum<'_> {
    /// For each product of these words, in their order: the word of the result that it is added to,
    /// and that of the other factor.
    pub fn places(&self, words: Range<usize>) -> Vec<[usize; 2]> {
        let (factors, images) = (&self.products.factors, self.products.images);
        if let Factors::Same = factors {
            return words.map(|word| [word; 2]).collect();
        }
        let first = factors.elements(self.place).start;
        let of_word = |word: usize| {
            let (element, image) = (word / images - first, word % images);
            let pair = move |reader: usize| factors.pair_of(self.place, element, reader);
            let place = move |reader| pair(reader).map(|element| element * images + image);
            (0..self.run).map(place)
        };
        words.flat_map(of_word).collect()
    }
}
