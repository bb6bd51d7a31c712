"""Traces of second and first derivatives, for each example: Laplacians and divergences.

Forward mode takes all directions at once, as a Jacobian takes all rows: the tangents are those
of the identity. What is needed of each direction is one number, and no matrix of second
derivatives is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from nnef_grad.autodiff.backward import Backward, Kind, Wrt, wrt_tensors
from nnef_grad.autodiff.batching import batch
from nnef_grad.autodiff.composed import emitter_after, of_gradients
from nnef_grad.autodiff.compositions import (
    MAX_ROWS,
    axis_found,
    identity,
    jvp,
    one_output,
)
from nnef_grad.autodiff.example_axes import PerExample, extents_apart
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Tensor


@public
def laplacian(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    per_example: PerExample = True,
    rules: Rules | None = None,
) -> Backward:
    """The Laplacian of an output, for each example, as a graph: the sum of the second
    derivatives by each element of a tensor.

    Args:
        graph, stop, per_example, rules: as for `differentiate`. There is always one for
            each example.
        wrt: the tensor; optional if there is only one input.
        outputs: the one output; optional if there is only one.

    Returns:
        The graph. Its output `laplacian_x` has the shape of the output: each element of
        it has a Laplacian.

    Raises:
        UsageError: several tensors are named, or as for `jacobian`.
        NoDerivativeError: as for `differentiate`; or the examples meet in an operation.
    """
    x = _one_tensor(graph, wrt, per_example, "Laplacian")
    along = partial(jvp, wrt=[x], stop=stop, rules=rules)
    first = along(graph, outputs=outputs, per_example=per_example)
    again = along(first.graph, outputs=[*first.gradients.values()])
    axes = first.example_axes
    second = replace(again, outputs=first.outputs, per_example=True, example_axes=axes)
    tangents = [first.seeds[x], second.seeds[x]]

    def total(emit: Emitter, bent: Tensor, _: Tensor) -> Tensor:
        sums = emit("sum_reduce", bent, axes=[0], hint="sums")
        return emit("squeeze", sums, axes=[0])

    return _trace(graph, x, second, tangents, "laplacian", total, rules)


@public
def divergence(
    graph: Graph,
    *,
    wrt: Wrt = "inputs",
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    per_example: PerExample = True,
    rules: Rules | None = None,
) -> Backward:
    """The divergence of an output, for each example, as a graph: the sum of the derivatives
    of each element by the element of a tensor at the same place.

    Args:
        graph, stop, per_example, rules: as for `differentiate`. There is always one for
            each example.
        wrt: the tensor, of the shape of the output; optional if there is only one input.
        outputs: the one output; optional if there is only one.

    Returns:
        The graph. Its output `divergence_x` has the shape [n].

    Raises:
        UsageError: the shapes differ, several tensors are named, or as for `jacobian`.
        NoDerivativeError: as for `differentiate`; or the examples meet in an operation.
    """
    x = _one_tensor(graph, wrt, per_example, "divergence")
    output, _ = one_output(graph, outputs, [graph.tensors[x]], per_example)
    if output.shape != (shape := graph.tensors[x].shape):
        both = f"{list(output.shape)} and {list(shape)}"
        message = f"'{graph.names[output]}' and '{x}' must have one shape"
        raise UsageError(f"a divergence is that of a field: {message}, not {both}")
    along = partial(jvp, wrt=[x], stop=stop, rules=rules)
    first = along(graph, outputs=outputs, per_example=per_example)

    def total(emit: Emitter, moved: Tensor, rows: Tensor) -> Tensor:
        axes = [axis for axis in range(moved.rank) if axis != 1 + first.axis(x)]
        own = emit("mul", moved, rows, hint="own")
        sums = emit("sum_reduce", own, axes=axes, hint="sums")
        return emit("squeeze", sums, axes=axes)

    return _trace(graph, x, first, [first.seeds[x]], "divergence", total, rules)


def _one_tensor(graph: Graph, wrt: Wrt, per_example: PerExample, what: str) -> str:
    """The tensor that a trace is that of."""
    targets = wrt_tensors(graph, wrt)
    if len(targets) > 1:
        listed = ", ".join(f"'{graph.names[x]}'" for x in targets)
        raise UsageError(f"a {what} is that of one tensor: name one of {listed}")
    if per_example is False:
        raise UsageError(f"a {what} is one for each example of a batch")
    return graph.names[targets[0]]


def _trace(
    graph: Graph,
    x: str,
    first: Backward,
    tangents: Sequence[str],
    kind: Kind,
    total: Callable[[Emitter, Tensor, Tensor], Tensor],
    rules: Rules | None,
) -> Backward:
    """A sum over the directions of what one output of a graph is for each, whose tangents are
    given by name.
    """
    (name,) = first.gradients.values()
    emit = emitter_after(first.graph, rules, ())
    directions = [first.graph.tensors[tangent] for tangent in tangents]
    axis = axis_found(first, x)
    count = prod(extents_apart(directions[0].shape, axis)[1])
    if has_symbols(count) or count > MAX_ROWS:
        most = f"{MAX_ROWS} directions are the most, and '{x}' has {count} for each example"
        raise UsageError(f"a {kind} takes all directions at once: {most}")
    rows = {t: identity(emit, t, axis) for t in directions}
    many = batch(emit, first.graph, rows)

    def traced(emit: Emitter, moved: Tensor) -> Tensor:
        shape, value = (count, *moved.shape), [0.0]
        found = many.get(moved) or emit("constant", shape=shape, value=value)
        return total(emit, found, rows[directions[0]])

    first = replace(first, gradients={x: name}, seeds={})
    return of_gradients(graph, first, emit, kind, traced)
