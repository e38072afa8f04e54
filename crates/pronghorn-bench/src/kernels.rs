//! Figures of `pronghorn bench batch`: what the kernels do on this machine, in one run.

use std::{hint::black_box, time::Instant};

use pronghorn_engine::EngineError;
use pronghorn_graph::geometry::{ConvGeometry, Window};
use pronghorn_he::{
    RlweRing, SecretKey,
    rlwe::{self, Encoding, Scratch},
};
use pronghorn_product::{PackedWeights, Rows, Tiles};
use pronghorn_ring::{
    Prime, SimdLevel, Word, bits,
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    vector,
};
use rayon::prelude::*;

/// One measured figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What was measured.
    pub metric: &'static str,
    /// On which layer or step.
    pub case: String,
    /// The median over repetitions.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Degree and modulus.
    pub parameters: String,
    /// Degree of the ring, for the security level.
    pub degree: usize,
    /// Bits of the modulus.
    pub modulus_bits: u32,
    /// What the machine could do, measured in the same run, in the same unit; 0 where there is no
    /// such figure.
    pub ceiling: f64,
}

/// The degree every figure is for.
const N: usize = 2048;

/// Measures the products and the client's work; the products on rayon's current threads, the rest
/// on one.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn batch(quick: bool) -> Result<Vec<Figure>, EngineError> {
    let repetitions = if quick { 3 } else { 15 };
    let mut figures = Vec::new();
    for level in SimdLevel::available() {
        figures.extend(products::<u32>(level, 31, repetitions));
    }
    figures.extend(products::<u64>(SimdLevel::detect(), 48, repetitions));
    figures.extend(ciphertexts::<u32>(31, repetitions)?);
    figures.extend(ciphertexts::<u64>(48, repetitions)?);
    Ok(figures)
}

/// The median of `repetitions` timings, in seconds.
fn median(repetitions: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut times: Vec<f64> = (0..repetitions)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// CryptoNets' layers, a convolution on 28x28 with 5 maps and 845 to 100, and kinds of layers of
/// MobileNetV2 with 0.35 of its maps on pictures of 96x96: maps, side, kernel, stride, padding and
/// groups.
const LAYERS: [(&str, [usize; 2], [usize; 5]); 8] = [
    ("dense 845 to 100", [845, 100], [1, 1, 1, 0, 1]),
    ("conv 5x5/2, 1 to 5 maps on 28x28", [1, 5], [28, 5, 2, 1, 1]),
    (
        "conv 3x3/2, 3 to 16 maps on 48x48",
        [3, 16],
        [48, 3, 2, 1, 1],
    ),
    (
        "conv 3x3, 16 to 16 maps on 16x16",
        [16, 16],
        [16, 3, 1, 1, 1],
    ),
    (
        "depthwise 3x3, 48 maps on 12x12",
        [48, 48],
        [12, 3, 1, 1, 48],
    ),
    (
        "depthwise 3x3/2, 48 maps on 12x12",
        [48, 48],
        [12, 3, 2, 1, 48],
    ),
    ("conv 1x1, 8 to 48 maps on 12x12", [8, 48], [12, 1, 1, 0, 1]),
    ("conv 1x1, 96 to 16 maps on 6x6", [96, 16], [6, 1, 1, 0, 1]),
];

fn layers() -> impl Iterator<Item = (&'static str, ConvGeometry)> {
    LAYERS.into_iter().map(|(name, maps, sizes)| {
        let [side, kernel, stride, padding, groups] = sizes;
        let geometry = ConvGeometry {
            in_channels: maps[0],
            out_channels: maps[1],
            input: [side; 2],
            window: Window {
                kernel: [kernel; 2],
                stride: [stride; 2],
                dilation: [1; 2],
                padding: [padding; 4],
            },
            groups,
        };
        (name, geometry)
    })
}

/// Seconds to read the input from memory and to write an output of so many words, by all threads:
/// no product of rows in memory is faster.
fn streaming<W: Word>(input: &[W], outputs: usize, repetitions: usize) -> f64 {
    const CHUNK: usize = 4096;
    let mut output = vec![W::default(); outputs];
    let copied = input.len().min(outputs);
    // Not a plain copy: the library's are several times slower at some addresses on some CPUs.
    let zero = black_box(W::default());
    median(repetitions, || {
        let pairs = output.par_chunks_mut(CHUNK).zip(input.par_chunks(CHUNK));
        pairs.for_each(|(out, words)| {
            for (out, &word) in out.iter_mut().zip(words) {
                *out = word.max(zero);
            }
        });
        input[copied..].par_chunks(CHUNK).for_each(|words| {
            black_box(vector::largest(words));
        });
        output[copied..].par_chunks_mut(CHUNK).for_each(|out| {
            for out in out {
                *out = (*out).max(zero);
            }
        });
        black_box(&mut output);
    })
}

fn products<W: Word>(level: SimdLevel, modulus_bits: u32, repetitions: usize) -> Vec<Figure> {
    let q = largest_ntt_prime(modulus_bits, N)
        .and_then(|q| Prime::<W>::new(q).ok())
        .expect("such a prime exists");
    let columns = 4 * N;
    // Measured just before, one thread; a word of more limbs takes that much longer.
    let per_word = 2.0 / f64::from(modulus_bits.div_ceil(16));
    let ceiling = pronghorn_product::ceiling(level, 10 * repetitions)
        .map_or(0.0, |ceiling| ceiling.rate * per_word / 1e9);
    let measure = |(name, geometry): (&str, ConvGeometry)| {
        let weights: Vec<i16> = (0..geometry.weights_len())
            .map(|i| (i * 7919 % 63) as i16 - 31)
            .collect();
        let packed = PackedWeights::new(&geometry, &weights).expect("the layers are valid");
        let words =
            |i: usize| W::from_u64((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % q.value());
        let input: Vec<W> = (0..packed.inputs() * columns).map(words).collect();
        let mut output = Tiles::new(packed.outputs(), columns);
        let work = packed.multiply_adds() as f64 * columns as f64 / 1e9;
        let streamed = work / streaming(&input, packed.outputs() * columns, repetitions);
        let seconds = median(repetitions, || {
            pronghorn_product::multiply_at(
                level,
                &packed,
                &q,
                Rows::Together(&input, columns),
                None,
                &mut output,
            );
            black_box(&mut output);
        });
        Figure {
            metric: "product",
            case: format!("{name}, {}-bit words, {level:?}", W::BITS).to_lowercase(),
            value: work / seconds,
            unit: "G multiply-adds/s",
            parameters: format!(
                "N={N} q={} columns={columns} threads={}",
                q.value(),
                rayon::current_num_threads()
            ),
            degree: N,
            modulus_bits,
            ceiling: streamed.min(ceiling * rayon::current_num_threads() as f64),
        }
    };
    // Slower levels have CryptoNets' layers alone.
    let count = if level == SimdLevel::detect() {
        LAYERS.len()
    } else {
        2
    };
    layers().take(count).map(measure).collect()
}

/// Nanoseconds a value of what the client does to every value.
fn ciphertexts<W: Word>(modulus_bits: u32, repetitions: usize) -> Result<Vec<Figure>, EngineError> {
    const ROWS: usize = 64;
    let q = largest_ntt_prime(modulus_bits, N).expect("such a prime exists");
    let ring = RlweRing::<W>::new(N, q).map_err(|source| EngineError::Parameters {
        step: "bench".into(),
        source,
    })?;
    let key = SecretKey::generate(&ring, 1, &Seed::from_os()?);
    let public: Prg = rlwe::a_generator(&Seed::from_os()?);
    let encoding = Encoding {
        scale_log: 12,
        dropped_bits: 0,
        centre: 0,
        low: -64,
        high: 64,
    };
    let messages: Vec<i32> = (0..N).map(|i| (i % 129) as i32 - 64).collect();
    let (mut a, mut b, mut scratch) = (
        vec![W::default(); N],
        vec![W::default(); N],
        Scratch::new(&ring),
    );
    let (mut found, mut packed) = (vec![0i32; N], Vec::new());
    let mut figures = Vec::new();
    let mut figure = |case: &str, seconds: f64| {
        figures.push(Figure {
            metric: "ciphertext",
            case: format!("{case}, {}-bit words", W::BITS),
            value: seconds * 1e9 / (ROWS * N) as f64,
            unit: "ns/value",
            parameters: format!("N={N} q={q} threads=1"),
            degree: N,
            modulus_bits,
            ceiling: 0.0,
        });
    };
    figure(
        "expand a",
        median(repetitions, || {
            (0..ROWS as u64)
                .for_each(|row| rlwe::expand_a(&public, row, ring.modulus(), black_box(&mut a)));
        }),
    );
    figure(
        "encrypt",
        median(repetitions, || {
            for row in 0..ROWS as u64 {
                let fits = key
                    .encrypt_row(
                        (row, 0),
                        &a,
                        &messages,
                        encoding.scale_log,
                        &mut scratch,
                        black_box(&mut b),
                    )
                    .is_ok();
                assert!(fits, "the messages fit");
            }
        }),
    );
    let fits = key
        .encrypt_row(
            (0, 0),
            &a,
            &messages,
            encoding.scale_log,
            &mut scratch,
            &mut b,
        )
        .is_ok();
    assert!(fits, "the messages fit");
    figure(
        "decrypt",
        median(repetitions, || {
            for _ in 0..ROWS {
                let inside = key
                    .decrypt_row(0, &a, &b, &encoding, &mut scratch, black_box(&mut found))
                    .is_ok();
                assert!(inside && found == messages, "decryption failed");
            }
        }),
    );
    figure(
        "pack",
        median(repetitions, || {
            for _ in 0..ROWS {
                packed.clear();
                bits::pack(&b, modulus_bits, black_box(&mut packed));
            }
        }),
    );
    figure(
        "unpack",
        median(repetitions, || {
            for _ in 0..ROWS {
                assert!(
                    bits::unpack(&packed, modulus_bits, black_box(&mut b)).is_ok(),
                    "unpacking failed"
                );
            }
        }),
    );
    Ok(figures)
}
