//! CKKS objects from a hostile peer: what decodes encodes to the same bytes and can be computed
//! with.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{Damaged, encoded};
use pronghorn_he::ckks::{
    Ciphertext, EvaluationKeys, Parameters, PublicKey, SecretKey, SeededCiphertext,
};
use pronghorn_ring::{random::Seed, rns};

/// The smallest degree, for speed.
const N: usize = 1024;

struct Good {
    parameters: Parameters<u32>,
    ciphertext: Vec<u8>,
    seeded: Vec<u8>,
    public: Vec<u8>,
    evaluation: Vec<u8>,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let primes = rns::primes(N, &[20, 20, 20]).expect("there are such primes");
    let parameters = Parameters::insecure_paper_parameters(N, &primes[..2], &primes[2..])
        .expect("the primes have transforms");
    let key = SecretKey::generate(&parameters, &Seed::from_bytes([1; 32]));
    let mut encryptor = key.encryptor_from_seed(&Seed::from_bytes([2; 32]));
    let message = parameters
        .message(&[1.0, 2.0], &[], 1024.0, 2)
        .expect("it fits");
    let seeded = encryptor.encrypt(&message).expect("parameters agree");
    let public = PublicKey::generate_from_seed(&key, &Seed::from_bytes([3; 32]));
    let seed = Seed::from_bytes([4; 32]);
    let evaluation = EvaluationKeys::generate_from_seed(&key, 2, &[1], true, &seed)
        .expect("there is a special prime");
    Good {
        ciphertext: encoded(|out| seeded.expand().encode(out)),
        seeded: encoded(|out| seeded.encode(out)),
        public: encoded(|out| public.encode(out)),
        evaluation: encoded(|out| evaluation.encode(out)),
        parameters,
    }
});

#[derive(Arbitrary, Debug)]
enum Kind {
    Ciphertext,
    Seeded,
    Public,
    Evaluation,
}

fuzz_target!(|input: Damaged<Kind>| {
    let good = &*GOOD;
    let parameters = &good.parameters;
    let mut again = Vec::new();
    let bytes = match input.kind {
        Kind::Ciphertext => {
            let bytes = input.bytes(&good.ciphertext);
            let Ok(found) = Ciphertext::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = found.add(&found).and_then(|sum| sum.rescale(1));
            bytes
        }
        Kind::Seeded => {
            let bytes = input.bytes(&good.seeded);
            let Ok(found) = SeededCiphertext::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = found.expand();
            bytes
        }
        Kind::Public => {
            let bytes = input.bytes(&good.public);
            let Ok(found) = PublicKey::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            bytes
        }
        Kind::Evaluation => {
            let bytes = input.bytes(&good.evaluation);
            let Ok(found) = EvaluationKeys::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            bytes
        }
    };
    assert_eq!(again, bytes);
});
