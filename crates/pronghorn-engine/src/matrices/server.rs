//! The model owner's half.

use std::collections::VecDeque;

use pronghorn_he::{
    matrix::{Layout, MatrixMasks, MatrixServer, Parameters},
    rns::Ciphertext,
};
use pronghorn_ring::random::Seed;

use super::{KEY, Place, Shape};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// Receives encrypted shares, multiplies them with its own, hides the products and sends them.
pub struct EncryptedMatricesServer {
    shape: Shape,
    parameters: Parameters,
    /// With the client's key of the image that is under way.
    server: Option<MatrixServer>,
    masks: MatrixMasks,
    /// Of both factors, and their products; `None` for zeros.
    input: Option<[Batch; 2]>,
    /// Of the layout that is under way.
    factors: Vec<Ciphertext<u64>>,
    answers: VecDeque<Vec<u8>>,
    output: Batch,
}

impl Shape {
    /// The server's shares of the products, which the seed of the masks alone determines.
    pub(super) fn shares(&self, parameters: &Parameters, masks: &MatrixMasks) -> Batch {
        let mut output = Batch::zeros(self.own.elements, self.images());
        let mut shares = zeroize::Zeroizing::new(vec![0; self.elements()]);
        let (parts, images) = (self.product.matrices.parts, self.images());
        for pair in 0..self.pairs() {
            let (image, part) = (pair / parts, pair % parts);
            masks.shares(parameters, pair as u64, &mut shares);
            for (element, &share) in shares.iter().enumerate() {
                let element = part * shares.len() + element;
                output.words_mut()[element * images + image] = share;
            }
        }
        output
    }
}

impl EncryptedMatricesServer {
    /// `input` is the server's share of both factors; `masks` makes the masks where they were made
    /// ahead, and is used once.
    pub(super) fn new(
        shape: Shape,
        input: Share,
        masks: Option<Seed>,
    ) -> Result<Exchange<Self>, EngineError> {
        let masks = MatrixMasks::new(&masks.map_or_else(Seed::from_os, Ok)?);
        let input = match input {
            Share::Zero => None,
            Share::Words(input) => Some([shape.own.own(&input), input]),
        };
        let parameters = shape.parameters()?;
        let server = Self {
            output: shape.shares(&parameters, &masks),
            parameters,
            server: None,
            masks,
            input,
            factors: Vec::new(),
            answers: VecDeque::new(),
            shape,
        };
        Ok(Exchange::new(server.shape.messages(), server))
    }

    /// The answers of a layout, whose ciphertexts have come.
    fn answer(&mut self, of: Place) -> Result<(), EngineError> {
        let factors = std::mem::take(&mut self.factors);
        let (shape, images) = (&self.shape, self.shape.images());
        let pair = of.image * shape.product.matrices.parts + of.part;
        let clear = |element: usize| match &self.input {
            Some([_, input]) => shape.share(input, 1 - of.layout, of, element),
            None => 0,
        };
        let own = |element: usize| match &self.input {
            Some([own, _]) if of.layout == 0 => {
                own.words()[(of.part * shape.elements() + element) * images + of.image]
            }
            _ => 0,
        };
        let server = self.server.as_ref().ok_or(EngineError::OutOfTurn {
            state: "has no key of the client",
        })?;
        let place = (pair as u64, of.layout);
        let answers = server.answers(place, &factors, &clear, &own, &self.masks);
        self.answers.extend(answers);
        Ok(())
    }
}

impl Protocol for EncryptedMatricesServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let shape = &self.shape;
        let refused = |source| EngineError::Wire {
            step: shape.step().to_owned(),
            message: turn.name,
            row: turn.index,
            source,
        };
        if turn.name == KEY {
            let server = MatrixServer::new(&self.parameters, message)?;
            self.server = Some(server.map_err(refused)?);
            return Ok(());
        }
        let of = shape.place(turn.index, Layout::factors);
        let server = self.server.as_mut().ok_or_else(|| turn.unknown())?;
        self.factors.push(server.receive(message).map_err(refused)?);
        match of.last {
            true => self.answer(of),
            false => Ok(()),
        }
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let answer = self.answers.pop_front().ok_or_else(|| turn.unknown())?;
        out.extend(answer);
        Ok(())
    }
}

impl StepProtocol for EncryptedMatricesServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
