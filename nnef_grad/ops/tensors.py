"""The operations by which tensors enter a graph, and `update`."""

from __future__ import annotations

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.registry import require, shape, volume


def _positive(shape: Shape) -> Shape:
    require(
        all(extent > 0 for extent in shape),
        f"extents must be positive, and the shape is {list(shape)}",
    )
    return shape


@shape("external")
def external_shape(shape: Shape) -> Shape:
    return _positive(shape)


@shape("variable")
def variable_shape(shape: Shape, label: str) -> Shape:
    require(label != "", "a variable needs a label")
    return _positive(shape)


@shape("constant")
def constant_shape(shape: Shape, value: tuple[object, ...]) -> Shape:
    count = volume(_positive(shape))
    require(
        len(value) in (1, count),
        f"{len(value)} values do not fill the shape {list(shape)} of volume {count}",
    )
    return shape


@shape("update")
def update_shape(variable: Shape, value: Shape) -> Shape:
    fits = variable == value
    require(
        fits,
        f"the value of shape {list(value)} does not fit the variable of shape {list(variable)}",
    )
    return variable
