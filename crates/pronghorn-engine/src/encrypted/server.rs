//! The model owner's half.

use std::{ops::Range, sync::Arc};

use pronghorn_he::{
    ckks::{self, EvaluationKeys, Parameters, PublicKey},
    rns::RingError,
};
use pronghorn_plan::cost::SEED_BYTES;
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
};
use rayon::prelude::*;

use super::{EVALUATION_KEYS, INPUT, Network, PUBLIC_KEY, Shape, request::Request, stage};
use crate::{
    connection::Kept,
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::Share,
};

/// What a client sends once a connection, and again when its keys are used up.
pub struct Keys<W: Word> {
    /// The seed of every `a`, and how many of them were used.
    uniform: [u8; SEED_BYTES],
    used: u64,
    public: PublicKey<W>,
    evaluation: Option<EvaluationKeys<W>>,
}

/// Where the keys of a connection are kept.
pub(crate) type KeptKeys<W> = Kept<Keys<W>>;

/// Receives encrypted rows, computes, sends encrypted rows; its share of the result is zero.
pub struct EncryptedServer<W: Word> {
    shape: Shape,
    network: Arc<Network<W>>,
    keys: KeptKeys<W>,
    request: Option<Request>,
    /// Rows of the answer, `[poly][limb][N]` each.
    answer: Vec<Vec<W>>,
}

const NO_INPUT: EngineError = EngineError::OutOfTurn {
    state: "has no input yet",
};

impl<W: Word> EncryptedServer<W> {
    pub(crate) fn new(shape: Shape, network: Arc<Network<W>>, keys: KeptKeys<W>) -> Exchange<Self> {
        let known = keys.count(1);
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

    fn read_keys(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let seed =
            |bytes: &[u8]| <[u8; SEED_BYTES]>::try_from(bytes).expect("the length was checked");
        let (uniform, rest) = message.split_at(SEED_BYTES);
        let (public, rest) = rest.split_at(SEED_BYTES);
        let (limbs, n) = (self.shape.encrypted.flood_limbs, self.parameters().n());
        let mut b = vec![W::default(); limbs * n];
        ckks::wire::unpack(self.parameters(), limbs, rest, &mut b)
            .map_err(self.shape.wire(PUBLIC_KEY, 0))?;
        let keys = Keys {
            uniform: seed(uniform),
            used: 0,
            public: PublicKey::from_parts(self.parameters(), seed(public), b),
            evaluation: None,
        };
        self.keys.put_for(keys, self.shape.key_batches());
        self.keys.count(1);
        if self.shape.encrypted.key_power <= 1 {
            self.begin();
        }
        Ok(())
    }

    fn read_evaluation_keys(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let keys = EvaluationKeys::decode(self.parameters(), message)
            .map_err(self.shape.wire(EVALUATION_KEYS, 0))?;
        if keys.max_power() < self.shape.encrypted.key_power {
            let power = self.shape.encrypted.key_power;
            return Err(self.shape.ckks()(RingError::NoPowerKey { power }));
        }
        self.keys.with(|known| known.evaluation = Some(keys));
        self.begin();
        Ok(())
    }

    /// Makes ready for the rows of a batch.
    fn begin(&mut self) {
        let (inputs, row) = (self.shape.inputs, self.shape.encrypted.request_row_bytes());
        self.request = self.keys.with(|keys| {
            let uniform = ckks::uniform_generator(&keys.uniform);
            let room = self.network.rows.take(inputs * row);
            let request = Request::new(&self.network.parameters, uniform, keys.used, room);
            keys.used += inputs as u64;
            request
        });
    }

    /// Computes the result, re-randomises and floods it, and divides what the client does not need
    /// away.
    fn compute(&mut self) -> Result<(), EngineError> {
        let request = self.request.take().ok_or(NO_INPUT)?;
        let kept = self.keys.clone();
        kept.with(|keys| self.answer_with(keys, request))
            .ok_or(NO_INPUT)?
    }

    fn answer_with(&mut self, keys: &Keys<W>, request: Request) -> Result<(), EngineError> {
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
            PUBLIC_KEY => self.read_keys(message),
            EVALUATION_KEYS => self.read_evaluation_keys(message),
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
