//! Values of a network, slot by slot, and its layers' parts in errors.

use std::collections::BTreeMap;

use pronghorn_graph::polynomial::{PolyGraph, PolyOp};

use super::{
    SLACK,
    gain::{Form, Gain, LayerStep},
    norm::{columns_of, norm, slot_matrix, summed},
};
use crate::{
    NetworkError, Program,
    layout::{Layout, Place, fill},
    model,
    network::{Op, Work},
    packing,
};

/// Intervals of the slots of a value's ciphertexts.
pub struct Range {
    low: Vec<Vec<f64>>,
    high: Vec<Vec<f64>>,
}

impl Range {
    fn ciphertexts(&self) -> usize {
        self.low.len()
    }

    /// The largest magnitude of each slot.
    fn most(&self, ciphertext: usize) -> impl Iterator<Item = f64> {
        let pairs = self.low[ciphertext].iter().zip(&self.high[ciphertext]);
        pairs.map(|(low, high)| low.abs().max(high.abs()))
    }

    pub fn reach(&self) -> f64 {
        let all = (0..self.ciphertexts()).flat_map(|x| self.most(x));
        all.fold(0.0, f64::max)
    }

    /// The largest magnitude of each element; zero for those without a place.
    fn elements(&self, layout: &Layout) -> Vec<f64> {
        let one = |place: &Option<Place>| {
            place.map_or(0.0, |x| {
                let [low, high] = [&self.low, &self.high].map(|all| all[x.ciphertext][x.slot]);
                low.abs().max(high.abs())
            })
        };
        layout.places.iter().map(one).collect()
    }

    /// Slot by slot.
    fn map(&self, other: &Self, f: impl Fn([f64; 2], [f64; 2]) -> [f64; 2]) -> Self {
        let one = |x: usize| {
            let slots = 0..self.low[x].len();
            let found = slots.map(|s| {
                let other = [other.low[x][s], other.high[x][s]];
                let [low, high] = f([self.low[x][s], self.high[x][s]], other);
                (low, high)
            });
            found.unzip()
        };
        let (low, high) = (0..self.ciphertexts()).map(one).unzip();
        Self { low, high }
    }
}

/// Values and layers of a network, forwards.
pub struct Walk<'a> {
    program: &'a Program,
    pub values: Vec<Range>,
    /// Of layers.
    pub steps: Vec<Option<LayerStep>>,
    pub sensitivity: f64,
}

impl<'a> Walk<'a> {
    pub fn new(program: &'a Program, graph: &PolyGraph) -> Result<Self, NetworkError> {
        let mut walk = Self {
            program,
            values: Vec::new(),
            steps: Vec::new(),
            sensitivity: 1.0,
        };
        let mut largest: Vec<f64> = Vec::new();
        for (index, node) in program.network.nodes.iter().enumerate() {
            let other = || NetworkError::OtherNetwork {
                node: node.name.clone(),
            };
            let of_graph = graph.nodes.get(index).ok_or_else(other)?;
            let fits = of_graph.len() == node.elements && of_graph.inputs == node.inputs;
            let op = Some(&of_graph.op).filter(|_| fits).ok_or_else(other)?;
            // A value brought to a lower level is rounded once more.
            let error = |place: usize| largest[node.inputs[place]] + 1.0;
            let reach = |place: usize| walk.values[node.inputs[place]].reach() + SLACK;
            let mut step = None;
            let (value, found) = match &node.op {
                Op::Input { low, reach } => (walk.input(*low, *reach), 1.0),
                Op::Linear { .. } | Op::Factor => {
                    let (value, layer, error) =
                        walk.layer(index, op, error(0)).ok_or_else(other)?;
                    step = Some(layer);
                    (value, error)
                }
                Op::Square => {
                    let x = &walk.values[node.inputs[0]];
                    let square = |[low, high]: [f64; 2], _| {
                        let most = low.abs().max(high.abs());
                        let least = if low <= 0.0 && high >= 0.0 {
                            0.0
                        } else {
                            low.abs().min(high.abs())
                        };
                        [least * least, most * most]
                    };
                    (x.map(x, square), 2.0 * reach(0) * error(0) + 1.0)
                }
                Op::Multiply => {
                    let [x, y] = [0, 1].map(|place| &walk.values[node.inputs[place]]);
                    let product = |[a, b]: [f64; 2], [c, d]: [f64; 2]| {
                        let all = [a * c, a * d, b * c, b * d];
                        let low = all.into_iter().fold(f64::INFINITY, f64::min);
                        [low, all.into_iter().fold(f64::NEG_INFINITY, f64::max)]
                    };
                    let errors = reach(1) * error(0) + reach(0) * error(1);
                    (x.map(y, product), errors + 1.0)
                }
                Op::Add => {
                    let [x, y] = [0, 1].map(|place| &walk.values[node.inputs[place]]);
                    let sum = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a + c, b + d];
                    (x.map(y, sum), error(0) + error(1))
                }
                Op::Rearrange(_) => {
                    let inputs = node.inputs.iter().map(|&input| &walk.values[input]);
                    let concat = |side: fn(&Range) -> &Vec<Vec<f64>>| {
                        inputs.clone().flat_map(|x| side(x).clone()).collect()
                    };
                    let value = Range {
                        low: concat(|x| &x.low),
                        high: concat(|x| &x.high),
                    };
                    let errors = (0..node.inputs.len()).map(error);
                    (value, errors.fold(0.0, f64::max))
                }
            };
            walk.values.push(value);
            walk.steps.push(step);
            largest.push(found);
            walk.sensitivity = walk.sensitivity.max(found);
        }
        Ok(walk)
    }

    fn input(&self, low: f64, high: f64) -> Range {
        let Work::Input(input) = &self.program.steps[0].work else {
            return Range {
                low: Vec::new(),
                high: Vec::new(),
            };
        };
        let filled = |value: f64| {
            let spots = input.spots.iter();
            spots
                .map(|spots| fill(self.program.slots, input.period, spots, |_| value))
                .collect()
        };
        Range {
            low: filled(low),
            high: filled(high),
        }
    }

    /// The value of a layer, what it does with noise, and its largest error.
    fn layer(&self, index: usize, op: &PolyOp, error: f64) -> Option<(Range, LayerStep, f64)> {
        let Program {
            steps,
            network,
            slots,
            ..
        } = self.program;
        let (step, node) = (&steps[index], &network.nodes[index]);
        let input = &self.values[node.inputs[0]];
        let (weights, addends) = self.program.weights(index, op)?;
        let packing = match &step.work {
            Work::Linear(packing) => Some(packing),
            _ => None,
        };
        let folds = packing.map_or(&[][..], |packing| &packing.folds);
        let folded = (folds.len() as f64).exp2();
        let mut all: Vec<Sums> = Vec::with_capacity(weights.len());
        for (output, weights) in weights.iter().enumerate() {
            let mut sums = Sums::new(*slots);
            for (place, weights) in weights.iter().enumerate() {
                let (from, turn) = match packing {
                    Some(packing) => {
                        let rotation = packing.products.get(output)?.get(place)?.rotation;
                        (rotation.ciphertext, rotation.steps)
                    }
                    None => (output, 0),
                };
                sums.add(weights, input.low.get(from)?, input.high.get(from)?, turn);
            }
            all.push(sums);
        }
        let before = |f: fn(&Sums) -> &Vec<f64>| {
            let slots = all.iter().flat_map(f);
            slots.fold(0.0, |x: f64, &y| x.max(y))
        };
        let [most_before, met_before, row_before] = [
            before(|x| &x.squares),
            before(|x| &x.met),
            before(|x| &x.absolute),
        ];
        all.iter_mut().for_each(|sums| sums.fold(folds));
        let after = |f: fn(&Sums) -> &Vec<f64>| {
            let slots = all.iter().flat_map(f);
            slots.fold(0.0, |x: f64, &y| x.max(y))
        };
        let met_after = after(|x| &x.met);
        // A rotation of two parts adds noise twice.
        let rotations = if packing.is_some_and(|packing| packing.is_split()) {
            2.0
        } else {
            1.0
        };
        let largest =
            after(|x| &x.absolute) * (error + rotations) + after(|x| &x.read) + 2.0 * folded + 2.0;
        let of_outputs = |f: fn(&Sums) -> &Vec<f64>| -> Vec<f64> {
            let places = step.layout.places.iter();
            places
                .map(|place| place.map_or(0.0, |x| f(&all[x.ciphertext])[x.slot]))
                .collect()
        };
        let (rows, met) = (of_outputs(|x| &x.squares), of_outputs(|x| &x.met));
        let covers = folds.last().is_none_or(|&last| 2 * last == *slots);
        let is_full =
            packing.is_none() || step.layout.period() == *slots || (!folds.is_empty() && covers);
        let read = &steps[node.inputs[0]].layout;
        let firsts = read.firsts();
        let weight = |index: usize| model::weight(op, index);
        let (matrix, norms, factors) = match packing {
            Some(packing) => {
                let rows = match &node.op {
                    Op::Linear { geometry } => packing::rows(geometry),
                    _ => packing::diagonal(node.elements),
                };
                let matrix: Vec<Vec<(usize, f64)>> = rows
                    .into_iter()
                    .map(|row| summed(row.into_iter().map(|(j, w)| (firsts[j], weight(w)))))
                    .collect();
                let norms = if is_full {
                    let by_slots = slot_matrix(packing, *slots, weight);
                    [norm(&matrix), norm(&by_slots)]
                } else {
                    // Of slots to slots, by the largest row and column, and of folds.
                    let columns = columns_of(&weights, packing, input.ciphertexts(), *slots);
                    [0.0, row_before * columns * folded * folded]
                };
                (matrix, norms, None)
            }
            None => {
                let factors = (0..node.elements).map(weight).collect();
                (Vec::new(), [0.0; 2], Some(factors))
            }
        };
        let (low, high) = all.into_iter().map(|sums| (sums.low, sums.high)).unzip();
        let mut value = Range { low, high };
        for side in [&mut value.low, &mut value.high] {
            for (slots, addends) in side.iter_mut().zip(&addends) {
                slots
                    .iter_mut()
                    .zip(addends.iter())
                    .for_each(|(x, y)| *x += y);
            }
        }
        let layer = LayerStep {
            folded,
            is_full,
            rows,
            most_before,
            met,
            most_met: [met_after, met_before],
            is_last: network.shown()[index],
            factors,
            matrix,
            norms,
            copies: (*slots / read.least_period().max(1)) as f64,
        };
        Some((value, layer, largest))
    }

    /// The part of each element of the result in the mean over slots: over those of a ciphertext
    /// with all repetitions, and at least over all elements. Elements in one slot have it once.
    fn shares(&self) -> Vec<f64> {
        let layout = &self.program.steps[self.program.network.output].layout;
        let elements = layout.places.iter().zip(layout.firsts()).enumerate();
        let counted = elements.map(|(element, (place, first))| place.filter(|_| first == element));
        let counted: Vec<Option<Place>> = counted.collect();
        let least = 1.0 / counted.iter().flatten().count().max(1) as f64;
        let share = |place: &Place| {
            let slots = layout.ciphertexts() * layout.periods[place.ciphertext];
            least.max(1.0 / slots as f64)
        };
        counted
            .iter()
            .map(|place| place.as_ref().map_or(0.0, share))
            .collect()
    }

    /// Backwards, one for each node.
    pub fn gains(&self) -> Vec<Gain> {
        let network = &self.program.network;
        let mut ways: Vec<Vec<Gain>> = vec![Vec::new(); network.nodes.len()];
        ways[network.output] = vec![Gain::of(Form::Diagonal(self.shares()))];
        let mut gains = vec![Gain::none(); network.nodes.len()];
        let shown = network.shown();
        for (index, node) in network.nodes.iter().enumerate().rev() {
            let own = std::mem::take(&mut ways[index]);
            if own.is_empty() {
                continue;
            }
            let gain = Gain::sum(own);
            let elements = |input: usize| -> Vec<f64> {
                let layout = &self.program.steps[input].layout;
                let most = self.values[input].elements(layout).into_iter();
                most.map(|x| (x + SLACK).powi(2)).collect()
            };
            match &node.op {
                Op::Input { .. } => {}
                Op::Linear { .. } | Op::Factor => {
                    let input = node.inputs[0];
                    if let Some(step) = &self.steps[index] {
                        ways[input].push(step.before(&gain, network.nodes[input].elements));
                    }
                }
                Op::Square => {
                    let squares: Vec<f64> =
                        elements(node.inputs[0]).iter().map(|x| 4.0 * x).collect();
                    ways[node.inputs[0]].push(gain.scaled(&squares));
                }
                Op::Multiply => {
                    for [x, y] in [[0, 1], [1, 0]].map(|pair| pair.map(|at| node.inputs[at])) {
                        // In a slot beside the result a factor that was left out there meets noise.
                        let beside = shown[index] && !self.program.steps[y].layout.clean;
                        ways[x].push(match beside {
                            true => gain.total_times((self.values[y].reach() + SLACK).powi(2)),
                            false => gain.scaled(&elements(y)),
                        });
                    }
                }
                Op::Add => node
                    .inputs
                    .iter()
                    .for_each(|&input| ways[input].push(gain.clone())),
                Op::Rearrange(sources) => {
                    let mut copied = BTreeMap::<_, usize>::new();
                    for source in sources.iter().flatten() {
                        *copied.entry((source.input, source.index)).or_default() += 1;
                    }
                    let most = copied.values().max().copied().unwrap_or(0);
                    for &input in &node.inputs {
                        ways[input].push(gain.total_times((most * most) as f64));
                    }
                }
            }
            gains[index] = gain;
        }
        gains
    }
}

/// Sums over the products of an output's ciphertext, slot by slot.
struct Sums {
    low: Vec<f64>,
    high: Vec<f64>,
    /// Of weights: absolute, and squares.
    absolute: Vec<f64>,
    squares: Vec<f64>,
    /// Of values that meet weights: absolute, and squares.
    read: Vec<f64>,
    met: Vec<f64>,
}

impl Sums {
    fn new(slots: usize) -> Self {
        let zeros = || vec![0.0; slots];
        Self {
            low: zeros(),
            high: zeros(),
            absolute: zeros(),
            squares: zeros(),
            read: zeros(),
            met: zeros(),
        }
    }

    fn all(&mut self) -> [&mut Vec<f64>; 6] {
        [
            &mut self.low,
            &mut self.high,
            &mut self.absolute,
            &mut self.squares,
            &mut self.read,
            &mut self.met,
        ]
    }

    fn add(&mut self, weights: &[f64], low: &[f64], high: &[f64], turn: usize) {
        let slots = weights.len();
        for (s, &w) in weights.iter().enumerate() {
            let from = (s + turn) % slots;
            let (low, high) = (low[from], high[from]);
            let most = low.abs().max(high.abs()) + SLACK;
            self.low[s] += (w * low).min(w * high);
            self.high[s] += (w * low).max(w * high);
            self.absolute[s] += w.abs();
            self.squares[s] += w * w;
            self.read[s] += most;
            self.met[s] += most * most;
        }
    }

    fn fold(&mut self, folds: &[usize]) {
        for &fold in folds {
            for sums in self.all() {
                let slots = sums.len();
                let turned: Vec<f64> = (0..slots).map(|s| sums[(s + fold) % slots]).collect();
                sums.iter_mut().zip(turned).for_each(|(x, y)| *x += y);
            }
        }
    }
}
