//! A dense layer without encryption: both parties' halves. The server learns the layer's input.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the client's share | client | the input's share bits a word, at most 2^20 words a message |
//! | the masked result | server | the result's share bits a word, at most 2^20 words a message |
//!
//! Offline, the server draws the mask, which is its share of the result. No message is sent.

use std::sync::Arc;

use pronghorn_graph::fixed::Linear;
use pronghorn_plan::{Weights, step::Compiled, steps::toy::insecure_linear::InsecureLinear};
use pronghorn_ring::{
    random::{Prg, Seed},
    sample,
};
use zeroize::Zeroizing;

use super::Value;
use crate::{
    batch::sides::Masks,
    connection::Shelf,
    error::EngineError,
    exchange::{Exchange, Messages, Party, Protocol, StepProtocol, Turn},
    machine::{Made, Prepared, prepared_as},
    protocol::{At, Compile, Next, Side, first, unsupported},
    share::{Batch, Share},
};

const SHARE: &str = "the client's share";
const RESULT: &str = "the masked result";

impl Compile for InsecureLinear {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide(Sizes::new(step))))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        let sizes = Sizes::new(step);
        let (inputs, outputs) = (sizes.input.elements, sizes.result.elements);
        match weights {
            Weights::Layer(layer)
                if layer.weights.len() == inputs * outputs && layer.bias.len() == outputs =>
            {
                let layer = Arc::new(layer.clone());
                Ok(Box::new(ServerSide { sizes, layer }))
            }
            _ => Err(unsupported(&step.place.name(), "its weights are missing")),
        }
    }
}

/// The sizes that both parties have from the plan.
#[derive(Clone)]
struct Sizes {
    input: Value,
    result: Value,
}

impl Sizes {
    fn new(step: &Compiled<'_>) -> Self {
        Self {
            input: Value::read(&step.place),
            result: Value::made(&step.place),
        }
    }

    fn for_batch(&self, images: usize) -> Self {
        Self {
            input: self.input.for_batch(images),
            result: self.result.for_batch(images),
        }
    }

    /// The list of all messages.
    fn messages(&self) -> Messages {
        Messages::new(&self.input.step)
            .with_all(self.input.messages(Party::Client, SHARE))
            .with_all(self.result.messages(Party::Server, RESULT))
    }

    /// Rows of progress of a batch, as its messages count them.
    fn rows(&self, batch: usize) -> u64 {
        ((self.input.elements + self.result.elements) * batch) as u64
    }
}

struct ClientSide(Sizes);

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
        let sizes = self.0.for_batch(at.batch);
        let client = Client {
            share: sizes.input.words(first(inputs)),
            result: sizes.result.words(Share::Zero),
            sizes: sizes.clone(),
        };
        Ok(Next::Machine(Box::new(Exchange::new(
            sizes.messages(),
            client,
        ))))
    }
}

struct ServerSide {
    sizes: Sizes,
    layer: Arc<Linear>,
}

impl ServerSide {
    /// The server's share of the result, from the seed of its mask.
    fn mask(&self, seed: &Seed, batch: usize) -> Batch {
        let Value { elements, bits, .. } = self.sizes.result;
        let mut words = Zeroizing::new(vec![0u32; elements * batch]);
        let mut stream = Prg::new(seed, "pronghorn toy masks of a layer").stream(0);
        sample::uniform_power_of_two(&mut stream, bits, &mut words);
        let mut mask = Batch::zeros(elements, batch);
        for (mask, &word) in mask.words_mut().iter_mut().zip(words.iter()) {
            *mask = word as i32;
        }
        mask
    }
}

impl Side for ServerSide {
    fn rows(&self, batch: usize) -> u64 {
        self.sizes.rows(batch)
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let seed = match prepared_as::<Masks>(prepared) {
            Some(masks) => masks.0,
            None => Seed::from_os()?,
        };
        let sizes = self.sizes.for_batch(at.batch);
        let server = Server {
            input: sizes.input.words(first(inputs)),
            mask: self.mask(&seed, at.batch),
            masked: sizes.result.words(Share::Zero),
            layer: self.layer.clone(),
            sizes: sizes.clone(),
        };
        Ok(Next::Machine(Box::new(Exchange::new(
            sizes.messages(),
            server,
        ))))
    }

    fn offline(&self, at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        Masks::offline(|seed| Ok(self.mask(seed, at.batch)))
    }

    fn read_prepared(&self, _batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        Masks::read(&self.sizes.input.step, bytes)
    }
}

/// The client's half.
struct Client {
    sizes: Sizes,
    share: Batch,
    result: Batch,
}

impl Protocol for Client {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.sizes.input.pack(turn, &self.share, out);
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.sizes.result.add(turn, message, &mut self.result)
    }
}

impl StepProtocol for Client {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.result)))
    }
}

/// The server's half.
struct Server {
    sizes: Sizes,
    /// The server's share of the input, then the input.
    input: Batch,
    mask: Batch,
    masked: Batch,
    layer: Arc<Linear>,
}

impl Server {
    /// The layer's result minus the mask.
    fn multiply(&mut self) {
        let (inputs, images) = (self.input.elements(), self.input.images());
        for (index, masked) in self.masked.words_mut().iter_mut().enumerate() {
            let (output, image) = (index / images, index % images);
            let weights = &self.layer.weights[output * inputs..][..inputs];
            let mut sum = self.layer.bias[output].wrapping_sub(self.mask.words()[index]);
            for (element, &weight) in weights.iter().enumerate() {
                let product = i32::from(weight).wrapping_mul(self.input.row(element)[image]);
                sum = sum.wrapping_add(product);
            }
            *masked = sum;
        }
    }
}

impl Protocol for Server {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.sizes.input.add(turn, message, &mut self.input)?;
        if turn.last {
            self.sizes.input.reveal(&mut self.input)?;
            self.multiply();
        }
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.sizes.result.pack(turn, &self.masked, out);
        Ok(())
    }
}

impl StepProtocol for Server {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.mask)))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_lists_the_messages() {
        let names = [super::SHARE, super::RESULT];
        crate::exchange::tests::assert_table(include_str!("insecure_linear.rs"), names);
    }
}
