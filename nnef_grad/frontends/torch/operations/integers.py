"""Bits: those of truth values are their logic, and some of integers are arithmetic."""

from __future__ import annotations

from typing import Any

import torch

from nnef_grad.frontends.torch.call import Call, aten
from nnef_grad.frontends.torch.operations.elementwise import numbers, whole

_LOGIC = {
    "bitwise_and": "and", "__and__": "and", "bitwise_or": "or", "__or__": "or",
    "bitwise_xor": "ne", "__xor__": "ne",
}  # fmt: skip


@aten(*_LOGIC)
def logic(call: Call, x: Any, y: Any) -> Any:
    """The logic of truth values; bits of integers that are not known are refused."""
    is_logical = call.result_dtype == "logical"
    call.require(is_logical, "bits of integers are not in NNEF: use arithmetic")
    return call(_LOGIC[call.packet], *call.aligned(x, y))


@aten("bitwise_not")
def complement(call: Call, x: Any) -> Any:
    """Whether it is false; -x - 1 for integers."""
    if call.result_dtype == "logical":
        return call("not", x)
    return whole(call, call("sub", -1.0, *numbers(call, x)))


_SHIFTS = {
    "bitwise_left_shift": "shifted_left", "__lshift__": "shifted_left",
    "bitwise_right_shift": "shifted_right", "__rshift__": "shifted_right",
}  # fmt: skip


@aten(*_SHIFTS)
def shifted(call: Call, x: Any, places: Any) -> Any:
    """x times, or divided by, a power of two, rounded down."""
    return whole(call, call.expand(_SHIFTS[call.packet], *numbers(call, x, places)))


# ---- Integers of few bits ----

_NARROW = (torch.uint8, torch.int8, torch.int16)
_GROWING = {
    "add", "sub", "rsub", "mul", "neg", "bitwise_not", "pow", "square", "sum", "cumsum",
    "bitwise_left_shift", "__lshift__", "addcmul", "abs",
}  # fmt: skip
_CASTS = {"to", "_to_copy", "type_as"}


def refuse_wrapping(call: Call) -> None:
    """Refuses what may wrap around: a graph has integers of 64 bits alone."""
    fake, target = call.fake, call.node.target
    is_narrow = isinstance(fake, torch.Tensor) and fake.dtype in _NARROW
    if not is_narrow or not isinstance(target, torch._ops.OpOverload):
        return
    # The complement of a byte is one.
    is_growing = call.packet in _GROWING and 255 not in call.node.args
    if call.packet in _CASTS:
        is_growing = _is_wider(call.node.args[0].meta["val"].dtype, fake.dtype)
    if is_growing:
        call.refuse(f"{fake.dtype} wraps around: compute with torch.long")


def _is_wider(given: Any, made: Any) -> bool:
    """Whether one type of integers has values that another does not. What fractions become
    that do not fit is not defined in PyTorch either.
    """
    if given is torch.bool or given.is_floating_point:
        return False
    mine, theirs = torch.iinfo(given), torch.iinfo(made)
    return bool(mine.min < theirs.min or mine.max > theirs.max)
