//! A whole plan for one batch: the steps' machines, one after another, with shares in between.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use pronghorn_graph::{
    fixed::{Linear, LocalOp},
    oracle,
};
use pronghorn_plan::{
    Built, Computation, Engine, LinearPlan, Plan, Step, StepKind, TrustLevel, WordSize, cost,
    held::{self, Held},
};
use pronghorn_ring::{Prime, Word, random::Seed};
use zeroize::Zeroizing;

use crate::{
    batch::{
        Shape,
        client::LinearClient,
        published::{ClientPublished, Place, Published, ServerPublished},
        server::{LinearServer, PreparedLayer},
    },
    coefficient::{
        self,
        publication::{
            ClientPublication, Layer, PUBLICATION_VERSION, PublicationClient, PublicationServer,
            ServerPublication, Slot,
        },
    },
    encrypted::{self, Network, client::EncryptedClient, server::EncryptedServer},
    error::EngineError,
    garbled,
    local::{self, Arithmetic},
    machine::{Machine, Progress, StepMachine, Want},
    reveal,
    share::{Batch, Share},
    slots::{
        self,
        client::SlotClient,
        keys::{ClientSlotKeys, KeyCache, KeysClient, KeysServer, ServerSlotKeys},
        server::{PreparedSlots, SlotServer},
    },
};

mod ahead;
mod two_party;

pub use ahead::{ClientPreparation, ClientPrepared, ServerPreparation, ServerPrepared};

/// What a party does when it comes to a step: an exchange with the peer, or its share at once.
enum Started {
    Machine(Box<dyn StepMachine>),
    Share(Share),
}

/// A step of a batch.
struct At<'a> {
    plan: &'a Plan,
    held: &'a [Held],
    index: usize,
    batch: usize,
}

impl At<'_> {
    fn step(&self) -> &Step {
        &self.plan.steps[self.index]
    }

    /// Where what the server publishes of the step is kept, if it is.
    fn place<T>(&self, published: &Published<T>) -> Option<Place<T>> {
        let StepKind::Linear(linear) = &self.step().kind else {
            return None;
        };
        let blocks = self.batch.div_ceil(linear.degree);
        (cost::published(self.plan) > 0).then(|| published.at(self.index, blocks))
    }

    /// A local step on one party's shares.
    fn local(&self, op: &LocalOp, inputs: &[Batch]) -> Batch {
        let step = self.step();
        let prime = self.held[self.index].prime.map(Prime::new);
        let words = match prime {
            Some(Ok(prime)) => Arithmetic::Modulo(prime),
            // No plan that is validated has another number there.
            Some(Err(_)) | None => Arithmetic::Wrapping,
        };
        let of = |&input: &usize| (&self.plan.steps[input].value, self.held[input]);
        let (specs, held): (Vec<_>, Vec<_>) = step.inputs.iter().map(of).unzip();
        let op = held::with_guards(op, &held, self.held[self.index].guard);
        local::apply(&op, &specs, inputs, &step.value, words)
    }
}

/// Exchanges before the first step.
type Preludes = VecDeque<Box<dyn Machine<Error = EngineError> + Send>>;

/// How one party starts steps; everything else is the same for both.
trait Role {
    /// What comes before the first step of a batch of so many images, in order.
    fn preludes(&self, plan: &Plan, batch: usize) -> Result<Preludes, EngineError>;

    fn start(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Started, EngineError>;

    /// Counts values that a machine brought to the border of their range.
    fn count_saturated(&self, _values: u64) {}
}

/// Runs the steps of a plan for one party.
struct Run<R: Role> {
    role: R,
    plan: Arc<Plan>,
    held: Vec<Held>,
    batch: usize,
    shares: Vec<Option<Share>>,
    preludes: Preludes,
    /// The last step that reads each value; the result is read by none and kept.
    last_reader: Vec<usize>,
    step: usize,
    machine: Option<Box<dyn StepMachine>>,
    rows_before: u64,
    rows: u64,
}

impl<R: Role> Run<R> {
    fn new(role: R, plan: Arc<Plan>, batch: usize, input: Share) -> Result<Self, EngineError> {
        if batch == 0 || batch > plan.max_batch {
            return Err(EngineError::Batch {
                found: batch,
                most: plan.max_batch,
            });
        }
        let mut last_reader: Vec<usize> = (0..plan.steps.len()).collect();
        for (index, step) in plan.steps.iter().enumerate() {
            step.inputs
                .iter()
                .for_each(|&input| last_reader[input] = index);
        }
        last_reader[plan.output] = usize::MAX;
        let mut shares = vec![None; plan.steps.len()];
        shares[0] = Some(input);
        let linear = |index| Shape::of(&plan, index, batch).map(|shape| shape.rows());
        let coefficient =
            |index| coefficient::Shape::of(&plan, index, batch).map(|shape| shape.rows());
        let encrypted = |index| encrypted::Shape::of(&plan, index).map(|shape| shape.rows());
        let on_slots = |index| {
            let shape = slots::Shape::of(&plan, index, batch)?;
            shape.ok().map(|shape| shape.rows())
        };
        let on_shares = |index| two_party::rows(&plan, index);
        let rows = (0..plan.steps.len())
            .filter_map(|index| {
                linear(index)
                    .or_else(|| coefficient(index))
                    .or_else(|| encrypted(index))
                    .or_else(|| on_slots(index))
                    .or_else(|| on_shares(index))
            })
            .sum();
        let mut run = Self {
            preludes: role.preludes(&plan, batch)?,
            held: held::held(&plan),
            role,
            plan,
            batch,
            shares,
            last_reader,
            step: 1,
            machine: None,
            rows_before: 0,
            rows,
        };
        run.advance()?;
        Ok(run)
    }

    /// Finishes the machine that is done, and goes on to the next that has something to exchange.
    fn advance(&mut self) -> Result<(), EngineError> {
        while let Some(prelude) = self.preludes.front() {
            if prelude.want() != Want::Done {
                return Ok(());
            }
            self.preludes.pop_front();
        }
        loop {
            if let Some(machine) = &self.machine {
                if machine.want() != Want::Done {
                    return Ok(());
                }
                self.rows_before += machine.progress().total;
            }
            if let Some(machine) = self.machine.take() {
                self.role.count_saturated(machine.saturated());
                self.finish_step(machine.into_share());
            }
            if self.step == self.plan.steps.len() {
                return Ok(());
            }
            let plan = self.plan.clone();
            let inputs = self.take(&plan.steps[self.step].inputs);
            let at = At {
                plan: &plan,
                held: &self.held,
                index: self.step,
                batch: self.batch,
            };
            match self.role.start(&at, inputs)? {
                Started::Machine(machine) => self.machine = Some(machine),
                Started::Share(share) => self.finish_step(share),
            }
        }
    }

    fn finish_step(&mut self, share: Share) {
        if self.last_reader[self.step] > self.step {
            self.shares[self.step] = Some(share);
        }
        self.step += 1;
    }

    /// The shares a step reads, in order; a value is moved out at its last reading, within the step too.
    fn take(&mut self, inputs: &[usize]) -> Vec<Share> {
        let mut take = |(place, &value): (usize, &usize)| {
            let last =
                self.last_reader[value] == self.step && !inputs[place + 1..].contains(&value);
            let slot = &mut self.shares[value];
            let share = if last { slot.take() } else { slot.clone() };
            share.expect("a validated plan reads only values made before")
        };
        inputs.iter().enumerate().map(&mut take).collect()
    }

    /// The machine whose turn it is.
    fn machine(&self) -> Option<&dyn Machine<Error = EngineError>> {
        match (self.preludes.front(), &self.machine) {
            (Some(prelude), _) => Some(prelude.as_ref()),
            (None, Some(machine)) => Some(machine.as_ref()),
            (None, None) => None,
        }
    }

    fn machine_mut(&mut self) -> Result<&mut dyn Machine<Error = EngineError>, EngineError> {
        match (self.preludes.front_mut(), &mut self.machine) {
            (Some(prelude), _) => Ok(prelude.as_mut()),
            (None, Some(machine)) => Ok(machine.as_mut()),
            (None, None) => Err(EngineError::OutOfTurn { state: "is over" }),
        }
    }
}

impl<R: Role> Machine for Run<R> {
    type Error = EngineError;

    fn want(&self) -> Want {
        self.machine().map_or(Want::Done, Machine::want)
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.machine_mut()?.send(out)?;
        self.advance()
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        self.machine_mut()?.receive(message)?;
        self.advance()
    }

    fn max_incoming(&self) -> usize {
        self.machine().map_or(0, Machine::max_incoming)
    }

    fn progress(&self) -> Progress {
        let within = self
            .machine
            .as_ref()
            .map_or(0, |machine| machine.progress().done);
        Progress {
            done: self.rows_before + within,
            total: self.rows,
        }
    }
}

/// Both parties know this of a step without asking the other.
fn no_engine(step: &Step, reason: &'static str) -> EngineError {
    EngineError::Unsupported {
        step: step.name.clone(),
        reason,
    }
}

/// The client's keys of a connection, for plans whose keys serve all its batches; made when the first needs them. Secret:
/// no Debug.
#[derive(Clone, Default)]
pub struct ClientKeys {
    encrypted: encrypted::client::KeySlot<u32>,
    transfer: garbled::ClientOts,
    published: Published<ClientPublished>,
    publication: Slot<ClientPublication>,
    stored: Slot<ClientPublication>,
    slots: slots::keys::Slot<ClientSlotKeys>,
    slot_seed: slots::keys::Slot<Seed>,
}

/// The server's side of them. Secret: no Debug.
#[derive(Clone, Default)]
pub struct ServerKeys {
    encrypted: encrypted::server::KeySlot<u32>,
    transfer: garbled::ServerOts,
    published: Published<ServerPublished>,
    publication: Slot<ServerPublication>,
    slots: slots::keys::Slot<ServerSlotKeys>,
    key_cache: KeyCache,
}

impl ServerKeys {
    /// Of a connection, with the keys for slots of all connections.
    pub fn sharing(key_cache: KeyCache) -> Self {
        Self {
            key_cache,
            ..Self::default()
        }
    }
}

impl ClientKeys {
    /// Has keys for slots made from a seed, which serves one plan alone: a server that got them on an earlier connection may have them still.
    pub fn offer_slot_seed(&self, seed: Seed) {
        self.slot_seed.put(Arc::new(seed));
    }

    /// Offers a publication of an earlier connection, which may serve so many images more: it is taken where the server's secret is still the same.
    pub fn offer_publication(&self, publication: ClientPublication, images: usize) {
        self.stored.put(publication, images);
    }

    /// The publication of this connection, to be kept for another.
    pub fn publication(&self) -> Option<ClientPublication> {
        self.publication.get()
    }
}

macro_rules! setup_of_keys {
    ($keys:ty) => {
        impl $keys {
            /// The name of the set-up of OTs, which both parties have and no other set-up shares. None before there is one, and once it has
            /// failed a check: whatever was prepared with it is then to be destroyed, since bits of `Delta` may be known.
            pub fn setup(&self) -> Option<[u8; 32]> {
                self.transfer.setup().map(|setup| *setup.name())
            }
        }
    };
}

setup_of_keys!(ClientKeys);
setup_of_keys!(ServerKeys);

/// What was prepared for a batch, by step. Secret: no Debug.
struct Ahead<T>(Mutex<Vec<Option<T>>>);

impl<T> Default for Ahead<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Ahead<T> {
    fn of(steps: Option<Result<Vec<Option<T>>, EngineError>>) -> Result<Self, EngineError> {
        let steps = steps.transpose()?.unwrap_or_default();
        Ok(Self(Mutex::new(steps)))
    }

    /// What was prepared for a step, for good.
    fn take(&self, step: usize) -> Option<T> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.get_mut(step)?.take()
    }
}

/// Counts the activations that left the ranges the samples set.
#[derive(Default)]
struct Client {
    saturated: AtomicU64,
    keys: ClientKeys,
    prepared: Ahead<ahead::ClientStep>,
}

impl Role for Client {
    fn preludes(&self, plan: &Plan, batch: usize) -> Result<Preludes, EngineError> {
        let transfer = two_party::client_prelude(plan, &self.keys.transfer);
        let mut preludes = Preludes::from_iter(transfer);
        let slot = &self.keys.publication;
        if publishes(plan) && !slot.count(batch) {
            let stored = self.keys.stored.take();
            let machine = PublicationClient::new(plan, batch, stored, slot.clone())?;
            preludes.push_back(Box::new(machine));
        }
        if on_slots(plan) && self.keys.slots.get().is_none() {
            let offered = self.keys.slot_seed.get();
            let seed = offered.map_or_else(|| Seed::from_os().map(Arc::new), Ok)?;
            let machine = KeysClient::new(plan, &seed, self.keys.slots.clone())?;
            preludes.push_back(Box::new(machine));
        }
        Ok(preludes)
    }

    fn start(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Started, EngineError> {
        let &At {
            plan, index, batch, ..
        } = at;
        let step = at.step();
        let words = inputs.into_iter().map(|share| match share {
            Share::Words(words) => Ok(words),
            Share::Zero => Err(no_engine(step, "the client's share is missing")),
        });
        let mut words = words.collect::<Result<Vec<Batch>, _>>()?;
        let share = match &step.kind {
            StepKind::Input => return Err(no_engine(step, "a plan has one input, its first step")),
            StepKind::Local(op) => at.local(op, &words),
            StepKind::Open | StepKind::Activation(_) if plan.trust == TrustLevel::TwoParty => {
                let input = words.swap_remove(0);
                let machine = two_party::client(
                    at,
                    Share::Words(input),
                    &self.keys.transfer,
                    self.prepared.take(index),
                )?;
                return Ok(Started::Machine(machine));
            }
            StepKind::Open => return Err(no_engine(step, "the client has the value already")),
            StepKind::Activation(activation) => reveal::apply(
                &activation.ops,
                &plan.steps[step.inputs[0]].value,
                words.swap_remove(0),
                &self.saturated,
            ),
            StepKind::Encrypted(_) => {
                let shape = encrypted::Shape::of(plan, index)
                    .ok_or_else(|| no_engine(step, "it is not encrypted"))?;
                let input = words.swap_remove(0);
                return Ok(Started::Machine(Box::new(EncryptedClient::new(
                    shape,
                    input,
                    self.keys.encrypted.clone(),
                )?)));
            }
            StepKind::Slots(_) => {
                let shape = slots::Shape::of(plan, index, batch)
                    .ok_or_else(|| no_engine(step, "it is not on slots"))??;
                let keys = self.keys.slots.get();
                let key = keys.and_then(|keys| keys.secret(&shape.scheme));
                let key = key.ok_or_else(|| no_engine(step, "its keys are missing"))?;
                let machine = SlotClient::new(shape, key, words.swap_remove(0))?;
                return Ok(Started::Machine(Box::new(machine)));
            }
            StepKind::Linear(linear) if linear.engine == Engine::Coefficient => {
                let place = (at.plan, at.index, at.batch);
                let published = self.keys.publication.get();
                let input = words.swap_remove(0);
                let machine = coefficient::step::client(place, published.as_ref(), input)?;
                return Ok(Started::Machine(machine));
            }
            StepKind::Linear(linear) => {
                let shape = Shape::of(plan, index, batch)
                    .ok_or_else(|| no_engine(step, "it is not linear"))?;
                let (input, place) = (words.swap_remove(0), at.place(&self.keys.published));
                return Ok(Started::Machine(match linear.word {
                    WordSize::U32 => Box::new(LinearClient::<u32>::new(shape, input, place)?),
                    WordSize::U64 => Box::new(LinearClient::<u64>::new(shape, input, place)?),
                }));
            }
        };
        Ok(Started::Share(Share::Words(share)))
    }

    fn count_saturated(&self, values: u64) {
        self.saturated.fetch_add(values, Ordering::Relaxed);
    }
}

/// Whether a plan has steps on slots.
fn on_slots(plan: &Plan) -> bool {
    let mut steps = plan.steps.iter();
    steps.any(|step| matches!(step.kind, StepKind::Slots(_)))
}

/// Whether a plan has steps whose polynomials are published.
fn publishes(plan: &Plan) -> bool {
    plan.linear_steps()
        .any(|(_, _, linear)| linear.engine == Engine::Coefficient)
}

/// A batch's images, found fit for the plan and quantised. Secret: no Debug.
pub struct ClientInputs {
    plan: Arc<Plan>,
    batch: usize,
    share: Share,
    clamped: usize,
}

impl ClientInputs {
    /// Quantises `batch` images, one after the other in `inputs`.
    ///
    /// # Errors
    /// When the inputs are not `batch` images of numbers, or the plan does not take so many.
    pub fn new(plan: Arc<Plan>, inputs: &[f32], batch: usize) -> Result<Self, EngineError> {
        let elements = plan.input_len();
        if batch == 0 || batch > plan.max_batch {
            return Err(EngineError::Batch {
                found: batch,
                most: plan.max_batch,
            });
        }
        if inputs.len() != batch * elements {
            return Err(EngineError::Inputs {
                found: inputs.len(),
                images: batch,
                elements,
            });
        }
        let (integers, clamped) = oracle::quantise_input(plan.input(), inputs)?;
        let integers = Zeroizing::new(integers);
        Ok(Self {
            share: Share::Words(Batch::from_images(&integers, elements, batch)),
            plan,
            batch,
            clamped,
        })
    }

    /// The client's half of the batch; see [`ClientRun::with_prepared`].
    ///
    /// # Errors
    /// When it cannot begin, or was `prepared` for another batch.
    pub fn run(
        self,
        keys: &ClientKeys,
        prepared: Option<ClientPrepared>,
    ) -> Result<ClientRun, EngineError> {
        let prepared = prepared.map(|prepared| prepared.0.for_batch(&self.plan, self.batch));
        let client = Client {
            keys: keys.clone(),
            prepared: Ahead::of(prepared)?,
            ..Client::default()
        };
        let mut share = self.share;
        if let (Share::Words(words), Some(t)) = (&mut share, held::held(&self.plan)[0].prime) {
            reduce(words, t);
        }
        Ok(ClientRun {
            run: Run::new(client, self.plan, self.batch, share)?,
            clamped: self.clamped,
        })
    }
}

/// Values as residues modulo a prime of at most 31 bits.
fn reduce(words: &mut Batch, t: u64) {
    for word in words.words_mut() {
        *word = i64::from(*word).rem_euclid(t as i64) as i32;
    }
}

/// The data owner's half of one batch.
pub struct ClientRun {
    run: Run<Client>,
    clamped: usize,
}

impl ClientRun {
    /// Quantises `batch` images, one after the other in `inputs`, and makes ready to send.
    ///
    /// # Errors
    /// When the inputs are not `batch` images of numbers, or the plan does not take so many.
    pub fn new(plan: Arc<Plan>, inputs: &[f32], batch: usize) -> Result<Self, EngineError> {
        Self::with_keys(plan, inputs, batch, &ClientKeys::default())
    }

    /// [`ClientRun::new`] for one of several batches of a connection, which share `keys` on this side and
    /// [`ServerKeys`] on the other, one batch after the other.
    ///
    /// # Errors
    /// As there.
    pub fn with_keys(
        plan: Arc<Plan>,
        inputs: &[f32],
        batch: usize,
        keys: &ClientKeys,
    ) -> Result<Self, EngineError> {
        Self::with_prepared(plan, inputs, batch, keys, None)
    }

    /// The same, which uses up what was `prepared` for this plan and this many images. The server must use up its half of that.
    ///
    /// # Errors
    /// As there, or when it was prepared for another batch.
    pub fn with_prepared(
        plan: Arc<Plan>,
        inputs: &[f32],
        batch: usize,
        keys: &ClientKeys,
        prepared: Option<ClientPrepared>,
    ) -> Result<Self, EngineError> {
        ClientInputs::new(plan, inputs, batch)?.run(keys, prepared)
    }

    /// Input values outside the range the model was calibrated for, which were brought to its border.
    pub fn clamped_inputs(&self) -> usize {
        self.clamped
    }

    /// Activations so far that were beyond the range seen on the model owner's samples, and were brought to its border.
    /// A few are harmless; many mean that the samples do not represent these inputs.
    pub fn clamped_activations(&self) -> u64 {
        self.run.role.saturated.load(Ordering::Relaxed)
    }

    /// The result as integers at the scale of [`Plan::result`], `[image][element]`.
    ///
    /// # Errors
    /// When the batch is not over.
    pub fn finish_integers(mut self) -> Result<Vec<i32>, EngineError> {
        if self.run.want() != Want::Done {
            return Err(EngineError::OutOfTurn {
                state: "is not over",
            });
        }
        let output = self.run.plan.output;
        match self.run.shares[output].take() {
            Some(Share::Words(words)) => Ok(words.to_images().to_vec()),
            _ => Err(EngineError::OutOfTurn {
                state: "has no result",
            }),
        }
    }

    /// The result as users read it, after softmax and the like, `[image][element]`.
    ///
    /// # Errors
    /// When the batch is not over.
    pub fn finish(self) -> Result<Vec<f32>, EngineError> {
        let (plan, batch) = (self.run.plan.clone(), self.run.batch);
        Ok(oracle::finish(
            &plan.finish,
            plan.result(),
            &self.finish_integers()?,
            batch,
        ))
    }
}

/// A plan with the server's weights, prepared; serves any number of batches. Its secret: no Debug.
pub struct ServerModel {
    plan: Arc<Plan>,
    /// By step.
    steps: Vec<Option<Prepared>>,
    /// What hides the model in what is published: of these weights alone.
    secret: Arc<Seed>,
    /// Of plan and weights.
    digest: Zeroizing<[u8; 32]>,
}

/// The secret half of a step, in the words its plan names.
#[derive(Clone)]
enum Prepared {
    LayerU32(Arc<PreparedLayer<u32>>),
    LayerU64(Arc<PreparedLayer<u64>>),
    Coefficient(Layer),
    Slots(Arc<PreparedSlots>),
    Network(Arc<Network<u32>>),
}

impl ServerModel {
    /// Lays out the weights of a built model for the product.
    ///
    /// # Errors
    /// When weights and plan do not go together.
    pub fn new(built: &Built) -> Result<Self, EngineError> {
        let (secret, digest) = (Seed::from_os()?, Zeroizing::new(digest(built)));
        let plan = &built.plan;
        let prepared = |(index, step): (usize, &Step)| match (&step.kind, &built.computation) {
            (StepKind::Linear(linear), Computation::Shares { weights, .. }) => {
                layer(step, linear, weights[index].as_ref()).map(Some)
            }
            (StepKind::Encrypted(plan), Computation::Encrypted(encrypted)) => {
                let network = Network::new(encrypted, plan, step)?;
                Ok(Some(Prepared::Network(Arc::new(network))))
            }
            (StepKind::Slots(plan), Computation::Shares { weights, .. }) => {
                let weights = weights[index].as_ref();
                let weights = weights.ok_or_else(|| no_engine(step, "its weights are missing"))?;
                let prepared = PreparedSlots::new(weights, plan, step)?;
                Ok(Some(Prepared::Slots(Arc::new(prepared))))
            }
            (StepKind::Linear(_) | StepKind::Slots(_) | StepKind::Encrypted(_), _) => {
                Err(no_engine(step, "its weights are missing"))
            }
            (
                StepKind::Input | StepKind::Local(_) | StepKind::Activation(_) | StepKind::Open,
                _,
            ) => Ok(None),
        };
        let steps = plan.steps.iter().enumerate().map(prepared);
        let steps = steps.collect::<Result<_, EngineError>>()?;
        Ok(Self {
            plan: Arc::new(plan.clone()),
            steps,
            secret: Arc::new(secret_of(&digest, &secret)),
            digest,
        })
    }

    /// The same model with a secret of publications that the server keeps: what it published to clients before is then still good, as long as the
    /// model is the same.
    pub fn with_secret(&self, secret: &Seed) -> Self {
        Self {
            plan: self.plan.clone(),
            steps: self.steps.clone(),
            secret: Arc::new(secret_of(&self.digest, secret)),
            digest: self.digest.clone(),
        }
    }

    /// The plan both parties follow.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The layers on slots, by step.
    fn on_slots(&self) -> Vec<Option<Arc<PreparedSlots>>> {
        let layer = |step: &Option<Prepared>| match step {
            Some(Prepared::Slots(layer)) => Some(layer.clone()),
            _ => None,
        };
        self.steps.iter().map(layer).collect()
    }
}

/// A secret of one plan with its weights alone, from one of the server: publications of two models must not hide behind the same numbers.
fn secret_of(digest: &[u8; 32], secret: &Seed) -> Seed {
    Seed::from_bytes(*blake3::keyed_hash(secret.as_bytes(), digest).as_bytes())
}

/// Of a plan with its weights, and of where this version of the code puts them.
fn digest(built: &Built) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 plan with its weights");
    hasher.update(&built.plan.hash());
    hasher.update(&PUBLICATION_VERSION.to_le_bytes());
    for (index, _, linear) in built.plan.linear_steps() {
        if let Some(layout) = linear.layout() {
            hasher.update(&(index as u64).to_le_bytes());
            for number in layout.numbers() {
                hasher.update(&(number as u64).to_le_bytes());
            }
        }
    }
    if let Computation::Shares { weights, .. } = &built.computation {
        for numbers in weights
            .iter()
            .flatten()
            .flat_map(|layer| [&layer.weights, &layer.bias])
        {
            hasher.update(&(numbers.len() as u64).to_le_bytes());
            for number in numbers {
                hasher.update(&number.to_le_bytes());
            }
        }
    }
    *hasher.finalize().as_bytes()
}

/// A layer's weights, laid out.
fn layer(
    step: &Step,
    linear: &LinearPlan,
    weights: Option<&Linear>,
) -> Result<Prepared, EngineError> {
    let weights = weights.ok_or_else(|| no_engine(step, "its weights are missing"))?;
    use coefficient::server::PreparedLayer as Filters;
    Ok(match (linear.engine, linear.word) {
        (Engine::Slot, _) => return Err(no_engine(step, "on slots it is a step of another kind")),
        (Engine::Batch, WordSize::U32) => {
            Prepared::LayerU32(Arc::new(PreparedLayer::new(weights, linear, step)?))
        }
        (Engine::Batch, WordSize::U64) => {
            Prepared::LayerU64(Arc::new(PreparedLayer::new(weights, linear, step)?))
        }
        (Engine::Coefficient, WordSize::U32) => {
            let filters = Filters::new(weights, linear, step)?;
            Prepared::Coefficient(Layer::U32(Arc::new(filters)))
        }
        (Engine::Coefficient, WordSize::U64) => {
            let filters = Filters::new(weights, linear, step)?;
            Prepared::Coefficient(Layer::U64(Arc::new(filters)))
        }
    })
}

struct Server {
    model: Arc<ServerModel>,
    keys: ServerKeys,
    prepared: Ahead<ahead::ServerStep>,
}

impl Role for Server {
    fn preludes(&self, plan: &Plan, batch: usize) -> Result<Preludes, EngineError> {
        let transfer = two_party::server_prelude(plan, &self.keys.transfer);
        let mut preludes = Preludes::from_iter(transfer);
        let slot = &self.keys.publication;
        if publishes(plan) && !slot.count(batch) {
            let layer = |step: &Option<Prepared>| match step {
                Some(Prepared::Coefficient(layer)) => Some(layer.clone()),
                _ => None,
            };
            let layers = self.model.steps.iter().map(layer).collect();
            let secret = self.model.secret.clone();
            let machine = PublicationServer::new(plan, batch, layers, secret, slot.clone());
            preludes.push_back(Box::new(machine));
        }
        if on_slots(plan) && self.keys.slots.get().is_none() {
            let (cache, slot) = (self.keys.key_cache.clone(), self.keys.slots.clone());
            let machine = KeysServer::new(self.model.plan.clone(), cache, slot);
            preludes.push_back(Box::new(machine));
        }
        Ok(preludes)
    }

    fn start(&self, at: &At<'_>, mut inputs: Vec<Share>) -> Result<Started, EngineError> {
        let &At {
            plan, index, batch, ..
        } = at;
        let step = at.step();
        fn linear<W: Word>(
            shape: Option<Shape>,
            layer: &Arc<PreparedLayer<W>>,
            input: Share,
            masks: Option<Seed>,
            place: Option<Place<ServerPublished>>,
        ) -> Result<Option<Box<dyn StepMachine>>, EngineError> {
            let Some(shape) = shape else {
                return Ok(None);
            };
            Ok(Some(Box::new(LinearServer::new(
                shape,
                layer.clone(),
                input,
                masks,
                place,
            )?)))
        }
        let ready = self.prepared.take(index);
        let seed = |ready| match ready {
            Some(ahead::ServerStep::Linear(seed)) => Some(seed),
            _ => None,
        };
        let machine = match (&self.model.steps[index], &step.kind) {
            (None, StepKind::Local(op)) => return Ok(Started::Share(server_local(at, op, inputs))),
            (None, StepKind::Activation(_) | StepKind::Open)
                if plan.trust == TrustLevel::TwoParty =>
            {
                Some(two_party::server(
                    at,
                    inputs.swap_remove(0),
                    &self.keys.transfer,
                    ready,
                )?)
            }
            (None, _) => return Ok(Started::Share(Share::Zero)),
            (Some(Prepared::LayerU32(layer)), _) => linear(
                Shape::of(plan, index, batch),
                layer,
                inputs.swap_remove(0),
                seed(ready),
                at.place(&self.keys.published),
            )?,
            (Some(Prepared::LayerU64(layer)), _) => linear(
                Shape::of(plan, index, batch),
                layer,
                inputs.swap_remove(0),
                seed(ready),
                at.place(&self.keys.published),
            )?,
            (Some(Prepared::Coefficient(layer)), _) => {
                let place = (plan, index, batch);
                let published = self.keys.publication.get();
                let input = inputs.swap_remove(0);
                Some(coefficient::step::server(
                    place,
                    layer,
                    published,
                    input,
                    seed(ready),
                )?)
            }
            (Some(Prepared::Slots(layer)), _) => {
                let shape = slots::Shape::of(plan, index, batch)
                    .ok_or_else(|| no_engine(step, "it is not on slots"))??;
                let keys = self.keys.slots.get();
                let keys = keys.and_then(|keys| keys.of(&shape.scheme));
                let keys = keys.ok_or_else(|| no_engine(step, "the client's keys are missing"))?;
                let input = inputs.swap_remove(0);
                let machine = SlotServer::new(shape, layer.clone(), keys, input, seed(ready))?;
                Some(Box::new(machine) as _)
            }
            (Some(Prepared::Network(network)), _) => {
                encrypted::Shape::of(plan, index).map(|shape| {
                    Box::new(EncryptedServer::new(
                        shape,
                        network.clone(),
                        self.keys.encrypted.clone(),
                    )) as _
                })
            }
        };
        let machine = machine.ok_or_else(|| no_engine(step, "its weights are of another step"))?;
        Ok(Started::Machine(machine))
    }
}

/// A local step on the server's shares; zeros stay zeros.
fn server_local(at: &At<'_>, op: &LocalOp, inputs: Vec<Share>) -> Share {
    if inputs.iter().all(|share| matches!(share, Share::Zero)) {
        return Share::Zero;
    }
    let elements = at
        .step()
        .inputs
        .iter()
        .map(|&input| at.plan.steps[input].value.len());
    let words = inputs
        .into_iter()
        .zip(elements)
        .map(|(share, elements)| match share {
            Share::Words(words) => words,
            Share::Zero => Batch::zeros(elements, at.batch),
        });
    Share::Words(at.local(op, &words.collect::<Vec<_>>()))
}

/// The model owner's half of one batch.
pub struct ServerRun(Run<Server>);

impl ServerRun {
    /// Makes ready to receive `batch` images.
    ///
    /// # Errors
    /// When the plan does not take so many.
    pub fn new(model: Arc<ServerModel>, batch: usize) -> Result<Self, EngineError> {
        Self::with_keys(model, batch, &ServerKeys::default())
    }

    /// [`ServerRun::new`] for one of several batches of a connection; see [`ClientRun::with_keys`].
    ///
    /// # Errors
    /// As there.
    pub fn with_keys(
        model: Arc<ServerModel>,
        batch: usize,
        keys: &ServerKeys,
    ) -> Result<Self, EngineError> {
        Self::with_prepared(model, batch, keys, None)
    }

    /// The same, which uses up what was `prepared`; see [`ClientRun::with_prepared`].
    ///
    /// # Errors
    /// As there.
    pub fn with_prepared(
        model: Arc<ServerModel>,
        batch: usize,
        keys: &ServerKeys,
        prepared: Option<ServerPrepared>,
    ) -> Result<Self, EngineError> {
        let plan = model.plan.clone();
        let keys = keys.clone();
        let prepared = prepared.map(|prepared| prepared.0.for_batch(&plan, batch));
        let prepared = Ahead::of(prepared)?;
        let server = Server {
            model,
            keys,
            prepared,
        };
        Ok(Self(Run::new(server, plan, batch, Share::Zero)?))
    }
}

/// Hands a wrapper's [`Machine`] calls to the run inside.
macro_rules! delegate_machine {
    ($wrapper:ty, $field:tt) => {
        impl Machine for $wrapper {
            type Error = EngineError;

            fn want(&self) -> Want {
                self.$field.want()
            }

            fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
                self.$field.send(out)
            }

            fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
                self.$field.receive(message)
            }

            fn max_incoming(&self) -> usize {
                self.$field.max_incoming()
            }

            fn progress(&self) -> Progress {
                self.$field.progress()
            }
        }
    };
}

delegate_machine!(ClientRun, run);
delegate_machine!(ServerRun, 0);
use delegate_machine;
