"""Elements at indices, where a registry has operations for them: sums of the elements whose
position is an index read one for each index; sums over the indices add to each position.

hit = eq(indices, positions);           ->   y = tract_core_gather_elements(x, index, axis = 1);
y = sum_reduce(select(hit, x, 0.0));
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import ARGSORT, Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.ops.join import positions_along
from nnef_grad.ops.orders import DECLARED
from nnef_grad.ops.shape import reshaped, transposed, with_extent
from nnef_grad.ops.traits import ARRANGING
from nnef_grad.targets.conditions import set_to
from nnef_grad.targets.own_operations import found_by, tract_core
from nnef_grad.targets.positions import Hits, hits_of, index_of, of_rank
from nnef_grad.targets.registry import lowering

# ---- The indices of elements in order ----


@found_by("tract", ARGSORT)
def _sorted(op: Operation, near: DefUse) -> Decompose | None:
    """The first ones, of a known number."""
    return None if has_symbols(op.attributes["count"]) else sorted_elements


def sorted_elements(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The first ones, or, by their ranks, some of these."""
    (x,), own = op.inputs, op.attributes
    axis, ranks = own["axis"], own["ranks"]
    settings: dict[str, Any] = {"axis": axis, "largest": own["descending"]}
    count = max(ranks) + 1 if ranks else own["count"]
    indices = tract_core(emit, "topk", x, k=count, **settings)
    if not ranks:
        return [indices]
    line = emit("constant", shape=[len(ranks)], value=ranks, dtype="integer")
    return [emit("gather", indices, line, axis=axis)]


# ---- Elements that are chosen by comparison ----


@found_by("tract onnx", "sum_reduce")
def _elements(op: Operation, near: DefUse) -> Decompose | None:
    """For each index the element whose position it is."""
    choice = _choice(op.operands[0], near)
    if choice is None or op.attributes["axes"] != (choice.hits.axis,):
        return None
    hits, chosen, given = choice
    if _is_cut(chosen, near):
        return None
    pairs = enumerate(zip(given, hits.shape, strict=True))
    repeated = [a for a, (n, m) in pairs if n != m and a != hits.axis]
    if given[hits.axis] != hits.extent or [given[a] for a in repeated] not in ([], [1]):
        return None
    (along,) = repeated or [hits.axis]
    return partial(_read, near, choice, along)


def _is_cut(x: Operand, near: DefUse) -> bool:
    """Whether elements are those of a slice: OpenVINO 2026.4 reads them where the slice is
    from, and then finds that there are too many.
    """
    source = near.producer(near.source(x, ARRANGING))
    return source is not None and source.name == "slice"


@found_by("tract onnxruntime", "sum_reduce")
def _sums(op: Operation, near: DefUse) -> Decompose | None:
    """For each position the sum of the elements whose index it is."""
    choice = _choice(op.operands[0], near)
    return None if choice is None else _sum(op, near, choice)


@found_by("tract onnxruntime", "any_reduce")
def _is_any_hit(op: Operation, near: DefUse) -> Decompose | None:
    """Whether a position is an index: as many as there are of these, which are not none; or
    whether an index is that of a position.
    """
    hits = hits_of(op.operands[0], near)
    if hits is None:
        return None
    if op.attributes["axes"] == (hits.axis,):
        return partial(_is_there, near, hits)
    count = _sum(op, near, _Choice(hits, 1.0, (1,) * len(hits.shape)))
    return None if count is None else partial(_is_more, count)


@found_by("onnxruntime", "select")
def _put(op: Operation, near: DefUse) -> Decompose | None:
    """An element at the position that an index is, and zeros at all others: an operator has
    a few elements to put, where a choice has all.
    """
    choice, readers = _choice(op.outputs[0], near), near.readers[op.outputs[0]]
    if choice is None or choice.given[choice.hits.axis] != 1:
        return None
    # These have forms of their own, which leave out the choice.
    if readers and {reader.name for reader in readers} <= {"matmul", "sum_reduce"}:
        return None
    return partial(_added, near, choice, choice.hits.axis)


class _Choice(NamedTuple):
    """The choice by a comparison with positions, zeros elsewhere, and its shape beside them."""

    hits: Hits
    chosen: Operand
    given: Shape


def _choice(x: Operand, near: DefUse) -> _Choice | None:
    choice = near.producer(x)
    is_one = choice is not None and choice.name == "select" and choice.dtype == "scalar"
    if choice is None or not is_one or choice.operands[2] != 0.0:
        return None
    condition, chosen, _ = choice.operands
    hits, shape = hits_of(condition, near), shape_of(chosen)
    if hits is None or len(shape) > len(hits.shape):
        return None
    return _Choice(hits, chosen, of_rank(shape, len(hits.shape)))


def _sum(op: Operation, near: DefUse, choice: _Choice) -> Decompose | None:
    """The sum of what is chosen along the axis of the indices, if it has no positions."""
    axes, hits = op.attributes["axes"], choice.hits
    if len(axes) != 1 or axes == (hits.axis,):
        return None
    is_sum = choice.given[hits.axis] == 1 and hits.shape[axes[0]] != 1
    return partial(_added, near, choice, axes[0]) if is_sum else None


def _is_more(count: Decompose, emit: Emitter, op: Operation) -> Sequence[Operand]:
    return [emit("gt", *count(emit, op), 0.5)]


def _is_there(
    near: DefUse, hits: Hits, emit: Emitter, op: Operation
) -> Sequence[Operand]:
    _, inside = index_of(emit, near, hits)
    if inside is None:
        shape = op.outputs[0].shape
        inside = emit("constant", shape=shape, value=[True], dtype="logical")
    return [inside]


# An axis of the indices takes the place of that of the positions, or is the same one: the
# others are those of elements, indices and sums.


def _read(
    near: DefUse, choice: _Choice, along: int, emit: Emitter, op: Operation
) -> Sequence[Operand]:
    """For each index along an axis the element with this position."""
    hits, chosen, given = choice
    places, (index, inside) = _places(hits, along), index_of(emit, near, hits)
    assert isinstance(chosen, Tensor)
    rows = reshaped(emit, chosen, given, hint="rows")
    if along != hits.axis:
        rows = emit("squeeze", rows, axes=[along], hint="rows")
        index = emit("squeeze", index, axes=[hits.axis], hint="index")
        order = [hits.axis if a == along else a for a in places]
        rows = transposed(emit, rows, [a - (a > along) for a in order], hint="rows")
    axis = places.index(along)
    y = tract_core(emit, "gather_elements", rows, index, axis=axis, hint="elements")
    y = reshaped(emit, y, op.outputs[0].shape, hint="element")
    return [y if inside is None else emit("select", inside, y, 0.0)]


def _added(
    near: DefUse, choice: _Choice, along: int, emit: Emitter, op: Operation
) -> Sequence[Operand]:
    """For each position the sum of what stands at its indices along an axis."""
    hits, chosen, given = choice
    places, (index, inside) = _places(hits, along), index_of(emit, near, hits)
    if inside is not None:
        chosen = emit("select", inside, chosen, 0.0, hint="inside")
    whole = [n if m == 1 else m for m, n in zip(hits.shape, given, strict=True)]
    shape = tuple([whole[a] for a in places])
    updates, index = (
        _filled(emit, x, tuple(whole), shape, hint)
        for x, hint in ((chosen, "updates"), (index, "index"))
    )
    axis = places.index(along)
    most = with_extent(shape, axis, hits.extent)
    zeros = tract_core(emit, "broadcast", 0.0, shape=most, hint="zeros")
    how: dict[str, Any] = {"axis": axis, "reduction": "add", "hint": "sums"}
    sums = tract_core(emit, "scatter_elements", zeros, index, updates, **how)
    if along != hits.axis:
        others = [a for a in range(len(whole)) if a != along]
        order = [places.index(along if a == hits.axis else a) for a in others]
        sums = transposed(emit, sums, order, hint="sums")
    return [reshaped(emit, sums, op.outputs[0].shape)]


def _places(hits: Hits, along: int) -> list[int]:
    """The axes of the comparison, without that of positions where another takes its place."""
    return [a for a in range(len(hits.shape)) if a != hits.axis or a == along]


def _filled(emit: Emitter, x: Operand, whole: Shape, shape: Shape, hint: str) -> Tensor:
    """The elements of a tensor, or a number, that is broadcast to a shape, in another one."""
    if not isinstance(x, Tensor):
        return tract_core(emit, "broadcast", x, shape=shape, hint=hint)
    x = reshaped(emit, x, of_rank(x.shape, len(whole)), hint=hint)
    if x.shape != whole:
        x = tract_core(emit, "broadcast", x, shape=whole, hint=hint)
    return reshaped(emit, x, shape, hint=hint)


# ---- What they are where the registry is not ----


@lowering("tract_core_topk")
def top_again(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The indices in order, and the elements at these."""
    (x,), own = op.inputs, op.settings
    settings = {"count": own["k"], "descending": own["largest"], "axis": own["axis"]}
    call = bind(DECLARED[ARGSORT], {"x": x, **settings}, None)
    (indices,) = emit.emit_op(call, hints=(emit.naming("order"),))
    assert isinstance(indices, Tensor)
    return [_chosen(emit, x, indices, own["axis"]), indices]


@lowering("tract_core_gather_elements")
def elements_by_comparison(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The sum of the elements whose position is an index."""
    x, indices = op.inputs
    return [_chosen(emit, x, indices, op.attributes["axis"])]


def _chosen(emit: Emitter, x: Tensor, indices: Tensor, axis: int) -> Tensor:
    (rows,) = _rows(emit, axis, x)
    column = emit("unsqueeze", indices, axes=[x.rank], hint="column")
    hit = _hit(emit, column, x.rank, x.shape[axis])
    taken = emit("select", hit, rows, 0.0, hint="taken")
    sums = emit("sum_reduce", taken, axes=[x.rank], hint="sums")
    return emit("squeeze", sums, axes=[x.rank])


@lowering("tract_core_scatter_elements", applies=set_to(reduction="add"))
def sums_by_comparison(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Each element, and the sum of the updates whose index is its position."""
    (x, indices, updates), axis = op.inputs, op.attributes["axis"]
    places, rows = _rows(emit, axis, indices, updates)
    hit = _hit(emit, places, axis, x.shape[axis])
    taken = emit("select", hit, rows, 0.0, hint="taken")
    sums = emit("sum_reduce", taken, axes=[x.rank], hint="sums")
    return [emit("add", x, emit("squeeze", sums, axes=[x.rank], hint="sum"))]


def _rows(emit: Emitter, axis: int, *tensors: Tensor) -> Iterator[Tensor]:
    """Tensors with an axis moved to the end, and one of one element in its place."""
    for x in tensors:
        order = [*(a for a in range(x.rank) if a != axis), axis]
        last = transposed(emit, x, order, hint="last")
        yield emit("unsqueeze", last, axes=[axis], hint="rows")


def _hit(emit: Emitter, indices: Tensor, axis: int, extent: Dimension) -> Tensor:
    """Where indices are the positions along an axis."""
    numbers = positions_along(emit, extent, axis, indices.rank)
    return emit("eq", emit("cast", indices, dtype="scalar"), numbers, hint="hit")
