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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nnef_grad.autodiff.activity import Activity, find_activity
from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.loop_draft import LoopDraft
from nnef_grad.autodiff.rules import Derivation, Rules
from nnef_grad.autodiff.split import Cut, backward_half, find_cut, with_loops_of
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import (
    Collected,
    Loop,
    changed,
    is_loop,
    loop_of,
)
from nnef_grad.graph.names import NameSupply
from nnef_grad.ops.join import loop_shape
from nnef_grad.ops.registry import OpSet

Differentiate = Callable[..., Backward]


def linearized(
    graph: Graph,
    activity: Activity,
    rules: Rules,
    differentiate: Differentiate,
    supply: NameSupply,
) -> tuple[Graph, Activity]:
    """The graph with loops that collect what their derivatives need, called by a supply
    of names, and the activity with these derivatives.
    """
    if not any(is_loop(operation) for operation, _ in activity.operations):
        return graph, activity
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
    whole = tuple(richer.get(op.outputs, op) for op in graph.operations)
    graph = replace(graph, operations=whole, names=names)
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
        is_row = not loop.way.fits(tensor.shape)
        part = _part(emit, tensor, loop, is_row)
        if part not in outputs:
            outputs.append(part)
        saved.append(_Saved(tensor, len(collected), is_row))
        way = loop.way.in_rank(part.rank)
        collected.append(Collected(outputs.index(part), way))
    results = (tensor for op in emit.operations for tensor in op.outputs)
    taken = [names[tensor] for tensor in results if tensor in names]
    body = replace(
        loop.body,
        outputs=tuple(outputs),
        operations=tuple(emit.operations),
        names=emit.assigned_names(emit.operations, taken),
    )
    return replace(loop, body=body, collected=tuple(collected)), saved


def _part(emit: Emitter, tensor: Tensor, loop: Loop, is_row: bool) -> Tensor:
    """The collected form of a tensor: one with the axis of the loop that is no input."""
    if is_row:
        axis = min(loop.way.axis, tensor.rank)
        return emit("unsqueeze", tensor, axes=[axis], hint=f"{emit.called(tensor)}_row")
    if tensor in loop.body.inputs:
        return emit("copy", tensor, hint=f"{emit.called(tensor)}_before")
    return tensor


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
    return changed(operation, loop, operation.inputs, results)


# ---- The loop that goes back ----


class _Reverse:
    """The derivative of a loop, and the loop that saves what this needs."""

    def __init__(
        self, loop: Loop, active: _Active, differentiate: Differentiate
    ) -> None:
        self._active = active
        names = loop.body.names
        self._backward = differentiate(
            loop.body,
            wrt=[names[tensor] for tensor in active.inputs],
            outputs=[names[tensor] for tensor in active.outputs],
        )
        # It may have loops itself.
        loop = replace(loop, body=with_loops_of(loop.body, self._backward))
        cut = find_cut(loop.body, self._backward, loop.state_inputs)
        self._half = backward_half(loop.body, self._backward, cut)
        self._results = len(loop.made)
        self._names = self._backward.graph.names
        self.loop, self._saved = _saving(loop, cut, self._names)
        self._ways = dict(zip(self.loop.parts, self.loop.scanned, strict=True))

    def pull_back(
        self, emit: Emitter, operation: Operation, *received: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients of the operands, from those of the results."""
        seeds = self._backward.seeds.values()
        draft = LoopDraft(self._half, seeds, self.loop.way.reversed)
        whole = dict(zip(self.loop.body.inputs, operation.inputs, strict=True))
        self._take_known(draft, operation, whole)
        carried = self._take_seeds(draft, received)
        if not draft.scanned:
            # What is scanned tells the number of steps.
            part, way = self.loop.parts[0], self.loop.scanned[0]
            draft.scan(part, whole[part], way.reversed)
        draft.append(op for op in self._half.operations if op.name != "external")
        outputs = dict(zip(self._half.output_names, self._half.outputs, strict=True))
        gradients = {
            t: outputs[self._backward.gradients[self._names[t]]]
            for t in self._active.inputs
        }
        for state, (inside, first) in carried.items():
            new = gradients.get(state) or draft.emit("mul", inside, 0.0)
            draft.carry(inside, first, new)
        for tensor, way in self._ways.items():
            if tensor in gradients:
                draft.collect(gradients[tensor], way.reversed)
        full = dict.fromkeys(gradients[t] for t in self.loop.full if t in gradients)
        totals = {gradient: draft.plan_sum(gradient) for gradient in full}
        results = dict(draft.emitted(emit))
        results.update((t, total(emit, results)) for t, total in totals.items())
        return [
            results[gradients[t]] if t in gradients else None
            for t in self.loop.body.inputs
        ]

    def _take_known(
        self, draft: LoopDraft, operation: Operation, whole: Mapping[Tensor, Tensor]
    ) -> None:
        """Gives the body what the loop that saves has seen, and has saved."""
        loop, ways = self.loop, self._ways
        seeds = (self._half.tensors[n] for n in self._backward.seeds.values())
        others = {*seeds, *(one.tensor for one in self._saved)}
        for tensor in self._half.inputs:
            if tensor in ways:
                draft.scan(tensor, whole[tensor], ways[tensor].reversed)
            elif tensor not in others:
                draft.see(tensor, whole[tensor])
        for tensor, place, is_row in self._saved:
            scan = draft.scan_rows if is_row else draft.scan
            way = loop.collected[place].way.reversed
            scan(tensor, operation.outputs[loop.states + place], way)

    def _take_seeds(
        self, draft: LoopDraft, received: Sequence[Tensor | None]
    ) -> dict[Tensor, tuple[Tensor, Tensor | None]]:
        """Gives the body the gradients of its outputs: sums of those of the next step
        and those of what was collected. Returns for each state that has a gradient that
        of its next value in the body, and that of its last value.
        """
        loop, carried = self.loop, dict[Tensor, tuple[Tensor, Tensor | None]]()
        sources: dict[Tensor, list[Tensor]] = {t: [] for t in self._active.outputs}
        states = zip(loop.state_inputs, loop.next_values, received, strict=False)
        for state, new, last in states:
            if new in sources or state in self._active.inputs:
                inside = draft.tensor(f"grad_{self._names[new]}_after", new)
                carried[state] = inside, last
                sources.get(new, []).append(inside)
        further = zip(
            loop.collected, received[loop.states : self._results], strict=False
        )
        for (place, way), gradient in further:
            output = loop.body.outputs[place]
            if output in sources and gradient is not None:
                inside = draft.tensor(f"grad_{self._names[output]}_out", output)
                draft.scan(inside, gradient, way.reversed)
                sources[output].append(inside)
        for output, gradients in sources.items():
            seed = self._backward.seeds[self._names[output]]
            draft.sum(self._half.tensors[seed], gradients)
        return carried
