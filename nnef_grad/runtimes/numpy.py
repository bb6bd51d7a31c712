"""The interpreter of this package."""

from __future__ import annotations

from collections.abc import Sequence

from nnef_grad.base.arrays import Array, Data
from nnef_grad.graph.ir import Graph
from nnef_grad.interpreter import evaluate
from nnef_grad.runtimes import Run, precision


def compile_graph(graph: Graph, data: Data, threads: int | None) -> Run:
    """The function of a graph, evaluated operation by operation."""

    def run(inputs: Sequence[Array]) -> list[Array]:
        arrays = dict(zip(graph.input_names, inputs, strict=True))
        results = evaluate(graph, arrays, data, dtype=precision(inputs))
        return [results[name] for name in graph.output_names]

    return run
