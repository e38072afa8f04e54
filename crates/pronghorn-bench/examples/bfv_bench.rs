//! Times of BFV operations at N = 4096 and N = 8192, in microseconds on one core: the fastest of
//! several runs, and two ways to a sum of products of rotations side by side, alternating.
//!
//! `cargo run --release -p pronghorn-bench --example bfv_bench`

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use pronghorn_he::bfv::{
    Ciphertext, EvaluationKeys, Factor, Hider, Multiplier, Noise, Parameters, PublicKey, Rotation,
    SecretKey, Workload, rotated_products,
};
use pronghorn_ring::random::Seed;

/// Runs of each operation.
const RUNS: usize = 30;
/// Sizes of the sums.
const TERMS: [usize; 4] = [4, 8, 16, 32];

/// Microseconds of the fastest run of each, alternating.
fn fastest<const K: usize>(operations: [&mut dyn FnMut(); K]) -> [f64; K] {
    let mut fastest = [Duration::MAX; K];
    let mut operations = operations;
    for _ in 0..RUNS {
        for (operation, fastest) in operations.iter_mut().zip(&mut fastest) {
            let start = Instant::now();
            operation();
            *fastest = start.elapsed().min(*fastest);
        }
    }
    fastest.map(|time| time.as_secs_f64() * 1e6)
}

fn row(name: &str, operation: &mut dyn FnMut()) {
    let [time] = fastest([operation]);
    println!("  {name:<44}{time:>9.1}");
}

struct Bench {
    parameters: Parameters<u64>,
    key: SecretKey<u64>,
    public: PublicKey<u64>,
    keys: EvaluationKeys<u64>,
    ciphertext: Ciphertext<u64>,
    plains: Vec<Multiplier<u64>>,
}

impl Bench {
    fn new(parameters: &Parameters<u64>) -> Self {
        let seed = |byte| Seed::from_bytes([byte; 32]);
        let key = SecretKey::generate(parameters, &seed(1));
        let most = TERMS[TERMS.len() - 1];
        let steps: Vec<i64> = (1..=most as i64).collect();
        let values =
            |factor: i32| -> Vec<i32> { (0..parameters.n() as i32).map(|i| i * factor).collect() };
        let plain = parameters.encode(&values(3)).expect("the values fit");
        let plains = (0..most as i32).map(|j| {
            parameters
                .multiplier(&values(2 * j + 5))
                .expect("the values fit")
        });
        Self {
            parameters: parameters.clone(),
            public: PublicKey::generate_from_seed(&key, &seed(2)),
            keys: EvaluationKeys::generate_from_seed(&key, &steps, false, &seed(3))
                .expect("there is key switching"),
            ciphertext: key
                .encryptor_from_seed(&seed(4))
                .encrypt(&plain)
                .expect("parameters agree")
                .expand(),
            plains: plains.collect(),
            key,
        }
    }

    fn operations(&self) {
        let Self {
            parameters,
            key,
            public,
            keys,
            ciphertext,
            plains,
        } = self;
        let values: Vec<i32> = (0..parameters.n() as i32).collect();
        let plain = parameters.encode(&values).expect("the values fit");
        let mut encryptor = key.encryptor_from_seed(&Seed::from_bytes([5; 32]));
        row("encode", &mut || {
            drop(black_box(parameters.encode(&values)))
        });
        row("prepare a plaintext for products", &mut || {
            drop(black_box(plain.to_multiplier()))
        });
        row("encrypt", &mut || {
            drop(black_box(encryptor.encrypt(&plain)))
        });
        row("decrypt", &mut || drop(black_box(key.decrypt(ciphertext))));
        let mut sum = ciphertext.clone();
        row("add", &mut || {
            sum.add_assign(ciphertext).expect("parameters agree")
        });
        row("product with a plaintext", &mut || {
            drop(black_box(ciphertext.mul_plain(&plains[0])))
        });
        row("rotate", &mut || {
            drop(black_box(ciphertext.rotate(1, keys)))
        });
        let steps: Vec<i64> = (1..=16).collect();
        let [many] = fastest([&mut || drop(black_box(ciphertext.rotate_many(&steps, keys)))]);
        println!(
            "  {:<44}{:>9.1}",
            "hoisted rotation, one of 16",
            many / 16.0
        );
        let noise = Noise::of_secret_encryption().times(parameters.largest_norm());
        let (hider, format) = (
            Hider::new(&Seed::from_bytes([6; 32])),
            parameters
                .answer_format(noise, 1)
                .expect("a product has room"),
        );
        row("hide and shorten an answer", &mut || {
            drop(black_box(hider.hide(0, ciphertext, public, &format)))
        });
        let answer = hider
            .hide(0, ciphertext, public, &format)
            .expect("parameters agree");
        row("decrypt an answer", &mut || {
            drop(black_box(key.decrypt_answer(&answer)))
        });
        let (mut bytes, mut seeded) = (Vec::new(), Vec::new());
        answer.encode(&mut bytes);
        encryptor
            .encrypt(&plain)
            .expect("parameters agree")
            .encode(&mut seeded);
        println!(
            "  bytes: ciphertext with its seed {}, answer {}",
            seeded.len(),
            bytes.len()
        );
    }

    fn sums(&self) {
        let Self {
            keys,
            ciphertext,
            plains,
            ..
        } = self;
        for terms in TERMS {
            let steps: Vec<i64> = (1..=terms as i64).collect();
            let rotations: Vec<_> = steps
                .iter()
                .map(|&steps| Rotation::left(0, steps))
                .collect();
            let mut hoisted = || {
                let rotated = ciphertext
                    .rotate_many(&steps, keys)
                    .expect("there are keys");
                let products = rotated
                    .iter()
                    .zip(plains)
                    .map(|(x, plain)| x.mul_plain(plain).expect("parameters agree"));
                black_box(products.reduce(|mut sum, x| {
                    sum.add_assign(&x).expect("parameters agree");
                    sum
                }));
            };
            let mut together = || {
                let factors = plains[..terms].iter().map(Factor::Times).collect();
                drop(black_box(rotated_products(
                    &[ciphertext],
                    &rotations,
                    &[factors],
                    keys,
                )));
            };
            let [apart, sum] = fastest([&mut hoisted, &mut together]);
            println!(
                "  sum of {terms:>2} products of rotations: hoisted, then products {apart:>8.1}, together {sum:>8.1}, {:.2} times faster",
                apart / sum
            );
        }
    }
}

fn main() {
    let inputs = |t_bits| Workload {
        t_bits,
        products: 1 << 10,
        input_rotations: true,
        output_rotations: 0,
        doublings: 0,
    };
    let sets = [
        ("N = 4096, 50+50, digits of 17", Parameters::small(20)),
        (
            "N = 4096, for input rotations",
            Parameters::with_bits(4096, &[53, 53], &[], 9, 17),
        ),
        (
            "N = 8192, for input rotations",
            Parameters::for_workload(8192, &inputs(17), 1),
        ),
        (
            "N = 8192, for input rotations",
            Parameters::for_workload(8192, &inputs(20), 1),
        ),
        ("N = 8192, 50+50+50, special 50", Parameters::large(20)),
    ];
    for (name, parameters) in sets {
        let parameters = parameters.expect("these parameters exist");
        let bits: Vec<_> = parameters
            .ring()
            .basis()
            .primes()
            .map(|q| q.bits())
            .collect();
        println!(
            "{name}: primes of {bits:?} bits, digits of {:?}, t of {} bits; microseconds",
            parameters.digit_bits(),
            parameters.t().ilog2() + 1
        );
        let bench = Bench::new(&parameters);
        bench.operations();
        bench.sums();
    }
}
