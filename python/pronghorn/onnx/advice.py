"""What to do about operators that are not supported."""

from __future__ import annotations

CUT = "or end the model before it (--output NAME, output=NAME)"

FLOAT_MODEL = "export the float model; Pronghorn quantises it itself"

CONTROL_FLOW = "export without data-dependent control flow"

ADVICE = {
    "train it with Relu, HardSwish or Clip in its place": "Erf Exp Log Sqrt ThresholdedRelu",
    CONTROL_FLOW: "If Loop Scan",
    "train it with BatchNormalization in its place": "InstanceNormalization LayerNormalization GroupNormalization "
    "LpNormalization LRN",
    FLOAT_MODEL: "QLinearConv QLinearMatMul ConvInteger MatMulInteger DynamicQuantizeLinear",
}
DOMAIN_HINTS = {
    "ai.onnx.ml": "use a linear model or a multilayer perceptron",
    "com.microsoft": "export the model before onnxruntime optimises it",
}
"""The advice for operators of other domains."""

HINTS = {name: advice for advice, names in ADVICE.items() for name in names.split()}
"""The advice for each ONNX operator that is likely to be met."""
