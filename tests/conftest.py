"""Fixtures: the example model and images, and the data beside the repository."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import helpers
import pronghorn
from pronghorn._data import Preprocessing, load_images

# Of the machine that tests run on nothing is kept, and nothing known.
os.environ["PRONGHORN_CACHE"] = tempfile.mkdtemp(prefix="pronghorn-tests-")

settings.register_profile("pronghorn", deadline=None)
settings.load_profile("pronghorn")

EXAMPLE = Path(__file__).parents[1] / "examples" / "mnist"
SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="module", autouse=True)
def random_numbers() -> None:
    """The same random numbers for a file of tests, whichever ran before it."""
    helpers.RANDOM = np.random.default_rng(7)


@pytest.fixture(scope="session")
def mnist() -> tuple[np.ndarray, np.ndarray]:
    """All MNIST test images `(10000, 1, 28, 28)` and their labels."""
    images, labels, *_ = load_images(EXAMPLE / "t10k-images-idx3-ubyte.gz", (1, 28, 28), Preprocessing())
    assert labels is not None
    return images, labels


@pytest.fixture(scope="session")
def cryptonets(mnist: tuple[np.ndarray, np.ndarray]) -> pronghorn.Model:
    """The example model."""
    return pronghorn.load(EXAMPLE / "cryptonets_relu.onnx", samples=mnist[0][:256])


@pytest.fixture
def shared() -> Path:
    """The folder of models and data beside the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there: this test needs its models")
    return SHARED
