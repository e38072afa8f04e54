//! How close a plan comes to the float network: measured while planning, and stated.

use pronghorn_graph::{fixed::ValueSpec, oracle};

use super::BuildError;

/// Users are warned of an expected error of so many times the aim.
pub const WARN: f64 = 1.5;

/// There is no plan with an expected error of more than so many times the aim.
pub const REFUSE: f64 = 5.0;

/// With fewer images a mean says nothing.
const LEAST_IMAGES: usize = 4;

/// The expected error of a plan: of its network, which runs equal, on samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fidelity {
    /// What the planner aimed at.
    pub aim: f64,
    /// Root mean square of the difference to the float result, before softmax and the like, over
    /// that of the float result about the mean of each output. Without samples, or with a few: over
    /// that of the float result itself.
    pub error: f64,
    /// Whether it is about the mean.
    pub about_mean: bool,
    /// The part of the images whose largest output is the float network's.
    pub alike: f64,
    /// Images that it was measured on.
    pub images: usize,
}

impl Fidelity {
    /// Of results with `outputs` elements an image.
    pub(super) fn new(found: &[f32], target: &Target<'_>, aim: f64) -> Self {
        let wanted = target.wanted;
        let images = wanted.len() / target.outputs;
        let pairs = found.iter().zip(wanted);
        let difference: f64 = pairs
            .map(|(&f, &w)| square(f64::from(f) - f64::from(w)))
            .sum();
        let spread = target.spread().filter(|&spread| spread > 0.0);
        let size: f64 = wanted.iter().map(|&w| square(w.into())).sum();
        Self {
            aim,
            error: match difference {
                0.0 => 0.0,
                _ => (difference / spread.unwrap_or(size)).sqrt(),
            },
            about_mean: spread.is_some(),
            alike: alike(found, wanted, target.outputs) as f64 / images as f64,
            images,
        }
    }

    /// Whether the error is no more than the aim.
    pub fn is_reached(&self) -> bool {
        self.error <= self.aim
    }

    /// What users are told where the aim is missed by far.
    pub fn warning(&self) -> Option<String> {
        (self.error > WARN * self.aim).then(|| {
            format!(
                "the expected error is {:.2}, and {} was aimed at: no more precise plan was found. Give samples that \
                 represent the inputs, or accept it with --error {:.2} (error={:.2})",
                self.error, self.aim, self.error, self.error
            )
        })
    }

    /// # Errors
    /// [`BuildError::Imprecise`] where results would be of no use.
    pub(super) fn judge(&self) -> Result<(), BuildError> {
        let Self { aim, error, .. } = *self;
        match error <= REFUSE * aim {
            true => Ok(()),
            false => Err(BuildError::Imprecise { error, aim }),
        }
    }
}

/// The expected error in words, for plans and logs.
impl std::fmt::Display for Fidelity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = match self.about_mean {
            true => "the outputs' spread over samples",
            false => "the outputs",
        };
        let (error, aim, images) = (self.error, self.aim, self.images);
        let alike = (self.alike * images as f64).round();
        let digits = if error < 0.01 { 4 } else { 3 };
        write!(
            f,
            "expected error {error:.digits$} of {of} (aim {aim}); the largest output is the float \
             model's on {alike} of {images} samples"
        )
    }
}

/// The float network's results that a plan's are compared with.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// Before softmax and the like, `[image][output]`.
    pub wanted: &'a [f32],
    /// Outputs of an image.
    pub outputs: usize,
    /// Whether the inputs are the user's: made-up ones tell little of the outputs' spread.
    pub real: bool,
}

impl Target<'_> {
    /// The expected error of a network with these results.
    pub fn fidelity(&self, result: &ValueSpec, integers: &[i32], aim: f64) -> Fidelity {
        let images = self.wanted.len() / self.outputs;
        let found = oracle::finish(&[], result, integers, images);
        Fidelity::new(&found, self, aim)
    }

    /// The squares of the results about the mean of each output, summed; as if over all inputs,
    /// whose mean is not quite that of these.
    fn spread(&self) -> Option<f64> {
        let images = self.wanted.len() / self.outputs;
        (self.real && images >= LEAST_IMAGES).then(|| {
            let of = |output: usize| {
                let values = || self.wanted[output..].iter().step_by(self.outputs);
                let mean = values().map(|&w| f64::from(w)).sum::<f64>() / images as f64;
                values().map(|&w| square(f64::from(w) - mean)).sum::<f64>()
            };
            let sum: f64 = (0..self.outputs).map(of).sum();
            sum * images as f64 / (images - 1) as f64
        })
    }
}

/// Images with the same largest output.
fn alike(found: &[f32], wanted: &[f32], outputs: usize) -> usize {
    let largest = |values: &[f32]| {
        let places = (0..values.len()).rev();
        places.max_by(|&a, &b| values[a].total_cmp(&values[b]))
    };
    let pairs = found.chunks(outputs).zip(wanted.chunks(outputs));
    pairs.filter(|(f, w)| largest(f) == largest(w)).count()
}

fn square(value: f64) -> f64 {
    value * value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(wanted: &[f32], real: bool) -> Target<'_> {
        Target {
            wanted,
            outputs: 2,
            real,
        }
    }

    #[test]
    fn errors_are_about_the_mean() {
        // Outputs of 1,000 and 0 that move by one: errors of a tenth are a tenth.
        let wanted = [1001.0, 1.0, 999.0, -1.0].repeat(2);
        let found = [1001.1, 1.1, 998.9, -0.9].repeat(2);
        let about = Fidelity::new(&found, &target(&wanted, true), 0.05);
        assert!(
            about.about_mean && (about.error - 0.0866).abs() < 1e-3,
            "{about:?}"
        );
        let plain = Fidelity::new(&found, &target(&wanted, false), 0.05);
        assert!(!plain.about_mean && plain.error < 2e-4);
        assert_eq!((about.alike, about.images), (1.0, 4));
        let few = Fidelity::new(&found[..4], &target(&wanted[..4], true), 0.05);
        assert!(!few.about_mean && few.error == plain.error);
    }

    #[test]
    fn results_without_a_spread_have_an_error() {
        let wanted = [5.0, 1.0].repeat(4);
        let found = [1.0, 5.0, 5.0, 1.0].repeat(2);
        let fidelity = Fidelity::new(&found, &target(&wanted, true), 0.05);
        assert!(!fidelity.about_mean && fidelity.error > 0.5);
        assert_eq!(fidelity.alike, 0.5);
        assert!(fidelity.judge().is_err() && fidelity.warning().is_some());
        let exact = Fidelity::new(&wanted, &target(&wanted, true), 0.05);
        assert!(exact.error == 0.0 && exact.judge().is_ok() && exact.warning().is_none());
    }
}
