"""Steps after a first differentiation: functions of its gradients, and other names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

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
    results: dict[str, Tensor] = {}
    for x, name in first.gradients.items():
        result = function(emit, tensors[name])
        results[x] = emit.pin_name(result, supply.fresh(f"{kind}_{x}"))
    whole = replace(
        first.graph,
        inputs=graph.inputs,
        outputs=(*results.values(), *first.graph.outputs[len(results) :]),
        operations=tuple(emit.operations),
        names=emit.names,
    )
    there = (t for op in emit.operations for t in op.outputs if t in emit.names)
    reserved = (*graph.tensors, *(emit.names[t] for t in there))
    whole = finished(whole, graph, emit, reserved)
    return composed(graph, first, whole, kind, {}, results)


def composed(
    graph: Graph,
    first: Backward,
    whole: Graph,
    kind: Kind,
    seeds: Mapping[str, Tensor],
    results: Mapping[str, Tensor],
    steps: Mapping[Tensor, str] = MappingProxyType({}),
) -> Backward:
    """The derivative of a graph whose first differentiation is given, with other names
    for seeds, results and steps in between, if these are still there.
    """
    title, seed, result, prefix = _WORDS[kind]
    wishes = {t: f"{seed.split()[0]}_{x}" for x, t in seeds.items()}
    wishes |= {t: f"{prefix}_{x}" for x, t in results.items() if prefix}
    wishes |= {t: wish for t, wish in steps.items() if t not in wishes}
    whole = with_names(whole, {whole.names[t]: wish for t, wish in wishes.items()})
    names = whole.names
    notes = (
        f"{title.format(*first.outputs)} '{graph.name}'.",
        *(f"  {names[t]}: input, the {seed} {x}" for x, t in seeds.items()),
        *(f"  {names[t]}: {result} {x}" for x, t in results.items()),
    )
    return replace(
        first,
        graph=replace(whole, name=f"{graph.name}_{kind}", notes=notes),
        seeds={x: names[tensor] for x, tensor in seeds.items()},
        gradients={x: names[tensor] for x, tensor in results.items()},
        loops=(),
        broadcasts={},
        kind=kind,
    )


# The title of a graph, what its seeds, whose names begin so, and its results are, and how
# the names of results begin that have other names yet.
_WORDS: dict[Kind, tuple[str, str, str, str]] = {
    "jacobian": ("The Jacobians of '{}' in", "", "with respect to", ""),
    "jvp": (
        "The Jacobian-vector product of",
        "tangent of",
        "the tangent of",
        "tangent",
    ),
    "hvp": ("The Hessian-vector product of", "vector for", "the product for", "hvp"),
    "hessian": ("The Hessian of", "", "the Hessian with respect to", "hessian"),
    "saliency": ("The saliency of", "", "the saliency of", ""),
    "laplacian": ("The Laplacian of '{}' in", "", "the Laplacian with respect to", ""),
    "divergence": (
        "The divergence of '{}' in",
        "",
        "the divergence with respect to",
        "",
    ),
    "penalty": ("The gradient penalty of", "", "the penalty on the gradient of", ""),
}
