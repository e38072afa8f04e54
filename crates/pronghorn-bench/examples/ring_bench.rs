//! Nanoseconds of everything in this crate, at every level this CPU has, on one core, on data
//! aligned to lines of the cache: `cargo run --release -p pronghorn-bench
//! --example ring_bench [-- WORD...]` prints the lines that have all the words.

use std::hint::black_box;
use std::time::Instant;

use pronghorn_ring::random::{Prg, Seed};
use pronghorn_ring::{Ntt, Prime, SimdLevel, Word, bits, modulus, sample, vector};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let bench = Bench { words };
    for level in SimdLevel::available() {
        for log_n in 11..=16 {
            bench.transforms::<u32>(level, 1 << log_n, &[28, 30, 31]);
            bench.transforms::<u64>(level, 1 << log_n, &[40, 49, 50, 60]);
        }
        bench.elementwise::<u32>(level, 4096, 30);
        bench.elementwise::<u64>(level, 4096, 50);
        bench.elementwise::<u64>(level, 4096, 60);
        bench.samples(level);
    }
}

struct Bench {
    /// Only what has all of these in its name is run.
    words: Vec<String>,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.words.iter().all(|word| name.contains(word))
    }

    /// One line for each size of prime: degree, word, prime, level, and both directions.
    fn transforms<W: Word>(&self, level: SimdLevel, n: usize, sizes: &[u32]) {
        for &prime_bits in sizes {
            let word = W::BITS;
            let name = format!("NTT n={n} u{word} {prime_bits} bits {level:?}");
            if !self.wants(&name) {
                continue;
            }
            let ntt = Ntt::<W>::new(n, prime(prime_bits, n)).expect("it has an NTT");
            let mut x = Aligned::uniform(ntt.modulus(), n, 0);
            let forward = best(n, || ntt.forward_at(level, black_box(x.words())));
            let inverse = best(n, || ntt.inverse_at(level, black_box(x.words())));
            println!("{name:<42} forward {forward:>9.0} ns  inverse {inverse:>9.0} ns");
        }
    }

    fn elementwise<W: Word>(&self, level: SimdLevel, n: usize, prime_bits: u32) {
        const TERMS: usize = 8;
        let q = prime::<W>(prime_bits, n);
        let p = prime::<W>(prime_bits - 1, n);
        let mut columns: Vec<_> = (0..2 * TERMS)
            .map(|i| Aligned::uniform(&q, n, i as u64))
            .collect();
        let mut out = Aligned::uniform(&q, n, 99);
        let out = out.words();
        let slices: Vec<&[W]> = columns.iter_mut().map(|column| &*column.words()).collect();
        let (x, y, w) = (slices[0], slices[1], slices[1][0]);
        let y_shoup: Vec<W> = y.iter().map(|&y| q.shoup(y)).collect();
        let mut packed = Vec::new();
        bits::pack(x, q.bits(), &mut packed);
        let mut bytes = Vec::with_capacity(packed.len());
        let mut stream = Prg::new(&Seed::from_bytes([1; 32]), "pronghorn ring_bench").stream(0);

        let case = |what: &str, run: &mut dyn FnMut()| {
            let name = format!("{what} n={n} u{} {prime_bits} bits {level:?}", W::BITS);
            self.values(&name, n, run);
        };
        case("add", &mut || {
            vector::add_at(level, &q, black_box(x), y, out)
        });
        case("mul", &mut || {
            vector::mul_at(level, &q, black_box(x), y, out)
        });
        case("mul_add_assign", &mut || {
            vector::mul_add_assign_at(level, &q, out, black_box(x), y)
        });
        case("mul_shoup", &mut || {
            vector::mul_shoup_at(level, &q, black_box(x), y, &y_shoup, out)
        });
        case("mul_scalar_add_assign", &mut || {
            vector::mul_scalar_add_assign_at(level, &q, out, black_box(x), w)
        });
        case("reduce_from", &mut || {
            vector::reduce_from_at(level, &p, &q, black_box(x), out)
        });
        case("inner_product of 8", &mut || {
            vector::inner_product_at(
                level,
                &q,
                black_box(&slices[..TERMS]),
                &slices[TERMS..],
                out,
            )
        });
        case("uniform_public", &mut || {
            sample::uniform_public_at(level, &mut stream, &q, black_box(out))
        });
        case("pack", &mut || {
            bytes.clear();
            bits::pack_at(level, black_box(x), q.bits(), &mut bytes);
        });
        case("unpack", &mut || {
            bits::unpack_at(level, black_box(&packed), q.bits(), out).expect("the length is right");
        });
    }

    fn samples(&self, level: SimdLevel) {
        let mut out = [0i8; 2048];
        let mut bytes = [0; 1 << 14];
        let mut stream = Prg::new(&Seed::from_bytes([2; 32]), "pronghorn ring_bench").stream(0);
        self.values(
            &format!("centred_binomial {level:?}"),
            out.len(),
            &mut || sample::centred_binomial_at(level, &mut stream, black_box(&mut out)),
        );
        self.values(&format!("ternary {level:?}"), out.len(), &mut || {
            sample::ternary(&mut stream, black_box(&mut out))
        });
        self.values(
            &format!("keystream byte {level:?}"),
            bytes.len(),
            &mut || stream.fill(black_box(&mut bytes)),
        );
    }

    fn values(&self, name: &str, values: usize, run: &mut dyn FnMut()) {
        if self.wants(name) {
            let time = best(values, run) / values as f64;
            println!("{name:<50} {time:>8.3} ns a value");
        }
    }
}

/// The largest NTT prime of some bits.
fn prime<W: Word>(bits: u32, n: usize) -> Prime<W> {
    let prime = modulus::largest_ntt_prime(bits, n).expect("there are such primes");
    Prime::new(prime).expect("it is a prime")
}

/// Nanoseconds a call: the least of many short runs.
fn best(values: usize, mut run: impl FnMut()) -> f64 {
    let calls = 4096 / values + 1;
    (0..1000)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| run());
            start.elapsed().as_secs_f64() * 1e9 / calls as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Words from a multiple of 64 bytes on.
struct Aligned<W> {
    buffer: Vec<W>,
    start: usize,
    n: usize,
}

impl<W: Word> Aligned<W> {
    fn uniform(q: &Prime<W>, n: usize, index: u64) -> Self {
        let mut buffer = vec![W::default(); n + 64];
        let start = buffer.as_ptr().align_offset(64).min(64);
        let prg = Prg::new(&Seed::from_bytes([1; 32]), "pronghorn ring_bench");
        sample::uniform_public(&mut prg.stream(index), q, &mut buffer[start..start + n]);
        Self { buffer, start, n }
    }

    fn words(&mut self) -> &mut [W] {
        &mut self.buffer[self.start..self.start + self.n]
    }
}
