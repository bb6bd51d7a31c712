"""The interpreter of nnef_tools, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from nnef_grad.base.arrays import Array, Data
from nnef_grad.graph.ir import Graph
from nnef_grad.runtimes import Run, precision, refusals, written
from nnef_grad.targets import lower
from nnef_grad.targets.tensors import DTYPES


def compile_graph(graph: Graph, data: Data, threads: int | None) -> Run:
    """The function of a graph, lowered for the interpreter of nnef_tools."""
    import torch
    from nnef_tools.interpreter.pytorch import NNEFModule

    lowered = lower(graph, "khronos")
    with (
        written(lowered, data) as folder,
        refusals("the PyTorch interpreter", "load", graph),
    ):
        module = NNEFModule(str(folder))

    def run(inputs: Sequence[Array]) -> list[Array]:
        # Of data that cannot be written to, as those of files, torch warns.
        fed = [_quietly(torch.from_numpy, [value]) for value in inputs]
        types = {**DTYPES, "scalar": precision(inputs)}
        # Its constants are in single precision, whatever they are converted to.
        module.double() if types["scalar"] == np.float64 else module.float()
        with torch.no_grad(), refusals("the PyTorch interpreter", "run", graph):
            results = _quietly(module, fed)
        return [
            result.numpy().astype(types[tensor.dtype], order="C", copy=False)
            for tensor, result in zip(graph.outputs, results, strict=True)
        ]

    return run


def _quietly(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Calls a function whose warnings are about its own code."""
    with catch_warnings():
        simplefilter("ignore")
        return function(*arguments)
