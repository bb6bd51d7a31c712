"""The patterns of portable.txt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nnef_grad
from nnef_grad.graph.extents import as_numbers
from support.operation_models import Model, document_of, sections
from support.runtimes.cases import Array
from support.runtimes.matrix import Example, example, forward

FILE = Path(__file__).parent / "portable.txt"


class Pattern(NamedTuple):
    """A graph that every consumer runs.

    Attributes:
        model: the graph; it is called after its section.
        original: the graph that it stands for, if there is one.
    """

    model: Model
    original: str | None


def patterns() -> Iterator[Pattern]:
    """All of them, in the order of the file."""
    for title, lines in sections(FILE):
        graphs = re.findall(r"^(?:= (.*)\n)?(\w.*)$", "\n".join(lines), re.MULTILINE)
        for number, (original, graph) in enumerate(graphs, start=1):
            model = Model(title, number, document_of(graph))
            yield Pattern(model, document_of(original) if original else None)


def pattern_example(pattern: Pattern) -> Example:
    """The graph of a pattern on its values."""
    return example(pattern.model, forward, data=_data(pattern.model.text))


# ---- Data of variables, by label ----


def _iota(shape: tuple[int, ...]) -> Array:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


def _band(shape: tuple[int, ...]) -> Array:
    """A filter that adds up each channel and its neighbours."""
    rows, columns = np.indices(shape)[:2]
    band: Array = (abs(rows - columns) <= 1).astype(np.float64)
    return band


def _edges(shape: tuple[int, ...]) -> Array:
    """0 at the first and the last position, and very little between them."""
    edges = np.full(shape, -3e38)
    edges[..., [0, -1]] = 0.0
    return edges


DATA: dict[str, Callable[[tuple[int, ...]], Array]] = {
    "ones": np.ones,
    "iota": _iota,
    "indices": lambda shape: 3.0 * _iota(shape) % 4,
    "band": _band,
    "edges": _edges,
}


def _data(text: str) -> Mapping[str, Array]:
    variables = (
        (str(operation.attributes["label"]), as_numbers(tensor.shape))
        for operation in nnef_grad.loads(text).operations
        if operation.name == "variable"
        for tensor in operation.outputs
    )
    return {label: DATA[label](shape) for label, shape in variables if label in DATA}
