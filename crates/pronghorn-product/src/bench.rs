//! The rate that a layer can at most reach: the micro-kernel alone, its operands in the cache.

use std::hint::black_box;
use std::time::Instant;

use pronghorn_ring::SimdLevel;

use crate::kernel::{Columns, Kernel, Offsets, SUMS, Steps, Sums};
use crate::simd::Backend;

/// Steps of one kernel call.
const STEPS: usize = 128;

/// Calls between two readings of the clock.
const CALLS: usize = 1024;

/// A measured ceiling.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// The multiply-add instruction measured.
    pub instruction: &'static str,
    /// Multiply-adds of a two-limb word (a 31-bit modulus) by a weight, a second and thread.
    pub rate: f64,
}

/// Measures the micro-kernel of a level on one thread, with operands in the first-level cache,
/// for two-limb words and full register blocks: the ceiling of [`multiply_at`](crate::multiply_at).
///
/// The best of `rounds` rounds of about a millisecond each; none for a level this CPU lacks.
pub fn ceiling(level: SimdLevel, rounds: usize) -> Option<Ceiling> {
    match Backend::all(level).pop()? {
        Backend::Portable => Some(measure("portable", crate::kernel::Portable, rounds)),
        #[cfg(target_arch = "x86_64")]
        Backend::Sse2(cpu) => Some(measure("pmaddwd xmm", cpu, rounds)),
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2(cpu) => Some(measure("vpmaddwd ymm", cpu, rounds)),
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512(cpu) => Some(measure("vpmaddwd zmm", cpu, rounds)),
        #[cfg(target_arch = "x86_64")]
        Backend::Vnni(cpu) => Some(measure("vpdpwssd zmm", cpu, rounds)),
        #[cfg(target_arch = "x86_64")]
        Backend::Amx(cpu) => Some(Ceiling {
            instruction: "tdpbsud tmm",
            rate: best(rounds, || cpu.multiply_tiles(STEPS, CALLS)),
        }),
    }
}

fn measure<K: Kernel<N>, const N: usize>(
    instruction: &'static str,
    kernel: K,
    rounds: usize,
) -> Ceiling {
    const LIMBS: usize = 2;
    let rows = kernel.most_rows(LIMBS);
    let data: Vec<u32> = (0..STEPS * LIMBS * N).map(|i| i as u32 * 40_503).collect();
    let weights: Vec<u32> = (0..STEPS * rows).map(|i| i as u32 & 0x000f_000f).collect();
    let mut offsets = Offsets::default();
    (0..STEPS).for_each(|step| offsets.push((step * LIMBS * N) as u32));
    let bias = vec![0; rows * LIMBS];
    let columns = Columns {
        blocks: 1,
        apart: 0,
    };
    let mut sums = Sums([0; SUMS]);
    let round = || {
        for _ in 0..CALLS {
            let steps = Steps::<N>::new(
                &offsets,
                0..STEPS,
                black_box(&data),
                LIMBS,
                &weights,
                rows,
                0..rows,
                &bias,
                (columns, 1),
            );
            kernel.run(steps, &mut sums);
            black_box(&mut sums);
        }
        // Each lane multiplies two words of each row of weights, one limb of them at a time.
        CALLS * STEPS * rows * N * 2
    };
    Ceiling {
        instruction,
        rate: best(rounds, round),
    }
}

/// The best rate of rounds that say how many multiply-adds they did.
fn best(rounds: usize, mut round: impl FnMut() -> usize) -> f64 {
    let mut rate = || {
        let begin = Instant::now();
        let multiply_adds = round();
        multiply_adds as f64 / begin.elapsed().as_secs_f64()
    };
    (0..rounds.max(1)).map(|_| rate()).fold(0.0, f64::max)
}
