//! Parameters, operands and keys that are refused.

use super::*;

#[test]
fn insecure_parameters_do_not_exist() {
    let build = |bits: &[u32], special: usize| {
        let primes = rns::primes(4096, bits).unwrap();
        let (primes, special) = primes.split_at(bits.len() - special);
        Parameters::<u64>::new(4096, primes, special)
    };
    assert!(build(&[36, 35, 35], 1).is_ok());
    assert!(matches!(
        build(&[36, 36, 35], 1).err(),
        Some(ParameterError::Security(_))
    ));
    assert!(matches!(
        build(&[36, 36, 35], 0).err(),
        Some(ParameterError::Security(_))
    ));
    assert!(matches!(
        build(&[40], 1).err(),
        Some(ParameterError::NoPrimes)
    ));
    let primes = rns::primes(4096, &[36, 36, 35]).unwrap();
    let insecure = Parameters::<u64>::insecure_paper_parameters(4096, &primes, &[]).unwrap();
    assert!(insecure.security().is_none());
    assert!(Parameters::<u64>::new(512, &rns::primes(512, &[20]).unwrap(), &[]).is_err());
    assert!(matches!(
        Parameters::<u64>::insecure_paper_parameters(8, &[17], &[]).err(),
        Some(ParameterError::SmallPrime { prime: 17 })
    ));
}

#[test]
fn digits_follow_the_special_primes() {
    let ranges = |bits: &[u32], special: &[u32]| -> Vec<_> {
        let party = Party::<u32>::with_special(64, bits, special);
        party.parameters.digit_ranges().collect()
    };
    assert_eq!(ranges(&[25; 5], &[25]), [0..1, 1..2, 2..3, 3..4, 4..5]);
    assert_eq!(ranges(&[25; 5], &[25, 25]), [0..2, 2..4, 4..5]);
    assert_eq!(ranges(&[30, 25, 25], &[25, 25]), [0..1, 1..3]);
    assert_eq!(ranges(&[31, 20, 20, 20], &[20]), [0..1, 1..2, 2..3, 3..4]);
    assert!(ranges(&[25; 5], &[]).is_empty());
}

#[test]
fn operands_that_do_not_match_are_refused() {
    let mut party = Party::<u32>::new(64, &[30, 25, 25]);
    let mut other = Party::<u32>::new(64, &[30, 25]);
    let (one, scale) = (
        Slots {
            re: vec![1.0],
            im: vec![],
        },
        2f64.powi(25),
    );
    let a = party.encrypt(&one, scale, 3);
    let fewer = party.encrypt(&one, scale, 2);
    let scaled = party.encrypt(&one, scale * 1.01, 3);
    let foreign = other.encrypt(&one, scale, 2);
    assert!(matches!(
        a.add(&fewer),
        Err(CkksError::Ring(RingError::Limbs { left: 3, right: 2 }))
    ));
    assert!(matches!(
        a.multiply(&fewer),
        Err(CkksError::Ring(RingError::Limbs { .. }))
    ));
    assert!(matches!(a.sub(&scaled), Err(CkksError::Scales { .. })));
    assert!(matches!(
        a.add(&foreign),
        Err(CkksError::Ring(RingError::Parameters))
    ));
    assert!(matches!(
        party.key.decrypt(&foreign),
        Err(CkksError::Ring(RingError::Parameters))
    ));
    assert!(matches!(
        a.rescale(3),
        Err(CkksError::Ring(RingError::TooFewLimbs {
            limbs: 3,
            dropped: 3
        }))
    ));
    assert!(matches!(
        a.drop_limbs(7),
        Err(CkksError::Ring(RingError::TooFewLimbs {
            limbs: 3,
            dropped: 7
        }))
    ));
    // 2^75 is beyond half of the modulus of 80 bits by nothing, 2^100 by much.
    assert!(a.square().unwrap().multiply(&a).is_ok());
    assert!(matches!(
        a.square().unwrap().square(),
        Err(CkksError::Scale { .. })
    ));
    assert!(matches!(
        fewer.square().unwrap().drop_limbs(1),
        Err(CkksError::Scale { .. })
    ));
    let parameters = &party.parameters;
    let plain = parameters.encode(&[1.0], &[], scale, 2).unwrap();
    assert!(matches!(
        a.mul_plain(&plain),
        Err(CkksError::Ring(RingError::Limbs { .. }))
    ));
    let scalar = parameters.scalar(1.0, scale, 2).unwrap();
    assert!(matches!(
        a.mul_scalar(&scalar),
        Err(CkksError::Ring(RingError::Limbs { .. }))
    ));
    assert!(
        fewer
            .mul_scalar(&parameters.scalar(1.0, 4.0, 3).unwrap())
            .is_ok()
    );
    assert!(matches!(
        parameters.encode(&[0.0; 33], &[], scale, 3),
        Err(CkksError::Slots {
            values: 33,
            slots: 32
        })
    ));
    assert!(matches!(
        parameters.encode(&[], &[0.0; 33], scale, 3),
        Err(CkksError::Slots { .. })
    ));
    for bad in [f64::NAN, f64::INFINITY, 1e30, -1e30] {
        assert!(matches!(
            parameters.encode(&[bad], &[], scale, 3),
            Err(CkksError::Value { .. })
        ));
        assert!(matches!(
            parameters.scalar(bad, scale, 3),
            Err(CkksError::Value { .. })
        ));
    }
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 2f64.powi(80)] {
        assert!(matches!(
            parameters.encode(&[1.0], &[], bad, 3),
            Err(CkksError::Scale { .. })
        ));
    }
    for limbs in [0, 4] {
        assert!(matches!(
            parameters.encode(&[1.0], &[], scale, limbs),
            Err(CkksError::Ring(RingError::NoSuchLimbs { .. }))
        ));
    }
    let seed = Seed::from_bytes([5; 32]);
    let keys = EvaluationKeys::generate_from_seed(&party.key, 2, &[], false, &seed);
    assert!(matches!(keys.err(), Some(RingError::NoSpecialPrimes)));
}

#[test]
fn missing_keys_are_named() {
    let mut party = Party::<u32>::with_special(64, &[30, 25, 25], &[30]);
    let keys =
        EvaluationKeys::generate_from_seed(&party.key, 2, &[1], false, &Seed::from_bytes([5; 32]))
            .unwrap();
    let a = party.encrypt(&numbers(32, 1.0, 1), 2f64.powi(18), 3);
    assert!(matches!(
        a.rotate(2, &keys),
        Err(CkksError::Ring(RingError::NoRotationKey { steps: 2 }))
    ));
    assert!(matches!(
        a.conjugate(&keys),
        Err(CkksError::Ring(RingError::NoConjugationKey))
    ));
    let cube = a.square().unwrap().multiply(&a).unwrap();
    assert!(matches!(
        cube.relinearise(&keys),
        Err(CkksError::Ring(RingError::NoPowerKey { power: 3 }))
    ));
    assert!(matches!(
        cube.rotate(1, &keys),
        Err(CkksError::Ring(RingError::Polys { polys: 4 }))
    ));
    // Around the end, and the whole way around.
    assert_eq!(
        a.rotate(33, &keys).unwrap().data(),
        a.rotate(1, &keys).unwrap().data()
    );
    assert_eq!(a.rotate(-32, &keys).unwrap().data(), a.data());
}

#[test]
#[should_panic(expected = "belongs to the encryptor")]
fn indices_of_other_encryptors_are_refused() {
    let mut party = Party::<u32>::new(64, &[30]);
    let other = party.key.encryptor_from_seed(&Seed::from_bytes([77; 32]));
    let message = party.parameters.message(&[1.0], &[], 1024.0, 1).unwrap();
    let index = party.encryptor.reserve(1).next().unwrap();
    let _ = other.encrypt_words(index, &message, &mut [0; 64]);
}
