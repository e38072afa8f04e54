//! Products in two phases.
//!
//! Ahead, the parties run the whole protocol ([`super::product`]) on the server's shares `a` and
//! `a'` and random `c` and `c'` in place of the client's, which gives them shares `u` (the
//! server's) and `v` of `(a + c)(a' + c')`; and the server draws what will be its share of the
//! result, `w`. When the client has its shares `b` and `b'` it sends `d = b - c` and `d' = b' -
//! c'`, which are uniform, and the server answers `u - w + a d' + a' d`, which `w` makes uniform.
//! Since, modulo `2^k`,
//!
//! > `(a + b)(a' + b') = (a + c)(a' + c') + b b' - c c' + a d' + a' d`,
//!
//! the client's share is `v + b b' - c c'` and that. `k` bits online for each word of a factor and
//! for each product, one round trip; of a square `2k`, as its factors are one. The server's share
//! is known ahead, so that what follows can be made ahead too. What is made ahead is used once, as
//! with garblings: two differences would tell the server by how much the client's shares differ,
//! two answers the client what `a` is.
//!
//! Source: Beaver, "Efficient multiparty protocols using circuit randomization", CRYPTO 1991, with
//! one party's share of the product chosen ahead.
//!
//! Ahead the messages are those of [`super::product`]; online they are
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the differences of shares, at most 2^20 in each message; the products' name is in front of the first | client | `k` bits each, and 16 |
//! | the answer to differences of shares, at most 2^20 products in each message | server | `k` bits each |

use std::ops::Range;

use pronghorn_ring::{
    bits,
    random::{Prg, Seed},
};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    ProductClient, ProductServer,
    factors::{Factors, Products},
    prepared::{
        HEADER, Name, PRODUCT_CLIENT, PRODUCT_SERVER, SQUARE_CLIENT, SQUARE_SERVER, at_end,
        damaged, read_header, read_words, take, write_header, write_words,
    },
    schedule::Limits,
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Message, Messages, Parts, Party, Protocol, StepProtocol, Turn},
    machine::{Made, PreparedStep},
    ots::{ReceiverOts, SenderOts},
    packed::PackedRow,
    share::{Batch, Share},
};

/// The client's half of what is made ahead.
pub struct PrepareProductClient {
    products: Products,
    random: Batch,
    inner: ProductClient,
    name: Option<Name>,
}

/// The server's half of what is made ahead.
pub struct PrepareProductServer {
    products: Products,
    share: Batch,
    output: Batch,
    inner: ProductServer,
    name: Option<Name>,
}

/// Products made ahead, the client's half: its random share, and its part of the square. Used once.
/// Wiped on drop; no Debug.
pub struct PreparedProductClient {
    products: Products,
    name: Name,
    /// `c` and `v`.
    words: [Batch; 2],
}

/// Products made ahead, the server's half: its share, what is left of the square, and its share of
/// that, which is known ahead. Used once. Wiped on drop; no Debug.
pub struct PreparedProductServer {
    products: Products,
    name: Name,
    /// `a`, `u - w` and `w`.
    words: [Batch; 3],
}

/// Batches wipe themselves.
impl ZeroizeOnDrop for PreparedProductClient {}

/// Batches wipe themselves.
impl ZeroizeOnDrop for PreparedProductServer {}

impl PreparedStep for PreparedProductClient {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl PreparedStep for PreparedProductServer {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl PrepareProductClient {
    /// Prepares `products`.
    ///
    /// # Errors
    /// When their numbers are out of range, or the system gives no randomness.
    pub fn new(products: Products, ots: ReceiverOts) -> Result<Exchange<Self>, EngineError> {
        products.check(&Share::Zero)?;
        let random = random_words(products.inputs(), products.images)?;
        let share = Share::Words(random.clone());
        let (messages, inner) =
            ProductClient::with_messages(products.clone(), share, ots, &Limits::DEFAULT)?;
        let client = Self {
            inner,
            name: None,
            products,
            random,
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Exchange<PrepareProductClient> {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedProductClient, EngineError> {
        Ok(self.finish()?.prepared())
    }
}

impl PrepareProductClient {
    fn prepared(self) -> PreparedProductClient {
        PreparedProductClient {
            words: [self.random, self.inner.output],
            name: self.name.unwrap_or_default(),
            products: self.products,
        }
    }
}

impl StepProtocol for PrepareProductClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made {
            prepared: Some(Box::new(self.prepared())),
            ..Made::share(Share::Zero)
        })
    }
}

impl PrepareProductServer {
    /// Prepares `products` for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape, or the system gives no randomness.
    pub fn new(
        products: Products,
        share: Share,
        ots: SenderOts,
    ) -> Result<Exchange<Self>, EngineError> {
        let (messages, inner) =
            ProductServer::with_messages(products.clone(), share.clone(), ots, &Limits::DEFAULT)?;
        let server = Self {
            inner,
            name: None,
            share: products.words_of(share),
            output: random_words(products.elements, products.images)?,
            products,
        };
        Ok(Exchange::new(messages, server))
    }
}

impl Exchange<PrepareProductServer> {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<PreparedProductServer, EngineError> {
        Ok(self.finish()?.prepared())
    }
}

impl PrepareProductServer {
    fn prepared(self) -> PreparedProductServer {
        let mut rest = self.inner.output;
        let own = self.output.words().iter();
        for (rest, own) in rest.words_mut().iter_mut().zip(own) {
            *rest = rest.wrapping_sub(*own);
        }
        PreparedProductServer {
            words: [self.share, rest, self.output],
            name: self.name.unwrap_or_default(),
            products: self.products,
        }
    }
}

impl StepProtocol for PrepareProductServer {
    fn into_made(self) -> Result<Made, EngineError> {
        let prepared = self.prepared();
        let share = prepared.share();
        Ok(Made {
            prepared: Some(Box::new(prepared)),
            ..Made::share(share)
        })
    }
}

impl PreparedProductServer {
    /// The server's share of the products, which what follows may be prepared with.
    pub fn share(&self) -> Share {
        Share::Words(self.words[2].clone())
    }
}

/// Uniform words.
fn random_words(elements: usize, images: usize) -> Result<Batch, EngineError> {
    let mut random = Batch::zeros(elements, images);
    let mut stream = Prg::new(&Seed::from_os()?, "pronghorn engine squares ahead").stream(0);
    let mut bytes = Zeroizing::new([0; 4096]);
    for words in random.words_mut().chunks_mut(1024) {
        stream.fill(&mut *bytes);
        read_words(&*bytes, words);
    }
    Ok(random)
}

/// Products are called by the end of the first message of OTs, which is as good as random.
fn name_by(name: &mut Option<Name>, message: &[u8]) {
    *name = name.or(message.last_chunk().copied());
}

impl Protocol for PrepareProductClient {
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

impl Protocol for PrepareProductServer {
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

fn store<const N: usize>(kind: u8, products: &Products, name: &Name, words: &[Batch; N]) -> Stored {
    let length: usize = words.iter().map(|batch| size_of_val(batch.words())).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER + length));
    write_header(kind, name, sizes(products), &mut bytes);
    for batch in words {
        write_words(batch.words(), &mut bytes);
    }
    bytes
}

type Stored = Zeroizing<Vec<u8>>;

/// The inverse of [`store`].
fn load<const N: usize>(
    kind: u8,
    products: &Products,
    bytes: &[u8],
) -> Result<(Name, [Batch; N]), EngineError> {
    let step = &products.step;
    products.check(&Share::Zero)?;
    let (name, mut bytes) = read_header(step, kind, sizes(products), bytes)?;
    // The first are of the factors, the others of the products.
    let elements = |part: usize| match part {
        0 => products.inputs(),
        _ => products.elements,
    };
    let mut parts = [&[][..]; N];
    for (part, taken) in parts.iter_mut().enumerate() {
        let words = elements(part) * products.images;
        *taken = take(step, &mut bytes, words * size_of::<i32>())?;
    }
    at_end(step, bytes)?;
    let words = std::array::from_fn(|part| {
        let mut batch = Batch::zeros(elements(part), products.images);
        read_words(parts[part], batch.words_mut());
        batch
    });
    Ok((name, words))
}

fn sizes(products: &Products) -> [usize; 2] {
    [products.elements * products.images, products.bits as usize]
}

macro_rules! stored {
    ($prepared:ty, $square:ident, $product:ident) => {
        impl $prepared {
            fn kind(products: &Products) -> u8 {
                match products.factors {
                    Factors::Same => $square,
                    Factors::Two(_) | Factors::Matrices(_) => $product,
                }
            }

            /// What both parties call it.
            pub fn name(&self) -> [u8; 16] {
                self.name
            }

            /// All of it, for a store which hands it out once and deletes it before.
            pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
                store(
                    Self::kind(&self.products),
                    &self.products,
                    &self.name,
                    &self.words,
                )
            }

            /// The inverse, for the products it was made for.
            ///
            /// # Errors
            /// When their numbers are out of range, or the bytes are nothing that was made for
            /// them.
            pub fn from_bytes(products: Products, bytes: &[u8]) -> Result<Self, EngineError> {
                let (name, words) = load(Self::kind(&products), &products, bytes)?;
                Ok(Self {
                    products,
                    name,
                    words,
                })
            }
        }
    };
}

stored!(PreparedProductClient, SQUARE_CLIENT, PRODUCT_CLIENT);
stored!(PreparedProductServer, SQUARE_SERVER, PRODUCT_SERVER);

const DIFFERENCES: &str = "the differences of shares";
const ANSWER: &str = "the answer to differences of shares";

/// Both parties' view of products that are used.
struct Online {
    products: Products,
    name: Name,
    /// The words of factors in each message.
    differences: Parts,
    /// The products in each message.
    answers: Parts,
}

impl Online {
    fn new(products: Products, name: Name, limits: &Limits) -> Self {
        let parts = |elements: usize| Parts {
            items: elements * products.images,
            most: limits.words,
        };
        Self {
            differences: parts(products.inputs()),
            answers: parts(products.elements),
            products,
            name,
        }
    }

    fn messages(&self) -> Messages {
        let bytes = |words: usize| bits::packed_len(words, self.products.bits);
        let name = |index: usize| Self::name_bytes(index);
        let differences = self.differences.ranges().enumerate();
        let differences = differences
            .map(|(index, range)| Message::client(DIFFERENCES, name(index) + bytes(range.len())));
        let answers = self.answers.ranges().map(|range| range.len());
        let answers = answers.map(|words| Message::server(ANSWER, bytes(words)).rows(words));
        Messages::new(&self.products.step)
            .in_rows(self.products.elements)
            .with_all(differences)
            .with_all(answers)
    }

    /// Bytes before the words of message `index`: the name is in front of the first differences.
    fn name_bytes(index: usize) -> usize {
        if index == 0 { size_of::<Name>() } else { 0 }
    }

    fn pack(&self, words: &[i32], out: &mut Vec<u8>) {
        let mask = u32::MAX >> (u32::BITS - self.products.bits);
        let words: Vec<u32> = words.iter().map(|&word| word as u32 & mask).collect();
        bits::pack(&words, self.products.bits, out);
    }

    fn unpack(
        &self,
        turn: Turn,
        range: &Range<usize>,
        bytes: &[u8],
    ) -> Result<Vec<u32>, EngineError> {
        let mut words = vec![0; range.len()];
        let packed = PackedRow {
            step: &self.products.step,
            message: turn.name,
            row: range.start / self.products.images,
            width: self.products.bits,
        };
        packed.unpack(bytes, &mut words)?;
        Ok(words)
    }
}

/// The client's half with its share: sends differences, receives answers.
pub struct OnlineProductClient {
    online: Online,
    differences: Batch,
    output: Batch,
}

impl OnlineProductClient {
    /// Uses up what was prepared for this party's share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(
        prepared: PreparedProductClient,
        share: Share,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(prepared, share, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        prepared: PreparedProductClient,
        share: Share,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let PreparedProductClient {
            products,
            name,
            words: [mut random, mut output],
        } = prepared;
        products.check(&share)?;
        let share = products.words_of(share);
        products.add_own(&share, 1, &mut output);
        products.add_own(&random, -1, &mut output);
        for (c, &b) in random.words_mut().iter_mut().zip(share.words()) {
            *c = b.wrapping_sub(*c);
        }
        let online = Online::new(products, name, limits);
        let messages = online.messages();
        let client = Self {
            online,
            differences: random,
            output,
        };
        Ok(Exchange::new(messages, client))
    }
}

impl Protocol for OnlineProductClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        out.extend_from_slice(&self.online.name[..Online::name_bytes(turn.index)]);
        let words = &self.differences.words()[self.online.differences.range(turn.index)];
        self.online.pack(words, out);
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let range = self.online.answers.range(turn.index);
        let answers = self.online.unpack(turn, &range, message)?;
        let output = &mut self.output.words_mut()[range];
        for (word, answer) in output.iter_mut().zip(answers) {
            *word = word.wrapping_add(answer as i32);
        }
        Ok(())
    }
}

impl StepProtocol for OnlineProductClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}

/// The server's half: receives differences, sends answers.
pub struct OnlineProductServer {
    online: Online,
    share: Batch,
    differences: Batch,
    answers: Batch,
    output: Batch,
}

impl OnlineProductServer {
    /// Uses up what was prepared; its share went into that.
    pub fn new(prepared: PreparedProductServer) -> Exchange<Self> {
        Self::with_limits(prepared, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(prepared: PreparedProductServer, limits: &Limits) -> Exchange<Self> {
        let PreparedProductServer {
            products,
            name,
            words: [share, answers, output],
        } = prepared;
        let differences = Batch::zeros(products.inputs(), products.images);
        let online = Online::new(products, name, limits);
        let messages = online.messages();
        let server = Self {
            online,
            share,
            differences,
            answers,
            output,
        };
        Exchange::new(messages, server)
    }
}

impl Protocol for OnlineProductServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (name, packed) = message.split_at(Online::name_bytes(turn.index));
        if !self.online.name.starts_with(name) {
            let step = &self.online.products.step;
            return Err(damaged(step, "is not the one that the client uses"));
        }
        let range = self.online.differences.range(turn.index);
        let differences = self.online.unpack(turn, &range, packed)?;
        let words = self.differences.words_mut()[range].iter_mut();
        words
            .zip(differences)
            .for_each(|(word, d)| *word = d as i32);
        if turn.last {
            let products = &self.online.products;
            products.add_mixed(&self.share, &self.differences, &mut self.answers);
        }
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let words = &self.answers.words()[self.online.answers.range(turn.index)];
        self.online.pack(words, out);
        Ok(())
    }
}

impl StepProtocol for OnlineProductServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
