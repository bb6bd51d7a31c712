"""Variables of half and of double precision, for tract, which has operations of one type."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.names import step_names, substitute
from nnef_grad.graph.passes import prune
from nnef_grad.ops.parts import section
from nnef_grad.targets.tract_core import OPSET, tract_core
from nnef_grad.targets.weights import MOST_FOLDED

# What only copies elements takes them as they are stored.
_COPYING = ("slice", "tract_core_gather")


def cast_variables(graph: Graph, labels: Container[str]) -> Graph:
    """The graph with casts to single precision of the variables with some labels, or of what
    is copied out of them.
    """
    emitter = Emitter(OPSET.extended(graph.fragments), graph.names)
    casts: dict[Tensor, Any] = {}
    for op in graph.operations:
        is_copied = op.name in _COPYING and op.operands[0] in casts
        emitter.append(op if is_copied else substitute(op, casts))
        if is_copied or (op.name == "variable" and op.attributes["label"] in labels):
            (x,) = op.outputs
            emitter.naming = step_names(f"{graph.names[x]}_{{}}")
            casts[x] = _cast(emitter, x)
    operations = tuple(emitter.operations)
    names = emitter.assigned_names(operations, reserved=graph.tensors)
    outputs = tuple(casts.get(x, x) for x in graph.outputs)
    return prune(replace(graph, operations=operations, outputs=outputs, names=names))


def _cast(emit: Emitter, x: Tensor) -> Any:
    """The tensor in single precision. tract casts in each run, and not as it loads the graph,
    what takes more than a certain size then: so a large variable is cast by parts.
    """
    count = 1 if has_symbols(x.shape) else -(-prod(x.shape) // MOST_FOLDED)
    if count == 1:
        return tract_core(emit, "cast", x, to="f32", hint="single")
    axis = max(range(x.rank), key=lambda axis: x.shape[axis])
    extent = x.shape[axis]
    count = min(count, extent)
    places = [extent * n // count for n in range(count + 1)]
    parts = [section(emit, x, {axis: ends}, hint="part") for ends in pairwise(places)]
    singles = [tract_core(emit, "cast", part, to="f32") for part in parts]
    return emit("concat", singles, axis=axis, hint="single")
