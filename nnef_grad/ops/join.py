"""Tensors that are joined along an axis, and divided along one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of
from nnef_grad.ops.axes import check_axis
from nnef_grad.ops.parts import place, section
from nnef_grad.ops.registry import Emit, check_results, require, shape, vjp
from nnef_grad.ops.shape import with_extent

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
    others = {(len(value), with_extent(value, axis, 0)) for value in values}
    require(len(others) == 1, message)
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
    require(all(ratio > 0 for ratio in ratios), message)
    unit, rest = divmod(value[axis], sum(ratios))
    message = (
        f"the sum {sum(ratios)} of 'ratios' must divide the extent of axis {axis},"
        f" which is {value[axis]}"
    )
    require(rest == 0, message)
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
    require(len(set(values)) == 1, message)
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
    emit: Emit, op: Operation, parts: Parts, extents: Sequence[int]
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
