//! Boolean circuits over XOR, AND and NOT, and what garbling them costs.
//!
//! A [`Builder`] takes inputs, combines [`Bit`]s and declares outputs; [`Builder::finish`] drops
//! what no output needs and gives a [`Circuit`], plain data that both parties build alike from
//! public parameters. Words are slices of bits, the lowest first; signed words are two's
//! complement.
//!
//! # What a bit costs
//!
//! Every bit is `wire + known`: a *wire* has labels, a *known* bit is one that the garbler knows
//! when it garbles (its share, its mask) and computes in plain. In bytes that the garbler sends for
//! each instance:
//!
//! | gate | bytes | why |
//! |---|---|---|
//! | XOR and NOT of anything | 0 | free XOR; a known bit moves the zero-label by delta, and nobody else notices |
//! | AND of two known bits | 0 | the garbler computes it |
//! | AND of a wire and a known bit | 16 | the generator half of a half gate |
//! | AND of two wires | 32 | half gates |
//!
//! The inputs of the garbler cost nothing either: no labels are sent for them. The builder picks
//! the gate.
//!
//! # Shares out of labels
//!
//! Additive shares need no adder that subtracts a mask: [`Builder::output_sum`] *projects* each
//! bit's label onto a word (Ball, Malkin and Rosulek, CCS 2016): the two labels of a bit hash to
//! two pads, and a correction of `log2 M` bits makes them differ by the bit's weight modulo `M`.
//! The evaluator's pads add up to its share, the garbler's to the other, and `k` bits cost
//! `k (k + 1) / 2` bits modulo `2^k` (bit `i` needs only `k - i`), where the adder costs
//! `256 (k - 1)`. A weight may be the garbler's secret, which gives products: see
//! [`Sum::add_product`].
//!
//! # A ReLU, derived
//!
//! Shares modulo `2^k`, `x = s + e` with `s` the garbler's. The sign is the top bit of the sum:
//! `k - 2` AND gates and a half one for the carries. The product of `not sign` with `x` projects
//! that bit twice, `2k` bits, and the evaluator's bits once with secret weights, `k (k + 1) / 2`
//! bits. At `k = 20`: `37 * 16 + (40 + 210) / 8 = 592 + 31.25` bytes, and 20 labels for the
//! evaluator's input. Gazelle's circuit (figure 5, modulo `2^k` instead of `p`) has `3 (k - 1)` AND
//! gates: 1,824 bytes, and 40 labels more. See [`garble`](crate::garble) for a whole protocol run.

mod activation;
mod builder;
mod error;
mod integer;
mod modular;
mod piece;
mod plain;
mod program;
mod segments;
mod share;
mod sum;
mod table;

pub(crate) use activation::rounder;
pub use activation::{Activation, Rectifier, Requantisation, argmax, sign};
pub use builder::{Bit, Builder};
pub use error::CircuitError;
pub use share::{Modulus, Shared, signed_width};
pub use sum::{Sum, Term};
pub use table::{MAX_ENTRIES, MAX_FINE, Table};

pub(crate) use builder::Known;
pub use program::TILE;
pub(crate) use program::{NO_SLOT, Op, Operand, Program, Projection, Use, Weight};

use builder::Wire;
use zeroize::Zeroizing;

/// A circuit: inputs, gates, outputs. Made by a [`Builder`].
#[derive(Clone, Debug)]
pub struct Circuit {
    inputs: Inputs,
    wires: Vec<Wire>,
    knowns: Vec<Known>,
    outputs: Vec<Output>,
    program: Program,
}

/// The input words, by who gives them.
#[derive(Clone, Debug, Default)]
struct Inputs {
    /// Widths of the words the garbler knows when it garbles.
    garbler: Vec<u32>,
    /// Widths of the words that come as labels, and whether the evaluator knows their values.
    labelled: Vec<(u32, bool)>,
}

/// What becomes of some bits.
#[derive(Clone, Debug)]
enum Output {
    /// The evaluator learns them.
    Revealed(Vec<Bit>),
    /// The parties keep XOR shares.
    Shared(Vec<Bit>),
    /// The parties keep additive shares of a sum.
    Sum(Sum),
}

/// The way in which the parties' words of one output make its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The evaluator's word is the value, the garbler's is 0.
    Revealed,
    /// The value is the XOR of the words.
    Xor,
    /// The value is the sum of the words in this modulus.
    Sum(Modulus),
}

impl Opening {
    /// The value that the two words are shares of.
    pub fn open(self, garbler: u64, evaluator: u64) -> u64 {
        match self {
            Self::Revealed | Self::Xor => garbler ^ evaluator,
            Self::Sum(modulus) => modulus.add(garbler, evaluator),
        }
    }
}

/// Gates of a circuit and the bytes garbled for one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// AND gates of two wires.
    pub and: usize,
    /// AND gates of a wire and a bit the garbler knows.
    pub half: usize,
    /// XOR gates of two wires: no bytes, but time.
    pub xor: usize,
    /// Bits of projections: see [`Builder::output_sum`].
    pub projected: usize,
    /// Labelled input bits.
    pub labels: usize,
}

impl Circuit {
    /// Widths of the garbler's input words, in the order of declaration.
    pub fn garbler_words(&self) -> &[u32] {
        &self.inputs.garbler
    }

    /// Widths of the evaluator's input words, in the order of declaration.
    pub fn evaluator_words(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.inputs.labelled.iter();
        words
            .filter(|(_, evaluator)| *evaluator)
            .map(|&(width, _)| width)
    }

    /// Labelled input words: the evaluator's and the garbler's late ones.
    pub fn labelled_words(&self) -> usize {
        self.inputs.labelled.len()
    }

    /// Labelled input bits of one instance: the evaluator's and the garbler's late ones, in the
    /// order of declaration, the lowest bit of each word first.
    pub fn labelled_bits(&self) -> usize {
        let widths = self.inputs.labelled.iter();
        widths.map(|&(width, _)| width as usize).sum()
    }

    /// The opening of each output, in the order of declaration.
    pub fn openings(&self) -> impl ExactSizeIterator<Item = Opening> + '_ {
        self.outputs.iter().map(|output| match output {
            Output::Revealed(_) => Opening::Revealed,
            Output::Shared(_) => Opening::Xor,
            Output::Sum(sum) => Opening::Sum(sum.modulus()),
        })
    }

    /// The choice bits for the labels of the evaluator's words, in the order of labels, packed with
    /// the first in the lowest bit of the first byte. `values` are by word, then by instance.
    ///
    /// Labels are ordered by tile of [`TILE`] instances, then by bit of the labelled words, then by
    /// instance.
    ///
    /// # Panics
    /// Where there is a late input, whose labels need no choice, or a value is missing.
    pub fn choices(&self, values: &[u64], instances: usize) -> Zeroizing<Vec<u8>> {
        let labels = self.labelled_bits() * instances;
        let mut choices = Zeroizing::new(vec![0; labels.div_ceil(8)]);
        self.for_each_label(instances, |label, (word, bit), instance| {
            let (_, evaluator) = self.inputs.labelled[word];
            assert!(
                evaluator,
                "a late input takes no part in oblivious transfer"
            );
            let value = values[word * instances + instance];
            choices[label / 8] |= ((value >> bit & 1) as u8) << (label % 8);
        });
        choices
    }

    /// Calls `f` with the number of each label, its word and bit, and its instance.
    pub(crate) fn for_each_label(
        &self,
        instances: usize,
        mut f: impl FnMut(usize, (usize, u32), usize),
    ) {
        let words = self.inputs.labelled.iter().enumerate();
        let bits: Vec<_> = words
            .flat_map(|(word, &(width, _))| (0..width).map(move |bit| (word, bit)))
            .collect();
        let mut label = 0;
        for first in (0..instances).step_by(TILE) {
            for &bit in &bits {
                for instance in first..instances.min(first + TILE) {
                    f(label, bit, instance);
                    label += 1;
                }
            }
        }
    }

    /// Gates and projected bits.
    pub fn cost(&self) -> Cost {
        self.program.cost(self.labelled_bits())
    }

    /// Bytes that the garbler sends for this many instances, the header of a garbling not counted.
    /// Saturates.
    pub fn table_bytes(&self, instances: usize) -> usize {
        self.program.bytes(instances)
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }
}
