//! Products of shares: what is multiplied with what.

use std::{ops::Range, sync::Arc};

use pronghorn_graph::layout;

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
    /// Elements of one image's product.
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
            Factors::Two(two) => two[1].elements.end,
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
        let Factors::Two(two) = &self.factors else {
            return Ok(shares.into_iter().next().unwrap_or(Share::Zero));
        };
        let words = self.check(&Share::Zero)?;
        if shares.iter().all(|share| matches!(share, Share::Zero)) {
            return Ok(Share::Zero);
        }
        let mut joined = Batch::zeros(self.inputs(), self.images);
        let mut rest = &mut joined.words_mut()[..words];
        for (factor, share) in two.iter().zip(&shares) {
            let words = check_shape(&self.step, share, factor.elements.len(), self.images)?;
            let (part, after) = std::mem::take(&mut rest).split_at_mut(words);
            if let Share::Words(share) = share {
                part.copy_from_slice(share.words());
            }
            rest = after;
        }
        Ok(Share::Words(joined))
    }

    /// The elements that product `element` multiplies.
    fn pair(&self, element: usize) -> [usize; 2] {
        match &self.factors {
            Factors::Same => [element; 2],
            Factors::Two(two) => [0, 1].map(|place| two[place].sources[element]),
        }
    }

    /// `output[p] += sign x y` for each product `p` of an element `x` of a share with an element
    /// `y` of another.
    fn accumulate(&self, [x, y]: [&Batch; 2], sign: i32, output: &mut Batch) {
        let rows = output.words_mut().chunks_mut(self.images);
        for (element, row) in rows.enumerate() {
            let [left, right] = self.pair(element);
            let pairs = x.row(left).iter().zip(y.row(right));
            for (word, (&x, &y)) in row.iter_mut().zip(pairs) {
                *word = word.wrapping_add(x.wrapping_mul(y).wrapping_mul(sign));
            }
        }
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
            Factors::Two(two) => {
                let sum = |place: usize| Sum {
                    products: self,
                    place,
                    words: two[place].elements.start * self.images
                        ..two[place].elements.end * self.images,
                    bits: self.bits,
                    shift: 0,
                    run: two[place].readers.len() / two[place].elements.len().max(1),
                    padded: false,
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
    /// For each product of these words, in their order: its own word, and that of the other factor.
    pub fn places(&self, words: Range<usize>) -> Vec<[usize; 2]> {
        let Factors::Two(two) = &self.products.factors else {
            return words.map(|word| [word; 2]).collect();
        };
        let (own, other) = (&two[self.place], &two[1 - self.place]);
        let images = self.products.images;
        let of_word = |word: usize| {
            let (element, image) = (word / images - own.elements.start, word % images);
            let readers = &own.readers[element * self.run..][..self.run];
            let place = move |&product: &usize| {
                [product, other.sources[product]].map(|element| element * images + image)
            };
            readers.iter().map(place)
        };
        words.flat_map(of_word).collect()
    }
}
