//! Garblings made ahead: the phase that needs the server's shares, and nothing of the client's.
//!
//! The client makes OTs with random choices `c`, the server garbles with labels of its own and
//! sends the tables; who later puts an input to use sends a bit for each of its bits, and gets a
//! label's correction ([`super::online`]). The client holds tables and labels in between: 943 bytes
//! for a ReLU of 20 bits; the server 16 bytes a bit, 320.
//!
//! Tables are there before the client's input is chosen. Half gates are proven secure for inputs
//! that do not depend on the tables, as a semi-honest client's do not.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::Block;
use pronghorn_ring::random::{Prg, Seed};
use zeroize::Zeroizing;

use super::{
    PreparedClient, PreparedServer,
    layout::Layout,
    prepared::{ClientChunk, Name},
    schedule::{Chunk, Limits},
    server::{delta, share_of, starts},
    work::{Buffers, Work},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    ots::{ReceiverOts, SenderOts},
    share::{Batch, Share},
};

/// The client's half: makes OTs with random choices, receives tables and keeps them.
pub struct PrepareClient {
    work: Work,
    chunks: Vec<Chunk>,
    ots: ReceiverOts,
    random: Prg,
    /// By chunk; the tables come later.
    held: VecDeque<ClientChunk>,
}

impl PrepareClient {
    /// Prepares the step of `layout`.
    ///
    /// # Errors
    /// When the layout is none, or the system gives no randomness.
    pub fn new(
        layout: impl Into<Arc<Layout>>,
        ots: ReceiverOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(layout.into(), ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        ots: ReceiverOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let (work, chunks) = Work::new(layout, limits)?;
        let messages = work.messages(&chunks, limits, |count| ots.message_bytes(count));
        let client = Self {
            work,
            chunks,
            ots,
            random: Prg::new(&Seed::from_os()?, "pronghorn engine choices made ahead"),
            held: VecDeque::new(),
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Exchange<PrepareClient> {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedClient, EngineError> {
        Ok(self.finish()?.prepared())
    }
}

impl PrepareClient {
    fn prepared(self) -> PreparedClient {
        let Self {
            work, chunks, held, ..
        } = self;
        PreparedClient { work, chunks, held }
    }
}

impl StepProtocol for PrepareClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made {
            prepared: Some(Box::new(self.prepared())),
            ..Made::share(Share::Zero)
        })
    }
}

impl Protocol for PrepareClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let mut choices = Zeroizing::new(vec![0; self.chunks[turn.index].ots / 8]);
        self.random.stream(turn.index as u64).fill(&mut choices);
        let (_, labels) = self.ots.send(&self.work.layout.step, &choices, out)?;
        self.held.push_back(ClientChunk {
            choices,
            labels,
            tables: Vec::new(),
        });
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.held[turn.index].tables = message.to_vec();
        Ok(())
    }
}

/// The server's half: garbles with labels of its own.
pub struct PrepareServer {
    work: Work,
    chunks: Vec<Chunk>,
    share: Share,
    ots: SenderOts,
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
            zero_labels: Prg::new(&Seed::from_os()?, "pronghorn engine labels made ahead"),
            name: Name::default(),
            blocks: VecDeque::new(),
            buffers: Buffers::new(),
        };
        Ok(Exchange::new(messages, server))
    }

    /// Fresh labels of 0 for a chunk.
    fn labels_of(&self, index: usize) -> Zeroizing<Vec<Block>> {
        let mut labels = Zeroizing::new(vec![Block::ZERO; self.chunks[index].ots]);
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

impl Exchange<PrepareServer> {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedServer, EngineError> {
        self.finish()?.prepared()
    }
}

impl PrepareServer {
    fn prepared(self) -> Result<PreparedServer, EngineError> {
        let delta = delta(&self.ots, &self.work.layout.step)?;
        Ok(PreparedServer {
            share: share_of(&self.work.layout, self.output),
            layout: self.work.layout,
            chunks: self.chunks,
            name: self.name,
            delta,
            corrections: self.blocks,
        })
    }
}

impl StepProtocol for PrepareServer {
    fn into_made(self) -> Result<Made, EngineError> {
        let prepared = self.prepared()?;
        let share = prepared.share().clone();
        Ok(Made {
            prepared: Some(Box::new(prepared)),
            ..Made::share(share)
        })
    }
}

impl Protocol for PrepareServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (step, count) = (&self.work.layout.step, self.chunks[turn.index].ots);
        let (_, blocks) = self.ots.receive(step, message, count)?;
        self.blocks.push_back(blocks);
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let delta = delta(&self.ots, &self.work.layout.step)?;
        let labels = self.labels_of(turn.index);
        let start = out.len();
        self.work.garble(
            &self.chunks[turn.index],
            &self.share,
            (&delta, &self.starts),
            &labels,
            &mut self.buffers,
            (out, &mut self.output),
        )?;
        if let (0, Some(name)) = (turn.index, out[start..].first_chunk()) {
            self.name = *name;
        }
        let blocks = self.blocks[turn.index].iter_mut();
        blocks
            .zip(labels.iter())
            .for_each(|(block, label)| *block ^= *label);
        Ok(())
    }
}
