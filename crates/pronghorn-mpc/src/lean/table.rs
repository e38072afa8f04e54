//! Functions by a table, as programs: `base(x) + summand(x)`, where the summand is an entry and a
//! step for each of the fine bits below the index.
//!
//! The bits of the argument are put together, in leaves of three. Those of the index select a row:
//! first a bit for each node of a tree, of which one in a level is set, as in
//! [`segments`](crate::circuit); equal neighbours are one node. At most one of these bits is set,
//! so that any function of them is an XOR, and free. The last bits of the index are factors of the
//! result instead, which is cheaper where rows have few bits.
//!
//! So a row comes as shared bits: those of its entry, and those of its rise. Bits of entries
//! become numbers, an OT each. Steps are products of the rise `r` with the fine bits `u_j`. With
//! `t = fine - j`, step `j` is `floor(r / 2^t)` and bit `t - 1` of `r`, which rounds. So the sum
//! of all steps is `sum of r_p W_p`, where `W_p` is a sum of multiples of the `u_j` as numbers, and
//! each bit of `r` takes one multiplexer.

use std::ops::Range;

use super::{
    activation::{Value, floor, in_range, low_carry},
    gadgets::modulus_of_wraps,
    program::{Builder, Plane, Word},
};
use crate::circuit::{CircuitError, Modulus, Table, rounder, signed_width};

/// Most rows of a table: more than entries where bounds cut these.
const MOST_ROWS: i64 = 1 << 10;

/// Most bits of an index that are factors.
const MOST_FACTORS: u32 = 4;

/// What an OT counts beside a bit of a message, where ways to look rows up are compared.
const BITS_OF_OT: usize = 16;

/// `table(clamp(floor(x / 2^drop), bounds))` in the output's modulus.
pub(super) fn tabled(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    (table, bounds): (&Table<'_>, (i64, i64)),
    output: Modulus,
) -> Result<Word, CircuitError> {
    let lookup = Lookup::new(table, (value.low >> drop, value.high >> drop), bounds)?;
    let ends = [lookup.low, lookup.high].map(|end| end.clamp(bounds.0, bounds.1));
    let (least, most) = table.range(ends[0], ends[1]);
    if !output.holds(least, most) {
        return Err(output.range_error(least, most));
    }
    let width = builder.modulus(value.word).bits();
    if lookup.bits + drop > width {
        let modulus = builder.modulus(value.word);
        return Err(modulus.range_error(value.low, value.high));
    }
    let argument = Argument::new(builder, &lookup, value.word, drop);
    let row = lookup.row(builder, &argument);
    let summand = lookup.summand(builder, &argument, &row, output)?;
    let terms = match lookup.base(builder, (value.word, drop), &argument, &row, output)? {
        Some(base) => vec![(summand, 1), (base, 1)],
        None => vec![(summand, 1)],
    };
    Ok(builder.sum(&terms, 0, output))
}

/// A bit that may be public.
#[derive(Clone, Copy)]
enum Signal {
    Zero,
    One,
    Plane(Plane),
}

/// The rows of a table: aligned ranges of `2^grain` arguments on which all is linear in the fine
/// bits.
struct Lookup<'t> {
    table: &'t Table<'t>,
    /// The least and the largest argument, before bounds.
    low: i64,
    high: i64,
    /// Bits of an argument, with its sign.
    bits: u32,
    /// The value at a bound is that from these arguments on, or below.
    from: (i64, i64),
    beyond: (i64, i64),
    grain: u32,
    /// Bits of the largest rise, with its sign.
    rise: u32,
    /// The least index of each run of equal rows, and the row.
    runs: Vec<(i64, Row)>,
}

/// What is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Row {
    entry: i64,
    rise: i32,
    base: Base,
}

/// The base of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Zero,
    /// The argument itself.
    Linear,
    /// What it is below the least argument, where that is not 0, or beyond the largest.
    Below,
    Beyond,
}

impl<'t> Lookup<'t> {
    fn new(
        table: &'t Table<'t>,
        (low, high): (i64, i64),
        (least, most): (i64, i64),
    ) -> Result<Self, CircuitError> {
        table.check()?;
        // At a bound itself either side has the value.
        let from = match low < least {
            true => (rounder(least, least + 1), least),
            false => (i64::MIN, least),
        };
        let beyond = match high > most {
            true => (rounder(most, most + 1), most),
            false => (i64::MAX, most),
        };
        let ends = [from.0, beyond.0].into_iter();
        let cuts = ends.filter(|end| (low + 1..=high).contains(end));
        let grain = cuts.map(i64::trailing_zeros).fold(table.drop, u32::min);
        let mut lookup = Self {
            table,
            low,
            high,
            bits: signed_width(low, high),
            from,
            beyond,
            grain,
            rise: 0,
            runs: Vec::new(),
        };
        let window = lookup.window();
        in_range("rows of a table", window.end - window.start, 0, MOST_ROWS)?;
        let changes = lookup.changes(window).into_iter();
        lookup.runs = changes.map(|index| (index, lookup.at(index))).collect();
        lookup.runs.dedup_by_key(|(_, row)| *row);
        let rises = lookup.rows().map(|row| i64::from(row.rise));
        let (falls, rises) =
            rises.fold((0, 0), |(low, high), rise| (rise.min(low), rise.max(high)));
        lookup.rise = match (falls, rises) {
            (0, 0) => 0,
            (low, high) => signed_width(low, high),
        };
        Ok(lookup)
    }

    /// Bits of the index of a row: its sign at least.
    fn index_bits(&self) -> u32 {
        self.bits.saturating_sub(self.grain).max(1)
    }

    /// The fine bits that rows have steps for, by their number and their place in the argument.
    fn fine(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (grain, fine, rise) = (self.grain, self.table.fine, self.rise);
        let first = self.table.drop - fine;
        let places = (0..fine).map(move |bit| (bit, first + bit));
        // The steps of the lowest bits round to 0.
        places.filter(move |&(bit, place)| place < grain && fine - bit < rise)
    }

    /// The row of an index; that of the nearest argument where no argument has it.
    fn at(&self, index: i64) -> Row {
        let (grain, table) = (self.grain, self.table);
        let index = index.clamp(self.low >> grain, self.high >> grain);
        let start = index << grain;
        // Where no bound cuts rows, one may begin below the least argument.
        let least = start.max(self.low);
        let zero = |entry, base| Row {
            entry,
            rise: 0,
            base,
        };
        let ended = |x: i64, base: Base| match table.base(x) {
            0 => zero(table.summand(x), Base::Zero),
            _ => zero(table.summand(x), base),
        };
        if least < self.from.0 {
            return ended(self.from.1, Base::Below);
        }
        if least >= self.beyond.0 {
            return ended(self.beyond.1, Base::Beyond);
        }
        let base = match table.rectified && start >= 0 {
            true => Base::Linear,
            false => Base::Zero,
        };
        let rise = match (table.fine, table.place(start)) {
            (1.., Some(place)) => table.rises[place],
            _ => 0,
        };
        Row {
            // Fine bits of the row are 0 at its start.
            entry: table.summand(start),
            rise,
            base,
        }
    }

    /// All rows that arguments have.
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.runs.iter().map(|(_, row)| row)
    }

    /// Whether all rows of a node are one.
    fn is_uniform(&self, first: i64, bits: u32) -> bool {
        let place = |index: i64| self.runs.partition_point(|(start, _)| *start <= index);
        place(first) == place(first + (1i64 << bits) - 1)
    }

    /// The indices of rows with entries that arguments have.
    fn window(&self) -> Range<i64> {
        let (low, high) = (self.low >> self.grain, self.high >> self.grain);
        let first = i64::from(self.table.first);
        let end = first + self.table.entries.len() as i64;
        let [first, end] = [first, end].map(|place| place << (self.table.drop - self.grain));
        first.clamp(low, high + 1)..end.clamp(low, high + 1)
    }

    /// Indices from which on rows may change, in order, the least first.
    fn changes(&self, window: Range<i64>) -> Vec<i64> {
        let grain = self.grain;
        let ends = [self.from.0 >> grain, 0, self.beyond.0 >> grain, window.end];
        let (low, high) = (self.low >> grain, self.high >> grain);
        let all = window.chain(ends);
        let all = all.filter(|index| (low..=high).contains(index));
        let mut all: Vec<i64> = all.chain([low]).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The steps of a row's fine bits, together at least and at most.
    fn steps(&self, row: &Row) -> (i64, i64) {
        let steps = self
            .fine()
            .map(|(bit, _)| self.table.step_of(row.rise, bit));
        steps.fold((0, 0), |(falls, rises), step| {
            (falls + step.min(0), rises + step.max(0))
        })
    }
}

/// The bits of an argument, as far as they are needed.
struct Argument {
    /// The carry into its lowest bit.
    carry: Option<Plane>,
    /// The place of the first of the bits.
    first: u32,
    bits: Vec<Plane>,
}

impl Argument {
    fn new(builder: &mut Builder, lookup: &Lookup<'_>, word: Word, drop: u32) -> Self {
        let fine = lookup.fine().map(|(_, place)| place);
        let first = fine.min().unwrap_or(lookup.grain).min(lookup.bits - 1);
        let (carry, into) = match lookup.table.rectified {
            true => {
                let carry = low_carry(builder, word, drop);
                let over = builder.carry(word, drop..drop + first, carry.is_some());
                let into = over.map(|over| over.out(builder, carry));
                (carry, into.or(carry))
            }
            false => (None, low_carry(builder, word, drop + first)),
        };
        let bits = builder.sum_bits(word, drop + first..drop + lookup.bits, into);
        Self { carry, first, bits }
    }

    /// A bit, by its place.
    fn bit(&self, place: u32) -> Plane {
        let bit = place.saturating_sub(self.first) as usize;
        // Beyond the last all are as the sign.
        self.bits[bit.min(self.bits.len() - 1)]
    }
}

/// A row's bits.
struct Bits {
    /// Of the entry beyond the least, and of the rise in two's complement, lowest first.
    entry: Vec<Signal>,
    rise: Vec<Signal>,
    linear: Signal,
    below: Signal,
    beyond: Signal,
}

/// How the bits of a row are laid out.
struct Layout {
    least: i64,
    entry: u32,
    rise: u32,
}

impl Layout {
    fn of(lookup: &Lookup<'_>) -> Self {
        let entries = lookup.rows().map(|row| row.entry);
        let (least, most) = entries.fold((i64::MAX, i64::MIN), |(least, most), entry| {
            (least.min(entry), most.max(entry))
        });
        Self {
            least,
            entry: signed_width(0, most - least) - 1,
            rise: lookup.rise,
        }
    }

    /// All bits of a row: entry, rise, base.
    fn bits(&self, row: &Row) -> Vec<bool> {
        let bit = |value: i64| move |bit: u32| value >> bit & 1 == 1;
        let entry = (0..self.entry).map(bit(row.entry - self.least));
        let rise = (0..self.rise).map(bit(row.rise.into()));
        let bases = [Base::Linear, Base::Below, Base::Beyond];
        let bases = bases.map(|base| row.base == base);
        entry.chain(rise).chain(bases).collect()
    }
}

/// A node of the tree of indices: those of some bits from the first on.
#[derive(Clone, Copy)]
struct Node {
    select: Signal,
    first: i64,
    bits: u32,
}

impl Lookup<'_> {
    /// Looks the argument's row up.
    fn row(&self, builder: &mut Builder, argument: &Argument) -> Bits {
        let layout = Layout::of(self);
        let index: Vec<Plane> = (0..self.index_bits())
            .map(|bit| argument.bit(self.grain + bit))
            .collect();
        let factors = self.factors(&layout);
        let leaves = self.leaves(builder, &index, factors);
        let mut signals = self.select(builder, &layout, &leaves, factors);
        for (bit, &plane) in (0..factors).zip(&index).rev() {
            multiply(builder, &mut signals, plane, 1 << bit);
        }
        let all = signals.swap_remove(0);
        let (entry, rest) = all.split_at(layout.entry as usize);
        let (rise, base) = rest.split_at(layout.rise as usize);
        Bits {
            entry: entry.into(),
            rise: rise.into(),
            linear: base[0],
            below: base[1],
            beyond: base[2],
        }
    }

    /// How many nodes of each level, the highest first, have rows that differ.
    fn splits(&self) -> Vec<usize> {
        let mut nodes = vec![(-(1i64 << (self.index_bits() - 1)), self.index_bits())];
        let mut splits = Vec::new();
        for _ in 0..self.index_bits() {
            nodes.retain(|&(first, bits)| !self.is_uniform(first, bits));
            splits.push(nodes.len());
            let halves = |(first, bits): (i64, u32)| {
                let bits = bits - 1;
                [(first, bits), (first + (1 << bits), bits)]
            };
            nodes = nodes.into_iter().flat_map(halves).collect();
        }
        splits
    }

    /// How many bits of the index are factors.
    fn factors(&self, layout: &Layout) -> u32 {
        let splits = self.splits();
        let row = (layout.entry + layout.rise + 2) as usize;
        let product = |rights: usize| match rights {
            0 => 0,
            _ => {
                let strings = rights.div_ceil(super::program::MOST_STRINGS);
                2 * (strings + rights) + 2 * strings * BITS_OF_OT
            }
        };
        let cost = |&factors: &u32| {
            let tree = splits.iter().take(splits.len() - factors as usize);
            // Bits of the first split select without a product.
            let tree = tree.skip(1).map(|&nodes| product(nodes));
            let factors = (0..factors).map(|bit| product(row << bit));
            tree.chain(factors).sum::<usize>()
        };
        let most = MOST_FACTORS.min(self.index_bits());
        (0..=most).min_by_key(cost).unwrap_or(0)
    }

    /// Nodes whose rows differ in the lowest bits of the index alone, one of which is selected.
    fn leaves(&self, builder: &mut Builder, index: &[Plane], lowest: u32) -> Vec<Node> {
        let bits = self.index_bits();
        let root = Node {
            select: Signal::One,
            first: -(1i64 << (bits - 1)),
            bits,
        };
        let (mut open, mut leaves) = (vec![root], Vec::new());
        for bit in (lowest..bits).rev() {
            let (uniform, split): (Vec<Node>, Vec<Node>) = open
                .into_iter()
                .partition(|node| self.is_uniform(node.first, node.bits));
            leaves.extend(uniform);
            let selects: Vec<Signal> = split.iter().map(|node| node.select).collect();
            let set = times(builder, index[bit as usize], &selects);
            // The first bit is the sign: where it is set are the lower indices.
            let sign = bit + 1 == bits;
            open = Vec::with_capacity(2 * split.len());
            for (node, set) in split.iter().zip(set) {
                let unset = sum(builder, node.select, set);
                let selects = if sign { [set, unset] } else { [unset, set] };
                open.extend([0, 1].map(|half| Node {
                    select: selects[half],
                    first: node.first + ((half as i64) << bit),
                    bits: bit,
                }));
            }
        }
        leaves.extend(open);
        leaves
    }

    /// Rows by the selected leaf, as coefficients of the products of the lowest bits' subsets.
    fn select(
        &self,
        builder: &mut Builder,
        layout: &Layout,
        leaves: &[Node],
        lowest: u32,
    ) -> Vec<Vec<Signal>> {
        let rows = |node: &Node| {
            let count = 1i64 << lowest;
            // A wide node has one row.
            let at = |place: i64| match node.bits == lowest {
                true => node.first + place,
                false => node.first,
            };
            // In the root the first index is that with the sign alone.
            let sign = if lowest == self.index_bits() {
                count / 2
            } else {
                0
            };
            let rows = (0..count).map(|place| layout.bits(&self.at(at(place ^ sign))));
            coefficients(rows.collect())
        };
        let of_leaves: Vec<Vec<Vec<bool>>> = leaves.iter().map(rows).collect();
        let signal = |builder: &mut Builder, place: usize, bit: usize| {
            let chosen: Vec<bool> = of_leaves.iter().map(|rows| rows[place][bit]).collect();
            any(builder, leaves, &chosen)
        };
        let bits = layout.bits(&self.at(0)).len();
        (0..1 << lowest)
            .map(|place| (0..bits).map(|bit| signal(builder, place, bit)).collect())
            .collect()
    }
}

/// The Moebius transform: sums of rows over all subsets.
fn coefficients(mut rows: Vec<Vec<bool>>) -> Vec<Vec<bool>> {
    for bit in 0..rows.len().ilog2() {
        for place in (0..rows.len()).filter(|place| place >> bit & 1 == 1) {
            let other = rows[place ^ 1 << bit].clone();
            rows[place].iter_mut().zip(other).for_each(|(x, y)| *x ^= y);
        }
    }
    rows
}

/// Whether a chosen node is selected. One of all is.
fn any(builder: &mut Builder, nodes: &[Node], chosen: &[bool]) -> Signal {
    let count = chosen.iter().filter(|chosen| **chosen).count();
    // The fewer of them, or of the others.
    let others = 2 * count > chosen.len();
    let kept = nodes.iter().zip(chosen);
    let kept = kept.filter(|(_, chosen)| **chosen != others);
    let (mut one, mut planes) = (others, Vec::new());
    for (node, _) in kept {
        match node.select {
            Signal::Zero => {}
            Signal::One => one = !one,
            Signal::Plane(plane) => planes.push(plane),
        }
    }
    match (&planes[..], one) {
        ([], false) => Signal::Zero,
        ([], true) => Signal::One,
        (&[plane], false) => Signal::Plane(plane),
        (planes, one) => Signal::Plane(builder.xor_with(planes, one)),
    }
}

fn sum(builder: &mut Builder, x: Signal, y: Signal) -> Signal {
    match (x, y) {
        (Signal::Zero, other) | (other, Signal::Zero) => other,
        (Signal::One, Signal::One) => Signal::Zero,
        (Signal::One, Signal::Plane(plane)) | (Signal::Plane(plane), Signal::One) => {
            Signal::Plane(builder.not(plane))
        }
        (Signal::Plane(x), Signal::Plane(y)) => Signal::Plane(builder.xor(&[x, y])),
    }
}

/// A bit times each of some signals.
fn times(builder: &mut Builder, bit: Plane, signals: &[Signal]) -> Vec<Signal> {
    let planes = signals.iter().filter_map(|signal| match signal {
        Signal::Plane(plane) => Some(*plane),
        _ => None,
    });
    let planes: Vec<Plane> = planes.collect();
    let mut products = builder.products(bit, &planes).into_iter();
    let of = |signal: &Signal| match signal {
        Signal::Zero => Signal::Zero,
        Signal::One => Signal::Plane(bit),
        Signal::Plane(_) => products.next().map_or(Signal::Zero, Signal::Plane),
    };
    signals.iter().map(of).collect()
}

/// Adds the coefficients with a subset's bit, times the bit, to those without.
fn multiply(builder: &mut Builder, signals: &mut Vec<Vec<Signal>>, bit: Plane, count: usize) {
    let above = signals.split_off(count);
    let flat: Vec<Signal> = above.concat();
    let mut products = times(builder, bit, &flat).into_iter();
    for below in signals.iter_mut().flatten() {
        let product = products.next().unwrap_or(Signal::Zero);
        *below = sum(builder, *below, product);
    }
}

impl Lookup<'_> {
    /// The row's entry and steps.
    fn summand(
        &self,
        builder: &mut Builder,
        argument: &Argument,
        row: &Bits,
        output: Modulus,
    ) -> Result<Word, CircuitError> {
        let layout = Layout::of(self);
        let reach = self.rows().map(|row| {
            let (falls, rises) = self.steps(row);
            (row.entry + falls, row.entry + rises)
        });
        let (low, high) = reach.fold((i64::MAX, i64::MIN), |(low, high), row| {
            (low.min(row.0), high.max(row.1))
        });
        if low == high {
            return Ok(builder.sum(&[], low, output));
        }
        // From 0 on, with a spare bit that makes wraps visible.
        let modulus = Modulus::power_of_two(signed_width(0, high - low))?;
        let mut terms = Vec::new();
        for (&bit, place) in row.entry.iter().zip(0u32..) {
            if let Some(number) = number(builder, bit, modulus_of_wraps(modulus, place)) {
                terms.push((number, 1i64 << place));
            }
        }
        terms.extend(self.products(builder, argument, &row.rise, modulus));
        let word = builder.sum(&terms, layout.least - low, modulus);
        let word = builder.extend(word, output);
        Ok(builder.sum(&[(word, 1)], low, output))
    }

    /// The products of the rise's bits with sums of fine bits.
    fn products(
        &self,
        builder: &mut Builder,
        argument: &Argument,
        rise: &[Signal],
        modulus: Modulus,
    ) -> Vec<(Word, i64)> {
        let number = |(bit, place): (u32, u32)| {
            let number = builder.number_of(argument.bit(place), modulus);
            (self.table.fine - bit, number)
        };
        let bits: Vec<(u32, Word)> = self.fine().map(number).collect();
        let top = rise.len().saturating_sub(1) as u32;
        let mut products = Vec::new();
        for (&signal, place) in rise.iter().zip(0u32..) {
            let terms = bits
                .iter()
                .map(|&(below, word)| (word, multiple(place, below, top)));
            let terms: Vec<(Word, i64)> = terms.filter(|(_, multiple)| *multiple != 0).collect();
            if terms.is_empty() {
                continue;
            }
            let factor = builder.sum(&terms, 0, modulus);
            match signal {
                Signal::Zero => {}
                Signal::One => products.push((factor, 1)),
                Signal::Plane(plane) => products.push((builder.multiplex(plane, factor), 1)),
            }
        }
        products
    }

    /// The base, where there is one.
    fn base(
        &self,
        builder: &mut Builder,
        (word, drop): (Word, u32),
        argument: &Argument,
        row: &Bits,
        output: Modulus,
    ) -> Result<Option<Word>, CircuitError> {
        let ends = [self.low.max(self.from.1), self.high.min(self.beyond.1)];
        let most = ends.map(|end| self.table.base(end)).into_iter().max();
        let most = most.unwrap_or(0);
        if most == 0 {
            return Ok(None);
        }
        let bits = signed_width(0, most);
        let modulus = Modulus::power_of_two(bits)?;
        let mut terms = Vec::new();
        let kept = floor(builder, word, drop, argument.carry, bits)?;
        match row.linear {
            Signal::Zero => {}
            Signal::One => terms.push((kept, 1)),
            Signal::Plane(plane) => terms.push((builder.multiplex(plane, kept), 1)),
        }
        for (signal, end) in [(row.below, self.from.1), (row.beyond, self.beyond.1)] {
            if let Some(number) = number(builder, signal, modulus) {
                terms.push((number, self.table.base(end)));
            }
        }
        let word = builder.sum(&terms, 0, modulus);
        Ok(Some(builder.extend(word, output)))
    }
}

/// What bit `place` of a rise counts for the step of a fine bit, `2^below` parts of a rise: in the
/// quotient's floor, and in what rounds it. The top bit is the sign.
fn multiple(place: u32, below: u32, top: u32) -> i64 {
    let round = i64::from(place == top.min(below - 1));
    let floor = match (place >= below, place == top) {
        (true, true) => -(1i64 << (place - below)),
        (true, false) => 1i64 << (place - below),
        // The sign of what is dropped entirely.
        (false, true) => -1,
        (false, false) => 0,
    };
    floor + round
}

/// A bit as a number; `None` of one that is always 0.
fn number(builder: &mut Builder, bit: Signal, modulus: Modulus) -> Option<Word> {
    match bit {
        Signal::Zero => None,
        Signal::One => Some(builder.sum(&[], 1, modulus)),
        Signal::Plane(plane) => Some(builder.number_of(plane, modulus)),
    }
}
