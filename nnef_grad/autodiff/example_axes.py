"""The axes of inputs and outputs that count examples: axis 0, unless another is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Union

from nnef_grad.base.errors import UsageError, refuse_unknown
from nnef_grad.graph.ir import Graph, Shape, Tensor

# Whether axis 0 of all inputs and outputs counts examples; or the axes of those where another
# does, by name. All examples share an input that has None.
PerExample = Union[bool, Mapping[str, int | None]]
# The axis of each tensor; None where it has no examples.
Axes = Mapping[Tensor, int | None]


def axes_of(graph: Graph, outputs: Iterable[Tensor], per_example: PerExample) -> Axes:
    """The axes of the inputs of a graph, and of some of its outputs.

    Raises:
        UsageError: a name is unknown, or its tensor has no such axis.
    """
    named = per_example if isinstance(per_example, Mapping) else {}
    known = {*graph.input_names, *graph.output_names}
    refuse_unknown(tuple(named), known, "the graph has no input or output")
    axes = {x: named.get(graph.names[x], 0) for x in (*graph.inputs, *outputs)}
    for x in axes:
        if graph.names[x] in named:
            _refuse_axis(graph, x, axes[x])
    return axes


def _refuse_axis(graph: Graph, x: Tensor, axis: int | None) -> None:
    name = f"'{graph.names[x]}'"
    if axis is None:
        if x not in graph.inputs:
            raise UsageError(f"{name} is an output, and examples share inputs only")
    elif not 0 <= axis < x.rank:
        raise UsageError(f"{name}, of shape {shape_text(x)}, has no axis {axis}")


def shape_text(tensor: Tensor) -> str:
    """The shape of a tensor, as a user writes it."""
    return f"[{', '.join(map(str, tensor.shape))}]"


def extents_apart(shape: Shape, axis: int | None) -> tuple[Shape, Shape]:
    """The extent of an axis, and those of the others: of one example."""
    if axis is None:
        return (), shape
    return shape[axis : axis + 1], (*shape[:axis], *shape[axis + 1 :])
