"""Constants as literals, and as variables with data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.language.labels import CONSTANTS
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import BROADCASTING, LOGIC
from nnef_grad.targets.conditions import splat
from nnef_grad.targets.registry import lowering

Array = npt.NDArray[Any]
Data = dict[str, Array]
When = Callable[[Operation], bool]


# ---- Literals ----


def _is_uniform(op: Operation) -> bool:
    return len(set(op.attributes["value"])) == 1


def _has_literal(op: Operation) -> bool:
    """Whether a literal can stand for the elements: it is repeated along five axes at
    most. Integers have another width there in some runtimes: one of them is a constant
    of its own.
    """
    is_single = splat(op) if op.dtype == "integer" else _is_uniform(op)
    return is_single and len(op.attributes["shape"]) <= 5


@lowering("constant", applies=_has_literal)
def constant_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """A single element, repeated."""
    shape, value = op.attributes["shape"], op.attributes["value"][0]
    if op.dtype == "integer":
        ones = [1] * len(shape)
        value = emit("constant", shape=ones, value=[value], dtype="integer", hint="one")
    return [fill(emit, value, shape)]


# They take a literal wherever they take a tensor of numbers.
_OF_NUMBERS = BROADCASTING - LOGIC


def put_literals(graph: Graph, which: When) -> Graph:
    """The graph with literals in the place of constants, where these are broadcast.

    Args:
        graph: a flat graph.
        which: the constants that are replaced, of those that have one value.
    """
    literals: dict[Tensor, Operand] = {
        tensor: op.attributes["value"][0]
        for op in graph.operations
        if op.name == "constant" and op.dtype == "scalar" and which(op)
        for tensor in op.outputs
        if _is_uniform(op)
    }

    def body(op: Operation) -> Decompose | None:
        is_open = not literals.keys().isdisjoint(op.inputs)
        is_open &= op.name in _OF_NUMBERS
        return partial(_with_literals, literals) if is_open else None

    return inline(graph, body)


def _with_literals(
    literals: Mapping[Tensor, Operand], emit: Emitter, op: Operation
) -> Sequence[Operand]:
    operands = (literals.get(o, o) if isinstance(o, Tensor) else o for o in op.operands)
    hints = (emit.naming("single"),)
    (value,) = emit.emit_again(op, operands, hints=hints)
    return [fill(emit, value, op.outputs[0].shape)]


def fill(emit: Emitter, x: Operand, shape: Shape) -> Operand:
    """An operand, repeated to a shape that it can be broadcast to."""
    missing = list(range(len(shape_of(x)), len(shape)))
    if missing:
        x = emit("unsqueeze", x, axes=missing, hint="single")
    repeats = [whole // part for whole, part in zip(shape, shape_of(x), strict=True)]
    return emit("tile", x, repeats=repeats) if max(repeats, default=1) > 1 else x


# ---- Variables ----


def store_constants(graph: Graph, which: When) -> tuple[Graph, Data]:
    """The graph with variables in the place of constants.

    Args:
        graph: a flat graph.
        which: the constants that are replaced.

    Returns:
        The graph, and the data of its new variables by label: scalars in single
        precision. Every tensor keeps its name.
    """
    labels, data = _free_labels(graph), Data()
    operations = tuple(
        _variable(op, next(labels), data) if op.name == "constant" and which(op) else op
        for op in graph.operations
    )
    return (replace(graph, operations=operations), data) if data else (graph, data)


def _free_labels(graph: Graph) -> Iterator[str]:
    """constants/1, constants/2 and so on, but for labels that there are. Upper and lower
    case are one, and a label may be a folder of another.
    """
    taken = [
        op.attributes["label"].lower()
        for op in graph.operations
        if op.name == "variable"
    ]
    roots = (f"{CONSTANTS}_{n}" if n else CONSTANTS for n in count())
    root = next(r for r in roots if not any(label.startswith(r) for label in taken))
    return (f"{root}/{number}" for number in count(1))


_TYPES: dict[str, npt.DTypeLike] = {
    "scalar": np.float32,
    "integer": np.int64,
    "logical": np.bool_,
}


def _variable(op: Operation, label: str, data: Data) -> Operation:
    """The operation for a constant, whose values go to the data."""
    shape, value = op.attributes["shape"], op.attributes["value"]
    values = np.array(value, _TYPES[op.outputs[0].dtype])
    data[label] = np.array(np.broadcast_to(values, prod(shape)).reshape(shape))
    return replace(
        op,
        definition=standard()["variable"],
        attributes={"shape": shape, "label": label},
    )


# ---- Variables that change ----


@lowering("update")
def update_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The new value. Who runs the graph takes it from there to the next run."""
    return [op.operands[1]]
