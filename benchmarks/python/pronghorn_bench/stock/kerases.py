"""Networks of Keras, by its own exporter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pronghorn_bench.stock import photos

Floats = NDArray[np.float32]

MODELS = ("mobilenet", "mobilenet_v2", "digits_cnn", "flat_mlp", "separable", "residual")


def export(name: str, path: Path, folder: Path) -> Floats:
    """Writes a network with random weights. Returns inputs, as the network takes them."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    keras.utils.set_random_seed(1)
    model, inputs = _build(keras, name, folder)
    # The exporter takes models that have run.
    model(inputs[:1])
    model.export(str(path), format="onnx", verbose=False)
    return inputs


def _build(keras: Any, name: str, folder: Path) -> tuple[Any, Floats]:
    layers, generator = keras.layers, np.random.default_rng(1)
    if name in ("mobilenet", "mobilenet_v2"):
        cls = {"mobilenet": keras.applications.MobileNet, "mobilenet_v2": keras.applications.MobileNetV2}[name]
        model = cls(input_shape=(96, 96, 3), alpha=0.35 if name == "mobilenet_v2" else 0.25, weights=None)
        return model, np.ascontiguousarray(photos.read(folder, 96, 40).transpose(0, 2, 3, 1))
    images = generator.random((40, 28, 28, 1), np.float32)
    stacks = {
        "digits_cnn": [
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ],
        "flat_mlp": [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)],
        "separable": [
            layers.SeparableConv2D(8, 3, activation="relu6"),
            layers.BatchNormalization(),
            layers.SeparableConv2D(16, 3, strides=2, activation="swish"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ],
    }
    if name in stacks:
        model = keras.Sequential([keras.Input((28, 28, 1)), *stacks[name]])
        return model, images
    given = keras.Input((28, 28, 1))
    stem = layers.Conv2D(8, 3, padding="same", activation="relu")(given)
    inner = layers.Conv2D(8, 3, padding="same")(stem)
    joined = layers.ReLU()(layers.Add()([stem, layers.BatchNormalization()(inner)]))
    result = layers.Dense(10)(layers.GlobalAveragePooling2D()(joined))
    return keras.Model(given, result), images
