//! Polynomial networks on CKKS ciphertexts, without interaction (nGraph-HE2, section 3; trust level
//! `encrypted`).
//!
//! Messages, in order (all lengths follow from the plan, whatever the number of images):
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the seed of every `a`, with the first batch of keys | client | 32 |
//! | the encrypted input, one row an element, [`rows_per_message`](crate::batch::rows_per_message) in each message | client | rows of `b` |
//! | the encrypted answer, one row an element, as many in each message | server | rows of as many polynomials as the degree in the secret, plus one |
//!
//! The client's [keys](crate::keys) come before its first batch, and are checked.
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client its results and what
//! the plan says: sizes, parameters, scales. The answer is an encryption of the result and noise;
//! the noise depends on the weights, and is hidden under a flood of which the plan says how wide it
//! is, the polynomials by encryptions of zero ([`pronghorn_he::ckks::PublicKey::flood_words`] has
//! the argument). Keys are fresh for every connection and after as many batches as the plan says,
//! randomness for every batch.
//!
//! Results stay with the client: whoever shows decrypted CKKS values to others gives the key away
//! (Li, Micciancio, EUROCRYPT 2021).

pub mod client;
pub(crate) mod keys;
mod network;
mod request;
pub mod server;
pub(crate) mod sides;
mod simd;
mod stage;
mod values;

pub use network::Network;

use pronghorn_he::ckks::{CkksError, Parameters, WireError};
use pronghorn_plan::{EncryptedPlan, cost::SEED_BYTES, step::Place};
use pronghorn_ring::Word;

use crate::{
    batch::cut_rows,
    error::EngineError,
    exchange::{Message, Messages, Parts, Party},
};

const SEED: &str = "the seed of every `a`";
const INPUT: &str = "the encrypted input";
const ANSWER: &str = "the encrypted answer";

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Name of the step, for messages.
    pub step: String,
    /// Parameters.
    pub encrypted: EncryptedPlan,
    /// Rows in.
    pub inputs: usize,
    /// Fraction bits of the input.
    pub input_bits: i32,
    /// Rows out.
    pub outputs: usize,
    /// Fraction bits of the result.
    pub output_bits: i32,
    /// Smallest integer of the result.
    pub low: i32,
    /// Largest integer of the result.
    pub high: i32,
}

impl Shape {
    /// The shape of the step in its plan.
    pub fn new(encrypted: &EncryptedPlan, place: &Place<'_>) -> Self {
        let (input, value) = (place.input(), place.value());
        Self {
            step: place.name(),
            encrypted: encrypted.clone(),
            inputs: input.len(),
            input_bits: input.fraction_bits,
            outputs: value.len(),
            output_bits: value.fraction_bits,
            low: value.low,
            high: value.high,
        }
    }

    /// Rows in and out: the step's share of the progress.
    pub fn rows(&self) -> u64 {
        (self.inputs + self.outputs) as u64
    }

    /// The rows of each message of the request.
    fn request(&self) -> Parts {
        cut_rows(self.inputs, self.encrypted.request_row_bytes())
    }

    /// The rows of each message of the answer.
    fn answer(&self) -> Parts {
        cut_rows(self.outputs, self.encrypted.answer_row_bytes())
    }

    /// All messages of a batch; `known`: an earlier one brought the seed.
    fn messages(&self, known: bool) -> Messages {
        let encrypted = &self.encrypted;
        let rows = [encrypted.request_row_bytes(), encrypted.answer_row_bytes()];
        Messages::new(&self.step)
            .with_all((!known).then_some(Message::client(SEED, SEED_BYTES)))
            .with_all(self.request().messages(Party::Client, INPUT, rows[0]))
            .with_all(self.answer().messages(Party::Server, ANSWER, rows[1]))
    }

    /// The ring and the modulus.
    fn parameters<W: Word>(&self) -> Result<Parameters<W>, EngineError> {
        keys::parameters(&self.encrypted, &self.step)
    }

    fn wire(&self, message: &'static str, row: usize) -> impl Fn(WireError) -> EngineError + '_ {
        move |source| EngineError::Wire {
            step: self.step.clone(),
            message,
            row,
            source,
        }
    }

    fn ckks<E: Into<CkksError>>(&self) -> impl Fn(E) -> EngineError + '_ {
        |source| EngineError::Ckks {
            step: self.step.clone(),
            source: source.into(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use pronghorn_graph::graph::{Graph, Tensor};
    use pronghorn_he::ckks::{Ciphertext, wire};
    use pronghorn_he::flood::FISHER;
    use pronghorn_plan::{
        BuildOptions, Built, StepKind, TrustLevel, Weights, build, flood::LEAST_BITS,
    };
    use pronghorn_ring::random::Seed;

    use super::{client::EncryptedClient, server::EncryptedServer, *};
    use crate::{
        exchange::tests::assert_table,
        images::{Images, Part},
        keys::KeySets,
        machine::{Machine, Want},
    };

    #[test]
    fn the_table_lists_the_messages() {
        let names = [SEED, INPUT, ANSWER];
        assert_table(include_str!("mod.rs"), names);
    }

    /// 30 -> 20, square, -> 10, square, -> 4.
    fn built() -> Built {
        built_with(BuildOptions::default())
    }

    pub(crate) fn built_with(options: BuildOptions) -> Built {
        let json = r#"{"name":"noise","output":5,"nodes":[
            {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[30]},
            {"name":"a","op":{"kind":"dense","weight":"a","bias":null},"inputs":[0],"shape":[20]},
            {"name":"s","op":{"kind":"square"},"inputs":[1],"shape":[20]},
            {"name":"b","op":{"kind":"dense","weight":"b","bias":null},"inputs":[2],"shape":[10]},
            {"name":"t","op":{"kind":"square"},"inputs":[3],"shape":[10]},
            {"name":"c","op":{"kind":"dense","weight":"c","bias":null},"inputs":[4],"shape":[4]}]}"#;
        let tensor = |rows: usize, columns: usize| {
            Tensor::new([rows, columns], numbers(rows * columns, rows as u64))
        };
        let weights = BTreeMap::from([
            ("a".to_owned(), tensor(20, 30)),
            ("b".to_owned(), tensor(10, 20)),
            ("c".to_owned(), tensor(4, 10)),
        ]);
        let graph = Graph::from_json(json, weights).expect("the network is valid");
        let options = BuildOptions {
            trust: Some(TrustLevel::Encrypted),
            samples: Some(numbers(30 * 64, 5)),
            ..options
        };
        build(&graph, &options).expect("it has a plan")
    }

    /// Numbers in (-0.5, 0.5).
    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    /// The flood is sized for noise that nobody sees in an ordinary run, where the flood is far
    /// larger. Here it is left out, and no bit of the answer is divided away: what is left is no
    /// more than what the flood is sized for.
    #[test]
    fn the_noise_under_the_flood_is_what_it_is_sized_for() {
        let built = built();
        let Weights::Network(network) = &built.weights[1] else {
            panic!("the network is encrypted")
        };
        let program = network.program.clone();
        let StepKind::Encrypted(mut plan) = built.plan.steps[1].kind.clone() else {
            panic!("the step is encrypted")
        };
        let (bits, outputs) = (f64::from(LEAST_BITS), built.plan.output_len());
        let sized = {
            let reach = f64::from(plan.flood_log).exp2();
            plan.flood_log = 0;
            plan.answer_limbs = plan.flood_limbs;
            plan.answer_scale = program.nodes[program.output].scale;
            // Equation (2) of `pronghorn_he::flood`, for the error of a slot in each answer of a
            // key.
            let answers = (outputs * plan.key_batches as usize) as f64;
            reach * (-bits).exp2() / (FISHER * answers).sqrt() / plan.answer_scale
        };
        let shape = Shape::new(&plan, &built.plan.place(1));
        let images = shape.encrypted.slots();
        let inputs: Vec<f32> = numbers(30 * 64, 5)
            .into_iter()
            .cycle()
            .take(30 * images)
            .collect();
        let quantised = Images::new(&built.plan, &inputs, images).expect("images");
        let part = Part::new(quantised.into(), 0..images).expect("all");
        let batch = part.whole();
        let sets = keys::EncryptedKeySets::<u32>::new(&built.plan, &plan).expect("keys");
        let seed = Seed::from_bytes([1; 32]);
        let mut bytes = Vec::new();
        sets.encode(&seed, &mut |part| bytes.extend_from_slice(part))
            .expect("keys");
        assert_eq!(bytes.len(), sets.bytes());
        let keys = Arc::new(sets.client(&seed));
        let theirs = Arc::new(sets.server(&bytes).expect("honest keys"));
        let step = built.plan.step_name(1);
        let network = Network::<u32>::new(network, &shape.encrypted, &step).expect("weights fit");
        let network = Arc::new(network);
        // The words of the answers. Those of two runs differ by their noise alone, which is far
        // below what doubles have of the values.
        let answers = || {
            let (shape, batch) = (shape.clone(), batch.clone());
            let client = EncryptedClient::new(shape.clone(), batch, keys.clone());
            let mut client = client.expect("keys");
            let mut server = EncryptedServer::new(shape.clone(), network.clone(), theirs.clone());
            let mut message = Vec::new();
            while client.want() == Want::Send {
                message.clear();
                client.send(&mut message).expect("the client's turn");
                server.receive(&message).expect("an honest message");
            }
            let mut rows = Vec::new();
            while server.want() == Want::Send {
                message.clear();
                server.send(&mut message).expect("the server's turn");
                rows.extend(
                    message
                        .chunks(shape.encrypted.answer_row_bytes())
                        .map(<[u8]>::to_vec),
                );
            }
            rows
        };
        let parameters = shape.parameters::<u32>().expect("valid parameters");
        let (polys, limbs) = (plan.answer_polys, plan.answer_limbs);
        let unpacked = |bytes: &[u8]| {
            let mut words = vec![0u32; polys * limbs * parameters.n()];
            wire::unpack(&parameters, limbs, bytes, &mut words).expect("honest words");
            words
        };
        let (mut sum, mut count) = (0.0, 0usize);
        for (one, other) in answers().iter().zip(answers()) {
            let (mut words, other) = (unpacked(one), unpacked(&other));
            let rows = words.chunks_mut(parameters.n());
            for (place, (row, other)) in rows.zip(other.chunks(parameters.n())).enumerate() {
                let prime = plan.primes[place % limbs];
                for (word, other) in row.iter_mut().zip(other) {
                    let less = u64::from(*word) + prime - u64::from(*other);
                    *word = (less % prime) as u32;
                }
            }
            let noise = Ciphertext::from_words(&parameters, limbs, plan.answer_scale, words);
            let plain = keys.key.decrypt(&noise.expect("a valid ciphertext"));
            let slots = parameters.decode(&plain.expect("its parameters"));
            let slots = slots.expect("its parameters").re;
            sum += slots.iter().map(|slot| slot * slot).sum::<f64>();
            count += slots.len();
        }
        // Of two runs' noise.
        let measured = (sum / count as f64 / 2.0).sqrt();
        assert!(measured <= sized, "{measured:e} of {sized:e}");
        // The worst inputs make 2^13 times the noise of these.
        assert!(
            measured >= sized * 20f64.exp2().recip(),
            "{measured:e} of {sized:e}"
        );
    }
}
