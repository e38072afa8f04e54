//! Squares in two phases.
//!
//! Ahead, the parties run the whole protocol ([`super::square`]) on the server's share `a` and a random `c` in place of the client's,
//! which gives them shares `u` (the server's) and `v` of `(a + c)^2`; and the server draws what will be its share of the
//! result, `w`. When the client has its share `b` it sends `d = b - c`, which is uniform, and the server answers `u - w + 2ad`, which
//! `w` makes uniform. Since, modulo `2^k`,
//!
//! > `(a + b)^2 = (a + c)^2 + b^2 - c^2 + 2ad`,
//!
//! the client's share is `v + b^2 - c^2` and that. `2k` bits online for each square, one round trip; the server's share is known ahead, so that
//! what follows can be made ahead too. What is made ahead is used once, as with garblings: two differences would tell the server by how much
//! the client's shares differ, two answers the client what `a` is.

use std::ops::Range;

use pronghorn_ring::{
    bits,
    random::{Prg, Seed},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    ClientOts, ServerOts, SquareClient, SquareServer, Squares, check_length,
    layout::check_shape,
    open::check_bits,
    prepared::{
        HEADER, Name, SQUARE_CLIENT, SQUARE_SERVER, at_end, damaged, read_header, read_words, take,
        write_header, write_words,
    },
    schedule::Limits,
};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

/// The client's half of what is made ahead.
pub struct PrepareSquareClient {
    squares: Squares,
    random: Batch,
    machine: SquareClient,
    name: Option<Name>,
}

/// The server's half of what is made ahead.
pub struct PrepareSquareServer {
    squares: Squares,
    share: Batch,
    output: Batch,
    machine: SquareServer,
    name: Option<Name>,
}

/// Squares made ahead, the client's half: its random share, and its part of the square. Used once. Wiped on drop; no Debug.
pub struct PreparedSquareClient {
    squares: Squares,
    name: Name,
    /// `c` and `v`.
    words: [Batch; 2],
}

/// Squares made ahead, the server's half: its share, what is left of the square, and its share of that, which is known ahead. Used
/// once. Wiped on drop; no Debug.
pub struct PreparedSquareServer {
    squares: Squares,
    name: Name,
    /// `a`, `u - w` and `w`.
    words: [Batch; 3],
}

/// Batches wipe themselves.
impl ZeroizeOnDrop for PreparedSquareClient {}

/// Batches wipe themselves.
impl ZeroizeOnDrop for PreparedSquareServer {}

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
        let random = random_words(&squares)?;
        let share = Share::Words(random.clone());
        Ok(Self {
            machine: SquareClient::new(squares.clone(), share, ots)?,
            name: None,
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
            words: [self.random, output_of(Box::new(self.machine))?],
            name: self.name.unwrap_or_default(),
            squares: self.squares,
        })
    }
}

impl PrepareSquareServer {
    /// Prepares `squares` for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape, or the system gives no randomness.
    pub fn new(squares: Squares, share: Share, ots: ServerOts) -> Result<Self, EngineError> {
        Ok(Self {
            machine: SquareServer::new(squares.clone(), share.clone(), ots)?,
            name: None,
            share: words_of(&squares, share),
            output: random_words(&squares)?,
            squares,
        })
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedSquareServer, EngineError> {
        let mut rest = output_of(Box::new(self.machine))?;
        let own = self.output.words().iter();
        for (rest, own) in rest.words_mut().iter_mut().zip(own) {
            *rest = rest.wrapping_sub(*own);
        }
        Ok(PreparedSquareServer {
            words: [self.share, rest, self.output],
            name: self.name.unwrap_or_default(),
            squares: self.squares,
        })
    }
}

impl PreparedSquareServer {
    /// The server's share of the squares, which what follows may be prepared with.
    pub fn share(&self) -> Share {
        Share::Words(self.words[2].clone())
    }
}

/// Uniform words.
fn random_words(squares: &Squares) -> Result<Batch, EngineError> {
    let mut random = Batch::zeros(squares.elements, squares.images);
    let mut stream = Prg::new(&Seed::from_os()?, "pronghorn engine squares ahead").stream(0);
    let mut bytes = Zeroizing::new([0; 4096]);
    for words in random.words_mut().chunks_mut(1024) {
        stream.fill(&mut *bytes);
        read_words(&*bytes, words);
    }
    Ok(random)
}

/// A share of the shape, written out.
fn words_of(squares: &Squares, share: Share) -> Batch {
    match share {
        Share::Words(words) => words,
        Share::Zero => Batch::zeros(squares.elements, squares.images),
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

/// Squares are called by the end of the first message of OTs, which is as good as random.
fn name_by(name: &mut Option<Name>, message: &[u8]) {
    *name = name.or(message.last_chunk().copied());
}

impl Machine for PrepareSquareClient {
    fn want(&self) -> Want {
        self.machine.want()
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let start = out.len();
        self.machine.send(out)?;
        name_by(&mut self.name, &out[start..]);
        Ok(())
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

impl Machine for PrepareSquareServer {
    fn want(&self) -> Want {
        self.machine.want()
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.machine.send(out)
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        self.machine.receive(message)?;
        name_by(&mut self.name, message);
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        self.machine.max_incoming()
    }

    fn progress(&self) -> Progress {
        self.machine.progress()
    }
}

fn store<const N: usize>(kind: u8, squares: &Squares, name: &Name, words: &[Batch; N]) -> Stored {
    let length: usize = words.iter().map(|batch| size_of_val(batch.words())).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER + length));
    write_header(kind, name, sizes(squares), &mut bytes);
    for batch in words {
        write_words(batch.words(), &mut bytes);
    }
    bytes
}

type Stored = Zeroizing<Vec<u8>>;

/// The inverse of [`store`].
fn load<const N: usize>(
    kind: u8,
    squares: &Squares,
    bytes: &[u8],
) -> Result<(Name, [Batch; N]), EngineError> {
    let step = &squares.step;
    check_bits(step, squares.bits)?;
    let count = check_shape(step, &Share::Zero, squares.elements, squares.images)?;
    let (name, mut bytes) = read_header(step, kind, sizes(squares), bytes)?;
    let mut parts = [&[][..]; N];
    for part in &mut parts {
        *part = take(step, &mut bytes, count * size_of::<i32>())?;
    }
    at_end(step, bytes)?;
    let words = parts.map(|part| {
        let mut batch = Batch::zeros(squares.elements, squares.images);
        read_words(part, batch.words_mut());
        batch
    });
    Ok((name, words))
}

fn sizes(squares: &Squares) -> [usize; 2] {
    [squares.elements * squares.images, squares.bits as usize]
}

macro_rules! stored {
    ($prepared:ty, $kind:ident) => {
        impl $prepared {
            /// What both parties call it.
            pub fn name(&self) -> [u8; 16] {
                self.name
            }

            /// All of it, for a store which hands it out once and deletes it before.
            pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
                store($kind, &self.squares, &self.name, &self.words)
            }

            /// The inverse, for the squares it was made for.
            ///
            /// # Errors
            /// When their numbers are out of range, or the bytes are nothing that was made for them.
            pub fn from_bytes(squares: Squares, bytes: &[u8]) -> Result<Self, EngineError> {
                let (name, words) = load($kind, &squares, bytes)?;
                Ok(Self {
                    squares,
                    name,
                    words,
                })
            }
        }
    };
}

stored!(PreparedSquareClient, SQUARE_CLIENT);
stored!(PreparedSquareServer, SQUARE_SERVER);

#[derive(Clone, Copy)]
enum Turn {
    /// The client sends differences, from this word on.
    Differences(usize),
    /// The server answers, from this word on.
    Answers(usize),
    Over,
}

/// Both parties' view of how far squares are.
struct Online {
    squares: Squares,
    name: Name,
    turn: Turn,
    /// Words of a message.
    most: usize,
}

impl Online {
    fn new(squares: Squares, name: Name, limits: &Limits) -> Self {
        let turn = match sizes(&squares) {
            [0, _] => Turn::Over,
            _ => Turn::Differences(0),
        };
        Self {
            squares,
            name,
            turn,
            most: limits.words,
        }
    }

    /// The words of the message that begins with word `first`.
    fn range(&self, first: usize) -> Range<usize> {
        let [words, _] = sizes(&self.squares);
        first..words.min(first + self.most)
    }

    /// Bytes of its words.
    fn bytes(&self, first: usize) -> usize {
        bits::packed_len(self.range(first).len(), self.squares.bits)
    }

    /// Bytes before them: the name is in front of the first differences.
    fn name_bytes(first: usize) -> usize {
        if first == 0 { size_of::<Name>() } else { 0 }
    }

    fn pack(&self, words: &[i32], out: &mut Vec<u8>) {
        let mask = u32::MAX >> (u32::BITS - self.squares.bits);
        let words: Vec<u32> = words.iter().map(|&word| word as u32 & mask).collect();
        bits::pack(&words, self.squares.bits, out);
    }

    fn unpack(
        &self,
        first: usize,
        message: &'static str,
        bytes: &[u8],
    ) -> Result<Vec<u32>, EngineError> {
        let mut words = vec![0; self.range(first).len()];
        bits::unpack(bytes, self.squares.bits, &mut words).map_err(|source| {
            EngineError::Packing {
                step: self.squares.step.clone(),
                message,
                row: first / self.squares.images,
                source,
            }
        })?;
        Ok(words)
    }

    fn advance(&mut self) {
        let [words, _] = sizes(&self.squares);
        self.turn = match self.turn {
            Turn::Differences(first) => match self.range(first).end {
                end if end < words => Turn::Differences(end),
                _ => Turn::Answers(0),
            },
            Turn::Answers(first) => match self.range(first).end {
                end if end < words => Turn::Answers(end),
                _ => Turn::Over,
            },
            Turn::Over => Turn::Over,
        };
    }

    fn progress(&self) -> Progress {
        let done = match self.turn {
            Turn::Differences(_) => 0,
            Turn::Answers(first) => first / self.squares.images,
            Turn::Over => self.squares.elements,
        };
        Progress {
            done: done as u64,
            total: self.squares.elements as u64,
        }
    }
}

/// The client's half with its share: sends differences, receives answers.
pub struct OnlineSquareClient {
    online: Online,
    differences: Batch,
    output: Batch,
}

impl OnlineSquareClient {
    /// Uses up what was prepared for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(prepared: PreparedSquareClient, share: Share) -> Result<Self, EngineError> {
        Self::with_limits(prepared, share, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        prepared: PreparedSquareClient,
        share: Share,
        limits: &Limits,
    ) -> Result<Self, EngineError> {
        let PreparedSquareClient {
            squares,
            name,
            words: [mut random, mut output],
        } = prepared;
        check_shape(&squares.step, &share, squares.elements, squares.images)?;
        let share = words_of(&squares, share);
        let cells = output.words_mut().iter_mut().zip(random.words_mut());
        for ((word, c), &b) in cells.zip(share.words()) {
            let change = b.wrapping_mul(b).wrapping_sub(c.wrapping_mul(*c));
            *word = word.wrapping_add(change);
            *c = b.wrapping_sub(*c);
        }
        Ok(Self {
            online: Online::new(squares, name, limits),
            differences: random,
            output,
        })
    }
}

impl Machine for OnlineSquareClient {
    fn want(&self) -> Want {
        match self.online.turn {
            Turn::Differences(_) => Want::Send,
            Turn::Answers(_) => Want::Receive,
            Turn::Over => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Turn::Differences(first) = self.online.turn else {
            let state = "waits for the server's answer, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        out.extend_from_slice(&self.online.name[..Online::name_bytes(first)]);
        let words = &self.differences.words()[self.online.range(first)];
        self.online.pack(words, out);
        self.online.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        const MESSAGE: &str = "the answer to differences of shares";
        let Turn::Answers(first) = self.online.turn else {
            let state = "is at the client's turn, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let step = &self.online.squares.step;
        check_length(step, MESSAGE, message.len(), self.max_incoming())?;
        let answers = self.online.unpack(first, MESSAGE, message)?;
        let output = &mut self.output.words_mut()[self.online.range(first)];
        for (word, answer) in output.iter_mut().zip(answers) {
            *word = word.wrapping_add(answer as i32);
        }
        self.online.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.online.turn {
            Turn::Answers(first) => self.online.bytes(first),
            Turn::Differences(_) | Turn::Over => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.online.progress()
    }
}

impl StepMachine for OnlineSquareClient {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}

/// The server's half: receives differences, sends answers.
pub struct OnlineSquareServer {
    online: Online,
    share: Batch,
    answers: Batch,
    output: Batch,
}

impl OnlineSquareServer {
    /// Uses up what was prepared; its share went into that.
    pub fn new(prepared: PreparedSquareServer) -> Self {
        Self::with_limits(prepared, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(prepared: PreparedSquareServer, limits: &Limits) -> Self {
        let PreparedSquareServer {
            squares,
            name,
            words: [share, answers, output],
        } = prepared;
        Self {
            online: Online::new(squares, name, limits),
            share,
            answers,
            output,
        }
    }
}

impl Machine for OnlineSquareServer {
    fn want(&self) -> Want {
        match self.online.turn {
            Turn::Differences(_) => Want::Receive,
            Turn::Answers(_) => Want::Send,
            Turn::Over => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Turn::Answers(first) = self.online.turn else {
            let state = "waits for the client's differences, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let words = &self.answers.words()[self.online.range(first)];
        self.online.pack(words, out);
        self.online.advance();
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        const MESSAGE: &str = "the differences of shares";
        let Turn::Differences(first) = self.online.turn else {
            let state = "is at the server's turn, or is over";
            return Err(EngineError::OutOfTurn { state });
        };
        let step = &self.online.squares.step;
        check_length(step, MESSAGE, message.len(), self.max_incoming())?;
        let (name, packed) = message.split_at(Online::name_bytes(first));
        if !self.online.name.starts_with(name) {
            return Err(damaged(step, "is not the one that the client uses"));
        }
        let differences = self.online.unpack(first, MESSAGE, packed)?;
        let range = self.online.range(first);
        let cells = self.share.words()[range.clone()].iter().zip(differences);
        let answers = &mut self.answers.words_mut()[range];
        for (answer, (&a, d)) in answers.iter_mut().zip(cells) {
            *answer = answer.wrapping_add(a.wrapping_mul(d as i32).wrapping_mul(2));
        }
        self.online.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.online.turn {
            Turn::Differences(first) => Online::name_bytes(first) + self.online.bytes(first),
            Turn::Answers(_) | Turn::Over => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.online.progress()
    }
}

impl StepMachine for OnlineSquareServer {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}
