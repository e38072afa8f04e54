//! Norms of layers as linear maps.

use std::f64::consts::PI;

use pronghorn_ring::random::{Prg, Seed};

use crate::packing::Packing;

/// Steps of the power method: `0.824 sqrt(n) (3/4)^(k - 1/2) < 2^-64` for `n = 2^24`.
const STEPS: usize = 184;
/// The most that the norm found is below the true one, squared.
const SHORTFALL: f64 = 0.25;

/// A layer from slots of its input to its outputs, of which folds sum up each slot's part.
pub fn slot_matrix(
    packing: &Packing,
    slots: usize,
    weight: impl Fn(usize) -> f64,
) -> Vec<Vec<(usize, f64)>> {
    let layout = &packing.output;
    let mut output_of = vec![vec![None; slots]; layout.ciphertexts()];
    for (output, place) in layout.places.iter().enumerate() {
        let Some(place) = place else { continue };
        let mut summed = vec![place.slot];
        for fold in &packing.folds {
            summed.extend(summed.clone().into_iter().map(|slot| (slot + fold) % slots));
        }
        for slot in summed {
            output_of[place.ciphertext][slot] = Some(output);
        }
    }
    let mut rows = vec![Vec::new(); layout.places.len()];
    for (products, output_of) in packing.products.iter().zip(&output_of) {
        for product in products {
            let rotation = product.rotation;
            for spot in &product.weights {
                for slot in (spot.slot..slots).step_by(packing.period) {
                    if let Some(output) = output_of[slot] {
                        let from = rotation.ciphertext * slots + (slot + rotation.steps) % slots;
                        rows[output].push((from, weight(spot.index)));
                    }
                }
            }
        }
    }
    rows
}

/// The largest sum of absolute weights that meet one slot of the input, before folds.
pub fn columns_of<T: AsRef<[f64]>>(
    weights: &[Vec<T>],
    packing: &Packing,
    ciphertexts: usize,
    slots: usize,
) -> f64 {
    let mut sums = vec![0.0; ciphertexts * slots];
    for (products, weights) in packing.products.iter().zip(weights) {
        for (product, weights) in products.iter().zip(weights) {
            let rotation = product.rotation;
            for (slot, weight) in weights.as_ref().iter().enumerate() {
                let from = rotation.ciphertext * slots + (slot + rotation.steps) % slots;
                sums[from] += weight.abs();
            }
        }
    }
    sums.into_iter().fold(0.0, f64::max)
}

/// A bound on `|L|_2^2`, by rows `(column, entry)`; entries of one place add up.
pub fn norm(rows: &[Vec<(usize, f64)>]) -> f64 {
    let squares = |row: &Vec<(usize, f64)>| -> f64 {
        let row = summed(row.iter().copied());
        row.iter().map(|(_, w)| w * w).sum()
    };
    let frobenius: f64 = rows.iter().map(squares).sum();
    let mut columns = rows.iter().flatten().map(|(j, _)| *j).collect::<Vec<_>>();
    columns.sort_unstable();
    columns.dedup();
    let place = |j: &usize| columns.binary_search(j).unwrap_or_default();
    let rows: Vec<Vec<(usize, f64)>> = rows
        .iter()
        .map(|row| row.iter().map(|(j, w)| (place(j), *w)).collect())
        .collect();
    let mut x = random_direction(&rows);
    let mut y = vec![0.0; columns.len()];
    let mut found: f64 = 0.0;
    for _ in 0..STEPS {
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length == 0.0 {
            break;
        }
        y.fill(0.0);
        for (row, x) in rows.iter().zip(&x) {
            row.iter().for_each(|&(j, w)| y[j] += w * x / length);
        }
        // The Rayleigh quotient of the direction.
        found = y.iter().map(|y| y * y).sum();
        for (row, x) in rows.iter().zip(&mut x) {
            *x = row.iter().map(|&(j, w)| w * y[j]).sum();
        }
    }
    (found / (1.0 - SHORTFALL)).min(frobenius)
}

/// A row with one entry a column.
pub fn summed(row: impl Iterator<Item = (usize, f64)>) -> Vec<(usize, f64)> {
    let mut row: Vec<_> = row.collect();
    row.sort_unstable_by_key(|(column, _)| *column);
    row.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 += next.1;
        }
        is_same
    });
    row
}

/// A direction without preference, which follows from the matrix.
fn random_direction(rows: &[Vec<(usize, f64)>]) -> Vec<f64> {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 norm of a layer");
    for (_, weight) in rows.iter().flatten() {
        hasher.update(&weight.to_le_bytes());
    }
    let seed = Seed::from_bytes(*hasher.finalize().as_bytes());
    let mut stream = Prg::new(&seed, "pronghorn 2026 norm of a layer").stream(0);
    let mut uniform = || {
        let mut bytes = [0; 8];
        stream.fill(&mut bytes);
        ((u64::from_le_bytes(bytes) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    // Box and Muller.
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (2.0 * PI * uniform()).cos();
    rows.iter().map(|_| normal()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(dense: &[&[f64]]) -> Vec<Vec<(usize, f64)>> {
        let row = |row: &&[f64]| row.iter().copied().enumerate().collect();
        dense.iter().map(row).collect()
    }

    /// Above the true norm, and not by more than what the method may miss.
    fn is_norm(matrix: &[&[f64]], square: f64) {
        let found = norm(&rows(matrix));
        let most = square / (1.0 - SHORTFALL) * (1.0 + 1e-9);
        assert!((square..=most).contains(&found), "{found} {square}");
    }

    #[test]
    fn norms_are_known() {
        is_norm(
            &[&[3.0, 0.0, 0.0], &[0.0, -2.0, 0.0], &[0.0, 0.0, 1.0]],
            9.0,
        );
        is_norm(&[&[1.0, 1.0], &[1.0, -1.0]], 2.0);
        is_norm(&[&[1.0; 7][..]; 5], 35.0);
        is_norm(&[&[0.5, 0.0, 2.0]], 4.25);
        assert_eq!(norm(&rows(&[&[0.0, 0.0]])), 0.0);
        // Two entries of one place are one.
        let twice = norm(&[vec![(0, 1.0), (1, 1.0), (0, 1.0)]]);
        assert!((5.0..5.0 / (1.0 - SHORTFALL)).contains(&twice), "{twice}");
        // A dense layer of many weights: less than the rows' norms together by far.
        let weight = |i: usize| (i as f64 * 0.618).sin() * (i as f64 * 1.37).cos();
        let layer: Vec<Vec<(usize, f64)>> = (0..32)
            .map(|o| (0..400).map(|j| (j, weight(o * 400 + j))).collect())
            .collect();
        let frobenius: f64 = layer.iter().flatten().map(|(_, w)| w * w).sum();
        assert!(norm(&layer) <= frobenius);
    }
}
