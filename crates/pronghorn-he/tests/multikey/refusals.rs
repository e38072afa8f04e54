//! Hostile and mistaken inputs: typed errors, no panic.

use pronghorn_he::{
    ckks::CkksError,
    multikey::{Extended, MultiKeyError, Party, Relinearisation},
    rns::RingError,
};

use super::*;

const BITS: [u32; 3] = [30, 30, 30];

fn setup(count: usize) -> Setup<u32> {
    Setup::new(1024, &BITS, &[30, 30], count)
}

#[test]
fn other_references_are_refused() {
    let mut one = setup(2);
    let mut other = Setup::<u32>::new(1024, &[30, 30, 29], &[30, 30], 2);
    let values = one.values(0);
    let x = one.encrypt(0, &values, 1e6, 3);
    let y = other.encrypt(0, &values, 1e6, 3);
    assert!(matches!(x.add(&y), Err(MultiKeyError::Common)));
    let kind = Relinearisation::Quadratic;
    let refused = x.multiply(&x, &other.keys, 0, kind);
    assert!(matches!(refused, Err(MultiKeyError::Common)));
    let refused = x.rotate_many(&[1], &other.keys);
    assert!(refused.is_err());
    let reseeded = Common::new(one.common.ring(), [8; 32]).expect("special primes");
    let secret = SecretKey::generate(&reseeded, &Seed::from_bytes([1; 32]));
    let keys = secret.public_keys(Choice::default()).expect("randomness");
    assert!(matches!(one.keys.insert(keys), Err(MultiKeyError::Common)));
}

#[test]
fn missing_keys_are_named() {
    let mut setup = setup(2);
    let values = setup.values(0);
    let (x, y) = (
        setup.encrypt(0, &values, 1e6, 3),
        setup.encrypt(1, &values, 1e6, 3),
    );
    let both = x.add(&y).expect("one scale");
    let mut few = KeyRing::new(&setup.common);
    let first = &setup.secrets[0];
    let choice = Choice {
        steps: &[1],
        conjugation: true,
        linear: false,
        without_pairs: false,
    };
    few.insert(first.public_keys(choice).expect("randomness"))
        .expect("one reference");
    let missing = setup.secrets[1].party();
    let named = |error| matches!(error, MultiKeyError::NoKeys { party } if party == missing);
    let kind = Relinearisation::Quadratic;
    assert!(both.square(&few, 0, kind).is_err_and(named));
    assert!(both.conjugate(&few).is_err_and(named));
    assert!(both.rotate_many(&[1], &few).is_err_and(named));
    let refused = x.square(&few, 0, Relinearisation::Linear);
    assert!(matches!(refused, Err(MultiKeyError::NoLinearKeys { .. })));
    let refused = x.rotate_many(&[2], &few);
    let no_key = MultiKeyError::Ring(RingError::NoRotationKey { steps: 2 });
    assert_eq!(
        refused.err().map(|e| e.to_string()),
        Some(no_key.to_string())
    );
    assert!(both.decrypt_with_all(&[first]).is_err_and(named));
}

#[test]
fn wrong_levels_and_scales_are_refused() {
    let mut setup = setup(2);
    let values = setup.values(0);
    let x = setup.encrypt(0, &values, 1e6, 3);
    let low = setup.encrypt(1, &values, 1e6, 2);
    let scaled = setup.encrypt(1, &values, 2e6, 3);
    let limbs = |error| matches!(error, MultiKeyError::Ring(RingError::Limbs { .. }));
    assert!(x.add(&low).is_err_and(limbs));
    let kind = Relinearisation::Quadratic;
    assert!(x.multiply(&low, &setup.keys, 0, kind).is_err_and(limbs));
    let scales = |error| matches!(error, MultiKeyError::Ckks(CkksError::Scales { .. }));
    assert!(x.add(&scaled).is_err_and(scales));
    assert!(x.sub(&scaled).is_err_and(scales));
    let few = |error| matches!(error, MultiKeyError::Ring(RingError::TooFewLimbs { .. }));
    assert!(x.rescale(3).is_err_and(few));
    assert!(x.drop_limbs(3).is_err_and(few));
    assert!(
        x.extended()
            .multiply(x.extended(), &setup.keys, 3, kind)
            .is_err_and(few)
    );
    let huge = setup.encrypt(0, &values, 2f64.powi(50), 3);
    let scale = |error| matches!(error, MultiKeyError::Ckks(CkksError::Scale { .. }));
    assert!(huge.square(&setup.keys, 0, kind).is_err_and(scale));
}

#[test]
fn words_are_a_polynomial_for_each_party_and_one_more() {
    let common = setup(1).common;
    let words = |polys: usize| vec![0u32; polys * 3 * 1024];
    let parties = |count: u8| (0..count).map(|i| Party([i; 32])).collect::<Vec<_>>();
    assert!(Extended::from_words(&common, parties(2), 3, words(3)).is_ok());
    for polys in [0, 1, 2, 4] {
        let refused = Extended::from_words(&common, parties(2), 3, words(polys));
        assert!(matches!(refused, Err(MultiKeyError::Components { .. })));
    }
    for limbs in [0, 4] {
        assert!(Extended::from_words(&common, parties(2), limbs, words(3)).is_err());
    }
    let refused = Extended::from_words(&common, parties(0), 3, words(1));
    assert!(matches!(
        refused,
        Err(MultiKeyError::Parties { parties: 0 })
    ));
    let refused = Extended::from_words(&common, parties(65), 3, words(66));
    assert!(matches!(
        refused,
        Err(MultiKeyError::Parties { parties: 65 })
    ));
    for wrong in [[1, 0], [1, 1]] {
        let wrong = wrong.map(|i| Party([i; 32])).to_vec();
        let refused = Extended::from_words(&common, wrong, 3, words(3));
        assert!(matches!(refused, Err(MultiKeyError::Order)));
    }
}

#[test]
fn references_need_special_primes_and_security() {
    let primes = rns::primes(1024, &BITS).expect("primes");
    let ring = Parameters::<u32>::insecure_paper_parameters(1024, &primes, &[]).expect("a chain");
    assert!(Common::new(&ring, [0; 32]).is_err());
    // 90 bits at N = 1024 are refused without the flag.
    assert!(Parameters::<u32>::new(1024, &primes[..2], &primes[2..]).is_err());
}
