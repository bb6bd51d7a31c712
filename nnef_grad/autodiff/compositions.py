"""Derivatives that are composed of gradients: tangents, products with Hessians, Hessians,
saliency, gradient penalties.

They have no rules of their own. A backward graph is linear in its seeds, so that its
derivative with respect to them is forward mode; its derivative with respect to anything else
is of second order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nnef_grad.autodiff.backward import (
    Backward,
    Kind,
    Wrt,
    differentiated_outputs,
    finished,
    wrt_tensors,
)
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.jacobian import jacobian
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.passes import prune
from nnef_grad.language.library import standard

# Added to a squared norm, whose root has no slope at zero.
_EPSILON = 1e-12


@public
def jvp(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    with_outputs: bool = False,
    rules: Rules | None = None,
) -> Backward:
    """The Jacobian-vector product of a graph, as a graph: forward mode.

    Args:
        graph: the forward graph.
        wrt: the tensors that move, as for `differentiate`.
        outputs: as for `differentiate`.
        stop: as for `differentiate`.
        with_outputs: as for `differentiate`.
        rules: as for `differentiate`. Rules must be linear in their gradients, as
            derivatives are.

    Returns:
        The graph. Its `seeds` name the input `tangent_x` for each tensor x that moves, its
        `gradients` the output `tangent_y` for each output y: how y moves.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """
    own = partial(differentiate, rules=rules)
    first = own(graph, wrt=wrt, outputs=outputs, stop=stop, with_outputs=with_outputs)
    second = own(
        first.graph,
        wrt=[*first.seeds.values()],
        outputs=[*first.gradients.values()],
        with_outputs=True,
    )
    tensors = second.graph.tensors
    tangents = {y: tensors[second.gradients[d]] for y, d in first.seeds.items()}
    given = {x: tensors[second.seeds[d]] for x, d in first.gradients.items()}
    kept = graph.output_names if with_outputs else ()
    made = replace(
        second.graph,
        inputs=(*graph.inputs, *given.values()),
        outputs=(*tangents.values(), *(tensors[name] for name in kept)),
        operations=tuple(map(_of_forward, second.graph.operations)),
    )
    seeds = {tensors[name] for name in first.seeds.values()}
    called = {x: f"tangent_{name}" for name, x in (*given.items(), *tangents.items())}
    made = _named(
        prune(_with_ones(made, seeds)), {**called, **_tangents(made, graph, called)}
    )
    return _composed(graph, first, made, "jvp", given, tangents)


@public
def hvp(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    rules: Rules | None = None,
) -> Backward:
    """The Hessian of the sum of all output elements times a vector, as a graph.

    Args:
        graph: the forward graph.
        wrt: as for `differentiate`.
        outputs: as for `differentiate`.
        stop: as for `differentiate`.
        rules: as for `differentiate`.

    Returns:
        The graph. Its `seeds` name the input `vector_x` for each tensor x, its `gradients`
        the output `hvp_x`: the second derivatives by x and each tensor, times its
        vector.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """
    own = partial(differentiate, rules=rules)
    targets = [graph.names[x] for x in wrt_tensors(graph, wrt)]
    first = own(graph, wrt=targets, outputs=outputs, stop=stop, seed="ones")
    second = own(
        first.graph, wrt=targets, outputs=[*first.gradients.values()], stop=stop
    )
    tensors = second.graph.tensors
    vectors = {x: tensors[second.seeds[first.gradients[x]]] for x in targets}
    products = {x: tensors[second.gradients[x]] for x in targets}
    called = {vectors[x]: f"vector_{x}" for x in targets}
    called |= {products[x]: f"hvp_{x}" for x in targets}
    made = _named(second.graph, called)
    return _composed(graph, first, made, "hvp", vectors, products)


@public
def hessian(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    rules: Rules | None = None,
) -> Backward:
    """The Hessian of an output with respect to one tensor, as a graph.

    Args:
        graph: the forward graph.
        wrt: the tensor; optional if there is only one.
        outputs: the one output; if it has several elements, their sum.
        stop: as for `differentiate`.
        rules: as for `differentiate`.

    Returns:
        The graph. Its output `hessian_x` has the shape of x twice: element [i..., j...] is
        the second derivative by elements i and j of x.

    Raises:
        UsageError: several tensors are named, or as for `jacobian`.
        NoDerivativeError, InvalidGraphError: as for `jacobian`.
    """
    targets = [graph.names[x] for x in wrt_tensors(graph, wrt)]
    if len(targets) > 1:
        listed = ", ".join(map(repr, targets))
        raise UsageError(f"a Hessian is that of one tensor: name one of {listed}")
    (x,) = targets
    first = differentiate(
        graph, wrt=targets, outputs=outputs, stop=stop, seed="ones", rules=rules
    )
    second = jacobian(
        first.graph, wrt=targets, outputs=[first.gradients[x]], stop=stop, rules=rules
    )
    found = {x: second.graph.tensors[second.gradients[x]]}
    made = _named(second.graph, {found[x]: f"hessian_{x}"})
    return _composed(graph, first, made, "hessian", {}, found)


@public
def saliency(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    rules: Rules | None = None,
) -> Backward:
    """The saliency of each element of a tensor: how much the largest score moves with it.

    It is the absolute value of the gradient of the largest output element, for each
    item of the batch; for images, the largest over the channels (Simonyan et al. 2013).
    Use the scores before a softmax.

    Args:
        graph: the forward graph.
        wrt: as for `differentiate`.
        outputs: the outputs with scores, of shape [batch, ...]; by default, all scalar
            ones.
        stop: as for `differentiate`.
        rules: as for `differentiate`.

    Returns:
        The graph. Its outputs `saliency_x` have the shapes of the tensors, with one
        channel in axis 1 if there are three axes or more.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """

    def score(emit: Emitter, y: Tensor) -> Tensor:
        axes = list(range(1, y.rank))
        return emit("max_reduce", y, axes=axes, hint="score") if axes else y

    def size(emit: Emitter, gradient: Tensor) -> Tensor:
        sizes = emit("abs", gradient, hint="sizes")
        is_image = gradient.rank > 2 and gradient.shape[1] != 1
        return emit("max_reduce", sizes, axes=[1]) if is_image else sizes

    scored = _with_scores(graph, outputs, score, rules)
    return _of_gradients(graph, scored, wrt, stop, rules, "saliency", size)


@public
def gradient_penalty(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    norm: float = 1.0,
    rules: Rules | None = None,
) -> Backward:
    """A gradient penalty: the mean over the batch of (|gradient| - norm)^2 (Gulrajani
    et al. 2017, WGAN-GP).

    You can differentiate the graph with respect to variables, or train it.

    Args:
        graph: the forward graph.
        wrt: as for `differentiate`.
        outputs: as for `differentiate`; the gradient of the sum of their elements is
            used.
        stop: as for `differentiate`.
        norm: the wanted norm of the gradients.
        rules: as for `differentiate`.

    Returns:
        The graph. Its outputs `penalty_x` have one element and the rank of x.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """

    def penalty(emit: Emitter, gradient: Tensor) -> Tensor:
        axes = list(range(1, gradient.rank))
        squares = emit("sqr", gradient, hint="squares")
        total = (
            emit("sum_reduce", squares, axes=axes, hint="total") if axes else squares
        )
        length = emit("sqrt", emit("add", total, _EPSILON), hint="norm")
        excess = emit("sub", length, norm, hint="excess")
        loss = emit("sqr", excess, hint="loss")
        return emit("mean_reduce", loss, axes=[0]) if gradient.rank else loss

    chosen = [graph.names[y] for y in differentiated_outputs(graph, outputs)]
    scored = graph, chosen
    return _of_gradients(graph, scored, wrt, stop, rules, "penalty", penalty)


# ---- Composition ----

Scored = tuple[Graph, list[str]]


def _with_scores(
    graph: Graph,
    outputs: Sequence[str] | None,
    score: Callable[[Emitter, Tensor], Tensor],
    rules: Rules | None,
) -> Scored:
    """The graph with a score of each output in place of its outputs, and their names."""
    emit = _emitter(graph, rules)
    scores = [score(emit, y) for y in differentiated_outputs(graph, outputs)]
    names = emit.assigned_names(emit.operations, graph.tensors)
    made = replace(
        graph, outputs=tuple(scores), operations=tuple(emit.operations), names=names
    )
    return made, [names[y] for y in scores]


def _of_gradients(
    graph: Graph,
    scored: Scored,
    wrt: Wrt,
    stop: Sequence[str],
    rules: Rules | None,
    kind: Kind,
    function: Callable[[Emitter, Tensor], Tensor],
) -> Backward:
    """A function of each gradient of the sum of all elements of some outputs."""
    whole, outputs = scored
    first = differentiate(
        whole, wrt=wrt, outputs=outputs, stop=stop, seed="ones", rules=rules
    )
    emit, supply = _emitter(first.graph, rules), NameSupply(first.graph.tensors)
    found: dict[str, Tensor] = {}
    for x, name in first.gradients.items():
        result = function(emit, first.graph.tensors[name])
        found[x] = emit.pin_name(result, supply.fresh(f"{kind}_{x}"))
    made = replace(
        first.graph,
        outputs=tuple(found.values()),
        operations=tuple(emit.operations),
        names=emit.names,
    )
    made = finished(made, graph, emit, supply.taken)
    return _composed(graph, first, made, kind, {}, found)


def _emitter(graph: Graph, rules: Rules | None) -> Emitter:
    """An emitter that has emitted a graph."""
    opset = (rules or Rules()).opset.extended(graph.fragments)
    emit = Emitter(opset, graph.names, simplify)
    for operation in graph.operations:
        emit.append(operation)
    return emit


def _composed(
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
        f"{title} of '{graph.name}'.",
        *(f"  {names[t]}: input, the {given} {x}" for x, t in seeds.items()),
        *(f"  {names[t]}: the {result} {x}" for x, t in results.items()),
    )
    return Backward(
        replace(made, name=f"{graph.name}_{kind}", notes=notes),
        {x: names[tensor] for x, tensor in seeds.items()},
        {x: names[tensor] for x, tensor in results.items()},
        first.warnings,
        first.reductions,
        first.outputs,
        first.stopped,
        kind=kind,
    )


# The title of a graph, and what its seeds and its results are.
_WORDS: dict[Kind, tuple[str, str, str]] = {
    "jvp": ("The Jacobian-vector product", "tangent of", "tangent of"),
    "hvp": ("The Hessian-vector product", "vector for", "product for"),
    "hessian": ("The Hessian", "", "Hessian with respect to"),
    "saliency": ("The saliency", "", "saliency of"),
    "penalty": ("The gradient penalty", "", "penalty on the gradient of"),
}


def _named(graph: Graph, called: Mapping[Tensor, str]) -> Graph:
    """The graph with other names for some tensors."""
    supply = NameSupply(name for x, name in graph.names.items() if x not in called)
    fresh = {x: supply.fresh(name) for x, name in called.items()}
    return replace(graph, names={**graph.names, **fresh})


# ---- Forward mode ----


def _of_forward(operation: Operation) -> Operation:
    """The operation under the heading of the forward operation that it moves with."""
    origin = operation.origin
    if origin is None or origin.origin is None:
        return operation
    return replace(operation, origin=origin.origin)


def _tangents(
    graph: Graph, forward: Graph, called: Container[Tensor]
) -> dict[Tensor, str]:
    """Names for what a second differentiation calls gradients of gradients."""
    return {
        x: name.replace("grad_grad_", "tangent_").replace("grad_", "tangent_")
        for name, x in graph.tensors.items()
        if "grad_" in name and x not in forward.names and x not in called
    }


def _with_ones(graph: Graph, seeds: Container[Tensor]) -> Graph:
    """The graph without seeds, on which it does not depend: a mask that asks whether one is
    zero gets ones.
    """
    operations = [
        _ones(op.outputs[0]) if op.outputs[0] in seeds else op
        for op in graph.operations
    ]
    return replace(graph, operations=tuple(operations))


def _ones(tensor: Tensor) -> Operation:
    settings: Any = {"shape": tensor.shape, "value": (1.0,)}
    return Operation(standard()["constant"], (), settings, (tensor,), tensor.dtype)
