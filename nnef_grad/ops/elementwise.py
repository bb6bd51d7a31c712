"""Element by element: shapes align from the left, missing dimensions are trailing
singletons.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from nnef_grad.graph.extents import bounds
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.learning import agree_if_broadcast, equal
from nnef_grad.graph.quotients import maximum
from nnef_grad.ops.registry import (
    ShapeError,
    check_results,
    require,
    shape,
)
from nnef_grad.ops.traits import BROADCASTING, UNARY


def broadcast(*shapes: Shape) -> Shape:
    """The shape that shapes are broadcast to together; `ShapeError` if there is none."""
    if len(set(shapes)) == 1:
        return shapes[0]
    rank = max(map(len, shapes))
    columns = list(zip(*(s + (1,) * (rank - len(s)) for s in shapes), strict=True))
    if not all(map(_agree, columns)):
        message = "cannot be broadcast: dimensions align from the left"
        raise ShapeError(f"the shapes {_listed(shapes)} {message}")
    return tuple(reduce(_together, extents) for extents in columns)


def _together(one: int, other: int) -> int:
    """The extent to which two are broadcast; where one may be 1, it is the other."""
    if one in (1, other) or other == 1:
        return other if one == 1 else one
    for extent in (one, other):
        if bounds(extent)[0] > 1:
            return extent
    largest: int = maximum(one, other)
    return largest


def _agree(extents: tuple[int, ...]) -> bool:
    """Whether the extents of an axis are equal, apart from those that are 1."""
    # In the order of the operands: what is learned is printed.
    first, *others = [n for n in dict.fromkeys(extents) if n != 1] or [1]
    return all(agree_if_broadcast(first, other) for other in others)


def _listed(shapes: tuple[Shape, ...]) -> str:
    *most, last = (str(list(s)) for s in shapes)
    return f"{', '.join(most)} and {last}" if most else last


def check_fits(whole: str, shape: Shape, operands: Mapping[str, Shape]) -> None:
    """Raises `ShapeError` where an operand cannot be broadcast to a whole one."""
    for name, operand in operands.items():
        message = (
            f"'{name}' of shape {list(operand)} cannot be broadcast"
            f" to '{whole}' of shape {list(shape)}"
        )
        require(fits_into(operand, shape), message)


def fits_into(operand: Shape, result: Shape) -> bool:
    """Whether an operand is broadcast to a result that has its shape from elsewhere."""
    pairs = zip(operand, result, strict=False)
    return len(operand) <= len(result) and all(o == 1 or equal(o, r) for o, r in pairs)


@shape(*UNARY)
def unary_shape(x: Shape, **attributes: Any) -> Shape:
    return x


@shape(*BROADCASTING, "prelu")
def broadcast_shape(*operands: Shape) -> Shape:
    return broadcast(*operands)


@shape("copy_n")
def copy_n_shape(x: Shape, times: int) -> list[Shape]:
    require(times > 0, f"'times' must be positive, but is {times}")
    check_results(times)
    return [x] * times


@shape("add_n")
def add_n_shape(x: tuple[Shape, ...]) -> Shape:
    require(len(x) > 0, "there is nothing to add")
    return broadcast(*x)
