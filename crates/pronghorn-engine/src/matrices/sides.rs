//! Both parties' sides.

use pronghorn_he::matrix::MatrixMasks;
use pronghorn_plan::{Weights, step::Compiled, steps::matrices::EncryptedMatrices};

use super::{Shape, client::EncryptedMatricesClient, server::EncryptedMatricesServer};
use crate::{
    batch::sides::Masks,
    connection::Shelf,
    error::EngineError,
    machine::{Prepared, prepared_as},
    protocol::{At, Compile, Next, Side},
    share::Share,
};

impl Compile for EncryptedMatrices {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide(Shape::new(self, step)?)))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ServerSide(Shape::new(self, step)?)))
    }
}

struct ClientSide(Shape);

impl Side for ClientSide {
    fn rows(&self, batch: usize) -> u64 {
        self.0.rows(batch)
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let shape = self.0.for_batch(at.batch);
        let input = shape.own.join(inputs)?.into_words(shape.step())?;
        let machine = EncryptedMatricesClient::new(shape, input)?;
        Ok(Next::Machine(Box::new(machine)))
    }
}

struct ServerSide(Shape);

impl Side for ServerSide {
    fn rows(&self, batch: usize) -> u64 {
        self.0.rows(batch)
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let shape = self.0.for_batch(at.batch);
        let input = shape.own.join(inputs)?;
        let masks = prepared_as::<Masks>(prepared).map(|masks| masks.0);
        let machine = EncryptedMatricesServer::new(shape, input, masks)?;
        Ok(Next::Machine(Box::new(machine)))
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        let shape = self.0.for_batch(at.batch);
        let parameters = shape.parameters()?;
        Masks::offline(|masks| Ok(shape.shares(&parameters, &MatrixMasks::new(masks))))
    }

    fn read_prepared(&self, _batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        Masks::read(self.0.step(), bytes)
    }
}
