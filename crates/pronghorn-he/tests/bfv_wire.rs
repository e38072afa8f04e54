//! Bytes of BFV objects: round trips, and what hostile bytes meet.

use pronghorn_he::{
    bfv::{
        Answer, AnswerFormat, Ciphertext, EvaluationKeys, Hider, Noise, Parameters, PublicKey,
        SecretKey, SeededCiphertext, Switching,
    },
    rns::{self, WireError, wire::VERSION},
};
use pronghorn_ring::{Word, modulus::largest_ntt_prime, random::Seed, rns::primes};
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
    format: AnswerFormat,
    answer: Answer<W>,
}

fn seed(byte: u8) -> Seed {
    Seed::from_bytes([byte; 32])
}

fn objects<W: Word>(bits: &[u32], special: &[u32], t_bits: u32) -> Objects<W> {
    let primes = primes(N, &[bits, special].concat()).unwrap();
    let (primes, special) = primes.split_at(bits.len());
    let switching = if special.is_empty() {
        Switching::Digits(10)
    } else {
        Switching::SpecialPrimes(special)
    };
    let t = largest_ntt_prime(t_bits, N).unwrap();
    let parameters = Parameters::<W>::insecure_paper_parameters(N, primes, switching, t).unwrap();
    let key = SecretKey::generate(&parameters, &seed(1));
    let mut encryptor = key.encryptor_from_seed(&seed(2));
    let plain = parameters.encode(&[1, -2, 3]).unwrap();
    encryptor.encrypt(&plain).unwrap();
    let seeded = encryptor.encrypt(&plain).unwrap();
    let public = PublicKey::generate_from_seed(&key, &seed(3));
    let format = parameters
        .answer_format(Noise::of_secret_encryption(), 1)
        .unwrap();
    Objects {
        answer: Hider::new(&seed(5))
            .hide(9, &seeded.expand(), &public, &format)
            .unwrap(),
        keys: EvaluationKeys::generate_from_seed(&key, &[1, -1], true, &seed(4)).unwrap(),
        seeded,
        public,
        format,
        parameters,
        key,
    }
}

fn narrow() -> Objects<u32> {
    objects(&[30, 31, 30], &[31], 15)
}

fn bytes(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

impl<W: Word> Objects<W> {
    fn all(&self) -> [Vec<u8>; 5] {
        [
            bytes(|out| self.seeded.encode(out)),
            bytes(|out| self.seeded.expand().encode(out)),
            bytes(|out| self.public.encode(out)),
            bytes(|out| self.keys.encode(out)),
            bytes(|out| self.answer.encode(out)),
        ]
    }

    /// What each decoder makes of the bytes, encoded again.
    fn decoded(&self, sent: &[u8]) -> Vec<Vec<u8>> {
        let parameters = &self.parameters;
        let results = [
            SeededCiphertext::decode(parameters, sent).map(|x| bytes(|out| x.encode(out))),
            Ciphertext::decode(parameters, sent).map(|x| bytes(|out| x.encode(out))),
            PublicKey::decode(parameters, sent).map(|x| bytes(|out| x.encode(out))),
            EvaluationKeys::decode(parameters, sent).map(|x| bytes(|out| x.encode(out))),
            Answer::decode(parameters, &self.format, sent).map(|x| bytes(|out| x.encode(out))),
        ];
        results.into_iter().flatten().collect()
    }
}

fn round_trips<W: Word>(objects: &Objects<W>) {
    let parameters = &objects.parameters;
    for sent in objects.all() {
        assert_eq!(objects.decoded(&sent), [sent]);
    }
    let [seeded, whole, _, keys, answer] = objects.all();
    let back = SeededCiphertext::decode(parameters, &seeded)
        .unwrap()
        .expand();
    assert_eq!(back.words(), objects.seeded.expand().words());
    assert_eq!(
        Ciphertext::decode(parameters, &whole).unwrap().words(),
        back.words()
    );
    assert_eq!(whole.len() - HEADER, 2 * (seeded.len() - HEADER - 40));
    let plain = objects.key.decrypt(&back).unwrap();
    assert_eq!(parameters.decode(&plain).unwrap()[..4], [1, -2, 3, 0]);
    let keys = EvaluationKeys::decode(parameters, &keys).unwrap();
    for steps in [1, -1] {
        let [decoded, own] = [&keys, &objects.keys].map(|keys| back.rotate(steps, keys).unwrap());
        assert_eq!(decoded.words(), own.words());
    }
    assert_eq!(
        answer.len(),
        Answer::encoded_len(parameters, &objects.format)
    );
    let answer = Answer::decode(parameters, &objects.format, &answer).unwrap();
    let shares = objects.key.decrypt_answer(&answer).unwrap();
    let t = parameters.t() as i32;
    let own = Hider::new(&seed(5)).shares(parameters, 9);
    let sums: Vec<i32> = shares
        .iter()
        .zip(own)
        .map(|(x, y)| (x + y).rem_euclid(t))
        .collect();
    assert_eq!(sums[..4], [1, t - 2, 3, 0]);
}

#[test]
fn objects_come_back() {
    round_trips(&narrow());
    round_trips(&objects::<u32>(&[25, 25, 25, 25], &[], 15));
    round_trips(&objects::<u64>(&[50, 50], &[], 20));
    round_trips(&objects::<u64>(&[60, 60], &[60], 17));
}

/// What follows from a seed is the same on every machine and at every SIMD level.
#[test]
fn bytes_are_known() {
    let hash = |sent: Vec<u8>| blake3::hash(&sent).to_hex()[..16].to_owned();
    let found = [
        narrow().all().map(hash),
        objects::<u64>(&[50, 50], &[], 20).all().map(hash),
    ];
    assert_eq!(found, KNOWN);
}

const KNOWN: [[&str; 5]; 2] = [
    [
        "9a3bb2aa5c742966",
        "00a5e4aa179f2da5",
        "6f603fa9c4a69149",
        "e72465475a204d0c",
        "3e4e585ad1fee54f",
    ],
    [
        "099530448d8f7627",
        "b62b34ee8db91f9d",
        "36be5e302e62da02",
        "6c033d24ed3c297f",
        "25aaa0feeb44a718",
    ],
];

#[test]
fn cut_and_padded_bytes_are_refused() {
    let objects = narrow();
    for sent in objects.all() {
        for length in (0..sent.len().min(200)).chain((sent.len() - 20)..sent.len()) {
            assert!(
                objects.decoded(&sent[..length]).is_empty(),
                "{length} of {}",
                sent.len()
            );
        }
        assert!(
            objects
                .decoded(&[sent.as_slice(), &[0]].concat())
                .is_empty()
        );
    }
}

#[test]
fn headers_are_checked() {
    let objects = narrow();
    let [seeded, _, public, keys, answer] = objects.all();
    let change = |place: usize, byte: u8| {
        let mut sent = seeded.clone();
        sent[place] = byte;
        SeededCiphertext::decode(&objects.parameters, &sent)
            .err()
            .expect("it is damaged")
    };
    assert!(matches!(change(0, VERSION + 1), WireError::Version { .. }));
    assert!(matches!(
        change(1, 2),
        WireError::Kind {
            found: 2,
            expected: 17
        }
    ));
    assert!(matches!(change(20, seeded[20] ^ 1), WireError::Parameters));
    // The top byte of the number.
    assert!(matches!(
        change(HEADER + 32 + 7, 1),
        WireError::Range { .. }
    ));
    // The same primes with another plaintext modulus.
    let other = self::objects::<u32>(&[30, 31, 30], &[31], 14).parameters;
    assert!(matches!(
        SeededCiphertext::decode(&other, &seeded),
        Err(WireError::Parameters)
    ));
    assert!(matches!(
        PublicKey::decode(&other, &public),
        Err(WireError::Parameters)
    ));
    assert!(matches!(
        EvaluationKeys::decode(&other, &keys),
        Err(WireError::Parameters)
    ));
    let more = objects.format.limbs as u8 + 1;
    for (place, byte) in [(0, 0), (0, more), (1, 40), (2, 40)] {
        let mut sent = answer.clone();
        sent[HEADER + place] = byte;
        let decoded = Answer::decode(&objects.parameters, &objects.format, &sent);
        assert!(matches!(decoded, Err(WireError::Range { .. })));
    }
    let format = objects.format;
    for impossible in [
        AnswerFormat { limbs: 0, ..format },
        AnswerFormat { limbs: 9, ..format },
        AnswerFormat {
            limbs: 1,
            dropped_a: 31,
            ..format
        },
        AnswerFormat {
            limbs: 2,
            dropped_b: 1,
            ..format
        },
    ] {
        let decoded = Answer::decode(&objects.parameters, &impossible, &answer);
        assert!(matches!(decoded, Err(WireError::Range { .. })));
        let hidden =
            Hider::new(&seed(1)).hide(0, &objects.seeded.expand(), &objects.public, &impossible);
        assert!(hidden.is_err());
    }
}

#[test]
fn keys_of_the_other_scheme_are_refused() {
    // Powers of the secret have no place here, and public keys have all limbs.
    let objects = narrow();
    let ring = objects.parameters.ring();
    let key = rns::SecretKey::generate(ring, &seed(1));
    let powers = rns::EvaluationKeys::generate_from_seed(&key, 2, &[], false, &seed(1)).unwrap();
    let sent = bytes(|out| powers.encode(out));
    assert!(matches!(
        EvaluationKeys::decode(&objects.parameters, &sent),
        Err(WireError::Range { found: 2, .. })
    ));
    let public = rns::PublicKey::generate_from_seed(&key, &seed(1));
    let short = rns::PublicKey::from_parts(ring, *public.seed(), public.b()[..2 * N].to_vec());
    let sent = bytes(|out| short.encode(out));
    assert!(matches!(
        PublicKey::decode(&objects.parameters, &sent),
        Err(WireError::Range {
            found: 2,
            low: 3,
            ..
        })
    ));
}

#[test]
fn words_that_are_no_residues_are_refused() {
    // Primes so narrow that an answer keeps all of its bits.
    let objects = objects::<u32>(&[25, 25, 25, 25, 25], &[], 20);
    let [_, mut whole, _, _, mut answer] = objects.all();
    whole[HEADER..][..4].fill(0xff);
    assert!(matches!(
        Ciphertext::decode(&objects.parameters, &whole),
        Err(WireError::Word { limb: 0 })
    ));
    answer[HEADER + 3..][..4].fill(0xff);
    assert!(matches!(
        Answer::decode(&objects.parameters, &objects.format, &answer),
        Err(WireError::Word { limb: 0 })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever comes, a decoder says no or makes an object that has these bytes.
    #[test]
    fn changed_bytes_never_panic(place: prop::sample::Index, byte: u8, what in 0usize..5) {
        let objects = narrow();
        let mut sent = objects.all()[what].clone();
        let place = place.index(sent.len());
        sent[place] = byte;
        for again in objects.decoded(&sent) {
            prop_assert_eq!(&again, &sent);
        }
    }

    #[test]
    fn random_bytes_never_panic(kind in 0u8..20, body in prop::collection::vec(any::<u8>(), 0..900), small in any::<bool>()) {
        let objects = narrow();
        let mut sent = vec![VERSION, kind];
        sent.extend(objects.parameters.hash());
        // Small bytes get further: counts and words in range.
        sent.extend(body.iter().map(|&byte| if small { byte & 3 } else { byte }));
        for again in objects.decoded(&sent) {
            prop_assert_eq!(&again, &sent);
        }
    }
}
