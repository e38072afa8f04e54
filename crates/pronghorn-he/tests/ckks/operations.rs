//! Every operation within its noise.

use super::*;

fn arithmetic<W: Word>(n: usize, bits: &[u32], log_scale: i32) {
    let mut party = Party::<W>::new(n, bits);
    let (limbs, scale) = (bits.len(), 2f64.powi(log_scale));
    let (x, y) = (numbers(n / 2, 1.0, 1), numbers(n / 2, 1.0, 2));
    let (most_x, most_y) = (largest(&x) * scale, largest(&y) * scale);
    let fresh = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    let (a, b) = (
        party.encrypt(&x, scale, limbs),
        party.encrypt(&y, scale, limbs),
    );
    party.check("encrypt", &a, &x, fresh);
    party.check("add", &a.add(&b).unwrap(), &sum(&x, &y), fresh + fresh);
    party.check(
        "sub",
        &a.sub(&b).unwrap(),
        &zip(&x, &y, |x, y| (x.0 - y.0, x.1 - y.1)),
        fresh + fresh,
    );
    party.check("neg", &a.neg(), &zip(&x, &x, |x, _| (-x.0, -x.1)), fresh);
    party.check(
        "mul_integer",
        &a.mul_integer(-7),
        &zip(&x, &x, |x, _| (-7.0 * x.0, -7.0 * x.1)),
        fresh.times(7.0),
    );
    let plain = party.parameters.encode(&y.re, &y.im, scale, limbs).unwrap();
    party.check(
        "add_plain",
        &a.add_plain(&plain).unwrap(),
        &sum(&x, &y),
        fresh + Noise::of_encoding(n),
    );
    party.check(
        "mul_plain",
        &a.mul_plain(&plain).unwrap(),
        &product(&x, &y),
        fresh.times_plain(n, most_x, most_y),
    );
    let half = party.parameters.scalar(0.5, scale, limbs).unwrap();
    party.check(
        "mul_scalar",
        &a.mul_scalar(&half).unwrap(),
        &zip(&x, &x, |x, _| (0.5 * x.0, 0.5 * x.1)),
        fresh.times(0.5 * scale),
    );
    party.check(
        "add_scalar",
        &a.add_scalar(&half).unwrap(),
        &zip(&x, &x, |x, _| (0.5 + x.0, x.1)),
        fresh,
    );
    let multiplied = fresh.multiply(fresh, most_x, most_y);
    let squared = fresh.square(most_x);
    party.check(
        "multiply",
        &a.multiply(&b).unwrap(),
        &product(&x, &y),
        multiplied,
    );
    party.check("square", &a.square().unwrap(), &product(&x, &x), squared);
    let divisor = |dropped: usize| -> f64 {
        party
            .parameters
            .basis()
            .primes()
            .skip(limbs - dropped)
            .map(|q| q.value() as f64)
            .product()
    };
    for dropped in 1..limbs {
        let expected = squared.rescale(n, 3, divisor(dropped));
        let Ok(rescaled) = a.square().unwrap().rescale(dropped) else {
            panic!("limbs are left")
        };
        if rescaled.scale() > 16.0 * expected.slot_bound() {
            party.check(
                &format!("rescale by {dropped}"),
                &rescaled,
                &product(&x, &x),
                expected,
            );
        }
    }
    let public = PublicKey::generate_from_seed(&party.key, &Seed::from_bytes([9; 32]));
    let message = party
        .parameters
        .message(&x.re, &x.im, scale, limbs)
        .unwrap();
    let c = public.encrypt(&message, &mut party.random).unwrap();
    party.check(
        "public",
        &c,
        &x,
        Noise::of_public_encryption(n) + Noise::of_encoding(n),
    );
}

#[test]
fn arithmetic_is_within_its_noise() {
    arithmetic::<u32>(64, &[30, 25, 25], 25);
    arithmetic::<u32>(4096, &[31, 31, 25], 30);
    arithmetic::<u64>(256, &[50, 30, 30], 30);
    arithmetic::<u64>(8192, &[60, 50, 40], 40);
}

fn switching<W: Word>(n: usize, bits: &[u32], special: &[u32], log_scale: i32) {
    let mut party = Party::<W>::with_special(n, bits, special);
    let parameters = party.parameters.clone();
    let seed = Seed::from_bytes([5; 32]);
    let keys = EvaluationKeys::generate_from_seed(&party.key, 4, &[1, -3, 7], true, &seed).unwrap();
    let scale = 2f64.powi(log_scale);
    let (x, y) = (numbers(n / 2, 1.0, 1), numbers(n / 2, 1.0, 2));
    let most = largest(&x).max(largest(&y)) * scale;
    let fresh = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    for limbs in (2..=bits.len()).rev() {
        let (a, b) = (
            party.encrypt(&x, scale, limbs),
            party.encrypt(&y, scale, limbs),
        );
        let switch = parameters.key_switch_noise(limbs, 1);
        for steps in [1, -3, 7, 0] {
            let turned = |values: &[f64]| -> Vec<f64> {
                (0..n / 2)
                    .map(|i| values[(i as i64 + steps).rem_euclid(n as i64 / 2) as usize])
                    .collect()
            };
            let expected = Slots {
                re: turned(&x.re),
                im: turned(&x.im),
            };
            let noise = if steps == 0 { fresh } else { fresh + switch };
            party.check(
                &format!("rotate by {steps}"),
                &a.rotate(steps, &keys).unwrap(),
                &expected,
                noise,
            );
        }
        let together = a.rotate_many(&[7, 0, 1], &keys).unwrap();
        for (rotated, steps) in together.iter().zip([7, 0, 1]) {
            assert_eq!(rotated.data(), a.rotate(steps, &keys).unwrap().data());
        }
        let conjugate = zip(&x, &x, |x, _| (x.0, -x.1));
        party.check(
            "conjugate",
            &a.conjugate(&keys).unwrap(),
            &conjugate,
            fresh + switch,
        );
        if parameters.log_modulus(limbs) < f64::from(2 * log_scale + 3) {
            continue;
        }
        let expected = product(&x, &y);
        let multiplied = fresh.multiply(fresh, most, most);
        let c = a.multiply(&b).unwrap();
        party.check(
            "relinearise",
            &c.relinearise(&keys).unwrap(),
            &expected,
            multiplied + switch,
        );
        let divisor = parameters.basis().prime(limbs - 1).value() as f64;
        let rescaled = (multiplied + switch).rescale(n, 2, divisor);
        let both = c.relinearise_and_rescale(&keys, 1).unwrap();
        let after = c.relinearise(&keys).unwrap().rescale(1).unwrap();
        assert_eq!((both.scale(), both.limbs()), (after.scale(), after.limbs()));
        party.check("relinearise, rescale", &after, &expected, rescaled);
        party.check("relinearise and rescale", &both, &expected, rescaled);
        // Three powers of the secret at once: from five polynomials, at a scale that fits.
        let small = 2f64.powi(log_scale / 2);
        let (a, b) = (
            party.encrypt(&x, small, limbs),
            party.encrypt(&y, small, limbs),
        );
        let most = largest(&x).max(largest(&y)) * small;
        let multiplied = fresh.multiply(fresh, most, most);
        let c = a.multiply(&b).unwrap().square().unwrap();
        assert_eq!(c.polys(), 5);
        let noise = multiplied.square(largest(&expected) * small * small)
            + parameters.key_switch_noise(limbs, 3);
        party.check(
            "relinearise three",
            &c.relinearise(&keys).unwrap(),
            &product(&expected, &expected),
            noise,
        );
    }
}

#[test]
fn key_switching_is_within_its_noise() {
    switching::<u32>(64, &[30, 25, 25], &[30], 25);
    switching::<u32>(256, &[30, 25, 26, 25, 20], &[31, 31], 25);
    switching::<u64>(256, &[50, 40, 40, 40, 40, 40, 40], &[45, 45, 45], 40);
    switching::<u64>(128, &[60, 60], &[60], 50);
}

/// Squares without relinearisation: 3, 5 and 9 polynomials.
fn growth<W: Word>(n: usize, bits: &[u32], log_scale: i32) {
    let mut party = Party::<W>::new(n, bits);
    let mut expected = numbers(n / 2, 1.0, 1);
    let mut x = party.encrypt(&expected, 2f64.powi(log_scale), bits.len());
    let mut noise = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    for polys in [3, 5, 9] {
        let most = largest(&expected) * x.scale();
        let divisor = party.parameters.basis().prime(x.limbs() - 1).value() as f64;
        x = x.square().unwrap().rescale(1).unwrap();
        noise = noise.square(most).rescale(n, polys, divisor);
        expected = product(&expected, &expected);
        assert_eq!(x.polys(), polys);
        // The worst slot of the worst key weighs with its eighth power in the end.
        let slack = if polys == 9 { 512.0 } else { 64.0 };
        party.check_within(&format!("{polys} polynomials"), &x, &expected, noise, slack);
    }
    assert!(matches!(
        x.square(),
        Err(CkksError::Ring(RingError::Polys { polys: 17 }))
    ));
    let half = x.drop_limbs(x.limbs() - 1);
    if let Ok(half) = half {
        party.check_within("fewer limbs", &half, &expected, noise, 512.0);
    }
}

#[test]
fn products_grow_to_nine_polynomials() {
    growth::<u64>(64, &[60, 50, 50, 50, 50], 50);
    growth::<u64>(1024, &[60, 55, 55, 55, 55], 55);
    growth::<u32>(64, &[31, 31, 28, 28, 28], 28);
}

/// Five squarings, each relinearised and rescaled.
fn depth<W: Word>(n: usize, bits: &[u32], special: &[u32], per_level: usize, log_scale: i32) {
    let mut party = Party::<W>::with_special(n, bits, special);
    let parameters = party.parameters.clone();
    let keys =
        EvaluationKeys::generate_from_seed(&party.key, 2, &[], false, &Seed::from_bytes([5; 32]))
            .unwrap();
    let mut expected = numbers(n / 2, 0.7, 1);
    let mut x = party.encrypt(&expected, 2f64.powi(log_scale), bits.len());
    let mut noise = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    for _ in 0..5 {
        let most = largest(&expected) * x.scale();
        let limbs = x.limbs();
        let primes = parameters
            .basis()
            .primes()
            .take(limbs)
            .skip(limbs - per_level);
        let divisor = primes.map(|q| q.value() as f64).product();
        x = x
            .square()
            .unwrap()
            .relinearise_and_rescale(&keys, per_level)
            .unwrap();
        let relinearised = noise.square(most) + parameters.key_switch_noise(limbs, 1);
        noise = relinearised.rescale(n, 2, divisor);
        expected = product(&expected, &expected);
        within(
            "depth",
            distance(&party.decrypt(&x), &expected) * x.scale(),
            noise.slot_bound(),
            256.0,
        );
    }
    assert_eq!(x.limbs(), bits.len() - 5 * per_level);
}

#[test]
fn five_squarings_stay_within_their_noise() {
    depth::<u64>(1024, &[60, 45, 45, 45, 45, 45], &[60], 1, 45);
    depth::<u64>(8192, &[55, 40, 40, 40, 40, 40], &[45, 45, 45], 1, 40);
    depth::<u32>(
        1024,
        &[30, 30, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22],
        &[31, 31],
        2,
        44,
    );
}
