//! Primes, levels and scales.

use pronghorn_he::{
    ckks::{Noise, ParameterError, Parameters},
    multikey::{Common, Limits, Rule},
};
use pronghorn_ring::{Word, rns, security};
use serde::{Deserialize, Serialize};

use crate::{Bound, Bounds, NetworkError, Program, network::Op, packing::Packing};

/// Least bits of a factor that brings values to a lower level: its rounding changes them by at most
/// `2^-40`, relatively.
pub(crate) const LOG_LOWERED: f64 = 39.0;
/// Most bits of a scale.
const MOST_SCALE: u32 = 300;

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
    /// `log2` of the scale of the input.
    pub scale_log: u32,
    /// By level of a product's result: `log2` of the scale of its weights. Zero, or nothing, for
    /// factors at the scale of values.
    pub weight_logs: Vec<u32>,
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
        let logs = self.weight_logs.iter().chain([&self.scale_log]);
        if self.weight_logs.len() > self.levels || logs.max() > Some(&MOST_SCALE) {
            return Err(NetworkError::Chain {
                field: "scales of its levels",
            });
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
    /// Scales follow from that of the input: `scale(l) = scale(l + 1) weight(l) / divisor(l + 1)`,
    /// with `weight(l) = scale(l + 1)` where values meet values.
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
        for level in primes[chain.base.len()..].chunks(chain.level.len()) {
            divisors.push(level.iter().map(|&prime| prime as f64).product());
        }
        let mut scales = vec![f64::from(chain.scale_log).exp2(); chain.levels + 1];
        for level in (0..chain.levels).rev() {
            let above = scales[level + 1];
            let factor = match chain.weight_logs.get(level) {
                None | Some(0) => above,
                Some(&log) => f64::from(log).exp2(),
            };
            scales[level] = above * factor / divisors[level + 1];
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

    /// The scale of weights whose product is at this level.
    ///
    /// # Panics
    /// When there are no such levels.
    pub fn weight_scale(&self, level: usize) -> f64 {
        self.scales[level] * self.divisors[level + 1] / self.scales[level + 1]
    }

    /// Primes that a layer's sum is divided by after its folds: one, where a level has more than
    /// one. Then noise of folds is divided too.
    pub fn late(&self, packing: &Packing) -> usize {
        usize::from(!packing.folds.is_empty() && self.dropped() > 1)
    }

    /// The product of the `late` primes that go last when the level above `level` is left.
    pub(crate) fn last(&self, level: usize, late: usize) -> f64 {
        let primes = self.ring().basis().primes().skip(self.limbs(level));
        primes
            .take(late)
            .map(|prime| prime.value() as f64)
            .product()
    }

    /// Refuses programs of another number of levels or slots, and products of values at a scale of
    /// weights.
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
            None => self.check_scales(program),
        }
    }

    /// The factor of a value that is brought from a level to a lower one, before the division.
    pub(crate) fn lowering(&self, from: usize, to: usize) -> f64 {
        self.scale(to) * self.divisor(to + 1) / self.scale(from)
    }

    fn check_scales(&self, program: &Program) -> Result<(), NetworkError> {
        let lowerings = program.lowerings();
        let mut factors = lowerings.iter().map(|&(from, to)| self.lowering(from, to));
        if factors.any(|factor| factor.log2() < LOG_LOWERED) {
            return Err(NetworkError::Chain {
                field: "scale of values that are brought to a lower level",
            });
        }
        let logs = &self.chain.weight_logs;
        let steps = program.network.nodes.iter().zip(&program.steps);
        let is_other = steps.into_iter().any(|(node, step)| {
            let of_values = matches!(node.op, Op::Square | Op::Multiply);
            of_values && logs.get(step.level).is_some_and(|&log| log > 0)
        });
        if is_other {
            return Err(NetworkError::Chain {
                field: "scale of values where they meet each other",
            });
        }
        Ok(())
    }

    /// The rule of decryption for results of a program, each a ciphertext, of a client and a model
    /// owner.
    ///
    /// # Errors
    /// When the program has other levels, or floods do not fit.
    pub fn rule(
        &self,
        program: &Program,
        bounds: &Bounds,
        results: u64,
    ) -> Result<Rule<W>, NetworkError> {
        let bound = Bound::of_result(program, bounds, self)?;
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
    pub fn error(
        &self,
        program: &Program,
        bounds: &Bounds,
        rule: &Rule<W>,
    ) -> Result<f64, NetworkError> {
        let noise = Bound::of_result(program, bounds, self)?.noise;
        let floods = flood_noise(self.ring().n(), rule.limits().parties, rule.log_flood());
        Ok((floods.slot_bound() + noise.slot_bound()) / self.scale(0))
    }
}

/// The floods of all parties, with the encryptions of zero, which are smaller.
fn flood_noise(n: usize, parties: usize, log_flood: u32) -> Noise {
    let one = Noise::of_flood(n, 2, log_flood);
    one.times((parties as f64).sqrt())
}
