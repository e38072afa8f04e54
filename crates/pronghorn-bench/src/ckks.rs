//! CKKS operation by operation, with words of 32 or of 64 bits.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use pronghorn_he::ckks::{
    Ciphertext, CkksError, EvaluationKeys, Message, ParameterError, Parameters, Plaintext,
    PublicKey, Scalar, SecretKey, slices,
};
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
    rns,
    security::SecurityLevel,
};
mod operation;

pub use operation::{CkksBenchError, OPERATIONS, Operation};

/// Some steps, as fractions of the number of slots.
pub const RANDOM_STEPS: [f64; 4] = [0.381_966, 0.729_135, 0.146_447, 0.567_143];

/// A set of parameters with everything the operations take.
struct Bench<W: Word> {
    parameters: Parameters<W>,
    scale: f64,
    values: Vec<f64>,
    key: SecretKey<W>,
    public: PublicKey<W>,
    /// None without special primes.
    keys: Option<EvaluationKeys<W>>,
    message: Message<W>,
    plain: Plaintext<W>,
    scalar: Scalar<W>,
    left: Ciphertext<W>,
    right: Ciphertext<W>,
}

/// CKKS with parameters made for a measurement or a check; made-up values, and secrets from fixed
/// seeds. Protects nothing.
pub trait CkksBench: Send + Sync {
    /// Primes of the ciphertexts.
    fn primes(&self) -> Vec<u64>;

    /// Special primes.
    fn special_primes(&self) -> Vec<u64>;

    /// The level of the security table of these parameters, if it gives them one.
    fn security(&self) -> Option<SecurityLevel>;

    /// The root of unity of each prime of the ciphertexts: place `i` of a transform is the
    /// polynomial at `root^(2 r + 1)`, `r` being `i` with its bits reversed.
    fn roots(&self) -> Vec<u64>;

    /// Bytes of a plaintext and of a scalar.
    fn plain_bytes(&self) -> [usize; 2];

    /// Seconds of one operation: `iterations` of them on each of `threads` threads at once, after
    /// one to warm up; by the slowest thread, divided by how many there were.
    ///
    /// # Errors
    /// When there is no such operation with these parameters.
    fn seconds(
        &self,
        operation: Operation,
        iterations: usize,
        threads: usize,
    ) -> Result<f64, CkksBenchError>;

    /// The residues of an encoding, `[limb][N]`, in the NTT domain.
    ///
    /// # Errors
    /// As [`Parameters::encode`].
    fn encode(&self, re: &[f64], im: &[f64], scale: f64) -> Result<Vec<u64>, CkksBenchError>;

    /// Undoes [`encode`](Self::encode): real and imaginary parts.
    ///
    /// # Errors
    /// When these are not the residues of one polynomial.
    fn decode(&self, words: &[u64], scale: f64) -> Result<[Vec<f64>; 2], CkksBenchError>;

    /// An encryption with the public key, `[poly][limb][N]`.
    ///
    /// # Errors
    /// As [`Parameters::encode`].
    fn encrypt(&self, re: &[f64], im: &[f64], scale: f64) -> Result<Vec<u64>, CkksBenchError>;

    /// The plaintext of a ciphertext, `[limb][N]`.
    ///
    /// # Errors
    /// When these are not the residues of polynomials.
    fn decrypt(&self, words: &[u64]) -> Result<Vec<u64>, CkksBenchError>;

    /// The transform of a polynomial, `[limb][N]`, or its inverse.
    ///
    /// # Errors
    /// When these are not the residues of one polynomial.
    fn ntt(&self, words: &[u64], inverse: bool) -> Result<Vec<u64>, CkksBenchError>;
}

/// Parameters of degree `n` with primes of these sizes. Where the security table refuses them they
/// are made all the same, and have no level: tables of papers have such.
///
/// # Errors
/// When there are no such parameters.
pub fn new(
    word_bits: u32,
    n: usize,
    bits: &[u32],
    special_bits: &[u32],
) -> Result<Box<dyn CkksBench>, CkksBenchError> {
    match word_bits {
        32 => Ok(Box::new(Bench::<u32>::new(n, bits, special_bits)?)),
        64 => Ok(Box::new(Bench::<u64>::new(n, bits, special_bits)?)),
        other => Err(CkksBenchError::WordBits(other)),
    }
}

/// With the largest primes of these sizes.
pub(crate) fn parameters<W: Word>(
    n: usize,
    bits: &[u32],
    special_bits: &[u32],
) -> Result<Parameters<W>, CkksBenchError> {
    let all = rns::primes(n, &[bits, special_bits].concat())?;
    let (primes, special) = all.split_at(bits.len());
    match Parameters::new(n, primes, special) {
        Err(ParameterError::Security(_)) => {
            Ok(Parameters::insecure_paper_parameters(n, primes, special)?)
        }
        made => Ok(made?),
    }
}

impl<W: Word> Bench<W> {
    fn new(n: usize, bits: &[u32], special_bits: &[u32]) -> Result<Self, CkksBenchError> {
        let parameters = parameters::<W>(n, bits, special_bits)?;
        let limbs = parameters.limbs();
        // So that a product of two has room.
        let scale = (parameters.log_modulus(limbs) / 2.0 - 4.0)
            .min(40.0)
            .floor()
            .exp2();
        let values: Vec<f64> = (0..parameters.slots())
            .map(|slot| (slot as f64 * 0.618).sin())
            .collect();
        let seed = |number| Seed::from_bytes([number; 32]);
        let key = SecretKey::generate(&parameters, &seed(1));
        let public = PublicKey::generate_from_seed(&key, &seed(2));
        let steps: Vec<i64> = std::iter::once(1)
            .chain(random_steps(n).into_iter().flat_map(signed_powers))
            .collect();
        let keys = (!special_bits.is_empty())
            .then(|| EvaluationKeys::generate_from_seed(&key, 2, &steps, false, &seed(3)))
            .transpose()
            .map_err(CkksError::from)?;
        let message = parameters.message(&values, &[], scale, limbs)?;
        let mut encryptor = key.encryptor_from_seed(&seed(4));
        let mut fresh = || encryptor.encrypt(&message).map(|fresh| fresh.expand());
        Ok(Self {
            left: fresh()?,
            right: fresh()?,
            plain: message.to_plaintext(),
            scalar: parameters.scalar(0.618, scale, limbs)?,
            parameters,
            scale,
            values,
            key,
            public,
            keys,
            message,
        })
    }

    /// One operation on buffers of its own, again and again.
    fn work(&self, operation: Operation) -> Result<Box<dyn FnMut() + '_>, CkksBenchError> {
        let (parameters, limbs) = (&self.parameters, self.parameters.limbs());
        let n = parameters.n();
        let mut x = self.left.data().to_vec();
        let y = self.right.data();
        let polys = |polys: usize, limbs: usize| vec![W::default(); polys * limbs * n];
        let keys = || {
            let (name, _) = OPERATIONS[operation as usize];
            self.keys.as_ref().ok_or(CkksBenchError::NoKeys(name))
        };
        Ok(match operation {
            Operation::Encode => Box::new(move || {
                let plain = parameters.encode(&self.values, &[], self.scale, limbs);
                keep(plain.is_ok());
            }),
            Operation::EncodeScalar => Box::new(move || {
                let scalar = parameters.scalar(std::hint::black_box(0.618), self.scale, limbs);
                keep(scalar.is_ok());
            }),
            Operation::EncodeScalarCopied => {
                let mut out = polys(1, limbs);
                let mut encode = move || {
                    let scalar = parameters.scalar(std::hint::black_box(0.618), self.scale, limbs);
                    let words = scalar.ok()?;
                    for (word, limb) in words.words().iter().zip(out.chunks_exact_mut(n)) {
                        limb.fill(*word);
                    }
                    std::hint::black_box(&mut out);
                    Some(())
                };
                Box::new(move || keep(encode().is_some()))
            }
            Operation::Encrypt => {
                let mut random =
                    Prg::new(&Seed::from_os().map_err(CkksError::from)?, DOMAIN).stream(0);
                Box::new(move || keep(self.public.encrypt(&self.message, &mut random).is_ok()))
            }
            Operation::EncryptSecret => {
                let mut encryptor = self.key.encryptor().map_err(CkksError::from)?;
                let mut b = polys(1, limbs);
                Box::new(move || {
                    let index = encryptor.reserve(1).next().expect("one was reserved");
                    keep(
                        encryptor
                            .encrypt_words(index, &self.message, &mut b)
                            .is_ok(),
                    );
                })
            }
            Operation::Decrypt => {
                let mut out = polys(1, limbs);
                Box::new(move || self.key.decrypt_words(limbs, &x, &mut out))
            }
            Operation::Decode => Box::new(move || keep(parameters.decode(&self.plain).is_ok())),
            Operation::Add => Box::new(move || slices::add_assign(parameters, limbs, &mut x, y)),
            Operation::AddPlain => {
                Box::new(move || slices::add_assign(parameters, limbs, &mut x, self.plain.data()))
            }
            Operation::AddScalar => {
                let words = self.scalar.words();
                Box::new(move || slices::add_scalar_assign(parameters, limbs, &mut x, words))
            }
            Operation::MultiplyPlain => {
                let plain = self.plain.data();
                Box::new(move || slices::mul_plain_assign(parameters, limbs, &mut x, plain))
            }
            Operation::MultiplyScalar => {
                let words = self.scalar.words();
                Box::new(move || slices::mul_scalar_assign(parameters, limbs, &mut x, words))
            }
            Operation::Multiply => {
                let mut out = polys(3, limbs);
                Box::new(move || slices::multiply(parameters, limbs, &x, y, &mut out))
            }
            Operation::Square => {
                let mut out = polys(3, limbs);
                Box::new(move || slices::square(parameters, limbs, &x, &mut out))
            }
            Operation::Relinearise => {
                let (keys, product) = (keys()?, self.left.multiply(&self.right)?);
                let mut out = polys(2, limbs);
                Box::new(move || {
                    keep(
                        keys.relinearise_words(limbs, 0, product.data(), &mut out)
                            .is_ok(),
                    );
                })
            }
            Operation::Rescale => {
                if limbs == 1 {
                    return Err(CkksBenchError::OneLimb);
                }
                let mut out = polys(2, limbs - 1);
                Box::new(move || slices::rescale(parameters, limbs, 1, &x, &mut out))
            }
            Operation::Rotate => {
                let keys = keys()?;
                Box::new(move || keep(self.left.rotate(1, keys).is_ok()))
            }
            Operation::RotateRandom => {
                let (keys, steps) = (keys()?, random_steps(n).map(signed_powers));
                let mut next = steps.into_iter().cycle();
                let mut rotate = move || {
                    let rotated = next
                        .next()?
                        .into_iter()
                        .try_fold(self.left.clone(), |x, step| x.rotate(step, keys));
                    rotated.ok()
                };
                Box::new(move || keep(rotate().is_some()))
            }
        })
    }

    /// Words of `what`: whole polynomials of residues.
    fn residues(&self, words: &[u64], what: &'static str) -> Result<Vec<W>, CkksBenchError> {
        let (limbs, n) = (self.parameters.limbs(), self.parameters.n());
        let below = |(place, word): (usize, &u64)| {
            *word < self.parameters.basis().prime(place / n % limbs).value()
        };
        let whole = match what {
            ONE_POLYNOMIAL => words.len() == limbs * n,
            _ => !words.is_empty() && words.len().is_multiple_of(limbs * n),
        };
        if !whole || !words.iter().enumerate().all(below) {
            return Err(CkksBenchError::Words {
                words: words.len(),
                what,
                limbs,
                n,
            });
        }
        Ok(words.iter().map(|&word| W::from_u64(word)).collect())
    }
}

const DOMAIN: &str = "pronghorn 2026 benchmarks";
const ONE_POLYNOMIAL: &str = "one polynomial";
const POLYNOMIALS: &str = "polynomials";

/// Lets nobody optimise away what led to `done`.
fn keep(done: bool) {
    assert!(std::hint::black_box(done), "what worked once works again");
}

/// [`RANDOM_STEPS`] of degree `n`.
fn random_steps(n: usize) -> [i64; RANDOM_STEPS.len()] {
    RANDOM_STEPS.map(|share| (share * (n / 2) as f64) as i64)
}

/// A number as the sum of the fewest powers of two and their negatives: its non-adjacent form.
fn signed_powers(mut number: i64) -> Vec<i64> {
    let (mut powers, mut power) = (Vec::new(), 1);
    while number != 0 {
        if number % 2 != 0 {
            // 1 or -1, whichever leaves a multiple of four.
            let digit = 2 - number.rem_euclid(4);
            powers.push(digit * power);
            number -= digit;
        }
        number /= 2;
        power *= 2;
    }
    powers
}

fn widen<W: Word>(words: &[W]) -> Vec<u64> {
    words.iter().map(|word| word.to_u64()).collect()
}

impl<W: Word> CkksBench for Bench<W> {
    fn primes(&self) -> Vec<u64> {
        let primes = self.parameters.basis().primes();
        let primes = primes.take(self.parameters.limbs());
        primes.map(|q| q.value()).collect()
    }

    fn special_primes(&self) -> Vec<u64> {
        let primes = self.parameters.basis().primes();
        let primes = primes.skip(self.parameters.limbs());
        primes.map(|q| q.value()).collect()
    }

    fn security(&self) -> Option<SecurityLevel> {
        self.parameters.security()
    }

    fn roots(&self) -> Vec<u64> {
        let limbs = 0..self.parameters.limbs();
        limbs
            .map(|limb| self.parameters.basis().ntt(limb).root().to_u64())
            .collect()
    }

    fn plain_bytes(&self) -> [usize; 2] {
        [
            size_of_val(self.plain.data()),
            size_of_val(self.scalar.words()),
        ]
    }

    fn seconds(
        &self,
        operation: Operation,
        iterations: usize,
        threads: usize,
    ) -> Result<f64, CkksBenchError> {
        if iterations == 0 || threads == 0 {
            return Err(CkksBenchError::Nothing);
        }
        let start = Barrier::new(threads);
        let one = || {
            let mut work = self.work(operation);
            if let Ok(work) = &mut work {
                work();
            }
            // All arrive here, those that fail too.
            start.wait();
            let mut work = work?;
            let started = Instant::now();
            for _ in 0..iterations {
                work();
            }
            Ok(started.elapsed())
        };
        let slowest = thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
            let mut slowest: Result<Duration, CkksBenchError> = one();
            for other in others {
                let found = other.join().expect("no operation panics");
                slowest = slowest.and_then(|slowest| Ok(slowest.max(found?)));
            }
            slowest
        })?;
        Ok(slowest.as_secs_f64() / (iterations * threads) as f64)
    }

    fn encode(&self, re: &[f64], im: &[f64], scale: f64) -> Result<Vec<u64>, CkksBenchError> {
        let plain = self
            .parameters
            .encode(re, im, scale, self.parameters.limbs())?;
        Ok(widen(plain.data()))
    }

    fn decode(&self, words: &[u64], scale: f64) -> Result<[Vec<f64>; 2], CkksBenchError> {
        // A ciphertext of one polynomial is a plaintext, and decrypts to itself.
        let words = self.residues(words, ONE_POLYNOMIAL)?;
        let limbs = self.parameters.limbs();
        let trivial = Ciphertext::from_words(&self.parameters, limbs, scale, words)?;
        let slots = self.parameters.decode(&self.key.decrypt(&trivial)?)?;
        Ok([slots.re, slots.im])
    }

    fn encrypt(&self, re: &[f64], im: &[f64], scale: f64) -> Result<Vec<u64>, CkksBenchError> {
        let message = self
            .parameters
            .message(re, im, scale, self.parameters.limbs())?;
        let seed = Seed::from_os().map_err(CkksError::from)?;
        let encrypted = self
            .public
            .encrypt(&message, &mut Prg::new(&seed, DOMAIN).stream(0))?;
        Ok(widen(encrypted.data()))
    }

    fn decrypt(&self, words: &[u64]) -> Result<Vec<u64>, CkksBenchError> {
        let words = self.residues(words, POLYNOMIALS)?;
        let limbs = self.parameters.limbs();
        let mut out = vec![W::default(); limbs * self.parameters.n()];
        self.key.decrypt_words(limbs, &words, &mut out);
        Ok(widen(&out))
    }

    fn ntt(&self, words: &[u64], inverse: bool) -> Result<Vec<u64>, CkksBenchError> {
        let mut words = self.residues(words, ONE_POLYNOMIAL)?;
        if inverse {
            self.parameters.basis().inverse(&mut words);
        } else {
            self.parameters.basis().forward(&mut words);
        }
        Ok(widen(&words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_runs_on_threads() {
        for word_bits in [32, 64] {
            let bench = new(word_bits, 1024, &[28, 28, 28], &[28]).unwrap();
            assert_eq!(bench.security(), None);
            assert_eq!(
                bench.plain_bytes(),
                [1024, 1].map(|words| words * 3 * word_bits as usize / 8)
            );
            for (place, (name, operation)) in OPERATIONS.into_iter().enumerate() {
                assert_eq!(operation as usize, place);
                for threads in [1, 2] {
                    let seconds = bench.seconds(operation, 2, threads);
                    assert!(seconds.unwrap() > 0.0, "{name}");
                }
            }
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let bench = new(32, 2048, &[30], &[]).unwrap();
        assert_eq!(bench.security(), Some(SecurityLevel::Bits192));
        let refused = |operation| bench.seconds(operation, 1, 1).unwrap_err().to_string();
        assert!(refused(Operation::Relinearise).contains("\"relinearise\" needs evaluation keys"));
        assert!(refused(Operation::RotateRandom).contains("special primes"));
        assert!(refused(Operation::Rescale).contains("two primes"));
        assert!(bench.seconds(Operation::Add, 0, 1).is_err());
        assert!(bench.seconds(Operation::Add, 1, 0).is_err());
        assert!(new(16, 2048, &[30], &[]).is_err());
        assert!(new(32, 2048, &[40], &[]).is_err());
        assert!(new(32, 2048, &[], &[]).is_err());
    }

    #[test]
    fn values_come_back() {
        let bench = new(64, 1024, &[50, 40], &[]).unwrap();
        let (re, im, scale) = ([1.5, -2.25, 3.0], [0.5, 4.0], 2f64.powi(40));
        let close = |words: &[u64]| {
            let [found_re, found_im] = bench.decode(words, scale).unwrap();
            let all = found_re[..3]
                .iter()
                .zip(&re)
                .chain(found_im[..2].iter().zip(&im));
            all.for_each(|(found, wanted)| assert!((found - wanted).abs() < 1e-6));
        };
        let plain = bench.encode(&re, &im, scale).unwrap();
        close(&plain);
        close(
            &bench
                .decrypt(&bench.encrypt(&re, &im, scale).unwrap())
                .unwrap(),
        );
        let coefficients = bench.ntt(&plain, true).unwrap();
        assert_eq!(bench.ntt(&coefficients, false).unwrap(), plain);
        assert!(bench.decode(&plain[1..], scale).is_err());
        assert!(bench.decrypt(&[]).is_err());
        assert!(bench.decrypt(&[plain.as_slice(), &plain].concat()).is_ok());
        assert!(bench.ntt(&vec![u64::MAX; 2048], false).is_err());
    }

    #[test]
    fn non_adjacent_forms() {
        assert!(signed_powers(0).is_empty());
        assert_eq!(signed_powers(7), [-1, 8]);
        assert_eq!(signed_powers(-6), [2, -8]);
        for number in -300..300 {
            let powers = signed_powers(number);
            assert_eq!(powers.iter().sum::<i64>(), number);
            assert!(
                powers
                    .windows(2)
                    .all(|pair| pair[1].abs() >= 4 * pair[0].abs())
            );
        }
    }
}
