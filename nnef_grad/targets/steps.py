"""Slices with a stride, for a runtime that moves them up to where elements come from.

On its way up a slice meets a reshape, and its axis is not there: the graph is refused. It
does not move over what is repeated, which therefore comes between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nnef_grad.emit import Emitter
from nnef_grad.ir import Graph, Operation, Shape, Tensor
from nnef_grad.passes.inline import Build, inline
from nnef_grad.targets.integers import makers

# What a slice does not move over, whatever its axis is.
_STOPS = frozenset(
    [
        "tile",
        "matmul",
        "linear",
        "conv",
        "deconv",
        "max_pool",
        "avg_pool",
        "box",
        "debox",
    ]
)


def steps_held(graph: Graph) -> Graph:
    """The graph with something between a slice that has a stride, and a reshape."""
    reshaped, made = _reshaped(graph), makers(graph)

    def body(op: Operation) -> Build | None:
        axes = _axes_with_stride(op)
        if not axes or reshaped.isdisjoint(op.inputs):
            return None
        return None if _is_padded(made[next(op.inputs)], axes) else _held

    return inline(graph, body)


def _reshaped(graph: Graph) -> set[Tensor]:
    """The tensors from which a slice would move up to a reshape."""
    found: set[Tensor] = set()
    for op in graph.operations:
        moves = op.name not in _STOPS and not found.isdisjoint(op.inputs)
        if moves or op.name == "reshape":
            found.update(op.outputs)
    return found


def _axes_with_stride(op: Operation) -> list[int]:
    if op.name != "slice":
        return []
    axes: Shape = op.attributes["axes"]
    return [a for a, step in zip(axes, op.attributes["stride"]) if step > 1]


def _is_padded(op: Operation, axes: Sequence[int]) -> bool:
    """Whether it is padding along all of the axes: a slice does not move over it."""
    return op.name == "pad" and all(any(op.attributes["padding"][a]) for a in axes)


def _held(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The slice of twice the elements, of which it takes the first ones."""
    (x,), axis = op.inputs, _axes_with_stride(op)[0]
    repeats = [1 + (i == axis) for i in range(x.rank)]
    twice = emit("tile", x, repeats=repeats, hint="twice")
    return [emit("slice", twice, **op.attributes)]
