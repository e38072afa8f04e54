//! Rates of the matrix product on CryptoNets' two layers, at every instruction level, on one and
//! two threads, beside the ceiling of the bare micro-kernel measured in the same run.
//!
//! `cargo run --release -p pronghorn-product --example product_bench [rounds [columns]]`

use std::hint::black_box;
use std::time::Instant;

use pronghorn_graph::geometry::{ConvGeometry, Window};
use pronghorn_product::{PackedWeights, Tiles, ceiling, multiply_at};
use pronghorn_ring::{Prime, SimdLevel, Word};

fn main() {
    let argument = |at| {
        std::env::args()
            .nth(at)
            .and_then(|argument| argument.parse().ok())
    };
    let rounds = argument(1).unwrap_or(25);
    // By default two polynomials of degree 2048.
    let columns = argument(2).unwrap_or(2 * 2048);
    for level in SimdLevel::available() {
        for (name, geometry) in layers() {
            // 2^31 - 1 and 2^48 - 59.
            measure::<u32>(level, name, &geometry, 2_147_483_647, (rounds, columns));
            measure::<u64>(
                level,
                name,
                &geometry,
                281_474_976_710_597,
                (rounds, columns),
            );
        }
    }
}

/// The 5x5 convolution of stride 2 with 5 maps on padded 28x28, and the dense layer behind it.
fn layers() -> [(&'static str, ConvGeometry); 2] {
    let geometry = |channels: [usize; 2], side, kernel, stride, padding| ConvGeometry {
        in_channels: channels[0],
        out_channels: channels[1],
        input: [side; 2],
        window: Window {
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1; 2],
            padding: [padding; 4],
        },
        groups: 1,
    };
    [
        ("dense 845 to 100", geometry([845, 100], 1, 1, 1, 0)),
        ("5x5/2, 1 to 5 maps", geometry([1, 5], 28, 5, 2, 1)),
    ]
}

/// Prints the best rate of `rounds` on one and two threads, and the median of its ratio to the
/// ceiling measured right after it on as many threads, since clocks and neighbours change.
fn measure<W: Word>(
    level: SimdLevel,
    name: &str,
    geometry: &ConvGeometry,
    q: u64,
    (rounds, columns): (usize, usize),
) {
    let q = Prime::<W>::new(q).expect("a prime");
    let [height, width] = geometry.window.kernel;
    let count = geometry.out_channels * geometry.in_channels * height * width;
    let weights: Vec<i32> = (0..count).map(|i| (i * 7919 % 127) as i32 - 63).collect();
    let packed = PackedWeights::new(geometry, &weights).expect("a valid layer");
    let input: Vec<W> = (0..packed.inputs() * columns)
        .map(|i| W::from_u64((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % q.value()))
        .collect();
    let mut output = Tiles::new(packed.outputs(), columns);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.expect("threads start");
        let mut layer = || {
            let begin = Instant::now();
            pool.install(|| {
                multiply_at(level, &packed, &q, &input, columns, None, &mut output);
            });
            black_box(&mut output);
            packed.multiply_adds() as f64 * columns as f64 / begin.elapsed().as_secs_f64()
        };
        let kernel = || pool.broadcast(|_| ceiling(level, 2).expect("available"));
        let (mut best, mut most, mut ratios) = (0.0_f64, 0.0_f64, Vec::new());
        let mut instruction = "";
        for _ in 0..rounds {
            let (rate, ceilings) = (layer(), kernel());
            let ceiling = ceilings.iter().map(|ceiling| ceiling.rate).sum();
            (best, most) = (best.max(rate), most.max(ceiling));
            ratios.push(rate / ceiling);
            instruction = ceilings[0].instruction;
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "{instruction:<12} {name:<18} {:2}-bit words, {}-bit modulus, {threads} threads: \
             {:6.1} of {:6.1} G multiply-adds/s, ratio {:.2}, median {:.2}",
            W::BITS,
            u64::BITS - q.value().leading_zeros(),
            best / 1e9,
            most / 1e9,
            best / most,
            ratios[ratios.len() / 2]
        );
    }
}
