//! Both parties' sides of a layer on slots, and of the exchange of keys.

use std::sync::Arc;

use pronghorn_plan::{CheckedPlan, Weights, step::Compiled, steps::linear::slots::SlotLinear};
use pronghorn_ring::random::Seed;

use super::{
    Shape,
    client::SlotClient,
    keys::{ClientSlotKeys, KeyCache, KeysClient, KeysServer, ServerSlotKeys, SlotSeed},
    server::{PreparedSlots, SlotServer},
};
use crate::{
    batch::sides::Masks,
    connection::{Connection, Kept, Shelf},
    error::EngineError,
    machine::{Exchanging, Prepared, prepared_as},
    persistent::{Persistent, Saved, Uses},
    protocol::{At, Compile, Next, Prelude, PreludeKind, Side, first, unsupported},
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
            return Err(unsupported(step.place.name(), "its weights are missing"));
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

/// The seed of a client's keys, which it keeps over connections. A server that got these keys may
/// have them still.
struct KeptSeed(CheckedPlan);

/// Grants of a seed: connections that it serves at least.
const GRANTS: u64 = 16;

/// Images that a plan's keys serve in all, and those of one connection before it asks again.
fn uses(plan: &CheckedPlan) -> Uses {
    let most = plan.flood().map_or(0, |lifetime| lifetime.count);
    let grant = (most / GRANTS).max(plan.max_batch as u64).min(most);
    Uses {
        most: usize::try_from(most).unwrap_or(usize::MAX),
        grant: usize::try_from(grant).unwrap_or(usize::MAX),
    }
}

/// The seed of keys of a plan on slots, for a store.
pub(crate) fn persistent(plan: &CheckedPlan) -> Option<Box<dyn Persistent>> {
    (!plan.slot_keys().is_empty()).then(|| Box::new(KeptSeed(plan.clone())) as _)
}

impl Persistent for KeptSeed {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn uses(&self) -> Uses {
        uses(&self.0)
    }

    fn offer(&self, connection: &Connection, bytes: &[u8], uses: usize) -> Result<(), EngineError> {
        let seed = bytes.try_into().map_err(|_| EngineError::Unsupported {
            step: "the client's keys for slots".into(),
            reason: "their seed has another length than 32 bytes",
        })?;
        let offered: Kept<SlotSeed> = connection.kept();
        offered.put_for(SlotSeed(Arc::new(Seed::from_bytes(seed))), uses);
        Ok(())
    }

    fn left(&self, connection: &Connection) -> usize {
        connection.kept::<Kept<Arc<ClientSlotKeys>>>().left()
    }

    fn saved(&self, connection: &Connection) -> Option<Saved> {
        let keys = connection.kept::<Kept<Arc<ClientSlotKeys>>>().get()?;
        let (seed, id) = keys.names();
        Some(Saved {
            id,
            head: seed.as_bytes().to_vec().into(),
            body: Arc::default(),
        })
    }
}

/// The client's keys, for plans on slots.
pub(crate) fn client_keys(plan: &CheckedPlan) -> Option<Box<dyn Prelude>> {
    let keys = || Box::new(ClientKeys(plan.clone())) as _;
    (!plan.slot_keys().is_empty()).then(keys)
}

/// The server's side of them.
pub(crate) fn server_keys(plan: &CheckedPlan) -> Option<Box<dyn Prelude>> {
    let keys = || Box::new(ServerKeys(plan.clone())) as _;
    (!plan.slot_keys().is_empty()).then(keys)
}

struct ClientKeys(CheckedPlan);

impl Prelude for ClientKeys {
    fn kind(&self) -> PreludeKind {
        PreludeKind::SlotKeys
    }

    fn start(
        &self,
        connection: &Connection,
        batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        let keys = connection.kept::<Kept<Arc<ClientSlotKeys>>>();
        if keys.count(batch) {
            return Ok(None);
        }
        let offered = connection.kept::<Kept<SlotSeed>>().take();
        let (seed, images) = match offered {
            Some((seed, images)) if images >= batch => (seed.0, images),
            _ => (Arc::new(Seed::from_os()?), uses(&self.0).grant),
        };
        let client = KeysClient::new(&self.0, &seed, [images, batch], keys)?;
        Ok(Some(Box::new(client)))
    }
}

struct ServerKeys(CheckedPlan);

impl Prelude for ServerKeys {
    fn kind(&self) -> PreludeKind {
        PreludeKind::SlotKeys
    }

    fn start(
        &self,
        connection: &Connection,
        batch: usize,
    ) -> Result<Option<Exchanging>, EngineError> {
        let keys = connection.kept::<Kept<Arc<ServerSlotKeys>>>();
        let cache: KeyCache = connection.shared();
        let machine = || Box::new(KeysServer::new(self.0.clone(), batch, cache, keys.clone())) as _;
        Ok((!keys.count(batch)).then(machine))
    }
}
