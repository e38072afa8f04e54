//! Convolutions as products of values at points.
//!
//! `m` outputs of a kernel of `r` taps, `y[i] = sum_k w[k] x[i + k]`, take `L = m + r - 1` products
//! instead of `m r`: multiplication of polynomials by their values at `L` points, transposed (A.
//! Toom 1963; S. Winograd, "Arithmetic complexity of computations", 1980, section V; A. Lavin, S.
//! Gray, CVPR 2016, for layers). With the Vandermonde matrix `V[i][j] = a_i^j` modulo `t`,
//! `y = V_m^T ((V_r w) . (V^-T x))`, exactly, whatever the points are, as long as they differ. Both
//! outer maps are linear: parties apply them to their own shares, and only the products in the
//! middle are encrypted (as FALCON has it with Fourier transforms: S. Li et al., CVPR 2020).

use pronghorn_ring::Prime;

/// Most points: transforms take this many products a value.
pub(super) const MOST_POINTS: usize = 64;

/// The points `0, 1, -1, 2, -2, ...`.
pub(super) fn point(t: &Prime<u64>, index: usize) -> u64 {
    let half = index.div_ceil(2) as i64;
    t.from_i64(if index % 2 == 1 { half } else { -half })
}

/// Rows of `V^-T`: the coefficients of the polynomial that is one at a point and zero at the
/// others.
pub(super) fn lagrange(t: &Prime<u64>, count: usize) -> Vec<Vec<u64>> {
    let points: Vec<u64> = (0..count).map(|index| point(t, index)).collect();
    let row = |index: usize| {
        let (mut row, mut scale) = (vec![1], 1);
        for (other, &a) in points.iter().enumerate() {
            if other != index {
                row = times_linear(t, &row, a);
                scale = t.mul(scale, t.sub(points[index], a));
            }
        }
        let inverse = t.inverse(scale).expect("points differ modulo t");
        row.iter().map(|&c| t.mul(c, inverse)).collect()
    };
    (0..count).map(row).collect()
}

/// `p (X - a)`.
fn times_linear(t: &Prime<u64>, p: &[u64], a: u64) -> Vec<u64> {
    let mut out = vec![0; p.len() + 1];
    for (j, &c) in p.iter().enumerate() {
        out[j + 1] = t.add(out[j + 1], c);
        out[j] = t.sub(out[j], t.mul(c, a));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_at_points() {
        let t = Prime::<u64>::new(40_961).unwrap();
        for (m, r) in [(1, 1), (2, 3), (4, 3), (16, 3), (5, 7), (60, 5)] {
            let x: Vec<u64> = (0..m + r - 1)
                .map(|i| (i * i * 7919 + 5) as u64 % 40_961)
                .collect();
            let w: Vec<u64> = (0..r).map(|i| (i * 31_337 + 11) as u64 % 40_961).collect();
            let dot = |x: &[u64], y: &[u64]| {
                let pairs = x.iter().zip(y);
                pairs.fold(0, |sum, (&x, &y)| t.add(sum, t.mul(x, y)))
            };
            let powers = |index: usize, count: usize| -> Vec<u64> {
                let a = point(&t, index);
                (0..count as u64).map(|j| t.pow(a, j)).collect()
            };
            let products: Vec<u64> = lagrange(&t, m + r - 1)
                .iter()
                .enumerate()
                .map(|(index, row)| t.mul(dot(row, &x), dot(&powers(index, r), &w)))
                .collect();
            for i in 0..m {
                let column: Vec<u64> = (0..m + r - 1).map(|l| powers(l, m)[i]).collect();
                assert_eq!(dot(&column, &products), dot(&w, &x[i..i + r]), "{m} {r}");
            }
        }
    }
}
