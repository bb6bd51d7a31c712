"""Jacobians: the whole derivative of an output, in place of its product with a seed.

The backward graph is computed for all seeds that are a single one among zeros, at once:
forward work and everything else that does not depend on the seed is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from nnef_grad.autodiff.backward import (
    Backward,
    Wrt,
    differentiated_outputs,
    finished,
    wrt_tensors,
)
from nnef_grad.autodiff.batching import batch
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.collector import collector_paused
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import Graph, Shape, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.symbols import refuse_symbols
from nnef_grad.ops.shape import reshaped

# The most elements of a Jacobian, and of the output that it is the derivative of.
MAX_ELEMENTS = 100_000_000
MAX_ROWS = 10_000


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
    rules = rules if rules is not None else Rules()
    rules.refuse_unknown(graph.custom_operations)
    refuse_symbols(graph, "a Jacobian cannot have")
    output, targets = _output(graph, outputs), wrt_tensors(graph, wrt)
    _check_sizes(graph, output, targets)
    name = graph.names[output]
    backward = differentiate(
        graph,
        wrt=wrt,
        outputs=[name],
        stop=stop,
        seed="input" if prod(output.shape) > 1 else "ones",
        with_outputs=with_outputs,
        rules=rules,
    )
    fragments = (*graph.fragments, *backward.graph.fragments)
    opset, names = rules.opset.extended(fragments), backward.graph.names
    emit = Emitter(opset, names, simplify)
    rows = _rows(emit, backward, name)
    supply = NameSupply([*graph.tensors, *backward.graph.tensors])
    jacobians = {x: supply.fresh(f"jacobian_{x}") for x in backward.gradients}
    gradients = backward.graph.outputs[: len(targets)]
    results: list[Tensor] = []
    columns = zip(targets, gradients, jacobians.values(), strict=True)
    for target, gradient, called in columns:
        found = _reshape(emit, rows, gradient, (*output.shape, *target.shape))
        results.append(emit.pin_name(found, called))
    whole = Graph(
        f"{graph.name}_jacobian",
        graph.inputs,
        (*results, *backward.graph.outputs[len(targets) :]),
        tuple(emit.operations),
        emit.names,
        declared=graph.custom_operations,
        notes=(
            f"The Jacobians of '{name}' in '{graph.name}'.",
            *(f"  {called}: with respect to {x}" for x, called in jacobians.items()),
        ),
    )
    return replace(
        backward,
        graph=finished(whole, graph, emit, [*graph.tensors, *jacobians.values()]),
        seeds={},
        gradients=jacobians,
        kind="jacobian",
    )


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


def _rows(emit: Emitter, backward: Backward, output: str) -> Mapping[Tensor, Tensor]:
    """Emits the backward graph for all rows of the Jacobian: the gradients with an axis
    for the rows in front, by those of a single row.
    """
    if not backward.seeds:
        for operation in backward.graph.operations:
            emit.append(operation)
        return {gradient: gradient for gradient in backward.graph.outputs}
    seed = backward.graph.tensors[backward.seeds[output]]
    return batch(emit, backward.graph, seed, _identity(emit, seed))


def _identity(emit: Emitter, seed: Tensor) -> Tensor:
    """The identity: for each element of the seed a one at its place."""
    rows = prod(seed.shape)
    numbers = [float(row) for row in range(rows)]
    row = emit("constant", shape=[rows, 1], value=numbers, hint="row")
    column = emit("constant", shape=[1, rows], value=numbers, hint="column")
    diagonal = emit("eq", row, column, hint="diagonal")
    identity = emit("select", diagonal, 1.0, 0.0, hint="identity")
    return reshaped(emit, identity, (rows, *seed.shape), hint=emit.names[seed])


def _reshape(
    emit: Emitter, rows: Mapping[Tensor, Tensor], gradient: Tensor, shape: Shape
) -> Tensor:
    """The Jacobian in its shape; where no row depends on its seed, all are zeros."""
    if gradient in rows:
        return reshaped(emit, rows[gradient], shape)
    return emit("constant", shape=shape, value=[0.0])
