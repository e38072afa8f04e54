//! Steps from fixed-point nodes: chains of activations become one step, linear nodes get parameters, and under `two-party`
//! shares get their moduli and guard bits.

use std::collections::{BTreeSet, HashMap};

use pronghorn_graph::{
    fixed::{ActivationOp, Digit, FixedGraph, FixedNode, FixedOp, Linear, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use pronghorn_slot::{common_modulus, cost::DEGREES, matrix};

use crate::{
    build::BuildError,
    cost,
    garbled::Stage,
    held::{self, Fault, LEAST_GUARD},
    plan::{
        ActivationPlan, Engine, FORMAT, LinearPlan, Part, Plan, Protocol, ShareBits, Step,
        StepKind, WordSize,
    },
    precision::{self, Carrier, Demand},
    slots::{SlotPlan, SlotScheme},
    trust::TrustLevel,
    validate,
};

/// The plan of a fixed-point graph, and the weights of its linear steps, by step.
pub(crate) fn lower(
    fixed: &FixedGraph,
    trust: TrustLevel,
    engine: Option<Engine>,
    memory: u64,
) -> Result<(Plan, Vec<Option<Linear>>), BuildError> {
    // Layers whose answers are made exact at once, since guard bits up to the next activation are too many.
    let mut exact = BTreeSet::new();
    let (mut plan, sources) = loop {
        let mut steps = Steps::new(trust, engine == Some(Engine::Slot));
        let output = steps.all(fixed, &exact)?;
        let Steps {
            steps, mut sources, ..
        } = steps;
        let mut plan = Plan {
            format: FORMAT,
            model: validate::printable(&fixed.name),
            trust,
            steps,
            output,
            finish: fixed.finish.clone(),
            max_batch: 1,
        };
        if trust == TrustLevel::TwoParty {
            widen_ranges(&mut plan)?;
            settle_prime(&mut plan)?;
            convert(&mut plan, &mut sources);
            if let Some((step, bits)) = settle_guards(&mut plan)? {
                let layers = layers_before(&plan, step).chain([step]);
                let nodes: Vec<usize> = layers.filter_map(|layer| sources[layer]).collect();
                let layer = |node: &usize| linear_of(&fixed.nodes[*node]).is_some();
                let before = exact.len();
                exact.extend(nodes.into_iter().filter(layer));
                if exact.len() == before {
                    return Err(BuildError::Layer {
                        layer: plan.steps[step].name.clone(),
                        reason: format!(
                            "shares of its values take {bits} bits, more than {}: lower --weight-bits or --input-bits, or raise --error",
                            held::MAX_BITS
                        ),
                    });
                }
                continue;
            }
        }
        break (plan, sources);
    };
    let sources: Vec<_> = sources
        .iter()
        .map(|source| source.and_then(|node| linear_of(&fixed.nodes[node])))
        .collect();
    if trust == TrustLevel::TwoParty {
        settle_parameters(&mut plan, &sources, engine)?;
    }
    plan.max_batch =
        cost::max_batch(&plan, memory).map_err(|(step, needed)| BuildError::Memory {
            step: plan.steps[step].name.clone(),
            needed,
            allowed: memory,
        })?;
    validate::validate(&plan).map_err(BuildError::Refused)?;
    let weights = sources
        .iter()
        .map(|source| source.map(|(_, linear)| linear.clone()))
        .collect();
    Ok((plan, weights))
}

fn linear_of(node: &FixedNode) -> Option<(&FixedNode, &Linear)> {
    match &node.op {
        FixedOp::Linear(linear) => Some((node, linear)),
        _ => None,
    }
}

/// Puts a circuit wherever a step takes shares modulo another number than they are: a prime for layers on slots, a power of two for squares.
fn convert(plan: &mut Plan, sources: &mut Vec<Option<usize>>) {
    while let Some((reader, input)) = held::other_modulus(plan, &held::held(plan)) {
        let moved = |index: usize| index + usize::from(index >= reader);
        for step in &mut plan.steps[reader..] {
            for read in &mut step.inputs {
                *read = moved(*read);
            }
        }
        for read in &mut plan.steps[reader].inputs {
            if *read == input {
                *read = reader;
            }
        }
        plan.output = moved(plan.output);
        let step = Step {
            name: plan.steps[input].name.clone(),
            kind: StepKind::Activation(ActivationPlan {
                protocol: Protocol::Garbled,
                ops: Vec::new(),
            }),
            inputs: vec![input],
            value: plan.steps[input].value.clone(),
        };
        plan.steps.insert(reader, step);
        sources.insert(reader, None);
    }
}

/// The prime of all values that layers on slots read and make.
fn settle_prime(plan: &mut Plan) -> Result<(), BuildError> {
    let on_slots = |step: &&Step| matches!(step.kind, StepKind::Slots(_));
    let values = plan.steps.iter().filter(on_slots).map(|step| {
        let read = step.inputs.iter().map(|&input| &plan.steps[input].value);
        let reach = read.chain([&step.value]).map(held::reach).max();
        (u64::from(reach.unwrap_or(0)), &step.name)
    });
    let Some((largest, name)) = values.max() else {
        return Ok(());
    };
    let t = common_modulus(largest).map_err(|error| BuildError::Layer {
        layer: name.clone(),
        reason: format!("{error} (--weight-bits, --input-bits, --error)"),
    })?;
    for step in &mut plan.steps {
        if let StepKind::Slots(slots) = &mut step.kind {
            slots.t = t;
        }
    }
    Ok(())
}

/// The steps so far.
struct Steps {
    trust: TrustLevel,
    /// Whether layers run on slots.
    slots: bool,
    steps: Vec<Step>,
    /// The node each comes from; none for those that shares need.
    sources: Vec<Option<usize>>,
    /// Whether shares of the step's value have guard bits.
    guarded: Vec<bool>,
    /// The step that makes exact shares of a step's value.
    exact: Vec<Option<usize>>,
}

impl Steps {
    fn new(trust: TrustLevel, slots: bool) -> Self {
        Self {
            trust,
            slots,
            steps: Vec::new(),
            sources: Vec::new(),
            guarded: Vec::new(),
            exact: Vec::new(),
        }
    }

    /// All nodes, with exact shares right after those of `exact`; the step of the result.
    fn all(&mut self, fixed: &FixedGraph, exact: &BTreeSet<usize>) -> Result<usize, BuildError> {
        let mut consumers = vec![0usize; fixed.nodes.len()];
        let read = fixed.nodes.iter().flat_map(|node| &node.inputs);
        read.for_each(|&input| consumers[input] += 1);
        consumers[fixed.output] += 1;
        let mut step_of = vec![0usize; fixed.nodes.len()];
        for (index, node) in fixed.nodes.iter().enumerate() {
            let inputs: Vec<usize> = node.inputs.iter().map(|&input| step_of[input]).collect();
            let joins =
                matches!(&node.op, FixedOp::Activation(_)) && consumers[node.inputs[0]] == 1;
            step_of[index] = match &node.op {
                FixedOp::Activation(op) if joins && self.join(inputs[0], op, &node.value) => {
                    inputs[0]
                }
                _ => self.node(index, node, inputs)?,
            };
            if exact.contains(&index) {
                step_of[index] = self.exact(step_of[index]);
            }
        }
        let result = step_of[fixed.output];
        if self.trust != TrustLevel::TwoParty {
            return Ok(result);
        }
        let value = self.steps[result].value.clone();
        Ok(self.push("result".into(), StepKind::Open, vec![result], value, None))
    }

    /// Adds a function to the chain of step `before`, if that is one that takes it.
    fn join(&mut self, before: usize, op: &ActivationOp, value: &ValueSpec) -> bool {
        let step = &mut self.steps[before];
        let StepKind::Activation(chain) = &mut step.kind else {
            return false;
        };
        // What multiplies by a slope would multiply the errors of shares that were to be exact.
        if chain.ops.is_empty() && matches!(op, ActivationOp::LeakyRelu { .. }) {
            return false;
        }
        chain.ops.push(op.clone());
        let joins = match chain.protocol {
            Protocol::Reveal => true,
            Protocol::Garbled => Stage::of(&chain.ops).is_some(),
            Protocol::Product => false,
        };
        if joins {
            step.value = value.clone();
        } else {
            chain.ops.pop();
        }
        joins
    }

    fn node(
        &mut self,
        index: usize,
        node: &FixedNode,
        mut inputs: Vec<usize>,
    ) -> Result<usize, BuildError> {
        let shares = self.trust == TrustLevel::TwoParty;
        let kind = match &node.op {
            FixedOp::Input => StepKind::Input,
            FixedOp::Linear(linear) if shares && self.slots => {
                StepKind::Slots(unsettled_slots(&linear.geometry))
            }
            FixedOp::Linear(linear) if shares => {
                inputs[0] = self.exact(inputs[0]);
                StepKind::Linear(unsettled(linear, &node.value))
            }
            FixedOp::Linear(linear) => {
                StepKind::Linear(linear_plan(node, linear, &self.steps[inputs[0]].value)?)
            }
            FixedOp::Local(op) => StepKind::Local(op.clone()),
            FixedOp::Activation(op) => {
                let protocol = match op {
                    _ if !shares => Protocol::Reveal,
                    ActivationOp::Square => Protocol::Product,
                    _ if Stage::of(std::slice::from_ref(op)).is_some() => Protocol::Garbled,
                    _ => {
                        return Err(BuildError::Layer {
                            layer: node.name.clone(),
                            reason: "no circuit computes a leaky ReLU with a negative slope: use --trust client-aided".into(),
                        });
                    }
                };
                if protocol == Protocol::Product {
                    inputs[0] = self.exact(inputs[0]);
                }
                let ops = vec![op.clone()];
                StepKind::Activation(ActivationPlan { protocol, ops })
            }
        };
        let name = validate::printable(&node.name);
        Ok(self.push(name, kind, inputs, node.value.clone(), Some(index)))
    }

    /// The step itself, or the one that makes its shares exact.
    fn exact(&mut self, step: usize) -> usize {
        if !self.guarded[step] {
            return step;
        }
        if let Some(exact) = self.exact[step] {
            return exact;
        }
        let (name, value) = (
            self.steps[step].name.clone(),
            self.steps[step].value.clone(),
        );
        let kind = StepKind::Activation(ActivationPlan {
            protocol: Protocol::Garbled,
            ops: Vec::new(),
        });
        let exact = self.push(name, kind, vec![step], value, None);
        self.exact[step] = Some(exact);
        exact
    }

    fn push(
        &mut self,
        name: String,
        kind: StepKind,
        inputs: Vec<usize>,
        value: ValueSpec,
        source: Option<usize>,
    ) -> usize {
        let guarded = match &kind {
            StepKind::Linear(_) => self.trust == TrustLevel::TwoParty,
            StepKind::Local(_) => inputs.iter().any(|&input| self.guarded[input]),
            _ => false,
        };
        self.guarded.push(guarded);
        self.exact.push(None);
        self.sources.push(source);
        self.steps.push(Step {
            name,
            kind,
            inputs,
            value,
        });
        self.steps.len() - 1
    }
}

/// A linear step on shares before its parameters are known, which depend on what comes after it.
fn unsettled(linear: &Linear, value: &ValueSpec) -> LinearPlan {
    LinearPlan {
        engine: Engine::Batch,
        geometry: linear.geometry.clone(),
        word: WordSize::U64,
        degree: 0,
        modulus: 0,
        scale_log: 0,
        dropped_bits: 0,
        dropped_bits_a: 0,
        parts: vec![Part {
            left_shift: 0,
            low: value.low,
            high: value.high,
        }],
        shares: Some(ShareBits {
            value_bits: 0,
            guard_bits: LEAST_GUARD,
        }),
    }
}

/// The same on slots.
fn unsettled_slots(geometry: &ConvGeometry) -> SlotPlan {
    SlotPlan {
        geometry: geometry.clone(),
        variant: matrix::diagonal(DEGREES[0]),
        scheme: SlotScheme {
            degree: DEGREES[0],
            chain: 0,
        },
        t: 0,
    }
}

/// Replaces the ranges of linear steps, which tell sums of weights, by the powers of two around them, and derives the others
/// anew: of a layer's weights the plan then tells nothing but a number of bits. Where what follows would not fit 32 bits (squares of wide
/// values), the proven range stays.
fn widen_ranges(plan: &mut Plan) -> Result<(), BuildError> {
    let proven: Vec<ValueSpec> = plan.steps.iter().map(|step| step.value.clone()).collect();
    let mut kept = vec![false; proven.len()];
    let mut index = 0;
    while index < proven.len() {
        let step = &plan.steps[index];
        let value = match &step.kind {
            StepKind::Input => Some(proven[index].clone()),
            StepKind::Linear(_) | StepKind::Slots(_) if kept[index] => Some(proven[index].clone()),
            StepKind::Linear(_) | StepKind::Slots(_) => {
                let rounding = rounding_after(plan, index);
                Some(held::power_of_two_range(&proven[index], rounding))
            }
            _ => derived_range(plan, index)?,
        };
        match value {
            Some(value) => {
                plan.steps[index].value = value;
                index += 1;
            }
            None => {
                let layers = layers_before(plan, index).filter(|&layer| !kept[layer]);
                let first = layers.min().ok_or_else(|| BuildError::Layer {
                    layer: plan.steps[index].name.clone(),
                    reason: "its values may exceed 32 bits".into(),
                })?;
                kept[first] = true;
                index = first;
            }
        }
    }
    Ok(())
}

/// The most that steps right after step `index` add to its value to round it.
fn rounding_after(plan: &Plan, index: usize) -> i32 {
    let readers = plan
        .steps
        .iter()
        .filter(|step| step.inputs.contains(&index));
    let rounding = readers.map(|step| match &step.kind {
        StepKind::Activation(activation) => held::rounding(&activation.ops),
        _ => 0,
    });
    rounding.max().unwrap_or(0)
}

/// The value of a step with the range that its inputs' ranges give; none where that takes more than 32 bits.
fn derived_range(plan: &Plan, index: usize) -> Result<Option<ValueSpec>, BuildError> {
    let step = &plan.steps[index];
    let inputs: Vec<&ValueSpec> = step
        .inputs
        .iter()
        .map(|&input| &plan.steps[input].value)
        .collect();
    let bounds = match validate::bounds(&step.kind, &inputs, &step.value) {
        Ok(bounds) => bounds.fit(),
        // Within a chain of functions.
        Err(OperatorError::Parameter { .. }) => None,
        Err(error) => {
            return Err(BuildError::Layer {
                layer: step.name.clone(),
                reason: error.to_string(),
            });
        }
    };
    Ok(bounds.map(|(low, high)| ValueSpec {
        low,
        high,
        ..step.value.clone()
    }))
}

/// The linear steps whose values reach step `index` without another one between.
fn layers_before(plan: &Plan, index: usize) -> impl Iterator<Item = usize> {
    let (mut reached, mut layers) = (plan.steps[index].inputs.clone(), Vec::new());
    while let Some(index) = reached.pop() {
        match &plan.steps[index].kind {
            StepKind::Linear(_) | StepKind::Slots(_) => layers.push(index),
            _ => reached.extend(&plan.steps[index].inputs),
        }
    }
    layers.into_iter()
}

/// Chooses guard bits; the step, if any, whose shares then take too many bits, and how many.
fn settle_guards(plan: &mut Plan) -> Result<Option<(usize, u32)>, BuildError> {
    while let Some((step, fault)) = held::fault(plan, &held::held(plan)) {
        match fault {
            Fault::Error { input, guard } => raise_guards(plan, input, guard),
            Fault::Width { bits } => return Ok(Some((step, bits))),
            Fault::Inexact { .. } | Fault::Modulus { .. } => {
                return Err(BuildError::Layer {
                    layer: plan.steps[step].name.clone(),
                    reason: "its input is not shared as it takes it".into(),
                });
            }
        }
    }
    Ok(None)
}

/// The parameters that go with shares and guard bits.
fn settle_parameters(
    plan: &mut Plan,
    sources: &[Option<(&FixedNode, &Linear)>],
    engine: Option<Engine>,
) -> Result<(), BuildError> {
    let held = held::held(plan);
    // Networks repeat their layers, and each takes a while to choose.
    let mut chosen: HashMap<ConvGeometry, SlotPlan> = HashMap::new();
    for (index, source) in sources.iter().enumerate() {
        if let Some((node, linear)) = source {
            let input = plan.steps[plan.steps[index].inputs[0]].value.clone();
            let shares = ShareBits {
                value_bits: held[index].value_bits(),
                guard_bits: held[index].guard,
            };
            let value = &plan.steps[index].value;
            plan.steps[index].kind = match &plan.steps[index].kind {
                StepKind::Slots(slots) => {
                    let plan = match chosen.get(&linear.geometry) {
                        Some(plan) => plan.clone(),
                        None => slot_plan(node, linear, slots.t)?,
                    };
                    chosen.insert(linear.geometry.clone(), plan.clone());
                    StepKind::Slots(plan)
                }
                _ => {
                    let settled = share_plan(node, linear, (&input, value), shares, engine)?;
                    StepKind::Linear(settled)
                }
            };
        }
    }
    Ok(())
}

/// Gives all linear steps whose values reach step `value` through local steps so many guard bits.
fn raise_guards(plan: &mut Plan, value: usize, guard: u32) {
    let mut reached = vec![value];
    while let Some(index) = reached.pop() {
        let step = &mut plan.steps[index];
        match &mut step.kind {
            StepKind::Linear(linear) => {
                if let Some(shares) = &mut linear.shares {
                    shares.guard_bits = shares.guard_bits.max(guard);
                }
            }
            StepKind::Local(_) => reached.extend(&step.inputs),
            _ => {}
        }
    }
}

/// Parameters of one linear step on slots.
fn slot_plan(node: &FixedNode, linear: &Linear, t: u64) -> Result<SlotPlan, BuildError> {
    SlotPlan::choose(&linear.geometry, t).map_err(|error| BuildError::Layer {
        layer: node.name.clone(),
        reason: error.to_string(),
    })
}

/// Parameters of one linear step on shares, in the engine that was asked for, or the coefficient engine where the layer fits it.
fn share_plan(
    node: &FixedNode,
    linear: &Linear,
    (input, value): (&ValueSpec, &ValueSpec),
    shares: ShareBits,
    engine: Option<Engine>,
) -> Result<LinearPlan, BuildError> {
    let mut plan = LinearPlan {
        shares: Some(shares),
        ..unsettled(linear, value)
    };
    let demand = demand(linear, input, &plan.parts[0]);
    if engine != Some(Engine::Batch) {
        plan.engine = Engine::Coefficient;
        let sizes = (input.len(), node.value.len());
        let carrier = demand.share_carrier(shares, Engine::Coefficient, sizes);
        let settled = carrier.map(|carrier| with_carrier(plan.clone(), carrier));
        if let Some(plan) = settled.filter(|plan| plan.layout().is_some()) {
            return Ok(plan);
        }
        if engine.is_some() {
            return Err(BuildError::Layer {
                layer: node.name.clone(),
                reason: "what one of its outputs reads of a channel does not fit a polynomial, or its values no modulus: use --engine batch".into(),
            });
        }
        plan.engine = Engine::Batch;
    }
    let sizes = (input.len(), node.value.len());
    let carrier = demand.share_carrier(shares, Engine::Batch, sizes);
    let carrier = carrier.ok_or_else(|| BuildError::Modulus {
        layer: node.name.clone(),
        width: f64::from(shares.value_bits + shares.guard_bits).exp2(),
        noise: demand.noise(),
    })?;
    Ok(with_carrier(plan, carrier))
}

/// Parameters of one linear step from its actual integer weights: in one part if 32-bit words carry it, else in
/// two digits if they carry those, else in one part in 64-bit words.
fn linear_plan(
    node: &FixedNode,
    linear: &Linear,
    input: &ValueSpec,
) -> Result<LinearPlan, BuildError> {
    let plan = |digits: &[Digit]| parameters(node, linear, input, digits);
    let whole = plan(&[Digit::Whole]);
    if matches!(&whole, Ok(plan) if plan.word == WordSize::U32) {
        return whole;
    }
    let narrow = (1..precision::MAX_LOW_BITS)
        .filter_map(|bits| plan(&[Digit::High(bits), Digit::Low(bits)]).ok())
        .filter(|plan| plan.word == WordSize::U32);
    match narrow.min_by_key(LinearPlan::modulus_bits) {
        Some(split) => Ok(split),
        None => whole,
    }
}

/// Parameters when the answer has these parts.
fn parameters(
    node: &FixedNode,
    linear: &Linear,
    input: &ValueSpec,
    digits: &[Digit],
) -> Result<LinearPlan, BuildError> {
    let (mut parts, mut demands) = (Vec::new(), Vec::new());
    for &digit in digits {
        let layer = linear.digit(digit);
        let bounds = layer
            .bounds(input, &node.value.shape)
            .map_err(|error| BuildError::Layer {
                layer: node.name.clone(),
                reason: error.to_string(),
            })?;
        let (low, high) = if digit == Digit::Whole {
            Some((node.value.low, node.value.high))
        } else {
            bounds.fit()
        }
        .ok_or_else(|| BuildError::Layer {
            layer: node.name.clone(),
            reason: "a part exceeds 32 bits".into(),
        })?;
        let part = Part {
            left_shift: digit.left_shift(),
            low,
            high,
        };
        demands.push(demand(&layer, input, &part));
        parts.push(part);
    }
    let demand = Demand::all(&demands);
    let answers = digits.len() * node.value.len();
    let carrier = demand
        .carrier(input.len(), answers)
        .ok_or_else(|| BuildError::Modulus {
            layer: node.name.clone(),
            width: demand.width,
            noise: demand.noise(),
        })?;
    let plan = LinearPlan {
        parts,
        shares: None,
        ..unsettled(linear, &node.value)
    };
    Ok(with_carrier(plan, carrier))
}

fn with_carrier(plan: LinearPlan, carrier: Carrier) -> LinearPlan {
    let Carrier {
        word,
        degree,
        modulus,
        scale_log,
        dropped_bits,
        dropped_bits_a,
    } = carrier;
    LinearPlan {
        word,
        degree,
        modulus,
        scale_log,
        dropped_bits,
        dropped_bits_a,
        ..plan
    }
}

/// What one part asks of the modulus.
fn demand(layer: &Linear, input: &ValueSpec, part: &Part) -> Demand {
    let rows = layer.weights.chunks(layer.geometry.row_len());
    let norms = rows.map(|row| {
        let sum = |f: fn(f64) -> f64| row.iter().map(|&w| f(f64::from(w))).sum::<f64>();
        (sum(f64::abs), sum(|w| w * w).sqrt())
    });
    let (norm1, norm2) = norms.fold((0f64, 0f64), |most, row| {
        (most.0.max(row.0), most.1.max(row.1))
    });
    let reach = (i64::from(part.high) - part.centre()).max(part.centre() - i64::from(part.low));
    let input = f64::from(input.low.unsigned_abs().max(input.high.unsigned_abs()));
    Demand {
        width: 2.0 * reach as f64,
        input,
        norm1,
        norm2,
    }
}
