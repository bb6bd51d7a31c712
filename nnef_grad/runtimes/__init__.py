"""Runtimes: each makes a function of arrays from a graph, in the module of its name.

No array is copied that a runtime can read or write where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array, Data
from nnef_grad.base.errors import (
    NnefGradError,
    UnsupportedError,
    UsageError,
    is_bug,
    suggestion,
)
from nnef_grad.base.public import public
from nnef_grad.graph.ir import Graph
from nnef_grad.model import save
from nnef_grad.targets import Lowered

__all__ = ["RUNTIMES", "Data", "Run", "Runtime", "find_runtime", "in_single"]

# The results of a graph, in order, on inputs in order: contiguous arrays.
Run = Callable[[Sequence[Array]], list[Array]]

_SINGLE = ("float32",)
_EITHER = ("float32", "float64")


@dataclass(frozen=True)
class Runtime:
    """A program that runs graphs.

    Attributes:
        name: what the user calls it, and the module that has it.
        packages: what has to be installed.
        precisions: the types of the numbers that it computes with.
        target: what graphs are made for that it is to run.
    """

    name: str
    packages: tuple[str, ...]
    precisions: tuple[str, ...]
    target: str

    def compile(
        self, graph: Graph, data: Data | None = None, threads: int | None = None
    ) -> Compiled:
        """The function of a graph.

        Args:
            graph: the graph. Its scalar inputs are arrays of one of the precisions, its
                integer ones int64, its logical ones bool.
            data: the data of its variables, by label.
            threads: how many threads run it, where the runtime lets one choose; its own
                number, if not given.

        Raises:
            UnsupportedError: the runtime cannot load the graph; or, from the function,
                run it.
        """
        module = import_module(f"nnef_grad.runtimes.{self.name}")
        return Compiled(self.name, module.compile_graph(graph, data or {}, threads))


@dataclass(frozen=True)
class Compiled:
    """A graph in a runtime: a function of inputs in order, that gives results in order."""

    name: str
    run: Run

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        # Some runtimes read the memory of the caller in its order.
        return self.run([np.asarray(x, order="C") for x in inputs])

    @property
    def runtime(self) -> str:
        """The runtime that runs it: of the fastest, the one that the first inputs decided."""
        return getattr(self.run, "chosen", None) or self.name


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("onnxruntime", ("onnx", "onnxruntime"), _SINGLE, "onnx"),
        Runtime("openvino", ("onnx", "openvino"), _SINGLE, "openvino"),
        Runtime("tract", ("tract",), _SINGLE, "tract"),
        Runtime("khronos", ("torch",), _EITHER, "khronos"),
        Runtime("numpy", (), _EITHER, "nnef"),
        Runtime("fastest", (), _SINGLE, "onnx"),
    )
}


@public
def find_runtime(name: str) -> Runtime:
    """The runtime of a name.

    Raises:
        UsageError: there is none, or a package that it needs is missing.
    """
    if name not in RUNTIMES:
        names = ", ".join(RUNTIMES)
        near = suggestion(name, list(RUNTIMES))
        raise UsageError(f"the runtime is one of {names}, and not '{name}'{near}")
    runtime = RUNTIMES[name]
    missing = [package for package in runtime.packages if find_spec(package) is None]
    if missing:
        wanted = " ".join(missing)
        raise UsageError(f"the runtime '{name}' needs {wanted}: pip install {wanted}")
    return runtime


# ---- Code that runtimes share ----


@contextmanager
def refusals(runtime: str, step: str, graph: Graph) -> Iterator[None]:
    """Turns what a runtime raises into an error that names it and the graph."""
    try:
        yield
    except (NnefGradError, OSError):
        raise
    except Exception as error:
        if is_bug(error):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        message = f"{runtime} cannot {step} '{graph.name}': {reason}"
        raise UnsupportedError(message) from error


@contextmanager
def written(lowered: Lowered, data: Data) -> Iterator[Path]:
    """A folder with a graph and its data, for as long as it takes to load it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph"
        save(lowered.graph, path, data={**data, **lowered.data})
        yield path


def in_single(
    data: Data, others: Sequence[Any] = (np.float16, np.float64)
) -> dict[str, Array]:
    """Data with single precision in place of some others."""
    return {
        label: np.asarray(array, np.float32)
        if np.asarray(array).dtype in others
        else array
        for label, array in data.items()
    }


def precision(arrays: Sequence[Array]) -> Any:
    """The data type of the numbers among the arrays."""
    return next(
        (array.dtype for array in arrays if array.dtype.kind == "f"), np.float32
    )
