//! Times of kernels on one fixed secret and on random ones, compared (Reparaz, Balasch and
//! Verbauwhede, "Dude, is my code constant time?", DATE 2017).

use std::time::Instant;

use pronghorn_ring::SimdLevel;

use crate::{
    kernels::{self, Kernel, SECRET_BYTES},
    randomness,
};

/// Runs of a kernel at a level.
const RUNS: usize = 20_000;
/// Random secrets, in turn.
const SECRETS: usize = 64;

/// Prints Welch's t of every kernel at every level that this CPU has.
pub fn compare() {
    let control = Kernel {
        name: "control",
        at: kernels::control,
    };
    println!(
        "{:28}  {:10}  {:>8}  {:>8}",
        "kernel", "level", "t", "t of 90%"
    );
    for kernel in std::iter::once(&control).chain(kernels::ALL) {
        for level in SimdLevel::available() {
            let [all, cropped] = t_values(kernel, level);
            let level = format!("{level:?}").to_lowercase();
            println!("{:28}  {level:10}  {all:8.1}  {cropped:8.1}", kernel.name);
        }
    }
}

/// Welch's t of all times, and of the fastest nine tenths.
fn t_values(kernel: &Kernel, level: SimdLevel) -> [f64; 2] {
    let mut run = (kernel.at)(level);
    let mut index = 0;
    let mut random = || {
        index += 1;
        randomness::word(index)
    };
    let mut secret = || -> Vec<u8> {
        (0..SECRET_BYTES / 8)
            .flat_map(|_| random().to_le_bytes())
            .collect()
    };
    let secrets: Vec<Vec<u8>> = (0..SECRETS).map(|_| secret()).collect();
    // As many copies, and all copied to one place, so that neither kind is warmer.
    let fixed = vec![vec![0; SECRET_BYTES]; SECRETS];
    let mut place = vec![0; SECRET_BYTES];
    let times: Vec<(bool, f64)> = (0..RUNS)
        .map(|_| {
            let choice = random();
            let is_fixed = choice & 1 == 0;
            let of_kind = if is_fixed { &fixed } else { &secrets };
            place.copy_from_slice(&of_kind[(choice >> 1) as usize % SECRETS]);
            let start = Instant::now();
            run(&place);
            (is_fixed, start.elapsed().as_secs_f64())
        })
        .skip(RUNS / 20)
        .collect();
    let mut sorted: Vec<f64> = times.iter().map(|(_, time)| *time).collect();
    sorted.sort_by(f64::total_cmp);
    let most = sorted[sorted.len() * 9 / 10];
    let t = |most: f64| {
        let of = |fixed: bool| {
            let times = times
                .iter()
                .filter(|(is, time)| *is == fixed && *time <= most);
            times.map(|(_, time)| *time).collect::<Vec<f64>>()
        };
        welch(&of(true), &of(false))
    };
    [t(f64::INFINITY), t(most)]
}

/// Welch's t: the difference of the means in standard errors.
fn welch(x: &[f64], y: &[f64]) -> f64 {
    let moments = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let squares = x.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
        (mean, squares / (x.len() as f64 - 1.0) / x.len() as f64)
    };
    let ((mean_x, error_x), (mean_y, error_y)) = (moments(x), moments(y));
    (mean_x - mean_y) / (error_x + error_y).sqrt()
}
