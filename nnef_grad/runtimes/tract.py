"""tract, which copies what it is fed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nnef_grad.base.arrays import Array, Data
from nnef_grad.graph.ir import Graph
from nnef_grad.runtimes import Run, in_single, refusals, written
from nnef_grad.targets import lower
from nnef_grad.targets.tensors import DTYPES


def compile_graph(graph: Graph, data: Data, threads: int | None) -> Run:
    """The function of a graph, lowered for tract."""
    import tract

    # It is fed what the graph has, whatever its file had.
    lowered = lower(replace(graph, datum_types={}), "tract")
    # It multiplies no matrices of different types.
    single = in_single(data)
    with written(lowered, single) as folder, refusals("tract", "load", graph):
        model = tract.nnef().load(str(folder))
        names = [model.input_name(index) for index in range(model.input_count())]
        runnable = model.into_runnable()

    def run(inputs: Sequence[Array]) -> list[Array]:
        fed = {
            # The lowered graph may have numbers for integers, and other names.
            lowered.graph.names[tensor]: value.astype(DTYPES[tensor.dtype], copy=False)
            for tensor, value in zip(lowered.graph.inputs, inputs, strict=True)
        }
        with refusals("tract", "run", graph):
            results = runnable.run([fed[name] for name in names])
        return [
            result.to_numpy().astype(DTYPES[tensor.dtype], copy=False)
            for tensor, result in zip(graph.outputs, results, strict=True)
        ]

    return run
