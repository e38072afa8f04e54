//! Both parties' sides of a network on ciphertexts.

use std::sync::Arc;

use pronghorn_plan::{EncryptedPlan, Weights, step::Compiled};

use super::{Network, Shape, client::EncryptedClient, server::EncryptedServer};
use crate::{
    connection::Shelf,
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
        let keys = at.connection.kept();
        let machine = EncryptedClient::<u32>::new(self.0.clone(), input, keys)?;
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
        let machine = EncryptedServer::new(shape, network, at.connection.kept());
        Ok(Next::Machine(Box::new(machine)))
    }
}
