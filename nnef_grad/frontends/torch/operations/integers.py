"""Bits: those of truth values are their logic, and some of integers are arithmetic."""

from __future__ import annotations

from typing import Any

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
