//! Local steps: each party works on its own share. No message, nothing is revealed.

use pronghorn_graph::{
    fixed::{Interval, LocalOp, ValueSpec},
    shape::OperatorError,
};

use crate::{
    bands::{Band, Rows, rows_of},
    cost::StepMemory,
    description::Description,
    share_form::{Node, Readers, ShareForm, ShareRules, Takes},
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

/// Bits by which a local step shifts input number `place` up.
pub fn left_shift(op: &LocalOp, place: usize) -> u32 {
    match op {
        LocalOp::Add { left_shift } => left_shift.get(place).copied().unwrap_or(0),
        LocalOp::Concat { left_shift, .. } => left_shift.get(place).copied().unwrap_or(0),
        _ => 0,
    }
}

/// The shift that also brings an input to `guard` guard bits.
fn guarded_shift(op: &LocalOp, place: usize, input: &ShareForm, guard: u32) -> u32 {
    left_shift(op, place).saturating_add(guard - input.guard)
}

/// The same step on values with guard bits.
pub fn with_guards(op: &LocalOp, inputs: &[ShareForm], guard: u32) -> LocalOp {
    let shift = |place: usize| guarded_shift(op, place, &inputs[place], guard);
    match op {
        LocalOp::Add { .. } => LocalOp::Add {
            left_shift: std::array::from_fn(shift),
        },
        LocalOp::Concat { axis, .. } => LocalOp::Concat {
            axis: *axis,
            left_shift: (0..inputs.len()).map(shift).collect(),
        },
        other => other.clone(),
    }
}

/// Bound on the error of the value.
fn error(op: &LocalOp, inputs: &[ShareForm], guard: u32) -> u64 {
    let errors = inputs.iter().enumerate().map(|(place, input)| {
        let shift = guarded_shift(op, place, input, guard);
        input
            .error
            .saturating_mul(1u64.checked_shl(shift).unwrap_or(u64::MAX))
    });
    match op {
        LocalOp::Add { .. } => errors.fold(0, u64::saturating_add),
        LocalOp::SumPool {
            window,
            multipliers,
        } => {
            let values = window.kernel.iter().product::<usize>() as u64;
            let factors = multipliers.iter().map(|m| u64::from(m.unsigned_abs()));
            let factor = values.saturating_mul(factors.max().unwrap_or(1));
            errors.fold(0, u64::max).saturating_mul(factor)
        }
        _ => errors.fold(0, u64::max),
    }
}

impl ShareRules for LocalOp {
    fn makes_residues(&self, inputs: bool, _readers: Readers) -> bool {
        inputs
    }

    fn takes(&self) -> Takes {
        Takes::Same
    }

    fn margin(&self) -> i64 {
        1
    }

    fn input_bits(&self, bits: u32, place: usize, _input: &Node<'_>) -> u32 {
        bits.saturating_sub(left_shift(self, place))
    }

    fn form(&self, bits: u32, inputs: &[ShareForm]) -> ShareForm {
        let guard = inputs.iter().map(|input| input.guard).max().unwrap_or(0);
        ShareForm::guarded(bits, guard, error(self, inputs, guard))
    }
}

impl StepPlan for LocalOp {
    fn kind(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::SumPool { .. } => "sum-pool",
            Self::Reshape => "reshape",
            Self::Pad { .. } => "pad",
            Self::Concat { .. } => "concat",
            Self::Transpose { .. } => "transpose",
            Self::Take { .. } => "take",
        }
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty, TrustLevel::ClientAided]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        self.bounds(inputs, &value.shape)
    }

    fn pooled(&self, outputs: usize) -> usize {
        match self {
            Self::SumPool { window, .. } => window
                .kernel
                .iter()
                .fold(outputs, |values, &size| values.saturating_mul(size)),
            _ => 0,
        }
    }

    fn rows(&self, place: &Place<'_>) -> Option<Rows> {
        let alike = match self {
            Self::Add { .. } | Self::Concat { axis: 0, .. } | Self::Take { axis: 0, .. } => true,
            Self::Pad { before, after } => {
                let is_zero = |pad: &&Vec<usize>| pad.get(1) == Some(&0);
                [before, after].iter().all(is_zero)
            }
            _ => false,
        };
        match self {
            Self::SumPool {
                window,
                multipliers,
            } if multipliers.len() == 1 => {
                Some(Rows::alike().then(window, rows_of(&place.input().shape)))
            }
            _ => alike.then(Rows::alike),
        }
    }

    fn folds(&self, place: &Place<'_>) -> bool {
        let [height, value] = [place.input(), place.value()].map(|value| rows_of(&value.shape));
        match self {
            Self::SumPool {
                window,
                multipliers,
            } => {
                let is_whole = window.kernel[0] == height && window.dilation[0] == 1;
                let is_padded = window.padding[0] + window.padding[2] > 0;
                is_whole && !is_padded && height > 1 && value == 1 && multipliers.len() == 1
            }
            _ => false,
        }
    }

    /// Sums so far, of this band and of those before.
    fn band_memory(
        &self,
        step: &Compiled<'_>,
        batch: usize,
        band: &Band,
    ) -> (StepMemory, StepMemory) {
        if !self.folds(&step.place) {
            return Default::default();
        }
        let sums = 4 * (step.place.value().len() as u64).saturating_mul(batch as u64);
        let client = |client| StepMemory { server: 0, client };
        let is_last = !band.rows.is_empty();
        (client(2 * sums), client(if is_last { 0 } else { sums }))
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(format!("{}, locally", self.kind()))
    }
}
