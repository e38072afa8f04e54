//! Bytes of multi-key objects: they come back, have the sizes that are stated, and damage is an
//! error or another object, never a panic.

use pronghorn_he::{
    multikey::{
        Contribution, Decryptor, Extended, Limits, MultiKeyError, PairKey, Partial, PublicKeys,
        Rule, wire::WireError,
    },
    rns::wire::packed_len,
};

use super::*;

const BITS: [u32; 3] = [30, 29, 28];
const N: usize = 1024;

fn setup() -> Setup<u32> {
    Setup::new(N, &BITS, &[30, 30], 2)
}

fn bytes(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

/// Every cut is refused, and every flipped bit of the head; flipped bits elsewhere decode to what
/// encodes to them, or not at all.
fn damage(good: &[u8], head: usize, again: impl Fn(&[u8]) -> Result<Vec<u8>, WireError>) {
    assert!(again(good).expect("good bytes") == good);
    let cuts = (0..good.len().min(200)).chain((0..good.len()).step_by(997));
    for length in cuts {
        assert!(again(&good[..length]).is_err(), "{length}");
    }
    let longer = [good, &[0]].concat();
    assert!(again(&longer).is_err());
    let places = (0..head).chain((head..good.len()).step_by(1009));
    for place in places {
        for bit in [0, 3, 7] {
            let mut bad = good.to_vec();
            bad[place] ^= 1 << bit;
            match again(&bad) {
                Ok(bytes) => assert!(bytes == bad, "{place}"),
                Err(_) => continue,
            }
            assert!(place >= 34, "the header says what it is: {place}");
        }
    }
}

#[test]
fn keys_come_back() {
    let setup = setup();
    let (ring, common) = (setup.common.ring(), &setup.common);
    let all = packed_len(ring, 5);
    let digits = ring.digit_count(3);
    for (linear, without_pairs) in [(false, false), (true, false), (false, true)] {
        let choice = Choice {
            steps: &[1, 5],
            conjugation: true,
            linear,
            without_pairs,
        };
        let keys = setup.secrets[0].public_keys(choice).expect("randomness");
        let good = bytes(|out| keys.encode(out));
        // The formula of the format, with three automorphisms.
        let pairs = if without_pairs {
            0
        } else {
            32 + 3 * digits * all
        };
        let size = 34 + 1 + all + pairs + if linear { 2 * 3 * all } else { 0 };
        assert_eq!(good.len(), size + 71 + 4 * 3 + 4 * digits * all);
        let back = PublicKeys::decode(common, &good).expect("good bytes");
        assert!(back.party() == keys.party());
        if linear {
            damage(&good, 60, |bytes| {
                let mut out = Vec::new();
                PublicKeys::decode(common, bytes)?.encode(&mut out);
                Ok(out)
            });
        }
    }
}

/// A product with the key of a pair that came back, with no other keys for pairs.
#[test]
fn keys_of_pairs_come_back() {
    let mut setup = setup();
    let common = setup.common.clone();
    let (x, y) = {
        let values = setup.values(0);
        (
            setup.encrypt(0, &values, 1e6, 3),
            setup.encrypt(1, &values, 1e6, 3),
        )
    };
    let quadratic = pronghorn_he::multikey::Relinearisation::Quadratic;
    for (maker, under) in [(0, 1), (1, 0)] {
        let mut ring = KeyRing::new(&common);
        for secret in &setup.secrets {
            let choice = Choice {
                without_pairs: true,
                ..Choice::default()
            };
            ring.insert(secret.public_keys(choice).expect("randomness"))
                .expect("one reference");
        }
        let refused = x.multiply(&y, &ring, 0, quadratic);
        assert!(matches!(refused, Err(MultiKeyError::NoPairKeys { .. })));
        let [maker, under] = [maker, under].map(|i| &setup.secrets[i]);
        let key = maker.pair_key(under.encryption()).expect("another's key");
        assert!(key.parties() == [maker.party(), under.party()]);
        let good = bytes(|out| key.encode(out));
        let all = packed_len(common.ring(), common.ring().basis().limbs());
        assert_eq!(good.len(), 34 + 64 + 2 * common.ring().digit_count(3) * all);
        ring.insert_pair(PairKey::decode(&common, &good).expect("good bytes"))
            .expect("one reference");
        let secrets: Vec<_> = setup.secrets.iter().collect();
        let found = x
            .multiply(&y, &ring, 0, quadratic)
            .expect("a key of the pair");
        let expected = x.multiply(&y, &setup.keys, 0, quadratic).expect("all keys");
        let [found, expected] = [found, expected].map(|x| {
            let plain = x.decrypt_with_all(&secrets).expect("all secrets");
            common.ring().decode(&plain).expect("one parameter set").re
        });
        let difference = found.iter().zip(&expected).map(|(x, y)| (x - y).abs());
        assert!(difference.fold(0.0, f64::max) < 1e-3);
        damage(&good, 60, |bytes| {
            let mut out = Vec::new();
            PairKey::decode(&common, bytes)?.encode(&mut out);
            Ok(out)
        });
        assert!(maker.pair_key(maker.encryption()).is_err());
    }
}

#[test]
fn keys_work_when_they_came_back() {
    let mut setup = setup();
    let mut ring = KeyRing::new(&setup.common);
    for secret in &setup.secrets {
        let good = bytes(|out| setup.keys.get(secret.party()).expect("keys").encode(out));
        let keys = PublicKeys::decode(&setup.common, &good).expect("good bytes");
        ring.insert(keys).expect("one reference");
    }
    let values = setup.values(0);
    let (x, y) = (
        setup.encrypt(0, &values, 1e6, 3),
        setup.encrypt(1, &values, 1e6, 3),
    );
    for kind in [
        pronghorn_he::multikey::Relinearisation::Quadratic,
        pronghorn_he::multikey::Relinearisation::Linear,
    ] {
        let left = x.multiply(&y, &setup.keys, 0, kind).expect("keys");
        let right = x.multiply(&y, &ring, 0, kind).expect("keys");
        assert!(left.extended().data() == right.extended().data());
    }
    let left = x.rotate_many(&[1], &setup.keys).expect("keys");
    let right = x.rotate_many(&[1], &ring).expect("keys");
    assert!(left[0].extended().data() == right[0].extended().data());
}

#[test]
fn ciphertexts_come_back() {
    let mut setup = setup();
    let values = setup.values(0);
    let (x, y) = (
        setup.encrypt(0, &values, 1e6, 2),
        setup.encrypt(1, &values, 1e6, 2),
    );
    let both = x.add(&y).expect("one scale");
    let common = &setup.common;
    let good = bytes(|out| both.encode(out));
    assert_eq!(
        good.len(),
        34 + 8 + 2 + 64 + 3 * packed_len(common.ring(), 2)
    );
    damage(&good, 110, |bytes| {
        let mut out = Vec::new();
        Ciphertext::decode(common, bytes)?.encode(&mut out);
        Ok(out)
    });
    let good = bytes(|out| both.extended().encode(out));
    assert_eq!(good.len(), 34 + 2 + 64 + 3 * packed_len(common.ring(), 2));
    damage(&good, 102, |bytes| {
        let mut out = Vec::new();
        Extended::decode(common, bytes)?.encode(&mut out);
        Ok(out)
    });
}

#[test]
fn decryptions_come_back() {
    let mut setup = Setup::<u64>::new(N, &[50, 50, 50], &[50], 2);
    let values = setup.values(0);
    let result = setup.encrypt(0, &values, 2f64.powi(90), 3);
    let limits = Limits {
        limbs: 3,
        parties: 2,
        log_message: 110.0,
        log_noise: 20.0,
        log_power: None,
        results: 8,
    };
    let rule = Rule::new(&setup.common, limits).expect("room");
    let secret = SecretKey::generate(&setup.common, &Seed::from_bytes([1; 32]));
    let mut party = Decryptor::new(secret, &rule).expect("one reference");
    let contribution = party.contribute(result.extended(), &setup.keys);
    let contribution = contribution.expect("allowed");
    let common = &setup.common;
    let words = packed_len(common.ring(), 3);
    let good = bytes(|out| contribution.encode(out));
    assert_eq!(good.len(), 34 + 64 + 2 + 32 + 2 * words);
    damage(&good, 134, |bytes| {
        let mut out = Vec::new();
        Contribution::decode(common, bytes)?.encode(&mut out);
        Ok(out)
    });
    let before = party.ledger();
    assert_eq!(before.len(), 34 + 80 + 64);
    let all = [contribution];
    let partial = party
        .decrypt(result.extended(), &all, |_| Ok(()))
        .expect("allowed");
    assert_eq!(party.ledger().len(), 34 + 80 + 32);
    let good = bytes(|out| partial.encode(out));
    assert_eq!(good.len(), 34 + 65 + words);
    damage(&good, 100, |bytes| {
        let mut out = Vec::new();
        Partial::decode(common, bytes)?.encode(&mut out);
        Ok(out)
    });
    let merged = result.merge(&all, &[partial]).expect("all there");
    let found = common.ring().decode(&merged).expect("parameters");
    assert!((found.re[0] - values.re[0]).abs() < 1e-2);
}
