"""Bits, which are truth values here: NNEF does not have those of integers."""

from __future__ import annotations

from typing import Any

from nnef_grad.frontends.step import Step, expansion
from nnef_grad.frontends.values import dtype_of

_LOGIC = {f"tract_core_bit{name}": name for name in ("and", "or", "not")}


@expansion(*_LOGIC)
def logic(step: Step, *operands: Any) -> Any:
    """Logic on truth values; integers are refused."""
    _require_logical(step, operands)
    return step(_LOGIC[step.name], *operands)


@expansion("tract_core_bitxor", "tract_core_xor")
def either(step: Step, x: Any, y: Any) -> Any:
    """Exclusive or of truth values; integers are refused."""
    _require_logical(step, [x, y])
    both = step("and", x, y, hint="both")
    return step("and", step("or", x, y), step("not", both))


def _require_logical(step: Step, operands: Any) -> None:
    is_logical = all(dtype_of(x) == "logical" for x in operands)
    step.require(is_logical, "bits of integers are not in NNEF: use comparisons")
