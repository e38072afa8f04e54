//! The use of garblings made ahead: one round trip, a bit up and 16 bytes down for each bit of the client's shares.

use std::ops::Range;

use pronghorn_mpc::{
    Block,
    garble::{apply_corrections, correct},
    ot::transfer,
};

use super::{
    PreparedClient, PreparedServer, check_length,
    prepared::{Name, damaged, read_blocks, write_blocks},
    schedule::{Chunk, Limits},
};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The client sends flips, from this byte on.
    Flips(usize),
    /// The server sends the corrections of a chunk.
    Corrections(usize),
    Over,
}

/// Both parties' view of how far a step is.
struct Online {
    chunks: Vec<Chunk>,
    /// Bytes of flips of all chunks, and of a message.
    flip_bytes: usize,
    most_flips: usize,
    turn: Turn,
}

impl Online {
    fn new(chunks: Vec<Chunk>, limits: &Limits) -> Self {
        let turn = if chunks.is_empty() {
            Turn::Over
        } else {
            Turn::Flips(0)
        };
        Self {
            flip_bytes: chunks.iter().map(|chunk| chunk.ots / 8).sum(),
            most_flips: limits.flips,
            chunks,
            turn,
        }
    }

    /// The flips of the message that begins with byte `first`.
    fn flips(&self, first: usize) -> Range<usize> {
        first..self.flip_bytes.min(first + self.most_flips)
    }

    /// Bytes of that message: the garbling's name is in front of the first.
    fn flip_message(&self, first: usize) -> usize {
        self.flips(first).len() + if first == 0 { size_of::<Name>() } else { 0 }
    }

    fn advance(&mut self) {
        self.turn = match self.turn {
            Turn::Flips(first) => match self.flips(first).end {
                end if end < self.flip_bytes => Turn::Flips(end),
                _ => Turn::Corrections(0),
            },
            Turn::Corrections(chunk) if chunk + 1 < self.chunks.len() => {
                Turn::Corrections(chunk + 1)
            }
            Turn::Corrections(_) | Turn::Over => Turn::Over,
        };
    }

    fn progress(&self, rows: usize) -> Progress {
        let total = self.chunks.len();
        let done = match self.turn {
            Turn::Flips(_) if total > 0 => 0,
            Turn::Corrections(chunk) => rows as u128 * chunk as u128 / total as u128,
            Turn::Flips(_) | Turn::Over => rows as u128,
        };
        Progress {
            done: done as u64,
            total: rows as u64,
        }
    }
}

/// The client's half: sends flips, receives corrections of labels, evaluates the tables it has.
pub struct OnlineClient {
    online: Online,
    prepared: PreparedClient,
    share: Share,
    flips: Vec<u8>,
    output: Batch,
}

impl OnlineClient {
    /// Uses up what was prepared for this party's share of the input.
    ///
    /// # Errors
    /// When the share is not of the shape.
    pub fn new(prepared: PreparedClient, share: Share) -> Result<Self, EngineError> {
        Self::with_limits(prepared, share, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        prepared: PreparedClient,
        share: Share,
        limits: &Limits,
    ) -> Result<Self, EngineError> {
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
        Ok(Self {
            online: Online::new(prepared.chunks.clone(), limits),
            output: work.output(),
            prepared,
            share,
            flips,
        })
    }
}

impl Machine for OnlineClient {
    fn want(&self) -> Want {
        match self.online.turn {
            Turn::Flips(_) => Want::Send,
            Turn::Corrections(_) => Want::Receive,
            Turn::Over => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Turn::Flips(first) = self.online.turn else {
            let state = "waits for the server's corrections, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        if first == 0 {
            out.extend_from_slice(&self.prepared.name());
        }
        out.extend_from_slice(&self.flips[self.online.flips(first)]);
        self.online.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let state = "is at the client's turn, or is over";
        let Turn::Corrections(index) = self.online.turn else {
            return Err(EngineError::OutOfTurn { state });
        };
        let (work, expected) = (&self.prepared.work, self.max_incoming());
        let step = &work.layout.step;
        check_length(step, "the corrections of labels", message.len(), expected)?;
        let held = self.prepared.held.pop_front();
        let mut held = held.ok_or(EngineError::OutOfTurn { state })?;
        apply_corrections(&read_blocks(message), &mut held.labels).map_err(|source| {
            let step = step.clone();
            EngineError::Garble { step, source }
        })?;
        let (chunk, output) = (&self.online.chunks[index], &mut self.output);
        work.evaluate(chunk, &self.share, &held.labels, &held.tables, output)?;
        self.online.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.online.turn {
            Turn::Corrections(index) => self.online.chunks[index].ots * Block::BYTES,
            Turn::Flips(_) | Turn::Over => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.online.progress(self.prepared.work.layout.rows())
    }
}

impl StepMachine for OnlineClient {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}

/// The server's half: receives flips, sends corrections of labels.
pub struct OnlineServer {
    online: Online,
    prepared: PreparedServer,
    flips: Vec<u8>,
    /// Bytes of the flips that are answered.
    used: usize,
}

impl OnlineServer {
    /// Uses up what was prepared; its share of the input went into that.
    pub fn new(prepared: PreparedServer) -> Self {
        Self::with_limits(prepared, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(prepared: PreparedServer, limits: &Limits) -> Self {
        Self {
            online: Online::new(prepared.chunks.clone(), limits),
            prepared,
            flips: Vec::new(),
            used: 0,
        }
    }
}

impl Machine for OnlineServer {
    fn want(&self) -> Want {
        match self.online.turn {
            Turn::Flips(_) => Want::Receive,
            Turn::Corrections(_) => Want::Send,
            Turn::Over => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let state = "waits for the client's flips, or is over";
        let Turn::Corrections(_) = self.online.turn else {
            return Err(EngineError::OutOfTurn { state });
        };
        // What was prepared is the sum of labels and OTs already.
        let sums = self.prepared.corrections.pop_front();
        let sums = sums.ok_or(EngineError::OutOfTurn { state })?;
        let flips = &self.flips[self.used..][..sums.len() / 8];
        let mut corrections = vec![Block::ZERO; sums.len()];
        correct(&self.prepared.delta, &sums, flips, &mut corrections).map_err(|source| {
            let step = self.prepared.layout.step.clone();
            EngineError::Garble { step, source }
        })?;
        write_blocks(&corrections, out);
        self.used += flips.len();
        self.online.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let Turn::Flips(first) = self.online.turn else {
            let state = "is at the server's turn, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let step = &self.prepared.layout.step;
        let expected = self.online.flip_message(first);
        check_length(step, "the flips of choices", message.len(), expected)?;
        let mut flips = message;
        if first == 0 {
            let (name, rest) = message.split_at(size_of::<Name>());
            if name != self.prepared.name {
                return Err(damaged(step, "is not the one that the client uses"));
            }
            flips = rest;
        }
        self.flips.extend_from_slice(flips);
        self.online.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.online.turn {
            Turn::Flips(first) => self.online.flip_message(first),
            Turn::Corrections(_) | Turn::Over => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.online.progress(self.prepared.layout.rows())
    }
}

impl StepMachine for OnlineServer {
    fn into_share(self: Box<Self>) -> Share {
        self.prepared.share
    }
}
