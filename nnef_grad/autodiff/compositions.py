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
from sys import float_info
from typing import Any

from nnef_grad.autodiff.backward import (
    Backward,
    Wrt,
    differentiated_outputs,
    wrt_tensors,
)
from nnef_grad.autodiff.batching import batch
from nnef_grad.autodiff.composed import composed, emitter_after, of_gradients
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.example_axes import PerExample, axes_of, extents_apart
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.errors import InvalidGraphError, UsageError
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.graph.rewriting import sweep
from nnef_grad.graph.symbols import refuse_symbols
from nnef_grad.language.library import STDLIB
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
    per_example: PerExample = False,
    rules: Rules | None = None,
) -> Backward:
    """The Jacobians of an output, as a graph.

    Args:
        graph, wrt, stop, with_outputs, per_example, rules: as for `differentiate`.
        outputs: the one output to differentiate; optional if there is only one.

    Returns:
        The graph. A Jacobian has the shape of the output followed by that of the
        tensor: element [i..., j...] is the derivative of element i of the output with
        respect to element j of the tensor. There are no seeds. For each example it has
        the shape [n, out..., in...].

    Raises:
        UsageError: a name is unknown, the graph has several outputs and none is named,
            or a Jacobian would have more than 100,000,000 elements or the output more
            than 10,000.
        NoDerivativeError: as for `differentiate`.
        InvalidGraphError: an extent has no number.
    """
    if per_example is False:
        refuse_symbols(graph, "a Jacobian cannot have")
    output, axis = one_output(graph, outputs, wrt_tensors(graph, wrt), per_example)
    _, one = extents_apart(output.shape, axis)
    first = differentiate(
        graph,
        wrt=wrt,
        outputs=[graph.names[output]],
        stop=stop,
        seed="input" if prod(one) > 1 else "ones",
        with_outputs=with_outputs,
        per_example=per_example,
        rules=rules,
    )
    there = () if first.seeds else first.graph.operations
    emit = emitter_after(first.graph, rules, there)
    rows = {t: t for t in first.graph.outputs}
    for name in first.seeds.values():
        seed = first.graph.tensors[name]
        rows = batch(emit, first.graph, {seed: identity(emit, seed, axis)})
    of_rows = len(first.seeds)
    columns = {first.graph.tensors[d]: x for x, d in first.gradients.items()}

    def whole(emit: Emitter, gradient: Tensor) -> Tensor:
        # Where no row depends on its seed, all are zeros.
        of_examples = axis_found(first, columns[gradient])
        count, own = extents_apart(gradient.shape, of_examples)
        shape = (*count, *one, *own)
        if gradient in rows:
            all_rows = rows[gradient]
            if of_examples is not None and (at := of_rows + of_examples):
                order = [at, *range(at)]
                all_rows = emit("transpose", all_rows, axes=order, hint="rows")
            return reshaped(emit, all_rows, shape)
        return emit("constant", shape=shape, value=[0.0])

    jacobians = of_gradients(graph, first, emit, "jacobian", whole)
    return replace(jacobians, loops=first.loops, broadcasts=first.broadcasts)


def one_output(
    graph: Graph,
    chosen: Sequence[str] | None,
    targets: Sequence[Tensor],
    per_example: PerExample,
) -> tuple[Tensor, int | None]:
    """The one output that is differentiated, if the Jacobians are not too large, and the
    axis of it that counts examples.
    """
    output, *others = differentiated_outputs(graph, chosen)
    if others:
        listed = ", ".join(f"'{graph.names[y]}'" for y in (output, *others))
        message = "a Jacobian is the derivative of one output: choose one of"
        raise UsageError(f"{message} {listed}")
    axis = None
    if per_example is not False:
        axis = axes_of(graph, [output], per_example)[output]
    rows, name = prod(extents_apart(output.shape, axis)[1]), graph.names[output]
    if has_symbols(rows):
        message = f"a Jacobian cannot have as many rows as '{name}' has elements"
        raise InvalidGraphError(f"{message}, {rows}: give the symbols numbers")
    if rows > MAX_ROWS:
        most = f"a Jacobian may have {MAX_ROWS} rows at most"
        raise UsageError(f"'{name}' has {rows} elements: {most}")
    for target in targets:
        columns = nominal(prod(target.shape))
        if rows * columns > MAX_ELEMENTS:
            what = f"of '{name}' with respect to '{graph.names[target]}'"
            size = f"{rows} x {columns} elements: {MAX_ELEMENTS} are the most"
            raise UsageError(f"the Jacobian {what} would have {size}")
    return output, axis


def axis_found(first: Backward, name: str) -> int | None:
    """The axis that counts examples in the gradient of a tensor, if one does."""
    if not first.per_example:
        return None
    if name not in first.example_axes:
        what = f"the examples of '{name}' have no axis to themselves"
        raise UsageError(f"{what}: they have no Jacobian with respect to it")
    return first.axis(name)


def identity(emit: Emitter, seed: Tensor, axis: int | None) -> Tensor:
    """The identity: for each element of the seed, or of its part for one example, a one at
    its place.
    """
    _, one = extents_apart(seed.shape, axis)
    rows, name = prod(one), emit.names[seed]
    numbers = [*map(float, range(rows))]
    row = emit("constant", shape=[rows, 1], value=numbers, hint="row")
    column = emit("constant", shape=[1, rows], value=numbers, hint="column")
    diagonal = emit("eq", row, column, hint="diagonal")
    identity = emit("select", diagonal, 1.0, 0.0, hint="identity")
    if axis is None:
        return reshaped(emit, identity, (rows, *one), hint=name)
    shape = (rows, *one[:axis], 1, *one[axis:])
    single = reshaped(emit, identity, shape, hint="one_example")
    repeats: list[Dimension] = [1] * len(shape)
    repeats[axis + 1] = seed.shape[axis]
    return emit("tile", single, repeats=repeats, hint=name)


@public
def jvp(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    with_outputs: bool = False,
    per_example: PerExample = False,
    rules: Rules | None = None,
) -> Backward:
    """The Jacobian-vector product of a graph, as a graph: forward mode.

    Args:
        graph, wrt, outputs, stop, with_outputs, per_example, rules: as for
            `differentiate`. The tensors of `wrt` are those that move. Rules must be
            linear in their gradients, as derivatives are.

    Returns:
        The graph. Its `seeds` name the input `tangent_x` for each tensor x that moves, its
        `gradients` the output `tangent_y` for each output y: how y moves. For each
        example, what all share moves on its own.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """
    own = partial(differentiate, rules=rules)
    first = own(
        graph,
        wrt=wrt,
        outputs=outputs,
        stop=stop,
        with_outputs=with_outputs,
        per_example=per_example,
    )
    seeds, gradients = [*first.seeds.values()], [*first.gradients.values()]
    second = own(first.graph, wrt=seeds, outputs=gradients, with_outputs=True)
    tensors = second.graph.tensors
    results = {y: tensors[second.gradients[d]] for y, d in first.seeds.items()}
    inputs = {x: tensors[second.seeds[d]] for x, d in first.gradients.items()}
    kept = graph.output_names if with_outputs else ()
    moved = {tensors[name] for name in seeds}
    forward = replace(
        sweep(second.graph, partial(_of_forward, moved)),
        inputs=(*graph.inputs, *inputs.values()),
        outputs=(*results.values(), *(tensors[name] for name in kept)),
    )
    # What a second differentiation calls gradients of gradients.
    steps = {
        x: name.replace("grad_grad_", "tangent_").replace("grad_", "tangent_")
        for name, x in tensors.items()
        if "grad_" in name and x not in graph.names
    }
    return composed(graph, first, prune(forward), "jvp", inputs, results, steps)


def _of_forward(seeds: Container[Tensor], operation: Operation) -> Operation:
    """The operation under the heading of the forward operation that it moves with.
    Nothing depends on seeds: a mask that asks whether one is zero gets ones.
    """
    if operation.outputs[0] in seeds:
        ones: Any = {**operation.attributes, "value": (1.0,)}
        return replace(operation, definition=STDLIB["constant"], attributes=ones)
    origin = operation.origin
    if origin is None or origin.origin is None:
        return operation
    return replace(operation, origin=origin.origin)


@public
def hvp(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    per_example: PerExample = False,
    rules: Rules | None = None,
) -> Backward:
    """The Hessian of the sum of all output elements times a vector, as a graph.

    Args:
        graph, wrt, outputs, stop, per_example, rules: as for `differentiate`.

    Returns:
        The graph. Its `seeds` name the input `vector_x` for each tensor x, its `gradients`
        the output `hvp_x`: the second derivatives by x and each tensor, times its
        vector.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """
    targets = [graph.names[x] for x in wrt_tensors(graph, wrt)]
    first = _of_sum(graph, targets, outputs, stop, per_example, rules)
    gradients = [*first.gradients.values()]
    second = differentiate(
        first.graph,
        wrt=targets,
        outputs=gradients,
        stop=stop,
        per_example=first.axes,
        rules=rules,
    )
    tensors = second.graph.tensors
    vectors = {x: tensors[second.seeds[first.gradients[x]]] for x in targets}
    products = {x: tensors[second.gradients[x]] for x in targets}
    return composed(graph, first, second.graph, "hvp", vectors, products)


@public
def hessian(
    graph: Graph,
    *,
    wrt: Wrt = "all",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    per_example: PerExample = False,
    rules: Rules | None = None,
) -> Backward:
    """The Hessian of an output with respect to one tensor, as a graph.

    Args:
        graph, stop, per_example, rules: as for `differentiate`.
        wrt: the tensor; optional if there is only one.
        outputs: the one output; if it has several elements, their sum.

    Returns:
        The graph. Its output `hessian_x` has the shape of x twice: element [i..., j...] is
        the second derivative by elements i and j of x. For each example it has the shape
        [n, in..., in...].

    Raises:
        UsageError: several tensors are named, or as for `jacobian`.
        NoDerivativeError, InvalidGraphError: as for `jacobian`.
    """
    targets = [graph.names[x] for x in wrt_tensors(graph, wrt)]
    if len(targets) > 1:
        listed = ", ".join(map(repr, targets))
        raise UsageError(f"a Hessian is that of one tensor: name one of {listed}")
    (x,) = targets
    first = _of_sum(graph, targets, outputs, stop, per_example, rules)
    second = jacobian(
        first.graph,
        wrt=targets,
        outputs=[first.gradients[x]],
        stop=stop,
        per_example=first.axes,
        rules=rules,
    )
    results = {x: second.graph.tensors[second.gradients[x]]}
    return composed(graph, first, second.graph, "hessian", {}, results)


def _of_sum(
    graph: Graph,
    wrt: Sequence[str],
    outputs: Sequence[str] | None,
    stop: Sequence[str],
    per_example: PerExample,
    rules: Rules | None,
) -> Backward:
    """The gradients of the sum of all output elements, in a graph that also has the tensors
    that they do not depend on: it is differentiated with respect to these.
    """
    sources = tuple(graph.names[y] for y in differentiated_outputs(graph, outputs))
    # Inputs stay anyway; that there is no tensor to stop, `differentiate` says.
    names = dict.fromkeys((*sources, *wrt, *stop))
    named = (graph.tensors.get(name) for name in names if name not in graph.input_names)
    whole = replace(graph, outputs=tuple(x for x in named if x is not None))
    settings: Any = {"outputs": sources, "stop": stop, "rules": rules}
    settings["per_example"] = per_example
    first = differentiate(whole, wrt=wrt, seed="ones", with_outputs=True, **settings)
    kept, first_graph = {*first.gradients.values(), *wrt, *stop}, first.graph
    ends = tuple(x for x in first_graph.outputs if first_graph.names[x] in kept)
    return replace(first, graph=prune(replace(first_graph, outputs=ends)))


@public
def saliency(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    per_example: PerExample = False,
    rules: Rules | None = None,
) -> Backward:
    """The saliency of each element of a tensor: how much the largest score moves with it.

    It is the absolute value of the gradient of the largest output element, for each
    item of the batch; for images, the largest over the channels (Simonyan et al. 2013).
    Use the scores before a softmax.

    Args:
        graph, wrt, stop, per_example, rules: as for `differentiate`. For each example,
            what all share has a saliency, too.
        outputs: the outputs with scores, of shape [batch, ...]; by default, all scalar
            ones.

    Returns:
        The graph. Its outputs `saliency_x` have the shapes of the tensors, with one
        channel in axis 1 if there are three axes or more.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """

    sources = differentiated_outputs(graph, outputs)
    named = axes_of(graph, sources, per_example)

    def score(emit: Emitter, y: Tensor) -> Tensor:
        axes = [axis for axis in range(y.rank) if axis != named[y]]
        return emit("max_reduce", y, axes=axes, hint="score") if axes else y

    def size(emit: Emitter, gradient: Tensor) -> Tensor:
        sizes = emit("abs", gradient, hint="sizes")
        channels = int(not first.axis(targets[gradient]))
        is_image = gradient.rank > 2 and gradient.shape[channels] != 1
        return emit("max_reduce", sizes, axes=[channels]) if is_image else sizes

    emit = emitter_after(graph, rules, graph.operations)
    scores = {score(emit, y): named[y] for y in sources}
    names = emit.assigned_names(emit.operations, graph.tensors)
    operations = tuple(emit.operations)
    scored = replace(graph, outputs=(*scores,), operations=operations, names=names)
    axes = {names[x]: named[x] for x in graph.inputs}
    axes |= {names[y]: axis for y, axis in scores.items()}
    each = axes if per_example is not False else False
    first = differentiate(
        scored, wrt=wrt, stop=stop, seed="ones", per_example=each, rules=rules
    )
    targets = {first.graph.tensors[d]: x for x, d in first.gradients.items()}
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
        graph, wrt, outputs, stop, rules: as for `differentiate`. The gradient is that
            of the sum of all elements of the outputs.
        norm: the wanted norm of the gradients.

    Returns:
        The graph. Its outputs `penalty_x` have one element and the rank of x.

    Raises:
        UsageError, NoDerivativeError: as for `differentiate`.
    """

    if not abs(norm) <= float_info.max:
        raise UsageError(f"the norm of gradients is a finite number, and not {norm}")

    def penalty(emit: Emitter, gradient: Tensor) -> Tensor:
        axes = list(range(1, gradient.rank))
        total = emit("sqr", gradient, hint="squares")
        if axes:
            total = emit("sum_reduce", total, axes=axes, hint="total")
        length = emit("sqrt", emit("add", total, _EPSILON), hint="norm")
        excess = emit("sub", length, float(norm), hint="excess")
        loss = emit("sqr", excess, hint="loss")
        return emit("mean_reduce", loss, axes=[0]) if gradient.rank else loss

    first = differentiate(
        graph, wrt=wrt, outputs=outputs, stop=stop, seed="ones", rules=rules
    )
    emit = emitter_after(first.graph, rules, first.graph.operations)
    return of_gradients(graph, first, emit, "penalty", penalty)
