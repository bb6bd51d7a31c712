"""Tensors that stand for themselves: constants, and variables with the data of
constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.graph.ir import (
    Attributes,
    Graph,
    Operand,
    Operation,
    Shape,
    Tensor,
    shape_of,
)
from nnef_grad.language.library import standard
from nnef_grad.ops.traits import BROADCASTING, LOGIC
from nnef_grad.targets.conditions import When, always, splat
from nnef_grad.targets.registry import lowering

Array = npt.NDArray[Any]
Data = dict[str, Array]


# ---- Literals ----


def _is_uniform(op: Operation) -> bool:
    return len(set(op.attributes["value"])) == 1


def _has_literal(op: Operation) -> bool:
    """Whether a literal can stand for the elements. Integers have another width there
    in some runtimes: one of them is a constant of its own.
    """
    return splat(op) if op.dtype == "integer" else _is_uniform(op)


@lowering("constant", when=_has_literal)
def constant_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """A single element, repeated."""
    shape, value = op.attributes["shape"], op.attributes["value"][0]
    if op.dtype == "integer":
        ones = [1] * len(shape)
        value = emit("constant", shape=ones, value=[value], dtype="integer", hint="one")
    return [in_full(emit, value, shape)]


# They take a literal wherever they take a tensor of numbers.
_OF_NUMBERS = BROADCASTING - LOGIC


def literal_operands(graph: Graph, which: When) -> Graph:
    """The graph with literals in the place of constants, where these are broadcast.

    Args:
        graph: a flat graph.
        which: the constants that are replaced, of those that have one value.
    """
    constants = {
        tensor: op.attributes["value"][0]
        for op in graph.operations
        if op.name == "constant" and op.dtype == "scalar" and which(op)
        for tensor in op.outputs
        if _is_uniform(op)
    }

    def body(op: Operation) -> Decompose | None:
        has_constant = not constants.keys().isdisjoint(op.inputs)
        is_open = op.name in _OF_NUMBERS and has_constant
        return partial(_with_literals, constants) if is_open else None

    return inline(graph, body)


def _with_literals(
    constants: Mapping[Tensor, float], emit: Emitter, op: Operation
) -> Sequence[Any]:
    operands = tuple(
        constants.get(o, o) if isinstance(o, Tensor) else o for o in op.operands
    )
    hints = (emit.naming("single"),)
    (value,) = emit.emit_again(op, operands, hints=hints)
    return [in_full(emit, value, op.outputs[0].shape)]


def in_full(emit: Emitter, x: Operand, shape: Shape) -> Any:
    """An operand, repeated to a shape that it can be broadcast to."""
    missing = list(range(len(shape_of(x)), len(shape)))
    if missing:
        x = emit("unsqueeze", x, axes=missing, hint="single")
    repeats = [whole // part for whole, part in zip(shape, shape_of(x), strict=True)]
    return emit("tile", x, repeats=repeats) if max(repeats, default=1) > 1 else x


# ---- Variables ----


def constants_as_variables(graph: Graph, which: When = always) -> tuple[Graph, Data]:
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
    taken = {
        str(op.attributes["label"]).lower()
        for op in graph.operations
        if op.name == "variable"
    }
    roots = (f"constants{suffix}" for suffix in _suffixes())
    root = next(r for r in roots if not any(label.startswith(r) for label in taken))
    return (f"{root}/{number}" for number in count(1))


def _suffixes() -> Iterable[str]:
    yield ""
    yield from (f"_{number}" for number in count(1))


_TYPES: dict[str, npt.DTypeLike] = {
    "scalar": np.float32,
    "integer": np.int64,
    "logical": np.bool_,
}


def _variable(op: Operation, label: str, data: Data) -> Operation:
    """The operation for a constant, whose values go to the data."""
    shape, value = op.attributes["shape"], op.attributes["value"]
    (tensor,) = op.outputs
    values = np.array(value, _TYPES[tensor.dtype])
    data[label] = np.array(np.broadcast_to(values, prod(shape)).reshape(shape))
    attributes: Attributes = {"shape": shape, "label": label}
    return replace(op, definition=standard()["variable"], attributes=attributes)


# ---- Variables that change ----


@lowering("update")
def update_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The new value. Who runs the graph takes it from there to the next run."""
    return [op.operands[1]]
