"""Where a cotangent may differ from zero: its support.

    Support  ::= Selected | Moved | Union, each within a larger one or not
    Selected ::= where a condition holds, or where it does not
    Moved    ::= the results of an operation that moves the supports of its operands
    Union    ::= the elements of two supports, such as those of a sum

A support begins where a rule selects (`select(condition, dy, 0.0)`) or puts zeros around
the cotangent that it passes on. Element-wise operations keep it, others move it along. Nothing here emits
anything: see confine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.traits import MOVING


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """A set of elements.

    Attributes:
        within: the larger support that this is a part of, if any.
        depth: how many it is a part of, and itself.
        shape: is broadcast to the shape of the cotangent.
    """

    within: Support | None
    depth: int
    shape: Shape

    def is_within(self, other: Support) -> bool:
        """Whether it is the other support or a part of it."""
        part: Support | None = self
        while part is not None and part.depth > other.depth:
            part = part.within
        return part is other


@dataclass(frozen=True, slots=True, eq=False)
class Selected(Support):
    """Where a condition holds, or where it does not."""

    condition: Tensor
    holds: bool

    def is_by(self, condition: Tensor, holds: bool) -> bool:
        """Whether it was selected by that condition."""
        return self.condition == condition and self.holds == holds


@dataclass(frozen=True, slots=True, eq=False)
class Moved(Support):
    """One of the results of an operation that moves, repeats or sums elements."""

    operation: Operation
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Union(Support):
    """The elements of two supports."""

    first: Support
    second: Support


class Algebra:
    """Makes supports: equal ones are the same object."""

    def __init__(self) -> None:
        self._selected: dict[tuple[Support | None, Tensor, bool], Support] = {}
        self._unions: dict[tuple[Support, Support], Support] = {}

    def select(self, whole: Support | None, condition: Tensor, holds: bool) -> Support:
        """The part of a support where a condition holds, or where it does not."""
        if isinstance(whole, Selected) and whole.is_by(condition, holds):
            return whole
        key = (whole, condition, holds)
        if key not in self._selected:
            shape = broadcast(() if whole is None else whole.shape, condition.shape)
            self._selected[key] = Selected(
                whole, _depth(whole) + 1, shape, condition, holds
            )
        return self._selected[key]

    def union(self, a: Support | None, b: Support | None) -> Support | None:
        """The support of a sum: the smallest that both are parts of."""
        whole = _smallest_common(a, b)
        if whole is a or whole is b or a is None or b is None:
            return whole
        if (a, b) not in self._unions:
            shape = broadcast(a.shape, b.shape)
            self._unions[a, b] = Union(whole, _depth(whole) + 1, shape, a, b)
        return self._unions[a, b]

    def intersection(self, a: Support | None, b: Support | None) -> Support | None:
        """The support of a product: the smaller one, or the first if neither contains
        the other.
        """
        return b if a is None or (b is not None and b.is_within(a)) else a

    def carry(
        self,
        name: str,
        operands: tuple[Operand, ...],
        support: Callable[[Operand], Support | None],
    ) -> Support | None:
        """The support of the result of an element-wise operation, from those of its
        operands; None if the operation does not keep supports.
        """
        which = _KEEPING.get(name)
        if which is None:
            return None
        join = self.intersection if name == "mul" else self.union
        return _reduce(join, map(support, which(operands)))


def _reduce(
    join: Callable[[Support | None, Support | None], Support | None],
    supports: Iterable[Support | None],
) -> Support | None:
    found = list(supports)
    return reduce(join, found) if found else None


def _depth(support: Support | None) -> int:
    return 0 if support is None else support.depth


def _smallest_common(a: Support | None, b: Support | None) -> Support | None:
    """The smallest support that two are within."""
    while a is not b and a is not None and b is not None:
        depths = a.depth, b.depth
        a = a.within if depths[0] >= depths[1] else a
        b = b.within if depths[1] >= depths[0] else b
    return a if a is b else None


# ---- Operations that keep a support ----


def is_zero(operand: Operand) -> bool:
    """Whether an operand is the literal zero."""
    return type(operand) is float and operand == 0.0


def _all(operands: tuple[Operand, ...]) -> Sequence[Operand]:
    return operands


def _not_zero(operands: tuple[Operand, ...]) -> Sequence[Operand]:
    return [o for o in operands if not is_zero(o)]


# The operands that the support of the result follows from.
_KEEPING: dict[str, Callable[[tuple[Operand, ...]], Sequence[Operand]]] = {
    "copy": _all,
    "neg": _all,
    "add": _not_zero,
    "sub": _not_zero,
    "mul": _all,
    "div": lambda operands: operands[:1],
    "select": lambda operands: _not_zero(operands[1:]),
}


def keeps(operation: Operation) -> bool:
    """Whether the result of an operation is zero where its operands are."""
    return operation.name in _KEEPING


class Selection(NamedTuple):
    """A condition, and whether elements are taken where it holds."""

    condition: Tensor
    holds: bool


def selection(operation: Operation) -> Selection | None:
    """How an operation selects among the elements of a tensor and zeros."""
    if operation.name != "select" or not any(map(is_zero, operation.operands[1:])):
        return None
    condition, _, otherwise = operation.operands
    return (
        Selection(condition, is_zero(otherwise))
        if isinstance(condition, Tensor)
        else None
    )


# ---- Operations that move a support ----

# They move, repeat or sum the elements of their first operand.
_MOVING = MOVING | {
    "pad", "sum_reduce", "mean_reduce", "box", "debox", "sample", "desample",
}  # fmt: skip


def moves(operation: Operation) -> bool:
    """Whether the elements of an operation's results are elements of its first operand,
    or sums of them, or zeros.
    """
    return operation.name in _MOVING and (
        operation.name != "pad" or is_zero(operation.attributes["value"])
    )


def puts_zeros(operation: Operation) -> bool:
    """Whether an operation that moves elements puts zeros among them."""
    if operation.name == "pad":
        return bool(operation.attributes["border"] == "constant")
    return operation.name == "desample"


def is_untouched(support: Support, operation: Operation) -> bool:
    """Whether a result has the support of the operand: it is constant along the axes that
    are repeated or summed, and does not extend to axes that are added or removed.
    """
    attributes = operation.attributes
    if operation.name in ("sum_reduce", "mean_reduce"):
        return _is_constant_along(support.shape, attributes["axes"])
    if operation.name == "tile":
        repeats = enumerate(attributes["repeats"])
        return _is_constant_along(support.shape, [i for i, n in repeats if n > 1])
    if operation.name in ("squeeze", "unsqueeze"):
        return all(axis >= len(support.shape) for axis in attributes["axes"])
    return False


def _is_constant_along(shape: Shape, axes: Iterable[int]) -> bool:
    return all(axis >= len(shape) or shape[axis] == 1 for axis in axes)
