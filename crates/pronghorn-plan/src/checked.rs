//! Checked, compiled plans: what the planner and [`Plan::from_bytes`] return, and all that engine
//! and session accept.
//!
//! A check derives everything in a plan anew: shapes, ranges, share forms, security. What it
//! derives for that stays: layouts, packings and circuits, made once for all batches and all
//! clients.

use std::{
    collections::BTreeSet,
    ops::{Deref, RangeInclusive},
    sync::Arc,
};

use pronghorn_graph::{
    features::FeatureScales,
    finish::{Finish, shape_after},
    fixed::{Interval, ValueSpec},
    names::{MAX_NAME, is_shown, of_classes},
    shape,
};
use pronghorn_he::bfv::Parameters;
use pronghorn_mpc::ot::silent::Chain;

use crate::{
    categories::{self, Categories},
    cost::{Cost, MAX_BATCH, Memory, Once},
    flood::Lifetime,
    names::NamedOutput,
    plan::{FORMAT, LEAST_BAND_BYTES, MAX_BYTES, MOST_KEY_CHECKS, Plan, PlanError, Step},
    share_form::{self, Node, ShareForm},
    step::{Compiled, Derived, Place, StepPlan},
    steps::{
        StepKind,
        linear::slot_keys::{self, SlotKeys},
    },
};

/// Most steps of a plan.
const MAX_STEPS: usize = 1 << 14;

/// Most elements of all values of one image together.
const MAX_ELEMENTS: usize = 1 << 29;

/// What the refusal of more says of them.
pub(crate) const ELEMENTS: &str = "elements an image";

/// Most values that windows of one image take, those of pools and circuits.
const MAX_WINDOWED: usize = 1 << 27;

/// Most values that all circuits of a plan together take, eight of a window as one, and windows of
/// one size in a step counted once. A client that is sent half as many in tables takes 375 MB to
/// compile them.
const MAX_CIRCUIT_VALUES: usize = 1 << 13;

/// What the refusal of more says of them.
pub(crate) const OWN_CIRCUITS: &str = "circuits of their own";

/// Most additions or comparisons of all pools of one image.
const MAX_POOLED: usize = 1 << 32;

/// Most functions after the result.
const MAX_FINISH: usize = 16;

/// Fraction bits of a value. Squares of values next to nothing have twice those of a layer.
const FRACTION_BITS: RangeInclusive<i32> = -64..=128;

/// A plan that was checked, with what all batches share. Clones share it.
#[derive(Clone)]
pub struct CheckedPlan(Arc<Parts>);

struct Parts {
    plan: Plan,
    hash: [u8; 32],
    forms: Vec<ShareForm>,
    derived: Vec<Derived>,
    once: Once,
    flood: Option<Lifetime>,
    slot_keys: Vec<(SlotKeys, Parameters<u64>)>,
    slot_key_bytes: u64,
}

impl Deref for CheckedPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.0.plan
    }
}

impl std::fmt::Debug for CheckedPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.plan.fmt(f)
    }
}

impl PartialEq for CheckedPlan {
    fn eq(&self, other: &Self) -> bool {
        self.0.plan == other.0.plan
    }
}

impl Plan {
    /// Reads, checks and compiles a plan from an untrusted peer or file.
    ///
    /// # Errors
    /// The bytes are not a plan, or a field is out of bounds: a shape that does not follow from the
    /// operators, a range that does not hold, parameters below 128 bits of security.
    pub fn from_bytes(bytes: &[u8]) -> Result<CheckedPlan, PlanError> {
        CheckedPlan::new(Self::decode(bytes)?)
    }
}

impl CheckedPlan {
    /// Checks and compiles a plan. Takes milliseconds for small networks, and up to seconds for
    /// large pools and layers on slots.
    ///
    /// # Errors
    /// A field is out of bounds, or does not go with the others.
    pub fn new(plan: Plan) -> Result<Self, PlanError> {
        check_sizes(&plan)?;
        for index in 0..plan.steps.len() {
            check_step(&plan, index).map_err(|reason| refusal(&plan, index, reason))?;
        }
        let forms = share_form::share_forms(&nodes(&plan));
        check_fields(&plan, &forms)?;
        check_silent(&plan)?;
        check_class(&plan)?;
        check_row(&plan)?;
        check_outputs(&plan)?;
        if plan.trust.shares() {
            check_shares(&plan, &forms).map_err(|(index, why)| refusal(&plan, index, why))?;
        }
        let derived = compile(&plan, &forms)?;
        Ok(Self(Arc::new(Parts::new(plan, forms, derived))))
    }

    /// What floods promise, and for how long. None without floods.
    pub fn flood(&self) -> Option<Lifetime> {
        self.0.flood
    }

    /// The plan itself, to be changed and checked again.
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// The same plan for batches of up to `max_batch` images, 1 to [`MAX_BATCH`].
    pub(crate) fn with_batch(&self, max_batch: usize) -> Self {
        self.with_plan(Plan {
            max_batch,
            ..self.0.plan.clone()
        })
    }

    /// The same plan with so many sets of a client's keys, where a step needs its keys.
    ///
    /// # Errors
    /// It is not a power of two up to [`MOST_KEY_CHECKS`].
    pub(crate) fn with_key_checks(&self, key_checks: usize) -> Result<Self, PlanError> {
        let plan = Plan {
            key_checks,
            ..self.0.plan.clone()
        };
        check_sizes(&plan)?;
        Ok(match self.checks_keys() {
            true => self.with_plan(plan),
            false => self.clone(),
        })
    }

    /// The same plan with the range of results on samples ([`Plan::sampled`]) and the deviations of
    /// these ([`Plan::deviations`]).
    pub(crate) fn with_sampled(
        &self,
        sampled: Option<[i32; 2]>,
        deviations: Option<[f32; 2]>,
    ) -> Self {
        self.with_plan(Plan {
            sampled,
            deviations,
            ..self.0.plan.clone()
        })
    }

    /// The same plan with names of the classes ([`Plan::class_names`], [`of_classes`]).
    ///
    /// # Errors
    /// The plan gets too long.
    pub(crate) fn with_class_names(&self, names: &[String]) -> Result<Self, PlanError> {
        self.with_longer(Plan {
            class_names: of_classes(names),
            ..self.0.plan.clone()
        })
    }

    /// The same plan with names of the features ([`Plan::columns`]); none where one is too long, or
    /// has hidden characters.
    ///
    /// # Errors
    /// There are not as many as features, two are the same, or the plan gets too long.
    pub(crate) fn with_columns(&self, names: &[String]) -> Result<Self, PlanError> {
        let plan = Plan {
            columns: of_classes(names),
            ..self.0.plan.clone()
        };
        check_row(&plan)?;
        self.with_longer(plan)
    }

    /// The same plan with the categories of the client's values ([`Plan::categories`]).
    ///
    /// # Errors
    /// They do not go with the input ([`categories::row_len`]), or the plan gets too long.
    pub(crate) fn with_categories(&self, categories: &[Categories]) -> Result<Self, PlanError> {
        let plan = Plan {
            categories: categories.to_vec(),
            ..self.0.plan.clone()
        };
        check_row(&plan)?;
        self.with_longer(plan)
    }

    /// The same plan with the outputs of a model of several ([`Plan::outputs`]). Where a name is too
    /// long or has hidden characters, they are `output_0` and so on.
    ///
    /// # Errors
    /// Their values are not those of the result, or the plan gets too long.
    pub(crate) fn with_outputs(&self, outputs: &[NamedOutput]) -> Result<Self, PlanError> {
        let are_shown = outputs
            .iter()
            .all(|output| is_shown(&output.name) && !output.name.is_empty());
        let named = |(at, output): (usize, &NamedOutput)| NamedOutput {
            name: match are_shown {
                true => output.name.clone(),
                false => format!("output_{at}"),
            },
            shape: output.shape.clone(),
        };
        let plan = Plan {
            outputs: outputs.iter().enumerate().map(named).collect(),
            ..self.0.plan.clone()
        };
        check_outputs(&plan)?;
        self.with_longer(plan)
    }

    /// Whether the server checks the client's keys: where floods hide what answers tell. Under masks
    /// false keys tell nothing.
    pub fn checks_keys(&self) -> bool {
        self.flood().is_some()
    }

    /// The same plan with a scale for each feature of the input.
    ///
    /// # Errors
    /// The plan gets too long.
    pub(crate) fn with_features(&self, scales: FeatureScales) -> Result<Self, PlanError> {
        let mut plan = self.0.plan.clone();
        plan.steps[0].kind = StepKind::Features(scales);
        self.with_longer(plan)
    }

    /// The same for a plan with more in it.
    fn with_longer(&self, plan: Plan) -> Result<Self, PlanError> {
        let length = plan.to_bytes().len();
        match length > MAX_BYTES {
            true => Err(PlanError::TooLong { length }),
            false => Ok(self.with_plan(plan)),
        }
    }

    /// Another plan, from which all that derives of this one derives.
    fn with_plan(&self, plan: Plan) -> Self {
        let parts = &self.0;
        Self(Arc::new(Parts {
            hash: plan.hash(),
            plan,
            forms: parts.forms.clone(),
            derived: parts.derived.clone(),
            once: parts.once,
            flood: parts.flood,
            slot_keys: parts.slot_keys.clone(),
            slot_key_bytes: parts.slot_key_bytes,
        }))
    }

    /// BLAKE3 of [`Plan::to_bytes`]: what the parties compare.
    pub fn hash(&self) -> [u8; 32] {
        self.0.hash
    }

    /// Whether this is a clone of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How the value of each step is shared, by step.
    pub fn forms(&self) -> &[ShareForm] {
        &self.0.forms
    }

    /// Step `index` within the plan.
    pub fn place(&self, index: usize) -> Place<'_> {
        Place {
            plan: &self.0.plan,
            forms: &self.0.forms,
            index,
        }
    }

    /// Step `index`, compiled.
    pub fn compiled(&self, index: usize) -> Compiled<'_> {
        Compiled {
            place: self.place(index),
            derived: &self.0.derived[index],
        }
    }

    /// What the protocol of step `index` derived.
    pub fn derived(&self, index: usize) -> &Derived {
        &self.0.derived[index]
    }

    fn protocol(&self, index: usize) -> &dyn StepPlan {
        self.steps[index].kind.as_step()
    }

    /// The cost of step `index` for a batch. Its memory is in [`crate::cost::step`].
    pub fn cost(&self, index: usize, batch: usize) -> Cost {
        self.protocol(index).cost(&self.compiled(index), batch)
    }

    /// What the protocol of step `index` holds while it runs, beyond shares.
    pub(crate) fn protocol_memory(&self, index: usize, batch: usize) -> Memory {
        self.protocol(index).memory(&self.compiled(index), batch)
    }

    /// Whether the plan has lean steps.
    pub fn is_lean(&self) -> bool {
        let mut derived = self.0.derived.iter();
        derived.any(|derived| derived.lean().is_some())
    }

    /// The sets of silent OT of the plan, if it has any: those of its first such step.
    pub fn silent(&self) -> Option<Chain> {
        (0..self.steps.len()).find_map(|index| self.protocol(index).silent())
    }

    /// What a connection exchanges once, over all steps.
    pub fn once(&self) -> Once {
        self.0.once
    }

    /// The keys that the layers on slots need, with their parameters, in the order of both parties.
    pub fn slot_keys(&self) -> &[(SlotKeys, Parameters<u64>)] {
        &self.0.slot_keys
    }

    /// Bytes of these keys, which a client sends once for all its connections.
    pub fn slot_key_bytes(&self) -> u64 {
        self.0.slot_key_bytes
    }
}

impl Parts {
    fn new(plan: Plan, forms: Vec<ShareForm>, derived: Vec<Derived>) -> Self {
        let slot_keys = slot_keys::keys(derived.iter().filter_map(|derived| match derived {
            Derived::Slots { scheme, packing } => Some((*scheme, packing.as_ref())),
            _ => None,
        }));
        let bytes = |(keys, parameters): &(SlotKeys, Parameters<u64>)| {
            keys.bytes(parameters).iter().sum::<usize>() as u64
        };
        let once = |(index, derived): (usize, &Derived)| {
            let place = Place {
                plan: &plan,
                forms: &forms,
                index,
            };
            let step = plan.steps[index].kind.as_step();
            step.once(&Compiled { place, derived })
        };
        let once = derived.iter().enumerate().map(once);
        let mut steps = plan.steps.iter();
        Self {
            once: once.fold(Once::default(), Once::plus),
            flood: steps.find_map(|step| step.kind.as_step().flood()),
            hash: plan.hash(),
            slot_key_bytes: slot_keys.iter().map(bytes).sum(),
            slot_keys,
            plan,
            forms,
            derived,
        }
    }
}

fn refusal(plan: &Plan, index: usize, reason: String) -> PlanError {
    PlanError::Step {
        step: index,
        kind: plan.steps[index].kind.as_step().kind(),
        reason,
    }
}

fn nodes(plan: &Plan) -> Vec<Node<'_>> {
    plan.steps.iter().map(Step::node).collect()
}

/// The format, and bounds on numbers of steps, images, names and values: before any work.
fn check_sizes(plan: &Plan) -> Result<(), PlanError> {
    let field = |field, reason: String| Err(PlanError::Field { field, reason });
    if plan.format != FORMAT {
        return Err(PlanError::Format { found: plan.format });
    }
    let steps = plan.steps.len();
    if steps == 0 || steps > MAX_STEPS {
        return field("steps", format!("there are {steps}, not 1 to {MAX_STEPS}"));
    }
    if plan.output >= steps {
        return field("output", format!("step {} does not exist", plan.output));
    }
    if !(1..=MAX_BATCH).contains(&plan.max_batch) {
        let reason = format!("{} is not 1 to {MAX_BATCH}", plan.max_batch);
        return field("max_batch", reason);
    }
    if plan.band_bytes < LEAST_BAND_BYTES {
        let reason = format!("{} is less than {LEAST_BAND_BYTES}", plan.band_bytes);
        return field("band_bytes", reason);
    }
    if !plan.key_checks.is_power_of_two() || plan.key_checks > MOST_KEY_CHECKS {
        let reason = format!(
            "{} is not a power of two from 1 to {MOST_KEY_CHECKS}",
            plan.key_checks
        );
        return field("key_checks", reason);
    }
    if let Some([low, high]) = plan.sampled.filter(|[low, high]| low > high) {
        let reason = format!("{low} is above {high}");
        return field("sampled", reason);
    }
    if let Some([low, high]) = plan
        .deviations
        .filter(|[low, high]| !(*low >= 0.0 && low <= high))
    {
        let reason = format!("{low} to {high} is no range of deviations");
        return field("deviations", reason);
    }
    let outputs = plan.outputs.iter().map(|output| &output.name);
    let names: [(_, Vec<&String>); 4] = [
        ("model", vec![&plan.model]),
        ("class_names", plan.class_names.iter().collect()),
        ("columns", plan.columns.iter().collect()),
        ("outputs", outputs.collect()),
    ];
    for (name, found) in names {
        if !found.into_iter().all(|name| is_shown(name)) {
            let reason = format!("a name has at most {MAX_NAME} bytes and no hidden characters");
            return field(name, reason);
        }
    }
    if plan.finish.len() > MAX_FINISH {
        let reason = format!(
            "it has {} functions, more than {MAX_FINISH}",
            plan.finish.len()
        );
        return field("finish", reason);
    }
    let is_scale = |end: &Finish| matches!(end, Finish::Scale { .. });
    if plan.finish.len() > 1 && plan.finish.iter().any(is_scale) {
        let reason = "scales of outputs stand beside no function".into();
        return field("finish", reason);
    }
    if final_shape(plan).is_none() {
        let reason = "a function does not go with the result's shape".into();
        return field("finish", reason);
    }
    let sum = |of: fn(&Step) -> usize| plan.steps.iter().map(of).fold(0, usize::saturating_add);
    let all = sum(elements);
    if all > MAX_ELEMENTS {
        let reason = format!("their values have {all} {ELEMENTS}, more than {MAX_ELEMENTS}");
        return field("steps", reason);
    }
    let pooled = sum(|step| step.kind.as_step().pooled(elements(step)));
    if pooled > MAX_POOLED {
        let reason = format!("their pools take {pooled} values an image, more than {MAX_POOLED}");
        return field("steps", reason);
    }
    Ok(())
}

/// Categories go with the input, and names of features are one for each value of the client's row,
/// or none.
fn check_row(plan: &Plan) -> Result<(), PlanError> {
    let names = &plan.columns;
    let features = categories::row_len(&plan.categories, &plan.input().shape);
    let features = features.map_err(|reason| PlanError::Field {
        field: "categories",
        reason,
    })?;
    let distinct: BTreeSet<&String> = names.iter().collect();
    let reason = match (names.len(), distinct.len()) {
        (0, _) => return Ok(()),
        (count, _) if count != features => format!("there are {count} for {features} values"),
        (_, count) if count != features => "two have one name".into(),
        _ => return Ok(()),
    };
    Err(PlanError::Field {
        field: "columns",
        reason,
    })
}

/// The shape of what the client gets, where all functions go with the result's.
fn final_shape(plan: &Plan) -> Option<Vec<usize>> {
    let result = plan.steps.get(plan.output)?;
    shape_after(&plan.finish, &result.value.shape)
}

/// Most outputs of a plan.
const MAX_OUTPUTS: usize = 1024;

/// Several outputs have names of their own, shapes that arrays can have, and together as many
/// values as the result.
fn check_outputs(plan: &Plan) -> Result<(), PlanError> {
    if plan.outputs.is_empty() {
        return Ok(());
    }
    let refused = |reason: String| {
        let field = "outputs";
        Err(PlanError::Field { field, reason })
    };
    let names: BTreeSet<&String> = plan.outputs.iter().map(|output| &output.name).collect();
    if !(2..=MAX_OUTPUTS).contains(&names.len()) || names.len() != plan.outputs.len() {
        let reason = format!("they are not 2 to {MAX_OUTPUTS} with a name each");
        return refused(reason);
    }
    if names.iter().any(|name| name.is_empty()) {
        return refused("a name is empty".into());
    }
    let mut found = 0usize;
    for output in &plan.outputs {
        match shape::elements(&output.shape) {
            Ok(elements) => found = found.saturating_add(elements),
            Err(error) => return refused(error.to_string()),
        }
    }
    match final_shape(plan).map_or(0, |shape| shape.iter().product()) {
        wanted if wanted == found => Ok(()),
        wanted => refused(format!("they have {found} values, and the result {wanted}")),
    }
}

/// Silent OTs of a connection are of one kind.
fn check_silent(plan: &Plan) -> Result<(), PlanError> {
    let mut first = None;
    for (index, step) in plan.steps.iter().enumerate() {
        let Some(chain) = step.kind.as_step().silent() else {
            continue;
        };
        if *first.get_or_insert(chain) != chain {
            let reason = "its silent OTs are of another kind than those of a step before";
            return Err(refusal(plan, index, reason.into()));
        }
    }
    Ok(())
}

/// A result that is called a class is the opened index of the largest value, and nothing else.
fn check_class(plan: &Plan) -> Result<(), PlanError> {
    if !plan.finish.contains(&Finish::Class) {
        return Ok(());
    }
    let output = &plan.steps[plan.output];
    let is_class = |input: &usize| plan.steps[*input].kind.as_step().makes_class();
    let opens = output.kind.as_step().opens();
    match plan.finish.len() == 1 && opens && output.inputs.iter().all(is_class) {
        true => Ok(()),
        false => Err(PlanError::Field {
            field: "finish",
            reason: "its result is no opened class".into(),
        }),
    }
}

/// Elements of a step's value, of a shape not yet checked.
fn elements(step: &Step) -> usize {
    let shape = step.value.shape.iter();
    shape.fold(1, |product, &size| product.saturating_mul(size))
}

/// Inputs, trust level and range of a step. Steps before it were checked.
fn check_step(plan: &Plan, index: usize) -> Result<(), String> {
    let step = &plan.steps[index];
    if (index == 0) != step.kind.as_step().is_input() {
        return Err("the first step must be the input, and no other".into());
    }
    if let Some(input) = step.inputs.iter().find(|&&input| input >= index) {
        return Err(format!(
            "it reads value {input}, but only values before it exist"
        ));
    }
    let protocol = step.kind.as_step();
    if !protocol.trust().contains(&plan.trust) {
        return Err(format!(
            "this kind of step does not belong to trust level {}",
            plan.trust
        ));
    }
    let value = &step.value;
    if value.low > value.high || !FRACTION_BITS.contains(&value.fraction_bits) {
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
    let found = protocol
        .range(&inputs, value)
        .map_err(|error| error.to_string())?;
    if !Interval::of(value).contains(found) {
        return Err(format!(
            "its values are in {}..={}, outside its range {}..={}",
            found.low, found.high, value.low, value.high
        ));
    }
    Ok(())
}

/// What holds between the steps of a plan on shares: the result is opened and nothing else,
/// circuits are small and few, and every step takes the share forms of its inputs.
fn check_shares(plan: &Plan, forms: &[ShareForm]) -> Result<(), (usize, String)> {
    let opens = |step: &Step| step.kind.as_step().opens();
    let opened = plan.steps.iter().filter(|step| opens(step)).count();
    if !opens(&plan.steps[plan.output]) || opened != 1 {
        let reason = "the result must be opened, and nothing else".into();
        return Err((plan.output, reason));
    }
    let (mut windows, mut circuits) = (0usize, 0usize);
    for (index, step) in plan.steps.iter().enumerate() {
        let place = Place { plan, forms, index };
        let values = step.kind.as_step().circuit_values(&place);
        let [in_circuits, in_windows] = values.map_err(|reason| (index, reason))?;
        windows = windows.saturating_add(in_windows);
        circuits = circuits.saturating_add(in_circuits);
        if windows > MAX_WINDOWED || circuits > MAX_CIRCUIT_VALUES {
            let reason = format!(
                "the windows up to here have {windows} values, {circuits} of them in {OWN_CIRCUITS}: \
                 more than {MAX_WINDOWED} or {MAX_CIRCUIT_VALUES}"
            );
            return Err((index, reason));
        }
    }
    match share_form::fault(&nodes(plan), forms) {
        Some((index, fault)) => Err((index, format!("shares do not work out: {fault:?}"))),
        None => Ok(()),
    }
}

/// The fields of each step: before the shares between steps, which follow from them.
fn check_fields(plan: &Plan, forms: &[ShareForm]) -> Result<(), PlanError> {
    (0..plan.steps.len()).try_for_each(|index| {
        let place = Place { plan, forms, index };
        let checked = plan.steps[index].kind.as_step().check(&place);
        checked.map_err(|reason| refusal(plan, index, reason))
    })
}

/// What each step derives.
fn compile(plan: &Plan, forms: &[ShareForm]) -> Result<Vec<Derived>, PlanError> {
    let compile = |index: usize| {
        let place = Place { plan, forms, index };
        let compiled = plan.steps[index].kind.as_step().compile(&place);
        compiled.map_err(|reason| refusal(plan, index, reason))
    };
    (0..plan.steps.len()).map(compile).collect()
}
