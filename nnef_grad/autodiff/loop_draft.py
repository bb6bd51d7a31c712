"""A loop that is put together around the second half of the derivative of a body, and sums
over its steps that are computed after it, at once.

    loop:  w' = w + transpose(h) * d        after it:  w = transpose(H) * D

The gradient of a weight is a sum over all steps of products. Where the loop collects the
factors, H and D, it is one product, which is longer: a step has nothing to add up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from nnef_grad.emit.bodies import emit_loop
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.loops import Collected, Loop, Way, external
from nnef_grad.graph.names import NameSupply, substitute
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import RESHAPING

# The results of a loop that was emitted, by what they were carried, added up or collected as.
Results = Mapping[object, Tensor]
# Emits a sum over all steps, given the results of the loop.
Total = Callable[[Emitter, Results], Tensor]


class Stack(NamedTuple):
    """The values of a tensor of the body at all steps, in the order of the loop, one
    after the other along an axis: a tensor that is there, or what the loop collects
    under a key.
    """

    key: Any
    axis: int


class _State(NamedTuple):
    """A state of the loop: what its last value is found by, the input of the body, its
    first value, zeros if there is none, and its next value in the body.
    """

    key: Tensor
    inside: Tensor
    first: Tensor | None
    new: Tensor


class LoopDraft:
    """A loop that is put together around the second half of a derivative."""

    def __init__(self, half: Graph, seeds: Collection[str], way: Way) -> None:
        self.emit = Emitter(OpSet().extended(half.fragments), half.names)
        self._half = half
        self._way = way
        self._supply = NameSupply(half.tensors.keys() - {*seeds})
        # What stands for a tensor of the half.
        self._replaced: dict[Tensor, Tensor] = {}
        self._full: list[tuple[Tensor, Tensor]] = []
        self._states: list[_State] = []
        self.scanned: list[tuple[Tensor, Tensor, Way]] = []
        self._collected: dict[object, tuple[Tensor, Way]] = {}

    def tensor(self, wish: str, like: Tensor) -> Tensor:
        """A new input of the body, like another tensor."""
        name = self._supply.fresh(wish)
        return self.emit.emit_named(name, "external", like.dtype, shape=like.shape)

    def _input(self, tensor: Tensor) -> Tensor:
        if not self.emit.knows(tensor):
            self.emit.append(external(tensor))
        return tensor

    def see(self, inside: Tensor, whole: Tensor) -> None:
        """Lets the body see a tensor whole."""
        self._full.append((self._input(inside), whole))

    def scan(self, inside: Tensor, whole: Tensor, way: Way) -> None:
        """Lets the body see a part of a tensor."""
        self.scanned.append((self._input(inside), whole, way))

    def scan_rows(self, inside: Tensor, whole: Tensor, way: Way) -> None:
        """Lets the body see a row of a tensor, without the axis of the rows."""
        shape = (*inside.shape[: way.axis], 1, *inside.shape[way.axis :])
        like = replace(inside, shape=shape)
        row = self.tensor(f"{self.emit.called(inside)}_row", like)
        self.emit.emit_to(inside, "squeeze", row, axes=[way.axis])
        self.scan(row, whole, way)

    def sum(self, tensor: Tensor, sources: Sequence[Tensor]) -> None:
        """Puts a sum in the place of a tensor of the half."""
        total, hint = sources[0] if sources else None, self.emit.called(tensor)
        for source in sources[1:]:
            total = self.emit("add", total, source, hint=hint)
        if total is None:
            total = self.emit("constant", shape=tensor.shape, value=(0.0,))
        self._replaced[tensor] = total

    def append(self, operations: Iterable[Operation]) -> None:
        """Appends operations of the half."""
        for operation in operations:
            self.emit.append(substitute(operation, self._replaced))

    def carry(self, inside: Tensor, first: Tensor | None, new: Tensor) -> None:
        """Makes an input a state, whose first value is zeros if it is not given."""
        self._states.append(_State(new, inside, first, new))

    def add_up(self, gradient: Tensor) -> None:
        """Adds a tensor up, over all steps."""
        name = self.emit.called(gradient)
        before = self.tensor(f"{name}_before", gradient)
        total = self.emit("add", before, gradient, hint=f"{name}_sum")
        self._states.append(_State(gradient, before, None, total))

    def collect(self, gradient: Tensor, way: Way) -> None:
        """Puts a tensor of all steps side by side."""
        self._collected[gradient] = gradient, way

    def stacked(self, tensor: Tensor) -> Stack | None:
        """The values of a tensor at all steps, if the loop sees or collects them."""
        tensor = self._replaced.get(tensor, tensor)
        squeezed = self.emit.made_by(tensor, "squeeze")
        parts = (tensor, *(squeezed.inputs if squeezed else ()))
        collected = ((part, key, way) for key, (part, way) in self._collected.items())
        for part, key, way in (*self.scanned, *collected):
            if part in parts and way.direction == self._way.direction:
                return Stack(key, way.axis)
        return None

    def stack(self, tensor: Tensor) -> Stack | None:
        """The same: the loop collects them, if they are made in its body."""
        stacked = self.stacked(tensor)
        tensor = self._replaced.get(tensor, tensor)
        producer = self.emit.producer(tensor)
        if stacked is not None or producer is None or producer.name == "external":
            return stacked
        gathered = {part for part, _ in self._collected.values()}
        part, axis = tensor, min(self._way.axis, tensor.rank)
        if tensor in gathered or not self._way.fits(tensor.shape):
            part = self.emit(
                "unsqueeze", part, axes=[axis], hint=f"{self.emit.called(part)}_row"
            )
        key = tensor, "steps"
        self._collected[key] = part, Way(axis, self._way.direction)
        return Stack(key, axis)

    def plan_sum(self, tensor: Tensor) -> Total:
        """The sum over all steps: after the loop, if that is better, or inside of it."""
        total = _total(self, tensor)
        if total is not None:
            return total
        self.add_up(tensor)
        return lambda emit, results: results[tensor]

    def emitted(self, emit: Emitter) -> Results:
        """Emits the loop, and returns its results."""
        states, full, collected = self._states, self._full, self._collected
        firsts = (s.first or _zeros(emit, s.inside) for s in states)
        operands = [whole for _, whole in full]
        operands += [*firsts, *(whole for _, whole, _ in self.scanned)]
        body = Graph(
            self._half.name,
            (
                *(inside for inside, _ in full),
                *(state.inside for state in states),
                *(inside for inside, *_ in self.scanned),
            ),
            (
                *(state.new for state in states),
                *(part for part, _ in collected.values()),
            ),
            tuple(self.emit.operations),
            self.emit.assigned_names(self.emit.operations, self._supply.taken),
            notes=self._half.notes,
        )
        ways = enumerate((way for _, way in collected.values()), len(states))
        loop = Loop(
            put_inputs_first(body),
            len(states),
            tuple(way for *_, way in self.scanned),
            tuple(Collected(place, way) for place, way in ways),
        )
        keys = [*(state.key for state in states), *collected]
        hints = tuple(map(self._hint, keys))
        return dict(zip(keys, emit_loop(emit, loop, operands, hints), strict=True))

    def _hint(self, key: object) -> str:
        tensor, *suffix = key if isinstance(key, tuple) else (key,)
        return "_".join([self.emit.called(tensor), *suffix])


def _zeros(emit: Emitter, like: Tensor) -> Tensor:
    return emit("constant", shape=like.shape, value=(0.0,), hint="zeros")


# ---- Sums over the steps ----


def _total(draft: LoopDraft, tensor: Tensor) -> Total | None:
    """The sum of a tensor of the body over all steps, if it is better computed after it."""
    stack = draft.stacked(tensor)
    if stack is not None:
        return _summed(stack, tensor.shape, ())
    producer = draft.emit.made_by(tensor, *_PLANS)
    return None if producer is None else _PLANS[producer.name](draft, producer)


def _summed(stack: Stack, shape: Shape, axes: Iterable[int]) -> Total:
    """The sum over all steps, and over axes that stay."""
    summed = [0, *(axis + 1 for axis in axes)]

    def total(emit: Emitter, results: Results) -> Tensor:
        rows = _rows(emit, stack, results, shape)
        return emit("squeeze", emit("sum_reduce", rows, axes=summed), axes=[0])

    return total


def _rows(emit: Emitter, stack: Stack, results: Results, part: Shape) -> Tensor:
    """The values at all steps, side by side along a new first axis."""
    whole, axis = results.get(stack.key, stack.key), stack.axis
    if axis:
        others = [other for other in range(whole.rank) if other != axis]
        whole = emit("transpose", whole, axes=[axis, *others], hint="steps")
    return reshaped(emit, whole, (whole.shape[0], *part), hint="steps")


def _sum_later(draft: LoopDraft, op: Operation) -> Total | None:
    """A sum over axes: they are summed together with the steps."""
    (x,) = op.inputs
    stack = None if op.attributes["normalize"] else draft.stack(x)
    return None if stack is None else _summed(stack, x.shape, op.attributes["axes"])


def _multiply_later(draft: LoopDraft, op: Operation) -> Total | None:
    """A product of matrices: the axis that it sums is as long as that of all steps."""
    left, right = op.inputs
    if prod(left.shape[:-2]) != 1 or prod(right.shape[:-2]) != 1:
        return None
    stacks = draft.stack(left), draft.stack(right)
    lasts = not op.attributes["transposeA"], op.attributes["transposeB"]
    (result,) = op.outputs

    def total(emit: Emitter, results: Results) -> Tensor:
        columns = [
            _columns(emit, _rows(emit, stack, results, tensor.shape[-2:]), is_last)
            for stack, tensor, is_last in zip(stacks, op.inputs, lasts, strict=True)
            if stack is not None
        ]
        product = emit("matmul", *columns, transposeA=True)
        return reshaped(emit, product, result.shape)

    return None if None in stacks else total


def _columns(emit: Emitter, rows: Tensor, is_last: bool) -> Tensor:
    """Matrices below each other, as one whose rows are summed; these were the last axis."""
    if is_last:
        rows = emit("transpose", rows, axes=[0, 2, 1])
    count, height, width = rows.shape
    return reshaped(emit, rows, (count * height, width), hint="rows")


def _apply_later(draft: LoopDraft, op: Operation) -> Total | None:
    """A linear operation, of the sum of its operand."""
    (x,) = op.inputs
    inner = _total(draft, x)
    if inner is None:
        return None

    def total(emit: Emitter, results: Results) -> Tensor:
        return emit(op.name, inner(emit, results), **op.settings)

    return total


_PLANS: dict[str, Callable[[LoopDraft, Operation], Total | None]] = {
    "matmul": _multiply_later,
    "sum_reduce": _sum_later,
    **dict.fromkeys((*RESHAPING, "transpose", "neg", "copy"), _apply_later),
}
