//! Multi-key BFV: exact values, within the noise that is promised.

use pronghorn_he::{
    bfv::{Noise as BfvNoise, Parameters, Switching},
    multikey::{
        Decryptor, Limits, Rule,
        bfv::{Ciphertext, Setting},
    },
};

use super::*;

const N: usize = 1024;
const T: u64 = 40_961;

struct Scene<W: Word> {
    setting: Setting<W>,
    secrets: Vec<SecretKey<W>>,
    keys: KeyRing<W>,
    random: Stream,
}

impl<W: Word> Scene<W> {
    fn new(bits: &[u32], special: &[u32], count: usize) -> Self {
        let primes = rns::primes(N, &[bits, special].concat()).expect("primes");
        let (chain, special) = primes.split_at(bits.len());
        let switching = Switching::SpecialPrimes(special);
        let parameters = Parameters::insecure_paper_parameters(N, chain, switching, T);
        let setting = Setting::new(&parameters.expect("a chain"), [5; 32]).expect("primes");
        let seed = |i: usize| Seed::from_bytes([i as u8 + 1; 32]);
        let secrets: Vec<_> = (0..count)
            .map(|i| SecretKey::generate(setting.common(), &seed(i)))
            .collect();
        let mut keys = KeyRing::new(setting.common());
        let choice = Choice {
            steps: &[3],
            conjugation: true,
            linear: false,
            without_pairs: false,
        };
        for secret in &secrets {
            keys.insert(secret.public_keys(choice).expect("randomness"))
                .expect("one reference");
        }
        Self {
            setting,
            secrets,
            keys,
            random: Prg::new(&seed(200), "pronghorn test multi-key").stream(1),
        }
    }

    /// The sum of a fresh ciphertext of each party.
    fn under_all(&mut self, salt: i64) -> (Ciphertext<W>, Vec<i64>) {
        let mut values = vec![0; N];
        let mut all: Option<Ciphertext<W>> = None;
        for (i, secret) in self.secrets.iter().enumerate() {
            let own: Vec<i32> = (0..N as i64)
                .map(|j| ((j * j * 7 + j * salt + i as i64 * 311) % T as i64 - 20_000) as i32)
                .collect();
            let plain = self.setting.parameters().encode(&own).expect("they fit");
            let keys = self.keys.get(secret.party()).expect("keys");
            let fresh = self.setting.encrypt(keys, &plain, &mut self.random);
            let fresh = fresh.expect("one parameter set");
            all = Some(match all {
                Some(all) => all.add(&fresh).expect("one reference"),
                None => fresh,
            });
            values
                .iter_mut()
                .zip(&own)
                .for_each(|(v, &o)| *v += i64::from(o));
        }
        (all.expect("a party"), values)
    }

    fn check(&self, x: &Ciphertext<W>, expected: &[i64], noise: BfvNoise, what: &str) {
        let secrets: Vec<_> = self.secrets.iter().collect();
        let plain = x.decrypt_with_all(&secrets).expect("all secrets");
        let found = self
            .setting
            .parameters()
            .decode(&plain)
            .expect("parameters");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(
                i64::from(*found).rem_euclid(T as i64),
                expected.rem_euclid(T as i64),
                "{what}"
            );
        }
        let noises = x.noise_with_all(&secrets).expect("all secrets");
        let largest = noises.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        let bound = noise.bound();
        assert!(largest <= bound, "{what}: {largest:e} {bound:e}");
        assert!(largest >= bound / 100.0, "{what}: {largest:e} {bound:e}");
    }
}

fn every_operation<W: Word>(bits: &[u32], special: &[u32]) {
    for count in COUNTS {
        let mut scene = Scene::<W>::new(bits, special, count);
        let (x, x_values) = scene.under_all(3);
        let (y, y_values) = scene.under_all(5);
        let fresh = scene.setting.fresh_noise().sum(count);
        scene.check(&x, &x_values, fresh, "sum");
        let noise = scene.setting.product_noise(fresh, fresh, count);
        let product = x.multiply(&y, &scene.keys).expect("all keys");
        let values: Vec<_> = x_values.iter().zip(&y_values).map(|(x, y)| x * y).collect();
        scene.check(
            &product,
            &values,
            noise,
            &format!("product, {count} parties"),
        );
        let square = x.multiply(&x, &scene.keys).expect("all keys");
        let squares: Vec<_> = x_values.iter().map(|x| x * x).collect();
        // The same noise twice: amplitudes add.
        let doubled = BfvNoise {
            variance: 2.0 * noise.variance,
        };
        scene.check(
            &square,
            &squares,
            doubled,
            &format!("square, {count} parties"),
        );
        let deep = product.multiply(&y, &scene.keys).expect("all keys");
        let noise = scene.setting.product_noise(noise, fresh, count);
        let values: Vec<_> = values
            .iter()
            .zip(&y_values)
            .map(|(x, y)| x % T as i64 * y)
            .collect();
        scene.check(
            &deep,
            &values,
            noise,
            &format!("depth two, {count} parties"),
        );
        let noise = fresh + scene.setting.rotation_noise(count);
        let turned = &x.rotate_many(&[3], &scene.keys).expect("all keys")[0];
        let row = N / 2;
        let at = |j: usize| x_values[j / row * row + (j % row + 3) % row];
        let values: Vec<_> = (0..N).map(at).collect();
        scene.check(turned, &values, noise, "rotation");
        let swapped = x.swap_rows(&scene.keys).expect("all keys");
        let values = [&x_values[row..], &x_values[..row]].concat();
        scene.check(&swapped, &values, noise, "swap");
        let small: Vec<i32> = (0..N as i32).map(|j| j % 7 - 3).collect();
        let plain = scene.setting.parameters().multiplier(&small).expect("fits");
        let scaled = x.mul_plain(&plain).expect("parameters");
        let values: Vec<_> = x_values
            .iter()
            .zip(&small)
            .map(|(x, &y)| x * i64::from(y))
            .collect();
        scene.check(&scaled, &values, fresh.times(plain.norm()), "plain");
    }
}

#[test]
fn operations_keep_their_noise_in_words_of_32_bits() {
    every_operation::<u32>(&[30, 30, 30, 29, 29], &[30, 30]);
}

#[test]
fn operations_keep_their_noise_in_words_of_64_bits() {
    every_operation::<u64>(&[50, 49, 48], &[50]);
}

#[test]
fn exact_results_come_out_of_the_flood() {
    for count in COUNTS {
        let mut scene = Scene::<u64>::new(&[50, 50, 50, 50], &[50, 50], count);
        let (x, x_values) = scene.under_all(3);
        let (y, y_values) = scene.under_all(5);
        let product = x.multiply(&y, &scene.keys).expect("all keys");
        let fresh = scene.setting.fresh_noise().sum(count);
        let noise = scene.setting.product_noise(fresh, fresh, count);
        let limits = Limits {
            limbs: 4,
            parties: count,
            log_message: 0.0,
            log_noise: noise.bound().log2(),
            log_power: None,
            results: 1 << 10,
        };
        let rule = Rule::new(scene.setting.common(), limits).expect("room");
        assert!(rule.log_error() < scene.setting.parameters().log_room());
        let mut parties: Vec<_> = (0..count)
            .map(|i| {
                let seed = Seed::from_bytes([i as u8 + 1; 32]);
                let secret = SecretKey::generate(scene.setting.common(), &seed);
                Decryptor::new(secret, &rule).expect("one reference")
            })
            .collect();
        let contributions: Vec<_> = (parties.iter_mut())
            .map(|party| party.contribute(product.extended(), &scene.keys))
            .collect::<Result<_, _>>()
            .expect("allowed");
        let partials: Vec<_> = (parties.iter_mut())
            .map(|party| party.decrypt(product.extended(), &contributions, |_| Ok(())))
            .collect::<Result<_, _>>()
            .expect("allowed");
        let plain = product.merge(&contributions, &partials).expect("all there");
        let found = scene
            .setting
            .parameters()
            .decode(&plain)
            .expect("parameters");
        for ((found, x), y) in found.iter().zip(&x_values).zip(&y_values) {
            assert_eq!(
                i64::from(*found).rem_euclid(T as i64),
                (x * y).rem_euclid(T as i64)
            );
        }
    }
}
