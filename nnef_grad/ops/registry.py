"""Where the operations' shape functions and Python rules are entered, and found.

A shape function is called with the shapes of the operands in declared order (a tuple of
shapes for an array of tensors) and the attributes by keyword. It returns the result's
shape, or a list of shapes where there are several results, and raises `ShapeError`
where the arguments do not fit each other.

A rule is called with the emitter, the operation and the gradient of each of its
results; it returns one gradient for each operand, None where there is none. It says
nothing of broadcasting: a gradient may have the shape of the result where the operand
was broadcast to it. Where an operation has several results, those whose value nothing
depends on have the gradient None. It asks nothing of a tensor but its shape and data type:
for operations that are alike it is applied once (autodiff/rules.py).

A decomposition puts an operation together from others, where that takes shapes and so
cannot be a body in NNEF: it emits them and returns a value for each result. An operation
with a decomposition needs no rule; where it has one as well, the decomposition is for
the settings that the rule does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, NamedTuple, Protocol, TypeVar, Union

from nnef_grad.base.errors import Remedy
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.language.library import STDLIB, Library, extended
from nnef_grad.language.syntax import Fragment

Shapes = Union[Shape, "list[Shape]"]
ShapeFunction = Callable[..., Shapes]
Rule = Callable[..., Sequence[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])


class Emit(Protocol):
    """Makes the operations of a rule."""

    def __call__(
        self,
        name: str,
        *operands: Any,
        hint: str | None = None,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Emits an operation with one result and returns the result. Declared defaults may
        be left out; `dtype` is needed where the operands do not tell it. The hint is what the
        result is called inside the rule, instead of the operation's name.
        """


class Decomposition(NamedTuple):
    """What emits the operations that another one is put together from, and returns a value
    for each result; whether the operation, as it is set, is differentiated by them; and
    the settings that neither they nor a rule cover, as a part of a sentence.
    """

    build: Callable[[Any, Operation], Sequence[Any]]
    applies: Callable[[Operation], bool]
    limit: str = ""


SHAPES: dict[str, ShapeFunction] = {}
RULES: dict[str, Rule] = {}
DECOMPOSITIONS: dict[str, Decomposition] = {}


class ShapeError(ValueError):
    """Shapes and attributes that do not fit each other; `remedy`, if there is one."""

    def __init__(self, message: str, *, remedy: Remedy | None = None) -> None:
        self.remedy = remedy
        super().__init__(message)


def require(condition: bool, message: str) -> None:
    """Raises `ShapeError` with the message unless the condition holds."""
    if not condition:
        raise ShapeError(message)


def volume(shape: Shape) -> Dimension:
    """The product of some extents; it raises `ShapeError` if no tensor is that large."""
    product = prod(shape)
    fits = has_symbols(product) or product < 2**63
    require(fits, "the volume does not fit in 64 bits")
    return product


# How many results an operation may have: each is a tensor of the graph.
MAX_RESULTS = 10_000


def check_results(count: Dimension) -> None:
    """Raises `ShapeError` where an operation would have too many results."""
    require(count <= MAX_RESULTS, f"{count} results are more than {MAX_RESULTS}")


def shape(*names: str) -> Callable[[Function], Function]:
    """Enters the shape function of the named operations."""
    return partial(enter, SHAPES, names)


def vjp(*names: str) -> Callable[[Function], Function]:
    """Enters the vector-Jacobian product of the named operations."""
    return partial(enter, RULES, names)


def decomposition(
    *names: str,
    when: Callable[[Operation], bool] = lambda operation: True,
    limit: str = "",
) -> Callable[[Function], Function]:
    """Enters the decomposition of the named operations; see `Decomposition`."""
    entry = partial(Decomposition, applies=when, limit=limit)
    return partial(enter, DECOMPOSITIONS, names, entry=entry)


def enter(
    table: dict[str, Any],
    names: tuple[str, ...],
    function: Function,
    entry: Callable[[Function], Any] = lambda function: function,
) -> Function:
    """Enters what some operations have in a table, and returns it."""
    for name in names:
        assert name not in table, f"{name} is entered twice"
        table[name] = entry(function)
    return function


@dataclass(frozen=True)
class OpSet:
    """The operations that are known by name, the standard's unless others are given, and
    their shape functions: one that has none can be declared, and cannot be emitted.
    """

    declarations: Library = field(default_factory=lambda: STDLIB)
    shapes: Mapping[str, ShapeFunction] = field(default_factory=lambda: SHAPES)

    def extended(self, declarations: Iterable[Fragment]) -> OpSet:
        """These operations and further ones, which go first."""
        return OpSet(extended(declarations, self.declarations), self.shapes)
