//! Garblings made ahead: the phase that needs the server's shares, and nothing of the client's.
//!
//! The client makes OTs with random choices `c`, the server garbles with labels of its own and sends the tables; who later
//! puts an input to use sends a bit for each of its bits, and gets a label's correction ([`super::online`]). The client holds tables and labels
//! in between: 943 bytes for a ReLU of 20 bits; the server 16 bytes a bit, 320.
//!
//! Tables are there before the client's input is chosen. Half gates are proven secure for inputs that do not depend on the tables, as a
//! semi-honest client's do not.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::Block;
use pronghorn_ring::random::{Prg, Seed};
use zeroize::Zeroizing;

use super::{
    ClientOts, PreparedClient, PreparedServer, ServerOts, check_length,
    layout::Layout,
    prepared::{ClientChunk, Name},
    schedule::{Limits, Schedule, Turn},
    server::{delta, share_of, starts},
    work::{Buffers, Work},
};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, Want},
    share::{Batch, Share},
};

/// The client's half: makes OTs with random choices, receives tables and keeps them.
pub struct PrepareClient {
    work: Work,
    schedule: Schedule,
    ots: ClientOts,
    random: Prg,
    /// By chunk; the tables come later.
    held: VecDeque<ClientChunk>,
}

impl PrepareClient {
    /// Prepares the step of `layout`.
    ///
    /// # Errors
    /// When the layout is none, or the system gives no randomness.
    pub fn new(layout: impl Into<Arc<Layout>>, ots: ClientOts) -> Result<Self, EngineError> {
        Self::with_limits(layout.into(), ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        ots: ClientOts,
        limits: &Limits,
    ) -> Result<Self, EngineError> {
        let (work, schedule) = Work::new(layout, limits)?;
        Ok(Self {
            work,
            schedule,
            ots,
            random: Prg::new(&Seed::from_os()?, "pronghorn engine choices made ahead"),
            held: VecDeque::new(),
        })
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedClient, EngineError> {
        if self.want() != Want::Done {
            return Err(NOT_DONE);
        }
        Ok(PreparedClient {
            work: self.work,
            chunks: self.schedule.chunks().to_vec(),
            held: self.held,
        })
    }
}

const NOT_DONE: EngineError = EngineError::OutOfTurn {
    state: "has not finished what it makes ahead",
};

impl Machine for PrepareClient {
    fn want(&self) -> Want {
        self.schedule.client_wants()
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Turn::Ots(index) = self.schedule.turn() else {
            let state = "waits for the server's tables, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let ots = self.schedule.chunk(index).ots;
        let mut choices = Zeroizing::new(vec![0; ots / 8]);
        self.random.stream(index as u64).fill(&mut choices);
        let mut labels = Zeroizing::new(vec![Block::ZERO; ots]);
        let step = &self.work.layout.step;
        self.ots
            .with(step, |ots| ots.extend(&choices, &mut labels, out))?;
        self.held.push_back(ClientChunk {
            choices,
            labels,
            tables: Vec::new(),
        });
        self.schedule.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let Turn::Answer(index) = self.schedule.turn() else {
            let state = "is at the client's turn, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let (step, chunk) = (&self.work.layout.step, self.schedule.chunk(index));
        check_length(step, "the garbled tables", message.len(), chunk.answer)?;
        self.held[index].tables = message.to_vec();
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

/// The server's half: garbles with labels of its own.
pub struct PrepareServer {
    work: Work,
    schedule: Schedule,
    share: Share,
    ots: ServerOts,
    starts: Prg,
    zero_labels: Prg,
    name: Name,
    /// By chunk: the blocks of its OTs, and when it is garbled, their sums with the labels of 0.
    blocks: VecDeque<Zeroizing<Vec<Block>>>,
    buffers: Buffers,
    output: Batch,
}

impl PrepareServer {
    /// Prepares the step of `layout` for this party's share of its input.
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
            zero_labels: Prg::new(&Seed::from_os()?, "pronghorn engine labels made ahead"),
            name: Name::default(),
            blocks: VecDeque::new(),
            buffers: Buffers::new(),
        })
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedServer, EngineError> {
        if self.want() != Want::Done {
            return Err(NOT_DONE);
        }
        let delta = delta(&self.ots, &self.work.layout.step)?;
        Ok(PreparedServer {
            share: share_of(&self.work.layout, self.output),
            layout: self.work.layout,
            chunks: self.schedule.chunks().to_vec(),
            name: self.name,
            delta,
            corrections: self.blocks,
        })
    }

    /// Fresh labels of 0 for a chunk.
    fn labels_of(&self, index: usize) -> Zeroizing<Vec<Block>> {
        let mut labels = Zeroizing::new(vec![Block::ZERO; self.schedule.chunk(index).ots]);
        let mut stream = self.zero_labels.stream(index as u64);
        let mut bytes = Zeroizing::new([0; 256 * Block::BYTES]);
        for labels in labels.chunks_mut(256) {
            stream.fill(&mut *bytes);
            for (label, bytes) in labels.iter_mut().zip(bytes.as_chunks().0) {
                *label = Block::from_bytes(*bytes);
            }
        }
        labels
    }
}

impl Machine for PrepareServer {
    fn want(&self) -> Want {
        self.schedule.server_wants()
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Turn::Answer(index) = self.schedule.turn() else {
            let state = "waits for the client's oblivious transfers, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let delta = delta(&self.ots, &self.work.layout.step)?;
        let labels = self.labels_of(index);
        let start = out.len();
        self.work.garble(
            self.schedule.chunk(index),
            &self.share,
            (&delta, &self.starts),
            &labels,
            &mut self.buffers,
            (out, &mut self.output),
        )?;
        if let (0, Some(name)) = (index, out[start..].first_chunk()) {
            self.name = *name;
        }
        let blocks = self.blocks[index].iter_mut();
        blocks
            .zip(labels.iter())
            .for_each(|(block, label)| *block ^= *label);
        self.schedule.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let Turn::Ots(index) = self.schedule.turn() else {
            let state = "is at the server's turn, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let step = &self.work.layout.step;
        let mut blocks = Zeroizing::new(vec![Block::ZERO; self.schedule.chunk(index).ots]);
        self.ots
            .with(step, |ots| ots.extend(message, &mut blocks))?;
        self.blocks.push_back(blocks);
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
