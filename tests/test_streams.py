"""Images of files of which parts are read: as those that are read whole, in little memory."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pronghorn._data import Preprocessing, load_images
from pronghorn._outputs import Predictions
from pronghorn._streams import Images, open_images
from pronghorn.cli.pieces import Answer, Pieces, digest, write
from pronghorn.errors import InputError

SHAPE = (1, 5, 4)


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, *shape), np.uint8)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content = header + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One file of each kind."""
    bytes_, floats = pixels(23, 5, 4), pixels(23, 5, 4).astype(np.float64) / 255
    write_idx(tmp_path / "a-images-idx3-ubyte", bytes_)
    write_idx(tmp_path / "b-images-idx3-ubyte.gz", bytes_)
    write_idx(tmp_path / "b-labels-idx1-ubyte.gz", np.arange(23, dtype=np.uint8))
    np.save(tmp_path / "c.npy", bytes_)
    np.save(tmp_path / "d.npy", np.asfortranarray(floats))
    np.save(tmp_path / "e.npy", floats.astype(">f4")[:, None])
    np.save(tmp_path / "one.npy", floats[0])
    np.savez(tmp_path / "f.npz", images=floats, labels=np.arange(23))
    np.savez_compressed(tmp_path / "g.npz", x=bytes_[:, None])
    (tmp_path / "folder").mkdir()
    for index, picture in enumerate(bytes_[:7]):
        Image.fromarray(picture).save(tmp_path / "folder" / f"{index}.png")
    Image.fromarray(bytes_[0]).save(tmp_path / "h.png")
    np.savetxt(tmp_path / "i.csv", floats.reshape(23, 20), delimiter=",")
    return {path.name: path for path in tmp_path.iterdir() if "labels" not in path.name}


def test_parts_are_those_of_the_whole(files: dict[str, Path]) -> None:
    for name, path in files.items():
        whole, opened = load_images(path, SHAPE, Preprocessing()), open_images(path, SHAPE, Preprocessing())
        assert (opened.count, opened.were_bytes) == (len(whole.images), whole.were_bytes), name
        assert (opened.labels is None) == (whole.labels is None), name
        if whole.labels is not None:
            np.testing.assert_array_equal(opened.labels, whole.labels)
        images = Images([opened], None)
        # Back and forth, and beyond the end.
        for first, last in ((0, 3), (3, 9), (1, 2), (9, 100), (0, 100)):
            wanted = whole.images[first:last]
            if len(wanted):
                np.testing.assert_array_equal(images[first:last], wanted, err_msg=name)
                assert images.titles(first, last) == whole.titles[first:last], name


def test_several_files_are_one_row(files: dict[str, Path]) -> None:
    paths = [files[name] for name in ("c.npy", "h.png", "folder")]
    loaded = [load_images(path, SHAPE, Preprocessing()) for path in paths]
    images = Images([open_images(path, SHAPE, Preprocessing()) for path in paths], 29)
    assert (len(images), images.total) == (29, 31)
    np.testing.assert_array_equal(images[20:1000], np.concatenate([each.images for each in loaded])[20:29])
    assert images.titles(22, 25) == ["c.npy[22]", "h.png", "0.png"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write_idx(tmp_path / "cut.gz", pixels(300, 5, 4))
    content = gzip.decompress((tmp_path / "cut.gz").read_bytes())
    (tmp_path / "cut.gz").write_bytes(gzip.compress(content[:-1]))
    opened = open_images(tmp_path / "cut.gz", SHAPE, Preprocessing())
    opened.read(0, 299)
    with pytest.raises(InputError, match="ends before the 300 images"):
        opened.read(299, 300)
    np.save(tmp_path / "wide.npy", pixels(9, 5, 5))
    with pytest.raises(InputError, match="the model takes"):
        open_images(tmp_path / "wide.npy", SHAPE, Preprocessing())
    np.save(tmp_path / "whole.npy", np.full((9, 5, 4), 300))
    with pytest.raises(InputError, match="--scale 1023"):
        open_images(tmp_path / "whole.npy", SHAPE, Preprocessing())
    (tmp_path / "no.npy").write_bytes(b"\x93NUMPY\x09\x00")
    for name in ("no.npy", "absent.npy"):
        with pytest.raises(InputError):
            open_images(tmp_path / name, SHAPE, Preprocessing())
    values = np.ones((9, 5, 4), np.float32)
    values[6, 0, 0] = np.nan
    np.save(tmp_path / "nan.npy", values)
    with pytest.raises(InputError, match=r"nan.npy\[6\] holds infinite values or NaN"):
        digest(Images([open_images(tmp_path / "nan.npy", SHAPE, Preprocessing())], None), 4)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x-images-idx3-ubyte.gz"])
def test_a_part_is_in_memory_alone(name: str, tmp_path: Path) -> None:
    """20,000 images are 32 MB as floats; pieces of 100 are read, digested and written in a fifth of that."""
    path, count = tmp_path / name, 20_000
    values = pixels(count, 20, 20)
    if path.suffix == ".gz":
        write_idx(path, values)
    else:
        (np.save if path.suffix == ".npy" else np.savez_compressed)(path, values)  # type: ignore[operator]
    shape, out = (20, 20), tmp_path / "out.npz"
    tracemalloc.start()
    try:
        images = Images([open_images(path, shape, Preprocessing())], None)
        work = {"images": count, "inputs": digest(images, 100), "plan": "", "piece": 100}
        pieces = Pieces(out, work, resume=False)
        for piece in pieces.missing():
            pieces.add(piece, Answer(images[piece.start : piece.stop].reshape(len(piece), -1)))
        write(out, images.titles, pieces, lambda outputs: Predictions.of(outputs, [], "classes"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count * 400 * 4 / 5
    del values
    with np.load(out) as archive:
        wanted = load_images(path, shape, Preprocessing()).images.reshape(count, -1)
        np.testing.assert_array_equal(archive["outputs"], wanted)
        np.testing.assert_array_equal(archive["classes"], wanted.argmax(axis=1))
    assert work["inputs"] == digest(images, 777)


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_integers_of_a_table_are_no_pixels(tmp_path: Path, kind: type[np.generic]) -> None:
    rows = np.arange(180, dtype=kind).reshape(60, 3)
    np.save(tmp_path / "rows.npy", rows)
    found = load_images(tmp_path / "rows.npy", (3,), Preprocessing())
    np.testing.assert_array_equal(found.images, rows.astype(np.float32))
    assert not found.were_bytes
    opened = open_images(tmp_path / "rows.npy", (3,), Preprocessing())
    np.testing.assert_array_equal(opened.read(0, 60), rows.astype(np.float32))
