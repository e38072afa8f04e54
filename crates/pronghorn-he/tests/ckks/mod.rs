//! CKKS against plain arithmetic: every operation within the noise it promises, in both words.

mod encoding;
mod flood;
mod operations;
mod refusals;

use pronghorn_he::{
    ckks::{
        Ciphertext, CkksError, Encryptor, EvaluationKeys, Noise, ParameterError, Parameters,
        PublicKey, SecretKey, Slots,
    },
    rns::RingError,
};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed, Stream},
    rns,
};

/// A key with its encryptor, from fixed seeds.
struct Party<W: Word> {
    parameters: Parameters<W>,
    key: SecretKey<W>,
    encryptor: Encryptor<W>,
    random: Stream,
}

impl<W: Word> Party<W> {
    fn new(n: usize, bits: &[u32]) -> Self {
        let primes = rns::primes(n, bits).expect("there are such primes");
        let parameters =
            Parameters::insecure_paper_parameters(n, &primes, &[]).expect("a chain of primes");
        Self::of(parameters)
    }

    fn with_special(n: usize, bits: &[u32], special: &[u32]) -> Self {
        let primes = rns::primes(n, &[bits, special].concat()).expect("there are such primes");
        let (primes, special) = primes.split_at(bits.len());
        Self::of(
            Parameters::insecure_paper_parameters(n, primes, special).expect("a chain of primes"),
        )
    }

    fn of(parameters: Parameters<W>) -> Self {
        let key = SecretKey::generate(&parameters, &Seed::from_bytes([1; 32]));
        let encryptor = key.encryptor_from_seed(&Seed::from_bytes([2; 32]));
        let random = Prg::new(&Seed::from_bytes([3; 32]), "pronghorn test ckks").stream(0);
        Self {
            parameters,
            key,
            encryptor,
            random,
        }
    }

    fn encrypt(&mut self, slots: &Slots, scale: f64, limbs: usize) -> Ciphertext<W> {
        let message = self
            .parameters
            .message(&slots.re, &slots.im, scale, limbs)
            .expect("it fits");
        self.encryptor
            .encrypt(&message)
            .expect("the parameters are one")
            .expand()
    }

    fn decrypt(&self, ciphertext: &Ciphertext<W>) -> Slots {
        let plaintext = self
            .key
            .decrypt(ciphertext)
            .expect("the parameters are one");
        self.parameters
            .decode(&plaintext)
            .expect("the parameters are one")
    }

    /// The largest error at a slot and in a coefficient: against their bounds, and not far below
    /// them.
    fn check(&self, what: &str, ciphertext: &Ciphertext<W>, expected: &Slots, noise: Noise) {
        self.check_within(what, ciphertext, expected, noise, 64.0);
    }

    fn check_within(
        &self,
        what: &str,
        ciphertext: &Ciphertext<W>,
        expected: &Slots,
        noise: Noise,
        slack: f64,
    ) {
        let (scale, n) = (ciphertext.scale(), self.parameters.n());
        let at_slots = distance(&self.decrypt(ciphertext), expected) * scale;
        within(
            &format!("{what}, slots"),
            at_slots,
            noise.slot_bound(),
            slack,
        );
        let plain = self
            .parameters
            .encode(&expected.re, &expected.im, scale, ciphertext.limbs())
            .expect("it fits");
        let found = self
            .key
            .decrypt(ciphertext)
            .expect("the parameters are one")
            .to_coefficients();
        let errors = found
            .iter()
            .zip(plain.to_coefficients())
            .map(|(found, expected)| (found - expected).abs());
        within(
            &format!("{what}, coefficients"),
            errors.fold(0.0, f64::max),
            noise.coefficient_bound(n),
            slack / 4.0,
        );
    }
}

fn within(what: &str, noise: f64, bound: f64, slack: f64) {
    let ratio = bound / noise;
    assert!(
        (1.0..=slack).contains(&ratio),
        "{what}: noise 2^{:.1}, bound 2^{:.1}",
        noise.log2(),
        bound.log2()
    );
}

/// `count` complex numbers in the square of half-width `size`.
fn numbers(count: usize, size: f64, seed: u8) -> Slots {
    let mut stream = Prg::new(&Seed::from_bytes([seed; 32]), "pronghorn test numbers").stream(0);
    let mut next = || {
        let mut bytes = [0; 8];
        stream.fill(&mut bytes);
        (u64::from_le_bytes(bytes) as f64 / 2f64.powi(63) - 1.0) * size
    };
    let (re, im) = (0..count).map(|_| (next(), next())).unzip();
    Slots { re, im }
}

fn zip(x: &Slots, y: &Slots, f: impl Fn((f64, f64), (f64, f64)) -> (f64, f64)) -> Slots {
    let x = x.re.iter().copied().zip(x.im.iter().copied());
    let y = y.re.iter().copied().zip(y.im.iter().copied());
    let (re, im) = x.zip(y).map(|(x, y)| f(x, y)).unzip();
    Slots { re, im }
}

fn product(x: &Slots, y: &Slots) -> Slots {
    zip(x, y, |x, y| (x.0 * y.0 - x.1 * y.1, x.0 * y.1 + x.1 * y.0))
}

fn sum(x: &Slots, y: &Slots) -> Slots {
    zip(x, y, |x, y| (x.0 + y.0, x.1 + y.1))
}

fn largest(x: &Slots) -> f64 {
    x.re.iter()
        .zip(&x.im)
        .map(|(re, im)| re.hypot(*im))
        .fold(0.0, f64::max)
}

fn distance(x: &Slots, y: &Slots) -> f64 {
    largest(&zip(x, y, |x, y| (x.0 - y.0, x.1 - y.1)))
}
