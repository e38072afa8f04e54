//! How large residues may grow between the stages of a transform, and how they are made small
//! again.
//!
//! The multiplier has room for residues below `2^room q`, and takes any; so a residue is made
//! smaller only before it would outgrow that (Harvey, "Faster arithmetic for number-theoretic
//! transforms", 2014, does so at every stage). Where there is just one bit of room, products are
//! reduced as well, and all residues are below `2q` or `q`.

use crate::Prime;
use crate::simd::lanes::Lanes;
use crate::simd::residues::{Residues, largest, splat};

/// Most bits of room that the forward transform uses without a fused multiplier: each bit more
/// costs a comparison for every word in the end, and saves ever less on the way.
const MOST_COMPARISONS: u32 = 4;

/// The moduli in lanes and the plan of one transform.
pub struct Bounds<L: Lanes, const TIGHT: bool> {
    lanes: L,
    residues: Residues<L>,
    /// `2^(room - 1) q`: what is below `2^room q` and at least this, loses it.
    half: L::Vector,
    /// A multiple of `q` that keeps the differences of the first stages above zero.
    first_lift: L::Vector,
    /// A multiple of `q` that keeps the differences of the stages between two reductions above zero
    /// ...
    lift: L::Vector,
    /// ... and the same as the number of `q` not subtracted, modulo `2^BITS`.
    minus_lifts: L::Vector,
    /// `2^i q` for `i < room`.
    multiples: [L::Vector; MOST_COMPARISONS as usize],
    room: u32,
    /// Bit `d`: the stage of `2^d` groups makes residues smaller.
    shrinking_stages: u32,
}

impl<L: Lanes, const TIGHT: bool> Bounds<L, TIGHT> {
    /// For the forward transform of `stages` stages: products are in `(-q, q)`, so a stage widens
    /// the range by `2q`.
    #[inline(always)]
    pub fn forward(lanes: L, q: &Prime<L::Word>, stages: u32) -> Self {
        let most = if L::FUSED { L::BITS } else { MOST_COMPARISONS };
        let room = (L::BITS - q.bits()).min(most);
        // Ranges in q: all there is, and what `shrink` leaves of it.
        let (whole, shrunk) = if L::FUSED {
            (largest(L::BITS) / q.value(), 2)
        } else {
            (1 << room, 1 << (room - 1))
        };
        // Stages from the beginning, where the range is q, and from one reduction to the next.
        let first = ((whole - 1) / 2).min(u64::from(stages)) as u32;
        let apart = ((whole - shrunk) / 2).clamp(1, u64::from(stages)) as u32;
        let due = |stage: u32| stage >= first && (stage - first).is_multiple_of(apart);
        Self {
            first_lift: splat(lanes, q.value() * u64::from(first)),
            lift: splat(lanes, q.value() * u64::from(apart)),
            minus_lifts: splat(lanes, u64::from(apart).wrapping_neg()),
            shrinking_stages: stage_set(stages, due),
            ..Self::new(lanes, q, room)
        }
    }

    /// For the inverse transform: products are in `[0, 2q)`, and a stage doubles the range of sums.
    #[inline(always)]
    pub fn inverse(lanes: L, q: &Prime<L::Word>, stages: u32) -> Self {
        let room = L::BITS - q.bits();
        let due = |stage: u32| {
            let done = stages - stage;
            if L::FUSED {
                done.is_multiple_of(room - 1)
            } else {
                done >= room
            }
        };
        Self {
            shrinking_stages: stage_set(stages, due),
            ..Self::new(lanes, q, room)
        }
    }

    /// Without stages.
    #[inline(always)]
    fn new(lanes: L, q: &Prime<L::Word>, room: u32) -> Self {
        let mut multiples = [splat(lanes, 0); MOST_COMPARISONS as usize];
        for (i, multiple) in multiples.iter_mut().enumerate() {
            *multiple = splat(lanes, q.value() << i);
        }
        Self {
            lanes,
            residues: Residues::new(lanes, q),
            half: splat(lanes, q.value() << (room - 1)),
            first_lift: splat(lanes, 0),
            lift: splat(lanes, 0),
            minus_lifts: splat(lanes, 0),
            multiples,
            room,
            shrinking_stages: 0,
        }
    }
}

impl<L: Lanes, const TIGHT: bool> Bounds<L, TIGHT> {
    /// The arithmetic within these bounds.
    #[inline(always)]
    pub fn residues(&self) -> &Residues<L> {
        &self.residues
    }

    /// True if the stage of `2^stage` groups makes residues smaller.
    #[inline(always)]
    pub fn shrinks(&self, stage: u32) -> bool {
        TIGHT || self.shrinking_stages >> stage & 1 == 1
    }

    /// A residue below `q`, made large enough for the first stages.
    #[inline(always)]
    pub fn first_lift(&self, x: L::Vector) -> L::Vector {
        self.lanes.add(x, self.first_lift)
    }

    /// From below `2^room q` to below `2^(room - 1) q`, or below `2q` with a fused multiplier.
    #[inline(always)]
    pub fn shrink(&self, x: L::Vector) -> L::Vector {
        if L::FUSED {
            self.residues.shrink(x)
        } else {
            self.lanes.min(x, self.lanes.sub(x, self.half()))
        }
    }

    /// [`shrink`](Self::shrink), and `lift` added.
    #[inline(always)]
    pub fn shrink_and_lift(&self, x: L::Vector) -> L::Vector {
        if L::FUSED {
            let quotient = self.residues.add_quotient(self.minus_lifts, x);
            self.residues.subtract_multiple(x, quotient)
        } else {
            self.lanes.add(self.shrink(x), self.lift)
        }
    }

    /// From below `2^room q` to below `q`.
    #[inline(always)]
    pub fn reduce(&self, mut x: L::Vector) -> L::Vector {
        if L::FUSED {
            return self.residues.reduce(x);
        }
        for i in (0..self.room as usize).rev() {
            x = self.lanes.min(x, self.lanes.sub(x, self.multiples[i]));
        }
        x
    }

    /// Half of what there is room for; spares a register where that is `q`.
    #[inline(always)]
    fn half(&self) -> L::Vector {
        if TIGHT { self.residues.q } else { self.half }
    }

    /// `x - y` and a multiple of `q` that makes it positive, for inputs of an inverse stage.
    #[inline(always)]
    pub fn difference(&self, x: L::Vector, y: L::Vector) -> L::Vector {
        self.lanes.sub(self.lanes.add(x, self.half()), y)
    }
}

/// Bit `d` for each stage `d` of the transform that meets the condition.
#[inline(always)]
fn stage_set(stages: u32, condition: impl Fn(u32) -> bool) -> u32 {
    let mut set = 0;
    for stage in 0..stages {
        set |= u32::from(condition(stage)) << stage;
    }
    set
}
