"""The range of each tensor: bounds that its elements keep, found operation by operation.

That tells which slopes are finite wherever the operands are: 1 / (1 + x * x) is, 1 / x
and exp(x) are not. Inputs, variables and what is computed from them by sums and products
are taken to be finite; that a product of large numbers may overflow is not considered.
The bounds are those of floating point: exp(x) may be zero, and sigmoid(x) one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nnef_grad.graph.ir import ARGSORT, Operand, Operation, Tensor, tensors
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.traits import COPYING, MOVING

INF = math.inf
# Beyond it the exponential function overflows in single precision, below its negative it
# may be zero.
EXPONENT = 80.0
# The smallest number that is greater than zero in single precision, and the largest that
# is smaller than one.
POSITIVE = 2.0**-149
BELOW_ONE = 1.0 - 2.0**-24
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


class Ranges:
    """The ranges of the tensors of a growing list of operations, found when asked."""

    def __init__(self, made_by: Mapping[Tensor, Operation]) -> None:
        self._ranges: dict[Tensor, Range] = {}
        self._least: dict[Tensor, float] = {}
        self._made_by = made_by

    def of(self, operand: Operand) -> Range:
        """The range of a tensor or a literal."""
        if isinstance(operand, Tensor):
            if operand not in self._ranges:
                self._find(operand)
            return self._ranges[operand]
        if isinstance(operand, tuple):
            return _union(*map(self.of, operand)) if operand else FINITE
        if isinstance(operand, (bool, int, float)):
            return _in_single_precision(Range(float(operand), float(operand)))
        return FINITE

    def where(self, condition: Tensor, operand: Operand) -> Range:
        """The range of the elements of a tensor where a condition holds."""
        whole, test = self.of(operand), self._made_by.get(condition)
        if test is None or test.name != "gt" or test.operands[0] != operand:
            return whole
        bound = self.of(test.operands[1])
        if not whole.is_finite or not bound.is_finite:
            return UNKNOWN
        return _max(whole, Range(bound.lower + POSITIVE))

    def assume(self, operation: Operation) -> None:
        """Assumes what an operation says of its operands: variances are not negative."""
        if operation.name in _LEAST:
            index, least = _LEAST[operation.name]
            operand = operation.operands[index]
            if isinstance(operand, Tensor):
                self._least[operand] = least
                self._ranges.pop(operand, None)

    def assume_finite(self, tensor: Tensor) -> None:
        """Assumes of a tensor that all of it is finite that counts."""
        self._ranges[tensor] = FINITE

    def _find(self, tensor: Tensor) -> None:
        """Finds the range of a tensor, after those of what it is computed from."""
        # That may be a long chain.
        pending = [tensor]
        while pending:
            producer = self._made_by.get(pending[-1])
            inputs = () if producer is None else producer.inputs
            missing = [t for t in inputs if t not in self._ranges]
            if missing:
                pending += missing
                continue
            last = pending.pop()
            results = (last,) if producer is None else producer.results
            ranges = FINITE if producer is None else self._of_results(producer)
            for index, result in enumerate(results):
                own = ranges if isinstance(ranges, Range) else ranges[index]
                for part in tensors((result,)):
                    least = self._least.get(part, -INF)
                    bounds = _in_single_precision(_max(own, Range(least, least)))
                    is_unknown = part.dtype == "scalar" and not own.is_finite
                    self._ranges[part] = UNKNOWN if is_unknown else bounds

    def _of_results(self, operation: Operation) -> Range | tuple[Range, ...]:
        name, operands = operation.name, operation.operands
        ranges = [*map(self.of, operands)]
        rule = _RULES.get(name)
        is_known = rule is not None or name in STDLIB
        if not is_known or not all(r.is_finite for r in ranges):
            return UNKNOWN
        if name == "mul" and operands[0] == operands[1]:
            return _sqr(ranges[0])
        if name == "sum_reduce" and self._has_a_one(operation):
            return Range(1.0, INF)
        if name == "sub" and self._extremum(operation, "max_reduce"):
            return Range(-INF, 0.0)
        return FINITE if rule is None else rule(*ranges, **operation.attributes)

    def _has_a_one(self, total: Operation) -> bool:
        """Whether a sum adds a 1, and nothing that is negative: the number of the
        elements that are an extremum along its axes, or the powers of the distances
        from a maximum.
        """
        hits = self._producer(total, 0, "select")
        if hits is not None and hits.operands[1:] == (1.0, 0.0):
            equal = self._producer(hits, 0, "eq")
            extremum = self._extremum(equal, "max_reduce", "min_reduce")
        else:
            distance = self._producer(self._producer(total, 0, "exp"), 0, "sub")
            extremum = self._extremum(distance, "max_reduce")
        if extremum is None or total.attributes["normalize"]:
            return False
        return {*total.attributes["axes"]}.issuperset(extremum.attributes["axes"])

    def _extremum(self, operation: Operation | None, *names: str) -> Operation | None:
        """The second operand's producer, if it is an extremum of the first operand."""
        reduction = self._producer(operation, 1, *names)
        if operation is None or reduction is None:
            return None
        return reduction if reduction.operands == operation.operands[:1] else None

    def _producer(
        self, operation: Operation | None, operand: int, *names: str
    ) -> Operation | None:
        """The producer of an operand, if it is one of the named operations."""
        x = None if operation is None else operation.operands[operand]
        producer = self._made_by.get(x) if isinstance(x, Tensor) else None
        return producer if producer is not None and producer.name in names else None


# Assumptions about operands: the position of the operand, and its least value.
_LEAST: dict[str, tuple[int, float]] = {
    "batch_normalization": (2, 0.0),
    "zero_point_linear_quantize": (2, POSITIVE),
}


# ---- Arithmetic of ranges ----


def _union(*ranges: Range) -> Range:
    lower, upper, are_finite = zip(*ranges, strict=True)
    return Range(min(lower), max(upper), all(are_finite))


def _in_single_precision(x: Range) -> Range:
    """A bound that may be rounded to zero is zero."""
    lower = 0.0 if 0.0 < x.lower < POSITIVE else x.lower
    upper = 0.0 if -POSITIVE < x.upper < 0.0 else x.upper
    return Range(lower, upper, x.is_finite)


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


def _max(x: Range, y: Range) -> Range:
    return Range(max(x.lower, y.lower), max(x.upper, y.upper))


def _min(x: Range, y: Range) -> Range:
    return Range(min(x.lower, y.lower), min(x.upper, y.upper))


def _abs(x: Range) -> Range:
    return Range(max(x.lower, -x.upper, 0.0), max(-x.lower, x.upper))


def _sqr(x: Range) -> Range:
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


# ---- By operation ----


def _bounded(lower: float, upper: float) -> Callable[..., Range]:
    """For an operation whose results have bounds whatever its operands are."""
    return lambda *operands, **attributes: Range(lower, upper)


def _rising(function: Callable[[float], float]) -> Callable[[Range], Range]:
    """For an increasing function."""
    return lambda x: Range(function(x.lower), function(x.upper))


def _within(
    lower: float, upper: float, rule: Callable[[Range], Range]
) -> Callable[[Range], Range]:
    """For a function that is finite between two bounds, and may not be beyond them."""
    return lambda x: rule(x) if lower <= x.lower and x.upper <= upper else UNKNOWN


def _sum(x: Range, *, normalize: bool, **attributes: Any) -> Range:
    """A sum of positive numbers is not smaller than the smallest."""
    lower = x.lower if x.lower >= 0.0 else -INF
    return x if normalize else Range(lower, x.upper if x.upper <= 0.0 else INF)


def _same_sign(x: Range, **attributes: Any) -> Range:
    """Sums and means of elements, with zeros among them, and maxima."""
    return Range(0.0 if x.lower >= 0.0 else -INF, 0.0 if x.upper <= 0.0 else INF)


def _constant(value: tuple[Any, ...], **attributes: Any) -> Range:
    numbers = [float(v) for v in value if not isinstance(v, str)]
    return Range(min(numbers), max(numbers)) if numbers else FINITE


def _pad(x: Range, border: str, value: float, **attributes: Any) -> Range:
    return _union(x, Range(value, value)) if border == "constant" else x


def _floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


_sqrt = _within(0.0, INF, _rising(math.sqrt))
_ONE = Range(1.0, 1.0)

_RULES: dict[str, RangeRule] = {
    "neg": _neg,
    "abs": _abs,
    "sqr": _sqr,
    # That the slope at zero is not finite is found where it is divided by.
    "sqrt": _sqrt,
    "rcp": lambda x: _div(_ONE, x),
    "rsqr": lambda x: _div(_ONE, _sqr(x)),
    "rsqrt": lambda x: _div(_ONE, _sqrt(x)),
    "exp": _within(-INF, EXPONENT, _exp),
    "log": _within(POSITIVE, INF, _rising(math.log)),
    "log2": _within(POSITIVE, INF, _rising(math.log2)),
    "asin": _within(-BELOW_ONE, BELOW_ONE, _rising(math.asin)),
    "acos": _within(-BELOW_ONE, BELOW_ONE, _bounded(0.0, math.pi)),
    "sinh": _within(-EXPONENT, EXPONENT, _rising(math.sinh)),
    "cosh": _within(-EXPONENT, EXPONENT, _bounded(1.0, INF)),
    "acosh": _within(1.0, INF, _rising(math.acosh)),
    "atanh": _within(-BELOW_ONE, BELOW_ONE, _rising(math.atanh)),
    **dict.fromkeys(("sin", "cos", "tanh", "sign"), _bounded(-1.0, 1.0)),
    **dict.fromkeys(("sigmoid", "softmax"), _bounded(0.0, 1.0)),
    "softplus": _bounded(0.0, INF),
    "softabs": lambda x, epsilon: _sqrt(_add(_sqr(x), Range(epsilon, epsilon))),
    "relu": lambda x: _max(x, Range(0.0, 0.0)),
    "elu": lambda x, alpha: Range(min(-abs(alpha), x.lower)),
    "add": _add,
    "sub": lambda x, y: _add(x, _neg(y)),
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "max": _max,
    "min": _min,
    "clamp": lambda x, a, b: _max(_min(x, b), a),
    "select": lambda condition, x, y: _union(x, y),
    "cast": lambda x: Range(_floor(x.lower), _floor(x.upper)),
    "floor": _rising(_floor),
    **dict.fromkeys(("argmax_reduce", "argmin_reduce", ARGSORT), _bounded(0.0, INF)),
    "constant": _constant,
    "pad": _pad,
    # A mean, and a variance.
    "moments": lambda x, **attributes: (x, Range(0.0)),
    # Each element is one of the first operand's, or a mean of some.
    **dict.fromkeys(
        (
            *MOVING, *COPYING, "gather", "max_reduce", "min_reduce",
            "mean_reduce", "nearest_downsample", "area_downsample", "nearest_upsample",
        ),
        lambda x, *others, **attributes: x,
    ),
    "sum_reduce": _sum,
    **dict.fromkeys(("box", "debox", "avg_pool", "max_pool"), _same_sign),
}  # fmt: skip
