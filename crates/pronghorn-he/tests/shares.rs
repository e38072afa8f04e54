//! Shares go through a linear layer exactly up to the guard bits, and answers hide what they must.

use pronghorn_he::{
    RlweRing, SecretKey, noise,
    rlwe::{self, Scratch},
    shares::{HideScratch, Hider, Hiding, PublicKey, Rerandomiser, ShareEncoding, zero_bound},
};
use pronghorn_ring::{Word, modulus::largest_ntt_prime, random::Seed};
use proptest::prelude::*;

const N: usize = 2048;

/// One answer `sum_i weights[i] x_i` on shares: the sum of both parties' shares, modulo
/// `2^(bits + guard)` and centred. With a fresh `a'`, or the one of an earlier batch.
fn layer<W: Word>(
    q: u64,
    (bits, guard, dropped): (u32, u32, u32),
    weights: &[i32],
    client: &[Vec<i32>],
    server: &[Vec<i32>],
    (secret, rerandomiser, hider): (&Seed, &Seed, &Seed),
    published: Option<&[W]>,
) -> (Vec<W>, Vec<W>, Vec<i64>) {
    let images = client[0].len();
    let encoding = ShareEncoding::new(q, bits, guard).expect("the modulus holds the shares");
    let ring = RlweRing::<W>::new(N, q).expect("secure parameters");
    let key = SecretKey::generate(&ring, ring.blocks(images), secret);
    let public = rlwe::a_generator(&Seed::from_bytes([8; 32]));
    let mut scratch = Scratch::new(&ring);
    let (rows, modulus) = (weights.len() as u64, ring.modulus());
    let expand = |row: u64| {
        let mut a = vec![W::default(); N];
        rlwe::expand_a(&public, row, modulus, &mut a);
        a
    };
    let (mut a, mut b) = (vec![W::default(); N], vec![W::default(); images]);
    for row in 0..weights.len() {
        let a_row = expand(row as u64);
        let mut b_row = vec![W::default(); images];
        key.encrypt_shares(
            row as u64,
            &a_row,
            &client[row],
            &encoding,
            &mut scratch,
            &mut b_row,
        );
        let weight = modulus.from_i64(weights[row].into());
        for (sum, &word) in a.iter_mut().zip(&a_row) {
            *sum = modulus.add(*sum, modulus.mul(word, weight));
        }
        for ((sum, &word), &share) in b.iter_mut().zip(&b_row).zip(&server[row]) {
            let word = modulus.add(word, W::from_u64(encoding.encode(share)));
            *sum = modulus.add(*sum, modulus.mul(word, weight));
        }
    }
    let a0 = expand(rows);
    let mut b0 = vec![W::default(); ring.blocks(images) * N];
    key.encrypt_zeros(rows, &a0, &mut scratch, &mut b0);
    let public = PublicKey::new(&ring, a0, b0);
    let mut mine = vec![0; images];
    let mut room = HideScratch::new(&ring);
    let hiding = Hiding {
        key: &public,
        rerandomiser: &Rerandomiser::new(rerandomiser),
        hider: &Hider::new(hider),
        encoding,
    };
    let made = published.is_none().then_some(&mut a[..]);
    hiding.hide(0, &mut room, made, &mut b, &mut mine);
    if let Some(published) = published {
        a.copy_from_slice(published);
    }
    b.iter_mut().for_each(|word| *word = *word >> dropped);
    let mut theirs = vec![0; images];
    key.decrypt_shares(&a, &b, dropped, &encoding, &mut scratch, &mut theirs);
    let width = bits + guard;
    let open = |(x, y): (&i32, &i32)| {
        let sum = x.wrapping_add(*y) as u32 as i64;
        (sum << (64 - width)) >> (64 - width)
    };
    let sums = theirs.iter().zip(&mine).map(open).collect();
    (a, b, sums)
}

/// Shares of values that the layer takes to results within `bits`.
fn check<W: Word>(q_bits: u32, encoding: (u32, u32, u32), images: usize, seed: u64) {
    let (bits, guard, dropped) = encoding;
    let q = largest_ntt_prime(q_bits, N).expect("such a prime exists");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u32 as i32
    };
    let rows = 40;
    let weights: Vec<i32> = (0..rows).map(|_| random() % 16).collect();
    let norm1: i64 = weights.iter().map(|w| i64::from(w.abs())).sum();
    let most = ((1i64 << (bits - 1)) - 1) / norm1;
    let values: Vec<Vec<i32>> = (0..rows)
        .map(|row| {
            let value = |image: usize| match image % 3 {
                // The ends of the range, with the signs that take the result there.
                0 => weights[row].signum() * most as i32,
                1 => -weights[row].signum() * most as i32,
                _ => random() % (most as i32 + 1),
            };
            (0..images).map(value).collect()
        })
        .collect();
    let server: Vec<Vec<i32>> = values
        .iter()
        .map(|row| row.iter().map(|_| random()).collect())
        .collect();
    let client: Vec<Vec<i32>> = values
        .iter()
        .zip(&server)
        .map(|(values, server)| {
            values
                .iter()
                .zip(server)
                .map(|(v, s)| v.wrapping_sub(*s))
                .collect()
        })
        .collect();
    let norm2 = weights.iter().map(|w| f64::from(w * w)).sum::<f64>().sqrt();
    let room = ShareEncoding::new(q, bits, guard)
        .expect("fits")
        .noise_room();
    let bound = noise::linear_bound(norm1 as f64, norm2)
        + norm1 as u64
        + zero_bound(N)
        + ((1 << dropped) >> 1);
    assert!(bound < room, "the case itself: {bound} {room}");
    let seeds = [7, 9, 11, 12, 13].map(|seed| Seed::from_bytes([seed; 32]));
    let batch = |secret, hider, published: Option<&[W]>| {
        let seeds = (&seeds[secret], &seeds[1], &seeds[hider]);
        layer::<W>(q, encoding, &weights, &client, &server, seeds, published)
    };
    let (a, b, first) = batch(0, 2, None);
    let (again, other, second) = batch(3, 4, Some(&a));
    let equal = b.iter().zip(&other).filter(|(x, y)| x == y).count();
    assert!(
        again == a && equal <= 2 + images / 64,
        "fresh secrets and masks: {equal}"
    );
    for (image, sum) in first.iter().chain(&second).enumerate() {
        let image = image % images;
        let expected: i64 = weights
            .iter()
            .zip(&values)
            .map(|(&w, row)| i64::from(w) * i64::from(row[image]))
            .sum();
        let error = sum - (expected << guard);
        assert!(error.abs() <= 1, "image {image}: {sum} for {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn shares_are_exact_up_to_their_guard_bits(seed: u64, images in prop_oneof![1usize..40, 2040usize..2060, 4090usize..4100]) {
        check::<u64>(40, (16, 2, 8), images, seed);
        check::<u64>(50, (22, 5, 12), images, seed);
        check::<u32>(31, (13, 2, 0), images, seed);
    }
}

#[test]
fn encodings_that_cannot_be_are_refused() {
    assert!(ShareEncoding::new(1 << 40, 0, 2).is_none());
    assert!(ShareEncoding::new(1 << 40, 31, 2).is_none());
    assert!(ShareEncoding::new((1 << 24) - 1, 22, 2).is_none());
    assert!(ShareEncoding::new(1 << 61, 22, 2).is_none());
    assert!(ShareEncoding::new((1 << 25) + 1, 22, 2).is_some());
}

/// Rounding is within what the documentation says, on every multiple of the unit and beside it.
#[test]
fn decoding_rounds() {
    for q in [largest_ntt_prime(31, N), largest_ntt_prime(52, N)].map(|q| q.expect("exists")) {
        let encoding = ShareEncoding::new(q, 12, 3).expect("fits");
        for unit in 0..1u64 << 15 {
            let exact = u128::from(unit) * u128::from(q);
            for word in [
                exact >> 15,
                (exact >> 15) + 1,
                (exact + u128::from(q) / 2) >> 15,
            ] {
                let word = (word as u64).min(q - 1);
                let real = word as f64 * 2f64.powi(15) / q as f64;
                assert!(
                    (f64::from(encoding.decode(word)) - real).abs() < 0.532,
                    "{word} of {q}"
                );
            }
        }
        for share in 0..1 << 12 {
            let error = encoding.encode(share) as f64 - f64::from(share) * q as f64 / 4096.0;
            assert!(
                error.abs() <= 0.5 && encoding.encode(share | !0xfff) == encoding.encode(share)
            );
        }
    }
}

/// The same values give answers with nothing in common, and masks cover the whole modulus.
#[test]
fn answers_are_fresh() {
    let q = largest_ntt_prime(40, N).expect("exists");
    let (weights, shares) = ([1, -2, 3], vec![vec![5; N]; 3]);
    let answer = |seed: u8| {
        let seed = Seed::from_bytes([seed; 32]);
        layer::<u64>(
            q,
            (16, 2, 0),
            &weights,
            &shares,
            &shares,
            (&Seed::from_bytes([7; 32]), &seed, &seed),
            None,
        )
    };
    let (first, second) = (answer(1), answer(2));
    let equal = |x: &[u64], y: &[u64]| x.iter().zip(y).filter(|(x, y)| x == y).count();
    assert_eq!(
        first.2.iter().map(|x| (x + 2) >> 2).collect::<Vec<_>>(),
        vec![20; N]
    );
    assert!(equal(&first.0, &second.0) < 4 && equal(&first.1, &second.1) < 4);
    // A uniform word is in each of 16 parts of the modulus; 128 of 2048 on average.
    for part in 0..16 {
        let within = first
            .1
            .iter()
            .filter(|&&word| word * 16 / q == part)
            .count();
        assert!((64..220).contains(&within), "{within} words in part {part}");
    }
}
