"""Reading images and labels: npz, npy, IDX (MNIST's format, also gzipped), and image files."""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pronghorn.errors import InputError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]

IMAGE_KEYS = ("images", "x", "X", "data", "inputs")
LABEL_KEYS = ("labels", "y", "Y")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True)
class Preprocessing:
    """What happens to values before the model: `(value / scale - mean) / std`."""

    scale: float | None = None
    """Divisor; where not given, 255 for bytes and 1 for all else."""
    mean: Sequence[float] | None = None
    """One for all, or one a channel."""
    std: Sequence[float] | None = None

    def byte_range(self) -> tuple[float, float]:
        """Where bytes end up, scaled to 0..1 where no other scale is given: the widest over all channels."""
        scale = 255.0 if self.scale is None else self.scale
        means = np.asarray([0.0] if self.mean is None else self.mean, np.float64)
        stds = np.asarray([1.0] if self.std is None else self.std, np.float64)
        if scale == 0 or 0 in stds:
            raise InputError("--scale and --std divide: they cannot be 0")
        ends = np.stack([(0.0 - means) / stds, (255.0 / scale - means) / stds])
        return float(ends.min()), float(ends.max())

    def apply(self, array: Array, shape: Shape) -> Floats:
        """Values of images `(images, *shape)` as the model takes them."""
        scale = self.scale if self.scale is not None else 255.0 if array.dtype == np.uint8 else 1.0
        if scale == 0 or (self.std is not None and 0 in self.std):
            raise InputError("--scale and --std divide: they cannot be 0")
        values = array.astype(np.float32) / np.float32(scale)
        if self.mean is not None:
            values -= _per_channel("--mean", self.mean, shape)
        if self.std is not None:
            values /= _per_channel("--std", self.std, shape)
        return np.ascontiguousarray(values, np.float32)


def _per_channel(option: str, numbers: Sequence[float], shape: Shape) -> Floats:
    """Numbers that broadcast over the channels: the first dimension, or the last where only that fits."""
    array = np.array(numbers, np.float32)
    if array.size == 1 or array.size == shape[-1] != shape[0]:
        return array
    if array.size != shape[0]:
        raise InputError(f"{option} has {array.size} numbers; give one, or one for each channel of shape {list(shape)}")
    return array.reshape(-1, *[1] * (len(shape) - 1))


def load_images(
    path: Path, shape: Shape, preprocessing: Preprocessing, *, resize: bool = False
) -> tuple[Floats, Array | None]:
    """Images `(images, *shape)` of a file, and its labels where it has them.

    Raises:
        InputError: the file is missing, damaged, or does not fit the model.
    """
    raw, labels = read_images(path, shape, resize=resize)
    try:
        arranged = arrange(raw, shape)
    except ValueError:
        wanted = ", ".join(map(str, ("images", *shape)))
        raise InputError(f"{path} has images of shape {list(raw.shape)}; the model takes ({wanted})") from None
    return preprocessing.apply(arranged, shape), labels


def read_images(path: Path, shape: Shape, *, resize: bool = False) -> tuple[Array, Array | None]:
    """As they are in the file."""
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return _read_picture(path, shape, resize), None
    arrays = _read_arrays(path)
    images = _pick(path, arrays, IMAGE_KEYS, "images")
    labels = next((arrays[key] for key in LABEL_KEYS if key in arrays), None)
    beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    if labels is None and beside != path and beside.is_file():
        labels = _read_arrays(beside)[""]
    return images, labels


def read_labels(path: Path) -> Array:
    """Labels of a file."""
    return _pick(path, _read_arrays(path), LABEL_KEYS, "labels")


def _pick(path: Path, arrays: dict[str, Array], keys: Sequence[str], what: str) -> Array:
    """The only array, or the one with a known name."""
    found = next((arrays[key] for key in ("", *keys) if key in arrays), None)
    if found is None and len(arrays) == 1:
        found = next(iter(arrays.values()))
    if found is None:
        raise InputError(f"{path} has no {what}: it holds {', '.join(arrays) or 'nothing'}; name one of them {keys[0]}")
    return found


def _read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; a single array has an empty name."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if content[:6] == b"\x93NUMPY":
            return {"": np.load(path, allow_pickle=False)}
        if content[:2] == b"PK":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        return {"": _parse_idx(content)}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        kinds = "npz, npy, IDX (also gzipped)"
        raise InputError(f"{path} cannot be read ({error}); {kinds} and image files are supported") from error


def _parse_idx(content: bytes) -> Array:
    """IDX: two zeros, type, rank, the dimensions (big-endian), the values."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise ValueError("not a known format")
    rank = content[3]
    start = 4 + 4 * rank
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    dtype = np.dtype(IDX_TYPES[content[2]])
    if len(content) != start + math.prod(shape) * dtype.itemsize:
        raise ValueError(f"its {len(content)} bytes do not fit shape {list(shape)}")
    values = np.frombuffer(content, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


def _read_picture(path: Path, shape: Shape, resize: bool) -> Array:
    """An image file as `(1, *shape)` bytes."""
    from PIL import Image, UnidentifiedImageError

    if len(shape) != 3 or not {1, 3} & {shape[0], shape[-1]}:
        raise InputError(f"{path} is a picture, but the model takes shape {list(shape)}: give npy or npz")
    first = shape[0] in (1, 3)
    channels, height, width = shape if first else (shape[2], shape[0], shape[1])
    try:
        with Image.open(path) as opened:
            if opened.mode.startswith(("I", "F")):
                raise InputError(f"{path} has more than 8 bits a pixel ({opened.mode}): save its values as npy")
            picture = opened.convert("L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} cannot be read as a picture: {error}") from error
    if picture.size != (width, height):
        if not resize:
            found = f"{picture.size[0]}x{picture.size[1]}"
            raise InputError(
                f"{path} is {found}, but the model takes {width}x{height}: add --resize, or give that size"
            )
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(picture).reshape(height, width, channels)
    return (pixels.transpose(2, 0, 1) if first else pixels)[None]


def arrange(array: Array, shape: Shape) -> Array:
    """Images as `(images, *shape)`, where there is one way to see them so.

    Raises:
        ValueError: there is none.
    """
    if array.shape[1:] == shape:
        return array
    if array.shape == shape:
        return array[None]
    one_channel = len(shape) == 3 and shape[0] == 1
    if one_channel and array.shape[1:] == shape[1:]:
        return array[:, None]
    if one_channel and array.shape == shape[1:]:
        return array[None, None]
    if len(shape) == 3 and array.ndim == 4:
        for permutation in ((0, 3, 1, 2), (0, 2, 3, 1)):
            if tuple(array.shape[axis] for axis in permutation[1:]) == shape:
                return array.transpose(permutation)
    flat = array.ndim == 2 or len(shape) == 1
    if flat and array.ndim >= 2 and math.prod(array.shape[1:]) == math.prod(shape):
        return array.reshape(len(array), *shape)
    raise ValueError
