"""Comparisons, logic, and choices.

NNEF cannot write what is infinite: the largest number stands for it, and what is as large
as that counts as infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nnef_grad.frontends.torch.call import Call, aten, higher
from nnef_grad.frontends.values import dtype_of, is_known, shape_of

# Equal to what is infinite is what is as large.
_AT_INFINITY = {
    ("eq", True): "ge", ("eq", False): "le", ("ne", True): "lt", ("ne", False): "gt",
}  # fmt: skip


@aten("eq", "ne", "lt", "le", "gt", "ge")
def _compared(call: Call, x: Any, y: Any) -> Any:
    name = call.packet
    if isinstance(y, float) and abs(y) == float("inf"):
        name = _AT_INFINITY.get((name, y > 0), name)
    return call(name, *call.aligned(x, y))


# ---- Logic ----

_LOGIC = {
    "logical_and": "and", "bitwise_and": "and", "__and__": "and",
    "logical_or": "or", "bitwise_or": "or", "__or__": "or",
    "logical_xor": "ne", "bitwise_xor": "ne", "__xor__": "ne",
}  # fmt: skip


@aten(*_LOGIC)
def logic(call: Call, x: Any, y: Any) -> Any:
    """The logic of truth values; numbers are true unless they are zero."""
    is_logical = call.result_dtype == "logical"
    call.require(is_logical, "bits of integers are not in NNEF: use arithmetic")
    x, y = (call.typed(value, "logical") for value in (x, y))
    return call(_LOGIC[call.packet], *call.aligned(x, y))


@aten("logical_not")
def _negation(call: Call, x: Any) -> Any:
    return call("not", call.typed(x, "logical"))


# ---- What is no number, or infinite ----


@aten("nan_to_num")
def numbers_only(
    call: Call, x: Any, nan: Any = None, above: Any = None, below: Any = None
) -> Any:
    """x, with numbers in the place of what is none or is infinite."""
    _refuse_infinite(call)
    if dtype_of(x) != "scalar":
        return x
    pairs = zip((nan, above, below), (0.0, np.inf, -np.inf), strict=True)
    values = [default if value is None else value for value, default in pairs]
    return call.expand("numbers_only", x, *call.scalars(*values))


def _refuse_infinite(call: Call) -> None:
    """Refuses to look for what is no number where infinity was written: the largest number
    stands for it, and the softmax of a row of these is one.
    """
    constants = (x for x in call.reading.constants if type(x) is torch.Tensor)
    floats = (x for x in constants if x.is_floating_point())
    if call.has_infinity([call.node]) or any(bool(x.isinf().any()) for x in floats):
        advice = "use torch.where for completely masked rows"
        call.refuse(f"infinity is the largest number here: {advice}")


@aten("isnan")
def is_no_number(call: Call, x: Any) -> Any:
    """Whether elements are no numbers."""
    _refuse_infinite(call)
    return call.expand("is_no_number", *call.scalars(x))


# ---- Choices ----


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _choice(call: Call, condition: Any, x: Any, y: Any) -> Any:
    x, y = (call.typed(value, call.result_dtype) for value in (x, y))
    condition = call.typed(condition, "logical")
    if isinstance(condition, bool):
        return call.broadcast(x if condition else y, call.result_shape)
    return call("select", *call.aligned(condition, x, y))


@aten("masked_fill")
def _filled(call: Call, x: Any, mask: Any, value: Any) -> Any:
    return _choice(call, mask, value, x)


@higher("cond")
def branches(
    call: Call, condition: Any, then: Any, otherwise: Any, operands: Sequence[Any]
) -> Any:
    """Both branches, and a choice of each result; no gradient reaches the other branch."""
    if is_known(condition):
        return call.reading.run(then if condition else otherwise, operands)
    results = (call.reading.run(branch, operands) for branch in (then, otherwise))
    is_true = call.typed(condition, "logical")
    return [call("select", is_true, *pair) for pair in zip(*results, strict=True)]


@aten("bucketize")
def bucket(call: Call, x: Any, bounds: Any, out_int32: bool, right: bool) -> Any:
    """How many of the bounds are less than x, or not greater."""
    return _count(call, call("unsqueeze", x, axes=[len(shape_of(x))]), bounds, right)


@aten("searchsorted")
def place(call: Call, row: Any, x: Any, out_int32: bool, right: bool, side: Any) -> Any:
    """Where x would be put into a sorted row; rows have all but the last axis of x."""
    rank = len(shape_of(row))
    wide = call("unsqueeze", x, hint="wide", axes=[len(shape_of(x))])
    if rank > 1:
        row = call("unsqueeze", row, hint="row", axes=[rank - 1])
    return _count(call, wide, row, right or side == "right")


def _count(call: Call, x: Any, row: Any, right: bool) -> Any:
    """How many elements along the last axis of a row are less than x, or not greater."""
    last = len(shape_of(x)) - 1
    row, x = call.aligned(row, x)
    hits = call("le" if right else "lt", row, x, hint="hits")
    count = call("sum_reduce", call.typed(hits, "scalar"), hint="count", axes=[last])
    return call.whole(call("squeeze", count, axes=[last]))
