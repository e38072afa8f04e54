//! The client's keys for steps on slots: made from a seed that the client may keep, sent once, and
//! kept by the server under their digest.
//!
//! Messages before the first batch of a connection:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the digest of the keys, and the images that they are to serve | client | 40 |
//! | the server's wish: 1 if it wants the keys, 0 if it has keys of this digest | server | 1 |
//! | a piece of the keys, if it wants them; it checks that they have the digest | client | 1 MiB, the last one less |
//!
//! One secret for each set of parameters, and the same for all batches, each value under fresh
//! randomness. The server [counts](super::lifetime) images by digest, over all connections, and
//! refuses keys that were granted for as many as floods are made for.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_he::{
    bfv::{EvaluationKeys, PublicKey, SecretKey},
    rns::WireError,
};
use pronghorn_plan::{CheckedPlan, steps::linear::slots::SlotScheme};
use pronghorn_ring::random::{Prg, Seed};
use zeroize::{Zeroize, Zeroizing};

use super::{
    lifetime::{DIGEST, Granted},
    refused,
};
use crate::{
    connection::Kept,
    error::EngineError,
    exchange::{Exchange, Message, Messages, Parts, Party, Protocol, Turn},
};

/// Bytes of a number of images.
const IMAGES: usize = 8;
/// Bytes of a piece of the keys.
const PIECE: usize = 1 << 20;
/// Stands for the step in errors.
const STEP: &str = "the client's keys for slots";

const DIGEST_OF_KEYS: &str = "the digest of the keys, and the images";
const WISH: &str = "the server's wish";
const KEYS: &str = "a piece of the keys";

/// Keys of so many bytes, in pieces.
fn pieces(bytes: usize) -> Parts {
    Parts {
        items: bytes,
        most: PIECE,
    }
}

fn messages(key_bytes: usize) -> Messages {
    let pieces = pieces(key_bytes).messages(Party::Client, KEYS, 1);
    Messages::new(STEP)
        .with(Message::client(DIGEST_OF_KEYS, DIGEST + IMAGES))
        .with(Message::server(WISH, 1))
        .with_all(pieces.map(Message::optional))
}

fn digest(plan_hash: &[u8; DIGEST], bytes: &[u8]) -> [u8; DIGEST] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 keys for slots");
    hasher.update(plan_hash);
    hasher.update(bytes);
    *hasher.finalize().as_bytes()
}

/// A client's secret keys, and the bytes of the others. Secret: no Debug.
pub struct ClientSlotKeys {
    seed: Arc<Seed>,
    secrets: BTreeMap<SlotScheme, Arc<SecretKey<u64>>>,
    digest: [u8; DIGEST],
    bytes: Vec<u8>,
}

impl ClientSlotKeys {
    /// The keys that a plan needs, which follow from a seed. Some milliseconds a rotation.
    ///
    /// # Errors
    /// When the plan is one that is not validated.
    pub fn generate(plan: &CheckedPlan, seed: &Arc<Seed>) -> Result<Self, EngineError> {
        let (mut secrets, mut bytes) = (BTreeMap::new(), Vec::new());
        for (keys, parameters) in plan.slot_keys() {
            // Of exactly these keys: a version that needs others of the same plan must not use the
            // same randomness for them.
            let mut own = blake3::Hasher::new_keyed(seed.as_bytes());
            own.update(&plan.hash());
            own.update(parameters.hash());
            own.update(&[u8::from(keys.swap)]);
            for step in &keys.steps {
                own.update(&step.to_le_bytes());
            }
            let mut hash = own.finalize();
            let seed = Seed::from_bytes(*hash.as_bytes());
            hash.zeroize();
            own.zeroize();
            let prg = Prg::new(&seed, "pronghorn 2026 keys for slots: seeds");
            let [secret, public, rotations] = [0, 1, 2].map(|number| {
                let mut bytes = Zeroizing::new([0; 32]);
                prg.stream(number).fill(&mut *bytes);
                Seed::from_bytes(*bytes)
            });
            let secret = SecretKey::generate(parameters, &secret);
            PublicKey::generate_from_seed(&secret, &public).encode(&mut bytes);
            if !keys.steps.is_empty() || keys.swap {
                EvaluationKeys::generate_from_seed(&secret, &keys.steps, keys.swap, &rotations)
                    .map_err(|source| refused(STEP, source.into()))?
                    .encode(&mut bytes);
            }
            secrets.insert(keys.scheme, Arc::new(secret));
        }
        Ok(Self {
            seed: seed.clone(),
            digest: digest(&plan.hash(), &bytes),
            secrets,
            bytes,
        })
    }

    /// The seed that they follow from, and their digest.
    pub(super) fn names(&self) -> (&Seed, [u8; DIGEST]) {
        (&self.seed, self.digest)
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
    fn decode(plan: &CheckedPlan, mut bytes: &[u8]) -> Result<Self, EngineError> {
        let wire = |row| {
            move |source: WireError| EngineError::Wire {
                step: STEP.to_owned(),
                message: "the keys",
                row,
                source,
            }
        };
        let mut schemes = BTreeMap::new();
        for (row, (keys, parameters)) in plan.slot_keys().iter().enumerate() {
            let [public, rotations] = keys.bytes(parameters);
            let expected = public + rotations;
            let Some((own, rest)) = bytes.split_at_checked(expected) else {
                return Err(EngineError::Length {
                    step: STEP.to_owned(),
                    message: "the keys",
                    found: bytes.len(),
                    expected,
                });
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

/// Keys of clients, by digest, for all connections of a server; the oldest make room for new ones.
/// Clones share it.
#[derive(Clone)]
pub struct KeyCache(Arc<Mutex<Cached>>);

struct Cached {
    keys: VecDeque<([u8; DIGEST], u64, Arc<ServerSlotKeys>)>,
    bytes: u64,
    most: u64,
    granted: Granted,
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
            granted: Granted::default(),
        })))
    }

    /// Counts images of keys, unless they are more than `most` then.
    fn grant(&self, digest: &[u8; DIGEST], images: u64, most: u64) -> bool {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.granted.grant(digest, images, most)
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

/// A seed of keys that a client keeps over connections. A server that got these keys may have them
/// still.
#[derive(Clone)]
pub(crate) struct SlotSeed(pub Arc<Seed>);

/// The client's half: fills its slot.
pub struct KeysClient {
    keys: Arc<ClientSlotKeys>,
    images: usize,
    batch: usize,
    slot: Kept<Arc<ClientSlotKeys>>,
    wanted: bool,
}

impl KeysClient {
    /// Makes keys from a seed, which serves this plan alone, for so many images; `batch` come next.
    ///
    /// # Errors
    /// As [`ClientSlotKeys::generate`].
    pub(crate) fn new(
        plan: &CheckedPlan,
        seed: &Arc<Seed>,
        [images, batch]: [usize; 2],
        slot: Kept<Arc<ClientSlotKeys>>,
    ) -> Result<Exchange<Self>, EngineError> {
        let keys = Arc::new(ClientSlotKeys::generate(plan, seed)?);
        let messages = messages(keys.bytes.len());
        let client = Self {
            keys,
            images,
            batch,
            slot,
            wanted: false,
        };
        Ok(Exchange::new(messages, client))
    }

    fn finish(&self) {
        self.slot.put_for(self.keys.clone(), self.images);
        self.slot.count(self.batch);
    }
}

impl Protocol for KeysClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            DIGEST_OF_KEYS => {
                out.extend_from_slice(&self.keys.digest);
                out.extend_from_slice(&(self.images as u64).to_le_bytes());
            }
            KEYS => {
                let bytes = &self.keys.bytes;
                out.extend_from_slice(&bytes[pieces(bytes.len()).range(turn.index)]);
                if turn.last {
                    self.finish();
                }
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, _turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match message {
            [0] => self.finish(),
            [1] => self.wanted = true,
            _ => {
                return Err(EngineError::Unsupported {
                    step: STEP.to_owned(),
                    reason: "the server says neither that it wants them nor that it has them",
                });
            }
        }
        Ok(())
    }

    fn is_due(&self, _name: &'static str) -> bool {
        self.wanted
    }
}

/// The server's half: fills its slot, from the cache or with what comes.
pub struct KeysServer {
    plan: CheckedPlan,
    cache: KeyCache,
    slot: Kept<Arc<ServerSlotKeys>>,
    batch: usize,
    digest: [u8; DIGEST],
    images: usize,
    bytes: Vec<u8>,
    wanted: bool,
}

impl KeysServer {
    /// For a plan, before a batch of so many images.
    pub(crate) fn new(
        plan: CheckedPlan,
        batch: usize,
        cache: KeyCache,
        slot: Kept<Arc<ServerSlotKeys>>,
    ) -> Exchange<Self> {
        let messages = messages(plan.slot_key_bytes() as usize);
        let server = Self {
            plan,
            cache,
            slot,
            batch,
            digest: [0; DIGEST],
            images: 0,
            bytes: Vec::new(),
            wanted: true,
        };
        Exchange::new(messages, server)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        let bytes = std::mem::take(&mut self.bytes);
        if digest(&self.plan.hash(), &bytes) != self.digest {
            return Err(EngineError::Unsupported {
                step: STEP.to_owned(),
                reason: "they are not those that the client named",
            });
        }
        let keys = Arc::new(ServerSlotKeys::decode(&self.plan, &bytes)?);
        self.cache
            .put(self.digest, bytes.len() as u64, keys.clone());
        self.keep(keys);
        Ok(())
    }

    fn keep(&self, keys: Arc<ServerSlotKeys>) {
        self.slot.put_for(keys, self.images);
        self.slot.count(self.batch);
    }

    /// Reads the digest and the images, and grants them.
    fn read_digest(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let (digest, images) = message.split_at(DIGEST);
        self.digest.copy_from_slice(digest);
        let images = images.try_into().map_or(0, u64::from_le_bytes);
        self.images = usize::try_from(images).unwrap_or(0);
        let most = self.plan.flood().map_or(0, |lifetime| lifetime.count);
        let refused = |reason| EngineError::Unsupported {
            step: STEP.to_owned(),
            reason,
        };
        if self.images < self.batch {
            return Err(refused("they are for fewer images than the batch has"));
        }
        if !self.cache.grant(&self.digest, images, most) {
            return Err(refused(
                "they have served as many images as floods hide the model for: draw new keys, by \
                 removing the file slots-... from the client's store",
            ));
        }
        if let Some(keys) = self.cache.get(&self.digest) {
            self.keep(keys);
            self.wanted = false;
        }
        Ok(())
    }
}

impl Protocol for KeysServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            DIGEST_OF_KEYS => self.read_digest(message),
            KEYS => {
                self.bytes.extend_from_slice(message);
                if turn.last { self.finish() } else { Ok(()) }
            }
            _ => Err(turn.unknown()),
        }
    }

    fn make(&mut self, _turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        out.push(u8::from(self.wanted));
        Ok(())
    }

    fn is_due(&self, _name: &'static str) -> bool {
        self.wanted
    }
}

#[cfg(test)]
mod tests {
    use crate::exchange::tests::{assert_table, names};

    #[test]
    fn the_table_lists_the_messages() {
        assert_table(include_str!("keys.rs"), names(&super::messages(5 << 20)));
    }
}
