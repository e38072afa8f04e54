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
        let mut of = |value: &dyn Fn(&Segment) -> i64| {
            let values = segments.iter().map(|(bit, segment)| (*bit, value(segment)));
            selected(builder, modulus, &values.collect::<Vec<_>>())
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

/// The value of the bit that is set, 0 for none; at most one is. By distinct values, or in two's
/// complement: whichever projects to fewer bits.
fn selected(builder: &mut Builder, modulus: Modulus, values: &[(Bit, i64)]) -> Vec<Term> {
    let distinct: BTreeSet<i64> = values.iter().map(|&(_, value)| value).collect();
    let distinct: Vec<i64> = distinct.into_iter().filter(|&value| value != 0).collect();
    let (Some(&least), Some(&most)) = (distinct.first(), distinct.last()) else {
        return Vec::new();
    };
    let mut any = |chosen: &dyn Fn(i64) -> bool| {
        let bits = values.iter().filter(|(_, value)| chosen(*value));
        bits.fold(Bit::ZERO, |any, &(bit, _)| builder.xor(any, bit))
    };
    let top = signed_width(least, most) - 1;
    let places = (0..=top).filter(|i| distinct.iter().any(|value| value >> i & 1 == 1));
    let weight = |i: u32| if i == top { -(1i64 << i) } else { 1 << i };
    let by_bit: Vec<u32> = places.collect();
    let bits = |factors: &mut dyn Iterator<Item = i64>| -> u32 {
        let of = |factor| modulus.without_twos(modulus.from_i64(factor)).2.bits();
        factors.map(of).sum()
    };
    let term = |bit, factor| Term {
        bit,
        weight: modulus.from_i64(factor),
    };
    if bits(&mut distinct.iter().copied()) <= bits(&mut by_bit.iter().map(|&i| weight(i))) {
        let terms = distinct
            .iter()
            .map(|&value| term(any(&|x| x == value), value));
        return terms.collect();
    }
    let terms = by_bit
        .iter()
        .map(|&i| term(any(&|x| x >> i & 1 == 1), weight(i)));
    terms.collect()
}
