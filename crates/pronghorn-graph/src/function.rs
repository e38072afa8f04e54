//! Smooth functions of one value, as networks have them between layers.

use serde::{Deserialize, Serialize};

use crate::shape::OperatorError;

/// A smooth function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Function {
    /// `x min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `x / (1 + exp(-beta x))`; with `beta = 1` the SiLU.
    Swish {
        /// Steepness, above 0.
        beta: f32,
    },
    /// `x Phi(x)`, with the distribution function `Phi` of the normal distribution.
    Gelu,
    /// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`.
    GeluTanh,
    /// `x tanh(ln(1 + exp(x)))`.
    Mish,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x` where `x >= 0`, else `scale (exp(x / width) - 1)`.
    Elu {
        /// Minus the limit below, at least 0.
        scale: f32,
        /// Width of the bend, above 0.
        width: f32,
    },
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x / (1 + |x|)`.
    Softsign,
    /// `1 / sqrt(max(x, 0) + epsilon)`, as normalisations have it.
    InverseRoot {
        /// From 1e-30 to 64.
        epsilon: f32,
    },
}

impl Function {
    /// The function's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::HardSwish => "HardSwish",
            Self::Swish { .. } => "Swish",
            Self::Gelu | Self::GeluTanh => "Gelu",
            Self::Mish => "Mish",
            Self::Softplus => "Softplus",
            Self::Elu { .. } => "Elu",
            Self::Sigmoid => "Sigmoid",
            Self::Tanh => "Tanh",
            Self::Softsign => "Softsign",
            Self::InverseRoot { .. } => "InverseRoot",
        }
    }

    /// The function at `x`, with an error below `2e-7 (1 + |x|)`; that of an inverse root is
    /// relative.
    pub fn at(self, x: f64) -> f64 {
        match self {
            Self::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
            Self::Swish { beta } => x * sigmoid(f64::from(beta) * x),
            Self::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Self::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
            Self::Mish => x * softplus(x).tanh(),
            Self::Softplus => softplus(x),
            Self::Elu { .. } if x >= 0.0 => x,
            Self::Elu { scale, width } => f64::from(scale) * (x / f64::from(width)).exp_m1(),
            Self::Sigmoid => sigmoid(x),
            Self::Tanh => x.tanh(),
            Self::Softsign => x / (1.0 + x.abs()),
            Self::InverseRoot { epsilon } => (x.max(0.0) + f64::from(epsilon)).sqrt().recip(),
        }
    }

    /// Whether it nears `max(x, 0)` for large `x`, and has a limit below.
    pub fn is_rectifier(self) -> bool {
        self.has_limits() && !matches!(self, Self::Sigmoid | Self::Tanh | Self::Softsign)
    }

    /// Whether it nears [`Self::limit_below`] and [`Self::limit_above`] so soon that a table may
    /// end there. Without limits a table spans the arguments of the samples.
    pub fn has_limits(self) -> bool {
        !matches!(self, Self::InverseRoot { .. })
    }

    /// The largest slope, in absolute value, for arguments from `low` on: at most 1.13, but for an
    /// inverse root.
    pub fn steepest(self, low: f64) -> f64 {
        match self {
            Self::InverseRoot { .. } => 0.5 * self.at(low).powi(3),
            _ => 1.0,
        }
    }

    /// The limit for `x` to minus infinity.
    pub fn limit_below(self) -> f64 {
        match self {
            Self::Elu { scale, .. } => -f64::from(scale),
            Self::Tanh | Self::Softsign => -1.0,
            _ => 0.0,
        }
    }

    /// What it nears for large `x`.
    pub fn limit_above(self, x: f64) -> f64 {
        if self.is_rectifier() { x } else { 1.0 }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// Names the parameter that is not in its range.
    pub(crate) fn check(self) -> Result<(), OperatorError> {
        let parameters = match self {
            Self::Swish { beta } => vec![("beta", beta, LEAST)],
            Self::Elu { scale, width } => {
                vec![("its scale", scale, 0.0), ("its width", width, LEAST)]
            }
            Self::InverseRoot { epsilon } => vec![("its epsilon", epsilon, LEAST_EPSILON)],
            _ => Vec::new(),
        };
        let wrong = parameters
            .into_iter()
            .find(|(_, value, least)| !(*least..=1.0 / LEAST).contains(value));
        match wrong {
            Some((field, value, least)) => {
                let expected = format!("from {least} to {}", 1.0 / LEAST);
                Err(OperatorError::parameter(field, value, expected))
            }
            None => Ok(()),
        }
    }
}

/// Parameters are at least this, or at most its inverse: a table has no place for others.
const LEAST: f32 = 1.0 / 64.0;

/// An inverse root is at most 1e15.
const LEAST_EPSILON: f32 = 1e-30;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The error function, within 1.5e-7 (Abramowitz and Stegun, 1964, formula 7.1.26).
fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let coefficients = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let polynomial = coefficients.iter().fold(0.0, |sum, c| (sum + c) * t);
    (1.0 - polynomial * (-x * x).exp()).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Function; 12] = [
        Function::HardSwish,
        Function::Swish { beta: 1.0 },
        Function::Swish { beta: 1.702 },
        Function::Gelu,
        Function::GeluTanh,
        Function::Mish,
        Function::Softplus,
        Function::Elu {
            scale: 1.0,
            width: 1.0,
        },
        Function::Elu {
            scale: 1.758,
            width: 1.051,
        },
        Function::Sigmoid,
        Function::Tanh,
        Function::Softsign,
    ];

    /// Values from tables and pocket calculators.
    #[test]
    fn known_values() {
        let elu = Function::Elu {
            scale: 2.0,
            width: 0.5,
        };
        let root = |epsilon| Function::InverseRoot { epsilon };
        for (function, x, wanted) in [
            (Function::HardSwish, 1.0, 2.0 / 3.0),
            (Function::HardSwish, -1.5, -0.375),
            (Function::HardSwish, 5.0, 5.0),
            (Function::Swish { beta: 1.0 }, 1.0, 0.731_058_579),
            (Function::Swish { beta: 2.0 }, -0.5, -0.134_470_711),
            (Function::Gelu, 1.0, 0.841_344_746),
            (Function::Gelu, -2.0, -0.045_500_264),
            (Function::GeluTanh, 1.0, 0.841_191_991),
            (Function::Mish, 1.0, 0.865_098_388),
            (Function::Softplus, 0.0, std::f64::consts::LN_2),
            (Function::Softplus, 100.0, 100.0),
            (elu, -0.5, -1.264_241_118),
            (elu, 3.0, 3.0),
            (Function::Sigmoid, 2.0, 0.880_797_078),
            (Function::Tanh, -1.0, -0.761_594_156),
            (Function::Softsign, 3.0, 0.75),
            (root(0.25), 0.0, 2.0),
            (root(0.25), -7.0, 2.0),
            (root(1.0), 15.0, 0.25),
            (root(1e-5), 0.5, 1.414_199_42),
        ] {
            let found = function.at(x);
            assert!((found - wanted).abs() < 3e-7, "{function:?} {x}: {found}");
        }
    }

    #[test]
    fn limits_are_neared() {
        for function in ALL {
            let tolerance = if function == Function::Softsign {
                2e-3
            } else {
                1e-9
            };
            let far = 1000.0;
            assert!(
                (function.at(-far) - function.limit_below()).abs() < tolerance,
                "{function:?}"
            );
            assert!(
                (function.at(far) - function.limit_above(far)).abs() < tolerance,
                "{function:?}"
            );
        }
    }

    #[test]
    fn slopes_are_bounded() {
        let root = Function::InverseRoot { epsilon: 1e-3 };
        for low in [0.0, 0.01, 0.5, 4.0] {
            let slope = |x: f64| (root.at(x + 1e-7) - root.at(x)).abs() / 1e-7;
            let bound = root.steepest(low);
            assert!(slope(low) <= bound && slope(low) > 0.99 * bound, "{low}");
            assert!(
                slope(low + 0.1) < bound && slope(low + 9.0) < bound,
                "{low}"
            );
        }
        assert!(!root.is_rectifier() && !root.has_limits());
        assert!(ALL.iter().all(|function| function.has_limits()));
    }

    #[test]
    fn parameters_are_bounded() {
        assert!(ALL.iter().all(|function| function.check().is_ok()));
        for beta in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e9] {
            assert!(Function::Swish { beta }.check().is_err(), "{beta}");
        }
        let elu = |scale, width| Function::Elu { scale, width }.check();
        assert!(elu(-1.0, 1.0).is_err() && elu(1.0, 0.0).is_err() && elu(0.0, 1.0).is_ok());
        let root = |epsilon| Function::InverseRoot { epsilon }.check();
        assert!(root(1e-12).is_ok() && root(1.0).is_ok());
        for epsilon in [0.0, -1e-5, 1e-35, 65.0, f32::NAN, f32::INFINITY] {
            assert!(root(epsilon).is_err(), "{epsilon}");
        }
    }
}
