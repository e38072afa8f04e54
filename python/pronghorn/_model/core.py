"""What models, plans and clients have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from pronghorn import _native
from pronghorn._categories import NO_CATEGORIES, Categories
from pronghorn.errors import PronghornError, of_core

Floats = npt.NDArray[np.float32]
Progress = Callable[[float, int], None]
"""Called with images done and images in all, about 20 times a second, on the thread that waits. All
images of a batch go through a layer together, so `done` grows by fractions of an image. An
exception in it cancels the run."""


@contextmanager
def native_errors(kind: type[PronghornError]) -> Iterator[None]:
    """Turns the core's errors into `kind`."""
    try:
        yield
    except _native.NativeError as error:
        raise of_core(kind, error) from error


class Shaped(ABC):
    """Has the shapes of one image and one result."""

    @property
    @abstractmethod
    def _core(self) -> _native.Model | _native.Compiled | _native.Client | _native.MultiKeyClient: ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image, such as `(channels, height, width)`. Of a row with categories it is the row's as its
        owner has it, with one value for each."""
        return self.categories.row_shape or self.network_shape

    @property
    def network_shape(self) -> tuple[int, ...]:
        """The shape of what the network takes of one image: with an indicator in place of each category of a value."""
        return tuple(self._core.input_shape)

    @property
    def categories(self) -> Categories:
        """The values of a row that are categories."""
        return NO_CATEGORIES

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of one result, such as `(classes,)`."""
        return tuple(self._core.output_shape)
