//! Builds the fixed-point graph node by node.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    FactorProfile, LayerProfile, LowDigits, Precision, PrecisionChooser, QuantiseError,
    QuantiseOptions,
    alive::{needed, without_dead},
    centre::{self, Centring},
    function::is_moved,
    linear::LayerScale,
    ranges, rows,
    scale::{self, MOST_FRACTION, Range, SATURATED_BITS},
    whole,
};
use crate::{
    fixed::{
        ActivationOp, FixedGraph, FixedNode, FixedOp, Interval, LocalOp, ValueSpec, argmax_bounds,
        matrix_product_bounds, product_bounds,
    },
    float::Profile,
    geometry::Window,
    graph::{Graph, Node, Op},
    shape::OperatorError,
};

/// Fraction bits of the slope of a `LeakyRelu`, at most.
const SLOPE_BITS: u32 = 12;

/// A slope may be off by so much.
const SLOPE_ERROR: f32 = 1.0 / 2048.0;

/// A layer reads a coarser copy of a value, where the bits that another reader wants would leave its
/// weights so few that its error grows by more than this.
const MOST_SPOILT: f64 = 4.0;

/// Quantises a graph and a profile that go together.
pub(super) fn build(
    graph: &Graph,
    profile: &Profile,
    chooser: &dyn PrecisionChooser,
    options: &QuantiseOptions,
) -> Result<Scaled, QuantiseError> {
    let (result, _) = graph.tail();
    let needed = needed(graph, result);
    let whole = whole::all(graph);
    let ranges = ranges::of(
        graph,
        profile,
        &whole,
        options.margin,
        options.costly_requantisation,
    );
    let mut builder = Builder {
        graph,
        options,
        layers: Vec::new(),
        factors: vec![[0; 2]; graph.nodes.len()],
        centrings: centre::all(graph),
        beside: vec![i32::MIN; graph.nodes.len()],
        ranges,
        nodes: Vec::new(),
        place: vec![0; graph.nodes.len()],
        finer: BTreeMap::new(),
        scales: Vec::new(),
        coarser: BTreeSet::new(),
        requantised: BTreeMap::new(),
        current: 0,
    };
    builder.choose(profile, chooser, (&needed, &whole, result))?;
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
    let fixed = FixedGraph {
        name: graph.name.clone(),
        output: builder.place[result],
        nodes: builder.nodes,
        finish: graph.finish(),
    };
    Ok(Scaled {
        graph: without_dead(fixed),
        layers: builder.scales,
    })
}

/// The integer that stands for a slope, and its fraction bits: the fewest that are precise enough.
fn slope(alpha: f32) -> (i32, u32) {
    let rounded = |shift: u32| (scale::round(alpha, shift as i32), shift);
    let is_precise = |&(slope, shift): &(i32, u32)| {
        (slope as f32 / (1u32 << shift) as f32 - alpha).abs() <= SLOPE_ERROR
    };
    let all = (1..SLOPE_BITS).map(rounded);
    all.into_iter()
        .find(is_precise)
        .unwrap_or(rounded(SLOPE_BITS))
}

/// A fixed-point graph, and the scales of its layers' results.
pub(super) struct Scaled {
    pub graph: FixedGraph,
    /// In the order of the layers.
    pub layers: Vec<LayerScale>,
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
    /// Fraction bits of the nodes' values where others than layers and products read them, too.
    pub(super) beside: Vec<i32>,
    /// The range of each value of the float graph on samples, with the margin.
    pub(super) ranges: Vec<Range>,
    pub(super) nodes: Vec<FixedNode>,
    /// The fixed-point value that stands for each value of the float graph.
    pub(super) place: Vec<usize>,
    /// Fraction bits that the channels of a value have beyond its own, where they have any.
    pub(super) finer: BTreeMap<usize, Rc<[u32]>>,
    pub(super) scales: Vec<LayerScale>,
    /// Layers that read a coarser copy of a value than others.
    pub(super) coarser: BTreeSet<usize>,
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
        (needed, whole, result): (&[bool], &[bool], usize),
    ) -> Result<(), QuantiseError> {
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let beside = FactorProfile::beside(profile, index, self.ranges[index]);
            self.beside[index] = beside.fraction(chooser.choose_factor(&beside));
            if let (true, &[left, right]) = (node.op.is_product(), node.inputs.as_slice()) {
                let factors = [(left, right), (right, left)].map(|(input, other)| {
                    let values = (index, input, other);
                    FactorProfile::new((self.graph, profile), values, self.ranges[input])
                });
                let wanted = factors
                    .each_ref()
                    .map(|factor| chooser.choose_factor(factor));
                self.factors[index] = self.with_room(index, &factors, wanted);
            }
            let layer = match node.inputs.first() {
                Some(&input) if needed[index] => LayerProfile::new(
                    self.graph,
                    index,
                    (
                        self.ranges[input],
                        self.options.costly_requantisation,
                        rows::allowed(self.graph, index, result),
                    ),
                    profile,
                    whole,
                ),
                _ => None,
            };
            let Some(layer) = layer else {
                self.layers.push(None);
                continue;
            };
            let precision = self.checked(node, chooser.choose(&layer))?;
            self.layers.push(Some((layer, precision)));
        }
        match self.options.costly_requantisation {
            true => self.choose_beside(chooser),
            false => Ok(()),
        }
    }

    /// Asks again about layers that read a value which another layer wants finer.
    fn choose_beside(&mut self, chooser: &dyn PrecisionChooser) -> Result<(), QuantiseError> {
        let finer = |index: usize| {
            let (layer, precision) = self.layers[index].as_ref()?;
            let finest = self.finest_reader(self.settled(self.graph.nodes[index].inputs[0])?)?;
            let more = finest - layer.input_fraction(*precision);
            (more > 0).then_some((index, precision.input_bits + more as u32))
        };
        let finer: Vec<(usize, u32)> = (0..self.layers.len()).filter_map(finer).collect();
        for (index, input_bits) in finer {
            let Some((layer, own)) = &self.layers[index] else {
                continue;
            };
            let node = &self.graph.nodes[index];
            let chosen = self.checked(node, chooser.choose_beside(layer, input_bits));
            let error =
                |precision: Precision| layer.at(precision.weight_bits, precision.input_bits).error;
            let most = MOST_SPOILT * error(*own);
            let kept = chosen.ok().filter(|&chosen| error(chosen) <= most);
            match (kept, &mut self.layers[index]) {
                (Some(kept), Some((_, precision))) => *precision = kept,
                _ => _ = self.coarser.insert(index),
            }
        }
        Ok(())
    }

    /// The activation whose value this is, all or a part of it.
    fn settled(&self, mut value: usize) -> Option<usize> {
        while let Op::Take { .. } | Op::Reshape | Op::Transpose { .. } = self.graph.nodes[value].op
        {
            value = self.graph.nodes[value].inputs[0];
        }
        self.graph.nodes[value].op.is_activation().then_some(value)
    }

    /// A precision that was chosen, if integers can have it.
    fn checked(
        &self,
        node: &Node,
        chosen: Result<Precision, String>,
    ) -> Result<Precision, QuantiseError> {
        let (name, operator) = (node.name.clone(), node.op.name());
        let precision = chosen.map_err(|reason| QuantiseError::NoPrecision {
            node: name.clone(),
            operator,
            shape: node.shape.clone(),
            reason,
        })?;
        let weights = (2..=16).contains(&precision.weight_bits);
        let inputs = (2..=24).contains(&precision.input_bits);
        let digits = precision.low.is_none_or(LowDigits::is_valid);
        match weights && inputs && digits {
            true => Ok(precision),
            false => Err(QuantiseError::Precision {
                node: name,
                operator,
                precision,
            }),
        }
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
                    ..Range::ALL
                };
                let fraction = self.nodes[even].value.fraction_bits;
                let clip = self.clip(range.nearest()(fraction), fraction);
                self.push(FixedOp::Activation(clip), vec![even], fraction)
            }
            Op::Clip { min, max } => {
                let fraction = self.value(input(0)).fraction_bits;
                let at =
                    |bound: &Option<f32>, none| bound.map_or(none, |x| scale::round(x, fraction));
                let bounds = (at(min, i32::MIN), at(max, i32::MAX));
                self.elementwise(self.clip(bounds, fraction), input(0))
            }
            Op::LeakyRelu { alpha } => {
                let (slope, shift) = slope(*alpha);
                self.widening(ActivationOp::LeakyRelu { slope, shift }, input(0))
            }
            // Of integers at any scale: those above 0 are at least 1.
            Op::Step => {
                let is_above = ActivationOp::Clip { low: 0, high: 1 };
                let place = self.place[input(0)];
                self.push(FixedOp::Activation(is_above), vec![place], 0)
            }
            Op::Function { function } => self.function(*function, input(0)),
            Op::Square => self.square(input(0)),
            Op::Multiply if input(0) == input(1) => self.square(input(0)),
            Op::Multiply => self.product(FixedOp::Product, [input(0), input(1)]),
            Op::MatMul => self.product(FixedOp::MatMul, [input(0), input(1)]),
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
            Op::Softmax
            | Op::ArgMax
            | Op::Sigmoid
            | Op::Along { .. }
            | Op::Exp
            | Op::ExpM1
            | Op::Probabilities
            | Op::Log
            | Op::Sqrt
            | Op::Scale { .. } => {
                let reason = "supported only as the end of the model";
                Err(self.operator_error(OperatorError::parameter(
                    "its place",
                    "the middle",
                    reason,
                )))
            }
        }
    }

    /// The clip with these bounds. Where changes of precision are costly and all readers get its
    /// value clamped to the range, the bounds are no wider: words saturate, and bounds that were
    /// multiplied show in no plan. Elsewhere a power of two, which costs a bit and a comparison,
    /// becomes the integer below it.
    fn clip(&self, (low, high): (i32, i32), fraction: i32) -> ActivationOp {
        let costly = self.options.costly_requantisation;
        let (least, most) = match costly && ranges::is_clamped(self.graph, self.current) {
            true => self.ranges[self.current].clamps(fraction, costly),
            false => (i32::MIN, i32::MAX),
        };
        let (low, high) = (low.max(least), high.min(most));
        let is_power = high >> SATURATED_BITS > 0 && high.count_ones() == 1;
        let saturates = costly && is_power && self.current != self.graph.tail().0;
        let high = high - i32::from(saturates);
        ActivationOp::Clip {
            low: low.min(high),
            high,
        }
    }

    /// The input, at the finest precision of the layers and products that read it, and at that of other
    /// values where others do.
    fn input(&mut self, node: &Node) -> Result<usize, QuantiseError> {
        let plain = self.ranges[0].fraction(self.options.plain_input_bits);
        let fraction = match self.finest_reader_past(0, is_moved) {
            Some(finest) if self.is_read_by_others() => finest.max(plain),
            Some(finest) => finest,
            None => self.beside[0].max(plain),
        };
        let fraction = match self.options.whole_inputs {
            true => fraction.min(0),
            false => fraction,
        };
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

    /// Whether others than layers and products read the input, directly or rearranged.
    fn is_read_by_others(&self) -> bool {
        let readers = self.readers(0, is_moved).into_iter();
        let mut others = readers.filter(|&reader| self.layers[reader].is_none());
        others.any(|reader| !self.graph.nodes[reader].op.is_product())
    }

    /// The nodes that read the value `index`, directly or behind operators that `passes` accepts.
    pub(super) fn readers(&self, index: usize, passes: impl Fn(&Op) -> bool) -> Vec<usize> {
        let same = self.carriers(index, passes);
        let reads = |&reader: &usize| {
            let mut inputs = self.graph.nodes[reader].inputs.iter();
            !same[reader] && inputs.any(|&input| same[input])
        };
        (index + 1..same.len()).filter(reads).collect()
    }

    /// Whether each node is `index`, or has its value behind operators that `passes` accepts.
    pub(super) fn carriers(&self, index: usize, passes: impl Fn(&Op) -> bool) -> Vec<bool> {
        let mut same = vec![false; self.graph.nodes.len()];
        same[index] = true;
        for (reader, node) in self.graph.nodes.iter().enumerate().skip(index + 1) {
            same[reader] = node.inputs.iter().any(|&input| same[input]) && passes(&node.op);
        }
        same
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
        let most = match &op {
            FixedOp::Activation(ActivationOp::LeakyRelu { shift, .. }) => {
                MOST_FRACTION - *shift as i32
            }
            _ => MOST_FRACTION / 2,
        };
        let direct = self.no_finer(self.place[input], most, self.ranges[input])?;
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
            .map(|&input| self.beside(input, fraction.unwrap_or(0)))
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

    /// A value at no more than `fraction` fraction bits, or zero where it rounds to that: the bits
    /// that it would drop are more than an activation does.
    fn beside(&mut self, input: usize, fraction: i32) -> Result<usize, QuantiseError> {
        let (place, range) = (self.place[input], self.ranges[input]);
        match range.nearest()(fraction) {
            (0, 0) => self.requantise_into(place, fraction, |_| (0, 0)),
            _ => self.requantise(place, fraction, range),
        }
    }

    /// Whether a value of this range needs no rounding before.
    pub(super) fn has_room(&self, range: Interval) -> bool {
        let half = 1i64 << (self.options.most_bits - 1);
        range.low >= -half && range.high < half
    }

    /// The operator with the shifts that bring `values` to the finest scale among them, and that
    /// scale; `None` where a shift exceeds 31.
    fn shifts(&self, values: &[usize], op: impl Fn(&[u32]) -> LocalOp) -> Option<(FixedOp, i32)> {
        let specs = values.iter().map(|&value| &self.nodes[value].value);
        // Zero is zero at any scale.
        let is_zero = |spec: &ValueSpec| spec.low == 0 && spec.high == 0;
        let others = specs.clone().filter(|&spec| !is_zero(spec));
        let finest = others.map(|spec| spec.fraction_bits).max();
        let finest = finest.or(specs.clone().map(|spec| spec.fraction_bits).max())?;
        let shift = |spec: &ValueSpec| match is_zero(spec) {
            true => 0,
            false => (finest - spec.fraction_bits) as u32,
        };
        let shifts: Vec<u32> = specs.map(shift).collect();
        shifts
            .iter()
            .all(|&shift| shift <= 31)
            .then(|| (FixedOp::Local(op(&shifts)), finest))
    }

    /// The fixed-point form of a value of the float graph.
    pub(super) fn value(&self, value: usize) -> &ValueSpec {
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

    pub(super) fn bounds_as(
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
            FixedOp::Linear(linear) | FixedOp::Constants(linear) => linear.bounds(inputs[0], shape),
            FixedOp::Local(op) => op.bounds(&inputs, shape),
            FixedOp::Activation(op) => op.bounds(inputs[0], shape),
            FixedOp::Product => product_bounds(&inputs, shape),
            FixedOp::MatMul => matrix_product_bounds(&inputs, shape),
            FixedOp::ArgMax => argmax_bounds(&inputs, shape),
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
