"""Reading images and labels: npz, npy, IDX (MNIST's format, also gzipped), tables, and image files."""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pronghorn._arrays import as_column, as_numbers, channel_order, named_rows, one_row, refuse_names, several
from pronghorn._categories import NO_CATEGORIES, Categories
from pronghorn._inputs import Range
from pronghorn._tables import is_table, only_labels, read_table
from pronghorn.errors import InputError, InputWarning, PronghornError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, ...]

IMAGE_KEYS = ("images", "x", "X", "data", "inputs")
LABEL_KEYS = ("labels", "label", "y", "Y")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
MOST_PIXELS = 1 << 27
"""Most pixels of a scaled picture."""
FULL_SCALES = (1, 255, 1023, 4095, 16383, 65535)
"""The largest values that 1, 8, 10, 12, 14 and 16 bits hold."""
LEAST_PIXELS = 64
"""Rows of fewer numbers are features of a table, and of more may be pictures: digits of 8x8 pixels are."""
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True)
class Preprocessing:
    """How files become inputs: pictures are fitted to the model's size, then
    `(value / scale - mean) / std`."""

    scale: float | None = None
    """Divisor; where not given, `byte_scale` for bytes, 1 for floats, and an error for other integers
    unless `byte_scale` is 1."""
    mean: Sequence[float] | None = None
    """One for all, or one a channel."""
    std: Sequence[float] | None = None
    resize: bool = False
    """Stretch pictures of another size."""
    short_side: int | None = None
    """Scale pictures until their shorter side has this many pixels, and keep the middle."""
    byte_scale: float = 255.0
    """Divisor of bytes of pictures; 1 where the model takes them as they are."""
    header: bool | None = None
    """Whether the first line of CSV has names; where None, its cells tell."""

    def byte_range(self) -> Range:
        """Where bytes end up: the widest over all channels."""
        scale = self.byte_scale if self.scale is None else self.scale
        means = np.asarray([0.0] if self.mean is None else self.mean, np.float64)
        stds = np.asarray([1.0] if self.std is None else self.std, np.float64)
        self._check_divisors()
        ends = np.stack([(0.0 - means) / stds, (255.0 / scale - means) / stds])
        return float(ends.min()), float(ends.max())

    def apply(self, array: Array, shape: Shape, *, in_place: bool = False) -> Floats:
        """Values of images `(images, *shape)` as the model takes them; `in_place`: the array itself may be changed."""
        self._check_divisors()
        scale = self.scale if self.scale is not None else self.byte_scale if are_bytes(array.dtype, shape) else 1.0
        changes = scale != 1 or self.mean is not None or self.std is not None
        values = array.astype(np.float32, copy=changes and not (in_place and array.flags.writeable))
        if scale != 1:
            values /= np.float32(scale)
        if self.mean is not None:
            values -= _per_channel("--mean", self.mean, shape)
        if self.std is not None:
            values /= _per_channel("--std", self.std, shape)
        return np.ascontiguousarray(values, np.float32)

    def beside_pictures(self) -> Preprocessing:
        """That of an input beside pictures, which alone are scaled as the user says."""
        return replace(self, scale=None if self.scale is None else 1.0, mean=None, std=None)

    def fit(self, picture: Picture, size: tuple[int, int], name: str) -> Picture:
        """`picture` with `size`, its width and height.

        Raises:
            InputError: it has another size, and nothing is said about that.
        """
        from PIL.Image import Resampling

        width, height = size
        if self.short_side is not None:
            # As torchvision's Resize and CenterCrop.
            scaled = tuple(self.short_side * side // min(picture.size) for side in picture.size)
            if scaled[0] < width or scaled[1] < height or math.prod(scaled) > MOST_PIXELS:
                raise InputError(
                    f"{name} is {picture.width}x{picture.height} and becomes {scaled[0]}x{scaled[1]} by --short-side "
                    f"{self.short_side}, from which {width}x{height} cannot be cut out: "
                    f"give a number from {max(size)} up that suits its size"
                )
            picture = picture.resize((scaled[0], scaled[1]), Resampling.BILINEAR)
            left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
            return picture.crop((left, top, left + width, top + height))
        if picture.size == size:
            return picture
        if self.resize:
            return picture.resize(size, Resampling.BILINEAR)
        raise InputError(
            f"{name} is {picture.width}x{picture.height}, but the model takes {width}x{height}: --resize stretches it, "
            "--short-side N scales its shorter side to N and cuts out the middle (256 for most ImageNet models of 224)"
        )

    def _check_divisors(self) -> None:
        if self.scale == 0 or (self.std is not None and 0 in self.std):
            raise InputError("--scale and --std divide: they cannot be 0")


class Loaded(NamedTuple):
    """What a file holds."""

    images: Floats
    """`(images, *shape)`, preprocessed."""
    labels: Array | None
    were_bytes: bool
    """Whether the file has bytes."""
    titles: list[str]
    """What to call each image."""
    columns: tuple[str, ...] = ()
    """The names of the features of a table."""


def _per_channel(option: str, numbers: Sequence[float], shape: Shape) -> Floats:
    """Numbers that broadcast over the channels: the first dimension, or the last where only that
    fits."""
    array = np.array(numbers, np.float32)
    if array.size == 1 or array.size == shape[-1] != shape[0]:
        return array
    if array.size != shape[0]:
        raise InputError(f"{option} has {array.size} numbers; give one, or one for each channel of shape {list(shape)}")
    return array.reshape(-1, *[1] * (len(shape) - 1))


def load_images(
    path: Path,
    shape: Shape,
    preprocessing: Preprocessing,
    label_column: str | None = None,
    columns: Sequence[str] = (),
    parts: Mapping[str, Shape] = MappingProxyType({}),
    categories: Categories = NO_CATEGORIES,
) -> Loaded:
    """Images of a file, or of all pictures of a folder, and labels where it has them; `label_column`
    of a table has them. `columns`: the names of the features that the model takes, where they are known. `parts`: the
    shapes of its inputs by name; of several an npz file may have an array each. `categories`: the values of a row that
    are categories.

    Raises:
        InputError: the file is missing, damaged, or does not fit the model.
    """
    if (arrays := _named_inputs(path, parts)) is not None:
        return _load_named(path, arrays, shape, preprocessing, parts, categories)
    raw, labels, names = read_images(path, shape, preprocessing, label_column, columns, categories)
    if categories.each:
        rows = rows_of(path, raw, preprocessing, categories)
        images = categories.encode(rows, shape, str(path), names)
        return Loaded(images, labels, False, titles_of(path, len(images)), names)
    images = _prepared(path, raw, shape, preprocessing, parts)
    return Loaded(images, labels, are_bytes(raw.dtype, shape), titles_of(path, len(images)), names)


def rows_of(path: Path, raw: Array, preprocessing: Preprocessing, categories: Categories) -> Array:
    """The rows of a file, `(images, *row_shape)`: numbers and categories.

    Raises:
        InputError: they do not fit the model, or the user says how to scale pictures.
    """
    refuse_empty(path, raw.shape)
    if preprocessing.scale not in (None, 1) or preprocessing.mean is not None or preprocessing.std is not None:
        raise InputError("--scale, --mean and --std are for pictures, and the model takes categories: leave them out")
    try:
        return arrange(raw, categories.row_shape)
    except ValueError:
        raise misfit(path, raw.shape, categories.row_shape) from None


def _prepared(
    what: Path | str,
    raw: Array,
    shape: Shape,
    preprocessing: Preprocessing,
    parts: Mapping[str, Shape] = MappingProxyType({}),
) -> Floats:
    """The values of a file, or of an array of one, as the model takes them. Takes over `raw`: large files would not be
    in memory twice.

    Raises:
        InputError: they do not fit the model.
    """
    refuse_empty(what, raw.shape)
    try:
        arranged = arrange(raw, shape)
    except ValueError:
        raise misfit(what, raw.shape, shape, parts) from None
    if preprocessing.scale is None and preprocessing.byte_scale != 1:
        refuse_unscaled(what, raw, shape)
    return preprocessing.apply(arranged, shape, in_place=True)


def _named_inputs(path: Path, parts: Mapping[str, Shape]) -> dict[str, Array] | None:
    """The arrays of an npz file that has one for each input of several; None where it has their row, or is no npz.

    Raises:
        InputError: an input is missing, or an array is neither an input nor labels.
    """
    if len(parts) < 2 or not zipfile.is_zipfile(path):
        return None
    arrays = _read_arrays(path)
    values = [name for name in arrays if name in parts or name not in LABEL_KEYS]
    has_row = len(values) == 1 or any(key in values for key in IMAGE_KEYS if key not in parts)
    if has_row and not set(parts) <= set(values):
        return None
    refuse_names(str(path), values, parts)
    return arrays


def _load_named(
    path: Path,
    arrays: Mapping[str, Array],
    shape: Shape,
    preprocessing: Preprocessing,
    parts: Mapping[str, Shape],
    categories: Categories,
) -> Loaded:
    """The inputs of an npz file that has an array for each of several, as rows of all.

    Raises:
        InputError: an array does not fit, or the user says how to scale pictures and there are none.
    """
    _refuse_no_pictures(path, preprocessing, parts)
    labels = next((arrays[key] for key in LABEL_KEYS if key in arrays and key not in parts), None)
    if categories.each:
        rows = named_rows({name: arrays[name] for name in parts}, parts, str(path))
        images = categories.encode(rows, shape, str(path))
        return Loaded(images, labels, False, titles_of(path, len(images)))
    found, were_bytes = dict[str, Floats](), False
    for name, size in parts.items():
        what = f"{name} of {path}"
        raw = as_numbers(as_column(arrays[name], size), f"the values of {what}")
        own = preprocessing if is_picture(size) else preprocessing.beside_pictures()
        found[name] = _prepared(what, raw, size, own)
        were_bytes |= are_bytes(raw.dtype, size)
    images = one_row(str(path), found).reshape(-1, *shape)
    return Loaded(images, labels, were_bytes, titles_of(path, len(images)))


def _refuse_no_pictures(path: Path, preprocessing: Preprocessing, parts: Mapping[str, Shape]) -> None:
    is_scaled = preprocessing.scale not in (None, 1) or preprocessing.mean is not None or preprocessing.std is not None
    if is_scaled and not any(map(is_picture, parts.values())):
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in parts.items())
        raise InputError(
            f"--scale, --mean and --std are for pictures, and no input is one, of which {path} has an array each: "
            f"{shapes}\n  what to do: scale the values in the file, and leave these options out"
        )


def is_picture(shape: Shape) -> bool:
    """Whether an input may be a picture: channels, and two sides."""
    return len(shape) == 3


def refuse_empty(path: Path | str, found: Shape) -> None:
    """Refuses a file, or an array of one, without an image.

    Raises:
        InputError: it has none.
    """
    if 0 in found:
        problem = "a header alone, and no rows" if _is_table_file(path) else f"no values: its shape is {list(found)}"
        raise InputError(f"{path} has {problem}\n  what to do: give one input at least")


def _is_table_file(path: Path | str) -> bool:
    return isinstance(path, Path) and is_table(path)


def misfit(
    path: Path | str, found: Shape, shape: Shape, parts: Mapping[str, Shape] = MappingProxyType({})
) -> InputError:
    """That a file has images of another shape than the model takes."""
    if _is_table_file(path):
        advice = "\n  what to do: leave other columns out; --labels NAME names the column of labels"
        problem = f"{path} has {found[1]} columns of numbers; the model takes {math.prod(shape)}"
        return InputError(problem + (several(parts) or advice))
    wanted = ", ".join(map(str, ("images", *shape)))
    return InputError(f"{path} has images of shape {list(found)}; the model takes ({wanted}){several(parts)}")


def titles_of(path: Path, images: int) -> list[str]:
    """What to call the images of a file or folder."""
    if path.is_dir():
        return [picture.name for picture in folder_pictures(path)]
    return [path.name] if images == 1 else [f"{path.name}[{index}]" for index in range(images)]


def folder_pictures(folder: Path) -> list[Path]:
    """The pictures of a folder.

    Raises:
        InputError: it has none.
    """
    pictures = sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in IMAGE_SUFFIXES)
    if not pictures:
        inner = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        hint = f"\n  what to do: give one of its folders, such as {folder / inner[0]}" if inner else ""
        raise InputError(f"the folder {folder} holds no pictures ({', '.join(IMAGE_SUFFIXES)}){hint}")
    return pictures


def shape_of_one(path: Path) -> Shape | None:
    """The shape of one input of an npy file, the batch first; None of other files."""
    if path.suffix != ".npy":
        return None
    try:
        sizes = np.load(path, mmap_mode="r", allow_pickle=False).shape
    except (OSError, ValueError):
        return None  # Whoever reads the file says what is wrong.
    return (1, *sizes[1:]) if len(sizes) > 1 else None


def is_table_row(shape: Shape) -> bool:
    """Whether an input is a row of features, whose integers are no pixels."""
    return len(shape) == 1 and shape[0] < LEAST_PIXELS


def are_bytes(kind: np.dtype[Any], shape: Shape) -> bool:
    """Whether numbers of an input are bytes of a picture."""
    return kind == np.uint8 and not is_table_row(shape)


def refuse_unscaled(path: Path | str, raw: Array, shape: Shape) -> None:
    """Refuses integers other than bytes in pictures: they do not say what their largest value stands for."""
    if raw.dtype.kind not in "iu" or raw.dtype == np.uint8 or raw.size == 0 or is_table_row(shape):
        return
    largest = int(np.abs(raw.astype(np.int64)).max())
    full = next((full for full in FULL_SCALES if largest <= full), largest)
    divide = "" if full == 1 else f"--scale {full} divides by the most that pixels like these can have, and "
    raise InputError(
        f"{path} holds {raw.dtype} numbers from {raw.min()} to {raw.max()}; only bytes are divided (by 255) unasked: "
        f"{divide}--scale 1 takes them as they are"
    )


def read_images(
    path: Path,
    shape: Shape,
    preprocessing: Preprocessing,
    label_column: str | None = None,
    columns: Sequence[str] = (),
    categories: Categories = NO_CATEGORIES,
) -> tuple[Array, Array | None, tuple[str, ...]]:
    """As they are in the file, pictures with the model's size; labels, and names of features."""
    if is_table(path):
        features = math.prod(categories.row_shape if categories.each else shape)
        found = {category.place for category in categories.each}
        return read_table(path, label_column, features, columns, preprocessing.header, found)
    if path.is_dir():
        pictures = folder_pictures(path)
        return np.concatenate([read_picture(picture, shape, preprocessing) for picture in pictures]), None, ()
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return read_picture(path, shape, preprocessing), None, ()
    arrays = _read_arrays(path)
    name = pick(path, arrays, IMAGE_KEYS, "images")
    images = arrays[name] if categories.each else as_numbers(arrays[name], f"the values of {path}")
    labels = next((arrays[key] for key in LABEL_KEYS if key in arrays and key != name), None)
    return images, labels_beside(path) if labels is None else labels, ()


def labels_beside(path: Path) -> Array | None:
    """The labels beside a file of images, as MNIST has them."""
    beside = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    return _read_arrays(beside)[""] if beside != path and beside.is_file() else None


def read_labels(path: Path) -> Array:
    """Labels of a file; of a table, its column of labels or its only one."""
    if is_table(path):
        return only_labels(path)
    arrays = _read_arrays(path)
    return arrays[pick(path, arrays, LABEL_KEYS, "labels")]


def pick(path: Path, arrays: Mapping[str, Any], keys: Sequence[str], what: str) -> str:
    """The name of the only array, or a known one."""
    found = next((key for key in ("", *keys) if key in arrays), None)
    if found is None and len(arrays) == 1:
        found = next(iter(arrays))
    if found is None:
        join = (
            "\n  what to do: for a model of several inputs make one row of them (its owner's Model.join)"
            if keys is IMAGE_KEYS
            else ""
        )
        held = ", ".join(arrays) or "nothing"
        raise InputError(f"{path} has no {what}: it holds {held}; name one of them {keys[0]}{join}")
    return found


def _read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; a single array has an empty name."""
    try:
        with path.open("rb") as file:
            start = file.peek(6)[:6]
            is_npy, is_npz = start == b"\x93NUMPY", start[:2] == b"PK"
            # A pipe can be read once.
            content = b"" if is_npy or is_npz else file.read()
        if is_npy:
            return {"": np.load(path, allow_pickle=False)}
        if is_npz:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        return {"": _parse_idx(gzip.decompress(content) if start[:2] == b"\x1f\x8b" else content)}
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        kinds = "npz, npy, IDX and CSV (both also gzipped), parquet"
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


def read_picture(path: Path, shape: Shape, preprocessing: Preprocessing) -> Array:
    """An image file as `(1, *shape)` bytes, upright: as its EXIF data say that it is shown.

    Raises:
        InputError: it cannot be read, does not fit the model, or has pixels that are not opaque.
    """
    from PIL import Image

    if len(shape) != 3 or not {1, 3} & {shape[0], shape[-1]}:
        raise InputError(f"{path} is a picture, but the model takes shape {list(shape)}: give npy or npz")
    first = shape[0] in (1, 3)
    channels, height, width = shape if first else (shape[2], shape[0], shape[1])
    try:
        # Pillow maps a file that it opens by its name into memory, and mixes up the sides of turned TIFF files.
        with path.open("rb") as file, Image.open(file) as opened:
            if opened.mode.startswith(("I", "F")):
                raise InputError(f"{path} has more than 8 bits a pixel ({opened.mode}): save its values as npy")
            frames = getattr(opened, "n_frames", 1)
            # Those of many cameras have a small copy behind the picture.
            if frames > 1 and opened.format != "MPO":
                raise InputError(
                    f"{path} has {frames} pictures\n  what to do: save each in a file of its own, or give npy"
                )
            opened.load()
            _refuse_transparent(opened, path)
            upright = _upright(opened)
            loses_colours = channels == 1 and _has_colours(upright)
            picture = upright.convert("L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except PronghornError:
        raise
    except Exception as error:
        # On damaged files Pillow raises whatever their bytes lead it to.
        raise InputError(f"{path} cannot be read as a picture: {error}") from error
    pixels = np.asarray(preprocessing.fit(picture, (width, height), str(path))).reshape(height, width, channels)
    if loses_colours:
        _warn_of_colours()
    return (pixels.transpose(2, 0, 1) if first else pixels)[None]


def _refuse_transparent(picture: Picture, path: Path) -> None:
    """Refuses a picture with a pixel that is not opaque: the file does not say what is behind it."""
    if not picture.has_transparency_data:
        return
    # Of an alpha channel alone, the least and the largest.
    least, _ = cast("tuple[int, int]", picture.convert("RGBA").getchannel("A").getextrema())
    if least < 255:
        raise InputError(
            f"{path} has transparent pixels, and does not say what is behind them\n"
            "  what to do: save it on the background that the model was trained with, without transparency"
        )


def _upright(picture: Picture) -> Picture:
    """The picture as it is shown, turned or mirrored as its EXIF data say."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except (SyntaxError, ValueError, KeyError, TypeError, struct.error):
        # Damaged EXIF data turn nothing, as in viewers.
        return picture


def _has_colours(picture: Picture) -> bool:
    """Whether a picture has a pixel that is not grey."""
    if picture.mode in ("1", "L", "LA"):
        return False
    pixels = np.asarray(picture.convert("RGB"))
    return bool((pixels != pixels[..., :1]).any())


def _warn_of_colours() -> None:
    """Says that colours are lost."""
    text = "the model takes one channel: pictures in colour are made grey; results may be wrong for them"
    warnings.warn(text, InputWarning, stacklevel=2)


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
    order = channel_order(array.shape, shape)
    if order is not None:
        return array.transpose(order)
    flat = array.ndim == 2 or len(shape) == 1
    if flat and array.ndim >= 2 and math.prod(array.shape[1:]) == math.prod(shape):
        return array.reshape(len(array), *shape)
    raise ValueError
