//! The plan's types, its bytes and its hash.

use pronghorn_graph::{
    features::FeatureScales,
    finish::{Finish, shape_after},
    fixed::ValueSpec,
    oracle::{self, OracleError},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    categories::Categories,
    names::NamedOutput,
    rlwe::Rlwe,
    share_form::Node,
    step::{Outline, step_name},
    steps::StepKind,
    trust::TrustLevel,
};

/// The format of [`Plan::to_bytes`]; a reader refuses any other.
pub const FORMAT: u16 = 14;

/// The model's name in a plan whose owner gives none.
pub const MODEL: &str = "model";

/// Longest plan a reader accepts, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// What both parties do, step by step. Step `i` makes value `i`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`FORMAT`].
    pub format: u16,
    /// The name that the model's owner gives to clients, or [`MODEL`].
    pub model: String,
    /// Who learns what.
    pub trust: TrustLevel,
    /// Steps in order; the first is the only input: [`StepKind::Input`] or [`StepKind::Features`].
    pub steps: Vec<Step>,
    /// The step whose value is the result.
    pub output: usize,
    /// What the client does to the decoded result in floating point.
    pub finish: Vec<Finish>,
    /// Most images in one batch, from the memory the server's owner allows.
    pub max_batch: usize,
    /// Bytes of the server's words, about, in and out of a band of rows of a batch under
    /// `client-aided` ([`crate::bands`]).
    pub band_bytes: u64,
    /// Sets of keys that a client makes where a step needs its keys: all but one of them are
    /// opened, and that one is used. A power of two up to [`MOST_KEY_CHECKS`]; 1 opens none.
    pub key_checks: usize,
    /// The range of results on the owner's samples, widened and rounded outwards, in units of the
    /// result. None where there were no samples, or results are a class alone.
    /// A result beyond it is likely of an input unlike the samples.
    pub sampled: Option<[i32; 2]>,
    /// The model's names of its classes, in the order of its outputs; none where they are their
    /// indices.
    pub class_names: Vec<String>,
    /// The names of the values of the client's row, in their order, as the owner's table has them; none
    /// where the samples had no names. Clients find their columns by them.
    pub columns: Vec<String>,
    /// The outputs of a model of several, whose values follow each other in the result; none where
    /// there is one. Clients take the result apart by them.
    pub outputs: Vec<NamedOutput>,
    /// The least and the largest deviation of the values of one of the owner's samples from their
    /// mean, widened and rounded outwards. None where no deviation is computed in the network, and
    /// where the input's values have scales of their own. An input beyond them is unlike the samples:
    /// its deviations may be outside the tables of the network.
    pub deviations: Option<[f32; 2]>,
    /// The values of the client's row that are categories, by ascending place. Indicators stand for
    /// each in the input, at its place among the other values.
    pub categories: Vec<Categories>,
}

/// Bytes of a band by default: fewer make more messages, and more take more memory.
pub const BAND_BYTES: u64 = 24 << 20;

/// Fewest bytes of a band.
pub const LEAST_BAND_BYTES: u64 = 1 << 10;

/// Most sets of keys of which a client opens all but one.
pub const MOST_KEY_CHECKS: usize = 256;

/// One step and the value it makes. Its name is its number and kind: the model's own names stay
/// with its owner ([`Names`](crate::Names)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What happens.
    pub kind: StepKind,
    /// Steps whose values it reads, all before it.
    pub inputs: Vec<usize>,
    /// Shape, scale and range of the value it makes.
    pub value: ValueSpec,
}

impl Step {
    /// The step as the rules of shares see it.
    pub fn node(&self) -> Node<'_> {
        Node {
            rules: self.kind.as_step(),
            inputs: &self.inputs,
            value: &self.value,
        }
    }
}

/// Why bytes are not a plan, or a plan is not one to follow.
#[derive(Debug, Error)]
pub enum PlanError {
    /// Longer than [`MAX_BYTES`].
    #[error("the plan has {length} bytes; at most {MAX_BYTES} are accepted")]
    TooLong {
        /// Bytes found.
        length: usize,
    },
    /// Another format.
    #[error(
        "the plan has format {found}, this version reads format {FORMAT}: use the same version of pronghorn on both sides"
    )]
    Format {
        /// The format found.
        found: u16,
    },
    /// Not decodable.
    #[error("the plan's bytes are damaged: {reason}")]
    Damaged {
        /// What the decoder met.
        reason: String,
    },
    /// A field with a value no honest plan has.
    #[error("the plan's step {}: {reason}", step_name(*step, kind))]
    Step {
        /// Number of the step.
        step: usize,
        /// Its kind in a word.
        kind: &'static str,
        /// What is wrong and what was expected.
        reason: String,
    },
    /// A field of the plan as a whole.
    #[error("the plan's {field}: {reason}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong and what was expected.
        reason: String,
    },
}

impl Plan {
    /// Canonical bytes: a format number, then the fields in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a plan in memory always serialises")
    }

    /// Reads the fields, of which none is checked yet ([`Plan::from_bytes`]).
    ///
    /// # Errors
    /// The bytes are not a plan of this format.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, PlanError> {
        if bytes.len() > MAX_BYTES {
            return Err(PlanError::TooLong {
                length: bytes.len(),
            });
        }
        // The decoder's own words say nothing to users.
        let damaged = |_: postcard::Error| PlanError::Damaged {
            reason: "its fields do not decode".into(),
        };
        let (format, _) = postcard::take_from_bytes::<u16>(bytes).map_err(damaged)?;
        if format != FORMAT {
            return Err(PlanError::Format { found: format });
        }
        let (plan, rest) = postcard::take_from_bytes::<Self>(bytes).map_err(damaged)?;
        if !rest.is_empty() {
            return Err(PlanError::Damaged {
                reason: format!("{} bytes follow its end", rest.len()),
            });
        }
        Ok(plan)
    }

    /// BLAKE3 of [`Plan::to_bytes`]: what the parties compare.
    pub fn hash(&self) -> [u8; 32] {
        blake3::derive_key("pronghorn 2026 plan hash", &self.to_bytes())
    }

    /// [`Plan::hash`] in hexadecimal, as users compare it.
    pub fn hash_hex(&self) -> String {
        self.hash()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// JSON for people and tools.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan in memory always serialises")
    }

    /// By how many units a result's integer may differ from the oracle's: 0, unless ciphertexts
    /// are approximate.
    pub fn tolerance(&self) -> i32 {
        let unit = f64::from(-self.result().fraction_bits).exp2();
        let error = self.steps[self.output].kind.as_step().error();
        error.map_or(0, |error| ((error / unit).ceil() as i32).saturating_add(1))
    }

    /// Images that a batch counts as against a client's quota. A batch of an encrypted network
    /// counts as all of its slots, whatever the client says it put there.
    pub fn charged(&self, batch: usize) -> usize {
        self.steps[self.output].kind.as_step().charged(batch)
    }

    /// The integers of inputs, one image after the other, clamped to the input's range, and how
    /// many had to be clamped.
    ///
    /// # Errors
    /// When a value is infinite or NaN.
    pub fn quantise(&self, values: &[f32]) -> Result<(Vec<i32>, usize), OracleError> {
        match self.features() {
            Some(scales) => scales.quantise(self.input(), values),
            None => oracle::quantise_input(self.input(), values),
        }
    }

    /// The same of finite values of an image from element `first` on, into as many integers; how
    /// many were clamped.
    pub fn quantise_into(&self, first: usize, values: &[f32], integers: &mut [i32]) -> usize {
        match self.features() {
            Some(scales) => scales.quantise_into(self.input(), first, values, integers),
            None => oracle::quantise_into(self.input(), values, integers),
        }
    }

    /// The scales of features, if they have their own.
    pub fn features(&self) -> Option<&FeatureScales> {
        match &self.steps[0].kind {
            StepKind::Features(scales) => Some(scales),
            _ => None,
        }
    }

    /// # Errors
    /// When a value of some images is infinite or NaN.
    pub fn check_finite(&self, values: &[f32]) -> Result<(), OracleError> {
        oracle::check_finite(self.input(), values)
    }

    /// Whether an image's deviation is beyond those of the owner's samples; no where the plan does
    /// not say.
    pub fn deviates(&self, image: &[f32]) -> bool {
        self.deviations.is_some_and(|[low, high]| {
            let found = deviation(image);
            found < f64::from(low) || found > f64::from(high)
        })
    }

    /// For each image, whether a value of its result is beyond those of the owner's samples, or its
    /// own deviation is; none where the plan does not say. `deviates`: whether each does.
    pub fn beyond_samples(&self, deviates: &[bool], integers: &[i32]) -> Option<Vec<bool>> {
        if self.sampled.is_none() && self.deviations.is_none() {
            return None;
        }
        let is_beyond = |result: &[i32]| {
            let [low, high] = self.sampled.unwrap_or([i32::MIN, i32::MAX]);
            !result.iter().all(|value| (low..=high).contains(value))
        };
        let results = integers.chunks(self.result().len().max(1));
        let both = deviates.iter().zip(results);
        Some(
            both.map(|(&deviates, result)| deviates || is_beyond(result))
                .collect(),
        )
    }

    /// Shape, scale and range of the input.
    pub fn input(&self) -> &ValueSpec {
        &self.steps[0].value
    }

    /// Shape, scale and range of the result before [`Plan::finish`].
    pub fn result(&self) -> &ValueSpec {
        &self.steps[self.output].value
    }

    /// Elements of one image.
    pub fn input_len(&self) -> usize {
        self.input().len()
    }

    /// Shape of the result after [`Plan::finish`].
    pub fn output_shape(&self) -> Vec<usize> {
        let shape = &self.result().shape;
        shape_after(&self.finish, shape).unwrap_or_else(|| shape.clone())
    }

    /// The client's knowledge after a run, in words.
    pub fn client_learns(&self) -> String {
        let is_output =
            |finish: &Finish| matches!(finish, Finish::Scale { .. } | Finish::Probabilities);
        self.trust.client_learns_with(match self.finish.as_slice() {
            [.., Finish::Class] => "the class of its input alone",
            finish if finish.iter().all(is_output) => "its output",
            _ => "its output and the values that it is taken from",
        })
    }

    /// Number and kind of a step that the plan has, for messages.
    pub fn step_name(&self, index: usize) -> String {
        step_name(index, self.steps[index].kind.as_step().kind())
    }

    /// Elements of one image's result after [`Plan::finish`].
    pub fn output_len(&self) -> usize {
        self.output_shape().iter().product()
    }

    /// The steps that round by a dither, in order, and the bits that each drops: of all channels, or
    /// of each.
    pub fn dithered_steps(&self) -> impl Iterator<Item = (usize, &[u32])> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(|(index, step)| Some((index, step.kind.as_step().dithers()?)))
    }

    /// Whether a step rounds by a dither. Then results differ from run to run.
    pub fn is_dithered(&self) -> bool {
        self.dithered_steps().next().is_some()
    }

    /// The linear steps by RLWE, with their parameters.
    pub fn linear_steps(&self) -> impl Iterator<Item = (usize, &Step, &Rlwe)> {
        let steps = self.steps.iter().enumerate();
        steps.filter_map(|(index, step)| Some((index, step, step.kind.as_step().rlwe()?)))
    }
}

impl Outline for Plan {
    fn steps(&self) -> usize {
        self.steps.len()
    }

    fn node(&self, index: usize) -> Node<'_> {
        self.steps[index].node()
    }

    fn output(&self) -> usize {
        self.output
    }

    fn max_batch(&self) -> usize {
        self.max_batch
    }

    fn band_bytes(&self) -> u64 {
        self.band_bytes
    }

    fn kind(&self, index: usize) -> &'static str {
        self.steps[index].kind.as_step().kind()
    }
}
/// The root of the mean square of an image's values about their mean.
pub(crate) fn deviation(image: &[f32]) -> f64 {
    let count = image.len().max(1) as f64;
    let mean = image.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let squares = image.iter().map(|&value| (f64::from(value) - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt()
}
