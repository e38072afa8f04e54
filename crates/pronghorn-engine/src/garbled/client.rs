//! The data owner's half of a garbled step: the evaluator.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::Block;
use zeroize::Zeroizing;

use super::{
    layout::Layout,
    schedule::{Chunk, Limits},
    work::Work,
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    ots::ReceiverOts,
    share::{Batch, Share},
};

/// Sends OTs with the bits of its share as choices, receives tables, evaluates.
pub struct GarbledClient {
    work: Work,
    chunks: Vec<Chunk>,
    share: Share,
    ots: ReceiverOts,
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
        ots: ReceiverOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(layout.into(), share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        share: Share,
        ots: ReceiverOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        layout.check_input(&share)?;
        let (work, chunks) = Work::new(layout, limits)?;
        let messages = work.messages(&chunks, limits, |count| ots.message_bytes(count));
        let client = Self {
            output: work.output(),
            work,
            chunks,
            share,
            ots,
            labels: VecDeque::new(),
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Protocol for GarbledClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let choices = self.work.choices(&self.chunks[turn.index], &self.share);
        let (_, labels) = self.ots.send(&self.work.layout.step, &choices, out)?;
        self.labels.push_back(labels);
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let labels = self.labels.pop_front().ok_or_else(|| turn.unknown())?;
        let (chunk, output) = (&self.chunks[turn.index], &mut self.output);
        self.work
            .evaluate(chunk, &self.share, &labels, message, output)
    }
}

impl StepProtocol for GarbledClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(self.work.made(self.output))
    }
}
