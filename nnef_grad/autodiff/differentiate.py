"""Reverse-mode differentiation: a forward graph to its backward graph.

The sweep walks the operations from the last to the first. For each it asks the rule for
the gradients of the operands, sums them down to the operands' shapes (`unbroadcast`,
the one place where a broadcast is undone) and adds them to what the operands have
received from their other uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import accumulate, chain
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from nnef_grad.autodiff.activity import (
    CONCAT,
    Activity,
    find_activity,
    no_derivative,
    of_shared_parts,
)
from nnef_grad.autodiff.backward import (
    Backward,
    Broadcast,
    Wrt,
    differentiated_outputs,
    finished,
    large_matrices,
    scalars_named,
    wrt_tensors,
)
from nnef_grad.autodiff.confine import Confinement
from nnef_grad.autodiff.example_axes import Axes, PerExample, axes_of
from nnef_grad.autodiff.gradient_names import GradientNames, step_name
from nnef_grad.autodiff.rules import (
    Derivation,
    Gradients,
    Rules,
    Traces,
    pull_back,
    structural_key,
)
from nnef_grad.base.errors import (
    InvalidGraphError,
    NoDerivativeError,
    UsageError,
    listed,
    located,
    refuse_unknown,
)
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import inline
from nnef_grad.emit.rule_results import check_gradients, is_reducible
from nnef_grad.emit.simplify import simplify, without_detours
from nnef_grad.graph.extents import OpenExtentError
from nnef_grad.graph.ir import (
    Graph,
    Operation,
    Shape,
    Tensor,
    map_tensors,
    tensors,
)
from nnef_grad.graph.loops import is_loop
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.quotients import exact_quotient
from nnef_grad.ops.registry import Rule

if TYPE_CHECKING:
    from nnef_grad.autodiff.per_example import Separation

_ZEROS = "their gradients are zeros"


@public
@collector_paused()
def differentiate(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    seed: Literal["input", "ones"] = "input",
    with_outputs: bool = False,
    also: Sequence[str] = (),
    recompute: float | None = None,
    per_example: PerExample = False,
    rules: Rules | None = None,
) -> Backward:
    """The vector-Jacobian product of a graph, as a graph.

    Args:
        graph: the forward graph.
        wrt: the tensors to differentiate with respect to: "inputs", "variables", "all"
            (both), or names of scalar tensors.
        outputs: the outputs to differentiate; by default, all scalar ones.
        stop: tensors to treat as constants: no gradient flows through them.
        seed: "input" takes the gradient of each output as an input of its shape; "ones"
            uses ones, so that the result is the gradient of the sum of all output
            elements.
        with_outputs: whether the backward graph also returns the forward outputs, after
            the gradients.
        also: other tensors of the forward graph to return, after these.
        recompute: the most memory for what is alive at a time, as in
            `nnef_grad.recompute`: tensors are computed again instead of kept.
        per_example: whether axis 0 of all inputs and outputs counts examples, for each of
            which there is a gradient of what they share, such as a variable: it gets a
            leading axis. `{"x": 1, "u": None}`: axis 1 of x does, and all share u.
        rules: your own rules, if any.

    Returns:
        The backward graph. A gradient has the shape of its tensor.

    Raises:
        UsageError: a name is unknown or has no gradient, a rule is for an unknown
            operation, or the axis of an input or output does not count examples.
        NoDerivativeError: operations between outputs and `wrt` have no derivative, all of
            which the error names, or examples meet in them.
    """
    rules = rules if rules is not None else Rules()
    rules.refuse_unknown(graph.custom_operations)
    targets = wrt_tensors(graph, wrt)
    sources = differentiated_outputs(graph, outputs)
    if seed not in ("input", "ones"):
        raise UsageError(f"the seed is 'input' or 'ones', not '{seed}'")
    stopped = scalars_named(graph, graph.tensors, stop, "tensor") if stop else ()
    _refuse_returned(graph, also)
    returned = dict.fromkeys((*(graph.output_names if with_outputs else ()), *also))
    sweep = _Sweep(graph, targets, sources, stopped, rules, [*returned], per_example)
    backward = sweep.run(seed == "ones")
    if sweep.axes and any(rules.is_own(op.name) for op in sweep.graph.operations):
        from nnef_grad.autodiff.examples import refuse_meeting

        refuse_meeting(backward, rules.opset)
    if recompute is None:
        return backward
    from nnef_grad.autodiff.recompute import within

    return within(backward, recompute)


def _refuse_returned(graph: Graph, names: Sequence[str]) -> None:
    """Refuses names of what a graph does not compute."""
    refuse_unknown(names, graph.tensors, "the graph has no tensor")
    for name in names:
        if name in graph.input_names:
            raise UsageError(f"'{name}' is an input: what is computed can be returned")


def unbroadcast(emit: Emitter, gradient: Tensor, shape: Shape) -> list[Tensor]:
    """The gradient of an operand, from the gradient of the result that the operand was
    broadcast to: the steps to it, the last of which it is.

    Shapes align from the left: it is summed over the axes where the operand has extent
    1 or no axis, then the axes that the operand does not have are squeezed. Nothing is
    emitted where nothing was broadcast, and an axis of extent 1 is not summed.
    """
    rank = len(shape)
    extended = shape + (1,) * (gradient.rank - rank)
    pairs = enumerate(zip(gradient.shape, extended, strict=True))
    axes = [axis for axis, (whole, part) in pairs if whole != 1 and part == 1]
    steps = [gradient]
    if axes:
        steps.append(emit("sum_reduce", steps[-1], axes=axes))
    if gradient.rank > rank:
        steps.append(emit("squeeze", steps[-1], axes=list(range(rank, gradient.rank))))
    if steps[-1].shape != shape:
        steps.append(_open_sums(emit, steps[-1], shape))
    return steps


def _open_sums(emit: Emitter, gradient: Tensor, shape: Shape) -> Tensor:
    """The sums along axes that an operand has with an extent that is 1 or the whole one: these
    are divided by it, and what remains is summed, one element or all of them.
    """
    pairs = [*zip(gradient.shape, shape, strict=True)]
    groups = [
        (n,) if n == part else (part, exact_quotient(n, part)) for n, part in pairs
    ]
    ends = accumulate(map(len, groups))
    axes = [end - 1 for end, group in zip(ends, groups, strict=True) if len(group) == 2]
    apart = emit("reshape", gradient, shape=tuple(chain(*groups)), hint="apart")
    sums = emit("sum_reduce", apart, axes=axes, hint="sums")
    return emit("squeeze", sums, axes=axes)


def _add(emit: Emitter, inputs: Sequence[Tensor]) -> tuple[Tensor]:
    return (emit("add", *inputs),)


class _Sweep:
    """One differentiation: what tensors have received so far, and what was emitted."""

    def __init__(
        self,
        graph: Graph,
        wrt: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        stopped: tuple[Tensor, ...],
        rules: Rules,
        returned: Sequence[str],
        per_example: PerExample,
    ) -> None:
        self.wrt, self.outputs, self.stopped = wrt, outputs, stopped
        self.rules, self.named = rules, frozenset((*wrt, *stopped))
        self.returned = returned
        own = (op.outputs for op in graph.operations if rules.is_own(op.name))
        opset = rules.opset.extended(graph.fragments)
        kept = {graph.tensors[name] for name in returned} if returned else ()
        graph = without_detours(graph, self.named.union(kept, *own))
        self.axes: Axes = {}
        if per_example is not False:
            from nnef_grad.autodiff.examples import without_loops

            self.axes = axes_of(graph, outputs, per_example)
            graph = without_loops(graph, opset)
        self.supply = NameSupply(graph.tensors)
        # The numbers of a rule do not depend on a constant that is equal to them.
        constants = (op.outputs for op in graph.operations if op.name == "constant")
        distinct = frozenset(t for tensors in constants for t in tensors)
        self.graph, self.activity = self._decompose(graph, self.named | distinct)
        self.confinement = Confinement()
        self.emit = Emitter(
            opset, self.graph.names, simplify, self.confinement, self.named
        )
        for operation in self.graph.operations:
            is_shared = distinct.isdisjoint(operation.outputs)
            self.emit.append(operation, is_shared=is_shared)
        self.traces = Traces(self.emit)
        self.names = GradientNames()
        self.gradients: dict[Tensor, Tensor] = {}
        self.separation: Separation | None = None
        # Shared tensors whose gradients get an axis for the one example that there is.
        self.single: Set[Tensor] = frozenset()
        if self.axes:
            from nnef_grad.autodiff.per_example import separated

            ends = outputs, wrt, self.activity.tensors
            found = separated(self.emit, self.graph, self.axes, *ends)
            self.axes, self.single, self.separation = found
        self.reductions = 0
        self.undone: dict[Tensor, tuple[Broadcast, ...]] = {}

    def _decompose(self, graph: Graph, distinct: Set[Tensor]) -> tuple[Graph, Activity]:
        """The graph with those operations on the way decomposed that are differentiated
        so, and its activity. What they are made of may be decomposed in its turn, and
        shares no constant of the user and no tensor that they named: its gradient is that
        of its own uses.
        """
        rules, ends = self.rules, (self.wrt, self.outputs)
        while True:
            activity = find_activity(graph, *ends, rules, self.stopped)
            bodies = {op: d.decompose for op, d in activity.operations}
            if not any(bodies.values()):
                if not any(is_loop(op) for op in bodies):
                    return graph, activity
                from nnef_grad.autodiff.loops import linearized

                own = partial(differentiate, rules=rules)
                return linearized(graph, activity, rules, own, self.supply)
            graph = inline(graph, bodies.get, rules.opset, distinct)
            self.supply.taken.update(graph.tensors)

    # From the last operation to the first

    def run(self, ones: bool) -> Backward:
        way = self.activity.operations
        if missing := [no_derivative(op, d.limit) for op, d in way if d.vjp is None]:
            raise NoDerivativeError.collect(missing)
        seeds = {output: self._seed(output, ones) for output in self.outputs}
        self.gradients.update(seeds)
        active = self.activity.tensors
        # What stands for concatenations, unless the user has a rule for them.
        is_apart = self.rules.is_own(CONCAT) or self.separation is not None
        joins = () if is_apart else (op for op, _ in way)
        shared = of_shared_parts(joins, active, self.named)
        for operation, derivation in reversed(way):
            alike = shared.get(operation, operation)
            with self.emit.deriving(
                operation, partial(step_name, self.emit, operation)
            ):
                of_operands = chain(
                    self._pulled_back(operation, alike, derivation),
                    self._pulled_back_to_shared(operation, derivation),
                )
                for operand, gradient in of_operands:
                    if operand in active:
                        self._accumulate(operand, gradient, operation)
        return self._finish(seeds, ones)

    def _seed(self, output: Tensor, ones: bool) -> Tensor:
        name = self.supply.fresh(f"grad_{self.graph.names[output]}")
        self.names.uses[output] += 1
        settings: dict[str, Any] = {"value": (1.0,)} if ones else {}
        kind = "constant" if ones else "external"
        return self.emit.emit_named(name, kind, shape=output.shape, **settings)

    def _pulled_back(
        self, operation: Operation, alike: Operation, derivation: Derivation
    ) -> Gradients:
        """The gradients of the operands, by the rule of the operation or one like it."""
        received = map_tensors(self._received, operation.results)
        shared = self._shared(operation)
        if not tensors(received) or (shared and shared >= self._active(operation)):
            return ()
        assert derivation.vjp is not None
        inputs = (*alike.inputs, *alike.outputs, *tensors(received))
        key = structural_key(alike, received) if derivation.is_traced else None
        build = partial(pull_back, derivation.vjp, alike, received)
        with located(operation.span):
            try:
                gradients = self.traces.apply(key, build, inputs, alike.span)
                return tuple(pair for pair in gradients if pair[0] not in shared)
            except OpenExtentError as error:
                raise error.of(operation.name, operation.place) from None

    def _active(self, operation: Operation) -> set[Tensor]:
        return self.activity.tensors.intersection(operation.inputs)

    def _shared(self, operation: Operation) -> set[Tensor]:
        """The operands that receive a gradient for each example."""
        if (separation := self.separation) is None:
            return set()
        return {x for x in self._active(operation) if separation.is_shared(x)}

    def _pulled_back_to_shared(
        self, operation: Operation, derivation: Derivation
    ) -> Gradients:
        """The gradients, for each example, of the operands that examples share."""
        if self.separation is None or not self._shared(operation):
            return ()
        received = map_tensors(self._received, operation.results)
        if not tensors(received):
            return ()
        assert derivation.vjp is not None
        pull = partial(_pulled_back_whole, derivation.vjp)
        with located(operation.span):
            return tuple(self.separation.pull_back(operation, received, pull))

    def _received(self, result: Tensor) -> Tensor | None:
        return None if result in self.stopped else self.gradients.get(result)

    def _accumulate(self, operand: Tensor, gradient: Any, operation: Operation) -> None:
        """Adds a gradient to what the operand has received from its other uses."""
        if not isinstance(gradient, Tensor):
            # A number stands for a tensor that is full of it.
            if gradient == 0.0:
                return
            shape = operation.outputs[0].shape
            gradient = self.emit("constant", shape=shape, value=(gradient,))
        separation = self.separation
        full = operand.shape if separation is None else separation.full(operand)
        is_whole = gradient.shape == full
        reduced = gradient if is_whole else self._reduced(operand, gradient, operation)
        self.names.add(reduced, operand, operation)
        self.names.uses[operand] += 1
        others = self.gradients.get(operand)
        if others is not None:
            key = (_add, reduced.shape)
            (reduced,) = self.traces.apply(key, _add, (others, reduced))
            self.names.add(reduced, operand, None, "_sum")
        self.gradients[operand] = reduced

    def _reduced(
        self, operand: Tensor, gradient: Tensor, operation: Operation
    ) -> Tensor:
        """The gradient of an operand that was broadcast: see `unbroadcast`."""
        whole, part = gradient.shape, operand.shape
        results = tuple([result.shape for result in operation.outputs])
        if not is_reducible(whole, part, results):
            what = f"the rule '{operation.name}_vjp' returns a gradient of shape"
            target = f"operand '{self.graph.names[operand]}' of shape {list(part)}"
            message = f"{what} {list(whole)} for {target}"
            raise InvalidGraphError(message, operation.span)

        def build(emit: Emitter, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return tuple(unbroadcast(emit, inputs[0], part))

        key = ("unbroadcast", whole, part)
        reduced: Tensor
        *steps, reduced = self.traces.apply(key, build, (gradient,))
        for step, suffix in zip(steps, ("_full", "_sum"), strict=False):
            self.names.add(step, operand, operation, suffix)
        self.reductions += prod(whole) != prod(part)
        names, (result, *_) = self.graph.names, operation.outputs
        broadcast = Broadcast(names[operand], names[result])
        for step in (*steps[1:], reduced):
            self.undone[step] = (*self.undone.get(step, ()), broadcast)
        return reduced

    # The graph around what was emitted

    def _finish(self, sources: Mapping[Tensor, Tensor], ones: bool) -> Backward:
        seeds = {} if ones else sources
        names = self.graph.names
        wrt = [names[tensor] for tensor in self.wrt]
        gradients = {x: self.supply.fresh(f"grad_{x}") for x in wrt}
        results = [self._result(t, gradients[names[t]]) for t in self.wrt]
        self.names.assign(self.emit, self.gradients, self.confinement.confined)
        named_seeds = {names[y]: self.emit.names[seed] for y, seed in seeds.items()}
        notes = (
            f"The backward graph of '{self.graph.name}'.",
            *(f"  {dy}: input, the gradient of {y}" for y, dy in named_seeds.items()),
            *(f"  {gradients[names[x]]}: {self._told(x)}" for x in self.wrt),
        )
        forward = self.graph.tensors if self.returned else {}
        graph = Graph(
            f"{self.graph.name}_backward",
            (*self.graph.inputs, *seeds.values()),
            (*results, *(forward[name] for name in self.returned)),
            tuple(self.emit.operations),
            self.emit.names,
            declared=self.graph.custom_operations,
            notes=notes,
            facts=self.graph.facts,
            datum_types=self.graph.datum_types,
        )
        full = sources.values() if ones else ()
        graph = finished(graph, self.graph, self.emit, self.supply.taken, full)
        there = {t for op in graph.operations for t in op.outputs}
        undone = {graph.names[t]: b for t, b in self.undone.items() if t in there}
        return Backward(
            graph,
            named_seeds,
            gradients,
            tuple(self._warnings(graph)),
            self.reductions,
            tuple(names[output] for output in self.outputs),
            tuple(names[tensor] for tensor in self.stopped),
            tuple(op for op in self.graph.operations if is_loop(op)),
            broadcasts=undone,
            per_example=bool(self.axes),
            example_axes={names[x]: axis for x, axis in self.axes.items()},
        )

    def _told(self, target: Tensor) -> str:
        """The entry for the gradient with respect to a tensor."""
        separation = self.separation
        is_apart = separation is not None and separation.is_shared(target)
        each = ", for each example" if is_apart or target in self.single else ""
        return f"the gradient with respect to {self.graph.names[target]}{each}"

    def _result(self, target: Tensor, name: str) -> Tensor:
        """The gradient under its final name, which may be that of a copy."""
        gradient = self.gradients.get(target)
        if gradient is None:
            separation = self.separation
            shape = separation.full(target) if separation else target.shape
            gradient = self.emit("constant", shape=shape, value=(0.0,))
        confined = self.confinement.confine(self.emit, gradient)
        if target in self.single:
            confined = self.emit("unsqueeze", confined, axes=[0])
        return self.emit.pin_name(confined, name)

    def _warnings(self, graph: Graph) -> Iterator[str]:
        """Notes for the user of the backward graph."""
        names = self.graph.names
        outputs = " and ".join(f"'{names[output]}'" for output in self.outputs)
        way = " other than through what is stopped" if self.stopped else ""
        still = [names[target] for target in self.wrt if target not in self.gradients]
        if still:
            one = ("does not influence", "its gradient is zeros")
            verb, what = one if not still[1:] else ("do not influence", _ZEROS)
            yield f"{listed(still)} {verb} {outputs}{way}: {what}"
        gathers = [op for op, _ in self.activity.operations if op.name == "gather"]
        yield from large_matrices(graph, gathers)


def _pulled_back_whole(
    rule: Rule, emit: Emitter, operation: Operation, received: tuple[Any, ...]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The gradients that a rule gives the operands, of their shapes."""
    returned = rule(emit, operation, *received)
    for operand, gradient in check_gradients(operation, returned, emit.knows):
        if not isinstance(gradient, Tensor):
            if gradient == 0.0:
                continue
            shape = operation.outputs[0].shape
            gradient = emit("constant", shape=shape, value=(gradient,))
        yield operand, unbroadcast(emit, gradient, operand.shape)[-1]
