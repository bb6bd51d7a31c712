"""The interpreter: the semantics of every standard operation, on numpy arrays.

It is a definition that runs, and no fast runtime. Each module evaluates the operations
of the module of `nnef_grad.ops` that has its name; importing this package enters all of
them. It wants numpy, which the compiler does without: nothing that compiles imports it.

    from nnef_grad.interpreter import evaluate

    outputs = evaluate(graph, {"x": x}, {"layer/weight": weight})
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnef_grad.differentiate import Backward
from nnef_grad.errors import UsageError
from nnef_grad.interpreter import (
    conv,
    elementwise,
    matrix,
    normalize,
    pool,
    quantize,
    reduce,
    roi,
    sampling,
    shape,
    tensors,
)
from nnef_grad.interpreter.execution import execute, find_evaluation, step
from nnef_grad.interpreter.feeds import Data, collected
from nnef_grad.interpreter.registry import (
    EVALUATIONS,
    Array,
    Evaluation,
    UndefinedError,
    Value,
)
from nnef_grad.ir import Graph, Operation, Tensor
from nnef_grad.library import operations_of
from nnef_grad.passes.inline import Build, inline
from nnef_grad.rules import Rules, elaborate

__all__ = [
    "EVALUATIONS",
    "Array",
    "Evaluation",
    "UndefinedError",
    "Value",
    "conv",
    "elementwise",
    "evaluate",
    "execute",
    "matrix",
    "normalize",
    "pool",
    "quantize",
    "reduce",
    "roi",
    "sampling",
    "shape",
    "step",
    "tensors",
    "with_bodies",
]


def evaluate(
    graph: Graph | Backward,
    inputs: Data,
    variables: Data | None = None,
    *,
    dtype: npt.DTypeLike = np.float64,
    rules: Rules | None = None,
) -> dict[str, Array]:
    """The outputs of a graph, by name.

    Args:
        graph: a flat graph, or the backward graph of one.
        inputs: an array for each input, by name: of its shape, and of floats or integers
            for a scalar tensor, integers for an integer one, bools for a logical one.
        variables: the same for each variable, by its label; upper and lower case are one,
            and labels that the graph does not have are passed over.
        dtype: float64 or float32, in which scalar tensors are computed. Integer tensors
            are int64, logical ones bool.
        rules: they have the evaluations of the user's own operations.

    Returns:
        An array for each output, of the output's shape, which shares no memory with what
        was fed. What `update` gives is no more than its result: it is the caller who
        feeds it in the next run.

    Raises:
        UsageError: data are missing or do not fit; an operation has no evaluation, or
            none for the values of its operands, such as an index out of range; an
            evaluation gives something else than the results, or is for an operation
            that is not known.
    """
    dtype = _scalar_type(dtype)
    rules = rules if rules is not None else Rules()
    flat = graph.graph if isinstance(graph, Backward) else graph
    rules.refuse_unknown(operations_of(flat))
    flat = with_bodies(flat, rules)
    found: dict[str, Array] = dict(collected(flat, inputs, variables or {}))
    for operation, dead in zip(flat.operations, _last_uses(flat), strict=True):
        found.update(step(operation, found, dtype, rules.evaluations))
        for tensor in dead:
            del found[tensor.name]
    return {tensor.name: np.array(found[tensor.name]) for tensor in flat.outputs}


def with_bodies(graph: Graph, rules: Rules) -> Graph:
    """The graph with the bodies of those operations in their place that have a body and
    no evaluation. Every tensor keeps its name.
    """

    def body(operation: Operation) -> Build | None:
        has_body = operation.definition.body is not None
        known = find_evaluation(operation.name, rules.evaluations) is not None
        return elaborate if has_body and not known else None

    # Bodies may hold operations with bodies.
    while (inlined := inline(graph, body, rules)) is not graph:
        graph = inlined
    return graph


def _scalar_type(dtype: npt.DTypeLike) -> np.dtype[np.floating]:
    for known in (np.dtype(np.float64), np.dtype(np.float32)):
        if dtype is not None and known == dtype:
            return known
    raise UsageError(f"'dtype' must be float32 or float64, and is {dtype}")


def _last_uses(graph: Graph) -> list[set[Tensor]]:
    """For each operation, the tensors that nobody reads behind it."""
    read = set(graph.outputs)
    uses = []
    for operation in reversed(graph.operations):
        touched = {*operation.inputs, *operation.outputs}
        uses.append(touched - read)
        read |= touched
    return uses[::-1]
