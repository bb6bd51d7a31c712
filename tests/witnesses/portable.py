"""The patterns of portable.txt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from checks import document
from operation_models import Model

import nnef_grad
from witnesses.cases import Array
from witnesses.matrix import Example, example, forward

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
    sections = re.split(r"^## ", FILE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    for section in sections:
        title, *lines = section.strip().splitlines()
        graphs = re.findall(r"^(?:= (.*)\n)?(\w.*)$", "\n".join(lines), re.MULTILINE)
        for number, (original, graph) in enumerate(graphs, start=1):
            model = Model(title, number, _document(graph))
            yield Pattern(model, _document(original) if original else None)


def pattern_example(pattern: Pattern) -> Example:
    """The graph of a pattern on its values."""
    return example(pattern.model, forward, data=_data(pattern.model.text))


def _document(statements: str) -> str:
    """The document of a line, in which y and z are the outputs."""
    inputs = re.findall(r"(\w+) = external", statements)
    outputs = [n for n in ("y", "z") if re.search(rf"\b{n}\b[^;()]*=", statements)]
    body = statements.replace("; ", ";\n")
    return document(body, ", ".join(inputs), ", ".join(outputs))


# ---- Data of variables, by label ----


def _iota(shape: tuple[int, ...]) -> Array:
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


def _band(shape: tuple[int, ...]) -> Array:
    """A filter that adds up each channel and its neighbours."""
    rows, columns = np.indices(shape)[:2]
    band: Array = (abs(rows - columns) <= 1).astype(np.float64)
    return band


DATA: dict[str, Callable[[tuple[int, ...]], Array]] = {
    "ones": np.ones,
    "iota": _iota,
    "indices": lambda shape: 3.0 * _iota(shape) % 4,
    "band": _band,
}


def _data(text: str) -> Mapping[str, Array]:
    variables = (
        (str(operation.attributes["label"]), tensor.shape)
        for operation in nnef_grad.loads(text).operations
        if operation.name == "variable"
        for tensor in operation.outputs
    )
    return {label: DATA[label](shape) for label, shape in variables if label in DATA}
