//! The shape each operator computes.

use std::collections::BTreeMap;

use super::{Op, Tensor};
use crate::{
    geometry::ConvGeometry,
    matrices::Matrices,
    shape::{self, OperatorError},
};

impl Op {
    /// The shape of the result from the shapes of the inputs, checked against tensors and
    /// parameters; `declared` is what `Reshape` and `ArgMax` cannot know themselves.
    pub(super) fn infer(
        &self,
        inputs: &[&[usize]],
        declared: &[usize],
        tensors: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<usize>, OperatorError> {
        if let Self::Input = self {
            return match inputs {
                [] => Ok(declared.to_vec()),
                _ => Err(OperatorError::Inputs {
                    expected: "0",
                    found: inputs.len(),
                }),
            };
        }
        match self {
            Self::Add => {
                let [left, right] = shape::two(inputs)?;
                return equal(left, right);
            }
            Self::Multiply => {
                let [left, right] = shape::two(inputs)?;
                return shape::broadcast(left, right);
            }
            Self::MatMul => {
                let [left, right] = shape::two(inputs)?;
                return Ok(Matrices::of(left, right)?.shape().to_vec());
            }
            Self::Concat { axis } => return shape::concat(inputs, *axis),
            _ => {}
        }
        let input = shape::one(inputs)?;
        match self {
            Self::Conv {
                window,
                groups,
                weight,
                bias,
            } => {
                let (in_channels, size) = shape::image(input)?;
                let geometry = ConvGeometry {
                    in_channels,
                    out_channels: first_dimension(tensors, weight)?,
                    input: size,
                    window: window.clone(),
                    groups: *groups,
                };
                conv(&geometry, tensors, weight, bias.as_deref())
            }
            Self::Dense { weight, bias } => dense(input, tensors, weight, bias.as_deref()),
            Self::Affine { mul, add } => {
                let constants = mul.iter().chain(add);
                constants
                    .into_iter()
                    .try_for_each(|name| constant(input, tensors, name))?;
                Ok(input.to_vec())
            }
            Self::Clip { min, max } => {
                if min.is_some_and(f32::is_nan) || max.is_some_and(f32::is_nan) {
                    return Err(OperatorError::parameter("a bound", f32::NAN, "a number"));
                }
                Ok(input.to_vec())
            }
            Self::LeakyRelu { alpha } if !alpha.is_finite() => {
                Err(OperatorError::parameter("alpha", alpha, "finite"))
            }
            Self::Function { function } => function.check().map(|()| input.to_vec()),
            Self::MaxPool { window } | Self::AveragePool { window, .. } => {
                shape::pool(input, window)
            }
            Self::GlobalAveragePool => Ok(vec![shape::image(input)?.0, 1, 1]),
            Self::Reshape => shape::reshape(input, declared),
            Self::Pad { before, after } => shape::pad(input, before, after),
            Self::Transpose { permutation } => shape::transpose(input, permutation),
            Self::Take { axis, indices } => shape::take(input, *axis, indices),
            Self::ArgMax if declared.is_empty() => Ok(vec![]),
            Self::ArgMax => Ok(vec![1]),
            Self::Scale { .. } => {
                let made = self.finish(input).and_then(|finish| finish.shape(input));
                made.ok_or_else(|| OperatorError::parameter("exponents", "they", "one a channel"))
            }
            Self::Along { axis, .. } => {
                let made = self.finish(input).and_then(|finish| finish.shape(input));
                made.ok_or_else(|| {
                    OperatorError::parameter("axis", axis, "one of the input's dimensions")
                })
            }
            _ => Ok(input.to_vec()),
        }
    }
}

/// The shape of a convolution, whose tensors must be of its geometry.
fn conv(
    geometry: &ConvGeometry,
    tensors: &BTreeMap<String, Tensor>,
    weight: &str,
    bias: Option<&str>,
) -> Result<Vec<usize>, OperatorError> {
    let [height, width] = geometry.output()?;
    let (inputs, outputs) = (geometry.in_channels, geometry.out_channels);
    let [kernel_h, kernel_w] = geometry.window.kernel;
    let expected = [outputs, inputs / geometry.groups, kernel_h, kernel_w];
    weights(tensors, weight, &expected)?;
    bias.iter()
        .try_for_each(|bias| weights(tensors, bias, &[outputs]))?;
    Ok(vec![outputs, height, width])
}

/// The shape of a dense layer on `input`.
fn dense(
    input: &[usize],
    tensors: &BTreeMap<String, Tensor>,
    weight: &str,
    bias: Option<&str>,
) -> Result<Vec<usize>, OperatorError> {
    let &[inputs] = input else {
        let expected = "one-dimensional: flatten it before".into();
        return Err(OperatorError::InputShape {
            expected,
            found: input.to_vec(),
        });
    };
    let outputs = first_dimension(tensors, weight)?;
    ConvGeometry::dense(inputs, outputs).validate()?;
    weights(tensors, weight, &[outputs, inputs])?;
    bias.iter()
        .try_for_each(|bias| weights(tensors, bias, &[outputs]))?;
    Ok(vec![outputs])
}

/// Refuses a constant that has not one value, one a channel or one an element.
fn constant(
    input: &[usize],
    tensors: &BTreeMap<String, Tensor>,
    name: &str,
) -> Result<(), OperatorError> {
    let found = tensor(tensors, name)?.data.len();
    let expected = [1, shape::channels(input).0, input.iter().product()];
    if expected.contains(&found) {
        return Ok(());
    }
    let [one, channels, elements] = expected;
    let expected = format!("{one}, {channels} (channels) or {elements} values");
    Err(OperatorError::parameter("its constant", found, expected))
}

fn equal(left: &[usize], right: &[usize]) -> Result<Vec<usize>, OperatorError> {
    if left == right {
        return Ok(left.to_vec());
    }
    let expected = format!("{left:?} as the other input (sums do not broadcast)");
    Err(OperatorError::InputShape {
        expected,
        found: right.to_vec(),
    })
}

fn tensor<'a>(
    tensors: &'a BTreeMap<String, Tensor>,
    name: &str,
) -> Result<&'a Tensor, OperatorError> {
    tensors.get(name).ok_or_else(|| {
        OperatorError::parameter("its tensor", name, "the name of one of the model's weights")
    })
}

fn first_dimension(tensors: &BTreeMap<String, Tensor>, name: &str) -> Result<usize, OperatorError> {
    let shape = &tensor(tensors, name)?.shape;
    let missing = || OperatorError::parameter("the shape of its weights", shape, "not empty");
    shape.first().copied().ok_or_else(missing)
}

fn weights(
    tensors: &BTreeMap<String, Tensor>,
    name: &str,
    expected: &[usize],
) -> Result<(), OperatorError> {
    let found = &tensor(tensors, name)?.shape;
    if found == expected {
        return Ok(());
    }
    let expected = format!("{expected:?} (tensor {name})");
    Err(OperatorError::parameter(
        "the shape of its weights",
        found,
        expected,
    ))
}
