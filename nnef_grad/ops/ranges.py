"""Bounds that the elements of a tensor keep, and how operations change them.

The bounds are those of floating point: exp(x) may be zero, and sigmoid(x) one. The rules stand
with their operations, in the file of each family; autodiff/ranges.py applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from nnef_grad.ops.registry import Function, enter

INF = math.inf
# The smallest number that is greater than zero in single precision.
POSITIVE = 2.0**-149
# It holds all whole numbers below.
EXACT = 2**24
# The same in double precision, which ONNX files have for large integers.
EXACT_IN_DOUBLE = 2**53
# Indices, tokens and extents whose bounds are not known are taken to be below.
INDEX = 2**16


class Range(NamedTuple):
    """Bounds of the elements of a tensor."""

    lower: float = -INF
    upper: float = INF
    # Whether none is an infinity or not a number. Where some may be, no bounds are known:
    # what is computed from it may not be finite either.
    is_finite: bool = True

    @property
    def has_finite_reciprocal(self) -> bool:
        """Whether the quotient of a finite number and it is finite."""
        return self.is_finite and (self.lower > 0.0 or self.upper < 0.0)

    @property
    def integer_size(self) -> float:
        """How far from zero integers may be, as far as that is known: bounds that are not
        known are taken to be those of indices.
        """
        size = max(-self.lower, self.upper)
        return size if math.isfinite(size) else INDEX


FINITE = Range()
UNKNOWN = Range(is_finite=False)

# The range of an operation's result, or one for each of several, given the ranges of its
# operands, all finite, and its attributes.
RangeRule = Callable[..., "Range | tuple[Range, ...]"]
RANGES: dict[str, RangeRule] = {}


def range_rule(*names: str) -> Callable[[Function], Function]:
    """Enters the rule of the named operations."""
    return partial(enter, RANGES, names)


# ---- Rules that several families have ----


def union(*ranges: Range) -> Range:
    """The concatenation of some tensors."""
    lower, upper, are_finite = zip(*ranges, strict=True)
    return Range(min(lower), max(upper), all(are_finite))


def of_first(x: Range, *others: Range, **attributes: Any) -> Range:
    """Each element is one of the first operand's, or a mean of some."""
    return x


def bounded(lower: float, upper: float) -> Callable[..., Range]:
    """For an operation whose results have bounds whatever its operands are."""
    return lambda *operands, **attributes: Range(lower, upper)
