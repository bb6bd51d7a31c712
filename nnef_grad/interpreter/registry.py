"""Where the evaluations of operations are entered, and found.

An evaluation is a plain function of numpy arrays: the operands in declared order (a
tuple of arrays for an array of tensors, an array of rank 0 for a literal), the
attributes by keyword under their NNEF names. Where the operands do not tell the generic
data type of the operation, the numpy one comes as `dtype`. It returns an array, or a
list where there are several results or the result is an array of tensors.

Shapes and attributes have been checked when the graph was made. What depends on the
values of tensors is checked here: an evaluation raises `UndefinedError` for those to
which the specification gives no result. Floating point follows IEEE 754, silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

import numpy.typing as npt

Array = npt.NDArray[Any]
# An array of tensors is a tuple of arrays.
Value = Union[Array, "tuple[Value, ...]"]
Evaluation = Callable[..., Any]
Function = TypeVar("Function", bound=Evaluation)

EVALUATIONS: dict[str, Evaluation] = {}


class UndefinedError(ValueError):
    """The specification gives an operation no result for the values of its operands."""


def require(condition: object, message: str) -> None:
    """Raises `UndefinedError` with the message unless the condition holds."""
    if not condition:
        raise UndefinedError(message)


def evaluation(*names: str) -> Callable[[Function], Function]:
    """Enters the evaluation of the named operations."""

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in EVALUATIONS, f"{name} is entered twice"
            EVALUATIONS[name] = function
        return function

    return enter


def enter_all(table: Mapping[str, Evaluation]) -> None:
    """Enters a table of evaluations, by the name of the operation."""
    for name, function in table.items():
        evaluation(name)(function)
