"""Scalars that are whole numbers by how they are made."""

from __future__ import annotations

from collections.abc import Callable

from nnef_grad.emit.arguments import dtype_of
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.traits import COPYING, MOVING

_ROUNDING = {"floor", "ceil", "round", "sign"}
_CLOSED = {"add", "sub", "mul", "neg", "abs", "min", "max"} | MOVING | COPYING
# The most operations to look at.
_MOST = 64


def is_whole(x: Operand, producer: Callable[[Tensor], Operation | None]) -> bool:
    """Whether a scalar is seen to be a whole number."""
    pending: list[Operand] = [x]
    for _ in range(_MOST):
        if not pending:
            return True
        x = pending.pop()
        if isinstance(x, tuple):
            pending += x
        elif isinstance(x, Tensor):
            made = producer(x)
            if made is None or not _keeps_whole(made):
                return False
            pending += made.operands if made.name in _CLOSED else ()
        elif not float(x).is_integer():
            return False
    return False


def _keeps_whole(operation: Operation) -> bool:
    if operation.name == "constant":
        return all(float(n).is_integer() for n in operation.attributes["value"])
    is_count = operation.name == "cast" and "scalar" not in map(
        dtype_of, operation.operands
    )
    return is_count or operation.name in _ROUNDING or operation.name in _CLOSED
