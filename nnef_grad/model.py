"""Models: texts and files to graphs, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnef_grad.binding import suggestion
from nnef_grad.differentiate import Backward
from nnef_grad.errors import UsageError
from nnef_grad.expand import expand
from nnef_grad.files import PathLike, read_source, write_text
from nnef_grad.ir import Graph, Shape
from nnef_grad.parser import parse_document
from nnef_grad.printer import print_graph
from nnef_grad.source import Source


def load(
    path: PathLike,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
) -> Graph:
    """Reads a graph from a file of NNEF text.

    Args:
        path: the file.
        input_shapes: shapes for external tensors, by name, in place of the declared
            ones; of the same rank.
        batch: the extent of dimension 0 of every external tensor, in place of the
            declared one.

    Returns:
        The flat graph, checked, with the shape of every tensor.

    Raises:
        NnefGradError: the file cannot be read, or its text is not a valid graph.
    """
    return from_source(read_source(path), input_shapes=input_shapes, batch=batch)


def loads(
    text: str,
    *,
    name: str = "<string>",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
) -> Graph:
    """Reads a graph from a text; `name` is what error messages call it. Otherwise as
    `load`.
    """
    return from_source(Source(name, text), input_shapes=input_shapes, batch=batch)


def dumps(graph: Graph | Backward) -> str:
    """The text of a graph: a flat document of NNEF 1.0."""
    return print_graph(graph.graph if isinstance(graph, Backward) else graph)


def save(graph: Graph | Backward, path: PathLike, *, overwrite: bool = True) -> None:
    """Writes a graph to a file, which appears whole or not at all.

    Args:
        graph: what to write.
        path: the file.
        overwrite: whether a file that exists is replaced.

    Raises:
        NnefGradError: the file exists and must not be replaced, or cannot be written.
    """
    write_text(Path(path), dumps(graph), overwrite=overwrite)


def from_source(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
) -> Graph:
    """The checked flat graph of a source; see `load`."""
    document = parse_document(source)
    wanted = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
    inputs = [p.name for p in document.graph.parameters]
    for name in wanted:
        if name not in inputs:
            raise UsageError(
                f"the graph has no input '{name}'{suggestion(name, inputs)}"
            )
    return expand(
        document, lambda name, declared: _shape(name, declared, wanted, batch)
    )


def _shape(
    name: str, declared: Shape, wanted: Mapping[str, Shape], batch: int | None
) -> Shape:
    shape = wanted.get(name, declared)
    if len(shape) != len(declared):
        raise UsageError(
            f"input '{name}' has rank {len(declared)}, and the shape {list(shape)} has rank {len(shape)}"
        )
    if batch is not None and name not in wanted:
        shape = (batch, *shape[1:]) if shape else shape
    if any(extent < 1 for extent in shape):
        raise UsageError(
            f"the extents of input '{name}' must be positive, and are {list(shape)}"
        )
    return shape
