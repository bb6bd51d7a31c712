"""The steps from a first differentiation to a derivative that is composed of gradients: what
is emitted after it, and its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from nnef_grad.autodiff.backward import Backward, Kind, finished
from nnef_grad.autodiff.rules import Rules
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import NameSupply, with_names


def emitter_after(
    graph: Graph, rules: Rules | None, there: Iterable[Operation]
) -> Emitter:
    """An emitter of what a graph may have, which has emitted some operations of it."""
    opset = (rules or Rules()).opset.extended(graph.fragments)
    emit = Emitter(opset, graph.names, simplify)
    for operation in there:
        emit.append(operation)
    return emit


def of_gradients(
    graph: Graph,
    first: Backward,
    emit: Emitter,
    kind: Kind,
    function: Callable[[Emitter, Tensor], Tensor],
) -> Backward:
    """A function of each gradient, which an emitter has emitted."""
    tensors = first.graph.tensors
    supply = NameSupply((*graph.tensors, *tensors))
    found: dict[str, Tensor] = {}
    for x, name in first.gradients.items():
        result = function(emit, tensors[name])
        found[x] = emit.pin_name(result, supply.fresh(f"{kind}_{x}"))
    made = replace(
        first.graph,
        inputs=graph.inputs,
        outputs=(*found.values(), *first.graph.outputs[len(found) :]),
        operations=tuple(emit.operations),
        names=emit.names,
    )
    there = (t for op in emit.operations for t in op.outputs if t in emit.names)
    reserved = (*graph.tensors, *(emit.names[t] for t in there))
    made = finished(made, graph, emit, reserved)
    return composed(graph, first, made, kind, {}, found)


def composed(
    graph: Graph,
    first: Backward,
    made: Graph,
    kind: Kind,
    seeds: Mapping[str, Tensor],
    results: Mapping[str, Tensor],
) -> Backward:
    """The derivative of a graph whose first differentiation is given."""
    names = made.names
    title, given, result = _WORDS[kind]
    notes = (
        f"{title.format(*first.outputs)} '{graph.name}'.",
        *(f"  {names[t]}: input, the {given} {x}" for x, t in seeds.items()),
        *(f"  {names[t]}: {result} {x}" for x, t in results.items()),
    )
    return replace(
        first,
        graph=replace(made, name=f"{graph.name}_{kind}", notes=notes),
        seeds={x: names[tensor] for x, tensor in seeds.items()},
        gradients={x: names[tensor] for x, tensor in results.items()},
        loops=(),
        broadcasts={},
        kind=kind,
    )


# The title of a graph, and what its seeds and its results are.
_WORDS: dict[Kind, tuple[str, str, str]] = {
    "jacobian": ("The Jacobians of '{}' in", "", "with respect to"),
    "jvp": ("The Jacobian-vector product of", "tangent of", "the tangent of"),
    "hvp": ("The Hessian-vector product of", "vector for", "the product for"),
    "hessian": ("The Hessian of", "", "the Hessian with respect to"),
    "saliency": ("The saliency of", "", "the saliency of"),
    "penalty": ("The gradient penalty of", "", "the penalty on the gradient of"),
}


def with_fresh_names(graph: Graph, called: Mapping[Tensor, str]) -> Graph:
    """The graph with other names for some tensors."""
    return with_names(graph, {graph.names[x]: name for x, name in called.items()})
