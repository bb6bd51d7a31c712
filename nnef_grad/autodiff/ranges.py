"""The range of each tensor: bounds that its elements keep, found operation by operation.

That tells which slopes are finite wherever the operands are: 1 / (1 + x * x) is, 1 / x
and exp(x) are not. Inputs, variables and what is computed from them by sums and products
are taken to be finite; that a product of large numbers may overflow is not considered.
The bounds are those of floating point: exp(x) may be zero, and sigmoid(x) one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nnef_grad.graph.ir import Operand, Operation, Tensor, tensors
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import COPYING, MOVING

INF = math.inf
# Beyond it the exponential function overflows in single precision, below its negative it
# may be zero.
EXPONENT = 80.0


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of the elements of a tensor.

    Attributes:
        lower: none is smaller.
        upper: none is larger.
        is_finite: whether none is an infinity or not a number. Where it does not hold,
            the bounds are those of the elements that are numbers.
    """

    lower: float = -INF
    upper: float = INF
    is_finite: bool = True

    @property
    def has_finite_reciprocal(self) -> bool:
        """Whether the quotient of a finite number and it is finite."""
        return self.is_finite and (self.lower > 0.0 or self.upper < 0.0)


# The smallest number that is greater than zero in single precision.
POSITIVE = 2.0**-149

FINITE = Range()
UNKNOWN = Range(is_finite=False)

# The range of an operation's result, or one for each of several, given the ranges of its
# operands, and its attributes.
Rule = Callable[..., "Range | tuple[Range, ...]"]


class Ranges:
    """The ranges of the tensors of a growing list of operations. Few are ever asked for:
    each is found when it is.

    Args:
        made_by: the operation that made each tensor. It grows.
    """

    def __init__(self, made_by: Mapping[Tensor, Operation]) -> None:
        self._known: dict[Tensor, Range] = {}
        self._least: dict[Tensor, float] = {}
        self._made_by = made_by

    def of(self, operand: Operand) -> Range:
        """The range of a tensor or a literal."""
        if isinstance(operand, Tensor):
            if operand not in self._known:
                self._find(operand)
            return self._known[operand]
        if isinstance(operand, tuple):
            return _union(map(self.of, operand))
        is_number = isinstance(operand, (bool, int, float))
        if not is_number:
            return FINITE
        return _in_single_precision(Range(float(operand), float(operand)))

    def where(self, condition: Tensor, operand: Operand) -> Range:
        """The range of the elements of a tensor where a condition holds."""
        known, made = self.of(operand), self._made_by.get(condition)
        if made is None or made.name != "gt" or made.operands[0] != operand:
            return known
        return _max(known, _above(self.of(made.operands[1])))

    def assume(self, operation: Operation) -> None:
        """Assumes that a variance has no negative elements, whatever it is computed from:
        what an operation that was added says of its operands.
        """
        if operation.name not in _LEAST:
            return
        index, least = _LEAST[operation.name]
        operand = operation.operands[index]
        if isinstance(operand, Tensor):
            self._least[operand] = least
            self._known.pop(operand, None)

    def _find(self, tensor: Tensor) -> None:
        """Finds the range of a tensor, after those of what it is computed from: that may
        be a long chain.
        """
        pending = [tensor]
        while pending:
            made = self._made_by.get(pending[-1])
            inputs = () if made is None else made.inputs
            missing = [t for t in inputs if t not in self._known]
            if missing:
                pending += missing
            elif (found := pending.pop()) not in self._known:
                self._keep(found, made)

    def _keep(self, tensor: Tensor, made: Operation | None) -> None:
        """Keeps the ranges of all results of an operation; that of a tensor that nothing
        made, if there is none.
        """
        if made is None:
            self._known[tensor] = self._assumed(tensor, FINITE)
            return
        found = self._of_results(made)
        for index, result in enumerate(made.results):
            own = _in_single_precision(
                found[index] if isinstance(found, tuple) else found
            )
            for part in tensors((result,)):
                self._known[part] = self._assumed(part, own)

    def _assumed(self, tensor: Tensor, found: Range) -> Range:
        least = self._least.get(tensor)
        return found if least is None else _max(found, Range(least, least))

    def _of_results(self, operation: Operation) -> Range | tuple[Range, ...]:
        name, operands = operation.name, operation.operands
        if name == "mul" and operands[0] == operands[1]:
            name, operands = "sqr", operands[:1]
        if name == "sum_reduce" and self._has_a_one(operation):
            return Range(1.0, INF, self.of(operands[0]).is_finite)
        if name == "sub" and self._is_below_maximum(operation):
            return Range(-INF, 0.0, self.of(operands[0]).is_finite)
        rule = _RULES.get(name)
        if rule is not None:
            return rule(*map(self.of, operands), **operation.attributes)
        if operation.name not in standard():
            return UNKNOWN
        are_finite = all(self.of(t).is_finite for t in tensors(operation.operands))
        return FINITE if are_finite else UNKNOWN

    def _has_a_one(self, total: Operation) -> bool:
        """Whether a sum adds a 1, and nothing that is negative: the number of the
        elements that are an extremum along its axes, or the powers of the distances
        from a maximum.
        """
        hits = self._producer(total, 0, "select")
        equal = self._producer(hits, 0, "eq")
        distance = self._producer(self._producer(total, 0, "exp"), 0, "sub")
        is_count = hits is not None and hits.operands[1:] == (1.0, 0.0)
        extremum = (
            self._extremum(equal, "max_reduce", "min_reduce")
            if is_count
            else self._extremum(distance, "max_reduce")
        )
        axes = {*total.attributes["axes"]}
        if total.attributes["normalize"]:
            return False
        return extremum is not None and axes.issuperset(extremum.attributes["axes"])

    def _is_below_maximum(self, difference: Operation) -> bool:
        return self._extremum(difference, "max_reduce") is not None

    def _extremum(self, operation: Operation | None, *names: str) -> Operation | None:
        """The second operand's producer, if it is an extremum of the first operand."""
        found = self._producer(operation, 1, *names)
        if operation is None or found is None:
            return None
        return found if found.operands == operation.operands[:1] else None

    def _producer(
        self, operation: Operation | None, operand: int, *names: str
    ) -> Operation | None:
        """The producer of an operand, if it is one of the named operations."""
        x = None if operation is None else operation.operands[operand]
        made = self._made_by.get(x) if isinstance(x, Tensor) else None
        return made if made is not None and made.name in names else None


# Assumptions about operands: the position of the operand, and its least value.
_LEAST: dict[str, tuple[int, float]] = {
    "batch_normalization": (2, 0.0),
    "zero_point_linear_quantize": (2, POSITIVE),
}


# ---- Arithmetic of ranges ----


def _ends(x: Range) -> tuple[float, float]:
    return x.lower, x.upper


def _union(ranges: Iterable[Range]) -> Range:
    found = list(ranges)
    if not found:
        return FINITE
    return Range(
        min(r.lower for r in found),
        max(r.upper for r in found),
        all(r.is_finite for r in found),
    )


def _neg(x: Range) -> Range:
    return Range(-x.upper, -x.lower, x.is_finite)


def _add(x: Range, y: Range) -> Range:
    return Range(x.lower + y.lower, x.upper + y.upper, x.is_finite and y.is_finite)


def _in_single_precision(x: Range) -> Range:
    """A bound that may be rounded to zero is zero."""
    lower = 0.0 if 0.0 < x.lower < POSITIVE else x.lower
    upper = 0.0 if -POSITIVE < x.upper < 0.0 else x.upper
    return Range(lower, upper, x.is_finite)


def _above(x: Range) -> Range:
    """Numbers that are larger than some."""
    return Range(x.lower + POSITIVE)


def _mul(x: Range, y: Range) -> Range:
    """A bound of zero stays zero, however large the other factor is."""
    pairs = [(a, b) for a in _ends(x) for b in _ends(y)]
    corners = [a * b if a and b else 0.0 for a, b in pairs]
    return Range(min(corners), max(corners), x.is_finite and y.is_finite)


def _rcp(x: Range) -> Range:
    if not x.has_finite_reciprocal:
        return Range(0.0 if x.lower >= 0.0 else -INF, INF, False)
    return Range(1.0 / x.upper, 1.0 / x.lower)


def _max(x: Range, y: Range) -> Range:
    """NaN is not larger than anything: then the result is y."""
    bounds = max(x.lower, y.lower), max(x.upper, y.upper)
    larger = Range(*bounds, x.is_finite and y.is_finite)
    return larger if x.is_finite else _union((larger, y))


def _min(x: Range, y: Range) -> Range:
    return _neg(_max(_neg(x), _neg(y)))


def _abs(x: Range) -> Range:
    ends = abs(x.lower), abs(x.upper)
    smallest = 0.0 if x.lower <= 0.0 <= x.upper else min(ends)
    return Range(smallest, max(ends), x.is_finite)


def _sqr(x: Range) -> Range:
    size = _abs(x)
    return Range(size.lower * size.lower, size.upper * size.upper, x.is_finite)


def _sqrt(x: Range) -> Range:
    """The square root of zero is finite; that its slope is not is found where it is
    divided by.
    """
    lower, upper = max(x.lower, 0.0), max(x.upper, 0.0)
    return Range(math.sqrt(lower), math.sqrt(upper), x.is_finite and x.lower >= 0.0)


def _exp(x: Range) -> Range:
    return Range(
        math.exp(x.lower) if -EXPONENT < x.lower < EXPONENT else 0.0,
        math.exp(x.upper) if x.upper < EXPONENT else INF,
        x.is_finite and x.upper < EXPONENT,
    )


def _pow(x: Range, y: Range) -> Range:
    """A fixed power is a product like another; one that varies can grow as the
    exponential function does.
    """
    is_fixed = y.lower == y.upper
    if x.is_finite and x.lower > 0.0:
        if is_fixed:
            powers = [_power(end, y.lower) for end in _ends(x)]
            return Range(min(powers), max(powers))
        logarithm = Range(
            math.log(x.lower), math.log(x.upper) if x.upper < INF else INF
        )
        return Range(0.0, INF, y.is_finite and _mul(y, logarithm).upper < EXPONENT)
    is_whole = is_fixed and y.lower >= 0.0 and y.lower.is_integer()
    is_even = is_whole and y.lower % 2 == 0
    return Range(0.0 if is_even else -INF, INF, is_whole and x.is_finite)


def _power(x: float, y: float) -> float:
    try:
        return float(x**y)
    except OverflowError:
        return INF


# ---- By operation ----


def _bounded(lower: float, upper: float) -> Rule:
    """For an operation whose results have bounds whatever its operands are."""

    def rule(*operands: Range, **attributes: Any) -> Range:
        return Range(lower, upper, all(x.is_finite for x in operands))

    return rule


def _rising(
    function: Callable[[float], float], lower: float, upper: float
) -> Callable[[Range], Range]:
    """For an increasing function, which is finite between two bounds, and may not be
    from there on.
    """

    def value(x: float, otherwise: float) -> float:
        return function(x) if lower < x < upper else otherwise

    def rule(x: Range) -> Range:
        is_inside = lower < x.lower and (x.upper < upper or upper == INF)
        bounds = value(x.lower, -INF), value(x.upper, INF)
        return Range(*bounds, x.is_finite and is_inside)

    return rule


def _some_of_them(x: Range, *others: Range, **attributes: Any) -> Range:
    """Each element is one of the first operand's, or a mean of some."""
    return x


def _sum(x: Range, *, normalize: bool, **attributes: Any) -> Range:
    """A sum of positive numbers is not smaller than the smallest."""
    lower, upper = max(x.lower, 0.0), min(x.upper, 0.0)
    ends = lower if x.lower >= 0.0 else -INF, upper if x.upper <= 0.0 else INF
    return x if normalize else Range(*ends, x.is_finite)


def _same_sign(x: Range, **attributes: Any) -> Range:
    """Sums and means of elements, with zeros among them, and maxima."""
    return Range(
        0.0 if x.lower >= 0.0 else -INF, 0.0 if x.upper <= 0.0 else INF, x.is_finite
    )


def _constant(value: tuple[Any, ...], **attributes: Any) -> Range:
    numbers = [float(v) for v in value if not isinstance(v, str)]
    return Range(min(numbers), max(numbers)) if numbers else FINITE


def _pad(x: Range, border: str, value: float, **attributes: Any) -> Range:
    return _union((x, Range(value, value))) if border == "constant" else x


_asin, _sinh = _rising(math.asin, -1.0, 1.0), _rising(math.sinh, -EXPONENT, EXPONENT)

_RULES: dict[str, Rule] = {
    "neg": _neg,
    "abs": _abs,
    "sqr": _sqr,
    "sqrt": _sqrt,
    "rcp": _rcp,
    "rsqr": lambda x: _rcp(_sqr(x)),
    "rsqrt": lambda x: _rcp(_sqrt(x)),
    "exp": _exp,
    "log": _rising(math.log, 0.0, INF),
    "log2": _rising(math.log2, 0.0, INF),
    "sin": _bounded(-1.0, 1.0),
    "cos": _bounded(-1.0, 1.0),
    "asin": _asin,
    "acos": lambda x: Range(0.0, math.pi, _asin(x).is_finite),
    "sinh": _sinh,
    "cosh": lambda x: Range(1.0, INF, _sinh(x).is_finite),
    "tanh": _bounded(-1.0, 1.0),
    "acosh": _rising(math.acosh, 1.0, INF),
    "atanh": _rising(math.atanh, -1.0, 1.0),
    "sign": _bounded(-1.0, 1.0),
    "sigmoid": _bounded(0.0, 1.0),
    "softmax": _bounded(0.0, 1.0),
    "softplus": _bounded(0.0, INF),
    "softabs": lambda x, epsilon: _sqrt(_add(_sqr(x), Range(epsilon, epsilon))),
    "relu": lambda x: _max(x, Range(0.0, 0.0)),
    "elu": lambda x, alpha: Range(min(-abs(alpha), x.lower), INF, x.is_finite),
    "add": _add,
    "sub": lambda x, y: _add(x, _neg(y)),
    "mul": _mul,
    "div": lambda x, y: _mul(x, _rcp(y)),
    "pow": _pow,
    "max": _max,
    "min": _min,
    "clamp": lambda x, a, b: _max(_min(x, b), a),
    "select": lambda condition, x, y: _union((x, y)),
    "constant": _constant,
    "pad": _pad,
    # A mean, and a variance.
    "moments": lambda x, **attributes: (x, Range(0.0, INF, x.is_finite)),
    **dict.fromkeys(
        (
            *MOVING, *COPYING, "gather", "max_reduce", "min_reduce",
            "mean_reduce", "nearest_downsample", "area_downsample", "nearest_upsample",
        ),
        _some_of_them,
    ),
    "sum_reduce": _sum,
    **dict.fromkeys(
        ("box", "debox", "avg_pool", "max_pool"), _same_sign
    ),
}  # fmt: skip
