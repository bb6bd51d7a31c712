"""Reverse-mode differentiation: a forward graph to its backward graph.

The sweep walks the operations from the last to the first. For each it asks the rule for
the gradients of the operands, sums them down to the operands' shapes (`unbroadcast`,
the one place where a broadcast is undone) and adds them to what the operands have
received from their other uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial
from math import prod
from typing import Any, Literal

from nnef_grad.autodiff.activity import (
    CONCAT,
    Activity,
    find_activity,
    of_shared_parts,
)
from nnef_grad.autodiff.backward import (
    Backward,
    Broadcast,
    Wrt,
    differentiated_outputs,
    finished,
    scalars_named,
    wrt_tensors,
)
from nnef_grad.autodiff.confine import Confinement
from nnef_grad.autodiff.loops import linearized
from nnef_grad.autodiff.recompute import within
from nnef_grad.autodiff.rules import (
    Derivation,
    Gradients,
    Rules,
    Traces,
    likeness,
    pull_back,
)
from nnef_grad.base.errors import (
    InvalidGraphError,
    NoDerivativeError,
    Problem,
    UsageError,
    located,
)
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.emit.bodies import inline
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rule_results import is_reducible
from nnef_grad.emit.simplify import simplify, without_detours
from nnef_grad.graph.extents import OpenExtentError, nominal
from nnef_grad.graph.ir import (
    Graph,
    Operation,
    Shape,
    Tensor,
    map_tensors,
    shape_of,
    tensors,
)
from nnef_grad.graph.loops import is_loop
from nnef_grad.graph.names import NameSupply

# The most elements of a matrix that the gradient of a gather has without a warning.
MAX_ELEMENTS = 100_000_000


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
    recompute: float | None = None,
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
        recompute: the most memory for what is alive at a time, as in
            `nnef_grad.recompute`: tensors are computed again instead of kept.
        rules: your own rules, if any.

    Returns:
        The backward graph. A gradient has the shape of its tensor.

    Raises:
        UsageError: a name is unknown or has no gradient, or a rule is for an unknown
            operation.
        NoDerivativeError: operations between outputs and `wrt` have no derivative; the
            error names all of them.
    """
    rules = rules if rules is not None else Rules()
    rules.refuse_unknown(graph.custom_operations)
    tensors_wrt = wrt_tensors(graph, wrt)
    sources = differentiated_outputs(graph, outputs)
    if seed not in ("input", "ones"):
        raise UsageError(f"the seed is 'input' or 'ones', not '{seed}'")
    stopped = scalars_named(graph, graph.tensors, stop, "tensor") if stop else ()
    sweep = _Sweep(graph, tensors_wrt, sources, stopped, rules)
    backward = sweep.run(seed == "ones", with_outputs)
    return backward if recompute is None else within(backward, recompute)


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
    return steps


def _add(emit: Emitter, inputs: Sequence[Tensor]) -> tuple[Tensor]:
    return (emit("add", *inputs),)


class GradientNames:
    """The names of gradients, decided once, when the backward graph is whole, by the roles
    that tensors were given while it was emitted.

    grad_x                  the gradient of x
    grad_x_from_y           what x receives from its use in y, where it has several uses
    grad_x_from_y_full      the same, before it is summed down to the shape of x
    grad_x_sum              a sum of some of these
    grad_x_unmasked         the gradient of x, before it is confined to its support
    """

    def __init__(self) -> None:
        self._roles: dict[Tensor, tuple[Tensor, Operation | None, str]] = {}
        # How many uses give each tensor of the forward graph a gradient.
        self.uses = Counter[Tensor]()

    def add(
        self, step: Tensor, tensor: Tensor, use: Operation | None, suffix: str = ""
    ) -> None:
        """Gives a step to the gradient of a tensor, from a use or a sum, a role."""
        self._roles.setdefault(step, (tensor, use, suffix))

    def assign(
        self,
        emit: Emitter,
        gradients: Mapping[Tensor, Tensor],
        confined: Mapping[Tensor, Tensor],
    ) -> None:
        """Sets the hints of what has a role, given all gradients and what was confined."""
        for step, (tensor, use, suffix) in self._roles.items():
            name = f"grad_{emit.names[tensor]}"
            if gradients.get(tensor) is not step:
                if use is not None and self.uses[tensor] > 1:
                    name = f"{name}_from_{emit.names[use.outputs[0]]}"
                name += suffix
            emit.set_hint(step, name)
        for cotangent, inside in confined.items():
            if (hint := emit.hints.get(cotangent)) is not None:
                emit.set_hint(cotangent, f"{hint}_unmasked")
                if inside not in self._roles:
                    emit.set_hint(inside, hint)


class _Sweep:
    """One differentiation: what tensors have received so far, and what was emitted."""

    def __init__(
        self,
        graph: Graph,
        wrt: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        stopped: tuple[Tensor, ...],
        rules: Rules,
    ) -> None:
        self.wrt, self.outputs, self.stopped = wrt, outputs, stopped
        self.rules, self.named = rules, frozenset((*wrt, *stopped))
        own = (op.outputs for op in graph.operations if rules.is_own(op.name))
        opset = rules.opset.extended(graph.fragments)
        graph = without_detours(graph, self.named.union(*own))
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
                own = partial(differentiate, rules=rules)
                return linearized(graph, activity, rules, own, self.supply)
            graph = inline(graph, bodies.get, rules.opset, distinct)
            self.supply.taken.update(graph.tensors)

    # From the last operation to the first

    def run(self, ones: bool, with_outputs: bool) -> Backward:
        way = self.activity.operations
        if missing := [_no_derivative(op, d.limit) for op, d in way if d.vjp is None]:
            raise NoDerivativeError.collect(missing)
        seeds = {output: self._seed(output, ones) for output in self.outputs}
        self.gradients.update(seeds)
        active = self.activity.tensors
        # What stands for concatenations, unless the user has a rule for them.
        joins = () if self.rules.is_own(CONCAT) else (op for op, _ in way)
        shared = of_shared_parts(joins, active, self.named)
        for operation, derivation in reversed(way):
            alike = shared.get(operation, operation)
            for operand, gradient in self._pulled_back(operation, alike, derivation):
                if operand in active:
                    self._accumulate(operand, gradient, operation)
        return self._finish(seeds, ones, with_outputs)

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
        if not tensors(received):
            return ()
        assert derivation.vjp is not None
        self.emit.origin = operation
        self.emit.naming = partial(_step_name, self.emit, operation)
        inputs = (*alike.inputs, *alike.outputs, *tensors(received))
        key = likeness(alike, received) if derivation.is_traced else None
        build = partial(pull_back, derivation.vjp, alike, received)
        with located(operation.span):
            try:
                return self.traces.apply(key, build, inputs, alike.span)
            except OpenExtentError as error:
                raise error.of(operation.name, operation.place) from None

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
        is_whole = gradient.shape == operand.shape
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

    def _finish(
        self, sources: Mapping[Tensor, Tensor], ones: bool, with_outputs: bool
    ) -> Backward:
        seeds = {} if ones else sources
        self.emit.origin = None
        self.emit.naming = str
        names = self.graph.names
        wrt = [names[tensor] for tensor in self.wrt]
        gradients = {x: self.supply.fresh(f"grad_{x}") for x in wrt}
        results = [self._result(t, gradients[names[t]]) for t in self.wrt]
        self.names.assign(self.emit, self.gradients, self.confinement.confined)
        named_seeds = {names[y]: self.emit.names[seed] for y, seed in seeds.items()}
        notes = (
            f"The backward graph of '{self.graph.name}'.",
            *(f"  {dy}: input, the gradient of {y}" for y, dy in named_seeds.items()),
            *(f"  {d}: the gradient with respect to {x}" for x, d in gradients.items()),
        )
        graph = Graph(
            f"{self.graph.name}_backward",
            (*self.graph.inputs, *seeds.values()),
            (*results, *(self.graph.outputs if with_outputs else ())),
            tuple(self.emit.operations),
            self.emit.names,
            declared=self.graph.custom_operations,
            notes=notes,
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
        )

    def _result(self, target: Tensor, name: str) -> Tensor:
        """The gradient under its final name, which may be that of a copy."""
        gradient = self.gradients.get(target)
        if gradient is None:
            gradient = self.emit("constant", shape=target.shape, value=(0.0,))
        confined = self.confinement.confine(self.emit, gradient)
        return self.emit.pin_name(confined, name)

    def _warnings(self, graph: Graph) -> Iterator[str]:
        """What the user of the backward graph should know."""
        names = self.graph.names
        outputs = " and ".join(f"'{names[output]}'" for output in self.outputs)
        way = " other than through what is stopped" if self.stopped else ""
        for target in self.wrt:
            if target not in self.gradients:
                what = f"'{names[target]}' does not influence {outputs}{way}"
                yield f"{what}: its gradient is zeros"
        gathers = [op for op, _ in self.activity.operations if op.name == "gather"]
        # A runtime may not have the memory for the matrix, if the rule makes one.
        for op in graph.operations if gathers else ():
            onehot = op.outputs[0]
            is_onehot = op.name == "select" and op.operands[1:] == (1.0, 0.0)
            if not is_onehot or nominal(prod(onehot.shape)) <= MAX_ELEMENTS:
                continue
            alike = [g for g in gathers if _rows_and_extent(g) == onehot.shape]
            for gather in alike[-1:]:
                gathers.remove(gather)
                size = " x ".join(map(str, onehot.shape))
                what = f"the gradient of '{graph.names[gather.inputs[0]]}' is a product"
                matrix = f"'{graph.names[onehot]}', {size} zeros and ones"
                why = "no standard operation adds to elements at indices"
                yield f"{what} with {matrix}: {why}"


def _rows_and_extent(gather: Operation) -> Shape:
    """The shape of the matrix that the gradient of a gather may be a product with."""
    table, indices = gather.inputs[0], gather.operands[1]
    return prod(shape_of(indices)), table.shape[gather.attributes["axis"]]


def _step_name(emit: Emitter, operation: Operation, name: str) -> str:
    """The name in the graph of a value inside a rule."""
    if name.startswith("d"):
        operands = zip(operation.definition.operands, operation.operands, strict=True)
        for parameter, operand in operands:
            if name[1:] == parameter.name and isinstance(operand, Tensor):
                return f"grad_{emit.names[operand]}"
    return f"{name}_{emit.names[operation.outputs[0]]}"


def _no_derivative(operation: Operation, limit: str) -> Problem:
    what = f"'{operation.name}' has no derivative{f' {limit}' if limit else ''}"
    advice = f"write a rule '{operation.name}_vjp', or choose wrt and outputs"
    return Problem(f"{what}: {advice} without it in between", operation.span)
