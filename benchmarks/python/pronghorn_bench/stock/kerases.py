"""Networks of Keras, by its own exporter and by tf2onnx."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pronghorn_bench.stock import photos
from pronghorn_bench.stock.small import STATISTICS

Floats = NDArray[np.float32]

MODELS = ("mobilenet", "mobilenet_v2", "digits_cnn", "flat_mlp", "separable", "residual")
MORE = (
    *("mobilenet_v3_small", "densenet121", "resnet", "mlp", "lstm", "bidirectional", "gru", "series", "sequence"),
    *("autoencoder", "prelu"),
)
"""Networks that tf2onnx alone exports here."""


def export(name: str, path: Path, folder: Path, by_tf2onnx: bool) -> Floats:
    """Writes a network with random weights. Returns inputs, as the network takes them."""
    os.environ["KERAS_BACKEND"] = "tensorflow" if by_tf2onnx else "torch"
    import keras

    keras.utils.set_random_seed(1)
    model, inputs = _build(keras, name, folder)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    # Batch norms take the statistics of the first inputs, as those of torch's networks do.
    model(inputs[:STATISTICS], training=True)
    # Keras's exporter takes models that have run.
    model(inputs[:1])
    if by_tf2onnx:
        _export(model, path)
    else:
        model.export(str(path), format="onnx", verbose=False)
    return inputs


def _export(model: Any, path: Path) -> None:
    """By tf2onnx from a function: its `from_keras` does not take a `Sequential` of Keras 3."""
    import tensorflow
    import tf2onnx

    given = [tensorflow.TensorSpec(model.input_shape, tensorflow.float32, name="input")]
    function = tensorflow.function(lambda value: model(value, training=False), input_signature=given)
    tf2onnx.convert.from_function(function, input_signature=given, opset=17, output_path=str(path))


def _build(keras: Any, name: str, folder: Path) -> tuple[Any, Floats]:
    if name in APPLICATIONS:
        kind, options = APPLICATIONS[name]
        model = getattr(keras.applications, kind)(input_shape=(96, 96, 3), weights=None, **options)
        return model, np.ascontiguousarray(photos.read(folder, 96, 40).transpose(0, 2, 3, 1))
    shape = SHAPES.get(name, (28, 28, 1))
    images = np.random.default_rng(1).random((40, *shape), np.float32)
    given = keras.Input(shape)
    if name == "residual":
        return keras.Model(given, _residual(keras.layers, given)), images
    if name == "resnet":
        return keras.Model(given, _resnet(keras.layers, given)), images
    return keras.Sequential([given, *_stack(keras.layers, name)]), images


APPLICATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "mobilenet": ("MobileNet", {"alpha": 0.25}),
    "mobilenet_v2": ("MobileNetV2", {"alpha": 0.35}),
    "mobilenet_v3_small": ("MobileNetV3Small", {"include_preprocessing": False}),
    "densenet121": ("DenseNet121", {}),
}
"""Networks of `keras.applications` and their options."""

SHAPES = {
    "mlp": (20,),
    "resnet": (32, 32, 3),
    "lstm": (8, 4),
    "bidirectional": (8, 4),
    "gru": (8, 4),
    "sequence": (12, 6),
    "series": (128, 3),
    "autoencoder": (16, 16, 1),
    "prelu": (16, 16, 3),
}
"""The shapes of inputs, by name, where they are not digits."""


def _stack(layers: Any, name: str) -> list[Any]:
    match name:
        case "digits_cnn":
            convolutions = [
                layers.Conv2D(8, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(),
            ]
            return [*convolutions, layers.Flatten(), layers.Dense(10, activation="softmax")]
        case "flat_mlp":
            return [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
        case "separable":
            return [
                layers.SeparableConv2D(8, 3, activation="relu6"),
                layers.BatchNormalization(),
                layers.SeparableConv2D(16, 3, strides=2, activation="swish"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        case "mlp":
            inner = [layers.Dense(64, activation="relu"), layers.Dropout(0.3), layers.Dense(32, activation="tanh")]
            return [*inner, layers.Dense(3, activation="softmax")]
        case "lstm":
            return [layers.LSTM(16, return_sequences=True), layers.LSTM(8), layers.Dense(3)]
        case "bidirectional":
            return [layers.Bidirectional(layers.LSTM(8)), layers.Dense(3)]
        case "gru":
            return [layers.GRU(16), layers.Dense(3)]
        case "sequence":
            inner = [layers.Dense(16), layers.LayerNormalization(), layers.ReLU(), layers.Dense(8, activation="relu")]
            return [*inner, layers.GlobalAveragePooling1D(), layers.Dense(3)]
        case "series":
            return [
                layers.Conv1D(16, 5, padding="causal", dilation_rate=2, activation="relu"),
                layers.MaxPooling1D(),
                layers.Conv1D(16, 3, activation="relu"),
                layers.GlobalAveragePooling1D(),
                layers.Dense(4),
            ]
        case "autoencoder":
            return [
                layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
                layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="elu"),
                layers.Conv2D(1, 3, padding="same", activation="sigmoid"),
            ]
        case _:
            pooled = [layers.GlobalAveragePooling2D(), layers.Dense(3)]
            return [layers.Rescaling(2, -1), layers.Conv2D(8, 3), layers.PReLU(shared_axes=[1, 2]), *pooled]


def _residual(layers: Any, given: Any) -> Any:
    stem = layers.Conv2D(8, 3, padding="same", activation="relu")(given)
    inner = layers.Conv2D(8, 3, padding="same")(stem)
    joined = layers.ReLU()(layers.Add()([stem, layers.BatchNormalization()(inner)]))
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(joined))


def _resnet(layers: Any, given: Any) -> Any:
    """Blocks with the activation first, of 16, 32 and 64 channels."""
    value = layers.Conv2D(16, 3, padding="same", use_bias=False)(given)
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        active = layers.ReLU()(layers.BatchNormalization()(value))
        short = value if stride == 1 else layers.Conv2D(channels, 1, strides=stride, use_bias=False)(active)
        inner = layers.Conv2D(channels, 3, strides=stride, padding="same", use_bias=False)(active)
        inner = layers.ReLU()(layers.BatchNormalization()(inner))
        inner = layers.Conv2D(channels, 3, padding="same", use_bias=False)(inner)
        value = layers.Add()([short, inner])
    value = layers.ReLU()(layers.BatchNormalization()(value))
    return layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(value))
