//! Functions by a table, after a change of precision.
//!
//! The value is a sum of shares, so an entry is never put together bit by bit. The index is cut
//! into `h` high and `l` low bits. The high ones become `2^h` bits of which one is set, the low
//! ones the `2^l` products of their subsets. For fixed high bits an entry is a sum of multiples of
//! these products (the Moebius transform over the integers), and that sum is multiplied by the bit
//! of the high ones as shares ([`Sum::add_product`]). With shares of `k` bits, this takes
//! `2^h - h - 1 + 2^l - l - 1` AND gates, `h` more where the index may leave the table, and
//! `2 k (2^l + 1)` projected bits for each of the `2^h`; less where multiples are 0 or even. A tree
//! of multiplexers takes `2^(h + l) - 1` AND gates for each bit of an entry. Products that no block
//! uses cost nothing. Tables with linear pieces have a circuit of their own: see
//! [`segments`](super::segments).

use super::piece::{Piece, add_multiple, at_least_constant};
use super::segments::Tree;
use super::{Bit, Builder, CircuitError, Sum, Term};

/// Most entries of a table.
pub const MAX_ENTRIES: usize = 1 << 9;

/// Most bits below the index that have a step.
pub const MAX_FINE: u32 = 12;

/// `base(x) + entries[i]` with `i = (x >> drop) - first`, and `base(x)` alone where there is no
/// such entry; the base is `max(x, 0)` or 0.
///
/// With linear pieces, the `fine` bits of `x` right below the index add a step each where they are
/// set: bit `j` of them adds `round(rises[i] 2^j / 2^fine)`, halves rounded up.
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
    /// Bits below the index that have a step: 0 for constants, at most [`MAX_FINE`] and `drop`.
    pub fine: u32,
    /// The rise from each entry to the next argument without it, `2^drop` on; none where `fine` is
    /// 0.
    pub rises: &'t [i32],
}

impl Table<'_> {
    /// The value at `x`, the definition of the circuit.
    pub(super) fn apply(&self, x: i64) -> i64 {
        self.base(x) + self.summand(x)
    }

    pub(crate) fn base(&self, x: i64) -> i64 {
        if self.rectified { x.max(0) } else { 0 }
    }

    /// What is added to the base.
    pub(crate) fn summand(&self, x: i64) -> i64 {
        let Some(place) = self.place(x) else {
            return 0;
        };
        let rest = x >> (self.drop - self.fine);
        let set = (0..self.fine).filter(|bit| rest >> bit & 1 == 1);
        let steps: i64 = set.map(|bit| self.step(place, bit)).sum();
        i64::from(self.entries[place]) + steps
    }

    /// The entry of an argument.
    pub(crate) fn place(&self, x: i64) -> Option<usize> {
        let place = usize::try_from((x >> self.drop) - i64::from(self.first));
        place.ok().filter(|&place| place < self.entries.len())
    }

    /// The summand of an entry's fine bit, where the bit is set.
    fn step(&self, place: usize, bit: u32) -> i64 {
        self.step_of(self.rises[place], bit)
    }

    /// The summand of a fine bit where the entry has this rise.
    pub(crate) fn step_of(&self, rise: i32, bit: u32) -> i64 {
        let half = (1i64 << self.fine) >> 1;
        ((i64::from(rise) << bit) + half) >> self.fine
    }

    /// The least and the largest value for arguments in `low..=high`.
    pub(crate) fn range(&self, low: i64, high: i64) -> (i64, i64) {
        // The base rises, so that its ends in each part with one summand are enough, and with
        // steps those arguments of whole blocks that take all bits that rise, or all that fall.
        let starts = (0..=self.entries.len()).map(|place| self.start(place));
        let ends = starts.flat_map(|start| [start - 1, start]);
        let steps = self.blocks_within(low, high);
        let steps = steps.flat_map(|(start, bits)| self.extremes(start, bits));
        let inside = ends.chain(steps).filter(|x| (low..=high).contains(x));
        let values = inside.chain([low, high]).map(|x| self.apply(x));
        values.fold((i64::MAX, i64::MIN), |(least, most), value| {
            (least.min(value), most.max(value))
        })
    }

    /// Blocks of `2^bits` arguments from a multiple of that: those of all entries, and at least
    /// those that `low..=high` has of cut ones, its ends aside. None without steps.
    fn blocks_within(&self, low: i64, high: i64) -> impl Iterator<Item = (i64, u32)> + '_ {
        let whole = (0..self.rises.len()).map(|place| (self.start(place), self.drop));
        let cut = if self.fine == 0 { 0 } else { self.drop };
        let beside = move |end: i64| (0..cut).map(move |bits| ((end >> bits ^ 1) << bits, bits));
        whole.chain([low, high].into_iter().flat_map(beside))
    }

    /// The arguments of a block with the least and the largest value.
    fn extremes(&self, start: i64, bits: u32) -> [i64; 2] {
        let place = self.place(start);
        let mut ends = [start; 2];
        for bit in 0..bits {
            let step = match (place, (bit + self.fine).checked_sub(self.drop)) {
                (Some(place), Some(fine)) => self.step(place, fine),
                _ => 0,
            };
            let base = i64::from(self.rectified && start >= 0) << bit;
            ends[usize::from(base + step > 0)] |= 1 << bit;
        }
        ends
    }

    pub(crate) fn check(&self) -> Result<(), CircuitError> {
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
        let most = self.drop.min(MAX_FINE);
        if self.fine > most {
            return Err(parameter("fine bits", self.fine as usize, 0, most.into()));
        }
        let rises = if self.fine == 0 { 0 } else { count };
        if self.rises.len() != rises {
            let wanted = rises as i64;
            return Err(parameter("rises", self.rises.len(), wanted, wanted));
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
        let place = builder.resize_signed(&piece.word, self.drop as usize + width);
        if self.fine > 0 {
            let place = &place[(self.drop - self.fine) as usize..];
            return self.segments().add_to(builder, inside, place, sum);
        }
        let index = &place[self.drop as usize..];
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
        let entries = self.by_index(|place| self.entries[place].into());
        let widths = 0..=entries.len().ilog2() as usize;
        let cuts = widths.map(|low_bits| Blocks::new(&entries, low_bits));
        let cheapest = cuts.min_by_key(|blocks| blocks.bytes(bits));
        cheapest.expect("there is a cut of no low bits")
    }

    /// The segments of linear pieces.
    fn segments(&self) -> Tree {
        let entries = self.by_index(|place| i64::from(self.entries[place]));
        let steps = |place| (0..self.fine).map(|bit| self.step(place, bit)).collect();
        Tree::new(&entries, &self.by_index(steps))
    }

    /// Entries by the low bits of `x >> drop`: their places in the table, rotated.
    fn by_index<T>(&self, entry: impl Fn(usize) -> T) -> Vec<T> {
        let count = self.entries.len();
        let mut entries: Vec<T> = (0..count).map(entry).collect();
        entries.rotate_right(self.first.rem_euclid(count as i32) as usize);
        entries
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
        let projected = self.multiples.iter().map(|block| {
            let used = block[1..].iter().filter(|&&multiple| multiple != 0).count();
            match (used, block[0]) {
                (0, 0) => 0,
                (0, _) => bits as usize,
                (used, _) => 2 * bits as usize * (used + 1),
            }
        });
        let projected: usize = projected.sum();
        32 * (self.multiples.len() + self.products()) + projected / 8
    }

    /// AND gates of the products of low bits that a block uses, or that go into one.
    fn products(&self) -> usize {
        let used = |subset: usize| self.multiples.iter().any(|block| block[subset] != 0);
        let mut needed: Vec<bool> = (0..1 << self.low_bits).map(used).collect();
        for subset in (1..needed.len()).rev() {
            // A product is made of that without its highest bit.
            let part = subset ^ 1 << subset.ilog2();
            needed[part] |= needed[subset];
        }
        let gates = needed.iter().enumerate().skip(1);
        gates
            .filter(|(subset, needed)| **needed && !subset.is_power_of_two())
            .count()
    }
}

/// The products of all subsets of bits, that of none first. The circuit keeps those that are used.
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
