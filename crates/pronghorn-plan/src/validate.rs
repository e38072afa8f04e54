//! Checks of a plan from a peer or a file: everything in it is derived anew.

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, LocalOp, ValueSpec},
    geometry::{ConvGeometry, Window},
    shape::{self, OperatorError},
};
use pronghorn_he::RlweRing;

use crate::{
    cost::MAX_BATCH,
    encrypted::validate as encrypted_plan,
    garbled, held,
    plan::{
        Engine, LinearPlan, MAX_PARTS, Part, Plan, PlanError, Protocol, Step, StepKind, WordSize,
    },
    precision::{self, DEGREES, MAX_LOW_BITS},
    slots::SlotPlan,
    trust::TrustLevel,
};

/// Most coefficients of all polynomials that one layer publishes or reads.
const MAX_PUBLISHED_WORDS: usize = 1 << 28;

/// Most steps of a plan.
const MAX_STEPS: usize = 1 << 14;

/// Most elements of all values of one image together.
const MAX_ELEMENTS: usize = 1 << 27;

/// Most values that all circuits of a plan together take, windows of one size in a step counted once.
const MAX_CIRCUIT_VALUES: usize = 1 << 12;

/// Most additions or comparisons of all pools of one image.
const MAX_POOLED: usize = 1 << 32;

/// Most functions of one activation step, or after the result.
const MAX_CHAIN: usize = 16;

/// Longest name, in bytes.
pub(crate) const MAX_NAME: usize = 256;

/// Largest absolute scale exponent of a value.
const MAX_FRACTION_BITS: u32 = 64;

pub(crate) fn validate(plan: &Plan) -> Result<(), PlanError> {
    let field = |field, reason: String| Err(PlanError::Field { field, reason });
    if plan.steps.is_empty() || plan.steps.len() > MAX_STEPS {
        return field(
            "steps",
            format!("there are {}, not 1 to {MAX_STEPS}", plan.steps.len()),
        );
    }
    if plan.output >= plan.steps.len() {
        return field("output", format!("step {} does not exist", plan.output));
    }
    if !(1..=MAX_BATCH).contains(&plan.max_batch) {
        return field(
            "max_batch",
            format!("{} is not 1 to {MAX_BATCH}", plan.max_batch),
        );
    }
    if !is_name(&plan.model) {
        return field(
            "model",
            format!("a name has at most {MAX_NAME} bytes and no control characters"),
        );
    }
    if plan.finish.len() > MAX_CHAIN {
        return field(
            "finish",
            format!(
                "it has {} functions, more than {MAX_CHAIN}",
                plan.finish.len()
            ),
        );
    }
    let all = plan
        .steps
        .iter()
        .fold(0usize, |sum, step| sum.saturating_add(elements(step)));
    if all > MAX_ELEMENTS {
        return field(
            "steps",
            format!("their values have {all} elements an image, more than {MAX_ELEMENTS}"),
        );
    }
    let pooled = plan.steps.iter().map(pooled).fold(0, usize::saturating_add);
    if pooled > MAX_POOLED {
        return field(
            "steps",
            format!("their pools take {pooled} values an image, more than {MAX_POOLED}"),
        );
    }
    let step = |index: usize, reason| PlanError::Step {
        step: index,
        name: printable(&plan.steps[index].name),
        reason,
    };
    (0..plan.steps.len())
        .try_for_each(|index| validate_step(plan, index).map_err(|reason| step(index, reason)))?;
    if plan.trust == TrustLevel::TwoParty {
        validate_shares(plan).map_err(|(index, reason)| step(index, reason))?;
    }
    Ok(())
}

/// Elements of a step's value, of a shape not yet checked.
fn elements(step: &Step) -> usize {
    let shape = step.value.shape.iter();
    shape.fold(1, |product, &size| product.saturating_mul(size))
}

/// At most so many values go into the pools of a step.
fn pooled(step: &Step) -> usize {
    let kernel = |window: &Window| {
        let values = window.kernel[0].saturating_mul(window.kernel[1]);
        elements(step).saturating_mul(values)
    };
    match &step.kind {
        StepKind::Local(LocalOp::SumPool { window, .. }) => kernel(window),
        StepKind::Activation(activation) => {
            let of = |op: &ActivationOp| match op {
                ActivationOp::MaxPool { window } => kernel(window),
                _ => 0,
            };
            activation.ops.iter().map(of).fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

/// What holds between the steps of a plan on shares: nothing but the result is opened, and moduli and guard bits work out.
fn validate_shares(plan: &Plan) -> Result<(), (usize, String)> {
    let opened = plan.steps.iter().filter(|step| step.kind == StepKind::Open);
    if plan.steps[plan.output].kind != StepKind::Open || opened.count() != 1 {
        return Err((
            plan.output,
            "the result must be opened, and nothing else".into(),
        ));
    }
    check_windows(plan)?;
    let mut primes = plan
        .steps
        .iter()
        .enumerate()
        .filter_map(|(index, step)| match &step.kind {
            StepKind::Slots(slots) => Some((index, slots.t)),
            _ => None,
        });
    if let Some((_, first)) = primes.next()
        && let Some((index, _)) = primes.find(|&(_, t)| t != first)
    {
        return Err((
            index,
            "its prime is not that of the other steps on slots".into(),
        ));
    }
    let held = held::held(plan);
    if let Some((index, fault)) = held::fault(plan, &held) {
        return Err((index, format!("shares do not work out: {fault:?}")));
    }
    for (index, step) in plan.steps.iter().enumerate() {
        let garbled = match &step.kind {
            StepKind::Linear(LinearPlan {
                shares: Some(shares),
                ..
            }) if shares.value_bits != held[index].value_bits() => {
                let (found, expected) = (shares.value_bits, held[index].value_bits());
                return Err((
                    index,
                    format!("its shares have {found} bits, and {expected} are needed"),
                ));
            }
            StepKind::Activation(activation) => activation.protocol == Protocol::Garbled,
            StepKind::Open => garbled::opens(&held[step.inputs[0]]),
            _ => false,
        };
        if garbled {
            garbled::circuits(plan, index, &held).map_err(|reason| (index, reason))?;
        }
    }
    Ok(())
}

/// Circuits stay small, and few: from sizes alone, before one is made.
fn check_windows(plan: &Plan) -> Result<(), (usize, String)> {
    let (mut taps, mut in_circuits) = (0usize, 0usize);
    for (index, step) in plan.steps.iter().enumerate() {
        let StepKind::Activation(activation) = &step.kind else {
            continue;
        };
        let window = activation.ops.iter().find_map(|op| match op {
            ActivationOp::MaxPool { window } => Some(window),
            _ => None,
        });
        let input = &plan.steps[step.inputs[0]].value;
        let (values, sizes) = match window {
            None => (input.len(), 1),
            Some(window) => garbled::window_sizes(window, input)
                .ok_or((index, "its window is empty somewhere".to_owned()))?,
        };
        taps = taps.saturating_add(values);
        in_circuits = in_circuits.saturating_add(sizes);
        if taps > MAX_ELEMENTS || in_circuits > MAX_CIRCUIT_VALUES {
            let reason = format!(
                "the windows up to here have {taps} values, {in_circuits} of them in circuits of their own: more than {MAX_ELEMENTS} or \
                 {MAX_CIRCUIT_VALUES}"
            );
            return Err((index, reason));
        }
    }
    Ok(())
}

/// Whether the step is one of the plan's trust level.
fn belongs(trust: TrustLevel, kind: &StepKind) -> Result<(), String> {
    let shares = trust == TrustLevel::TwoParty;
    let fits = match kind {
        StepKind::Input | StepKind::Local(_) => true,
        StepKind::Linear(linear) => linear.shares.is_some() == shares,
        StepKind::Open | StepKind::Slots(_) => shares,
        StepKind::Encrypted(_) => !shares,
        StepKind::Activation(activation) => match activation.protocol {
            Protocol::Reveal => !shares,
            Protocol::Garbled => shares,
            Protocol::Product => shares && activation.ops == [ActivationOp::Square],
        },
    };
    if fits {
        return Ok(());
    }
    Err(format!("this kind of step is none of trust level {trust}"))
}

/// Whether a name may be printed as it is.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME && !name.chars().any(char::is_control)
}

fn validate_step(plan: &Plan, index: usize) -> Result<(), String> {
    let step = &plan.steps[index];
    if !is_name(&step.name) {
        return Err(format!(
            "a name has at most {MAX_NAME} bytes and no control characters"
        ));
    }
    if (index == 0) != (step.kind == StepKind::Input) {
        return Err("the first step must be the input, and no other".into());
    }
    if let Some(input) = step.inputs.iter().find(|&&input| input >= index) {
        return Err(format!(
            "it reads value {input}, but only values before it exist"
        ));
    }
    belongs(plan.trust, &step.kind)?;
    let value = &step.value;
    let fraction_bits = value.fraction_bits.unsigned_abs();
    if value.low > value.high || fraction_bits > MAX_FRACTION_BITS {
        return Err(format!(
            "its value has range {}..={} and {} fraction bits",
            value.low, value.high, value.fraction_bits
        ));
    }
    let inputs: Vec<&ValueSpec> = step
        .inputs
        .iter()
        .map(|&input| &plan.steps[input].value)
        .collect();
    let found = bounds(&step.kind, &inputs, value).map_err(|error| error.to_string())?;
    if !Interval::of(value).contains(found) {
        return Err(format!(
            "its values are in {}..={}, outside its range {}..={}",
            found.low, found.high, value.low, value.high
        ));
    }
    match &step.kind {
        StepKind::Linear(linear) => parameters(linear, inputs[0], value),
        StepKind::Slots(slots) => slots_fit(slots, value),
        StepKind::Encrypted(encrypted) => {
            encrypted_plan::validate(encrypted, plan, inputs[0], value)
        }
        _ => Ok(()),
    }
}

/// Checks that a layer's input and value have the elements that its geometry says; the declared range.
fn layer_bounds(
    geometry: &ConvGeometry,
    inputs: &[&ValueSpec],
    value: &ValueSpec,
) -> Result<Interval, OperatorError> {
    let [height, width] = geometry.output()?;
    let [in_height, in_width] = geometry.input;
    let sizes = [
        (
            "elements of the input",
            shape::one(inputs)?,
            geometry.in_channels * in_height * in_width,
        ),
        (
            "elements of the result",
            value,
            geometry.out_channels * height * width,
        ),
    ];
    for (field, value, expected) in sizes {
        let found = shape::elements(&value.shape)?;
        if found != expected {
            let (found, expected) = (
                found.to_string(),
                format!("{expected}, by the layer's geometry"),
            );
            return Err(OperatorError::Parameter {
                field,
                found,
                expected,
            });
        }
    }
    Ok(Interval::of(value))
}

/// The range of a step's value as its kind and inputs allow; of a linear step the declared one, since its weights
/// are not in the plan.
pub(crate) fn bounds(
    kind: &StepKind,
    inputs: &[&ValueSpec],
    value: &ValueSpec,
) -> Result<Interval, OperatorError> {
    match kind {
        StepKind::Input => {
            shape::elements(&value.shape)?;
            if inputs.is_empty() {
                return Ok(Interval::of(value));
            }
            Err(OperatorError::Inputs {
                expected: "0",
                found: inputs.len(),
            })
        }
        StepKind::Linear(linear) => layer_bounds(&linear.geometry, inputs, value),
        StepKind::Slots(slots) => layer_bounds(&slots.geometry, inputs, value),
        StepKind::Encrypted(_) => {
            shape::elements(&value.shape)?;
            shape::one(inputs)?;
            Ok(Interval::of(value))
        }
        StepKind::Open => {
            let input = shape::one(inputs)?;
            if input.shape != value.shape {
                return Err(OperatorError::OutputShape {
                    expected: input.shape.clone(),
                    found: value.shape.clone(),
                });
            }
            Ok(Interval::of(input))
        }
        StepKind::Local(op) => op.bounds(inputs, &value.shape),
        StepKind::Activation(activation) => chain(&activation.ops, shape::one(inputs)?, value),
    }
}

/// The range of a chain of activations, every intermediate value within 32 bits.
fn chain(
    ops: &[ActivationOp],
    input: &ValueSpec,
    value: &ValueSpec,
) -> Result<Interval, OperatorError> {
    if ops.len() > MAX_CHAIN {
        let (found, expected) = (ops.len().to_string(), format!("at most {MAX_CHAIN}"));
        return Err(OperatorError::Parameter {
            field: "the number of functions",
            found,
            expected,
        });
    }
    let mut spec = input.clone();
    for op in ops {
        if let ActivationOp::MaxPool { window } = op {
            let shape = shape::pool(&spec.shape, window)?;
            spec = ValueSpec { shape, ..spec };
            continue;
        }
        let bounds = op.bounds(&spec, &spec.shape)?;
        let (low, high) = bounds.fit().ok_or_else(|| OperatorError::Parameter {
            field: "the range of an activation",
            found: format!("{}..={}", bounds.low, bounds.high),
            expected: "within 32 bits".into(),
        })?;
        spec = ValueSpec { low, high, ..spec };
    }
    if spec.shape != value.shape {
        return Err(OperatorError::OutputShape {
            expected: spec.shape,
            found: value.shape.clone(),
        });
    }
    Ok(Interval::of(&spec))
}

/// The modulus is secure, and holds messages at their scale.
fn parameters(linear: &LinearPlan, input: &ValueSpec, value: &ValueSpec) -> Result<(), String> {
    if !DEGREES.contains(&linear.degree) {
        return Err(format!(
            "its degree is {}, not one of {DEGREES:?}",
            linear.degree
        ));
    }
    let refused = match linear.word {
        WordSize::U32 => RlweRing::<u32>::new(linear.degree, linear.modulus).err(),
        WordSize::U64 if linear.modulus_bits() > 60 => {
            return Err("its modulus has more than 60 bits".into());
        }
        WordSize::U64 => RlweRing::<u64>::new(linear.degree, linear.modulus).err(),
    };
    if let Some(error) = refused {
        return Err(error.to_string());
    }
    if linear.shares.is_some() {
        share_parameters(linear, value)?;
        return match linear.engine {
            Engine::Batch => Ok(()),
            Engine::Coefficient => layout(linear),
            Engine::Slot => Err("on slots it would be a step of another kind".into()),
        };
    }
    if linear.engine != Engine::Batch {
        return Err("the coefficient engine works on shares only".into());
    }
    if linear.scale_log == 0
        || linear.scale_log >= linear.modulus_bits()
        || linear.dropped_bits.max(linear.dropped_bits_a) >= linear.scale_log
    {
        return Err(format!(
            "scale 2^{} and {} or {} dropped bits do not go with a modulus of {} bits",
            linear.scale_log,
            linear.dropped_bits_a,
            linear.dropped_bits,
            linear.modulus_bits()
        ));
    }
    if !(1..=MAX_PARTS).contains(&linear.parts.len()) {
        return Err(format!(
            "its answer has {} parts, not 1 to {MAX_PARTS}",
            linear.parts.len()
        ));
    }
    let fits =
        |messages: i64| (i128::from(messages) << linear.scale_log) < i128::from(linear.modulus);
    let reach = 2 * i64::from(input.low.unsigned_abs().max(input.high.unsigned_abs())) + 1;
    if !fits(reach) {
        return Err(format!(
            "its inputs, {reach} at scale 2^{}, exceed the modulus {}",
            linear.scale_log, linear.modulus
        ));
    }
    for part in &linear.parts {
        if part.low > part.high || part.left_shift > 31 {
            return Err(format!(
                "a part has range {}..={}, shifted by {}",
                part.low, part.high, part.left_shift
            ));
        }
        let width = i64::from(part.high) - i64::from(part.low) + 2;
        if !fits(width) {
            return Err(format!(
                "its answers, {width} at scale 2^{}, exceed the modulus {}",
                linear.scale_log, linear.modulus
            ));
        }
    }
    let whole = Part {
        left_shift: 0,
        low: value.low,
        high: value.high,
    };
    match linear.parts.as_slice() {
        [part] if *part == whole => Ok(()),
        [high, low] if low.left_shift == 0 && (1..MAX_LOW_BITS).contains(&high.left_shift) => {
            Ok(())
        }
        _ => Err("its parts are neither its value nor a high and a low digit of it".into()),
    }
}

/// The parameters of a step on slots are secure and have room for its noise, and the prime holds its value.
fn slots_fit(slots: &SlotPlan, value: &ValueSpec) -> Result<(), String> {
    let most = held::reach(value);
    if slots.t >> 31 != 0 || u64::from(most) > slots.t / 2 {
        return Err(format!(
            "its values of up to {most} are not residues modulo {}, of at most 31 bits",
            slots.t
        ));
    }
    slots
        .packing()
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// The layer fits polynomials, and takes no more of them than a plan may have values.
fn layout(linear: &LinearPlan) -> Result<(), String> {
    let layout = linear
        .layout()
        .ok_or("what one of its outputs reads of a channel does not fit a polynomial")?;
    let words = layout
        .published()
        .max(layout.polynomials().saturating_mul(layout.tiles()))
        .saturating_mul(linear.degree);
    if words.max(layout.words()) > MAX_PUBLISHED_WORDS {
        return Err(format!(
            "its polynomials have {words} coefficients, more than {MAX_PUBLISHED_WORDS}"
        ));
    }
    Ok(())
}

/// The modulus holds the shares, and the answer's dropped bits are some of its.
fn share_parameters(linear: &LinearPlan, value: &ValueSpec) -> Result<(), String> {
    if linear.share_encoding().is_none() {
        return Err(format!(
            "its modulus of {} bits does not hold its shares, {:?}",
            linear.modulus_bits(),
            linear.shares
        ));
    }
    let whole = Part {
        left_shift: 0,
        low: value.low,
        high: value.high,
    };
    if linear.parts != [whole] {
        return Err("shares of its value come in one part".into());
    }
    let secrets = precision::secrets(linear.engine, value.len());
    if !precision::has_margin(linear.degree, linear.modulus_bits(), secrets) {
        return Err(format!(
            "its modulus of {} bits at degree {} leaves less than 128 bits of security for {secrets} secrets with one `a`",
            linear.modulus_bits(),
            linear.degree
        ));
    }
    let dropped = linear.dropped_bits.max(linear.dropped_bits_a);
    if dropped >= linear.modulus_bits() - 1 {
        return Err(format!(
            "its answers lose {dropped} bits of {}",
            linear.modulus_bits()
        ));
    }
    Ok(())
}

/// A name shortened and without control characters.
pub(crate) fn printable(name: &str) -> String {
    let kept = name.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut length = 0;
    let fits = |c: &char| {
        length += c.len_utf8();
        length <= MAX_NAME
    };
    kept.take_while(fits).collect()
}
