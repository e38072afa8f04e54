//! The model owner's half.

use std::sync::Arc;

use pronghorn_he::ckks::{self, Parameters, PublicKey};
use pronghorn_plan::cost::SEED_BYTES;
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
};
use rayon::prelude::*;

use super::{Network, Shape, pack, request::Request, stage, unpack};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::Share,
};

/// Receives encrypted rows, computes, sends encrypted rows; its share of the result is zero.
pub struct EncryptedServer<W: Word> {
    shape: Shape,
    network: Arc<Network<W>>,
    /// What the client's first message brings, and what its others do.
    public: Option<PublicKey<W>>,
    request: Option<Request>,
    /// Rows of the answer, `[poly][limb][N]` each.
    answer: Vec<Vec<W>>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    ReceiveKeys,
    ReceiveRows { done: usize },
    SendRows { done: usize },
    Done,
}

impl<W: Word> EncryptedServer<W> {
    pub(crate) fn new(shape: Shape, network: Arc<Network<W>>) -> Self {
        Self {
            shape,
            network,
            public: None,
            request: None,
            answer: Vec::new(),
            state: State::ReceiveKeys,
        }
    }

    fn parameters(&self) -> &Parameters<W> {
        &self.network.parameters
    }

    fn read_keys(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let seed =
            |bytes: &[u8]| <[u8; SEED_BYTES]>::try_from(bytes).expect("the length was checked");
        let (uniform, rest) = message.split_at(SEED_BYTES);
        let (public, rest) = rest.split_at(SEED_BYTES);
        let (limbs, n) = (self.shape.encrypted.flood_limbs, self.parameters().n());
        let mut b = vec![W::default(); limbs * n];
        let place = (&self.shape, "the public key", 0);
        unpack(self.parameters(), limbs, rest, &mut b, place)?;
        let room = self
            .network
            .rows
            .take(self.shape.inputs * self.shape.encrypted.request_row_bytes());
        let uniform = ckks::uniform_generator(&seed(uniform));
        self.request = Some(Request::new(self.parameters(), uniform, room));
        self.public = Some(PublicKey::from_parts(self.parameters(), seed(public), b));
        Ok(())
    }

    /// Computes the result, re-randomises and floods it, and divides what the client does not need away.
    fn compute(&mut self) -> Result<(), EngineError> {
        let (Some(public), Some(request)) = (self.public.take(), self.request.take()) else {
            return Err(EngineError::OutOfTurn {
                state: "has no input yet",
            });
        };
        let parameters = &self.network.parameters;
        let result = stage::run(&self.network, &self.shape, &request)?;
        self.network.rows.give(request.into_room());
        let random = Prg::new(&Seed::from_os()?, "pronghorn 2026 encrypted answers");
        let (n, plan) = (parameters.n(), &self.shape.encrypted);
        let answer = (0..result.elements).into_par_iter().map(|element| {
            let mut words = vec![W::default(); result.polys * result.limbs * n];
            for (place, words) in words.chunks_exact_mut(n).enumerate() {
                result.read(element, place / result.limbs, place % result.limbs, words);
            }
            let mut stream = random.stream(element as u64);
            public
                .flood_words(result.limbs, &mut words, plan.flood_log, &mut stream)
                .map_err(self.shape.ckks())?;
            let dropped = result.limbs - plan.answer_limbs;
            let mut answer = vec![W::default(); result.polys * plan.answer_limbs * n];
            ckks::slices::rescale(parameters, result.limbs, dropped, &words, &mut answer);
            Ok(answer)
        });
        self.answer = answer.collect::<Result<_, EngineError>>()?;
        self.network.words.give(result.into_room());
        Ok(())
    }

    fn pack(&self, done: usize, rows: usize, out: &mut Vec<u8>) {
        for answer in &self.answer[done..done + rows] {
            pack(
                self.parameters(),
                self.shape.encrypted.answer_limbs,
                answer,
                out,
            );
        }
    }
}

impl<W: Word> Machine for EncryptedServer<W> {
    fn want(&self) -> Want {
        match self.state {
            State::ReceiveKeys | State::ReceiveRows { .. } => Want::Receive,
            State::SendRows { .. } => Want::Send,
            State::Done => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let State::SendRows { done } = self.state else {
            return Err(EngineError::OutOfTurn {
                state: "is not at the server's turn",
            });
        };
        let (rows, _) = self.shape.answer(done);
        self.pack(done, rows, out);
        let done = done + rows;
        self.state = if done == self.shape.outputs {
            State::Done
        } else {
            State::SendRows { done }
        };
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        match self.state {
            State::ReceiveKeys => {
                self.shape
                    .length("the public key", message.len(), self.shape.keys_bytes())?;
                self.read_keys(message)?;
                self.state = State::ReceiveRows { done: 0 };
            }
            State::ReceiveRows { done } => {
                let (rows, expected) = self.shape.request(done);
                self.shape
                    .length("the encrypted input", message.len(), expected)?;
                self.request
                    .as_mut()
                    .into_iter()
                    .for_each(|request| request.extend(message));
                let done = done + rows;
                self.state = State::ReceiveRows { done };
                if done == self.shape.inputs {
                    self.compute()?;
                    self.state = State::SendRows { done: 0 };
                }
            }
            State::SendRows { .. } => {
                return Err(EngineError::OutOfTurn {
                    state: "is at the server's turn",
                });
            }
            State::Done => return Err(EngineError::OutOfTurn { state: "is over" }),
        }
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            State::ReceiveKeys => self.shape.keys_bytes(),
            State::ReceiveRows { done } => self.shape.request(done).1,
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        let done = match self.state {
            State::ReceiveKeys => 0,
            State::ReceiveRows { done } => done,
            State::SendRows { done } => self.shape.inputs + done,
            State::Done => self.shape.inputs + self.shape.outputs,
        };
        Progress {
            done: done as u64,
            total: self.shape.rows(),
        }
    }
}

impl<W: Word> StepMachine for EncryptedServer<W> {
    fn into_share(self: Box<Self>) -> Share {
        Share::Zero
    }
}
