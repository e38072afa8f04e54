//! Set-ups of OT: made once between two parties, kept, and resumed from by any number of
//! connections.
//!
//! # Making one
//! Two messages: the extension's sender is the receiver of 128 base OTs ([`super::base`]) with the
//! bits that `Delta` does not have; with its answer the extension's receiver sends what the sender
//! grows its trees of seeds from, each with one leaf missing (the puncturable PRF of Goldreich,
//! Goldwasser and Micali). [`SetupSender`] and [`SetupReceiver`] are the machines.
//!
//! # The other direction
//! Two parties with a connection make a set-up in the other direction without public-key
//! cryptography ([`reversed`]): 256 OTs of the connection are its base OTs.
//!
//! # Connecting
//! Each party sends the name of its set-up and a nonce that it has just drawn ([`ConnectSender`],
//! [`ConnectReceiver`]). The keys of the connection's columns, and that of its hash, are derived
//! from the set-up and both nonces. So no two connections have an OT in common, whatever the peer
//! sends again, and even when a stored set-up is restored from a copy: a set-up never changes.
//! Within a connection both parties count.

mod connect;
pub mod reversed;

use pronghorn_ring::random::{Prg, Seed};
use subtle::Choice;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub use connect::{ConnectReceiver, ConnectSender};
pub use reversed::BaseSender;

use super::{
    CotReceiver, CotSender,
    base::{self, BaseOt, BaseReceiver, Key},
    error::{OtError, check_length},
    extension::{Burnt, strips},
    puncture,
};
use crate::{
    Block,
    machine::{Machine, Want},
};

/// First byte of every set-up, stored or under way.
const VERSION: u8 = 1;
/// Bytes before the base OTs of the sender's message: version, base, width.
const HEADER: usize = 3;
/// Bytes of the masked sums behind the base OTs of the receiver's message.
const SUMS: usize = Block::BITS * 64;
/// Bytes of a message that connects: the set-up's name and a nonce.
const CONNECT: usize = 64;

const SENDER_KEYS: &str = "the sender's message of the OT set-up";
const RECEIVER_KEYS: &str = "the receiver's message of the OT set-up";
const CONNECT_MESSAGE: &str = "the message that connects OTs";

/// Parameters that both parties must agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtParameters {
    base: BaseOt,
    width: u8,
}

impl OtParameters {
    /// `width` is the `k` of SoftSpokenOT: an OT costs `128 / k` bits of traffic and work that
    /// grows as `2^k / k`. 1 is IKNP.
    ///
    /// # Errors
    /// [`OtError::Range`] unless `1 <= width <= 8`.
    pub fn new(base: BaseOt, width: u8) -> Result<Self, OtError> {
        if !(1..=8).contains(&width) {
            return Err(OtError::Range {
                field: "the width of OT extension",
                found: width.into(),
                least: 1,
                most: 8,
            });
        }
        Ok(Self { base, width })
    }

    /// The base OTs.
    pub fn base(&self) -> BaseOt {
        self.base
    }

    /// The width `k`.
    pub fn width(&self) -> usize {
        self.width.into()
    }

    /// Bytes of both messages of a set-up.
    pub fn setup_bytes(&self) -> usize {
        self.sender_bytes() + self.receiver_bytes()
    }

    fn header(&self) -> [u8; HEADER] {
        [VERSION, self.base as u8, self.width]
    }

    /// Checks that the peer's header is ours.
    fn check(&self, header: &[u8]) -> Result<(), OtError> {
        let fields = [
            "the version of OT",
            "the base OT",
            "the width of OT extension",
        ];
        for ((field, &found), expected) in fields.into_iter().zip(header).zip(self.header()) {
            if found != expected {
                return Err(OtError::Parameters {
                    field,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }

    /// Bytes of the sender's message of a set-up, the first.
    pub fn sender_bytes(&self) -> usize {
        HEADER + self.base.receiver_bytes()
    }

    /// Bytes of the receiver's answer to it.
    pub fn receiver_bytes(&self) -> usize {
        self.base.sender_bytes() + SUMS
    }
}

impl OtParameters {
    /// The width of least traffic, 16 bits an OT: for OTs whose messages are most of a protocol's.
    pub const LEAST_TRAFFIC: Self = Self {
        base: BaseOt::MlKem,
        width: 8,
    };
}

impl Default for OtParameters {
    /// ML-KEM, and the width that takes least time in all, work of both parties and traffic, where
    /// the network has about 1 Gbit/s and the CPU AVX-512 (narrower is better on faster networks,
    /// wider on slower ones; see the example `ot_bench` of `pronghorn-bench`).
    fn default() -> Self {
        Self {
            base: BaseOt::MlKem,
            width: 5,
        }
    }
}

/// The name of a set-up: a hash of its messages.
fn name_of(session: &[u8; 32], sender: &[u8], receiver: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn ot name of a set-up");
    hasher.update(session);
    hasher.update(&(sender.len() as u64).to_le_bytes());
    hasher.update(sender);
    hasher.update(receiver);
    *hasher.finalize().as_bytes()
}

/// The sender's set-up. Wiped on drop.
///
/// It ends with the first failed consistency check on any of its connections: see
/// [`OtError::Burnt`]. What is read from a copy of its bytes does not hear of that; whoever stores
/// it deletes the copies, and has one value serve all connections of one peer.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct SenderSetup {
    width: u8,
    name: [u8; 32],
    delta: Block,
    /// The siblings of the punctured paths, one for each bit of `Delta`.
    siblings: Vec<Key>,
    /// Shared with the connections.
    #[zeroize(skip)]
    burnt: Burnt,
}

impl SenderSetup {
    /// Bytes of a stored one.
    pub const BYTES: usize = 2 + 32 + Block::BYTES + 32 * Block::BITS;

    /// Its name, a hash of the messages that made it: both parties have the same, no other set-up
    /// does. Public.
    pub fn name(&self) -> &[u8; 32] {
        &self.name
    }

    /// `Delta`, the same for all connections: the bounds of what is built on it count all of them.
    pub fn delta(&self) -> Block {
        self.delta
    }

    /// Checks that no connection of this set-up has failed the consistency check. One that has is
    /// to be destroyed with all its stored copies.
    ///
    /// # Errors
    /// [`OtError::Burnt`] otherwise.
    pub fn check_usable(&self) -> Result<(), OtError> {
        self.burnt.check()
    }

    /// All of it, to store in a safe place. Whoever has it can be this party. Zeros, which
    /// [`SenderSetup::from_bytes`] refuses, once a check has failed.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        if self.check_usable().is_err() {
            return Zeroizing::new(vec![0; Self::BYTES]);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::BYTES));
        bytes.extend_from_slice(&[VERSION, self.width]);
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(&self.delta.to_bytes());
        bytes.extend_from_slice(self.siblings.as_flattened());
        bytes
    }

    /// The inverse of [`SenderSetup::to_bytes`].
    ///
    /// # Errors
    /// [`OtError::Stored`] when these bytes are nothing that it gives.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OtError> {
        let (width, bytes) = stored(bytes, Self::BYTES)?;
        let (name, bytes) = bytes.split_first_chunk().ok_or(TOO_SHORT)?;
        let (delta, siblings) = bytes.split_first_chunk().ok_or(TOO_SHORT)?;
        let delta = Block::from_bytes(*delta);
        if !delta.lsb() {
            return Err(OtError::Stored { field: "delta" });
        }
        Ok(Self {
            width,
            name: *name,
            delta,
            siblings: siblings.as_chunks().0.to_vec(),
            burnt: Burnt::default(),
        })
    }

    /// From the keys of the bits that `delta` does not have, and the sums that they unmask.
    fn grow(
        parameters: OtParameters,
        name: [u8; 32],
        delta: Block,
        keys: &[Key],
        sums: &[u8],
    ) -> Self {
        let (sums, _) = sums.as_chunks::<32>();
        let (sums, _) = sums.as_chunks::<2>();
        let mut siblings = vec![[0; 32]; Block::BITS];
        for strip in strips(parameters.width()) {
            let alpha = |level| bit_of(delta, strip.start + level);
            let (keys, sums) = (&keys[strip.clone()], &sums[strip.clone()]);
            puncture::siblings(alpha, keys, sums, &mut siblings[strip.clone()]);
        }
        Self {
            width: parameters.width,
            name,
            delta,
            siblings,
            burnt: Burnt::default(),
        }
    }

    fn sender(&self, connection: [u8; 32]) -> CotSender {
        let width = usize::from(self.width);
        let leaves = strips(width).map(|strip| {
            let alpha = |level| bit_of(self.delta, strip.start + level);
            puncture::punctured_leaves(alpha, &self.siblings[strip.clone()])
        });
        CotSender::new(self.delta, width, leaves, connection, self.burnt.clone())
    }
}

/// The receiver's set-up. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct ReceiverSetup {
    width: u8,
    name: [u8; 32],
    /// The root of each strip's tree.
    roots: Vec<Key>,
}

impl ReceiverSetup {
    fn bytes(width: u8) -> usize {
        2 + 32 + 32 * Block::BITS.div_ceil(width.into())
    }

    /// Its name, a hash of the messages that made it: both parties have the same, no other set-up
    /// does. Public.
    pub fn name(&self) -> &[u8; 32] {
        &self.name
    }

    /// All of it, to store in a safe place. Whoever has it can be this party.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::bytes(self.width)));
        bytes.extend_from_slice(&[VERSION, self.width]);
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(self.roots.as_flattened());
        bytes
    }

    /// The inverse of [`ReceiverSetup::to_bytes`].
    ///
    /// # Errors
    /// [`OtError::Stored`] when these bytes are nothing that it gives.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, OtError> {
        let width = bytes.get(1).copied().unwrap_or(1).clamp(1, 8);
        let (width, bytes) = stored(bytes, Self::bytes(width))?;
        let (name, roots) = bytes.split_first_chunk().ok_or(TOO_SHORT)?;
        Ok(Self {
            width,
            name: *name,
            roots: roots.as_chunks().0.to_vec(),
        })
    }

    fn receiver(&self, connection: [u8; 32], masks: &Seed) -> CotReceiver {
        let width = usize::from(self.width);
        let trees = strips(width).zip(&self.roots);
        let leaves = trees.map(|(strip, root)| puncture::leaves(root, strip.len()));
        let masks = Prg::new(masks, "pronghorn ot choices of the check").stream(0);
        CotReceiver::new(width, leaves, connection, masks)
    }
}

const TOO_SHORT: OtError = OtError::Stored { field: "length" };

/// The width of a stored set-up that must have `expected` bytes, and what follows it.
fn stored(bytes: &[u8], expected: usize) -> Result<(u8, &[u8]), OtError> {
    match bytes {
        [VERSION, width @ 1..=8, rest @ ..] if bytes.len() == expected => Ok((*width, rest)),
        [VERSION, 1..=8, ..] => Err(TOO_SHORT),
        [VERSION, ..] => Err(OtError::Stored { field: "width" }),
        _ => Err(OtError::Stored { field: "version" }),
    }
}

fn bit_of(delta: Block, bit: usize) -> Choice {
    Choice::from((delta.to_u128() >> bit & 1) as u8)
}

/// Makes a [`SenderSetup`]: sends, receives.
pub struct SetupSender {
    parameters: OtParameters,
    session: [u8; 32],
    delta: Zeroizing<Block>,
    prg: Prg,
    state: SenderState,
}

enum SenderState {
    Start,
    /// The base OTs, and the message that was sent.
    Waiting(BaseReceiver, Vec<u8>),
    Done(SenderSetup),
    Failed,
}

impl SetupSender {
    /// `session` is what the base OTs are bound to: 32 bytes that both parties know and that differ
    /// from session to session, such as a hash of both parties' greetings. `seed` is fresh, and
    /// `Delta` comes from it.
    pub fn new(parameters: OtParameters, session: [u8; 32], seed: &Seed) -> Self {
        let prg = Prg::new(seed, "pronghorn ot set-up of the sender");
        let mut delta = Zeroizing::new([0; 16]);
        prg.stream(0).fill(&mut *delta);
        Self {
            parameters,
            session,
            delta: Zeroizing::new(Block::from_bytes(*delta).with_lsb()),
            prg,
            state: SenderState::Start,
        }
    }

    /// The set-up, once [`Machine::want`] says [`Want::Done`].
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] before that.
    pub fn into_setup(self) -> Result<SenderSetup, OtError> {
        match self.state {
            SenderState::Done(setup) => Ok(setup),
            _ => Err(NOT_DONE),
        }
    }

    fn finish(
        &self,
        base: BaseReceiver,
        sent: &[u8],
        message: &[u8],
    ) -> Result<SenderSetup, OtError> {
        let (answer, sums) = message.split_at(self.parameters.base.sender_bytes());
        let keys = base.finish(answer)?;
        let name = name_of(&self.session, sent, message);
        let delta = *self.delta;
        Ok(SenderSetup::grow(self.parameters, name, delta, &keys, sums))
    }
}

const NOT_DONE: OtError = OtError::OutOfTurn {
    state: "this machine has not finished",
};

impl Machine for SetupSender {
    type Error = OtError;

    fn want(&self) -> Want {
        match self.state {
            SenderState::Start => Want::Send,
            SenderState::Waiting(..) => Want::Receive,
            SenderState::Done(_) | SenderState::Failed => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), OtError> {
        let SenderState::Start = self.state else {
            return Err(OtError::OutOfTurn {
                state: "the sender of OTs has sent its part of the set-up",
            });
        };
        let mut message = self.parameters.header().to_vec();
        let choices = *self.delta ^ Block::ONES;
        let mut stream = self.prg.stream(1);
        let OtParameters { base, .. } = self.parameters;
        let base = BaseReceiver::start(base, &self.session, choices, &mut stream, &mut message);
        out.extend_from_slice(&message);
        self.state = SenderState::Waiting(base, message);
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), OtError> {
        match std::mem::replace(&mut self.state, SenderState::Failed) {
            SenderState::Waiting(base, sent) => {
                check_length(RECEIVER_KEYS, message, self.parameters.receiver_bytes())?;
                self.state = SenderState::Done(self.finish(base, &sent, message)?);
                Ok(())
            }
            state => {
                self.state = state;
                Err(OtError::OutOfTurn {
                    state: "the sender of OTs waits for no message",
                })
            }
        }
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            SenderState::Waiting(..) => self.parameters.receiver_bytes(),
            _ => 0,
        }
    }
}

/// Makes a [`ReceiverSetup`]: receives, sends.
pub struct SetupReceiver {
    parameters: OtParameters,
    session: [u8; 32],
    prg: Prg,
    state: ReceiverState,
}

enum ReceiverState {
    Waiting,
    /// The set-up, and the message to send.
    Answering(ReceiverSetup, Vec<u8>),
    Done(ReceiverSetup),
    Failed,
}

impl SetupReceiver {
    /// As [`SetupSender::new`], with a fresh seed of this party's own.
    pub fn new(parameters: OtParameters, session: [u8; 32], seed: &Seed) -> Self {
        Self {
            parameters,
            session,
            prg: Prg::new(seed, "pronghorn ot set-up of the receiver"),
            state: ReceiverState::Waiting,
        }
    }

    /// The set-up, once [`Machine::want`] says [`Want::Done`].
    ///
    /// # Errors
    /// [`OtError::OutOfTurn`] before that.
    pub fn into_setup(self) -> Result<ReceiverSetup, OtError> {
        match self.state {
            ReceiverState::Done(setup) => Ok(setup),
            _ => Err(NOT_DONE),
        }
    }

    fn answer(&self, message: &[u8]) -> Result<ReceiverState, OtError> {
        check_length(SENDER_KEYS, message, self.parameters.sender_bytes())?;
        let (header, keys) = message.split_at(HEADER);
        self.parameters.check(header)?;
        let OtParameters { base, width } = self.parameters;
        let mut answer = Vec::with_capacity(self.parameters.receiver_bytes());
        let mut stream = self.prg.stream(0);
        let keys = base::respond(base, &self.session, keys, &mut stream, &mut answer)?;

        let roots = grow_roots(width, &self.prg, &keys, &mut answer);
        let name = name_of(&self.session, message, &answer);
        let setup = ReceiverSetup { width, name, roots };
        Ok(ReceiverState::Answering(setup, answer))
    }
}

/// The roots of new trees; appends their sums, masked by the keys.
fn grow_roots(width: u8, prg: &Prg, keys: &[[Key; 2]], out: &mut Vec<u8>) -> Vec<Key> {
    let mut roots = vec![[0; 32]; Block::BITS.div_ceil(width.into())];
    prg.stream(1).fill(roots.as_flattened_mut());
    for (strip, root) in strips(width.into()).zip(&roots) {
        for sums in puncture::masked_sums(root, &keys[strip]) {
            out.extend_from_slice(sums.as_flattened());
        }
    }
    roots
}

impl Machine for SetupReceiver {
    type Error = OtError;

    fn want(&self) -> Want {
        match self.state {
            ReceiverState::Waiting => Want::Receive,
            ReceiverState::Answering(..) => Want::Send,
            ReceiverState::Done(_) | ReceiverState::Failed => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), OtError> {
        match std::mem::replace(&mut self.state, ReceiverState::Failed) {
            ReceiverState::Answering(setup, answer) => {
                out.extend_from_slice(&answer);
                self.state = ReceiverState::Done(setup);
                Ok(())
            }
            state => {
                self.state = state;
                Err(OtError::OutOfTurn {
                    state: "the receiver of OTs has nothing to send for the set-up",
                })
            }
        }
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), OtError> {
        let ReceiverState::Waiting = self.state else {
            return Err(OtError::OutOfTurn {
                state: "the receiver of OTs has the sender's part of the set-up",
            });
        };
        self.state = ReceiverState::Failed;
        self.state = self.answer(message)?;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            ReceiverState::Waiting => self.parameters.sender_bytes(),
            _ => 0,
        }
    }
}
