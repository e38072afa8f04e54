"""Networks to measure, each with images to run and others that calibrate it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from pronghorn._data import Preprocessing, load_images
from pronghorn._demo import example
from pronghorn._model import Floats, Model, load
from pronghorn.errors import InputError
from pronghorn_bench import minionn
from pronghorn_bench.shaper import LAN, WAN, Network

SAMPLES = 256
"""Most images that calibrate a network."""
MADE_UP = 32
"""Images for the network whose weights are made up too, and as many that calibrate it."""
MNIST_IMAGES = "t10k-images-idx3-ubyte.gz"


class Case(NamedTuple):
    """A network with what it is run on."""

    name: str
    path: Path
    model: Model
    """Calibrated."""
    images: Floats
    labels: npt.NDArray[np.int64] | None
    samples: Path
    """A file of the images that calibrate it."""


class File(NamedTuple):
    """A model, and inputs with labels."""

    model: Path
    data: Path
    preprocessing: Preprocessing = Preprocessing()


@contextmanager
def mnist(name: str, model: str, most: int) -> Iterator[Case]:
    """A model of the examples on the first test images; the last calibrate it."""
    with from_file(name, File(example(model), example(MNIST_IMAGES)), most) as case:
        yield case


@contextmanager
def cifar10(name: str, most: int) -> Iterator[Case]:
    """MiniONN's network for CIFAR-10, with made-up weights and images."""
    made = np.random.default_rng(2).random((2 * MADE_UP, *minionn.SHAPE), dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder:
        path = Path(folder) / "minionn_cifar10.onnx"
        onnx.save(minionn.cifar10_network(), path)
        yield _case(name, path, load(path), made[: min(most, MADE_UP)], None, made[-MADE_UP:], Path(folder))


@contextmanager
def from_file(name: str, file: File, most: int) -> Iterator[Case]:
    """A model of a file; the last half of its images, up to `SAMPLES`, calibrates it."""
    bare = load(file.model)
    found = load_images(file.data, bare.input_shape, file.preprocessing)
    count = len(found.images)
    samples = found.images[-min(SAMPLES, max(1, count // 2)) :]
    with tempfile.TemporaryDirectory(prefix="pronghorn-") as folder:
        yield _case(name, file.model, bare, found.images[:most], found.labels, samples, Path(folder))


def _case(
    name: str,
    path: Path,
    bare: Model,
    images: Floats,
    labels: npt.NDArray[np.int64] | None,
    samples: Floats,
    folder: Path,
) -> Case:
    saved = folder / "samples.npy"
    np.save(saved, samples)
    return Case(name, path, bare.calibrated(samples), images, labels, saved)


MOST_IMAGES = 11
"""Of a network, where no number is asked for."""
PACE_SECONDS = 10.0
"""After the first image and a second one, others begin within this time only."""
Make = Callable[[int], AbstractContextManager[Case]]
"""Makes a case of at most so many images."""

BUILT_IN: dict[str, Make] = {
    "C": partial(mnist, "C", "cryptonets_relu.onnx"),
    "D": partial(mnist, "D", "gazelle_mnist_d.onnx"),
    "CIFAR-10": partial(cifar10, "CIFAR-10"),
}
"""Networks of Gazelle's Tables XII and XIII that have ReLU."""


@dataclass(frozen=True)
class Choice:
    """Which networks are run, on how many images, and through which networks between the parties."""

    files: tuple[File, ...] = ()
    """Further networks, each named as its file."""
    only: tuple[str, ...] = ()
    """Names; none: all files, or where there are none all of `BUILT_IN`."""
    networks: tuple[Network | None, ...] = (None, LAN, WAN)
    """Between the parties; none: loopback."""
    images: int | None = None
    """One after the other; none: as many as `PACE_SECONDS` allow, at least two."""
    rounding: str | None = None
    """Of values between layers; none: to the nearest."""

    @classmethod
    def default(cls, quick: bool) -> Choice:
        """All; or little, to try a suite out."""
        return cls(only=("C",), networks=(None,), images=2) if quick else cls()

    def makes(self) -> list[Make]:
        """Each network that is chosen.

        Raises:
            InputError: there is none of a name; it lists all names.
        """
        files = {file.model.stem: partial(from_file, file.model.stem, file) for file in self.files}
        known: dict[str, Make] = {**BUILT_IN, **files}
        unknown = [name for name in self.only if name not in known]
        if unknown:
            raise InputError(f"there is no network {unknown[0]!r}; there are {', '.join(known)}")
        return [known[name] for name in self.only or files or BUILT_IN]

    @property
    def most(self) -> int:
        """Images that a case needs."""
        return MOST_IMAGES if self.images is None else self.images

    def numbers(self, case: Case) -> Iterator[int]:
        """Of the images to run, one after the other."""
        yield 0
        started = monotonic()
        for number in range(1, len(case.images)):
            yield number
            if self.images is None and monotonic() - started > PACE_SECONDS:
                return
