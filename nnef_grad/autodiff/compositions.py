"""Derivatives that are composed of gradients: Jacobians, tangents, products with Hessians,
Hessians, saliency, gradient penalties.

They have no rules of their own. A backward graph for all seeds that are a single one among
zeros, at once, is a Jacobian. A backward graph is linear in its seeds, so that its derivative
with respect to them is forward mode; its derivative with respect to anything else is of
second order.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from nnef_grad.autodiff.backward import (
    Backward,
    Wrt,
    differentiated_outputs,
    wrt_tensors,
)
from nnef_grad.autodiff.batching import batch
from nnef_grad.autodiff.composing import (
    composed,
    emitter_after,
    of_gradients,
    with_fresh_names,
)
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.collector import collector_paused
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.graph.symbols import refuse_symbols
from nnef_grad.language.library import standard
from nnef_grad.ops.shape import reshaped

# The most elements of a Jacobian, and of the output that it is the derivative of.
MAX_ELEMENTS = 100_000_000
MAX_ROWS = 10_000
# Added to a squared norm, whose root has no slope at zero.
_EPSILON = 1e-12


@public
@collector_paused()
def jacobian(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    with_outputs: bool = False,
    rules: Rules | None = None,
) -> Backward:
    """The Jacobians of an output, as a graph.

    Args:
        graph: the forward graph.
        wrt: as for `differentiate`.
        outputs: the one output to differentiate; optional if there is only one.
        stop: as for `differentiate`.
        with_outputs: as for `differentiate`.
        rules: as for `differentiate`.

    Returns:
        The graph. A Jacobian has the shape of the output followed by that of the
        tensor: element [i..., j...] is the derivative of element i of the output with
        respect to element j of the tensor. There are no seeds.

    Raises:
        UsageError: a name is unknown, the graph has several outputs and none is named,
            or a Jacobian would have more than 100,000,000 elements or the output more
            than 10,000.
        NoDerivativeError: as for `differentiate`.
        InvalidGraphError: an extent has no number.
    """
    refuse_symbols(graph, "a Jacobian cannot have")
    output = _output(graph, outputs)
    _check_sizes(graph, output, wrt_tensors(graph, wrt))
    first = differentiate(
        graph,
        wrt=wrt,
        outputs=[graph.names[output]],
        stop=stop,
        seed="input" if prod(output.shape) > 1 else "ones",
        with_outputs=with_outputs,
        rules=rules,
    )
    there = () if first.seeds else first.graph.operations
    emit = emitter_after(first.graph, rules, there)
    rows = {t: t for t in first.graph.outputs}
    for name in first.seeds.values():
        seed = first.graph.tensors[name]
        rows = batch(emit, first.graph, seed, _identity(emit, seed))

    def whole(emit: Emitter, gradient: Tensor) -> Tensor:
        """The Jacobian in its shape; where no row depends on its seed, all are zeros."""
        shape = (*output.shape, *gradient.shape)
        if gradient in rows:
            return reshaped(emit, rows[gradient], shape)
        return emit("constant", shape=shape, value=[0.0])

    found = of_gradients(graph, first, emit, "jacobian", whole)
    return replace(found, loops=first.loops, broadcasts=first.broadcasts)


def _output(graph: Graph, chosen: Sequence[str] | None) -> Tensor:
    """The one output that is differentiated."""
    found = differentiated_outputs(graph, chosen)
    if len(found) > 1:
        listed = ", ".join(f"'{graph.names[output]}'" for output in found)
        message = "a Jacobian is the derivative of one output: choose one of"
        raise UsageError(f"{message} {listed}")
    return found[0]


def _check_sizes(graph: Graph, output: Tensor, targets: Sequence[Tensor]) -> None:
    rows, name = prod(output.shape), graph.names[output]
    if rows > MAX_ROWS:
        message = f"'{name}' has {rows} elements: a Jacobian may have"
        raise UsageError(f"{message} {MAX_ROWS} rows at most")
    for target in targets:
        columns = prod(target.shape)
        if rows * columns > MAX_ELEMENTS:
            message = (
                f"the Jacobian of '{name}' with respect to '{graph.names[target]}' would"
                f" have {rows} x {columns} elements: {MAX_ELEMENTS} are the most"
            )
            raise UsageError(message)


def _identity(emit: Emitter, seed: Tensor) -> Tensor:
    """The identity: for each element of the seed a one at its place."""
    rows = prod(seed.shape)
    numbers = [float(row) for row in range(rows)]
    row = emit("constant", shape=[rows, 1], value=numbers, hint="row")
    column = emit("constant", shape=[1, rows], value=numbers, hint="column")
    diagonal = emit("eq", row, column, hint="diagonal")
    identity = emit("select", diagonal, 1.0, 0.0, hint="identity")
    return reshaped(emit, identity, (rows, *seed.shape), hint=emit.names[seed])


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
    called |= _tangents(made, graph, called)
    made = with_fresh_names(prune(_with_ones(made, seeds)), called)
    return composed(graph, first, made, "jvp", given, tangents)


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
    made = with_fresh_names(second.graph, called)
    return composed(graph, first, made, "hvp", vectors, products)


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
    made = with_fresh_names(second.graph, {found[x]: f"hessian_{x}"})
    return composed(graph, first, made, "hessian", {}, found)


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

    emit = emitter_after(graph, rules, graph.operations)
    scores = tuple(score(emit, y) for y in differentiated_outputs(graph, outputs))
    names = emit.assigned_names(emit.operations, graph.tensors)
    operations = tuple(emit.operations)
    scored = replace(graph, outputs=scores, operations=operations, names=names)
    first = differentiate(scored, wrt=wrt, stop=stop, seed="ones", rules=rules)
    emit = emitter_after(first.graph, rules, first.graph.operations)
    return of_gradients(graph, first, emit, "saliency", size)


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

    first = differentiate(
        graph, wrt=wrt, outputs=outputs, stop=stop, seed="ones", rules=rules
    )
    emit = emitter_after(first.graph, rules, first.graph.operations)
    return of_gradients(graph, first, emit, "penalty", penalty)


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
