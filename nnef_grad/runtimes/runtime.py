"""The interface of runtimes, and the code that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnef_grad.base.errors import NnefGradError, UnsupportedError
from nnef_grad.graph.ir import Graph
from nnef_grad.model import save
from nnef_grad.targets import Lowered

Array = Any
Data = Mapping[str, Array]
# The results of a graph, in order, on inputs in order: contiguous arrays.
Run = Callable[[Sequence[Array]], list[Array]]

SINGLE = ("float32",)
EITHER = ("float32", "float64")


@dataclass(frozen=True)
class Runtime:
    """A program that runs graphs.

    Attributes:
        name: what the user calls it, and the module that has it.
        packages: what has to be installed.
        precisions: the types of the numbers that it computes with.
    """

    name: str
    packages: tuple[str, ...]
    precisions: tuple[str, ...]

    def compile(
        self, graph: Graph, data: Data | None = None, threads: int | None = None
    ) -> Run:
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
        run: Run = module.compile_graph(graph, data or {}, threads)
        # Some read the memory of the caller in its order.
        return lambda inputs: run([np.asarray(x, order="C") for x in inputs])


@contextmanager
def refusals(runtime: str, step: str, graph: Graph) -> Iterator[None]:
    """Turns what a runtime raises into an error that names it and the graph."""
    try:
        yield
    except (NnefGradError, OSError):
        raise
    except Exception as error:
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
