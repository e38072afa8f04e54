//! The opening of a result: the server sends its shares, the client adds them up.

use std::ops::Range;

use pronghorn_ring::bits;
use zeroize::Zeroizing;

use super::{check_length, layout::check_shape};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

/// Words of a message: at most 4 MiB.
const MESSAGE_WORDS: usize = 1 << 20;

/// A value that the client learns, as shares that are exact. Both parties have the same, from the plan.
#[derive(Clone)]
pub struct Opened {
    /// Name of the step, for messages.
    pub step: String,
    /// Elements of one image.
    pub elements: usize,
    /// Images.
    pub images: usize,
    /// Shares are modulo `2^bits`; 1 to 32.
    pub bits: u32,
    /// Least value.
    pub low: i32,
    /// Greatest value.
    pub high: i32,
}

impl Opened {
    fn check(&self, share: &Share) -> Result<(), EngineError> {
        check_bits(&self.step, self.bits)?;
        check_shape(&self.step, share, self.elements, self.images)?;
        Ok(())
    }

    fn words(&self) -> usize {
        self.elements * self.images
    }

    /// The words of the message that begins with word `done`.
    fn range(&self, done: usize) -> Range<usize> {
        done..self.words().min(done + MESSAGE_WORDS)
    }

    fn want(&self, done: usize, turn: Want) -> Want {
        if done < self.words() {
            turn
        } else {
            Want::Done
        }
    }

    fn progress(&self, done: usize) -> Progress {
        Progress {
            done: (done / self.images) as u64,
            total: self.elements as u64,
        }
    }
}

/// Checks that words of a batch hold this many bits.
pub(super) fn check_bits(step: &str, bits: u32) -> Result<(), EngineError> {
    if (1..=i32::BITS).contains(&bits) {
        return Ok(());
    }
    Err(EngineError::Layout {
        step: step.to_owned(),
        field: "the width of shares",
        found: bits as usize,
        wanted: "1 to",
        bound: i32::BITS as usize,
    })
}

/// The server's half: sends its share, and has none in the end.
pub struct OpenServer {
    opened: Opened,
    share: Share,
    done: usize,
}

impl OpenServer {
    /// Opens this share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(opened: Opened, share: Share) -> Result<Self, EngineError> {
        opened.check(&share)?;
        Ok(Self {
            opened,
            share,
            done: 0,
        })
    }
}

impl Machine for OpenServer {
    fn want(&self) -> Want {
        self.opened.want(self.done, Want::Send)
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if self.want() != Want::Send {
            return Err(EngineError::OutOfTurn { state: "is over" });
        }
        let range = self.opened.range(self.done);
        let mask = u32::MAX >> (u32::BITS - self.opened.bits);
        let mut words = Zeroizing::new(vec![0; range.len()]);
        if let Share::Words(share) = &self.share {
            for (word, &share) in words.iter_mut().zip(&share.words()[range.clone()]) {
                *word = share as u32 & mask;
            }
        }
        bits::pack(&words, self.opened.bits, out);
        self.done = range.end;
        Ok(())
    }

    fn receive(&mut self, _message: &[u8]) -> Result<(), EngineError> {
        let state = "is at the server's turn, or is over";
        Err(EngineError::OutOfTurn { state })
    }

    fn max_incoming(&self) -> usize {
        0
    }

    fn progress(&self) -> Progress {
        self.opened.progress(self.done)
    }
}

impl StepMachine for OpenServer {
    fn into_share(self: Box<Self>) -> Share {
        Share::Zero
    }
}

/// The client's half: learns the value.
pub struct OpenClient {
    opened: Opened,
    /// The share, then the value.
    words: Batch,
    done: usize,
}

impl OpenClient {
    /// Opens with this share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(opened: Opened, share: Share) -> Result<Self, EngineError> {
        opened.check(&share)?;
        let words = match share {
            Share::Words(words) => words,
            Share::Zero => Batch::zeros(opened.elements, opened.images),
        };
        Ok(Self {
            opened,
            words,
            done: 0,
        })
    }
}

impl Machine for OpenClient {
    fn want(&self) -> Want {
        self.opened.want(self.done, Want::Receive)
    }

    fn send(&mut self, _out: &mut Vec<u8>) -> Result<(), EngineError> {
        let state = "waits for the server's shares, or is over";
        Err(EngineError::OutOfTurn { state })
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        const MESSAGE: &str = "the server's shares";
        if self.want() != Want::Receive {
            return Err(EngineError::OutOfTurn { state: "is over" });
        }
        let range = self.opened.range(self.done);
        let Opened {
            step,
            bits,
            low,
            high,
            ..
        } = &self.opened;
        check_length(step, MESSAGE, message.len(), self.max_incoming())?;
        let mut shares = Zeroizing::new(vec![0u32; range.len()]);
        bits::unpack(message, *bits, &mut shares).map_err(|source| EngineError::Packing {
            step: step.clone(),
            message: MESSAGE,
            row: range.start / self.opened.images,
            source,
        })?;
        let unused = u32::BITS - bits;
        let words = &mut self.words.words_mut()[range.clone()];
        let mut outside = false;
        for (word, &share) in words.iter_mut().zip(shares.iter()) {
            *word = word.wrapping_add(share as i32) << unused >> unused;
            outside |= (*word < *low) | (*word > *high);
        }
        if outside {
            let index = words
                .iter()
                .position(|word| !(low..=high).contains(&word))
                .unwrap_or_default();
            return Err(EngineError::Opened {
                step: step.clone(),
                index: range.start + index,
                low: *low,
                high: *high,
            });
        }
        self.done = range.end;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        bits::packed_len(self.opened.range(self.done).len(), self.opened.bits)
    }

    fn progress(&self) -> Progress {
        self.opened.progress(self.done)
    }
}

impl StepMachine for OpenClient {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.words)
    }
}
