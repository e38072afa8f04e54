//! Nanoseconds a value of everything in this crate, at every level this CPU has, on one core:
//! `cargo run --release -p pronghorn-ring --example ring_bench`.

use std::hint::black_box;
use std::time::Instant;

use pronghorn_ring::random::{Prg, Seed};
use pronghorn_ring::{Ntt, Prime, SimdLevel, Word, bits, modulus, sample, vector};

fn main() {
    for level in SimdLevel::available() {
        println!("{level:?}");
        words::<u32>(level, 2048, 31);
        words::<u64>(level, 4096, 60);
        samples(level);
    }
}

/// Degree `n` modulo the largest NTT prime of `prime_bits`.
fn words<W: Word>(level: SimdLevel, n: usize, prime_bits: u32) {
    let prime = modulus::largest_ntt_prime(prime_bits, n).expect("there are such primes");
    let q = Prime::<W>::new(prime).expect("it is a prime");
    let ntt = Ntt::new(n, q).expect("it has an NTT");
    let prg = Prg::new(&Seed::from_bytes([1; 32]), "pronghorn ring_bench");
    let (mut x, mut y, mut out) = (
        vec![W::default(); n],
        vec![W::default(); n],
        vec![W::default(); n],
    );
    sample::uniform_public(&mut prg.stream(0), &q, &mut x);
    sample::uniform_public(&mut prg.stream(1), &q, &mut y);
    let y_shoup: Vec<W> = y.iter().map(|&y| q.shoup(y)).collect();
    let mut packed = Vec::new();
    bits::pack(&x, q.bits(), &mut packed);
    let mut bytes = Vec::with_capacity(packed.len());
    let name = |what| format!("u{} n={n} {what}", W::BITS);

    report(&name("forward NTT"), n, || {
        ntt.forward_at(level, black_box(&mut x))
    });
    report(&name("inverse NTT"), n, || {
        ntt.inverse_at(level, black_box(&mut x))
    });
    report(&name("mul_shoup"), n, || {
        vector::mul_shoup_at(level, &q, black_box(&x), &y, &y_shoup, &mut out)
    });
    report(&name("add_assign"), n, || {
        vector::add_assign_at(level, &q, black_box(&mut x), &y)
    });
    let mut stream = prg.stream(2);
    report(&name("uniform_public"), n, || {
        sample::uniform_public_at(level, &mut stream, &q, black_box(&mut out))
    });
    report(&name("pack"), n, || {
        bytes.clear();
        bits::pack_at(level, black_box(&x), q.bits(), &mut bytes);
    });
    report(&name("unpack"), n, || {
        bits::unpack_at(level, black_box(&packed), q.bits(), &mut out)
            .expect("the length is right");
    });
}

fn samples(level: SimdLevel) {
    let n = 2048;
    let mut out = vec![0i8; n];
    let prg = Prg::new(&Seed::from_bytes([2; 32]), "pronghorn ring_bench");
    let mut stream = prg.stream(0);
    report("centred_binomial", n, || {
        sample::centred_binomial_at(level, &mut stream, black_box(&mut out))
    });
    report("ternary", n, || {
        sample::ternary(&mut stream, black_box(&mut out))
    });
    let mut bytes = vec![0; 1 << 14];
    report("keystream byte", bytes.len(), || {
        stream.fill(black_box(&mut bytes))
    });
}

/// Prints the best of many short runs.
fn report(what: &str, values: usize, mut run: impl FnMut()) {
    const REPEATS: u32 = 50;
    let best = (0..60)
        .map(|_| {
            let start = Instant::now();
            (0..REPEATS).for_each(|_| run());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(REPEATS)
        })
        .fold(f64::INFINITY, f64::min);
    println!(
        "  {what:<28} {:>8.3} ns a value {:>10.3} us a call",
        best / values as f64,
        best / 1e3
    );
}
