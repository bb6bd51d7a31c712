"""One backward graph of an ONNX file for all sizes in other engines than ONNX Runtime.

python -m support.open_engines FILE ENGINE...    compiles a file as the command does without
                                                 options, runs the gradients in each engine at
                                                 four sizes, the least ones among them, and
                                                 prints how far they are from those that were
                                                 made for each size, in that engine, and in
                                                 ONNX Runtime in single precision
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError
from nnef_grad.emit.bodies import most_steps
from nnef_grad.runtimes import find_runtime
from support.open_files import TOLERANCE, Arrays, DiffersError, sizes_of

_ROUNDING = 1e-3


def _backward(read: Any) -> Any:
    return nnef_grad.differentiate(read.graph, with_outputs=True).graph


def _drawn(graph: Any, seed: int) -> list[np.ndarray]:
    """Random numbers for the inputs of a graph without symbols."""
    random = np.random.default_rng(seed)
    return [
        random.standard_normal(x.shape).astype(np.float32)
        if x.dtype == "scalar"
        else random.integers(0, 2, x.shape).astype(
            bool if x.dtype == "logical" else int
        )
        for x in graph.inputs
    ]


class Closed(NamedTuple):
    """The backward graph that was made for a size, and inputs of that size."""

    graph: Any
    data: Any
    fed: list[np.ndarray]

    def run(self, engine: str) -> Arrays:
        """The results in an engine."""
        run = find_runtime(engine).compile(self.graph, self.data, threads=1)
        return dict(zip(self.graph.output_names, run(self.fed), strict=True))


def apart(one: Arrays, other: Arrays) -> float:
    """The greatest difference, relative to the largest number of each result."""
    # A gradient may be zero but for rounding, such as that of a bias before softmax.
    least = 1e-30 + _ROUNDING * max(
        float(np.abs(x).max(initial=0)) for x in one.values()
    )
    return max(
        float(
            np.abs(x.astype(np.float64) - other[name].reshape(x.shape)).max(initial=0)
        )
        / (float(np.abs(x).max(initial=0)) + least)
        for name, x in one.items()
    )


class Engines:
    """A file in several engines.

    Attributes:
        path: the file.
        graph: its backward graph for all sizes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = interop.from_onnx(path)
        self.graph = _backward(self._read)
        self.sizes = [*sizes_of(self._read.graph)]

    def closed(self, place: int, engine: str) -> Closed:
        """The graph that is made for a size, for an engine."""
        unroll = most_steps(find_runtime(engine).target)
        read = interop.from_onnx(self.path, symbols=self.sizes[place], unroll=unroll)
        graph = _backward(read)
        return Closed(graph, read.data, _drawn(graph, place))

    def compare(self, engine: str) -> Iterator[str]:
        """The greatest differences at each size, or why there are none."""
        run = find_runtime(engine).compile(self.graph, self._read.data, threads=1)
        for place in range(len(self.sizes)):
            try:
                closed = self.closed(place, engine)
            except NnefGradError:
                yield "refused by the network"
                continue
            found = dict(zip(self.graph.output_names, run(closed.fed), strict=True))
            own = apart(closed.run(engine), found)
            if not own <= TOLERANCE:
                raise DiffersError(f"{own:.1e}")
            yield f"{own:.1e} ({apart(closed.run('onnxruntime'), found):.1e})"


def _told(engines: Engines, engine: str) -> str:
    try:
        return ", ".join(engines.compare(engine))
    except DiffersError as error:
        return f"DIFFERS: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}"


def main(path: Path, names: list[str]) -> None:
    """Prints a row for each engine."""
    engines = Engines(path)
    for name in names:
        print(path.name, name, _told(engines, name), sep=" | ", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
