"""Parts of a model's graph: what some values need."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable
from typing import Any

from onnx import GraphProto, NodeProto

from pronghorn.errors import UnsupportedModelError
from pronghorn.onnx.reading import names_read


def refuse_unmade(graph: GraphProto, name: str) -> None:
    """Refuses a value that no node makes.

    Raises:
        UnsupportedModelError: there is none.
    """
    if not any(name in node.output for node in graph.node):
        outputs = ", ".join(entry.name for entry in graph.output)
        raise UnsupportedModelError(
            f"no node of the model makes {name!r}",
            f"its outputs are {outputs}; any value between may be named too (--output or --begin, output= or begin=)",
        )


def needed_nodes(nodes: Iterable[NodeProto], wanted: Iterable[str]) -> list[NodeProto]:
    """The nodes that values depend on, in their order."""
    needed, kept = set(wanted), []
    for node in reversed(list(nodes)):
        if any(name in needed for name in node.output if name):
            kept.append(node)
            needed.update(names_read(node))
    return kept[::-1]


def replace_all(repeated: Any, kept: Iterable[Any]) -> None:
    """Gives a repeated field of a message other entries, which may be entries of the same field."""
    entries = [copy.deepcopy(entry) for entry in kept]
    del repeated[:]
    repeated.extend(entries)


def remove_weights(graph: GraphProto, needed: Container[str]) -> None:
    """Removes the weights that are not needed, in place: they may be large."""
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed:
            del graph.initializer[index]
