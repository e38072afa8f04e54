//! Linear layers on slots, both parties in one process, a clock for each step; and the operations
//! of their encryption.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::bfv::{
    BfvError, Ciphertext, EvaluationKeys, Hider, Multiplier, ParameterError, Parameters, PublicKey,
    SecretKey, SeededCiphertext, Switching,
};
use pronghorn_ring::{
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    rns,
    security::SecurityLevel,
};

use crate::parties::clocked;
use pronghorn_slot::{
    Layer, Objective, Packing, SlotError, Variant, choose, convolution, cost, matrix,
};

/// How a layer is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// What [`choose`] picks.
    Chosen,
    /// [`matrix::naive`].
    Naive,
    /// [`matrix::input_packing`].
    InputPacking,
    /// [`matrix::diagonal`].
    Diagonal,
    /// [`matrix::hybrid`].
    Hybrid,
    /// [`convolution::input_rotations`].
    InputRotations,
    /// [`convolution::output_rotations`].
    OutputRotations,
}

/// Every method by name.
pub const METHODS: [(&str, Method); 7] = [
    ("chosen", Method::Chosen),
    ("naive", Method::Naive),
    ("input packing", Method::InputPacking),
    ("diagonal", Method::Diagonal),
    ("hybrid", Method::Hybrid),
    ("input rotations", Method::InputRotations),
    ("output rotations", Method::OutputRotations),
];

/// What a layer cost: times are the least of all rounds.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Encoding and transforming weights, once a model.
    pub setup: Duration,
    /// The client's rotation keys, once a key pair.
    pub key_generation: Duration,
    /// Packing, encoding and encrypting the client's share.
    pub encrypt: Duration,
    /// The inputs' halves that come from seeds.
    pub expand: Duration,
    /// Products and rotations.
    pub evaluate: Duration,
    /// Masks, encryptions of zero, floods; and the server's shares.
    pub hide: Duration,
    /// Decrypting and unpacking.
    pub decrypt: Duration,
    /// Bytes of the inputs.
    pub up: usize,
    /// Bytes of the answers.
    pub down: usize,
    /// Bytes of rotation keys and the public key.
    pub keys: usize,
    /// Bytes of prepared weights.
    pub weights: usize,
    /// Rotations of inputs.
    pub input_rotations: usize,
    /// Rotations of sums.
    pub output_rotations: usize,
    /// Products with plaintexts.
    pub products: usize,
    /// Predicted microseconds of the evaluation.
    pub predicted: f64,
    /// Degree, primes, plaintext modulus and variant in words.
    pub described: String,
    /// The security level.
    pub security: Option<SecurityLevel>,
}

/// Computes a layer whose values are below `2^(bits - 1)`, with made-up weights and values, and
/// checks the result.
///
/// # Errors
/// When the method does not go with the layer, nothing has room, or the result is wrong.
pub fn run(
    geometry: &ConvGeometry,
    method: Method,
    bits: u32,
    rounds: usize,
) -> Result<Run, SlotError> {
    let largest = (1u64 << bits.clamp(1, 30).saturating_sub(1)) - 1;
    let (variant, parameters) = pick(geometry, method, largest)?;
    let packing = Arc::new(Packing::new(geometry, &variant, &parameters)?);
    let predicted = cost::cost(geometry, &variant, &parameters)?.map_or(0.0, |cost| cost.evaluate);
    // Weights of a few bits, values of what is left: sums may wrap around, as they may modulo t.
    let weights = draw(geometry.weights_len(), 127, 1);
    let values = draw(packing.input_len(), 127, 2);
    let mut run = Run {
        predicted,
        described: describe(&parameters, &variant),
        security: parameters.security(),
        ..Run::default()
    };
    let layer = clocked(&mut run.setup, || Layer::prepare(packing.clone(), &weights))?;
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let key = SecretKey::generate(&parameters, &seed(1));
    let public = PublicKey::generate_from_seed(&key, &seed(2));
    let keys = clocked(&mut run.key_generation, || {
        let (steps, swaps) = (packing.steps(), packing.swaps());
        let rotates = swaps || !steps.is_empty();
        let keys =
            rotates.then(|| EvaluationKeys::generate_from_seed(&key, &steps, swaps, &seed(3)));
        keys.transpose()
    })?;
    let mut bytes = Vec::new();
    if let Some(keys) = &keys {
        keys.encode(&mut bytes);
    }
    public.encode(&mut bytes);
    let counts = packing.counts();
    run.keys = bytes.len();
    run.weights = layer.bytes();
    run.input_rotations = counts.input_rotations;
    run.output_rotations = counts.output_rotations;
    run.products = counts.products;
    let expected = plain(geometry, &weights, &values, parameters.t());
    let parties = Parties {
        layer: &layer,
        key: &key,
        public: &public,
        keys: keys.as_ref(),
    };
    for round in 0..rounds.max(1) {
        let mut once = Run::default();
        let found = parties.exchange(&values, &mut once)?;
        if found != expected {
            return Err(SlotError::Count {
                what: "right outputs",
                found: found.iter().zip(&expected).filter(|(x, y)| x == y).count(),
                expected: expected.len(),
            });
        }
        (run.up, run.down) = (once.up, once.down);
        let pairs = [
            (&mut run.encrypt, once.encrypt),
            (&mut run.expand, once.expand),
            (&mut run.evaluate, once.evaluate),
            (&mut run.hide, once.hide),
            (&mut run.decrypt, once.decrypt),
        ];
        for (least, found) in pairs {
            *least = if round == 0 { found } else { found.min(*least) };
        }
    }
    Ok(run)
}

struct Parties<'a> {
    layer: &'a Layer,
    key: &'a SecretKey<u64>,
    public: &'a PublicKey<u64>,
    keys: Option<&'a EvaluationKeys<u64>>,
}

impl Parties<'_> {
    /// From the client's values to the sum of both shares.
    fn exchange(&self, values: &[i32], run: &mut Run) -> Result<Vec<i32>, SlotError> {
        let packing = self.layer.packing();
        let (parameters, format) = (packing.parameters(), packing.format()?);
        let mut encryptor = self.key.encryptor_from_seed(&Seed::from_bytes([4; 32]));
        let sent: Vec<SeededCiphertext<u64>> = clocked(&mut run.encrypt, || {
            let slots = packing.pack(values)?;
            let mut encrypt = |slots: &[i32]| encryptor.encrypt(&parameters.encode(slots)?);
            let sent: Result<_, BfvError> = slots.iter().map(|slots| encrypt(slots)).collect();
            Ok::<_, SlotError>(sent?)
        })?;
        let inputs: Vec<Ciphertext<u64>> = clocked(&mut run.expand, || {
            Ok::<_, SlotError>(sent.iter().map(SeededCiphertext::expand).collect())
        })?;
        let outputs = clocked(&mut run.evaluate, || {
            self.layer.evaluate(&inputs, self.keys)
        })?;
        let hider = Hider::new(&Seed::from_bytes([5; 32]));
        let (answers, server) = clocked(&mut run.hide, || {
            let rows = 0..outputs.len() as u64;
            let shares: Vec<_> = rows.map(|row| hider.shares(parameters, row)).collect();
            let answers = outputs.iter().enumerate();
            let answers: Result<Vec<_>, BfvError> = answers
                .map(|(row, output)| hider.hide(row as u64, output, self.public, &format))
                .collect();
            Ok::<_, SlotError>((answers?, packing.unpack(&shares)?))
        })?;
        let client = clocked(&mut run.decrypt, || {
            let slots: Result<Vec<_>, BfvError> = answers
                .iter()
                .map(|answer| self.key.decrypt_answer(answer))
                .collect();
            packing.unpack(&slots?)
        })?;
        let mut bytes = Vec::new();
        sent.iter().for_each(|sent| sent.encode(&mut bytes));
        run.up = bytes.len();
        bytes.clear();
        answers.iter().for_each(|answer| answer.encode(&mut bytes));
        run.down = bytes.len();
        let pairs = client.iter().zip(server.iter());
        let t = parameters.t();
        Ok(pairs
            .map(|(&x, &y)| centre(t, i64::from(x) + i64::from(y)))
            .collect())
    }
}

/// The variant, and the cheaper of the degrees.
fn pick(
    geometry: &ConvGeometry,
    method: Method,
    largest: u64,
) -> Result<(Variant, Parameters<u64>), SlotError> {
    let objective = Objective::default();
    if method == Method::Chosen {
        let choice = choose(geometry, largest, &objective)?;
        return Ok((choice.variant, choice.parameters));
    }
    let (inputs, outputs) = (geometry.in_channels, geometry.out_channels);
    let mut best = None;
    for degree in [4096, 8192] {
        let variant = match method {
            Method::Chosen | Method::Naive => matrix::naive(inputs, degree),
            Method::InputPacking => matrix::input_packing(inputs, outputs, degree),
            Method::Diagonal => matrix::diagonal(degree),
            Method::Hybrid => matrix::hybrid(inputs, outputs, degree),
            Method::InputRotations => convolution::input_rotations(geometry, degree)?,
            Method::OutputRotations => convolution::output_rotations(geometry, degree)?,
        };
        let Ok(parameters) = cost::parameters(geometry, &variant, degree, largest) else {
            continue;
        };
        let Some(found) = cost::cost(geometry, &variant, &parameters)? else {
            continue;
        };
        let total = found.total(&objective);
        if best.as_ref().is_none_or(|(least, _, _)| total < *least) {
            best = Some((total, variant, parameters));
        }
    }
    let (_, variant, parameters) = best.ok_or(SlotError::NoVariant)?;
    Ok((variant, parameters))
}

fn describe(parameters: &Parameters<u64>, variant: &Variant) -> String {
    let ring = parameters.ring();
    let bits: Vec<u32> = ring.basis().primes().map(|q| q.bits()).collect();
    let (chain, special) = bits.split_at(parameters.limbs());
    format!(
        "N = {}, primes of {chain:?} bits, special {special:?}, digits of {:?}, t of {} bits; {variant:?}",
        parameters.n(),
        parameters.digit_bits(),
        parameters.t().ilog2() + 1
    )
}

fn draw(count: usize, most: i32, stream: u64) -> Vec<i32> {
    let mut bytes = vec![0; 4 * count];
    Prg::new(&Seed::from_bytes([9; 32]), "pronghorn bench slot")
        .stream(stream)
        .fill(&mut bytes);
    let value = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes) % (most + 1);
    bytes.as_chunks::<4>().0.iter().map(value).collect()
}

fn centre(t: u64, value: i64) -> i32 {
    let residue = value.rem_euclid(t as i64);
    (if residue > t as i64 / 2 {
        residue - t as i64
    } else {
        residue
    }) as i32
}

/// The layer on integers, modulo `t`.
fn plain(geometry: &ConvGeometry, weights: &[i32], values: &[i32], t: u64) -> Vec<i32> {
    let [height, width] = geometry.output().unwrap_or([0, 0]);
    let [rows, columns] = geometry.input;
    let each = geometry.in_channels / geometry.groups;
    let kernel = geometry.window.kernel;
    let mut out = Vec::with_capacity(geometry.out_channels * height * width);
    for channel in 0..geometry.out_channels {
        let group = channel / (geometry.out_channels / geometry.groups);
        for place in 0..height * width {
            let (y, x) = (place / width, place % width);
            let mut sum = 0;
            for input in 0..each {
                let from = &values[(group * each + input) * rows * columns..];
                let weights = &weights[(channel * each + input) * kernel[0] * kernel[1]..];
                for down in geometry.window.taps(0, y, rows) {
                    let line = &from[geometry.window.index(0, y, down) * columns..];
                    for right in geometry.window.taps(1, x, columns) {
                        let weight = weights[down * kernel[1] + right];
                        let value = line[geometry.window.index(1, x, right)];
                        sum += i64::from(weight) * i64::from(value);
                    }
                }
            }
            out.push(centre(t, sum));
        }
    }
    out
}

/// The encryption of slots and its operations, for Gazelle's Tables VI and VII.
pub struct Operations {
    parameters: Parameters<u64>,
    key: SecretKey<u64>,
    keys: EvaluationKeys<u64>,
    ciphertext: Ciphertext<u64>,
    multiplier: Multiplier<u64>,
}

/// What [`Operations::seconds`] measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A secret key and its public key.
    KeyGeneration,
    /// Encoding and encryption.
    Encrypt,
    /// Decryption and decoding.
    Decrypt,
    /// A sum of ciphertexts.
    Add,
    /// A product with a plaintext.
    Multiply,
    /// The key of a rotation.
    RotationKey,
    /// A rotation.
    Rotate,
    /// [`HOISTED`] rotations of one ciphertext, and one more.
    RotateMany,
}

/// Every operation by name.
pub const SLOT_OPERATIONS: [(&str, Operation); 8] = [
    ("key generation", Operation::KeyGeneration),
    ("encrypt", Operation::Encrypt),
    ("decrypt", Operation::Decrypt),
    ("add", Operation::Add),
    ("multiply", Operation::Multiply),
    ("rotation key", Operation::RotationKey),
    ("rotate", Operation::Rotate),
    ("rotate many", Operation::RotateMany),
];

/// Rotations beside the first of [`Operation::RotateMany`].
pub const HOISTED: usize = 16;

impl Operations {
    /// `N = 4096` with two primes of 50 bits and digits of `digit_bits`; or, `insecure`, the
    /// paper's `N = 2048` with a prime of 60 bits, which protects nothing. Plaintext moduli have 20
    /// bits.
    ///
    /// # Errors
    /// When there are no such digits.
    pub fn new(insecure: bool, digit_bits: u32) -> Result<Self, SlotError> {
        const BITS: u32 = 20;
        let parameters = if insecure {
            const N: usize = 2048;
            let primes = rns::primes(N, &[60]).map_err(ParameterError::from)?;
            let none = ParameterError::PlaintextBits { bits: BITS, n: N };
            let t = largest_ntt_prime(BITS, N).ok_or(none)?;
            let digits = Switching::Digits(digit_bits);
            Parameters::insecure_paper_parameters(N, &primes, digits, t)?
        } else {
            Parameters::with_bits(4096, &[50, 50], &[], digit_bits, BITS)?
        };
        let seed = |byte| Seed::from_bytes([byte; 32]);
        let key = SecretKey::generate(&parameters, &seed(1));
        let keys = EvaluationKeys::generate_from_seed(&key, &[1], false, &seed(2))?;
        let plain = parameters.encode(&draw(parameters.n(), 1000, 3))?;
        let ciphertext = key.encryptor_from_seed(&seed(4)).encrypt(&plain)?.expand();
        Ok(Self {
            multiplier: plain.to_multiplier(),
            parameters,
            key,
            keys,
            ciphertext,
        })
    }

    /// Seconds of one operation: the mean of `iterations`.
    ///
    /// # Errors
    /// None that the parameters have not been checked for.
    pub fn seconds(&self, operation: Operation, iterations: usize) -> Result<f64, SlotError> {
        let (parameters, key) = (&self.parameters, &self.key);
        let seed = |byte| Seed::from_bytes([byte; 32]);
        let values = draw(parameters.n(), 1000, 5);
        let mut encryptor = key.encryptor_from_seed(&seed(6));
        let mut sum = self.ciphertext.clone();
        // By one key, which stays in cache, as in the paper's measurement.
        let steps = [1; HOISTED + 1];
        let start = Instant::now();
        for _ in 0..iterations {
            match operation {
                Operation::KeyGeneration => {
                    let key = SecretKey::generate(parameters, &seed(7));
                    black_box(PublicKey::generate_from_seed(&key, &seed(8)));
                }
                Operation::Encrypt => {
                    black_box(encryptor.encrypt(&parameters.encode(&values)?)?);
                }
                Operation::Decrypt => {
                    black_box(parameters.decode(&key.decrypt(&self.ciphertext)?)?);
                }
                Operation::Add => sum.add_assign(&self.ciphertext)?,
                Operation::Multiply => {
                    black_box(self.ciphertext.mul_plain(&self.multiplier)?);
                }
                Operation::RotationKey => {
                    let keys = EvaluationKeys::generate_from_seed(key, &[1], false, &seed(9))?;
                    black_box(keys);
                }
                Operation::Rotate => {
                    black_box(self.ciphertext.rotate(1, &self.keys)?);
                }
                Operation::RotateMany => {
                    black_box(self.ciphertext.rotate_many(&steps, &self.keys)?);
                }
            }
        }
        Ok(start.elapsed().as_secs_f64() / iterations.max(1) as f64)
    }

    /// Bytes of the key of a rotation.
    ///
    /// # Errors
    /// When there are none.
    pub fn key_bytes(&self) -> Result<usize, SlotError> {
        let seed = Seed::from_bytes([9; 32]);
        let keys = EvaluationKeys::generate_from_seed(&self.key, &[1], false, &seed)?;
        let mut bytes = Vec::new();
        keys.encode(&mut bytes);
        Ok(bytes.len())
    }

    /// `log2` of the noise of a rotation, as measured.
    ///
    /// # Errors
    /// When there are no keys.
    pub fn log_noise(&self) -> Result<f64, SlotError> {
        let rotated = self.ciphertext.rotate(1, &self.keys)?;
        Ok(self.key.log_noise(&rotated)?)
    }

    /// The security level in bits; `None` for the paper's.
    pub fn security(&self) -> Option<SecurityLevel> {
        self.parameters.security()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_and_operation_is_measured() {
        for (name, method) in METHODS {
            let geometry = match name.ends_with("rotations") {
                true => ConvGeometry::per_channel(2, [5, 5]),
                false => ConvGeometry::dense(40, 3),
            };
            let run = run(&geometry, method, 18, 1).unwrap();
            assert!(run.products > 0 && run.up > 0 && run.down > 0, "{name}");
        }
        for insecure in [false, true] {
            let operations = Operations::new(insecure, 20).unwrap();
            assert_eq!(operations.security().is_none(), insecure);
            for (_, operation) in SLOT_OPERATIONS {
                assert!(operations.seconds(operation, 1).unwrap() > 0.0);
            }
            assert!(operations.key_bytes().unwrap() > 0);
            assert!(operations.log_noise().unwrap() > 10.0);
        }
    }
}
