"""Operators and built-in functions on values that are known when the graph is compiled.

Types were checked before; the errors that remain are values that do not exist.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.base.source import Span
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Tensor

# The longest array or string that an operator may give, and the longest array of tensors:
# each of them has a gradient.
MAX_ITEMS = 1_000_000
MAX_TENSORS = 50_000
MANY_DIGITS = 1000

_INTEGER = re.compile(r"-?[0-9]+")
_SCALAR = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


class _NoValue(ArithmeticError):
    """The operator has no value for these operands; the message says why."""


def compute(symbol: str, values: Sequence[Any], span: Span) -> Any:
    """The value of an operator on compile-time values."""
    table = _UNARY if len(values) == 1 else _BINARY
    return _apply(symbol, table[symbol], values, span)


def _apply(
    name: str, function: Callable[..., Any], values: Sequence[Any], span: Span
) -> Any:
    try:
        return _in_range(function(*values))
    except _NoValue as error:
        reason = str(error)
    except ZeroDivisionError:
        reason = "it divides by zero"
    except OverflowError:
        reason = "it is too large"
    raise InvalidGraphError(f"'{name}' has no value here: {reason}", span)


def _in_range(value: Any) -> Any:
    """Integers have 32 bits, scalars are finite."""
    if type(value) is int and not -(2**31) <= value < 2**31:
        raise _NoValue(f"{value} does not fit in 32 bits")
    if type(value) is float and not math.isfinite(value):
        raise OverflowError
    if isinstance(value, complex):
        raise _NoValue("a root of a negative number")
    return value


def _join(left: Any, right: Any) -> Any:
    """Sums, and the concatenation of arrays and strings."""
    if isinstance(left, (list, str)):
        _check_length(left, len(left) + len(right))
    return left + right


def _repeat(left: Any, right: Any) -> Any:
    """Products, and the repetition of arrays and strings."""
    if isinstance(left, (list, str)):
        if right < 0:
            raise _NoValue(f"nothing can be repeated {right} times")
        _check_length(left, len(left) * right)
    return left * right


def _check_length(items: list[Any] | str, length: int) -> None:
    has_tensors = any(isinstance(item, Tensor) for item in items[:1])
    most = MAX_TENSORS if has_tensors else MAX_ITEMS
    if length > most:
        raise _NoValue(f"{length} items are more than {most}")


def _divide(left: Any, right: Any) -> Any:
    """Division of integers rounds towards zero."""
    if type(left) is float:
        return left / right
    if has_symbols((left, right)):
        return left // right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _power(left: Any, right: Any) -> Any:
    if type(left) is float:
        return left**right
    if right < 0:
        raise _NoValue("an integer to a negative power")
    if abs(left) > 1 and right > 31:
        raise OverflowError
    return left**right


_UNARY: dict[str, Callable[[Any], Any]] = {
    "+": operator.pos,
    "-": operator.neg,
    "!": operator.not_,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": _join,
    "-": operator.sub,
    "*": _repeat,
    "/": _divide,
    "^": _power,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda left, right: left and right,
    "||": lambda left, right: left or right,
    "in": lambda item, array: item in array,
}


# ---- Built-in functions ----


def convert(name: str, value: Any, span: Span) -> Any:
    """The value of a built-in function."""
    try:
        return _apply(name, _BUILTINS[name], [value], span)
    except ValueError:
        article = "an" if name == "integer" else "a"
        message = f"'{value}' is not the text of {article} {name}"
        raise InvalidGraphError(message, span) from None


def _scalar(value: Any) -> float:
    if isinstance(value, str) and not _SCALAR.fullmatch(value):
        raise ValueError
    return float(value)


def _integer(value: Any) -> int:
    """The largest integer that is not greater than a scalar."""
    if not isinstance(value, str):
        return math.floor(float(value))
    if not _INTEGER.fullmatch(value):
        raise ValueError
    # Python reads thousands of digits as a float alone.
    return int(value if len(value) < MANY_DIGITS else float(value))


_BUILTINS: dict[str, Callable[[Any], Any]] = {
    "length_of": len,
    "range_of": lambda value: list(range(len(value))),
    "scalar": _scalar,
    "integer": _integer,
    "logical": bool,
    "string": lambda value: str(value).lower() if type(value) is bool else str(value),
}
