"""Elements at given indices, and the largest ones."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions import orders
from nnef_grad.frontends.expansions import selection as expansion
from nnef_grad.frontends.expansions.reductions import local_response, running_sums
from nnef_grad.frontends.onnx.node import Node, onnx_op
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.extents import as_number

# What other formats have too, with the attributes that it takes, and their defaults.
_SHARED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Gather": (expansion.gather, {"axis": 0}),
    "GatherElements": (expansion.gather_elements, {"axis": 0}),
    "GatherND": (expansion.gather_blocks, {"batch_dims": 0}),
    "LRN": (local_response, {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, "size": 1}),
    "Scatter": (expansion.scatter_elements, {"axis": 0, "reduction": "none"}),
    "ScatterElements": (expansion.scatter_elements, {"axis": 0, "reduction": "none"}),
}


@onnx_op(*_SHARED)
def _shared(node: Node, *operands: Any) -> Any:
    expand, defaults = _SHARED[node.kind]
    _require_numbers(node, operands[0])
    return expand(node, *operands, *(node.get(*item) for item in defaults.items()))


@onnx_op("ScatterND")
def _scatter_blocks(node: Node, x: Any, indices: Any, updates: Any) -> Any:
    """Updates in place of the blocks that their indices name, or added to them."""
    _require_numbers(node, x)
    reduction, shape = node.get("reduction", "none"), shape_of(x)
    places = shape[: shape_of(indices)[-1]]
    if not is_known(indices) or reduction not in ("none", "add"):
        return expansion.scatter_blocks(node, x, indices, updates, reduction)
    # Negative indices count from the end.
    table = expansion.from_begin(node, indices, np.array(places))
    table = table.reshape(-1, len(places))
    own = [np.unique(column) for column in table.T]
    # A grid of all others may be too large.
    if prod(map(len, own)) == len(table):
        grid = np.stack(np.meshgrid(*own, indexing="ij"), -1)
        if np.array_equal(grid.reshape(table.shape), table):
            return _put_grid(node, x, own, updates, reduction)
    if reduction == "none":
        # Of several updates of one block the last one counts.
        _, from_end = np.unique(table[::-1], axis=0, return_index=True)
        last = np.sort(len(table) - 1 - from_end)
        blocks = node.reshaped(updates, [len(table), *shape[len(places) :]], "updates")
        if len(last) < len(table):
            blocks = node("gather", blocks, last, hint="last", axis=0)
        table, updates = table[last], blocks
    return expansion.scatter_blocks(node, x, table, updates, reduction)


def _require_numbers(node: Node, x: Any) -> None:
    """Truth values have no sums: true and true would be 2."""
    is_reduced = node.get("reduction", "none") != "none"
    node.require(
        not is_reduced or dtype_of(x) != "logical", "truth values are not reduced"
    )


def _put_grid(
    node: Node, x: Any, own: list[Array], updates: Any, reduction: str
) -> Any:
    """Puts updates into positions along each axis, as an assignment to a slice does."""
    shape, rank = shape_of(x), len(shape_of(x))
    spread = node.reshaped(updates, [*map(len, own), *shape[len(own) :]], "updates")
    hits = []
    for axis, (taken, extent) in enumerate(zip(own, shape, strict=False)):
        if len(taken) == extent:
            continue
        node.reading.spend(extent)
        before, after = int(taken[0]), extent - 1 - int(taken[-1])
        if len(taken) == extent - before - after:
            sides = [(0, 0)] * rank
            sides[axis] = (before, after)
            spread = node("pad", spread, hint="padded", padding=sides, value=0.0)
        else:
            index = np.searchsorted(taken[:-1], np.arange(as_number(extent)))
            spread = node("gather", spread, index, hint="spread", axis=axis)
        hit = np.isin(np.arange(as_number(extent)), taken)
        hits.append(hit.reshape([-1 if a == axis else 1 for a in range(rank)]))
    rest = x if reduction == "none" else 0.0
    for hit in hits:
        spread = node("select", hit, spread, rest, hint="put")
    return spread if reduction == "none" else node("add", x, spread)


@onnx_op("TopK")
def _top(node: Node, x: Any, *_: Any) -> list[Any]:
    (count,) = node.items("k", 1)
    axis, is_largest = node.get("axis", -1), bool(node.get("largest", 1))
    return list(orders.largest(node, x, count, axis, is_largest))


@onnx_op("CumSum")
def _cumulative_sum(node: Node, x: Any, _: Any) -> Any:
    along = node.axis(node.items("axis", 1)[0], len(shape_of(x)))
    is_back, excludes = (bool(node.get(n, 0)) for n in ("reverse", "exclusive"))
    given, dtype = node.scalars(x), dtype_of(x)
    return running_sums(node, given, along, dtype, is_back=is_back, excludes=excludes)


@onnx_op("OneHot")
def _one_hot(node: Node, indices: Any, depth: Any, values: Any) -> Any:
    (extent,) = np.ravel(node.known(depth, "depth")).tolist()
    off, on = map(float, np.ravel(node.known(values, "values")).tolist())
    axis = node.get("axis", -1)
    return node.like(
        values, expansion.one_hot(node, indices, axis, int(extent), off, on)
    )
