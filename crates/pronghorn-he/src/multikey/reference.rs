//! A slow reference: schoolbook products and exact integers, from the formulas alone.

use pronghorn_ring::{
    random::{Prg, Seed},
    rns,
};

use super::{
    Choice, Common, Extended, KeyRing, PublicKeys,
    Relinearisation::{Linear, Quadratic},
    SecretKey,
};
use crate::ckks::Parameters;

const N: usize = 16;
/// Products of all primes fit 126 bits.
const BITS: [u32; 3] = [21, 20, 19];
const SPECIAL: [u32; 2] = [22, 22];

/// A polynomial of integers modulo `Q P` or `Q`, each in `[0, modulus)`.
type Poly = Vec<i128>;

struct Reference {
    common: Common<u64>,
    primes: Vec<i128>,
    q: i128,
    p: i128,
}

impl Reference {
    fn new() -> Self {
        let primes = rns::primes(N, &[&BITS[..], &SPECIAL[..]].concat()).expect("primes");
        let (chain, special) = primes.split_at(BITS.len());
        let ring = Parameters::insecure_paper_parameters(N, chain, special).expect("a chain");
        let product = |primes: &[u64]| primes.iter().map(|&q| i128::from(q)).product();
        Self {
            common: Common::new(&ring, [9; 32]).expect("special primes"),
            primes: primes.iter().map(|&q| i128::from(q)).collect(),
            q: product(chain),
            p: product(special),
        }
    }

    /// Out of the NTT domain, by the Chinese remainder theorem; limbs of the chain and, where there
    /// are as many, the special ones.
    fn integers(&self, words: &[u64]) -> Poly {
        let limbs = words.len() / N;
        let mut words = words.to_vec();
        self.common.ring().basis().inverse(&mut words);
        let modulus: i128 = self.primes[..limbs].iter().product();
        let coefficient = |i: usize| {
            let terms = (0..limbs).map(|limb| {
                let prime = self.primes[limb];
                let other = modulus / prime;
                let inverse = inverse(other % prime, prime);
                i128::from(words[limb * N + i]) * inverse % prime * other
            });
            terms.fold(0, |sum, term| (sum + term) % modulus)
        };
        (0..N).map(coefficient).collect()
    }

    /// Digits of a key modulo all primes.
    fn key(&self, key: &[u64]) -> Vec<Poly> {
        key.chunks_exact(self.primes.len() * N)
            .map(|digit| self.integers(digit))
            .collect()
    }

    /// The centred residues of `x` modulo the product of each digit's primes.
    fn digits(&self, x: &Poly, width: usize) -> Vec<Poly> {
        let chain: Vec<i128> = self.primes[..BITS.len()].to_vec();
        let moduli = chain.chunks(width).map(|primes| primes.iter().product());
        moduli
            .map(|modulus: i128| x.iter().map(|&x| centre(x, modulus)).collect())
            .collect()
    }

    /// `round(sum / P) mod Q` of a sum modulo `Q P`.
    fn divide(&self, sum: &Poly) -> Poly {
        let divided = sum.iter().map(|&x| {
            let x = centre(x, self.q * self.p);
            (x - centre(x, self.p)) / self.p
        });
        divided.map(|x| x.rem_euclid(self.q)).collect()
    }

    fn multiply(&self, x: &Poly, y: &Poly, modulus: i128) -> Poly {
        let mut out = vec![0i128; N];
        for (i, &x) in x.iter().enumerate() {
            for (j, &y) in y.iter().enumerate() {
                let term = multiply_modulo(x, y, modulus);
                let place = (i + j) % N;
                let term = if i + j < N { term } else { modulus - term };
                out[place] = (out[place] + term) % modulus;
            }
        }
        out
    }

    /// `<digits, key>` modulo `Q P`.
    fn gadget(&self, digits: &[Poly], key: &[Poly]) -> Poly {
        let all = self.q * self.p;
        let products = digits
            .iter()
            .zip(key)
            .map(|(x, y)| self.multiply(x, y, all));
        products.fold(vec![0; N], |sum, x| add(&sum, &x, all))
    }
}

fn centre(x: i128, modulus: i128) -> i128 {
    let x = x.rem_euclid(modulus);
    if 2 * x > modulus { x - modulus } else { x }
}

fn add(x: &Poly, y: &Poly, modulus: i128) -> Poly {
    let pairs = x.iter().zip(y);
    pairs.map(|(x, y)| (x + y).rem_euclid(modulus)).collect()
}

/// By doubling: products of 104 bits have no word.
fn multiply_modulo(x: i128, y: i128, modulus: i128) -> i128 {
    let (mut x, mut y) = (x.rem_euclid(modulus), y.rem_euclid(modulus));
    let mut sum = 0;
    while y > 0 {
        if y & 1 == 1 {
            sum = (sum + x) % modulus;
        }
        x = 2 * x % modulus;
        y >>= 1;
    }
    sum
}

fn inverse(x: i128, prime: i128) -> i128 {
    let (mut power, mut exponent, mut x) = (1, prime - 2, x);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * x % prime;
        }
        x = x * x % prime;
        exponent >>= 1;
    }
    power
}

/// Two parties' ciphertexts with words from a stream, as hostile as any.
fn uniform(common: &Common<u64>, keys: &[&PublicKeys<u64>], stream: u64) -> Extended<u64> {
    let random =
        &mut Prg::new(&Seed::from_bytes([4; 32]), "pronghorn test reference").stream(stream);
    let limbs = BITS.len();
    let mut data = vec![0; (keys.len() + 1) * limbs * N];
    for (i, limb) in data.chunks_exact_mut(N).enumerate() {
        let q = common.ring().basis().prime(i % limbs);
        pronghorn_ring::sample::uniform_public(random, q, limb);
    }
    let parties = keys.iter().map(|keys| keys.party).collect();
    Extended::from_words(common, parties, limbs, data).expect("in order")
}

#[test]
fn both_relinearisations_are_their_formulas() {
    let reference = Reference::new();
    let (common, q, all) = (&reference.common, reference.q, reference.q * reference.p);
    let secrets = [1, 2, 3].map(|seed| SecretKey::generate(common, &Seed::from_bytes([seed; 32])));
    let mut ring = KeyRing::new(common);
    let choice = Choice {
        linear: true,
        ..Choice::default()
    };
    for secret in &secrets {
        ring.insert(secret.public_keys(choice).expect("randomness"))
            .expect("one reference");
    }
    let mut parties: Vec<_> = secrets.iter().map(SecretKey::party).collect();
    parties.sort();
    let keys = ring.all(&parties).expect("all");
    let (x, y) = (uniform(common, &keys, 0), uniform(common, &keys, 1));
    let polys = |x: &Extended<u64>| -> Vec<Poly> {
        (0..4).map(|i| reference.integers(x.poly(i))).collect()
    };
    let (xs, ys) = (polys(&x), polys(&y));
    let product = |i: usize, j: usize| reference.multiply(&xs[i], &ys[j], q);
    // Digits of two limbs are as large as P: two of them, of 41 and of 19 bits.
    for (kind, width) in [(Quadratic, 2), (Linear, 1)] {
        let mut outputs = vec![vec![0i128; N]; 4];
        let mut inner = vec![vec![0i128; N]; 4];
        let mut low = vec![product(0, 0)];
        for i in 1..4 {
            low.push(add(&product(0, i), &product(i, 0), q));
            let of = keys[i - 1];
            for j in 1..4 {
                let other = keys[j - 1];
                let (digits, b, d2) = match kind {
                    Quadratic if j < i => continue,
                    Quadratic if j == i => {
                        let digits = reference.digits(&product(i, i), width);
                        for (half, sum) in of.own.square().halves().iter().zip([0, i]) {
                            let term = reference.gadget(&digits, &reference.key(half));
                            outputs[sum] = add(&outputs[sum], &term, all);
                        }
                        continue;
                    }
                    Quadratic => {
                        let both = add(&product(i, j), &product(j, i), q);
                        let [of, other] = [of, other].map(|x| x.pairwise().expect("keys of pairs"));
                        (reference.digits(&both, width), &other.b, &of.d2)
                    }
                    Linear => {
                        let (left, right) =
                            (reference.digits(&xs[i], 1), reference.digits(&ys[j], 1));
                        let digits = left.iter().zip(&right);
                        let digits = digits.map(|(x, y)| reference.multiply(x, y, all));
                        let b = &other.linear().expect("linear keys").b;
                        (digits.collect(), b, &of.linear().expect("linear keys").d2)
                    }
                };
                let t = reference.gadget(&digits, &reference.key(b));
                inner[i] = add(&inner[i], &t, all);
                let term = reference.gadget(&digits, &reference.key(d2));
                outputs[j] = add(&outputs[j], &term, all);
            }
        }
        for i in 1..4 {
            let digits = reference.digits(&reference.divide(&inner[i]), 2);
            let keys = keys[i - 1].pairwise().expect("keys of pairs");
            for (half, sum) in [&keys.d0, &keys.d1].into_iter().zip([0, i]) {
                let term = reference.gadget(&digits, &reference.key(half));
                outputs[sum] = add(&outputs[sum], &term, all);
            }
        }
        let found = x.multiply(&y, &ring, 0, kind).expect("all keys");
        for (poly, (output, low)) in outputs.iter().zip(&low).enumerate() {
            let expected = add(&reference.divide(output), low, q);
            assert_eq!(
                reference.integers(found.poly(poly)),
                expected,
                "{kind:?} {poly}"
            );
        }
    }
}

#[test]
fn the_phase_is_its_formula() {
    let reference = Reference::new();
    let common = &reference.common;
    let secrets = [5, 6].map(|seed| SecretKey::generate(common, &Seed::from_bytes([seed; 32])));
    let keys = secrets
        .each_ref()
        .map(|secret| secret.public_keys(Choice::default()).expect("randomness"));
    let mut keys = keys.each_ref().to_vec();
    keys.sort_by_key(|keys| keys.party());
    let x = uniform(common, &keys, 2);
    let words = BITS.len() * N;
    let mut expected = reference.integers(x.poly(0));
    for secret in &secrets {
        let s = reference.integers(&secret.secret().words[..words]);
        let ternary = s.iter().map(|&s| centre(s, reference.q));
        assert!(ternary.into_iter().all(|s| (-1..=1).contains(&s)));
        let part = reference.integers(x.part(secret.party()).expect("a party"));
        let term = reference.multiply(&part, &s, reference.q);
        expected = add(&expected, &term, reference.q);
    }
    let found = x.phase(&secrets.each_ref()).expect("all");
    assert_eq!(reference.integers(&found), expected);
}

/// What keys are made to be: `b + a s`, `d_0 + d_1 s - r g` and `d_2 - r a - s g` are small.
#[test]
fn keys_have_small_errors() {
    let reference = Reference::new();
    let common = &reference.common;
    let secret = SecretKey::generate(common, &Seed::from_bytes([8; 32]));
    let choice = Choice {
        linear: true,
        ..Choice::default()
    };
    let keys = secret.public_keys(choice).expect("randomness");
    let (all, ring) = (reference.q * reference.p, common.ring());
    let s = reference.integers(&secret.secret().words);
    let pairwise = keys.pairwise().expect("keys of pairs");
    let small = |x: &Poly| x.iter().all(|&x| centre(x, all).abs() <= 21);
    let generator = crate::rns::uniform_generator(common.seed());
    let a = |number: u64| {
        let mut a = vec![0; ring.basis().limbs() * N];
        crate::rns::expand_uniform(ring, &generator, number, &mut a);
        reference.integers(&a)
    };
    let negative = |x: &Poly| -> Poly { x.iter().map(|&x| (all - x) % all).collect() };
    for (digit, (b, b_linear)) in (reference.key(&pairwise.b).iter())
        .zip(reference.key(&keys.linear().expect("linear keys").b))
        .enumerate()
    {
        for (b, number) in [(b, 3 << 40), (&b_linear, 4 << 40)] {
            let a = a(number | digit as u64);
            assert!(small(&add(b, &reference.multiply(&a, &s, all), all)));
        }
    }
    // `r` follows from the difference of `d_0 + d_1 s` and `r g`: ternary in the first digit, whose
    // gadget is P modulo its primes and zero modulo the others.
    let (d0, d1) = (reference.key(&pairwise.d0), reference.key(&pairwise.d1));
    let first: i128 = reference.primes[..2].iter().product();
    let masked = add(&d0[0], &reference.multiply(&d1[0], &s, all), all);
    let p = reference.p % first;
    let r: Poly = (0..N)
        .map(|i| {
            let fits = |r: &i128| centre(masked[i] - r * p, first).abs() <= 21;
            (-1..=1).find(fits).expect("r is ternary")
        })
        .collect();
    let r: Poly = r.iter().map(|r| r.rem_euclid(all)).collect();
    let gadget = |digit: usize| {
        // P in the digit's limbs.
        let range = ring.digit_ranges().nth(digit).expect("a digit");
        let own: i128 = reference.primes[range].iter().product();
        let others = reference.q / own;
        let inverse = modular_inverse(others % own, own);
        multiply_modulo(others, inverse, reference.q) * reference.p
    };
    for (digit, d2) in reference.key(&pairwise.d2).iter().enumerate() {
        let masked = reference.multiply(&r, &a(3 << 40 | digit as u64), all);
        let scaled: Poly = s
            .iter()
            .map(|&s| multiply_modulo(s, gadget(digit), all))
            .collect();
        let expected = add(&masked, &scaled, all);
        assert!(small(&add(d2, &negative(&expected), all)), "{digit}");
        let scaled: Poly = r
            .iter()
            .map(|&r| multiply_modulo(r, gadget(digit), all))
            .collect();
        let found = add(&d0[digit], &reference.multiply(&d1[digit], &s, all), all);
        assert!(small(&add(&found, &negative(&scaled), all)), "{digit}");
    }
}

/// By Euclid's algorithm: the modulus may be a product.
fn modular_inverse(x: i128, modulus: i128) -> i128 {
    let (mut r, mut next, mut t, mut t_next) = (modulus, x, 0i128, 1i128);
    while next != 0 {
        let quotient = r / next;
        (r, next) = (next, r - quotient * next);
        (t, t_next) = (t_next, t - quotient * t_next);
    }
    t.rem_euclid(modulus)
}

/// One seed under two references is two secrets: with one secret and one error their keys would be
/// an equation without noise.
#[test]
fn references_have_secrets_of_their_own() {
    let common = Reference::new().common;
    let other = Common::new(common.ring(), [10; 32]).expect("special primes");
    let seed = Seed::from_bytes([8; 32]);
    let secrets = [&common, &other].map(|common| SecretKey::generate(common, &seed));
    assert!(secrets[0].secret().words != secrets[1].secret().words);
}

/// Two keys of one seed are one key, so that no second error under one `a` gets out.
#[test]
fn keys_follow_from_their_seed() {
    let common = Reference::new().common;
    let keys = [0, 1].map(|_| {
        let secret = SecretKey::generate(&common, &Seed::from_bytes([8; 32]));
        secret.public_keys(Choice::default()).expect("randomness")
    });
    assert!(keys[0].party() == keys[1].party());
    let [one, two] = keys
        .each_ref()
        .map(|x| x.pairwise().expect("keys of pairs"));
    assert!(one.b == two.b && one.d0 == two.d0 && one.d2 == two.d2);
    let other = SecretKey::generate(&common, &Seed::from_bytes([9; 32]));
    assert!(other.party() != keys[0].party());
}
