//! A ReLU without a circuit: both parties' halves. The client learns the ReLU's input.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the server's share | server | the input's share bits a word, at most 2^20 words a message |
//!
//! Offline, there is nothing to do. The server's share of the result is zero.

use pronghorn_plan::{Weights, step::Compiled, steps::toy::insecure_relu::InsecureRelu};

use super::Value;
use crate::{
    connection::Shelf,
    error::EngineError,
    exchange::{Exchange, Messages, Party, Protocol, StepProtocol, Turn},
    machine::{Made, Prepared},
    protocol::{At, Compile, Next, Side, first},
    share::{Batch, Share},
};

const SHARE: &str = "the server's share";

impl Compile for InsecureRelu {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide(Value::read(&step.place))))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ServerSide(Value::read(&step.place))))
    }
}

/// The list of all messages.
fn messages(value: &Value) -> Messages {
    Messages::new(&value.step).with_all(value.messages(Party::Server, SHARE))
}

struct ClientSide(Value);

impl Side for ClientSide {
    fn rows(&self, batch: usize) -> u64 {
        (self.0.elements * batch) as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let value = self.0.for_batch(at.batch);
        let (list, words) = (messages(&value), value.words(first(inputs)));
        let client = Client { value, words };
        Ok(Next::Machine(Box::new(Exchange::new(list, client))))
    }
}

struct ServerSide(Value);

impl Side for ServerSide {
    fn rows(&self, batch: usize) -> u64 {
        (self.0.elements * batch) as u64
    }

    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let value = self.0.for_batch(at.batch);
        let (list, share) = (messages(&value), value.words(first(inputs)));
        let server = Server { value, share };
        Ok(Next::Machine(Box::new(Exchange::new(list, server))))
    }

    fn offline(&self, _at: &At<'_>, _inputs: Vec<Share>) -> Result<Next, EngineError> {
        Ok(Next::Made(Made::share(Share::Zero)))
    }
}

/// The client's half.
struct Client {
    value: Value,
    /// The client's share, then the value, then its ReLU.
    words: Batch,
}

impl Protocol for Client {
    const PARTY: Party = Party::Client;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.value.add(turn, message, &mut self.words)?;
        if turn.last {
            self.value.reveal(&mut self.words)?;
            let words = self.words.words_mut().iter_mut();
            words.for_each(|word| *word = (*word).max(0));
        }
        Ok(())
    }
}

impl StepProtocol for Client {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.words)))
    }
}

/// The server's half: sends its share, and has zero in the end.
struct Server {
    value: Value,
    share: Batch,
}

impl Protocol for Server {
    const PARTY: Party = Party::Server;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.value.pack(turn, &self.share, out);
        Ok(())
    }
}

impl StepProtocol for Server {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Zero))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_lists_the_messages() {
        let source = include_str!("insecure_relu.rs");
        crate::exchange::tests::assert_table(source, [super::SHARE]);
    }
}
