//! The model owner's half.

use std::sync::Arc;

use pronghorn_mpc::ot::all_but_one::{Missing, Receiver};
use pronghorn_ring::random::{Prg, Seed};
use rayon::prelude::*;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use super::{
    CHALLENGE, CHOICE, COMMITMENTS, DIGEST, DIGEST_OF_KEYS, KEYS, KeyCache, KeySets, OPENING, STEP,
    Shape, VERSION, WISH, Wish, digest_of, hasher, most_batches, session,
};
use crate::{
    connection::{Connection, Kept},
    error::EngineError,
    exchange::{Exchange, Party, Protocol, Turn},
    machine::Exchanging,
    protocol::{Prelude, PreludeKind},
};

/// The server's prelude.
pub(crate) struct ServerKeys<S>(pub Arc<S>);

impl<S: KeySets> Prelude for ServerKeys<S> {
    fn kind(&self) -> PreludeKind {
        PreludeKind::ClientKeys
    }

    fn start(
        &self,
        connection: &Connection,
        _batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        let keys = connection.kept::<Kept<Arc<S::Server>>>();
        if keys.spend(1).is_some() && self.counts(connection) {
            return Ok(None);
        }
        keys.take();
        let machine = KeysServer::new(self.0.clone(), connection, keys);
        Ok(Some(Box::new(machine)))
    }
}

impl<S: KeySets> ServerKeys<S> {
    /// Counts a use over all connections, if the connection's keys have one left.
    fn counts(&self, connection: &Connection) -> bool {
        let served = connection.kept::<Kept<Served>>().get();
        let Some(Served(digest)) = served.filter(|_| S::KEPT) else {
            return true;
        };
        let cache: KeyCache<S::Server> = connection.shared();
        cache.count(&digest, 1, most_batches(self.0.plan())).is_ok()
    }
}

/// The digest of the keys of a connection, by which uses are counted over connections.
#[derive(Clone, Copy)]
struct Served([u8; DIGEST]);

/// The server's half: fills its slot, from the cache or with what comes.
struct KeysServer<S: KeySets> {
    sets: Arc<S>,
    shape: Shape,
    binding: Option<[u8; 32]>,
    /// Whose the keys are.
    owner: [u8; 16],
    cache: KeyCache<S::Server>,
    slot: Kept<Arc<S::Server>>,
    served: Kept<Served>,
    /// Batches that a set serves.
    most: usize,
    wish: Wish,
    cut: Cut,
    /// Of the keys that come.
    digest: [u8; DIGEST],
    bytes: Vec<u8>,
}

/// How far the cut is. Secret: no Debug.
enum Cut {
    Before,
    Challenged(Receiver),
    Opened(Opened),
}

/// All seeds but one, and the digests of all sets so far.
struct Opened {
    seeds: Zeroizing<Vec<[u8; 32]>>,
    missing: Missing,
    digests: Vec<[u8; DIGEST]>,
}

const NO_CUT: EngineError = EngineError::OutOfTurn {
    state: "has no opened keys",
};

impl<S: KeySets> KeysServer<S> {
    fn new(sets: Arc<S>, connection: &Connection, slot: Kept<Arc<S::Server>>) -> Exchange<Self> {
        let shape = Shape::of(&*sets);
        let server = Self {
            most: most_batches(sets.plan()),
            served: connection.kept(),
            sets,
            shape,
            binding: connection.binding(),
            owner: connection.owner(),
            cache: connection.shared(),
            slot,
            wish: Wish::Cut,
            cut: Cut::Before,
            digest: [0; DIGEST],
            bytes: Vec::new(),
        };
        Exchange::new(shape.messages(), server)
    }

    /// Keys that are used up are replaced by new ones.
    fn take_digest(&mut self, message: &[u8]) -> Result<(), EngineError> {
        self.digest.copy_from_slice(message);
        let left = self.cache.left(&self.digest, self.most);
        self.wish = match (left, self.cache.get(&self.digest)) {
            (Some(0), _) => Wish::Cut,
            (Some(_), Some(keys)) => {
                self.serve(keys)?;
                Wish::Nothing
            }
            (Some(_), None) => Wish::Keys,
            (None, _) => Wish::Cut,
        };
        Ok(())
    }

    /// Keys serve this connection, and its batch.
    fn serve(&mut self, keys: Arc<S::Server>) -> Result<(), EngineError> {
        let mut left = self.most - 1;
        if S::KEPT {
            left = self.cache.count(&self.digest, 1, self.most)?;
            self.served.put(Served(self.digest));
        }
        self.slot.put_for(keys, left);
        Ok(())
    }

    fn challenge(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let random = Prg::new(
            &Seed::from_os()?,
            "pronghorn 2026 challenge to a client's keys",
        );
        let mut nonce = [0; DIGEST];
        random.stream(0).fill(&mut nonce);
        out.extend(nonce);
        let session = session(self.sets.plan(), self.binding, &nonce);
        let stream = &mut random.stream(1);
        self.cut = Cut::Challenged(Receiver::start(&session, self.shape.levels, stream, out));
        Ok(())
    }

    fn take_opening(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let (version, message) = message.split_at(size_of_val(&VERSION));
        if version != VERSION.to_le_bytes() {
            return Err(EngineError::Unsupported {
                step: STEP.to_owned(),
                reason: "another version of pronghorn has made them: use the same on both sides",
            });
        }
        let Cut::Challenged(receiver) = std::mem::replace(&mut self.cut, Cut::Before) else {
            return Err(NO_CUT);
        };
        let opened = receiver.finish(message);
        let (mut seeds, missing) = opened.map_err(|source| EngineError::Ot {
            step: STEP.to_owned(),
            source,
        })?;
        let mut filler = Zeroizing::new([0; 32]);
        let random = Prg::new(&Seed::from_os()?, "pronghorn 2026 filler of a cut");
        random.stream(0).fill(&mut *filler);
        for (number, seed) in seeds.iter_mut().enumerate() {
            seed.conditional_assign(&filler, missing.is(number));
        }
        let digests = Vec::with_capacity(seeds.len());
        self.cut = Cut::Opened(Opened {
            seeds,
            missing,
            digests,
        });
        Ok(())
    }

    /// Makes the sets of these commitments anew. One is made in the place of the missing seed's,
    /// too: the time tells nothing of which that is.
    fn check(&mut self, group: usize, message: &[u8]) -> Result<(), EngineError> {
        let Cut::Opened(opened) = &mut self.cut else {
            return Err(NO_CUT);
        };
        let (digests, _) = message.as_chunks::<DIGEST>();
        let sets = self.shape.groups().range(group);
        let missing = &opened.missing;
        let good = digests.par_iter().zip(sets).map(|(digest, set)| {
            let seed = Seed::from_bytes(opened.seeds[set]);
            let made = digest_of(&*self.sets, &seed)?;
            Ok(made.ct_eq(digest) | missing.is(set))
        });
        let good: Vec<Choice> = good.collect::<Result<_, EngineError>>()?;
        let good = good.into_iter().fold(Choice::from(1), |all, one| all & one);
        opened.digests.extend(digests);
        match bool::from(good) {
            true => Ok(()),
            false => Err(EngineError::FalseKeys),
        }
    }

    /// Says which set is used, when all others are checked.
    fn choose(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Cut::Opened(opened) = &self.cut else {
            return Err(NO_CUT);
        };
        let choice = opened.missing.reveal();
        self.digest = opened.digests[choice];
        out.push(choice as u8);
        out.extend(opened.missing.proof());
        self.cut = Cut::Before;
        Ok(())
    }

    fn take_piece(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.bytes.extend_from_slice(message);
        if !turn.last {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut hasher = hasher(self.sets.plan());
        hasher.update(&bytes);
        let digest = hasher.finalize();
        match self.wish {
            // Nobody has named them yet.
            Wish::Cut if !self.shape.is_checked() => self.digest = *digest.as_bytes(),
            _ if digest != self.digest => return Err(EngineError::FalseKeys),
            _ => {}
        }
        let keys = Arc::new(self.sets.server(&bytes)?);
        if S::KEPT {
            let length = bytes.len() as u64;
            self.cache
                .put(self.owner, self.digest, length, keys.clone());
        }
        self.serve(keys)
    }
}

impl<S: KeySets> Protocol for KeysServer<S> {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            DIGEST_OF_KEYS => self.take_digest(message),
            OPENING => self.take_opening(message),
            COMMITMENTS => self.check(turn.index, message),
            KEYS => self.take_piece(turn, message),
            _ => Err(turn.unknown()),
        }
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            WISH => out.push(self.wish as u8),
            CHALLENGE => self.challenge(out)?,
            CHOICE => self.choose(out)?,
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn is_due(&self, name: &'static str) -> bool {
        self.wish.is_due(name)
    }
}
