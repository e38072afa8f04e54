//! The model owner's half.

use std::{ops::Range, sync::Arc};

use pronghorn_he::ckks::{self, Parameters};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
};
use rayon::prelude::*;

use super::{
    INPUT, Network, SEED, Shape,
    keys::{ServerEncryptedKeys, Uniform},
    request::Request,
    stage,
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::Share,
};

/// Receives encrypted rows, computes, sends encrypted rows; its share of the result is zero.
pub struct EncryptedServer<W: Word> {
    shape: Shape,
    network: Arc<Network<W>>,
    keys: Arc<ServerEncryptedKeys<W>>,
    request: Option<Request>,
    /// Rows of the answer, `[poly][limb][N]` each.
    answer: Vec<Vec<W>>,
}

const NO_INPUT: EngineError = EngineError::OutOfTurn {
    state: "has no input yet",
};

impl<W: Word> EncryptedServer<W> {
    /// With the keys of the connection.
    pub(crate) fn new(
        shape: Shape,
        network: Arc<Network<W>>,
        keys: Arc<ServerEncryptedKeys<W>>,
    ) -> Exchange<Self> {
        let known = keys.uniform().is_some();
        let messages = shape.messages(known);
        let mut server = Self {
            shape,
            network,
            keys,
            request: None,
            answer: Vec::new(),
        };
        if known {
            server.begin();
        }
        Exchange::new(messages, server)
    }

    fn parameters(&self) -> &Parameters<W> {
        &self.network.parameters
    }

    /// Makes ready for the rows of a batch.
    fn begin(&mut self) {
        let (inputs, row) = (self.shape.inputs, self.shape.encrypted.request_row_bytes());
        let mut uniform = self.keys.uniform();
        self.request = uniform.as_mut().map(|uniform| {
            let prg = ckks::uniform_generator(&uniform.seed);
            let room = self.network.rows.take(inputs * row);
            let request = Request::new(&self.network.parameters, prg, uniform.used, room);
            uniform.used += inputs as u64;
            request
        });
    }

    /// Computes the result, re-randomises and floods it, and divides what the client does not need
    /// away.
    fn compute(&mut self) -> Result<(), EngineError> {
        let request = self.request.take().ok_or(NO_INPUT)?;
        let keys = self.keys.clone();
        self.answer_with(&keys, request)
    }

    fn answer_with(
        &mut self,
        keys: &ServerEncryptedKeys<W>,
        request: Request,
    ) -> Result<(), EngineError> {
        let parameters = &self.network.parameters;
        let result = stage::run(
            &self.network,
            &self.shape,
            &request,
            keys.evaluation.as_ref(),
        )?;
        self.network.rows.give(request.into_room());
        let random = Prg::new(&Seed::from_os()?, "pronghorn 2026 encrypted answers");
        let (n, plan) = (parameters.n(), &self.shape.encrypted);
        let answer = (0..result.elements).into_par_iter().map(|element| {
            let mut words = vec![W::default(); result.polys * result.limbs * n];
            for (place, words) in words.chunks_exact_mut(n).enumerate() {
                result.read(element, place / result.limbs, place % result.limbs, words);
            }
            let mut stream = random.stream(element as u64);
            keys.public
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

    fn pack(&self, rows: Range<usize>, out: &mut Vec<u8>) {
        for answer in &self.answer[rows] {
            ckks::wire::pack(
                self.parameters(),
                self.shape.encrypted.answer_limbs,
                answer,
                out,
            );
        }
    }
}

impl<W: Word> Protocol for EncryptedServer<W> {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            SEED => {
                let seed = message.try_into().map_err(|_| NO_INPUT)?;
                *self.keys.uniform() = Some(Uniform { seed, used: 0 });
                self.begin();
                Ok(())
            }
            INPUT => {
                let request = self.request.as_mut();
                request.ok_or(NO_INPUT)?.extend(message);
                if turn.last { self.compute() } else { Ok(()) }
            }
            _ => Err(turn.unknown()),
        }
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.pack(self.shape.answer().range(turn.index), out);
        Ok(())
    }
}

impl<W: Word> StepProtocol for EncryptedServer<W> {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Zero))
    }
}
