//! Bounds on a result and its noise, for any input in range.
//!
//! A bound on the noise decides how large the floods of the decryption are, so it must hold
//! whatever the input and the weights are. Noise enters at known places with a power that follows
//! from the primes. What becomes of it until the result is in the [`Bounds`] that the owner of the
//! weights has proven. So the result's power is a sum over these places:
//!
//! * **Encryptions** of inputs and weights, by their owners: `e`, and the rounding of the encoding.
//!   Noise of weights meets all slots of the input, partial sums too.
//! * **Fresh polynomials** of the client, which the cloud gives to the input and each product.
//! * **Rotations** of a layer's input, which are apart for each rotation. Layers that read one
//!   value rotate one ciphertext with one key, so what they read is not independent: the power of
//!   the sum of `k` such noises is at most `k` times the sum of their powers.
//! * **Relinearisations and folds**, divided by all primes of the level but the last
//!   ([`Setting::late`]), and then roundings by that one, after the folds.
//! * Roundings of values that are brought to a lower level.
//!
//! Errors and roundings are independent, and apart in each slot of a ciphertext: polynomials with
//! independent coefficients have uncorrelated slots. A coefficient is at most as large as the
//! largest slot. The sum of the squares of all coefficients is the mean of the squares of the slots
//! (Parseval), however the noise is distributed among them: that is what the floods of the
//! decryption must hide.
//!
//! Errors of keys and weights are one for all results. The floods' bound allows that, if the noise
//! of no result is far beyond its expectation ([`flood`], equation 3), which is checked here.
//!
//! Gains count the mean over the result. At the worst element noise is at most as many times that
//! as the result has elements.

use std::f64::consts::SQRT_2;

use pronghorn_he::{
    ckks::Noise,
    flood,
    multikey::{Common, Relinearisation::Quadratic},
};
use pronghorn_ring::Word;

use crate::{
    Bounds, NetworkError, NodeBounds, Program, SLACK, Setting,
    network::{Node, Op, Work},
};

/// How large a result can become.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The largest magnitude of a slot.
    pub reach: f64,
    /// The noise, in units of the ciphertext's integers. Infinite where products of two errors may
    /// not be negligible.
    pub noise: Noise,
}

impl Bound {
    /// Of the result of a program.
    ///
    /// # Errors
    /// When the program has other levels, slots or bounds than the setting.
    pub fn of_result<W: Word>(
        program: &Program,
        bounds: &Bounds,
        setting: &Setting<W>,
    ) -> Result<Self, NetworkError> {
        setting.check(program)?;
        bounds.check(program.network.nodes.len())?;
        let mut sum = Sum {
            program,
            setting,
            power: Noise::default(),
            largest: 0.0,
            tails: 0.0,
            places: 0.0,
        };
        for (index, node) in program.network.nodes.iter().enumerate() {
            sum.add_node(index, node, &bounds.nodes[index]);
            for &input in &node.inputs {
                sum.add_lowering(index, input, bounds.nodes[input].slots);
            }
        }
        let output = program.network.output;
        let elements = program.network.nodes[output].elements as f64;
        let of_scale = sum.power.times(setting.scale(0));
        let is_small = sum.largest * bounds.sensitivity <= SLACK;
        let noise = match is_small && sum.spread(program.slots) <= flood::MOST_SPREAD {
            true => Noise {
                mean: of_scale.mean,
                peak: of_scale.peak * elements,
            },
            false => Noise {
                mean: f64::INFINITY,
                peak: f64::INFINITY,
            },
        };
        Ok(Self {
            reach: bounds.nodes[output].reach,
            noise,
        })
    }
}

/// The result's noise so far, in units of values.
struct Sum<'a, W: Word> {
    program: &'a Program,
    setting: &'a Setting<W>,
    power: Noise,
    /// The largest noise of one slot that has entered.
    largest: f64,
    /// The sum of the powers of noise at its bound in every slot.
    tails: f64,
    /// Noises that have entered.
    places: f64,
}

impl<W: Word> Sum<'_, W> {
    /// Noise that enters at a scale.
    fn enter(&mut self, noise: Noise, scale: f64, gain: f64) {
        let entered = noise.times(1.0 / scale);
        self.largest = self.largest.max(entered.slot_bound());
        self.power = self.power + entered.times(gain);
        self.tails += (entered.slot_bound() * gain).powi(2);
        self.places += 1.0;
    }

    /// Most that the power of the result's noise is beyond its expectation, for any input and any
    /// errors within their tails (`kappa` of [`flood`]). Every slot of a noise is at its bound, and
    /// the slots and the noises add up in the worst direction. A gain is a Frobenius norm, so no
    /// direction has more.
    fn spread(&self, slots: usize) -> f64 {
        self.tails * slots as f64 * self.places / self.power.mean
    }

    fn common(&self) -> &Common<W> {
        self.setting.common()
    }

    /// Of an encryption by who has the secret.
    fn fresh(&self) -> Noise {
        let n = self.setting.ring().n();
        Noise::of_secret_encryption(n) + Noise::of_exact_encoding(n)
    }

    /// Keys that a value is under.
    fn parties(&self, node: usize) -> usize {
        match self.program.steps[node].is_client_alone {
            true => 1,
            false => 2,
        }
    }

    /// Of a relinearisation divided by all but `late` primes of the level above `level`.
    fn relinearised(&self, parties: usize, level: usize, late: usize) -> Noise {
        let (common, setting) = (self.common(), self.setting);
        let noise = common.relinearisation_noise(setting.limbs(level + 1), parties, Quadratic);
        let divisor = setting.divisor(level + 1) / setting.last(level, late);
        common.rescaled_noise(noise, parties, divisor)
    }

    fn add_node(&mut self, index: usize, node: &Node, bounds: &NodeBounds) {
        let setting = self.setting;
        let (step, common) = (&self.program.steps[index], setting.common());
        let (level, scale) = (step.level, setting.scale(step.level));
        match (&node.op, &step.work) {
            (Op::Input { .. }, _) => {
                let noise = self.fresh() + common.refresh_noise();
                self.enter(noise, scale, bounds.slots);
            }
            (Op::Linear { .. } | Op::Factor, work) => {
                let fresh = self.fresh();
                self.enter(fresh, setting.weight_scale(level), bounds.weights);
                self.enter(fresh, scale, bounds.slots);
                let (mut late, mut folds) = (0, 0);
                if let Work::Linear(packing) = work {
                    (late, folds) = (setting.late(packing), packing.folds.len());
                    let parties = self.parties(node.inputs[0]);
                    let noise = common.rotation_noise(setting.limbs(level + 1), parties);
                    let shared = self.program.readers(index) as f64;
                    for reads in packing.reads_of_rotations() {
                        let gain = bounds.rotated * (shared * reads as f64).sqrt();
                        self.enter(noise, setting.scale(level + 1), gain);
                    }
                }
                let summed = self.relinearised(2, level, late) + common.refresh_noise();
                let last = setting.last(level, late);
                let gain = match folds {
                    0 => bounds.slots,
                    _ => bounds.folded,
                };
                self.enter(summed, scale * last, gain);
                if folds > 0 {
                    // It is alike in every second, fourth copy and so on alone: taken as twice its
                    // power, without a proof. Where a level has several primes the last one divides
                    // it, and the rounding by that is larger.
                    let noise = common.rotation_noise(setting.limbs(level) + late, 2);
                    self.enter(noise, scale * last, gain * SQRT_2);
                }
                if late > 0 {
                    let rounding = common.rescaled_noise(Noise::default(), 2, last);
                    self.enter(rounding, scale, bounds.slots);
                }
            }
            (Op::Square | Op::Multiply, _) => {
                let noise = self.relinearised(self.parties(index), level, 0);
                let shared = self.program.readers(index) as f64;
                let noise = noise + common.refresh_noise();
                self.enter(noise, scale, bounds.slots * shared.sqrt());
            }
            (Op::Add | Op::Rearrange(_), _) => {}
        }
    }

    /// Of an input that is brought to a lower level.
    fn add_lowering(&mut self, node: usize, input: usize, gain: f64) {
        let to = self.program.level_read(node);
        if self.program.steps[input].level == to {
            return;
        }
        let (setting, parties) = (self.setting, self.parties(input));
        let divisor = setting.divisor(to + 1);
        let noise = self
            .common()
            .rescaled_noise(Noise::default(), parties, divisor);
        let shared = self.program.lowered(input, to) as f64;
        self.enter(noise, setting.scale(to), gain * shared.sqrt());
    }
}
