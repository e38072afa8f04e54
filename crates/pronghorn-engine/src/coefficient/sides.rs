//! Both parties' sides of a layer in the coefficient engine.

use std::sync::Arc;

use pronghorn_he::shares::Hider;
use pronghorn_plan::{
    Weights,
    step::Compiled,
    steps::linear::{clear_coefficient::ClearCoefficient, coefficient::CoefficientLinear},
};
use pronghorn_ring::Word;

use super::{
    Answer, Shape,
    client::CoefficientClient,
    publication::{ClientPublication, Layers, Polynomials, ServerPublication},
    server::{CoefficientServer, PreparedLayer},
};
use crate::{
    batch::sides::Masks,
    connection::{Kept, Shelf},
    error::EngineError,
    machine::{Made, Prepared, prepared_as},
    protocol::{At, Compile, Next, Side, first, unsupported, with_word},
    share::{Batch, Share},
};

impl Compile for CoefficientLinear {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        client(step, Shape::new(self, Answer::Share, step)?)
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        server(step, Shape::new(self, Answer::Share, step)?, weights, shelf)
    }
}

impl Compile for ClearCoefficient {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        client(step, Shape::new(&self.layer, value(step), step)?)
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        let shape = Shape::new(&self.layer, value(step), step)?;
        server(step, shape, weights, shelf)
    }
}

fn value(step: &Compiled<'_>) -> Answer {
    let value = step.place.value();
    Answer::Value {
        low: value.low,
        high: value.high,
    }
}

fn client(step: &Compiled<'_>, shape: Shape) -> Result<Box<dyn Side>, EngineError> {
    let index = step.place.index;
    Ok(Box::new(ClientSide { index, shape }))
}

fn server(
    step: &Compiled<'_>,
    shape: Shape,
    weights: &Weights,
    shelf: &Shelf,
) -> Result<Box<dyn Side>, EngineError> {
    let Weights::Layer(weights) = weights else {
        return Err(unsupported(&step.place.name(), "its weights are missing"));
    };
    let index = step.place.index;
    Ok(with_word!(shape.linear.rlwe.word, W => {
        let layer = Arc::new(PreparedLayer::<W>::new(weights, &shape)?);
        shelf.at::<Layers>(0).add(index, layer.clone());
        Box::new(ServerSide { index, shape, layer })
    }))
}

struct ClientSide {
    index: usize,
    shape: Shape,
}

impl Side for ClientSide {
    fn rows(&self, batch: usize) -> u64 {
        self.shape.for_batch(batch).rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let input = first(inputs).into_words(&self.shape.step)?;
        let publication = ClientPublication::of(at.connection);
        let missing = || EngineError::Unsupported {
            step: self.shape.step.clone(),
            reason: "its published polynomials are missing",
        };
        let publication = publication.ok_or_else(missing)?;
        let polynomials = publication.polynomials(self.index)?;
        let shape = self.shape.for_batch(at.batch);
        let seed = &publication.seed;
        Ok(Next::Machine(match polynomials.ok_or_else(missing)? {
            Polynomials::U32(words) => Box::new(CoefficientClient::new(
                shape, self.index, seed, words, input,
            )?),
            Polynomials::U64(words) => Box::new(CoefficientClient::new(
                shape, self.index, seed, words, input,
            )?),
        }))
    }
}

struct ServerSide<W: Word> {
    index: usize,
    shape: Shape,
    layer: Arc<PreparedLayer<W>>,
}

impl<W: Word> Side for ServerSide<W> {
    fn rows(&self, batch: usize) -> u64 {
        self.shape.for_batch(batch).rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let publication = at.connection.kept::<Kept<ServerPublication>>().get();
        let publication = publication.ok_or_else(|| EngineError::Unsupported {
            step: self.shape.step.clone(),
            reason: "its polynomials have not been published",
        })?;
        let masks = prepared_as::<Masks>(prepared).map(|masks| masks.0);
        let (shape, layer) = (self.shape.for_batch(at.batch), self.layer.clone());
        let input = first(inputs);
        let machine = CoefficientServer::new(shape, self.index, layer, publication, input, masks)?;
        Ok(Next::Machine(Box::new(machine)))
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        if let Answer::Value { .. } = self.shape.answer {
            return Ok(Next::Made(Made::share(Share::Zero)));
        }
        let encoding = self.shape.encoding()?;
        Masks::offline(|masks| {
            let mut share = Batch::zeros(self.shape.outputs, at.batch);
            // All of an answer in pieces of a polynomial's length.
            let piece = self.shape.linear.rlwe.degree;
            let ring = self.layer.ring();
            Hider::new(masks).shares(ring, &encoding, piece, share.words_mut());
            Ok(share)
        })
    }

    fn read_prepared(&self, _batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        Masks::read(&self.shape.step, bytes)
    }
}
