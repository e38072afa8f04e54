"""Trained networks that packages of PyPI bring along as ONNX files, by exporters of all kinds.

None of these packages is imported. Their files are read.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import pronghorn
from pronghorn_bench.stock.speech import speech

Floats = NDArray[Any]

COUNT = 40

BYTES = 1024
"""Bytes of a file's beginning, and of its end, that Magika reads."""

NO_BYTE = 256
"""Its number in the place of a byte that a file has not."""

WORDS = ("hello", "private 42", "NETWORK", "ab3Xq", "2026-11", "quick fox", "lazy dog", "total 9.95", "invoice", "8fk2")


@dataclass(frozen=True)
class Packaged:
    """A network of a package."""

    package: str
    file: str
    """Its place in the package; the last by name where there are several."""
    inputs: str
    """`photos`, `texts` (rendered), `files` (bytes), `speech`, or `stream` (speech, and the states before it)."""
    size: tuple[int, int] = (0, 0)
    """Height and width."""
    channels: int = 3
    factor: float = 1 / 255
    offset: float = 0.0
    """Of pixels from 0 to 255."""
    samples: int = 0
    """Of a sound."""
    rate: int = 16_000
    """Of its samples, in Hz."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """How it is loaded. Where it begins at a value within the file its inputs are what the front makes."""


MODELS = {
    "ppocr_v4_rec": Packaged(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", "texts", (48, 320), factor=1 / 127.5, offset=-1
    ),
    "ppocr_v4_det": Packaged(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", "photos", (320, 320), factor=1 / 58, offset=-2.1
    ),
    "ppocr_v2_cls": Packaged(
        "rapidocr_onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "texts",
        (48, 192),
        factor=1 / 127.5,
        offset=-1,
    ),
    "magika": Packaged("magika", "models/*/model.onnx", "files"),
    "nudenet": Packaged("nudenet", "320n.onnx", "photos", (320, 320)),
    "ddddocr": Packaged("ddddocr", "common.onnx", "texts", (64, 160), channels=1),
    "ddddocr_det": Packaged("ddddocr", "common_det.onnx", "photos", (416, 416), factor=1.0),
    "silero_vad": Packaged(
        "silero_vad",
        "data/silero_vad_16k_op15.onnx",
        "stream",
        options={
            "shape": {"input": (1, 576)},
            "fixed": {"sr": 16_000},
            "output": ["output", "stateN"],
            "begin": "/model/stft/Sqrt_output_0",
        },
    ),
    "dnsmos": Packaged(
        "speechmos",
        "dnsmos_models/sig_bak_ovr.onnx",
        "speech",
        samples=144_160,
        options={"begin": "mos_estimator_logpow/truediv:0"},
    ),
    "basic_pitch": Packaged(
        "basic_pitch",
        "saved_models/icassp_2022/nmp.onnx",
        "speech",
        samples=43_844,
        rate=22_050,
        options={
            "output": "StatefulPartitionedCall:0",
            "begin": "model_1/normalized_log_1/Reshape_2;model_1/normalized_log_1/Reshape_2",
        },
    ),
}


def export(name: str, path: Path, folder: Path) -> Floats:
    """Copies a network. Returns inputs."""
    of = MODELS[name]
    shutil.copy(sorted(root(of.package).glob(of.file))[-1], path)
    match of.inputs:
        case "files":
            return _files()
        case "speech":
            return _sounds(path, of)
        case "stream":
            return _stream(path, of)
        case "texts":
            images = _texts(of.size)
        case _:
            images = _photos(folder, of.size)
    images = images if of.channels > 1 else images.mean(axis=1, keepdims=True)
    return np.ascontiguousarray(images * of.factor + of.offset, np.float32)


def root(package: str) -> Path:
    """The folder of a package that is installed."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(package)
    return Path(found.origin).parent


def _sounds(path: Path, of: Packaged) -> Floats:
    """What a network's front makes of sounds of a twentieth to one and a half of the usual loudness."""
    front, random = pronghorn.load(path, **of.options).front, np.random.default_rng(1)
    assert front is not None
    sounds = [random.uniform(0.05, 1.5) * speech(of.samples, of.rate, random) for _ in range(COUNT)]
    (shape,) = front.inputs.values()
    found = front(np.stack(sounds).astype(np.float32).reshape(COUNT, *shape))
    assert not isinstance(found, dict)
    return found


def _stream(path: Path, of: Packaged) -> Floats:
    """Rows of every eighth window of a sound, as Silero's detector of voices takes them: what its front makes of the
    window, and the state that the windows before it left."""
    import onnxruntime

    model, session = pronghorn.load(path, **of.options), onnxruntime.InferenceSession(path)
    assert model.front is not None
    window, before = 512, 64
    sound = speech(window * 8 * COUNT + before, of.rate, np.random.default_rng(1)).astype(np.float32)
    state, windows, states = np.zeros((2, 1, 128), np.float32), list[Floats](), list[Floats]()
    for start in range(0, window * 8 * COUNT, window):
        windows.append(sound[start : start + before + window])
        states.append(state[:, 0])
        given = {"input": windows[-1][None], "state": state, "sr": np.array(of.rate)}
        state = np.asarray(session.run(["stateN"], given)[0])
    (name,) = model.front.outputs
    made = model.front(np.stack(windows[::8]))
    assert not isinstance(made, dict)
    return model.join({name: made, "state": np.stack(states[::8])})


def _photos(folder: Path, size: tuple[int, int]) -> Floats:
    """Photos of a size, `(count, 3, height, width)`, 0 to 255."""
    paths = sorted(folder.glob("*.[jJ][pP]*[gG]"))[:COUNT]
    images = [Image.open(path).convert("RGB").resize(size[::-1], Image.Resampling.BILINEAR) for path in paths]
    return np.stack([np.asarray(image, np.float32) for image in images]).transpose(0, 3, 1, 2)


def _texts(size: tuple[int, int]) -> Floats:
    """Words on a light ground with a little noise, of the same form."""
    random, (height, width) = np.random.default_rng(1), size
    made = []
    for place in range(COUNT):
        image = Image.new("L", (width, height), int(random.integers(150, 255)))
        font = ImageFont.load_default(size=int(height * random.uniform(0.5, 0.8)))
        corner = (int(random.integers(0, width // 4)), int(random.integers(0, height // 5 + 1)))
        ImageDraw.Draw(image).text(corner, WORDS[place % len(WORDS)], fill=int(random.integers(0, 100)), font=font)
        made.append(np.asarray(image, np.float32) + random.normal(0, 6, (height, width)))
    return np.repeat(np.clip(np.stack(made), 0, 255)[:, None], 3, axis=1)


def _files() -> Floats:
    """The first and last bytes of files of numpy's, as Magika reads them."""
    paths = sorted(path for path in root("numpy").rglob("*") if path.is_file() and path.stat().st_size > 64)
    chosen = np.random.default_rng(1).permutation(len(paths))[:COUNT]
    rows = []
    for path in (paths[place] for place in chosen):
        content = np.frombuffer(path.read_bytes(), np.uint8).astype(np.int32)
        first, last = content[:BYTES], content[-BYTES:]
        none = np.full(BYTES - len(first), NO_BYTE, np.int32)
        rows.append(np.concatenate([first, none, none, last]))
    return np.stack(rows)
