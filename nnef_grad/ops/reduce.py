"""Reductions: the reduced axes stay, with extent 1."""

from __future__ import annotations

from typing import Any

from nnef_grad.ir import Operation, Shape, Tensor
from nnef_grad.ops.registry import Emit, require, shape, vjp


def check_axes(axes: tuple[int, ...], rank: int) -> None:
    """Each axis of a tensor is named at most once.

    Raises:
        ShapeError: an axis is out of range, or named twice.
    """
    require(rank > 0 or not axes, f"a tensor of rank 0 has no axes, and 'axes' are {list(axes)}")
    require(all(0 <= axis < rank for axis in axes), f"'axes' must be in 0..{rank - 1} for rank {rank}, and are {list(axes)}")
    require(len(set(axes)) == len(axes), f"'axes' must differ, and are {list(axes)}")


@shape(
    "sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "argmax_reduce", "argmin_reduce", "any_reduce", "all_reduce"
)  # fmt: skip
def reduce_shape(input: Shape, axes: tuple[int, ...], **attributes: Any) -> Shape:
    check_axes(axes, len(input))
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(input))


@shape("moments")
def moments_shape(input: Shape, axes: tuple[int, ...]) -> list[Shape]:
    return [reduce_shape(input, axes)] * 2


@vjp("sum_reduce")
def sum_reduce_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Any]:
    return [dy]
