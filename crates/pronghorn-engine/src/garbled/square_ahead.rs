//! Squares in two phases.
//!
//! Ahead, the parties run the whole protocol ([`super::square`]) on the server's share `a` and a random `c` in place of the client's. When
//! the client has its share `b` it sends `d = b - c` modulo `2^(k-1)`, which is uniform, and has no answer to wait for:
//!
//! > `(a + b)^2 - (a + c)^2 = b^2 - c^2 + 2ad` modulo `2^k`:
//!
//! the client adds the first two, the server the last. `k - 1` bits online for each square.

use std::ops::Range;

use pronghorn_ring::{
    bits,
    random::{Prg, Seed},
};
use zeroize::Zeroizing;

use super::{
    ClientOts, ServerOts, SquareClient, SquareServer, Squares, check_length, layout::check_shape,
};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

/// Words of a message: at most 4 MiB.
const MESSAGE_WORDS: usize = 1 << 20;

/// The client's half of what is made ahead.
pub struct PrepareSquareClient {
    squares: Squares,
    random: Batch,
    machine: SquareClient,
}

/// The server's half of what is made ahead.
pub struct PrepareSquareServer {
    squares: Squares,
    share: Share,
    machine: SquareServer,
}

/// Squares made ahead, the client's half: a random share and its part of the square. Used once. Wiped on drop; no Debug.
pub struct PreparedSquareClient {
    squares: Squares,
    random: Batch,
    output: Batch,
}

/// Squares made ahead, the server's half: its share and its part of the square. Used once. Wiped on drop; no Debug.
pub struct PreparedSquareServer {
    squares: Squares,
    share: Share,
    output: Batch,
}

impl PrepareSquareClient {
    /// Prepares `squares`.
    ///
    /// # Errors
    /// When their numbers are out of range, or the system gives no randomness.
    pub fn new(squares: Squares, ots: ClientOts) -> Result<Self, EngineError> {
        check_shape(
            &squares.step,
            &Share::Zero,
            squares.elements,
            squares.images,
        )?;
        let mut random = Batch::zeros(squares.elements, squares.images);
        let mut stream = Prg::new(&Seed::from_os()?, "pronghorn engine squares ahead").stream(0);
        let mut bytes = Zeroizing::new([0; 4096]);
        for words in random.words_mut().chunks_mut(1024) {
            stream.fill(&mut *bytes);
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = i32::from_le_bytes(*bytes);
            }
        }
        let share = Share::Words(random.clone());
        Ok(Self {
            machine: SquareClient::new(squares.clone(), share, ots)?,
            squares,
            random,
        })
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedSquareClient, EngineError> {
        Ok(PreparedSquareClient {
            output: output_of(Box::new(self.machine))?,
            squares: self.squares,
            random: self.random,
        })
    }
}

impl PrepareSquareServer {
    /// Prepares `squares` for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(squares: Squares, share: Share, ots: ServerOts) -> Result<Self, EngineError> {
        Ok(Self {
            machine: SquareServer::new(squares.clone(), share.clone(), ots)?,
            squares,
            share,
        })
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedSquareServer, EngineError> {
        Ok(PreparedSquareServer {
            output: output_of(Box::new(self.machine))?,
            squares: self.squares,
            share: self.share,
        })
    }
}

fn output_of(machine: Box<dyn StepMachine>) -> Result<Batch, EngineError> {
    match (machine.want(), machine.into_share()) {
        (Want::Done, Share::Words(output)) => Ok(output),
        _ => Err(EngineError::OutOfTurn {
            state: "has not finished what it makes ahead",
        }),
    }
}

/// Hands a wrapper's [`Machine`] calls to the machine inside.
macro_rules! delegate_machine {
    ($wrapper:ty) => {
        impl Machine for $wrapper {
            fn want(&self) -> Want {
                self.machine.want()
            }

            fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
                self.machine.send(out)
            }

            fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
                self.machine.receive(message)
            }

            fn max_incoming(&self) -> usize {
                self.machine.max_incoming()
            }

            fn progress(&self) -> Progress {
                self.machine.progress()
            }
        }
    };
}

delegate_machine!(PrepareSquareClient);
delegate_machine!(PrepareSquareServer);

/// Where the differences are.
struct Differences {
    squares: Squares,
    done: usize,
}

impl Differences {
    fn words(&self) -> usize {
        self.squares.elements * self.squares.images
    }

    /// Bits of a difference: for shares modulo 2 none is needed.
    fn bits(&self) -> u32 {
        self.squares.bits - 1
    }

    /// The words of the next message.
    fn range(&self) -> Range<usize> {
        self.done..self.words().min(self.done + MESSAGE_WORDS)
    }

    fn want(&self, turn: Want) -> Want {
        if self.bits() > 0 && self.done < self.words() {
            turn
        } else {
            Want::Done
        }
    }

    fn progress(&self) -> Progress {
        let done = match self.want(Want::Send) {
            Want::Done => self.words(),
            _ => self.done,
        };
        Progress {
            done: (done / self.squares.images) as u64,
            total: self.squares.elements as u64,
        }
    }
}

/// The client's half with its share: sends differences.
pub struct OnlineSquareClient {
    differences: Differences,
    share: Batch,
    random: Batch,
    output: Batch,
}

impl OnlineSquareClient {
    /// Uses up what was prepared for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(prepared: PreparedSquareClient, share: Share) -> Result<Self, EngineError> {
        let PreparedSquareClient {
            squares,
            random,
            mut output,
        } = prepared;
        check_shape(&squares.step, &share, squares.elements, squares.images)?;
        let share = match share {
            Share::Words(share) => share,
            Share::Zero => Batch::zeros(squares.elements, squares.images),
        };
        let cells = share.words().iter().zip(random.words());
        for (word, (&b, &c)) in output.words_mut().iter_mut().zip(cells) {
            let change = b.wrapping_mul(b).wrapping_sub(c.wrapping_mul(c));
            *word = word.wrapping_add(change);
        }
        Ok(Self {
            differences: Differences { squares, done: 0 },
            share,
            random,
            output,
        })
    }
}

impl Machine for OnlineSquareClient {
    fn want(&self) -> Want {
        self.differences.want(Want::Send)
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if self.want() != Want::Send {
            return Err(EngineError::OutOfTurn { state: "is over" });
        }
        let (range, bits) = (self.differences.range(), self.differences.bits());
        let mask = u32::MAX >> (u32::BITS - bits);
        let (share, random) = (self.share.words(), self.random.words());
        let cells = share[range.clone()].iter().zip(&random[range.clone()]);
        let words: Vec<u32> = cells
            .map(|(&b, &c)| b.wrapping_sub(c) as u32 & mask)
            .collect();
        bits::pack(&words, bits, out);
        self.differences.done = range.end;
        Ok(())
    }

    fn receive(&mut self, _message: &[u8]) -> Result<(), EngineError> {
        let state = "is at the client's turn, or is over";
        Err(EngineError::OutOfTurn { state })
    }

    fn max_incoming(&self) -> usize {
        0
    }

    fn progress(&self) -> Progress {
        self.differences.progress()
    }
}

impl StepMachine for OnlineSquareClient {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}

/// The server's half: receives differences.
pub struct OnlineSquareServer {
    differences: Differences,
    share: Share,
    output: Batch,
}

impl OnlineSquareServer {
    /// Uses up what was prepared; its share went into that.
    pub fn new(prepared: PreparedSquareServer) -> Self {
        let PreparedSquareServer {
            squares,
            share,
            output,
        } = prepared;
        Self {
            differences: Differences { squares, done: 0 },
            share,
            output,
        }
    }
}

impl Machine for OnlineSquareServer {
    fn want(&self) -> Want {
        self.differences.want(Want::Receive)
    }

    fn send(&mut self, _out: &mut Vec<u8>) -> Result<(), EngineError> {
        let state = "waits for the client's differences, or is over";
        Err(EngineError::OutOfTurn { state })
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        const MESSAGE: &str = "the differences of shares";
        if self.want() != Want::Receive {
            return Err(EngineError::OutOfTurn { state: "is over" });
        }
        let (range, squares) = (self.differences.range(), &self.differences.squares);
        check_length(&squares.step, MESSAGE, message.len(), self.max_incoming())?;
        let mut words = vec![0u32; range.len()];
        bits::unpack(message, self.differences.bits(), &mut words).map_err(|source| {
            EngineError::Packing {
                step: squares.step.clone(),
                message: MESSAGE,
                row: range.start / squares.images,
                source,
            }
        })?;
        if let Share::Words(share) = &self.share {
            let output = &mut self.output.words_mut()[range.clone()];
            for ((word, &a), &d) in output
                .iter_mut()
                .zip(&share.words()[range.clone()])
                .zip(&words)
            {
                let product = a.wrapping_mul(d as i32).wrapping_mul(2);
                *word = word.wrapping_add(product);
            }
        }
        self.differences.done = range.end;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.want() {
            Want::Receive => {
                bits::packed_len(self.differences.range().len(), self.differences.bits())
            }
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.differences.progress()
    }
}

impl StepMachine for OnlineSquareServer {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}
