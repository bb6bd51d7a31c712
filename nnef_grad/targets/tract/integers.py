"""Integers, for runtimes that cannot make numbers of them, or make others of numbers.

A cast of integers to scalars moves up to where they come from, through whatever moves
them about. There scalars can be made in their place:

    position = argmax_reduce(x, axes = [1]);      position = argmax_reduce(x, axes = [1]);
    row = squeeze(position, axes = [1]);     ->   number = cast<scalar>(position);
    y = cast<scalar>(row);                        y = squeeze(number, axes = [1]);
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, each, where
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, tensors
from nnef_grad.graph.rewriting import sweep, with_tensors
from nnef_grad.language.types import is_generic
from nnef_grad.ops.shape import with_extent
from nnef_grad.ops.traits import COPYING, MOVING
from nnef_grad.targets.conditions import not_one_axis
from nnef_grad.targets.shape import position_lowered
from nnef_grad.targets.tensors import is_cast


def _has_form(op: Operation, near: DefUse) -> bool:
    is_open = is_cast(op, "integer", "scalar")
    return is_open and near.producers[op.inputs[0]].name in _FORMS


@each("cast")
@where(_has_form)
def move_casts_up(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Casts of integers are before what produced these, or scalars are made instead."""
    (x,) = op.inputs
    producer = emit.producer(x)
    assert producer is not None
    return [tensors(_FORMS[producer.name](emit, producer))[producer.outputs.index(x)]]


def _moved(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The operation on scalars. It moves elements about, and makes none."""
    pairs = zip(op.definition.operands, op.operands, strict=True)
    operands = [_as_scalar(emit, o) if is_generic(p.type) else o for p, o in pairs]
    return emit.emit_again(op, operands)


def _as_scalar(emit: Emitter, x: Operand) -> Operand:
    if isinstance(x, tuple):
        return tuple(_as_scalar(emit, item) for item in x)
    return emit("cast", x, dtype="scalar", hint="number")


def _cast(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The largest whole number that is not above."""
    (x,) = op.operands
    is_whole = dtype_of(x) != "scalar"
    return [emit("cast", x, dtype="scalar") if is_whole else emit("floor", x)]


def _constant(emit: Emitter, op: Operation) -> Sequence[Operand]:
    value = [*map(float, op.attributes["value"])]
    return [emit("constant", shape=op.attributes["shape"], value=value)]


def _position(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The first of the positions at which the extremum is."""
    if not_one_axis(op):
        (position,) = position_lowered(emit, op)
        return [emit("cast", position, dtype="scalar")]
    (x,), (axis,) = op.inputs, op.attributes["axes"]
    extent = x.shape[axis]
    extremum = emit(op.name.removeprefix("arg"), x, axes=[axis], hint="extremum")
    hit = emit("eq", x, extremum, hint="hit")
    shape, value = with_extent((1,) * x.rank, axis, extent), map(float, range(extent))
    positions = emit("constant", shape=shape, value=[*value], hint="positions")
    candidates = emit("select", hit, positions, float(extent), hint="candidates")
    return [emit("min_reduce", candidates, axes=[axis])]


# Emit scalars in the place of integers.
_FORMS: Mapping[str, Decompose] = {
    **dict.fromkeys(MOVING | COPYING | {"select", "gather"}, _moved),
    "cast": _cast,
    "constant": _constant,
    "argmax_reduce": _position,
    "argmin_reduce": _position,
}


def make_inputs_scalar(graph: Graph) -> Graph:
    """The graph with scalars for inputs of integers that it only makes scalars of."""
    casts = {True: set[Tensor](), False: set[Tensor]()}
    for op in graph.operations:
        casts[is_cast(op, "integer", "scalar")].update(op.inputs)
    only_cast = casts[True] - casts[False]
    chosen = {t: replace(t, dtype="scalar") for t in graph.inputs if t in only_cast}
    if not chosen:
        return graph
    names = [graph.names[tensor] for tensor in chosen]
    notes = (
        f"  {name}: input, whole numbers as scalars"
        for name in names
        if name not in graph.datum_types
    )
    changed = sweep(with_tensors(graph, chosen), _typed)
    return replace(changed, notes=(*graph.notes, *notes))


def _typed(op: Operation) -> Operation:
    """An external has the data type of what it introduces."""
    dtype = op.outputs[0].dtype
    return (
        op if op.name != "external" or op.dtype == dtype else replace(op, dtype=dtype)
    )
