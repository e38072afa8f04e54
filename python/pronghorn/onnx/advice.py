"""What to do about operators that are not supported."""

from __future__ import annotations

CUT = "or end the model before it (--output NAME, output=NAME)"

FLOAT_MODEL = "export the float model; Pronghorn quantises it itself"

LOOK_UP = (
    "it looks up rows of a table by a private index",
    "let the index be a value of an integer input, as it is; or take one-hot rows, and multiply them by the table "
    "(MatMul)",
)
"""The problem of an embedding, and what to do."""

CONTROL_FLOW = "export without data-dependent control flow"


PREPARE = "apply such steps before sending, and export the model without them"

REPAIR = "repair or export the model again"
"""The advice for a file whose parts do not fit each other."""

PREPARES = (
    "ai.onnx.ml.CategoryMapper",
    "ai.onnx.ml.LabelEncoder",
    "ai.onnx.ml.OneHotEncoder",
)
"""Steps that data owners take themselves: what becomes of missing values and categories."""

COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
"""Of categories they make indicators, and of indices of a table they come before a look-up."""

UNSUPPORTED = {
    **dict.fromkeys(PREPARES, ("it prepares features", PREPARE)),
    **dict.fromkeys(
        ("Attention", "com.microsoft.Attention", "com.microsoft.MultiHeadAttention"),
        ("it is several operators in one", "export with opset 17, which writes MatMul, Softmax and MatMul"),
    ),
    "TopK": ("its order is computed from the data", "sort the result"),
    "NonMaxSuppression": ("the number of its results is computed from the data", "suppress in the result"),
    "NonZero": ("the number of its results is computed from the data", CONTROL_FLOW),
    "If": ("what is computed depends on the data", CONTROL_FLOW),
    "Loop": ("what is computed depends on the data", CONTROL_FLOW),
    "Scan": (
        "it takes steps over the data, as distances to stored rows do in nearest neighbours and Gaussian processes",
        "train a linear model or a multilayer perceptron; export a loop over time without Scan",
    ),
    **dict.fromkeys(
        ("Ceil", "Floor", "Round"),
        ("it jumps", "round or compare the result after the model"),
    ),
    **dict.fromkeys(
        ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"),
        ("it computes with integers of its own quantisation", FLOAT_MODEL),
    ),
}
"""Why an operator that is likely to be met is not supported, and what to do."""

DOMAIN_HINTS = {
    "ai.onnx.ml": "use a linear model, decision trees or a multilayer perceptron",
    "com.microsoft": "export the model before onnxruntime optimises it",
}
"""The advice for operators of other domains."""

SKLEARN = "skl2onnx.to_onnx(model, X[:1]), with X in float32, makes an ONNX model of it: give that"

KERAS = (
    "Keras 3 writes an ONNX model by model.export('model.onnx', format='onnx'): give its path; "
    "tf2onnx.convert.from_keras(model) makes one of older ones"
)

TREES = "{} makes an ONNX model of it: give that"

EXPORTERS = {
    "catboost": TREES.format("model.save_model('model.onnx', format='onnx')"),
    "imblearn": SKLEARN,
    "keras": KERAS,
    "lightgbm": TREES.format("onnxmltools.convert_lightgbm"),
    "sklearn": SKLEARN,
    "tensorflow": KERAS,
    "tf_keras": KERAS,
    "xgboost": TREES.format("onnxmltools.convert_xgboost"),
}
"""The way to ONNX for objects of other packages, by the package."""


def export_advice(model: object) -> str:
    """The exporter for a model of another package, by the modules of its classes; imports nothing."""
    packages = [kind.__module__.partition(".")[0] for kind in type(model).__mro__]
    found = next((EXPORTERS[package] for package in packages if package in EXPORTERS), None)
    return "" if found is None else f"\n  what to do: {found}"
