//! Both parties' sides of activations on shares, and of the opening of the result.

use std::sync::Arc;

use pronghorn_graph::matrices::Matrices;
use pronghorn_plan::{
    Derived, Pairs, Weights,
    step::Compiled,
    steps::activation::garbled::{Circuits, Garbled},
};

use super::{
    Factors, GarbledClient, GarbledServer, Layout, OnlineClient, OnlineProductClient,
    OnlineProductServer, OnlineServer, OpenClient, OpenServer, Opened, PrepareClient,
    PrepareProductClient, PrepareProductServer, PrepareServer, PreparedClient,
    PreparedProductClient, PreparedProductServer, PreparedServer, ProductClient, ProductServer,
    Products,
};
use crate::{
    connection::Shelf,
    error::EngineError,
    machine::{Made, Prepared, StepMachine, prepared_as},
    protocol::{At, Compile, Next, Side, first, unsupported},
    share::Share,
};

/// A machine as the next thing to do.
fn next(machine: impl StepMachine + 'static) -> Result<Next, EngineError> {
    Ok(Next::Machine(Box::new(machine)))
}

impl Compile for Garbled {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(prepared_ahead(
            step,
            GarbledClientSide(Template::new(step)?),
        ))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(prepared_ahead(
            step,
            GarbledServerSide(Template::new(step)?),
        ))
    }
}

/// A garbled step without its number of images.
struct Template {
    step: String,
    inputs: usize,
    outputs: usize,
    circuits: Arc<Circuits>,
}

impl Template {
    fn new(step: &Compiled<'_>) -> Result<Self, EngineError> {
        let place = &step.place;
        let Derived::Circuits(circuits) = step.derived else {
            return Err(unsupported(&place.name(), "it has no circuit"));
        };
        Ok(Self {
            step: place.name(),
            inputs: place.input().len(),
            outputs: place.value().len(),
            circuits: circuits.clone(),
        })
    }

    fn layout(&self, images: usize) -> Layout {
        Layout {
            step: self.step.clone(),
            inputs: self.inputs,
            outputs: self.outputs,
            images,
            circuits: self.circuits.clone(),
        }
    }
}

struct GarbledClientSide(Template);

impl Side for GarbledClientSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.outputs as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        match prepared_as::<PreparedClient>(prepared) {
            Some(prepared) => next(OnlineClient::new(prepared, first(inputs))?),
            None => {
                let layout = self.0.layout(at.batch);
                next(GarbledClient::new(
                    layout,
                    first(inputs),
                    at.connection.kept(),
                )?)
            }
        }
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        let layout = self.0.layout(at.batch);
        next(PrepareClient::new(layout, at.connection.kept())?)
    }

    fn has_offline(&self) -> bool {
        true
    }

    fn read_prepared(&self, batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let prepared = PreparedClient::from_bytes(self.0.layout(batch), bytes)?;
        Ok(Some(Box::new(prepared)))
    }
}

struct GarbledServerSide(Template);

impl Side for GarbledServerSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.outputs as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        match prepared_as::<PreparedServer>(prepared) {
            Some(prepared) => next(OnlineServer::new(prepared)),
            None => {
                let layout = self.0.layout(at.batch);
                next(GarbledServer::new(
                    layout,
                    first(inputs),
                    at.connection.kept(),
                )?)
            }
        }
    }

    fn offline(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next, EngineError> {
        let layout = self.0.layout(at.batch);
        next(PrepareServer::new(
            layout,
            first(inputs),
            at.connection.kept(),
        )?)
    }

    fn has_offline(&self) -> bool {
        true
    }

    fn read_prepared(&self, batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let prepared = PreparedServer::from_bytes(self.0.layout(batch), bytes)?;
        Ok(Some(Box::new(prepared)))
    }
}

/// The protocol of squares, and of products of two values or matrices on shares.
pub(crate) struct Product(pub Pairs);

impl Compile for Product {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(prepared_ahead(
            step,
            ProductClientSide(products(step, self.0)?),
        ))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(prepared_ahead(
            step,
            ProductServerSide(products(step, self.0)?),
        ))
    }
}

/// The products of one image.
///
/// # Errors
/// When matrices do not go together.
pub(crate) fn products(step: &Compiled<'_>, pairs: Pairs) -> Result<Products, EngineError> {
    let (place, value) = (&step.place, step.place.value());
    let shapes: Vec<&[usize]> = place.inputs().map(|input| input.shape.as_slice()).collect();
    let no_matrices = |_| unsupported(&place.name(), "its matrices do not go together");
    let factors = match (shapes.as_slice(), pairs) {
        (&[left, right], Pairs::Elements) => Factors::two([left, right], &value.shape),
        (&[left, right], Pairs::Matrices) => {
            Factors::Matrices(Matrices::of(left, right).map_err(no_matrices)?)
        }
        _ => Factors::Same,
    };
    Ok(Products {
        step: place.name(),
        elements: value.len(),
        images: 1,
        bits: place.form().bits,
        factors,
    })
}

impl Products {
    pub(crate) fn for_batch(&self, images: usize) -> Self {
        Self {
            images,
            ..self.clone()
        }
    }
}

struct ProductClientSide(Products);

impl Side for ProductClientSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.elements as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        match prepared_as::<PreparedProductClient>(prepared) {
            Some(prepared) => {
                let products = self.0.for_batch(at.batch);
                next(OnlineProductClient::new(prepared, products.join(inputs)?)?)
            }
            None => {
                let products = self.0.for_batch(at.batch);
                let share = products.join(inputs)?;
                next(ProductClient::new(products, share, at.connection.kept())?)
            }
        }
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        let products = self.0.for_batch(at.batch);
        next(PrepareProductClient::new(products, at.connection.kept())?)
    }

    fn has_offline(&self) -> bool {
        true
    }

    fn read_prepared(&self, batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let prepared = PreparedProductClient::from_bytes(self.0.for_batch(batch), bytes)?;
        Ok(Some(Box::new(prepared)))
    }
}

struct ProductServerSide(Products);

impl Side for ProductServerSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.elements as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        match prepared_as::<PreparedProductServer>(prepared) {
            Some(prepared) => next(OnlineProductServer::new(prepared)),
            None => {
                let products = self.0.for_batch(at.batch);
                let share = products.join(inputs)?;
                next(ProductServer::new(products, share, at.connection.kept())?)
            }
        }
    }

    fn offline(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next, EngineError> {
        let products = self.0.for_batch(at.batch);
        let share = products.join(inputs)?;
        next(PrepareProductServer::new(
            products,
            share,
            at.connection.kept(),
        )?)
    }

    fn has_offline(&self) -> bool {
        true
    }

    fn read_prepared(&self, batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let prepared = PreparedProductServer::from_bytes(self.0.for_batch(batch), bytes)?;
        Ok(Some(Box::new(prepared)))
    }
}

/// The opening's protocol: in a circuit where the plan has one, else by the server's shares.
pub(crate) struct Open;

impl Compile for Open {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(match step.derived {
            Derived::Circuits(_) => Box::new(OnlineOnly(GarbledClientSide(Template::new(step)?))),
            _ => Box::new(OpenClientSide(opened(step))),
        })
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(match step.derived {
            Derived::Circuits(_) => Box::new(OnlineOnly(GarbledServerSide(Template::new(step)?))),
            _ => Box::new(OpenServerSide(opened(step))),
        })
    }
}

/// The side, without its offline part where the server's shares of the inputs are not known ahead.
fn prepared_ahead(step: &Compiled<'_>, side: impl Side + 'static) -> Box<dyn Side> {
    match step.place.inputs_ahead() {
        true => Box::new(side),
        false => Box::new(OnlineOnly(side)),
    }
}

/// A side without its offline part.
struct OnlineOnly<S>(S);

impl<S: Side> Side for OnlineOnly<S> {
    fn rows(&self, batch: usize) -> u64 {
        self.0.rows(batch)
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        self.0.online(at, inputs, None)
    }

    /// Nothing is known of the value.
    fn offline(&self, _at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        Ok(Next::Made(Made::share(Share::Zero)))
    }
}

/// The opening of one image.
fn opened(step: &Compiled<'_>) -> Opened {
    let value = step.place.value();
    Opened {
        step: step.place.name(),
        elements: value.len(),
        images: 1,
        bits: step.place.form().bits,
        low: value.low,
        high: value.high,
    }
}

impl Opened {
    fn for_batch(&self, images: usize) -> Self {
        Self {
            images,
            ..self.clone()
        }
    }
}

struct OpenClientSide(Opened);

impl Side for OpenClientSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.elements as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        next(OpenClient::new(self.0.for_batch(at.batch), first(inputs))?)
    }
}

struct OpenServerSide(Opened);

impl Side for OpenServerSide {
    fn rows(&self, _batch: usize) -> u64 {
        self.0.elements as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        next(OpenServer::new(self.0.for_batch(at.batch), first(inputs))?)
    }
}
