"""Attributes that name axes, or have an item for each; positions along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnef_grad.ops.registry import require


def check_axes(axes: tuple[int, ...], rank: int) -> None:
    """Raises `ShapeError` where an axis of a tensor is out of range, or named twice."""
    message = f"a tensor of rank 0 has no axes, and 'axes' are {list(axes)}"
    require(rank > 0 or not axes, message)
    message = f"'axes' must be in 0..{rank - 1} for rank {rank}, but are {list(axes)}"
    require(all(0 <= axis < rank for axis in axes), message)
    require(len(set(axes)) == len(axes), f"'axes' must differ, but are {list(axes)}")


def check_axis(axis: int, rank: int) -> None:
    """Raises `ShapeError` where an axis of a tensor is out of range."""
    require(rank > 0, f"a tensor of rank 0 has no axis, and 'axis' is {axis}")
    message = f"'axis' must be in 0..{rank - 1} for rank {rank}, but is {axis}"
    require(0 <= axis < rank, message)


def check_length(name: str, items: tuple[object, ...], rank: int) -> None:
    """Raises `ShapeError` unless an attribute has an item for each dimension."""
    message = f"'{name}' must have an item for each of {rank} dimensions, but has {len(items)}"
    require(len(items) == rank, message)


@dataclass(frozen=True)
class Positions:
    """Positions along an axis, as in a range, whose ends may have symbols."""

    start: int
    stop: int
    step: int = 1

    @property
    def count(self) -> int:
        """How many there are: the quotient is rounded up."""
        return -((self.start - self.stop) // self.step)

    @property
    def least(self) -> int:
        """The one that is nearest to the beginning of the axis."""
        if self.step > 0:
            return self.start
        return self.start + (self.count - 1) * self.step

    @property
    def backward(self) -> Positions:
        """The same, from the last one on."""
        last = self.start + (self.count - 1) * self.step
        return Positions(last, self.start - self.step, -self.step)

    def are_all(self, extent: int) -> bool:
        """Whether they are all positions of an axis, in their order."""
        is_forward = self.step == 1 or extent == 1
        return is_forward and self.least == 0 and self.count == extent

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop, self.step))
