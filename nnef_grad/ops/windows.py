"""The arithmetic of sliding windows, which convolutions and poolings share.

A window operation relates two sides, whichever way it computes:

    up      the extents of the up-scaled side: the input of conv, box, sample;
            the output of deconv, debox, desample
    down    the extents of the down-scaled side, with one element for each window

Along an axis with padding (p, q), element j of window i lies at position i * stride + j
* dilation - p of the up-scaled side. An operation and its adjoint have the same
windows. Nothing here knows an operation: these are functions of tuples of integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.registry import require

Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """Sliding windows with nothing left to a default: an item for each axis that they
    slide along.
    """

    up: Shape
    down: Shape
    size: Shape
    padding: Padding
    stride: Shape
    dilation: Shape

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of an operation that has these windows; what is all ones is
        left out.
        """
        stride = () if set(self.stride) <= {1} else self.stride
        dilation = () if set(self.dilation) <= {1} else self.dilation
        return {"padding": self.padding, "stride": stride, "dilation": dilation}

    @property
    def begin(self) -> Shape:
        """Where the first windows begin on the up-scaled side."""
        return tuple(-p for p, _ in self.padding)

    @property
    def end(self) -> Shape:
        """Where the last windows end on the up-scaled side: inside it, where the stride
        leaves a remainder.
        """
        columns = zip(
            self.begin,
            self.down,
            self.stride,
            reaches(self.size, self.dilation),
            strict=True,
        )
        return tuple(first + (x - 1) * s + reach for first, x, s, reach in columns)

    @property
    def has_natural_extents(self) -> bool:
        """Whether the down-scaled side tells the up-scaled extents, so that a reverse
        operation needs no `output_shape`.
        """
        return self.up == up_scaled(
            self.down, self.size, self.padding, self.stride, self.dilation
        )

    @property
    def pairing(self) -> Windows:
        """The windows that pair the two sides, so as to correlate them: the down-scaled
        side is one, stretched by the stride, and moves by the dilation to as many places
        as a window has elements. What a stride leaves over is cropped.
        """
        columns = zip(self.padding, self.end, self.up, strict=True)
        return Windows(
            up=self.up,
            down=self.size,
            size=self.down,
            padding=tuple((p, last - extent) for (p, _), last, extent in columns),
            stride=self.dilation,
            dilation=self.stride,
        )

    @property
    def touch_data(self) -> bool:
        """Whether some window has an element inside the up-scaled side; wide padding
        can keep all of them out.
        """
        return all(
            max(first, 0) < min(last, extent)
            for first, last, extent in zip(self.begin, self.end, self.up, strict=True)
        )


# ---- The two directions ----


def downscaling(
    up: Shape, size: Shape, padding: Padding, stride: Shape, dilation: Shape
) -> Windows:
    """The windows of a basic operation.

    Args:
        up: the extents that the windows slide along.
        size: the extents of a window.
        padding, stride, dilation: as in the text; empty for the defaults.

    Raises:
        ShapeError: an attribute has the wrong length or a value that is not allowed, or
            the windows do not fit in.
    """
    _check(len(up), size, padding, stride, dilation)
    stride, dilation = stride or (1,) * len(up), dilation or (1,) * len(up)
    padding = padding or automatic_padding(up, size, stride, dilation)
    padded = [p + extent + q for extent, (p, q) in zip(up, padding, strict=True)]
    reach = reaches(size, dilation)
    message = (
        f"windows over {list(reach)} elements do not fit in the padded extents"
        f" {padded}, with 'padding' = {list(padding)}"
    )
    require(all(extent >= r for extent, r in zip(padded, reach, strict=True)), message)
    down = tuple(
        (extent - r) // s + 1
        for extent, r, s in zip(padded, reach, stride, strict=True)
    )
    return Windows(up, down, size, padding, stride, dilation)


def upscaling(
    down: Shape,
    size: Shape,
    padding: Padding,
    stride: Shape,
    dilation: Shape,
    output_shape: Shape,
) -> Windows:
    """The windows of a reverse operation.

    Args:
        down: the extents with an element for each window.
        size: the extents of a window.
        padding, stride, dilation: as in the text; empty for the defaults.
        output_shape: the up-scaled extents, where they are given; empty where `down`
            tells them.

    Raises:
        ShapeError: as for `downscaling`, or `output_shape` is not down-scaled to
            `down`.
    """
    _check(len(down), size, padding, stride, dilation)
    _check_length("output_shape", output_shape, len(down))
    check_positive("output_shape", output_shape)
    up = output_shape or up_scaled(down, size, padding, stride, dilation)
    message = f"the up-scaled extents must be positive, but are {list(up)}, with 'padding' = {list(padding)}"
    require(all(extent > 0 for extent in up), message)
    windows = downscaling(up, size, padding, stride, dilation)
    message = (
        f"'output_shape' with extents {list(up)} is down-scaled to"
        f" {list(windows.down)}, and the input has {list(down)}"
    )
    require(windows.down == down, message)
    return windows


def up_scaled(
    down: Shape, size: Shape, padding: Padding, stride: Shape, dilation: Shape
) -> Shape:
    """The up-scaled extents that belong to the down-scaled ones, if nothing else is
    said.
    """
    ones = (1,) * len(down)
    if not padding:
        return tuple(x * s for x, s in zip(down, stride or ones, strict=True))
    columns = zip(
        down, padding, stride or ones, reaches(size, dilation or ones), strict=True
    )
    return tuple((x - 1) * s + reach - (p + q) for x, (p, q), s, reach in columns)


def reaches(size: Shape, dilation: Shape) -> Shape:
    """How many elements lie from the first to the last of a window, with the gaps of
    the dilation.
    """
    return tuple((f - 1) * d + 1 for f, d in zip(size, dilation, strict=True))


def automatic_padding(
    up: Shape, size: Shape, stride: Shape, dilation: Shape
) -> Padding:
    """The padding for which a window begins at every `stride`-th element; an odd
    element goes after.
    """
    columns = zip(up, stride, reaches(size, dilation), strict=True)
    totals = [
        max((-(-extent // s) - 1) * s + reach - extent, 0)
        for extent, s, reach in columns
    ]
    return tuple((total // 2, total - total // 2) for total in totals)


# ---- Borders ----

# Borders that repeat elements of the input, and how many elements of an axis each cannot
# reach: 'reflect' leaves out the one that it reflects at. None where any width will do.
REPEATING: dict[str, int | None] = {"replicate": None, "reflect": 1, "reflect-even": 0}


def basic_outside(windows: Windows) -> Padding:
    """How many elements before and after its input, the up-scaled side, a basic
    operation reads.
    """
    columns = zip(windows.begin, windows.end, windows.up, strict=True)
    return tuple(
        (max(-first, 0), max(last - extent, 0)) for first, last, extent in columns
    )


def reverse_outside(windows: Windows) -> Padding:
    """How many elements before and after its input, the down-scaled side, a reverse
    operation reads.

    They are the windows before the first, and after the last, that would lie over the
    output, be it with a gap of the dilation: even without padding there are some, as a
    rule.
    """
    columns = zip(
        windows.begin,
        windows.end,
        windows.stride,
        reaches(windows.size, windows.dilation),
        windows.up,
        strict=True,
    )
    return tuple(
        (max((first + reach - 1) // s, 0), max((extent - 1 - last + reach) // s, 0))
        for first, last, s, reach, extent in columns
    )


def check_reach(border: str, input: Shape, outside: Padding) -> None:
    """There is one reflection of the input on each side of it.

    Raises:
        ShapeError: what is read outside is more than that.
    """
    left_out = REPEATING.get(border)
    if left_out is None:
        return
    for extent, sides in zip(input, outside, strict=True):
        message = (
            f"with border '{border}' an extent of {extent} can be padded by"
            f" {extent - left_out} on each side, and is padded by {sides}"
        )
        require(max(sides) <= extent - left_out, message)


def counts_inside(windows: Windows) -> tuple[Shape, ...]:
    """For each axis and each window along it, how many of its elements lie inside the
    up-scaled side.
    """
    columns = zip(
        windows.begin,
        windows.down,
        windows.size,
        windows.stride,
        windows.dilation,
        windows.up,
        strict=True,
    )
    return tuple(
        tuple(
            sum(0 <= first + i * s + j * d < extent for j in range(f)) for i in range(x)
        )
        for first, x, f, s, d, extent in columns
    )


# ---- Checks ----


def check_border(border: str, allowed: tuple[str, ...]) -> None:
    """Raises `ShapeError` unless the border is one that the operation allows."""
    choices = ", ".join(f"'{name}'" for name in allowed)
    require(
        border in allowed,
        f"'border' must be {'one of ' if len(allowed) > 1 else ''}{choices}, but is '{border}'",
    )


def check_positive(name: str, values: Shape) -> None:
    """Raises `ShapeError` unless all items of an attribute are positive."""
    require(
        all(value > 0 for value in values),
        f"the items of '{name}' must be positive, and '{name}' is {list(values)}",
    )


def _check(
    rank: int, size: Shape, padding: Padding, stride: Shape, dilation: Shape
) -> None:
    require(
        len(size) == rank,
        f"'size' must have an item for each of the {rank} dimensions of a window, but is {list(size)}",
    )
    for name, values in {
        "padding": padding,
        "stride": stride,
        "dilation": dilation,
    }.items():
        _check_length(name, values, rank)
    for name, extents in {"size": size, "stride": stride, "dilation": dilation}.items():
        check_positive(name, extents)


def _check_length(name: str, values: tuple[Any, ...], rank: int) -> None:
    fits = len(values) in (0, rank)
    require(
        fits,
        f"'{name}' must have an item for each of the {rank} dimensions of a window,"
        f" or none, but is {list(values)}",
    )
