"""Element by element: shapes align from the left, missing dimensions are trailing
singletons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnef_grad.graph.ir import Shape
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
    if any(len({1, *extents}) > 2 for extents in columns):
        message = "cannot be broadcast: dimensions align from the left"
        raise ShapeError(f"the shapes {_listed(shapes)} {message}")
    return tuple(next((e for e in extents if e != 1), 1) for extents in columns)


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
    return len(operand) <= len(result) and all(o in (1, r) for o, r in pairs)


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
