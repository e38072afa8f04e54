//! The use of garblings made ahead: one round trip, a bit up and 16 bytes down for each bit of the
//! client's shares.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the flips of choices, some in each message; the garbling's name is in front of the first | client | a bit an OT, and 16 |
//! | the corrections of labels, one message a chunk | server | 16 an OT |

use pronghorn_mpc::{
    Block,
    garble::{apply_corrections, correct},
    ot::transfer,
};

use super::{
    PreparedClient, PreparedServer,
    prepared::{Name, damaged, read_blocks, write_blocks},
    schedule::{Chunk, Limits},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Message, Messages, Parts, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

const FLIPS: &str = "the flips of choices";
const CORRECTIONS: &str = "the corrections of labels";

/// How the flips of all chunks are cut, in bytes.
fn flips(chunks: &[Chunk], limits: &Limits) -> Parts {
    Parts {
        items: chunks.iter().map(|chunk| chunk.ots / 8).sum(),
        most: limits.flips,
    }
}

/// The messages of a step of so many rows.
fn messages((step, rows): (&str, usize), chunks: &[Chunk], flips: Parts) -> Messages {
    let flips = flips.ranges().map(|range| {
        let name = if range.start == 0 {
            size_of::<Name>()
        } else {
            0
        };
        Message::client(FLIPS, name + range.len())
    });
    let corrections = |chunk: &Chunk| {
        let bytes = chunk.ots * Block::BYTES;
        Message::server(CORRECTIONS, bytes).rows(1)
    };
    Messages::new(step)
        .in_rows(rows)
        .with_all(flips)
        .with_all(chunks.iter().map(corrections))
}

/// The client's half: sends flips, receives corrections of labels, evaluates the tables it has.
pub struct OnlineClient {
    prepared: PreparedClient,
    share: Share,
    parts: Parts,
    flips: Vec<u8>,
    output: Batch,
}

impl OnlineClient {
    /// Uses up what was prepared for this party's share of the input.
    ///
    /// # Errors
    /// When the share is not of the shape.
    pub fn new(prepared: PreparedClient, share: Share) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(prepared, share, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        prepared: PreparedClient,
        share: Share,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let work = &prepared.work;
        work.layout.check_input(&share)?;
        let mut flips = Vec::new();
        for (chunk, held) in prepared.chunks.iter().zip(&prepared.held) {
            let wanted = work.choices(chunk, &share);
            transfer::correct_choices(&held.choices, &wanted, &mut flips).map_err(|source| {
                let step = work.layout.step.clone();
                EngineError::Ot { step, source }
            })?;
        }
        let parts = self::flips(&prepared.chunks, limits);
        let step = (work.layout.step.as_str(), work.layout.rows());
        let messages = messages(step, &prepared.chunks, parts);
        let client = Self {
            output: work.output(),
            prepared,
            share,
            parts,
            flips,
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Protocol for OnlineClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if turn.index == 0 {
            out.extend_from_slice(&self.prepared.name());
        }
        out.extend_from_slice(&self.flips[self.parts.range(turn.index)]);
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let work = &self.prepared.work;
        let held = self.prepared.held.pop_front();
        let mut held = held.ok_or_else(|| turn.unknown())?;
        apply_corrections(&read_blocks(message), &mut held.labels).map_err(|source| {
            let step = work.layout.step.clone();
            EngineError::Garble { step, source }
        })?;
        let (chunk, output) = (&self.prepared.chunks[turn.index], &mut self.output);
        work.evaluate(chunk, &self.share, &held.labels, &held.tables, output)
    }
}

impl StepProtocol for OnlineClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(self.prepared.work.made(self.output))
    }
}

/// The server's half: receives flips, sends corrections of labels.
pub struct OnlineServer {
    prepared: PreparedServer,
    flips: Vec<u8>,
    /// Bytes of the flips that are answered.
    used: usize,
}

impl OnlineServer {
    /// Uses up what was prepared; its share of the input went into that.
    pub fn new(prepared: PreparedServer) -> Exchange<Self> {
        Self::with_limits(prepared, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(prepared: PreparedServer, limits: &Limits) -> Exchange<Self> {
        let (layout, chunks) = (&prepared.layout, &prepared.chunks);
        let step = (layout.step.as_str(), layout.rows());
        let messages = messages(step, chunks, flips(chunks, limits));
        let server = Self {
            prepared,
            flips: Vec::new(),
            used: 0,
        };
        Exchange::new(messages, server)
    }
}

impl Protocol for OnlineServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let mut flips = message;
        if turn.index == 0 {
            let (name, rest) = message.split_at(size_of::<Name>());
            if name != self.prepared.name {
                let step = &self.prepared.layout.step;
                return Err(damaged(step, "is not the one that the client uses"));
            }
            flips = rest;
        }
        self.flips.extend_from_slice(flips);
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        // What was prepared is the sum of labels and OTs already.
        let sums = self.prepared.corrections.pop_front();
        let sums = sums.ok_or_else(|| turn.unknown())?;
        let flips = &self.flips[self.used..][..sums.len() / 8];
        let mut corrections = vec![Block::ZERO; sums.len()];
        correct(&self.prepared.delta, &sums, flips, &mut corrections).map_err(|source| {
            let step = self.prepared.layout.step.clone();
            EngineError::Garble { step, source }
        })?;
        write_blocks(&corrections, out);
        self.used += flips.len();
        Ok(())
    }
}

impl StepProtocol for OnlineServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(self.prepared.share))
    }
}
