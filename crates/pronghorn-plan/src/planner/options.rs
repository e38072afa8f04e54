//! What the model's owner decides.

use pronghorn_graph::names::printable;
use serde::{Deserialize, Serialize};

use super::schedule::Passes;
use crate::{
    categories::Categories,
    flood::LEAST_BITS,
    names::NamedOutput,
    objective::{Goal, Network, Objective},
    plan::MODEL,
    trust::TrustLevel,
};

/// The linear engines, as a choice of the model's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// One ciphertext row an element, one coefficient an image; see [`crate::steps::linear::clear`].
    Batch,
    /// One ciphertext for many elements of an image, one coefficient an element.
    Coefficient,
    /// One ciphertext for many elements of an image, one slot an element.
    Slot,
}

/// What the client learns in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opening {
    /// The index of the largest value, and under `two-party` no value.
    Class,
    /// The values.
    Values,
}

/// How values lose bits between layers, as a choice of the model's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest: results are those of the oracle.
    #[default]
    Nearest,
    /// By a dither that no two runs share, under `two-party`: comparisons take two thirds of the
    /// bytes, results differ a little from run to run, and a client that asks again for one input
    /// learns more of the values within.
    Dithered,
}

/// What the model's owner decides; no Debug, samples may be secret.
#[derive(Clone)]
pub struct BuildOptions {
    /// The model's name for clients; none: [`MODEL`]. That of its file stays with its owner.
    pub name: Option<String>,
    /// The model's names of its classes, for clients; none where they are their indices.
    pub class_names: Vec<String>,
    /// The names of the features of a row, for clients; none where they have no names.
    pub columns: Vec<String>,
    /// The values of a client's row that are categories.
    pub categories: Vec<Categories>,
    /// The outputs of a model of several, for clients; see [`Plan::outputs`](crate::Plan::outputs).
    pub outputs: Vec<NamedOutput>,
    /// None: [`TrustLevel::TwoParty`].
    pub trust: Option<TrustLevel>,
    /// Inputs to choose ranges from, `images * elements` values; none: see
    /// [`SYNTHETIC_IMAGES`](super::SYNTHETIC_IMAGES).
    pub samples: Option<Vec<f32>>,
    /// The last so many samples are made up: they tell ranges alone, and no errors.
    pub made: usize,
    /// Smallest and largest input where there are no samples.
    pub input_range: (f32, f32),
    /// What the server may use for one batch, in bytes.
    pub memory: u64,
    /// Bits of every layer's weights; none: chosen layer by layer.
    pub weight_bits: Option<u32>,
    /// Bits of every layer's input; none: chosen layer by layer.
    pub input_bits: Option<u32>,
    /// Relative rms error of the result, against the float model on the samples, that the planner
    /// aims at; none: [`RESULT_ERROR`], under `two-party` and for single images in the coefficient
    /// engine [`SHARES_ERROR`], and for rows of features that differ [`TABLE_ERROR`].
    pub error: Option<f64>,
    /// Passes over an encrypted network.
    pub passes: Passes,
    /// The engine of linear steps under `two-party` and `client-aided`; none: what `objective`
    /// makes best.
    pub engine: Option<Engine>,
    /// What is to be least where there is a choice. None: [`Objective::Latency`] under `two-party`.
    /// Under `client-aided` [`Objective::Throughput`], or `Latency` where one image alone does not
    /// fit in `memory` in the batch engine, or takes more than 256 MiB.
    pub objective: Option<Objective>,
    /// The network that latency is judged on.
    pub network: Network,
    /// Whether OTs may rest on learning parity with noise (LPN).
    pub lpn: bool,
    /// Bits of the statistical distance that floods keep over all answers under a key, 40 to 128, under
    /// `encrypted`.
    pub flood_bits: u32,
    /// What the client learns in the end. None: the class alone of a network that ends in ArgMax,
    /// where the trust level can, and else the values.
    pub opening: Option<Opening>,
    /// How values lose bits between layers.
    pub rounding: Rounding,
    /// Sets of a client's keys, of which the server opens all but one. A false set passes with
    /// probability `1 / key_checks`. A power of two up to
    /// [`MOST_KEY_CHECKS`](crate::plan::MOST_KEY_CHECKS); 1 opens none.
    pub key_checks: usize,
}

/// Sets of keys where none are named: a false one passes once in 64 times.
pub const KEY_CHECKS: usize = 64;

impl BuildOptions {
    /// The model's name in its plan.
    pub(super) fn model_name(&self) -> String {
        printable(self.name.as_deref().unwrap_or(MODEL))
    }

    /// What the plan is chosen for.
    pub fn goal(&self) -> Goal {
        Goal {
            objective: self.objective.unwrap_or_default(),
            network: self.network,
        }
    }

    /// Whether all of so many inputs are indicators of categories.
    pub(super) fn are_indicators(&self, inputs: usize) -> bool {
        let counts = self.categories.iter().map(|each| each.known.count());
        inputs > 0 && counts.sum::<usize>() == inputs
    }

    /// The rows of so many values that are the owner's, of samples or of values made of them.
    pub(super) fn real<'a>(&self, rows: &'a [f32], values: usize) -> &'a [f32] {
        &rows[..rows.len().saturating_sub(self.made * values)]
    }
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            name: None,
            class_names: vec![],
            columns: vec![],
            categories: vec![],
            outputs: vec![],
            trust: None,
            samples: None,
            made: 0,
            input_range: (0.0, 1.0),
            memory: 4 << 30,
            weight_bits: None,
            input_bits: None,
            error: None,
            passes: Passes::default(),
            engine: None,
            objective: None,
            network: Network::default(),
            lpn: true,
            flood_bits: LEAST_BITS,
            opening: None,
            rounding: Rounding::default(),
            key_checks: KEY_CHECKS,
        }
    }
}

/// The error to aim at where none is named.
pub const RESULT_ERROR: f64 = 0.05;

/// The same on shares and in the coefficient engine, where precision costs a few percent of the
/// bytes. With 0.05 one image in 300 of Gazelle's network A changes its class, and one photo in 11
/// of MobileNetV1 0.25.
pub const SHARES_ERROR: f64 = 0.02;

/// The same for rows of features that differ by powers of two on samples. Networks on tables are
/// small, so precision costs 7 % of the bytes under `two-party` and nothing under `encrypted`. With
/// 0.02 and 0.05 up to one row in 40 of a logistic regression changes its class.
pub const TABLE_ERROR: f64 = 0.01;
