//! Parameters and operands that are refused.

use super::*;

#[test]
fn presets_have_128_bits() {
    for t_bits in [17, 20] {
        let (small, large) = (
            Parameters::<u64>::small(t_bits).unwrap(),
            Parameters::<u64>::large(t_bits).unwrap(),
        );
        for parameters in [&small, &large] {
            assert_eq!(parameters.security(), Some(SecurityLevel::Bits128));
            assert_eq!(parameters.t() % (2 * parameters.n() as u64), 1);
            assert_eq!(parameters.t().ilog2() + 1, t_bits);
        }
        assert_ne!(small.hash(), large.hash());
    }
    assert_ne!(
        Parameters::<u64>::small(17).unwrap().hash(),
        Parameters::<u64>::small(18).unwrap().hash()
    );
    let digits = |bits| Parameters::<u64>::with_bits(4096, &[50, 50], &[], bits, 17);
    assert_ne!(digits(17).unwrap().hash(), digits(18).unwrap().hash());
}

#[test]
fn bad_parameters_are_refused() {
    let primes = rns::primes(4096, &[53, 53]).unwrap();
    let t = largest_ntt_prime(20, 4096).unwrap();
    let new = |n, primes: &[u64], switching, t| {
        Parameters::<u64>::new(n, primes, switching, t)
            .err()
            .unwrap()
    };
    let special = rns::primes(4096, &[53, 53, 30]).unwrap();
    assert!(matches!(
        new(4096, &primes, Switching::SpecialPrimes(&special[2..]), t),
        ParameterError::Ring(_)
    ));
    assert!(matches!(
        new(4096, &[], Switching::None, t),
        ParameterError::Ring(_)
    ));
    for t in [
        0,
        2,
        17,
        65_536,
        t + 2,
        1 << 40,
        largest_ntt_prime(40, 4096).unwrap(),
    ] {
        assert!(matches!(
            new(4096, &primes, Switching::None, t),
            ParameterError::Plaintext { .. }
        ));
    }
    assert!(matches!(
        new(4096, &[t, primes[0]], Switching::None, t),
        ParameterError::Shared { .. }
    ));
    for bits in [0, 53, 60] {
        assert!(matches!(
            new(4096, &primes, Switching::Digits(bits), t),
            ParameterError::Digits { .. }
        ));
    }
    let narrow = largest_ntt_prime(17, 4096).unwrap();
    assert!(matches!(
        new(4096, &[narrow], Switching::None, t),
        ParameterError::NoRoom { .. }
    ));
    let with_bits = |t_bits| {
        Parameters::<u64>::with_bits(4096, &[50, 50], &[], 0, t_bits)
            .err()
            .unwrap()
    };
    for t_bits in [0, 12, 32, 64] {
        assert!(
            matches!(with_bits(t_bits), ParameterError::PlaintextBits { .. }),
            "{t_bits}"
        );
    }
    // A chain with a prime of the size of t does without t.
    let parameters = Parameters::<u64>::with_bits(4096, &[31, 50], &[], 0, 31).unwrap();
    assert!(
        parameters
            .ring()
            .basis()
            .primes()
            .all(|q| q.value() != parameters.t())
    );
}

#[test]
fn misuse_is_refused() {
    let mut setup = Setup::new(toy::<u64>(64, &[50, 50], &[], 10, 17));
    let mut other = Setup::new(toy::<u64>(64, &[50, 50], &[], 10, 16));
    let (x, y) = (setup.encrypt(&[1]), other.encrypt(&[1]));
    assert!(matches!(x.add(&y), Err(BfvError::Ring(_))));
    assert!(x.sub(&y).is_err());
    assert!(x.mul_plain(&other.multiplier(0)).is_err());
    assert!(
        x.add_plain(&other.parameters.encode(&[1]).unwrap())
            .is_err()
    );
    assert!(setup.key.decrypt(&y).is_err());
    assert!(
        setup
            .parameters
            .decode(&other.parameters.encode(&[1]).unwrap())
            .is_err()
    );
    assert!(x.rotate(1, &other.keys).is_err());
    assert!(
        x.rotate(7, &setup.keys)
            .err()
            .unwrap()
            .to_string()
            .contains("7 slots")
    );
    assert!(matches!(
        setup.parameters.encode(&[0; 65]),
        Err(BfvError::Slots { .. })
    ));
    let (turn, one) = (Rotation::left(0, 1), Factor::<u64>::One);
    let run =
        |rotation, row: Vec<_>| rotated_products(&[&x], &[rotation], &[row], &setup.keys).err();
    assert!(matches!(
        run(turn, vec![one; 2]),
        Some(BfvError::Shape { .. })
    ));
    assert!(matches!(run(turn, vec![]), Some(BfvError::Shape { .. })));
    assert!(matches!(
        run(Rotation::left(1, 1), vec![one]),
        Some(BfvError::Shape { .. })
    ));
    assert!(matches!(
        run(turn, vec![Factor::Times(&other.multiplier(0))]),
        Some(BfvError::Ring(_))
    ));
    let none = toy::<u64>(64, &[50, 50], &[], 0, 17);
    let key = SecretKey::generate(&none, &seed(1));
    assert!(EvaluationKeys::generate_from_seed(&key, &[1], false, &seed(1)).is_err());
    let no_swap = EvaluationKeys::generate_from_seed(&setup.key, &[1], false, &seed(1)).unwrap();
    assert!(x.swap_rows(&no_swap).is_err());
}
