//! What the server publishes to a client, once: for each output channel and tile of each layer `p =
//! sum_i f_i a_i + u a_0 + e`. Under `client-aided`, where clients have the weights, it is
//! `sum_i f_i a_i`.
//!
//! The client draws the seed that all `a` are expanded from. The server's `u` and `e` are a
//! function of that seed and of a secret of the server that is of one model alone, so it keeps
//! nothing for a client: on a later connection the client names the seed again, and has the
//! polynomials already. With another model's weights `u` and `e` are others, since the difference
//! of two publications with the same would be `(f - f') a`.
//!
//! Messages, in order:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the epoch, which names the server's secret without telling it | server | 32 |
//! | the client's seed, for how many images it names it now (4 bytes, little-endian), whether it wants the polynomials (0 or 1), and a digest of these and the epoch | client | 69 |
//! | a part of the polynomials, if it wants them: coefficients without their dropped bits, step by step | server | whole polynomials of one step, 1 MiB or one |
//! | the receipt, if it wants them: the digest of the epoch, of the request and of the polynomials | server | 32 |
//!
//! The digests bind a publication to the seed it was asked for. The server refuses a request that
//! the line has changed. The client keeps polynomials with their receipt, and uses none whose
//! receipt is of another epoch or seed: they would give wrong results for good.
//!
//! Each image takes a secret of its own with the same `a`. After the images of the second message,
//! at most [`PUBLICATION_GRANT`], which both parties count, the exchange comes again. A client that
//! has the polynomials in its store names the same seed, for
//! [`PUBLICATION_IMAGES`](pronghorn_plan::cost::PUBLICATION_IMAGES) at most. Without a store it
//! asks for others.

mod client;
mod server;

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_he::{RlweRing, rlwe, shares::Rerandomiser};
use pronghorn_plan::{
    CheckedPlan, Derived, Rlwe,
    cost::{MOST_READY, MOST_SECRETS, PUBLICATION_GRANT},
    steps::linear::coefficient::Layout,
};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
};
use rayon::prelude::*;
use zeroize::Zeroize;

pub use client::PublicationClient;
pub(crate) use client::{persistent, prelude as client_prelude};
pub(crate) use server::{Layers, prelude as server_prelude};

use crate::{
    batch::cut_rows,
    connection::{Connection, Kept},
    error::EngineError,
    exchange::{Message, Messages},
    secret::keyed,
};

/// Of what is published for a plan and its weights. To be raised when the code makes something else
/// of them, so that no secret of an earlier version hides two things behind the same numbers.
pub(crate) const VERSION: u32 = 2;

/// Bytes of an epoch, and of a seed.
const NAME: usize = 32;
/// Bytes of a digest, and of a receipt.
const DIGEST: usize = 32;
/// Bytes of the client's message.
const REQUEST_BYTES: usize = NAME + 5 + DIGEST;
/// Stands for the step in errors about the publication as a whole.
const STEP: &str = "the published polynomials";

const EPOCH: &str = "the epoch";
const REQUEST: &str = "the client's seed";
const PART: &str = "a part";
const RECEIPT: &str = "the receipt";

/// The published polynomials of a layer in the NTT domain, `[output channel][tile][coefficient]`.
#[derive(Clone)]
pub enum Polynomials {
    /// In 32-bit words.
    U32(Arc<Vec<u32>>),
    /// In 64-bit words.
    U64(Arc<Vec<u64>>),
}

/// What a client has of a publication.
#[derive(Clone)]
pub struct ClientPublication {
    /// Names the server's secret.
    pub epoch: [u8; NAME],
    /// Of all `a`.
    pub seed: [u8; NAME],
    cut: Arc<Cut>,
    /// Ready for use, by step: none where the step is of another engine, or all are too many.
    ready: Vec<Option<Polynomials>>,
    /// The polynomials as they came, with their receipt.
    pub bytes: Arc<Vec<u8>>,
}

/// What the server has of it. Secret: no Debug.
#[derive(Clone)]
pub struct ServerPublication {
    /// The client's.
    pub seed: [u8; NAME],
    rerandomiser: Arc<Seed>,
    secrets: Arc<Mutex<KeptSecrets>>,
}

/// Secrets of steps, as [`Secrets`] of their words, and the bytes of all.
#[derive(Default)]
struct KeptSecrets {
    steps: BTreeMap<usize, Arc<dyn Any + Send + Sync>>,
    bytes: u64,
}

/// The secrets `u` of a step in the NTT domain, `[published polynomial][coefficient]`; wiped on
/// drop.
pub(super) struct Secrets<W: Word>(pub Vec<W>);

impl<W: Word> Drop for Secrets<W> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<W: Word> Secrets<W> {
    /// Those of `rows` polynomials from `first` on.
    pub fn rows(&self, degree: usize, first: usize, rows: usize) -> &[W] {
        &self.0[first * degree..][..rows * degree]
    }
}

/// A publication that a client has from an earlier connection, to be offered on this one.
#[derive(Clone)]
pub(crate) struct Offered(pub ClientPublication);

/// The seed of a step, from one of the whole.
fn step_seed(seed: &Seed, domain: &'static str, step: usize) -> Seed {
    let mut bytes = [0; NAME];
    Prg::new(seed, domain).stream(step as u64).fill(&mut bytes);
    Seed::from_bytes(bytes)
}

/// The generator of the `a` of step `step`.
pub(super) fn generator(seed: &[u8; NAME], step: usize) -> Prg {
    let seed = Seed::from_bytes(*seed);
    rlwe::a_generator(&step_seed(&seed, "pronghorn 2026 publication: steps", step))
}

impl ClientPublication {
    /// The publication that a connection has.
    pub fn of(connection: &Connection) -> Option<Self> {
        connection.kept::<Kept<Self>>().get()
    }

    /// The generator of the `a` of step `step`, which both parties have, for
    /// [`expand_a`](pronghorn_he::rlwe::expand_a).
    pub fn generator(&self, step: usize) -> Prg {
        generator(&self.seed, step)
    }
}

impl ServerPublication {
    /// For a client's seed and the secret of a model.
    pub fn new(secret: &Seed, seed: [u8; NAME]) -> Self {
        Self {
            seed,
            rerandomiser: Arc::new(keyed(secret, &[&seed])),
            secrets: Arc::default(),
        }
    }

    /// The secrets of step `step`, which are kept for the batches to come; none where those of all
    /// steps would take more than [`MOST_SECRETS`].
    pub(super) fn secrets<W: Word>(
        &self,
        step: usize,
        ring: &RlweRing<W>,
        count: usize,
    ) -> Option<Arc<Secrets<W>>> {
        let lock = || self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = (count * ring.n() * size_of::<W>()) as u64;
        {
            let mut kept = lock();
            if let Some(found) = kept.steps.get(&step) {
                return found.clone().downcast().ok();
            }
            let all = kept.bytes.checked_add(bytes);
            kept.bytes = all.filter(|&all| all <= MOST_SECRETS)?;
        }
        let mut words = vec![W::default(); count * ring.n()];
        let rerandomiser = self.rerandomiser(step);
        words
            .par_chunks_exact_mut(ring.n())
            .enumerate()
            .for_each(|(row, secret)| rerandomiser.secrets(ring, row as u64, secret));
        let made = Arc::new(Secrets(words));
        lock().steps.insert(step, made.clone());
        Some(made)
    }

    /// What hides step `step`.
    pub(super) fn rerandomiser(&self, step: usize) -> Rerandomiser {
        let domain = "pronghorn 2026 publication: answers of steps";
        Rerandomiser::new(&step_seed(&self.rerandomiser, domain, step))
    }
}

/// The epoch of a model's secret.
pub(crate) fn epoch(secret: &Seed) -> [u8; NAME] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 publication epoch");
    hasher.update(secret.as_bytes());
    let mut hash = hasher.finalize();
    let epoch = *hash.as_bytes();
    hash.zeroize();
    hasher.zeroize();
    epoch
}

/// The polynomials of a step, and how they are sent.
#[derive(Clone)]
pub(crate) struct Rows {
    step: usize,
    name: String,
    rlwe: Rlwe,
    layout: Arc<Layout>,
    count: usize,
    /// Whether they hide the weights from the client.
    hidden: bool,
}

impl Rows {
    fn all(plan: &CheckedPlan) -> Vec<Self> {
        let rows = plan.steps.iter().enumerate().filter_map(|(index, step)| {
            let (Some(rlwe), Derived::Polynomials(layout)) =
                (step.kind.as_step().rlwe(), plan.derived(index))
            else {
                return None;
            };
            Some(Self {
                step: index,
                name: plan.step_name(index),
                rlwe: *rlwe,
                count: layout.published(),
                hidden: plan.trust.shares(),
                layout: layout.clone(),
            })
        });
        rows.collect()
    }

    fn bytes(&self) -> usize {
        self.rlwe.answer_bytes_a()
    }
}

/// The rows of all steps, cut into messages.
struct Cut {
    steps: Vec<Rows>,
    /// Index in `steps`, and the rows, of each message.
    parts: Vec<(usize, Range<usize>)>,
    /// Bytes of all messages.
    bytes: usize,
    /// Whether the client keeps all ready for use.
    is_ready: bool,
}

impl Cut {
    fn new(plan: &CheckedPlan) -> Self {
        let steps = Rows::all(plan);
        let parts = steps.iter().enumerate().flat_map(|(step, rows)| {
            let ranges = cut_rows(rows.count, rows.bytes()).ranges();
            ranges.map(move |range| (step, range))
        });
        Self {
            parts: parts.collect(),
            bytes: steps.iter().map(|rows| rows.count * rows.bytes()).sum(),
            is_ready: plan.once().polynomials <= MOST_READY,
            steps,
        }
    }

    /// The rows of a step, and the bytes of those before.
    fn of_step(&self, step: usize) -> Option<(&Rows, usize)> {
        let at = self.steps.iter().position(|rows| rows.step == step)?;
        let (before, rows) = self.steps.split_at(at);
        let before = before.iter().map(|rows| rows.count * rows.bytes());
        Some((&rows[0], before.sum()))
    }

    /// The rows of a message.
    fn part(&self, index: usize) -> (&Rows, Range<usize>) {
        let (step, range) = &self.parts[index];
        (&self.steps[*step], range.clone())
    }

    /// The bytes of each message.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        let parts = self.parts.iter();
        parts.map(|(step, range)| range.len() * self.steps[*step].bytes())
    }

    /// All messages.
    fn messages(&self) -> Messages {
        let parts = self.lengths().zip(&self.parts).map(|(bytes, (_, range))| {
            let part = Message::server(PART, bytes);
            part.rows(range.len()).optional()
        });
        Messages::new(STEP)
            .with(Message::server(EPOCH, NAME))
            .with(Message::client(REQUEST, REQUEST_BYTES))
            .with_all(parts)
            .with(Message::server(RECEIPT, DIGEST).optional())
    }
}

/// The names of a plan's messages, as its table has them.
#[cfg(test)]
pub(super) fn names(plan: &CheckedPlan) -> Vec<&'static str> {
    crate::exchange::tests::names(&Cut::new(plan).messages()).collect()
}

/// The fields of a request.
fn request_fields(seed: &[u8; NAME], images: usize, wanted: bool) -> [u8; REQUEST_BYTES - DIGEST] {
    let mut fields = [0; REQUEST_BYTES - DIGEST];
    fields[..NAME].copy_from_slice(seed);
    fields[NAME..NAME + 4].copy_from_slice(&(images as u32).to_le_bytes());
    fields[NAME + 4] = u8::from(wanted);
    fields
}

/// Both parties' digest of a request under an epoch, and of the polynomials that answer it.
pub(super) struct Bound(blake3::Hasher);

impl Bound {
    pub(super) fn new(epoch: &[u8; NAME], fields: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 publication: request");
        hasher.update(epoch);
        hasher.update(fields);
        Self(hasher)
    }

    /// The request of whoever wants polynomials.
    fn fetching(epoch: &[u8; NAME], seed: &[u8; NAME]) -> Self {
        Self::new(epoch, &request_fields(seed, PUBLICATION_GRANT, true))
    }

    fn add(&mut self, polynomials: &[u8]) {
        self.0.update(polynomials);
    }

    pub(super) fn digest(&self) -> [u8; DIGEST] {
        *self.0.finalize().as_bytes()
    }

    fn check(&self, digest: &[u8]) -> Result<(), EngineError> {
        match digest == self.digest() {
            true => Ok(()),
            false => Err(EngineError::Damaged { message: STEP }),
        }
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

pub(super) fn ring<W: Word>(rlwe: &Rlwe, step: &str) -> Result<RlweRing<W>, EngineError> {
    RlweRing::new(rlwe.degree, rlwe.modulus).map_err(|source| EngineError::Parameters {
        step: step.to_owned(),
        source,
    })
}
