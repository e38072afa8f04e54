//! The data owner's half of a garbled step: the evaluator.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::Block;
use zeroize::Zeroizing;

use super::{
    ClientOts, check_length,
    layout::Layout,
    schedule::{Limits, Schedule, Turn},
    work::Work,
};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

/// Sends OTs with the bits of its share as choices, receives tables, evaluates.
pub struct GarbledClient {
    work: Work,
    schedule: Schedule,
    share: Share,
    ots: ClientOts,
    /// The labels of the chunks of this window.
    labels: VecDeque<Zeroizing<Vec<Block>>>,
    output: Batch,
}

impl GarbledClient {
    /// The step of `layout` with this party's share of its input.
    ///
    /// # Errors
    /// When the layout is none, or the share is not of its shape.
    pub fn new(
        layout: impl Into<Arc<Layout>>,
        share: Share,
        ots: ClientOts,
    ) -> Result<Self, EngineError> {
        Self::with_limits(layout.into(), share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        share: Share,
        ots: ClientOts,
        limits: &Limits,
    ) -> Result<Self, EngineError> {
        layout.check_input(&share)?;
        let (work, schedule) = Work::new(layout, limits)?;
        Ok(Self {
            output: work.output(),
            work,
            schedule,
            share,
            ots,
            labels: VecDeque::new(),
        })
    }
}

impl Machine for GarbledClient {
    fn want(&self) -> Want {
        self.schedule.client_wants()
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Turn::Ots(index) = self.schedule.turn() else {
            let state = "waits for the server's tables, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let chunk = self.schedule.chunk(index);
        let choices = self.work.choices(chunk, &self.share);
        let mut labels = Zeroizing::new(vec![Block::ZERO; chunk.ots]);
        let step = &self.work.layout.step;
        self.ots
            .with(step, |ots| ots.extend(&choices, &mut labels, out))?;
        self.labels.push_back(labels);
        self.schedule.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let state = "is at the client's turn, or is over";
        let Turn::Answer(index) = self.schedule.turn() else {
            return Err(EngineError::OutOfTurn { state });
        };
        let chunk = self.schedule.chunk(index);
        let step = &self.work.layout.step;
        check_length(step, "the garbled tables", message.len(), chunk.answer)?;
        let labels = self.labels.pop_front();
        let labels = labels.ok_or(EngineError::OutOfTurn { state })?;
        let (work, share, output) = (&self.work, &self.share, &mut self.output);
        work.evaluate(chunk, share, &labels, message, output)?;
        self.schedule.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.schedule.turn() {
            Turn::Answer(index) => self.schedule.chunk(index).answer,
            Turn::Ots(_) | Turn::Over => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.schedule.progress(self.work.layout.rows())
    }
}

impl StepMachine for GarbledClient {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}
