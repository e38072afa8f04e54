//! Tables with linear pieces: segments of arguments on which the value is a sum of multiples of
//! bits.
//!
//! Two halves of an aligned range of entries are one segment where all steps agree: the bit of the
//! index that tells them apart then adds a constant, too. So wide pieces of a function are wide
//! segments, though all entries of a table are equally wide. A bit for each of `n` segments takes
//! about `n - 1` AND gates. At most one of these bits is set, so that any function of the segment
//! is an XOR of them, bit by bit, and free. Each bit of the argument is multiplied by its multiple
//! as shares ([`Sum::add_product`]): `2 k (w + 1)` projected bits for a multiple of `w` bits and
//! shares of `k` bits, however many segments there are.

use std::collections::BTreeSet;

use super::share::signed_width;
use super::{Bit, Builder, Modulus, Sum, Term};

/// Entries by the bits of their index, the highest first.
pub(super) enum Tree {
    Segment(Segment),
    Split(Box<[Tree; 2]>),
}

/// `constant + sum of multiples[i] * bit i` of an argument's place in the segment.
pub(super) struct Segment {
    constant: i64,
    multiples: Vec<i64>,
}

impl Tree {
    /// The tree of the entries and their steps, a power of two of each.
    pub fn new(entries: &[i64], steps: &[Vec<i64>]) -> Self {
        if let ([entry], [steps]) = (entries, steps) {
            return Self::Segment(Segment {
                constant: *entry,
                multiples: steps.clone(),
            });
        }
        let half = entries.len() / 2;
        let (below, above) = (entries.split_at(half), steps.split_at(half));
        match (Self::new(below.0, above.0), Self::new(below.1, above.1)) {
            (Self::Segment(mut low), Self::Segment(high)) if low.multiples == high.multiples => {
                low.multiples.push(high.constant - low.constant);
                Self::Segment(low)
            }
            (low, high) => Self::Split(Box::new([low, high])),
        }
    }

    /// Adds the value at a place, its bits the lowest first, where `select` is set.
    pub fn add_to(&self, builder: &mut Builder, select: Bit, place: &[Bit], sum: &mut Sum) {
        let mut segments = Vec::new();
        self.select(builder, select, place, &mut segments);
        let modulus = sum.modulus();
        let selects = Selects::new(builder, segments.iter().map(|(bit, _)| *bit));
        let mut of = |value: &dyn Fn(&Segment) -> i64| {
            let values: Vec<i64> = segments.iter().map(|(_, segment)| value(segment)).collect();
            selects.value(builder, modulus, &values)
        };
        sum.add_terms(of(&|segment| segment.constant));
        for (i, &bit) in place.iter().enumerate() {
            let multiple = of(&|segment| segment.multiples.get(i).copied().unwrap_or(0));
            sum.add_product(bit, multiple);
        }
    }

    /// The segments, each with a bit that says whether the place is in it and `select` is set.
    fn select<'t>(
        &'t self,
        builder: &mut Builder,
        select: Bit,
        place: &[Bit],
        segments: &mut Vec<(Bit, &'t Segment)>,
    ) {
        match (self, place) {
            (Self::Segment(segment), _) => segments.push((select, segment)),
            (Self::Split(halves), [rest @ .., bit]) => {
                let high = builder.and(select, *bit);
                let low = builder.xor(select, high);
                halves[0].select(builder, low, rest, segments);
                halves[1].select(builder, high, rest, segments);
            }
            (Self::Split(_), []) => unreachable!("a place has a bit for each split"),
        }
    }
}

/// Bits of which at most one is set.
struct Selects {
    /// Whether one of the first `i` is.
    before: Vec<Bit>,
}

impl Selects {
    fn new(builder: &mut Builder, bits: impl Iterator<Item = Bit>) -> Self {
        let mut before = vec![Bit::ZERO];
        for bit in bits {
            let next = builder.xor(before[before.len() - 1], bit);
            before.push(next);
        }
        Self { before }
    }

    /// Whether one of the chosen is set. Neighbours are alike, so that each run of them is taken at
    /// once.
    fn any(&self, builder: &mut Builder, chosen: impl Fn(usize) -> bool) -> Bit {
        let (mut any, mut last) = (Bit::ZERO, false);
        for (i, &before) in self.before.iter().enumerate() {
            let next = i + 1 < self.before.len() && chosen(i);
            if next != last {
                any = builder.xor(any, before);
            }
            last = next;
        }
        any
    }

    /// The value of the one that is set, 0 for none: by distinct values or in two's complement,
    /// whichever projects to fewer bits.
    fn value(&self, builder: &mut Builder, modulus: Modulus, values: &[i64]) -> Vec<Term> {
        let distinct: BTreeSet<i64> = values.iter().copied().filter(|&x| x != 0).collect();
        let (Some(&least), Some(&most)) = (distinct.first(), distinct.last()) else {
            return Vec::new();
        };
        let top = signed_width(least, most) - 1;
        let places = (0..=top).filter(|i| distinct.iter().any(|x| x >> i & 1 == 1));
        let places = places.map(|i| (i, if i == top { -(1i64 << i) } else { 1 << i }));
        let places: Vec<(u32, i64)> = places.collect();
        let bits = |factor: i64| modulus.without_twos(modulus.from_i64(factor)).2.bits();
        let by_value: u32 = distinct.iter().map(|&value| bits(value)).sum();
        let by_place: u32 = places.iter().map(|&(_, weight)| bits(weight)).sum();
        let term = |bit, factor| Term {
            bit,
            weight: modulus.from_i64(factor),
        };
        if by_value <= by_place {
            let terms = distinct.iter();
            let terms = terms.map(|&x| term(self.any(builder, |i| values[i] == x), x));
            return terms.collect();
        }
        let terms = places.iter().map(|&(place, weight)| {
            let set = self.any(builder, |i| values[i] >> place & 1 == 1);
            term(set, weight)
        });
        terms.collect()
    }
}
