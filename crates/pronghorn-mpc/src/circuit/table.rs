//! Functions by a table, after a change of precision.
//!
//! The value is a sum of shares, so an entry is never put together bit by bit. The index is cut
//! into `h` high and `l` low bits. The high ones become `2^h` bits of which one is set, the low
//! ones the `2^l` products of their subsets. For fixed high bits an entry is a sum of multiples of
//! these products (the Moebius transform over the integers), and that sum is multiplied by the bit
//! of the high ones as shares ([`Sum::add_product`]). With shares of `k` bits, this takes
//! `2^h - h - 1 + 2^l - l - 1` AND gates, `h` more where the index may leave the table, and
//! `2 k (2^l + 1)` projected bits for each of the `2^h`; less where multiples are 0 or even. A tree
//! of multiplexers takes `2^(h + l) - 1` AND gates for each bit of an entry.

use super::piece::{Piece, add_multiple, at_least_constant};
use super::{Bit, Builder, CircuitError, Sum, Term};

/// Most entries of a table.
pub const MAX_ENTRIES: usize = 1 << 9;

/// `base(x) + entries[(x >> drop) - first]`, and `base(x)` alone where there is no such entry; the
/// base is `max(x, 0)` or 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Table<'t> {
    /// Whether the base is `max(x, 0)`; else it is 0.
    pub rectified: bool,
    /// Bits dropped for the index.
    pub drop: u32,
    /// The index of the first entry.
    pub first: i32,
    /// Summands: a power of two of them, at most [`MAX_ENTRIES`].
    pub entries: &'t [i32],
}

impl Table<'_> {
    /// The value at `x`, the definition of the circuit.
    pub(super) fn apply(&self, x: i64) -> i64 {
        let place = usize::try_from((x >> self.drop) - i64::from(self.first));
        let entry = place.ok().and_then(|place| self.entries.get(place));
        let base = if self.rectified { x.max(0) } else { 0 };
        base + entry.map_or(0, |&entry| entry.into())
    }

    /// The least and the largest value for arguments in `low..=high`.
    pub(super) fn range(&self, low: i64, high: i64) -> (i64, i64) {
        // The base rises, so that its ends in each part with one summand are enough.
        let starts = (0..=self.entries.len()).map(|place| self.start(place));
        let ends = starts.flat_map(|start| [start - 1, start]);
        let inside = ends.filter(|x| (low..=high).contains(x));
        let values = inside.chain([low, high]).map(|x| self.apply(x));
        values.fold((i64::MAX, i64::MIN), |(least, most), value| {
            (least.min(value), most.max(value))
        })
    }

    pub(super) fn check(&self) -> Result<(), CircuitError> {
        let parameter = |name, value: usize, low, high| CircuitError::Parameter {
            name,
            value: value as i64,
            low,
            high,
        };
        let count = self.entries.len();
        if !count.is_power_of_two() || count > MAX_ENTRIES {
            let most = MAX_ENTRIES as i64;
            return Err(parameter("power of two of entries", count, 1, most));
        }
        if self.drop > 31 {
            return Err(parameter("drop", self.drop as usize, 0, 31));
        }
        Ok(())
    }

    /// The first argument of an entry.
    fn start(&self, place: usize) -> i64 {
        (i64::from(self.first) + place as i64) << self.drop
    }

    /// Adds the value of a piece to a sum, where the piece is selected.
    pub(super) fn add_to(&self, builder: &mut Builder, piece: &Piece, sum: &mut Sum) {
        if self.rectified {
            let positive = builder.not(piece.sign);
            let positive = builder.and(piece.select, positive);
            let magnitude = &piece.word[..piece.word.len() - 1];
            let terms = Term::unsigned(sum.modulus(), magnitude, 1);
            sum.add_product(positive, terms);
        }
        let inside = self.inside(builder, piece);
        let width = self.entries.len().ilog2() as usize;
        let index = builder.resize_signed(&piece.word, self.drop as usize + width);
        let index = &index[self.drop as usize..];
        let blocks = self.blocks(sum.modulus().bits());
        let (low, high) = index.split_at(blocks.low_bits);
        let monomials = monomials(builder, low);
        for (&select, block) in one_hot(builder, inside, high).iter().zip(&blocks.multiples) {
            let used = monomials
                .iter()
                .zip(block)
                .filter(|(_, multiple)| **multiple != 0);
            if block[1..].iter().all(|&multiple| multiple == 0) {
                add_multiple(sum, select, block[0]);
                continue;
            }
            let modulus = sum.modulus();
            let term = |(&bit, &multiple): (&Bit, &i64)| Term {
                bit,
                weight: modulus.from_i64(multiple),
            };
            sum.add_product(select, used.map(term));
        }
    }

    /// Whether the piece is selected and has an entry.
    fn inside(&self, builder: &mut Builder, piece: &Piece) -> Bit {
        let (start, end) = (self.start(0), self.start(self.entries.len()));
        let mut inside = piece.select;
        if piece.high < start || piece.low >= end {
            return Bit::ZERO;
        }
        if piece.low < start {
            let from = at_least_constant(builder, &piece.word, start);
            inside = builder.and(inside, from);
        }
        if piece.high >= end {
            let beyond = at_least_constant(builder, &piece.word, end);
            let below = builder.not(beyond);
            inside = builder.and(inside, below);
        }
        inside
    }

    /// The cheapest cut of the index, for sums of `bits` bits.
    fn blocks(&self, bits: u32) -> Blocks {
        // Index `i` of an argument is its place in the table, rotated.
        let count = self.entries.len();
        let mut entries: Vec<i64> = self.entries.iter().map(|&entry| entry.into()).collect();
        entries.rotate_right(self.first.rem_euclid(count as i32) as usize);
        let cuts = (0..=count.ilog2() as usize).map(|low_bits| Blocks::new(&entries, low_bits));
        let cheapest = cuts.min_by_key(|blocks| blocks.bytes(bits));
        cheapest.expect("there is a cut of no low bits")
    }
}

/// Entries by the high bits of their index, as multiples of the products of its low bits.
struct Blocks {
    low_bits: usize,
    multiples: Vec<Vec<i64>>,
}

impl Blocks {
    fn new(entries: &[i64], low_bits: usize) -> Self {
        let block = |entries: &[i64]| {
            let mut multiples = entries.to_vec();
            for bit in 0..low_bits {
                for subset in (0..multiples.len()).filter(|subset| subset >> bit & 1 == 1) {
                    multiples[subset] -= multiples[subset ^ 1 << bit];
                }
            }
            multiples
        };
        Self {
            low_bits,
            multiples: entries.chunks(1 << low_bits).map(block).collect(),
        }
    }

    /// Bytes that the cut takes, about.
    fn bytes(&self, bits: u32) -> usize {
        let products = |blocks: usize| 32 * blocks;
        let projected = self.multiples.iter().map(|block| {
            let used = block[1..].iter().filter(|&&multiple| multiple != 0).count();
            match (used, block[0]) {
                (0, 0) => 0,
                (0, _) => bits as usize,
                (used, _) => 2 * bits as usize * (used + 1),
            }
        });
        let projected: usize = projected.sum();
        products(self.multiples.len() + (1 << self.low_bits) - self.low_bits) + projected / 8
    }
}

/// The products of all subsets of bits, that of none first.
fn monomials(builder: &mut Builder, bits: &[Bit]) -> Vec<Bit> {
    let mut products = vec![Bit::ONE];
    for &bit in bits {
        for subset in 0..products.len() {
            products.push(builder.and(products[subset], bit));
        }
    }
    products
}

/// For each value of the bits, the first bit the lowest, whether they have it and `select` is set.
fn one_hot(builder: &mut Builder, select: Bit, bits: &[Bit]) -> Vec<Bit> {
    let mut selects = vec![select];
    for &bit in bits.iter().rev() {
        // One of each pair is selected, so that the last follows from the others.
        let set = builder.and(select, bit);
        let mut rest = set;
        let (last, others) = selects.split_last().expect("there is one at least");
        let mut next = Vec::with_capacity(2 * selects.len());
        for &each in others {
            let with = builder.and(each, bit);
            rest = builder.xor(rest, with);
            next.extend([builder.xor(each, with), with]);
        }
        next.extend([builder.xor(*last, rest), rest]);
        selects = next;
    }
    selects
}
