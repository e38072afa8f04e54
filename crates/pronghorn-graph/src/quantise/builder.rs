//! Builds the fixed-point graph node by node.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    FactorProfile, LayerProfile, Precision, PrecisionChooser, QuantiseError, QuantiseOptions,
    alive::{needed, without_dead},
    centre::{self, Centring},
    rows,
    scale::{self, Range},
};
use crate::{
    fixed::{
        ActivationOp, Finish, FixedGraph, FixedNode, FixedOp, Interval, LocalOp, ValueSpec,
        product_bounds,
    },
    float::Profile,
    geometry::Window,
    graph::{Graph, Node, Op},
    shape::OperatorError,
};

/// Fraction bits of the slope of a `LeakyRelu`.
const SLOPE_BITS: u32 = 8;

/// Quantises a graph and a profile that go together.
pub(super) fn build(
    graph: &Graph,
    profile: &Profile,
    chooser: &dyn PrecisionChooser,
    options: &QuantiseOptions,
) -> Result<Scaled, QuantiseError> {
    let (result, tail) = graph.tail();
    let needed = needed(graph, result);
    let mut ranges: Vec<Range> = profile
        .values
        .iter()
        .map(|value| Range::of(value, options.margin))
        .collect();
    leave_room(graph, &mut ranges);
    if options.costly_requantisation {
        share_ranges(graph, &mut ranges);
    }
    let mut builder = Builder {
        graph,
        options,
        layers: Vec::new(),
        factors: vec![[0; 2]; graph.nodes.len()],
        centrings: centre::all(graph),
        ranges,
        nodes: Vec::new(),
        place: vec![0; graph.nodes.len()],
        finer: BTreeMap::new(),
        scales: Vec::new(),
        requantised: BTreeMap::new(),
        current: 0,
    };
    builder.choose(profile, chooser, (&needed, result))?;
    for index in (0..=result).filter(|&index| needed[index]) {
        builder.current = index;
        let rounded = builder.round_for_centring()?;
        builder.place[index] = builder.node(&graph.nodes[index])?;
        if let Some((value, place)) = rounded {
            builder.place[value] = place;
        }
        if options.costly_requantisation {
            builder.place[index] = builder.settle(index)?;
        }
        if !rows::kept(graph, index, result) {
            builder.place[index] = builder.even(builder.place[index])?;
        }
    }
    let finish = tail
        .iter()
        .filter_map(|&index| match graph.nodes[index].op {
            Op::Softmax => Some(Finish::Softmax),
            Op::ArgMax => Some(Finish::ArgMax),
            Op::Sigmoid => Some(Finish::Sigmoid),
            _ => None,
        });
    let fixed = FixedGraph {
        name: graph.name.clone(),
        output: builder.place[result],
        nodes: builder.nodes,
        finish: finish.collect(),
    };
    Ok(Scaled {
        graph: without_dead(fixed),
        layers: builder.scales,
    })
}

/// A fixed-point graph, and the scales of its layers' results.
pub(super) struct Scaled {
    pub graph: FixedGraph,
    /// In the order of the layers.
    pub layers: Vec<LayerScale>,
}

/// The scale of a layer's result.
pub(super) struct LayerScale {
    /// The node of the float graph.
    pub node: usize,
    /// Fraction bits, by channel.
    pub fractions: Vec<i32>,
}

/// Beyond the samples, an inverse root goes on by this factor.
const ROOM: f64 = 1.25;

/// Widens the ranges of inverse roots and of their arguments, which are clamped to them: an input
/// may have a less usual scale than all samples.
fn leave_room(graph: &Graph, ranges: &mut [Range]) {
    for (index, node) in graph.nodes.iter().enumerate() {
        if matches!(&node.op, Op::Function { function } if !function.has_limits()) {
            let argument = node.inputs[0];
            ranges[index] = ranges[index].widened(ROOM);
            ranges[argument] = ranges[argument].widened(ROOM * ROOM);
        }
    }
}

/// Gives a part of the input or of an activation's value the range of the whole: no part needs a
/// requantisation of its own.
fn share_ranges(graph: &Graph, ranges: &mut [Range]) {
    let mut shares = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        match (&node.op, node.inputs.as_slice()) {
            (Op::Take { .. } | Op::Reshape | Op::Transpose { .. }, &[input]) if shares[input] => {
                shares[index] = true;
                ranges[index] = ranges[input];
            }
            (op, _) => shares[index] = *op == Op::Input || op.is_activation(),
        }
    }
}

pub(super) struct Builder<'a> {
    pub(super) graph: &'a Graph,
    pub(super) options: &'a QuantiseOptions,
    /// The layer and its precision, for the nodes that are layers.
    pub(super) layers: Vec<Option<(LayerProfile<'a>, Precision)>>,
    /// Fraction bits that the nodes that are products want of their factors.
    pub(super) factors: Vec<[i32; 2]>,
    /// Values less their means.
    pub(super) centrings: Vec<Centring>,
    /// The range of each value of the float graph on samples, with the margin.
    pub(super) ranges: Vec<Range>,
    pub(super) nodes: Vec<FixedNode>,
    /// The fixed-point value that stands for each value of the float graph.
    pub(super) place: Vec<usize>,
    /// Fraction bits that the channels of a value have beyond its own, where they have any.
    pub(super) finer: BTreeMap<usize, Rc<[u32]>>,
    scales: Vec<LayerScale>,
    /// Values that were requantised: `(value, fraction, low, high)` to the result.
    pub(super) requantised: BTreeMap<(usize, i32, i32, i32), usize>,
    /// The float node being worked on, for messages.
    pub(super) current: usize,
}

impl<'a> Builder<'a> {
    /// Asks the chooser about every layer and every factor, in order.
    fn choose(
        &mut self,
        profile: &Profile,
        chooser: &dyn PrecisionChooser,
        (needed, result): (&[bool], usize),
    ) -> Result<(), QuantiseError> {
        for (index, node) in self.graph.nodes.iter().enumerate() {
            if let (Op::Multiply, &[left, right]) = (&node.op, node.inputs.as_slice()) {
                let fraction = |input: usize, other: usize| {
                    let range = self.ranges[input];
                    let values = (index, input, other);
                    let factor = FactorProfile::new((self.graph, profile), values, range);
                    factor.fraction(chooser.choose_factor(&factor))
                };
                self.factors[index] = [fraction(left, right), fraction(right, left)];
            }
            let layer = match node.inputs.first() {
                Some(&input) if needed[index] => LayerProfile::new(
                    self.graph,
                    index,
                    (self.ranges[input], rows::allowed(self.graph, index, result)),
                    profile.values[input].mean_square,
                    profile.values[index].mean_square,
                ),
                _ => None,
            };
            let Some(layer) = layer else {
                self.layers.push(None);
                continue;
            };
            let (name, operator) = (node.name.clone(), node.op.name());
            let precision =
                chooser
                    .choose(&layer)
                    .map_err(|reason| QuantiseError::NoPrecision {
                        node: name.clone(),
                        operator,
                        shape: node.shape.clone(),
                        reason,
                    })?;
            if !(2..=16).contains(&precision.weight_bits)
                || !(2..=24).contains(&precision.input_bits)
            {
                return Err(QuantiseError::Precision {
                    node: name,
                    operator,
                    precision,
                });
            }
            self.layers.push(Some((layer, precision)));
        }
        Ok(())
    }

    /// The fixed-point value of one float node, with whatever has to come before it.
    fn node(&mut self, node: &Node) -> Result<usize, QuantiseError> {
        let input = |i: usize| node.inputs[i];
        match &node.op {
            Op::Input => self.input(node),
            Op::Affine { .. } if self.is_negated_mean() => Ok(self.place[input(0)]),
            Op::Conv { .. } | Op::Dense { .. } | Op::Affine { .. } => self.layer(input(0)),
            Op::Relu => self.elementwise(ActivationOp::Relu, input(0)),
            Op::Clip {
                min: Some(0.0),
                max: None,
            } => self.elementwise(ActivationOp::Relu, input(0)),
            Op::Clip { min, max } if self.finer.contains_key(&self.place[input(0)]) => {
                let fraction = self.finest_reader(self.current).unwrap_or(i32::MAX);
                let free = |_| (i32::MIN, i32::MAX);
                let even = self.requantise_into(self.place[input(0)], fraction, free)?;
                // The model's own bounds: what they clamp is not counted as beyond the samples.
                let bound = |bound: &Option<f32>, none| bound.map_or(none, f64::from);
                let range = Range {
                    low: bound(min, f64::NEG_INFINITY),
                    high: bound(max, f64::INFINITY),
                };
                let fraction = self.nodes[even].value.fraction_bits;
                let (low, high) = range.nearest()(fraction);
                let clip = FixedOp::Activation(ActivationOp::Clip { low, high });
                self.push(clip, vec![even], fraction)
            }
            Op::Clip { min, max } => {
                let fraction = self.value(input(0)).fraction_bits;
                let at =
                    |bound: &Option<f32>, none| bound.map_or(none, |x| scale::round(x, fraction));
                let high = at(max, i32::MAX);
                let low = at(min, i32::MIN).min(high);
                self.elementwise(ActivationOp::Clip { low, high }, input(0))
            }
            Op::LeakyRelu { alpha } => {
                let slope = scale::round(*alpha, SLOPE_BITS as i32);
                self.widening(
                    ActivationOp::LeakyRelu {
                        slope,
                        shift: SLOPE_BITS,
                    },
                    input(0),
                )
            }
            Op::Function { function } => self.function(*function, input(0)),
            Op::Square => self.square(input(0)),
            Op::Multiply => self.product([input(0), input(1)]),
            Op::MaxPool { window } => self.elementwise(
                ActivationOp::MaxPool {
                    window: window.clone(),
                },
                input(0),
            ),
            Op::AveragePool {
                window,
                count_include_pad,
            } => self.average(window, *count_include_pad, input(0)),
            Op::GlobalAveragePool => {
                let shape = &self.graph.nodes[input(0)].shape;
                self.average(&Window::plain([shape[1], shape[2]]), false, input(0))
            }
            Op::Add => self.aligned(&node.inputs, |shifts| LocalOp::Add {
                left_shift: [shifts[0], shifts[1]],
            }),
            Op::Concat { axis } => self.aligned(&node.inputs, |shifts| LocalOp::Concat {
                axis: *axis,
                left_shift: shifts.to_vec(),
            }),
            Op::Reshape => self.rearranged(LocalOp::Reshape, input(0)),
            Op::Pad { before, after } => {
                let (before, after) = (before.clone(), after.clone());
                self.rearranged(LocalOp::Pad { before, after }, input(0))
            }
            Op::Transpose { permutation } => {
                let permutation = permutation.clone();
                self.rearranged(LocalOp::Transpose { permutation }, input(0))
            }
            Op::Take { axis, indices } => {
                let (axis, indices) = (*axis, indices.clone());
                self.rearranged(LocalOp::Take { axis, indices }, input(0))
            }
            Op::Softmax | Op::ArgMax | Op::Sigmoid => {
                let reason = "supported only as the end of the model";
                Err(self.operator_error(OperatorError::parameter(
                    "its place",
                    "the middle",
                    reason,
                )))
            }
        }
    }

    /// The input, at the precision of the layers that read it: the finest where there are several.
    fn input(&mut self, node: &Node) -> Result<usize, QuantiseError> {
        let (layers, plain) = self.first_readers();
        let fractions = layers
            .iter()
            .filter_map(|&index| self.layers[index].as_ref());
        let fractions = fractions.map(|(layer, precision)| layer.input_fraction(*precision));
        let plain = plain.then(|| self.ranges[0].fraction(self.options.plain_input_bits));
        let finest = fractions.chain(plain).max();
        let fraction =
            finest.unwrap_or_else(|| self.ranges[0].fraction(self.options.plain_input_bits));
        let (low, high) = self.ranges[0].integers(fraction);
        let value = ValueSpec {
            shape: node.shape.clone(),
            fraction_bits: fraction,
            low,
            high,
        };
        self.nodes.push(FixedNode {
            name: node.name.clone(),
            op: FixedOp::Input,
            inputs: vec![],
            value,
        });
        Ok(0)
    }

    /// The layers that read the input, directly or rearranged, and whether anything else does.
    fn first_readers(&self) -> (Vec<usize>, bool) {
        let moves = |op: &Op| {
            matches!(
                op,
                Op::Reshape | Op::Pad { .. } | Op::Transpose { .. } | Op::Take { .. }
            )
        };
        let readers = self.readers(0, moves).into_iter();
        let (layers, others): (Vec<_>, Vec<_>) =
            readers.partition(|&reader| self.layers[reader].is_some());
        (layers, !others.is_empty())
    }

    /// The nodes that read the value `index`, directly or behind operators that `passes` accepts.
    pub(super) fn readers(&self, index: usize, passes: impl Fn(&Op) -> bool) -> Vec<usize> {
        let mut same = vec![false; self.graph.nodes.len()];
        same[index] = true;
        let mut readers = Vec::new();
        for (reader, node) in self.graph.nodes.iter().enumerate().skip(index + 1) {
            if node.inputs.iter().any(|&input| same[input]) {
                same[reader] = passes(&node.op);
                if !same[reader] {
                    readers.push(reader);
                }
            }
        }
        readers
    }

    /// A layer of weights on the value `input`, brought to the layer's precision.
    fn layer(&mut self, input: usize) -> Result<usize, QuantiseError> {
        let Some((layer, precision)) = self.layers[self.current].take() else {
            unreachable!("every layer that is needed has a precision")
        };
        let mut wanted = layer.input_fraction(precision);
        if self.options.costly_requantisation && !self.is_wide(input) {
            wanted = wanted.max(self.value(input).fraction_bits);
        }
        let value = self.requantise(self.place[input], wanted, layer.range())?;
        let fraction = self.nodes[value].value.fraction_bits;
        let (linear, results) = layer.integers(precision.weight_bits, fraction);
        let coarsest = results.iter().min().copied().unwrap_or(0);
        let place = self.push(FixedOp::Linear(linear), vec![value], coarsest)?;
        if results.iter().any(|&result| result > coarsest) {
            let finer = results.iter().map(|&result| (result - coarsest) as u32);
            self.finer.insert(place, finer.collect());
        }
        self.scales.push(LayerScale {
            node: self.current,
            fractions: results,
        });
        Ok(place)
    }

    /// An activation at the scale of its input.
    fn elementwise(&mut self, op: ActivationOp, input: usize) -> Result<usize, QuantiseError> {
        self.at_scale_of(input, FixedOp::Activation(op))
    }

    /// An activation whose result has more bits than its input, which is rounded if it must be.
    pub(super) fn widening(
        &mut self,
        op: ActivationOp,
        input: usize,
    ) -> Result<usize, QuantiseError> {
        let op = FixedOp::Activation(op);
        let direct = self.place[input];
        let value = match self.bounds(&op, &[direct])?.fit() {
            Some(_) => direct,
            None => self.rounded(input, self.options.wide_bits)?,
        };
        let fraction = self.nodes[value].value.fraction_bits;
        let fraction = match &op {
            FixedOp::Activation(ActivationOp::LeakyRelu { shift, .. }) => fraction + *shift as i32,
            _ => 2 * fraction,
        };
        self.push(op, vec![value], fraction)
    }

    /// The same elements elsewhere.
    fn rearranged(&mut self, op: LocalOp, input: usize) -> Result<usize, QuantiseError> {
        self.at_scale_of(input, FixedOp::Local(op))
    }

    /// An operator at the scale of its input, channel by channel.
    fn at_scale_of(&mut self, input: usize, op: FixedOp) -> Result<usize, QuantiseError> {
        let (place, fraction) = (self.place[input], self.value(input).fraction_bits);
        let done = self.push(op, vec![place], fraction)?;
        if let Some(finer) = self.finer.get(&place) {
            self.finer.insert(done, finer.clone());
        }
        Ok(done)
    }

    /// An operator on values at one scale: the finest, or, where that overflows, the one at which
    /// the largest of them has [`QuantiseOptions::wide_bits`] bits.
    fn aligned(
        &mut self,
        inputs: &[usize],
        op: impl Fn(&[u32]) -> LocalOp,
    ) -> Result<usize, QuantiseError> {
        let direct: Vec<usize> = inputs.iter().map(|&input| self.place[input]).collect();
        if let Some((op, fraction)) = self.shifts(&direct, &op)
            && self.has_room(self.bounds(&op, &direct)?)
        {
            return self.push(op, direct, fraction);
        }
        let wide = self.options.wide_bits;
        let fraction = inputs
            .iter()
            .map(|&input| self.ranges[input].signed_fraction(wide))
            .min();
        let rounded: Vec<usize> = inputs
            .iter()
            .map(|&input| {
                self.requantise(self.place[input], fraction.unwrap_or(0), self.ranges[input])
            })
            .collect::<Result<_, _>>()?;
        let (op, fraction) = self.shifts(&rounded, &op).ok_or_else(|| {
            let expected = "closer to each other, at most 2^31 apart";
            self.operator_error(OperatorError::parameter(
                "the scales of its inputs",
                "too different",
                expected,
            ))
        })?;
        self.push(op, rounded, fraction)
    }

    /// Whether a value of this range needs no rounding before.
    pub(super) fn has_room(&self, range: Interval) -> bool {
        let half = 1i64 << (self.options.most_bits - 1);
        range.low >= -half && range.high < half
    }

    /// The operator with the shifts that bring `values` to the finest scale among them, and that
    /// scale; `None` where a shift exceeds 31.
    fn shifts(&self, values: &[usize], op: impl Fn(&[u32]) -> LocalOp) -> Option<(FixedOp, i32)> {
        let fractions = values
            .iter()
            .map(|&value| self.nodes[value].value.fraction_bits);
        let finest = fractions.clone().max()?;
        let shifts: Vec<u32> = fractions
            .map(|fraction| (finest - fraction) as u32)
            .collect();
        shifts
            .iter()
            .all(|&shift| shift <= 31)
            .then(|| (FixedOp::Local(op(&shifts)), finest))
    }

    /// The fixed-point form of a value of the float graph.
    fn value(&self, value: usize) -> &ValueSpec {
        &self.nodes[self.place[value]].value
    }

    /// Adds the node that computes the current float node's value.
    pub(super) fn push(
        &mut self,
        op: FixedOp,
        inputs: Vec<usize>,
        fraction: i32,
    ) -> Result<usize, QuantiseError> {
        let node = &self.graph.nodes[self.current];
        self.push_as(node.name.clone(), op, inputs, node.shape.clone(), fraction)
    }

    /// Adds a node; its range is what interval arithmetic proves, and must fit.
    pub(super) fn push_as(
        &mut self,
        name: String,
        op: FixedOp,
        inputs: Vec<usize>,
        shape: Vec<usize>,
        fraction_bits: i32,
    ) -> Result<usize, QuantiseError> {
        let bounds = self.bounds_as(&op, &inputs, &shape)?;
        let Some((low, high)) = bounds.fit() else {
            let node = &self.graph.nodes[self.current];
            return Err(QuantiseError::Overflow {
                node: node.name.clone(),
                operator: node.op.name(),
                shape,
                low: bounds.low,
                high: bounds.high,
            });
        };
        let value = ValueSpec {
            shape,
            fraction_bits,
            low,
            high,
        };
        self.nodes.push(FixedNode {
            name,
            op,
            inputs,
            value,
        });
        Ok(self.nodes.len() - 1)
    }

    /// The range of an operator that makes the current float node's value.
    pub(super) fn bounds(&self, op: &FixedOp, inputs: &[usize]) -> Result<Interval, QuantiseError> {
        self.bounds_as(op, inputs, &self.graph.nodes[self.current].shape)
    }

    fn bounds_as(
        &self,
        op: &FixedOp,
        inputs: &[usize],
        shape: &[usize],
    ) -> Result<Interval, QuantiseError> {
        let inputs: Vec<&ValueSpec> = inputs
            .iter()
            .map(|&input| &self.nodes[input].value)
            .collect();
        match op {
            FixedOp::Input => Ok(Interval::of(inputs[0])),
            FixedOp::Linear(linear) => linear.bounds(inputs[0], shape),
            FixedOp::Local(op) => op.bounds(&inputs, shape),
            FixedOp::Activation(op) => op.bounds(inputs[0], shape),
            FixedOp::Product => product_bounds(&inputs, shape),
        }
        .map_err(|source| self.operator_error(source))
    }

    fn operator_error(&self, source: OperatorError) -> QuantiseError {
        let node = &self.graph.nodes[self.current];
        QuantiseError::Operator {
            node: node.name.clone(),
            operator: node.op.name(),
            shape: node.shape.clone(),
            source: Box::new(source),
        }
    }
}
