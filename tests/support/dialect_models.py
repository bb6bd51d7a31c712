"""Models in tract's dialect, from dialect_models.txt, stored with data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

import nnef_grad
from support.runtimes import TOLERANCE, Stored, Verdict, compare, needs, run
from support.stored_models import tensor, write_files

Array = npt.NDArray[Any]

HEAD = "version 1.0;\n\n" + "".join(
    f"extension tract_registry tract_{name};\n"
    for name in ("core", "onnx", "transformers")
)
# The data types of tract by those of the lists.
_TYPES = {"": "f32", "integer": "i64", "logical": "bool"}
_DECLARED = re.compile(r"(\w+) ?([a-z_]*) \[([\d, ]*)\] ?(\d*)")


class Declared(NamedTuple):
    """An input or a variable of a model."""

    name: str
    kind: str
    shape: tuple[int, ...]
    below: int

    @property
    def is_variable(self) -> bool:
        return "variable" in self.kind or self.kind == "positive"

    def value(self, seed: int = 0) -> Array:
        """Random data."""
        random = np.random.default_rng(crc32(self.name.encode()) + seed)
        if "integer" in self.kind:
            return random.integers(0, self.below, self.shape)
        if "logical" in self.kind:
            return np.asarray(random.random(self.shape) < 0.5)
        made = random.standard_normal(self.shape).astype(np.float32)
        return np.abs(made) + np.float32(0.5) if self.kind == "positive" else made


class Model(NamedTuple):
    """A document with its inputs and variables."""

    name: str
    declared: tuple[Declared, ...]
    fragments: str
    statements: str

    @property
    def outputs(self) -> str:
        """The output: `y`, in every model."""
        return "y"

    @property
    def text(self) -> str:
        """The document."""
        inputs = ", ".join(d.name for d in self.declared if not d.is_variable)
        lines = [_statement(declared) for declared in self.declared]
        body = "".join(f"    {line}\n" for line in lines) + self.statements
        graph = f"graph network({inputs}) -> ({self.outputs})\n{{\n{body}}}\n"
        return f"{HEAD}\n{self.fragments}{graph}"

    def inputs(self) -> dict[str, Array]:
        return {d.name: d.value() for d in self.declared if not d.is_variable}

    def variables(self) -> dict[str, Array]:
        return {d.name: d.value() for d in self.declared if d.is_variable}

    def write(self, folder: Path) -> Path:
        """The folder, with the model in it."""
        return write_model(folder, self.text, self.variables())


def write_model(
    folder: Path, text: str, variables: Mapping[str, Array] | None = None
) -> Path:
    """The folder, with a document and the data of its variables in it."""
    files = {f"{k}.dat": tensor(v) for k, v in (variables or {}).items()}
    folder.mkdir(exist_ok=True)
    write_files(folder, {"graph.nnef": text.encode(), **files})
    return folder


def _statement(declared: Declared) -> str:
    shape = list(declared.shape)
    if declared.is_variable:
        label = f"label = '{declared.name}', shape = {shape}"
        return f"{declared.name} = variable<scalar>({label});"
    kind = _TYPES[declared.kind]
    external = f"tract_core_external(shape = {shape}, datum_type = '{kind}')"
    return f"{declared.name} = {external};"


def models() -> list[Model]:
    """All models of the list."""
    text = (Path(__file__).parent / "dialect_models.txt").read_text("utf-8")
    return [_model(block) for block in text.split("\n== ")[1:]]


def _model(block: str) -> Model:
    head, body = block.split("\n", 1)
    name, listed = head.split(":")
    declared = tuple(
        Declared(
            name, kind, tuple(map(int, shape.replace(",", " ").split())), int(n or 0)
        )
        for name, kind, shape, n in _DECLARED.findall(listed)
    )
    fragments, closing, statements = body.rpartition("    }\n")
    return Model(name, declared, fragments + closing, statements.rstrip() + "\n")


def stored_values(graph: nnef_grad.Graph, folder: Path) -> dict[str, Array]:
    """The data of the variables of a graph, by label."""
    data = nnef_grad.load_data(folder)
    labels = (
        op.attributes["label"] for op in graph.operations if op.name == "variable"
    )
    return {label: data[label] for label in labels}


def backward_in_tract(
    graph: nnef_grad.Graph,
    folder: Path,
    inputs: Mapping[str, Array],
    place: Path,
    target: str = "tract",
    tolerance: float = TOLERANCE,
) -> Verdict:
    """Whether the gradients of a graph, lowered for a target, are the interpreter's in
    tract. The gradients of the results are random.

    Args:
        graph: the graph.
        folder: where its data are.
        inputs: an array for each input.
        place: a folder to write to.
        target: what the backward graph is lowered for.
        tolerance: of the error of a gradient, relative to its largest number.
    """
    needs("tract")
    backward = nnef_grad.differentiate(graph, wrt="all").graph
    lowered = nnef_grad.lower(backward, target)
    variables = stored_values(backward, folder)
    random = np.random.default_rng(1)
    fed = {
        name: inputs.get(name, random.standard_normal(t.shape).astype("f4"))
        for name, t in zip(backward.input_names, backward.inputs, strict=True)
    }
    expected = nnef_grad.evaluate(backward, fed, variables)
    data = {**variables, **lowered.data}
    nnef_grad.save(lowered.graph, place / "backward/", data=data)
    # A target may want integers as scalars.
    tensors = lowered.graph.tensors
    fed = {
        n: a.astype("f4") if tensors[n].dtype == "scalar" else a for n, a in fed.items()
    }
    (outcome,) = run("tract", [Stored(place / "backward", fed)])
    gradients = {name: expected[name] for name in backward.output_names}
    return compare(outcome, gradients, tolerance)
