//! One party's half of a prepared batch, and its bytes ([`prepared`](crate::prepared) lists them).

use pronghorn_plan::{CheckedPlan, Plan};

use crate::{error::EngineError, machine::Prepared, protocol::Sides};

/// One party's half of a prepared batch. Secret: no Debug.
pub(crate) struct Half {
    pub batch: usize,
    /// The set-up of oblivious transfers that it was made with.
    pub setup: [u8; 32],
    steps: Vec<Option<Prepared>>,
}

fn error(plan: &Plan, index: usize, reason: &'static str) -> EngineError {
    let step = plan.step_name(index);
    EngineError::Prepared { step, reason }
}

impl Half {
    pub fn new(batch: usize, setup: [u8; 32], steps: Vec<Option<Prepared>>) -> Self {
        Self {
            batch,
            setup,
            steps,
        }
    }

    pub fn write<E>(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        for step in &self.steps {
            let bytes = step
                .as_ref()
                .map(|step| step.to_bytes())
                .unwrap_or_default();
            sink(&(bytes.len() as u64).to_le_bytes())?;
            sink(&bytes)?;
        }
        Ok(())
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// The bytes are not of such a half.
    pub fn read(
        plan: &CheckedPlan,
        sides: &Sides,
        batch: usize,
        setup: [u8; 32],
        mut bytes: &[u8],
    ) -> Result<Self, EngineError> {
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (index, side) in sides.iter().enumerate() {
            let cut = || error(plan, index, "is cut short");
            let (length, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok();
            let (own, rest) = length
                .and_then(|length| rest.split_at_checked(length))
                .ok_or_else(cut)?;
            bytes = rest;
            let step = side.read_prepared(batch, own)?;
            if step.is_none() && !own.is_empty() {
                return Err(error(
                    plan,
                    index,
                    "is of a step that has nothing to prepare",
                ));
            }
            steps.push(step);
        }
        if !bytes.is_empty() {
            return Err(error(plan, plan.output, "has something behind its end"));
        }
        Ok(Self::new(batch, setup, steps))
    }

    /// The steps of a half for a run of `batch` images; without a half none.
    pub fn for_batch(
        half: Option<Self>,
        plan: &Plan,
        batch: usize,
    ) -> Result<Vec<Option<Prepared>>, EngineError> {
        let Some(half) = half else {
            return Ok(Vec::new());
        };
        if half.batch != batch || half.steps.len() != plan.steps.len() {
            let reason = "is for another number of images, or another plan";
            return Err(error(plan, plan.output, reason));
        }
        Ok(half.steps)
    }
}
