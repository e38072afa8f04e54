//! BFV: exact values through every operation, noise within its bounds, and answers that hide the server's weights.

use pronghorn_he::bfv::{
    Answer, BfvError, Ciphertext, Encryptor, EvaluationKeys, FLOOD_BITS, Factor, Hider, Multiplier,
    Noise, ParameterError, Parameters, Products, PublicKey, Rotation, SecretKey, Switching,
    Workload, rotated_products,
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

    /// `log2` of the measured noise, which must be within its bound, and the bound within 6 bits of it.
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

fn operations_are_exact<W: Word>(parameters: Parameters<W>) {
    let mut setup = Setup::new(parameters);
    let (x, y) = (setup.values(0), setup.values(1));
    let (cx, cy) = (setup.encrypt(&x), setup.encrypt(&y));
    let plain = setup.parameters.encode(&y).unwrap();
    let add = |x: i64, y: i64| x + y;
    let sub = |x: i64, y: i64| x - y;
    assert_eq!(setup.decrypt(&cx), x);
    assert_eq!(
        setup.decrypt(&cx.add(&cy).unwrap()),
        setup.with(&x, &y, add)
    );
    assert_eq!(
        setup.decrypt(&cx.sub(&cy).unwrap()),
        setup.with(&x, &y, sub)
    );
    assert_eq!(setup.decrypt(&cx.neg()), setup.with(&x, &y, |x, _| -x));
    assert_eq!(
        setup.decrypt(&cx.add_plain(&plain).unwrap()),
        setup.with(&x, &y, add)
    );
    assert_eq!(
        setup.decrypt(&cx.sub_plain(&plain).unwrap()),
        setup.with(&x, &y, sub)
    );
    let product = cx.mul_plain(&plain.to_multiplier()).unwrap();
    assert_eq!(setup.decrypt(&product), setup.with(&x, &y, |x, y| x * y));

    for (steps, rotated) in STEPS
        .iter()
        .zip(cx.rotate_many(&STEPS, &setup.keys).unwrap())
    {
        assert_eq!(setup.decrypt(&rotated), left(&x, *steps));
    }
    let there_and_back = cx
        .rotate(0, &setup.keys)
        .unwrap()
        .rotate(8, &setup.keys)
        .unwrap();
    assert_eq!(setup.decrypt(&there_and_back), left(&x, 8));
    assert_eq!(
        setup.decrypt(&cx.swap_rows(&setup.keys).unwrap()),
        swapped(&x)
    );

    // Two inputs, ten rotations, three outputs.
    let mut rotations: Vec<_> = STEPS
        .iter()
        .map(|&steps| Rotation::left(0, steps))
        .collect();
    rotations.extend([
        Rotation::left(1, 0),
        Rotation::left(0, 0),
        Rotation::Swap { input: 1 },
    ]);
    rotations.extend([Rotation::left(1, 3), Rotation::left(1, 9)]);
    let moved: Vec<_> = rotations
        .iter()
        .map(|rotation| match rotation {
            Rotation::Left { input, steps } => left([&x, &y][*input], *steps),
            Rotation::Swap { input } => swapped([&x, &y][*input]),
        })
        .collect();
    let weights: Vec<_> = (0..rotations.len() as u64)
        .map(|j| setup.values(10 + j))
        .collect();
    let plains: Vec<_> = weights
        .iter()
        .map(|w| setup.parameters.multiplier(w).unwrap())
        .collect();
    let times: Vec<_> = plains.iter().map(Factor::Times).collect();
    let mut mixed = times.clone();
    (mixed[1], mixed[2], mixed[6], mixed[7]) =
        (Factor::One, Factor::Zero, Factor::One, Factor::One);
    let nothing = vec![Factor::Zero; rotations.len()];
    let outputs = rotated_products(
        &[&cx, &cy],
        &rotations,
        &[times, mixed, nothing],
        &setup.keys,
    )
    .unwrap();
    let sum = |skip: usize, ones: &[usize]| {
        let term = |j: usize| match ones.contains(&j) {
            true => moved[j].clone(),
            false => setup.with(&moved[j], &weights[j], |x, w| x * w),
        };
        let terms = (0..rotations.len()).filter(|&j| j != skip).map(term);
        terms
            .reduce(|sum, term| setup.with(&sum, &term, |x, y| x + y))
            .unwrap()
    };
    assert_eq!(setup.decrypt(&outputs[0]), sum(usize::MAX, &[]));
    assert_eq!(setup.decrypt(&outputs[1]), sum(2, &[1, 6, 7]));
    assert_eq!(setup.decrypt(&outputs[2]), vec![0; x.len()]);

    // The same inputs without rotations.
    let plain = |j: usize| setup.parameters.multiplier(&weights[j]).unwrap();
    let terms = [vec![(0, plain(0)), (1, plain(1)), (0, plain(2))], vec![]];
    let products = Products::new(&setup.parameters, &terms).unwrap();
    let outputs = products.of(&[&cx, &cy]).unwrap();
    let term = |values: &[i32], j: usize| setup.with(values, &weights[j], |x, w| x * w);
    let two = setup.with(&term(&x, 0), &term(&y, 1), add);
    assert_eq!(
        setup.decrypt(&outputs[0]),
        setup.with(&two, &term(&x, 2), add)
    );
    assert_eq!(setup.decrypt(&outputs[1]), vec![0; x.len()]);
    let none = products.of(&[&cx]);
    assert!(matches!(none, Err(BfvError::Shape { found: 1, .. })));
}

#[test]
fn operations_are_exact_however_keys_are_switched() {
    operations_are_exact::<u64>(toy(64, &[50, 50], &[], 10, 17));
    operations_are_exact::<u64>(toy(64, &[50, 45], &[50], 0, 20));
    operations_are_exact::<u64>(toy(64, &[53, 53], &[], 7, 20));
    operations_are_exact::<u64>(toy(64, &[50, 50, 50], &[50, 50], 0, 31));
    operations_are_exact::<u64>(toy(2048, &[60, 60], &[60], 0, 17));
    operations_are_exact::<u32>(toy(64, &[30, 30, 31], &[], 5, 14));
    operations_are_exact::<u32>(toy(64, &[30, 30, 30], &[31], 0, 17));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn values_come_back(values in prop::collection::vec(any::<i32>(), 0..=64), t_bits in 9u32..=31, byte: u8) {
        let parameters = toy::<u64>(64, &[40, 40], &[], 0, t_bits);
        let key = SecretKey::generate(&parameters, &seed(byte));
        let plain = parameters.encode(&values).unwrap();
        let ciphertext = key.encryptor_from_seed(&seed(!byte)).encrypt(&plain).unwrap().expand();
        let mut expected: Vec<i32> = values.iter().map(|&value| centre(&parameters, value.into())).collect();
        expected.resize(64, 0);
        prop_assert_eq!(&parameters.decode(&plain).unwrap(), &expected);
        prop_assert_eq!(&parameters.decode(&key.decrypt(&ciphertext).unwrap()).unwrap(), &expected);
    }
}

#[test]
fn encoding_scales_exactly() {
    // The noise of a fresh ciphertext less its error is the rounding of Q m / t: at most a half, and not always zero.
    let parameters = toy::<u64>(64, &[40, 40], &[], 0, 20);
    let mut setup = Setup {
        key: SecretKey::generate(&parameters, &seed(1)),
        encryptor: SecretKey::generate(&parameters, &seed(1)).encryptor_from_seed(&seed(2)),
        keys: EvaluationKeys::generate_from_seed(
            &SecretKey::generate(&toy::<u64>(64, &[40, 40], &[], 9, 20), &seed(1)),
            &[],
            false,
            &seed(3),
        )
        .unwrap(),
        parameters,
    };
    let values = setup.values(4);
    let ciphertext = setup.encrypt(&values);
    let noise = setup.key.noise(&ciphertext).unwrap();
    assert!(noise.iter().all(|e| e.abs() <= 21.5));
    assert!(noise.iter().any(|e| (e - e.round()).abs() > 0.1));
    let plain = setup.parameters.encode(&values).unwrap();
    let zero = setup
        .key
        .noise(&ciphertext.sub_plain(&plain).unwrap())
        .unwrap();
    for (e, whole) in noise.iter().zip(&zero) {
        assert!((e - whole).abs() <= 0.5 + 1e-6 && (whole - whole.round()).abs() < 1e-6);
    }
}

#[test]
fn presets_have_128_bits() {
    for t_bits in [17, 20] {
        let (small, large) = (
            Parameters::<u64>::small(t_bits).unwrap(),
            Parameters::<u64>::large(t_bits).unwrap(),
        );
        for parameters in [&small, &large] {
            assert_eq!(parameters.security(), Some(SecurityLevel::Bits128));
            assert_eq!(parameters.t() % (2 * parameters.n() as u64), 1);
            assert_eq!(parameters.t().ilog2() + 1, t_bits);
        }
        assert_ne!(small.hash(), large.hash());
    }
    assert_ne!(
        Parameters::<u64>::small(17).unwrap().hash(),
        Parameters::<u64>::small(18).unwrap().hash()
    );
    let digits = |bits| Parameters::<u64>::with_bits(4096, &[50, 50], &[], bits, 17);
    assert_ne!(digits(17).unwrap().hash(), digits(18).unwrap().hash());
}

#[test]
fn bad_parameters_are_refused() {
    let primes = rns::primes(4096, &[53, 53]).unwrap();
    let t = largest_ntt_prime(20, 4096).unwrap();
    let new = |n, primes: &[u64], switching, t| {
        Parameters::<u64>::new(n, primes, switching, t)
            .err()
            .unwrap()
    };
    let special = rns::primes(4096, &[53, 53, 30]).unwrap();
    assert!(matches!(
        new(4096, &primes, Switching::SpecialPrimes(&special[2..]), t),
        ParameterError::Ring(_)
    ));
    assert!(matches!(
        new(4096, &[], Switching::None, t),
        ParameterError::Ring(_)
    ));
    for t in [
        0,
        2,
        17,
        65_536,
        t + 2,
        1 << 40,
        largest_ntt_prime(40, 4096).unwrap(),
    ] {
        assert!(matches!(
            new(4096, &primes, Switching::None, t),
            ParameterError::Plaintext { .. }
        ));
    }
    assert!(matches!(
        new(4096, &[t, primes[0]], Switching::None, t),
        ParameterError::Shared { .. }
    ));
    for bits in [0, 53, 60] {
        assert!(matches!(
            new(4096, &primes, Switching::Digits(bits), t),
            ParameterError::Digits { .. }
        ));
    }
    let narrow = largest_ntt_prime(17, 4096).unwrap();
    assert!(matches!(
        new(4096, &[narrow], Switching::None, t),
        ParameterError::NoRoom { .. }
    ));
    let with_bits = |t_bits| {
        Parameters::<u64>::with_bits(4096, &[50, 50], &[], 0, t_bits)
            .err()
            .unwrap()
    };
    for t_bits in [0, 12, 32, 64] {
        assert!(
            matches!(with_bits(t_bits), ParameterError::PlaintextBits { .. }),
            "{t_bits}"
        );
    }
    // A chain with a prime of the size of t does without t.
    let parameters = Parameters::<u64>::with_bits(4096, &[31, 50], &[], 0, 31).unwrap();
    assert!(
        parameters
            .ring()
            .basis()
            .primes()
            .all(|q| q.value() != parameters.t())
    );
}

#[test]
fn misuse_is_refused() {
    let mut setup = Setup::new(toy::<u64>(64, &[50, 50], &[], 10, 17));
    let mut other = Setup::new(toy::<u64>(64, &[50, 50], &[], 10, 16));
    let (x, y) = (setup.encrypt(&[1]), other.encrypt(&[1]));
    assert!(matches!(x.add(&y), Err(BfvError::Ring(_))));
    assert!(x.sub(&y).is_err());
    assert!(x.mul_plain(&other.multiplier(0)).is_err());
    assert!(
        x.add_plain(&other.parameters.encode(&[1]).unwrap())
            .is_err()
    );
    assert!(setup.key.decrypt(&y).is_err());
    assert!(
        setup
            .parameters
            .decode(&other.parameters.encode(&[1]).unwrap())
            .is_err()
    );
    assert!(x.rotate(1, &other.keys).is_err());
    assert!(
        x.rotate(7, &setup.keys)
            .err()
            .unwrap()
            .to_string()
            .contains("7 slots")
    );
    assert!(matches!(
        setup.parameters.encode(&[0; 65]),
        Err(BfvError::Slots { .. })
    ));
    let (turn, one) = (Rotation::left(0, 1), Factor::<u64>::One);
    let run =
        |rotation, row: Vec<_>| rotated_products(&[&x], &[rotation], &[row], &setup.keys).err();
    assert!(matches!(
        run(turn, vec![one; 2]),
        Some(BfvError::Shape { .. })
    ));
    assert!(matches!(run(turn, vec![]), Some(BfvError::Shape { .. })));
    assert!(matches!(
        run(Rotation::left(1, 1), vec![one]),
        Some(BfvError::Shape { .. })
    ));
    assert!(matches!(
        run(turn, vec![Factor::Times(&other.multiplier(0))]),
        Some(BfvError::Ring(_))
    ));
    let none = toy::<u64>(64, &[50, 50], &[], 0, 17);
    let key = SecretKey::generate(&none, &seed(1));
    assert!(EvaluationKeys::generate_from_seed(&key, &[1], false, &seed(1)).is_err());
    let no_swap = EvaluationKeys::generate_from_seed(&setup.key, &[1], false, &seed(1)).unwrap();
    assert!(x.swap_rows(&no_swap).is_err());
}

/// Every operation's noise against its bound.
fn noise_is_bounded(parameters: Parameters<u64>) {
    let mut setup = Setup::new(parameters);
    let (p, fresh) = (setup.parameters.clone(), Noise::of_secret_encryption());
    let x = setup.encrypt(&setup.values(0));
    let y = setup.encrypt(&setup.values(1));
    setup.check_noise("fresh", &x, fresh);
    setup.check_noise("sum", &x.add(&y).unwrap(), fresh + fresh);
    setup.check_noise("twice", &x.add(&x).unwrap(), fresh.sum_dependent(2));
    let plain = setup.multiplier(2);
    assert!(plain.norm() <= p.largest_norm());
    let product = x.mul_plain(&plain).unwrap();
    setup.check_noise("product by its norm", &product, fresh.times(plain.norm()));
    setup.check_noise("product", &product, fresh.times(p.largest_norm()));
    setup.check_noise(
        "rotation",
        &x.rotate(1, &setup.keys).unwrap(),
        fresh + p.rotation_noise(),
    );
    setup.check_noise(
        "swap",
        &x.swap_rows(&setup.keys).unwrap(),
        fresh + p.rotation_noise(),
    );
    let after = product.rotate(3, &setup.keys).unwrap();
    setup.check_noise(
        "rotated product",
        &after,
        fresh.times(p.largest_norm()) + p.rotation_noise(),
    );
    let rotations: Vec<_> = STEPS
        .iter()
        .map(|&steps| Rotation::left(0, steps))
        .collect();
    let plains: Vec<_> = (0..STEPS.len() as u64)
        .map(|j| setup.multiplier(20 + j))
        .collect();
    let factors = plains.iter().map(Factor::Times).collect();
    let sum = rotated_products(&[&x], &rotations, &[factors], &setup.keys).unwrap();
    setup.check_noise(
        "products of rotations",
        &sum[0],
        p.rotated_products_noise(fresh, STEPS.len()),
    );
    let ones = vec![Factor::One; STEPS.len()];
    let sum = rotated_products(&[&x], &rotations, &[ones], &setup.keys).unwrap();
    let noise = (fresh + p.switch_noise()).sum(STEPS.len()) + p.division_noise();
    setup.check_noise("sum of rotations", &sum[0], noise);
}

#[test]
fn noise_is_bounded_with_digits() {
    noise_is_bounded(Parameters::small(20).unwrap());
    noise_is_bounded(Parameters::with_bits(4096, &[53, 53], &[], 9, 17).unwrap());
}

#[test]
fn noise_is_bounded_with_special_primes() {
    noise_is_bounded(Parameters::large(20).unwrap());
}

#[test]
fn noise_of_many_products_is_bounded() {
    let mut setup = Setup::new(Parameters::<u64>::small(18).unwrap());
    let fresh = Noise::of_secret_encryption().times(setup.parameters.largest_norm());
    let (x, plain) = (setup.encrypt(&setup.values(0)), setup.multiplier(1));
    let equal = vec![x.mul_plain(&plain).unwrap(); 64];
    let different: Vec<_> = (0..64)
        .map(|j| x.mul_plain(&setup.multiplier(j)).unwrap())
        .collect();
    for (terms, noise) in [(equal, fresh.sum_dependent(64)), (different, fresh.sum(64))] {
        let sum = terms
            .into_iter()
            .reduce(|sum, term| sum.add(&term).unwrap())
            .unwrap();
        setup.check_noise("sum of products", &sum, noise);
    }
}

/// A hidden answer: what the server kept, and what the client got of the bytes.
fn hide(
    setup: &Setup<u64>,
    ciphertext: &Ciphertext<u64>,
    noise: Noise,
    flood_bits: u32,
    row: u64,
) -> (Vec<i32>, Answer<u64>) {
    let parameters = &setup.parameters;
    let format = parameters.answer_format_with(noise, flood_bits).unwrap();
    let (hider, public) = (
        Hider::new(&seed(4)),
        PublicKey::generate_from_seed(&setup.key, &seed(5)),
    );
    let answer = hider.hide(row, ciphertext, &public, &format).unwrap();
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    assert_eq!(bytes.len(), Answer::encoded_len(parameters, &format));
    let answer = Answer::decode(parameters, &format, &bytes).unwrap();
    (hider.shares(parameters, row), answer)
}

#[test]
fn shares_of_hidden_answers_add_up() {
    for parameters in [
        Parameters::small(20).unwrap(),
        Parameters::large(17).unwrap(),
    ] {
        let mut setup = Setup::new(parameters);
        let fresh = Noise::of_secret_encryption();
        let noise =
            setup.parameters.rotation_noise() + fresh.times(setup.parameters.largest_norm());
        let (x, w) = (setup.values(0), setup.values(1));
        let product = setup.encrypt(&x).mul_plain(&setup.multiplier(1)).unwrap();
        let product = product.rotate(1, &setup.keys).unwrap();
        let expected = left(&setup.with(&x, &w, |x, w| x * w), 1);
        for row in [0, 7] {
            let (server, answer) = hide(&setup, &product, noise, FLOOD_BITS, row);
            let client = setup.key.decrypt_answer(&answer).unwrap();
            assert_eq!(setup.with(&server, &client, |x, y| x + y), expected);
            // About as many bits as the values and the secret's reach take, of the 200 or 300 before.
            let format = answer.format();
            assert_eq!(format.limbs, 1);
            assert!(100 - format.dropped_b - format.dropped_a < 62, "{format:?}");
            // Shares look uniform: their mean to five standard errors.
            for shares in [&server, &client] {
                let mean =
                    shares.iter().map(|&share| f64::from(share)).sum::<f64>() / shares.len() as f64;
                let error = setup.parameters.t() as f64 / (12.0 * shares.len() as f64).sqrt();
                assert!(mean.abs() < 5.0 * error, "{mean}");
            }
        }
    }
}

#[test]
fn every_limb_may_be_needed() {
    // Narrow primes: answers of two limbs, without dropped bits.
    let parameters = toy::<u32>(64, &[25, 25, 25, 25, 25], &[], 10, 20);
    let mut setup = Setup::new(parameters.clone());
    let format = parameters
        .answer_format(Noise::of_secret_encryption())
        .unwrap();
    assert!(format.limbs > 1 && format.limbs < 5 && format.dropped_b + format.dropped_a == 0);
    let (x, hider) = (setup.values(3), Hider::new(&seed(4)));
    let public = PublicKey::generate_from_seed(&setup.key, &seed(5));
    let answer = hider.hide(0, &setup.encrypt(&x), &public, &format).unwrap();
    let client = setup.key.decrypt_answer(&answer).unwrap();
    assert_eq!(
        setup.with(&hider.shares(&parameters, 0), &client, |x, y| x + y),
        x
    );
    assert!(matches!(
        hider.hide(1 << 32, &setup.encrypt(&x), &public, &format),
        Err(BfvError::Row { .. })
    ));
    let none = pronghorn_he::bfv::AnswerFormat { limbs: 6, ..format };
    assert!(hider.hide(0, &setup.encrypt(&x), &public, &none).is_err());
    let large = Noise::of_secret_encryption().times(2f64.powi(60));
    assert!(matches!(
        parameters.answer_format(large),
        Err(BfvError::NoRoom { .. })
    ));
}

/// The statistic of Kolmogorov and Smirnov: the largest distance of two empirical distributions, in units of what chance gives.
fn distance(x: &[f64], y: &[f64]) -> f64 {
    let (mut x, mut y) = (x.to_vec(), y.to_vec());
    x.sort_by(f64::total_cmp);
    y.sort_by(f64::total_cmp);
    let share =
        |sorted: &[f64], at: f64| sorted.partition_point(|&z| z <= at) as f64 / sorted.len() as f64;
    let largest = x
        .iter()
        .chain(&y)
        .map(|&at| (share(&x, at) - share(&y, at)).abs())
        .fold(0.0, f64::max);
    largest * (x.len() as f64 * y.len() as f64 / (x.len() + y.len()) as f64).sqrt()
}

#[test]
fn noise_tells_the_weights_without_the_flood_only() {
    let mut setup = Setup::new(Parameters::<u64>::small(18).unwrap());
    let noise = Noise::of_secret_encryption()
        .times(setup.parameters.largest_norm())
        .sum(8);
    // A layer that keeps its input, one with weights of 1 and -1, and the size of their noises.
    let ones = setup
        .parameters
        .multiplier(&vec![1; setup.parameters.n()])
        .unwrap();
    let signs: Vec<_> = setup.values(1).iter().map(|value| value.signum()).collect();
    let signs = setup.parameters.multiplier(&signs).unwrap();
    let input = setup.encrypt(&setup.values(0));
    let results = [&ones, &signs].map(|weights| input.mul_plain(weights).unwrap());
    let measured = |setup: &Setup<u64>, flood_bits: u32, what: &dyn Fn(&[f64]) -> Vec<f64>| {
        let mut row = 0;
        let [x, y] = [0, 1].map(|which| {
            let all = (0..4).flat_map(|_| {
                row += 1;
                let (_, answer) = hide(setup, &results[which], noise, flood_bits, row);
                what(&setup.key.answer_noise(&answer).unwrap())
            });
            all.collect::<Vec<_>>()
        });
        distance(&x, &y)
    };
    // Of the noise before anything is hidden there is no doubt.
    let [x, y] = [0, 1].map(|which| setup.key.noise(&results[which]).unwrap());
    assert!(distance(&x, &y) > 20.0);
    // 1.95 is beyond 1 in 1,000.
    let plain: &dyn Fn(&[f64]) -> Vec<f64> = &|noise| noise.to_vec();
    assert!(measured(&setup, FLOOD_BITS, plain) < 1.95);
    // A client that knows the errors of its own encryption correlates the noise with them.
    let errors = setup.key.noise(&input).unwrap();
    let correlate =
        |noise: &[f64]| -> Vec<f64> { noise.iter().zip(&errors).map(|(x, e)| x * e).collect() };
    assert!(measured(&setup, FLOOD_BITS, &correlate) < 1.95);
    // Almost no flood: what is dropped is sized by the room, so the room must be small for noise to show.
    let unflooded: Vec<Vec<f64>> = results
        .iter()
        .enumerate()
        .map(|(row, result)| {
            let format = pronghorn_he::bfv::AnswerFormat {
                log_flood: 4,
                limbs: 2,
                dropped_b: 0,
                dropped_a: 0,
            };
            let public = PublicKey::generate_from_seed(&setup.key, &seed(5));
            let answer = Hider::new(&seed(4))
                .hide(row as u64, result, &public, &format)
                .unwrap();
            setup.key.answer_noise(&answer).unwrap()
        })
        .collect();
    assert!(distance(&unflooded[0], &unflooded[1]) > 20.0);
}

/// The table in the documentation of `workload`, line by line.
#[test]
fn the_table_of_workloads_is_true() {
    let source = include_str!("../src/bfv/workload.rs");
    let (lines, documented) = (table(), |line: &String| source.contains(line));
    assert!(
        lines.iter().all(documented),
        "the table should be:\n{}",
        lines.join("\n")
    );
}

fn table() -> Vec<String> {
    let kinds = [
        ("products, no rotations", false, 0, 0),
        ("outputs rotated: 16 rotations summed", false, 16, 0),
        ("outputs rotated and summed 6 times", false, 0, 6),
        ("inputs rotated", true, 0, 0),
        ("inputs rotated, then 16 outputs", true, 16, 0),
    ];
    let mut lines = Vec::new();
    for (what, input_rotations, output_rotations, doublings) in kinds {
        for t_bits in [17, 18, 20] {
            let workload = Workload {
                t_bits,
                products: 1 << 10,
                input_rotations,
                output_rotations,
                doublings,
            };
            let cell = |n| match Parameters::<u64>::for_workload(n, &workload) {
                Ok(parameters) => {
                    assert!(parameters.security().is_some());
                    format!(
                        "{}, {:.1} left",
                        chain(&parameters),
                        workload.spare(&parameters)
                    )
                }
                Err(_) => "no".to_owned(),
            };
            lines.push(format!(
                "//! | {what} | {t_bits} | {} | {} |",
                cell(4096),
                cell(8192)
            ));
        }
    }
    lines
}

/// Primes by their bits.
fn chain(parameters: &Parameters<u64>) -> String {
    let bits: Vec<_> = parameters
        .ring()
        .basis()
        .primes()
        .map(|q| q.bits().to_string())
        .collect();
    let (chain, special) = bits.split_at(parameters.limbs());
    let chain = chain.join("+");
    match parameters.digit_bits() {
        Some(bits) => format!("{chain}, digits of {bits}"),
        None => format!("{chain}, special {}", special.join("+")),
    }
}

#[test]
fn other_degrees_have_no_workload() {
    let workload = Workload {
        t_bits: 17,
        products: 1,
        input_rotations: false,
        output_rotations: 0,
        doublings: 0,
    };
    assert!(matches!(
        Parameters::<u64>::for_workload(2048, &workload),
        Err(ParameterError::Workload { n: 2048 })
    ));
    assert!(Parameters::<u32>::for_workload(4096, &workload).is_err());
}
