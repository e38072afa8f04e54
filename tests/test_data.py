"""Reading images and labels."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner

import pronghorn
from helpers import model, node
from pronghorn._data import Preprocessing, arrange, load_images, read_labels
from pronghorn._streams import open_images
from pronghorn.cli import app
from pronghorn.errors import InputError

PLAIN = Preprocessing()


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.mark.parametrize(
    ("found", "shape", "expected"),
    [
        ((7, 1, 4, 5), (1, 4, 5), (7, 1, 4, 5)),
        ((7, 4, 5), (1, 4, 5), (7, 1, 4, 5)),
        ((4, 5), (1, 4, 5), (1, 1, 4, 5)),
        ((1, 4, 5), (1, 4, 5), (1, 1, 4, 5)),
        ((7, 4, 5, 3), (3, 4, 5), (7, 3, 4, 5)),
        ((7, 3, 4, 5), (4, 5, 3), (7, 4, 5, 3)),
        ((7, 20), (1, 4, 5), (7, 1, 4, 5)),
        ((7, 4, 5), (20,), (7, 20)),
        ((20,), (20,), (1, 20)),
    ],
)
def test_arrange(found: tuple[int, ...], shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert arrange(np.zeros(found), shape).shape == expected


def test_arrange_keeps_channels_apart() -> None:
    images = np.arange(2 * 4 * 5 * 3).reshape(2, 4, 5, 3)
    assert (arrange(images, (3, 4, 5))[1, 2] == images[1, :, :, 2]).all()
    for wrong in ((7, 5, 4), (7, 2, 4, 5), (7,), ()):
        with pytest.raises(ValueError):  # noqa: PT011
            arrange(np.zeros(wrong), (1, 4, 5))


def test_formats(tmp_path: Path) -> None:
    images = np.arange(40, dtype=np.uint8).reshape(2, 4, 5)
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "b.npz", X=images, y=[3, 4])
    np.savez(tmp_path / "c.npz", anything=images)
    (tmp_path / "t-images-idx3-ubyte").write_bytes(idx(images))
    (tmp_path / "t-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "t-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.array([3, 4]))))
    expected = images[:, None].astype(np.float32) / 255
    labelled = {"b.npz", "t-images-idx3-ubyte.gz"}
    for name in ("a.npy", "c.npz", "t-images-idx3-ubyte", *labelled):
        found, labels, were_bytes, *_ = load_images(tmp_path / name, (1, 4, 5), PLAIN)
        assert were_bytes
        np.testing.assert_allclose(found, expected)
        assert found.flags.c_contiguous
        assert (labels is not None and labels.tolist() == [3, 4]) == (name in labelled)
    assert read_labels(tmp_path / "b.npz").tolist() == [3, 4]
    assert read_labels(tmp_path / "t-labels-idx1-ubyte.gz").tolist() == [3, 4]


def test_pipes_are_read_once(tmp_path: Path) -> None:
    labels = np.arange(30, dtype=np.uint8)
    for content in (idx(labels), gzip.compress(idx(labels))):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        writing = threading.Thread(target=pipe.write_bytes, args=[content], daemon=True)
        writing.start()
        np.testing.assert_array_equal(read_labels(pipe), labels)
        writing.join()
        pipe.unlink()


def test_labels_are_no_images(tmp_path: Path) -> None:
    """The only array of a file, which has the name of labels, are its images, which it is preprocessed as."""
    np.savez(tmp_path / "y.npz", y=np.ones((3, 4), np.float32))
    loaded = load_images(tmp_path / "y.npz", (4,), Preprocessing(scale=2))
    assert (loaded.images == 0.5).all()
    assert loaded.labels is None


def test_files_are_in_memory_once(tmp_path: Path) -> None:
    images = np.random.default_rng(0).standard_normal((50, 3, 100, 100)).astype(np.float32)
    np.save(tmp_path / "x.npy", images)
    scaled = Preprocessing(scale=2, mean=[0.1, 0.2, 0.3], std=[0.5])
    tracemalloc.start()
    try:
        loaded = load_images(tmp_path / "x.npy", (3, 100, 100), scaled).images
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 1.5 * images.nbytes
    np.testing.assert_array_equal(loaded, scaled.apply(images, (3, 100, 100)))


def test_preprocessing() -> None:
    images = np.full((1, 3, 2, 2), 51, np.uint8)
    found = Preprocessing(mean=[0.1, 0.2, 0.0], std=[0.5]).apply(images, (3, 2, 2))
    np.testing.assert_allclose(found[0, :, 0, 0], [0.2, 0.0, 0.4], atol=1e-6)
    np.testing.assert_allclose(Preprocessing(scale=51).apply(images, (3, 2, 2)), 1)
    # A model of bytes takes them as they are, unless asked.
    as_they_are = Preprocessing(byte_scale=1)
    np.testing.assert_array_equal(as_they_are.apply(images, (3, 2, 2)), images)
    assert as_they_are.byte_range() == (0, 255)
    np.testing.assert_allclose(Preprocessing(scale=51, byte_scale=1).apply(images, (3, 2, 2)), 1)
    # Floats are not divided unless asked; the last dimension may be the channels.
    last = Preprocessing(mean=[1, 2, 3]).apply(np.zeros((1, 2, 2, 3), np.float32), (2, 2, 3))
    np.testing.assert_allclose(last[0, 0, 0], [-1, -2, -3])
    for wrong in (Preprocessing(scale=0), Preprocessing(std=[0]), Preprocessing(mean=[1, 2, 3, 4])):
        with pytest.raises(InputError):
            wrong.apply(images, (3, 2, 2))


def test_pictures(tmp_path: Path) -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    Image.fromarray(pixels).save(tmp_path / "p.png")
    found, labels, *_ = load_images(tmp_path / "p.png", (3, 4, 5), PLAIN)
    np.testing.assert_allclose(found[0, 1] * 255, pixels[:, :, 1], atol=1e-4)
    assert labels is None
    assert load_images(tmp_path / "p.png", (4, 5, 3), PLAIN).images.shape == (1, 4, 5, 3)
    assert load_images(tmp_path / "p.png", (1, 4, 5), PLAIN).images.shape == (1, 1, 4, 5)
    with pytest.raises(InputError, match="--resize"):
        load_images(tmp_path / "p.png", (3, 8, 8), PLAIN)
    assert load_images(tmp_path / "p.png", (3, 8, 8), Preprocessing(resize=True)).images.shape == (1, 3, 8, 8)
    with pytest.raises(InputError, match="npy"):
        load_images(tmp_path / "p.png", (20,), PLAIN)


def _with_alpha(mode: str, alpha: np.ndarray) -> Image.Image:
    grey, mask = Image.fromarray(np.full((4, 5), 255, np.uint8)), Image.fromarray(alpha)
    if mode in ("P", "L"):
        # Index 0 of the palette, or grey 0, is transparent.
        return Image.fromarray(np.where(alpha < 255, 0, 255).astype(np.uint8)).convert(mode)
    return Image.merge(mode, [grey] * (len(mode) - 1) + [mask])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L"])
@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 4, 5)])
def test_transparent_pictures_are_refused(tmp_path: Path, mode: str, shape: tuple[int, ...]) -> None:
    """The ink may be in the alpha channel alone."""
    alpha = np.full((4, 5), 255, np.uint8)
    options = {"transparency": 0} if mode in ("P", "L") else {}
    _with_alpha(mode, alpha).save(tmp_path / "opaque.png", **options)
    assert load_images(tmp_path / "opaque.png", shape, PLAIN).images.min() == 1
    alpha[2, 3] = 254
    _with_alpha(mode, alpha).save(tmp_path / "ink.png", **options)
    with pytest.raises(InputError, match=r"ink\.png has transparent pixels[\s\S]*save it on the background"):
        load_images(tmp_path / "ink.png", shape, PLAIN)
    with pytest.raises(InputError, match=r"ink\.png has transparent"):
        open_images(tmp_path, shape, PLAIN)


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff", "jpg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    """As EXIF data say that they are shown."""
    pixels = np.zeros((16, 24), np.uint8)
    pixels[:8, :8] = 255
    # The ways from what is shown to what is stored.
    undo = [
        None,
        Image.Transpose.FLIP_LEFT_RIGHT,
        Image.Transpose.ROTATE_180,
        Image.Transpose.FLIP_TOP_BOTTOM,
        Image.Transpose.TRANSPOSE,
        Image.Transpose.ROTATE_90,
        Image.Transpose.TRANSVERSE,
        Image.Transpose.ROTATE_270,
    ]
    shown, way = Image.fromarray(pixels), undo[orientation - 1]
    stored = shown if way is None else shown.transpose(way)
    exif = Image.Exif()
    exif[0x112] = orientation
    lossless = {"lossless": True} if suffix == "webp" else {}
    stored.save(tmp_path / f"p.{suffix}", exif=exif, **lossless)
    found = load_images(tmp_path / f"p.{suffix}", (1, 16, 24), PLAIN).images
    np.testing.assert_allclose(found[0, 0] * 255, pixels, atol=10)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_data_turn_nothing(tmp_path: Path) -> None:
    pixels = np.full((16, 24), 51, np.uint8)
    for exif in (b"Exif\0\0junk", b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\0\0\0\x01"):
        for name in ("p.jpg", "p.png"):
            Image.fromarray(pixels).save(tmp_path / name, exif=exif)
            np.testing.assert_allclose(load_images(tmp_path / name, (1, 16, 24), PLAIN).images, 0.2, atol=0.01)


def test_the_middle_of_pictures(tmp_path: Path) -> None:
    """As torchvision's Resize(short side) and CenterCrop."""
    pixels = np.zeros((40, 61, 3), np.uint8)
    pixels[:, 15:45] = 200
    Image.fromarray(pixels).save(tmp_path / "p.png")
    found = load_images(tmp_path / "p.png", (3, 20, 20), Preprocessing(short_side=40)).images
    expected = np.zeros((20, 20), np.float32)
    # The middle 20 columns of 61 start at round(20.5) = 20.
    expected[:] = 200 / 255
    np.testing.assert_allclose(found[0, 0], expected)
    # Scaled to 24 x 36, and 24 x 20 of that.
    found = load_images(tmp_path / "p.png", (3, 24, 20), Preprocessing(short_side=24)).images
    wanted = Image.fromarray(pixels).resize((36, 24), Image.Resampling.BILINEAR).crop((8, 0, 28, 24))
    np.testing.assert_allclose(found[0].transpose(1, 2, 0) * 255, np.asarray(wanted), atol=1e-4)
    for short_side in (1, 19, 60_000):
        with pytest.raises(InputError, match="cannot be cut out"):
            load_images(tmp_path / "p.png", (3, 20, 20), Preprocessing(short_side=short_side))
    with pytest.raises(InputError, match="--short-side"):
        load_images(tmp_path / "p.png", (3, 20, 20), PLAIN)


def test_pictures_of_several_frames_are_refused(tmp_path: Path) -> None:
    pages = [Image.fromarray(np.full((4, 5), value, np.uint8)) for value in (0, 100, 200)]
    for name in ("a.tiff", "b.gif"):
        pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
        with pytest.raises(InputError, match="has 3 pictures"):
            load_images(tmp_path / name, (1, 4, 5), PLAIN)
    # As cameras write them, with a small copy.
    pages[0].save(tmp_path / "c.jpg", format="MPO", save_all=True, append_images=pages[1:2])
    assert load_images(tmp_path / "c.jpg", (1, 4, 5), PLAIN).images.shape == (1, 1, 4, 5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_pictures_are_told(tmp_path: Path) -> None:
    """Wherever they break off."""
    pages = [Image.fromarray(np.full((4, 5), value, np.uint8)) for value in (0, 100, 200)]
    for name in ("a.tiff", "b.gif", "c.png"):
        pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
        whole = (tmp_path / name).read_bytes()
        for end in range(len(whole)):
            (tmp_path / name).write_bytes(whole[:end])
            with contextlib.suppress(InputError):
                load_images(tmp_path / name, (1, 4, 5), PLAIN)


def test_models_that_scale_bytes_take_them_as_they_are(tmp_path: Path) -> None:
    """As Keras' Rescaling makes them: pictures would be scaled twice."""
    rng = np.random.default_rng(0)
    for at in range(20):
        Image.fromarray(rng.integers(0, 256, (6, 6), np.uint8)).save(tmp_path / f"{at:02}.png")
    constants = {
        "byte": np.float32(1 / 127.5),
        "one": np.float32(1),
        "w": rng.standard_normal((36, 2)).astype(np.float32),
    }
    nodes = [node("Mul", "x byte", "m"), node("Sub", "m one", "s"), node("Flatten", "s", "f"), node("Gemm", "f w", "y")]
    proto = model(nodes, ("N", 1, 6, 6), constants)
    loaded = pronghorn.load(proto)
    assert loaded.takes_bytes
    onnx.save(proto, tmp_path / "m.onnx")
    found = CliRunner().invoke(app, ["plan", str(tmp_path / "m.onnx"), "--data", str(tmp_path), "--json"])
    assert found.exit_code == 0, found.output
    value = json.loads(found.stdout)["steps"][0]["value"]
    assert 250 < value["high"] / 2.0 ** value["fraction_bits"] < 260
    features = [node("Mul", "x byte", "m"), node("Gemm", "m w", "y")]
    assert not pronghorn.load(model(features, ("N", 36), {key: constants[key] for key in ("byte", "w")})).takes_bytes


def test_folders_of_pictures(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pictures"):
        load_images(tmp_path, (1, 4, 5), PLAIN)
    for name, value in (("b.png", 255), ("a.PNG", 0), ("c.bmp", 51)):
        Image.fromarray(np.full((4, 5), value, np.uint8)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    found, labels, _, titles, _ = load_images(tmp_path, (1, 4, 5), PLAIN)
    assert labels is None
    assert titles == ["a.PNG", "b.png", "c.bmp"]
    np.testing.assert_allclose(found[:, 0, 0, 0], [0, 1, 0.2])


@pytest.mark.parametrize(
    ("dtype", "largest", "scale"),
    [
        (np.uint16, 65535, 65535),
        (np.uint16, 4000, 4095),
        (np.int32, 255, 255),
        (np.int64, 100_000, 100_000),
        (np.int16, -256, 1023),
    ],
)
def test_integers_are_never_scaled_unasked(tmp_path: Path, dtype: type, largest: int, scale: int) -> None:
    values = np.zeros((1, 4, 5), dtype)
    values[0, 1, 2] = largest
    np.save(tmp_path / "x.npy", values)
    with pytest.raises(
        InputError, match=rf"{values.dtype} numbers.*--scale {scale} .*--scale 1 takes them as they are"
    ):
        load_images(tmp_path / "x.npy", (1, 4, 5), PLAIN)
    found = load_images(tmp_path / "x.npy", (1, 4, 5), Preprocessing(scale=scale)).images
    assert found[0, 0, 1, 2] == np.float32(largest) / np.float32(scale)
    assert load_images(tmp_path / "x.npy", (1, 4, 5), Preprocessing(scale=1)).images.max() == max(largest, 0)
    np.save(tmp_path / "x.npy", values != 0)
    assert load_images(tmp_path / "x.npy", (1, 4, 5), PLAIN).images.max() == 1


def test_what_cannot_be_read(tmp_path: Path) -> None:
    files = {
        "text.npz": b"hello",
        "short.npy": b"\x93NUMPY\x01\x00",
        "cut.gz": gzip.compress(b"x" * 99)[:-9],
        "bad.npz": b"PK\x03\x04" + bytes(99),
        "bad-idx": idx(np.zeros((2, 3)))[:-1],
        "bad.png": b"no picture",
        "empty": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            load_images(tmp_path / name, (1, 4, 5), PLAIN)
    for name in ("absent.npy", "absent.png"):
        with pytest.raises(InputError, match="no file"):
            load_images(tmp_path / name, (1, 4, 5), PLAIN)
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(InputError, match=r"object\.npy"):
        load_images(tmp_path / "object.npy", (1, 4, 5), PLAIN)
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
    with pytest.raises(InputError, match="a, b"):
        load_images(tmp_path / "two.npz", (1, 4, 5), PLAIN)
    np.save(tmp_path / "shape.npy", np.zeros((7, 9, 9)))
    with pytest.raises(InputError, match=r"\[7, 9, 9\]; the model takes \(images, 1, 4, 5\)"):
        load_images(tmp_path / "shape.npy", (1, 4, 5), PLAIN)


@pytest.mark.parametrize("values", [np.array([["a", "b"]]), np.array([[1 + 2j, 0]], np.complex64)])
def test_arrays_hold_numbers(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "values.npy", values)
    with pytest.raises(InputError, match=r"values\.npy have type .* numbers are needed"):
        load_images(tmp_path / "values.npy", (2,), PLAIN)


def test_files_without_an_image_are_refused(tmp_path: Path) -> None:
    table, array = tmp_path / "t.csv", tmp_path / "a.npy"
    table.write_text("a,b,label\n")
    np.save(array, np.zeros((0, 2), np.float32))
    for read in (load_images, open_images):
        with pytest.raises(InputError, match=r"t\.csv has a header alone, and no rows"):
            read(table, (2,), Preprocessing())
        with pytest.raises(InputError, match=r"a\.npy has no values: its shape is \[0, 2\]"):
            read(array, (2,), Preprocessing())
