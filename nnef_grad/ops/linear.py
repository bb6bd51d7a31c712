"""Operations that are linear in some of their operands, if the others are given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.traits import COPYING, MOVING, PRODUCTS, SAMPLING

# In the first one; in one of the first two, without an addend; and in all of them together.
_IN_FIRST = {*COPYING, *(MOVING - {"concat", "stack"}), *SAMPLING, "neg", "div", "gather",
             "sum_reduce", "mean_reduce", "box", "avg_pool"}  # fmt: skip
_IN_ONE = PRODUCTS | {"mul"}
_IN_ALL = {"add", "sub", "add_n", "concat", "stack"}


def is_linear(op: Operation, linear: Collection[Tensor]) -> bool:
    """Whether the results of an operation are linear in what these tensors are linear in, some
    of which are operands, if its other operands do not depend on it; 0.0 is, in anything.
    """
    are = [*_which(op.operands, linear)]
    if op.name in _IN_FIRST:
        return are[0] and not any(are[1:])
    if op.name in _IN_ONE:
        return sum(are[:2]) == 1 and op.operands[2:] in ((), (0.0,))
    if op.name == "select":
        return not are[0] and _are_all(op.operands[1:], linear)
    if op.name == "pad":
        return bool(op.settings["border"] != "constant" or op.settings["value"] == 0.0)
    return op.name in _IN_ALL and _are_all(op.operands, linear)


def _which(operands: Sequence[Operand], linear: Collection[Tensor]) -> Iterator[bool]:
    for operand in operands:
        parts = operand if isinstance(operand, tuple) else (operand,)
        yield any(isinstance(x, Tensor) and x in linear for x in parts)


def _are_all(operands: Sequence[Operand], linear: Collection[Tensor]) -> bool:
    parts = [x for o in operands for x in (o if isinstance(o, tuple) else (o,))]
    return all(x in linear if isinstance(x, Tensor) else x == 0.0 for x in parts)
