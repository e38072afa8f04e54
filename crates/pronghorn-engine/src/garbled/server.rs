//! The model owner's half of a garbled step: the garbler.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::{Block, garble::Delta};
use pronghorn_ring::random::{Prg, Seed};
use zeroize::Zeroizing;

use super::{
    ServerOts,
    layout::{Layout, Output},
    schedule::{Limits, Schedule, Turn},
    work::{Buffers, Work},
};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

/// Receives OTs, garbles with its blocks of them as labels, sends tables.
pub struct GarbledServer {
    work: Work,
    schedule: Schedule,
    share: Share,
    ots: ServerOts,
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
pub(super) fn delta(ots: &ServerOts, step: &str) -> Result<Delta, EngineError> {
    ots.with(step, |ots| Ok(Delta::new(ots.delta())))
}

/// The server's share of an output: none where the client learns it.
pub(super) fn share_of(layout: &Layout, output: Batch) -> Share {
    match layout.output {
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
        ots: ServerOts,
    ) -> Result<Self, EngineError> {
        Self::with_limits(layout.into(), share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        share: Share,
        ots: ServerOts,
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
            starts: starts()?,
            labels: VecDeque::new(),
            buffers: Buffers::new(),
        })
    }
}

impl Machine for GarbledServer {
    fn want(&self) -> Want {
        self.schedule.server_wants()
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let state = "waits for the client's oblivious transfers, or is over";
        let Turn::Answer(index) = self.schedule.turn() else {
            return Err(EngineError::OutOfTurn { state });
        };
        let labels = self.labels.pop_front();
        let labels = labels.ok_or(EngineError::OutOfTurn { state })?;
        let delta = delta(&self.ots, &self.work.layout.step)?;
        self.work.garble(
            self.schedule.chunk(index),
            &self.share,
            (&delta, &self.starts),
            &labels,
            &mut self.buffers,
            (out, &mut self.output),
        )?;
        self.schedule.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let Turn::Ots(index) = self.schedule.turn() else {
            let state = "is at the server's turn, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let step = &self.work.layout.step;
        let mut labels = Zeroizing::new(vec![Block::ZERO; self.schedule.chunk(index).ots]);
        self.ots
            .with(step, |ots| ots.extend(message, &mut labels))?;
        self.labels.push_back(labels);
        self.schedule.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.schedule.turn() {
            Turn::Ots(index) => self.ots.message_bytes(self.schedule.chunk(index).ots),
            Turn::Answer(_) | Turn::Over => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.schedule.progress(self.work.layout.rows())
    }
}

impl StepMachine for GarbledServer {
    fn into_share(self: Box<Self>) -> Share {
        share_of(&self.work.layout, self.output)
    }
}
