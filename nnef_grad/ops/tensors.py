"""The operations by which tensors enter a graph, and `update`."""

from __future__ import annotations

from collections.abc import Iterable

from nnef_grad.graph.extents import has_symbols, may_exceed
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.ops.registry import Emit, ShapeError, require, shape, volume
from nnef_grad.ops.shape import with_extent


def line(
    emit: Emit, values: Iterable[float], hint: str, axis: int = 1, rank: int = 2
) -> Tensor:
    """A constant that varies along one axis; all other extents are 1."""
    value = [float(number) for number in values]
    shape = with_extent((1,) * rank, axis, len(value))
    return emit("constant", shape=shape, value=value, hint=hint)


@shape("external")
def external_shape(shape: Shape) -> Shape:
    if any(not may_exceed(extent, 0) for extent in shape):
        raise ShapeError(f"extents must be positive, and the shape is {list(shape)}")
    return shape


@shape("variable")
def variable_shape(shape: Shape, label: str) -> Shape:
    require(label != "", "a variable needs a label")
    return external_shape(shape)


@shape("constant")
def constant_shape(shape: Shape, value: tuple[object, ...]) -> Shape:
    count = volume(external_shape(shape))
    message = (
        f"{len(value)} values do not fill the shape {list(shape)} of volume {count}"
    )
    require(len(value) in (1, count), message)
    return shape


@shape("update")
def update_shape(variable: Shape, value: Shape) -> Shape:
    message = f"the value of shape {list(value)} does not fit the variable of shape {list(variable)}"
    require(variable == value, message)
    return variable


def number(emit: Emit, extent: int) -> float | Tensor:
    """An extent as a scalar: a literal, or, if it has symbols, the sum of so many ones."""
    if not has_symbols(extent):
        return float(extent)
    ones = emit("constant", shape=(extent,), value=(1.0,), hint="ones")
    total = emit("sum_reduce", ones, axes=(0,), hint="total")
    return emit("squeeze", total, axes=(0,), hint="count")
