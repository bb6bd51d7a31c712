"""The registry of evaluations of operations.

An evaluation is a plain function of numpy arrays: the operands in declared order (a
tuple of arrays for an array of tensors, an array of rank 0 for a literal), the
attributes by keyword under their NNEF names. If the operands do not bind the generic
data type of the operation, the numpy type is passed as `dtype`. It returns an array, or
a list if there are several results or the result is an array of tensors.

Shapes and attributes were checked when the graph was built. Evaluations check
conditions on the values of tensors, and raise `UndefinedError` for values without a
specified result. Floating point follows IEEE 754, silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

from nnef_grad.base.arrays import Array

# An array of tensors is a tuple of arrays.
Value = Union[Array, "tuple[Value, ...]"]
Evaluation = Callable[..., Any]
Function = TypeVar("Function", bound=Evaluation)

# The kinds of numpy data types allowed for the tensors of a data type. The only silent
# conversions are from integers to scalars, and between precisions.
KINDS = {"scalar": "fiu", "integer": "iu", "logical": "b", "string": "U"}

EVALUATIONS: dict[str, Evaluation] = {}

# For an operation that makes decisions: called like its evaluation, at a point, it
# returns the function of the operands with the decisions made there. See held.py.
HELD: dict[str, Callable[..., Evaluation]] = {}


class UndefinedError(ValueError):
    """The specification defines no result for the values of the operands."""


def require(condition: object, message: str) -> None:
    """Raises `UndefinedError` with the message unless the condition holds."""
    if not condition:
        raise UndefinedError(message)


def enter(table: Mapping[str, Evaluation]) -> None:
    """Registers a table of evaluations, by the name of the operation."""
    assert EVALUATIONS.keys().isdisjoint(table), "an operation is registered twice"
    EVALUATIONS.update(table)


def evaluation(name: str) -> Callable[[Function], Function]:
    """Registers the evaluation of an operation."""

    def register(function: Function) -> Function:
        enter({name: function})
        return function

    return register


def choice(name: str, decide: Evaluation) -> Callable[[Evaluation], Evaluation]:
    """Registers an operation in two steps: `decide` is called like an evaluation; the
    function takes its result as well, before the operands, and decides nothing itself.
    """

    def register(function: Evaluation) -> Evaluation:
        def hold(*operands: Any, **attributes: Any) -> Evaluation:
            decision = decide(*operands, **attributes)
            return lambda *moved: function(decision, *moved, **attributes)

        def evaluate(*operands: Any, **attributes: Any) -> Any:
            return hold(*operands, **attributes)(*operands)

        HELD[name] = hold
        return evaluation(name)(evaluate)

    return register
