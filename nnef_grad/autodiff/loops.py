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

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nnef_grad.autodiff.activity import Activity, find_activity
from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Derivation, Rules
from nnef_grad.autodiff.split import Cut, backward_half, find_cut
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.loops import emit_loop
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import (
    SCAN,
    Collected,
    Loop,
    Way,
    changed,
    external,
    loop_of,
)
from nnef_grad.graph.names import NameSupply, assign_names, substitute
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.ops.loops import loop_shape
from nnef_grad.ops.opset import OpSet

Differentiate = Callable[..., Backward]


def linearized(
    graph: Graph,
    activity: Activity,
    rules: Rules,
    differentiate: Differentiate,
    supply: NameSupply,
) -> tuple[Graph, Activity]:
    """The graph with loops that collect what their derivatives need, and the activity
    with these derivatives.

    Args:
        graph: the forward graph.
        activity: its activity.
        rules: the rules.
        differentiate: makes the backward graph of a body.
        supply: names the tensors that are collected besides.
    """
    richer: dict[tuple[Tensor, ...], Operation] = {}
    operations: list[tuple[Operation, Derivation]] = []
    for operation, derivation in activity.operations:
        if operation.name == SCAN:
            active = _active(operation, activity.tensors, rules)
            reverse = _Reverse(loop_of(operation), active, differentiate)
            saving = _with_results(operation, reverse.loop, supply)
            richer[operation.outputs] = saving
            derivation = Derivation(vjp=reverse.pull_back, is_traced=False)
            operation = saving
        operations.append((operation, derivation))
    if not richer:
        return graph, activity
    whole = tuple(richer.get(op.outputs, op) for op in graph.operations)
    graph = replace(graph, operations=whole)
    return graph, Activity(activity.tensors, operations)


# ---- What gradients flow through ----


class _Active(NamedTuple):
    """What gradients flow through in the body of a loop.

    Attributes:
        inputs: those that it is differentiated with respect to.
        outputs: those that have a gradient.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]


def _active(operation: Operation, active: set[str], rules: Rules) -> _Active:
    """What gradients flow through, from step to step, where some of the operands and the
    results of the loop are active.
    """
    loop = loop_of(operation)
    body, steps = loop.body, [*zip(loop.state_inputs, loop.next_values, strict=True)]
    pairs = zip(body.inputs, operation.inputs, strict=True)
    moving = [t for t, operand in pairs if operand.name in active]
    while True:
        reached = find_activity(body, moving, body.outputs, rules).tensors
        more = [s for s, new in steps if new.name in reached and s not in moving]
        if not more:
            break
        moving += more
    made = zip(operation.outputs, loop.made, strict=True)
    seeded = dict.fromkeys(
        t for result, t in made if result.name in active and t.name in reached
    )
    while True:
        flows = find_activity(body, moving, seeded, rules).tensors
        further = [
            new
            for state, new in steps
            if state.name in flows and new.name in reached and new not in seeded
        ]
        if not further:
            break
        seeded.update(dict.fromkeys(further))
    return _Active([t for t in body.inputs if t in moving and t.name in flows], [*seeded])


# ---- The loop that saves ----


class _Saved(NamedTuple):
    """What the second loop gets of the first.

    Attributes:
        tensor: the tensor of the body.
        place: where it is among what is collected.
        is_row: whether it got an axis more, to be put side by side along.
    """

    tensor: Tensor
    place: int
    is_row: bool


def _saving(loop: Loop, cut: Cut) -> tuple[Loop, list[_Saved]]:
    """The loop that collects what is saved, too, and where that is."""
    outputs, collected = [*loop.body.outputs], [*loop.collected]
    emit = Emitter(OpSet().extended(loop.body.fragments))
    for op in (*loop.body.operations, *cut.movable):
        emit.append(op)
    saved = []
    for tensor in cut.saved:
        known = [i for i, one in enumerate(collected) if outputs[one.output] == tensor]
        is_row = not known and 1 not in tensor.shape
        if not known:
            part = _part(emit, tensor, loop.body.inputs)
            if part not in outputs:
                outputs.append(part)
            axis = 0 if is_row else tensor.shape.index(1)
            collected.append(Collected(outputs.index(part), Way(axis)))
        place = known[0] if known else len(collected) - 1
        saved.append(_Saved(tensor, place, is_row))
    body = replace(
        loop.body, outputs=tuple(outputs), operations=tuple(emit.operations)
    )
    assign_names(body, emit.hints, emit.pinned, {*body.tensors})
    return replace(loop, body=body, collected=tuple(collected)), saved


def _part(emit: Emitter, tensor: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """What is collected of a tensor: one with an axis of extent 1 that is no input."""
    if 1 not in tensor.shape:
        return emit("unsqueeze", tensor, axes=[0], hint=f"{tensor.name}_row")
    if tensor in inputs:
        return emit("copy", tensor, hint=f"{tensor.name}_before")
    return tensor


def _with_results(operation: Operation, loop: Loop, supply: NameSupply) -> Operation:
    """The operation as a loop that has further results."""
    known = operation.outputs
    whole = loop_shape(*(t.shape for t in operation.inputs), loop=loop)
    shapes = whole if isinstance(whole, list) else [whole]
    further = (
        Tensor(supply.fresh(f"{known[0].name}_{made.name}"), made.dtype, shape)
        for made, shape in [*zip(loop.made, shapes, strict=True)][len(known) :]
    )
    return changed(operation, loop, operation.inputs, (*known, *further))


# ---- The loop that goes back ----


class _Reverse:
    """The derivative of a loop.

    Attributes:
        loop: the loop that saves what the other one needs.
    """

    def __init__(
        self, loop: Loop, active: _Active, differentiate: Differentiate
    ) -> None:
        self._active = active
        self._backward = differentiate(
            loop.body,
            wrt=[t.name for t in active.inputs],
            outputs=[t.name for t in active.outputs],
        )
        cut = find_cut(loop.body, self._backward, loop.state_inputs)
        self._half = backward_half(loop.body, self._backward, cut)
        self._results = len(loop.made)
        self.loop, self._saved = _saving(loop, cut)

    def pull_back(
        self, emit: Emitter, operation: Operation, *received: Tensor | None
    ) -> list[Tensor | None]:
        """The gradients of the operands, from those of the results."""
        draft = _Draft(self._half, self._backward.seeds.values())
        self._take_known(draft, operation)
        carried = self._take_seeds(draft, received)
        draft.append(op for op in self._half.operations if op.name != "external")
        gradients = self._gradients()
        for state, (inside, first) in carried.items():
            made = gradients.get(state)
            draft.carry(inside, first, made or draft.emit("mul", inside, 0.0))
        for tensor in self.loop.full:
            if tensor in gradients:
                draft.add_up(gradients[tensor])
        ways = dict(zip(self.loop.parts, self.loop.scanned, strict=True))
        for tensor, way in ways.items():
            if tensor in gradients:
                draft.collect(gradients[tensor], way.reversed)
        results = draft.emitted(emit)
        return [
            results.get(gradients[t].name) if t in gradients else None
            for t in self.loop.body.inputs
        ]

    def _gradients(self) -> dict[Tensor, Tensor]:
        """The gradients that a step makes, by the input of the body."""
        made = {t.name: t for t in self._half.outputs}
        names = self._backward.gradients
        return {t: made[names[t.name]] for t in self._active.inputs}

    def _take_known(self, draft: _Draft, operation: Operation) -> None:
        """Gives the body what the loop that saves has seen, and has saved."""
        loop = self.loop
        given = dict(zip(loop.body.inputs, operation.inputs, strict=True))
        ways = dict(zip(loop.parts, loop.scanned, strict=True))
        others = {one.tensor.name for one in self._saved}
        others |= set(self._backward.seeds.values())
        for tensor in self._half.inputs:
            if tensor in ways:
                draft.scan(tensor, given[tensor], ways[tensor].reversed)
            elif tensor.name not in others:
                draft.see(tensor, given[tensor])
        for tensor, place, is_row in self._saved:
            whole = operation.outputs[loop.states + place]
            scan = draft.scan_rows if is_row else draft.scan
            scan(tensor, whole, loop.collected[place].way.reversed)

    def _take_seeds(
        self, draft: _Draft, received: Sequence[Tensor | None]
    ) -> dict[Tensor, tuple[Tensor, Tensor | None]]:
        """Gives the body the gradients of its outputs: sums of those of the next step and
        those of what was collected.

        Returns:
            For each state that has a gradient, the gradient of its next value in the body,
            and that of its last value.
        """
        loop, carried = self.loop, dict[Tensor, tuple[Tensor, Tensor | None]]()
        sources: dict[Tensor, list[Tensor]] = {t: [] for t in self._active.outputs}
        states = zip(loop.state_inputs, loop.next_values, received, strict=False)
        for state, new, last in states:
            if new in sources or state in self._active.inputs:
                inside = draft.tensor(f"grad_{new.name}_after", new)
                carried[state] = inside, last
                sources.get(new, []).append(inside)
        for (output, way), gradient in zip(
            loop.collected, received[loop.states : self._results], strict=False
        ):
            made = loop.body.outputs[output]
            if made in sources and gradient is not None:
                inside = draft.tensor(f"grad_{made.name}_out", made)
                draft.scan(inside, gradient, way.reversed)
                sources[made].append(inside)
        inputs = {t.name: t for t in self._half.inputs}
        for output, seed in self._backward.seeds.items():
            draft.sum(inputs[seed], sources[loop.body.tensors[output]])
        return carried


class _Draft:
    """A loop that is put together around the second half of a derivative.

    Attributes:
        emit: emits the operations of its body.
    """

    def __init__(self, half: Graph, seeds: Collection[str]) -> None:
        self.emit = Emitter(OpSet().extended(half.fragments))
        self._half = half
        self._supply = NameSupply(half.tensors.keys() - {*seeds})
        # What stands for a tensor of the half.
        self._replaced: dict[Tensor, Tensor] = {}
        self._full: list[tuple[Tensor, Tensor]] = []
        self._states: list[tuple[Tensor, Tensor | None, Tensor]] = []
        self._scanned: list[tuple[Tensor, Tensor, Way]] = []
        self._collected: list[tuple[Tensor, Way]] = []
        # The names of the results.
        self._names: list[str] = []

    def tensor(self, wish: str, like: Tensor) -> Tensor:
        """A new input of the body, like another tensor."""
        return self._input(replace(like, name=self._supply.fresh(wish)))

    def _input(self, tensor: Tensor) -> Tensor:
        if not self.emit.knows(tensor):
            self.emit.append(external(tensor))
        return tensor

    def see(self, inside: Tensor, whole: Tensor) -> None:
        """Lets the body see a tensor whole."""
        self._full.append((self._input(inside), whole))

    def scan(self, inside: Tensor, whole: Tensor, way: Way) -> None:
        """Lets the body see a part of a tensor."""
        self._scanned.append((self._input(inside), whole, way))

    def scan_rows(self, inside: Tensor, whole: Tensor, way: Way) -> None:
        """Lets the body see a row of a tensor, without the axis of the rows."""
        like = replace(inside, shape=(1, *inside.shape))
        row = self.tensor(f"{inside.name}_row", like)
        self._replaced[inside] = self.emit("squeeze", row, axes=[0], hint=inside.name)
        self.scan(row, whole, way)

    def sum(self, tensor: Tensor, sources: Sequence[Tensor]) -> None:
        """Puts a sum in the place of a tensor of the half."""
        total = sources[0] if sources else None
        for source in sources[1:]:
            total = self.emit("add", total, source, hint=tensor.name)
        if total is None:
            total = self.emit("constant", shape=tensor.shape, value=(0.0,))
        self._replaced[tensor] = total

    def append(self, operations: Iterable[Operation]) -> None:
        """Appends operations of the half."""
        for operation in operations:
            self.emit.append(substitute(operation, self._replaced))

    def carry(self, inside: Tensor, first: Tensor | None, new: Tensor) -> None:
        """Makes an input a state, whose first value is zeros if it is not given."""
        self._states.append((inside, first, new))
        self._names.append(new.name)

    def add_up(self, gradient: Tensor) -> None:
        """Adds a tensor up, over all steps."""
        before = self.tensor(f"{gradient.name}_before", gradient)
        total = self.emit("add", before, gradient, hint=f"{gradient.name}_sum")
        self._states.append((before, None, total))
        self._names.append(gradient.name)

    def collect(self, gradient: Tensor, way: Way) -> None:
        """Puts a tensor of all steps side by side."""
        self._collected.append((gradient, way))
        self._names.append(gradient.name)

    def emitted(self, emit: Emitter) -> dict[str, Tensor]:
        """Emits the loop, and returns its results, by the names of what is carried, added
        up or collected.
        """
        inputs = [t for t, *_ in (*self._full, *self._states, *self._scanned)]
        outputs = [new for _, _, new in self._states]
        outputs += [part for part, _ in self._collected]
        body = Graph(
            self._half.name,
            tuple(inputs),
            tuple(outputs),
            tuple(self.emit.operations),
            notes=self._half.notes,
        )
        assign_names(body, self.emit.hints, self.emit.pinned, self._supply.taken)
        count = len(self._states)
        loop = Loop(
            put_inputs_first(body),
            count,
            tuple(way for *_, way in self._scanned),
            tuple(Collected(count + i, way) for i, (_, way) in enumerate(self._collected)),
        )
        operands = [
            *(whole for _, whole in self._full),
            *(first or _zeros(emit, t) for t, first, _ in self._states),
            *(whole for _, whole, _ in self._scanned),
        ]
        results = emit_loop(emit, loop, operands, tuple(self._names))
        return dict(zip(self._names, results, strict=True))


def _zeros(emit: Emitter, like: Tensor) -> Tensor:
    return emit("constant", shape=like.shape, value=(0.0,), hint="zeros")
