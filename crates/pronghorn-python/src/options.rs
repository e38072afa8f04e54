//! The options of a plan, by the names that users give them.

use numpy::PyReadonlyArrayDyn;
use pronghorn_plan::{
    BuildOptions, Engine, NamedOutput, Opening, Rounding,
    objective::{Network, Objective},
    planner::{KEY_CHECKS, schedule::Passes},
};
use pyo3::prelude::*;

use crate::{array, native};

fn named_output((name, shape): (String, Vec<usize>)) -> NamedOutput {
    NamedOutput { name, shape }
}

/// The fields of Python's `PlanOptions`, which documents and checks them.
#[derive(FromPyObject)]
pub struct PlanOptions<'py> {
    name: Option<String>,
    class_names: Vec<String>,
    columns: Vec<String>,
    categories: String,
    outputs: Vec<(String, Vec<usize>)>,
    trust: String,
    samples: Option<PyReadonlyArrayDyn<'py, f32>>,
    made: usize,
    input_range: (f32, f32),
    memory: Option<u64>,
    weight_bits: Option<u32>,
    input_bits: Option<u32>,
    error: Option<f64>,
    without: Vec<String>,
    engine: Option<String>,
    objective: Option<String>,
    network: Option<String>,
    assume: Option<String>,
    opening: Option<String>,
    rounding: Option<String>,
    key_checks: Option<usize>,
    flood_bits: Option<u32>,
}

impl PlanOptions<'_> {
    /// The planner's options for a model of this input shape.
    ///
    /// # Errors
    ///
    /// A name that the core does not know, or samples of another shape.
    pub fn read(self, input_shape: &[usize]) -> PyResult<BuildOptions> {
        let samples = self
            .samples
            .map(|samples| array::images(&samples, input_shape))
            .transpose()?;
        Ok(BuildOptions {
            name: self.name,
            class_names: self.class_names,
            columns: self.columns,
            categories: serde_json::from_str(&self.categories).map_err(native)?,
            outputs: self.outputs.into_iter().map(named_output).collect(),
            trust: Some(self.trust.parse().map_err(native)?),
            samples: samples.map(|(values, _)| values),
            made: self.made,
            input_range: self.input_range,
            memory: self.memory.unwrap_or(BuildOptions::default().memory),
            weight_bits: self.weight_bits,
            input_bits: self.input_bits,
            error: self.error,
            passes: passes_without(&self.without)?,
            engine: self
                .engine
                .map(|name| named("engine", &ENGINES, &name))
                .transpose()?,
            objective: self
                .objective
                .map(|name| named("objective", &OBJECTIVES, &name))
                .transpose()?,
            network: self
                .network
                .map_or(Ok(Network::default()), |name| name.parse())
                .map_err(native)?,
            flood_bits: self
                .flood_bits
                .unwrap_or(BuildOptions::default().flood_bits),
            lpn: self
                .assume
                .map_or(Ok(true), |name| named("assumption", &ASSUMPTIONS, &name))?,
            opening: self
                .opening
                .map(|name| named("opening", &OPENINGS, &name))
                .transpose()?,
            rounding: self.rounding.map_or(Ok(Rounding::default()), |name| {
                named("rounding", &ROUNDINGS, &name)
            })?,
            key_checks: self.key_checks.unwrap_or(KEY_CHECKS),
        })
    }
}

/// A choice: its name, a few words on it for `--help`, and its value.
type Choice<T> = (&'static str, &'static str, T);

/// Sets the switch of a pass.
type Switch = fn(&mut Passes) -> &mut bool;

/// Passes over an encrypted network that can be switched off.
const PASSES: [Choice<Switch>; 2] = [
    (
        "lazy-rescaling",
        "rescale late, not after each layer and product",
        |passes| &mut passes.lazy_rescaling,
    ),
    (
        "lazy-relinearisation",
        "relinearise few products, not each that is rescaled",
        |passes| &mut passes.lazy_relinearisation,
    ),
];

/// The engines of linear steps that can be named.
const ENGINES: [Choice<Engine>; 3] = [
    (
        "coefficient",
        "many values of an image in a polynomial",
        Engine::Coefficient,
    ),
    (
        "slot",
        "many values of an image in slots, with rotations",
        Engine::Slot,
    ),
    ("batch", "one value of many images in a row", Engine::Batch),
];

/// The quantities that a plan can be chosen by.
const OBJECTIVES: [Choice<Objective>; 3] = [
    (
        "throughput",
        "images a second of full batches",
        Objective::Throughput,
    ),
    ("latency", "seconds of one image", Objective::Latency),
    ("traffic", "bytes of one image", Objective::Traffic),
];

/// The name of each pass, and what it does.
#[pyfunction]
pub fn passes() -> Vec<(&'static str, &'static str)> {
    described(&PASSES)
}

/// The name of each engine, and what it does.
#[pyfunction]
pub fn engines() -> Vec<(&'static str, &'static str)> {
    described(&ENGINES)
}

/// The assumptions that oblivious transfers may rest on.
const ASSUMPTIONS: [Choice<bool>; 2] = [
    ("lpn", "AES and learning parity with noise", true),
    ("aes", "AES alone", false),
];

/// The results that clients can learn.
const OPENINGS: [Choice<Opening>; 2] = [
    (
        "class",
        "the index of the largest output, and under two-party nothing else",
        Opening::Class,
    ),
    ("values", "all outputs", Opening::Values),
];

/// The name of each opening, and what it is.
#[pyfunction]
pub fn openings() -> Vec<(&'static str, &'static str)> {
    described(&OPENINGS)
}

/// How values between layers can lose bits.
const ROUNDINGS: [Choice<Rounding>; 2] = [
    (
        "nearest",
        "results equal those of the oracle",
        Rounding::Nearest,
    ),
    (
        "dithered",
        "at random: two thirds of the bytes of comparisons, results that differ a little from run to run, and more of \
         the values within for a client that asks again for one input",
        Rounding::Dithered,
    ),
];

/// The name of each rounding, and what it is.
#[pyfunction]
pub fn roundings() -> Vec<(&'static str, &'static str)> {
    described(&ROUNDINGS)
}

/// The name of each assumption, and what it is.
#[pyfunction]
pub fn assumptions() -> Vec<(&'static str, &'static str)> {
    described(&ASSUMPTIONS)
}

/// The network that a name means, in seconds of a round trip and bits a second.
///
/// # Errors
///
/// There is no such network.
#[pyfunction]
pub fn network(name: &str) -> PyResult<(f64, f64)> {
    let network: Network = name.parse().map_err(native)?;
    Ok((network.round_trip, network.bandwidth))
}

/// The name of each objective, and what it is.
#[pyfunction]
pub fn objectives() -> Vec<(&'static str, &'static str)> {
    described(&OBJECTIVES)
}

/// A line that says which passes were on.
pub fn describe(mut passes: Passes) -> String {
    let states = PASSES.map(|(name, _, switch)| {
        let state = if *switch(&mut passes) { "on" } else { "off" };
        format!("{name} {state}")
    });
    format!("passes over the network: {}", states.join(", "))
}

/// All passes but those named.
pub fn passes_without(names: &[String]) -> PyResult<Passes> {
    let mut passes = Passes::default();
    for name in names {
        let switch = named("pass", &PASSES, name)?;
        *switch(&mut passes) = false;
    }
    Ok(passes)
}

/// The value of the choice with this name.
fn named<T: Copy>(kind: &str, choices: &[Choice<T>], name: &str) -> PyResult<T> {
    choices
        .iter()
        .find(|(known, _, _)| *known == name)
        .map(|(_, _, value)| *value)
        .ok_or_else(|| native(format!("there is no {kind} {name:?}")))
}

fn described<T>(choices: &[Choice<T>]) -> Vec<(&'static str, &'static str)> {
    choices
        .iter()
        .map(|(name, what, _)| (*name, *what))
        .collect()
}
