"""The interpreter: the semantics of every standard operation, on numpy arrays.

It is an executable definition, not a fast runtime. Each module evaluates one or
more families of operations. A compound operation has an evaluation only where that is
more accurate or faster than its body, or decides as a whole; otherwise it is evaluated
by its body. This package needs numpy, which the compiler does not: no module of the
compiler imports it.

    from nnef_grad.interpreter import evaluate

    outputs = evaluate(graph, {"x": x}, {"layer/weight": weight})
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.rewriting import Decompose, inline_fully
from nnef_grad.graph import loops as graph_loops
from nnef_grad.graph.ir import Graph, Operation
from nnef_grad.graph.symbols import numbers_of, symbols, with_numbers

# Importing the families enters their evaluations.
from nnef_grad.interpreter import (  # noqa: F401
    elementwise,
    quantize,
    sampling,
    shape,
    windows,
)
from nnef_grad.interpreter.execution import (
    Feeds,
    collect_feeds,
    execute,
    find_evaluation,
    step,
)
from nnef_grad.interpreter.registry import EVALUATIONS
from nnef_grad.ops.costs import last_uses

__all__ = ["EVALUATIONS", "evaluate", "execute", "results", "step", "with_bodies"]


@public
def evaluate(
    graph: Graph | Backward,
    inputs: Feeds,
    variables: Feeds | None = None,
    *,
    dtype: npt.DTypeLike = np.float64,
    rules: Rules | None = None,
) -> dict[str, Array]:
    """The outputs of a graph, by name.

    Args:
        graph: a flat graph, or the backward graph of one.
        inputs: an array for each input, by name, of its shape: floats or integers for a
            scalar tensor, integers for an integer one, bools for a logical one. The
            array gives symbols in the shape their numbers.
        variables: the same for each variable, by its label, ignoring case; unknown
            labels are ignored.
        dtype: float64 or float32, the type of scalar tensors. Integer tensors are
            int64, logical ones bool.
        rules: the evaluations of the user's own operations.

    Returns:
        An array for each output, of the output's shape, which shares no memory with the
        inputs and variables. `update` changes no variable: the caller passes its result
        to the next run.

    Raises:
        UsageError: data are missing or do not fit; an operation has no evaluation, or
            no result, as for an index out of range; an evaluation returns wrong
            results, or is for an unknown operation.
    """
    dtype = _scalar_type(dtype)
    rules = rules if rules is not None else Rules()
    flat = graph.graph if isinstance(graph, Backward) else graph
    if symbols(flat):
        shapes = {name: np.shape(data) for name, data in inputs.items()}
        flat = with_numbers(flat, numbers_of(flat, shapes))
    rules.refuse_unknown(flat.custom_operations)
    computed = results(flat, inputs, variables or {}, dtype, rules)
    outputs = {name: np.array(array) for name, array in computed}
    return {name: outputs[name] for name in flat.output_names}


def results(
    graph: Graph,
    inputs: Feeds,
    variables: Feeds,
    dtype: npt.DTypeLike = np.float64,
    rules: Rules | None = None,
) -> Iterator[tuple[str, Array]]:
    """Yields each output, by name, once no operation reads it; it may share memory."""
    rules = rules if rules is not None else Rules()
    graph = decomposed(graph, rules)
    names, outputs = graph.names, set(graph.outputs)
    tensors = collect_feeds(graph, inputs, variables)
    for operation, dead in zip(graph.operations, last_uses(graph), strict=True):
        tensors.update(step(operation, tensors, dtype, rules.evaluations, names))
        for tensor in dead - outputs:
            del tensors[tensor]
        for tensor in dead & outputs:
            yield names[tensor], tensors.pop(tensor)


def decomposed(graph: Graph, rules: Rules) -> Graph:
    """The graph with bodies for operations without an evaluation. Its tensors stay."""

    def body(operation: Operation) -> Decompose | None:
        is_primitive = operation.definition.body is None
        if is_primitive or find_evaluation(operation.name, rules.evaluations):
            return None
        return instantiate_body

    # Those of loops are other graphs.
    graph = graph_loops.with_bodies(graph, lambda loop: decomposed(loop, rules))
    # Bodies may contain operations with bodies. They share no tensor of the graph, though
    # they compute the same: when the check moves it, the body must not move.
    own = frozenset(graph.tensors.values())
    return inline_fully(graph, body, rules.opset, own)


def _scalar_type(dtype: npt.DTypeLike) -> np.dtype[np.floating]:
    for precision in (np.dtype(np.float64), np.dtype(np.float32)):
        if dtype is not None and precision == dtype:
            return precision
    raise UsageError(f"'dtype' must be float32 or float64, but is {dtype}")
