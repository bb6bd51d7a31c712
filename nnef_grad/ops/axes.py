"""Attributes that name axes, or have an item for each."""

from __future__ import annotations

from nnef_grad.ops.registry import require


def check_axes(axes: tuple[int, ...], rank: int) -> None:
    """Each axis of a tensor is named at most once.

    Raises:
        ShapeError: an axis is out of range, or named twice.
    """
    require(
        rank > 0 or not axes,
        f"a tensor of rank 0 has no axes, and 'axes' are {list(axes)}",
    )
    require(
        all(0 <= axis < rank for axis in axes),
        f"'axes' must be in 0..{rank - 1} for rank {rank}, but are {list(axes)}",
    )
    require(len(set(axes)) == len(axes), f"'axes' must differ, but are {list(axes)}")


def check_axis(axis: int, rank: int) -> None:
    """One axis of a tensor.

    Raises:
        ShapeError: it is out of range.
    """
    require(rank > 0, f"a tensor of rank 0 has no axis, and 'axis' is {axis}")
    require(
        0 <= axis < rank,
        f"'axis' must be in 0..{rank - 1} for rank {rank}, but is {axis}",
    )


def check_length(name: str, items: tuple[object, ...], rank: int) -> None:
    """An attribute that has an item for each dimension.

    Raises:
        ShapeError: it has another number of items.
    """
    require(
        len(items) == rank,
        f"'{name}' must have an item for each of {rank} dimensions, but has {len(items)}",
    )
