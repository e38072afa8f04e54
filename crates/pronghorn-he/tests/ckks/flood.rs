//! Floods hide noise and keep values.

use super::*;

#[test]
fn floods_hide_the_noise_and_keep_the_values() {
    let n = 1024;
    let mut party = Party::<u32>::new(n, &[30; 6]);
    let public = PublicKey::generate_from_seed(&party.key, &Seed::from_bytes([9; 32]));
    let x = numbers(n / 2, 1.0, 1);
    let (scale, limbs) = (2f64.powi(40), 6);
    let fresh = Noise::of_secret_encryption(n) + Noise::of_encoding(n);
    let squared = fresh.square(largest(&x) * scale);
    let fourth = squared.square(largest(&product(&x, &x)) * scale * scale);
    let a = party.encrypt(&x, scale, limbs);
    let square = a.square().unwrap();
    for (ciphertext, expected, noise) in [
        (a.clone(), x.clone(), fresh),
        (square.clone(), product(&x, &x), squared),
        (
            square.square().unwrap(),
            product(&product(&x, &x), &product(&x, &x)),
            fourth,
        ),
    ] {
        let polys = ciphertext.polys();
        let log_reach = noise.flood_reach(n, polys, 1.0, 20);
        let mut flooded = ciphertext.clone();
        public
            .flood(&mut flooded, log_reach, &mut party.random)
            .unwrap();
        party.check(
            "flood",
            &flooded,
            &expected,
            noise + Noise::of_flood(n, polys, log_reach),
        );
        for i in 0..polys {
            let same = ciphertext
                .poly(i)
                .iter()
                .zip(flooded.poly(i))
                .filter(|(x, y)| x == y)
                .count();
            assert!(same < 10, "polynomial {i} is masked");
        }
        // The flood has its reach and its variance, five standard errors around.
        let before = party.key.decrypt(&ciphertext).unwrap().to_coefficients();
        let after = party.key.decrypt(&flooded).unwrap().to_coefficients();
        let errors = before
            .iter()
            .zip(&after)
            .map(|(x, y)| (x - y) / 2f64.powi(log_reach as i32));
        let errors: Vec<f64> = errors.collect();
        assert!(errors.iter().all(|error| error.abs() < 1.001));
        let variance = errors.iter().map(|error| error * error).sum::<f64>() / n as f64;
        assert!((variance - 1.0 / 12.0).abs() < 0.018, "{variance}");
    }
    let mut full = a.clone();
    let refused = public.flood(&mut full, 179, &mut party.random);
    assert!(matches!(
        refused,
        Err(CkksError::Flood { log_reach: 179, .. })
    ));
    assert_eq!(full.data(), a.data());
    // A key of fewer limbs masks ciphertexts of as many, and no others.
    let short = public.b()[..4 * n].to_vec();
    let short = PublicKey::from_parts(&party.parameters, *public.seed(), short);
    let refused = short.flood(&mut full, 80, &mut party.random);
    assert!(matches!(
        refused,
        Err(CkksError::Ring(RingError::KeyLimbs { limbs: 6, limit: 4 }))
    ));
    assert_eq!(full.data(), a.data());
    let message = party.parameters.message(&x.re, &x.im, scale, 6).unwrap();
    let refused = short.encrypt(&message, &mut party.random).err();
    assert!(matches!(
        refused,
        Some(CkksError::Ring(RingError::KeyLimbs { .. }))
    ));
    let mut dropped = a.drop_limbs(2).unwrap();
    short.flood(&mut dropped, 20, &mut party.random).unwrap();
    assert!(distance(&party.decrypt(&dropped), &x) < 1e-3);
}
