//! Multi-key objects from a hostile peer: what decodes encodes to the same bytes and can be computed
//! with.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{Damaged, encoded};
use pronghorn_he::{
    ckks::Parameters,
    multikey::{
        Choice, Ciphertext, Common, Contribution, Decryptor, KeyRing, Limits, Partial, PublicKeys,
        Relinearisation, Rule, SecretKey, merge,
    },
};
use pronghorn_ring::{
    random::{Prg, Seed},
    rns,
};

/// The smallest degree, for speed.
const N: usize = 1024;

struct Good {
    common: Common<u64>,
    rule: Rule<u64>,
    result: Ciphertext<u64>,
    keys: Vec<u8>,
    ciphertext: Vec<u8>,
    contribution: Vec<u8>,
    partial: Vec<u8>,
    ledger: Vec<u8>,
}

fn secret(common: &Common<u64>) -> SecretKey<u64> {
    SecretKey::generate(common, &Seed::from_bytes([1; 32]))
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let primes = rns::primes(N, &[50, 50, 50, 50]).expect("there are such primes");
    let parameters = Parameters::insecure_paper_parameters(N, &primes[..3], &primes[3..])
        .expect("the primes have transforms");
    let common = Common::new(&parameters, [2; 32]).expect("there is a special prime");
    let choice = Choice {
        steps: &[1],
        conjugation: true,
        linear: true,
        without_pairs: false,
    };
    let keys = secret(&common).public_keys(choice).expect("randomness");
    let message = parameters
        .message(&[1.0, 2.0], &[], 1024.0, 3)
        .expect("it fits");
    let mut random = Prg::new(&Seed::from_bytes([3; 32]), "pronghorn fuzz multi-key").stream(0);
    let result = keys.encrypt(&message, &mut random).expect("one ring");
    let key_bytes = encoded(|out| keys.encode(out));
    let mut ring = KeyRing::new(&common);
    ring.insert(keys).expect("one reference");
    let limits = Limits {
        limbs: 3,
        parties: 1,
        log_message: 60.0,
        log_noise: 20.0,
        log_power: None,
        results: 8,
    };
    let rule = Rule::new(&common, limits).expect("there is room");
    let mut party = Decryptor::new(secret(&common), &rule).expect("one reference");
    let contribution = party.contribute(result.extended(), &ring).expect("allowed");
    let contributions = [contribution];
    let partial = party
        .decrypt(result.extended(), &contributions, |_| Ok(()))
        .expect("allowed");
    Good {
        keys: key_bytes,
        ciphertext: encoded(|out| result.encode(out)),
        contribution: encoded(|out| contributions[0].encode(out)),
        partial: encoded(|out| partial.encode(out)),
        ledger: party.ledger(),
        common,
        rule,
        result,
    }
});

#[derive(Arbitrary, Debug)]
enum Kind {
    Keys,
    Ciphertext,
    Contribution,
    Partial,
    Ledger,
}

fuzz_target!(|input: Damaged<Kind>| {
    let good = &*GOOD;
    let common = &good.common;
    let mut again = Vec::new();
    let bytes = match input.kind {
        Kind::Keys => {
            let bytes = input.bytes(&good.keys);
            let Ok(found) = PublicKeys::decode(common, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let mut ring = KeyRing::new(common);
            let _ = ring.insert(found);
            for kind in [Relinearisation::Quadratic, Relinearisation::Linear] {
                let _ = good.result.square(&ring, 1, kind);
            }
            let _ = good.result.rotate_many(&[1], &ring);
            bytes
        }
        Kind::Ciphertext => {
            let bytes = input.bytes(&good.ciphertext);
            let Ok(found) = Ciphertext::decode(common, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = found.add(&good.result).and_then(|sum| sum.rescale(1));
            bytes
        }
        Kind::Contribution => {
            let bytes = input.bytes(&good.contribution);
            let Ok(found) = Contribution::decode(common, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = merge(good.result.extended(), &[found], &[]);
            bytes
        }
        Kind::Partial => {
            let bytes = input.bytes(&good.partial);
            let Ok(found) = Partial::decode(common, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let contribution = Contribution::decode(common, &good.contribution);
            let contributions = [contribution.expect("good bytes")];
            let _ = merge(good.result.extended(), &contributions, &[found]);
            bytes
        }
        Kind::Ledger => {
            let bytes = input.bytes(&good.ledger);
            let Ok(found) = Decryptor::resume(secret(common), &good.rule, &bytes) else {
                return;
            };
            // The order of digests is not checked: the same ledger, not the same bytes.
            assert_eq!(found.ledger().len(), bytes.len());
            return;
        }
    };
    assert_eq!(again, bytes);
});
