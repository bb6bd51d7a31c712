"""What operators and built-in functions do to values that are known when the graph is
compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from nnef_grad.binding import type_name
from nnef_grad.errors import InvalidGraphError
from nnef_grad.source import Span

_NUMBERS = ((int, int), (float, float))
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "^": operator.pow,
}  # fmt: skip
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compute(symbol: str, values: Sequence[Any], span: Span) -> Any:
    """The value of an operator on compile-time values.

    Raises:
        InvalidGraphError: the operator does not apply to values of these types, or its
            value is not defined.
    """
    try:
        value = (
            _unary(symbol, values[0]) if len(values) == 1 else _binary(symbol, *values)
        )
    except (ZeroDivisionError, OverflowError):
        raise InvalidGraphError(f"'{symbol}' has no value here", span) from None
    if value is None:
        kinds = " and ".join(map(type_name, values))
        raise InvalidGraphError(f"'{symbol}' does not apply to {kinds}", span)
    if isinstance(value, complex):
        raise InvalidGraphError(f"'{symbol}' has no value here", span)
    return value


def _unary(symbol: str, value: Any) -> Any:
    if symbol == "!":
        return (not value) if type(value) is bool else None
    if type(value) not in (int, float):
        return None
    return -value if symbol == "-" else value


def _binary(symbol: str, left: Any, right: Any) -> Any:
    kinds = (type(left), type(right))
    if symbol == "in":
        return any(same(left, item) for item in right) if kinds[1] is list else None
    if symbol in ("==", "!="):
        return (same(left, right) == (symbol == "==")) if kinds[0] is kinds[1] else None
    if symbol in ("&&", "||"):
        return (
            (all if symbol == "&&" else any)((left, right))
            if kinds == (bool, bool)
            else None
        )
    if kinds in _NUMBERS:
        return _number(symbol, left, right)
    if symbol == "+" and kinds in ((list, list), (str, str)):
        return left + right
    if symbol == "*" and kinds in ((list, int), (str, int)):
        return left * right
    return None


def _number(symbol: str, left: Any, right: Any) -> Any:
    if symbol in _ORDER:
        return _ORDER[symbol](left, right)
    if symbol == "/":
        return left / right if type(left) is float else _truncated(left, right)
    if symbol == "^" and type(left) is int and right < 0:
        return None
    return _ARITHMETIC[symbol](left, right)


def _truncated(left: int, right: int) -> int:
    """Division of integers rounds towards zero."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def same(left: Any, right: Any) -> bool:
    """Deep equality that tells 1 from 1.0 from true."""
    return type(left) is type(right) and repr(left) == repr(right)


def _scalar(value: Any) -> float:
    if isinstance(value, (bool, int, float, str)):
        return float(value)
    raise TypeError


def _integer(value: Any) -> int:
    if isinstance(value, float):
        return int(value // 1)
    if isinstance(value, (bool, int, str)):
        return int(value)
    raise TypeError


def _logical(value: Any) -> bool:
    if isinstance(value, (bool, int, float, str)):
        return bool(value)
    raise TypeError


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, str)):
        return str(value)
    raise TypeError


def _length(value: Any) -> int:
    if isinstance(value, (list, str)):
        return len(value)
    raise TypeError


BUILTINS: dict[str, Callable[[Any], Any]] = {
    "length_of": _length,
    "range_of": lambda value: list(range(_length(value))),
    "scalar": _scalar,
    "integer": _integer,
    "logical": _logical,
    "string": _string,
}
