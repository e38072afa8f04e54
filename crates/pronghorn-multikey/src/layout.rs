//! The places of a value's elements in the slots of ciphertexts.

use std::collections::BTreeMap;

/// A slot of a ciphertext of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The ciphertext.
    pub ciphertext: usize,
    /// The slot, below the period of the ciphertext.
    pub slot: usize,
}

/// The places of a value's elements. Public: it follows from the architecture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// For each ciphertext the distance at which its elements are repeated, a power of two.
    pub periods: Vec<usize>,
    /// The place of each element; an element without one is zero.
    pub places: Vec<Option<Place>>,
    /// True if the other slots are zero. Otherwise they hold partial sums, or elements that were
    /// left out. These depend on the weights: nobody may decrypt them, and later layers multiply
    /// them by zero.
    pub clean: bool,
}

/// A slot, and the weight or element that belongs into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The slot.
    pub slot: usize,
    /// The index of the weight or element.
    pub index: usize,
}

impl Layout {
    /// Elements one after the other, repeated as often as they fit.
    pub fn in_order(elements: usize, slots: usize) -> Self {
        let period = elements.next_power_of_two().min(slots);
        let place = |element| Place {
            ciphertext: element / period,
            slot: element % period,
        };
        Self {
            periods: vec![period; elements.div_ceil(period).max(1)],
            places: (0..elements).map(|element| Some(place(element))).collect(),
            clean: true,
        }
    }

    /// True if every element has the places that it has there, with all of its repetitions.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.places == other.places && self.periods == other.periods
    }

    /// Ciphertexts of the value.
    pub fn ciphertexts(&self) -> usize {
        self.periods.len()
    }

    /// The largest distance at which elements are repeated: all are at this one, too.
    pub fn period(&self) -> usize {
        self.periods.iter().copied().max().unwrap_or(1)
    }

    /// The least: copies of an element are that close.
    pub fn least_period(&self) -> usize {
        self.periods.iter().copied().min().unwrap_or(1)
    }

    /// True if elements share a slot.
    pub fn has_copies(&self) -> bool {
        let mut firsts = self.firsts().into_iter().enumerate();
        firsts.any(|(element, first)| first < element)
    }

    /// For each element the first one in its slot: errors of elements in one slot are one error.
    pub fn firsts(&self) -> Vec<usize> {
        let mut first_in = BTreeMap::new();
        let places = self.places.iter().enumerate();
        let first = |(element, place): (usize, &Option<Place>)| match place {
            Some(x) => *first_in.entry((x.ciphertext, x.slot)).or_insert(element),
            None => element,
        };
        places.map(first).collect()
    }

    /// The slots of each ciphertext with the elements that belong there, below the period.
    pub fn spots(&self) -> Vec<Vec<Spot>> {
        let mut spots = vec![Vec::new(); self.ciphertexts()];
        for (index, place) in self.places.iter().enumerate() {
            if let Some(Place { ciphertext, slot }) = *place {
                spots[ciphertext].push(Spot { slot, index });
            }
        }
        spots
    }
}

/// All slots: `value` of each spot, repeated at distance `period`, and zero elsewhere. Values of
/// one slot add up: a layer that reads two copies of an element has the sum of their weights.
pub fn fill(slots: usize, period: usize, spots: &[Spot], value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut out = vec![0.0; slots];
    for spot in spots {
        let value = value(spot.index);
        out.iter_mut()
            .skip(spot.slot)
            .step_by(period)
            .for_each(|out| *out += value);
    }
    out
}
