"""Square matrices, and filters with as many channels in as out, that are read in several ways.
OpenVINO 2026.4 takes the one that it has rearranged for a product or a convolution for that of
the transposed one: each way gets a matrix of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nnef_grad.base.arrays import Array


def is_square(shape: Sequence[int]) -> bool:
    """Whether its last two axes have the same extent, or the first two, as filters have."""
    return len(shape) > 1 and (shape[-1] == shape[-2] or shape[0] == shape[1])


def separated(
    nodes: Iterable[Any], squares: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Lets nodes read another name for each further way in which they read one of these, and
    yields the new name and the old one.
    """
    ways: dict[str, list[Any]] = {name: [] for name in squares}
    for node in nodes:
        for place, name in enumerate(node.input):
            if name not in ways:
                continue
            way = node.op_type, place, [*map(str, node.attribute)]
            others = ways[name]
            if way not in others:
                others.append(way)
                if len(others) > 1:
                    yield f"{name}/{len(others) - 1}", name
            if number := others.index(way):
                node.input[place] = f"{name}/{number}"


def with_separated(model: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays of a model, with a copy for each further way to read a square matrix."""
    squares = [name for name, array in arrays.items() if is_square(array.shape)]
    copies = separated(model.graph.node, squares)
    return {**arrays, **{copy: arrays[name] for copy, name in copies}}
