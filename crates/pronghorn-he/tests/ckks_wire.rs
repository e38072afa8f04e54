//! Bytes of CKKS objects: round trips, and what hostile bytes meet.

use pronghorn_he::ckks::{
    Ciphertext, EvaluationKeys, Parameters, PublicKey, SecretKey, SeededCiphertext, WireError,
    wire::{self, VERSION},
};
use pronghorn_ring::{Word, random::Seed, rns};
use proptest::prelude::*;

const N: usize = 64;
/// Version, kind and hash.
const HEADER: usize = 34;

struct Objects<W: Word> {
    parameters: Parameters<W>,
    key: SecretKey<W>,
    seeded: SeededCiphertext<W>,
    public: PublicKey<W>,
    keys: EvaluationKeys<W>,
}

fn objects<W: Word>(bits: &[u32], special: &[u32]) -> Objects<W> {
    let primes = rns::primes(N, &[bits, special].concat()).unwrap();
    let (primes, special) = primes.split_at(bits.len());
    let parameters = Parameters::<W>::insecure_paper_parameters(N, primes, special).unwrap();
    let seed = |byte| Seed::from_bytes([byte; 32]);
    let key = SecretKey::generate(&parameters, &seed(1));
    let mut encryptor = key.encryptor_from_seed(&seed(2));
    let message = parameters
        .message(&[1.0, -2.0], &[0.5], 2f64.powi(20), bits.len())
        .unwrap();
    encryptor.encrypt(&message).unwrap();
    Objects {
        seeded: encryptor.encrypt(&message).unwrap(),
        public: PublicKey::generate_from_seed(&key, &seed(3)),
        keys: EvaluationKeys::generate_from_seed(&key, 3, &[1, -1], true, &seed(4)).unwrap(),
        parameters,
        key,
    }
}

fn narrow() -> Objects<u32> {
    objects(&[30, 18, 25], &[31])
}

fn bytes(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn round_trips<W: Word>(objects: &Objects<W>) {
    let parameters = &objects.parameters;
    let sent = bytes(|out| objects.seeded.encode(out));
    let back = SeededCiphertext::decode(parameters, &sent).unwrap();
    assert_eq!(
        (back.number(), back.scale(), back.seed()),
        (1, 2f64.powi(20), objects.seeded.seed())
    );
    assert_eq!(bytes(|out| back.encode(out)), sent);
    assert_eq!(back.expand().data(), objects.seeded.expand().data());
    assert_eq!(
        sent.len(),
        HEADER + 1 + 8 + 32 + 8 + wire::packed_len(parameters, parameters.limbs())
    );

    let ciphertext = back.expand().square().unwrap().rescale(1).unwrap();
    let sent = bytes(|out| ciphertext.encode(out));
    let back = Ciphertext::decode(parameters, &sent).unwrap();
    assert_eq!(
        (back.polys(), back.limbs(), back.scale()),
        (3, ciphertext.limbs(), ciphertext.scale())
    );
    assert_eq!(back.data(), ciphertext.data());
    assert_eq!(
        sent.len(),
        HEADER + 2 + 8 + 3 * wire::packed_len(parameters, ciphertext.limbs())
    );

    let sent = bytes(|out| objects.public.encode(out));
    let back = PublicKey::decode(parameters, &sent).unwrap();
    assert_eq!(back.b(), objects.public.b());
    assert_eq!(bytes(|out| back.encode(out)), sent);

    let sent = bytes(|out| objects.keys.encode(out));
    let back = EvaluationKeys::decode(parameters, &sent).unwrap();
    assert_eq!(bytes(|out| back.encode(out)), sent);
    let x = objects.seeded.expand();
    assert_eq!(
        x.rotate(-1, &back).unwrap().data(),
        x.rotate(-1, &objects.keys).unwrap().data()
    );
    assert_eq!(
        x.conjugate(&back).unwrap().data(),
        x.conjugate(&objects.keys).unwrap().data()
    );
    let cube = x.square().unwrap().multiply(&x).unwrap();
    assert_eq!(
        cube.relinearise(&back).unwrap().data(),
        cube.relinearise(&objects.keys).unwrap().data()
    );
}

/// Keys that go from their seed to bytes part by part are those that are kept.
#[test]
fn keys_from_a_seed_have_the_bytes_of_kept_ones() {
    let (objects, seed) = (narrow(), Seed::from_bytes([4; 32]));
    for (power, steps, conjugation) in [(3, &[1, -1][..], true), (1, &[5, 5, 2], false)] {
        let kept =
            EvaluationKeys::generate_from_seed(&objects.key, power, steps, conjugation, &seed);
        let mut parts = Vec::new();
        let out = &mut |part: &[u8]| parts.extend_from_slice(part);
        EvaluationKeys::encode_from_seed(&objects.key, power, steps, conjugation, &seed, out)
            .unwrap();
        assert_eq!(parts, bytes(|out| kept.as_ref().unwrap().encode(out)));
    }
}

#[test]
fn objects_come_back() {
    round_trips(&narrow());
    round_trips(&objects::<u32>(&[31, 31, 31, 31], &[31, 31]));
    round_trips(&objects::<u64>(&[60, 40, 40], &[60]));
}

#[test]
fn decoded_ciphertexts_decrypt() {
    let objects = objects::<u64>(&[60, 40], &[60]);
    let sent = bytes(|out| objects.seeded.encode(out));
    let back = SeededCiphertext::decode(&objects.parameters, &sent)
        .unwrap()
        .expand();
    let slots = objects
        .parameters
        .decode(&objects.key.decrypt(&back).unwrap())
        .unwrap();
    assert!(
        (slots.re[0] - 1.0).abs() < 1e-3
            && (slots.re[1] + 2.0).abs() < 1e-3
            && (slots.im[0] - 0.5).abs() < 1e-3
    );
}

/// What follows from a seed is the same on every machine and at every SIMD level.
#[test]
fn bytes_are_known() {
    let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_owned();
    let (narrow, wide) = (narrow(), objects::<u64>(&[60, 40, 40], &[60]));
    let found = [
        hash(&bytes(|out| narrow.seeded.encode(out))),
        hash(&bytes(|out| narrow.public.encode(out))),
        hash(&bytes(|out| narrow.keys.encode(out))),
        hash(&bytes(|out| {
            narrow
                .seeded
                .expand()
                .square()
                .unwrap()
                .rescale(2)
                .unwrap()
                .encode(out)
        })),
        hash(&bytes(|out| wide.seeded.encode(out))),
        hash(&bytes(|out| wide.keys.encode(out))),
    ];
    assert_eq!(found, KNOWN);
}

const KNOWN: [&str; 6] = [
    "5516df7de8b961fd",
    "4e0a7630ceed1c66",
    "a3be31665f1621ab",
    "dd51e7ea3f039652",
    "88110d4abb627009",
    "82ac39393ce8d04d",
];

/// Every decoder on the same bytes.
fn refused(parameters: &Parameters<u32>, bytes: &[u8]) -> bool {
    Ciphertext::decode(parameters, bytes).is_err()
        && SeededCiphertext::decode(parameters, bytes).is_err()
        && PublicKey::decode(parameters, bytes).is_err()
        && EvaluationKeys::decode(parameters, bytes).is_err()
}

#[test]
fn cut_and_padded_bytes_are_refused() {
    let objects = narrow();
    let all = [
        bytes(|out| objects.seeded.encode(out)),
        bytes(|out| objects.seeded.expand().encode(out)),
        bytes(|out| objects.public.encode(out)),
        bytes(|out| objects.keys.encode(out)),
    ];
    for sent in all {
        for length in (0..sent.len().min(200)).chain((sent.len() - 20)..sent.len()) {
            assert!(
                refused(&objects.parameters, &sent[..length]),
                "{length} of {}",
                sent.len()
            );
        }
        assert!(refused(
            &objects.parameters,
            &[sent.as_slice(), &[0]].concat()
        ));
    }
}

#[test]
fn headers_are_checked() {
    let objects = narrow();
    let other = objects_of_other_parameters();
    let sent = bytes(|out| objects.seeded.encode(out));
    let decode = |bytes: &[u8]| {
        SeededCiphertext::decode(&objects.parameters, bytes)
            .err()
            .expect("it is damaged")
    };
    let change = |place: usize, byte: u8| {
        let mut bytes = sent.clone();
        bytes[place] = byte;
        decode(&bytes)
    };
    assert!(matches!(change(0, VERSION + 1), WireError::Version { found } if found == VERSION + 1));
    assert!(matches!(
        change(1, 1),
        WireError::Kind {
            found: 1,
            expected: 2
        }
    ));
    assert!(matches!(change(20, sent[20] ^ 1), WireError::Parameters));
    assert!(matches!(
        SeededCiphertext::decode(&other, &sent),
        Err(WireError::Parameters)
    ));
    for limbs in [0, 4, 255] {
        assert!(matches!(
            change(HEADER, limbs),
            WireError::Range {
                low: 1,
                high: 3,
                ..
            }
        ));
    }
    assert!(matches!(change(HEADER, 2), WireError::Length { .. }));
    // The top byte of the number.
    assert!(matches!(
        change(HEADER + 1 + 8 + 32 + 7, 1),
        WireError::Range { .. }
    ));
    for scale in [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -1.0,
        2f64.powi(72),
        f64::MAX,
    ] {
        let mut bytes = sent.clone();
        bytes[HEADER + 1..][..8].copy_from_slice(&scale.to_le_bytes());
        assert!(matches!(decode(&bytes), WireError::Scale { .. }), "{scale}");
    }
}

fn objects_of_other_parameters() -> Parameters<u32> {
    // The same primes in another role.
    let primes = rns::primes(N, &[30, 18, 25, 31]).unwrap();
    Parameters::insecure_paper_parameters(N, &primes, &[]).unwrap()
}

#[test]
fn words_that_are_no_residues_are_refused() {
    let objects = narrow();
    let sent = bytes(|out| objects.seeded.expand().encode(out));
    // All ones in one word of limb 1, of 18 bits: the first word of its packed limb.
    let start = HEADER + 2 + 8 + wire::packed_len(&objects.parameters, 1);
    let mut damaged = sent.clone();
    damaged[start..start + 3].fill(0xff);
    assert!(matches!(
        Ciphertext::decode(&objects.parameters, &damaged),
        Err(WireError::Word { limb: 1 })
    ));
    for polys in [0u8, 1, 10, 255] {
        let mut damaged = sent.clone();
        damaged[HEADER] = polys;
        assert!(Ciphertext::decode(&objects.parameters, &damaged).is_err());
    }
}

#[test]
fn lists_of_keys_are_checked() {
    let objects = narrow();
    let sent = bytes(|out| objects.keys.encode(out));
    let powers = HEADER + 32;
    let decode = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = sent.clone();
        change(&mut bytes);
        EvaluationKeys::decode(&objects.parameters, &bytes)
            .err()
            .expect("it is damaged")
    };
    for max_power in [0, 9, 255] {
        assert!(matches!(
            decode(&|bytes| bytes[powers] = max_power),
            WireError::Range { .. }
        ));
    }
    assert!(matches!(
        decode(&|bytes| bytes[powers] = 8),
        WireError::Length { .. }
    ));
    // A count that would take 16 GiB.
    assert!(matches!(
        decode(&|bytes| bytes[powers + 1..][..4].fill(0xff)),
        WireError::Length { .. }
    ));
    for element in [0u32, 1, 4, 129, u32::MAX] {
        let place = powers + 5;
        let change =
            |bytes: &mut Vec<u8>| bytes[place..][..4].copy_from_slice(&element.to_le_bytes());
        assert!(
            matches!(decode(&change), WireError::Range { .. }),
            "{element}"
        );
    }
    // Twice the same.
    let change = |bytes: &mut Vec<u8>| bytes.copy_within(powers + 5..powers + 9, powers + 9);
    assert!(matches!(decode(&change), WireError::Range { .. }));
    let without = objects_of_other_parameters();
    let mut bytes = sent.clone();
    bytes[2..HEADER].copy_from_slice(without.hash());
    assert!(matches!(
        EvaluationKeys::decode(&without, &bytes),
        Err(WireError::NoSpecialPrimes)
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever comes, a decoder says no or makes an object that has these bytes.
    #[test]
    fn random_bytes_never_panic(kind in 0u8..6, body in prop::collection::vec(any::<u8>(), 0..800), small in any::<bool>()) {
        let objects = narrow();
        let parameters = &objects.parameters;
        let mut sent = vec![VERSION, kind];
        sent.extend(parameters.hash());
        // Small bytes get further: counts and words in range.
        sent.extend(body.iter().map(|&byte| if small { byte & 3 } else { byte }));
        if let Ok(object) = Ciphertext::decode(parameters, &sent) {
            prop_assert_eq!(bytes(|out| object.encode(out)), sent);
        } else if let Ok(object) = SeededCiphertext::decode(parameters, &sent) {
            prop_assert_eq!(bytes(|out| object.encode(out)), sent);
        } else {
            let _ = PublicKey::decode(parameters, &sent);
            let _ = EvaluationKeys::decode(parameters, &sent);
        }
    }

    #[test]
    fn changed_bytes_never_panic(place: prop::sample::Index, byte: u8, what in 0usize..4) {
        let objects = narrow();
        let parameters = &objects.parameters;
        let mut sent = match what {
            0 => bytes(|out| objects.seeded.encode(out)),
            1 => bytes(|out| objects.seeded.expand().encode(out)),
            2 => bytes(|out| objects.public.encode(out)),
            _ => bytes(|out| objects.keys.encode(out)),
        };
        let place = place.index(sent.len());
        sent[place] = byte;
        let _ = refused(parameters, &sent);
    }
}
