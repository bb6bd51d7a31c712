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

from functools import partial
from itertools import islice

from nnef_grad.autodiff.cotangent_support import (
    Algebra,
    Selection,
    Support,
    begins_none,
    is_untouched,
    keeps,
    moves,
    puts_zeros,
    selection,
)
from nnef_grad.autodiff.ranges import Ranges
from nnef_grad.emit.emitter import Emitter, Tracker
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Operand, Operation, Tensor, map_tensors, tensors
from nnef_grad.ops.parts import inside

# Of how many selections a slope is looked at.
NEAR = 4


class Confinement(Tracker):
    """Observes the operations of a backward graph, and confines cotangents that leak.

    Attributes:
        confined: for each cotangent that was confined, the result.

    Where a cotangent may differ from zero outside of its support all the same, it has a
    limit, which is what to confine it to: the support, or as much of what it is within as
    keeps the slopes finite.
    """

    def __init__(self) -> None:
        super().__init__()
        self._algebra = Algebra()
        self._ranges = Ranges(self.producers)
        self._supports: dict[Tensor, Support] = {}
        self._limits: dict[Tensor, Support] = {}
        self._zeros: set[Tensor] = set()
        self.confined: dict[Tensor, Tensor] = {}
        self._masks: dict[Support, Selection] = {}
        self._paddings: dict[Support, Operation] = {}
        self._surrounding: dict[object, Support] = {}

    # What the emitter tells

    def take(self, operation: Operation) -> None:
        """Takes an operation of the forward graph. Its results are what they are: one
        that may differ from zero outside of its support has none.
        """
        self.follow(operation)
        if self._limits:
            for tensor in operation.outputs:
                if self._limits.pop(tensor, None) is not None:
                    del self._supports[tensor]

    def prepare(
        self, emit: Emitter, name: str, operands: tuple[Operand, ...]
    ) -> tuple[Operand, ...]:
        """The operands of an operation that is about to be emitted: those that leak are
        confined, unless the result has zeros in the same places.
        """
        if not self._limits:
            return operands
        leaking = dict.fromkeys(t for t in tensors(operands) if t in self._limits)
        if not leaking:
            return operands
        carried = self._algebra.carry(name, operands, self._support)
        confined = {
            t: self.confine(emit, t)
            for t in leaking
            if carried is None or not carried.is_within(self._supports[t])
        }
        return tuple(map_tensors(lambda t: confined.get(t, t), o) for o in operands)

    def follow(self, operation: Operation) -> None:
        """Finds what is known of the results of an operation that was emitted, or that
        is there already.
        """
        if not self._supports and begins_none(operation):
            return
        self._ranges.assume(operation)
        if operation.name == "constant":
            if not any(operation.attributes["value"]):
                self._zeros.update(operation.outputs)
        elif keeps(operation):
            self._keep(operation)
        elif moves(operation):
            self._move(operation)

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
        taken = {axis: own for axis, (own, extent) in whole if own.count != extent}
        begin = [own.start for own in taken.values()]
        end = [own.stop for own in taken.values()]
        # Inside is nothing to leak.
        support, limit = self._supports.pop(cotangent), self._limits.pop(cotangent)
        inner = emit(
            "slice", cotangent, axes=[*taken], begin=begin, end=end, hint="inside"
        )
        self._supports[cotangent], self._limits[cotangent] = support, limit
        (padded,) = emit.emit_again(padding, (inner,), hints=(emit.naming("inside"),))
        assert isinstance(padded, Tensor)
        return padded

    def _support(self, operand: Operand) -> Support | None:
        return self._supports.get(operand) if isinstance(operand, Tensor) else None

    # What is known of the results of an operation

    def _keep(self, operation: Operation) -> None:
        if operation.outputs[0] in self._supports:
            return
        chosen = selection(operation)
        whole = self._algebra.carry(operation.name, operation.operands, self._support)
        limits = {self._limits[t] for t in operation.inputs if t in self._limits}
        support = whole
        if chosen is not None:
            support = self._algebra.select(whole, chosen)
            if support is whole and support.within is None:
                # Selected twice by the same, and by nothing else.
                limits = set()
        if support is None:
            return
        if not self._has_finite_slopes(operation, support):
            limits.add(self._finite_part(operation, support))
        (result,) = operation.outputs
        self._supports[result] = support
        if limits:
            self._limits[result] = support if len(limits) > 1 else limits.pop()

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
        """One selection that the support is within and that takes no element whose slope
        is infinite, such as that of the positive divisors; the support, if there is none.
        """
        if operation.name == "div":
            for part in islice(support.wholes(), NEAR):
                own = part.elements
                if isinstance(own, Selection) and own.holds:
                    divisors = self._ranges.where(own.condition, operation.operands[1])
                    if divisors.has_finite_reciprocal:
                        return self._algebra.select(None, own)
        return support

    def _move(self, operation: Operation) -> None:
        if not (self._supports or self._zeros or puts_zeros(operation)):
            return
        if not self._supports.keys().isdisjoint(operation.outputs):
            return
        moved = operation.operands[0]
        support = self._support(moved)
        if support is not None and is_untouched(support, operation):
            self._supports.update(dict.fromkeys(operation.outputs, support))
        elif puts_zeros(operation) or any(map(self._has_zeros, tensors((moved,)))):
            found = map(self._supports.get, tensors((moved,)))
            parts = tuple(support for support in found if support is not None)
            for result in operation.outputs:
                own = Support(None, result, parts, result.shape)
                if not parts and _surrounds(operation):
                    own = self._surrounded(operation, own)
                self._supports[result] = own

    def _surrounded(self, padding: Operation, own: Support) -> Support:
        """The support of a padding: that of the same one of another tensor, if there is
        one.
        """
        key = (tuple(padding.attributes["padding"]), own.shape)
        known = self._surrounding.setdefault(key, own)
        self._paddings.setdefault(known, padding)
        return known

    def _has_zeros(self, tensor: Tensor) -> bool:
        return tensor in self._supports or tensor in self._zeros

    # The masks of supports

    def _mask(self, emit: Emitter, support: Support) -> Selection:
        """The selection of the elements of a support; the masks of its parts are emitted
        first.
        """
        pending = [support]
        while pending:
            part = pending[-1]
            missing = [s for s in part.parts if s not in self._masks]
            pending += missing
            if not missing:
                self._masks[part] = self._combine(emit, pending.pop())
        return self._masks[support]

    def _combine(self, emit: Emitter, support: Support) -> Selection:
        masks = [self._masks[part] for part in support.parts]
        own = support.elements
        if own is None:
            return _join(emit, "or", "and", *masks)
        if isinstance(own, Tensor):
            return self._moved_mask(emit, own)
        return _join(emit, "and", "or", masks[0], own) if masks else own

    def _moved_mask(self, emit: Emitter, moved: Tensor) -> Selection:
        """The mask of what an operation moved: a sum may differ from zero where any of
        its terms may.
        """
        operation = emit.producer(moved)
        assert operation is not None
        if operation.name in ("sum_reduce", "mean_reduce"):
            mask = self._whole_mask(operation.operands[0])
            if mask is not None:
                name = "any_reduce" if mask.holds else "all_reduce"
                axes = operation.attributes["axes"]
                condition = emit(name, mask.condition, axes=axes, hint="support")
                return Selection(condition, mask.holds)
        indicator = self._indicator(emit, operation, moved)
        return Selection(emit("gt", indicator, 0.0, hint="support"), True)

    def _whole_mask(self, operand: Operand) -> Selection | None:
        """The mask of the support of a cotangent, if it has the cotangent's shape."""
        if not isinstance(operand, Tensor) or operand not in self._supports:
            return None
        mask = self._masks[self._supports[operand]]
        return mask if mask.condition.shape == operand.shape else None

    def _indicator(self, emit: Emitter, operation: Operation, moved: Tensor) -> Tensor:
        """The result of an operation for ones inside the supports of its operands and
        zeros outside: greater than zero where the result may differ from zero.
        """
        first, *others = operation.operands
        ones = map_tensors(partial(self._ones, emit), first)
        hints = tuple(emit.naming("indicator") for _ in operation.results)
        results = emit.emit_again(operation, (ones, *others), hints=hints)
        return tensors(results)[operation.outputs.index(moved)]

    def _ones(self, emit: Emitter, cotangent: Tensor) -> Tensor:
        """One inside the support, and zero outside of it."""
        if cotangent in self._zeros:
            return cotangent
        support = self._supports.get(cotangent)
        whole = self._whole_mask(cotangent)
        if whole is not None:
            return _inside(emit, whole, 1.0, hint="ones")
        ones = emit("constant", shape=cotangent.shape, value=(1.0,), hint="ones")
        return ones if support is None else _inside(emit, self._masks[support], ones)


def _surrounds(operation: Operation) -> bool:
    """Whether an operation puts zeros around a tensor, and cuts nothing off."""
    if operation.name != "pad" or not puts_zeros(operation):
        return False
    sides = [side for pair in operation.attributes["padding"] for side in pair]
    is_cut = any(may_exceed(0, side) for side in sides)
    return not is_cut and any(side != 0 for side in sides)


def _inside(
    emit: Emitter, mask: Selection, inner: Operand, hint: str = "inside"
) -> Tensor:
    """The elements that a mask selects; zero elsewhere."""
    branches = (inner, 0.0) if mask.holds else (0.0, inner)
    return emit("select", mask.condition, *branches, hint=hint)


def _join(
    emit: Emitter, name: str, opposite: str, first: Selection, second: Selection
) -> Selection:
    """Two masks by a logical operation; where both are what does not hold, by the
    opposite one, as De Morgan has it.
    """
    if not first.holds and not second.holds:
        condition = emit(opposite, first.condition, second.condition, hint="support")
        return Selection(condition, False)
    conditions = (
        mask.condition if mask.holds else emit("not", mask.condition)
        for mask in (first, second)
    )
    return Selection(emit(name, *conditions, hint="support"), True)
