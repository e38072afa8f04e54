//! Multi-key encryption against plain arithmetic, for 1, 2, 4 and 8 parties, in both words.

mod bfv;
mod decryption;
mod operations;
mod refusals;
mod wire;

use pronghorn_he::{
    ckks::{Noise, Parameters, Slots},
    multikey::{Choice, Ciphertext, Common, KeyRing, SecretKey},
};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed, Stream},
    rns,
};

/// The numbers of parties of all tests.
const COUNTS: [usize; 4] = [1, 2, 4, 8];

/// Parties with keys from fixed seeds.
struct Setup<W: Word> {
    common: Common<W>,
    secrets: Vec<SecretKey<W>>,
    keys: KeyRing<W>,
    random: Stream,
}

impl<W: Word> Setup<W> {
    fn new(n: usize, bits: &[u32], special: &[u32], parties: usize) -> Self {
        let primes = rns::primes(n, &[bits, special].concat()).expect("there are such primes");
        let (primes, special) = primes.split_at(bits.len());
        let ring = Parameters::insecure_paper_parameters(n, primes, special).expect("a chain");
        let common = Common::new(&ring, [7; 32]).expect("special primes");
        let seed = |i: usize| Seed::from_bytes([i as u8 + 1; 32]);
        let secret = |i: usize| SecretKey::generate(&common, &seed(i));
        let secrets: Vec<_> = (0..parties).map(secret).collect();
        let mut keys = KeyRing::new(&common);
        let choice = Choice {
            steps: &[1, -3],
            conjugation: true,
            linear: true,
            without_pairs: false,
        };
        for (i, secret) in secrets.iter().enumerate() {
            let public = secret.public_keys_from_seed(choice, &seed(100 + i));
            keys.insert(public.expect("parameters"))
                .expect("one reference");
        }
        let random = Prg::new(&Seed::from_bytes([3; 32]), "pronghorn test multi-key").stream(0);
        Self {
            common,
            secrets,
            keys,
            random,
        }
    }

    fn values(&self, of: usize) -> Slots {
        let slots = self.common.ring().slots();
        let value = |j: usize, f: f64| ((j + 1) as f64 * (of as f64 + 1.0) * f).sin();
        Slots {
            re: (0..slots).map(|j| value(j, 0.618)).collect(),
            im: (0..slots).map(|j| value(j, 0.377)).collect(),
        }
    }

    fn encrypt(&mut self, party: usize, slots: &Slots, scale: f64, limbs: usize) -> Ciphertext<W> {
        let ring = self.common.ring();
        let message = ring
            .message(&slots.re, &slots.im, scale, limbs)
            .expect("values fit");
        let keys = self.keys.get(self.secrets[party].party()).expect("keys");
        keys.encrypt(&message, &mut self.random)
            .expect("one parameter set")
    }

    fn decrypt(&self, ciphertext: &Ciphertext<W>) -> Slots {
        let secrets: Vec<_> = self.secrets.iter().collect();
        let plain = ciphertext.decrypt_with_all(&secrets).expect("all secrets");
        self.common
            .ring()
            .decode(&plain)
            .expect("one parameter set")
    }

    /// The largest error of a slot, in units of the ciphertext's integers, against a bound; and no
    /// less than a hundredth of it, so that the bound says something.
    fn check(&self, ciphertext: &Ciphertext<W>, expected: &Slots, noise: Noise, what: &str) {
        let found = self.decrypt(ciphertext);
        let error = |x: &[f64], y: &[f64]| {
            let pairs = x.iter().zip(y);
            pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
        };
        let error = error(&found.re, &expected.re).max(error(&found.im, &expected.im));
        let (error, bound) = (error * ciphertext.scale(), noise.slot_bound());
        assert!(error <= bound, "{what}: error {error:e}, bound {bound:e}");
        assert!(
            error >= bound / 1000.0,
            "{what}: error {error:e}, bound {bound:e} says nothing"
        );
    }
}

/// Slot by slot.
fn product(x: &Slots, y: &Slots) -> Slots {
    let pairs = || x.re.iter().zip(&x.im).zip(y.re.iter().zip(&y.im));
    Slots {
        re: pairs().map(|((a, b), (c, d))| a * c - b * d).collect(),
        im: pairs().map(|((a, b), (c, d))| a * d + b * c).collect(),
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a Slots>) -> Slots {
    all.cloned()
        .reduce(|mut sum, x| {
            sum.re.iter_mut().zip(&x.re).for_each(|(s, x)| *s += x);
            sum.im.iter_mut().zip(&x.im).for_each(|(s, x)| *s += x);
            sum
        })
        .unwrap_or_default()
}

fn rotated(x: &Slots, steps: i64) -> Slots {
    let turn = |x: &[f64]| -> Vec<f64> {
        let at = |j: usize| x[(j as i64 + steps).rem_euclid(x.len() as i64) as usize];
        (0..x.len()).map(at).collect()
    };
    Slots {
        re: turn(&x.re),
        im: turn(&x.im),
    }
}
