"""Graphs of documents that were read, as tract reads them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nnef_grad.base.arrays import Array
from nnef_grad.graph.ir import Graph, Operation
from nnef_grad.graph.rewriting import sweep
from nnef_grad.language.library import STDLIB
from nnef_grad.targets import lower
from nnef_grad.targets.tract.dialect import lacks_its_words


def for_its_reader(graph: Graph) -> Graph:
    """A graph that was read from a document of tract, with operations that tract has, and the
    inputs and results of the document.
    """
    if not lacks_its_words(graph):
        return graph
    typed = {graph.names[x]: "i64" for x in graph.inputs if x.dtype == "integer"}
    typed = {**typed, **graph.datum_types}
    lowered = lower(replace(graph, datum_types=typed), "tract")
    whole = sweep(lowered.graph, partial(_as_constant, lowered.data))
    return replace(whole, dialect=graph.dialect)


def _as_constant(data: Mapping[str, Array], operation: Operation) -> Operation:
    """The operation, but for a variable that is a constant with these data."""
    label = str(operation.attributes.get("label"))
    if operation.name != "variable" or label not in data:
        return operation
    shape, value = operation.attributes["shape"], data[label].reshape(-1).tolist()
    attributes: Any = {"shape": shape, "value": tuple(value)}
    return replace(operation, definition=STDLIB["constant"], attributes=attributes)
