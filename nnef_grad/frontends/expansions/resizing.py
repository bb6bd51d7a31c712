"""Resizing, in any of the ways that ONNX defines and other formats have by the same names,
and sampling at the points of a grid, as products with the weights of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View


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


def resized(view: View, x: Any, axes: list[Axis], how: Resizing) -> Any:
    """An operation of the standard where there is one, or products with matrices."""
    changed = {place: axis for place, axis in enumerate(axes) if axis.is_resized}
    view.reading.spend(sum(axis.old * axis.new for axis in changed.values()))
    matrices = {
        place: matrix
        for place, axis in changed.items()
        if not _is_identity(matrix := _weights(axis, how))
    }
    if (operation := _operation(axes, how, matrices)) is not None:
        name, settings = operation
        return view(name, x, **settings)
    for place, matrix in matrices.items():
        x = along(view, x, matrix, place)
    return x


def _operation(
    axes: list[Axis], how: Resizing, matrices: Mapping[int, Array]
) -> tuple[str, dict[str, Any]] | None:
    """The operation of NNEF that resizes by these matrices of axes, and its attributes."""
    if not matrices or len(axes) <= 2 or min(matrices) < 2:
        return None
    spatial = axes[2:]
    factor = [max(a.old, a.new) // min(a.old, a.new) for a in spatial]
    is_up = all(a.new == a.scale * a.old and a.new % a.old == 0 for a in spatial)
    if is_up and how.mode == "linear" and how.places in METHODS:
        settings = {"factor": factor, "method": METHODS[how.places]}
        return "multilinear_upsample", settings
    for name in ("nearest_upsample", "nearest_downsample"):
        if all(
            np.array_equal(_nearest(name, axis), matrices.get(a, np.eye(axis.old)))
            for a, axis in enumerate(spatial, 2)
        ):
            return name, {"factor": factor}
    return None


def _nearest(name: str, axis: Axis) -> Array:
    """The matrix of an operation that takes elements several times, or some of them."""
    if name == "nearest_upsample":
        return np.eye(axis.old).repeat(max(1, axis.new // axis.old), 0)
    return np.eye(axis.old)[:: max(1, axis.old // axis.new)]


def axes_of(
    view: View, shape: tuple[int, ...], scales: list[float], sizes: list[int]
) -> list[Axis]:
    """All axes, with a scale or an extent for each; one with a symbol stays as it is."""
    message = f"there must be {len(shape)} scales or extents"
    view.require(len(sizes or scales) == len(shape), message)
    if sizes:
        sized = zip(shape, sizes, strict=True)
        axes = [Axis(n, new, 1.0 if new == n else new / n) for n, new in sized]
    else:
        pairs = zip(shape, scales, strict=True)
        axes = [Axis(n, n if by == 1 else int(n * by), by) for n, by in pairs]
    has_elements = all(a.new > 0 for a in axes if a.is_resized)
    view.require(has_elements, "the result must have elements")
    return axes


def along(view: View, x: Any, matrix: Array, axis: int) -> Any:
    """The product of a matrix with the elements along an axis."""
    if (matrix.max(1) == 1).all():
        return view("gather", x, matrix.argmax(1), axis=axis)
    rank = len(shape_of(x))
    if axis == rank - 1:
        return view("matmul", *view.aligned(x, matrix), transposeB=True)
    if axis == rank - 2:
        return view("matmul", *view.aligned(matrix, x))
    order = [*range(rank)]
    order[axis], order[-2] = order[-2], order[axis]
    moved = view.transposed(x, order, "moved")
    product = view("matmul", *view.aligned(matrix, moved), hint="product")
    return view.transposed(product, order)


# ---- Matrices: a row of weights for each new position ----


def _weights(axis: Axis, how: Resizing) -> Array:
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


def _is_identity(matrix: Array) -> bool:
    """Whether a matrix of weights changes nothing."""
    rows, columns = matrix.shape
    return rows == columns and np.array_equal(matrix, np.eye(rows))


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


# ---- Grids ----

_MODES = {
    "bilinear": "linear_weights", "nearest": "nearest_weights",
    "bicubic": "cubic_weights",
}  # fmt: skip
_BORDERS = ("zeros", "border", "reflection")


def grid_sample(
    view: View, x: Any, grid: Any, mode: str, border: str, is_aligned: bool
) -> Any:
    """Samples of images at the points of a grid from -1 to 1: each element has a weight
    for each point.
    """
    view.require(mode in _MODES, f"mode must be one of {', '.join(_MODES)}")
    names = ", ".join(_BORDERS)
    view.require(border in _BORDERS, f"padding_mode must be one of {names}")
    is_clear = mode != "bicubic" or border == "zeros"
    view.require(is_clear, "bicubic samples must have zeros around the image")
    return samples(view, x, grid, mode, border, is_aligned)


def samples(
    view: View, x: Any, grid: Any, mode: str, border: str, is_aligned: bool
) -> Any:
    """The same, with any border around the image."""
    (batch, channels, *extents), points = shape_of(x), shape_of(grid)
    rank = len(extents)
    fits = len(points) == rank + 2 and (points[0], points[-1]) == (batch, rank)
    wanted = f"[{batch}, {'..., ' if rank else ''}{rank}]"
    view.require(fits, f"a grid of shape {list(points)} must be {wanted}")
    count = prod(points[1:-1])
    flat = view.reshaped(grid, [batch, count, rank], "points")
    for axis in reversed(range(rank)):
        places = view.piece(flat, 2, rank - 1 - axis, rank - axis, "along")
        weights = _weights_at(view, places, extents[axis], mode, border, is_aligned)
        rows = channels * prod(extents[:axis])
        if axis == rank - 1:
            x = view.reshaped(x, [batch, rows, extents[axis]], "rows")
            x = view("matmul", x, weights, hint="across", transposeB=True)
        else:
            parts = view.reshaped(x, [batch, rows, extents[axis], count], "parts")
            x = view.expand("weighted", parts, weights)
    return view.reshaped(x, [batch, channels, *points[1:-1]])


def _weights_at(
    view: View, points: Any, extent: int, mode: str, border: str, is_aligned: bool
) -> Any:
    """The weight of each element of an axis at points, [batch, point, element]."""
    low, high = (0.0, extent - 1.0) if is_aligned else (-0.5, extent - 0.5)
    places = view.expand("along_axis", points, low=low, high=high)
    positions = view.positions(extent, 2, 3)
    # All places are those of the only element.
    reflects = border == "reflection" and high > low
    if mode == "bicubic" and border != "zeros":
        settings = {"low": low, "high": high, "last": extent - 1.0}
        name = "bordered_cubic_weights"
        return view.expand(name, places, positions, reflects=reflects, **settings)
    if reflects:
        places = view.expand("reflected", places, low=low, high=high)
    if border != "zeros":
        places = view("clamp", places, 0.0, extent - 1.0, hint="inside")
    return view.expand(_MODES[mode], places, positions)


def affine_grid(view: View, theta: Any, size: Sequence[Any], is_aligned: bool) -> Any:
    """The points [batch, ..., coordinate] of a regular grid after an affine map."""
    batch, *extents = size
    view.reading.spend(prod(extents) * (len(extents) + 1))
    axes = [_points(n, is_aligned) for n in extents]
    # The last coordinate comes first.
    grids = np.meshgrid(*axes, indexing="ij")[::-1]
    ones = np.ones_like(grids[0])
    points = np.stack([*grids, ones], -1).reshape(-1, len(extents) + 1)
    points, theta = view.aligned(points, theta)
    mapped = view("matmul", points, theta, hint="points", transposeB=True)
    return view.reshaped(mapped, [batch, *extents, len(extents)])


def _points(extent: int, is_aligned: bool) -> Array:
    """The middles of so many parts from -1 to 1; or points that begin and end there."""
    if not is_aligned:
        return (2.0 * np.arange(extent) + 1.0) / extent - 1.0
    return np.linspace(-1.0, 1.0, extent) if extent > 1 else np.zeros(1)
