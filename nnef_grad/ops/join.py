"""Tensors that are joined along an axis, divided along one, or whose elements are taken
several times: the gradients of these are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, groupby, pairwise
from math import prod
from typing import Any, cast

from nnef_grad.graph.extents import Dimension, has_symbols, may_exceed
from nnef_grad.graph.ir import LOOP, Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.graph.learning import all_equal, equal, reaches
from nnef_grad.graph.loops import Loop, loop_of, steps_of
from nnef_grad.ops.batching import Many, along_axis, batching_rule, with_attributes
from nnef_grad.ops.costs import cost_rule, multiply_adds
from nnef_grad.ops.examples import (
    MAY_MEET,
    MeetError,
    Place,
    Use,
    apart,
    beside_axis,
    divided,
    place_rule,
    repeated_rule,
)
from nnef_grad.ops.linear import in_all, in_first, linearity_rule
from nnef_grad.ops.parts import place, section
from nnef_grad.ops.ranges import of_first, range_rule
from nnef_grad.ops.registry import Emit, Shapes, check_results, require, shape, vjp
from nnef_grad.ops.shape import (
    check_axis,
    check_length,
    line,
    reshaped,
    turned,
    with_extent,
)

Parts = Sequence["Tensor | None"]


@shape("concat")
def concat_shape(values: tuple[Shape, ...], axis: int) -> Shape:
    """The extents along the axis are added; all others must agree."""
    require(len(values) > 0, "there is nothing to concatenate")
    first = values[0]
    check_axis(axis, len(first))
    message = (
        f"the shapes must agree in all dimensions but {axis}, but are {_listed(values)}"
    )
    rest = [with_extent(value, axis, 0) for value in values]
    require(all(all_equal(rest[0], other) for other in rest[1:]), message)
    return with_extent(first, axis, sum(value[axis] for value in values))


@vjp("concat")
def concat_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    """Each operand receives its section of the gradient."""
    axis, (values,) = op.attributes["axis"], op.operands
    assert isinstance(values, tuple)
    ends = accumulate((shape_of(value)[axis] for value in values), initial=0)
    return [
        tuple(
            section(emit, dy, {axis: (begin, end)}) if may_exceed(end, begin) else None
            for begin, end in pairwise(ends)
        )
    ]


@shape("split")
def split_shape(value: Shape, axis: int, ratios: tuple[int, ...]) -> list[Shape]:
    """The extent along the axis is divided in the given ratios."""
    check_axis(axis, len(value))
    require(len(ratios) > 0, "'ratios' must not be empty")
    message = f"'ratios' must be positive, but are {list(ratios)}"
    require(all(reaches(ratio, 1) for ratio in ratios), message)
    unit, rest = divmod(value[axis], sum(ratios))
    message = (
        f"the sum {sum(ratios)} of 'ratios' must divide the extent of axis {axis},"
        f" which is {value[axis]}"
    )
    require(equal(rest, 0), message)
    return [with_extent(value, axis, unit * ratio) for ratio in ratios]


@vjp("split")
def split_vjp(emit: Emit, op: Operation, dvalues: Parts) -> list[Tensor | None]:
    """The gradients of the parts, joined again."""
    extents = [part.shape[op.attributes["axis"]] for part in op.outputs]
    return [_joined(emit, op, dvalues, extents)]


@shape("stack")
def stack_shape(values: tuple[Shape, ...], axis: int) -> Shape:
    """A new axis, with an extent for each of the equal shapes."""
    require(len(values) > 0, "there is nothing to stack")
    first = values[0]
    check_axis(axis, len(first) + 1)
    message = f"the shapes must be equal, but are {_listed(values)}"
    require(all(all_equal(first, value) for value in values[1:]), message)
    return (*first[:axis], len(values), *first[axis:])


@vjp("stack")
def stack_vjp(emit: Emit, op: Operation, dvalue: Tensor) -> list[Any]:
    """Each operand receives its section of the gradient, without the new axis."""
    axis = op.attributes["axis"]
    sections = (
        section(emit, dvalue, {axis: (i, i + 1)}, hint=f"section_{i + 1}")
        for i in range(dvalue.shape[axis])
    )
    return [tuple(emit("squeeze", part, axes=[axis]) for part in sections)]


@shape("unstack")
def unstack_shape(value: Shape, axis: int) -> list[Shape]:
    """A shape for each element of the axis, without the axis."""
    check_axis(axis, len(value))
    require(value[axis] != 0, "there is nothing to unstack")
    check_results(value[axis])
    return [value[:axis] + value[axis + 1 :]] * value[axis]


@vjp("unstack")
def unstack_vjp(emit: Emit, op: Operation, dvalues: Parts) -> list[Tensor | None]:
    """The gradients of the parts, stacked again."""
    if len(dvalues) > 1 and None not in dvalues:
        return [emit("stack", dvalues, axis=op.attributes["axis"])]
    axes = [op.attributes["axis"]]
    layers = [
        part and emit("unsqueeze", part, axes=axes, hint=f"section_{i}")
        for i, part in enumerate(dvalues, start=1)
    ]
    return [_joined(emit, op, layers, [1] * len(layers))]


def _joined(
    emit: Emit, op: Operation, parts: Parts, extents: Sequence[Dimension]
) -> Tensor | None:
    """Parts with these extents, joined; zeros for those that nothing depends on."""
    axis, shape = op.attributes["axis"], op.inputs[0].shape
    present = [(index, part) for index, part in enumerate(parts) if part is not None]
    if len(present) == 1:
        ((index, part),) = present
        return place(emit, part, {axis: sum(extents[:index])}, shape)
    pairs = zip(parts, extents, strict=True)
    values: list[Tensor] = []
    for is_present, run in groupby(pairs, key=lambda pair: pair[0] is not None):
        tensors, sizes = zip(*run, strict=True)
        if is_present:
            values += tensors
        else:
            missing = with_extent(shape, axis, sum(sizes))
            values.append(emit("constant", shape=missing, value=[0.0], hint="zeros"))
    return emit("concat", values, axis=axis)


def _listed(shapes: tuple[Shape, ...]) -> str:
    return ", ".join(str(list(s)) for s in shapes)


# ---- Elements that are taken several times ----

# The longest constant of positions.
BLOCK = 1000


@shape("tile")
def tile_shape(input: Shape, repeats: tuple[int, ...]) -> Shape:
    """The extents are multiplied."""
    check_length("repeats", repeats, len(input))
    message = f"'repeats' must be positive, but are {list(repeats)}"
    require(all(may_exceed(count, 0) for count in repeats), message)
    return tuple(extent * count for extent, count in zip(input, repeats, strict=True))


@vjp("tile")
def tile_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor]:
    """The sum over repeats, which get their own axis if several elements are repeated."""
    (x,), repeats = op.inputs, op.attributes["repeats"]
    groups = [
        (count, extent) if count != 1 and extent != 1 else (count * extent,)
        for count, extent in zip(repeats, x.shape, strict=True)
    ]
    starts = list(accumulate(map(len, groups), initial=0))[:-1]
    summed = [start for start, count in zip(starts, repeats, strict=True) if count != 1]
    extra = [s for s, group in zip(starts, groups, strict=True) if len(group) == 2]
    if not summed:
        return [dy]
    separate = reshaped(emit, dy, tuple(chain.from_iterable(groups)), hint="repeats")
    sums = emit("sum_reduce", separate, axes=summed, hint="sums")
    return [emit("squeeze", sums, axes=extra) if extra else sums]


@shape("gather")
def gather_shape(input: Shape, indices: Shape, axis: int) -> Shape:
    """The shape of the indices takes the place of the axis."""
    check_axis(axis, len(input))
    return (*input[:axis], *indices, *input[axis + 1 :])


@vjp("gather")
def gather_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """A product with zeros and ones, which adds up the gradients of equal indices."""
    x, axis = op.inputs[0], op.attributes["axis"]
    extent = x.shape[axis]
    before, after = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    onehot = one_hot(emit, op.operands[1], extent)
    taken = onehot.shape[0]
    if before == 1:
        rows = reshaped(emit, dy, (taken, after), hint="rows")
        sums = emit("matmul", onehot, rows, transposeA=True, hint="sums")
    else:
        columns = turned(emit, dy, (before, taken, after))
        rows = reshaped(emit, columns, (before * after, taken), hint="rows")
        sums = emit("matmul", rows, onehot, hint="sums")
        sums = turned(emit, sums, (before, after, extent))
    return [reshaped(emit, sums, x.shape), None]


def one_hot(emit: Emit, indices: Operand, extent: Dimension) -> Tensor:
    """A row for each index: 1 in the column of its position, and otherwise 0."""
    numbers = positions(emit, extent)
    index: Operand
    if isinstance(indices, Tensor):
        column = reshaped(emit, indices, (prod(indices.shape), 1), hint="column")
        index = emit("cast", column, dtype="scalar", hint="index")
    else:
        index = float(cast("int", indices))
    taken = emit("eq", index, numbers, hint="taken")
    return emit("select", taken, 1.0, 0.0, hint="onehot")


def positions(emit: Emit, count: Dimension) -> Tensor:
    """A row of the numbers from 0 on. Many are the sums of where blocks of them begin and of
    the places in a block: the text is short. Those of an extent with symbols are counted.
    """
    if has_symbols(count):
        ones = emit(
            "constant", dtype="scalar", shape=(1, count), value=(1.0,), hint="ones"
        )
        before = ((0, 0), (count - 1, 0))
        counts = emit("box", ones, size=(1, count), padding=before, hint="counts")
        return emit("sub", counts, 1.0, hint="positions")
    if count <= BLOCK:
        return line(emit, range(count), "positions")
    blocks = -(-count // BLOCK)
    column = reshaped(emit, positions(emit, blocks), (blocks, 1), hint="blocks")
    begins = emit("mul", column, float(BLOCK), hint="begins")
    places = line(emit, range(BLOCK), "places")
    numbers = emit("add", begins, places, hint="numbers")
    row = reshaped(emit, numbers, (1, blocks * BLOCK), hint="positions")
    return section(emit, row, {1: (0, count)}, hint="positions")


def positions_along(emit: Emit, count: Dimension, axis: int, rank: int) -> Tensor:
    """The numbers from 0 on along an axis of a rank; all other extents are 1."""
    shape = with_extent((1,) * rank, axis, count)
    return reshaped(emit, positions(emit, count), shape, hint="positions")


@batching_rule("gather")
def gather_batching(op: Many) -> Sequence[Any]:
    """Along an axis one further; the indices are the same for all values."""
    x, indices = op.operation.operands
    if indices in op.many:
        raise op.refusal("indices")
    return op.again(op.aligned(x), indices, axis=op.operation.settings["axis"] + 1)


@place_rule("gather")
def gather_place(use: Use) -> Place:
    """The axes of the indices take the place of an axis."""
    x, indices = use.operation.operands
    axis, place = use.settings["axis"], use.one()
    if x in use.at and indices in use.at:
        raise MeetError(MAY_MEET)
    if indices in use.at:
        return place._replace(axis=axis + place.axis)
    apart(place, [axis])
    further = len(use.result) - x.rank if place.axis > axis else 0  # type: ignore[union-attr]
    return place._replace(axis=place.axis + further)


# ---- Loops: their derivative is in autodiff/loops.py ----


@shape(LOOP)
def loop_shape(*operands: Shape, loop: Loop) -> Shapes:
    """The last values of the states, then what is collected."""
    first = len(operands) - len(loop.scanned)
    scanned = list(zip(operands[first:], loop.scanned, strict=True))
    count, *others = [whole[along.axis] for whole, along in scanned]
    message = "what is scanned must have one number of steps"
    require(all(equal(count, other) for other in others), message)
    parts = (with_extent(whole, along.axis, 1) for whole, along in scanned)
    seen = [*operands[:first], *parts]
    names = loop.body.names
    for extents, wanted in zip(seen, loop.body.inputs, strict=True):
        message = f"has shape {list(extents)} in place of {list(wanted.shape)}"
        require(all_equal(extents, wanted.shape), f"'{names[wanted]}' {message}")
    for state, new in zip(loop.state_inputs, loop.next_values, strict=True):
        require(
            (state.dtype, state.shape) == (new.dtype, new.shape),
            f"state '{names[state]}' of type {state.dtype} and shape {list(state.shape)} becomes"
            f" '{names[new]}' of type {new.dtype} and shape {list(new.shape)}",
        )
    results = [new.shape for new in loop.next_values]
    for index, along in loop.collected:
        part = loop.body.outputs[index].shape
        results.append(with_extent(part, along.axis, part[along.axis] * count))
    return results if len(results) != 1 else results[0]


@cost_rule(LOOP)
def loop_cost(op: Operation) -> Any:
    """That of the body of a loop, at each step."""
    return steps_of(op) * sum(map(multiply_adds, loop_of(op).body.operations))


# ---- Batching, linearity, ranges ----

batching_rule("concat", "split", "stack", "unstack")(along_axis)
batching_rule("tile")(with_attributes(repeats=lambda repeats: (1, *repeats)))
place_rule("concat", "split")(beside_axis)
place_rule("tile")(Use.one)
linearity_rule("split", "unstack", "tile", "gather")(in_first)
linearity_rule("concat", "stack")(in_all)
range_rule("concat", "split", "stack", "unstack", "tile", "gather")(of_first)


@place_rule("stack")
def stack_place(use: Use) -> Place:
    """A new axis."""
    place = use.aligned_parts(use.one())
    return place._replace(axis=place.axis + (use.settings["axis"] <= place.axis))


@place_rule("unstack")
def unstack_place(use: Use) -> Place:
    """An axis less."""
    axis, place = use.settings["axis"], apart(use.one(), [use.settings["axis"]])
    return place._replace(axis=place.axis - (axis < place.axis))


@repeated_rule("tile")
def tile_repeated(use: Use) -> Place:
    """One item for all is repeated for each."""
    assert use.wanted is not None
    (x,), (axis, inner) = use.operation.inputs, use.wanted
    is_once = use.result[axis] == use.count * inner
    if not is_once or divided(inner, x.shape[axis]) is None:
        raise MeetError(MAY_MEET)
    return use.wanted
