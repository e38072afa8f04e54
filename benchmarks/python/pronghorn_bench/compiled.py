"""Plans that the measurements of the core can be given.

The benchmarks' extension has the bindings of models and plans in it, as types of its own: an object of
the library's extension cannot be handed to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pronghorn._model import Model
from pronghorn_bench import _core


def in_core(model: Model) -> _core.Model:
    """The same model as an object of the benchmarks' extension."""
    return _core.Model(model._imported.graph_json, model._imported.tensors)


def _held(model: Model) -> Model:
    """The same model, which the benchmarks' extension holds."""
    return Model(model._imported, in_core(model), model._options)


def compile_in_core(
    model: Model, trust: str, *, without: Iterable[str] = (), engine: str | None = None
) -> _core.Compiled:
    """The plan of a model with the server's half, as `Model.compiled` makes it."""
    return cast(_core.Compiled, _held(model).compiled(trust, without=without, engine=engine))
