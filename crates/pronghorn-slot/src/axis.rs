//! One axis of a convolution: which of its taps are rotations, which are ciphertexts, which are
//! points.
//!
//! A stride `s` splits an axis into `s` phases with stride 1 (Gazelle, section VI, figure 11): what
//! phase `a` holds at `p` is input `p s + a`, and tap `k` reads phase `(k d - pad) mod s` shifted
//! by `floor((k d - pad) / s)`. Phases are further channels, here `virtuals`.

use std::ops::Range;

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_ring::Prime;
use serde::{Deserialize, Serialize};

use super::points::{self, MOST_POINTS};

/// The way in which the taps of an axis meet their values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taps {
    /// The owner of the values packs a shifted copy for each tap: no rotations, more input
    /// ciphertexts.
    Copies,
    /// The server rotates inputs, before products.
    RotateInputs,
    /// The server rotates sums of products.
    RotateOutputs,
    /// Products are of values at points, of tiles of so many outputs: no rotations; both parties
    /// transform their own shares (Toom, Cook, Winograd).
    Points {
        /// Outputs of a tile.
        tile: usize,
    },
}

/// Sizes of an axis, whatever the weights and the plaintext modulus are.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    taps: Taps,
    /// Values of a channel along this axis: `0..positions`.
    pub positions: usize,
    /// Phases, or copies.
    pub virtuals: usize,
    /// By how much inputs are shifted to the left of outputs.
    pub shifts: Vec<i64>,
    size: usize,
    outputs: usize,
    stride: usize,
    /// Where tap `k` begins: `k d - pad`.
    offsets: Vec<i64>,
    /// The phases that taps read.
    phases: Vec<usize>,
}

/// `sum of coefficient * source[index]`.
pub(super) type Row = Vec<(usize, u64)>;

/// The linear maps of an axis modulo `t`.
pub(super) struct Maps {
    /// `[virtual][position]`, of inputs.
    pub input: Vec<Vec<Row>>,
    /// `[virtual][shift][output position]`, of taps.
    pub weight: Vec<Vec<Vec<Row>>>,
    /// `[output]`, of positions.
    pub output: Vec<Row>,
}

impl Axis {
    /// `None` where these taps make no sense here: there is nothing to copy or to rotate, or there
    /// are too many points.
    pub fn new(geometry: &ConvGeometry, outputs: usize, axis: usize, taps: Taps) -> Option<Self> {
        let window = &geometry.window;
        let (size, stride) = (geometry.input[axis], window.stride[axis]);
        let (dilation, pad) = (window.dilation[axis], window.padding_of(axis)[0]);
        let offsets: Vec<i64> = (0..window.kernel[axis])
            .map(|tap| (tap * dilation) as i64 - pad as i64)
            .collect();
        let mut phases: Vec<usize> = offsets
            .iter()
            .map(|offset| offset.rem_euclid(stride as i64) as usize)
            .collect();
        let mut shifts: Vec<i64> = offsets
            .iter()
            .map(|offset| offset.div_euclid(stride as i64))
            .collect();
        shifts.sort_unstable();
        shifts.dedup();
        phases.sort_unstable();
        phases.dedup();
        let moves = shifts.len() > 1;
        let plane = size.div_ceil(stride);
        let (positions, virtuals, shifts) = match taps {
            Taps::Copies if offsets.len() > 1 => (outputs, offsets.len(), vec![0]),
            Taps::Copies => return None,
            Taps::RotateInputs if !moves => return None,
            Taps::RotateInputs | Taps::RotateOutputs => (plane.max(outputs), phases.len(), shifts),
            Taps::Points { tile } => {
                let span = (shifts[shifts.len() - 1] - shifts[0]) as usize + 1;
                let points = tile + span - 1;
                if !moves || tile == 0 || tile > outputs || points > MOST_POINTS {
                    return None;
                }
                (outputs.div_ceil(tile) * points, phases.len(), vec![0])
            }
        };
        Some(Self {
            taps,
            positions,
            virtuals,
            shifts,
            size,
            outputs,
            stride,
            offsets,
            phases,
        })
    }

    /// Positions that outputs have.
    pub fn used(&self) -> usize {
        match self.taps {
            Taps::Points { .. } => self.positions,
            _ => self.outputs,
        }
    }

    /// Products of a pair of channels at a position.
    pub fn factors(&self) -> usize {
        match self.taps {
            Taps::Points { .. } => self.virtuals,
            // Some lie in the padding at all positions.
            _ => (0..self.offsets.len())
                .filter(|&tap| self.inside(self.offsets[tap], 0..self.outputs))
                .count(),
        }
    }

    /// True if the server rotates along this axis.
    pub fn rotates(&self) -> bool {
        self.shifts.len() > 1
    }

    /// True if a rotation along this axis is of sums of products.
    pub fn after(&self) -> bool {
        self.taps == Taps::RotateOutputs
    }

    /// Multiplications a position of the transform of the inputs; of outputs, a value.
    pub fn transform(&self) -> usize {
        match self.taps {
            Taps::Points { tile } => self.positions / self.outputs.div_ceil(tile),
            _ => 0,
        }
    }

    /// The largest shift less the smallest.
    pub fn span(&self) -> usize {
        let (first, last) = (self.shifts[0], self.shifts[self.shifts.len() - 1]);
        (last - first) as usize
    }

    /// True if some tap reads this virtual channel at this shift, at any output.
    pub fn reads(&self, virtual_: usize, shift: usize) -> bool {
        match self.taps {
            Taps::Copies => self.inside(self.offsets[virtual_], 0..self.outputs),
            Taps::RotateInputs | Taps::RotateOutputs => self
                .tap(virtual_, shift)
                .is_some_and(|tap| self.inside(self.offsets[tap], 0..self.outputs)),
            Taps::Points { .. } => true,
        }
    }

    /// True if the input under an offset exists for any of these outputs.
    fn inside(&self, offset: i64, outputs: Range<usize>) -> bool {
        let mut inputs = outputs.map(|output| (output * self.stride) as i64 + offset);
        inputs.any(|input| (0..self.size as i64).contains(&input))
    }

    fn tap(&self, virtual_: usize, shift: usize) -> Option<usize> {
        let offset = self.shifts[shift] * self.stride as i64 + self.phases[virtual_] as i64;
        self.offsets.iter().position(|&other| other == offset)
    }

    /// The input at `position` of a plane, where there is one.
    fn input_at(&self, virtual_: usize, position: i64) -> Option<usize> {
        let input = match self.taps {
            Taps::Copies => position * self.stride as i64 + self.offsets[virtual_],
            _ => position * self.stride as i64 + self.phases[virtual_] as i64,
        };
        (0..self.size as i64)
            .contains(&input)
            .then_some(input as usize)
    }

    /// The maps modulo `t`.
    pub fn maps(&self, t: &Prime<u64>) -> Maps {
        match self.taps {
            Taps::Points { tile } => self.point_maps(t, tile),
            _ => self.selections(),
        }
    }

    fn selections(&self) -> Maps {
        let one = |index: usize| vec![(index, 1)];
        let input = |virtual_: usize| {
            let row = |position: usize| {
                let input = self.input_at(virtual_, position as i64);
                input.map_or_else(Vec::new, one)
            };
            (0..self.positions).map(row).collect()
        };
        let weight = |virtual_: usize, shift: usize| {
            let tap = match self.taps {
                Taps::Copies => Some(virtual_),
                _ => self.tap(virtual_, shift),
            };
            let row = |position: usize| {
                let from = position as i64 + self.shifts[shift];
                let exists = position < self.outputs && self.input_at(virtual_, from).is_some();
                tap.filter(|_| exists).map_or_else(Vec::new, one)
            };
            (0..self.positions).map(row).collect()
        };
        Maps {
            input: (0..self.virtuals).map(input).collect(),
            weight: (0..self.virtuals)
                .map(|virtual_| {
                    (0..self.shifts.len())
                        .map(|shift| weight(virtual_, shift))
                        .collect()
                })
                .collect(),
            output: (0..self.outputs).map(one).collect(),
        }
    }

    fn point_maps(&self, t: &Prime<u64>, tile: usize) -> Maps {
        let points = self.transform();
        let first = self
            .offsets
            .iter()
            .map(|offset| offset.div_euclid(self.stride as i64))
            .min()
            .expect("kernels have taps");
        let lagrange = points::lagrange(t, points);
        let power = |point: usize, exponent: i64| t.pow(points::point(t, point), exponent as u64);
        let input = |virtual_: usize, position: usize| {
            let start = (position / points * tile) as i64 + first;
            let row = lagrange[position % points].iter().enumerate();
            let entry = |(place, &c): (usize, &u64)| {
                let input = self.input_at(virtual_, start + place as i64);
                input.map(|input| (input, c))
            };
            row.filter_map(entry).collect()
        };
        let weight = |virtual_: usize, position: usize| {
            let of_phase = |&(_, &offset): &(usize, &i64)| {
                offset.rem_euclid(self.stride as i64) as usize == self.phases[virtual_]
            };
            let entry = |(tap, offset): (usize, &i64)| {
                let exponent = offset.div_euclid(self.stride as i64) - first;
                (tap, power(position % points, exponent))
            };
            let taps = self.offsets.iter().enumerate();
            taps.filter(of_phase).map(entry).collect()
        };
        let output = |output: usize| {
            let (start, place) = (output / tile * points, (output % tile) as i64);
            (0..points)
                .map(|point| (start + point, power(point, place)))
                .collect()
        };
        let each = |virtual_: usize, row: &dyn Fn(usize, usize) -> Row| -> Vec<Row> {
            (0..self.positions)
                .map(|position| row(virtual_, position))
                .collect()
        };
        Maps {
            input: (0..self.virtuals).map(|v| each(v, &input)).collect(),
            weight: (0..self.virtuals).map(|v| vec![each(v, &weight)]).collect(),
            output: (0..self.outputs).map(output).collect(),
        }
    }
}
