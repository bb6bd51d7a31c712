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
from typing import Any

from nnef_grad.build.arguments import dtype_of
from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, tensors
from nnef_grad.graph.names import substitute
from nnef_grad.language.library import standard
from nnef_grad.ops.shape import with_extent
from nnef_grad.ops.traits import COPYING, MOVING, STEPS
from nnef_grad.targets.conditions import not_one_axis
from nnef_grad.targets.reduce import position_lowered

# The operation that made some integers, what emits operations, the cast of the integers.
Form = Callable[[Operation, Emitter, Operation], Sequence[Any]]


def makers(graph: Graph) -> dict[Tensor, Operation]:
    """Which operation makes a tensor."""
    return {tensor: op for op in graph.operations for tensor in op.outputs}


# ---- From scalars ----


def floored_casts(graph: Graph) -> Graph:
    """The graph with scalars rounded down before they are cast to integers: the cast
    does so, but real runtimes round to zero.
    """
    made = makers(graph)

    def body(op: Operation) -> Decompose | None:
        is_open = _is_cast(op, "scalar", "integer") and op.operands[0] in made
        is_whole = is_open and made[op.inputs[0]].name in STEPS
        return _floored if is_open and not is_whole else None

    return inline(graph, body)


def _is_cast(op: Operation, source: str, target: str) -> bool:
    return (
        op.name == "cast" and op.dtype == target and dtype_of(op.operands[0]) == source
    )


def _floored(emit: Emitter, op: Operation) -> Sequence[Any]:
    whole = emit("floor", op.operands[0], hint="whole")
    return [emit("cast", whole, dtype="integer")]


# ---- To scalars ----


def casts_moved_up(graph: Graph) -> Graph:
    """The graph with casts of integers to scalars before what made the integers, or with
    scalars that are made in their place.
    """
    made = makers(graph)

    def body(op: Operation) -> Decompose | None:
        if not _is_cast(op, "integer", "scalar") or op.operands[0] not in made:
            return None
        maker = made[op.inputs[0]]
        form = _FORMS.get(maker.name)
        return partial(form, maker) if form is not None else None

    return inline(graph, body)


def _moved(maker: Operation, emit: Emitter, cast: Operation) -> Sequence[Any]:
    """The operation on scalars. It moves elements about, and makes none."""
    operands = tuple(_as_scalar(emit, operand) for operand in maker.operands)
    results = emit.emit_again(maker, operands)
    (integers,) = cast.operands
    pairs = zip(tensors(maker.results), tensors(results), strict=True)
    return [new for old, new in pairs if old == integers]


def _as_scalar(emit: Emitter, x: Operand) -> Any:
    if isinstance(x, tuple):
        return tuple(_as_scalar(emit, item) for item in x)
    if dtype_of(x) != "integer":
        return x
    return emit("cast", x, dtype="scalar", hint="number")


def _gathered(maker: Operation, emit: Emitter, cast: Operation) -> Sequence[Any]:
    x, indices = maker.operands
    return [emit("gather", _as_scalar(emit, x), indices, **maker.attributes)]


def _cast(maker: Operation, emit: Emitter, cast: Operation) -> Sequence[Any]:
    """The largest whole number that is not above."""
    (x,) = maker.operands
    whole = dtype_of(x) != "scalar"
    return [emit("cast", x, dtype="scalar") if whole else emit("floor", x)]


def _constant(maker: Operation, emit: Emitter, cast: Operation) -> Sequence[Any]:
    shape, value = maker.attributes["shape"], maker.attributes["value"]
    return [emit("constant", shape=shape, value=[float(item) for item in value])]


_EXTREMA = {"argmax_reduce": "max_reduce", "argmin_reduce": "min_reduce"}


def _position(maker: Operation, emit: Emitter, cast: Operation) -> Sequence[Any]:
    """The first of the positions at which the extremum is."""
    if not_one_axis(maker):
        (position,) = position_lowered(emit, maker)
        return [emit("cast", position, dtype="scalar")]
    (x,), (axis,) = maker.inputs, maker.attributes["axes"]
    extremum = emit(_EXTREMA[maker.name], x, axes=[axis], hint="extremum")
    hit = emit("eq", x, extremum, hint="hit")
    shape = with_extent((1,) * x.rank, axis, x.shape[axis])
    numbers = [float(i) for i in range(x.shape[axis])]
    positions = emit("constant", shape=shape, value=numbers, hint="positions")
    beyond = float(x.shape[axis])
    candidates = emit("select", hit, positions, beyond, hint="candidates")
    return [emit("min_reduce", candidates, axes=[axis])]


_FORMS: Mapping[str, Form] = {
    **dict.fromkeys(MOVING | COPYING | {"select"}, _moved),
    "gather": _gathered,
    "cast": _cast,
    "constant": _constant,
    "argmax_reduce": _position,
    "argmin_reduce": _position,
}


# ---- From outside ----


def scalar_inputs(graph: Graph) -> Graph:
    """The graph with scalars for the inputs of integers that it makes scalars of, and
    uses for nothing else. They are fed whole numbers.
    """
    chosen = {tensor: replace(tensor, dtype="scalar") for tensor in _only_cast(graph)}
    if not chosen:
        return graph
    operations = tuple(_of_scalars(op, chosen) for op in graph.operations)
    inputs = tuple(chosen.get(tensor, tensor) for tensor in graph.inputs)
    notes = tuple(f"  {t.name}: input, whole numbers as scalars" for t in chosen)
    return replace(
        graph, inputs=inputs, operations=operations, notes=(*graph.notes, *notes)
    )


def _only_cast(graph: Graph) -> list[Tensor]:
    """The inputs of integers all of whose readers make scalars of them."""
    read: dict[Tensor, list[Operation]] = {}
    for op in graph.operations:
        for tensor in op.inputs:
            read.setdefault(tensor, []).append(op)
    return [
        tensor
        for tensor in graph.inputs
        if tensor.dtype == "integer"
        and tensor in read
        and all(_is_cast(op, "integer", "scalar") for op in read[tensor])
    ]


def _of_scalars(op: Operation, chosen: Mapping[Tensor, Tensor]) -> Operation:
    moved = substitute(op, chosen)
    if moved is op:
        return op
    if op.name == "external":
        return replace(moved, dtype="scalar")
    return replace(moved, definition=standard()["copy"])
