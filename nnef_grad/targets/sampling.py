"""Maxima and where they are: `argmax_pool`, `sample` and `desample` in the elements of
windows, laid out one beside the other.

    index = argmax_pool(x, size = [1, 1, 3, 3], ...)
    dx = desample(dy, index, size = [1, 1, 3, 3], ...)

No runtime has these three as they are specified. `patches` has the 9 elements of each
window of x along an axis of its own. `first` is true for the first one that is as large
as the largest: the index in another form, which takes no integers. What `desample` puts
there goes back where the elements were.

    patches = conv(x, one_hot, ...)
    largest = max_reduce(patches, axes = [1])
    hits = eq(patches, largest)
    priority = select(hits, [9.0, 8.0, ...], 0.0)
    highest = max_reduce(priority, axes = [1])
    first = eq(priority, highest)

    kept = select(first, dy, 0.0)
    dx = deconv(kept, one_hot, ...)

The filters have a single 1 each, and a product of 0 with infinity or NaN is NaN: where x
is not finite, this is not what the operations are specified to be. Windows that lie side
by side are laid out by a `reshape`, and infinity is one number among others there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.pool import basic_windows, reverse_windows
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import Windows
from nnef_grad.targets.registry import Inexpressible, lowering
from nnef_grad.targets.windows import (
    LOWEST,
    MOST_AXES,
    Layout,
    along,
    check_inside,
    lie_side_by_side,
    moving_axes,
    partly,
    surrounded,
    transposed,
)

# The operations that make an index.
SOURCES = ("argmax_pool", "max_pool_with_index")
# The filters for n elements hold n * n numbers. More elements than this are taken axis by
# axis.
MOST_AT_ONCE = 64
MOST_ALONG_AN_AXIS = 300
# Each of them makes two of [others, x1, f1, x2, f2]; a rank of 7 is too much for most.
MOST_BLOCK_AXES = 2


# ---- The operations ----


@lowering("argmax_pool")
def argmax_pool_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """Where the largest element lies along an axis."""
    elements = elements_of(basic_windows(op))
    taken = elements.take(emit, op.inputs[0], op.attributes["border"])
    return [elements.together(emit, elements.index_of_largest(emit, taken))]


@lowering("sample")
def sample_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """The sum of what is taken, without what is not meant."""
    (x, index), windows = op.inputs, basic_windows(op)
    border = op.attributes["border"]
    check_inside(windows, border)
    elements = elements_of(windows)
    chosen = _chosen(emit, elements, index, windows)
    taken = elements.take(emit, x, border)
    kept = emit("select", chosen, taken, 0.0, hint="kept")
    sampled = emit("sum_reduce", kept, axes=elements.axes, hint="sampled")
    return [elements.together(emit, sampled)]


@lowering("desample")
def desample_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """What there is for a window, at one of its elements, goes back to where that was
    taken from.
    """
    (x, index), windows = op.inputs, reverse_windows(op)
    elements = elements_of(windows)
    chosen = _chosen(emit, elements, index, windows)
    kept = emit("select", chosen, elements.each(emit, x, "each"), 0.0, hint="kept")
    return [elements.put(emit, kept)]


# ---- Which element is meant ----


def _chosen(emit: Emitter, elements: Elements, index: Tensor, windows: Windows) -> Any:
    """Whether an element is the one that the index means.

    An index that a maximum has made is not looked at: there is a runtime that does
    nothing with integers. What made it is looked at instead.
    """
    source = emit.producer(index)
    if source is not None and _is_index(source, windows):
        return _first(emit, elements, source)
    each = elements.each(emit, index, hint="index")
    number = emit("cast", each, dtype="scalar", hint="number")
    places = elements.numbers(emit, range(elements.volume), "places")
    return emit("eq", number, places, hint="chosen")


def _is_index(source: Operation, windows: Windows) -> bool:
    """Whether an operation makes an index into windows like these."""
    return source.name in SOURCES and basic_windows(source) == windows


def _first(emit: Emitter, elements: Elements, source: Operation) -> Any:
    """Whether an element is the first of the largest ones in its window."""
    taken = elements.take(emit, source.inputs[0], source.attributes["border"])
    axes = elements.axes
    largest = emit("max_reduce", taken, axes=axes, hint="largest")
    hits = emit("eq", taken, largest, hint="hits")
    countdown = elements.numbers(emit, range(elements.volume, 0, -1), "countdown")
    priority = emit("select", hits, countdown, 0.0, hint="priority")
    highest = emit("max_reduce", priority, axes=axes, hint="highest")
    return emit("eq", priority, highest, hint="first")


# ---- The elements of windows ----


@dataclass(frozen=True)
class Elements(ABC):
    """The elements of windows, laid out in a tensor: after an axis for all windows that
    are not along the axes of the layout.

    Attributes:
        layout: the axes of the tensor that the windows slide over.
        windows: the windows along the axes of the layout.
    """

    layout: Layout
    windows: Windows

    @property
    @abstractmethod
    def axes(self) -> Shape:
        """Where the elements of one window lie."""

    @abstractmethod
    def extents(self, down: Shape, size: Shape) -> Shape:
        """The extents after the first axis, for so many windows of that size."""

    @abstractmethod
    def take(self, emit: Emitter, x: Tensor, border: str) -> Any:
        """The elements of all windows."""

    @abstractmethod
    def put(self, emit: Emitter, elements: Tensor) -> Any:
        """The elements where they were taken from, added where windows overlap."""

    @abstractmethod
    def index_of_largest(self, emit: Emitter, elements: Tensor) -> Any:
        """The index in each window of the first of its largest elements."""

    @property
    def volume(self) -> int:
        """The number of elements of a window."""
        return prod(self.windows.size)

    def each(self, emit: Emitter, y: Tensor, hint: str) -> Any:
        """What there is one of for each window, beside the elements."""
        down = self.windows.down
        extents = self.extents(down, (1,) * len(down))
        return self.layout.apart(emit, y, extents, hint=hint)

    def together(self, emit: Emitter, each: Tensor) -> Any:
        """What there is one of for each window, in its own shape."""
        return self.layout.together(emit, each, self.windows.down)

    def numbers(self, emit: Emitter, values: Sequence[int], hint: str) -> Any:
        """A number for each element of a window, the same for all windows."""
        value = [float(number) for number in values]
        return emit("constant", shape=self._for_one_window, value=value, hint=hint)

    @property
    def _for_one_window(self) -> Shape:
        size = self.windows.size
        return (1, *self.extents((1,) * len(size), size))


def elements_of(windows: Windows) -> Elements:
    """The elements of windows, in the simplest form.

    Raises:
        Inexpressible: there is none.
    """
    if len(moving_axes(windows)) > MOST_AXES:
        raise Inexpressible(f"with windows along more than {MOST_AXES} axes")
    axes = moving_axes(windows) or tuple(range(len(windows.up)))[-1:]
    layout, moving = Layout(windows.up, axes), along(windows, axes)
    if len(axes) <= MOST_BLOCK_AXES and lie_side_by_side(moving):
        return Blocks(layout, moving)
    return Patches(layout, moving)


class Blocks(Elements):
    """Windows that lie side by side: [others, x1, f1, x2, f2]."""

    @property
    def axes(self) -> Shape:
        """Those of f1, f2."""
        return tuple(range(2, 2 + 2 * len(self.windows.size), 2))

    def extents(self, down: Shape, size: Shape) -> Shape:
        """Windows and elements by turns."""
        return tuple(chain(*zip(down, size, strict=True)))

    def take(self, emit: Emitter, x: Tensor, border: str) -> Any:
        """They are there: nothing of the border is read."""
        extents = self.extents(self.windows.down, self.windows.size)
        return self.layout.apart(emit, x, extents, hint="blocks")

    def put(self, emit: Emitter, elements: Tensor) -> Any:
        """They are there: nothing overlaps."""
        return self.layout.together(emit, elements, self.windows.up)

    def index_of_largest(self, emit: Emitter, elements: Tensor) -> Any:
        """Along the last axis, with all elements of a window there."""
        others, down = elements.shape[0], self.windows.down
        order = [0, *range(1, elements.rank, 2), *self.axes]
        after = transposed(emit, elements, order, hint="turned")
        lines = reshaped(emit, after, (others, *down, self.volume), hint="lines")
        return emit("argmax_reduce", lines, axes=[1 + len(down)], hint="largest")


class Patches(Elements):
    """Windows that may overlap: [others, f1 * f2, x1, x2]."""

    @property
    def axes(self) -> Shape:
        """That of f1 * f2."""
        return (1,)

    def extents(self, down: Shape, size: Shape) -> Shape:
        """First the elements, then the windows."""
        return (prod(size), *down)

    def take(self, emit: Emitter, x: Tensor, border: str) -> Any:
        """By convolutions that each filter one element of a window."""
        x = self.layout.apart(emit, x, (1, *self.windows.up))
        others, windows = x.shape[0], self.windows
        if border != "constant":
            x, windows = surrounded(emit, x, windows, border, LOWEST)
        for step in _steps(windows):
            planes = reshaped(emit, x, (prod(x.shape[:2]), 1, *step.up), hint="planes")
            filters = _one_hot(emit, step.size)
            x = emit("conv", planes, filters, **step.attributes, hint="patches")
        return reshaped(emit, x, (others, self.volume, *windows.down), hint="patches")

    def put(self, emit: Emitter, elements: Tensor) -> Any:
        """By the same steps in reverse."""
        x = elements
        for step in reversed(_steps(self.windows)):
            volume = prod(step.size)
            planes = prod(x.shape[:2]) // volume
            x = reshaped(emit, x, (planes, volume, *step.down), hint="patches")
            shape = () if step.has_natural_extents else (planes, 1, *step.up)
            attributes = {**step.attributes, "output_shape": shape, "hint": "planes"}
            x = emit("deconv", x, _one_hot(emit, step.size), **attributes)
        return self.layout.together(emit, x, self.windows.up)

    def index_of_largest(self, emit: Emitter, elements: Tensor) -> Any:
        """Along their axis."""
        return emit("argmax_reduce", elements, axes=[1], hint="largest")


def _steps(windows: Windows) -> list[Windows]:
    """The windows all at once or, if they are large, along one axis after the other."""
    if prod(windows.size) <= MOST_AT_ONCE:
        return [windows]
    if max(windows.size) > MOST_ALONG_AN_AXIS:
        raise Inexpressible(
            f"with windows of more than {MOST_ALONG_AN_AXIS} elements along an axis"
        )
    down, up = windows.down, windows.up
    extents = ((*down[:axis], *up[axis:]) for axis in range(len(up)))
    return [partly(windows, [axis], steps) for axis, steps in enumerate(extents)]


def _one_hot(emit: Emitter, size: Shape) -> Any:
    """For each element of a window, in row-major order, a filter that is 1 there."""
    volume = prod(size)
    value = [float(i == j) for i in range(volume) for j in range(volume)]
    return emit("constant", shape=[volume, 1, *size], value=value, hint="one_hot")
