"""Integers, for runtimes that cannot make numbers of them, or make others of numbers.

A cast of integers to scalars moves up to where they come from, through whatever moves
them about. There scalars can be made in their place:

    position = argmax_reduce(x, axes = [1]);      position = argmax_reduce(x, axes = [1]);
    row = squeeze(position, axes = [1]);     ->   number = cast<scalar>(position);
    y = cast<scalar>(row);                        y = squeeze(number, axes = [1]);
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from nnef_grad.build.arguments import dtype_of
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, tensors
from nnef_grad.graph.names import substitute
from nnef_grad.language.types import is_generic
from nnef_grad.ops.shape import with_extent
from nnef_grad.ops.traits import COPYING, MOVING, STEPS
from nnef_grad.targets.conditions import not_one_axis
from nnef_grad.targets.reduce import position_lowered

# Emits scalars in the place of integers: of the operation that produced these, and their
# cast.
Form = Callable[[Operation, Emitter, Operation], Sequence[Operand]]


def producers(graph: Graph) -> dict[Tensor, Operation]:
    """The operation that made each tensor."""
    return {tensor: op for op in graph.operations for tensor in op.outputs}


def _is_cast(op: Operation, source: str, target: str) -> bool:
    is_cast = op.name == "cast" and op.dtype == target
    return is_cast and dtype_of(op.operands[0]) == source


# ---- From scalars ----


def floor_casts(graph: Graph) -> Graph:
    """The graph with scalars rounded down before they are cast to integers: the cast
    does so, but real runtimes round to zero.
    """
    made = producers(graph)

    def body(op: Operation) -> Decompose | None:
        if not _is_cast(op, "scalar", "integer") or op.operands[0] not in made:
            return None
        return None if made[op.inputs[0]].name in STEPS else _floored

    return inline(graph, body)


def _floored(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    whole = emit("floor", op.operands[0], hint="whole")
    return [emit("cast", whole, dtype="integer")]


# ---- To scalars ----


def move_casts_up(graph: Graph) -> Graph:
    """The graph with casts of integers to scalars before what produced the integers, or
    with scalars that are made in their place.
    """
    made = producers(graph)

    def body(op: Operation) -> Decompose | None:
        if not _is_cast(op, "integer", "scalar") or op.operands[0] not in made:
            return None
        producer = made[op.inputs[0]]
        form = _FORMS.get(producer.name)
        return partial(form, producer) if form is not None else None

    return inline(graph, body)


def _moved(producer: Operation, emit: Emitter, cast: Operation) -> Sequence[Operand]:
    """The operation on scalars. It moves elements about, and makes none."""
    pairs = zip(producer.definition.operands, producer.operands, strict=True)
    operands = [_as_scalar(emit, o) if is_generic(p.type) else o for p, o in pairs]
    results = tensors(emit.emit_again(producer, operands))
    return [results[producer.outputs.index(cast.inputs[0])]]


def _as_scalar(emit: Emitter, x: Operand) -> Operand:
    if isinstance(x, tuple):
        return tuple(_as_scalar(emit, item) for item in x)
    return emit("cast", x, dtype="scalar", hint="number")


def _cast(producer: Operation, emit: Emitter, cast: Operation) -> Sequence[Operand]:
    """The largest whole number that is not above."""
    (x,) = producer.operands
    is_whole = dtype_of(x) != "scalar"
    return [emit("cast", x, dtype="scalar") if is_whole else emit("floor", x)]


def _constant(producer: Operation, emit: Emitter, cast: Operation) -> Sequence[Operand]:
    shape, value = producer.attributes["shape"], producer.attributes["value"]
    return [emit("constant", shape=shape, value=[float(item) for item in value])]


_EXTREMA = {"argmax_reduce": "max_reduce", "argmin_reduce": "min_reduce"}


def _position(producer: Operation, emit: Emitter, cast: Operation) -> Sequence[Operand]:
    """The first of the positions at which the extremum is."""
    if not_one_axis(producer):
        (position,) = position_lowered(emit, producer)
        return [emit("cast", position, dtype="scalar")]
    (x,), (axis,) = producer.inputs, producer.attributes["axes"]
    extent = x.shape[axis]
    extremum = emit(_EXTREMA[producer.name], x, axes=[axis], hint="extremum")
    hit = emit("eq", x, extremum, hint="hit")
    shape, numbers = with_extent((1,) * x.rank, axis, extent), map(float, range(extent))
    positions = emit("constant", shape=shape, value=[*numbers], hint="positions")
    candidates = emit("select", hit, positions, float(extent), hint="candidates")
    return [emit("min_reduce", candidates, axes=[axis])]


_FORMS: Mapping[str, Form] = {
    **dict.fromkeys(MOVING | COPYING | {"select", "gather"}, _moved),
    "cast": _cast,
    "constant": _constant,
    "argmax_reduce": _position,
    "argmin_reduce": _position,
}


# ---- From outside ----


def make_inputs_scalar(graph: Graph) -> Graph:
    """The graph with scalars for the inputs of integers that it makes scalars of, and
    uses for nothing else. They are fed whole numbers.
    """
    casts = {True: set[Tensor](), False: set[Tensor]()}
    for op in graph.operations:
        casts[_is_cast(op, "integer", "scalar")].update(op.inputs)
    only_cast = casts[True] - casts[False]
    chosen = {t: replace(t, dtype="scalar") for t in graph.inputs if t in only_cast}
    operations = (substitute(op, chosen) for op in graph.operations)
    notes = (f"  {t.name}: input, whole numbers as scalars" for t in chosen)
    changed = replace(
        graph,
        inputs=tuple(chosen.get(tensor, tensor) for tensor in graph.inputs),
        operations=tuple(map(_with_own_type, operations)),
        notes=(*graph.notes, *notes),
    )
    return changed if chosen else graph


def _with_own_type(op: Operation) -> Operation:
    """An external has the data type of what it introduces."""
    return replace(op, dtype=op.outputs[0].dtype) if op.name == "external" else op
