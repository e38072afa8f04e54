//! A whole network under two keys, stage by stage, for Table 4 of ePrint 2019/524.

use std::{sync::Arc, time::Instant};

use pronghorn_graph::{
    float,
    graph::Graph,
    passes,
    polynomial::{self, PolyGraph, PolynomialError},
};
use pronghorn_he::{
    ckks::{Encryptor, Plaintext, wire::packed_len},
    multikey::{Choice, Ciphertext, Decryptor, KeyRing, MultiKeyError, Rule, SecretKey},
};
use pronghorn_multikey::{
    Aim, Bound, Bounds, Chain, Cloud, Counts, Network, NetworkError, Program, Setting,
};
use pronghorn_ring::{
    random::{RandomError, Seed},
    security::SecurityLevel,
};
use thiserror::Error;

/// Why there is no such measurement.
#[derive(Debug, Error)]
pub enum NetworkBenchError {
    /// The model has no profile on these samples.
    #[error(transparent)]
    Float(#[from] float::FloatError),
    /// The model is no polynomial.
    #[error(transparent)]
    Polynomial(#[from] PolynomialError),
    /// Refused.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Refused.
    #[error(transparent)]
    MultiKey(#[from] MultiKeyError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The parameters of a run.
pub enum Parameters {
    /// Those that the error of the result and the floods of its decryption ask for.
    Flooded(Aim),
    /// Primes as in the paper, which leave no room for floods: the result is decrypted by one who
    /// has both secrets. Protects nothing from the parties.
    Unflooded(Chain),
}

/// A network with the keys of a client and a model owner, and its encrypted weights.
pub struct NetworkBench {
    graph: PolyGraph,
    program: Arc<Program>,
    bounds: Bounds,
    setting: Setting<u32>,
    rule: Option<Rule<u32>>,
    secrets: [SecretKey<u32>; 2],
    encryptor: Encryptor<u32>,
    keys: KeyRing<u32>,
    cloud: Cloud<u32>,
    model_bytes: usize,
    /// Seconds of keys, of the model's encryption and of its expansion by the cloud.
    seconds: [f64; 3],
    key_bytes: [usize; 2],
}

/// A step of a run, with its seconds.
pub type Stage = (String, f64);

/// What an image's run gave.
pub struct Run {
    /// The result.
    pub outputs: Vec<f64>,
    /// Seconds of the image's encryption.
    pub encryption: f64,
    /// The products of the network in order, as the cloud computes them.
    pub products: Vec<Stage>,
    /// The decryption, in order.
    pub decryption: Vec<Stage>,
    /// The largest difference from the polynomial network in doubles.
    pub error: f64,
}

/// Bytes of what is sent, in the form of `he`'s wire formats.
pub struct Bytes {
    /// An image, encrypted by its owner.
    pub image: usize,
    /// The model.
    pub model: usize,
    /// The client's public keys, and the model owner's.
    pub keys: [usize; 2],
    /// The result under both keys.
    pub result: usize,
}

/// Bytes of a ciphertext of one party, encrypted by its owner: header, seed and numbers, `b`.
fn seeded(setting: &Setting<u32>, limbs: usize) -> usize {
    34 + 49 + packed_len(setting.ring(), limbs)
}

fn seed(number: u8) -> Seed {
    Seed::from_bytes([number; 32])
}

impl NetworkBench {
    /// The network of a float model, which `samples` calibrate.
    ///
    /// # Errors
    /// When the model is no polynomial, or there are no parameters for it.
    pub fn new(
        model: &Graph,
        samples: &[f32],
        parameters: Parameters,
    ) -> Result<Self, NetworkBenchError> {
        let float = passes::run(model);
        let profile = float::profile(&float, samples, samples.len() / model.input_len().max(1))?;
        let graph = polynomial::lower_finely(&float, &profile, 1.0)?;
        let reference = [77; 32];
        let (program, bounds, setting, rule) = match parameters {
            Parameters::Flooded(aim) => {
                let chosen = aim.choose(&graph, reference)?;
                (
                    chosen.program,
                    chosen.bounds,
                    chosen.setting,
                    Some(chosen.rule),
                )
            }
            Parameters::Unflooded(chain) => {
                let program = Program::new(Network::of(&graph), chain.degree / 2)?;
                let bounds = Bounds::of(&program, &graph)?;
                (program, bounds, Setting::new(chain, reference)?, None)
            }
        };
        let secrets = [1, 2].map(|i| SecretKey::generate(setting.common(), &seed(i)));
        let mut keys = KeyRing::new(setting.common());
        let mut key_bytes = [0; 2];
        let started = Instant::now();
        let rotations = program.rotations();
        for ((secret, steps), bytes) in secrets.iter().zip(&rotations).zip(&mut key_bytes) {
            let choice = Choice {
                steps,
                ..Choice::default()
            };
            let public = secret.public_keys(choice)?;
            let mut encoded = Vec::new();
            public.encode(&mut encoded);
            *bytes = encoded.len();
            keys.insert(public)?;
        }
        let of_keys = started.elapsed().as_secs_f64();
        let mut encryptor = secrets[1].encryptor()?;
        let started = Instant::now();
        let model = program.encrypt_model(&setting, &graph, &mut encryptor)?;
        let of_model = started.elapsed().as_secs_f64();
        let program = Arc::new(program);
        let started = Instant::now();
        let cloud = Cloud::new(&program, &setting, secrets[1].party(), &model)?;
        let expansion = started.elapsed().as_secs_f64();
        let layers = model.layers.values();
        let ciphertexts = layers.flat_map(|x| x.weights.iter().flatten().chain(&x.addends));
        let model_bytes = ciphertexts.map(|x| seeded(&setting, x.limbs())).sum();
        Ok(Self {
            encryptor: secrets[0].encryptor()?,
            graph,
            program,
            bounds,
            setting,
            rule,
            secrets,
            keys,
            cloud,
            model_bytes,
            seconds: [of_keys, of_model, expansion],
            key_bytes,
        })
    }

    /// Runs one image.
    ///
    /// # Errors
    /// When it has the wrong size.
    pub fn run(&mut self, image: &[f32]) -> Result<Run, NetworkBenchError> {
        let values: Vec<f64> = image.iter().map(|&x| x.into()).collect();
        let (program, setting) = (&self.program, &self.setting);
        let started = Instant::now();
        let input = program.encrypt_input(setting, &values, &mut self.encryptor)?;
        let encryption = started.elapsed().as_secs_f64();
        let client = self.secrets[0].party();
        let mut products: Vec<Stage> = Vec::new();
        let result = self
            .cloud
            .evaluate(client, &input, &self.keys, |node, seconds| {
                if node.op.is_product() {
                    products.push((node.name.clone(), seconds));
                }
            })?;
        let mut decryption = Vec::new();
        let mut slots = Vec::new();
        for x in &result {
            let plain = match &self.rule {
                None => x.decrypt_with_all(&self.secrets.each_ref())?,
                Some(rule) => self.decrypt(x, rule, &mut decryption)?,
            };
            slots.push(setting.ring().decode(&plain).map_err(MultiKeyError::from)?);
        }
        let outputs = program.decode(&slots)?;
        let wanted = self.graph.evaluate(&values);
        let errors = outputs.iter().zip(&wanted).map(|(x, y)| (x - y).abs());
        let error = errors.fold(0.0, f64::max);
        Ok(Run {
            outputs,
            encryption,
            products,
            decryption,
            error,
        })
    }

    /// A result by both parties, each with a fresh ledger: the keys of a benchmark are nobody's.
    fn decrypt(
        &self,
        x: &Ciphertext<u32>,
        rule: &Rule<u32>,
        stages: &mut Vec<Stage>,
    ) -> Result<Plaintext<u32>, MultiKeyError> {
        let secret = |i| SecretKey::generate(self.setting.common(), &seed(i));
        let parties = [1, 2].into_iter().map(|i| Decryptor::new(secret(i), rule));
        let mut parties = parties.collect::<Result<Vec<_>, _>>()?;
        let started = Instant::now();
        let mut stage = |name: &str| {
            stages.push((name.to_owned(), started.elapsed().as_secs_f64()));
        };
        let contributions = parties
            .iter_mut()
            .map(|party| party.contribute(x.extended(), &self.keys))
            .collect::<Result<Vec<_>, _>>()?;
        stage("re-randomisation, both parties");
        let mut partials = Vec::new();
        for party in &mut parties {
            partials.push(party.decrypt(x.extended(), &contributions, |_| Ok(()))?);
        }
        stage("and partial decryptions, both parties");
        let plain = x.merge(&contributions, &partials)?;
        stage("and their sum");
        Ok(plain)
    }

    /// Seconds of both parties' keys, of the model's encryption, and of its expansion by the cloud.
    pub fn seconds(&self) -> [f64; 3] {
        self.seconds
    }

    /// Sizes.
    pub fn bytes(&self) -> Bytes {
        let (program, setting) = (&self.program, &self.setting);
        let (first, result) = (&program.steps[0], &program.steps[program.network.output]);
        let (parties, words) = (2, packed_len(setting.ring(), setting.limbs(0)));
        Bytes {
            image: program.counts().inputs * seeded(setting, setting.limbs(first.level)),
            model: self.model_bytes,
            keys: self.key_bytes,
            result: result.layout.ciphertexts() * (44 + 32 * parties + (parties + 1) * words),
        }
    }

    /// The work of an image.
    pub fn counts(&self) -> Counts {
        self.program.counts()
    }

    /// Rotations of the client's keys, and of the owner's.
    pub fn rotations(&self) -> [usize; 2] {
        self.program.rotations().map(|steps| steps.len())
    }

    /// The primes.
    pub fn chain(&self) -> &Chain {
        self.setting.chain()
    }

    /// `log2` of the primes of a fresh ciphertext, and of all.
    pub fn log_moduli(&self) -> [f64; 2] {
        let ring = self.setting.ring();
        let basis = ring.basis();
        [
            ring.log_modulus(ring.limbs()),
            basis.log2_product(0..basis.limbs()),
        ]
    }

    /// The level of the security table.
    pub fn security(&self) -> Option<SecurityLevel> {
        self.setting.ring().security()
    }

    /// The stated bound on the error of an element of the result: with floods, where there are any.
    ///
    /// # Errors
    /// When program and setting differ.
    pub fn stated_error(&self) -> Result<f64, NetworkBenchError> {
        Ok(match &self.rule {
            Some(rule) => self.setting.error(&self.program, &self.bounds, rule)?,
            None => {
                let bound = Bound::of_result(&self.program, &self.bounds, &self.setting)?;
                bound.noise.slot_bound() / self.setting.scale(0)
            }
        })
    }

    /// `log2` of each party's flood, if there are any.
    pub fn log_flood(&self) -> Option<u32> {
        self.rule.as_ref().map(Rule::log_flood)
    }
}
