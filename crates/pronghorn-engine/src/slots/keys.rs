//! The client's keys for steps on slots: made from a seed that the client may keep, sent once, and kept by the server under their digest.
//!
//! Messages before the first batch of a connection:
//! 1. client: the digest of its keys (32 bytes);
//! 2. server: 1 if it wants them, 0 if it has keys of this digest (one byte);
//! 3. client, if so: the keys, a piece in each message; the server checks that they have the digest.
//!
//! One secret for each set of parameters, and the same for all batches, each value under fresh randomness.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_he::{
    bfv::{EvaluationKeys, PublicKey, SecretKey},
    rns::WireError,
};
use pronghorn_plan::{
    Plan,
    slots::{self, SlotScheme},
};
use pronghorn_ring::random::{Prg, Seed};

use super::refused;
use crate::{
    error::EngineError,
    machine::{Machine, Progress, Want},
};

/// Bytes of a digest.
const DIGEST: usize = 32;
/// Bytes of a piece of the keys.
const PIECE: usize = 1 << 20;
/// Stands for the step in errors.
const STEP: &str = "the client's keys for slots";

fn digest(plan_hash: &[u8; DIGEST], bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 keys for slots");
    hasher.update(plan_hash);
    hasher.update(bytes);
    *hasher.finalize().as_bytes()
}

/// A client's secret keys, and the bytes of the others. Secret: no Debug.
pub struct ClientSlotKeys {
    secrets: BTreeMap<SlotScheme, Arc<SecretKey<u64>>>,
    digest: [u8; DIGEST],
    bytes: Vec<u8>,
}

impl ClientSlotKeys {
    /// The keys that a plan needs, which follow from a seed. Some milliseconds a rotation.
    ///
    /// # Errors
    /// When the plan is one that is not validated.
    pub fn generate(plan: &Plan, seed: &Seed) -> Result<Self, EngineError> {
        let (mut secrets, mut bytes) = (BTreeMap::new(), Vec::new());
        let all = slots::keys(plan).map_err(|source| refused(STEP, source))?;
        for (keys, parameters) in all {
            // Of exactly these keys: a version that needs others of the same plan must not use the same randomness for them.
            let mut own = blake3::Hasher::new_keyed(seed.as_bytes());
            own.update(&plan.hash());
            own.update(parameters.hash());
            own.update(&[u8::from(keys.swap)]);
            for step in &keys.steps {
                own.update(&step.to_le_bytes());
            }
            let own = Seed::from_bytes(*own.finalize().as_bytes());
            let prg = Prg::new(&own, "pronghorn 2026 keys for slots: seeds");
            let [secret, public, rotations] = [0, 1, 2].map(|number| {
                let mut bytes = [0; 32];
                prg.stream(number).fill(&mut bytes);
                Seed::from_bytes(bytes)
            });
            let secret = SecretKey::generate(&parameters, &secret);
            PublicKey::generate_from_seed(&secret, &public).encode(&mut bytes);
            if !keys.steps.is_empty() || keys.swap {
                EvaluationKeys::generate_from_seed(&secret, &keys.steps, keys.swap, &rotations)
                    .map_err(|source| refused(STEP, source.into()))?
                    .encode(&mut bytes);
            }
            secrets.insert(keys.scheme, Arc::new(secret));
        }
        Ok(Self {
            digest: digest(&plan.hash(), &bytes),
            secrets,
            bytes,
        })
    }

    /// The secret key for a step's parameters.
    pub(crate) fn secret(&self, scheme: &SlotScheme) -> Option<Arc<SecretKey<u64>>> {
        self.secrets.get(scheme).cloned()
    }
}

/// The keys of a client for the steps with the same parameters.
pub struct ServerSchemeKeys {
    pub(super) public: PublicKey<u64>,
    pub(super) rotations: Option<EvaluationKeys<u64>>,
}

/// All of a client's keys.
pub struct ServerSlotKeys {
    schemes: BTreeMap<SlotScheme, Arc<ServerSchemeKeys>>,
}

impl ServerSlotKeys {
    fn decode(plan: &Plan, mut bytes: &[u8]) -> Result<Self, EngineError> {
        let wire = |row| {
            move |source: WireError| EngineError::Wire {
                step: STEP.to_owned(),
                message: "the keys",
                row,
                source,
            }
        };
        let mut schemes = BTreeMap::new();
        let all = slots::keys(plan).map_err(|source| refused(STEP, source))?;
        for (row, (keys, parameters)) in all.iter().enumerate() {
            let [public, rotations] = keys.bytes(parameters);
            let expected = public + rotations;
            let Some((own, rest)) = bytes.split_at_checked(expected) else {
                return Err(length("the keys", bytes.len(), expected));
            };
            bytes = rest;
            let (public, rotations) = own.split_at(public);
            let scheme = ServerSchemeKeys {
                public: PublicKey::decode(parameters, public).map_err(wire(row))?,
                rotations: match rotations.is_empty() {
                    true => None,
                    false => {
                        Some(EvaluationKeys::decode(parameters, rotations).map_err(wire(row))?)
                    }
                },
            };
            schemes.insert(keys.scheme, Arc::new(scheme));
        }
        Ok(Self { schemes })
    }

    /// The keys for a step's parameters.
    pub(crate) fn of(&self, scheme: &SlotScheme) -> Option<Arc<ServerSchemeKeys>> {
        self.schemes.get(scheme).cloned()
    }
}

/// Keys of clients, by digest, for all connections of a server; the oldest make room for new ones. Clones share it.
#[derive(Clone)]
pub struct KeyCache(Arc<Mutex<Cached>>);

struct Cached {
    keys: VecDeque<([u8; DIGEST], u64, Arc<ServerSlotKeys>)>,
    bytes: u64,
    most: u64,
}

impl Default for KeyCache {
    /// A quarter of a gigabyte.
    fn default() -> Self {
        Self::new(256 << 20)
    }
}

impl KeyCache {
    /// For keys of so many bytes in all, as they came; in memory they take twice as many.
    pub fn new(most: u64) -> Self {
        Self(Arc::new(Mutex::new(Cached {
            keys: VecDeque::new(),
            bytes: 0,
            most,
        })))
    }

    fn get(&self, digest: &[u8; DIGEST]) -> Option<Arc<ServerSlotKeys>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = cached.keys.iter();
        found
            .find(|(known, ..)| known == digest)
            .map(|(_, _, keys)| keys.clone())
    }

    fn put(&self, digest: [u8; DIGEST], bytes: u64, keys: Arc<ServerSlotKeys>) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.keys.push_back((digest, bytes, keys));
        cached.bytes += bytes;
        while cached.bytes > cached.most
            && let Some((_, bytes, _)) = cached.keys.pop_front()
        {
            cached.bytes -= bytes;
        }
    }
}

/// A connection's keys, once they are there. Clones share it.
pub struct Slot<T>(Arc<Mutex<Option<Arc<T>>>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Slot<T> {
    /// What is there.
    pub fn get(&self) -> Option<Arc<T>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Fills it.
    pub fn put(&self, keys: Arc<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(keys);
    }
}

fn length(message: &'static str, found: usize, expected: usize) -> EngineError {
    let step = STEP.to_owned();
    EngineError::Length {
        step,
        message,
        found,
        expected,
    }
}

const NOT_NOW: EngineError = EngineError::OutOfTurn {
    state: "is at another message of the keys",
};

/// The client's half: fills its slot.
pub struct KeysClient {
    keys: Arc<ClientSlotKeys>,
    slot: Slot<ClientSlotKeys>,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Digest,
    Wanted,
    /// So many bytes are through.
    Pieces(usize),
    Done,
}

impl KeysClient {
    /// Makes keys from a seed, which serves this plan alone.
    ///
    /// # Errors
    /// As [`ClientSlotKeys::generate`].
    pub fn new(plan: &Plan, seed: &Seed, slot: Slot<ClientSlotKeys>) -> Result<Self, EngineError> {
        Ok(Self {
            keys: Arc::new(ClientSlotKeys::generate(plan, seed)?),
            slot,
            state: State::Digest,
        })
    }
}

impl Machine for KeysClient {
    fn want(&self) -> Want {
        match self.state {
            State::Digest | State::Pieces(_) => Want::Send,
            State::Wanted => Want::Receive,
            State::Done => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match self.state {
            State::Digest => {
                out.extend_from_slice(&self.keys.digest);
                self.state = State::Wanted;
            }
            State::Pieces(done) => {
                let end = self.keys.bytes.len().min(done + PIECE);
                out.extend_from_slice(&self.keys.bytes[done..end]);
                self.state = State::Pieces(end);
                if end == self.keys.bytes.len() {
                    self.slot.put(self.keys.clone());
                    self.state = State::Done;
                }
            }
            State::Wanted | State::Done => return Err(NOT_NOW),
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        if self.state != State::Wanted {
            return Err(NOT_NOW);
        }
        self.state = match message {
            [0] => {
                self.slot.put(self.keys.clone());
                State::Done
            }
            [1] => State::Pieces(0),
            _ => return Err(length("the server's wish", message.len(), 1)),
        };
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        usize::from(self.state == State::Wanted)
    }

    fn progress(&self) -> Progress {
        progress(self.state, self.keys.bytes.len())
    }
}

fn progress(state: State, total: usize) -> Progress {
    let done = match state {
        State::Digest | State::Wanted => 0,
        State::Pieces(done) => done,
        State::Done => total,
    };
    let (done, total) = (done as u64, total as u64);
    Progress { done, total }
}

/// The server's half: fills its slot, from the cache or with what comes.
pub struct KeysServer {
    plan: Arc<Plan>,
    cache: KeyCache,
    slot: Slot<ServerSlotKeys>,
    digest: [u8; DIGEST],
    bytes: Vec<u8>,
    expected: usize,
    wanted: bool,
    state: State,
}

impl KeysServer {
    /// For a plan.
    pub fn new(plan: Arc<Plan>, cache: KeyCache, slot: Slot<ServerSlotKeys>) -> Self {
        Self {
            expected: slots::key_bytes(&plan) as usize,
            plan,
            cache,
            slot,
            digest: [0; DIGEST],
            bytes: Vec::new(),
            wanted: true,
            state: State::Digest,
        }
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        if digest(&self.plan.hash(), &self.bytes) != self.digest {
            return Err(EngineError::Unsupported {
                step: STEP.to_owned(),
                reason: "they are not those that the client named",
            });
        }
        let keys = Arc::new(ServerSlotKeys::decode(&self.plan, &self.bytes)?);
        self.cache
            .put(self.digest, self.bytes.len() as u64, keys.clone());
        self.slot.put(keys);
        self.bytes = Vec::new();
        self.state = State::Done;
        Ok(())
    }
}

impl Machine for KeysServer {
    fn want(&self) -> Want {
        match self.state {
            State::Digest | State::Pieces(_) => Want::Receive,
            State::Wanted => Want::Send,
            State::Done => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if self.state != State::Wanted {
            return Err(NOT_NOW);
        }
        out.push(u8::from(self.wanted));
        self.state = match self.wanted {
            true => State::Pieces(0),
            false => State::Done,
        };
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        match self.state {
            State::Digest => {
                let found = message.len();
                let digest = message.try_into();
                self.digest = digest.map_err(|_| length("the digest", found, DIGEST))?;
                if let Some(keys) = self.cache.get(&self.digest) {
                    self.slot.put(keys);
                    self.wanted = false;
                }
                self.state = State::Wanted;
            }
            State::Pieces(done) => {
                let expected = self.max_incoming();
                if message.len() != expected {
                    return Err(length("a piece of the keys", message.len(), expected));
                }
                self.bytes.extend_from_slice(message);
                self.state = State::Pieces(done + expected);
                if self.bytes.len() == self.expected {
                    self.finish()?;
                }
            }
            State::Wanted | State::Done => return Err(NOT_NOW),
        }
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            State::Digest => DIGEST,
            State::Pieces(done) => PIECE.min(self.expected - done),
            State::Wanted | State::Done => 0,
        }
    }

    fn progress(&self) -> Progress {
        progress(self.state, self.expected)
    }
}
