"""Where a cotangent is zero by construction, and how it stays zero there.

    y = select(x > 0.0, log(x), 0.0)

The cotangent of log(x) is that of y where x is positive, and zero elsewhere. The rule of
log divides it by x, and where x is zero that is 0 / 0. Such a zero is one of structure: a
branch that was not taken has no gradient, whatever its slope is.

The *support* of a cotangent is where it may differ from zero. It begins where a rule
selects (`select(condition, dy, 0.0)`) or puts zeros around what it hands on, and an
element-wise operation with a cotangent keeps it. What comes of zero times infinity outside
of it *leaks*: it is replaced by zero once, by a `select` over the same condition, where the
element-wise operations end: before a sum, a product of matrices, a result, or a sum with
what has another support. Nothing is emitted where the slopes are finite by their ranges.
The result is a selection again, so all this holds at every order, and the rules are plain
formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

from nnef_grad.emit import Emitter
from nnef_grad.ir import Operand, Operation, Shape, Tensor, tensors
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ranges import Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Where a cotangent may differ from zero.

    Attributes:
        within: the larger support that this is a part of.
        depth: how many it is a part of.
        shape: a shape that is broadcast to that of the cotangent.
        condition: tells the elements by itself, or
        holds: whether it is where the condition holds, or where it does not.
        operation: what moved or summed cotangents with supports of their own, or
        index: which of its results this is the support of.
        parts: two supports that it covers, as that of a sum does.
    """

    within: Support | None
    depth: int
    shape: Shape
    condition: Tensor | None = None
    holds: bool = True
    operation: Operation | None = None
    index: int = 0
    parts: tuple[Support, ...] = ()

    def is_within(self, other: Support) -> bool:
        """Whether it is the other one, or a part of it."""
        part: Support | None = self
        while part is not None and part.depth > other.depth:
            part = part.within
        return part is other


class Known(NamedTuple):
    """What is known of a cotangent: its support, and whether it may differ from zero
    outside of it all the same.
    """

    support: Support
    leaks: bool = False


class Mask(NamedTuple):
    """A logical tensor, and what it is inside of a support."""

    condition: Tensor
    holds: bool


class Supports:
    """The supports of what an emitter emits."""

    def __init__(self) -> None:
        self._ranges = Ranges()
        self._known: dict[Tensor, Known] = {}
        self._zeros: set[Tensor] = set()
        self._selected: dict[tuple[Support | None, Tensor, bool], Support] = {}
        self._unions: dict[tuple[Support, Support], Support] = {}
        self._masks: dict[Support, Mask] = {}
        self._confined: dict[Tensor, Tensor] = {}

    # What the emitter tells

    def take(self, operation: Operation) -> None:
        """Takes an operation of the forward graph. Its results are what they are: one
        that may differ from zero outside of its support has none.
        """
        self.follow(operation)
        for tensor in filter(self._leaks, operation.outputs):
            del self._known[tensor]

    def prepare(
        self, emit: Emitter, name: str, operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        """The operands of an operation that is about to be emitted: those that leak are
        confined, unless the result has zeros in the same places.
        """
        leaking = [t for t in tensors(operands) if self._leaks(t)]
        if not leaking:
            return operands
        carried = self._carried(name, operands)
        kept = {
            t
            for t in leaking
            if carried is not None and carried.is_within(self._known[t].support)
        }
        confined = {t: self.confine(emit, t) for t in leaking if t not in kept}
        return _replaced(operands, confined)

    def follow(self, operation: Operation) -> None:
        """Finds what is known of the results of an operation that was emitted, or that
        is there already.
        """
        self._ranges.add(operation)
        if any(t in self._known for t in operation.outputs):
            return
        if operation.name == "constant" and not any(operation.attributes["value"]):
            self._zeros.update(operation.outputs)
        elif operation.name in _KEEPING:
            known = self._kept(operation)
            if known is not None:
                self._known.update((t, known) for t in operation.outputs)
        elif self._is_moving(operation):
            self._move(operation)

    def confine(self, emit: Emitter, cotangent: Tensor) -> Tensor:
        """A cotangent with zeros outside of its support, whatever it had there."""
        if not self._leaks(cotangent):
            return cotangent
        if cotangent not in self._confined:
            self._confined[cotangent] = self._select(emit, cotangent)
        return self._confined[cotangent]

    def _select(self, emit: Emitter, cotangent: Tensor) -> Tensor:
        support = self._known[cotangent].support
        condition, holds = self._mask(emit, support)
        branches = (cotangent, 0.0) if holds else (0.0, cotangent)
        confined: Tensor = emit("select", condition, *branches)
        emit.pass_hint(cotangent, confined, _UNMASKED)
        self._known[confined] = Known(support)
        return confined

    def call_it(self, emit: Emitter, cotangent: Tensor, hint: str) -> None:
        """Changes what a cotangent should be called. Where it was confined, that is the
        name of what came of it.
        """
        emit.call_it(cotangent, hint)
        if cotangent in self._confined:
            emit.pass_hint(cotangent, self._confined[cotangent], _UNMASKED)

    # Element by element

    def _leaks(self, tensor: Tensor) -> bool:
        known = self._known.get(tensor)
        return known is not None and known.leaks

    def _support(self, operand: Operand) -> Support | None:
        known = self._known.get(operand) if isinstance(operand, Tensor) else None
        return None if known is None else known.support

    def _carried(self, name: str, operands: tuple[Operand, ...]) -> Support | None:
        """The support of a result that comes from the operands."""
        keep = _KEEPING.get(name)
        if keep is None:
            return None
        supports = [self._support(o) for o in keep.which(operands)]
        return reduce(partial(keep.join, self), supports) if supports else None

    def _kept(self, operation: Operation) -> Known | None:
        name, operands = operation.name, operation.operands
        support = self._carried(name, operands)
        leaks = any(map(self._leaks, operation.inputs))
        if name == "select" and any(map(_is_zero, operands[1:])):
            condition, holds = operands[0], _is_zero(operands[2])
            if isinstance(condition, Tensor):
                leaks = leaks and not _is_just(support, condition, holds)
                support = self._part(support, condition, holds)
        if support is None:
            return None
        return Known(support, leaks or not self._has_finite_slopes(operation, support))

    def _has_finite_slopes(self, operation: Operation, support: Support) -> bool:
        """Whether zeros outside of the support stay zeros."""
        name, operands = operation.name, operation.operands
        if name == "div":
            return self._ranges.of(operands[1]).has_finite_reciprocal
        return name != "mul" or all(
            self._support(o) is support or self._ranges.of(o).is_finite
            for o in operands
        )

    def _part(self, support: Support | None, condition: Tensor, holds: bool) -> Support:
        """The part of a support where a condition holds, or where it does not."""
        if _is_last(support, condition, holds):
            assert support is not None
            return support
        key = (support, condition, holds)
        if key not in self._selected:
            depth, shape = (
                (0, ()) if support is None else (support.depth, support.shape)
            )
            self._selected[key] = Support(
                support, depth + 1, broadcast(shape, condition.shape), condition, holds
            )
        return self._selected[key]

    def common(self, a: Support | None, b: Support | None) -> Support | None:
        """The support of a sum: the smallest that both are parts of."""
        whole = _common_whole(a, b)
        if whole is a or whole is b or a is None or b is None:
            return whole
        if (a, b) not in self._unions:
            depth = 1 if whole is None else whole.depth + 1
            shape = broadcast(a.shape, b.shape)
            self._unions[a, b] = Support(whole, depth, shape, parts=(a, b))
        return self._unions[a, b]

    def inner(self, a: Support | None, b: Support | None) -> Support | None:
        """The support of a product: the smaller one. Of two that have nothing to do with
        each other the first.
        """
        return b if a is None or (b is not None and b.is_within(a)) else a

    # Moved, repeated and summed

    def _is_moving(self, operation: Operation) -> bool:
        if operation.name not in _MOVING:
            return False
        if operation.name in _MOVING_AMONG_ZEROS:
            return not operation.attributes.get("value", 0.0)
        return any(
            t in self._known or t in self._zeros
            for t in tensors(operation.operands[:1])
        )

    def _move(self, operation: Operation) -> None:
        support = self._support(operation.operands[0])
        if support is not None and _is_untouched(support, operation):
            self._known.update((t, Known(support)) for t in operation.outputs)
            return
        for index, result in enumerate(operation.outputs):
            moved = Support(None, 1, result.shape, operation=operation, index=index)
            self._known[result] = Known(moved)

    # The masks of supports

    def _mask(self, emit: Emitter, support: Support) -> Mask:
        """The mask of a support, after those of what it is made of."""
        pending = [support]
        while pending:
            part = pending[-1]
            missing = [s for s in self._made_of(part) if s not in self._masks]
            pending += missing
            if not missing:
                self._masks[part] = self._made(emit, pending.pop())
        return self._masks[support]

    def _made_of(self, support: Support) -> Iterator[Support]:
        """What has to have a mask before a support can."""
        operands = () if support.operation is None else support.operation.operands[:1]
        of_operands = (self._support(t) for t in tensors(operands))
        for part in (support.within, *support.parts, *of_operands):
            if part is not None:
                yield part

    def _made(self, emit: Emitter, support: Support) -> Mask:
        if support.parts:
            first, second = support.parts
            return _either(emit, self._masks[first], self._masks[second])
        own = self._own_mask(emit, support)
        if support.within is None:
            return own
        return _both(emit, self._masks[support.within], own)

    def _own_mask(self, emit: Emitter, support: Support) -> Mask:
        if support.condition is not None:
            return Mask(support.condition, support.holds)
        assert support.operation is not None
        moved = self._indicator(emit, support.operation)[support.index]
        return Mask(emit("gt", moved, 0.0, hint="support"), True)

    def _indicator(self, emit: Emitter, operation: Operation) -> list[Tensor]:
        """What an operation makes of ones inside the supports of its operands, and
        zeros outside: a number greater than zero where a result may differ from zero.
        """
        first, *others = operation.operands
        ones = _map(lambda tensor: self._ones(emit, tensor), first)
        results = emit.call(
            operation.definition,
            (ones, *others),
            operation.attributes,
            dtype=operation.dtype,
            hints=tuple("indicator" for _ in operation.results),
        )
        return list(tensors(results))

    def _ones(self, emit: Emitter, cotangent: Tensor) -> Tensor:
        """One inside the support, and zero outside of it."""
        if cotangent in self._zeros:
            return cotangent
        ones: Tensor = emit(
            "constant", shape=cotangent.shape, value=(1.0,), hint="ones"
        )
        support = self._support(cotangent)
        if support is None:
            return ones
        condition, holds = self._mask(emit, support)
        branches = (ones, 0.0) if holds else (0.0, ones)
        inside: Tensor = emit("select", condition, *branches, hint="inside")
        return inside


def _both(emit: Emitter, first: Mask, second: Mask) -> Mask:
    """The mask of what lies inside of both."""
    if not first.holds and not second.holds:
        return Mask(_joined(emit, "or", first.condition, second.condition), False)
    return Mask(_joined(emit, "and", *_positive(emit, first, second)), True)


def _either(emit: Emitter, first: Mask, second: Mask) -> Mask:
    """The mask of what lies inside of one of them."""
    if not first.holds and not second.holds:
        return Mask(_joined(emit, "and", first.condition, second.condition), False)
    return Mask(_joined(emit, "or", *_positive(emit, first, second)), True)


def _positive(emit: Emitter, *masks: Mask) -> Iterator[Tensor]:
    for mask in masks:
        yield mask.condition if mask.holds else emit("not", mask.condition)


def _joined(emit: Emitter, name: str, first: Tensor, second: Tensor) -> Tensor:
    joined: Tensor = emit(name, first, second, hint="support")
    return joined


# ---- What keeps a support ----


class Keeping(NamedTuple):
    """How the support of an element-wise operation's result follows from its operands.

    Attributes:
        which: the operands that count.
        join: the support of the result, from theirs.
    """

    which: Callable[[tuple[Operand, ...]], Sequence[Operand]]
    join: Callable[[Supports, Support | None, Support | None], Support | None]


def _common_whole(a: Support | None, b: Support | None) -> Support | None:
    """The smallest support that two are within."""
    while a is not b and a is not None and b is not None:
        depths = a.depth, b.depth
        a = a.within if depths[0] >= depths[1] else a
        b = b.within if depths[1] >= depths[0] else b
    return a if a is b else None


def _all(operands: tuple[Operand, ...]) -> Sequence[Operand]:
    return operands


def _first(operands: tuple[Operand, ...]) -> Sequence[Operand]:
    return operands[:1]


def _not_zero(operands: tuple[Operand, ...]) -> list[Operand]:
    return [o for o in operands if not _is_zero(o)]


def _branches(operands: tuple[Operand, ...]) -> Sequence[Operand]:
    return _not_zero(operands[1:])


_KEEPING: Mapping[str, Keeping] = {
    "copy": Keeping(_all, Supports.common),
    "neg": Keeping(_all, Supports.common),
    "add": Keeping(_not_zero, Supports.common),
    "sub": Keeping(_not_zero, Supports.common),
    "mul": Keeping(_all, Supports.inner),
    "div": Keeping(_first, Supports.common),
    "select": Keeping(_branches, Supports.common),
}

# What is added to the name of a cotangent that was confined.
_UNMASKED = "unmasked"

# They move, repeat and sum the elements of their first operand.
_MOVING_AMONG_ZEROS = {"pad", "desample"}
_MOVING = {
    "reshape", "transpose", "squeeze", "unsqueeze", "slice", "split", "concat", "stack",
    "unstack", "tile", "sum_reduce", "mean_reduce", "box", "debox", "sample",
    *_MOVING_AMONG_ZEROS,
}  # fmt: skip


def _is_zero(operand: Operand) -> bool:
    return type(operand) is float and operand == 0.0


def _is_last(support: Support | None, condition: Tensor, holds: bool) -> bool:
    return (
        support is not None
        and support.condition == condition
        and support.holds == holds
    )


def _is_just(support: Support | None, condition: Tensor, holds: bool) -> bool:
    """Whether a support is where the condition holds, and nothing else."""
    return (
        support is not None
        and support.within is None
        and _is_last(support, condition, holds)
    )


def _is_untouched(support: Support, operation: Operation) -> bool:
    """Whether a result has the support of the operand: it is the same all along what is
    repeated or summed, and ends before the axes that come or go.
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


def _is_constant_along(shape: Shape, axes: Any) -> bool:
    return all(axis >= len(shape) or shape[axis] == 1 for axis in axes)


def _map(function: Any, operand: Operand) -> Any:
    if isinstance(operand, tuple):
        return tuple(_map(function, item) for item in operand)
    return function(operand) if isinstance(operand, Tensor) else operand


def _replaced(
    operands: tuple[Operand, ...], others: Mapping[Tensor, Tensor]
) -> tuple[Operand, ...]:
    replaced: tuple[Operand, ...] = _map(lambda t: others.get(t, t), operands)
    return replaced
