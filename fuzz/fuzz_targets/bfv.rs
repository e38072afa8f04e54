//! BFV objects from a hostile peer: what decodes encodes to the same bytes and can be computed
//! with.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::Damaged;
use pronghorn_he::bfv::{
    Answer, AnswerFormat, Ciphertext, EvaluationKeys, Hider, Noise, Parameters, PublicKey,
    SecretKey, SeededCiphertext, Switching,
};
use pronghorn_ring::{modulus::largest_ntt_prime, random::Seed, rns};

/// A small degree, for speed.
const N: usize = 64;

struct Good {
    parameters: Parameters<u64>,
    key: SecretKey<u64>,
    format: AnswerFormat,
    ciphertext: Ciphertext<u64>,
    /// In the order of [`Kind`].
    bytes: [Vec<u8>; 5],
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let primes = rns::primes(N, &[50, 50]).expect("there are such primes");
    let t = largest_ntt_prime(17, N).expect("there is such a prime");
    let parameters = Parameters::insecure_paper_parameters(N, &primes, Switching::Digits(25), t)
        .expect("the primes have transforms");
    let key = SecretKey::generate(&parameters, &seed(1));
    let plain = parameters.encode(&[1, 2, -3]).expect("the values fit");
    let seeded = key
        .encryptor_from_seed(&seed(2))
        .encrypt(&plain)
        .expect("parameters agree");
    let public = PublicKey::generate_from_seed(&key, &seed(3));
    let keys =
        EvaluationKeys::generate_from_seed(&key, &[1], true, &seed(4)).expect("there are digits");
    let ciphertext = seeded.expand();
    let format = parameters
        .answer_format(Noise::of_secret_encryption(), 1)
        .expect("there is room");
    let answer = Hider::new(&seed(5))
        .hide(0, &ciphertext, &public, &format)
        .expect("parameters agree");
    let mut bytes = [const { Vec::new() }; 5];
    seeded.encode(&mut bytes[0]);
    ciphertext.encode(&mut bytes[1]);
    public.encode(&mut bytes[2]);
    keys.encode(&mut bytes[3]);
    answer.encode(&mut bytes[4]);
    Good {
        parameters,
        key,
        format,
        ciphertext,
        bytes,
    }
});

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    Seeded,
    Ciphertext,
    Public,
    Evaluation,
    Answer,
}

fuzz_target!(|input: Damaged<Kind>| {
    let good = &*GOOD;
    let parameters = &good.parameters;
    let bytes = input.bytes(&good.bytes[input.kind as usize]);
    let mut again = Vec::new();
    match input.kind {
        Kind::Seeded => {
            let Ok(found) = SeededCiphertext::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = good.key.decrypt(&found.expand());
        }
        Kind::Ciphertext => {
            let Ok(found) = Ciphertext::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = found.add(&good.ciphertext);
        }
        Kind::Public => {
            let Ok(found) = PublicKey::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let hider = Hider::new(&Seed::from_bytes([6; 32]));
            let _ = hider.hide(1, &good.ciphertext, &found, &good.format);
        }
        Kind::Evaluation => {
            let Ok(found) = EvaluationKeys::decode(parameters, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = good.ciphertext.rotate(1, &found);
        }
        Kind::Answer => {
            let Ok(found) = Answer::decode(parameters, &good.format, &bytes) else {
                return;
            };
            found.encode(&mut again);
            let _ = good.key.decrypt_answer(&found);
        }
    }
    assert_eq!(again, bytes);
});
