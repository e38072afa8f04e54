"""What to do about operators that are not supported."""

from __future__ import annotations

CUT = "or end the model before it (--output NAME, output=NAME)"

CONTROL_FLOW = "export without data-dependent control flow"

ADVICE = {
    "train it with Relu, LeakyRelu or Clip in its place": "Tanh Elu Selu Celu Gelu Erf Exp Log Sqrt Softplus Softsign "
    "Mish HardSigmoid HardSwish Swish ThresholdedRelu Abs",
    "recurrent networks are not supported; use convolutions": "LSTM GRU RNN",
    CONTROL_FLOW: "If Loop Scan",
    "train it with BatchNormalization in its place": "InstanceNormalization LayerNormalization GroupNormalization "
    "LpNormalization LRN",
    "learned upsampling is not supported; use Resize (nearest) and Conv in its place": "ConvTranspose",
    "export the float model; Pronghorn quantises it itself": "QLinearConv QLinearMatMul ConvInteger MatMulInteger "
    "QuantizeLinear",
}
HINTS = {name: advice for advice, names in ADVICE.items() for name in names.split()}
"""The advice for each ONNX operator that is likely to be met."""
