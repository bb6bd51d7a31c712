"""One backward document of an ONNX file for all sizes, against those made for each size.

python -m support.open_files FOLDER    compiles every ONNX file below a folder, or one, as the command
                                       does without options; compares it at four sizes, the
                                       least ones among them, and its gradients with central
                                       differences; and prints a row of a table for each
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import nnef_grad
from nnef_grad import interop
from nnef_grad.graph.bounds import examples
from nnef_grad.graph.extents import symbols_of

# Single precision, of sums in another order.
TOLERANCE, SMALL = 2e-4, 1e-2
_TYPES: dict[str, type] = {
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}
Sizes = Mapping[str, int]
Arrays = dict[str, np.ndarray]


class DiffersError(AssertionError):
    """What one document computes is not what the other does."""


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def drawn(inputs: Any, seed: int) -> Arrays:
    """Random numbers for the inputs of a session, whose shapes are known."""
    random = np.random.default_rng(seed)
    return {
        x.name: (
            random.standard_normal(x.shape)
            if np.issubdtype(_TYPES[x.type], np.floating)
            else random.integers(0, 2, x.shape)
        ).astype(_TYPES[x.type])
        for x in inputs
    }


def relative_difference(
    name: str, one: np.ndarray, other: np.ndarray, least: float = 1e-6
) -> float:
    """The greatest one, relative to the largest number, or to one that is not smaller."""
    if one.shape != other.shape:
        raise DiffersError(f"{name}: {other.shape}, and not {one.shape}")
    apart = float(np.abs(one.astype(np.float64) - other).max(initial=0))
    difference = apart / (float(np.abs(one).max(initial=0)) + least)
    if not difference <= TOLERANCE:
        raise DiffersError(f"{name}: {difference:.2g}")
    return difference


def sizes_of(graph: Any) -> Iterator[Sizes]:
    """The least sizes of a graph, usual ones, and those after them."""
    shapes = [x.shape for x in graph.inputs]
    yield examples(shapes, symbols_of(tuple(shapes)))
    usual = examples(shapes, symbols_of(tuple(x[:1] for x in shapes)))
    for more in (0, 1, 3):
        yield {name: number + more for name, number in usual.items()}


class OpenFile:
    """A file, and its backward document for all sizes.

    Attributes:
        graph: the graph that was read.
        nodes: how many nodes the document has.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, folder
        self._original = session(path)
        self._read = interop.from_onnx(path)
        self.graph = self._read.graph
        self._open = self._written(self._read, "open")
        self.nodes = len(onnx.load(folder / "open.onnx").graph.node)

    def _written(self, read: Any, name: str) -> Any:
        backward = nnef_grad.differentiate(read.graph, with_outputs=True)
        path = self._folder / f"{name}.onnx"
        interop.to_onnx(backward, path, read.data, overwrite=True, in_file=read.in_file)
        return session(path)

    def compare(self, sizes: Sizes, seed: int = 0) -> float:
        """The greatest difference at some sizes, of outputs and gradients, relative to the
        largest number of each.

        Raises:
            DiffersError: a shape differs, or a number by more than `TOLERANCE`.
        """
        closed = self._written(interop.from_onnx(self._path, symbols=sizes), "closed")
        fed = drawn(closed.get_inputs(), seed)
        # What follows from constants of a size may be a variable of the closed document alone.
        names = [output.name for output in self._open.get_outputs()]
        wanted = dict(zip(names, closed.run(names, fed), strict=True))
        found = dict(zip(names, self._open.run(names, fed), strict=True))
        own = {x.name: fed[x.name] for x in self._original.get_inputs()}
        outputs = [output.name for output in self._original.get_outputs()]
        # The outputs are the last results, as the file calls them.
        last = names[len(names) - len(outputs) :]
        original = zip(last, self._original.run(outputs, own), strict=True)
        same = [relative_difference(n, wanted[n], found[n]) for n in names]
        # Its outputs may be small where its inputs are not.
        return max(
            *same, *(relative_difference(n, x, found[n], SMALL) for n, x in original)
        )

    def check(self) -> str:
        """What central differences say of the gradients."""
        graph, data = self._read
        backward = nnef_grad.differentiate(graph)
        return nnef_grad.check(graph, backward, variables=data).conclusion


def _compared(opened: OpenFile) -> Iterator[str]:
    for sizes in sizes_of(opened.graph):
        try:
            yield f"{opened.compare(sizes):.1e}"
        except nnef_grad.NnefGradError:
            yield "refused"


def _row(path: Path, work: Path) -> list[str]:
    """What becomes of a file, in words."""
    exporter = onnx.load(path, load_external_data=False).producer_name
    try:
        opened = OpenFile(path, work)
        differences = ", ".join(_compared(opened))
        return [exporter, f"{opened.nodes} nodes", differences, opened.check()]
    except DiffersError as error:
        return [exporter, f"DIFFERS: {error}"]
    except Exception as error:
        return [exporter, f"{type(error).__name__}: {str(error)[:200]}"]


def main(folder: Path, work: Path) -> int:
    """Prints what becomes of each file, and returns how many differ."""
    differ = 0
    for path in sorted(folder.rglob("*.onnx") if folder.is_dir() else [folder]):
        row = [f"{path.parent.name}/{path.name}", *_row(path, work)]
        differ += any("DIFFERS" in cell or " failed" in cell for cell in row)
        print(*row, sep=" | ", flush=True)
    return differ


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as there:
        sys.exit(main(Path(sys.argv[1]), Path(there)))
