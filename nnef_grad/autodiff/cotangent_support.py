"""Where a cotangent may differ from zero: its support.

A support begins where a rule selects (`select(condition, dy, 0.0)`) or puts zeros around
the cotangent that it passes on. Element-wise operations keep it, others move it along.
Nothing here emits anything: see confine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.traits import MOVING


class Selection(NamedTuple):
    """A condition, and whether elements are taken where it holds."""

    condition: Tensor
    holds: bool


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """A set of elements: of those of the larger support, if there is one, the ones that
    a condition selects; those that an operation moves, repeats or sums to one of its
    results; or those of two supports, such as those of a sum.

    Attributes:
        within: the larger support that this is a part of, if any.
        elements: the selection, or the result; None for the elements of two supports.
        parts: the supports that it is made of: the larger one, those of the operands of
            what was moved, or the two.
        shape: is broadcast to the shape of the cotangent.
    """

    within: Support | None
    elements: Selection | Tensor | None
    parts: tuple[Support, ...]
    shape: Shape

    def wholes(self) -> Iterator[Support]:
        """The support and those that it is a part of, the smallest first."""
        part: Support | None = self
        while part is not None:
            yield part
            part = part.within

    def is_within(self, other: Support) -> bool:
        """Whether it is the other support or a part of it."""
        return any(whole is other for whole in self.wholes())


class Algebra:
    """Makes supports: equal ones are the same object."""

    def __init__(self) -> None:
        self._made: dict[object, Support] = {}

    def select(self, whole: Support | None, chosen: Selection) -> Support:
        """The part of a support that is selected."""
        if whole is not None and whole.elements == chosen:
            return whole
        key = (whole, chosen)
        if key not in self._made:
            parts = () if whole is None else (whole,)
            shape = broadcast(chosen.condition.shape, *(p.shape for p in parts))
            self._made[key] = Support(whole, chosen, parts, shape)
        return self._made[key]

    def union(self, a: Support | None, b: Support | None) -> Support | None:
        """The support of a sum: the smallest that both are parts of."""
        if a is None or b is None:
            return None
        others = set(b.wholes())
        whole = next((s for s in a.wholes() if s in others), None)
        if whole is a or whole is b:
            return whole
        if (a, b) not in self._made:
            shape = broadcast(a.shape, b.shape)
            self._made[a, b] = Support(whole, None, (a, b), shape)
        return self._made[a, b]

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
        found = [] if which is None else [support(o) for o in which(operands)]
        join = self.intersection if name == "mul" else self.union
        return reduce(join, found) if found else None


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


def begins_none(operation: Operation) -> bool:
    """Whether an operation is one of the many that keep supports, but give none to a
    result whose operands have none.
    """
    return operation.name in _KEEPING and operation.name != "select"


def selection(operation: Operation) -> Selection | None:
    """How an operation selects among the elements of a tensor and zeros."""
    if operation.name != "select" or not any(map(is_zero, operation.operands[1:])):
        return None
    condition, _, otherwise = operation.operands
    if not isinstance(condition, Tensor):
        return None
    return Selection(condition, is_zero(otherwise))


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
        return _is_constant_along(support.shape, [i for i, n in repeats if n != 1])
    if operation.name in ("squeeze", "unsqueeze"):
        return all(axis >= len(support.shape) for axis in attributes["axes"])
    return False


def _is_constant_along(shape: Shape, axes: Iterable[int]) -> bool:
    return all(axis >= len(shape) or shape[axis] == 1 for axis in axes)
