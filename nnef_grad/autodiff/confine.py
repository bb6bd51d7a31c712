"""Keeps a cotangent zero where it is zero by construction.

    y = select(x > 0.0, log(x), 0.0)

The cotangent of log(x) is that of y where x is positive, and zero elsewhere. The rule of
log divides it by x, and where x is zero that is 0 / 0. But a branch that was not taken has
no gradient, whatever its slope is.

So what comes of zero times infinity outside of a cotangent's support *leaks*, and it is
*confined*: replaced by zero once, by a `select` over the same condition, where the
element-wise operations end, before a sum, a product of matrices, a result, or a sum with
what has another support. Nothing is emitted where all slopes are finite by their ranges.
One condition is enough where all slopes are finite that it selects, such as 1 / n where
n > 0; and what a slice left out is cut out, and padded again.
The result is a selection again, so all this holds at every order, and the rules are plain
formulas.

A rule that asks whether its cotangent is zero, `select(dy == 0.0, 0.0, dy / x)`, would need
none of this, and is wrong at order two: a cotangent may be zero by chance, and its own
derivative is 1 / x there all the same, as for z * log(x) where z is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from typing import NamedTuple

from nnef_grad.autodiff.ranges import Ranges
from nnef_grad.emit.emitter import Emitter, Tracker
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, map_tensors, tensors
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.parts import inside
from nnef_grad.ops.traits import ARRANGING, MOVING

# Of how many selections a slope is looked at.
NEAR = 4


class Selection(NamedTuple):
    """A condition, and whether elements are taken where it holds."""

    condition: Tensor
    holds: bool


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Where a cotangent may differ from zero. It begins where a rule selects or puts zeros
    around the cotangent that it passes on.
    """

    # The larger support that this is a part of, if any.
    within: Support | None
    # Those of the larger one that a selection takes; those that an operation moves, repeats
    # or sums to one of its results; None for those of two supports, such as those of a sum.
    elements: Selection | Tensor | None
    # The larger one, those of the operands of what was moved, or the two.
    parts: tuple[Support, ...]
    # Is broadcast to the shape of the cotangent.
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


# ---- What operations do with a support ----

# The operands that the support of the result follows from, unless they are zero.
_KEEPING = {
    **dict.fromkeys(("copy", "neg", "add", "sub", "mul"), slice(None)),
    "div": slice(1),
    "select": slice(1, None),
}
# They move, repeat or sum the elements of their first operand.
_MOVING = MOVING | {
    "pad", "sum_reduce", "mean_reduce", "box", "debox", "sample", "desample",
}  # fmt: skip


def keeps(operation: Operation) -> bool:
    """Whether the result of an operation is zero where its operands are."""
    return operation.name in _KEEPING


def selection(operation: Operation) -> Selection | None:
    """How an operation selects among the elements of a tensor and zeros."""
    if operation.name != "select" or not any(map(_is_zero, operation.operands[1:])):
        return None
    condition, _, otherwise = operation.operands
    if not isinstance(condition, Tensor):
        return None
    return Selection(condition, _is_zero(otherwise))


def _is_zero(operand: Operand) -> bool:
    return type(operand) is float and operand == 0.0


def _puts_zeros(operation: Operation) -> bool:
    """Whether an operation that moves elements puts zeros among them."""
    if operation.name == "pad":
        return bool(operation.attributes["border"] == "constant")
    return operation.name == "desample"


def _surrounds(operation: Operation) -> bool:
    """Whether an operation puts zeros around a tensor, and cuts nothing off."""
    if operation.name != "pad" or not _puts_zeros(operation):
        return False
    sides = [side for pair in operation.attributes["padding"] for side in pair]
    is_cut = any(may_exceed(0, side) for side in sides)
    return not is_cut and any(side != 0 for side in sides)


def _is_untouched(support: Support, operation: Operation) -> bool:
    """Whether a result has the support of the operand: it is constant along the axes
    that are repeated or summed, and does not extend to axes that are added or removed.
    """
    attributes, rank = operation.attributes, len(support.shape)
    if operation.name in ("squeeze", "unsqueeze"):
        return all(axis >= rank for axis in attributes["axes"])
    axes: Iterable[int]
    if operation.name == "tile":
        axes = [axis for axis, n in enumerate(attributes["repeats"]) if n != 1]
    elif operation.name in ("sum_reduce", "mean_reduce"):
        axes = attributes["axes"]
    else:
        return False
    return all(axis >= rank or support.shape[axis] == 1 for axis in axes)


class Confinement(Tracker):
    """Observes the operations of a backward graph, and confines cotangents that leak."""

    def __init__(self) -> None:
        super().__init__()
        # For each cotangent that was confined, the result.
        self.confined: dict[Tensor, Tensor] = {}
        self._ranges = Ranges(self.producers)
        self._supports: dict[Tensor, Support] = {}
        # What to confine a cotangent to that may differ from zero outside of its support:
        # the support, or as much of what it is within as keeps the slopes finite.
        self._limits: dict[Tensor, Support] = {}
        self._zeros: set[Tensor] = set()
        # Equal supports are the same object.
        self._made: dict[object, Support] = {}
        self._masks: dict[Support, Selection] = {}
        self._paddings: dict[Support, Operation] = {}

    # What the emitter tells

    def take(self, operation: Operation) -> None:
        """Takes an operation of the forward graph, whose results are what they are."""
        self.follow(operation)
        # One that may differ from zero outside of its support has none.
        for tensor in operation.outputs if self._limits else ():
            if self._limits.pop(tensor, None) is not None:
                del self._supports[tensor]

    def prepare(
        self, emit: Emitter, name: str, operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        """The operands of an operation that is about to be emitted: those that leak are
        confined, unless the result has zeros in the same places.
        """
        # Most operands do not leak.
        limits = self._limits
        leaking = [t for t in tensors(operands) if t in limits] if limits else ()
        if not leaking:
            return operands
        carried = self._carried(name, operands)
        confined = {
            t: self.confine(emit, t)
            for t in dict.fromkeys(leaking)
            if carried is None or not carried.is_within(self._supports[t])
        }
        return tuple(map_tensors(lambda t: confined.get(t, t), o) for o in operands)

    def follow(self, operation: Operation) -> None:
        """Finds what is known of the results of an operation that was emitted."""
        # Most operations keep supports, and there is none.
        if not self._supports and keeps(operation) and operation.name != "select":
            return
        self._ranges.assume(operation)
        if operation.name == "constant":
            if not any(operation.attributes["value"]):
                self._zeros.update(operation.outputs)
        elif keeps(operation):
            self._keep(operation)
        elif operation.name in _MOVING:
            self._move(operation)

    # Supports of results

    def _keep(self, operation: Operation) -> None:
        (result,) = operation.outputs
        if result in self._supports:
            return
        whole = support = self._carried(operation.name, operation.operands)
        chosen = selection(operation)
        if chosen is not None:
            support = self._selected(whole, chosen)
        if support is None:
            return
        limits = {self._limits[t] for t in operation.inputs if t in self._limits}
        if chosen is not None and support is whole and support.within is None:
            # Selected twice by the same, and by nothing else.
            limits = set()
        if not self._has_finite_slopes(operation, support):
            limits.add(self._finite_part(operation, support))
        self._supports[result] = support
        if limits:
            self._limits[result] = support if len(limits) > 1 else limits.pop()

    def _carried(self, name: str, operands: tuple[Operand, ...]) -> Support | None:
        """The support of the result of an operation that keeps those of its operands."""
        if name not in _KEEPING:
            return None
        chosen = [o for o in operands[_KEEPING[name]] if not _is_zero(o)]
        join = _intersection if name == "mul" else self._union
        return reduce(join, map(self._support, chosen)) if chosen else None

    def _support(self, operand: Operand) -> Support | None:
        return self._supports.get(operand) if isinstance(operand, Tensor) else None

    def _selected(self, whole: Support | None, chosen: Selection) -> Support:
        """The part of a support that is selected."""
        if whole is not None and whole.elements == chosen:
            return whole
        if (whole, chosen) not in self._made:
            parts = () if whole is None else (whole,)
            shape = broadcast(chosen.condition.shape, *(p.shape for p in parts))
            self._made[whole, chosen] = Support(whole, chosen, parts, shape)
        return self._made[whole, chosen]

    def _union(self, a: Support | None, b: Support | None) -> Support | None:
        """The support of a sum: the smallest that both are parts of."""
        if a is None or b is None:
            return None
        others = set(b.wholes())
        whole = next((s for s in a.wholes() if s in others), None)
        if whole is a or whole is b:
            return whole
        if (a, b) not in self._made:
            self._made[a, b] = Support(whole, None, (a, b), broadcast(a.shape, b.shape))
        return self._made[a, b]

    def _has_finite_slopes(self, operation: Operation, support: Support) -> bool:
        """Whether zeros outside of the support stay zeros."""
        name, operands = operation.name, operation.operands
        if name == "div":
            return self._ranges.of(operands[1]).has_finite_reciprocal
        return name != "mul" or all(
            self._support(o) is support or self._ranges.of(o).is_finite
            for o in operands
        )

    def _finite_part(self, operation: Operation, support: Support) -> Support:
        """One selection that the support is within and that takes no element whose
        slope is infinite, such as that of the positive divisors; the support, if there
        is none.
        """
        for part in islice(support.wholes(), NEAR) if operation.name == "div" else ():
            own = part.elements
            if isinstance(own, Selection) and own.holds:
                divisors = self._ranges.where(own.condition, operation.operands[1])
                if divisors.has_finite_reciprocal:
                    return self._selected(None, own)
        return support

    def _move(self, operation: Operation) -> None:
        if not (self._supports or self._zeros or _puts_zeros(operation)):
            return
        if operation.name == "pad" and not _is_zero(operation.attributes["value"]):
            return
        if not self._supports.keys().isdisjoint(operation.outputs):
            return
        moved = operation.operands[0]
        support = self._support(moved)
        if support is not None and _is_untouched(support, operation):
            self._supports.update(dict.fromkeys(operation.outputs, support))
            return
        operands = tensors((moved,))
        parts = tuple(self._supports[t] for t in operands if t in self._supports)
        has_zeros = parts or not self._zeros.isdisjoint(operands)
        for result in operation.outputs if has_zeros or _puts_zeros(operation) else ():
            own = Support(None, result, parts, result.shape)
            if not parts and _surrounds(operation):
                # That of the same padding of another tensor, if there is one.
                key = (tuple(operation.attributes["padding"]), own.shape)
                own = self._made.setdefault(key, own)
                self._paddings.setdefault(own, operation)
            self._supports[result] = own

    # What leaks

    def confine(self, emit: Emitter, cotangent: Tensor) -> Tensor:
        """The cotangent with zeros outside its support."""
        limit = self._limits.get(cotangent)
        if limit is None:
            return cotangent
        if cotangent not in self.confined:
            padding = self._paddings.get(limit)
            if padding is not None and cotangent.shape == limit.shape:
                confined = self._padded_again(emit, padding, cotangent)
            else:
                confined = _inside(emit, self._mask(emit, limit), cotangent)
            self._supports[confined] = self._supports[cotangent]
            self._limits.pop(confined, None)
            self.confined[cotangent] = confined
        return self.confined[cotangent]

    def _padded_again(
        self, emit: Emitter, padding: Operation, cotangent: Tensor
    ) -> Tensor:
        """The cotangent inside of a padding, with zeros around it."""
        whole = enumerate(zip(inside(padding), cotangent.shape, strict=True))
        taken = [(i, own) for i, (own, extent) in whole if own.count != extent]
        bounds = [(axis, own.start, own.stop) for axis, own in taken]
        axes, begin, end = map(list, zip(*bounds, strict=True))
        # Inside is nothing to leak.
        support, limit = self._supports.pop(cotangent), self._limits.pop(cotangent)
        inner = emit("slice", cotangent, axes=axes, begin=begin, end=end, hint="inside")
        self._supports[cotangent], self._limits[cotangent] = support, limit
        (padded,) = emit.emit_again(padding, (inner,), hints=(emit.naming("inside"),))
        assert isinstance(padded, Tensor)
        return padded

    # The masks of supports

    def _mask(self, emit: Emitter, support: Support) -> Selection:
        """The selection of the elements of a support, after those of its parts."""
        pending = [support]
        while pending:
            part = pending[-1]
            missing = [s for s in part.parts if s not in self._masks]
            pending += missing
            if not missing:
                self._masks[part] = self._combine(emit, pending.pop())
        return self._masks[support]

    def _combine(self, emit: Emitter, support: Support) -> Selection:
        masks, own = [self._masks[part] for part in support.parts], support.elements
        if own is None:
            return _join(emit, "or", "and", *masks)
        if isinstance(own, Tensor):
            return self._moved_mask(emit, own)
        return _join(emit, "and", "or", masks[0], own) if masks else own

    def _moved_mask(self, emit: Emitter, moved: Tensor) -> Selection:
        """The mask of what an operation moved: it may differ from zero where the result
        for ones inside the supports of the operands and zeros outside is greater than
        zero. A sum may, where any of its terms may; what is arranged, where it was.
        """
        operation = emit.producer(moved)
        assert operation is not None
        first, *others = operation.operands
        mask = self._whole_mask(first)
        if mask is not None and operation.name in ("sum_reduce", "mean_reduce"):
            name = "any_reduce" if mask.holds else "all_reduce"
            axes = operation.attributes["axes"]
            return mask._replace(
                condition=emit(name, mask.condition, axes=axes, hint="support")
            )
        if mask is not None and operation.name in ARRANGING:
            arranged = emit(
                operation.name, mask.condition, hint="support", **operation.settings
            )
            return mask._replace(condition=arranged)
        ones = map_tensors(partial(self._ones, emit), first)
        hints = tuple(emit.naming("indicator") for _ in operation.results)
        results = tensors(emit.emit_again(operation, (ones, *others), hints=hints))
        indicator = results[operation.outputs.index(moved)]
        return Selection(emit("gt", indicator, 0.0, hint="support"), True)

    def _whole_mask(self, operand: Operand) -> Selection | None:
        """The mask of the support of a cotangent, if it has the cotangent's shape."""
        if not isinstance(operand, Tensor) or operand not in self._supports:
            return None
        mask = self._masks[self._supports[operand]]
        return mask if mask.condition.shape == operand.shape else None

    def _ones(self, emit: Emitter, cotangent: Tensor) -> Tensor:
        """One inside the support, and zero outside of it."""
        if cotangent in self._zeros:
            return cotangent
        whole = self._whole_mask(cotangent)
        if whole is not None:
            return _inside(emit, whole, 1.0, hint="ones")
        ones = emit("constant", shape=cotangent.shape, value=(1.0,), hint="ones")
        support = self._supports.get(cotangent)
        return ones if support is None else _inside(emit, self._masks[support], ones)


def _intersection(a: Support | None, b: Support | None) -> Support | None:
    """The support of a product: the smaller one, or the first if neither is."""
    return b if a is None or (b is not None and b.is_within(a)) else a


def _inside(
    emit: Emitter, mask: Selection, inner: Operand, hint: str = "inside"
) -> Tensor:
    """The elements that a mask selects; zero elsewhere."""
    branches = (inner, 0.0) if mask.holds else (0.0, inner)
    return emit("select", mask.condition, *branches, hint=hint)


def _join(emit: Emitter, name: str, opposite: str, *masks: Selection) -> Selection:
    """Masks by a logical operation; where all are what does not hold, by the opposite one,
    as De Morgan has it.
    """
    if not any(m.holds for m in masks):
        conditions = (m.condition for m in masks)
        return Selection(emit(opposite, *conditions, hint="support"), False)
    conditions = (m.condition if m.holds else emit("not", m.condition) for m in masks)
    return Selection(emit(name, *conditions, hint="support"), True)
