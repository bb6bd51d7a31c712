"""Reverse-mode differentiation: a forward graph to its backward graph.

The sweep walks the operations from the last to the first. For each it asks the rule for
the gradients of the operands, sums them down to the operands' shapes (`unbroadcast`,
the one place where a broadcast is undone) and adds them to what the operands have
received from their other uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Literal, Union

from nnef_grad.autodiff.activity import active_tensors, is_active
from nnef_grad.autodiff.confine import Confinement
from nnef_grad.autodiff.rules import Decompose, Rules
from nnef_grad.autodiff.unmask import unmask
from nnef_grad.build import returned
from nnef_grad.build.arguments import bind
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import inline
from nnef_grad.build.simplify import simplify
from nnef_grad.errors import (
    InvalidGraphError,
    NoDerivativeError,
    Problem,
    UsageError,
    located,
    suggestion,
)
from nnef_grad.graph import names
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor, tensors
from nnef_grad.graph.order import inputs_first
from nnef_grad.graph.prune import prune
from nnef_grad.graph.quantization import carry_quantization
from nnef_grad.graph.verify import verify
from nnef_grad.ops.registry import Undifferentiable, limit_of

Wrt = Union[Literal["all", "inputs", "variables"], str, Sequence[str]]


@dataclass(frozen=True)
class Backward:
    """A backward graph and the names of its interface.

    Attributes:
        graph: the backward graph.
        seeds: for each differentiated output of the forward graph, the input that its
            gradient is fed to; empty for a seed of ones.
        gradients: for each tensor differentiated with respect to, the output that holds
            its gradient.
        warnings: what the user should know, a sentence each.
        reductions: how many broadcast operands were summed down to their shapes on the
            way.
        outputs: the outputs that were differentiated.
        stopped: the tensors that were treated as constants.
        is_jacobian: whether the results are whole Jacobians, in place of products with
            seeds.
    """

    graph: Graph
    seeds: Mapping[str, str]
    gradients: Mapping[str, str]
    warnings: tuple[str, ...]
    reductions: int
    outputs: tuple[str, ...]
    stopped: tuple[str, ...] = ()
    is_jacobian: bool = False


def differentiate(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    seed: Literal["input", "ones"] = "input",
    with_outputs: bool = False,
    rules: Rules | None = None,
) -> Backward:
    """The vector-Jacobian product of a graph, as a graph.

    Args:
        graph: the forward graph.
        wrt: the tensors to differentiate with respect to: "inputs", "variables", "all"
            (both), or names of scalar tensors.
        outputs: the outputs to differentiate; all scalar ones if not given.
        stop: tensors to treat as constants: no gradient flows through them to what they
            are computed from.
        seed: "input" takes the gradient of each output as a further input, of the
            output's shape; "ones" takes ones, so that the result is the gradient of the
            sum of all output elements.
        with_outputs: whether the backward graph returns the outputs of the forward
            graph too, after the gradients.
        rules: the rules, if not the standard ones alone.

    Returns:
        The backward graph. A gradient has the shape of its tensor.

    Raises:
        UsageError: a name is unknown, or names a tensor that has no gradient; or a rule
            is for an operation that is not known.
        NoDerivativeError: operations on the way have no derivative; the error names all
            of them.
    """
    rules = rules if rules is not None else Rules()
    rules.refuse_unknown(graph.custom_operations)
    targets = targets_of(graph, wrt)
    sources = sources_of(graph, outputs)
    if seed not in ("input", "ones"):
        raise UsageError(f"the seed is 'input' or 'ones', not '{seed}'")
    stopped = _chosen(graph.tensors, stop, "tensor") if stop else ()
    sweep = _Sweep(graph, targets, sources, stopped, rules)
    return sweep.run(seed == "ones", with_outputs)


def summary(graph: Graph, backward: Backward) -> str:
    """A line that says what was done to a forward graph."""
    counts = [
        (len(graph.operations), "operation", " in"),
        (len(backward.graph.operations), "operation", " out"),
        (backward.reductions, "reduction", " inserted"),
        (len(backward.gradients), "gradient", ""),
    ]
    words = (
        f"{number} {what}{'s' if number != 1 else ''}{where}"
        for number, what, where in counts
    )
    return f"{graph.name}: {', '.join(words)}"


# ---- What to differentiate, with respect to what ----


def targets_of(graph: Graph, wrt: Wrt) -> tuple[Tensor, ...]:
    """The tensors that `wrt` names; see `differentiate`."""
    inputs, variables = _scalars(graph.inputs), _scalars(graph.variables)
    groups = {"all": (*inputs, *variables), "inputs": inputs, "variables": variables}
    if isinstance(wrt, str) and wrt in groups:
        if not groups[wrt]:
            raise UsageError(
                f"graph '{graph.name}' has no scalar {'inputs or variables' if wrt == 'all' else wrt}"
            )
        return groups[wrt]
    return _chosen(graph.tensors, [wrt] if isinstance(wrt, str) else wrt, "tensor")


def sources_of(graph: Graph, outputs: Sequence[str] | None) -> tuple[Tensor, ...]:
    """The outputs that are differentiated; see `differentiate`."""
    if outputs is not None:
        return _chosen({t.name: t for t in graph.outputs}, outputs, "output")
    scalars = _scalars(graph.outputs)
    if not scalars:
        raise UsageError(
            f"graph '{graph.name}' has no scalar output: there is nothing to differentiate"
        )
    return scalars


def _scalars(candidates: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(t for t in candidates if t.dtype == "scalar")


def _chosen(
    known: Mapping[str, Tensor], chosen: Sequence[str], what: str
) -> tuple[Tensor, ...]:
    if not chosen:
        raise UsageError(f"no {what} is named")
    for index, name in enumerate(chosen):
        if name not in known:
            raise UsageError(
                f"the graph has no {what} '{name}'{suggestion(name, list(known))}"
            )
        if known[name].dtype != "scalar":
            raise UsageError(
                f"'{name}' is a tensor of type {known[name].dtype}: only scalar tensors have gradients"
            )
        if name in chosen[:index]:
            raise UsageError(f"{what} '{name}' is named twice")
    return tuple(known[name] for name in chosen)


# ---- The sweep ----


def unbroadcast(emit: Emitter, gradient: Tensor, shape: Shape, hint: str) -> Tensor:
    """The gradient of an operand, from the gradient of the result that the operand was
    broadcast to.

    Shapes align from the left: it is summed over the axes where the operand has extent
    1 or no axis, then the axes that the operand does not have are squeezed. Nothing is
    emitted where nothing was broadcast, and an axis of extent 1 is not summed.
    """
    extended = shape + (1,) * (gradient.rank - len(shape))
    axes = [
        i
        for i, (whole, part) in enumerate(zip(gradient.shape, extended, strict=True))
        if whole > 1 and part == 1
    ]
    extra = range(len(shape), gradient.rank)
    if not axes and not extra:
        return gradient
    if axes:
        gradient = emit("sum_reduce", gradient, axes=axes)
        emit.set_hint(gradient, f"{hint}_sum" if extra else hint)
    if extra:
        gradient = emit("squeeze", gradient, axes=list(extra))
        emit.set_hint(gradient, hint)
    return gradient


class _Sweep:
    """One differentiation: what each tensor of the forward graph has received so far,
    and what was emitted for it.
    """

    def __init__(
        self,
        graph: Graph,
        targets: tuple[Tensor, ...],
        sources: tuple[Tensor, ...],
        stopped: tuple[Tensor, ...],
        rules: Rules,
    ) -> None:
        self.targets = targets
        self.sources = sources
        self.stopped = stopped
        self.rules = rules
        self.graph = self._with_bodies(graph)
        self.active = self._active(self.graph)
        self.uses = Counter(
            t
            for op in self.graph.operations
            if is_active(op, self.active)
            for t in op.inputs
        )
        self.uses.update(sources)
        self.confinement = Confinement()
        self.emit = Emitter(
            rules.opset.extended(graph.fragments),
            self.graph.operations,
            simplify,
            self.confinement,
        )
        self.supply = names.NameSupply(graph.tensors)
        self.gradients: dict[Tensor, Tensor] = {}
        self.owners: dict[Tensor, Tensor] = {}
        self.problems: list[Problem] = []
        self.reductions = 0

    def _with_bodies(self, graph: Graph) -> Graph:
        """The graph with the body of each operation on the way in its place, where that
        is how it is differentiated; bodies may hold operations with bodies.
        """
        while True:
            active = self._active(graph)
            inlined = inline(graph, partial(self._body, active), self.rules.opset)
            if inlined is graph:
                return graph
            graph = inlined

    def _active(self, graph: Graph) -> set[Tensor]:
        return active_tensors(
            graph, self.targets, self.sources, self.rules, self.stopped
        )

    def _body(self, active: set[Tensor], operation: Operation) -> Decompose | None:
        return self.rules.body(operation) if is_active(operation, active) else None

    # From the last operation to the first

    def run(self, ones: bool, with_outputs: bool) -> Backward:
        seeds = {output: self._seed(output, ones) for output in self.sources}
        for operation in reversed(self.graph.operations):
            is_flat = self.rules.is_zero(operation.name)
            if is_active(operation, self.active) and not is_flat:
                self._visit(operation)
        if self.problems:
            raise NoDerivativeError.collect(self.problems[::-1])
        return self._finish({} if ones else seeds, with_outputs)

    def _seed(self, output: Tensor, ones: bool) -> Tensor:
        name = self.supply.fresh(f"grad_{output.name}")
        values = {"shape": output.shape, **({"value": (1.0,)} if ones else {})}
        definition = self.emit.opset.declarations["constant" if ones else "external"]
        arguments = bind(definition, values, None)
        (seed,) = self.emit.emit_op(definition, arguments, names=(name,))
        assert isinstance(seed, Tensor)
        self.gradients[output] = seed
        return seed

    def _visit(self, operation: Operation) -> None:
        received = _map(self._received, operation.results)
        if not any(True for _ in tensors(received)):
            return
        self.emit.origin = operation
        self.emit.naming = _naming(operation)
        known = len(self.emit.operations)
        gradients = self._gradients(operation, received)
        made = {t for op in self.emit.operations[known:] for t in op.outputs}
        for operand, gradient in _pairs(operation.operands, gradients):
            if isinstance(operand, Tensor) and operand in self.active:
                self._receive(
                    operand, self._of_result_shape(gradient, operation), operation, made
                )

    def _received(self, result: Tensor) -> Tensor | None:
        return None if result in self.stopped else self.gradients.get(result)

    def _gradients(
        self, operation: Operation, received: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """What the rule returns. Where there is none the sweep goes on with zeros, to
        find all that is missing.
        """
        rule = self.rules.find(operation.name)
        try:
            if rule is None:
                raise Undifferentiable(limit_of(operation.name))
            with located(operation.span):
                found = rule(self.emit, operation, *received)
            return returned.gradients(operation, found, self.emit.knows)
        except Undifferentiable as error:
            self.problems.append(
                Problem(_no_derivative(operation, str(error)), operation.span)
            )
            zeros: tuple[Any, ...] = _map(self._zeros, operation.operands)
            return zeros

    def _of_result_shape(self, gradient: Any, operation: Operation) -> Tensor | None:
        """A rule may return a literal: zero is no gradient, another stands for a tensor
        that is full of it.
        """
        if gradient is None or isinstance(gradient, Tensor):
            return gradient
        shape = operation.outputs[0].shape
        return (
            None
            if gradient == 0.0
            else self.emit("constant", shape=shape, value=(gradient,), hint="slope")
        )

    def _receive(
        self,
        operand: Tensor,
        gradient: Tensor | None,
        operation: Operation,
        made: set[Tensor],
    ) -> None:
        """Adds a gradient to what the operand has received from its other uses."""
        if gradient is None:
            return
        use = (
            f"grad_{operand.name}"
            if self.uses[operand] == 1
            else f"grad_{operand.name}_from_{_result_name(operation)}"
        )
        if gradient in made:
            self.emit.set_hint(
                gradient, use if gradient.shape == operand.shape else f"{use}_full"
            )
            self.owners[gradient] = operand
        shapes = [result.shape for result in operation.outputs]
        is_right = returned.is_reducible(gradient.shape, operand.shape, shapes)
        self._require(is_right, gradient, operand, operation)
        reduced = unbroadcast(self.emit, gradient, operand.shape, use)
        self._require(reduced.shape == operand.shape, reduced, operand, operation)
        self.reductions += prod(reduced.shape) != prod(gradient.shape)
        if operand in self.gradients:
            reduced = self.emit("add", self.gradients[operand], reduced)
            self.emit.set_hint(reduced, f"grad_{operand.name}_sum")
        if reduced is not gradient:
            self.owners[reduced] = operand
        self.gradients[operand] = reduced

    def _require(
        self, is_right: bool, gradient: Tensor, operand: Tensor, operation: Operation
    ) -> None:
        """Refuses a gradient whose shape is not right."""
        if not is_right:
            message = (
                f"the rule '{operation.name}_vjp' returns a gradient of shape {list(gradient.shape)}"
                f" for operand '{operand.name}' of shape {list(operand.shape)}"
            )
            raise InvalidGraphError(message, operation.span)

    # The graph around what was emitted

    def _finish(self, seeds: Mapping[Tensor, Tensor], with_outputs: bool) -> Backward:
        self.emit.origin = None
        self.emit.naming = str
        for gradient, owner in self.owners.items():
            if self.gradients.get(owner) is gradient:
                self.confinement.set_hint(self.emit, gradient, f"grad_{owner.name}")
        results = [self._result(target) for target in self.targets]
        gradients = {
            target.name: self.emit.pinned.get(r, r.name)
            for target, r in zip(self.targets, results, strict=True)
        }
        outputs = (*results, *(self.graph.outputs if with_outputs else ()))
        inputs = (*self.graph.inputs, *seeds.values())
        named_seeds = {output.name: seed.name for output, seed in seeds.items()}
        graph = Graph(
            f"{self.graph.name}_backward",
            inputs,
            outputs,
            tuple(self.emit.operations),
            declared=self.graph.custom_operations,
            notes=_notes(self.graph.name, named_seeds, gradients),
        )
        hints, pinned = self.emit.hints, self.emit.pinned
        graph = inputs_first(prune(unmask(prune(graph))))
        graph = names.assign_names(graph, hints, pinned, reserved=self.supply.taken)
        graph = replace(
            graph,
            quantization=carry_quantization(self.graph.quantization, graph),
        )
        verify(graph)
        return Backward(
            graph,
            named_seeds,
            gradients,
            self._warnings(),
            self.reductions,
            tuple(output.name for output in self.sources),
            tuple(tensor.name for tensor in self.stopped),
        )

    def _result(self, target: Tensor) -> Tensor:
        """The gradient under its final name: zeros where there is none, a copy where
        the tensor has another name already.
        """
        name = self.supply.fresh(f"grad_{target.name}")
        gradient = self.gradients.get(target)
        return self.emit.pin_name(
            self._zeros(target)
            if gradient is None
            else self.confinement.confine(self.emit, gradient),
            name,
        )

    def _zeros(self, tensor: Tensor) -> Tensor:
        return self.emit("constant", shape=tensor.shape, value=(0.0,), hint="zeros")

    def _warnings(self) -> tuple[str, ...]:
        sources = " and ".join(f"'{s.name}'" for s in self.sources)
        unreached = [t for t in self.targets if t not in self.gradients]
        way = " other than through what is stopped" if self.stopped else ""
        return tuple(
            f"'{t.name}' does not influence {sources}{way}: its gradient is zeros"
            for t in unreached
        )


def _pairs(operands: Any, gradients: Any) -> Iterator[tuple[Operand, Any]]:
    """Each operand with its gradient, in arrays of tensors too."""
    for operand, gradient in zip(operands, gradients, strict=True):
        if isinstance(operand, tuple):
            yield from _pairs(
                operand, gradient if gradient is not None else (None,) * len(operand)
            )
        else:
            yield operand, gradient


def _map(function: Callable[[Tensor], Any], value: Any) -> Any:
    """A value for each tensor in a nested value; None for what is not a tensor."""
    if isinstance(value, tuple):
        return tuple(_map(function, item) for item in value)
    return function(value) if isinstance(value, Tensor) else None


# ---- Words ----


def _result_name(operation: Operation) -> str:
    return operation.outputs[0].name


def _naming(operation: Operation) -> Callable[[str], str]:
    """What a value inside a rule is called in the graph: the gradient of an operand, or
    a step towards the subject's.
    """
    gradients = {
        f"d{p.name}": f"grad_{o.name}"
        for p, o in zip(operation.definition.operands, operation.operands, strict=True)
        if isinstance(o, Tensor)
    }
    subject = _result_name(operation)
    return lambda name: gradients.get(name) or f"{name}_{subject}"


def _no_derivative(operation: Operation, why: str = "") -> str:
    reason = f" {why}" if why else ""
    advice = f"give a rule '{operation.name}_vjp' for it, or leave it out of the way from wrt to outputs"
    return f"'{operation.name}' has no derivative{reason}: {advice}"


def _notes(
    name: str, seeds: Mapping[str, str], gradients: Mapping[str, str]
) -> tuple[str, ...]:
    return (
        f"The backward graph of '{name}'.",
        *(
            f"  {seed}: input, the gradient of {output}"
            for output, seed in seeds.items()
        ),
        *(
            f"  {gradient}: the gradient with respect to {target}"
            for target, gradient in gradients.items()
        ),
    )
