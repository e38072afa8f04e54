//! Primes, levels and scales.

use pronghorn_he::{
    ckks::{Noise, ParameterError, Parameters},
    multikey::{Common, Limits, MultiKeyError, Rule},
};
use pronghorn_ring::{
    Word,
    rns::{self, RnsError},
    security::{self, SecurityLevel, max_log_q},
};
use serde::{Deserialize, Serialize};

use crate::{Bound, Network, NetworkError, Program};

/// Sizes of primes. A product divides by the primes of one level.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Chain {
    /// Degree of the ring.
    pub degree: usize,
    /// Bits of the primes that are left at the result.
    pub base: Vec<u32>,
    /// Bits of the primes of each level.
    pub level: Vec<u32>,
    /// Levels.
    pub levels: usize,
    /// Bits of the special primes.
    pub special: Vec<u32>,
    /// `log2` of the scale of the result.
    pub scale_log: u32,
}

/// A ring with its levels and the common reference string.
#[derive(Clone)]
pub struct Setting<W: Word> {
    common: Common<W>,
    chain: Chain,
    /// By level: the scale of values there.
    scales: Vec<f64>,
    /// By level: the product of the primes that go when it is left. 1 at level 0.
    divisors: Vec<f64>,
}

impl Chain {
    /// Bits of all primes in their order: of the result, of the levels, special ones.
    fn bits(&self) -> Vec<u32> {
        let of_levels = std::iter::repeat_n(&self.level, self.levels).flatten();
        let primes = self.base.iter().chain(of_levels).chain(&self.special);
        primes.copied().collect()
    }

    /// Refuses chains without some primes, and fewer than 128 bits of security, before anything is
    /// made of the primes.
    pub(crate) fn check(&self) -> Result<(), NetworkError> {
        let fields = [
            ("primes of the result", self.base.len()),
            ("primes of a level", self.level.len()),
            ("levels", self.levels),
            ("special primes", self.special.len()),
        ];
        if let Some(&(field, _)) = fields.iter().find(|(_, count)| *count == 0) {
            return Err(NetworkError::Chain { field });
        }
        let bits = self.bits().into_iter().fold(0, u32::saturating_add);
        // Products of primes may have fewer bits than these together.
        let least = bits.saturating_sub(self.bits().len() as u32);
        security::check(self.degree, least).map_err(ParameterError::from)?;
        Ok(())
    }
}

impl<W: Word> Setting<W> {
    /// The setting of a chain, with the `a` of a public seed that nobody has chosen.
    ///
    /// Scales are those that products keep: `scale(l + 1)^2 / divisor(l + 1) = scale(l)`.
    ///
    /// # Errors
    /// When there are no such primes, or they have less than 128 bits of security.
    pub fn new(chain: Chain, seed: [u8; 32]) -> Result<Self, NetworkError> {
        chain.check()?;
        let bits = chain.bits();
        let primes = rns::primes(chain.degree, &bits)?;
        let (primes, special) = primes.split_at(primes.len() - chain.special.len());
        let ring = Parameters::new(chain.degree, primes, special)?;
        let mut divisors = vec![1.0];
        let mut scales = vec![f64::from(chain.scale_log).exp2()];
        for level in primes[chain.base.len()..].chunks(chain.level.len()) {
            let divisor: f64 = level.iter().map(|&prime| prime as f64).product();
            divisors.push(divisor);
            scales.push((scales[scales.len() - 1] * divisor).sqrt());
        }
        Ok(Self {
            common: Common::new(&ring, seed)?,
            chain,
            scales,
            divisors,
        })
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.common
    }

    /// The ring.
    pub fn ring(&self) -> &Parameters<W> {
        self.common.ring()
    }

    /// Sizes of the primes.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Limbs of a ciphertext that has so many levels left.
    pub fn limbs(&self, level: usize) -> usize {
        self.chain.base.len() + level * self.chain.level.len()
    }

    /// The scale of values that have so many levels left.
    ///
    /// # Panics
    /// When there are no such levels.
    pub fn scale(&self, level: usize) -> f64 {
        self.scales[level]
    }

    /// The product of the primes that a product at this level divides by.
    ///
    /// # Panics
    /// When there are no such levels.
    pub fn divisor(&self, level: usize) -> f64 {
        self.divisors[level]
    }

    /// Primes that a product divides by.
    pub fn dropped(&self) -> usize {
        self.chain.level.len()
    }

    /// Refuses programs of another number of levels or slots.
    pub(crate) fn check(&self, program: &Program) -> Result<(), NetworkError> {
        let counts = [
            (
                "levels of the chain",
                self.chain.levels,
                program.steps[0].level,
            ),
            ("slots of a ciphertext", self.ring().slots(), program.slots),
        ];
        match counts
            .into_iter()
            .find(|(_, found, expected)| found != expected)
        {
            Some((what, found, expected)) => Err(NetworkError::Count {
                what,
                found,
                expected,
            }),
            None => Ok(()),
        }
    }

    /// The rule of decryption for results of a program, each a ciphertext, of a client and a model
    /// owner.
    ///
    /// # Errors
    /// When the program has other levels, or floods do not fit.
    pub fn rule(&self, program: &Program, results: u64) -> Result<Rule<W>, NetworkError> {
        let bound = Bound::of_result(program, self)?;
        let limits = Limits {
            limbs: self.limbs(0),
            parties: 2,
            log_message: (bound.reach * self.scale(0)).log2(),
            log_noise: bound.noise.slot_bound().log2(),
            log_power: Some(bound.noise.mean.log2()),
            results,
        };
        Ok(Rule::new(&self.common, limits)?)
    }

    /// The largest error of an element of a result that was decrypted under a rule: floods and
    /// noise, but for probability `2^-63`.
    ///
    /// # Errors
    /// When the program has other levels.
    pub fn error(&self, program: &Program, rule: &Rule<W>) -> Result<f64, NetworkError> {
        let noise = Bound::of_result(program, self)?.noise;
        let floods = flood_noise(self.ring().n(), rule.limits().parties, rule.log_flood());
        Ok((floods.slot_bound() + noise.slot_bound()) / self.scale(0))
    }
}

/// The floods of all parties, with the encryptions of zero, which are smaller.
fn flood_noise(n: usize, parties: usize, log_flood: u32) -> Noise {
    let one = Noise::of_flood(n, 2, log_flood);
    one.times((parties as f64).sqrt())
}

/// The error that results should have at most, and how many results a key decrypts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Aim {
    /// The largest absolute error of an element of the result.
    pub error: f64,
    /// Results of a key.
    pub results: u64,
}

/// What an aim leads to.
pub struct Chosen<W: Word> {
    /// The program at the degree of the setting.
    pub program: Program,
    /// Primes, levels and scales.
    pub setting: Setting<W>,
    /// The rule of decryption.
    pub rule: Rule<W>,
}

/// Degrees that are tried.
const DEGREES: [usize; 4] = [1 << 13, 1 << 14, 1 << 15, 1 << 16];
/// Bits of a prime, at most.
const PRIME_BITS: u32 = 30;
/// Bits of scales that are tried.
const SCALE_BITS: std::ops::RangeInclusive<u32> = 40..=180;
/// Special primes that are tried.
const SPECIAL: std::ops::RangeInclusive<usize> = 1..=10;

impl Aim {
    /// The smallest degree, and there about the smallest scale, with which results have this error.
    ///
    /// # Errors
    /// When no ring of 128 bits has room, or the network has no program.
    pub fn choose<W: Word>(
        &self,
        network: &Network,
        seed: [u8; 32],
    ) -> Result<Chosen<W>, NetworkError> {
        for degree in DEGREES {
            let program = match Program::new(network.clone(), degree / 2) {
                Err(NetworkError::TooLarge { .. }) if degree < DEGREES[3] => continue,
                program => program?,
            };
            if let Some(chosen) = self.setting(program, seed)? {
                return Ok(chosen);
            }
        }
        Err(NetworkError::TooDeep {
            depth: network.depth(),
            log_error: self.error.log2(),
        })
    }

    /// The setting of this degree; `None` where there is no room.
    fn setting<W: Word>(
        &self,
        program: Program,
        seed: [u8; 32],
    ) -> Result<Option<Chosen<W>>, NetworkError> {
        let (mut scale, mut headroom) = (*SCALE_BITS.start(), 16);
        while SCALE_BITS.contains(&scale) {
            let Some(chain) = chain(&program, scale, headroom) else {
                return Ok(None);
            };
            let setting = match Setting::<W>::new(chain, seed) {
                // Small primes are few.
                Err(NetworkError::Primes(RnsError::TooFewPrimes { .. })) => {
                    scale += 1;
                    continue;
                }
                setting => setting?,
            };
            match setting.rule(&program, self.results) {
                Ok(rule) => {
                    let error = setting.error(&program, &rule)?;
                    if error <= self.error {
                        let chosen = Chosen {
                            program,
                            setting,
                            rule,
                        };
                        return Ok(Some(chosen));
                    }
                    scale += ((error / self.error).log2().ceil() as u32).max(1);
                }
                Err(NetworkError::MultiKey(MultiKeyError::NoRoom {
                    log_flood,
                    log_message,
                    ..
                })) => {
                    // Floods that the scale does not exceed would drown the result.
                    if log_flood > scale {
                        scale = log_flood.max(scale + 1);
                    } else {
                        headroom = (log_message as u32 + 4)
                            .saturating_sub(scale)
                            .max(headroom + 2);
                    }
                }
                // Values can exceed all numbers: no ring has room.
                Err(NetworkError::MultiKey(MultiKeyError::Rule { found, .. }))
                    if found == f64::INFINITY =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Primes for a scale, with `headroom` bits above it at the result; `None` where 128 bits of
/// security allow too few special primes.
fn chain(program: &Program, scale: u32, headroom: u32) -> Option<Chain> {
    let degree = 2 * program.slots;
    let levels = program.steps[0].level;
    let split = |bits: u32| -> Vec<u32> {
        let count = bits.div_ceil(PRIME_BITS);
        vec![bits.div_ceil(count); count as usize]
    };
    let (base, level) = (split(scale + headroom), split(scale));
    let bits = |primes: &[u32]| primes.iter().sum::<u32>();
    let own = bits(&base) + levels as u32 * bits(&level);
    let limbs = base.len() + levels * level.len();
    let limit = max_log_q(degree, SecurityLevel::Bits128)?;
    let fits = |special: &usize| own + *special as u32 * PRIME_BITS <= limit;
    // Limbs that a key switch transforms.
    let work = |special: usize| limbs.div_ceil(special) * (limbs + special) + 4 * special;
    let special = SPECIAL.filter(fits).min_by_key(|&special| work(special))?;
    Some(Chain {
        degree,
        base,
        scale_log: bits(&level),
        level,
        levels,
        special: vec![PRIME_BITS; special],
    })
}
