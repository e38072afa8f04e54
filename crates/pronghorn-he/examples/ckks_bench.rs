//! Microseconds an operation of CKKS, the least of many runs on one core, a line an operation:
//! `cargo run --release -p pronghorn-he --example ckks_bench [name of an operation]`.
//!
//! Sets of parameters are named by degree and primes: ciphertext primes + special primes of so many
//! bits.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pronghorn_he::ckks::{EvaluationKeys, Parameters, PublicKey, SecretKey};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
    rns,
};

/// Degree, primes of the ciphertexts, special primes.
type Chain = (usize, &'static [u32], &'static [u32]);

/// 50-bit primes, 2, 4 and 8 in all; then as large a data modulus as SEAL has at these degrees (72,
/// 174, 389 bits).
const WIDE: [Chain; 6] = [
    (4096, &[50], &[50]),
    (8192, &[50; 3], &[50]),
    (16384, &[50; 7], &[50]),
    (4096, &[36, 36], &[34]),
    (8192, &[43, 43, 44, 44], &[40]),
    (16384, &[48, 48, 48, 49, 49, 49, 49, 49], &[41]),
];

/// Primes that fit 32-bit words, of the same product.
const NARROW: [Chain; 6] = [
    (4096, &[25, 25], &[25, 25]),
    (8192, &[30; 5], &[25, 25]),
    (
        16384,
        &[30, 30, 29, 29, 29, 29, 29, 29, 29, 29, 29, 29],
        &[25, 25],
    ),
    (4096, &[24; 3], &[30]),
    (8192, &[29; 6], &[30]),
    (
        16384,
        &[30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30, 29],
        &[20, 20],
    ),
];

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    WIDE.into_iter()
        .for_each(|chain| measure::<u64>(chain, &only));
    NARROW
        .into_iter()
        .for_each(|chain| measure::<u32>(chain, &only));
}

fn measure<W: Word>((n, bits, special): Chain, only: &str) {
    let primes = rns::primes(n, &[bits, special].concat()).expect("there are such primes");
    let parameters = Parameters::<W>::new(n, &primes[..bits.len()], &primes[bits.len()..])
        .expect("they are secure");
    let sum = |bits: &[u32]| bits.iter().sum::<u32>();
    println!(
        "N = {n}, {} primes + {} special in {}-bit words, {} + {} bits, {} digits",
        bits.len(),
        special.len(),
        W::BITS,
        sum(bits),
        sum(special),
        parameters.digit_count(bits.len()),
    );
    let limbs = parameters.limbs();
    let scale = 2f64.powi(20);
    let key = SecretKey::generate(&parameters, &Seed::from_bytes([1; 32]));
    let mut encryptor = key.encryptor_from_seed(&Seed::from_bytes([2; 32]));
    let public = PublicKey::generate_from_seed(&key, &Seed::from_bytes([3; 32]));
    let keys = EvaluationKeys::generate_from_seed(
        &key,
        2,
        &[1, 2, 3, 4],
        false,
        &Seed::from_bytes([4; 32]),
    )
    .expect("there are special primes");
    let mut random = Prg::new(&Seed::from_bytes([5; 32]), "pronghorn ckks_bench").stream(0);
    let values: Vec<f64> = (0..n / 2).map(|i| (i as f64).sin()).collect();
    let message = parameters
        .message(&values, &values, scale, limbs)
        .expect("it fits");
    let plain = message.to_plaintext();
    let seeded = encryptor.encrypt(&message).expect("one set of parameters");
    let (x, y) = (
        seeded.expand(),
        encryptor
            .encrypt(&message)
            .expect("one set of parameters")
            .expand(),
    );
    let product = x.multiply(&y).expect("it fits");
    let scalar = parameters.scalar(3.0, 1.0, limbs).expect("it fits");
    let mut bytes = Vec::new();
    let report = |name: &str, run: &mut dyn FnMut()| {
        if name.contains(only) {
            println!("  {name:24} {:9.1}", least(run));
        }
    };
    report("message", &mut || {
        drop(black_box(parameters.message(
            black_box(&values),
            &values,
            scale,
            limbs,
        )))
    });
    report("encode", &mut || {
        drop(black_box(parameters.encode(
            black_box(&values),
            &values,
            scale,
            limbs,
        )))
    });
    report("decode", &mut || {
        drop(black_box(parameters.decode(black_box(&plain))))
    });
    report("encrypt, secret key", &mut || {
        drop(black_box(encryptor.encrypt(black_box(&message))))
    });
    report("expand", &mut || drop(black_box(seeded.expand())));
    report("encrypt, public key", &mut || {
        drop(black_box(public.encrypt(black_box(&message), &mut random)))
    });
    report("decrypt", &mut || {
        drop(black_box(key.decrypt(black_box(&x))))
    });
    report("pack", &mut || {
        bytes.clear();
        x.encode(black_box(&mut bytes));
    });
    report("add", &mut || drop(black_box(x.add(black_box(&y)))));
    report("multiply by a scalar", &mut || {
        drop(black_box(x.mul_scalar(black_box(&scalar))))
    });
    report("multiply by a plaintext", &mut || {
        drop(black_box(x.mul_plain(black_box(&plain))))
    });
    report("multiply", &mut || {
        drop(black_box(x.multiply(black_box(&y))))
    });
    report("square", &mut || drop(black_box(x.square())));
    if limbs > 1 {
        report("rescale", &mut || drop(black_box(x.rescale(1))));
        report("relinearise and rescale", &mut || {
            drop(black_box(product.relinearise_and_rescale(&keys, 1)))
        });
    }
    report("relinearise", &mut || {
        drop(black_box(product.relinearise(&keys)))
    });
    report("rotate", &mut || drop(black_box(x.rotate(1, &keys))));
    report("rotate, of four at once", &mut || {
        drop(black_box(x.rotate_many(&[1, 2, 3, 4], &keys)))
    });
    let ntt = parameters.basis().ntt(0);
    let mut poly = x.poly(0)[..n].to_vec();
    report("one NTT", &mut || ntt.forward(black_box(&mut poly)));
    report("one inverse NTT", &mut || ntt.inverse(black_box(&mut poly)));
}

/// Microseconds of the fastest run within a tenth of a second, or of five.
fn least(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    let mut least = Duration::MAX;
    let mut runs = 0;
    while runs < 5 || start.elapsed() < Duration::from_millis(100) {
        let before = Instant::now();
        run();
        least = least.min(before.elapsed());
        runs += 1;
    }
    least.as_secs_f64() * 1e6
}
