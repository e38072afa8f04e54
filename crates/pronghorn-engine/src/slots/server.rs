//! The model owner's half of a linear step on slots.

use std::sync::Arc;

use pronghorn_graph::fixed::Linear;
use pronghorn_he::bfv::{AnswerFormat, BfvError, Ciphertext, Hider, SeededCiphertext};
use pronghorn_plan::steps::linear::slots::SlotLinear;
use pronghorn_ring::random::Seed;
use pronghorn_slot::Layer;

use super::{Shape, keys::ServerSchemeKeys, refused};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// A layer's weights, prepared for products; made once a model. The server's secret: no Debug.
pub struct PreparedSlots {
    layer: Layer,
    bias: Vec<i32>,
}

impl PreparedSlots {
    /// Prepares `layer` for the parameters of its plan step.
    ///
    /// # Errors
    /// When weights and plan do not go together.
    pub(crate) fn new(
        layer: &Linear,
        plan: &SlotLinear,
        shape: &Shape,
    ) -> Result<Self, EngineError> {
        if layer.geometry != plan.geometry || layer.bias.len() != plan.geometry.out_channels {
            return Err(shape.missing("its weights are of another layer"));
        }
        let prepared = Layer::prepare(shape.packing.clone(), &layer.weights);
        Ok(Self {
            layer: prepared.map_err(|source| refused(&shape.step, source))?,
            bias: layer.bias.clone(),
        })
    }

    /// The server's shares of the step's result, which the seed of what hides answers alone
    /// determines.
    pub(crate) fn shares(&self, shape: &Shape, seed: &Seed) -> Result<Batch, EngineError> {
        let (packing, hider) = (&shape.packing, Hider::new(seed));
        let mut output = Batch::zeros(packing.output_len(), shape.batch);
        for image in 0..shape.batch {
            let first = image * packing.outputs();
            let slots: Vec<Vec<i32>> = (first..first + packing.outputs())
                .map(|row| hider.shares(packing.parameters(), row as u64))
                .collect();
            shape.unpack(&slots, Some(&self.bias), image, &mut output)?;
        }
        Ok(output)
    }
}

/// Receives encrypted shares, adds its own, evaluates the layer, hides the answers and sends them.
pub struct SlotServer {
    shape: Shape,
    layer: Arc<PreparedSlots>,
    keys: Arc<ServerSchemeKeys>,
    hider: Hider<u64>,
    format: AnswerFormat,
    input: Share,
    received: Vec<Ciphertext<u64>>,
    /// Answers of the image that is under way, not hidden yet.
    answers: Vec<Ciphertext<u64>>,
    output: Batch,
}

impl SlotServer {
    /// `input` is the server's share; `masks` makes what hides answers where it was made ahead, and
    /// is used once.
    pub(crate) fn new(
        shape: Shape,
        layer: Arc<PreparedSlots>,
        keys: Arc<ServerSchemeKeys>,
        input: Share,
        masks: Option<Seed>,
    ) -> Result<Exchange<Self>, EngineError> {
        let masks = masks.map_or_else(Seed::from_os, Ok)?;
        let format = shape.packing.format();
        let server = Self {
            format: format.map_err(|source| refused(&shape.step, source))?,
            output: layer.shares(&shape, &masks)?,
            hider: Hider::new(&masks),
            layer,
            keys,
            input,
            received: Vec::new(),
            answers: Vec::new(),
            shape,
        };
        Ok(Exchange::new(server.shape.messages(), server))
    }

    fn bfv<T>(&self, result: Result<T, BfvError>) -> Result<T, EngineError> {
        result.map_err(|source| refused(&self.shape.step, source.into()))
    }

    /// The answers of an image, of both parties' shares.
    fn evaluate(&mut self, image: usize) -> Result<(), EngineError> {
        let packing = &self.shape.packing;
        let inputs = packing.inputs();
        let mut inputs = self.received[image * inputs..][..inputs].to_vec();
        if let Share::Words(share) = &self.input {
            for (ciphertext, slots) in inputs.iter_mut().zip(self.shape.pack(share, image)?) {
                let plain = self.bfv(packing.parameters().encode(&slots))?;
                self.bfv(ciphertext.add_plain_assign(&plain))?;
            }
        }
        let rotations = self.keys.rotations.as_ref();
        let answers = self.layer.layer.evaluate(&inputs, rotations);
        self.answers = answers.map_err(|source| refused(&self.shape.step, source))?;
        Ok(())
    }
}

impl Protocol for SlotServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let parameters = self.shape.packing.parameters();
        let ciphertext = SeededCiphertext::decode(parameters, message);
        let ciphertext = ciphertext.map_err(|source| EngineError::Wire {
            step: self.shape.step.clone(),
            message: turn.name,
            row: turn.index,
            source,
        })?;
        self.received.push(ciphertext.expand());
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let outputs = self.shape.packing.outputs();
        let (image, place) = (turn.index / outputs, turn.index % outputs);
        if place == 0 {
            self.evaluate(image)?;
        }
        let (answer, key) = (&self.answers[place], &self.keys.public);
        let hidden = self
            .hider
            .hide(turn.index as u64, answer, key, &self.format);
        self.bfv(hidden)?.encode(out);
        Ok(())
    }
}

impl StepProtocol for SlotServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
