"""The derivative of a loop: a loop from its end to its beginning.

    h = scan(f, h, x)       h, r       = scan(f', h, x)       f' returns what f* needs, too
                            dh, dw, dx = scan(f*, dh, r)      from the last step to the first

The body of the second one, f*, is the second half of the derivative of the body. What it
needs of the first half, the loop collects as well: a minimum cut, as for any two halves. The
gradient of a state is a state; that of what is scanned is collected; that of what the body
sees whole at each step is a state to which each step adds. Since this is a loop again,
it has a derivative again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

from nnef_grad.autodiff.activity import Activity, find_activity
from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Derivation, Rules
from nnef_grad.autodiff.split import Cut, backward_half, find_cut, with_loops_of
from nnef_grad.emit.bodies import emit_loop
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operation, Shape, Tensor
from nnef_grad.graph.loops import (
    Collected,
    Loop,
    ScanAxis,
    as_loop,
    external,
    is_loop,
    loop_of,
)
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.graph.rewriting import substitute, sweep
from nnef_grad.ops.join import loop_shape
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.traits import RESHAPING


def linearized(
    graph: Graph,
    activity: Activity,
    rules: Rules,
    differentiate: Callable[..., Backward],
    supply: NameSupply,
) -> tuple[Graph, Activity]:
    """The graph with loops that collect what their derivatives need, called by a supply
    of names, and the activity with these derivatives.
    """
    richer: dict[tuple[Tensor, ...], Operation] = {}
    names = dict(graph.names)
    operations: list[tuple[Operation, Derivation]] = []
    for operation, derivation in activity.operations:
        if is_loop(operation):
            active = _active(operation, activity.tensors, rules)
            if not active.inputs:
                continue
            reverse = _Reverse(loop_of(operation), active, differentiate)
            saving = _with_results(operation, reverse.loop, names, supply)
            richer[operation.outputs] = saving
            derivation = Derivation(vjp=reverse.pull_back, is_traced=False)
            operation = saving
        operations.append((operation, derivation))
    graph = sweep(replace(graph, names=names), lambda op: richer.get(op.outputs, op))
    return graph, Activity(activity.tensors, operations)


# ---- What gradients flow through ----


class _Active(NamedTuple):
    """The inputs that a body is differentiated by, and the outputs with gradients."""

    inputs: list[Tensor]
    outputs: list[Tensor]


def _active(operation: Operation, active: set[Tensor], rules: Rules) -> _Active:
    """The part of the body that gradients flow through, from step to step."""
    loop = loop_of(operation)
    body, steps = loop.body, [*zip(loop.state_inputs, loop.next_values, strict=True)]
    pairs = zip(body.inputs, operation.inputs, strict=True)
    moving = [t for t, operand in pairs if operand in active]
    reached, flows, more = set[Tensor](), set[Tensor](), [*moving]
    while more:
        reached = find_activity(body, moving, body.outputs, rules).tensors
        more = [s for s, new in steps if new in reached and s not in moving]
        moving += more
    pairs = zip(loop.made, operation.outputs, strict=True)
    seeded = [t for t, result in pairs if result in active and t in reached]
    more = [*seeded]
    while more:
        flows = find_activity(body, moving, seeded, rules).tensors
        onward = (new for state, new in steps if state in flows and new in reached)
        more = [new for new in onward if new not in seeded]
        seeded += more
    inputs = [t for t in body.inputs if t in moving and t in flows]
    return _Active(inputs, [*dict.fromkeys(seeded)])


# ---- The loop that saves ----


class _Saved(NamedTuple):
    """A tensor of the body that the second loop gets from the first, where it is among
    what is collected, and whether it got an axis more, to be put side by side along.
    """

    tensor: Tensor
    place: int
    is_row: bool


def _saving(
    loop: Loop, cut: Cut, names: Mapping[Tensor, str]
) -> tuple[Loop, list[_Saved]]:
    """The loop that collects what is saved, too, and where that is."""
    outputs, collected = [*loop.body.outputs], [*loop.collected]
    emit = Emitter(OpSet().extended(loop.body.fragments), names)
    for op in (*loop.body.operations, *cut.movable):
        emit.append(op)
    saved = []
    for tensor in cut.saved:
        gathered = [outputs[one.output] for one in collected]
        if tensor in gathered:
            saved.append(_Saved(tensor, gathered.index(tensor), False))
            continue
        part, is_row = tensor, not loop.along.fits(tensor.shape)
        if is_row:
            part = _row(emit, tensor, min(loop.along.axis, tensor.rank))
        elif tensor in loop.body.inputs:
            part = emit("copy", tensor, hint=f"{emit.called(tensor)}_before")
        if part not in outputs:
            outputs.append(part)
        saved.append(_Saved(tensor, len(collected), is_row))
        # Along the last axis where there are fewer.
        along = loop.along._replace(axis=min(loop.along.axis, part.rank - 1))
        collected.append(Collected(outputs.index(part), along))
    operations = tuple(emit.operations)
    taken = [names[t] for op in operations for t in op.outputs if t in names]
    assigned = emit.assigned_names(operations, taken)
    body = replace(loop.body, operations=operations, names=assigned)
    body = replace(body, outputs=tuple(outputs))
    return replace(loop, body=body, collected=tuple(collected)), saved


def _row(emit: Emitter, tensor: Tensor, axis: int) -> Tensor:
    return emit("unsqueeze", tensor, axes=[axis], hint=f"{emit.called(tensor)}_row")


def _with_results(
    operation: Operation, loop: Loop, names: dict[Tensor, str], supply: NameSupply
) -> Operation:
    """The operation as a loop that has further results, which get names."""
    whole = loop_shape(*(t.shape for t in operation.inputs), loop=loop)
    shapes = whole if isinstance(whole, list) else [whole]
    results = [*operation.outputs]
    for part, shape in [*zip(loop.made, shapes, strict=True)][len(results) :]:
        results.append(Tensor(part.dtype, shape))
        names[results[-1]] = supply.fresh(f"{loop.body.names[part]}_steps")
    return as_loop(operation, loop, operation.inputs, results)


# ---- The loop that goes back ----


class _Reverse:
    """The derivative of a loop, and the loop that saves what this needs."""

    def __init__(
        self, loop: Loop, active: _Active, differentiate: Callable[..., Backward]
    ) -> None:
        self._active = active
        wrt, outputs = ([loop.body.names[t] for t in ends] for ends in active)
        self._backward = differentiate(loop.body, wrt=wrt, outputs=outputs)
        # It may have loops itself.
        loop = replace(loop, body=with_loops_of(loop.body, self._backward))
        cut = find_cut(loop.body, self._backward, loop.state_inputs)
        self._half = backward_half(loop.body, self._backward, cut)
        self._results = len(loop.made)
        self._names = self._backward.graph.names
        self.loop, self._saved = _saving(loop, cut, self._names)
        self._scan_axes = dict(zip(self.loop.parts, self.loop.scanned, strict=True))

    def pull_back(
        self, emit: Emitter, operation: Operation, *received: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients of the operands, from those of the results."""
        seeds = self._backward.seeds.values()
        builder = LoopBuilder(self._half, seeds, self.loop.along.reversed)
        whole = dict(zip(self.loop.body.inputs, operation.inputs, strict=True))
        self._take_known(builder, operation, whole)
        carried = self._take_seeds(builder, received)
        if not builder.scanned:
            # What is scanned tells the number of steps.
            part, along = self.loop.parts[0], self.loop.scanned[0]
            builder.scan(part, whole[part], along.reversed)
        builder.append(op for op in self._half.operations if op.name != "external")
        outputs, names = self._half.tensors, self._backward.gradients
        gradients = {t: outputs[names[self._names[t]]] for t in self._active.inputs}
        for state, (inside, first) in carried.items():
            new = gradients.get(state) or builder.emit("mul", inside, 0.0)
            builder.states.append(_State(new, inside, first, new))
        for tensor, along in self._scan_axes.items():
            if tensor in gradients:
                builder.collected[gradients[tensor]] = gradients[tensor], along.reversed
        full = dict.fromkeys(gradients[t] for t in self.loop.full if t in gradients)
        totals = {gradient: builder.plan_sum(gradient) for gradient in full}
        results = dict(builder.emitted(emit))
        results.update((t, total(emit, results)) for t, total in totals.items())
        inputs = self.loop.body.inputs
        return [results[gradients[t]] if t in gradients else None for t in inputs]

    def _take_known(
        self, builder: LoopBuilder, operation: Operation, whole: Mapping[Tensor, Tensor]
    ) -> None:
        """Gives the body what the loop that saves has seen, and has saved."""
        loop, scan_axes = self.loop, self._scan_axes
        seeds = (self._half.tensors[n] for n in self._backward.seeds.values())
        others = {*seeds, *(one.tensor for one in self._saved)}
        for tensor in self._half.inputs:
            if tensor in scan_axes:
                builder.scan(tensor, whole[tensor], scan_axes[tensor].reversed)
            elif tensor not in others:
                builder.see(tensor, whole[tensor])
        for tensor, place, is_row in self._saved:
            scan = builder.scan_rows if is_row else builder.scan
            along = loop.collected[place].along.reversed
            scan(tensor, operation.outputs[loop.states + place], along)

    def _take_seeds(
        self, builder: LoopBuilder, received: Sequence[Tensor | None]
    ) -> dict[Tensor, tuple[Tensor, Tensor | None]]:
        """Gives the body the gradients of its outputs: sums of those of the next step and
        of what was collected. Returns those of the next and the last values of states.
        """
        loop, carried = self.loop, dict[Tensor, tuple[Tensor, Tensor | None]]()
        sources: dict[Tensor, list[Tensor]] = {t: [] for t in self._active.outputs}
        states = zip(loop.state_inputs, loop.next_values, received, strict=False)
        for state, new, last in states:
            if new in sources or state in self._active.inputs:
                inside = builder.tensor(f"grad_{self._names[new]}_after", new)
                carried[state] = inside, last
                sources.get(new, []).append(inside)
        further = received[loop.states : self._results]
        for (place, along), gradient in zip(loop.collected, further, strict=False):
            output = loop.body.outputs[place]
            if output in sources and gradient is not None:
                inside = builder.tensor(f"grad_{self._names[output]}_out", output)
                builder.scan(inside, gradient, along.reversed)
                sources[output].append(inside)
        for output, gradients in sources.items():
            seed = self._backward.seeds[self._names[output]]
            builder.sum(self._half.tensors[seed], gradients)
        return carried


# ---- The loop that goes back ----
#
#     loop:  w' = w + transpose(h) * d        after it:  w = transpose(H) * D
#
# The gradient of a weight is a sum over all steps of products. Where the loop collects the
# factors, H and D, it is one product, which is longer: a step has nothing to add up.

# The results of a loop, by what they were carried, added up or collected as.
Results = Mapping[object, Tensor]
# Emits a sum over all steps, given the results of the loop.
Total = Callable[[Emitter, Results], Tensor]


class Stack(NamedTuple):
    """The values of a tensor of the body at all steps, in the order of the loop, along an
    axis: a tensor that is there, or what the loop collects under a key.
    """

    key: Any
    axis: int


class _State(NamedTuple):
    """What the last value is found by, the input, the first value or zeros, the next."""

    key: Tensor
    inside: Tensor
    first: Tensor | None
    new: Tensor


class LoopBuilder:
    """A loop that is put together around the second half of a body's derivative."""

    def __init__(self, half: Graph, seeds: Collection[str], along: ScanAxis) -> None:
        self.emit = Emitter(OpSet().extended(half.fragments), half.names)
        self._half, self._along = half, along
        self._supply = NameSupply(half.tensors.keys() - {*seeds})
        # What stands for a tensor of the half.
        self._replaced: dict[Tensor, Tensor] = {}
        self._full: list[tuple[Tensor, Tensor]] = []
        self.states: list[_State] = []
        self.scanned: list[tuple[Tensor, Tensor, ScanAxis]] = []
        # What is put side by side, by what it is found by.
        self.collected: dict[object, tuple[Tensor, ScanAxis]] = {}

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

    def scan(self, inside: Tensor, whole: Tensor, along: ScanAxis) -> None:
        """Lets the body see a part of a tensor."""
        self.scanned.append((self._input(inside), whole, along))

    def scan_rows(self, inside: Tensor, whole: Tensor, along: ScanAxis) -> None:
        """Lets the body see a row of a tensor, without the axis of the rows."""
        shape = (*inside.shape[: along.axis], 1, *inside.shape[along.axis :])
        like = replace(inside, shape=shape)
        row = self.tensor(f"{self.emit.called(inside)}_row", like)
        self.emit.emit_to(inside, "squeeze", row, axes=[along.axis])
        self.scan(row, whole, along)

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

    def stacked(self, tensor: Tensor) -> Stack | None:
        """The values of a tensor at all steps, if the loop sees or collects them."""
        tensor = self._replaced.get(tensor, tensor)
        squeezed = self.emit.made_by(tensor, "squeeze")
        parts = (tensor, *(squeezed.inputs if squeezed else ()))
        collected = (
            (part, key, along) for key, (part, along) in self.collected.items()
        )
        for part, key, along in (*self.scanned, *collected):
            if part in parts and along.direction == self._along.direction:
                return Stack(key, along.axis)
        return None

    def stack(self, tensor: Tensor) -> Stack | None:
        """The same: the loop collects them, if they are made in its body."""
        stacked = self.stacked(tensor)
        tensor = self._replaced.get(tensor, tensor)
        producer = self.emit.producer(tensor)
        if stacked is not None or producer is None or producer.name == "external":
            return stacked
        gathered = {part for part, _ in self.collected.values()}
        is_row = tensor in gathered or not self._along.fits(tensor.shape)
        axis = min(self._along.axis, tensor.rank)
        part = _row(self.emit, tensor, axis) if is_row else tensor
        key = tensor, "steps"
        self.collected[key] = part, ScanAxis(axis, self._along.direction)
        return Stack(key, axis)

    def plan_sum(self, tensor: Tensor) -> Total:
        """The sum over all steps: after the loop, if that is better, or inside of it."""
        if (later := _total(self, tensor)) is not None:
            return later
        name = self.emit.called(tensor)
        before = self.tensor(f"{name}_before", tensor)
        total = self.emit("add", before, tensor, hint=f"{name}_sum")
        self.states.append(_State(tensor, before, None, total))
        return lambda emit, results: results[tensor]

    def emitted(self, emit: Emitter) -> Results:
        """Emits the loop, and returns its results."""
        states, collected = self.states, self.collected
        zeros = partial(emit, "constant", value=(0.0,), hint="zeros")
        firsts = ((s.inside, s.first or zeros(shape=s.inside.shape)) for s in states)
        seen = [*self._full, *firsts, *(pair for *pair, _ in self.scanned)]
        inputs, operands = zip(*seen, strict=True)
        news, parts = (s.new for s in states), (part for part, _ in collected.values())
        operations = tuple(self.emit.operations)
        names = self.emit.assigned_names(operations, self._supply.taken)
        outputs, notes = (*news, *parts), self._half.notes
        body = Graph(self._half.name, inputs, outputs, operations, names, notes=notes)
        scan_axes = enumerate((along for _, along in collected.values()), len(states))
        loop = Loop(
            put_inputs_first(body),
            len(states),
            tuple(along for *_, along in self.scanned),
            tuple(Collected(place, along) for place, along in scan_axes),
        )
        keys = [*(state.key for state in states), *collected]
        hints = tuple(map(self._hint, keys))
        return dict(zip(keys, emit_loop(emit, loop, operands, hints), strict=True))

    def _hint(self, key: object) -> str:
        tensor, *suffix = key if isinstance(key, tuple) else (key,)
        return "_".join([self.emit.called(tensor), *suffix])


# ---- Sums over the steps ----


def _total(builder: LoopBuilder, tensor: Tensor) -> Total | None:
    """The sum of a tensor of the body over all steps, if it is better computed after it."""
    if (stack := builder.stacked(tensor)) is not None:
        return _summed(stack, tensor.shape, ())
    producer = builder.emit.made_by(tensor, *_PLANS)
    return None if producer is None else _PLANS[producer.name](builder, producer)


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


def _sum_later(builder: LoopBuilder, op: Operation) -> Total | None:
    """A sum over axes: they are summed together with the steps."""
    (x,) = op.inputs
    stack = None if op.attributes["normalize"] else builder.stack(x)
    return None if stack is None else _summed(stack, x.shape, op.attributes["axes"])


def _multiply_later(builder: LoopBuilder, op: Operation) -> Total | None:
    """A product of matrices: the axis that it sums is as long as that of all steps."""
    left, right = op.inputs
    if prod(left.shape[:-2]) != 1 or prod(right.shape[:-2]) != 1:
        return None
    stacks = builder.stack(left), builder.stack(right)
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


def _apply_later(builder: LoopBuilder, op: Operation) -> Total | None:
    """A linear operation, of the sum of its operand."""
    (x,) = op.inputs
    inner = _total(builder, x)
    if inner is None:
        return None

    def total(emit: Emitter, results: Results) -> Tensor:
        return emit(op.name, inner(emit, results), **op.settings)

    return total


_PLANS: dict[str, Callable[[LoopBuilder, Operation], Total | None]] = {
    "matmul": _multiply_later,
    "sum_reduce": _sum_later,
    **dict.fromkeys((*RESHAPING, "transpose", "neg", "copy"), _apply_later),
}
