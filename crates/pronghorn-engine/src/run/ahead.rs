//! What of a `two-party` batch can be done before its inputs are known: garblings and squares of all steps, since the server's
//! shares never depend on the client's data. What is left for the batch itself are its linear steps, a bit for each bit of a client's share,
//! and 16 bytes back.
//!
//! What was prepared is a [`ClientPrepared`] and a [`ServerPrepared`], each used up by one run ([`ClientRun::with_prepared`],
//! [`ServerRun::with_prepared`]) on this connection or another; as bytes they can be stored, and then the store hands each out once.
//!
//! # Bytes
//!
//! For each step of the plan, in order, the length of what follows (8, little-endian), and that: nothing, the server's seed of a linear
//! step (32), or what [`crate::garbled`] writes for the kind of the step.
//!
//! [`ClientRun::with_prepared`]: super::ClientRun::with_prepared
//! [`ServerRun::with_prepared`]: super::ServerRun::with_prepared

use std::sync::Arc;

use pronghorn_he::{ParameterError, RlweRing, shares::Hider};
use pronghorn_plan::{
    Engine, LinearPlan, Plan, Step, StepKind, TrustLevel, WordSize,
    held::{self, Held},
};
use pronghorn_ring::{Word, random::Seed};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{At, ClientKeys, ServerKeys, ServerModel, no_engine, server_local, two_party};
use crate::{
    error::EngineError,
    exchange::Exchange,
    garbled::{
        PrepareClient, PrepareServer, PrepareSquareClient, PrepareSquareServer, PreparedClient,
        PreparedServer, PreparedSquareClient, PreparedSquareServer,
    },
    machine::{Machine, Progress, Want},
    share::{Batch, Share},
    slots::{self, server::PreparedSlots},
};

/// What was prepared for a batch; `T` is one step's. Secret: no Debug.
pub(super) struct Steps<T> {
    pub(super) batch: usize,
    /// Which OTs it was made with.
    setup: [u8; 32],
    pub(super) steps: Vec<Option<T>>,
}

/// The data owner's half of a prepared batch: tables, and labels for random choices. Each is used once, and destroyed when the OTs that
/// it was made with fail a check. Wiped on drop; no Debug.
pub struct ClientPrepared(pub(super) Steps<ClientStep>);

/// The model owner's half of a prepared batch: labels, and `Delta`. As [`ClientPrepared`].
pub struct ServerPrepared(pub(super) Steps<ServerStep>);

/// All steps wipe themselves.
impl ZeroizeOnDrop for ClientPrepared {}

/// All steps wipe themselves.
impl ZeroizeOnDrop for ServerPrepared {}

/// A step that the client has prepared.
pub(super) enum ClientStep {
    Garbled(PreparedClient),
    Square(PreparedSquareClient),
}

/// A step that the server has prepared.
pub(super) enum ServerStep {
    /// The seed of the masks of a linear step, which its shares depend on.
    Linear(Seed),
    Garbled(Box<PreparedServer>),
    Square(PreparedSquareServer),
}

/// A step's half as bytes, and back.
pub(super) trait Stored: Sized {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>>;

    /// None where the step has nothing to prepare.
    fn from_bytes(at: &At<'_>, bytes: &[u8]) -> Result<Option<Self>, EngineError>;
}

impl Stored for ClientStep {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Garbled(prepared) => prepared.to_bytes(),
            Self::Square(prepared) => prepared.to_bytes(),
        }
    }

    fn from_bytes(at: &At<'_>, bytes: &[u8]) -> Result<Option<Self>, EngineError> {
        Ok(match two_party::ahead(at)? {
            Some(two_party::How::Garbled(layout)) => {
                Some(Self::Garbled(PreparedClient::from_bytes(layout, bytes)?))
            }
            Some(two_party::How::Square(squares)) => Some(Self::Square(
                PreparedSquareClient::from_bytes(squares, bytes)?,
            )),
            Some(two_party::How::Open(_)) | None => nothing(at, bytes)?,
        })
    }
}

impl Stored for ServerStep {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Linear(seed) => Zeroizing::new(seed.as_bytes().to_vec()),
            Self::Garbled(prepared) => prepared.to_bytes(),
            Self::Square(prepared) => prepared.to_bytes(),
        }
    }

    fn from_bytes(at: &At<'_>, bytes: &[u8]) -> Result<Option<Self>, EngineError> {
        if let StepKind::Linear(_) | StepKind::Slots(_) = at.step().kind {
            let seed = bytes.try_into().map_err(|_| {
                prepared_error(at.step(), "has a seed of another length than a seed has")
            })?;
            return Ok(Some(Self::Linear(Seed::from_bytes(seed))));
        }
        Ok(match two_party::ahead(at)? {
            Some(two_party::How::Garbled(layout)) => Some(Self::Garbled(Box::new(
                PreparedServer::from_bytes(layout, bytes)?,
            ))),
            Some(two_party::How::Square(squares)) => Some(Self::Square(
                PreparedSquareServer::from_bytes(squares, bytes)?,
            )),
            Some(two_party::How::Open(_)) | None => nothing(at, bytes)?,
        })
    }
}

/// Of a step that has nothing to prepare.
fn nothing<T>(at: &At<'_>, bytes: &[u8]) -> Result<Option<T>, EngineError> {
    match bytes.is_empty() {
        true => Ok(None),
        false => Err(prepared_error(
            at.step(),
            "is of a step that has nothing to prepare",
        )),
    }
}

fn prepared_error(step: &Step, reason: &'static str) -> EngineError {
    let step = step.name.clone();
    EngineError::Prepared { step, reason }
}

impl<T: Stored> Steps<T> {
    fn write<E>(&self, sink: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        for step in &self.steps {
            let bytes = step.as_ref().map(T::to_bytes).unwrap_or_default();
            sink(&(bytes.len() as u64).to_le_bytes())?;
            sink(&bytes)?;
        }
        Ok(())
    }

    fn read(
        plan: &Plan,
        batch: usize,
        setup: [u8; 32],
        mut bytes: &[u8],
    ) -> Result<Self, EngineError> {
        check_preparable(plan, batch)?;
        let held = held::held(plan);
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.iter().enumerate() {
            let (length, rest) = bytes
                .split_first_chunk()
                .ok_or_else(|| prepared_error(step, "is cut short"))?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok();
            let (own, rest) = length
                .and_then(|length| rest.split_at_checked(length))
                .ok_or_else(|| prepared_error(step, "is cut short"))?;
            bytes = rest;
            let at = At {
                plan,
                held: &held,
                index,
                batch,
            };
            steps.push(T::from_bytes(&at, own)?);
        }
        if !bytes.is_empty() {
            let last = &plan.steps[plan.output];
            return Err(prepared_error(last, "has something behind its end"));
        }
        Ok(Self {
            batch,
            setup,
            steps,
        })
    }

    /// The steps for a run of `batch` images.
    pub(super) fn for_batch(
        self,
        plan: &Plan,
        batch: usize,
    ) -> Result<Vec<Option<T>>, EngineError> {
        if self.batch != batch || self.steps.len() != plan.steps.len() {
            let reason = "is for another number of images, or another plan";
            return Err(prepared_error(&plan.steps[plan.output], reason));
        }
        Ok(self.steps)
    }
}

macro_rules! prepared_batch {
    ($prepared:ty) => {
        impl $prepared {
            /// Images of the batch.
            pub fn batch(&self) -> usize {
                self.0.batch
            }

            /// The name of the OTs' set-up that it was made with, as of the connection's keys: when that set-up fails a check,
            /// this is to be destroyed.
            pub fn setup(&self) -> [u8; 32] {
                self.0.setup
            }

            /// Hands all of its bytes to `sink`, a step at a time, for a store that hands it out once.
            ///
            /// # Errors
            /// The sink's.
            pub fn write<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
                self.0.write(&mut sink)
            }

            /// Reads what [`Self::write`] wrote, for the plan, the number of images and the set-up that it was made for.
            ///
            /// # Errors
            /// When the plan does not take so many images, or the bytes are nothing that was made for it.
            pub fn from_bytes(
                plan: &Plan,
                batch: usize,
                setup: [u8; 32],
                bytes: &[u8],
            ) -> Result<Self, EngineError> {
                Steps::read(plan, batch, setup, bytes).map(Self)
            }
        }
    };
}

prepared_batch!(ClientPrepared);
prepared_batch!(ServerPrepared);

/// Checks that batches of so many images can be prepared.
fn check_preparable(plan: &Plan, batch: usize) -> Result<(), EngineError> {
    if batch == 0 || batch > plan.max_batch {
        let most = plan.max_batch;
        return Err(EngineError::Batch { found: batch, most });
    }
    if plan.trust != TrustLevel::TwoParty {
        let reason = "nothing can be prepared at this trust level: it has no garbled circuits";
        return Err(no_engine(&plan.steps[plan.output], reason));
    }
    Ok(())
}

/// A step's preparation under way.
trait Prepares<T>: Machine<Error = EngineError> + Send {
    /// What it has made, once it is done, and this party's share of the step's value.
    fn finish(self: Box<Self>) -> Result<(T, Share), EngineError>;
}

impl Prepares<ClientStep> for Exchange<PrepareClient> {
    fn finish(self: Box<Self>) -> Result<(ClientStep, Share), EngineError> {
        Ok((ClientStep::Garbled(self.into_prepared()?), Share::Zero))
    }
}

impl Prepares<ClientStep> for Exchange<PrepareSquareClient> {
    fn finish(self: Box<Self>) -> Result<(ClientStep, Share), EngineError> {
        Ok((ClientStep::Square(self.into_prepared()?), Share::Zero))
    }
}

impl Prepares<ServerStep> for Exchange<PrepareServer> {
    fn finish(self: Box<Self>) -> Result<(ServerStep, Share), EngineError> {
        let prepared = self.into_prepared()?;
        let share = prepared.share().clone();
        Ok((ServerStep::Garbled(Box::new(prepared)), share))
    }
}

impl Prepares<ServerStep> for Exchange<PrepareSquareServer> {
    fn finish(self: Box<Self>) -> Result<(ServerStep, Share), EngineError> {
        let prepared = self.into_prepared()?;
        let share = prepared.share();
        Ok((ServerStep::Square(prepared), share))
    }
}

/// What a party does for a step.
enum Next<T> {
    Machine(Box<dyn Prepares<T>>),
    Made(Option<T>, Share),
}

/// One party's part in a preparation.
trait Party {
    type Step;

    fn prelude(&self, plan: &Plan) -> Option<Box<dyn Machine<Error = EngineError> + Send>>;

    fn start(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next<Self::Step>, EngineError>;

    /// The name of the connection's set-up of OTs.
    fn setup(&self) -> Option<[u8; 32]>;
}

struct Preparation<P: Party> {
    party: P,
    plan: Arc<Plan>,
    held: Vec<Held>,
    batch: usize,
    prelude: Option<Box<dyn Machine<Error = EngineError> + Send>>,
    machine: Option<Box<dyn Prepares<P::Step>>>,
    shares: Vec<Share>,
    steps: Vec<Option<P::Step>>,
    rows_before: u64,
    rows: u64,
    over: bool,
}

impl<P: Party> Preparation<P> {
    fn new(party: P, plan: Arc<Plan>, batch: usize) -> Result<Self, EngineError> {
        check_preparable(&plan, batch)?;
        let rows = (0..plan.steps.len())
            .filter_map(|index| two_party::prepared_rows(&plan, index))
            .sum();
        let mut preparation = Self {
            prelude: party.prelude(&plan),
            held: held::held(&plan),
            party,
            plan,
            batch,
            machine: None,
            shares: Vec::new(),
            steps: Vec::new(),
            rows_before: 0,
            rows,
            over: false,
        };
        preparation.advance()?;
        Ok(preparation)
    }

    fn advance(&mut self) -> Result<(), EngineError> {
        if self.over {
            return Ok(());
        }
        if let Some(prelude) = &self.prelude {
            if prelude.want() != Want::Done {
                return Ok(());
            }
            self.prelude = None;
        }
        loop {
            if let Some(machine) = &self.machine
                && machine.want() != Want::Done
            {
                return Ok(());
            }
            if let Some(machine) = self.machine.take() {
                self.rows_before += machine.progress().total;
                let (step, share) = machine.finish()?;
                self.made(Some(step), share);
            }
            let index = self.steps.len();
            if index == self.plan.steps.len() {
                self.shares.clear();
                self.over = true;
                return Ok(());
            }
            let plan = self.plan.clone();
            let at = At {
                plan: &plan,
                held: &self.held,
                index,
                batch: self.batch,
            };
            let inputs = plan.steps[index].inputs.iter();
            let inputs = inputs.map(|&input| self.shares[input].clone()).collect();
            match self.party.start(&at, inputs)? {
                Next::Machine(machine) => self.machine = Some(machine),
                Next::Made(step, share) => self.made(step, share),
            }
        }
    }

    fn made(&mut self, step: Option<P::Step>, share: Share) {
        self.steps.push(step);
        self.shares.push(share);
    }

    fn into_steps(self) -> Result<Steps<P::Step>, EngineError> {
        match self.party.setup() {
            Some(setup) if self.over => Ok(Steps {
                batch: self.batch,
                setup,
                steps: self.steps,
            }),
            _ => Err(EngineError::OutOfTurn {
                state: "has not finished what it makes ahead",
            }),
        }
    }

    fn current(&self) -> Option<&dyn Machine<Error = EngineError>> {
        match (&self.prelude, &self.machine) {
            (Some(prelude), _) => Some(prelude.as_ref()),
            (None, Some(machine)) => Some(machine.as_ref()),
            (None, None) => None,
        }
    }

    fn current_mut(&mut self) -> Result<&mut dyn Machine<Error = EngineError>, EngineError> {
        match (&mut self.prelude, &mut self.machine) {
            (Some(prelude), _) => Ok(prelude.as_mut()),
            (None, Some(machine)) => Ok(machine.as_mut()),
            (None, None) => Err(EngineError::OutOfTurn { state: "is over" }),
        }
    }
}

impl<P: Party> Machine for Preparation<P> {
    type Error = EngineError;

    fn want(&self) -> Want {
        self.current().map_or(Want::Done, Machine::want)
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.current_mut()?.send(out)?;
        self.advance()
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        self.current_mut()?.receive(message)?;
        self.advance()
    }

    fn max_incoming(&self) -> usize {
        self.current().map_or(0, Machine::max_incoming)
    }

    fn progress(&self) -> Progress {
        let machine = self.machine.as_ref();
        Progress {
            done: self.rows_before + machine.map_or(0, |machine| machine.progress().done),
            total: self.rows,
        }
    }
}

/// The data owner's half of a preparation: receives tables and keeps them.
pub struct ClientPreparation(Preparation<ClientParty>);

impl ClientPreparation {
    /// For a batch of `batch` images of this connection.
    ///
    /// # Errors
    /// When the plan does not take so many, or nothing of it can be prepared.
    pub fn new(plan: Arc<Plan>, batch: usize, keys: &ClientKeys) -> Result<Self, EngineError> {
        Preparation::new(ClientParty(keys.clone()), plan, batch).map(Self)
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<ClientPrepared, EngineError> {
        self.0.into_steps().map(ClientPrepared)
    }
}

/// The model owner's half of a preparation: garbles.
pub struct ServerPreparation(Preparation<ServerParty>);

impl ServerPreparation {
    /// For a batch of `batch` images of this connection.
    ///
    /// # Errors
    /// As [`ClientPreparation::new`].
    pub fn new(model: &ServerModel, batch: usize, keys: &ServerKeys) -> Result<Self, EngineError> {
        let party = ServerParty {
            keys: keys.clone(),
            layers: model.on_slots(),
        };
        Preparation::new(party, model.plan.clone(), batch).map(Self)
    }

    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    pub fn into_prepared(self) -> Result<ServerPrepared, EngineError> {
        self.0.into_steps().map(ServerPrepared)
    }
}

super::delegate_machine!(ClientPreparation, 0);
super::delegate_machine!(ServerPreparation, 0);

struct ClientParty(ClientKeys);

impl Party for ClientParty {
    type Step = ClientStep;

    fn prelude(&self, plan: &Plan) -> Option<Box<dyn Machine<Error = EngineError> + Send>> {
        two_party::client_prelude(plan, &self.0.transfer)
    }

    fn start(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next<ClientStep>, EngineError> {
        let ots = self.0.transfer.clone();
        Ok(match two_party::ahead(at)? {
            Some(two_party::How::Garbled(layout)) => {
                Next::Machine(Box::new(PrepareClient::new(layout, ots)?))
            }
            Some(two_party::How::Square(squares)) => {
                Next::Machine(Box::new(PrepareSquareClient::new(squares, ots)?))
            }
            Some(two_party::How::Open(_)) | None => Next::Made(None, Share::Zero),
        })
    }

    fn setup(&self) -> Option<[u8; 32]> {
        self.0.setup()
    }
}

struct ServerParty {
    keys: ServerKeys,
    /// Those on slots, by step.
    layers: Vec<Option<Arc<PreparedSlots>>>,
}

impl Party for ServerParty {
    type Step = ServerStep;

    fn prelude(&self, plan: &Plan) -> Option<Box<dyn Machine<Error = EngineError> + Send>> {
        two_party::server_prelude(plan, &self.keys.transfer)
    }

    fn start(&self, at: &At<'_>, mut inputs: Vec<Share>) -> Result<Next<ServerStep>, EngineError> {
        let ots = self.keys.transfer.clone();
        match &at.step().kind {
            StepKind::Input => return Ok(Next::Made(None, Share::Zero)),
            StepKind::Local(op) => return Ok(Next::Made(None, server_local(at, op, inputs))),
            StepKind::Slots(_) => {
                let seed = Seed::from_os()?;
                let missing = || no_engine(at.step(), "its weights are missing");
                let layer = self.layers[at.index].as_ref().ok_or_else(missing)?;
                let shape = slots::Shape::of(at.plan, at.index, at.batch).ok_or_else(missing)??;
                let share = Share::Words(layer.shares(&shape, &seed)?);
                return Ok(Next::Made(Some(ServerStep::Linear(seed)), share));
            }
            StepKind::Linear(linear) => {
                let seed = Seed::from_os()?;
                let share = linear_share(at, linear, &seed)?;
                return Ok(Next::Made(Some(ServerStep::Linear(seed)), share));
            }
            _ => {}
        }
        let share = inputs.swap_remove(0);
        Ok(match two_party::ahead(at)? {
            Some(two_party::How::Garbled(layout)) => {
                Next::Machine(Box::new(PrepareServer::new(layout, share, ots)?))
            }
            Some(two_party::How::Square(squares)) => {
                Next::Machine(Box::new(PrepareSquareServer::new(squares, share, ots)?))
            }
            Some(two_party::How::Open(_)) | None => Next::Made(None, share),
        })
    }

    fn setup(&self) -> Option<[u8; 32]> {
        self.keys.setup()
    }
}

/// The server's share of a linear step's answer, which its masks alone determine.
fn linear_share(at: &At<'_>, linear: &LinearPlan, seed: &Seed) -> Result<Share, EngineError> {
    let share = match linear.word {
        WordSize::U32 => masks::<u32>(at, linear, seed),
        WordSize::U64 => masks::<u64>(at, linear, seed),
    };
    share
        .map(Share::Words)
        .map_err(|source| EngineError::Parameters {
            step: at.step().name.clone(),
            source,
        })
}

fn masks<W: Word>(at: &At<'_>, linear: &LinearPlan, seed: &Seed) -> Result<Batch, ParameterError> {
    let ring = RlweRing::<W>::new(linear.degree, linear.modulus)?;
    let mut share = Batch::zeros(at.step().value.len(), at.batch);
    let row = match linear.engine {
        Engine::Batch => at.batch,
        // All of an answer in pieces of a polynomial's length.
        Engine::Coefficient | Engine::Slot => linear.degree,
    };
    if let Some(encoding) = linear.share_encoding() {
        Hider::new(seed).shares(&ring, &encoding, row, share.words_mut());
    }
    Ok(share)
}
