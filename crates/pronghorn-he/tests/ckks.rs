//! CKKS against plain arithmetic: every operation within the noise it promises, in both words.

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

    /// The largest error at a slot and in a coefficient: against their bounds, and not far below them.
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

fn arithmetic<W: Word>(n: usize, bits: &[u32], log_scale: i32) {
    let mut party = Party::<W>::new(n, bits);
    let (limbs, scale) = (bits.len(), 2f64.powi(log_scale));
    let (x, y) = (numbers(n / 2, 1.0, 1), numbers(n / 2, 1.0, 2));
    let (most_x, most_y) = (largest(&x) * scale, largest(&y) * scale);
    let fresh = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    let (a, b) = (
        party.encrypt(&x, scale, limbs),
        party.encrypt(&y, scale, limbs),
    );
    party.check("encrypt", &a, &x, fresh);
    party.check("add", &a.add(&b).unwrap(), &sum(&x, &y), fresh + fresh);
    party.check(
        "sub",
        &a.sub(&b).unwrap(),
        &zip(&x, &y, |x, y| (x.0 - y.0, x.1 - y.1)),
        fresh + fresh,
    );
    party.check("neg", &a.neg(), &zip(&x, &x, |x, _| (-x.0, -x.1)), fresh);
    party.check(
        "mul_integer",
        &a.mul_integer(-7),
        &zip(&x, &x, |x, _| (-7.0 * x.0, -7.0 * x.1)),
        fresh.times(7.0),
    );
    let plain = party.parameters.encode(&y.re, &y.im, scale, limbs).unwrap();
    party.check(
        "add_plain",
        &a.add_plain(&plain).unwrap(),
        &sum(&x, &y),
        fresh + Noise::of_encoding(n),
    );
    party.check(
        "mul_plain",
        &a.mul_plain(&plain).unwrap(),
        &product(&x, &y),
        fresh.times_plain(n, most_x, most_y),
    );
    let half = party.parameters.scalar(0.5, scale, limbs).unwrap();
    party.check(
        "mul_scalar",
        &a.mul_scalar(&half).unwrap(),
        &zip(&x, &x, |x, _| (0.5 * x.0, 0.5 * x.1)),
        fresh.times(0.5 * scale),
    );
    party.check(
        "add_scalar",
        &a.add_scalar(&half).unwrap(),
        &zip(&x, &x, |x, _| (0.5 + x.0, x.1)),
        fresh,
    );
    let multiplied = fresh.multiply(fresh, most_x, most_y);
    let squared = fresh.square(most_x);
    party.check(
        "multiply",
        &a.multiply(&b).unwrap(),
        &product(&x, &y),
        multiplied,
    );
    party.check("square", &a.square().unwrap(), &product(&x, &x), squared);
    let divisor = |dropped: usize| -> f64 {
        party
            .parameters
            .basis()
            .primes()
            .skip(limbs - dropped)
            .map(|q| q.value() as f64)
            .product()
    };
    for dropped in 1..limbs {
        let expected = squared.rescale(n, 3, divisor(dropped));
        let Ok(rescaled) = a.square().unwrap().rescale(dropped) else {
            panic!("limbs are left")
        };
        if rescaled.scale() > 16.0 * expected.slot_bound() {
            party.check(
                &format!("rescale by {dropped}"),
                &rescaled,
                &product(&x, &x),
                expected,
            );
        }
    }
    let public = PublicKey::generate_from_seed(&party.key, &Seed::from_bytes([9; 32]));
    let message = party
        .parameters
        .message(&x.re, &x.im, scale, limbs)
        .unwrap();
    let c = public.encrypt(&message, &mut party.random).unwrap();
    party.check(
        "public",
        &c,
        &x,
        Noise::of_public_encryption(n) + Noise::of_encoding(n),
    );
}

#[test]
fn arithmetic_is_within_its_noise() {
    arithmetic::<u32>(64, &[30, 25, 25], 25);
    arithmetic::<u32>(4096, &[31, 31, 25], 30);
    arithmetic::<u64>(256, &[50, 30, 30], 30);
    arithmetic::<u64>(8192, &[60, 50, 40], 40);
}

fn switching<W: Word>(n: usize, bits: &[u32], special: &[u32], log_scale: i32) {
    let mut party = Party::<W>::with_special(n, bits, special);
    let parameters = party.parameters.clone();
    let seed = Seed::from_bytes([5; 32]);
    let keys = EvaluationKeys::generate_from_seed(&party.key, 4, &[1, -3, 7], true, &seed).unwrap();
    let scale = 2f64.powi(log_scale);
    let (x, y) = (numbers(n / 2, 1.0, 1), numbers(n / 2, 1.0, 2));
    let most = largest(&x).max(largest(&y)) * scale;
    let fresh = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    for limbs in (2..=bits.len()).rev() {
        let (a, b) = (
            party.encrypt(&x, scale, limbs),
            party.encrypt(&y, scale, limbs),
        );
        let switch = parameters.key_switch_noise(limbs, 1);
        for steps in [1, -3, 7, 0] {
            let turned = |values: &[f64]| -> Vec<f64> {
                (0..n / 2)
                    .map(|i| values[(i as i64 + steps).rem_euclid(n as i64 / 2) as usize])
                    .collect()
            };
            let expected = Slots {
                re: turned(&x.re),
                im: turned(&x.im),
            };
            let noise = if steps == 0 { fresh } else { fresh + switch };
            party.check(
                &format!("rotate by {steps}"),
                &a.rotate(steps, &keys).unwrap(),
                &expected,
                noise,
            );
        }
        let together = a.rotate_many(&[7, 0, 1], &keys).unwrap();
        for (rotated, steps) in together.iter().zip([7, 0, 1]) {
            assert_eq!(rotated.data(), a.rotate(steps, &keys).unwrap().data());
        }
        let conjugate = zip(&x, &x, |x, _| (x.0, -x.1));
        party.check(
            "conjugate",
            &a.conjugate(&keys).unwrap(),
            &conjugate,
            fresh + switch,
        );
        if parameters.log_modulus(limbs) < f64::from(2 * log_scale + 3) {
            continue;
        }
        let expected = product(&x, &y);
        let multiplied = fresh.multiply(fresh, most, most);
        let c = a.multiply(&b).unwrap();
        party.check(
            "relinearise",
            &c.relinearise(&keys).unwrap(),
            &expected,
            multiplied + switch,
        );
        let divisor = parameters.basis().prime(limbs - 1).value() as f64;
        let rescaled = (multiplied + switch).rescale(n, 2, divisor);
        let both = c.relinearise_and_rescale(&keys, 1).unwrap();
        let after = c.relinearise(&keys).unwrap().rescale(1).unwrap();
        assert_eq!((both.scale(), both.limbs()), (after.scale(), after.limbs()));
        party.check("relinearise, rescale", &after, &expected, rescaled);
        party.check("relinearise and rescale", &both, &expected, rescaled);
        // Three powers of the secret at once: from five polynomials, at a scale that fits.
        let small = 2f64.powi(log_scale / 2);
        let (a, b) = (
            party.encrypt(&x, small, limbs),
            party.encrypt(&y, small, limbs),
        );
        let most = largest(&x).max(largest(&y)) * small;
        let multiplied = fresh.multiply(fresh, most, most);
        let c = a.multiply(&b).unwrap().square().unwrap();
        assert_eq!(c.polys(), 5);
        let noise = multiplied.square(largest(&expected) * small * small)
            + parameters.key_switch_noise(limbs, 3);
        party.check(
            "relinearise three",
            &c.relinearise(&keys).unwrap(),
            &product(&expected, &expected),
            noise,
        );
    }
}

#[test]
fn key_switching_is_within_its_noise() {
    switching::<u32>(64, &[30, 25, 25], &[30], 25);
    switching::<u32>(256, &[30, 25, 26, 25, 20], &[31, 31], 25);
    switching::<u64>(256, &[50, 40, 40, 40, 40, 40, 40], &[45, 45, 45], 40);
    switching::<u64>(128, &[60, 60], &[60], 50);
}

/// Squares without relinearisation: 3, 5 and 9 polynomials.
fn growth<W: Word>(n: usize, bits: &[u32], log_scale: i32) {
    let mut party = Party::<W>::new(n, bits);
    let mut expected = numbers(n / 2, 1.0, 1);
    let mut x = party.encrypt(&expected, 2f64.powi(log_scale), bits.len());
    let mut noise = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    for polys in [3, 5, 9] {
        let most = largest(&expected) * x.scale();
        let divisor = party.parameters.basis().prime(x.limbs() - 1).value() as f64;
        x = x.square().unwrap().rescale(1).unwrap();
        noise = noise.square(most).rescale(n, polys, divisor);
        expected = product(&expected, &expected);
        assert_eq!(x.polys(), polys);
        // The worst slot of the worst key weighs with its eighth power in the end.
        let slack = if polys == 9 { 512.0 } else { 64.0 };
        party.check_within(&format!("{polys} polynomials"), &x, &expected, noise, slack);
    }
    assert!(matches!(
        x.square(),
        Err(CkksError::Ring(RingError::Polys { polys: 17 }))
    ));
    let half = x.drop_limbs(x.limbs() - 1);
    if let Ok(half) = half {
        party.check_within("fewer limbs", &half, &expected, noise, 512.0);
    }
}

#[test]
fn products_grow_to_nine_polynomials() {
    growth::<u64>(64, &[60, 50, 50, 50, 50], 50);
    growth::<u64>(1024, &[60, 55, 55, 55, 55], 55);
    growth::<u32>(64, &[31, 31, 28, 28, 28], 28);
}

/// Five squarings, each relinearised and rescaled.
fn depth<W: Word>(n: usize, bits: &[u32], special: &[u32], per_level: usize, log_scale: i32) {
    let mut party = Party::<W>::with_special(n, bits, special);
    let parameters = party.parameters.clone();
    let keys =
        EvaluationKeys::generate_from_seed(&party.key, 2, &[], false, &Seed::from_bytes([5; 32]))
            .unwrap();
    let mut expected = numbers(n / 2, 0.7, 1);
    let mut x = party.encrypt(&expected, 2f64.powi(log_scale), bits.len());
    let mut noise = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    for _ in 0..5 {
        let most = largest(&expected) * x.scale();
        let limbs = x.limbs();
        let primes = parameters
            .basis()
            .primes()
            .take(limbs)
            .skip(limbs - per_level);
        let divisor = primes.map(|q| q.value() as f64).product();
        x = x
            .square()
            .unwrap()
            .relinearise_and_rescale(&keys, per_level)
            .unwrap();
        let relinearised = noise.square(most) + parameters.key_switch_noise(limbs, 1);
        noise = relinearised.rescale(n, 2, divisor);
        expected = product(&expected, &expected);
        within(
            "depth",
            distance(&party.decrypt(&x), &expected) * x.scale(),
            noise.slot_bound(),
            256.0,
        );
    }
    assert_eq!(x.limbs(), bits.len() - 5 * per_level);
}

#[test]
fn five_squarings_stay_within_their_noise() {
    depth::<u64>(1024, &[60, 45, 45, 45, 45, 45], &[60], 1, 45);
    depth::<u64>(8192, &[55, 40, 40, 40, 40, 40], &[45, 45, 45], 1, 40);
    depth::<u32>(
        1024,
        &[30, 30, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22],
        &[31, 31],
        2,
        44,
    );
}

#[test]
fn floods_hide_the_noise_and_keep_the_values() {
    let n = 1024;
    let mut party = Party::<u32>::new(n, &[30; 6]);
    let public = PublicKey::generate_from_seed(&party.key, &Seed::from_bytes([9; 32]));
    let x = numbers(n / 2, 1.0, 1);
    let (scale, limbs) = (2f64.powi(40), 6);
    let fresh = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    let squared = fresh.square(largest(&x) * scale);
    let fourth = squared.square(largest(&product(&x, &x)) * scale * scale);
    let a = party.encrypt(&x, scale, limbs);
    let square = a.square().unwrap();
    for (ciphertext, expected, noise) in [
        (a.clone(), x.clone(), fresh),
        (square.clone(), product(&x, &x), squared),
        (
            square.square().unwrap(),
            product(&product(&x, &x), &product(&x, &x)),
            fourth,
        ),
    ] {
        let polys = ciphertext.polys();
        let log_bound = noise.flood_bound(n, polys, 20);
        let mut flooded = ciphertext.clone();
        public
            .flood(&mut flooded, log_bound, &mut party.random)
            .unwrap();
        party.check(
            "flood",
            &flooded,
            &expected,
            noise + Noise::of_flood(n, polys, log_bound),
        );
        for i in 0..polys {
            let same = ciphertext
                .poly(i)
                .iter()
                .zip(flooded.poly(i))
                .filter(|(x, y)| x == y)
                .count();
            assert!(same < 10, "polynomial {i} is masked");
        }
        // The flood itself fills its range evenly.
        let before = party.key.decrypt(&ciphertext).unwrap().to_coefficients();
        let after = party.key.decrypt(&flooded).unwrap().to_coefficients();
        let errors = before
            .iter()
            .zip(&after)
            .map(|(x, y)| (x - y) / 2f64.powi(log_bound as i32));
        let errors: Vec<f64> = errors.collect();
        assert!(errors.iter().all(|error| error.abs() < 1.001));
        let variance = errors.iter().map(|error| error * error).sum::<f64>() / n as f64;
        assert!((variance - 1.0 / 3.0).abs() < 0.06, "{variance}");
    }
    let mut full = a.clone();
    let refused = public.flood(&mut full, 179, &mut party.random);
    assert!(matches!(
        refused,
        Err(CkksError::Flood { log_bound: 179, .. })
    ));
    assert_eq!(full.data(), a.data());
    // A key of fewer limbs masks ciphertexts of as many, and no others.
    let short = public.b()[..4 * n].to_vec();
    let short = PublicKey::from_parts(&party.parameters, *public.seed(), short);
    let refused = short.flood(&mut full, 80, &mut party.random);
    assert!(matches!(
        refused,
        Err(CkksError::Ring(RingError::KeyLimbs { limbs: 6, limit: 4 }))
    ));
    assert_eq!(full.data(), a.data());
    let message = party.parameters.message(&x.re, &x.im, scale, 6).unwrap();
    let refused = short.encrypt(&message, &mut party.random).err();
    assert!(matches!(
        refused,
        Some(CkksError::Ring(RingError::KeyLimbs { .. }))
    ));
    let mut dropped = a.drop_limbs(2).unwrap();
    short.flood(&mut dropped, 20, &mut party.random).unwrap();
    assert!(distance(&party.decrypt(&dropped), &x) < 1e-3);
}

#[test]
fn encodings_are_the_canonical_embedding() {
    let n = 32;
    let party = Party::<u64>::new(n, &[60]);
    let coefficients = |re: &[f64], im: &[f64], scale| {
        party
            .parameters
            .encode(re, im, scale, 1)
            .unwrap()
            .to_coefficients()
    };
    // A real constant is a constant, i is X^(N/2).
    let mut expected = vec![0.0; n];
    expected[0] = 3.0 * 1024.0;
    assert_eq!(coefficients(&[3.0; 16], &[], 1024.0), expected);
    expected.swap(0, n / 2);
    assert_eq!(coefficients(&[], &[3.0; 16], 1024.0), expected);
    // The textbook: m_k = 2 / N sum_j Re(z_j zeta^(-k 5^j)), scaled and rounded.
    let (scale, z) = (2f64.powi(40), numbers(n / 2, 1.0, 7));
    let mut exponents = vec![1usize; n / 2];
    for j in 1..n / 2 {
        exponents[j] = exponents[j - 1] * 5 % (2 * n);
    }
    for (k, found) in coefficients(&z.re, &z.im, scale).into_iter().enumerate() {
        let terms = exponents.iter().enumerate().map(|(j, exponent)| {
            let angle = std::f64::consts::PI * (k * exponent % (2 * n)) as f64 / n as f64;
            z.re[j] * angle.cos() + z.im[j] * angle.sin()
        });
        let expected = 2.0 / n as f64 * terms.sum::<f64>() * scale;
        assert!((found - expected).abs() < 0.51, "{k}: {found} {expected}");
    }
}

#[test]
fn large_scales_keep_the_precision_of_doubles() {
    for log_scale in [70, 100, 117] {
        let mut party = Party::<u64>::new(64, &[60, 60]);
        let x = numbers(32, 1.0, 1);
        let found = {
            let x = party.encrypt(&x, 2f64.powi(log_scale), 2);
            party.decrypt(&x)
        };
        assert!(distance(&found, &x) < 2f64.powi(-47).max(2f64.powi(10 - log_scale)));
        let mut party = Party::<u32>::new(64, &[30, 31, 20, 22, 18]);
        let found = {
            let x = party.encrypt(&x, 2f64.powi(log_scale), 5);
            party.decrypt(&x)
        };
        assert!(distance(&found, &x) < 2f64.powi(-47).max(2f64.powi(10 - log_scale)));
    }
}

#[test]
fn values_of_all_sizes_decode_from_many_limbs() {
    let mut party = Party::<u32>::new(64, &[30; 12]);
    // Up to 2^62 the first limbs are enough, beyond they are not.
    for log_value in [0, 40, 61, 63, 65, 100, 300] {
        let x = numbers(32, 2f64.powi(log_value), 1);
        let encrypted = party.encrypt(&x, 2f64.powi(30), 12);
        let found = party.decrypt(&encrypted);
        let tolerance = 2f64.powi(log_value - 45).max(2f64.powi(-18));
        assert!(distance(&found, &x) < tolerance, "2^{log_value}");
    }
}

#[test]
fn insecure_parameters_do_not_exist() {
    let build = |bits: &[u32], special: usize| {
        let primes = rns::primes(4096, bits).unwrap();
        let (primes, special) = primes.split_at(bits.len() - special);
        Parameters::<u64>::new(4096, primes, special)
    };
    assert!(build(&[36, 35, 35], 1).is_ok());
    assert!(matches!(
        build(&[36, 36, 35], 1).err(),
        Some(ParameterError::Security(_))
    ));
    assert!(matches!(
        build(&[36, 36, 35], 0).err(),
        Some(ParameterError::Security(_))
    ));
    assert!(matches!(
        build(&[40], 1).err(),
        Some(ParameterError::NoPrimes)
    ));
    let primes = rns::primes(4096, &[36, 36, 35]).unwrap();
    let insecure = Parameters::<u64>::insecure_paper_parameters(4096, &primes, &[]).unwrap();
    assert!(insecure.security().is_none());
    assert!(Parameters::<u64>::new(512, &rns::primes(512, &[20]).unwrap(), &[]).is_err());
    assert!(matches!(
        Parameters::<u64>::insecure_paper_parameters(8, &[17], &[]).err(),
        Some(ParameterError::SmallPrime { prime: 17 })
    ));
}

#[test]
fn digits_follow_the_special_primes() {
    let ranges = |bits: &[u32], special: &[u32]| -> Vec<_> {
        let party = Party::<u32>::with_special(64, bits, special);
        party.parameters.digit_ranges().collect()
    };
    assert_eq!(ranges(&[25; 5], &[25]), [0..1, 1..2, 2..3, 3..4, 4..5]);
    assert_eq!(ranges(&[25; 5], &[25, 25]), [0..2, 2..4, 4..5]);
    assert_eq!(ranges(&[30, 25, 25], &[25, 25]), [0..1, 1..3]);
    assert_eq!(ranges(&[31, 20, 20, 20], &[20]), [0..1, 1..2, 2..3, 3..4]);
    assert!(ranges(&[25; 5], &[]).is_empty());
}

#[test]
fn operands_that_do_not_match_are_refused() {
    let mut party = Party::<u32>::new(64, &[30, 25, 25]);
    let mut other = Party::<u32>::new(64, &[30, 25]);
    let (one, scale) = (
        Slots {
            re: vec![1.0],
            im: vec![],
        },
        2f64.powi(25),
    );
    let a = party.encrypt(&one, scale, 3);
    let fewer = party.encrypt(&one, scale, 2);
    let scaled = party.encrypt(&one, scale * 1.01, 3);
    let foreign = other.encrypt(&one, scale, 2);
    assert!(matches!(
        a.add(&fewer),
        Err(CkksError::Ring(RingError::Limbs { left: 3, right: 2 }))
    ));
    assert!(matches!(
        a.multiply(&fewer),
        Err(CkksError::Ring(RingError::Limbs { .. }))
    ));
    assert!(matches!(a.sub(&scaled), Err(CkksError::Scales { .. })));
    assert!(matches!(
        a.add(&foreign),
        Err(CkksError::Ring(RingError::Parameters))
    ));
    assert!(matches!(
        party.key.decrypt(&foreign),
        Err(CkksError::Ring(RingError::Parameters))
    ));
    assert!(matches!(
        a.rescale(3),
        Err(CkksError::Ring(RingError::TooFewLimbs {
            limbs: 3,
            dropped: 3
        }))
    ));
    assert!(matches!(
        a.drop_limbs(7),
        Err(CkksError::Ring(RingError::TooFewLimbs {
            limbs: 3,
            dropped: 7
        }))
    ));
    // 2^75 is beyond half of the modulus of 80 bits by nothing, 2^100 by much.
    assert!(a.square().unwrap().multiply(&a).is_ok());
    assert!(matches!(
        a.square().unwrap().square(),
        Err(CkksError::Scale { .. })
    ));
    assert!(matches!(
        fewer.square().unwrap().drop_limbs(1),
        Err(CkksError::Scale { .. })
    ));
    let parameters = &party.parameters;
    let plain = parameters.encode(&[1.0], &[], scale, 2).unwrap();
    assert!(matches!(
        a.mul_plain(&plain),
        Err(CkksError::Ring(RingError::Limbs { .. }))
    ));
    let scalar = parameters.scalar(1.0, scale, 2).unwrap();
    assert!(matches!(
        a.mul_scalar(&scalar),
        Err(CkksError::Ring(RingError::Limbs { .. }))
    ));
    assert!(
        fewer
            .mul_scalar(&parameters.scalar(1.0, 4.0, 3).unwrap())
            .is_ok()
    );
    assert!(matches!(
        parameters.encode(&[0.0; 33], &[], scale, 3),
        Err(CkksError::Slots {
            values: 33,
            slots: 32
        })
    ));
    assert!(matches!(
        parameters.encode(&[], &[0.0; 33], scale, 3),
        Err(CkksError::Slots { .. })
    ));
    for bad in [f64::NAN, f64::INFINITY, 1e30, -1e30] {
        assert!(matches!(
            parameters.encode(&[bad], &[], scale, 3),
            Err(CkksError::Value { .. })
        ));
        assert!(matches!(
            parameters.scalar(bad, scale, 3),
            Err(CkksError::Value { .. })
        ));
    }
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 2f64.powi(80)] {
        assert!(matches!(
            parameters.encode(&[1.0], &[], bad, 3),
            Err(CkksError::Scale { .. })
        ));
    }
    for limbs in [0, 4] {
        assert!(matches!(
            parameters.encode(&[1.0], &[], scale, limbs),
            Err(CkksError::Ring(RingError::NoSuchLimbs { .. }))
        ));
    }
    let seed = Seed::from_bytes([5; 32]);
    let keys = EvaluationKeys::generate_from_seed(&party.key, 2, &[], false, &seed);
    assert!(matches!(keys.err(), Some(RingError::NoSpecialPrimes)));
}

#[test]
fn missing_keys_are_named() {
    let mut party = Party::<u32>::with_special(64, &[30, 25, 25], &[30]);
    let keys =
        EvaluationKeys::generate_from_seed(&party.key, 2, &[1], false, &Seed::from_bytes([5; 32]))
            .unwrap();
    let a = party.encrypt(&numbers(32, 1.0, 1), 2f64.powi(18), 3);
    assert!(matches!(
        a.rotate(2, &keys),
        Err(CkksError::Ring(RingError::NoRotationKey { steps: 2 }))
    ));
    assert!(matches!(
        a.conjugate(&keys),
        Err(CkksError::Ring(RingError::NoConjugationKey))
    ));
    let cube = a.square().unwrap().multiply(&a).unwrap();
    assert!(matches!(
        cube.relinearise(&keys),
        Err(CkksError::Ring(RingError::NoPowerKey { power: 3 }))
    ));
    assert!(matches!(
        cube.rotate(1, &keys),
        Err(CkksError::Ring(RingError::Polys { polys: 4 }))
    ));
    // Around the end, and the whole way around.
    assert_eq!(
        a.rotate(33, &keys).unwrap().data(),
        a.rotate(1, &keys).unwrap().data()
    );
    assert_eq!(a.rotate(-32, &keys).unwrap().data(), a.data());
}

#[test]
#[should_panic(expected = "belongs to the encryptor")]
fn indices_of_other_encryptors_are_refused() {
    let mut party = Party::<u32>::new(64, &[30]);
    let other = party.key.encryptor_from_seed(&Seed::from_bytes([77; 32]));
    let message = party.parameters.message(&[1.0], &[], 1024.0, 1).unwrap();
    let index = party.encryptor.reserve(1).next().unwrap();
    let _ = other.encrypt_words(index, &message, &mut [0; 64]);
}
