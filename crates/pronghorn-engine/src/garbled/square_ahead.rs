//! Squares in two phases.
//!
//! Ahead, the parties run the whole protocol ([`super::square`]) on the server's share `a` and a
//! random `c` in place of the client's, which gives them shares `u` (the server's) and `v` of `(a +
//! c)^2`; and the server draws what will be its share of the result, `w`. When the client has its
//! share `b` it sends `d = b - c`, which is uniform, and the server answers `u - w + 2ad`, which
//! `w` makes uniform. Since, modulo `2^k`,
//!
//! > `(a + b)^2 = (a + c)^2 + b^2 - c^2 + 2ad`,
//!
//! the client's share is `v + b^2 - c^2` and that. `2k` bits online for each square, one round
//! trip; the server's share is known ahead, so that what follows can be made ahead too. What is
//! made ahead is used once, as with garblings: two differences would tell the server by how much
//! the client's shares differ, two answers the client what `a` is.
//!
//! Ahead the messages are those of [`super::square`]; online they are
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the differences of shares, at most 2^20 in each message; the squares' name is in front of the first | client | `k` bits each, and 16 |
//! | the answer to differences of shares, in as many messages | server | `k` bits each |

use pronghorn_ring::{
    bits,
    random::{Prg, Seed},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    ClientOts, ServerOts, SquareClient, SquareServer, Squares,
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
    exchange::{Exchange, Message, Messages, Parts, Party, Protocol, StepProtocol, Turn},
    machine::{Made, PreparedStep},
    share::{Batch, Share},
};

/// The client's half of what is made ahead.
pub struct PrepareSquareClient {
    squares: Squares,
    random: Batch,
    inner: SquareClient,
    name: Option<Name>,
}

/// The server's half of what is made ahead.
pub struct PrepareSquareServer {
    squares: Squares,
    share: Batch,
    output: Batch,
    inner: SquareServer,
    name: Option<Name>,
}

/// Squares made ahead, the client's half: its random share, and its part of the square. Used once.
/// Wiped on drop; no Debug.
pub struct PreparedSquareClient {
    squares: Squares,
    name: Name,
    /// `c` and `v`.
    words: [Batch; 2],
}

/// Squares made ahead, the server's half: its share, what is left of the square, and its share of
/// that, which is known ahead. Used once. Wiped on drop; no Debug.
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

impl PreparedStep for PreparedSquareClient {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl PreparedStep for PreparedSquareServer {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl PrepareSquareClient {
    /// Prepares `squares`.
    ///
    /// # Errors
    /// When their numbers are out of range, or the system gives no randomness.
    pub fn new(squares: Squares, ots: ClientOts) -> Result<Exchange<Self>, EngineError> {
        check_shape(
            &squares.step,
            &Share::Zero,
            squares.elements,
            squares.images,
        )?;
        let random = random_words(&squares)?;
        let share = Share::Words(random.clone());
        let (messages, inner) =
            SquareClient::with_messages(squares.clone(), share, ots, &Limits::DEFAULT)?;
        let client = Self {
            inner,
            name: None,
            squares,
            random,
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Exchange<PrepareSquareClient> {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedSquareClient, EngineError> {
        Ok(self.finish()?.prepared())
    }
}

impl PrepareSquareClient {
    fn prepared(self) -> PreparedSquareClient {
        PreparedSquareClient {
            words: [self.random, self.inner.output],
            name: self.name.unwrap_or_default(),
            squares: self.squares,
        }
    }
}

impl StepProtocol for PrepareSquareClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made {
            prepared: Some(Box::new(self.prepared())),
            ..Made::share(Share::Zero)
        })
    }
}

impl PrepareSquareServer {
    /// Prepares `squares` for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape, or the system gives no randomness.
    pub fn new(
        squares: Squares,
        share: Share,
        ots: ServerOts,
    ) -> Result<Exchange<Self>, EngineError> {
        let (messages, inner) =
            SquareServer::with_messages(squares.clone(), share.clone(), ots, &Limits::DEFAULT)?;
        let server = Self {
            inner,
            name: None,
            share: words_of(&squares, share),
            output: random_words(&squares)?,
            squares,
        };
        Ok(Exchange::new(messages, server))
    }
}

impl Exchange<PrepareSquareServer> {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedSquareServer, EngineError> {
        Ok(self.finish()?.prepared())
    }
}

impl PrepareSquareServer {
    fn prepared(self) -> PreparedSquareServer {
        let mut rest = self.inner.output;
        let own = self.output.words().iter();
        for (rest, own) in rest.words_mut().iter_mut().zip(own) {
            *rest = rest.wrapping_sub(*own);
        }
        PreparedSquareServer {
            words: [self.share, rest, self.output],
            name: self.name.unwrap_or_default(),
            squares: self.squares,
        }
    }
}

impl StepProtocol for PrepareSquareServer {
    fn into_made(self) -> Result<Made, EngineError> {
        let prepared = self.prepared();
        Ok(Made {
            share: prepared.share(),
            prepared: Some(Box::new(prepared)),
            saturated: 0,
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

/// Squares are called by the end of the first message of OTs, which is as good as random.
fn name_by(name: &mut Option<Name>, message: &[u8]) {
    *name = name.or(message.last_chunk().copied());
}

impl Protocol for PrepareSquareClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let start = out.len();
        self.inner.make(turn, out)?;
        name_by(&mut self.name, &out[start..]);
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.inner.take(turn, message)
    }
}

impl Protocol for PrepareSquareServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.inner.take(turn, message)?;
        name_by(&mut self.name, message);
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.inner.make(turn, out)
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
            /// When their numbers are out of range, or the bytes are nothing that was made for
            /// them.
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

const DIFFERENCES: &str = "the differences of shares";
const ANSWER: &str = "the answer to differences of shares";

/// Both parties' view of squares that are used.
struct Online {
    squares: Squares,
    name: Name,
    /// The words of each message.
    parts: Parts,
}

impl Online {
    fn new(squares: Squares, name: Name, limits: &Limits) -> Self {
        let [items, _] = sizes(&squares);
        Self {
            parts: Parts {
                items,
                most: limits.words,
            },
            squares,
            name,
        }
    }

    fn messages(&self) -> Messages {
        let bytes = |words: usize| bits::packed_len(words, self.squares.bits);
        let name = |index: usize| Self::name_bytes(index);
        let differences = self.parts.ranges().enumerate();
        let differences = differences
            .map(|(index, range)| Message::client(DIFFERENCES, name(index) + bytes(range.len())));
        let answers = self.parts.ranges().map(|range| range.len());
        let answers = answers.map(|words| Message::server(ANSWER, bytes(words)).rows(words));
        Messages::new(&self.squares.step)
            .in_rows(self.squares.elements)
            .with_all(differences)
            .with_all(answers)
    }

    /// Bytes before the words of message `index`: the name is in front of the first differences.
    fn name_bytes(index: usize) -> usize {
        if index == 0 { size_of::<Name>() } else { 0 }
    }

    fn pack(&self, words: &[i32], out: &mut Vec<u8>) {
        let mask = u32::MAX >> (u32::BITS - self.squares.bits);
        let words: Vec<u32> = words.iter().map(|&word| word as u32 & mask).collect();
        bits::pack(&words, self.squares.bits, out);
    }

    fn unpack(&self, turn: Turn, bytes: &[u8]) -> Result<Vec<u32>, EngineError> {
        let range = self.parts.range(turn.index);
        let mut words = vec![0; range.len()];
        bits::unpack(bytes, self.squares.bits, &mut words).map_err(|source| {
            EngineError::Packing {
                step: self.squares.step.clone(),
                message: turn.name,
                row: range.start / self.squares.images,
                source,
            }
        })?;
        Ok(words)
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
    pub fn new(
        prepared: PreparedSquareClient,
        share: Share,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(prepared, share, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        prepared: PreparedSquareClient,
        share: Share,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
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
        let online = Online::new(squares, name, limits);
        let messages = online.messages();
        let client = Self {
            online,
            differences: random,
            output,
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Protocol for OnlineSquareClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        out.extend_from_slice(&self.online.name[..Online::name_bytes(turn.index)]);
        let words = &self.differences.words()[self.online.parts.range(turn.index)];
        self.online.pack(words, out);
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let answers = self.online.unpack(turn, message)?;
        let output = &mut self.output.words_mut()[self.online.parts.range(turn.index)];
        for (word, answer) in output.iter_mut().zip(answers) {
            *word = word.wrapping_add(answer as i32);
        }
        Ok(())
    }
}

impl StepProtocol for OnlineSquareClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
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
    pub fn new(prepared: PreparedSquareServer) -> Exchange<Self> {
        Self::with_limits(prepared, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(prepared: PreparedSquareServer, limits: &Limits) -> Exchange<Self> {
        let PreparedSquareServer {
            squares,
            name,
            words: [share, answers, output],
        } = prepared;
        let online = Online::new(squares, name, limits);
        let messages = online.messages();
        let server = Self {
            online,
            share,
            answers,
            output,
        };
        Exchange::new(messages, server)
    }
}

impl Protocol for OnlineSquareServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (name, packed) = message.split_at(Online::name_bytes(turn.index));
        if !self.online.name.starts_with(name) {
            let step = &self.online.squares.step;
            return Err(damaged(step, "is not the one that the client uses"));
        }
        let differences = self.online.unpack(turn, packed)?;
        let range = self.online.parts.range(turn.index);
        let cells = self.share.words()[range.clone()].iter().zip(differences);
        let answers = &mut self.answers.words_mut()[range];
        for (answer, (&a, d)) in answers.iter_mut().zip(cells) {
            *answer = answer.wrapping_add(a.wrapping_mul(d as i32).wrapping_mul(2));
        }
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let words = &self.answers.words()[self.online.parts.range(turn.index)];
        self.online.pack(words, out);
        Ok(())
    }
}

impl StepProtocol for OnlineSquareServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
