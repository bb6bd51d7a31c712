"""The matrix that resizes an axis, in any of the ways that ONNX defines and other formats
have by the same names: a row of weights for each new position.

The standard has operations for some of them; the others are products with such matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array


class Axis(NamedTuple):
    """Two extents of an axis, and the scale that the file gives, about their ratio."""

    old: int
    new: int
    scale: float

    @property
    def is_resized(self) -> bool:
        """Whether it can have other elements than before."""
        return self.old != self.new or self.scale != 1.0


class Resizing(NamedTuple):
    """How an axis is resized, by one of `PLACES`, of `MODES` and of `ROUNDED`."""

    places: str
    mode: str
    rounding: str
    # The second derivative of the cubic polynomials where they begin.
    coefficient: float = -0.75
    # Whether positions outside have no weight, or else are those at the border.
    is_inside: bool = False


MODES = ("nearest", "linear", "cubic")
# The methods of multilinear_upsample, by how positions are mapped.
METHODS = {"align_corners": "aligned", "asymmetric": "asymmetric"}
METHODS |= {"half_pixel": "symmetric", "pytorch_half_pixel": "symmetric"}


def weights(axis: Axis, how: Resizing) -> Array:
    """The matrix from the given positions (columns) to the new ones (rows)."""
    position = PLACES[how.places](np.arange(axis.new), axis)
    if how.mode == "nearest":
        # A scale such as 1.1 or 2/3 is not exact: what is whole must stay so.
        first = ROUNDED[how.rounding](np.round(position, 4))
        taps = np.ones((axis.new, 1))
    else:
        first = np.floor(position)
        rest = position - first
        taps = np.stack([1 - rest, rest], 1)
        if how.mode == "cubic":
            first, taps = first - 1, _cubic(rest, how.coefficient)
    columns = first[:, np.newaxis].astype(int) + np.arange(taps.shape[1])
    if how.mode == "cubic" and how.is_inside:
        taps = np.where((columns < 0) | (columns >= axis.old), 0.0, taps)
        taps /= taps.sum(1, keepdims=True)
    matrix = np.zeros((axis.new, axis.old))
    rows = np.arange(axis.new)[:, np.newaxis]
    np.add.at(matrix, (rows, np.clip(columns, 0, axis.old - 1)), taps)
    return matrix


def is_identity(matrix: Array) -> bool:
    """Whether a matrix of weights changes nothing."""
    rows, columns = matrix.shape
    return rows == columns and np.array_equal(matrix, np.eye(rows))


def operation(axes: list[Axis], how: Resizing, matrices: Mapping[int, Array]) -> str:
    """The operation of NNEF that resizes by these matrices of axes; '' if none does."""
    is_spatial = bool(matrices) and len(axes) > 2 and min(matrices) >= 2
    spatial = axes[2:]
    is_up = all(a.new == a.scale * a.old and a.new % a.old == 0 for a in spatial)
    if is_spatial and is_up and how.mode == "linear" and how.places in METHODS:
        return "multilinear_upsample"
    for name in ("nearest_upsample", "nearest_downsample") if is_spatial else ():
        if all(
            np.array_equal(_nearest(name, axis), matrices.get(a, np.eye(axis.old)))
            for a, axis in enumerate(spatial, 2)
        ):
            return name
    return ""


def _nearest(name: str, axis: Axis) -> Array:
    """The matrix of an operation that takes elements several times, or some of them."""
    if name == "nearest_upsample":
        return np.eye(axis.old).repeat(max(1, axis.new // axis.old), 0)
    return np.eye(axis.old)[:: max(1, axis.old // axis.new)]


def settings(name: str, axes: list[Axis], how: Resizing) -> dict[str, Any]:
    """The attributes of the operation of NNEF that `operation` names."""
    factor = [max(a.old, a.new) // min(a.old, a.new) for a in axes[2:]]
    is_linear = name == "multilinear_upsample"
    return {"factor": factor, **({"method": METHODS[how.places]} if is_linear else {})}


# ---- Where the new positions are among the given ones ----


def _of_middles(index: Array, axis: Axis) -> Array:
    return (index + 0.5) / axis.scale - 0.5


PLACES: dict[str, Callable[[Array, Axis], Array]] = {
    "align_corners": lambda index, axis: index * (axis.old - 1) / max(axis.new - 1, 1),
    "asymmetric": lambda index, axis: index / axis.scale,
    "half_pixel": _of_middles,
    "half_pixel_symmetric": lambda index, axis: (
        _of_middles(index, axis)
        + axis.old / 2 * (1 - axis.new / (axis.old * axis.scale))
    ),
    "pytorch_half_pixel": lambda index, axis: (
        np.zeros(1) if axis.new == 1 else _of_middles(index, axis)
    ),
    "tf_half_pixel_for_nn": lambda index, axis: (index + 0.5) / axis.scale,
}
ROUNDED: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda position: np.ceil(position - 0.5),
    "round_prefer_ceil": lambda position: np.floor(position + 0.5),
}


def _cubic(rest: Array, a: float) -> Array:
    """The weights of the four neighbours, by the distance from the second one."""
    near = [((a + 2) * t - (a + 3)) * t * t + 1 for t in (rest, 1 - rest)]
    far = [((a * t - 5 * a) * t + 8 * a) * t - 4 * a for t in (1 + rest, 2 - rest)]
    return np.stack([far[0], *near, far[1]], 1)
