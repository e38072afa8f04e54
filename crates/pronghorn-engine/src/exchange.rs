//! A protocol as the list of its messages.
//!
//! Both parties of a protocol know its messages before the first is sent: who sends each of them,
//! in what order, and how long it is. All of that follows from the plan. So a protocol here is
//! * a list, [`Messages`], which both parties make from the same numbers;
//! * two functions for each party, [`Protocol::make`] and [`Protocol::take`], which write this
//!   party's messages and read the peer's.
//!
//! [`Exchange`] turns both into a [`Machine`]. It gives the turns to the parties, refuses every
//! message of another length, bounds a message before memory is allocated for it, and counts
//! progress. A party that refuses a message stays where it is.
//!
//! # Example
//!
//! A step of the coefficient engine has two kinds of messages. For one image of a layer with
//! 140,000 words in and 10,000 words out, at 33 and 21 bits a word, its list is
//!
//! ```
//! use pronghorn_engine::exchange::{Message, Messages};
//!
//! let list = Messages::new("conv1")
//!     .with(Message::client("the encrypted input", 540_672).rows(1))
//!     .with(Message::client("the encrypted input", 36_828).rows(1))
//!     .with(Message::server("the encrypted answer", 26_250).rows(1));
//! assert_eq!(
//!     list.to_string(),
//!     "\
//! client  1 x the encrypted input, 540672 bytes
//! client  1 x the encrypted input, 36828 bytes
//! server  1 x the encrypted answer, 26250 bytes
//! "
//! );
//! ```
//!
//! The client's `make` packs part `turn.index` of the input, and its `take` unpacks a part of the
//! answer. Where `turn.last` says that all parts have come, `take` decrypts them.
//!
//! # Where a list is not enough
//!
//! * A length that its reader alone can check, such as that of evaluation keys: [`Message::open`]
//!   makes the listed length an upper bound.
//! * A message that depends on what was said before it, such as keys that the server may have
//!   already: [`Message::optional`] asks [`Protocol::is_due`] when its turn comes.

use std::{fmt, ops::Range};

use crate::{
    error::EngineError,
    machine::{Machine, Made, Progress, StepMachine, Want},
};

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The data owner.
    Client,
    /// The model owner.
    Server,
}

/// Bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As many.
    Exactly(usize),
    /// As many or fewer; the reader checks the rest.
    AtMost(usize),
}

impl Length {
    /// Whether a message of so many bytes is taken.
    fn allows(self, found: usize) -> bool {
        match self {
            Self::Exactly(bytes) => found == bytes,
            Self::AtMost(bytes) => found <= bytes,
        }
    }

    /// The bound of what is allocated.
    fn most(self) -> usize {
        match self {
            Self::Exactly(bytes) | Self::AtMost(bytes) => bytes,
        }
    }
}

/// A message of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sender.
    pub from: Party,
    /// Its name, for both parties and for errors. Messages of one kind share it.
    pub name: &'static str,
    /// Its bytes.
    pub length: Length,
    /// The progress it counts for.
    pub rows: u64,
    /// Whether the parties decide on it when they come to it.
    pub optional: bool,
}

impl Message {
    /// A message of the client's.
    pub const fn client(name: &'static str, bytes: usize) -> Self {
        Self::new(Party::Client, name, bytes)
    }

    /// A message of the server's.
    pub const fn server(name: &'static str, bytes: usize) -> Self {
        Self::new(Party::Server, name, bytes)
    }

    /// A message of one of the parties.
    pub const fn new(from: Party, name: &'static str, bytes: usize) -> Self {
        Self {
            from,
            name,
            length: Length::Exactly(bytes),
            rows: 0,
            optional: false,
        }
    }

    /// The same message, counted for `rows` of progress.
    pub const fn rows(self, rows: usize) -> Self {
        let rows = rows as u64;
        Self { rows, ..self }
    }

    /// The same message with its length as an upper bound.
    pub const fn open(self) -> Self {
        let (Length::Exactly(bytes) | Length::AtMost(bytes)) = self.length;
        Self {
            length: Length::AtMost(bytes),
            ..self
        }
    }

    /// The same message, exchanged where [`Protocol::is_due`] says so.
    pub const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }
}

/// Items cut into messages: as many in each as fit, and in the last what is left.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Items in all.
    pub items: usize,
    /// Items of a message, at least one.
    pub most: usize,
}

impl Parts {
    /// The items of message `index`.
    pub fn range(&self, index: usize) -> Range<usize> {
        let first = index * self.most;
        first..self.items.min(first + self.most)
    }

    /// Messages.
    pub fn count(&self) -> usize {
        self.items.div_ceil(self.most)
    }

    /// The items of each message, in order.
    pub fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count()).map(move |index| self.range(index))
    }

    /// A message for each part: so many bytes an item, and each item a row of progress.
    pub fn messages(
        self,
        from: Party,
        name: &'static str,
        item_bytes: usize,
    ) -> impl Iterator<Item = Message> {
        let counts = self.ranges().map(|items| items.len());
        counts.map(move |items| Message::new(from, name, items * item_bytes).rows(items))
    }
}

/// The messages of a protocol, in order.
#[derive(Clone, Debug)]
pub struct Messages {
    step: String,
    /// Equal neighbours are one run, so that thousands of messages take no memory.
    runs: Vec<Run>,
    /// Progress at the end, where that is not the sum of the messages' rows.
    total: Option<u64>,
}

#[derive(Clone, Debug)]
struct Run {
    message: Message,
    count: usize,
    /// How many messages of the same name are before it.
    first: usize,
    /// Whether no later run has its name.
    last: bool,
}

impl Messages {
    /// No messages yet, of a step of this name.
    pub fn new(step: impl Into<String>) -> Self {
        Self {
            step: step.into(),
            runs: Vec::new(),
            total: None,
        }
    }

    /// With one more.
    pub fn with(self, message: Message) -> Self {
        self.with_all([message])
    }

    /// With more.
    pub fn with_all(mut self, messages: impl IntoIterator<Item = Message>) -> Self {
        messages.into_iter().for_each(|message| self.push(message));
        self
    }

    fn push(&mut self, message: Message) {
        if let Some(run) = self.runs.last_mut()
            && run.message == message
        {
            run.count += 1;
            return;
        }
        let mut earlier = self.runs.iter_mut().rev();
        let earlier = earlier.find(|run| run.message.name == message.name);
        let first = earlier.map_or(0, |run| {
            run.last = false;
            run.first + run.count
        });
        self.runs.push(Run {
            message,
            count: 1,
            first,
            last: true,
        });
    }

    /// Counts progress in `rows` in all, of which each message has a part in proportion to its own.
    pub fn in_rows(self, rows: usize) -> Self {
        let total = Some(rows as u64);
        Self { total, ..self }
    }

    /// Progress at the end, and the sum of the messages' rows.
    fn totals(&self) -> [u64; 2] {
        let runs = self.runs.iter();
        let sum = runs.map(|run| run.count as u64 * run.message.rows).sum();
        [self.total.unwrap_or(sum), sum]
    }
}

/// A line for each run of equal messages, as in the module's example.
impl fmt::Display for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Run { message, count, .. } in &self.runs {
            let from = match message.from {
                Party::Client => "client",
                Party::Server => "server",
            };
            let (bound, bytes) = match message.length {
                Length::Exactly(bytes) => ("", bytes),
                Length::AtMost(bytes) => ("at most ", bytes),
            };
            let optional = if message.optional { ", if due" } else { "" };
            let name = message.name;
            writeln!(
                f,
                "{from}  {count} x {name}, {bound}{bytes} bytes{optional}"
            )?;
        }
        Ok(())
    }
}

/// The message whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its name.
    pub name: &'static str,
    /// How many of its name come before it.
    pub index: usize,
    /// Whether none of its name comes after it.
    pub last: bool,
}

impl Turn {
    /// What a party says of a message that it does not know.
    pub(crate) fn unknown(self) -> EngineError {
        EngineError::OutOfTurn {
            state: "has no such message",
        }
    }
}

/// One party's half of a protocol: what it does with each message of its list.
pub trait Protocol {
    /// The party.
    const PARTY: Party;

    /// Writes this party's message to `out`, which is empty.
    ///
    /// # Errors
    /// When it cannot be made.
    fn make(&mut self, turn: Turn, _out: &mut Vec<u8>) -> Result<(), EngineError> {
        Err(turn.unknown())
    }

    /// Whether this party writes messages of this name into memory of their length, by
    /// [`Protocol::fill`]: that need not be cleared then.
    fn fills(&self, _name: &'static str) -> bool {
        false
    }

    /// Writes every byte of such a message. What `out` has means nothing.
    ///
    /// # Errors
    /// When it cannot be made.
    fn fill(&mut self, turn: Turn, _out: &mut [u8]) -> Result<(), EngineError> {
        Err(turn.unknown())
    }

    /// Takes the peer's message, whose length is that of the list. Where it returns an error, the
    /// party must still be able to take another message in its place, or to refuse it.
    ///
    /// # Errors
    /// When its content is refused.
    fn take(&mut self, turn: Turn, _message: &[u8]) -> Result<(), EngineError> {
        Err(turn.unknown())
    }

    /// Whether optional messages of this name are exchanged; asked when their turn comes.
    fn is_due(&self, _name: &'static str) -> bool {
        true
    }

    /// Whether this party's message can be made before the peer's in front of it have come. Its own
    /// in front of it are made.
    fn is_ready(&self, _turn: Turn) -> bool {
        false
    }

    /// Does what needs no message, before the party waits for one.
    ///
    /// # Errors
    /// When that fails.
    fn meanwhile(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// One party's half of the protocol of a plan step.
pub trait StepProtocol: Protocol {
    /// What the party has at the end.
    ///
    /// # Errors
    /// A check at the end fails.
    fn into_made(self) -> Result<Made, EngineError>;
}

/// A place in a list of messages.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The run of messages, and how many of it come before.
    run: usize,
    within: usize,
    /// Messages before it in all.
    number: u64,
}

impl Place {
    /// The start of the run after it, which is this one.
    fn after(self, run: &Run) -> Self {
        Self {
            run: self.run + 1,
            within: 0,
            number: self.number + (run.count - self.within) as u64,
        }
    }

    /// The place after it, in this run or behind it.
    fn next(self, run: &Run) -> Self {
        match self.within + 1 == run.count {
            true => self.after(run),
            false => Self {
                within: self.within + 1,
                number: self.number + 1,
                ..self
            },
        }
    }
}

impl Run {
    /// Its message at a place.
    fn turn(&self, place: Place) -> Turn {
        Turn {
            name: self.message.name,
            index: self.first + place.within,
            last: self.last && place.within + 1 == self.count,
        }
    }
}

/// The machine of one party's half of a protocol.
pub struct Exchange<P> {
    protocol: P,
    messages: Messages,
    /// The first message that is not through.
    place: Place,
    /// The party's own messages before it are sent.
    sent: Place,
    /// Rows of the messages that are through.
    rows: u64,
}

impl<P: Protocol> Exchange<P> {
    /// At the first message.
    pub fn new(messages: Messages, protocol: P) -> Self {
        let mut exchange = Self {
            protocol,
            messages,
            place: Place::default(),
            sent: Place::default(),
            rows: 0,
        };
        exchange.skip();
        exchange
    }

    /// The party's half, when all messages are through.
    ///
    /// # Errors
    /// [`EngineError::OutOfTurn`] before that.
    pub fn finish(self) -> Result<P, EngineError> {
        match self.current() {
            None => Ok(self.protocol),
            Some(_) => Err(EngineError::OutOfTurn {
                state: "has not finished",
            }),
        }
    }

    /// All messages.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    fn run(&self, place: Place) -> Option<&Run> {
        self.messages.runs.get(place.run)
    }

    fn current(&self) -> Option<&Run> {
        self.run(self.place)
    }

    /// The next message, if it goes this way.
    fn turn(&self, way: Want) -> Result<(Turn, Length), EngineError> {
        match self.current() {
            Some(run) if self.want() == way => Ok((run.turn(self.place), run.message.length)),
            Some(run) => {
                let state = match (way, run.message.from) {
                    (Want::Send, Party::Client) => "waits for the client's message",
                    (Want::Send, Party::Server) => "waits for the server's message",
                    (_, Party::Client) => "is at the client's turn",
                    (_, Party::Server) => "is at the server's turn",
                };
                Err(EngineError::OutOfTurn { state })
            }
            None => Err(EngineError::OutOfTurn { state: "is over" }),
        }
    }

    /// The party's next message, while it waits for the peer, where it can be made already. What
    /// comes after an optional message is not known yet.
    fn next_ahead(&self) -> Option<(Place, Turn, Length)> {
        if self.want() != Want::Receive {
            return None;
        }
        let mut place = self.place.max(self.sent);
        while let Some(run) = self.run(place)
            && !run.message.optional
        {
            if run.message.from == P::PARTY {
                let turn = run.turn(place);
                let ready = self.protocol.is_ready(turn);
                return ready.then_some((place, turn, run.message.length));
            }
            place = place.after(run);
        }
        None
    }

    /// Writes one of the party's messages.
    fn make(
        &mut self,
        (turn, length): (Turn, Length),
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        if let Length::Exactly(bytes) = length
            && self.protocol.fills(turn.name)
        {
            out.resize(bytes, 0);
            return self.protocol.fill(turn, out);
        }
        out.clear();
        self.protocol.make(turn, out)?;
        debug_assert!(
            length.allows(out.len()),
            "step {}: {} {} has {} bytes, and {length:?} by its list",
            self.messages.step,
            turn.name,
            turn.index,
            out.len()
        );
        Ok(())
    }

    /// Goes on to the next message that is not through.
    fn advance(&mut self) {
        self.pass();
        while self.want() == Want::Send && self.place < self.sent {
            self.pass();
        }
    }

    /// Goes on by a message.
    fn pass(&mut self) {
        let Some(run) = self.messages.runs.get(self.place.run) else {
            return;
        };
        self.rows += run.message.rows;
        self.place = self.place.next(run);
        self.skip();
    }

    /// Passes over messages that are not due.
    fn skip(&mut self) {
        while let Some(run) = self.messages.runs.get(self.place.run)
            && run.message.optional
            && self.place.within == 0
            && !self.protocol.is_due(run.message.name)
        {
            self.rows += run.count as u64 * run.message.rows;
            self.place = self.place.after(run);
        }
    }
}

impl<P: Protocol> Machine for Exchange<P> {
    type Error = EngineError;

    fn want(&self) -> Want {
        match self.current() {
            Some(run) if run.message.from == P::PARTY => Want::Send,
            Some(_) => Want::Receive,
            None => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let next = self.turn(Want::Send)?;
        self.make(next, out)?;
        self.advance();
        Ok(())
    }

    fn writes_over(&self) -> bool {
        true
    }

    fn ahead(&self) -> Option<u64> {
        let (place, ..) = self.next_ahead()?;
        Some(place.number - self.place.number)
    }

    fn send_ahead(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Some((place, turn, length)) = self.next_ahead() else {
            return self.send(out);
        };
        self.make((turn, length), out)?;
        if let Some(run) = self.run(place) {
            self.sent = place.next(run);
        }
        Ok(())
    }

    fn left(&self) -> Option<u64> {
        let coming = self.messages.runs.get(self.place.run..)?;
        if coming.iter().any(|run| run.message.optional) {
            return None;
        }
        let counts = coming.iter().map(|run| run.count as u64);
        Some(counts.sum::<u64>() - self.place.within as u64)
    }

    fn meanwhile(&mut self) -> Result<(), EngineError> {
        self.protocol.meanwhile()
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let (turn, length) = self.turn(Want::Receive)?;
        if !length.allows(message.len()) {
            return Err(EngineError::Length {
                step: self.messages.step.clone(),
                message: turn.name,
                found: message.len(),
                expected: length.most(),
            });
        }
        self.protocol.take(turn, message)?;
        self.advance();
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.turn(Want::Receive) {
            Ok((_, length)) => length.most(),
            Err(_) => 0,
        }
    }

    fn max_following(&self) -> Option<usize> {
        let run = self.current()?;
        let next = self.run(self.place.next(run))?;
        let comes = self.want() == Want::Receive && !next.message.optional;
        (comes && next.message.from != P::PARTY).then(|| next.message.length.most())
    }

    fn progress(&self) -> Progress {
        let [total, sum] = self.messages.totals();
        let done = u128::from(total) * u128::from(self.rows) / u128::from(sum.max(1));
        Progress {
            done: if self.current().is_some() {
                done as u64
            } else {
                total
            },
            total,
        }
    }
}

impl<P: StepProtocol + Send> StepMachine for Exchange<P> {
    fn into_made(self: Box<Self>) -> Result<Made, EngineError> {
        self.finish()?.into_made()
    }
}

#[cfg(test)]
pub(crate) mod tests;
