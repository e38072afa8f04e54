//! Multi-key CKKS and BFV operation by operation, for the tables of ePrint 2019/524.

use std::{hint::black_box, time::Instant};

use pronghorn_he::{
    bfv,
    ckks::{self, CkksError, WireError},
    multikey::{
        Choice, Ciphertext, Common, Decryptor, KeyRing, Limits, MultiKeyError, Party, PublicKeys,
        Relinearisation, Rule, SecretKey,
        bfv::{Ciphertext as BfvCiphertext, Setting},
    },
};
use pronghorn_ring::{
    Word,
    modulus::largest_ntt_prime,
    random::{Prg, Seed, Stream},
    rns::{self, RnsError},
    security::SecurityLevel,
};
use thiserror::Error;

/// Why there is no such measurement.
#[derive(Debug, Error)]
pub enum MultiKeyBenchError {
    /// Words of another size.
    #[error("words of {0} bits are not supported; take 32 or 64")]
    WordBits(u32),
    /// No such operation.
    #[error("there is no operation {0:?} here")]
    Operation(String),
    /// No parties, or more than were made.
    #[error("{found} parties are not 1 to {limit}")]
    Parties {
        /// Parties asked for.
        found: usize,
        /// Parties there are.
        limit: usize,
    },
    /// No such primes.
    #[error(transparent)]
    Rns(#[from] RnsError),
    /// No such parameters.
    #[error(transparent)]
    Ckks(#[from] ckks::ParameterError),
    /// No such parameters.
    #[error(transparent)]
    Bfv(#[from] bfv::ParameterError),
    /// Refused by CKKS.
    #[error(transparent)]
    Values(#[from] CkksError),
    /// Refused by BFV.
    #[error(transparent)]
    Integers(#[from] bfv::BfvError),
    /// Refused.
    #[error(transparent)]
    MultiKey(#[from] MultiKeyError),
    /// Bytes that do not come back.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// An operation, with its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The key that others encrypt with, and the party's name.
    PublicKey,
    /// All keys but those for rotations.
    EvaluationKeys,
    /// Encryption of CKKS with a public key.
    Encrypt,
    /// CKKS product, quadratic relinearisation.
    Multiply,
    /// The same, with the division by a prime that follows.
    MultiplyAndRescale,
    /// CKKS product, linear relinearisation.
    MultiplyLinear,
    /// CKKS product, with a key for each pair of parties, which one of them made.
    MultiplyPairs,
    /// CKKS square, quadratic relinearisation.
    Square,
    /// CKKS square, linear relinearisation.
    SquareLinear,
    /// A rotation (CKKS and BFV have one ring, and the same rotation).
    Rotate,
    /// Four rotations of one ciphertext.
    RotateFour,
    /// BFV product.
    MultiplyBfv,
    /// A party's contribution to the decryption of a result.
    Contribute,
    /// A party's partial decryption.
    PartialDecryption,
}

/// All operations by name.
pub const OPERATIONS: [(&str, Operation); 14] = [
    ("public_key", Operation::PublicKey),
    ("evaluation_keys", Operation::EvaluationKeys),
    ("encrypt", Operation::Encrypt),
    ("multiply", Operation::Multiply),
    ("multiply_and_rescale", Operation::MultiplyAndRescale),
    ("multiply_linear", Operation::MultiplyLinear),
    ("multiply_pairs", Operation::MultiplyPairs),
    ("square", Operation::Square),
    ("square_linear", Operation::SquareLinear),
    ("rotate", Operation::Rotate),
    ("rotate_four", Operation::RotateFour),
    ("multiply_bfv", Operation::MultiplyBfv),
    ("contribute", Operation::Contribute),
    ("partial_decryption", Operation::PartialDecryption),
];

/// Sizes of what parties send, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The key to encrypt with, and `b` of the gadget: the paper's public key.
    pub public_key: usize,
    /// `d_0`, `d_2` and the key from `s^2`; `d_1` is a seed.
    pub evaluation_keys: usize,
    /// Both vectors of the linear relinearisation.
    pub linear_keys: usize,
    /// A key for a rotation.
    pub rotation_key: usize,
    /// A ciphertext of one party, encrypted by its owner: half of it is a seed.
    pub seeded: usize,
    /// A ciphertext of one party.
    pub ciphertext: usize,
}

/// Multi-key encryption with parameters made for a measurement; made-up values and keys. Protects
/// nothing.
pub trait MultiKeyBench: Send + Sync {
    /// `log2` of the modulus of ciphertexts, and of that and the special primes.
    fn log_moduli(&self) -> [f64; 2];

    /// Digits of a key switch.
    fn digits(&self) -> usize;

    /// The level of the security table, if it gives them one.
    fn security(&self) -> Option<SecurityLevel>;

    /// Sizes.
    fn sizes(&self) -> Sizes;

    /// Seconds of one operation with ciphertexts under `parties` keys: the mean of `iterations`.
    /// CKKS ciphertexts have lost `dropped` limbs.
    ///
    /// # Errors
    /// When there are not so many parties or limbs.
    fn seconds(
        &self,
        operation: Operation,
        parties: usize,
        dropped: usize,
        iterations: usize,
    ) -> Result<f64, MultiKeyBenchError>;

    /// The largest error of a slot of a CKKS product, relinearised and rescaled, of values up to 1;
    /// and whether all slots of the BFV product are right.
    ///
    /// # Errors
    /// When there are not so many parties.
    fn check(&self, parties: usize) -> Result<(f64, bool), MultiKeyBenchError>;
}

/// Up to `parties` parties at degree `n` with primes of these sizes.
///
/// # Errors
/// When there are no such parameters, or they have less than 128 bits.
pub fn new(
    word_bits: u32,
    n: usize,
    bits: &[u32],
    special_bits: &[u32],
    parties: usize,
) -> Result<Box<dyn MultiKeyBench>, MultiKeyBenchError> {
    match word_bits {
        32 => Ok(Box::new(Bench::<u32>::new(n, bits, special_bits, parties)?)),
        64 => Ok(Box::new(Bench::<u64>::new(n, bits, special_bits, parties)?)),
        other => Err(MultiKeyBenchError::WordBits(other)),
    }
}

/// Bits of BFV's plaintext modulus.
const T_BITS: u32 = 20;
/// Rotations: the first for one, all for four.
const STEPS: [i64; 4] = [1, 2, 4, 8];

struct Bench<W: Word> {
    common: Common<W>,
    setting: Setting<W>,
    scale: f64,
    secrets: Vec<SecretKey<W>>,
    keys: KeyRing<W>,
    bfv_secrets: Vec<SecretKey<W>>,
    bfv_keys: KeyRing<W>,
    values: Vec<f64>,
    integers: Vec<i32>,
    /// One of each party.
    fresh: Vec<Ciphertext<W>>,
    bfv_fresh: Vec<BfvCiphertext<W>>,
}

fn stream() -> Stream {
    Prg::new(
        &Seed::from_bytes([200; 32]),
        "pronghorn 2026 multi-key benchmark",
    )
    .stream(0)
}

fn secret<W: Word>(common: &Common<W>, party: usize) -> SecretKey<W> {
    SecretKey::generate(common, &Seed::from_bytes([party as u8 + 1; 32]))
}

impl<W: Word> Bench<W> {
    fn new(
        n: usize,
        bits: &[u32],
        special_bits: &[u32],
        parties: usize,
    ) -> Result<Self, MultiKeyBenchError> {
        let all = rns::primes(n, &[bits, special_bits].concat())?;
        let (primes, special) = all.split_at(bits.len());
        let ring = ckks::Parameters::new(n, primes, special)?;
        let common = Common::new(&ring, [1; 32])?;
        let t = largest_ntt_prime(T_BITS, n).unwrap_or_default();
        let switching = bfv::Switching::SpecialPrimes(special);
        let setting = Setting::new(&bfv::Parameters::new(n, primes, switching, t)?, [2; 32])?;
        let last = f64::from(bits[bits.len() - 1]);
        // A product divided by the last prime has the scale of its factors.
        let scale = last.min(40.0).exp2();
        let values: Vec<f64> = (0..ring.slots())
            .map(|j| (j as f64 * 0.618).sin())
            .collect();
        let integers: Vec<i32> = (0..n as i32).map(|j| j % 1000 - 500).collect();
        let message = ring.message(&values, &[], scale, ring.limbs())?;
        let plain = setting.parameters().encode(&integers)?;
        let mut made = Self {
            scale,
            keys: KeyRing::new(&common),
            bfv_keys: KeyRing::new(setting.common()),
            secrets: (0..parties).map(|i| secret(&common, i)).collect(),
            bfv_secrets: (0..parties).map(|i| secret(setting.common(), i)).collect(),
            common,
            setting,
            values,
            integers,
            fresh: Vec::new(),
            bfv_fresh: Vec::new(),
        };
        let random = &mut stream();
        for (secret, of_bfv) in made.secrets.iter().zip(&made.bfv_secrets) {
            let choice = Choice {
                steps: &STEPS,
                conjugation: false,
                linear: true,
                without_pairs: false,
            };
            let keys = secret.public_keys(choice)?;
            made.fresh.push(keys.encrypt(&message, random)?);
            made.keys.insert(keys)?;
            let keys = of_bfv.public_keys(Choice::default())?;
            made.bfv_fresh
                .push(made.setting.encrypt(&keys, &plain, random)?);
            made.bfv_keys.insert(keys)?;
        }
        Ok(made)
    }

    /// A ciphertext under the keys of the first parties.
    fn under(&self, parties: usize) -> Result<Ciphertext<W>, MultiKeyBenchError> {
        self.check_parties(parties)?;
        let first = self.fresh[0].clone();
        let mut sum = self.fresh[1..parties].iter();
        Ok(sum.try_fold(first, |sum, x| sum.add(x))?)
    }

    fn bfv_under(&self, parties: usize) -> Result<BfvCiphertext<W>, MultiKeyBenchError> {
        self.check_parties(parties)?;
        let first = self.bfv_fresh[0].clone();
        let mut sum = self.bfv_fresh[1..parties].iter();
        Ok(sum.try_fold(first, |sum, x| sum.add(x))?)
    }

    fn check_parties(&self, found: usize) -> Result<(), MultiKeyBenchError> {
        let limit = self.fresh.len();
        if (1..=limit).contains(&found) {
            Ok(())
        } else {
            Err(MultiKeyBenchError::Parties { found, limit })
        }
    }

    fn keys_of(&self, party: Party) -> Result<&PublicKeys<W>, MultiKeyBenchError> {
        Ok(self.keys.get(party)?)
    }

    /// The keys of the first parties, and one for each pair of them.
    fn with_pairs(&self, parties: usize) -> Result<KeyRing<W>, MultiKeyBenchError> {
        let mut keys = KeyRing::new(&self.common);
        for secret in &self.secrets[..parties] {
            let mut bytes = Vec::new();
            self.keys_of(secret.party())?.encode(&mut bytes);
            keys.insert(PublicKeys::decode(&self.common, &bytes)?)?;
        }
        for (maker, secret) in self.secrets[..parties].iter().enumerate() {
            for other in &self.secrets[maker + 1..parties] {
                let under = self.keys_of(other.party())?.encryption();
                keys.insert_pair(secret.pair_key(under)?)?;
            }
        }
        Ok(keys)
    }

    /// The rule of a result at all limbs, of so many parties.
    fn rule(&self, parties: usize) -> Result<Rule<W>, MultiKeyBenchError> {
        let log_modulus = self.common.ring().log_modulus(self.common.ring().limbs());
        let limits = Limits {
            limbs: self.common.ring().limbs(),
            parties,
            log_message: log_modulus - 8.0,
            log_noise: 20.0,
            log_power: None,
            results: 1 << 30,
        };
        Ok(Rule::new(&self.common, limits)?)
    }

    /// One operation, again and again.
    fn work(
        &self,
        operation: Operation,
        parties: usize,
        dropped: usize,
    ) -> Result<Box<dyn FnMut() -> Result<(), MultiKeyBenchError> + '_>, MultiKeyBenchError> {
        use Relinearisation::{Linear, Quadratic};
        let x = self.under(parties)?.drop_limbs(dropped)?;
        let multiply = |dropped: usize, kind: Relinearisation, square: bool| {
            let (x, y) = (x.clone(), x.clone());
            Box::new(move || {
                let other = if square { &x } else { &y };
                black_box(x.multiply(other, &self.keys, dropped, kind)?);
                Ok(())
            })
        };
        let choice = Choice::default();
        Ok(match operation {
            Operation::PublicKey => {
                let common = &self.common;
                let mut party = 0;
                Box::new(move || {
                    party += 1;
                    black_box(secret(common, party % 100));
                    Ok(())
                })
            }
            Operation::EvaluationKeys => Box::new(move || {
                black_box(self.secrets[0].public_keys(choice)?);
                Ok(())
            }),
            Operation::Encrypt => {
                let (ring, mut random) = (self.common.ring(), stream());
                let keys = self.keys_of(self.secrets[0].party())?;
                Box::new(move || {
                    let message = ring.message(&self.values, &[], self.scale, ring.limbs())?;
                    black_box(keys.encrypt(&message, &mut random)?);
                    Ok(())
                })
            }
            Operation::Multiply => multiply(0, Quadratic, false),
            Operation::MultiplyAndRescale => multiply(1, Quadratic, false),
            Operation::MultiplyLinear => multiply(0, Linear, false),
            Operation::Square => multiply(0, Quadratic, true),
            Operation::SquareLinear => multiply(0, Linear, true),
            Operation::Rotate | Operation::RotateFour => {
                let count = if operation == Operation::Rotate {
                    1
                } else {
                    STEPS.len()
                };
                Box::new(move || {
                    black_box(x.rotate_many(&STEPS[..count], &self.keys)?);
                    Ok(())
                })
            }
            Operation::MultiplyPairs => {
                let keys = self.with_pairs(parties)?;
                let y = x.clone();
                Box::new(move || {
                    black_box(x.multiply(&y, &keys, dropped, Quadratic)?);
                    Ok(())
                })
            }
            Operation::MultiplyBfv => {
                let (x, y) = (self.bfv_under(parties)?, self.bfv_under(parties)?);
                Box::new(move || {
                    black_box(x.multiply(&y, &self.bfv_keys)?);
                    Ok(())
                })
            }
            Operation::Contribute => {
                let rule = self.rule(parties)?;
                let mut party = Decryptor::new(secret(&self.common, 0), &rule)?;
                Box::new(move || {
                    black_box(party.contribute(x.extended(), &self.keys)?);
                    Ok(())
                })
            }
            Operation::PartialDecryption => {
                let rule = self.rule(parties)?;
                let mut others = (0..parties)
                    .map(|i| Decryptor::new(secret(&self.common, i), &rule))
                    .collect::<Result<Vec<_>, _>>()?;
                let contributions = others
                    .iter_mut()
                    .map(|party| party.contribute(x.extended(), &self.keys))
                    .collect::<Result<Vec<_>, _>>()?;
                let kept = others[0].ledger();
                Box::new(move || {
                    // A decryptor gives each result once: a fresh one each time.
                    let secret = secret(&self.common, 0);
                    let mut party =
                        Decryptor::resume(secret, &rule, &kept).map_err(|error| match error {
                            pronghorn_he::multikey::wire::ResumeError::Wire(error) => {
                                MultiKeyBenchError::from(error)
                            }
                            pronghorn_he::multikey::wire::ResumeError::MultiKey(error) => {
                                error.into()
                            }
                        })?;
                    black_box(party.decrypt(x.extended(), &contributions, |_| Ok(()))?);
                    Ok(())
                })
            }
        })
    }
}

impl<W: Word> MultiKeyBench for Bench<W> {
    fn log_moduli(&self) -> [f64; 2] {
        let ring = self.common.ring();
        let basis = ring.basis();
        [
            ring.log_modulus(ring.limbs()),
            basis.log2_product(0..basis.limbs()),
        ]
    }

    fn digits(&self) -> usize {
        let ring = self.common.ring();
        ring.digit_count(ring.limbs())
    }

    fn security(&self) -> Option<SecurityLevel> {
        self.common.ring().security()
    }

    fn sizes(&self) -> Sizes {
        let ring = self.common.ring();
        let own = ckks::wire::packed_len(ring, ring.limbs());
        let vector = self.digits() * ckks::wire::packed_len(ring, ring.basis().limbs());
        let all = ckks::wire::packed_len(ring, ring.basis().limbs());
        let header = 34;
        Sizes {
            public_key: own + vector,
            evaluation_keys: 3 * vector + 32,
            linear_keys: 2 * ring.limbs() * all,
            rotation_key: vector,
            seeded: header + 49 + own,
            ciphertext: header + 42 + 2 * own,
        }
    }

    fn seconds(
        &self,
        operation: Operation,
        parties: usize,
        dropped: usize,
        iterations: usize,
    ) -> Result<f64, MultiKeyBenchError> {
        let mut work = self.work(operation, parties, dropped)?;
        work()?;
        let started = Instant::now();
        for _ in 0..iterations {
            work()?;
        }
        Ok(started.elapsed().as_secs_f64() / iterations.max(1) as f64)
    }

    fn check(&self, parties: usize) -> Result<(f64, bool), MultiKeyBenchError> {
        let ring = self.common.ring();
        let x = self.under(parties)?;
        let mut worst = 0f64;
        for kind in [Relinearisation::Quadratic, Relinearisation::Linear] {
            let product = x.multiply(&x, &self.keys, 1, kind)?;
            let secrets: Vec<_> = self.secrets.iter().collect();
            let found = ring.decode(&product.decrypt_with_all(&secrets)?)?;
            let wanted = self.values.iter().map(|v| (v * parties as f64).powi(2));
            let errors = found.re.iter().zip(wanted).map(|(x, y)| (x - y).abs());
            worst = errors.fold(worst, f64::max);
        }
        let x = self.bfv_under(parties)?;
        let product = x.multiply(&x, &self.bfv_keys)?;
        let secrets: Vec<_> = self.bfv_secrets.iter().collect();
        let plain = product.decrypt_with_all(&secrets)?;
        let parameters = self.setting.parameters();
        let found = parameters.decode(&plain)?;
        let t = parameters.t() as i64;
        let right = found.iter().zip(&self.integers).all(|(&found, &value)| {
            let wanted = (i64::from(value) * parties as i64).pow(2);
            i64::from(found).rem_euclid(t) == wanted.rem_euclid(t)
        });
        Ok((worst / (parties * parties) as f64, right))
    }
}
