//! What the server publishes to a client, once: for each output channel and tile of each layer `p = sum_i f_i a_i + u a_0 + e`.
//!
//! The client draws the seed that all `a` are expanded from. The server's `u` and `e` are a function of that seed and of a secret of the server that is
//! of one model alone, so it keeps nothing for a client: on a later connection the client names the seed again, and has the polynomials already.
//! With another model's weights `u` and `e` are others, since the difference of two publications with the same would be `(f - f') a`.
//!
//! Messages, in order:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the epoch, which names the server's secret without telling it | server | 32 |
//! | the client's seed, for how many images it names it now (4 bytes, little-endian), and whether it wants the polynomials (0 or 1) | client | 37 |
//! | a part of the polynomials, if it wants them: coefficients without their dropped bits, step by step | server | whole polynomials of one step, 1 MiB or one |
//!
//! Each image takes a secret of its own with the same `a`. After the images of the second message,
//! at most [`PUBLICATION_GRANT`], which both parties count, the exchange comes again, and the
//! client names the same seed for [`PUBLICATION_IMAGES`](pronghorn_plan::cost::PUBLICATION_IMAGES)
//! at most.

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
    batch::cut_rows,
    error::EngineError,
    exchange::{Exchange, Message, Messages, Party, Protocol, Turn},
};

/// Of what is published for a plan and its weights. To be raised when the code makes something else of them, so that no secret of an earlier version hides
/// two things behind the same numbers.
pub(crate) const PUBLICATION_VERSION: u32 = 1;

/// Bytes of an epoch, and of a seed.
const NAME: usize = 32;
/// Bytes of the client's message.
const REQUEST_BYTES: usize = NAME + 5;
/// Stands for the step in errors about the publication as a whole.
const STEP: &str = "the published polynomials";

const EPOCH: &str = "the epoch";
const REQUEST: &str = "the client's seed";
const PART: &str = "a part";

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
    /// The polynomials as they came, to be stored.
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

/// The rows of all steps, cut into messages.
struct Cut {
    steps: Vec<Rows>,
    /// Index in `steps`, and the rows, of each message.
    parts: Vec<(usize, Range<usize>)>,
}

impl Cut {
    fn new(plan: &Plan) -> Self {
        let steps = Rows::all(plan);
        let parts = steps.iter().enumerate().flat_map(|(step, rows)| {
            let ranges = cut_rows(rows.count, rows.bytes()).ranges();
            ranges.map(move |range| (step, range))
        });
        Self {
            parts: parts.collect(),
            steps,
        }
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

/// The client's half: fills its slot.
pub struct PublicationClient {
    cut: Cut,
    slot: Slot<ClientPublication>,
    /// One of an earlier connection, and how many images it may still serve.
    stored: Option<(ClientPublication, usize)>,
    /// Images of the batch that comes next.
    batch: usize,
    /// Whether the polynomials are to be sent.
    wanted: bool,
    made: Made,
}

/// What has come so far.
struct Made {
    epoch: [u8; NAME],
    seed: [u8; NAME],
    steps: Vec<Option<Polynomials>>,
    bytes: Vec<u8>,
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
    ) -> Result<Exchange<Self>, EngineError> {
        let client = Self::with(plan, batch, stored, slot)?;
        Ok(Exchange::new(client.cut.messages(), client))
    }

    fn with(
        plan: &Plan,
        batch: usize,
        stored: Option<(ClientPublication, usize)>,
        slot: Slot<ClientPublication>,
    ) -> Result<Self, EngineError> {
        let fits = |(publication, images): &(ClientPublication, usize)| {
            publication.steps.len() == plan.steps.len() && *images >= batch
        };
        Ok(Self {
            cut: Cut::new(plan),
            slot,
            stored: stored.filter(fits),
            batch,
            wanted: true,
            made: Made {
                epoch: [0; NAME],
                seed: *Seed::from_os()?.as_bytes(),
                steps: vec![None; plan.steps.len()],
                bytes: Vec::new(),
            },
        })
    }

    /// Reads one from its bytes as they came.
    ///
    /// # Errors
    /// When they are none of this plan.
    pub fn read(
        plan: &Plan,
        (epoch, seed): ([u8; NAME], [u8; NAME]),
        bytes: &[u8],
    ) -> Result<ClientPublication, EngineError> {
        let mut reader = Self::with(plan, 0, None, Slot::default())?;
        (reader.made.epoch, reader.made.seed) = (epoch, seed);
        let lengths: Vec<usize> = reader.cut.lengths().collect();
        let mut rest = bytes;
        for (index, expected) in lengths.into_iter().enumerate() {
            let (message, after) = rest
                .split_at_checked(expected)
                .ok_or_else(|| length("the file", bytes.len(), bytes.len() + expected))?;
            reader.take_part(index, message)?;
            rest = after;
        }
        if !rest.is_empty() {
            return Err(length("what follows the end", rest.len(), 0));
        }
        Ok(reader.made.finish())
    }

    fn take_part(&mut self, index: usize, message: &[u8]) -> Result<(), EngineError> {
        let (rows, range) = self.cut.part(index);
        let place = &mut self.made.steps[rows.step];
        let polynomials = place.get_or_insert_with(|| match rows.linear.word {
            WordSize::U32 => Polynomials::U32(Arc::default()),
            WordSize::U64 => Polynomials::U64(Arc::default()),
        });
        match polynomials {
            Polynomials::U32(words) => read_rows(rows, range, message, unshared(words))?,
            Polynomials::U64(words) => read_rows(rows, range, message, unshared(words))?,
        }
        self.made.bytes.extend_from_slice(message);
        Ok(())
    }

    fn request(&mut self, out: &mut Vec<u8>) {
        let (seed, images) = match &self.stored {
            Some((stored, images)) => (stored.seed, (*images).min(PUBLICATION_GRANT)),
            None => (self.made.seed, PUBLICATION_GRANT),
        };
        self.wanted = self.stored.is_none();
        out.extend_from_slice(&seed);
        out.extend_from_slice(&(images as u32).to_le_bytes());
        out.push(u8::from(self.wanted));
        match self.stored.take() {
            Some((stored, _)) => self.slot.put(stored, images - self.batch),
            None if self.cut.parts.is_empty() => self.publish(),
            None => {}
        }
    }

    /// Keeps what has come, all of it.
    fn publish(&mut self) {
        let made = std::mem::replace(&mut self.made, Made::none());
        self.slot.put(made.finish(), PUBLICATION_GRANT - self.batch);
    }
}

impl Protocol for PublicationClient {
    const PARTY: Party = Party::Client;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            EPOCH => {
                self.made.epoch.copy_from_slice(message);
                let epoch = self.made.epoch;
                self.stored.take_if(|(stored, _)| stored.epoch != epoch);
            }
            PART => {
                self.take_part(turn.index, message)?;
                if turn.last {
                    self.publish();
                }
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn make(&mut self, _turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.request(out);
        Ok(())
    }

    fn is_due(&self, _name: &'static str) -> bool {
        self.wanted
    }
}

impl Made {
    fn none() -> Self {
        Self {
            epoch: [0; NAME],
            seed: [0; NAME],
            steps: Vec::new(),
            bytes: Vec::new(),
        }
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
    cut: Cut,
    /// By step.
    layers: Vec<Option<Layer>>,
    secret: Arc<Seed>,
    slot: Slot<ServerPublication>,
    /// Images of the batch that comes next.
    batch: usize,
    publication: Option<ServerPublication>,
    /// Whether the client wants the polynomials.
    wanted: bool,
}

impl PublicationServer {
    /// Before a batch of so many images, for a plan and its layers by step; `secret` is of the model.
    pub fn new(
        plan: &Plan,
        batch: usize,
        layers: Vec<Option<Layer>>,
        secret: Arc<Seed>,
        slot: Slot<ServerPublication>,
    ) -> Exchange<Self> {
        let cut = Cut::new(plan);
        let messages = cut.messages();
        let server = Self {
            cut,
            layers,
            secret,
            slot,
            batch,
            publication: None,
            wanted: false,
        };
        Exchange::new(messages, server)
    }

    fn send_part(&self, index: usize, out: &mut Vec<u8>) -> Result<(), EngineError> {
        const MISSING: EngineError = EngineError::OutOfTurn {
            state: "has no layer or no seed for a publication",
        };
        let publication = self.publication.as_ref().ok_or(MISSING)?;
        let (rows, range) = self.cut.part(index);
        match &self.layers[rows.step] {
            Some(Layer::U32(layer)) => write_rows(rows, range, layer, publication, out),
            Some(Layer::U64(layer)) => write_rows(rows, range, layer, publication, out),
            None => Err(MISSING),
        }
    }
}

impl Protocol for PublicationServer {
    const PARTY: Party = Party::Server;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            EPOCH => out.extend_from_slice(&epoch(&self.secret)),
            PART => self.send_part(turn.index, out)?,
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, _turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (seed, rest) = message.split_first_chunk().expect("the length was checked");
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
        self.wanted = wanted[0] == 1;
        Ok(())
    }

    fn is_due(&self, _name: &'static str) -> bool {
        self.wanted
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
    let start = out.len();
    out.resize(start + range.len() * rows.bytes(), 0);
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
    out[start..]
        .par_chunks_exact_mut(rows.bytes())
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
