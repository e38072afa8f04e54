//! The client: connects, checks, predicts.

mod background;
mod handshake;
mod listing;
mod prediction;
mod rest;
mod tickets;

pub(crate) use handshake::{link, prove, secured};
pub use listing::list_models;
pub use prediction::{ImagesDone, Inputs, Prediction, Stats};
pub use tickets::TicketSource;

use std::{
    iter,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use pronghorn_engine::{
    ClientInputs, ClientModel, ClientPreparation, ClientPrepared, Connection, EngineError, Images,
    Machine, Progress,
};
use pronghorn_graph::oracle;
use pronghorn_plan::{
    CheckedPlan, TrustLevel, cost,
    objective::{self, Network},
};

use crate::{
    channel::ClientChannel,
    drive::drive,
    error::SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{self, Begin, Begun, Done, ErrorMessage, Prepare},
    model::{ModelId, ModelRef},
    refill::Refill,
    store::{Name, Owner, Store, StoreError, kept::KeptFile},
};

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// What this connection may reveal; none: [`TrustLevel::TwoParty`].
    pub trust: Option<TrustLevel>,
    /// The model; none: the only one that the server has for this client.
    pub model: Option<ModelRef>,
    /// The hash of the plan, where the user knows it; any other plan is refused.
    pub expected_plan_hash: Option<[u8; 32]>,
    /// How the connection is protected.
    pub channel: ClientChannel,
    /// Tickets of the node's admission service: one for each connection, those in the background and
    /// after a rest included.
    pub ticket: Option<TicketSource>,
    /// A plan the client already holds; it is not sent again if the server still serves it.
    pub plan: Option<CheckedPlan>,
    /// Bytes the client's values may take; batches are made small enough, and a plan with which not
    /// even one image fits is refused.
    pub max_memory: u64,
    /// The directory where the client's halves of prepared batches are kept for later connections;
    /// in memory where none is named.
    pub store: Option<PathBuf>,
    /// Bytes they may take there; in memory `max_memory` holds for them.
    pub max_store: u64,
    /// How long to wait for a connection, to all addresses of a name together; looking the name up
    /// is not counted.
    pub connect_timeout: Duration,
    /// How long no byte may come while this side waits for the server, which includes its computing
    /// between two messages, and how long the line may take none of what this side sends. A message
    /// that comes must also be whole after as long and a second more for each 64 KiB. A work that
    /// goes on takes any time. The end takes up to two seconds more, in which the server is told.
    pub timeout: Duration,
    /// Set from another thread, it ends what the client is doing with [`SessionError::Cancelled`],
    /// and with that the session: within a fraction of a second, or when the computing of one
    /// message is over.
    pub cancel: Arc<AtomicBool>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            trust: None,
            model: None,
            expected_plan_hash: None,
            channel: ClientChannel::default(),
            ticket: None,
            plan: None,
            max_memory: 8 << 30,
            store: None,
            max_store: 16 << 30,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(600),
            cancel: Arc::default(),
        }
    }
}

/// A connection to a server, for any number of predictions one after another.
///
/// A server ends a connection that rests too long. A client that was connected by its address then
/// connects again when it is next asked for something, to the same plan. Its store, what the server
/// published and its prepared batches serve on; keys are exchanged anew, which the next batch
/// costs.
pub struct Client {
    link: Link,
    model: Arc<ClientModel>,
    id: ModelId,
    plan_hash: [u8; 32],
    /// The plan's name on this channel.
    plan_name: [u8; 32],
    max_batch: usize,
    max_memory: u64,
    images_left: Option<u64>,
    cancel: Arc<AtomicBool>,
    over: bool,
    /// Whether the server has closed the connection after the last batch, since others wait.
    leaves: bool,
    last_used: Instant,
    /// Of this connection, for plans whose keys serve all its batches.
    connection: Connection,
    store: Arc<Store<ClientPrepared>>,
    /// Where the connection's persistent values are kept, in the order of the model's.
    kept_files: Vec<KeptFile>,
    /// The server's store, and the batches it keeps for this client.
    server: Owner,
    prepared_batches: usize,
    /// The set-up of OTs that batches were prepared with.
    setup: Option<[u8; 32]>,
    /// How to connect again, where that is known.
    again: Option<(String, ConnectOptions)>,
    refill: Option<Refill>,
    /// Batches that it keeps prepared.
    kept: usize,
}

impl Client {
    /// The plan both parties follow, validated.
    pub fn plan(&self) -> &CheckedPlan {
        self.model.plan()
    }

    /// The server's name of the model.
    pub fn model_id(&self) -> &ModelId {
        &self.id
    }

    /// Most images in one batch, by plan and server.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Images of a piece of a long work, whose results are kept as they come.
    pub fn piece(&self) -> usize {
        objective::piece(self.plan(), self.max_batch, &Network::default())
    }

    /// Images the server still grants this client, where it limits them.
    pub fn images_left(&self) -> Option<u64> {
        self.images_left
    }

    /// Most prepared batches that the server keeps for this client.
    pub fn most_prepared(&self) -> usize {
        self.prepared_batches
    }

    /// Predicts `images` images, one after the other in `inputs`: [`Client::predict_inputs`].
    ///
    /// # Errors
    /// When the inputs do not fit the plan (the session goes on), or as that.
    pub fn predict(
        &mut self,
        inputs: &[f32],
        images: usize,
        on_progress: &mut dyn FnMut(ImagesDone),
    ) -> Result<Prediction, SessionError> {
        let inputs = Inputs::new(self.plan(), inputs, images)?;
        self.predict_inputs(inputs, on_progress)
    }

    /// Predicts in as few batches as the limits allow; calls `on_progress` after every message.
    ///
    /// # Errors
    /// When there are no images, or they take more memory than allowed (the session goes on), or
    /// the session fails, is cancelled, or has fewer images left (it is then over: the server's log
    /// says that it was refused). Where a check of decrypted values fails, all batches are run to
    /// their end, nothing of it goes over the line, and the session goes on as if they had held,
    /// with the same keys. To predict again at once would tell of it.
    pub fn predict_inputs(
        &mut self,
        inputs: Inputs,
        on_progress: &mut dyn FnMut(ImagesDone),
    ) -> Result<Prediction, SessionError> {
        let (started, quantising) = (Instant::now(), inputs.seconds);
        let images = inputs.images.count();
        if images == 0 {
            return Err(SessionError::Batch {
                found: 0,
                most: self.max_batch,
            });
        }
        self.wake()?;
        let before = self.link.traffic;
        let charged = |batch: &usize| self.plan().charged(*batch) as u64;
        let charged = self.batches(images)?.iter().map(charged).sum();
        self.within_quota(charged)?;
        let mut stats = Stats::default();
        let values = images.saturating_mul(self.plan().output_len()) as u64;
        if values.saturating_mul(4) > self.max_memory {
            let (needed, allowed) = (values.saturating_mul(4), self.max_memory);
            return Err(SessionError::ClientMemory { needed, allowed });
        }
        let mut outputs = Vec::with_capacity(images * self.plan().output_len());
        let mut beyond: Option<Vec<bool>> = None;
        let (mut done, mut unkept, mut doubt) = (0, None, None);
        while done < images {
            let part = done..images.min(done + self.max_batch);
            let batch = part.len();
            let found = self.awake(|client| {
                client.predict_batch(&inputs.images, part.clone(), &mut stats, &mut |now| {
                    on_progress(ImagesDone::within(now, done, batch, images));
                })
            })?;
            match found {
                Ok(integers) => {
                    let plan = self.plan();
                    outputs.extend(oracle::finish(
                        &plan.finish,
                        plan.result(),
                        &integers,
                        batch,
                    ));
                    if let Some(found) = inputs.images.beyond_samples(part, &integers) {
                        beyond.get_or_insert_default().extend(found);
                    }
                }
                // The server must not see that the other batches are not wanted any more.
                Err(error) => doubt = doubt.or(Some(error)),
            }
            done += batch;
            // Results are good whatever the store says.
            unkept = self.keep_values(false).err();
        }
        unkept = unkept.or(self.keep_values(true).err());
        if let Some(doubt) = doubt {
            return Err(doubt.into());
        }
        stats.add_traffic(self.link.traffic, before);
        stats.seconds = quantising + started.elapsed().as_secs_f64();
        Ok(Prediction {
            outputs,
            beyond_samples: beyond,
            stats,
            unkept: unkept.map(|error| error.to_string()),
        })
    }

    /// The result's integers for a batch of some of the images. The inner error is of a check of
    /// decrypted values, of which the server has seen nothing.
    fn predict_batch(
        &mut self,
        images: &Arc<Images>,
        part: Range<usize>,
        stats: &mut Stats,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Result<Vec<i32>, EngineError>, SessionError> {
        let (batch, all) = (part.len(), images.count());
        let inputs = ClientInputs::new(self.model.clone(), images.clone(), part)?;
        let (half, damaged) = self.take_prepared(batch)?;
        stats.lost_preparations += damaged;
        let named = half.is_some();
        let prepared = self.guarded(|client| client.begin(batch, half));
        // Whatever came of it, it is used up.
        let used = matches!(prepared, Ok(Some(_)));
        stats.lost_preparations += u64::from(named && !used);
        let prepared = prepared?;
        let run = self.guarded(|client| {
            client.want_prepared(all)?;
            client.offer_kept(batch)?;
            let mut run = inputs.run(&client.connection, prepared)?;
            client.complete(&mut run, batch, on_progress)?;
            Ok(run)
        })?;
        stats.batches += 1;
        stats.prepared_batches += u64::from(used);
        stats.clamped_inputs += run.clamped_inputs();
        stats.clamped_activations += run.clamped_activations();
        Ok(run.finish_integers())
    }

    /// Ends the session where it has fewer than `asked` images left; the server is told, for its
    /// log.
    fn within_quota(&mut self, asked: u64) -> Result<(), SessionError> {
        let Some(left) = self.images_left.filter(|&left| left < asked && !self.over) else {
            return Ok(());
        };
        Err(self.end(SessionError::Quota { asked, left }))
    }

    /// Ends the session because of `error`.
    fn end(&mut self, error: SessionError) -> SessionError {
        self.over = true;
        let burnt = self
            .setup
            .filter(|setup| self.connection.setup() != Some(*setup));
        if let Some(Err(error)) = burnt.map(|setup| self.store.destroy(&setup)) {
            part(&mut self.link, &error.into());
            return SessionError::Over;
        }
        part(&mut self.link, &error);
        error
    }

    /// Does ahead what of the prediction of `images` images needs no inputs: garbled circuits are
    /// made, sent and kept in the store, and predictions of as many images use them up, each once.
    /// Only plans on shares have any.
    ///
    /// # Errors
    /// When nothing can be prepared, the server keeps fewer batches, the store refuses, or the
    /// session fails.
    pub fn prepare(
        &mut self,
        images: usize,
        mut on_progress: impl FnMut(ImagesDone),
    ) -> Result<Stats, SessionError> {
        let started = Instant::now();
        self.wake()?;
        let batches = self.batches(images)?;
        let (before, mut stats) = (self.link.traffic, Stats::default());
        let (found, most) = (batches.len(), self.prepared_batches);
        if found > most && self.plan().trust.shares() {
            return Err(SessionError::Prepared { found, most });
        }
        if self.store.is_in_memory() {
            self.check_memory(images)?;
        }
        let mut done = 0;
        for batch in batches {
            self.awake(|client| {
                client.prepare_batch(batch, &mut |now| {
                    on_progress(ImagesDone::within(now, done, batch, images));
                })
            })?;
            done += batch;
            stats.batches += 1;
        }
        stats.add_traffic(self.link.traffic, before);
        stats.seconds = started.elapsed().as_secs_f64();
        Ok(stats)
    }

    /// The batches that so many images are split into.
    fn batches(&self, images: usize) -> Result<Vec<usize>, SessionError> {
        if images == 0 {
            return Err(SessionError::Batch {
                found: 0,
                most: self.max_batch,
            });
        }
        let (whole, last) = (images / self.max_batch, images % self.max_batch);
        let last = (last > 0).then_some(last);
        Ok(iter::repeat_n(self.max_batch, whole).chain(last).collect())
    }

    /// Prepares one batch and keeps this party's half.
    fn prepare_batch(
        &mut self,
        batch: usize,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SessionError> {
        ClientPreparation::check(self.plan(), batch)?;
        let needed = self.check_memory(batch)?;
        let name = Name::random().map_err(StoreError::from)?;
        self.store.check(&name, needed)?;
        let machine = self.guarded(|client| {
            let runs = client.connection.runs();
            // From here on both parties count the OTs of this batch as taken.
            let mut machine = ClientPreparation::new(&client.model, batch, &client.connection)?;
            let images = client.images(batch)?;
            let prepare = Prepare {
                plan_hash: client.plan_name,
                batch: images,
                runs,
                name,
            };
            client.link.send(Kind::Prepare, message::encode(&prepare))?;
            drive(&mut machine, &mut client.link, on_progress)?;
            // The server keeps nothing before it knows that both have seen the same.
            client
                .link
                .send(Kind::Done, message::encode(&Done::of(images)))?;
            client.expect_done(images)?;
            Ok(machine)
        })?;
        let prepared = machine.into_prepared()?;
        self.setup = Some(prepared.setup());
        let most = self.prepared_batches;
        Ok(self.store.put(name, self.server, most, needed, prepared)?)
    }

    /// Bytes of this party's half of so many prepared images, which must fit its memory.
    fn check_memory(&self, images: usize) -> Result<u64, SessionError> {
        let needed = cost::prepared(self.plan(), images).memory.client;
        let allowed = self.max_memory;
        match needed <= allowed {
            true => Ok(needed),
            false => Err(SessionError::ClientMemory { needed, allowed }),
        }
    }

    /// Whether a prediction of `images` images finds a preparation for each of its batches in the
    /// store.
    ///
    /// # Errors
    /// When there are no images, or the store cannot be read.
    pub fn is_prepared(&self, images: usize) -> Result<bool, SessionError> {
        let batches = self.batches(images)?;
        Ok(self.store.missing(&self.server, &batches)?.is_none())
    }

    /// The newest prepared batch of the store for so many images; how many were damaged.
    fn take_prepared(
        &self,
        batch: usize,
    ) -> Result<(Option<(Name, ClientPrepared)>, u64), StoreError> {
        let read = |batch, setup, bytes: &[u8]| {
            ClientPrepared::from_bytes(&self.model, batch, setup, bytes)
        };
        self.store.take_newest(&self.server, batch, &read)
    }

    /// Offers a batch of so many images the persistent values of earlier connections, where the
    /// client has a store.
    fn offer_kept(&mut self, images: usize) -> Result<(), SessionError> {
        for (value, file) in self.model.persistent().iter().zip(&mut self.kept_files) {
            file.offer(value.as_ref(), &self.connection, images)?;
        }
        Ok(())
    }

    /// Keeps the persistent values of this connection, where the client has a store: its secrets, or
    /// the others.
    fn keep_values(&mut self, secrets: bool) -> Result<(), StoreError> {
        let values = self.model.persistent().iter().zip(&mut self.kept_files);
        for (value, file) in values.filter(|(value, _)| value.uses().is_none() == secrets) {
            file.keep(value.as_ref(), &self.connection)?;
        }
        Ok(())
    }

    /// Whether another connection has taken a secret of this one out of the store.
    fn has_lost_a_secret(&self) -> bool {
        let mut values = self.model.persistent().iter().zip(&self.kept_files);
        values.any(|(value, file)| file.is_lost(value.as_ref(), &self.connection))
    }

    /// Runs one batch of `batch` images with this party's `machine`. A machine that was not made of
    /// this client's connection does not count among its batches: a real server refuses the next one.
    ///
    /// # Errors
    /// When the session fails; the server is told the category, and the client is of no further
    /// use.
    pub fn run<M: Machine<Error = EngineError> + Send + ?Sized>(
        &mut self,
        machine: &mut M,
        batch: usize,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SessionError> {
        self.guarded(|client| {
            client.begin(batch, None)?;
            client.complete(machine, batch, on_progress)
        })
    }

    /// Does a part of the protocol; what fails ends the session.
    fn guarded<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        if self.over {
            return Err(SessionError::Over);
        }
        part(self).map_err(|error| {
            let error = unless_cancelled(&self.cancel, error);
            self.end(error)
        })
    }

    /// Begins a batch with this party's half of a preparation, which is taken from the store for
    /// good; what is left of it when the server has answered.
    fn begin(
        &mut self,
        batch: usize,
        half: Option<(Name, ClientPrepared)>,
    ) -> Result<Option<ClientPrepared>, SessionError> {
        let (name, half) = half.unzip();
        let begin = Begin {
            plan_hash: self.plan_name,
            batch: self.images(batch)?,
            runs: self.connection.runs(),
            prepared: name,
        };
        self.link.send(Kind::Begin, message::encode(&begin))?;
        if name.is_none() {
            return Ok(None);
        }
        let mut payload = Vec::new();
        self.link
            .receive(&[(Kind::Begun, MAX_HANDSHAKE)], &mut payload)?;
        let begun: Begun = message::decode(Kind::Begun, &payload)?;
        Ok(half.filter(|_| begun.prepared))
    }

    fn images(&self, batch: usize) -> Result<u32, SessionError> {
        u32::try_from(batch).map_err(|_| SessionError::Batch {
            found: batch,
            most: self.max_batch,
        })
    }

    /// Runs a machine to its end, until both parties know that they have seen the same messages.
    fn complete<M: Machine<Error = EngineError> + Send + ?Sized>(
        &mut self,
        machine: &mut M,
        batch: usize,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SessionError> {
        let images = self.images(batch)?;
        drive(machine, &mut self.link, on_progress)?;
        self.expect_done(images)
    }

    fn expect_done(&mut self, images: u32) -> Result<(), SessionError> {
        let done = Done::receive(&mut self.link)?;
        if done.batch != images {
            let (found, expected) = (
                u64::from(done.batch),
                format!("and {images} were asked for"),
            );
            return Err(SessionError::Handshake {
                field: "count of images",
                found,
                expected,
            });
        }
        self.images_left = done.images_left;
        self.leaves = done.leaves;
        self.last_used = Instant::now();
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if self.cancel.load(Ordering::SeqCst) {
            part(&mut self.link, &SessionError::Cancelled);
        } else {
            // A server that is gone needs no goodbye.
            let _ = self.link.send(Kind::Bye, Vec::new());
        }
    }
}

/// `error`, unless this side's user wanted an end: the link then fails with whatever it was waiting
/// for.
fn unless_cancelled(cancel: &AtomicBool, error: SessionError) -> SessionError {
    if cancel.load(Ordering::SeqCst) {
        SessionError::Cancelled
    } else {
        error
    }
}

/// Ends a failed session.
fn part(link: &mut Link, error: &SessionError) {
    let message = ErrorMessage::of_client(error);
    link.close(error.is_worth_telling().then_some(&message));
}
