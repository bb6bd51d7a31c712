"""Element by element: shapes align from the left, missing dimensions are trailing
singletons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from nnef_grad.graph.extents import bounds
from nnef_grad.graph.ir import Operation, Shape
from nnef_grad.graph.learning import agree_if_broadcast, equal
from nnef_grad.graph.quotients import maximum
from nnef_grad.ops.batching import batching_rule, elementwise
from nnef_grad.ops.examples import Use, place_rule, repeated_rule
from nnef_grad.ops.linear import in_all, in_first, in_one, linearity_rule
from nnef_grad.ops.ranges import (
    INF,
    POSITIVE,
    UNKNOWN,
    Range,
    RangeRule,
    bounded,
    of_first,
    range_rule,
    union,
)
from nnef_grad.ops.registry import (
    ShapeError,
    check_results,
    require,
    shape,
)
from nnef_grad.ops.traits import BROADCASTING, COPYING, ELEMENTWISE, UNARY

# Beyond it the exponential function overflows in single precision, below its negative it
# may be zero.
EXPONENT = 80.0
# The largest number that is smaller than one in single precision.
BELOW_ONE = 1.0 - 2.0**-24


def broadcast(*shapes: Shape) -> Shape:
    """The shape that shapes are broadcast to together; `ShapeError` if there is none."""
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max(map(len, shapes))
    columns = list(zip(*(s + (1,) * (rank - len(s)) for s in shapes), strict=True))
    if not all(map(_agree, columns)):
        message = "cannot be broadcast: dimensions align from the left"
        raise ShapeError(f"the shapes {_listed(shapes)} {message}")
    return tuple(reduce(_together, extents) for extents in columns)


def _together(one: int, other: int) -> int:
    """The extent to which two are broadcast; where one may be 1, it is the other."""
    if one in (1, other) or other == 1:
        return other if one == 1 else one
    for extent in (one, other):
        if bounds(extent)[0] > 1:
            return extent
    largest: int = maximum(one, other)
    return largest


def _agree(extents: tuple[int, ...]) -> bool:
    """Whether the extents of an axis are equal, apart from those that are 1."""
    # In the order of the operands: what is learned is printed.
    first, *others = [n for n in dict.fromkeys(extents) if n != 1] or [1]
    return all(agree_if_broadcast(first, other) for other in others)


def _listed(shapes: tuple[Shape, ...]) -> str:
    *most, last = (str(list(s)) for s in shapes)
    return f"{', '.join(most)} and {last}" if most else last


def check_fits(whole: str, shape: Shape, operands: Mapping[str, Shape]) -> None:
    """Raises `ShapeError` where an operand cannot be broadcast to a whole one."""
    for name, operand in operands.items():
        message = (
            f"'{name}' of shape {list(operand)} cannot be broadcast"
            f" to '{whole}' of shape {list(shape)}"
        )
        require(fits_into(operand, shape), message)


def fits_into(operand: Shape, result: Shape) -> bool:
    """Whether an operand is broadcast to a result that has its shape from elsewhere."""
    pairs = zip(operand, result, strict=False)
    return len(operand) <= len(result) and all(o == 1 or equal(o, r) for o, r in pairs)


@shape(*UNARY)
def unary_shape(x: Shape, **attributes: Any) -> Shape:
    return x


@shape(*BROADCASTING, "prelu")
def broadcast_shape(*operands: Shape) -> Shape:
    return broadcast(*operands)


@shape("copy_n")
def copy_n_shape(x: Shape, times: int) -> list[Shape]:
    require(times > 0, f"'times' must be positive, but is {times}")
    check_results(times)
    return [x] * times


@shape("add_n")
def add_n_shape(x: tuple[Shape, ...]) -> Shape:
    require(len(x) > 0, "there is nothing to add")
    return broadcast(*x)


# ---- Batching, linearity ----

batching_rule(*ELEMENTWISE)(elementwise)
place_rule(*ELEMENTWISE)(Use.aligned)
repeated_rule(*ELEMENTWISE)(Use.aligned)
linearity_rule(*COPYING, "neg", "div")(in_first)
linearity_rule("mul")(in_one)
linearity_rule("add", "sub", "add_n")(in_all)


@linearity_rule("select")
def select_linear(op: Operation, some: Sequence[bool], whole: Sequence[bool]) -> bool:
    """In both choices together."""
    return not some[0] and all(whole[1:])


# ---- Ranges ----


def _neg(x: Range) -> Range:
    return Range(-x.upper, -x.lower)


def _add(x: Range, y: Range) -> Range:
    return Range(x.lower + y.lower, x.upper + y.upper)


def _mul(x: Range, y: Range) -> Range:
    """A bound of zero stays zero, however large the other factor is."""
    pairs = [(a, b) for a in (x.lower, x.upper) for b in (y.lower, y.upper)]
    corners = [a * b if a and b else 0.0 for a, b in pairs]
    return Range(min(corners), max(corners))


def _div(x: Range, y: Range) -> Range:
    if not y.has_finite_reciprocal:
        return UNKNOWN
    return _mul(x, Range(1.0 / y.upper, 1.0 / y.lower))


def larger(x: Range, y: Range) -> Range:
    return Range(max(x.lower, y.lower), max(x.upper, y.upper))


def _min(x: Range, y: Range) -> Range:
    return Range(min(x.lower, y.lower), min(x.upper, y.upper))


def _abs(x: Range) -> Range:
    return Range(max(x.lower, -x.upper, 0.0), max(-x.lower, x.upper))


def squared(x: Range) -> Range:
    size = _abs(x)
    return Range(size.lower * size.lower, size.upper * size.upper)


def _exp(x: Range) -> Range:
    lower = math.exp(x.lower) if x.lower > -EXPONENT else 0.0
    return Range(lower, math.exp(x.upper))


def _pow(x: Range, y: Range) -> Range:
    """A fixed power is a product like another; one that varies can grow as the exponential
    function does. Bounds are those of single precision, not of a rounded logarithm.
    """
    is_fixed = y.lower == y.upper
    if x.lower > 0.0:
        if is_fixed:
            ends = [_power(end, y.lower) for end in (x.lower, x.upper)]
            return Range(min(ends), max(ends))
        exponent = _mul(y, Range(math.log(x.lower), math.log(x.upper)))
        return Range(0.0) if exponent.upper < EXPONENT else UNKNOWN
    if not is_fixed or y.lower < 0.0 or not y.lower.is_integer():
        return UNKNOWN
    return Range(0.0 if y.lower % 2 == 0 else -INF)


def _power(x: float, y: float) -> float:
    try:
        return float(x**y)
    except OverflowError:
        return INF


def _rising(function: Callable[[float], float]) -> Callable[[Range], Range]:
    """For an increasing function."""
    return lambda x: Range(function(x.lower), function(x.upper))


def _within(
    lower: float, upper: float, rule: Callable[[Range], Range]
) -> Callable[[Range], Range]:
    """For a function that is finite between two bounds, and may not be beyond them."""
    return lambda x: rule(x) if lower <= x.lower and x.upper <= upper else UNKNOWN


def _floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


_sqrt = _within(0.0, INF, _rising(math.sqrt))
_ONE = Range(1.0, 1.0)

_RULES: dict[str, RangeRule] = {
    "neg": _neg,
    "abs": _abs,
    "sqr": squared,
    # That the slope at zero is not finite is found where it is _div by.
    "sqrt": _sqrt,
    "rcp": lambda x: _div(_ONE, x),
    "rsqr": lambda x: _div(_ONE, squared(x)),
    "rsqrt": lambda x: _div(_ONE, _sqrt(x)),
    "exp": _within(-INF, EXPONENT, _exp),
    "log": _within(POSITIVE, INF, _rising(math.log)),
    "log2": _within(POSITIVE, INF, _rising(math.log2)),
    "asin": _within(-BELOW_ONE, BELOW_ONE, _rising(math.asin)),
    "acos": _within(-BELOW_ONE, BELOW_ONE, bounded(0.0, math.pi)),
    "sinh": _within(-EXPONENT, EXPONENT, _rising(math.sinh)),
    "cosh": _within(-EXPONENT, EXPONENT, bounded(1.0, INF)),
    "acosh": _within(1.0, INF, _rising(math.acosh)),
    "atanh": _within(-BELOW_ONE, BELOW_ONE, _rising(math.atanh)),
    **dict.fromkeys(("sin", "cos", "tanh", "sign"), bounded(-1.0, 1.0)),
    "sigmoid": bounded(0.0, 1.0),
    "softplus": bounded(0.0, INF),
    "softabs": lambda x, epsilon: _sqrt(_add(squared(x), Range(epsilon, epsilon))),
    "relu": lambda x: larger(x, Range(0.0, 0.0)),
    "elu": lambda x, alpha: Range(min(-abs(alpha), x.lower)),
    "add": _add,
    "sub": lambda x, y: _add(x, _neg(y)),
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "max": larger,
    "min": _min,
    "clamp": lambda x, a, b: larger(_min(x, b), a),
    "select": lambda condition, x, y: union(x, y),
    "cast": lambda x: Range(_floor(x.lower), _floor(x.upper)),
    "floor": _rising(_floor),
    **dict.fromkeys(COPYING, of_first),
}
for _name, _rule in _RULES.items():
    range_rule(_name)(_rule)
