//! Bounds on values and noise of a program, for any input in range.
//!
//! A bound on the noise decides how large the floods of the decryption are, so it must hold
//! whatever the input and the weights are. Values are bounded by the triangle inequality from the
//! input's range and the layers' norms. Noise follows the rules of [`Noise`], by the worst slot:
//!
//! * Errors of a layer's input add up with their signs unknown: times the norm of a row.
//! * Errors of ciphertexts of weights are independent of each other, and of one ciphertext they are
//!   uncorrelated from slot to slot. So over `R` products and `2^f` slots that folds add they grow
//!   by `sqrt(R 2^f)`, and those of a relinearisation or a rotation by `sqrt(2^f)`.
//! * A coefficient is at most as large as the largest slot. The sum of the squares of all
//!   coefficients is the mean of the squares of the slots (Parseval), however the noise is
//!   distributed among them: that is what the floods of the decryption must hide.

use std::f64::consts::SQRT_2;

use pronghorn_he::{
    ckks::Noise,
    multikey::{Common, Relinearisation::Quadratic},
};
use pronghorn_ring::Word;

use crate::{
    NetworkError, Program, Setting,
    network::{Bounds, Op, Work},
};

/// How large values and noise of a node can become.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The largest magnitude of an element.
    pub element: f64,
    /// The largest magnitude of a slot, partial sums included.
    pub reach: f64,
    /// The noise, in units of the ciphertext's integers.
    pub noise: Noise,
}

impl Bound {
    /// Of the result of a program.
    ///
    /// # Errors
    /// When the program has other levels or slots than the setting.
    pub fn of_result<W: Word>(
        program: &Program,
        setting: &Setting<W>,
    ) -> Result<Self, NetworkError> {
        setting.check(program)?;
        let mut bounds: Vec<Self> = Vec::with_capacity(program.steps.len());
        for node in 0..program.steps.len() {
            let of_node = Walk {
                program,
                setting,
                bounds: &bounds,
                node,
            };
            let bound = of_node.bound();
            bounds.push(bound);
        }
        Ok(bounds[program.network.output])
    }
}

/// The bound of a node after those of the nodes before it.
struct Walk<'a, W: Word> {
    program: &'a Program,
    setting: &'a Setting<W>,
    bounds: &'a [Bound],
    node: usize,
}

impl<W: Word> Walk<'_, W> {
    fn bound(&self) -> Bound {
        let level = self.program.steps[self.node].level;
        match &self.program.network.nodes[self.node].op {
            Op::Input { reach } => Bound {
                element: *reach,
                reach: *reach,
                noise: self.fresh(),
            },
            Op::Linear { bounds, .. } | Op::Factor(bounds) => {
                self.weighted(bounds, self.input(0, level + 1), level)
            }
            Op::Square => {
                let x = self.input(0, level + 1);
                let square = x.noise.square(x.reach * self.setting.scale(level + 1));
                self.product([x, x], square, level)
            }
            Op::Multiply => {
                let (x, y) = (self.input(0, level + 1), self.input(1, level + 1));
                let scale = self.setting.scale(level + 1);
                // Both factors may follow from one value, and their noises from one another: then
                // amplitudes add, not powers. Of `x x` this is the bound of a square.
                let of_x = x.noise.times(y.reach * scale);
                let of_y = y.noise.times(x.reach * scale);
                let both = x.noise.multiply(y.noise, 0.0, 0.0).times(SQRT_2);
                self.product([x, y], of_x.add_dependent(of_y) + both, level)
            }
            Op::Add => {
                let (x, y) = (self.input(0, level), self.input(1, level));
                Bound {
                    element: x.element + y.element,
                    reach: x.reach + y.reach,
                    noise: x.noise.add_dependent(y.noise),
                }
            }
            Op::Rearrange(_) => {
                let inputs = 0..self.program.network.nodes[self.node].inputs.len();
                let inputs = inputs.map(|place| self.input(place, level));
                let most = |x: Bound, y: Bound| Bound {
                    element: x.element.max(y.element),
                    reach: x.reach.max(y.reach),
                    noise: x.noise + y.noise,
                };
                inputs.reduce(most).unwrap_or(Bound {
                    element: 0.0,
                    reach: 0.0,
                    noise: Noise::default(),
                })
            }
        }
    }

    fn common(&self) -> &Common<W> {
        self.setting.common()
    }

    /// Of an encryption.
    fn fresh(&self) -> Noise {
        self.common().fresh_noise() + Noise::of_exact_encoding(self.setting.ring().n())
    }

    /// Keys that a value is under.
    fn parties(&self, node: usize) -> usize {
        if self.program.steps[node].is_client_alone {
            1
        } else {
            2
        }
    }

    /// Of an input of the node, brought to a level.
    fn input(&self, place: usize, level: usize) -> Bound {
        let input = self.program.network.nodes[self.node].inputs[place];
        let (bound, at) = (self.bounds[input], self.program.steps[input].level);
        if at == level {
            return bound;
        }
        let divisor = self.setting.divisor(level + 1);
        let factor = self.setting.scale(level) * divisor / self.setting.scale(at);
        let noise = bound.noise.times(factor);
        let parties = self.parties(input);
        Bound {
            noise: self.common().rescaled_noise(noise, parties, divisor),
            ..bound
        }
    }

    /// Of a product, slot by slot, with this noise before it is relinearised.
    fn product(&self, [x, y]: [Bound; 2], noise: Noise, level: usize) -> Bound {
        let parties = self.parties(self.node);
        Bound {
            element: x.element * y.element,
            reach: x.reach * y.reach,
            noise: self.relinearised(noise, parties, level),
        }
    }

    /// A product's noise, relinearised and divided.
    fn relinearised(&self, noise: Noise, parties: usize, level: usize) -> Noise {
        let (common, limbs) = (self.common(), self.setting.limbs(level + 1));
        let noise = noise + common.relinearisation_noise(limbs, parties, Quadratic);
        common.rescaled_noise(noise, parties, self.setting.divisor(level + 1))
    }

    /// Of products with weights, and a bias.
    fn weighted(&self, bounds: &Bounds, x: Bound, level: usize) -> Bound {
        let (common, setting) = (self.common(), self.setting);
        let parties = self.parties(self.program.network.nodes[self.node].inputs[0]);
        let (products, folded, rotated) = match &self.program.steps[self.node].work {
            Work::Linear(packing) => {
                let most = packing.products.iter().map(Vec::len).max();
                let rotated = match (packing.keys().is_empty(), packing.is_split()) {
                    (true, _) => 0,
                    (false, split) => 1 + usize::from(split),
                };
                (
                    most.unwrap_or(0),
                    (packing.folds.len() as f64).exp2(),
                    rotated,
                )
            }
            _ => (1, 1.0, 0),
        };
        let clean = self.program.steps[self.node].layout.clean;
        // A window of partial sums covers parts of two rows.
        let rows = if clean { 1.0 } else { 2.0 };
        let mut read = x.noise;
        for _ in 0..rotated {
            read = read + common.rotation_noise(setting.limbs(level + 1), parties);
        }
        let divisor = setting.divisor(level + 1);
        let weight_scale = setting.scale(level) * divisor / setting.scale(level + 1);
        let of_input = read.times(rows * bounds.norm * weight_scale / divisor);
        let fresh = self.fresh();
        let unknown = fresh.multiply(read, 0.0, 0.0);
        let of_weights = fresh.times(x.reach * setting.scale(level + 1)) + unknown;
        let of_weights = of_weights.times((products as f64).sqrt());
        let sum = self.relinearised(of_weights, 2, level);
        let rotations = if folded > 1.0 {
            common.rotation_noise(setting.limbs(level), 2)
        } else {
            Noise::default()
        };
        let sum = (sum + rotations).times(folded.sqrt());
        let element = bounds.norm * x.element + bounds.addend;
        let partial = if clean {
            0.0
        } else {
            rows * bounds.norm * x.element
        };
        Bound {
            element,
            reach: element.max(partial),
            noise: of_input + sum + fresh,
        }
    }
}
