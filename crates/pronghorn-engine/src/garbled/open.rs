//! The opening of a result: the server sends its shares, the client adds them up.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the server's shares, at most 2^20 words in each message | server | `bits` bits a word |

use pronghorn_ring::bits;
use zeroize::Zeroizing;

use super::layout::check_shape;
use crate::{
    error::EngineError,
    exchange::{Exchange, Message, Messages, Parts, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    packed::PackedRow,
    share::{Batch, Share},
};

/// Words of a message: at most 4 MiB.
const MESSAGE_WORDS: usize = 1 << 20;

const SHARES: &str = "the server's shares";

/// A value that the client learns, as shares that are exact. Both parties have the same, from the
/// plan.
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

    /// The words of each message.
    fn parts(&self) -> Parts {
        Parts {
            items: self.elements * self.images,
            most: MESSAGE_WORDS,
        }
    }

    fn messages(&self) -> Messages {
        let shares = self.parts().ranges().map(|range| {
            let bytes = bits::packed_len(range.len(), self.bits);
            Message::server(SHARES, bytes).rows(range.len())
        });
        Messages::new(&self.step)
            .in_rows(self.elements)
            .with_all(shares)
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
}

impl OpenServer {
    /// Opens this share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(opened: Opened, share: Share) -> Result<Exchange<Self>, EngineError> {
        opened.check(&share)?;
        Ok(Exchange::new(opened.messages(), Self { opened, share }))
    }
}

impl Protocol for OpenServer {
    const PARTY: Party = Party::Server;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let range = self.opened.parts().range(turn.index);
        let mask = u32::MAX >> (u32::BITS - self.opened.bits);
        let mut words = Zeroizing::new(vec![0; range.len()]);
        if let Share::Words(share) = &self.share {
            for (word, &share) in words.iter_mut().zip(&share.words()[range]) {
                *word = share as u32 & mask;
            }
        }
        bits::pack(&words, self.opened.bits, out);
        Ok(())
    }
}

impl StepProtocol for OpenServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Zero))
    }
}

/// The client's half: learns the value.
pub struct OpenClient {
    opened: Opened,
    /// The share, then the value.
    words: Batch,
}

impl OpenClient {
    /// Opens with this share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(opened: Opened, share: Share) -> Result<Exchange<Self>, EngineError> {
        opened.check(&share)?;
        let words = match share {
            Share::Words(words) => words,
            Share::Zero => Batch::zeros(opened.elements, opened.images),
        };
        Ok(Exchange::new(opened.messages(), Self { opened, words }))
    }
}

impl Protocol for OpenClient {
    const PARTY: Party = Party::Client;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let range = self.opened.parts().range(turn.index);
        let Opened { step, bits, .. } = &self.opened;
        let mut shares = Zeroizing::new(vec![0u32; range.len()]);
        let packed = PackedRow {
            step,
            message: SHARES,
            row: range.start / self.opened.images,
            width: *bits,
        };
        packed.unpack(message, &mut shares)?;
        let unused = u32::BITS - bits;
        let words = &mut self.words.words_mut()[range];
        for (word, &share) in words.iter_mut().zip(shares.iter()) {
            *word = word.wrapping_add(share as i32) << unused >> unused;
        }
        Ok(())
    }
}

impl StepProtocol for OpenClient {
    fn into_made(mut self) -> Result<Made, EngineError> {
        let Opened {
            step, low, high, ..
        } = self.opened;
        // The server must not hear of a value that was outside.
        let outside = self.words.clamp(low, high);
        let doubt = outside.map(|index| EngineError::Opened {
            step,
            index,
            low,
            high,
        });
        Ok(Made::share(Share::Words(self.words)).doubting(doubt))
    }
}
