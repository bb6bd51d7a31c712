"""Integers of fewer than 64 bits: where sums and products are beyond the last one, they go on with
the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from nnef_grad.frontends.onnx.node import NARROW, Node
from nnef_grad.frontends.values import shape_of
from nnef_grad.graph.extents import as_numbers, has_symbols
from nnef_grad.graph.ir import Tensor
from nnef_grad.ops.ranges import EXACT_IN_DOUBLE, INDEX

# How far from zero results may be, given how far the operands are, and how long the rows of the
# first one.
_SIZES: Mapping[str, Callable[[Sequence[float], int], float]] = {
    **dict.fromkeys(("Add", "Sub"), lambda sizes, _: sum(sizes)),
    "Mul": lambda sizes, _: prod(sizes),
    "MatMul": lambda sizes, length: prod(sizes) * length,
}


def in_bits(node: Node, z: Any, operands: Sequence[Any]) -> Any:
    """The result of a node, in the type that it has in the file. Operands whose bounds are not
    known are taken to be indices.
    """
    bits = NARROW.get(node.reading.narrow_type(node.proto, operands))
    is_tensor = isinstance(z, Tensor) and z.dtype == "integer"
    if not bits or not is_tensor or node.kind not in _SIZES:
        return z
    first, count = bits
    sizes = [node.reading.integer_size("add", [x]) for x in operands]
    row = shape_of(operands[0])[-1:]
    width = INDEX if has_symbols(row) else prod(as_numbers(row))
    size = _SIZES[node.kind](sizes, width)
    is_below = first == 0 and node.kind == "Sub"
    if size < first + count and not is_below:
        node.reading.sizes[z] = size
        return z
    if size > EXACT_IN_DOUBLE:
        node.warn("beyond 2^53 its integers lose digits, and wrap around elsewhere")
    whole = wrapped(node, z, z, first, count)
    node.reading.sizes[whole] = float(first + count)
    return whole


def wrapped(node: Node, x: Any, whole: Any, first: int, count: int) -> Any:
    """Integers as some of few bits, unless they are certainly among these."""
    own = node.reading.range_of(x)
    if first - 1 < own.lower and own.upper < first + count:
        return whole
    settings = {"first": float(first), "count": float(count)}
    number = node.expand("wrapped", node.scalars(whole), **settings)
    return node("cast", number, dtype="integer")
