"""The interpreter: the semantics of every standard operation, on numpy arrays.

It is a definition that runs, and no fast runtime. Each module evaluates the operations
of the module of `nnef_grad.ops` that has its name; importing this package enters all of
them. It wants numpy, which the compiler does without: nothing that compiles imports it.

    from nnef_grad.interpreter import evaluate

    outputs = evaluate(graph, {"x": x}, {"layer/weight": weight})
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np
import numpy.typing as npt

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.rules import Rules
from nnef_grad.build.evaluation import instantiate_body
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.errors import UsageError
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.interpreter import (
    conv,
    elementwise,
    join,
    matrix,
    normalize,
    parts,
    pool,
    quantize,
    reduce,
    repeat,
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
    "join",
    "last_uses",
    "matrix",
    "normalize",
    "parts",
    "pool",
    "quantize",
    "reduce",
    "repeat",
    "results",
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
    rules.refuse_unknown(flat.custom_operations)
    computed = results(flat, inputs, variables or {}, dtype, rules)
    found = {name: np.array(array) for name, array in computed}
    return {tensor.name: found[tensor.name] for tensor in flat.outputs}


def results(
    graph: Graph,
    inputs: Data,
    variables: Data,
    dtype: npt.DTypeLike = np.float64,
    rules: Rules | None = None,
) -> Iterator[tuple[str, Array]]:
    """Each output of a graph as soon as nothing reads it any more, by name. Then it is
    the caller's: it takes memory here no longer. But it may share it with what was fed.
    """
    rules = rules if rules is not None else Rules()
    graph = with_bodies(graph, rules)
    outputs = set(graph.outputs)
    found: dict[str, Array] = dict(collected(graph, inputs, variables))
    for operation, dead in zip(graph.operations, last_uses(graph), strict=True):
        found.update(step(operation, found, dtype, rules.evaluations))
        for tensor in dead - outputs:
            del found[tensor.name]
        for tensor in dead & outputs:
            yield tensor.name, found.pop(tensor.name)


def with_bodies(graph: Graph, rules: Rules, also: Container[str] = ()) -> Graph:
    """The graph with the bodies of those operations in their place that have a body and
    no evaluation. Every tensor keeps its name.

    Args:
        graph: a flat graph.
        rules: they have the evaluations and shapes of the user's own operations.
        also: names of operations of the standard whose bodies are wanted all the same.
    """

    def body(operation: Operation) -> Decompose | None:
        name, has_body = operation.name, operation.definition.body is not None
        own = rules.evaluations
        is_known = find_evaluation(name, own) is not None
        is_wanted = name in also and name not in own
        return instantiate_body if has_body and (is_wanted or not is_known) else None

    # Bodies may hold operations with bodies. A tensor of the graph stays its own: when it
    # is moved, a body that computes the same does not move.
    own = frozenset(graph.tensors.values())
    while (inlined := inline(graph, body, rules.opset, own)) is not graph:
        graph = inlined
    return graph


def _scalar_type(dtype: npt.DTypeLike) -> np.dtype[np.floating]:
    for known in (np.dtype(np.float64), np.dtype(np.float32)):
        if dtype is not None and known == dtype:
            return known
    raise UsageError(f"'dtype' must be float32 or float64, and is {dtype}")


def last_uses(graph: Graph) -> list[set[Tensor]]:
    """For each operation, the tensors that no operation reads after it."""
    read: set[Tensor] = set()
    uses = []
    for operation in reversed(graph.operations):
        touched = {*operation.inputs, *operation.outputs}
        uses.append(touched - read)
        read |= touched
    return uses[::-1]
