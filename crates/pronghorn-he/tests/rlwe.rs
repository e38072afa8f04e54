//! Encryption and decryption are inverse, noise is what its bound says, insecure parameters do not
//! exist.

use pronghorn_he::{
    ParameterError, RlweRing, SecretKey, noise,
    rlwe::{self, Encoding, Scratch},
};
use pronghorn_ring::{Word, modulus::largest_ntt_prime, random::Seed};
use proptest::prelude::*;

const N: usize = 2048;

/// Rows of ciphertexts of the messages `message(row, image)`, with the `a` of each.
struct Rows<W: Word> {
    ring: RlweRing<W>,
    key: SecretKey<W>,
    a: Vec<Vec<W>>,
    b: Vec<Vec<W>>,
}

fn encrypt<W: Word>(
    q: u64,
    rows: usize,
    images: usize,
    scale_log: u32,
    message: impl Fn(usize, usize) -> i32,
) -> Rows<W> {
    let ring = RlweRing::<W>::new(N, q).expect("secure parameters");
    let key = SecretKey::generate(&ring, ring.blocks(images), &Seed::from_bytes([7; 32]));
    let public = rlwe::a_generator(&Seed::from_bytes([8; 32]));
    let mut scratch = Scratch::new(&ring);
    let (mut all_a, mut all_b) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let messages: Vec<i32> = (0..images).map(|image| message(row, image)).collect();
        let (mut a, mut b) = (vec![W::default(); N], vec![W::default(); images]);
        rlwe::expand_a(&public, row as u64, ring.modulus(), &mut a);
        key.encrypt_row(
            (row as u64, 0),
            &a,
            &messages,
            scale_log,
            &mut scratch,
            &mut b,
        )
        .expect("messages fit");
        all_a.push(a);
        all_b.push(b);
    }
    Rows {
        ring,
        key,
        a: all_a,
        b: all_b,
    }
}

fn decrypt<W: Word>(rows: &Rows<W>, a: &[W], b: &[W], encoding: &Encoding) -> Option<Vec<i32>> {
    let mut messages = vec![0; b.len()];
    let mut scratch = Scratch::new(&rows.ring);
    rows.key
        .decrypt_row(0, a, b, encoding, &mut scratch, &mut messages)
        .ok()?;
    Some(messages)
}

/// `sum_i weights[i] * rows[i] mod q`, word by word.
fn combine<W: Word>(rows: &[Vec<W>], weights: &[i32], q: u64) -> Vec<W> {
    let word = |column: usize| {
        let sum: i128 = rows
            .iter()
            .zip(weights)
            .map(|(row, &w)| i128::from(w) * i128::from(row[column].to_u64()))
            .sum();
        W::from_u64(sum.rem_euclid(i128::from(q)) as u64)
    };
    (0..rows[0].len()).map(word).collect()
}

fn round_trip<W: Word>(
    bits: u32,
    scale_log: u32,
    (dropped_bits_a, dropped_bits): (u32, u32),
    images: usize,
) {
    let q = largest_ntt_prime(bits, N).expect("such a prime exists");
    // The widest messages that this scale leaves room for, both ends included.
    let most = ((q >> scale_log) as i64 / 2 - 1).min(i64::from(i32::MAX)) as i32;
    let message = |_: usize, image: usize| match image % 4 {
        0 => most,
        1 => -most,
        2 => 0,
        _ => (image as i32).wrapping_mul(0x9e37_79b1u32 as i32) % most,
    };
    let rows = encrypt::<W>(q, 1, images, scale_log, message);
    let b: Vec<W> = rows.b[0]
        .iter()
        .map(|&word| W::from_u64(word.to_u64() >> dropped_bits))
        .collect();
    let encoding = Encoding {
        scale_log,
        dropped_bits,
        centre: 0,
        low: -most,
        high: most,
    };
    let wanted: Vec<i32> = (0..images).map(|image| message(0, image)).collect();
    let ring = RlweRing::<W>::new(N, q).expect("these parameters are secure");
    let mut a = rows.a[0].clone();
    ring.drop_low_bits_public(&mut a, dropped_bits_a);
    assert!(a.iter().all(|word| word.to_u64() <= q >> dropped_bits_a) || dropped_bits_a == 0);
    ring.restore_low_bits_public(&mut a, dropped_bits_a);
    assert_eq!(decrypt(&rows, &a, &b, &encoding), Some(wanted));
}

#[test]
fn decryption_inverts_encryption() {
    for images in [1, 3, N - 1, N, N + 1, 3 * N + 17] {
        round_trip::<u32>(31, 12, (0, 0), images);
        round_trip::<u32>(31, 12, (3, 9), images);
        round_trip::<u32>(24, 8, (0, 6), images);
        round_trip::<u64>(53, 24, (14, 0), images);
        round_trip::<u64>(40, 12, (2, 10), images);
    }
}

/// At scale 1 a decryption shows message plus error: their distribution is what the security table
/// assumes.
#[test]
fn errors_have_the_stated_variance_and_bound() {
    let q = largest_ntt_prime(31, N).expect("such a prime exists");
    let rows = encrypt::<u32>(q, 40, N, 0, |_, _| 0);
    let encoding = Encoding {
        scale_log: 0,
        dropped_bits: 0,
        centre: 0,
        low: -21,
        high: 21,
    };
    let errors = (0..40).flat_map(|row| {
        decrypt(&rows, &rows.a[row], &rows.b[row], &encoding).expect("errors are at most 21")
    });
    let errors: Vec<f64> = errors.map(f64::from).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let variance = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
    assert!(mean.abs() < 0.1, "{mean}");
    assert!((variance - noise::ERROR_VARIANCE).abs() < 0.3, "{variance}");
}

#[test]
fn noise_of_a_linear_combination_is_below_its_bound() {
    let q = largest_ntt_prime(31, N).expect("such a prime exists");
    let weights: Vec<i32> = (0..200).map(|i| (i * 37 % 255) - 127).collect();
    let rows = encrypt::<u32>(q, weights.len(), N, 0, |_, _| 0);
    let (a, b) = (combine(&rows.a, &weights, q), combine(&rows.b, &weights, q));
    let encoding = Encoding {
        scale_log: 0,
        dropped_bits: 0,
        centre: 0,
        low: i32::MIN,
        high: i32::MAX,
    };
    let noise = decrypt(&rows, &a, &b, &encoding).expect("any value is in range");
    let norm1: f64 = weights.iter().map(|&w| f64::from(w).abs()).sum();
    let norm2 = weights
        .iter()
        .map(|&w| f64::from(w).powi(2))
        .sum::<f64>()
        .sqrt();
    let rms = (noise.iter().map(|&e| f64::from(e).powi(2)).sum::<f64>() / N as f64).sqrt();
    let predicted = noise::ERROR_VARIANCE.sqrt() * norm2;
    assert!(
        (rms / predicted - 1.0).abs() < 0.1,
        "measured {rms}, predicted {predicted}"
    );
    let worst = noise
        .iter()
        .map(|e| e.unsigned_abs())
        .max()
        .expect("there are coefficients");
    let bound = noise::linear_bound(norm1, norm2);
    // Not vacuous: 2048 Gaussian samples reach 3 deviations, the bound is at 9.5.
    assert!(
        u64::from(worst) <= bound && f64::from(worst) * 5.0 > bound as f64,
        "worst {worst}, bound {bound}"
    );
}

#[test]
fn values_out_of_range_are_noticed() {
    let q = largest_ntt_prime(31, N).expect("such a prime exists");
    let rows = encrypt::<u32>(q, 1, N, 12, |_, image| i32::from(image == 1000) * 9);
    let encoding = |high| Encoding {
        scale_log: 12,
        dropped_bits: 0,
        centre: 0,
        low: 0,
        high,
    };
    assert!(decrypt(&rows, &rows.a[0], &rows.b[0], &encoding(9)).is_some());
    assert!(decrypt(&rows, &rows.a[0], &rows.b[0], &encoding(8)).is_none());
}

/// Words of a message that is too large would not be uniform: they are never handed out as
/// ciphertext.
#[test]
fn messages_too_large_for_the_modulus_are_refused() {
    fn refused<W: Word>(bits: u32, scale_log: u32) {
        let q = largest_ntt_prime(bits, N).expect("such a prime exists");
        let most = ((q / 2) >> scale_log) as i32;
        let ring = RlweRing::<W>::new(N, q).expect("secure parameters");
        let key = SecretKey::generate(&ring, 1, &Seed::from_bytes([7; 32]));
        let (a, mut b, mut scratch) = (
            vec![W::default(); N],
            vec![W::default(); 5],
            Scratch::new(&ring),
        );
        for (message, fits) in [
            (most, true),
            (-most, true),
            (most + 1, false),
            (-most - 1, false),
            (i32::MIN, false),
        ] {
            let done = key.encrypt_row(
                (0, 0),
                &a,
                &[0, 0, 0, message, 0],
                scale_log,
                &mut scratch,
                &mut b,
            );
            assert_eq!(done.is_ok(), fits, "{message}");
        }
    }
    refused::<u32>(14, 1);
    refused::<u32>(31, 12);
    refused::<u64>(45, 24);
}

#[test]
fn insecure_parameters_do_not_exist() {
    for (n, bits) in [(1024, 27), (2048, 54), (2048, 60), (4096, 107)] {
        let Some(q) = largest_ntt_prime(bits.min(60), n) else {
            continue;
        };
        let refused = RlweRing::<u64>::new(n, q);
        assert_eq!(
            matches!(refused, Err(ParameterError::Security(_))),
            bits <= 60,
            "{n} {bits}"
        );
    }
    assert!(
        RlweRing::<u32>::new(2048, (1 << 31) - 1).is_err(),
        "no NTT prime"
    );
    assert!(RlweRing::<u64>::new(2048, 1 << 40).is_err(), "no prime");
    assert!(RlweRing::<u64>::new(100, 97).is_err(), "no power of two");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn linear_combinations_decrypt_exactly(
        weights in prop::collection::vec(-31i32..=31, 1..30), constant in -1000i32..1000, seed in any::<u32>()
    ) {
        let q = largest_ntt_prime(31, N).expect("such a prime exists");
        let message = |row: usize, image: usize| ((row * 31 + image * 7 + seed as usize) % 127) as i32 - 63;
        let rows = encrypt::<u32>(q, weights.len(), 50, 12, message);
        let (a, b) = (combine(&rows.a, &weights, q), combine(&rows.b, &weights, q));
        let wanted: Vec<i32> = (0..50)
            .map(|image| weights.iter().enumerate().map(|(row, &w)| w * message(row, image)).sum::<i32>() + constant)
            .collect();
        let encoding = Encoding { scale_log: 12, dropped_bits: 0, centre: i64::from(constant), low: i32::MIN, high: i32::MAX };
        prop_assert_eq!(decrypt(&rows, &a, &b, &encoding), Some(wanted));
    }
}
