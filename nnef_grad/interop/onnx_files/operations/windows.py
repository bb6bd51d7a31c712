"""Convolutions, pooling and resizing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from nnef_grad.interop.khronos import Array
from nnef_grad.interop.onnx_files.node import Node, Tensor, conversion
from nnef_grad.interop.onnx_files.operations.shapes import sides

Pair = tuple[int, int]


class Axis(NamedTuple):
    """A window of `size` elements along one spatial axis, with the extents of the
    operand and of the result, and the padding before and after as in the file.
    """

    given: int
    made: int
    size: int
    stride: int
    dilation: int
    pads: Pair

    def reach(self, windows: int) -> int:
        """The number of positions covered by so many windows."""
        return (windows - 1) * self.stride + (self.size - 1) * self.dilation + 1


def _axes(node: Node, x: Tensor, size: Iterable[int]) -> list[Axis]:
    ones = [1] * (x.rank - 2)
    settings = [node.get(name, ones) for name in ("strides", "dilations")]
    pads = sides(node.get("pads", [0, 0] * len(ones)))
    extents = (x.shape[2:], node.result.shape[2:], size)
    return list(map(Axis._make, zip(*extents, *settings, pads, strict=True)))


def _padding(node: Node, axes: list[Axis]) -> list[Pair]:
    """The padding as in the file, or computed for automatic padding."""
    auto_pad = node.get("auto_pad", "NOTSET")
    if not auto_pad.startswith("SAME"):
        return [axis.pads for axis in axes]
    totals = [max(0, axis.reach(axis.made) - axis.given) for axis in axes]
    return [_halves(total, auto_pad == "SAME_LOWER") for total in totals]


def _halves(total: int, is_lower: bool) -> Pair:
    """Two halves; an odd element goes to the end, or to the beginning."""
    less, more = total // 2, total - total // 2
    return (more, less) if is_lower else (less, more)


def _transposed_padding(node: Node, axes: list[Axis]) -> list[Pair]:
    """The difference between the extents that the windows cover and the result, which
    accounts for the padding of the output.
    """
    auto_pad = node.get("auto_pad", "NOTSET")
    is_halved = node.get("output_shape", None) or auto_pad.startswith("SAME")
    padding = []
    for axis in axes:
        total, (before, _) = axis.reach(axis.given) - axis.made, axis.pads
        halves = _halves(total, auto_pad != "SAME_UPPER")
        padding.append(halves if is_halved else (before, total - before))
    return padding


@conversion("Conv", "ConvTranspose")
def conv(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> None:
    """A convolution, or a transposed one, with groups."""
    axes, is_transposed = _axes(node, x, w.shape[2:]), node.kind == "ConvTranspose"
    padding = _transposed_padding if is_transposed else _padding
    node.emit(
        "deconv" if is_transposed else "conv",
        *(x, w, None if b is None else node.row(b)),
        stride=[axis.stride for axis in axes],
        dilation=[axis.dilation for axis in axes],
        padding=padding(node, axes),
        groups=node.get("group", 1),
    )


_POOLS = {"AveragePool": "avg_pool", "LpPool": "lp_pool", "MaxPool": "max_pool"}


@conversion(*_POOLS)
def pool(node: Node, x: Tensor) -> None:
    """Pooling. If a size is rounded up, padding that counts in averages becomes a
    `pad`: positions beyond it in the last windows do not count.
    """
    node.require(node.get("storage_order", 0) == 0, "storage_order must be 0")
    node.require(not node.uses(1), "the indices must not be used")
    axes = _axes(node, x, node.get("kernel_shape", []))
    rounds_up, counts = node.get("ceil_mode", 0), node.get("count_include_pad", 0)
    is_apart = bool(rounds_up and counts and any(node.get("pads", [])))
    padding = _padding(node, axes)
    if rounds_up and not node.get("auto_pad", "").startswith("SAME"):
        padding = [_rounded_up(axis, is_apart) for axis in axes]
    node.emit(
        _POOLS[node.kind],
        _zeros_around(node, x, axes) if is_apart else x,
        size=[1, 1, *(axis.size for axis in axes)],
        stride=[1, 1, *(axis.stride for axis in axes)],
        dilation=[1, 1, *(axis.dilation for axis in axes)],
        padding=[(0, 0), (0, 0), *padding],
        border="constant" if counts and not rounds_up else "ignore",
        p=float(node.get("p", 2)) if node.kind == "LpPool" else None,
    )


def _rounded_up(axis: Axis, is_apart: bool) -> Pair:
    """The padding for a size that is rounded up: more at the end, and nothing else if
    the pads of the file became a `pad`.
    """
    before, after = axis.pads
    # A last window that begins after the end is dropped.
    is_none = (axis.made - 1) * axis.stride >= axis.given + before
    more = axis.reach(axis.made - is_none) - (before + axis.given + after)
    return (0, max(0, more)) if is_apart else (before, after + max(0, more))


def _zeros_around(node: Node, x: Tensor, axes: list[Axis]) -> Tensor:
    padding = [(0, 0), (0, 0), *(axis.pads for axis in axes)]
    extents = zip(x.shape, padding, strict=True)
    made = node.tensor([n + sum(pair) for n, pair in extents], x.dtype)
    node.emit("pad", x, results=(made,), padding=padding, border="constant", value=0.0)
    return made


# The interpolation methods, by coordinate transformation.
_METHODS = {"align_corners": "aligned", "asymmetric": "asymmetric"}
_METHODS |= {"half_pixel": "symmetric", "pytorch_half_pixel": "symmetric"}


@conversion("Resize")
def resize(node: Node, x: Tensor, *_: Tensor | None) -> None:
    """Resizing. Before version 11 there are no coordinate modes: it is asymmetric."""
    places = node.get("coordinate_transformation_mode", "half_pixel")
    nearest = node.get("nearest_mode", "round_prefer_floor")
    if node.version < 11:
        places, nearest = "asymmetric", "floor"
    mode = node.get("mode", "nearest")
    extents = list(zip(x.shape, node.result.shape, strict=True))
    is_up = all(made % given == 0 for given, made in extents)
    is_down = all(given % made == 0 for given, made in extents)
    is_nearest, is_known = mode == "nearest", places in _METHODS
    node.require(mode in ("nearest", "linear"), "mode must be nearest or linear")
    node.require(is_up or (is_down and is_nearest), "the factor must be an integer")
    node.require(x.shape[:2] == node.result.shape[:2], "batch and channels must stay")
    node.require(is_known, "the coordinates must not be cropped")
    node.require(node.get("antialias", 0) == 0, "antialias must be 0")
    if is_nearest and is_known and (is_up or is_down):
        repeats = all(_repeats(*pair, places, nearest) for pair in extents)
        node.require(repeats, "the nearest elements must be those of NNEF")
    name = f"nearest_{'up' if is_up else 'down'}sample"
    node.emit(
        name if is_nearest else "multilinear_upsample",
        x,
        factor=[max(pair) // min(pair) for pair in extents[2:]],
        method=None if is_nearest else _METHODS[places],
    )


def _repeats(given: int, made: int, places: str, nearest: str) -> bool:
    """Whether a resize chooses the elements that NNEF chooses: each the same number of
    times, or the first of each block.
    """
    index = np.arange(made)
    expected = index // (made // given) if made >= given else index * (given // made)
    return bool((_nearest(given, made, places, nearest) == expected).all())


def _nearest(given: int, made: int, places: str, nearest: str) -> Array:
    index, factor = np.arange(made), given / made
    if places == "align_corners":
        factor = (given - 1) / max(made - 1, 1)
    shift = 0.5 * factor - 0.5 if places.endswith("half_pixel") else 0.0
    position = index * factor + shift
    rounded = {
        "floor": np.floor(position),
        "ceil": np.ceil(position),
        "round_prefer_floor": np.ceil(position - 0.5),
        "round_prefer_ceil": np.floor(position + 0.5),
    }
    return np.asarray(np.clip(rounded[nearest], 0, given - 1))
