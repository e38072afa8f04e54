//! The model owner's half of a garbled step: the garbler.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::{Block, garble::Delta};
use pronghorn_ring::random::{Prg, Seed};
use zeroize::Zeroizing;

use super::{
    layout::{Layout, Output},
    schedule::{Chunk, Limits},
    work::{Buffers, Work},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    ots::SenderOts,
    share::{Batch, Share},
};

/// Receives OTs, garbles with its blocks of them as labels, sends tables.
pub struct GarbledServer {
    work: Work,
    chunks: Vec<Chunk>,
    share: Share,
    ots: SenderOts,
    starts: Prg,
    /// The labels of 0 of the chunks of this window.
    labels: VecDeque<Zeroizing<Vec<Block>>>,
    buffers: Buffers,
    output: Batch,
}

/// The generator of the starts of a step's garblings: fresh, and secret until they are sent.
pub(super) fn starts() -> Result<Prg, EngineError> {
    Ok(Prg::new(
        &Seed::from_os()?,
        "pronghorn engine starts of garblings",
    ))
}

/// The offset of the server's labels.
pub(super) fn delta(ots: &SenderOts, step: &str) -> Result<Delta, EngineError> {
    ots.with(step, |ots| Ok(Delta::new(ots.delta())))
}

/// The server's share of an output: none where the client learns it.
pub(super) fn share_of(layout: &Layout, output: Batch) -> Share {
    match layout.circuits.output {
        Output::Shares => Share::Words(output),
        Output::Unsigned | Output::Signed { .. } => Share::Zero,
    }
}

impl GarbledServer {
    /// The step of `layout` with this party's share of its input.
    ///
    /// # Errors
    /// When the layout is none, the share is not of its shape, or the system gives no randomness.
    pub fn new(
        layout: impl Into<Arc<Layout>>,
        share: Share,
        ots: SenderOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(layout.into(), share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        share: Share,
        ots: SenderOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        layout.check_input(&share)?;
        let (work, chunks) = Work::new(layout, limits)?;
        let messages = work.messages(&chunks, limits, |count| ots.message_bytes(count));
        let server = Self {
            output: work.output(),
            work,
            chunks,
            share,
            ots,
            starts: starts()?,
            labels: VecDeque::new(),
            buffers: Buffers::new(),
        };
        Ok(Exchange::new(messages, server))
    }
}

impl Protocol for GarbledServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (step, count) = (&self.work.layout.step, self.chunks[turn.index].ots);
        let (_, labels) = self.ots.receive(step, message, count)?;
        self.labels.push_back(labels);
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let labels = self.labels.pop_front().ok_or_else(|| turn.unknown())?;
        let delta = delta(&self.ots, &self.work.layout.step)?;
        self.work.garble(
            &self.chunks[turn.index],
            &self.share,
            (&delta, &self.starts),
            &labels,
            &mut self.buffers,
            (out, &mut self.output),
        )
    }
}

impl StepProtocol for GarbledServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(share_of(&self.work.layout, self.output)))
    }
}
