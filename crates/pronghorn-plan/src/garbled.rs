//! Activation steps as garbled circuits: which chains of functions make one circuit, and the circuit.

use pronghorn_graph::{
    fixed::{ActivationOp, ValueSpec},
    geometry::Window,
    shape,
};
use pronghorn_mpc::circuit::{
    Activation, Builder, Circuit, CircuitError, Rectifier, Requantisation, signed_width,
};

use crate::{
    held::Held,
    plan::{Plan, StepKind},
};

/// Most values in a window of a garbled pool.
pub const MAX_WINDOW: usize = 1 << 10;

/// A chain of functions as one circuit has it: the largest of a window, a rectifier, a change of precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The pool, if any.
    pub window: Option<Window>,
    /// What happens below zero.
    pub rectifier: Rectifier,
    /// The change of precision, if any.
    pub requantisation: Option<Requantisation>,
}

impl Stage {
    /// The chain, where it fits one circuit. All of these functions but squares are monotone, so that a maximum
    /// may be taken first.
    pub fn of(ops: &[ActivationOp]) -> Option<Self> {
        let nothing = Self {
            window: None,
            rectifier: Rectifier::None,
            requantisation: None,
        };
        ops.iter().try_fold(nothing, Self::then)
    }

    fn then(mut self, op: &ActivationOp) -> Option<Self> {
        match *op {
            ActivationOp::MaxPool { ref window } if self.window.is_none() => {
                self.window = Some(window.clone());
            }
            ActivationOp::Relu => match (&mut self.requantisation, self.rectifier) {
                (Some(last), _) => {
                    last.low = last.low.max(0);
                    last.high = last.high.max(0);
                }
                (None, Rectifier::None | Rectifier::Relu) => self.rectifier = Rectifier::Relu,
                (None, Rectifier::Leaky { .. }) => return None,
            },
            ActivationOp::Clip { low, high } => return self.requantised(0, low, high),
            ActivationOp::Requantise { shift, low, high } => {
                return self.requantised(shift, low, high);
            }
            ActivationOp::LeakyRelu { slope, shift }
                if slope >= 0
                    && self.requantisation.is_none()
                    && self.rectifier == Rectifier::None =>
            {
                self.rectifier = Rectifier::Leaky { slope, shift };
            }
            ActivationOp::LeakyRelu { .. }
            | ActivationOp::MaxPool { .. }
            | ActivationOp::Square => {
                return None;
            }
        }
        Some(self)
    }

    /// `clamp(round(x / 2^shift), low, high)` after it.
    fn requantised(mut self, shift: u32, low: i32, high: i32) -> Option<Self> {
        let next = |x: i32| {
            let rounded = (i64::from(x) + ((1i64 << shift) >> 1)) >> shift;
            rounded.max(low.into()).min(high.into()) as i32
        };
        self.requantisation = Some(match self.requantisation {
            None => Requantisation { shift, low, high },
            // Clamps before a monotone function are clamps after it.
            Some(first) if first.shift == 0 || shift == 0 => Requantisation {
                shift: first.shift + shift,
                low: next(first.low),
                high: next(first.high),
            },
            Some(_) => return None,
        });
        Some(self)
    }

    /// Bits dropped in the end, guard bits not counted.
    fn shift(&self) -> u32 {
        self.requantisation.map_or(0, |last| last.shift)
    }

    /// What the server adds to its share of each input so that errors do not change what is rounded.
    pub fn offset(&self, input: &Held) -> i64 {
        // Without a shift, dropping the guard bits rounds to nearest.
        if self.shift() > 0 {
            input.error as i64
        } else {
            0
        }
    }

    /// The circuit for windows of `pool` values.
    ///
    /// # Errors
    /// When the numbers do not go together.
    pub fn circuit(
        &self,
        pool: usize,
        input: (&ValueSpec, &Held),
        output: &Held,
    ) -> Result<Circuit, CircuitError> {
        let (spec, held) = input;
        let requantisation = match self.requantisation {
            None if held.guard == 0 => None,
            None => Some(Requantisation {
                shift: held.guard,
                low: i32::MIN,
                high: i32::MAX,
            }),
            Some(last) => Some(Requantisation {
                shift: last.shift + held.guard,
                ..last
            }),
        };
        let activation = Activation {
            pool,
            rectifier: self.rectifier,
            requantisation,
        };
        let (low, high) = lifted(spec, held, self.offset(held));
        activation.circuit(held.modulus()?, low, high, output.modulus()?)
    }
}

/// The range of a value with its guard bits, error and offset.
fn lifted(spec: &ValueSpec, held: &Held, offset: i64) -> (i64, i64) {
    let error = held.error as i64;
    let lift = |x: i32| (i64::from(x) << held.guard) + offset;
    (lift(spec.low) - error, lift(spec.high) + error)
}

/// The largest factor by which a chain multiplies its input's error.
pub(crate) fn factor(ops: &[ActivationOp]) -> u64 {
    let of = |op: &ActivationOp| match *op {
        ActivationOp::LeakyRelu { slope, shift } => {
            u64::from(slope.unsigned_abs()).max(1u64.checked_shl(shift).unwrap_or(u64::MAX))
        }
        _ => 1,
    };
    ops.iter().map(of).fold(1, u64::saturating_mul)
}

/// Whether it takes a circuit to open a value: one whose shares may not simply be added up, since guard bits tell of errors, and primes have no sums of
/// bits.
pub fn opens(held: &Held) -> bool {
    held.guard > 0 || held.prime.is_some()
}

/// The circuit that opens a value with guard bits to the evaluator: rounded, so that nothing but the value shows.
///
/// # Errors
/// When the numbers do not go together.
pub fn open(spec: &ValueSpec, held: &Held) -> Result<Circuit, CircuitError> {
    let half = (1i64 << held.guard) >> 1;
    let (low, high) = lifted(spec, held, 0);
    let modulus = held.modulus()?;
    let mut builder = Builder::new();
    let shared = builder.shared_input(modulus, low, high)?;
    let word = builder.reconstruct(&shared, half);
    builder.output_revealed(&word[(held.guard as usize).min(word.len() - 1)..]);
    Ok(builder.finish())
}

/// Bits of the two's complement word that [`open`] opens.
pub fn open_bits(spec: &ValueSpec, held: &Held) -> u32 {
    let half = (1i64 << held.guard) >> 1;
    let (low, high) = lifted(spec, held, half);
    signed_width(low, high).saturating_sub(held.guard).max(1)
}

/// Output elements of a step that share a circuit.
pub struct Group {
    /// Values in the window of each.
    pub pool: usize,
    /// The elements.
    pub elements: Vec<usize>,
    /// The values each takes, `pool` for every element.
    pub sources: Vec<usize>,
}

/// Values in all windows of a pool, and the sum of the sizes that windows have, each counted once: from sizes alone, before anything is
/// made. `None` where the shape is not one that can be pooled.
pub(crate) fn window_sizes(window: &Window, input: &ValueSpec) -> Option<(usize, usize)> {
    let (channels, size) = shape::image(&input.shape).ok()?;
    let output = window.pool_output(size).ok()?;
    let taps =
        |axis: usize| (0..output[axis]).map(move |at| window.taps(axis, at, size[axis]).len());
    let sums = [0, 1].map(|axis| taps(axis).fold(0, usize::saturating_add));
    let distinct = [0, 1].map(|axis| taps(axis).collect::<std::collections::BTreeSet<_>>());
    let sizes: std::collections::BTreeSet<usize> = distinct[0]
        .iter()
        .flat_map(|height| {
            distinct[1]
                .iter()
                .map(move |width| height.saturating_mul(*width))
        })
        .collect();
    let values = channels.saturating_mul(sums[0]).saturating_mul(sums[1]);
    Some((values, sizes.into_iter().fold(0, usize::saturating_add)))
}

/// The output elements by the size of their windows, the smallest first; `None` where a window is empty or too large, or the
/// shape is not one that can be pooled.
pub fn groups(window: Option<&Window>, input: &ValueSpec) -> Option<Vec<Group>> {
    let Some(window) = window else {
        let elements: Vec<usize> = (0..input.len()).collect();
        return Some(vec![Group {
            pool: 1,
            sources: elements.clone(),
            elements,
        }]);
    };
    let (channels, size) = shape::image(&input.shape).ok()?;
    let output = window.pool_output(size).ok()?;
    let mut groups = std::collections::BTreeMap::new();
    for element in 0..channels * output[0] * output[1] {
        let sources: Vec<usize> = window.pooled(size, output, element).collect();
        if sources.is_empty() || sources.len() > MAX_WINDOW {
            return None;
        }
        let group = groups.entry(sources.len()).or_insert_with(|| Group {
            pool: sources.len(),
            elements: Vec::new(),
            sources: Vec::new(),
        });
        group.elements.push(element);
        group.sources.extend(sources);
    }
    Some(groups.into_values().collect())
}

/// The circuits of step `index`, an activation by garbled circuits or an opening of shares with guard bits, and the elements that
/// each computes.
///
/// # Errors
/// When there is no such circuit: of a plan that is not validated.
pub fn circuits(plan: &Plan, index: usize, held: &[Held]) -> Result<Vec<(Group, Circuit)>, String> {
    let step = &plan.steps[index];
    let [input] = step.inputs[..] else {
        return Err("it takes one value".into());
    };
    let (spec, input) = (&plan.steps[input].value, &held[input]);
    let stage = match &step.kind {
        StepKind::Activation(activation) => {
            Some(Stage::of(&activation.ops).ok_or("its functions do not fit one circuit")?)
        }
        StepKind::Open => None,
        _ => return Err("it has no circuit".into()),
    };
    let window = stage.as_ref().and_then(|stage| stage.window.as_ref());
    let groups = groups(window, spec).ok_or_else(|| {
        format!("its window is empty somewhere, or has more than {MAX_WINDOW} values")
    })?;
    let circuit = |group: Group| {
        let circuit = match &stage {
            Some(stage) => stage.circuit(group.pool, (spec, input), &held[index]),
            None => open(spec, input),
        };
        let circuit = circuit.map_err(|error| error.to_string())?;
        Ok((group, circuit))
    };
    groups.into_iter().map(circuit).collect()
}
