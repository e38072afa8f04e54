//! Values to polynomials and back.

use super::*;

#[test]
fn encodings_are_the_canonical_embedding() {
    let n = 32;
    let party = Party::<u64>::new(n, &[60]);
    let coefficients = |re: &[f64], im: &[f64], scale| {
        party
            .parameters
            .encode(re, im, scale, 1)
            .unwrap()
            .to_coefficients()
    };
    // A real constant is a constant, i is X^(N/2).
    let mut expected = vec![0.0; n];
    expected[0] = 3.0 * 1024.0;
    assert_eq!(coefficients(&[3.0; 16], &[], 1024.0), expected);
    expected.swap(0, n / 2);
    assert_eq!(coefficients(&[], &[3.0; 16], 1024.0), expected);
    // The textbook: m_k = 2 / N sum_j Re(z_j zeta^(-k 5^j)), scaled and rounded.
    let (scale, z) = (2f64.powi(40), numbers(n / 2, 1.0, 7));
    let mut exponents = vec![1usize; n / 2];
    for j in 1..n / 2 {
        exponents[j] = exponents[j - 1] * 5 % (2 * n);
    }
    for (k, found) in coefficients(&z.re, &z.im, scale).into_iter().enumerate() {
        let terms = exponents.iter().enumerate().map(|(j, exponent)| {
            let angle = std::f64::consts::PI * (k * exponent % (2 * n)) as f64 / n as f64;
            z.re[j] * angle.cos() + z.im[j] * angle.sin()
        });
        let expected = 2.0 / n as f64 * terms.sum::<f64>() * scale;
        assert!((found - expected).abs() < 0.51, "{k}: {found} {expected}");
    }
}

#[test]
fn large_scales_keep_the_precision_of_doubles() {
    for log_scale in [70, 100, 117] {
        let mut party = Party::<u64>::new(64, &[60, 60]);
        let x = numbers(32, 1.0, 1);
        let found = {
            let x = party.encrypt(&x, 2f64.powi(log_scale), 2);
            party.decrypt(&x)
        };
        assert!(distance(&found, &x) < 2f64.powi(-47).max(2f64.powi(10 - log_scale)));
        let mut party = Party::<u32>::new(64, &[30, 31, 20, 22, 18]);
        let found = {
            let x = party.encrypt(&x, 2f64.powi(log_scale), 5);
            party.decrypt(&x)
        };
        assert!(distance(&found, &x) < 2f64.powi(-47).max(2f64.powi(10 - log_scale)));
    }
}

#[test]
fn values_of_all_sizes_decode_from_many_limbs() {
    let mut party = Party::<u32>::new(64, &[30; 12]);
    // Up to 2^62 the first limbs are enough, beyond they are not.
    for log_value in [0, 40, 61, 63, 65, 100, 300] {
        let x = numbers(32, 2f64.powi(log_value), 1);
        let encrypted = party.encrypt(&x, 2f64.powi(30), 12);
        let found = party.decrypt(&encrypted);
        let tolerance = 2f64.powi(log_value - 45).max(2f64.powi(-18));
        assert!(distance(&found, &x) < tolerance, "2^{log_value}");
    }
}
