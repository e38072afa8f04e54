//! Plans of fixed-point networks: precision layer by layer, then steps.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::FixedGraph,
    graph::{Node, Op},
    losses, oracle,
    quantise::{self, QuantiseError, QuantiseOptions},
};

use super::{
    BuildError, BuildOptions, Built, Fidelity, Opening, Rounding, Weights,
    error::{is_too_large, is_too_long},
    fidelity::WARN,
    method::{Method, Planned, Source, multiply_adds},
    precision::ModulusBudget,
    protocols::IMAGES,
    tolerance::Tolerances,
};
use crate::{
    checked::CheckedPlan,
    cost::{self, StepCost},
    objective::{Goal, Objective},
};

/// Networks that are tried, at most.
const ATTEMPTS: usize = 10;

/// From one to the next the tolerance of layers falls at least by the first factor and at most by
/// the second.
const TIGHTENING: [f64; 2] = [std::f64::consts::SQRT_2, 4.0];

/// With an error of at most so many times the aim the tolerance falls by no more than the factor: a
/// finer network costs more bytes.
const NEAR: f64 = 1.1;
const SLOWEST: f64 = 1.15;

/// After so many times without an error that is smaller by the factor it is not tried again.
const PATIENCE: usize = 2;
const LEAST_FALL: f64 = 0.95;

/// Networks whose attempts take seconds begin with at most this tolerance: of all that were tried,
/// from ResNet-50 to VGG19, none reached the aim with a larger one than 1.3.
const SLOW_FIRST: f64 = 1.2;

/// Tolerances between one that fits and another are tried so many times: the other is of a network
/// that does not fit, or misses the aim.
const BISECTIONS: usize = 3;

/// A first network with an error below this part of the aim is more precise than was asked for.
const PRECISE: f64 = 0.5;

/// Then tolerances are doubled at most so many times: coarser networks may cost fewer bytes.
const LOOSENINGS: usize = 3;

/// Multiply-adds of networks whose bytes are worth that.
const LEAST_LOOSENED: u64 = 1_000_000;

/// Multiply-adds of all images of an attempt, up to which further ones are made: for fewer bytes,
/// or between two others. Such an attempt takes two seconds. No clock is
/// asked: all machines make equal plans.
const MOST_WORK: u64 = 8_000_000_000;

/// Where an attempt takes more, as one of VGG16 does, an error just above the aim is not worth
/// further ones: VGG19's second one took 7 s, and its error was no smaller.
const SLOWEST_WORK: u64 = 100_000_000_000;

/// Bits that answers take at most where they are shares, from one attempt to plan to the next:
/// with guard bits and errors, words of 32 bits have room for the first nearly always.
const MOST_BITS: [u32; 4] = [28, 26, 23, 20];

/// Where an error stays above what users are warned of, searches for so many times the aim follow.
const COARSER: [f64; 2] = [2.0, 4.0];

/// And for so many where there is no plan yet.
const FAR_COARSER: [f64; 2] = [8.0, 16.0];

/// And then networks of which all weights and values have so many bits, where users chose none.
/// Layers' tolerances follow from small errors. Where a network has roots or quotients of small
/// numbers, finer layers need not help, and equal ones do: a network that pools means and deviations
/// of 8 channels had an error of 0.18 at an aim of 0.02, and has 0.026 with 8 bits.
const EQUAL_BITS: [u32; 4] = [8, 10, 12, 14];

/// Fewest and most bits of values that no layer reads.
const PLAIN_BITS: [u32; 2] = [8, 14];

/// Bits of other values, where nothing bounds them but their words.
const WORD_BITS: u32 = 32;

/// Labels that may change, as a part of all, and the least part of the aim that this may ask for.
const MOST_CHANGED: f64 = 0.01;
const LEAST_AIM: f64 = 0.5;

/// So many images tell how many would change.
const LEAST_LABELLED: usize = 16;

/// Outputs that are one for each class, where no operator behind them says so.
const MANY_OUTPUTS: usize = 10;

/// A fixed-point network and its expected error.
type Network = (FixedGraph, Fidelity);

/// One that was tried.
struct Attempt {
    tolerance: f64,
    error: f64,
    /// Not kept where another one is better: networks of many layers take much memory.
    network: Option<Network>,
}

/// The plan of a network on fixed-point numbers: with the aim reached at the least cost, where it
/// can be, and else the most precise one.
///
/// Layers' errors add up like noise, mostly to less than all of them ([`Tolerances`]). So they
/// begin at a multiple of what reaches the aim, and are lowered until the measured error of the
/// result is small enough or stops falling.
pub(super) fn build(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
) -> Result<Built, BuildError> {
    let tolerances = Tolerances::new(source, method.narrow);
    let of = |rounding| rounded(source, method, options, &tolerances, rounding);
    match options.rounding {
        Rounding::Nearest => of(Rounding::Nearest),
        Rounding::Dithered => {
            let (nearest, dithered) = (of(Rounding::Nearest), of(Rounding::Dithered));
            match is_worth_a_dither(&nearest, &dithered, options) {
                true => dithered,
                false => nearest,
            }
        }
    }
}

/// Whether the plan with a dither costs less, in bytes too, and is about as precise as was asked
/// for; or is the only one.
fn is_worth_a_dither(
    nearest: &Result<Built, BuildError>,
    dithered: &Result<Built, BuildError>,
    options: &BuildOptions,
) -> bool {
    let (Ok(nearest), Ok(dithered)) = (nearest, dithered) else {
        return nearest.is_err() && dithered.is_ok();
    };
    let (found, other) = (&dithered.fidelity, &nearest.fidelity);
    let is_precise = found.is_reached() || found.error <= NEAR * other.error;
    let traffic = Goal::from(Objective::Traffic);
    let costs_less = [options.goal(), traffic].into_iter().all(|goal| {
        // Kinds of OTs are chosen with what their set-up costs, so that counts, too.
        let cost = |built: &Built| {
            let setup = StepCost {
                bytes_up: 2 * cost::ot_setup(&built.plan) / IMAGES,
                ..StepCost::default()
            };
            goal.of(&built.plan) + goal.of_one(&setup, 0.0)
        };
        cost(dithered) < cost(nearest)
    });
    dithered.plan.is_dithered() && is_precise && costs_less
}

/// The plan with one rounding.
fn rounded(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
    tolerances: &Tolerances,
    rounding: Rounding,
) -> Result<Built, BuildError> {
    let stated = options.error.unwrap_or(method.aim);
    // Several outputs are values, however many.
    let aim = match (options.error, options.outputs.is_empty()) {
        (Some(error), _) => error,
        (None, true) => keeping_labels(source, method.aim),
        (None, false) => method.aim,
    };
    let search = |trial: Trial, most_bits| Search {
        source,
        method,
        options,
        tolerances,
        rounding,
        bits: trial.bits,
        low_digits: trial.low_digits,
        most_bits,
        stated,
        aim: trial.aim,
    };
    let caps = match method.narrow {
        true => MOST_BITS.as_slice(),
        false => &[WORD_BITS],
    };
    let first = Trial {
        aim,
        bits: [options.weight_bits, options.input_bits],
        low_digits: 1,
    };
    let found = |trial| widest(&|most_bits| search(trial, most_bits).found(), caps);
    let mut best = found(first);
    if matches!(&best, Err(error) if !is_too_wide(error)) {
        return best.and_then(|found| built(source, found));
    }
    // What takes too many bits for shares is planned with far fewer. A search that begins with
    // coarser layers may end closer.
    let coarser = COARSER.map(|times| Trial {
        aim: times * aim,
        ..first
    });
    let equal = EQUAL_BITS.map(|bits| Trial {
        bits: first.bits.map(|own| own.or(Some(bits))),
        ..first
    });
    let finer = method.narrow.then_some(Trial {
        low_digits: 2,
        ..first
    });
    let has_equal = first.bits.contains(&None) && search(first, WORD_BITS).is_quick();
    let has_coarser = best.is_ok();
    let others = finer.iter().chain(coarser.iter().filter(|_| has_coarser));
    for &other in others.chain(equal.iter().filter(|_| has_equal)) {
        if error_of(&best) <= WARN * stated {
            break;
        }
        let other = found(other);
        if error_of(&other) < error_of(&best) {
            best = other;
        }
    }
    // A plan with a large error says more than none.
    let last = FAR_COARSER.map(|times| Trial {
        aim: times * aim,
        ..first
    });
    let last = last.iter().chain(equal.iter().filter(|_| !has_equal));
    for &other in coarser.iter().chain(last) {
        if !best.as_ref().is_err_and(is_too_wide) {
            break;
        }
        best = found(other).or(best);
    }
    best.and_then(|found| built(source, found))
}

/// What a search aims at, and what it may not choose.
#[derive(Clone, Copy)]
struct Trial {
    aim: f64,
    /// As [`Search::bits`].
    bits: [Option<u32>; 2],
    /// As [`ModulusBudget::low_digits`].
    low_digits: u32,
}

/// The expected error of a plan; infinite where there is none.
fn error_of(found: &Result<Found, BuildError>) -> f64 {
    let error = found.as_ref().map(|(_, _, fidelity)| fidelity.error);
    error.unwrap_or(f64::INFINITY)
}

/// What is found with the most bits for answers with which anything is.
fn widest(
    found: &dyn Fn(u32) -> Result<Found, BuildError>,
    caps: &[u32],
) -> Result<Found, BuildError> {
    let mut refused = None;
    for &most_bits in caps {
        match found(most_bits) {
            Err(error) if is_too_wide(&error) => {
                refused.get_or_insert(error);
            }
            found => return found,
        }
    }
    Err(refused.expect("there is a cap"))
}

/// Bits of values that no layer reads, such as the result of a function, whose errors are a part of
/// the result's: so many that rounding and the function's table, together half a unit, are about
/// half of it. A range is some five times the spread.
fn plain_bits(error: f64) -> u32 {
    let units = 5.0 / error.max(f64::MIN_POSITIVE);
    (units.log2().ceil() as u32).clamp(PLAIN_BITS[0], PLAIN_BITS[1])
}

/// The aim, or down to half of it where more labels would change.
fn keeping_labels(source: &Source<'_>, aim: f64) -> f64 {
    let (graph, target) = (source.graph, &source.target);
    let ends = |node: &Node| matches!(node.op, Op::Softmax | Op::ArgMax);
    let gives_label = graph.nodes.iter().any(ends);
    let images = target.wanted.len() / target.outputs;
    let tells = target.real && images >= LEAST_LABELLED;
    match tells && target.has_scores && (gives_label || target.outputs >= MANY_OUTPUTS) {
        true => aim * (MOST_CHANGED / target.changed(aim)).clamp(LEAST_AIM, 1.0),
        false => aim,
    }
}

/// Whether integers or shares do not fit, for which another network may have room.
fn is_too_wide(error: &BuildError) -> bool {
    match error {
        BuildError::Quantise(QuantiseError::Overflow { .. }) => true,
        BuildError::Refused { source, .. } => !is_too_long(source) && !is_too_large(source),
        error => matches!(error, BuildError::Bits { .. } | BuildError::Modulus { .. }),
    }
}

/// A plan with its network.
type Found = (Planned, FixedGraph, Fidelity);

fn built(source: &Source<'_>, (planned, fixed, fidelity): Found) -> Result<Built, BuildError> {
    let judged = fidelity.judge(&planned.plan.finish);
    // Where that cannot be told, the refusal stands without it.
    let loss = |error| {
        losses::largest(source.graph, &fixed, source.tested, error)
            .ok()
            .flatten()
    };
    judged.map_err(|refusal| refusal.with_loss(loss))?;
    Ok(Built {
        plan: planned.plan,
        names: planned.names,
        weights: planned.weights.into_iter().map(Weights::from).collect(),
        computation: Arc::new(fixed),
        fidelity,
    })
}

/// A search for the tolerance of layers.
struct Search<'a> {
    source: &'a Source<'a>,
    method: &'a Method,
    options: &'a BuildOptions,
    tolerances: &'a Tolerances,
    rounding: Rounding,
    /// Bits of all weights, and of all values, where they are not the search's to choose.
    bits: [Option<u32>; 2],
    /// As [`ModulusBudget::low_digits`].
    low_digits: u32,
    most_bits: u32,
    /// The aim that users are told.
    stated: f64,
    /// What is aimed at: the same or less.
    aim: f64,
}

impl Search<'_> {
    /// The first of the attempts that becomes a plan, or one that costs less.
    fn found(&self) -> Result<Found, BuildError> {
        let attempts = self.attempts()?;
        let is_first = attempts.len() == 1;
        let missed = attempts.iter().filter(|attempt| attempt.error > self.aim);
        let missed = missed.map(|attempt| attempt.tolerance).reduce(f64::min);
        let mut refused = None;
        for attempt in attempts {
            let network = attempt.network.map(Ok);
            let (fixed, fidelity) = network.unwrap_or_else(|| self.attempt(attempt.tolerance))?;
            match (self.method.lower)(&fixed, self.options) {
                Ok(planned) => {
                    let found = (planned, fixed, fidelity);
                    return Ok(match (is_first, missed) {
                        (true, _) => self.cheaper(found),
                        (false, Some(missed)) => self.closer(found, attempt.tolerance, missed),
                        (false, None) => found,
                    });
                }
                Err(error) if is_too_wide(&error) => {
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.expect("there is an attempt"))
    }

    /// Fixed-point networks in the order of preference: the coarsest that reaches the aim first, or
    /// of those with about the least error, and then those with smaller errors before others.
    fn attempts(&self) -> Result<Vec<Attempt>, BuildError> {
        let tightening = match self.is_quick() {
            true => Tightening {
                aim: self.aim,
                first: self.method.looseness,
                enough: self.aim,
                bisections: BISECTIONS,
            },
            false => Tightening {
                aim: self.aim,
                first: self.method.looseness.min(SLOW_FIRST),
                enough: match self.attempt_work() > SLOWEST_WORK {
                    true => WARN * self.aim,
                    false => self.aim,
                },
                bisections: 0,
            },
        };
        let attempt = |tolerance| {
            let network = self.attempt(tolerance)?;
            Ok::<_, BuildError>(Attempt {
                tolerance,
                error: network.1.error,
                network: Some(network),
            })
        };
        let mut most = f64::INFINITY;
        let keep_best = |attempts: &mut [Attempt]| {
            let errors = attempts.iter().map(|attempt| attempt.error);
            most = self
                .aim
                .max(errors.fold(f64::INFINITY, f64::min) / LEAST_FALL);
            for attempt in attempts {
                attempt.network.take_if(|_| attempt.error > most);
            }
        };
        let mut attempts = tightening.run(attempt, |attempt| attempt.error, keep_best)?;
        let coarsest = attempts.iter().position(|attempt| attempt.error <= most);
        let best = attempts.remove(coarsest.unwrap_or(0));
        attempts.sort_by(|a, b| a.error.total_cmp(&b.error));
        attempts.insert(0, best);
        Ok(attempts)
    }

    /// A plan that costs less than that of the first attempt and reaches the aim, too, where that
    /// is much more precise than was asked for. Coarser networks do not always cost less.
    fn cheaper(&self, first: Found) -> Found {
        if first.2.error >= PRECISE * self.aim || !self.is_worth_loosening() {
            return first;
        }
        let mut best = first;
        let mut tolerance = self.method.looseness;
        for _ in 0..LOOSENINGS {
            tolerance *= 2.0;
            let Ok((fixed, fidelity)) = self.attempt(tolerance) else {
                break;
            };
            if fidelity.error > self.aim {
                break;
            }
            let Ok(planned) = (self.method.lower)(&fixed, self.options) else {
                break;
            };
            if self.costs_less(&planned.plan, &best.0.plan) {
                best = (planned, fixed, fidelity);
            }
        }
        best
    }

    /// A plan that costs less and reaches the aim, too, of tolerances between one that does, with
    /// the plan given, and one that missed it.
    fn closer(&self, reached: Found, mut fits: f64, mut missed: f64) -> Found {
        let mut best = reached;
        if best.2.error > self.aim || fits > missed || !self.is_worth_loosening() {
            return best;
        }
        for _ in 0..BISECTIONS {
            let tolerance = (fits * missed).sqrt();
            let attempt = self.attempt(tolerance).ok();
            let Some((fixed, fidelity)) = attempt.filter(|(_, found)| found.error <= self.aim)
            else {
                missed = tolerance;
                continue;
            };
            fits = tolerance;
            match (self.method.lower)(&fixed, self.options) {
                Ok(planned) if self.costs_less(&planned.plan, &best.0.plan) => {
                    best = (planned, fixed, fidelity);
                }
                _ => {}
            }
        }
        best
    }

    /// Whether an image of a full batch costs fewer bytes, and no more by the objective.
    fn costs_less(&self, plan: &CheckedPlan, other: &CheckedPlan) -> bool {
        let goal = self.options.goal();
        let bytes = |plan: &CheckedPlan| {
            let cost = cost::total(plan, plan.max_batch);
            (cost.bytes_up + cost.bytes_down) as f64 / plan.max_batch as f64
        };
        bytes(plan) < bytes(other) && goal.of(plan) <= goal.of(other)
    }

    /// The network of layers with so many times the errors that reach the aim.
    fn attempt(&self, part: f64) -> Result<Network, BuildError> {
        let (source, method) = (self.source, self.method);
        let budget = ModulusBudget {
            tolerances: &self.tolerances.reaching(part * self.aim),
            weight_bits: self.bits[0],
            input_bits: self.bits[1],
            narrow: method.narrow,
            most_bits: self.most_bits,
            circuits: method.circuits,
            low_digits: self.low_digits,
        };
        let quantise_options = QuantiseOptions {
            margin: source.margin,
            costly_requantisation: method.circuits,
            most_bits: self.most_bits,
            plain_input_bits: plain_bits(part * self.aim),
            whole_inputs: self.options.are_indicators(source.graph.input_len())
                && source.tested.iter().all(|value| value.fract() == 0.0),
            ..QuantiseOptions::default()
        };
        let fixed = quantise::quantise_corrected(
            source.graph,
            source.profile,
            &budget,
            &quantise_options,
            source.corrected,
        )?;
        let fixed = match self.rounding {
            Rounding::Nearest => fixed,
            Rounding::Dithered => fixed.with_dither().unwrap_or(fixed),
        };
        // The error is that of the values, also where these are not opened.
        let fidelity = fidelity(&fixed, source, self.stated)?;
        let opens_class = method.class && self.options.opening != Some(Opening::Values);
        let fixed = match opens_class && fixed.ends_in_argmax() {
            true => fixed.with_class(),
            false => fixed,
        };
        Ok((fixed, fidelity))
    }

    /// Multiply-adds of an image.
    fn multiply_adds(&self) -> u64 {
        multiply_adds(self.source.graph)
    }

    /// Multiply-adds of all images of an attempt.
    fn attempt_work(&self) -> u64 {
        let elements = self.source.graph.input_len().max(1);
        let values = self.source.tested.len() + self.source.corrected.0.len();
        let images = (values / elements) as u64;
        self.multiply_adds().saturating_mul(images)
    }

    /// Whether a further attempt takes little time.
    fn is_quick(&self) -> bool {
        self.attempt_work() <= MOST_WORK
    }

    fn is_worth_loosening(&self) -> bool {
        self.bits.contains(&None) && self.multiply_adds() >= LEAST_LOOSENED && self.is_quick()
    }
}

/// Tolerances that fall until the error is small enough.
struct Tightening {
    aim: f64,
    /// The tolerance to begin with.
    first: f64,
    /// The attempt with this error is the last.
    enough: f64,
    /// Tolerances that are tried between one that fits and a finer one that does not.
    bisections: usize,
}

impl Tightening {
    /// Attempts until one reaches the aim or errors stop falling. `look` sees those so far after
    /// each.
    ///
    /// # Errors
    /// The first attempt fails.
    fn run<T, E>(
        &self,
        mut attempt: impl FnMut(f64) -> Result<T, E>,
        error: impl Fn(&T) -> f64,
        mut look: impl FnMut(&mut [T]),
    ) -> Result<Vec<T>, E> {
        let mut attempts = vec![attempt(self.first)?];
        look(&mut attempts);
        let (mut fits, mut fails) = (self.first, 0.0);
        let (mut least, mut stalled, mut bisections) = (f64::INFINITY, 0, 0);
        loop {
            let last = error(&attempts[attempts.len() - 1]);
            stalled = if last < LEAST_FALL * least {
                0
            } else {
                stalled + 1
            };
            least = least.min(last);
            let [slow, fast] = TIGHTENING;
            let slow = if last <= NEAR * self.aim {
                SLOWEST
            } else {
                slow
            };
            let mut next = fits / (last / self.aim).clamp(slow, fast);
            if last <= self.enough || stalled == PATIENCE || attempts.len() == ATTEMPTS {
                return Ok(attempts);
            }
            // Finer values may not fit where coarser ones did.
            loop {
                if next <= fails {
                    if bisections == self.bisections {
                        return Ok(attempts);
                    }
                    bisections += 1;
                    next = (fits * fails).sqrt();
                }
                match attempt(next) {
                    Ok(found) => {
                        attempts.push(found);
                        look(&mut attempts);
                        fits = next;
                        break;
                    }
                    Err(_) => fails = next,
                }
            }
        }
    }
}

/// The expected error of a network.
fn fidelity(fixed: &FixedGraph, source: &Source<'_>, aim: f64) -> Result<Fidelity, BuildError> {
    let input = fixed.input();
    let images = source.tested.len() / input.len();
    let (integers, _) = oracle::quantise_input(input, source.tested)?;
    let results = oracle::evaluate(fixed, &integers, images)?;
    let found = (fixed.result(), results.as_slice());
    Ok(source.target.fidelity(found, &fixed.finish, aim))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tolerances that are tried where those below `fits` fail and errors are `error` times the
    /// tolerance.
    fn tried(fits: f64, bisections: usize, error: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
        let tightening = Tightening {
            aim: 1.0,
            first: 64.0,
            enough: 1.5,
            bisections,
        };
        let mut all = Vec::new();
        let attempt = |tolerance| {
            all.push(tolerance);
            (tolerance >= fits).then_some(tolerance).ok_or(())
        };
        let made = tightening.run(attempt, |&tolerance| error(tolerance), |_| {});
        (all, made.unwrap_or_default())
    }

    #[test]
    fn tolerances_fall_until_the_aim_is_reached() {
        let (all, made) = tried(0.0, 3, |tolerance| tolerance);
        assert_eq!(all, [64.0, 16.0, 4.0, 1.0]);
        assert_eq!(made, all);
    }

    #[test]
    fn the_first_attempt_must_fit() {
        let (all, made) = tried(100.0, 3, |tolerance| tolerance);
        assert_eq!((all.len(), made.len()), (1, 0));
    }

    #[test]
    fn tolerances_between_one_that_fits_and_one_that_fails_are_tried() {
        // 4 fails, and 8 fits; then 2 is known to fail, and 5.7 does; 6.7 fits.
        let (all, made) = tried(6.0, 3, |tolerance| tolerance);
        assert_eq!(all[..4], [64.0, 16.0, 4.0, 8.0]);
        assert!((all[4] - 32.0f64.sqrt()).abs() < 1e-9, "{all:?}");
        assert!((all[5] - (8.0 * 32.0f64.sqrt()).sqrt()).abs() < 1e-9);
        assert_eq!((all.len(), made.len()), (6, 4));
        let (all, made) = tried(6.0, 0, |tolerance| tolerance);
        assert_eq!((all.len(), made.len()), (3, 2));
    }

    #[test]
    fn a_tolerance_between_may_reach_the_aim() {
        let (all, made) = tried(6.0, 3, |tolerance| tolerance / 10.0);
        assert_eq!(made.last(), all.last());
        assert!(made[made.len() - 1] <= 10.0);
    }

    #[test]
    fn errors_that_do_not_fall_end_the_search() {
        let (all, _) = tried(0.0, 3, |_| 5.0);
        assert_eq!(all, [64.0, 16.0, 4.0]);
        let (all, _) = tried(0.0, 3, |tolerance| 5.0 + tolerance / 1e3);
        assert_eq!(all, [64.0, 16.0, 4.0]);
    }

    #[test]
    fn an_error_that_is_small_enough_ends_the_search() {
        let (all, made) = tried(0.0, 3, |_| 1.4);
        assert_eq!((all.len(), made.len()), (1, 1));
        let (all, _) = tried(0.0, 3, |_| 1.6);
        assert!(all.len() > 1);
    }
}
