"""A model of another format, while it becomes a graph: its variables, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import Problem
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.emit.simplify import simplify
from nnef_grad.frontends.reading import Reading
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.learning import facts_learned
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.passes import prune
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.language.identifiers import plain_name
from nnef_grad.language.labels import CONSTANTS
from nnef_grad.language.library import EXTRAS, STDLIB, FragmentFile, Joined, Library
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.traits import RESHAPING

# Larger constants would make the text unreadable: they are variables.
MOST_ELEMENTS = 10_000


class Conversion(Reading):
    """Reads a model whose operations are nodes of a graph. What the format needs that is
    written in NNEF is in a file, or in libraries that go after the standard.

    Attributes:
        data: the data of variables, by label.
        problems: the reasons why the model cannot be read.
        supply: the names of inputs, outputs and variables.
    """

    def __init__(self, fragments: Path, *others: Library) -> None:
        library = Joined(FragmentFile(fragments), EXTRAS, STDLIB, *others)
        super().__init__(Emitter(OpSet(), simplify=simplify), library)
        self.data: dict[str, Array] = {}
        self.problems: list[Problem] = []
        self.supply = NameSupply()
        self._labels = NameSupply()

    def run(self, graph: Any, values: Any) -> Any:
        """The results of a graph of the format, for the values of its inputs."""
        raise NotImplementedError

    def declare(self, name: str, label: str, array: Array, dtype: str) -> Tensor:
        """A new variable with these data, and with a label that is like the given one."""
        label = self._label(label)
        self.data[label] = array
        return self.emitter.emit_named(
            name, "variable", dtype, shape=list(array.shape), label=label
        )

    def table(self, hint: str, array: Array, dtype: str) -> Tensor:
        """A variable that is no parameter: a constant that would be too long as a text."""
        label = f"{CONSTANTS}/{len(self.data) + 1}"
        return self.declare(self.supply.fresh(hint), label, array, dtype)

    def graph_of(
        self, name: str, inputs: Iterable[Tensor], outputs: Iterable[Tensor]
    ) -> Graph:
        """The graph that was emitted, without operations that no output depends on."""
        operations = tuple(self.emitter.operations)
        names = self.emitter.assigned_names(operations, self.emitter.names.values())
        ends = tuple(inputs), tuple(outputs)
        graph = Graph(plain_name(name), *ends, operations, names)
        warnings, facts = tuple(self.warnings), facts_learned()
        return prune(replace(graph, warnings=warnings, facts=facts))

    def data_of(self, graph: Graph) -> dict[str, Array]:
        """The data of the variables that a graph has left; some have other shapes."""
        tensors = graph.tensors
        return {
            label: self.data[label].reshape(tensors[name].shape)
            for name, label in graph.labels.items()
        }

    def _label(self, wish: str) -> str:
        """A valid label, a path; those that differ in case alone would be the same file."""
        steps = re.sub(r"[^\w./-]+", "_", wish, flags=re.ASCII).split("/")
        label = "/".join(step for step in steps if step.strip(".")) or "variable"
        return f"{label}{self._labels.fresh(label.lower())[len(label) :]}"


def declare_as_read(
    graph: Graph,
    kept: Container[Tensor | None] = (),
    readers: Container[str] | None = None,
) -> Graph:
    """The graph with variables that are only read in another shape declared in this shape,
    such as a bias of [C] that is read as [1, C], but for those that are kept. If there are
    readers, only these operations may read the other shape.
    """
    read_by = DefUse(graph).readers
    declared: dict[Tensor, Tensor] = {}
    reshaped: dict[Tensor, Tensor] = {}
    for variable in graph.variables:
        readings = [op.outputs[0] for op in read_by[variable] if op.name in RESHAPING]
        shapes = {y.shape for y in readings}
        is_one = len(shapes) == 1 and len(readings) == len(read_by[variable])
        ends = {variable, *readings}
        is_free = variable not in kept and ends.isdisjoint(graph.outputs)
        names = {op.name for y in readings for op in read_by[y]}
        if is_one and is_free and (readers is None or all(n in readers for n in names)):
            declared[variable] = Tensor(variable.dtype, *shapes)
            reshaped.update(dict.fromkeys(readings, declared[variable]))

    def redeclared(op: Operation) -> Fate:
        (result, *_) = op.outputs
        if (variable := declared.get(result)) is not None:
            attributes: Any = {**op.attributes, "shape": variable.shape}
            return replace(op, results=(variable,), attributes=attributes)
        return {result: reshaped[result]} if result in reshaped else op

    called = {**graph.names, **{new: graph.names[old] for old, new in declared.items()}}
    return replace(sweep(graph, redeclared), names=called)
