//! BFV: exact values through every operation, noise within its bounds, and answers that hide the
//! server's weights.

mod answers;
mod noise;
mod operations;
mod refusals;
mod workload;

use pronghorn_he::bfv::{
    Answer, BfvError, Ciphertext, Encryptor, EvaluationKeys, Factor, Hider, Multiplier, Noise,
    ParameterError, Parameters, Products, PublicKey, Rotation, SecretKey, Switching, Workload,
    rotated_products,
};
use pronghorn_ring::{
    Word,
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    rns,
    security::SecurityLevel,
};
use proptest::prelude::*;

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

/// Small parameters that protect nothing.
fn toy<W: Word>(
    n: usize,
    bits: &[u32],
    special: &[u32],
    digits: u32,
    t_bits: u32,
) -> Parameters<W> {
    let t = largest_ntt_prime(t_bits, n).unwrap();
    let primes = rns::primes(n, &[bits, special].concat()).unwrap();
    let (primes, special) = primes.split_at(bits.len());
    let switching = match (special, digits) {
        ([], 0) => Switching::None,
        ([], bits) => Switching::Digits(bits),
        (special, _) => Switching::SpecialPrimes(special),
    };
    Parameters::insecure_paper_parameters(n, primes, switching, t).unwrap()
}

struct Setup<W: Word> {
    parameters: Parameters<W>,
    key: SecretKey<W>,
    encryptor: Encryptor<W>,
    keys: EvaluationKeys<W>,
}

const STEPS: [i64; 5] = [1, 3, -2, 8, 9];

impl<W: Word> Setup<W> {
    fn new(parameters: Parameters<W>) -> Self {
        let key = SecretKey::generate(&parameters, &seed(1));
        Self {
            encryptor: key.encryptor_from_seed(&seed(2)),
            keys: EvaluationKeys::generate_from_seed(&key, &STEPS, true, &seed(3)).unwrap(),
            parameters,
            key,
        }
    }

    fn encrypt(&mut self, values: &[i32]) -> Ciphertext<W> {
        let plain = self.parameters.encode(values).unwrap();
        self.encryptor.encrypt(&plain).unwrap().expand()
    }

    fn decrypt(&self, ciphertext: &Ciphertext<W>) -> Vec<i32> {
        let plain = self.key.decrypt(ciphertext).unwrap();
        self.parameters.decode(&plain).unwrap()
    }

    /// Made-up values modulo `t`, centred.
    fn values(&self, index: u64) -> Vec<i32> {
        values(&self.parameters, index)
    }

    fn multiplier(&self, index: u64) -> Multiplier<W> {
        self.parameters.multiplier(&self.values(index)).unwrap()
    }

    fn centre(&self, value: i64) -> i32 {
        centre(&self.parameters, value)
    }

    fn with(&self, x: &[i32], y: &[i32], f: impl Fn(i64, i64) -> i64) -> Vec<i32> {
        let pairs = x.iter().zip(y);
        pairs
            .map(|(&x, &y)| self.centre(f(x.into(), y.into())))
            .collect()
    }

    /// `log2` of the measured noise, which must be within its bound, and the bound within 6 bits of
    /// it.
    fn check_noise(&self, what: &str, ciphertext: &Ciphertext<W>, noise: Noise) {
        let (found, bound) = (
            self.key.log_noise(ciphertext).unwrap(),
            noise.bound().log2(),
        );
        assert!(
            found <= bound,
            "{what}: measured 2^{found}, bound 2^{bound}"
        );
        assert!(
            bound <= found + 6.0,
            "{what}: measured 2^{found}, bound 2^{bound}"
        );
        // The sum of squares, which formats are made for, with six standard errors and more.
        let noises = self.key.noise(ciphertext).unwrap();
        let power = noises.iter().map(|noise| noise * noise).sum::<f64>() / noises.len() as f64;
        assert!(
            power <= 1.25 * noise.variance,
            "{what}: power {power:e}, variance {:e}",
            noise.variance
        );
        let budget = self.key.budget(ciphertext).unwrap();
        assert!((budget + found - self.parameters.log_room()).abs() < 1e-9);
    }
}

fn values<W: Word>(parameters: &Parameters<W>, index: u64) -> Vec<i32> {
    let mut bytes = vec![0; 8 * parameters.n()];
    Prg::new(&seed(9), "pronghorn test values")
        .stream(index)
        .fill(&mut bytes);
    let draw = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap()) >> 1;
    bytes
        .chunks_exact(8)
        .map(|bytes| centre(parameters, draw(bytes) as i64))
        .collect()
}

fn centre<W: Word>(parameters: &Parameters<W>, value: i64) -> i32 {
    let t = parameters.t() as i64;
    let residue = value.rem_euclid(t);
    (if residue > t / 2 {
        residue - t
    } else {
        residue
    }) as i32
}

/// Both rows to the left.
fn left(values: &[i32], steps: i64) -> Vec<i32> {
    let row = values.len() / 2;
    let steps = steps.rem_euclid(row as i64) as usize;
    let turn = |row: &[i32]| [&row[steps..], &row[..steps]].concat();
    values.chunks_exact(row).flat_map(turn).collect()
}

fn swapped(values: &[i32]) -> Vec<i32> {
    let (first, second) = values.split_at(values.len() / 2);
    [second, first].concat()
}
