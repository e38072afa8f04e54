//! Estimated bytes of a table in a garbled circuit, without building the circuit.
//!
//! `pronghorn_mpc::circuit` builds it: `table.rs` for constants, `segments.rs` for linear pieces.
//! An AND gate takes 32 bytes. A bit that is projected onto a share of `k` bits takes `k` bits, and
//! `i` fewer where its weight is a multiple of `2^i`. A product projects twice.

use std::collections::BTreeSet;

use super::Table;

/// Bytes of an AND gate.
const GATE: usize = 32;

impl Table {
    /// Bytes of the summand's lookup for one value, about, in shares of `bits` bits. Neither the
    /// base nor the comparison with the window is counted: all tables have them.
    pub fn circuit_bytes(&self, bits: u32) -> usize {
        if self.fine > 0 {
            return self.segment_bytes(bits as usize);
        }
        let entries = self.by_index(|place| i64::from(self.entries[place]));
        let cuts = (0..=entries.len().ilog2()).map(|low| block_bytes(&entries, low, bits as usize));
        cuts.min().unwrap_or(0)
    }

    /// Entries by the low bits of `x >> drop`.
    fn by_index<T>(&self, entry: impl Fn(usize) -> T) -> Vec<T> {
        let count = self.entries.len();
        let mut entries: Vec<T> = (0..count).map(entry).collect();
        entries.rotate_right(self.first.rem_euclid(count.max(1) as i32) as usize);
        entries
    }

    /// A gate for each segment but the first, and the multiples of each bit.
    fn segment_bytes(&self, bits: usize) -> usize {
        let entries = self.by_index(|place| i64::from(self.entries[place]));
        let steps = |place| (0..self.fine).map(|bit| self.step(place, bit)).collect();
        let mut segments = Vec::new();
        segments_of(&entries, &self.by_index(steps), &mut segments);
        let projected = selected_bits(segments.iter().map(|(constant, _)| *constant), bits);
        let longest = segments.iter().map(|(_, multiples)| multiples.len());
        let multiple = |i| {
            let values = segments
                .iter()
                .filter_map(|(_, multiples)| multiples.get(i));
            match selected_bits(values.copied(), bits) {
                0 => 0,
                terms => 2 * (bits + terms),
            }
        };
        let products: usize = (0..longest.max().unwrap_or(0)).map(multiple).sum();
        GATE * (segments.len() - 1) + (projected + products) / 8
    }
}

/// For constants: high bits of the index become bits of which one is set, the `low` others
/// products.
fn block_bytes(entries: &[i64], low: u32, bits: usize) -> usize {
    let mut used = vec![false; 1 << low];
    let (mut blocks, mut projected) = (0, 0);
    for block in entries.chunks(1 << low) {
        let mut multiples = block.to_vec();
        for bit in 0..low {
            for subset in (0..multiples.len()).filter(|subset| subset >> bit & 1 == 1) {
                multiples[subset] -= multiples[subset ^ 1 << bit];
            }
        }
        let set = multiples.iter().enumerate().skip(1);
        let set: Vec<usize> = set.filter(|(_, x)| **x != 0).map(|(i, _)| i).collect();
        set.iter().for_each(|&subset| used[subset] = true);
        projected += match (set.len(), multiples[0]) {
            (0, 0) => 0,
            (0, _) => bits,
            (products, _) => 2 * bits * (products + 1),
        };
        blocks += 1;
    }
    for subset in (1..used.len()).rev() {
        used[subset ^ 1 << subset.ilog2()] |= used[subset];
    }
    let products = used.iter().enumerate().skip(1);
    let products = products.filter(|(subset, used)| **used && !subset.is_power_of_two());
    GATE * (blocks + products.count()) + projected / 8
}

/// A segment's constant, and the multiples of its bits.
type Segment = (i64, Vec<i64>);

/// Aligned halves with the same multiples are one segment.
fn segments_of(entries: &[i64], steps: &[Vec<i64>], segments: &mut Vec<Segment>) {
    if let ([entry], [steps]) = (entries, steps) {
        segments.push((*entry, steps.clone()));
        return;
    }
    let (half, start) = (entries.len() / 2, segments.len());
    segments_of(&entries[..half], &steps[..half], segments);
    let middle = segments.len();
    segments_of(&entries[half..], &steps[half..], segments);
    if middle == start + 1 && segments.len() == start + 2 && segments[start].1 == segments[middle].1
    {
        let (high, _) = segments.pop().expect("there are two");
        let (low, multiples) = &mut segments[start];
        multiples.push(high - *low);
    }
}

/// Projected bits of a value that one of some bits selects: by distinct values or in binary.
fn selected_bits(values: impl Iterator<Item = i64>, bits: usize) -> usize {
    let distinct: BTreeSet<i64> = values.filter(|&value| value != 0).collect();
    let (Some(&least), Some(&most)) = (distinct.first(), distinct.last()) else {
        return 0;
    };
    let projected = |twos: u32| bits.saturating_sub(twos as usize).max(1);
    let by_value = distinct
        .iter()
        .map(|value| projected(value.trailing_zeros()));
    let width = 65 - least.max(!least).max(most.max(!most)).leading_zeros();
    let places = (0..width).filter(|i| distinct.iter().any(|value| value >> i & 1 == 1));
    by_value.sum::<usize>().min(places.map(projected).sum())
}
