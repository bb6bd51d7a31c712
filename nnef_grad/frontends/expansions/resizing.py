"""Resizing, in any of the ways that ONNX defines and other formats have by the same names,
and sampling at the points of a grid, as products with the weights of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.values import shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import Dimension, OpenExtentError, as_number, has_symbols
from nnef_grad.graph.ir import Shape
from nnef_grad.graph.learning import reaches
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.ops.shape import number


class Axis(NamedTuple):
    """Two extents of an axis, and the scale that the file gives, about their ratio; None for
    that of open extents, if it is no whole number.
    """

    old: Dimension
    new: Dimension
    scale: float | None

    @property
    def is_resized(self) -> bool:
        """Whether it can have other elements than before."""
        return self.old != self.new or self.scale != 1.0

    @property
    def ratio(self) -> tuple[Any, Any]:
        """The scale as a quotient: of integers, or of extents."""
        if self.scale is None:
            return self.new, self.old
        return Fraction(self.scale).as_integer_ratio()

    @property
    def is_exact(self) -> bool:
        """Whether the scale is the ratio of the extents."""
        is_closed = not has_symbols((self.old, self.new))
        if self.scale is None or (is_closed and self.scale == self.new / self.old):
            return True
        times, by = self.ratio
        return bool(self.old * times == self.new * by)


class Resizing(NamedTuple):
    """How an axis is resized, by one of `PLACES`, of `MODES` and of `ROUNDED`."""

    places: str
    mode: str
    rounding: str
    # The second derivative of the cubic polynomials where they begin.
    coefficient: float = -0.75
    # Whether positions outside have no weight, or else are those at the border.
    is_inside: bool = False


# The name of an operation, and its attributes.
_Operation = tuple[str, dict[str, Any]]

MODES = ("nearest", "linear", "cubic")
# The methods of multilinear_upsample, by how positions are mapped.
METHODS = {"align_corners": "aligned", "asymmetric": "asymmetric"}
METHODS |= {"half_pixel": "symmetric", "pytorch_half_pixel": "symmetric"}


def resized(view: View, x: Any, axes: list[Axis], how: Resizing) -> Any:
    """An operation of the standard where there is one, or products with matrices."""
    if any(has_symbols((axis.old, axis.new)) for axis in axes if axis.is_resized):
        return _open_resized(view, x, axes, how)
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
        x = apply_along(view, x, matrix, place)
    return x


# Numbers in the place of extents with symbols.
_STAND_INS = (5, 8)


def _open_resized(view: View, x: Any, axes: list[Axis], how: Resizing) -> Any:
    """The operation of the standard for axes that become longer by whole factors, if it is
    the same for all extents; or products with matrices that are computed.
    """
    first, other = (_standing_in(axes, how, extent) for extent in _STAND_INS)
    if first is not None and first == other:
        name, settings = first
        return view(name, x, **settings)
    for place, axis in enumerate(axes):
        if has_symbols((axis.old, axis.new)) and axis.is_resized:
            x = _open_along(view, x, axis, place, how)
        elif axis.is_resized:
            x = apply_along(view, x, _weights(axis, how), place)
    return x


def _standing_in(axes: list[Axis], how: Resizing, extent: int) -> _Operation | None:
    """The operation for axes of an extent in the place of open ones; None if there is none,
    or an axis does not become longer by a whole factor.
    """
    closed = list(axes)
    for place, axis in enumerate(axes):
        if has_symbols((axis.old, axis.new)):
            factor = round(axis.scale or 0)
            if axis.new != axis.old * factor:
                return None
            closed[place] = Axis(extent, extent * factor, axis.scale)
    matrices = {a: _weights(c, how) for a, c in enumerate(closed) if c.is_resized}
    return _operation(closed, how, matrices)


def _operation(
    axes: list[Axis], how: Resizing, matrices: Mapping[int, Array]
) -> _Operation | None:
    """The operation of NNEF that resizes by these matrices of axes, and its attributes."""
    if not matrices or len(axes) <= 2 or min(matrices) < 2:
        return None
    spatial = axes[2:]
    factor = [max(a.old, a.new) // min(a.old, a.new) for a in spatial]
    is_up = all(a.is_exact and a.new % a.old == 0 for a in spatial)
    if is_up and how.mode == "linear" and how.places in METHODS:
        settings = {"factor": factor, "method": METHODS[how.places]}
        return "multilinear_upsample", settings
    for name in ("nearest_upsample", "nearest_downsample"):
        if all(
            np.array_equal(
                _nearest(name, axis), matrices.get(a, np.eye(as_number(axis.old)))
            )
            for a, axis in enumerate(spatial, 2)
        ):
            return name, {"factor": factor}
    return None


def _nearest(name: str, axis: Axis) -> Array:
    """The matrix of an operation that takes elements several times, or some of them."""
    if name == "nearest_upsample":
        return np.eye(as_number(axis.old)).repeat(max(1, axis.new // axis.old), 0)
    return np.eye(as_number(axis.old))[:: max(1, axis.old // axis.new)]


def resized_axes(
    view: View, shape: Shape, scales: list[float], sizes: list[int]
) -> list[Axis]:
    """All axes, with a scale or an extent for each; one with a symbol stays as it is."""
    message = f"there must be {len(shape)} scales or extents"
    view.require(len(sizes or scales) == len(shape), message)
    if sizes:
        sized = zip(shape, sizes, strict=True)
        axes = [Axis(n, new, ratio(new, n)) for n, new in sized]
    else:
        pairs = zip(shape, scales, strict=True)
        axes = [Axis(n, n if by == 1 else scaled(n, by), by) for n, by in pairs]
    has_elements = all(reaches(a.new, 1) for a in axes if a.is_resized)
    view.require(has_elements, "the result must have elements")
    return axes


def ratio(new: Dimension, old: Dimension) -> float | None:
    """The ratio of two extents; None of open ones, if it is no whole number."""
    if not has_symbols((new, old)):
        return new / old
    with suppress(OpenExtentError):
        factor = new // old
        if isinstance(factor, int) and factor * old == new:
            return float(factor)
    return None


def scaled(extent: Dimension, scale: float) -> Any:
    """The extent that is scaled, rounded down."""
    if not has_symbols(extent):
        return int(extent * scale)
    times, by = Fraction(scale).as_integer_ratio()
    if by > _FINEST:
        raise OpenExtentError(f"an extent of {extent} times {scale} is not known")
    return extent * times // by


# Open extents are multiplied by quotients with so small a divisor: others are rounded.
_FINEST = 1024


def apply_along(view: View, x: Any, matrix: Array, axis: int) -> Any:
    """The product of a matrix with the elements along an axis."""
    if (matrix.max(1) == 1).all():
        return view("gather", x, matrix.argmax(1), axis=axis)
    return _product(view, x, matrix, axis)


def _product(view: View, x: Any, matrix: Any, axis: int) -> Any:
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
    position = PLACES[how.places](axis).at(np.arange(as_number(axis.new)))
    if how.mode == "nearest":
        # A scale such as 1.1 or 2/3 is not exact: what is whole must stay so.
        first = ROUNDED[how.rounding](np.round(position, 4), axis)
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
    rows = np.arange(as_number(axis.new))[:, np.newaxis]
    np.add.at(matrix, (rows, np.clip(columns, 0, axis.old - 1)), taps)
    return matrix


def _is_identity(matrix: Array) -> bool:
    """Whether a matrix of weights changes nothing."""
    rows, columns = matrix.shape
    return rows == columns and np.array_equal(matrix, np.eye(rows))


# ---- The same for open extents ----


def _open_along(view: View, x: Any, axis: Axis, place: int, how: Resizing) -> Any:
    """An axis, one of whose extents is open, by numbers that are computed."""
    index = view.positions(axis.new, 0, 2)
    places = PLACES[how.places](axis).of(view, index)
    last = number(view.reading.emitter, axis.old - 1)
    positions = view.positions(axis.old, 1, 2)
    if how.mode == "cubic":
        is_usual = how.coefficient == -0.75 and not how.is_inside
        if not is_usual:
            raise OpenExtentError("cubic polynomials of other coefficients than -0.75")
        name = "bordered_cubic_weights"
        settings = {"low": 0.0, "high": 0.0, "reflects": False}
        weights = view.expand(name, places, positions, last, **settings)
        return _product(view, x, weights, place)
    if how.mode == "nearest":
        is_standard = how.rounding in ("floor", "ceil")
        places = (view if is_standard else view.expand)(how.rounding, places)
    places = view("min", view("max", places, 0.0, hint="place"), last, hint="place")
    if how.mode == "linear":
        return _product(view, x, view.expand("nearness", places, positions), place)
    flat = view.reshaped(places, [axis.new], "places")
    indices = view("cast", flat, hint="indices", dtype="integer")
    return view("gather", x, indices, axis=place)


# ---- Where the new positions are among the given ones ----


class Line(NamedTuple):
    """Where a new position is: ((position + before) * slope / divisor + after) * factor. With
    a quotient of integers, places that are whole, or halves, are so in single precision.
    """

    before: float
    slope: Any
    divisor: Any
    after: float = 0.0
    factor: Any = 1

    def at(self, index: Array) -> Array:
        """The places of known positions."""
        middles = (index + self.before) * self.slope / self.divisor
        return np.asarray((middles + self.after) * self.factor)

    def of(self, view: View, index: Any) -> Any:
        """The same in a graph."""
        parts = (self.before, self.slope, self.divisor, self.after, self.factor)
        steps = ("add", "mul", "div", "add", "mul")
        for name, part in zip(steps, parts, strict=True):
            if part != (0.0 if name == "add" else 1):
                size = number(view.reading.emitter, part)
                index = view(name, index, size, hint="place")
        return index


def _of_corners(axis: Axis) -> Line:
    return Line(0.0, axis.old - 1, maximum(axis.new - 1, 1))


def _of_starts(axis: Axis) -> Line:
    times, by = axis.ratio
    return Line(0.0, by, times)


def _of_middles(axis: Axis) -> Line:
    times, by = axis.ratio
    return Line(0.5, by, times, -0.5)


def _around_middle(axis: Axis) -> Line:
    times, by = axis.ratio
    lacking = axis.old * times - axis.new * by
    if has_symbols(lacking):
        what = f"what is left of an extent of {axis.old} is not known"
        raise OpenExtentError(what)
    return Line(0.5, by, times, lacking / (2 * times) - 0.5 if lacking else -0.5)


PLACES: dict[str, Callable[[Axis], Line]] = {
    "align_corners": _of_corners,
    "asymmetric": _of_starts,
    "half_pixel": _of_middles,
    "half_pixel_symmetric": _around_middle,
    # The only position is the first.
    "pytorch_half_pixel": lambda axis: _of_middles(axis)._replace(
        factor=minimum(axis.new - 1, 1)
    ),
    "tf_half_pixel_for_nn": lambda axis: _of_starts(axis)._replace(before=0.5),
}
ROUNDED: dict[str, Callable[[Array, Axis], Array]] = {
    "floor": lambda position, axis: np.floor(position),
    "ceil": lambda position, axis: np.ceil(position),
    "round_prefer_floor": lambda position, axis: np.ceil(position - 0.5),
    "round_prefer_ceil": lambda position, axis: np.floor(position + 0.5),
    # What the first versions of ONNX left to runtimes, as ONNX Runtime has it.
    "unspecified": lambda position, axis: (
        np.ceil(position) if axis.new < axis.old else np.floor(position)
    ),
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
    view: View, points: Any, extent: Dimension, mode: str, border: str, is_aligned: bool
) -> Any:
    """The weight of each element of an axis at points, [batch, point, element]."""
    low, high = (0.0, extent - 1.0) if is_aligned else (-0.5, extent - 0.5)
    places = view.expand("along_axis", points, low=low, high=high)
    positions = view.positions(extent, 2, 3)
    # All places are those of the only element.
    reflects = border == "reflection" and high > low
    if mode == "bicubic" and border != "zeros":
        settings = {"low": low, "high": high, "reflects": reflects}
        name = "bordered_cubic_weights"
        return view.expand(name, places, positions, extent - 1.0, **settings)
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
