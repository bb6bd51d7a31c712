"""Where the operations' shape functions and Python rules are entered, and found.

A shape function is called with the shapes of the operands in declared order (a tuple of
shapes for an array of tensors) and the attributes by keyword. It returns the result's
shape, or a list of shapes where there are several results, and raises `ShapeError`
where the arguments do not fit each other.

A rule is called with the emitter, the operation and the gradient of each of its
results; it returns one gradient for each operand, None where there is none. It says
nothing of broadcasting: a gradient may have the shape of the result where the operand
was broadcast to it. Where an operation has several results, those whose value nothing
depends on have the gradient None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol, TypeVar, Union

from nnef_grad.ir import Shape

Shapes = Union[Shape, "list[Shape]"]
ShapeFunction = Callable[..., Shapes]
Rule = Callable[..., Sequence[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])


class Emit(Protocol):
    """What a rule makes operations with."""

    def __call__(
        self,
        name: str,
        *operands: Any,
        hint: str | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Emits an operation with one result and returns the result.

        Args:
            name: the operation.
            operands: tensors, literals, or sequences of them, in declared order;
                trailing defaults may be left out.
            hint: what the result is called inside the rule; the operation's own name if
                not given.
            dtype: the generic data type, where the operands do not tell it.
            attributes: those that differ from the declared defaults.
        """


SHAPES: dict[str, ShapeFunction] = {}
RULES: dict[str, Rule] = {}


class ShapeError(ValueError):
    """The shapes and attributes of an operation do not fit each other."""


def require(condition: bool, message: str) -> None:
    """Raises `ShapeError` with the message unless the condition holds."""
    if not condition:
        raise ShapeError(message)


def volume(shape: Shape) -> int:
    """The product of some extents.

    Raises:
        ShapeError: no tensor is that large.
    """
    product = prod(shape)
    require(product < 2**63, "the volume does not fit in 64 bits")
    return product


# How many results an operation may have: each is a tensor of the graph.
MAX_RESULTS = 10_000


def check_results(count: int) -> None:
    """Raises `ShapeError` where an operation would have too many results."""
    require(count <= MAX_RESULTS, f"{count} results are more than {MAX_RESULTS}")


class Undifferentiable(Exception):
    """Raised by a rule for settings of its operation that it does not cover; the
    message says which.
    """


def shape(*names: str) -> Callable[[Function], Function]:
    """Enters the shape function of the named operations."""
    return _entry(SHAPES, names)


def vjp(*names: str) -> Callable[[Function], Function]:
    """Enters the vector-Jacobian product of the named operations."""
    return _entry(RULES, names)


def _entry(
    table: dict[str, Any], names: tuple[str, ...]
) -> Callable[[Function], Function]:
    def enter(function: Function) -> Function:
        for name in names:
            assert name not in table, f"{name} is entered twice"
            table[name] = function
        return function

    return enter
