//! The data owner's half.

use std::sync::Arc;

use pronghorn_mpc::ot::{
    OtError,
    all_but_one::{self, Pairs},
};
use pronghorn_ring::random::{Prg, Seed};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    CHALLENGE, CHOICE, COMMITMENTS, DIGEST, DIGEST_OF_KEYS, KEYS, KeySets, OPENING, STEP, Shape,
    VERSION, WISH, Wish, digest_of, most_batches, session,
};
use crate::{
    connection::{Connection, Kept},
    error::EngineError,
    exchange::{Exchange, Party, Protocol, Turn},
    machine::Exchanging,
    protocol::{Prelude, PreludeKind},
};

/// The seed of keys that passed a check. Secret: no Debug.
#[derive(Clone)]
pub(crate) struct KeptSeed(pub Arc<Seed>);

/// The client's prelude.
pub(crate) struct ClientKeys<S>(pub Arc<S>);

impl<S: KeySets> Prelude for ClientKeys<S> {
    fn kind(&self) -> PreludeKind {
        PreludeKind::ClientKeys
    }

    fn start(
        &self,
        connection: &Connection,
        _batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        let seed = connection.kept::<Kept<KeptSeed>>();
        let keys = connection.kept::<Kept<Arc<S::Client>>>();
        // Keys that are used up go with their seed.
        let (had, has) = (keys.is_some(), keys.spend(1).is_some());
        if has {
            seed.spend(1);
            return Ok(None);
        }
        if had || seed.left() == 0 {
            seed.take();
        }
        let client = KeysClient::new(self.0.clone(), connection)?;
        Ok(Some(Box::new(client.exchange())))
    }
}

/// The client's half: fills its slots.
pub(super) struct KeysClient<S: KeySets> {
    sets: Arc<S>,
    shape: Shape,
    binding: Option<[u8; 32]>,
    /// What the connection keeps, and where keys go.
    seed: Kept<KeptSeed>,
    keys: Kept<Arc<S::Client>>,
    wish: Wish,
    root: Seed,
    /// The seeds of all sets.
    pub(super) strings: Zeroizing<Vec<[u8; 32]>>,
    challenge: Vec<u8>,
    /// Of the transfers, for the server's choice.
    pairs: Option<Pairs>,
    /// Of the keys that are sent.
    bytes: Vec<u8>,
}

impl<S: KeySets> KeysClient<S> {
    pub(super) fn new(sets: Arc<S>, connection: &Connection) -> Result<Self, EngineError> {
        let (shape, root) = (Shape::of(&*sets), Seed::from_os()?);
        let mut client = Self {
            strings: all_but_one::strings(root.as_bytes(), shape.levels),
            binding: connection.binding(),
            sets,
            shape,
            seed: connection.kept(),
            keys: connection.kept(),
            wish: Wish::Cut,
            root,
            challenge: Vec::new(),
            pairs: None,
            bytes: Vec::new(),
        };
        // Keys that are not kept are new without a wish.
        if !client.shape.kept {
            client.begin();
        }
        Ok(client)
    }

    pub(super) fn exchange(self) -> Exchange<Self> {
        Exchange::new(self.shape.messages(), self)
    }

    /// The digest of the keys that it keeps.
    fn digest(&self) -> Result<[u8; DIGEST], EngineError> {
        match self.seed.get() {
            Some(seed) => digest_of(&*self.sets, &seed.0),
            None => Ok([0; DIGEST]),
        }
    }

    fn take_wish(&mut self, message: &[u8]) -> Result<(), EngineError> {
        self.wish = match message {
            [0] if self.seed.is_some() => Wish::Nothing,
            [1] if self.seed.is_some() => Wish::Keys,
            [2] => Wish::Cut,
            _ => return Err(refused("the server wants what this client does not have")),
        };
        match self.wish {
            Wish::Nothing => self.has_keys(),
            Wish::Keys => {}
            Wish::Cut => self.begin(),
        }
        Ok(())
    }

    /// Begins with new sets; what an earlier seed has left goes with it.
    fn begin(&mut self) {
        drop(self.seed.take());
        if !self.shape.is_checked() {
            self.adopt(self.strings[0]);
        }
    }

    /// Takes the set of this seed.
    fn adopt(&self, string: [u8; 32]) {
        let seed = KeptSeed(Arc::new(Seed::from_bytes(string)));
        self.seed.put_for(seed, most_batches(self.sets.plan()));
    }

    /// Keeps a challenge, which is answered after other messages.
    fn take_challenge(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let keys = &message[DIGEST..];
        all_but_one::check(self.shape.levels, keys).map_err(ot_error)?;
        self.challenge = message.to_vec();
        Ok(())
    }

    fn open(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let (nonce, keys) = self.challenge.split_at(DIGEST);
        let nonce = nonce.try_into().expect("the length was checked");
        let session = session(self.sets.plan(), self.binding, nonce);
        let random = Prg::new(
            &Seed::from_os()?,
            "pronghorn 2026 opening of a client's keys",
        );
        out.extend(VERSION.to_le_bytes());
        let (root, levels) = (self.root.as_bytes(), self.shape.levels);
        let answered =
            all_but_one::respond(&session, root, levels, keys, &mut random.stream(0), out);
        self.pairs = Some(answered.map_err(ot_error)?);
        Ok(())
    }

    fn commit(&self, group: usize, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let strings = &self.strings[self.shape.groups().range(group)];
        let digests = strings.par_iter().map(|string| {
            let seed = Seed::from_bytes(*string);
            digest_of(&*self.sets, &seed)
        });
        let digests: Vec<_> = digests.collect::<Result<_, _>>()?;
        out.extend(digests.as_flattened());
        Ok(())
    }

    /// Takes the set that the server has left, and not one whose seed it has.
    fn choose(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let (number, proof) = message.split_at(1);
        let choice = usize::from(number[0]);
        let pairs = self.pairs.take();
        let is_missing = pairs.is_some_and(|pairs| pairs.check(choice, proof));
        match self.strings.get(choice).filter(|_| is_missing) {
            Some(&string) => {
                self.adopt(string);
                Ok(())
            }
            None => Err(refused("the server has chosen keys whose secret it has")),
        }
    }

    /// The bytes of the keys of its seed.
    fn lay_out(&mut self) -> Result<(), EngineError> {
        let seed = self.seed.get().ok_or(refused("its seed is missing"))?;
        let mut bytes = Vec::with_capacity(self.shape.key_bytes);
        self.sets
            .encode(&seed.0, &mut |part| bytes.extend_from_slice(part))?;
        self.bytes = bytes;
        Ok(())
    }

    /// Both parties have the keys.
    fn has_keys(&mut self) {
        if let Some(seed) = self.seed.spend(1) {
            let keys = Arc::new(self.sets.client(&seed.0));
            self.keys.put_for(keys, self.seed.left());
        }
    }
}

fn refused(reason: &'static str) -> EngineError {
    EngineError::Unsupported {
        step: STEP.to_owned(),
        reason,
    }
}

impl<S: KeySets> Protocol for KeysClient<S> {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            DIGEST_OF_KEYS => out.extend_from_slice(&self.digest()?),
            OPENING => self.open(out)?,
            COMMITMENTS => self.commit(turn.index, out)?,
            KEYS => {
                if turn.index == 0 {
                    self.lay_out()?;
                }
                out.extend_from_slice(&self.bytes[self.shape.pieces().range(turn.index)]);
                if turn.last {
                    self.bytes = Vec::new();
                    self.has_keys();
                }
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            WISH => self.take_wish(message),
            CHALLENGE => self.take_challenge(message),
            CHOICE => self.choose(message),
            _ => Err(turn.unknown()),
        }
    }

    fn is_due(&self, name: &'static str) -> bool {
        self.wish.is_due(name)
    }
}

fn ot_error(source: OtError) -> EngineError {
    EngineError::Ot {
        step: STEP.to_owned(),
        source,
    }
}
