//! Both parties' sides of a layer on slots, and of the exchange of keys.

use std::sync::Arc;

use pronghorn_plan::{CheckedPlan, Weights, step::Compiled, steps::linear::slots::SlotLinear};
use pronghorn_ring::random::Seed;
use zeroize::Zeroize;

use super::{
    Shape,
    client::SlotClient,
    keys::{ClientSlotKeys, ServerSlotKeys, SlotKeySets},
    server::{PreparedSlots, SlotServer},
};
use crate::{
    batch::sides::Masks,
    connection::{Connection, Connections, Kept, Shelf},
    error::EngineError,
    keys::{KeptSeed, KeyCache, most_batches},
    machine::{Prepared, prepared_as},
    persistent::{Persistent, Saved, Uses},
    protocol::{At, Compile, Next, Side, first, unsupported},
    share::Share,
};

impl Compile for SlotLinear {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide(Shape::new(step)?)))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        let Weights::Layer(weights) = weights else {
            return Err(unsupported(&step.place.name(), "its weights are missing"));
        };
        let shape = Shape::new(step)?;
        let layer = PreparedSlots::new(weights, self, &shape)?;
        Ok(Box::new(ServerSide {
            layer: Arc::new(layer),
            shape,
        }))
    }
}

struct ClientSide(Shape);

impl Side for ClientSide {
    fn rows(&self, batch: usize) -> u64 {
        self.0.for_batch(batch).rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let input = first(inputs).into_words(&self.0.step)?;
        let keys = at.connection.kept::<Kept<Arc<ClientSlotKeys>>>().get();
        let key = keys.and_then(|keys| keys.secret(&self.0.scheme));
        let key = key.ok_or_else(|| self.0.missing("its keys are missing"))?;
        let machine = SlotClient::new(self.0.for_batch(at.batch), key, input)?;
        Ok(Next::Machine(Box::new(machine)))
    }
}

struct ServerSide {
    shape: Shape,
    layer: Arc<PreparedSlots>,
}

impl Side for ServerSide {
    fn rows(&self, batch: usize) -> u64 {
        self.shape.for_batch(batch).rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let keys = at.connection.kept::<Kept<Arc<ServerSlotKeys>>>().get();
        let keys = keys.and_then(|keys| keys.of(&self.shape.scheme));
        let keys = keys.ok_or_else(|| self.shape.missing("the client's keys are missing"))?;
        let masks = prepared_as::<Masks>(prepared).map(|masks| masks.0);
        let (shape, layer) = (self.shape.for_batch(at.batch), self.layer.clone());
        let machine = SlotServer::new(shape, layer, keys, first(inputs), masks)?;
        Ok(Next::Machine(Box::new(machine)))
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        let shape = self.shape.for_batch(at.batch);
        Masks::offline(|masks| self.layer.shares(&shape, masks))
    }

    fn read_prepared(&self, _batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        Masks::read(&self.shape.step, bytes)
    }
}

/// The seed of a client's keys.
struct SlotSeed(CheckedPlan);

/// The seed of keys of a plan on slots, for a store.
pub(crate) fn persistent(plan: &CheckedPlan) -> Option<Box<dyn Persistent>> {
    (!plan.slot_keys().is_empty()).then(|| Box::new(SlotSeed(plan.clone())) as _)
}

/// Names a seed in a store, and tells nothing of it.
const NAME: &str = "pronghorn 2026 name of a seed of keys for slots";

impl Persistent for SlotSeed {
    fn name(&self) -> &'static str {
        "slots"
    }

    /// A secret: what a prediction that broke off may have told of it ends with it.
    fn uses(&self) -> Option<Uses> {
        None
    }

    fn offer(&self, connection: &Connection, bytes: &[u8], uses: usize) -> Result<(), EngineError> {
        let seed = bytes.try_into().map_err(|_| EngineError::Unsupported {
            step: "the client's keys for slots".into(),
            reason: "their seed has another length than 32 bytes",
        })?;
        let seed = KeptSeed(Arc::new(Seed::from_bytes(seed)));
        connection
            .kept::<Kept<KeptSeed>>()
            .put_for(seed, uses.min(most_batches(&self.0)));
        Ok(())
    }

    fn left(&self, connection: &Connection) -> usize {
        connection.kept::<Kept<KeptSeed>>().left()
    }

    fn limit(&self, connection: &Connection, uses: usize) {
        connection.kept::<Kept<KeptSeed>>().limit(uses);
        connection.kept::<Kept<Arc<ClientSlotKeys>>>().limit(uses);
    }

    fn saved(&self, connection: &Connection) -> Option<Saved> {
        let seed = connection.kept::<Kept<KeptSeed>>().get()?;
        let mut hasher = blake3::Hasher::new_derive_key(NAME);
        hasher.update(seed.0.as_bytes());
        let mut hash = hasher.finalize();
        let saved = Saved {
            id: *hash.as_bytes(),
            head: seed.0.as_bytes().to_vec().into(),
            body: Arc::default(),
        };
        hash.zeroize();
        hasher.zeroize();
        Some(saved)
    }
}

/// Lets a server keep clients' keys for steps on slots between their connections, of so many bytes
/// in all; in memory they take twice as many.
pub fn keep_keys(connections: &Connections, bytes: u64) {
    let cache: KeyCache<ServerSlotKeys> = connections.connect().shared();
    cache.keep(bytes);
}

/// The keys of a plan on slots.
pub(crate) fn key_sets(plan: &CheckedPlan) -> Option<Arc<SlotKeySets>> {
    let sets = || Arc::new(SlotKeySets(plan.clone()));
    (!plan.slot_keys().is_empty()).then(sets)
}
