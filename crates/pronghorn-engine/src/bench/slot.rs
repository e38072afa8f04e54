//! Linear layers on slots, both parties in one process, a clock for each step; and the operations of their encryption.

use std::{sync::Arc, time::Duration};

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::bfv::{
    BfvError, Ciphertext, EvaluationKeys, Hider, Parameters, PublicKey, SecretKey, SeededCiphertext,
};
use pronghorn_ring::random::{Prg, Seed};

use super::parties::clocked;
use crate::slot::{
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
}

/// Computes a layer whose values are below `2^(bits - 1)`, with made-up weights and values, and checks the result.
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
