//! What of a `two-party` batch can be done before its inputs are known: garblings and squares of all steps, since the server's
//! shares never depend on the client's data. What is left for the batch itself are its linear steps, a bit for each bit of a client's share,
//! and 16 bytes back.
//!
//! What was prepared lies in the connection's [`ClientKeys`] and [`ServerKeys`], and the next batch of the same number of images on
//! that connection uses it up, on both sides alike.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_he::{ParameterError, RlweRing, shares::Hider};
use pronghorn_plan::{
    LinearPlan, Plan, StepKind, TrustLevel, WordSize,
    held::{self, Held},
};
use pronghorn_ring::{Word, random::Seed};

use super::{At, ClientKeys, ServerKeys, ServerModel, no_engine, server_local, two_party};
use crate::{
    error::EngineError,
    garbled::{
        PrepareClient, PrepareServer, PrepareSquareClient, PrepareSquareServer, PreparedClient,
        PreparedServer, PreparedSquareClient, PreparedSquareServer,
    },
    machine::{Machine, Progress, Want},
    share::{Batch, Share},
};

/// What was prepared for a batch, by step, and the images of that batch.
type PreparedBatch<T> = (usize, Vec<Option<T>>);

/// Preparations of a connection, the oldest first; `T` is one step's. Secret: no Debug.
pub(super) struct Store<T>(Arc<Mutex<VecDeque<PreparedBatch<T>>>>);

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Store<T> {
    /// Destroys all of them.
    fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    fn put(&self, batch: usize, steps: Vec<Option<T>>) {
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        store.push_back((batch, steps));
    }

    /// Hands the oldest one for so many images out, for good.
    pub(super) fn take(&self, batch: usize) -> Option<Vec<Option<T>>> {
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = store.iter().position(|(images, _)| *images == batch)?;
        store.remove(place).map(|(_, steps)| steps)
    }
}

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

/// A step's preparation under way.
trait Prepares<T>: Machine + Send {
    /// What it has made, once it is done, and this party's share of the step's value.
    fn finish(self: Box<Self>) -> Result<(T, Share), EngineError>;
}

impl Prepares<ClientStep> for PrepareClient {
    fn finish(self: Box<Self>) -> Result<(ClientStep, Share), EngineError> {
        Ok((ClientStep::Garbled(self.into_prepared()?), Share::Zero))
    }
}

impl Prepares<ClientStep> for PrepareSquareClient {
    fn finish(self: Box<Self>) -> Result<(ClientStep, Share), EngineError> {
        Ok((ClientStep::Square(self.into_prepared()?), Share::Zero))
    }
}

impl Prepares<ServerStep> for PrepareServer {
    fn finish(self: Box<Self>) -> Result<(ServerStep, Share), EngineError> {
        let prepared = self.into_prepared()?;
        let share = prepared.share().clone();
        Ok((ServerStep::Garbled(Box::new(prepared)), share))
    }
}

impl Prepares<ServerStep> for PrepareSquareServer {
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

    fn prelude(&self, plan: &Plan) -> Option<Box<dyn Machine + Send>>;

    fn start(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next<Self::Step>, EngineError>;

    fn store(&self) -> &Store<Self::Step>;
}

struct Preparation<P: Party> {
    party: P,
    plan: Arc<Plan>,
    held: Vec<Held>,
    batch: usize,
    prelude: Option<Box<dyn Machine + Send>>,
    machine: Option<Box<dyn Prepares<P::Step>>>,
    shares: Vec<Share>,
    steps: Vec<Option<P::Step>>,
    rows_before: u64,
    rows: u64,
    over: bool,
}

impl<P: Party> Preparation<P> {
    fn new(party: P, plan: Arc<Plan>, batch: usize) -> Result<Self, EngineError> {
        if batch == 0 || batch > plan.max_batch {
            let most = plan.max_batch;
            return Err(EngineError::Batch { found: batch, most });
        }
        if plan.trust != TrustLevel::TwoParty {
            let reason = "nothing can be prepared at this trust level: it has no garbled circuits";
            return Err(no_engine(&plan.steps[plan.output], reason));
        }
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
                let steps = std::mem::take(&mut self.steps);
                self.party.store().put(self.batch, steps);
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

    fn current(&self) -> Option<&dyn Machine> {
        match (&self.prelude, &self.machine) {
            (Some(prelude), _) => Some(prelude.as_ref()),
            (None, Some(machine)) => Some(machine.as_ref()),
            (None, None) => None,
        }
    }

    fn current_mut(&mut self) -> Result<&mut dyn Machine, EngineError> {
        match (&mut self.prelude, &mut self.machine) {
            (Some(prelude), _) => Ok(prelude.as_mut()),
            (None, Some(machine)) => Ok(machine.as_mut()),
            (None, None) => Err(EngineError::OutOfTurn { state: "is over" }),
        }
    }
}

impl<P: Party> Machine for Preparation<P> {
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
}

/// The model owner's half of a preparation: garbles.
pub struct ServerPreparation(Preparation<ServerParty>);

impl ServerPreparation {
    /// For a batch of `batch` images of this connection.
    ///
    /// # Errors
    /// As [`ClientPreparation::new`].
    pub fn new(model: &ServerModel, batch: usize, keys: &ServerKeys) -> Result<Self, EngineError> {
        Preparation::new(ServerParty(keys.clone()), model.plan.clone(), batch).map(Self)
    }
}

super::delegate_machine!(ClientPreparation, 0);
super::delegate_machine!(ServerPreparation, 0);

struct ClientParty(ClientKeys);

impl Party for ClientParty {
    type Step = ClientStep;

    fn prelude(&self, plan: &Plan) -> Option<Box<dyn Machine + Send>> {
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

    fn store(&self) -> &Store<ClientStep> {
        &self.0.prepared
    }
}

struct ServerParty(ServerKeys);

impl Party for ServerParty {
    type Step = ServerStep;

    fn prelude(&self, plan: &Plan) -> Option<Box<dyn Machine + Send>> {
        two_party::server_prelude(plan, &self.0.transfer)
    }

    fn start(&self, at: &At<'_>, mut inputs: Vec<Share>) -> Result<Next<ServerStep>, EngineError> {
        let ots = self.0.transfer.clone();
        match &at.step().kind {
            StepKind::Input => return Ok(Next::Made(None, Share::Zero)),
            StepKind::Local(op) => return Ok(Next::Made(None, server_local(at, op, inputs))),
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

    fn store(&self) -> &Store<ServerStep> {
        &self.0.prepared
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
    if let Some(encoding) = linear.share_encoding() {
        Hider::new(seed).shares(&ring, &encoding, at.batch, share.words_mut());
    }
    Ok(share)
}

impl ServerKeys {
    /// A preparation for a batch of so many images, for good; none once a check of the connection's OTs has failed, since the
    /// client may then know bits of the `Delta` that it was made with.
    pub(super) fn take_prepared(&self, batch: usize) -> Vec<Option<ServerStep>> {
        if !self.transfer.is_ready() {
            self.prepared.clear();
        }
        self.prepared.take(batch).unwrap_or_default()
    }
}

impl ClientKeys {
    /// The same of the client's.
    pub(super) fn take_prepared(&self, batch: usize) -> Vec<Option<ClientStep>> {
        self.prepared.take(batch).unwrap_or_default()
    }
}
