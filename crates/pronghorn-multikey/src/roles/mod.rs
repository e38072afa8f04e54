//! The three roles as state machines without input and output: bytes go in, bytes come out.
//!
//! ```text
//! model owner                     cloud                          client
//!     │ publication: description,    │                              │
//!     │ public keys, model           │                              │
//!     ├─────────────────────────────▶│ offer: description,          │
//!     │                              │ owner's encryption key       │
//!     │                              ├─────────────────────────────▶│
//!     │ introduction: the client's   │ introduction                 │
//!     │ encryption key               │◀─────────────────────────────┤
//!     │◀─────────────────────────────┤                              │
//!     │ key of the pair              │ if admitted: public keys     │
//!     ├─────────────────────────────▶│◀─────────────────────────────┤   once
//!  ───┼──────────────────────────────┼──────────────────────────────┼──
//!     │                              │ request: the encrypted image │   each image
//!     │ outcome: the result          │◀─────────────────────────────┤
//!     │ under both keys              │ outcome                      │
//!     │◀─────────────────────────────┼─────────────────────────────▶│
//!     │ answer: contribution and     │                              │
//!     │ partial decryption           │                              │
//!     ├──────────────────────────────┼─────────────────────────────▶│ result
//! ```
//!
//! The cloud passes on what it need not read. The client's partial decryption stays with the
//! client, so nobody else can complete a decryption. The model owner must be reachable after each
//! image, for one message. The client may be away while the cloud computes.
//!
//! # Why the client contributes nothing
//!
//! The owner's contribution, an encryption of zero under both keys, masks what its share would tell
//! the cloud. Whoever may add to the outcome after it can take it off: a cloud that forged the
//! client's contribution as minus the owner's, or a client that added `q / 4` at the owner's part,
//! read the owner's secret key off one result. A contribution of the client would protect nobody,
//! since its share never leaves it. So there is none.
//!
//! # Who is believed
//!
//! A party's name is the hash of its encryption key. The model owner decrypts for clients whose
//! names it was given ([`Owner::admit`]), and a client talks to the owner whose name it was given:
//! names must come by a way that the cloud does not control. Without that the cloud could be its
//! own client.
//!
//! The common reference string is a hash of the whole [`Description`], and names are hashes of keys
//! under it. So an owner's name stands for one architecture, its bounds, primes, range and error: a
//! cloud that changes any of them has no key of that name to show.
//!
//! # What colluding parties learn
//!
//! * **Cloud alone**: nothing but shapes, and that there was a request.
//! * **Cloud and model owner**: nothing of inputs. The client's share of a decryption never leaves
//!   it.
//! * **Cloud and a client that the owner has admitted**: the owner's secret key, and with it every
//!   weight, from one result. The owner cannot tell a result of its model from a ciphertext of
//!   their choice. Admit clients and a cloud that do not collude.
//! * **Model owner and client**: what they have together.
//!
//! All parties are semi-honest beyond these checks. A party that sends wrong shares spoils a
//! result.
//!
//! Nothing checks a client's public keys for evaluation. They may be false, and never meet the
//! owner's secret: the owner makes the key of the pair itself, and the cloud gives the client's
//! polynomials fresh randomness before keys of the client's meet them.
//! [`PairKey`](pronghorn_he::multikey::PairKey) has the argument and its assumptions. What false
//! keys change is the client's own values, as an input out of range does. A client that sends
//! values out of range may learn more than its results: floods cover the stated range alone.

mod client;
mod cloud;
mod local;
mod messages;
mod owner;
mod summary;

use std::sync::Arc;

use pronghorn_graph::{
    finish::{Finish, shape_after},
    names::is_shown,
    polynomial::PolyGraph,
};
use pronghorn_he::{
    ckks::{self, Parameters, wire::packed_len},
    multikey::{
        Ciphertext, EncryptionRing, MultiKeyError, Party, Rule,
        wire::{ResumeError, WireError},
    },
};
use pronghorn_ring::{Word, random::RandomError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use client::Client;
pub use cloud::{PartyKeys, Service};
pub use local::Local;
pub use owner::Owner;
pub use summary::Summary;

use crate::{Aim, Bounds, Chain, Network, NetworkError, Op, Program, Setting};

/// What all parties agree on: the architecture, the primes, and how many results a key of the model
/// owner decrypts. Public.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The architecture.
    pub network: Network,
    /// What its owner proves of it.
    pub bounds: Bounds,
    /// What a client has to know of inputs and results.
    pub face: Face,
    /// The primes.
    pub chain: Chain,
    /// Results of a key.
    pub results: u64,
    /// Random bytes of the model owner's, so that no two models have one common reference string.
    pub nonce: [u8; 32],
}

/// The shapes of inputs and results, the client's operations on the result, and names of classes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Face {
    /// Of an input.
    pub input: Vec<usize>,
    /// Of a result, before `finish`.
    pub output: Vec<usize>,
    /// The client's operations on the result, in floating point.
    pub finish: Vec<Finish>,
    /// The model's names of its classes; none where they are their indices.
    pub class_names: Vec<String>,
}

impl Face {
    /// Of a network with weights.
    pub fn of(graph: &PolyGraph) -> Self {
        Self {
            input: graph.nodes[0].shape.clone(),
            output: graph.result().shape.clone(),
            finish: graph.finish.clone(),
            class_names: graph.class_names.clone(),
        }
    }

    /// The shape of a result after the client's operations.
    pub fn output_shape(&self) -> Vec<usize> {
        shape_after(&self.finish, &self.output).unwrap_or_else(|| self.output.clone())
    }

    /// Refuses shapes that are not the network's, and names that cannot be printed.
    fn check(&self, network: &Network) -> Result<(), NetworkError> {
        let ends = [(&self.input, 0), (&self.output, network.output)];
        for (shape, node) in ends {
            let Some(node) = network.nodes.get(node) else {
                return Err(NetworkError::NoProducts);
            };
            let product = (shape.iter()).try_fold(1usize, |all, &axis| all.checked_mul(axis));
            if shape.len() > MOST_AXES || product != Some(node.elements) {
                let node = node.name.clone();
                return Err(NetworkError::Shape { node });
            }
        }
        if shape_after(&self.finish, &self.output).is_none() {
            let node = network.nodes[network.output].name.clone();
            return Err(NetworkError::Shape { node });
        }
        if !self.class_names.iter().all(|name| is_shown(name)) {
            return Err(NetworkError::Names);
        }
        match self.finish.len() {
            0..=MOST_AXES => Ok(()),
            found => Err(NetworkError::Count {
                what: "operations on the result",
                found,
                expected: MOST_AXES,
            }),
        }
    }
}

/// A description with all that follows from it. A cheap handle.
#[derive(Clone)]
pub struct Terms<W: Word> {
    /// The description.
    pub description: Arc<Description>,
    /// The program.
    pub program: Arc<Program>,
    /// Primes, levels and scales. The common reference string is a hash of the whole description.
    /// So nobody chose it, and names of parties, which follow from it, stand for one description.
    pub setting: Setting<W>,
    /// The rule of decryption.
    pub rule: Rule<W>,
}

/// Why a message is refused; the state stays as it was.
#[derive(Debug, Error)]
pub enum RoleError {
    /// Bytes that are no such message.
    #[error("the {what} is damaged: {reason}")]
    Message {
        /// The message.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A client that the owner does not decrypt for.
    #[error("client {party} is not admitted; check its name with its owner, then admit it")]
    NotAdmitted {
        /// The client.
        party: Party,
    },
    /// Another owner than expected.
    #[error("the model belongs to {found}, not to {expected}; the cloud offers another model")]
    OtherOwner {
        /// Whose it is.
        found: Party,
        /// Whose it should be.
        expected: Party,
    },
    /// A result that is not under the keys of the owner and the client.
    #[error(
        "the result is not under the keys of the model owner and client {client}, and theirs alone"
    )]
    OtherParties {
        /// The client.
        client: Party,
    },
    /// A message out of turn.
    #[error("the {what} has no {before} before it; send them in order")]
    Turn {
        /// The message.
        what: &'static str,
        /// What is missing.
        before: &'static str,
    },
    /// Weights of another network than the keys are for.
    #[error(
        "these weights are of another network than the keys, or beyond its bounds: use the model that the keys were made \
         for, or make new keys"
    )]
    OtherNetwork,
    /// Refused by the network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Refused by the scheme.
    #[error(transparent)]
    MultiKey(#[from] MultiKeyError),
    /// A ledger that is not this party's.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// A description and its ring: enough to know whose it is, before its network is planned.
pub(crate) struct Described<W: Word> {
    description: Description,
    setting: Setting<W>,
}

impl<W: Word> Described<W> {
    /// Of a description that may come from anyone.
    pub fn new(description: Description) -> Result<Self, NetworkError> {
        description.check()?;
        let setting = Setting::new(description.chain.clone(), reference(&description))?;
        Ok(Self {
            description,
            setting,
        })
    }

    /// The ring.
    pub fn ring(&self) -> &Parameters<W> {
        self.setting.ring()
    }

    /// The name of the party with this encryption key.
    pub fn name_of(&self, key: ckks::PublicKey<W>) -> Result<Party, MultiKeyError> {
        EncryptionRing::new(self.setting.common()).insert(key)
    }

    /// All that follows from it.
    pub fn terms(self) -> Result<Terms<W>, NetworkError> {
        let Description {
            network,
            bounds,
            chain,
            results,
            ..
        } = &self.description;
        let program = Program::new(network.clone(), chain.degree / 2)?;
        let rule = self.setting.rule(&program, bounds, *results)?;
        Ok(Terms {
            program: Arc::new(program),
            description: Arc::new(self.description),
            setting: self.setting,
            rule,
        })
    }
}

impl<W: Word> Terms<W> {
    /// Of a network, with primes for an error and a number of results, and random bytes that no
    /// other model has.
    ///
    /// # Errors
    /// When there are no such primes.
    pub fn choose(graph: &PolyGraph, aim: Aim, nonce: [u8; 32]) -> Result<Self, NetworkError> {
        // The primes do not depend on the seed.
        let chosen = aim.choose::<W>(graph, [0; 32])?;
        let (setting, bounds) = (chosen.setting, chosen.bounds);
        Self::new(Description {
            network: Network::of(graph).without_names(),
            bounds,
            face: Face::of(graph),
            chain: setting.chain().clone(),
            results: aim.results,
            nonce,
        })
    }

    /// All that follows from a description, which may come from anyone.
    ///
    /// # Errors
    /// When the network has no program, the primes do not have 128 bits of security, or floods do
    /// not fit.
    pub fn new(description: Description) -> Result<Self, NetworkError> {
        Described::new(description)?.terms()
    }

    /// Most bytes of any message but the publication, an offer, and public keys: of an encryption
    /// key, an encrypted image, and all that decryptions exchange.
    pub fn most_message_bytes(&self) -> usize {
        let ring = self.setting.ring();
        let polynomial = packed_len(ring, ring.limbs());
        let inputs = self.program.counts().inputs * (polynomial + OBJECT);
        let outputs = self.outputs() * (4 * polynomial + 2 * OBJECT);
        let key = packed_len(ring, ring.basis().limbs()) + OBJECT;
        64 + inputs.max(outputs).max(key)
    }

    /// The least and the largest element of an input.
    pub fn range(&self) -> [f64; 2] {
        match self.program.network.nodes[0].op {
            Op::Input { low, reach } => [low, reach],
            _ => [0.0; 2],
        }
    }

    /// The largest error of an element of a result.
    ///
    /// # Errors
    /// Never for terms that were made.
    pub fn error(&self) -> Result<f64, NetworkError> {
        let bounds = &self.description.bounds;
        self.setting.error(&self.program, bounds, &self.rule)
    }

    /// Ciphertexts of a result.
    fn outputs(&self) -> usize {
        let Program { steps, network, .. } = &*self.program;
        steps[network.output].layout.ciphertexts()
    }

    /// A result under the keys of exactly these parties, at the level and scale of results.
    fn check_outcome(
        &self,
        result: &[Ciphertext<W>],
        owner: Party,
        client: Party,
    ) -> Result<(), RoleError> {
        let mut parties = [owner, client];
        parties.sort_unstable();
        let both = |x: &Ciphertext<W>| x.parties() == parties && owner != client;
        if !result.iter().all(both) {
            return Err(RoleError::OtherParties { client });
        }
        let fits = |x: &Ciphertext<W>| {
            x.limbs() == self.setting.limbs(0) && x.scale() == self.setting.scale(0)
        };
        if result.len() == self.outputs() && result.iter().all(fits) {
            return Ok(());
        }
        Err(RoleError::Message {
            what: "outcome",
            reason: "another number of ciphertexts, limbs or another scale than the program's"
                .into(),
        })
    }
}

/// Largest sizes of a description that comes from elsewhere: half a gigabyte of packings.
const MOST_NODES: usize = 1 << 10;
const MOST_INPUTS: usize = 1 << 14;
const MOST_ELEMENTS: usize = 1 << 22;
const MOST_WEIGHTS: usize = 1 << 23;
const MOST_PRIMES: usize = 64;
const MOST_AXES: usize = 8;
/// Bytes of an encoded object beside its polynomials, at most.
const OBJECT: usize = 512;

impl Description {
    /// Refuses descriptions that would take too much memory.
    fn check(&self) -> Result<(), NetworkError> {
        let Chain {
            base,
            level,
            levels,
            special,
            ..
        } = &self.chain;
        let primes = (level.len().checked_mul(*levels))
            .and_then(|of_levels| of_levels.checked_add(base.len() + special.len()));
        let elements = (self.network.nodes.iter())
            .map(|node| node.elements)
            .fold(0, usize::saturating_add);
        let weights: usize = (self.network.nodes.iter())
            .map(|node| node.op.weights())
            .fold(0, usize::saturating_add);
        let inputs = (self.network.nodes.iter())
            .map(|node| node.inputs.len())
            .fold(0, usize::saturating_add);
        let limits = [
            ("nodes of the network", self.network.nodes.len(), MOST_NODES),
            ("inputs of all nodes", inputs, MOST_INPUTS),
            ("elements of all values", elements, MOST_ELEMENTS),
            ("weights of all outputs", weights, MOST_WEIGHTS),
            ("primes", primes.unwrap_or(usize::MAX), MOST_PRIMES),
        ];
        let found = limits.into_iter().find(|(_, found, limit)| found > limit);
        match found {
            Some((what, found, expected)) => Err(NetworkError::Count {
                what,
                found,
                expected,
            }),
            None => self
                .face
                .check(&self.network)
                .and_then(|()| self.chain.check()),
        }
    }
}

/// The seed of the common reference string: a hash of the description.
fn reference(description: &Description) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 multi-key common reference");
    hasher.update(&messages::encode(description));
    *hasher.finalize().as_bytes()
}

/// A wire error of one message.
fn damaged(what: &'static str) -> impl Fn(WireError) -> RoleError {
    move |error| RoleError::Message {
        what,
        reason: error.to_string(),
    }
}
