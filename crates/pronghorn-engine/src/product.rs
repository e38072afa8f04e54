//! Products of two values by the client, under `client-aided`.
//!
//! The client's share is the value and the server's is zero, of both factors: the client multiplies
//! its own, without a message. It learns no more than it has.

use pronghorn_plan::{Pairs, Weights, step::Compiled};

use crate::{
    connection::Shelf,
    error::EngineError,
    garbled::{Products, sides},
    machine::{Made, Prepared},
    protocol::{At, Compile, Next, Side, ZeroSide},
    share::Share,
};

/// The protocol of products of two values in the clear.
pub(crate) struct ClearProduct(pub Pairs);

impl Compile for ClearProduct {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide(sides::products(step, self.0)?)))
    }

    fn server(
        &self,
        _step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ZeroSide))
    }
}

/// It has both values.
struct ClientSide(Products);

impl Side for ClientSide {
    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let products = self.0.for_batch(at.batch);
        let values = products.join(inputs)?.into_words(&products.step)?;
        Ok(Next::Made(Made::share(Share::Words(products.own(&values)))))
    }
}
