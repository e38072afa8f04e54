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
    /// `scale / sqrt(max(x, 0) + epsilon)`, as normalisations have it; 0 at 0 where epsilon is next
    /// to nothing.
    InverseRoot {
        /// From 1e-30 to 64.
        epsilon: f32,
        /// Above 0.
        scale: f32,
    },
    /// `scale / x` of positive numbers.
    Reciprocal {
        /// Above 0.
        scale: f32,
    },
    /// The natural logarithm of positive numbers.
    Log,
    /// The square root.
    Sqrt,
    /// `exp(x)`.
    Exp,
    /// `exp(rate x)`, where `rate x` is at most zero.
    Decay {
        /// Of any sign.
        rate: f32,
    },
    /// The error function.
    Erf,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
    /// The inverse of the tangent.
    Atan,
}

/// The arguments that a function's table has entries for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Those between its limits: it nears [`Function::limit_below`] and [`Function::limit_above`]
    /// so soon that a table may end there.
    Limits,
    /// Those of the samples, which are positive.
    Positive,
    /// Those of the samples.
    Samples,
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
            Self::Reciprocal { .. } => "Reciprocal",
            Self::Log => "Log",
            Self::Sqrt => "Sqrt",
            Self::Exp | Self::Decay { .. } => "Exp",
            Self::Erf => "Erf",
            Self::Sin => "Sin",
            Self::Cos => "Cos",
            Self::Atan => "Atan",
        }
    }

    /// The function at `x`, with an error below `2e-7 (1 + |x|)`, or below that part of a value of
    /// no limit.
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
            // What is all zero is so whatever it is multiplied by: no other root is to be as large.
            Self::InverseRoot { epsilon, .. } if x == 0.0 && epsilon < NO_EPSILON => 0.0,
            Self::InverseRoot { epsilon, scale } => {
                f64::from(scale) / (x.max(0.0) + f64::from(epsilon)).sqrt()
            }
            Self::Reciprocal { scale } => f64::from(scale) / x,
            Self::Log => x.ln(),
            Self::Sqrt => x.sqrt(),
            Self::Exp => x.exp(),
            Self::Decay { rate } => (f64::from(rate) * x).exp(),
            Self::Erf => erf(x),
            Self::Sin => x.sin(),
            Self::Cos => x.cos(),
            Self::Atan => x.atan(),
        }
    }

    /// The argument of a value, of functions that others are divided by; zero for others.
    pub fn inverse(self, value: f64) -> f64 {
        match self {
            Self::InverseRoot { epsilon, scale } => {
                ((f64::from(scale) / value).powi(2) - f64::from(epsilon)).max(0.0)
            }
            Self::Reciprocal { scale } => f64::from(scale) / value,
            _ => 0.0,
        }
    }

    /// Whether it nears `max(x, 0)` for large `x`, and has a limit below.
    pub fn is_rectifier(self) -> bool {
        let is_step = matches!(
            self,
            Self::Sigmoid | Self::Tanh | Self::Softsign | Self::Erf
        );
        self.span() == Span::Limits && !is_step
    }

    /// The arguments that a table of it has entries for.
    pub fn span(self) -> Span {
        match self {
            Self::InverseRoot { .. } | Self::Reciprocal { .. } | Self::Log | Self::Sqrt => {
                Span::Positive
            }
            Self::Exp | Self::Decay { .. } | Self::Sin | Self::Cos | Self::Atan => Span::Samples,
            _ => Span::Limits,
        }
    }

    /// Whether it is at least zero everywhere.
    pub fn is_positive(self) -> bool {
        matches!(
            self,
            Self::Softplus
                | Self::Sigmoid
                | Self::InverseRoot { .. }
                | Self::Reciprocal { .. }
                | Self::Sqrt
                | Self::Exp
                | Self::Decay { .. }
        )
    }

    /// Whether it is at least zero where its argument is.
    pub fn keeps_sign(self) -> bool {
        !matches!(self, Self::Log | Self::Sin | Self::Cos)
    }

    /// Whether others are divided by what it is a function of, so that its errors count as parts of
    /// its values.
    pub fn divides(self) -> bool {
        matches!(self, Self::InverseRoot { .. } | Self::Reciprocal { .. })
    }

    /// The largest slope, in absolute value, for arguments of a range: at most 1.13 where there are
    /// limits. That of a logarithm or a root is of arguments of a usual size.
    pub fn steepest(self, [low, high]: [f64; 2]) -> f64 {
        match self {
            Self::InverseRoot { scale, .. } => {
                0.5 * self.at(low).powi(3) / f64::from(scale).powi(2)
            }
            Self::Reciprocal { scale } => f64::from(scale) / (low * low),
            Self::Log => (high / low).min(MOST_SPREAD) / high,
            Self::Sqrt => 0.5 * ((high / low).min(MOST_SPREAD) / high).sqrt(),
            Self::Exp => high.exp(),
            Self::Decay { rate } => {
                let rate = f64::from(rate);
                rate.abs() * (rate * low).exp().max((rate * high).exp())
            }
            _ => 1.0,
        }
    }

    /// The limit for `x` to minus infinity.
    pub fn limit_below(self) -> f64 {
        match self {
            Self::Elu { scale, .. } => -f64::from(scale),
            Self::Tanh | Self::Softsign | Self::Erf => -1.0,
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
            Self::InverseRoot { epsilon, scale } => vec![
                ("its epsilon", epsilon, LEAST_EPSILON),
                ("its scale", scale, LEAST_SCALE),
            ],
            Self::Reciprocal { scale } => vec![("its scale", scale, LEAST_SCALE)],
            Self::Decay { rate } => vec![("the size of its rate", rate.abs(), LEAST_SCALE)],
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

/// A smaller one only bounds the inverse root of zero.
const NO_EPSILON: f32 = 1e-13;

/// Of the mean of as many values as a dimension may have, as [`Function::Reciprocal`] takes it.
const LEAST_SCALE: f32 = 1.0 / (1u32 << 24) as f32;

/// Arguments of a logarithm or a root that are smaller than such a part of the largest are rare, or
/// matter little.
const MOST_SPREAD: f64 = 1024.0;

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

    const ALL: [Function; 13] = [
        Function::Erf,
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
        let root = |epsilon| Function::InverseRoot {
            epsilon,
            scale: 1.0,
        };
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
            (root(1e-20), 0.0, 0.0),
            (root(1e-20), 4.0, 0.5),
            (Function::Reciprocal { scale: 0.5 }, 4.0, 0.125),
            (Function::Log, 10.0, std::f64::consts::LN_10),
            (Function::Sqrt, 2.0, std::f64::consts::SQRT_2),
            (Function::Exp, 2.0, 7.389_056_099),
            (Function::Decay { rate: 1.0 }, -2.0, 0.135_335_283),
            (Function::Decay { rate: -0.125 }, 16.0, 0.135_335_283),
            (Function::Erf, 1.0, 0.842_700_793),
            (Function::Sin, 1.0, 0.841_470_985),
            (Function::Cos, 1.0, 0.540_302_306),
            (Function::Atan, -1.0, -std::f64::consts::FRAC_PI_4),
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
        let functions = [
            Function::InverseRoot {
                epsilon: 1e-3,
                scale: 1.0,
            },
            Function::Reciprocal { scale: 0.25 },
            Function::Log,
            Function::Sqrt,
            Function::Decay { rate: -0.5 },
        ];
        for function in functions {
            for low in [0.01, 0.5, 4.0] {
                let slope = |x: f64| (function.at(x + 1e-7) - function.at(x)).abs() / 1e-7;
                let bound = function.steepest([low, low + 9.0]);
                assert!(
                    slope(low) <= bound && slope(low) > 0.99 * bound,
                    "{function:?} {low}"
                );
                assert!(slope(low + 0.1) < bound && slope(low + 9.0) < bound);
            }
            assert!(!function.is_rectifier() && function.span() != Span::Limits);
        }
        assert_eq!(Function::Exp.steepest([-9.0, 0.0]), 1.0);
        // Near zero a logarithm has any slope.
        assert_eq!(Function::Log.steepest([0.0, 2.0]), MOST_SPREAD / 2.0);
        assert!(ALL.iter().all(|function| function.span() == Span::Limits));
    }

    #[test]
    fn parameters_are_bounded() {
        assert!(ALL.iter().all(|function| function.check().is_ok()));
        for beta in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e9] {
            assert!(Function::Swish { beta }.check().is_err(), "{beta}");
        }
        let elu = |scale, width| Function::Elu { scale, width }.check();
        assert!(elu(-1.0, 1.0).is_err() && elu(1.0, 0.0).is_err() && elu(0.0, 1.0).is_ok());
        let root = |epsilon| {
            Function::InverseRoot {
                epsilon,
                scale: 1.0,
            }
            .check()
        };
        assert!(root(1e-12).is_ok() && root(1.0).is_ok());
        for epsilon in [0.0, -1e-5, 1e-35, 65.0, f32::NAN, f32::INFINITY] {
            assert!(root(epsilon).is_err(), "{epsilon}");
        }
    }
}
