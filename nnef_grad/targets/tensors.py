"""Constants as literals, and as variables with data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from math import prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import Attributes, Graph, Operand, Operation
from nnef_grad.graph.rewriting import sweep
from nnef_grad.language.labels import CONSTANTS, label_key
from nnef_grad.language.library import STDLIB
from nnef_grad.targets.conditions import splat
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import fill

When = Callable[[Operation], bool]


def is_uniform(op: Operation) -> bool:
    """Whether all elements of a constant are the same; two zeros may have two signs."""
    value = op.attributes["value"]
    is_zero = value[:1] == (0.0,)
    return len({*(map(repr, value) if is_zero else value)}) == 1


def is_cast(op: Operation, source: str, target: str) -> bool:
    """Whether a tensor is cast from a type to another."""
    is_cast = op.name == "cast" and op.dtype == target
    return is_cast and [x.dtype for x in op.inputs] == [source]


def _has_literal(op: Operation) -> bool:
    """Whether a literal can stand for the elements, repeated along five axes at most. An
    integer has another width there in some runtimes: it is a constant of its own.
    """
    is_single = splat(op) if op.dtype == "integer" else is_uniform(op)
    return is_single and len(op.attributes["shape"]) <= 5


@lowering("constant", applies=_has_literal)
def constant_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """A single element, repeated."""
    shape, value = op.attributes["shape"], op.attributes["value"][0]
    if op.dtype == "integer":
        ones = [1] * len(shape)
        value = emit("constant", shape=ones, value=[value], dtype="integer", hint="one")
    return [fill(emit, value, shape)]


# The types of tensors in single precision; in ONNX some are in double.
DTYPES: dict[str, Any] = {
    "scalar": np.float32,
    "double": np.float64,
    "integer": np.int64,
    "logical": np.bool_,
}


def store_constants(
    graph: Graph, which: When, others: Iterable[str] = ()
) -> tuple[Graph, dict[str, Array]]:
    """The graph with variables for some constants, and their data by new labels."""
    variables = (op for op in graph.operations if op.name == "variable")
    root = _free_root([*(op.attributes["label"] for op in variables), *others])
    data: dict[str, Array] = {}

    def stored(op: Operation) -> Operation:
        if op.name != "constant" or not which(op):
            return op
        label, shape = f"{root}/{len(data) + 1}", op.attributes["shape"]
        values = np.array(op.attributes["value"], DTYPES[op.outputs[0].dtype])
        data[label] = np.array(
            np.broadcast_to(values, prod(as_numbers(shape))).reshape(shape)
        )
        attributes: Attributes = {"shape": shape, "label": label}
        return replace(op, definition=STDLIB["variable"], attributes=attributes)

    return sweep(graph, stored), data


def _free_root(labels: Iterable[str]) -> str:
    """The folder of constants, maybe with a number: no label begins so, in any case."""
    taken = [*map(label_key, labels)]
    roots = (f"{CONSTANTS}_{n}" if n else CONSTANTS for n in count())
    return next(r for r in roots if not any(label.startswith(r) for label in taken))
