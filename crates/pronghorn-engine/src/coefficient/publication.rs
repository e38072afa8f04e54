//! What the server publishes to a client, once: for each output channel and tile of each layer `p = sum_i f_i a_i + u a_0 + e`.
//!
//! The client draws the seed that all `a` are expanded from. The server's `u` and `e` are a function of that seed and of a secret of the server that is
//! of one model alone, so it keeps nothing for a client: on a later connection the client names the seed again, and has the polynomials already.
//! With another model's weights `u` and `e` are others, since the difference of two publications with the same would be `(f - f') a`.
//!
//! Messages, in order:
//! 1. server: 32 bytes, the epoch, which names its secret without telling it;
//! 2. client: its seed (32 bytes), for how many images it names it now (4, little-endian), whether the polynomials are to be sent (1: 0 or 1), and the
//!    digest of the epoch and these fields (32);
//! 3. server, if so: the polynomials' coefficients without their dropped bits, some in each message, step by step;
//! 4. server, if it sent some: the receipt, which is the digest of the epoch, of the request that it served, and of the polynomials (32 bytes).
//!
//! The digests bind what is published to the seed it was asked for. The server refuses a request that the line has changed. The client keeps polynomials
//! with their receipt, and uses none whose receipt is of another epoch or seed: they would give wrong results for good.
//!
//! Each image takes a secret of its own with the same `a`. After the images of message 2, at most [`PUBLICATION_GRANT`], which both parties count, the
//! exchange comes again, and the client names the same seed for [`PUBLICATION_IMAGES`](pronghorn_plan::cost::PUBLICATION_IMAGES) at most.

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_he::{
    RlweRing, rlwe,
    shares::{HideScratch, Rerandomiser},
};
use pronghorn_plan::{
    LinearPlan, Plan, WordSize,
    coefficient::Layout,
    cost::{MOST_SECRETS, PUBLICATION_GRANT},
};
use pronghorn_ring::{
    Word, bits,
    random::{Prg, Seed},
};
use rayon::prelude::*;
use zeroize::Zeroize;

use super::server::PreparedLayer;
use crate::{
    batch::rows_per_message,
    error::EngineError,
    machine::{Machine, Progress, Want},
};

/// Of what is published for a plan and its weights. To be raised when the code makes something else of them, so that no secret of an earlier version hides
/// two things behind the same numbers.
pub(crate) const PUBLICATION_VERSION: u32 = 1;

/// Bytes of an epoch, and of a seed.
const NAME: usize = 32;
/// Bytes of a digest, and of a receipt.
const DIGEST: usize = 32;
/// Bytes of the client's message.
const REQUEST: usize = NAME + 5 + DIGEST;
/// Stands for the step in errors about the publication as a whole.
const STEP: &str = "the published polynomials";

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
    /// By step; none where the step is of another engine.
    pub steps: Vec<Option<Polynomials>>,
    /// The polynomials as they came and their receipt, to be stored.
    pub bytes: Arc<Vec<u8>>,
}

/// What the server has of it. Secret: no Debug.
#[derive(Clone)]
pub struct ServerPublication {
    /// The client's.
    pub seed: [u8; NAME],
    rerandomiser: Arc<Seed>,
    secrets: Arc<Mutex<Kept>>,
}

/// Secrets of steps, as [`Secrets`] of their words, and the bytes of all.
#[derive(Default)]
struct Kept {
    steps: BTreeMap<usize, Arc<dyn Any + Send + Sync>>,
    bytes: u64,
}

/// The secrets `u` of a step in the NTT domain, `[published polynomial][coefficient]`; wiped on drop.
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

/// A publication of a connection, and how many more images it serves. Clones share it.
pub struct Slot<T>(Arc<Mutex<Option<(T, usize)>>>);

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

impl<T: Clone> Slot<T> {
    fn with<U>(&self, f: impl FnOnce(&mut Option<(T, usize)>) -> U) -> U {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Fills it, for so many images.
    pub fn put(&self, publication: T, images: usize) {
        self.with(|slot| *slot = Some((publication, images)));
    }

    /// What is there, for whatever number of images.
    pub fn get(&self) -> Option<T> {
        self.with(|slot| slot.as_ref().map(|(publication, _)| publication.clone()))
    }

    /// What is there with the images it serves, and leaves nothing.
    pub fn take(&self) -> Option<(T, usize)> {
        self.with(Option::take)
    }

    /// Counts the images of a batch. False where there is nothing that serves so many: then it is empty, and to be filled before the batch.
    pub fn count(&self, images: usize) -> bool {
        self.with(|slot| match slot {
            Some((_, left)) if *left >= images => {
                *left -= images;
                true
            }
            _ => {
                *slot = None;
                false
            }
        })
    }
}

/// The seed of a step, from one of the whole.
fn step_seed(seed: &Seed, domain: &'static str, step: usize) -> Seed {
    let mut bytes = [0; NAME];
    Prg::new(seed, domain).stream(step as u64).fill(&mut bytes);
    Seed::from_bytes(bytes)
}

/// What expands the `a` of step `step`.
pub(crate) fn generator(seed: &[u8; NAME], step: usize) -> Prg {
    let seed = Seed::from_bytes(*seed);
    rlwe::a_generator(&step_seed(&seed, "pronghorn 2026 publication: steps", step))
}

impl ServerPublication {
    /// For a client's seed and the secret of a model.
    pub fn new(secret: &Seed, seed: [u8; NAME]) -> Self {
        let rerandomiser = blake3::keyed_hash(secret.as_bytes(), &seed);
        Self {
            seed,
            rerandomiser: Arc::new(Seed::from_bytes(*rerandomiser.as_bytes())),
            secrets: Arc::default(),
        }
    }

    /// The secrets of step `step`, which are kept for the batches to come; none where those of all steps would take more than [`MOST_SECRETS`].
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
    blake3::derive_key("pronghorn 2026 publication epoch", secret.as_bytes())
}

/// The polynomials of a step, and how they are sent.
#[derive(Clone)]
struct Rows {
    step: usize,
    name: String,
    linear: LinearPlan,
    layout: Layout,
    count: usize,
}

impl Rows {
    fn all(plan: &Plan) -> Vec<Self> {
        let rows = plan.linear_steps().filter_map(|(index, step, linear)| {
            let layout = linear.layout()?;
            Some(Self {
                step: index,
                name: step.name.clone(),
                linear: linear.clone(),
                count: layout.published(),
                layout,
            })
        });
        rows.collect()
    }

    fn bytes(&self) -> usize {
        self.linear.published_polynomial_bytes()
    }
}

/// Which rows of which step a message has.
struct Messages {
    steps: Vec<Rows>,
    /// Index in `steps`, and the first row.
    next: (usize, usize),
    done: u64,
}

impl Messages {
    fn new(plan: &Plan) -> Self {
        Self {
            steps: Rows::all(plan),
            next: (0, 0),
            done: 0,
        }
    }

    /// The next message's rows.
    fn current(&self) -> Option<(&Rows, Range<usize>)> {
        let (step, first) = self.next;
        let rows = self.steps.get(step)?;
        let end = rows.count.min(first + rows_per_message(rows.bytes()));
        Some((rows, first..end))
    }

    fn advance(&mut self) {
        let Some((count, range)) = self.current().map(|(rows, range)| (rows.count, range)) else {
            return;
        };
        self.done += range.len() as u64;
        self.next = if range.end == count {
            (self.next.0 + 1, 0)
        } else {
            (self.next.0, range.end)
        };
    }

    fn bytes(&self) -> usize {
        self.current()
            .map_or(0, |(rows, range)| range.len() * rows.bytes())
    }

    fn progress(&self) -> Progress {
        Progress {
            done: self.done,
            total: self.steps.iter().map(|rows| rows.count as u64).sum(),
        }
    }
}

/// The fields of a request.
fn request_fields(seed: &[u8; NAME], images: usize, wanted: bool) -> [u8; REQUEST - DIGEST] {
    let mut fields = [0; REQUEST - DIGEST];
    fields[..NAME].copy_from_slice(seed);
    fields[NAME..NAME + 4].copy_from_slice(&(images as u32).to_le_bytes());
    fields[NAME + 4] = u8::from(wanted);
    fields
}

/// A request for what is published under an epoch, and the polynomials that answer it: both parties' digest of them.
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

fn length(message: &'static str, found: usize, expected: usize) -> Result<(), EngineError> {
    if found == expected {
        return Ok(());
    }
    let step = STEP.to_owned();
    Err(EngineError::Length {
        step,
        message,
        found,
        expected,
    })
}

const NOT_NOW: EngineError = EngineError::OutOfTurn {
    state: "is at another message of the publication",
};

/// The client's half: fills its slot.
pub struct PublicationClient {
    messages: Messages,
    slot: Slot<ClientPublication>,
    /// One of an earlier connection, and how many images it may still serve.
    stored: Option<(ClientPublication, usize)>,
    /// Images of the batch that comes next.
    batch: usize,
    made: Made,
    state: ClientState,
}

/// What has come so far.
struct Made {
    epoch: [u8; NAME],
    seed: [u8; NAME],
    steps: Vec<Option<Polynomials>>,
    bytes: Vec<u8>,
    /// What was asked for, once it was, and the polynomials so far.
    bound: Option<Bound>,
}

#[derive(Clone, Copy)]
enum ClientState {
    ReceiveEpoch,
    SendRequest,
    ReceiveRows,
    ReceiveReceipt,
    Done,
}

impl PublicationClient {
    /// Before a batch of so many images; `stored` is one of an earlier connection with how many images it still serves, which is of use where the server's
    /// secret is the same.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new(
        plan: &Plan,
        batch: usize,
        stored: Option<(ClientPublication, usize)>,
        slot: Slot<ClientPublication>,
    ) -> Result<Self, EngineError> {
        let fits = |(publication, images): &(ClientPublication, usize)| {
            publication.steps.len() == plan.steps.len() && *images >= batch
        };
        Ok(Self {
            messages: Messages::new(plan),
            slot,
            stored: stored.filter(fits),
            batch,
            made: Made {
                epoch: [0; NAME],
                seed: *Seed::from_os()?.as_bytes(),
                steps: vec![None; plan.steps.len()],
                bytes: Vec::new(),
                bound: None,
            },
            state: ClientState::ReceiveEpoch,
        })
    }

    /// Reads one from its bytes as they came.
    ///
    /// # Errors
    /// When they are none of this plan, or were not published for this epoch and seed.
    pub fn read(
        plan: &Plan,
        (epoch, seed): ([u8; NAME], [u8; NAME]),
        bytes: &[u8],
    ) -> Result<ClientPublication, EngineError> {
        let mut reader = Self::new(plan, 0, None, Slot::default())?;
        (reader.made.epoch, reader.made.seed) = (epoch, seed);
        reader.made.bound = Some(Bound::fetching(&epoch, &seed));
        reader.state = ClientState::ReceiveRows;
        reader.settle();
        let mut rest = bytes;
        while reader.want() == Want::Receive {
            let expected = reader.max_incoming();
            let (message, after) = rest.split_at_checked(expected).ok_or_else(|| {
                length("the file", bytes.len(), bytes.len() + expected).unwrap_err()
            })?;
            reader.receive(message)?;
            rest = after;
        }
        length("what follows the end", rest.len(), 0)?;
        reader.slot.get().ok_or(NOT_NOW)
    }

    fn take(&mut self, message: &[u8]) -> Result<(), EngineError> {
        length("a part", message.len(), self.messages.bytes())?;
        if let Some((rows, range)) = self.messages.current() {
            let place = &mut self.made.steps[rows.step];
            let polynomials = place.get_or_insert_with(|| match rows.linear.word {
                WordSize::U32 => Polynomials::U32(Arc::default()),
                WordSize::U64 => Polynomials::U64(Arc::default()),
            });
            match polynomials {
                Polynomials::U32(words) => read_rows(rows, range, message, unshared(words))?,
                Polynomials::U64(words) => read_rows(rows, range, message, unshared(words))?,
            }
            self.made.add(message);
        }
        self.messages.advance();
        Ok(())
    }

    /// The next state once no more polynomials are to come. Where there are none there is no receipt.
    fn settle(&mut self) {
        if self.messages.current().is_none() {
            match self.messages.done {
                0 => self.finish(),
                _ => self.state = ClientState::ReceiveReceipt,
            }
        }
    }

    fn finish(&mut self) {
        let made = std::mem::replace(&mut self.made, Made::none());
        self.slot.put(made.finish(), PUBLICATION_GRANT - self.batch);
        self.state = ClientState::Done;
    }
}

impl Made {
    fn none() -> Self {
        Self {
            epoch: [0; NAME],
            seed: [0; NAME],
            steps: Vec::new(),
            bytes: Vec::new(),
            bound: None,
        }
    }

    /// Keeps polynomials as they came.
    fn add(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        if let Some(bound) = &mut self.bound {
            bound.add(message);
        }
    }

    /// Whether the receipt is of all that came, and of what was asked for; keeps it.
    fn check(&mut self, receipt: &[u8]) -> Result<(), EngineError> {
        length("the receipt", receipt.len(), DIGEST)?;
        self.bound.as_ref().ok_or(NOT_NOW)?.check(receipt)?;
        self.bytes.extend_from_slice(receipt);
        Ok(())
    }

    fn finish(self) -> ClientPublication {
        ClientPublication {
            epoch: self.epoch,
            seed: self.seed,
            steps: self.steps,
            bytes: Arc::new(self.bytes),
        }
    }
}

/// The words, which nobody else has yet.
fn unshared<W: Clone>(words: &mut Arc<Vec<W>>) -> &mut Vec<W> {
    Arc::make_mut(words)
}

/// Unpacks rows, checks that they are residues, and takes them to the NTT domain.
fn read_rows<W: Word>(
    rows: &Rows,
    range: Range<usize>,
    message: &[u8],
    words: &mut Vec<W>,
) -> Result<(), EngineError> {
    let linear = &rows.linear;
    let ring = ring::<W>(linear, &rows.name)?;
    let most = (linear.modulus - 1) >> linear.dropped_bits_a;
    words.resize(range.end * linear.degree, W::default());
    words[range.start * linear.degree..]
        .par_chunks_exact_mut(linear.degree)
        .zip(message.par_chunks_exact(rows.bytes()))
        .enumerate()
        .try_for_each(|(index, (words, bytes))| {
            let row = range.start + index;
            bits::unpack(bytes, linear.answer_bits_a(), words).map_err(|source| {
                EngineError::Packing {
                    step: rows.name.clone(),
                    message: STEP,
                    row,
                    source,
                }
            })?;
            if words.iter().any(|word| word.to_u64() > most) {
                return Err(EngineError::Word {
                    step: rows.name.clone(),
                    message: STEP,
                    row,
                    modulus: linear.modulus,
                });
            }
            ring.restore_low_bits_public(words, linear.dropped_bits_a);
            Ok(())
        })
}

pub(super) fn ring<W: Word>(linear: &LinearPlan, step: &str) -> Result<RlweRing<W>, EngineError> {
    RlweRing::new(linear.degree, linear.modulus).map_err(|source| EngineError::Parameters {
        step: step.to_owned(),
        source,
    })
}

impl Machine for PublicationClient {
    fn want(&self) -> Want {
        match self.state {
            ClientState::ReceiveEpoch | ClientState::ReceiveRows | ClientState::ReceiveReceipt => {
                Want::Receive
            }
            ClientState::SendRequest => Want::Send,
            ClientState::Done => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let ClientState::SendRequest = self.state else {
            return Err(NOT_NOW);
        };
        let (seed, images, wanted) = match &self.stored {
            Some((stored, images)) => (stored.seed, (*images).min(PUBLICATION_GRANT), false),
            None => (self.made.seed, PUBLICATION_GRANT, true),
        };
        let fields = request_fields(&seed, images, wanted);
        let bound = Bound::new(&self.made.epoch, &fields);
        out.extend_from_slice(&fields);
        out.extend_from_slice(&bound.digest());
        self.made.bound = Some(bound);
        match self.stored.take() {
            Some((stored, _)) => {
                self.slot.put(stored, images - self.batch);
                self.state = ClientState::Done;
            }
            None => {
                self.state = ClientState::ReceiveRows;
                self.settle();
            }
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        match self.state {
            ClientState::ReceiveEpoch => {
                length("the epoch", message.len(), NAME)?;
                self.made.epoch.copy_from_slice(message);
                let epoch = self.made.epoch;
                self.stored.take_if(|(stored, _)| stored.epoch != epoch);
                self.state = ClientState::SendRequest;
            }
            ClientState::ReceiveRows => {
                self.take(message)?;
                self.settle();
            }
            ClientState::ReceiveReceipt => {
                self.made.check(message)?;
                self.finish();
            }
            _ => return Err(NOT_NOW),
        }
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            ClientState::ReceiveEpoch => NAME,
            ClientState::ReceiveRows => self.messages.bytes(),
            ClientState::ReceiveReceipt => DIGEST,
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.messages.progress()
    }
}

/// A layer that is ready for products, in the words that its plan names.
#[derive(Clone)]
pub enum Layer {
    /// In 32-bit words.
    U32(Arc<PreparedLayer<u32>>),
    /// In 64-bit words.
    U64(Arc<PreparedLayer<u64>>),
}

/// The server's half.
pub struct PublicationServer {
    messages: Messages,
    /// By step.
    layers: Vec<Option<Layer>>,
    secret: Arc<Seed>,
    slot: Slot<ServerPublication>,
    /// Images of the batch that comes next.
    batch: usize,
    publication: Option<ServerPublication>,
    /// The request that is served, and the polynomials so far.
    bound: Option<Bound>,
    state: ServerState,
}

#[derive(Clone, Copy)]
enum ServerState {
    SendEpoch,
    ReceiveRequest,
    SendRows,
    SendReceipt,
    Done,
}

impl PublicationServer {
    /// Before a batch of so many images, for a plan and its layers by step; `secret` is of the model.
    pub fn new(
        plan: &Plan,
        batch: usize,
        layers: Vec<Option<Layer>>,
        secret: Arc<Seed>,
        slot: Slot<ServerPublication>,
    ) -> Self {
        Self {
            messages: Messages::new(plan),
            layers,
            secret,
            slot,
            batch,
            publication: None,
            bound: None,
            state: ServerState::SendEpoch,
        }
    }

    /// The next state once no more polynomials are to be sent. Where there are none there is no receipt.
    fn settle(&mut self) {
        if self.messages.current().is_none() {
            self.state = match self.messages.done {
                0 => ServerState::Done,
                _ => ServerState::SendReceipt,
            };
        }
    }
}

impl Machine for PublicationServer {
    fn want(&self) -> Want {
        match self.state {
            ServerState::SendEpoch | ServerState::SendRows | ServerState::SendReceipt => Want::Send,
            ServerState::ReceiveRequest => Want::Receive,
            ServerState::Done => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match self.state {
            ServerState::SendEpoch => {
                out.extend_from_slice(&epoch(&self.secret));
                self.state = ServerState::ReceiveRequest;
            }
            ServerState::SendRows => {
                let (Some((rows, range)), Some(publication), Some(bound)) =
                    (self.messages.current(), &self.publication, &mut self.bound)
                else {
                    return Err(NOT_NOW);
                };
                match &self.layers[rows.step] {
                    Some(Layer::U32(layer)) => write_rows(rows, range, layer, publication, out)?,
                    Some(Layer::U64(layer)) => write_rows(rows, range, layer, publication, out)?,
                    None => return Err(NOT_NOW),
                }
                bound.add(out);
                self.messages.advance();
                self.settle();
            }
            ServerState::SendReceipt => {
                let bound = self.bound.as_ref().ok_or(NOT_NOW)?;
                out.extend_from_slice(&bound.digest());
                self.state = ServerState::Done;
            }
            _ => return Err(NOT_NOW),
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let ServerState::ReceiveRequest = self.state else {
            return Err(NOT_NOW);
        };
        length("the client's seed", message.len(), REQUEST)?;
        let (fields, digest) = message.split_at(REQUEST - DIGEST);
        let bound = Bound::new(&epoch(&self.secret), fields);
        bound.check(digest)?;
        let (seed, rest) = fields.split_first_chunk().expect("the length was checked");
        let (images, wanted) = rest.split_first_chunk().expect("the length was checked");
        let images = u32::from_le_bytes(*images) as usize;
        if images < self.batch || images > PUBLICATION_GRANT || wanted[0] > 1 {
            return Err(EngineError::Unsupported {
                step: STEP.to_owned(),
                reason: "the client counts fewer images than come next or more than one publication serves, or asks neither for polynomials nor for none",
            });
        }
        let publication = ServerPublication::new(&self.secret, *seed);
        self.slot.put(publication.clone(), images - self.batch);
        self.publication = Some(publication);
        self.bound = Some(bound);
        self.state = match wanted[0] {
            0 => ServerState::Done,
            _ => ServerState::SendRows,
        };
        if wanted[0] != 0 {
            self.settle();
        }
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            ServerState::ReceiveRequest => REQUEST,
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.messages.progress()
    }
}

/// Makes and packs rows of a step: `sum_i f_i a_i + u a_0 + e`.
fn write_rows<W: Word>(
    rows: &Rows,
    range: Range<usize>,
    layer: &PreparedLayer<W>,
    publication: &ServerPublication,
    out: &mut Vec<u8>,
) -> Result<(), EngineError> {
    let (linear, layout) = (&rows.linear, &rows.layout);
    let ring = ring::<W>(linear, &rows.name)?;
    let generator = generator(&publication.seed, rows.step);
    let rerandomiser = publication.rerandomiser(rows.step);
    let (tiles, per_tile) = (layout.tiles(), layout.polynomials());
    let mut a_0 = vec![W::default(); linear.degree];
    let hiding = (tiles * per_tile) as u64;
    rlwe::expand_a(&generator, hiding, ring.modulus(), &mut a_0);
    out.resize(range.len() * rows.bytes(), 0);
    let room = || {
        let words = || vec![W::default(); linear.degree];
        (
            words(),
            words(),
            words(),
            HideScratch::new(&ring),
            Vec::new(),
        )
    };
    out.par_chunks_exact_mut(rows.bytes())
        .zip(range)
        .for_each_init(room, |(sum, filter, a, scratch, packed), (bytes, row)| {
            let (output, tile) = (row / tiles, row % tiles);
            sum.fill(W::default());
            for polynomial in layer.polynomials_of(layout, output) {
                layer.filter(layout, &ring, output, polynomial, filter);
                let row = (tile * per_tile + polynomial) as u64;
                rlwe::expand_a(&generator, row, ring.modulus(), a);
                pronghorn_ring::vector::mul_add_assign(ring.modulus(), sum, filter, a);
            }
            rerandomiser.rerandomise(&ring, row as u64, &a_0, scratch, sum);
            ring.drop_low_bits_public(sum, linear.dropped_bits_a);
            packed.clear();
            bits::pack(sum, linear.answer_bits_a(), packed);
            bytes.copy_from_slice(packed);
        });
    Ok(())
}
