//! How close a plan comes to the float network: measured while planning, and stated.

use std::ops::Range;

use pronghorn_graph::{finish::Finish, fixed::ValueSpec, oracle};
use serde::{Deserialize, Serialize};

use super::{
    BuildError,
    error::{accept, at_most},
};
use crate::names::NamedOutput;

/// Users are warned of an expected error of so many times the aim.
pub const WARN: f64 = 1.5;

/// There is no plan with an expected error of more than so many times the aim.
pub const REFUSE: f64 = 5.0;

/// With more outputs than this the errors of all are summed up in a line.
const MOST_LINES: usize = 10;

/// One of so many values of an output may be off: the border of a map.
const MOST_HIDDEN: usize = 1000;

/// An output that is off by such a part of its own spread is of no use.
const USELESS: f64 = 0.5;

/// Values that lie so many times the median deviation from the median are no spread: of normal
/// ones, four standard deviations.
const FAR: f64 = 6.0;

/// No more than so many: more may be rare events.
const ALONE: usize = 2;

/// So many times as far is no rare event, either, of one value in [`FEW`].
const VERY_FAR: f64 = 100.0;

/// See [`VERY_FAR`].
const FEW: usize = 20;

/// Of so many samples it is known which are near to one another.
const LEAST_COMMON: usize = 16;

/// The part of images that keep their classes where errors of scores do not matter.
const KEPT_CLASSES: f64 = 0.95;

/// Users are told where fewer images make up the spread of the outputs, of so many or more.
const FEW_CARRIERS: f64 = 3.5;
const LEAST_TOLD: usize = 16;

/// With fewer images a mean says nothing.
const LEAST_IMAGES: usize = 4;

/// The spread that probabilities of an image have at least, all together: nobody needs smaller ones
/// to a part of themselves.
const LEAST_SPREAD: f64 = 0.1;

/// Scores that err by more, root mean square, say little of an image at the border of two classes.
const STEEP: f64 = 0.1;

/// Scores that are scaled so, at most.
const MOST_SCALED: usize = 1 << 18;

/// Parts of its scores that an image is tried with.
const SCALES: u16 = 16;

/// A part of an output's sum of squares that rounding in single precision is below.
pub(super) const ROUNDING: f64 = 2.5e-13;

/// The expected error of a plan: of its network, which runs equal, on samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// What the planner aimed at.
    pub aim: f64,
    /// Root mean square of the difference to the float result, over that of the float result about
    /// the mean of each output. Without samples, with a few, and where no output differs over
    /// samples: over that of the float result itself. Differences of constant outputs beside others
    /// are parts of these, where they are larger. Of a network that ends in a softmax or the like it
    /// is that of the result or of the values before, whichever is larger. Where outputs have scales
    /// it is that of the output, of those with names, that is worst.
    pub error: f64,
    /// Whether it is about the mean.
    pub about_mean: bool,
    /// The part of the images whose class is the float network's; `None` where outputs are no
    /// scores of classes.
    pub alike: Option<f64>,
    /// Images that it was measured on, of which equal ones count once.
    pub images: usize,
    /// The same for each output alone, in their order.
    pub outputs: Vec<OutputError>,
    /// That of the samples whose results are near to one another, where others are far away.
    pub common: Option<CommonError>,
    /// About how many of the images make up the spread of the outputs: the participation ratio of
    /// their squared distances from the mean. 0 where all results are the same; `None` without samples.
    pub carriers: Option<f64>,
}

/// The expected error of most samples, where the results of others make up the spread: those with
/// placeholders for missing values, say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommonError {
    /// As [`Fidelity::error`], of an output over most samples, as a part of their own spread.
    pub error: f64,
    /// How many others there are.
    pub far: usize,
}

/// The expected error of one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputError {
    /// As [`Fidelity::error`], of this output.
    pub error: f64,
    /// Root mean square of the difference to the float result, in the output's unit; in that of the
    /// value before the end where the error is of that.
    pub rmse: f64,
}

impl Fidelity {
    /// Of results with `outputs` elements an image.
    fn new(found: &[f32], target: &Target<'_>, aim: f64) -> Self {
        Self::above(found, target, aim, 0.0)
    }

    /// The same for outputs whose spread, all together, counts as no less than `least`.
    fn above(found: &[f32], target: &Target<'_>, aim: f64, least: f64) -> Self {
        let wanted = target.wanted;
        let images = wanted.len() / target.outputs;
        let each: Vec<Squares> = (0..target.outputs)
            .map(|output| target.squares(found, output))
            .collect();
        let mut all = each.iter().fold(Squares::default(), Squares::plus);
        let about_mean = all.spread > 0.0;
        if about_mean {
            all.spread = all.spread.max(square(least) * images as f64);
        }
        let output = |squares: &Squares| OutputError {
            error: squares.error(),
            rmse: (squares.difference / images as f64).sqrt(),
        };
        Self {
            aim,
            error: target.worst_head(&each).unwrap_or_else(|| all.error()),
            about_mean,
            alike: target.alike(found),
            images: images.min(target.distinct),
            outputs: each.iter().map(output).collect(),
            common: target.common(found),
            carriers: target.carriers,
        }
    }

    /// Whether the aim is reached, and by each output as well as by another plan's worst.
    pub(super) fn is_no_worse(&self, other: &Self) -> bool {
        let worst = |of: &Self| {
            of.outputs
                .iter()
                .fold(0.0, |most: f64, o| most.max(o.error))
        };
        self.is_reached() && worst(self) <= worst(other)
    }

    /// The errors of values in the units of outputs that are `2^exponent` times the values.
    fn in_units(mut self, exponents: &[i8]) -> Self {
        let plane = self.outputs.len().div_ceil(exponents.len().max(1)).max(1);
        for (channel, &exponent) in self.outputs.chunks_mut(plane).zip(exponents) {
            let unit = f64::from(exponent).exp2();
            channel.iter_mut().for_each(|output| output.rmse *= unit);
        }
        self
    }

    /// Whether the error is no more than the aim.
    pub fn is_reached(&self) -> bool {
        self.error <= self.aim
    }

    /// Whether the error is so near the aim that users are not warned.
    pub fn is_near(&self) -> bool {
        self.error <= WARN * self.aim
    }

    /// What users are told where the aim is missed by far, classes change, or few samples tell the
    /// error.
    pub(super) fn warnings(&self, end: &[Finish]) -> Vec<String> {
        let changed = self.changed(end).filter(|&part| part > WARN * self.aim);
        let changed = changed.map(|_| {
            format!(
                "the class is the float model's on {} of {} samples alone, though the expected error \
                 is {}: classes are near to one another beside the spread of their scores. Scale the \
                 features, or ask for a smaller error (--error, error=)",
                self.alike_images(),
                self.images,
                at_most(self.error)
            )
        });
        let missed = (!self.is_near()).then(|| {
            let found = at_most(self.error);
            format!(
                "the expected error is {found}, and {} was aimed at: no more precise plan was found. Give samples that \
                 represent the inputs{}",
                self.aim,
                accept(self.error)
            )
        });
        let few = (self.images < LEAST_IMAGES).then(|| {
            format!(
                "the expected error is measured on {} of the samples, which tells little of other \
                 inputs: give 16 samples or more",
                self.images
            )
        });
        let hiding = self.common.filter(|of| of.error > REFUSE * self.aim);
        let hiding = hiding.map(|CommonError { error, far }| {
            format!(
                "results of {far} of {} samples lie far from the others, and hide the expected error of these: {} of \
                 their own spread. Where features have placeholders for missing values, such as -999, leave such rows \
                 out, or train with filled values",
                self.images,
                at_most(error)
            )
        });
        let carriers = self.carriers.filter(|_| self.images >= LEAST_TOLD);
        let carried = carriers.filter(|&carriers| carriers < FEW_CARRIERS);
        let carried = carried.map(|carriers| {
            let results = match carriers {
                0.0 => format!("all {} samples have the same results", self.images),
                _ => format!(
                    "about {carriers:.0} of {} samples have nearly all of the results' spread",
                    self.images
                ),
            };
            format!(
                "{results}: the expected error tells little of other inputs. Give samples of which more have results \
                 that are rare"
            )
        });
        missed
            .into_iter()
            .chain(changed)
            .chain(hiding)
            .chain(carried)
            .chain(few)
            .collect()
    }

    /// The samples whose class is the float model's.
    fn alike_images(&self) -> usize {
        (self.alike.unwrap_or(1.0) * self.images as f64).round() as usize
    }

    /// The part of inputs whose class is not the float model's, where the end makes classes: the
    /// least that so many samples leave likely (Wilson's score interval, one-sided at 95 %).
    fn changed(&self, end: &[Finish]) -> Option<f64> {
        if !end.iter().any(|finish| finish.makes_indices()) || self.images == 0 {
            return None;
        }
        let (images, part) = (self.images as f64, 1.0 - self.alike?);
        let z = 1.645;
        let deviation = (part * (1.0 - part) / images + square(z / (2.0 * images))).sqrt();
        let middle = part + square(z) / (2.0 * images);
        Some(((middle - z * deviation) / (1.0 + square(z) / images)).max(0.0))
    }

    /// What users are told of outputs whose errors larger ones hide.
    pub(super) fn hidden(&self, named: &[NamedOutput]) -> Option<String> {
        let count = self.outputs.len();
        if !self.about_mean || count < 2 || !self.is_near() {
            return None;
        }
        let few = count <= MOST_LINES;
        let is_head_of_few =
            |at| named_output(at, named).is_some_and(|(head, _)| elements(head) <= MOST_LINES);
        let is_of_few = |at: usize| few || is_head_of_few(at);
        let is_useless = |&at: &usize| {
            let limit = match is_of_few(at) {
                true => REFUSE * self.aim,
                false => USELESS.max(REFUSE * self.aim),
            };
            let error = self.outputs[at].error;
            error > limit && error.is_finite()
        };
        let all: Vec<usize> = (0..count).filter(is_useless).collect();
        // So many of an output's elements may be off.
        let least = |elements: usize| match (elements <= MOST_LINES, self.alike) {
            (true, _) => 0,
            // Scores of many classes are compared on one scale.
            (false, Some(_)) => elements / 2,
            // So are most values of a map.
            (false, None) => elements / MOST_HIDDEN,
        };
        let is_off = |places: Range<usize>| {
            let elements = places.len();
            let found = all.iter().filter(|at| places.contains(at)).count();
            found > least(elements)
        };
        let mut heads = places(named);
        if !heads.any(&is_off) && !is_off(0..count) {
            return None;
        }
        let error =
            |at: usize| format!("{} ({:.2})", output_name(at, named), self.outputs[at].error);
        let worst = all.iter().copied();
        let worst = worst.max_by(|&a, &b| self.outputs[a].error.total_cmp(&self.outputs[b].error));
        let which = match (few, worst) {
            (false, Some(worst)) => {
                format!(
                    "errors of {} of {count} outputs, at worst of output {}",
                    all.len(),
                    error(worst)
                )
            }
            _ => {
                let each: Vec<String> = all.iter().map(|&at| error(at)).collect();
                format!("error of output {}", each.join(" and of output "))
            }
        };
        Some(format!(
            "larger outputs hide the expected {which}, as a part of its own spread. Let the model give \
             outputs of like sizes, or a model for each"
        ))
    }

    /// # Errors
    /// [`BuildError::Imprecise`] where results would be of no use.
    pub(super) fn judge(&self, end: &[Finish]) -> Result<(), BuildError> {
        let Self { aim, error, .. } = *self;
        let changed = self.changed(end).filter(|&part| part > REFUSE * aim);
        if let Some(changed) = changed.filter(|_| error <= REFUSE * aim) {
            return Err(BuildError::Classes {
                alike: self.alike_images(),
                images: self.images,
                changed,
            });
        }
        match error <= REFUSE * aim {
            true => Ok(()),
            false => Err(BuildError::Imprecise {
                error,
                aim,
                loss: None,
                hint: None,
            }),
        }
    }
}

impl Fidelity {
    /// The expected error of each output, a line each; with more than ten outputs in one
    /// line. None for one output. `named` are the outputs that the model's owner named, if any.
    pub fn outputs_text(&self, named: &[NamedOutput]) -> Option<String> {
        let outputs = &self.outputs;
        if outputs.len() < 2 {
            return None;
        }
        if outputs.len() <= MOST_LINES {
            let line = |(at, OutputError { error, rmse }): (usize, &OutputError)| {
                let name = output_name(at, named);
                format!("  output {name}: expected error {error:.3}, RMSE {rmse:.3e}")
            };
            let lines: Vec<String> = outputs.iter().enumerate().map(line).collect();
            return Some(lines.join("\n"));
        }
        let mut places: Vec<usize> = (0..outputs.len()).collect();
        places.sort_by(|&a, &b| outputs[a].error.total_cmp(&outputs[b].error));
        let (median, worst) = (places[places.len() / 2], places[places.len() - 1]);
        Some(format!(
            "  of {} outputs: expected error {:.3} at the median, {:.3} at worst (output {})",
            outputs.len(),
            outputs[median].error,
            outputs[worst].error,
            output_name(worst, named)
        ))
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
        let digits = if error < 0.01 { 4 } else { 3 };
        write!(f, "expected error {error:.digits$} of {of} (aim {aim})")?;
        match self.alike {
            Some(alike) => {
                let alike = (alike * images as f64).round();
                write!(
                    f,
                    "; the class is the float model's on {alike} of {images} samples"
                )
            }
            None => write!(f, ", on {images} samples"),
        }
    }
}

/// The named output that element `at` of all outputs is of, and the number of its first element.
/// `None` where outputs have no names.
fn named_output(at: usize, named: &[NamedOutput]) -> Option<(&NamedOutput, usize)> {
    let mut found = named.iter().zip(places(named));
    found.find_map(|(output, places)| places.contains(&at).then_some((output, places.start)))
}

fn elements(output: &NamedOutput) -> usize {
    output.shape.iter().product()
}

/// The places of each output's elements among all.
fn places(named: &[NamedOutput]) -> impl Iterator<Item = Range<usize>> {
    named.iter().scan(0, |end, output| {
        let first = *end;
        *end += elements(output);
        Some(first..*end)
    })
}

/// The name of element `at` of all outputs; its number where outputs have no names.
fn output_name(at: usize, named: &[NamedOutput]) -> String {
    match named_output(at, named) {
        Some((output, _)) if elements(output) == 1 => output.name.clone(),
        Some((output, first)) => format!("{}[{}]", output.name, at - first),
        None => at.to_string(),
    }
}

/// Sums of squares over images: of the differences to the float result, of that result about its
/// mean, and of the result itself.
#[derive(Clone, Copy, Default)]
struct Squares {
    /// 0 where too little is known of the mean, and where all are alike but for rounding.
    spread: f64,
    size: f64,
    difference: f64,
    /// Difference of outputs with a spread alone.
    differing: f64,
    /// Difference and size of outputs without a spread alone.
    constant: [f64; 2],
}

impl Squares {
    fn plus(self, other: &Self) -> Self {
        Self {
            spread: self.spread + other.spread,
            size: self.size + other.size,
            difference: self.difference + other.difference,
            differing: self.differing + other.differing,
            constant: [0, 1].map(|at| self.constant[at] + other.constant[at]),
        }
    }

    /// What differences are parts of.
    fn whole(&self) -> f64 {
        match self.spread > 0.0 {
            true => self.spread,
            false => self.size,
        }
    }

    /// Differences as a part of the spread, and those of outputs without one as a part of these or
    /// of the spread, whichever is larger.
    fn error(&self) -> f64 {
        let part = |difference: f64, whole: f64| match difference {
            0.0 => 0.0,
            _ => difference / whole,
        };
        let [constant, size] = self.constant;
        match self.spread > 0.0 {
            true => part(self.differing, self.spread) + part(constant, size.max(self.spread)),
            false => part(self.difference, self.size),
        }
        .sqrt()
    }
}

/// The float network's results that a plan's are compared with.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// Before softmax and the like, `[image][output]`.
    pub wanted: &'a [f32],
    /// Outputs of an image.
    pub outputs: usize,
    /// Images that differ.
    pub distinct: usize,
    /// [`carriers`] of the results; `None` without samples.
    pub carriers: Option<f64>,
    /// Whether the inputs are the user's: made-up ones tell little of the outputs' spread.
    pub real: bool,
    /// Whether some inputs may have placeholders, and results far from all others: rows may, unless
    /// the last function brings their results near to one another.
    pub may_hide: bool,
    /// Whether outputs are scores of classes.
    pub has_scores: bool,
    /// The powers of two of channels of outputs beside values; empty where both are the same.
    pub exponents: &'a [i8],
    /// The outputs that the owner named, if any.
    pub named: &'a [NamedOutput],
}

impl Target<'_> {
    /// The expected error of a network with these results and this end: of the values before the
    /// end or of what the client gets, whichever is larger. Where that is an index it is that of the
    /// values. Where errors of the values grow without a bound it is that of what the client gets.
    pub fn fidelity(
        &self,
        (result, integers): (&ValueSpec, &[i32]),
        end: &[Finish],
        aim: f64,
    ) -> Fidelity {
        let images = self.wanted.len() / self.outputs;
        let values = oracle::finish(&[], result, integers, images);
        let of_values = Fidelity::new(&values, self, aim);
        if let [Finish::Scale { exponents }] = end {
            return Fidelity {
                alike: self.alike(&values),
                ..of_values.in_units(exponents)
            };
        }
        if end.is_empty() || end.iter().any(|finish| finish.makes_indices()) {
            return of_values;
        }
        let wanted = after(end, self.wanted, images);
        let target = Target {
            wanted: &wanted,
            ..*self
        };
        let is_unbounded = end.iter().any(|finish| finish.is_unbounded());
        let least = if is_unbounded { 0.0 } else { LEAST_SPREAD };
        // The result of the last operator follows from the values: the class does, too. Shares are
        // near to zero and far from it where values are near to one another.
        let of_result = Fidelity {
            alike: of_values.alike,
            common: of_values.common,
            ..Fidelity::above(&after(end, &values, images), &target, aim, least)
        };
        let error = of_result
            .error
            .max(target.at_borders((&values, self), end, least));
        match is_unbounded || error > of_values.error {
            true => Fidelity { error, ..of_result },
            false => of_values,
        }
    }

    /// The expected error of shares whose scores err by so much that those of an image at the border
    /// of two classes mean nothing: samples have few such images. So the scores of each image are
    /// scaled down, and their errors stay. 0 where scores are precise, and for any other result.
    fn at_borders(&self, (found, scores): (&[f32], &Self), end: &[Finish], least: f64) -> f64 {
        // The first images stand for all, where maps have many elements.
        let all = scores.wanted.len() / scores.outputs;
        let images = (MOST_SCALED / scores.outputs).clamp(1, all);
        let wanted = &scores.wanted[..images * scores.outputs];
        let found = &found[..wanted.len()];
        let both = || found.iter().zip(wanted);
        let squares: f64 = both()
            .map(|(&f, &w)| square(f64::from(f) - f64::from(w)))
            .sum();
        let is_steep = squares > square(STEEP) * found.len() as f64;
        if !is_steep || !end.iter().any(|finish| finish.makes_shares()) {
            return 0.0;
        }
        let squares = (1..=SCALES).map(|at| {
            let nearer = at as f32 / SCALES as f32;
            let scaled: Vec<f32> = wanted.iter().map(|w| w * nearer).collect();
            let moved: Vec<f32> = both()
                .zip(&scaled)
                .map(|((f, w), at)| at + (f - w))
                .collect();
            let [moved, scaled] = [moved, scaled].map(|scores| after(end, &scores, images));
            let differences = moved.iter().zip(&scaled);
            differences
                .map(|(m, s)| square(f64::from(m - s)))
                .sum::<f64>()
        });
        let mean = squares.sum::<f64>() / f64::from(SCALES);
        let part = images as f64 / all as f64;
        (mean / (self.size() * part).max(square(least) * images as f64)).sqrt()
    }

    /// The part of the images whose class is the float network's; `None` where outputs are no scores.
    fn alike(&self, found: &[f32]) -> Option<f64> {
        if !self.has_scores {
            return None;
        }
        let largest = |values: &[f32]| self.largest_two(values)[0];
        let pairs = found
            .chunks(self.outputs)
            .zip(self.wanted.chunks(self.outputs));
        let alike = pairs.filter(|(f, w)| largest(f).0 == largest(w).0).count();
        Some(alike as f64 / (self.wanted.len() / self.outputs) as f64)
    }

    /// The places of the largest and the second largest output, the first of equal ones first, and
    /// the outputs.
    fn largest_two(&self, values: &[f32]) -> [(usize, f64); 2] {
        let mut most = [(0, f64::NEG_INFINITY); 2];
        for (at, &value) in values.iter().enumerate() {
            let output = (at, f64::from(value) * self.unit(at));
            if output.1 > most[0].1 {
                most = [output, most[0]];
            } else if output.1 > most[1].1 {
                most[1] = output;
            }
        }
        most
    }

    /// The largest error of an output over those images whose values are near to one another, where
    /// others are very far away. Scores of classes may be far apart; they tell nothing where these
    /// images keep their classes.
    fn common(&self, found_all: &[f32]) -> Option<CommonError> {
        if !self.real || !self.may_hide || self.distinct < LEAST_COMMON || self.outputs > MOST_LINES
        {
            return None;
        }
        let of_output = |output: usize| {
            let of = |values: &[f32]| column(values, output, self.outputs);
            let (found, wanted) = (of(found_all), of(self.wanted));
            let (_, deviations) = from_median(&wanted);
            let far = VERY_FAR * median(&deviations);
            let near: Vec<usize> = (0..wanted.len())
                .filter(|&at| deviations[at] <= far)
                .collect();
            let values: Vec<f64> = near.iter().map(|&at| wanted[at]).collect();
            let differences = near.iter().map(|&at| square(found[at] - wanted[at]));
            let (difference, size) = (differences.sum::<f64>(), spread(&values));
            let is_known = near.len() < wanted.len() && size > ROUNDING * difference;
            (is_known && !self.keeps_classes(found_all, &near)).then(|| CommonError {
                error: (difference / size).sqrt(),
                far: wanted.len() - near.len(),
            })
        };
        let all = (0..self.outputs).filter_map(of_output);
        all.max_by(|a, b| a.error.total_cmp(&b.error))
    }

    /// Whether nearly all of these images have the float network's class, where outputs may be scores.
    fn keeps_classes(&self, found: &[f32], images: &[usize]) -> bool {
        let class = |values: &[f32], image: usize| {
            self.largest_two(&values[image * self.outputs..][..self.outputs])[0].0
        };
        let alike = images
            .iter()
            .filter(|&&image| class(found, image) == class(self.wanted, image));
        self.has_scores && alike.count() as f64 >= KEPT_CLASSES * images.len() as f64
    }

    /// The largest error of an output with a name, where they have scales: a wide one would hide a
    /// narrow one. `None` where there is one.
    fn worst_head(&self, each: &[Squares]) -> Option<f64> {
        if self.exponents.is_empty() || self.named.len() < 2 {
            return None;
        }
        let mut rest = each;
        let errors = self.named.iter().filter_map(|head| {
            let (squares, others) = rest.split_at_checked(head.shape.iter().product())?;
            rest = others;
            Some(
                squares
                    .iter()
                    .fold(Squares::default(), Squares::plus)
                    .error(),
            )
        });
        errors.reduce(f64::max)
    }

    /// What a value counts in its output.
    fn unit(&self, output: usize) -> f64 {
        let plane = self.outputs.div_ceil(self.exponents.len().max(1)).max(1);
        let exponent = self.exponents.get(output / plane).copied();
        let exponent = exponent.unwrap_or_default();
        f64::from(exponent).exp2()
    }

    /// The part of the images whose largest output an error of all outputs changes: that which the
    /// second largest alone would. Images whose largest are equal tell nothing.
    pub fn changed(&self, error: f64) -> f64 {
        let images = self.wanted.len() / self.outputs;
        let error = error * self.rms();
        if error <= 0.0 {
            return 0.0;
        }
        // The gap, in deviations of the difference: two outputs err.
        let gap = |values: &[f32]| {
            let [first, second] = self.largest_two(values);
            let deviation = error * self.unit(first.0).hypot(self.unit(second.0));
            (first.1 - second.1) / deviation
        };
        let gaps = self.wanted.chunks(self.outputs).map(gap);
        // The normal distribution's tail, to a hundredth.
        let passed = |gap: f64| 1.0 / (1.0 + (1.702 * gap).exp());
        let changed: f64 = gaps.filter(|&gap| gap > 0.0).map(passed).sum();
        changed / images as f64
    }

    /// The root mean square that errors are parts of.
    pub fn rms(&self) -> f64 {
        (self.size() / self.wanted.len() as f64).sqrt()
    }

    /// The sum of squares that errors are parts of.
    pub fn size(&self) -> f64 {
        let each = (0..self.outputs).map(|output| self.squares(self.wanted, output));
        let all = each.fold(Squares::default(), |all, squares| all.plus(&squares));
        all.whole()
    }

    /// The sums of one output.
    fn squares(&self, found: &[f32], output: usize) -> Squares {
        let of = |values: &[f32]| column(values, output, self.outputs);
        let sum = |values: &[f64]| values.iter().map(|&value| square(value)).sum::<f64>();
        let (found, wanted) = (of(found), of(self.wanted));
        let differences: Vec<f64> = found.iter().zip(&wanted).map(|(f, w)| f - w).collect();
        let of_spread = match self.real && self.distinct >= LEAST_IMAGES {
            true => {
                let near = nearer(&wanted);
                Some(spread(&near)).filter(|&spread| spread > ROUNDING * sum(&near))
            }
            false => None,
        };
        let (difference, size) = (sum(&differences), sum(&wanted));
        Squares {
            spread: of_spread.unwrap_or(0.0),
            size,
            difference,
            differing: of_spread.map_or(0.0, |_| difference),
            constant: match of_spread {
                Some(_) => [0.0; 2],
                None => [difference, size],
            },
        }
    }
}

/// About how many of the images make up the spread of so many outputs: the participation ratio of
/// their squared distances from the mean, which is a third of the images where results are normal. 0
/// where all results are the same.
pub(super) fn carriers(results: &[f32], outputs: usize) -> f64 {
    let mut distances = vec![0.0; results.len() / outputs.max(1)];
    for output in 0..outputs {
        let values = nearer(&column(results, output, outputs));
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| square(value - mean));
        distances.iter_mut().zip(squares).for_each(|(d, s)| *d += s);
    }
    let sum: f64 = distances.iter().sum();
    let squares: f64 = distances.iter().map(|&distance| square(distance)).sum();
    match squares > 0.0 {
        true => square(sum) / squares,
        false => 0.0,
    }
}

/// The values of an output of so many, an image each.
fn column(values: &[f32], output: usize, outputs: usize) -> Vec<f64> {
    let values = values[output..].iter().step_by(outputs);
    values.map(|&value| f64::from(value)).collect()
}

/// The images' results after operations in order.
fn after(end: &[Finish], values: &[f32], images: usize) -> Vec<f32> {
    let of_image = |values: &[f32]| {
        let first = values.to_vec();
        end.iter().fold(first, |values, op| op.apply(&values))
    };
    let each = values.chunks((values.len() / images.max(1)).max(1));
    each.flat_map(of_image).collect()
}

/// The squares of values about their mean, summed; as if over all inputs, whose mean is not quite
/// that of these.
fn spread(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let sum: f64 = values.iter().map(|value| square(value - mean)).sum();
    sum * count / (count - 1.0)
}

/// The values, of which a few lie far from all others: they come to [`FAR`] times the median
/// deviation from the median. One wrong sample would hide the errors of all others.
fn nearer(values: &[f64]) -> Vec<f64> {
    let (middle, deviations) = from_median(values);
    let far = FAR * median(&deviations);
    let beyond = |limit: f64| deviations.iter().filter(|&&d| d > limit).count();
    let few = (values.len() / FEW).max(1);
    let limit = match far {
        0.0 => return values.to_vec(),
        _ if beyond(far) <= few.min(ALONE) => far,
        _ if beyond(VERY_FAR * far) <= few => VERY_FAR * far,
        _ => return values.to_vec(),
    };
    let near = |(value, deviation): (&f64, &f64)| match *deviation > limit {
        true => middle + far.copysign(value - middle),
        false => *value,
    };
    values.iter().zip(&deviations).map(near).collect()
}

/// The median, and how far from it each value is.
fn from_median(values: &[f64]) -> (f64, Vec<f64>) {
    let middle = median(values);
    let deviations = values.iter().map(|value| (value - middle).abs());
    (middle, deviations.collect())
}

/// The upper one of two.
fn median(values: &[f64]) -> f64 {
    let mut ordered = values.to_vec();
    ordered.sort_by(f64::total_cmp);
    ordered[ordered.len() / 2]
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
            distinct: wanted.len() / 2,
            carriers: None,
            real,
            may_hide: true,
            has_scores: true,
            exponents: &[],
            named: &[],
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
        assert_eq!((about.alike, about.images), (Some(1.0), 4));
        let few = Fidelity::new(&found[..4], &target(&wanted[..4], true), 0.05);
        assert!(!few.about_mean && few.error == plain.error);
    }

    #[test]
    fn each_output_has_its_error() {
        // A score that moves by one, and a box that moves by a hundred: both are off by a tenth.
        let wanted = [1.0, 400.0, -1.0, 200.0].repeat(3);
        let found: Vec<f32> = wanted.iter().map(|w| w + 0.1).collect();
        let fidelity = Fidelity::new(&found, &target(&wanted, true), 0.05);
        let [score, frame] = [0, 1].map(|output| fidelity.outputs[output]);
        assert!((score.rmse - 0.1).abs() < 1e-4 && (frame.rmse - 0.1).abs() < 1e-4);
        assert!((score.error - 0.0913).abs() < 1e-3 && (frame.error - 0.000913).abs() < 1e-5);
        assert_eq!(fidelity.hidden(&[]), None);
        let far: Vec<f32> = wanted.iter().map(|w| w + 2.0).collect();
        let far = Fidelity::new(&far, &target(&wanted, true), 0.05);
        let hidden = far.hidden(&[]).expect("the score is off");
        assert!(
            far.is_reached() && hidden.contains("of output 0 (1.83)"),
            "{hidden}"
        );
        let text = fidelity.outputs_text(&[]).expect("two outputs");
        assert!(text.contains("output 0: expected error 0.091"), "{text}");
        assert_eq!(text.lines().count(), 2);
        let many = Fidelity {
            outputs: [score, frame].repeat(10),
            ..fidelity.clone()
        };
        let text = many.outputs_text(&[]).expect("many outputs");
        assert!(
            text.contains("of 20 outputs") && text.contains("0.091 at worst"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
        let one = Fidelity {
            outputs: vec![score],
            ..fidelity
        };
        assert_eq!(one.outputs_text(&[]), None);
    }

    /// A score beside a map, which has one pixel that is off.
    #[test]
    fn outputs_of_few_values_are_not_hidden_by_many() {
        let error = |error| OutputError { error, rmse: 1.0 };
        let mut outputs = vec![error(0.001); 513];
        outputs[7] = error(0.9);
        let fidelity = |outputs| Fidelity {
            aim: 0.02,
            error: 0.01,
            about_mean: true,
            images: 9,
            outputs,
            common: None,
            carriers: None,
            alike: None,
        };
        let named = |name: &str, shape: &[usize]| NamedOutput {
            name: name.into(),
            shape: shape.to_vec(),
        };
        let named = [named("map", &[512]), named("score", &[1])];
        assert!(fidelity(outputs.clone()).hidden(&named).is_some());
        let map = [outputs[..512].to_vec(), vec![error(0.001); 1536]].concat();
        assert_eq!(fidelity(map.clone()).hidden(&[]), None);
        outputs[7] = error(0.001);
        assert_eq!(fidelity(outputs.clone()).hidden(&named), None);
        outputs[512] = error(0.15);
        let hidden = fidelity(outputs).hidden(&named).expect("the score is off");
        assert!(hidden.contains("score (0.15)"), "{hidden}");
        let off = [vec![error(0.9); 9], map].concat();
        assert!(fidelity(off).hidden(&[]).is_some());
    }

    #[test]
    fn outputs_have_the_names_of_their_owner() {
        let named = |name: &str, shape: &[usize]| NamedOutput {
            name: name.into(),
            shape: shape.to_vec(),
        };
        let all = [named("risk", &[1]), named("scores", &[2, 2])];
        let names: Vec<String> = (0..5).map(|at| output_name(at, &all)).collect();
        assert_eq!(
            names,
            ["risk", "scores[0]", "scores[1]", "scores[2]", "scores[3]"]
        );
        assert_eq!(output_name(3, &[]), "3");
    }

    /// A sigmoid of values far from 0 but for a few: what a client gets is off by more than these.
    #[test]
    fn the_error_is_that_of_the_result_where_that_is_larger() {
        let values = ValueSpec {
            shape: vec![1],
            fraction_bits: 0,
            low: -1000,
            high: 1000,
        };
        let integers: Vec<i32> = (0..40)
            .map(|at| {
                if at % 10 == 0 {
                    1
                } else {
                    200 - 400 * (at % 2)
                }
            })
            .collect();
        // Integers are off by half a unit where the sigmoid is steep.
        let wanted: Vec<f32> = integers
            .iter()
            .map(|&value| if value == 1 { 0.5 } else { value as f32 })
            .collect();
        let target = Target {
            outputs: 1,
            distinct: 40,
            carriers: None,
            has_scores: false,
            ..target(&wanted, true)
        };
        let error = |end: &[Finish]| target.fidelity((&values, &integers), end, 0.05).error;
        let (before, after) = (error(&[]), error(&[Finish::Sigmoid]));
        assert!(before < 1e-3 && after > 0.05, "{before} {after}");
        assert_eq!(error(&[Finish::Sigmoid, Finish::ArgMax]), before);
        // Small numbers are no probabilities: their errors are parts of their own spread.
        let small = [-9.0, -8.0, -7.5, -8.5].repeat(4);
        let of_small = Target {
            wanted: &small,
            distinct: 16,
            carriers: None,
            ..target
        };
        let rounded = [-9, -8, -7, -8].repeat(4);
        let exp = of_small.fidelity((&values, &rounded), &[Finish::Exp], 0.05);
        assert!(exp.error > 0.3, "{exp:?}");
        // Of probabilities that hardly differ nobody needs the differences.
        let (wanted, few) = ([7.0, 8.0, 9.0, 10.0].repeat(4), [7, 8, 9, 11].repeat(4));
        let target = Target {
            wanted: &wanted,
            distinct: 16,
            carriers: None,
            ..target
        };
        let error = |end: &[Finish]| target.fidelity((&values, &few), end, 0.05).error;
        assert_eq!(error(&[Finish::Sigmoid]), error(&[]));
    }

    #[test]
    fn near_labels_change() {
        // Spreads of 1 and 2: an error of a tenth moves the difference by 0.24.
        let wanted = [1.0, -3.0, -1.0, 1.0].repeat(8);
        let target = target(&wanted, true);
        assert!(target.changed(0.1) < 1e-3);
        assert!((target.changed(100.0) - 0.5).abs() < 0.01);
        let ties = [1.0, 1.0, 2.0, 2.0].repeat(8);
        let ties = Target {
            wanted: &ties,
            ..target
        };
        assert_eq!(ties.changed(0.1), 0.0);
    }

    #[test]
    fn a_wrong_sample_does_not_hide_the_others() {
        let mut wanted: Vec<f32> = (0..40).map(|at| [1.0, -1.0, 2.0, 0.5][at % 4]).collect();
        let found: Vec<f32> = wanted.iter().map(|w| w + 1.0).collect();
        let error =
            |found: &[f32], wanted: &[f32]| Fidelity::new(found, &target(wanted, true), 0.05).error;
        let clean = error(&found, &wanted);
        wanted[4] = 1e9;
        let mut off = found.clone();
        off[4] = 1e9;
        let ratio = error(&off, &wanted) / clean;
        assert!((0.4..1.0).contains(&ratio), "{ratio}");
        // Three in ten far away are no wrong samples.
        let both: Vec<f32> = (0..80)
            .map(|at| if at % 20 < 6 { 9.0 } else { at as f32 / 1e3 })
            .collect();
        let near = both.iter().map(|w| w + 0.1).collect::<Vec<_>>();
        assert!(error(&near, &both) < 0.03);
        // Nor are three that are rare events.
        let rare: Vec<f32> = (0..160)
            .map(|at| {
                if at % 40 < 2 {
                    2.0
                } else {
                    (at % 7) as f32 / 1e2
                }
            })
            .collect();
        let near = rare.iter().map(|w| w + 0.01).collect::<Vec<_>>();
        assert!(error(&near, &rare) < 0.03);
        // Of equal samples nothing is known.
        let alike = Target {
            distinct: 1,
            carriers: None,
            ..target(&wanted, true)
        };
        let alike = Fidelity::new(&found, &alike, 0.05);
        assert!(!alike.about_mean && alike.images == 1);
    }

    #[test]
    fn errors_are_parts_of_what_differs() {
        // Prices, which differ by a unit beside a large mean.
        let prices = |mean: f32| [mean + 1.0, mean, mean - 1.0, mean].repeat(2);
        let rms = |mean, real| target(&prices(mean), real).rms();
        assert!((rms(100.0, true) - 0.816).abs() < 1e-3);
        assert!((rms(100.0, false) - 100.0).abs() < 0.01);
        // A large constant beside a score hides nothing.
        let wanted = [1.0f32, 2e6, -1.0, 2e6].repeat(8);
        let found: Vec<f32> = wanted
            .iter()
            .map(|w| if *w > 2.0 { *w } else { w * 0.5 })
            .collect();
        let fidelity = Fidelity::new(&found, &target(&wanted, true), 0.05);
        assert!(
            fidelity.about_mean && (fidelity.error - 0.48).abs() < 0.01,
            "{fidelity:?}"
        );
        assert!(fidelity.judge(&[]).is_err());
        // Nor does it count beside its own size.
        let found: Vec<f32> = wanted
            .iter()
            .map(|w| if *w > 2.0 { w + 1.0 } else { *w })
            .collect();
        let fidelity = Fidelity::new(&found, &target(&wanted, true), 0.05);
        assert!(fidelity.about_mean && fidelity.error < 1e-6, "{fidelity:?}");
        // One near zero, or zero, counts beside what differs.
        for constant in [0.0, 1e-7] {
            let wanted = [1.0, constant, -1.0, constant].repeat(8);
            let found: Vec<f32> = wanted.iter().map(|w| w + 1e-3).collect();
            let fidelity = Fidelity::new(&found, &target(&wanted, true), 0.05);
            assert!(fidelity.error < 2e-3, "{fidelity:?}");
        }
    }

    /// One row in four has a placeholder, and results far from all others.
    #[test]
    fn rows_that_hide_others_are_told() {
        let result = |row: u8| match row % 4 {
            0 => 1e4 + f32::from(row),
            _ => f32::from(row) / 40.0,
        };
        let wanted: Vec<f32> = (0..40)
            .flat_map(|row| [result(row), -result(row)])
            .collect();
        let with_error = |error: f32| {
            let found: Vec<f32> = wanted.iter().map(|w| w + error).collect();
            let values = Target {
                has_scores: false,
                ..target(&wanted, true)
            };
            Fidelity::new(&found, &values, 0.02)
        };
        let fidelity = with_error(0.1);
        assert!(fidelity.error < 1e-3 && fidelity.judge(&[]).is_ok());
        let told = fidelity.warnings(&[]).concat();
        assert!(
            told.contains("results of 10 of 40 samples lie far"),
            "{told}"
        );
        let precise = with_error(0.01);
        assert!(precise.warnings(&[]).is_empty() && precise.common.is_some());
    }

    /// Scores of a wide spread, of which each image's first two are near: an error that is small beside
    /// the spread changes classes.
    #[test]
    fn classes_that_change_are_told() {
        let wanted: Vec<f32> = (0..40u8)
            .flat_map(|image| [f32::from(image), f32::from(image) + 1e-3])
            .collect();
        let with_changed = |count: usize| {
            let pairs = wanted.chunks(2).enumerate();
            let found = pairs.flat_map(|(at, pair)| match at < count {
                true => [pair[1], pair[0]],
                false => [pair[0], pair[1]],
            });
            Fidelity::new(&found.collect::<Vec<f32>>(), &target(&wanted, true), 0.02)
        };
        let end = [Finish::ArgMax];
        for (count, warns, refuses) in [(0, false, false), (2, false, false), (5, true, false)] {
            let fidelity = with_changed(count);
            assert!(fidelity.error < 1e-3);
            assert_eq!(!fidelity.warnings(&end).is_empty(), warns, "{count}");
            assert_eq!(fidelity.judge(&end).is_err(), refuses, "{count}");
        }
        let half = with_changed(20);
        let refusal = half.judge(&end).unwrap_err().to_string();
        assert!(refusal.contains("on 20 of 40 samples"), "{refusal}");
        assert!(half.judge(&[]).is_ok() && half.warnings(&[]).is_empty());
    }

    #[test]
    fn results_without_a_spread_have_an_error() {
        let wanted = [5.0, 1.0].repeat(4);
        let found = [1.0, 5.0, 5.0, 1.0].repeat(2);
        let fidelity = Fidelity::new(&found, &target(&wanted, true), 0.05);
        assert!(!fidelity.about_mean && fidelity.error > 0.5);
        assert_eq!(fidelity.alike, Some(0.5));
        assert!(fidelity.judge(&[]).is_err() && fidelity.warnings(&[]).len() == 1);
        let exact = Fidelity::new(&wanted, &target(&wanted, true), 0.05);
        assert!(exact.error == 0.0 && exact.judge(&[]).is_ok() && exact.warnings(&[]).is_empty());
        let few = Fidelity::new(&wanted[..2], &target(&wanted[..2], true), 0.05);
        assert!(few.warnings(&[])[0].contains("measured on 1 of the samples"));
    }
}
