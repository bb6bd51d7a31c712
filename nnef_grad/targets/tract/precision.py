"""Variables that are not in single precision, for tract, which has operations of one type.

Those of half and of double precision are cast, and quantized codes, which have their meaning
in quantization info. Those in blocks of four bits (Q4_0) stay so in memory, too: tract
multiplies by their transpose as they are, and copies rows of them in single precision. Whatever
else reads them, such as the gradient of a layer's input, gets all rows:

    dx = matmul(dy, w);    ->    rows = tract_core_range(0, 96, 1);
                                 rows_later = select(after_dy, rows, rows);
                                 w_single = tract_core_gather(w, rows_later, axis = 0, datum_type = 'f32');
                                 dx = matmul(dy, w_single);

Rows that it knew would be copied as it loads the graph, and kept.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from nnef_grad.autodiff.recompute import Delays
from nnef_grad.autodiff.schedule import that_enter
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.names import with_prefix
from nnef_grad.graph.passes import prune
from nnef_grad.graph.rewriting import substitute, with_others_read
from nnef_grad.ops.parts import section
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.own_operations import OPSET, tract_core
from nnef_grad.targets.tract.loading import MOST_FOLDED, longest_axis

# What only copies elements takes them as they are stored.
_COPYING = ("slice", "tract_core_gather")


def cast_variables(
    graph: Graph, labels: Container[str], blocks: Container[str] = ()
) -> Graph:
    """The graph with single numbers of variables of other precisions, or in blocks."""
    emitter = Emitter(OPSET.extended(graph.fragments), graph.names)
    casts: dict[Tensor, Tensor] = {}
    every = DefUse(graph).named("variable")
    variables = {op.outputs[0] for op in every if op.attributes["label"] in blocks}
    graph = _joined_again(graph, variables)
    in_blocks = _Blocks(graph, variables, emitter)
    for op in graph.operations:
        op = in_blocks.as_read(op)
        is_copied = op.name in _COPYING and op.operands[0] in casts
        emitter.append(op if is_copied else substitute(op, casts))
        if is_copied or (op.name == "variable" and op.attributes["label"] in labels):
            (x,) = op.outputs
            if x not in variables:
                with emitter.calling(with_prefix(graph.names[x])):
                    casts[x] = _cast(emitter, x)
    operations = tuple(emitter.operations)
    names = emitter.assigned_names(operations, reserved=graph.tensors)
    outputs = tuple(casts.get(x, x) for x in graph.outputs)
    return prune(replace(graph, operations=operations, outputs=outputs, names=names))


class _Blocks:
    """Variables in blocks, in a graph that is built again."""

    def __init__(self, graph: Graph, variables: set[Tensor], emit: Emitter) -> None:
        self._emit, self._names = emit, graph.names
        self._variables = variables
        self._moving = that_enter(graph.operations)
        self._delays = Delays(emit)
        self._rows: dict[Dimension, Tensor] = {}
        self._singles: dict[tuple[Tensor, Tensor], Tensor] = {}

    def as_read(self, op: Operation) -> Operation:
        """The operation, on numbers that it reads; what they are made of is emitted."""
        read = self._variables.intersection(op.inputs)
        if not read or _multiplies(op, read):
            return op
        is_gather = op.name == "tract_core_gather"
        if is_gather and op.attributes["axis"] == 0 and op.inputs[0].rank == 2:
            attributes: Any = {**op.attributes, "datum_type": "f32"}
            return replace(op, attributes=attributes)
        with self._emit.deriving(op.origin):
            return substitute(op, {x: self._single(op, x) for x in read})

    def _single(self, op: Operation, x: Tensor) -> Tensor:
        """All numbers of a variable, once another operand of its reader is there."""
        emit, count = self._emit, x.shape[0]
        if count not in self._rows:
            bounds: Any = {"start": 0, "end": count, "step": 1, "dtype": "integer"}
            self._rows[count] = tract_core(emit, "range", hint="rows", **bounds)
        rows = self._rows[count]
        others = (t for t in op.inputs if t in self._moving and t.rank)
        if (latest := next(others, None)) is not None:
            rows = self._delays.after(latest, rows)
        if (x, rows) not in self._singles:
            with emit.calling(with_prefix(self._names[x])):
                self._singles[x, rows] = _all_of(emit, x, rows)
        return self._singles[x, rows]


def _all_of(emit: Emitter, x: Tensor, rows: Tensor) -> Tensor:
    lines = reshaped(emit, x, (x.shape[0], prod(x.shape[1:])), "lines")
    setting: Any = {"axis": 0, "datum_type": "f32", "hint": "single"}
    singles = tract_core(emit, "gather", lines, rows, **setting)
    return reshaped(emit, singles, x.shape, "single")


def _multiplies(op: Operation, read: set[Tensor]) -> bool:
    """Whether an operation multiplies by the transpose of what it reads in blocks."""
    places = [place for place, x in enumerate(op.operands) if x in read]
    if places != [1] or prod(op.inputs[1].shape[:-2]) != 1:
        return False
    flags = op.attributes.get("transposeA"), op.attributes.get("transposeB")
    return op.name == "linear" or (op.name == "matmul" and flags == (False, True))


def _joined_again(graph: Graph, variables: set[Tensor]) -> Graph:
    """The graph with variables in the place of all their parts, joined: see loading.py."""
    near, whole = DefUse(graph), dict[Tensor, Tensor]()
    for op in near.named("concat") if variables else ():
        parts = [part for x in op.inputs if (part := near.producer(x)) is not None]
        sources = {part.inputs[0] for part in parts if part.name == "slice"}
        if len(sources) == 1 and sources <= variables and _is_whole(op, parts):
            (whole[op.outputs[0]],) = sources
    return prune(with_others_read(graph, whole)) if whole else graph


def _is_whole(joined: Operation, parts: Sequence[Operation]) -> bool:
    """Whether parts of a tensor are joined as they are in it, and are all of it."""
    axis = joined.attributes["axis"]
    if any([*part.attributes.get("axes", ())] != [axis] for part in parts):
        return False
    begins, ends = (
        [part.attributes[key][0] for part in parts] for key in ("begin", "end")
    )
    is_all = joined.outputs[0].shape == parts[0].inputs[0].shape
    return is_all and begins == [0, *ends[:-1]] and len(parts) == len(joined.inputs)


def _cast(emit: Emitter, x: Tensor) -> Tensor:
    """In single precision, by parts where large: tract would not fold the cast."""
    count = 1 if has_symbols(x.shape) else -(-prod(x.shape) // MOST_FOLDED)
    if count == 1:
        return tract_core(emit, "cast", x, to="f32", hint="single")
    axis = longest_axis(x)
    extent = x.shape[axis]
    count = min(count, extent)
    places = [extent * n // count for n in range(count + 1)]
    parts = [section(emit, x, {axis: ends}, hint="part") for ends in pairwise(places)]
    singles = [tract_core(emit, "cast", part, to="f32") for part in parts]
    return emit("concat", singles, axis=axis, hint="single")
