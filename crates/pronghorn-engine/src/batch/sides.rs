//! Both parties' sides of a layer in the batch engine, on values and on shares.

use std::sync::Arc;

use pronghorn_he::{RlweRing, shares::Hider};
use pronghorn_plan::{
    Weights,
    bands::Band,
    cost::{self, PUBLISHED_BLOCKS},
    step::Compiled,
    steps::linear::{clear::ClearLinear, shared::SharedLinear},
};
use pronghorn_ring::{Word, random::Seed};
use zeroize::Zeroizing;

use super::{
    Answers, Layer, Shape,
    client::LinearClient,
    published::{Place, Rows},
    server::{LinearServer, PreparedLayer},
};
use crate::{
    connection::Shelf,
    error::EngineError,
    machine::{Carry, Made, Prepared, PreparedStep, prepared_as},
    pool::Pool,
    protocol::{At, Compile, Next, Side, first, unsupported, with_word},
    share::{Batch, Share},
};

impl Compile for ClearLinear {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        client(step, self.layer())
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        server(step, self.layer(), weights)
    }
}

impl Compile for SharedLinear {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        client(step, shared_layer(self, step)?)
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        server(step, shared_layer(self, step)?, weights)
    }
}

/// A layer whose answers the client decrypts.
trait ClearLayer {
    fn layer(&self) -> Layer;
}

impl ClearLayer for ClearLinear {
    fn layer(&self) -> Layer {
        let whole = || (self.geometry.clone(), 1);
        let (geometry, positions) = self.pointwise().unwrap_or_else(whole);
        Layer {
            geometry,
            positions,
            rlwe: self.rlwe,
            answers: Answers::Values(self.clone()),
        }
    }
}

fn shared_layer(linear: &SharedLinear, step: &Compiled<'_>) -> Result<Layer, EngineError> {
    let encoding = linear.rlwe.share_encoding(linear.shares);
    let reason = "its modulus does not hold its shares";
    Ok(Layer {
        geometry: linear.geometry.clone(),
        positions: 1,
        rlwe: linear.rlwe,
        answers: Answers::Shares(encoding.ok_or_else(|| unsupported(&step.place.name(), reason))?),
    })
}

fn client(step: &Compiled<'_>, layer: Layer) -> Result<Box<dyn Side>, EngineError> {
    let (word, index) = (layer.rlwe.word, step.place.index);
    let shape = Shape::new(&step.place, layer);
    Ok(with_word!(word, W => Box::new(ClientSide::<W> {
        index,
        shape,
        word: std::marker::PhantomData,
    })))
}

fn server(
    step: &Compiled<'_>,
    layer: Layer,
    weights: &Weights,
) -> Result<Box<dyn Side>, EngineError> {
    let Weights::Layer(weights) = weights else {
        return Err(unsupported(&step.place.name(), "its weights are missing"));
    };
    let (word, index) = (layer.rlwe.word, step.place.index);
    let shape = Shape::new(&step.place, layer);
    Ok(with_word!(word, W => Box::new(ServerSide::<W> {
        index,
        layer: Arc::new(PreparedLayer::new(weights, &shape)?),
        shape,
    })))
}

/// Where the rows of `a'` of a step are kept, in plans that keep them.
fn place<T: Send + Sync + 'static>(at: &At<'_>, index: usize, shape: &Shape) -> Option<Place<T>> {
    let kept = cost::published(at.plan) > 0;
    kept.then(|| Place {
        rows: at.connection.kept_at::<Rows<T>>(index),
        blocks: at.batch.div_ceil(shape.linear.rlwe.degree),
        most: PUBLISHED_BLOCKS,
    })
}

/// What the band before left, if it is of this type.
fn carried<T: Send + 'static>(carry: Option<Carry>) -> Option<T> {
    carry?.downcast().ok().map(|carried| *carried)
}

struct ClientSide<W> {
    index: usize,
    shape: Shape,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Side for ClientSide<W> {
    fn rows(&self, _batch: usize) -> u64 {
        self.shape.rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let input = first(inputs).into_words(&self.shape.step)?;
        let place = place(at, self.index, &self.shape);
        let machine = LinearClient::<W>::new(
            self.shape.for_batch(at.batch),
            input,
            place,
            None,
            &Pool::default(),
        )?;
        Ok(Next::Machine(Box::new(machine)))
    }

    fn band(
        &self,
        at: &At<'_>,
        band: &Band,
        inputs: Vec<Share>,
        carry: Option<Carry>,
    ) -> Result<Next, EngineError> {
        let input = first(inputs).into_words(&self.shape.step)?;
        let shape = self
            .shape
            .for_band(&at.plan.place(self.index), band, at.batch);
        let machine = LinearClient::<W>::new(shape, input, None, carried(carry), &at.shelf.at(0))?;
        Ok(Next::Machine(Box::new(machine)))
    }
}

struct ServerSide<W: Word> {
    index: usize,
    shape: Shape,
    layer: Arc<PreparedLayer<W>>,
}

impl<W: Word> Side for ServerSide<W> {
    fn rows(&self, _batch: usize) -> u64 {
        self.shape.rows()
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let (shape, layer) = (self.shape.for_batch(at.batch), self.layer.clone());
        let masks = prepared_as::<Masks>(prepared).map(|masks| masks.0);
        let place = place(at, self.index, &self.shape);
        let machine = LinearServer::new(
            shape,
            layer,
            first(inputs),
            masks,
            place,
            None,
            Pool::default(),
        )?;
        Ok(Next::Machine(Box::new(machine)))
    }

    fn band(
        &self,
        at: &At<'_>,
        band: &Band,
        inputs: Vec<Share>,
        carry: Option<Carry>,
    ) -> Result<Next, EngineError> {
        let shape = self
            .shape
            .for_band(&at.plan.place(self.index), band, at.batch);
        let (layer, input) = (self.layer.clone(), first(inputs));
        let machine = LinearServer::new(
            shape,
            layer,
            input,
            None,
            None,
            carried(carry),
            at.shelf.at(0),
        )?;
        Ok(Next::Machine(Box::new(machine)))
    }

    fn waits(&self) -> bool {
        true
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        let Answers::Shares(encoding) = &self.shape.linear.answers else {
            return Ok(Next::Made(Made::share(Share::Zero)));
        };
        Masks::offline(|masks| {
            let mut share = Batch::zeros(self.shape.outputs(), at.batch);
            let ring: &RlweRing<W> = self.layer.ring();
            Hider::new(masks).shares(ring, encoding, at.batch, share.words_mut());
            Ok(share)
        })
    }

    fn read_prepared(&self, _batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        Masks::read(&self.shape.step, bytes)
    }
}

/// The seed of the masks of a linear step, which determine the server's share of the value. The
/// offline part of every linear engine. Wiped on drop.
pub(crate) struct Masks(pub Seed);

impl PreparedStep for Masks {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.as_bytes().to_vec())
    }
}

impl Masks {
    /// New masks, with the share that they determine.
    pub fn offline(
        share: impl FnOnce(&Seed) -> Result<Batch, EngineError>,
    ) -> Result<Next, EngineError> {
        let masks = Seed::from_os()?;
        let share = Share::Words(share(&masks)?);
        Ok(Next::Made(Made {
            prepared: Some(Box::new(Self(masks))),
            ..Made::share(share)
        }))
    }

    /// The masks of a prepared batch.
    pub fn read(step: &str, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let seed = bytes.try_into().map_err(|_| EngineError::Prepared {
            step: step.to_owned(),
            reason: "has a seed of another length than a seed has",
        })?;
        Ok(Some(Box::new(Self(Seed::from_bytes(seed)))))
    }
}
