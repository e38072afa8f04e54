//! Both parties' sides of a network on ciphertexts.

use std::sync::Arc;

use pronghorn_plan::{CheckedPlan, EncryptedPlan, StepKind, Weights, step::Compiled};

use super::{
    Network, Shape,
    client::EncryptedClient,
    keys::{ClientEncryptedKeys, EncryptedKeySets, ServerEncryptedKeys},
    server::EncryptedServer,
};
use crate::{
    connection::{Kept, Shelf},
    error::EngineError,
    machine::Prepared,
    protocol::{At, Compile, Next, Side, first, unsupported},
    share::Share,
};

impl Compile for EncryptedPlan {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide(Shape::new(self, &step.place))))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        let Weights::Network(network) = weights else {
            return Err(unsupported(&step.place.name(), "its weights are missing"));
        };
        Ok(Box::new(ServerSide {
            shape: Shape::new(self, &step.place),
            network: Arc::new(Network::new(network, self, &step.place.name())?),
        }))
    }
}

struct ClientSide(Shape);

impl Side for ClientSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let input = first(inputs).into_words(&self.0.step)?;
        let keys = at.connection.kept::<Kept<Arc<ClientEncryptedKeys<u32>>>>();
        let keys = keys.get().ok_or_else(|| no_keys(&self.0))?;
        let machine = EncryptedClient::new(self.0.clone(), input, keys)?;
        Ok(Next::Machine(Box::new(machine)))
    }
}

struct ServerSide {
    shape: Shape,
    network: Arc<Network<u32>>,
}

impl Side for ServerSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.shape.rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        _inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let (shape, network) = (self.shape.clone(), self.network.clone());
        let keys = at.connection.kept::<Kept<Arc<ServerEncryptedKeys<u32>>>>();
        let keys = keys.get().ok_or_else(|| no_keys(&shape))?;
        let machine = EncryptedServer::new(shape, network, keys);
        Ok(Next::Machine(Box::new(machine)))
    }
}

fn no_keys(shape: &Shape) -> EngineError {
    unsupported(&shape.step, "the client's keys are missing")
}

/// The keys of an encrypted network.
pub(crate) fn key_sets(
    plan: &CheckedPlan,
) -> Result<Option<Arc<EncryptedKeySets<u32>>>, EngineError> {
    let networks = plan.steps.iter().find_map(|step| match &step.kind {
        StepKind::Encrypted(network) => Some(network),
        _ => None,
    });
    let sets = networks.map(|network| EncryptedKeySets::new(plan, network).map(Arc::new));
    sets.transpose()
}
