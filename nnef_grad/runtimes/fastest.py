"""Of the runtimes that are installed, the one that takes the least time on the first inputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from time import perf_counter

import numpy as np

from nnef_grad.base.arrays import Array, Data
from nnef_grad.base.errors import UnsupportedError
from nnef_grad.emit.bodies import runs_loops
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.loops import is_loop
from nnef_grad.runtimes import RUNTIMES, Run, Runtime

# Those that are compared, in single precision all of them, and the one that is always there.
_COMPARED = ("onnxruntime", "openvino")
_LAST = "numpy"
# A runtime is run so often, and the least time counts.
_RUNS = 3
# By their orders of sums, results in single precision differ by such shares of the largest
# element, and of the largest of all that they are computed from.
_SHARE, _ROUNDING = 1e-3, 1e-5


def compile_graph(graph: Graph, data: Data, threads: int | None) -> Run:
    """The function of a graph, in a runtime that the first inputs decide."""
    return Fastest(graph, data, threads)


class Fastest:
    """The function of a graph.

    Attributes:
        chosen: the name of the runtime that it runs in; None before the first inputs.
    """

    def __init__(self, graph: Graph, data: Data, threads: int | None) -> None:
        self.chosen: str | None = None
        self._runs = _compiled(graph, data, threads)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """The results on inputs in order."""
        if self.chosen is None:
            return self._compare(inputs)
        return self._runs[self.chosen](inputs)

    def _compare(self, inputs: Sequence[Array]) -> list[Array]:
        """The results on the first inputs, of the first runtime; the faster one is kept."""
        results = {name: run(inputs) for name, run in self._runs.items()}
        first, *others = results
        for name in others:
            if not _agree(inputs, results[first], results[name]):
                message = f"{name} computes other results than {first}, which is used"
                warnings.warn(message, stacklevel=4)
                del self._runs[name]
        times = {name: _time(run, inputs) for name, run in self._runs.items()}
        self.chosen = min(times, key=times.__getitem__)
        self._runs = {self.chosen: self._runs[self.chosen]}
        return results[first]


def _compiled(graph: Graph, data: Data, threads: int | None) -> dict[str, Run]:
    """The function in each runtime that is installed and takes the graph."""
    runs: dict[str, Run] = {}
    has_loops = any(map(is_loop, graph.operations))
    for runtime in filter(_is_installed, map(RUNTIMES.__getitem__, _COMPARED)):
        if has_loops and not runs_loops(runtime.target):
            # The steps, one after the other, take long to load.
            continue
        try:
            runs[runtime.name] = runtime.compile(graph, data, threads)
        except UnsupportedError:
            continue
    return runs or {_LAST: RUNTIMES[_LAST].compile(graph, data, threads)}


def _is_installed(runtime: Runtime) -> bool:
    return all(find_spec(package) for package in runtime.packages)


def _agree(
    inputs: Sequence[Array], results: Sequence[Array], others: Sequence[Array]
) -> bool:
    # What is zero but for rounding is small beside what it was computed from.
    rounding = _ROUNDING * max(map(_largest, (*inputs, *results)))
    return all(
        np.allclose(x, y, 0.0, _SHARE * _largest(x) + rounding, equal_nan=True)
        for x, y in zip(results, others, strict=True)
    )


def _largest(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)]) if array.dtype.kind == "f" else 0.0
    return float(np.max(finite, initial=0.0))


def _time(run: Run, inputs: Sequence[Array]) -> float:
    """The least time of a run, in seconds."""
    times: list[float] = []
    for _ in range(_RUNS):
        begin = perf_counter()
        run(inputs)
        times.append(perf_counter() - begin)
    return min(times)
