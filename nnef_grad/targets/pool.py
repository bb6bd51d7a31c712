"""Pooling and box filters: pools of spatial windows with padding inside their reach, as
all runtimes have them, and sums; maxima and where they are.

No runtime has `argmax_pool`, `sample` and `desample` as they are specified. Small windows are
looked at place by place (maxima.py). For large ones, `patches` has the elements of each window
of x along an axis of its own. `first` is true for the first one that is as large as the
largest: the index in another form, which takes no integers. The elements that `desample` fills
go back to where they were.

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

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.extents import has_symbols, may_exceed
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.language.types import LARGEST
from nnef_grad.ops.pool import divisor
from nnef_grad.ops.shape import Positions, reshaped, transposed
from nnef_grad.ops.windows import (
    REPEATING,
    Windows,
    added_border,
    of_columns,
    still,
    windows_of,
)
from nnef_grad.targets import conditions as when
from nnef_grad.targets.borders import crop
from nnef_grad.targets.maxima import (
    desample_maxima,
    finds_maxima,
    finds_small_maxima,
    maxima_by_place,
    sample_maxima,
)
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import take
from nnef_grad.targets.windows import (
    are_dilated,
    are_side_by_side,
    are_single,
    form_blocks,
    moving_axes,
    spread,
    surrounded,
    window_attributes,
    without_needless_strides,
)

# ---- Pools ----


@lowering("max_pool")
def max_pool_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Over the border too, unless that is ignored; place by place where nothing else helps."""
    (x,), windows, border = op.inputs, windows_of(op), op.attributes["border"]
    if not _is_spatial(windows):
        return [_moved(emit, op, windows)]
    if border != "ignore" or _is_wide(windows) or has_symbols(windows.padding):
        value = -LARGEST if border == "ignore" else 0.0
        x, windows = surrounded(emit, x, windows, border, value)
    x, windows = _without_rest(emit, x, windows)
    if not moving_axes(windows):
        return [x]
    if _is_as_it_was(op, x, windows):
        if are_dilated(windows):
            return [maxima_by_place(emit, x, windows)]
        if form := _other_form(op):
            return [form(emit, op, windows)]
    return [emit("max_pool", x, border="ignore", **_as_read(windows))]


@lowering("avg_pool")
def avg_pool_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Dilated windows are summed first."""
    (x,), windows, border = op.inputs, windows_of(op), op.attributes["border"]
    if not _is_spatial(windows):
        return [_moved(emit, op, windows)]
    is_open = has_symbols(windows.padding)
    if are_dilated(windows) or (is_open and border == "ignore"):
        return [_mean_by_count(emit, op, windows)]
    if border in REPEATING or _is_wide(windows) or is_open:
        x, windows = surrounded(emit, x, windows, border)
    x, windows = _without_rest(emit, x, windows)
    if not moving_axes(windows):
        return [x]
    if _is_as_it_was(op, x, windows):
        if form := _other_form(op):
            return [form(emit, op, windows)]
        if border == "ignore":
            return [_mean_by_count(emit, op, windows)]
        x, windows = surrounded(emit, x, windows, border)
    kept = "ignore" if border == "ignore" else "constant"
    return [emit("avg_pool", x, border=kept, **_as_read(windows))]


def _mean_by_count(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The sum over each window by how many of its elements count."""
    settings = {**op.settings, **window_attributes(windows)}
    total = emit("box", op.inputs[0], **settings, hint="total")
    return emit("div", total, divisor(emit, windows, op.attributes["border"]))


def _is_as_it_was(op: Operation, x: Tensor, windows: Windows) -> bool:
    is_same = x is op.inputs[0] and windows == windows_of(op)
    return is_same and op.settings.items() >= _as_read(windows).items()


def _from_stride_to_stride(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The only element of each window."""
    moving = ((axis, windows.axes[axis]) for axis in moving_axes(windows))
    ranges = ((a, (c.down - 1) * c.stride + 1, c.stride) for a, c in moving)
    taken = {a: Positions(0, end, step) for a, end, step in ranges}
    return take(emit, op.inputs[0], taken)


def _in_one_volume(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The operation with the items of the batch as channels of one."""
    (x,), (y,) = op.inputs, op.outputs
    joined = reshaped(emit, x, (1, x.shape[0] * x.shape[1], *x.shape[2:]), "joined")
    return reshaped(emit, emit(op.name, joined, **op.settings, hint="pooled"), y.shape)


# Of pools that engines have wrong with these settings, though all others are as they want.
_OTHER_FORMS: Sequence[tuple[when.Condition, Callable[..., Tensor]]] = (
    (when.sampling, _from_stride_to_stride),
    (when.several_volumes, _in_one_volume),
)


def _other_form(op: Operation) -> Callable[..., Tensor] | None:
    return next((form for holds, form in _OTHER_FORMS if holds(op)), None)


def _without_rest(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """The data up to the end of the only window along an axis, and windows without a stride
    there.
    """
    windows = without_needless_strides(windows)
    kept = crop(emit, x, windows.padding, hint="kept")
    padding = added_border(windows.padding)
    return kept, replace(windows, up=kept.shape, padding=padding)


@lowering("box")
def box_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """A mean times a volume; or a convolution, of dilated windows and wide borders."""
    (x,), windows = op.inputs, windows_of(op)
    border, normalize = op.attributes["border"], op.attributes["normalize"]
    if not _is_spatial(windows):
        return [_moved(emit, op, windows)]
    if not normalize and (are_dilated(windows) or _is_wide(windows)):
        return [_convolved(emit, x, windows, border)]
    if has_symbols(windows.padding) and not normalize:
        x, windows = surrounded(emit, x, windows, border)
    # Nothing is added where nothing is, nor where zeros are.
    kept = "constant" if border == "ignore" and not normalize else border
    mean = emit("avg_pool", x, border=kept, **window_attributes(windows), hint="mean")
    return [mean if normalize else emit("mul", mean, float(prod(windows.size)))]


def _is_spatial(windows: Windows) -> bool:
    """Whether windows lie in space: in one item of the batch and in one channel."""
    return 3 <= len(windows.up) <= 5 and not {0, 1} & {*moving_axes(windows)}


def _is_wide(windows: Windows) -> bool:
    """Whether a window may read as many elements of the border as it has."""
    return any(
        may_exceed(n + 1, axis.size) for axis in windows.axes for n in axis.outside
    )


def _as_read(windows: Windows) -> dict[str, Any]:
    """The attributes, with no more padding than is read."""
    return window_attributes(replace(windows, padding=windows.outside))


def _moved(emit: Emitter, op: Operation, windows: Windows) -> Tensor:
    """The operation with the axes last that its windows slide along."""
    (x,) = op.inputs
    if not moving_axes(windows):
        return x
    layout = Layout(windows)
    planes = layout.to_planes(emit, x, (1, *layout.windows.up))
    columns = [*map(still, planes.shape[:2]), *layout.windows.axes]
    attributes = {**op.settings, **window_attributes(of_columns(columns))}
    pooled = emit(op.name, planes, **attributes, hint="pooled")
    return layout.from_planes(emit, pooled, layout.windows.down)


def _convolved(emit: Emitter, x: Tensor, windows: Windows, border: str) -> Tensor:
    """The sums over windows, by a convolution with ones."""
    layout = Layout(windows)
    windows = layout.windows
    planes = layout.to_planes(emit, x, (1, *windows.up))
    if border in REPEATING:
        planes, windows = surrounded(emit, planes, windows, border)
    ones = emit("constant", shape=[1, 1, *windows.size], value=[1.0], hint="ones")
    sums = emit("conv", planes, ones, **windows.attributes, hint="sums")
    return layout.from_planes(emit, sums, windows.down)


# ---- Boxes in reverse ----

_OPEN = when.automatic | when.other_than(border="constant", normalize=False)


@lowering("debox")
def debox_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With everything given; repeated elements, zeros between, or a deconvolution."""
    (x,), windows = op.inputs, windows_of(op)
    if not windows.up:
        return [x]
    if _OPEN(op):
        volume = prod(windows.size) if op.attributes["normalize"] else 1
        x = emit("div", x, float(volume), hint="share")
        shape = windows.output_shape()
        return [emit("debox", x, **window_attributes(windows), output_shape=shape)]
    if are_side_by_side(windows):
        return [spread(emit, x, windows.size)]
    if are_single(windows):
        return [spread(emit, x, windows.stride, zeros=True)]
    return [_deconvolved(emit, x, windows)]


def _deconvolved(emit: Emitter, x: Tensor, windows: Windows) -> Tensor:
    """Sums where windows meet, by a deconvolution with ones."""
    layout = Layout(windows)
    windows = layout.windows
    planes = layout.to_planes(emit, x, (1, *windows.down))
    shape = windows.output_shape(planes.shape[0], 1)
    attributes = {**windows.attributes, "output_shape": shape, "hint": "sums"}
    ones = emit("constant", shape=[1, 1, *windows.size], value=[1.0], hint="ones")
    sums = emit("deconv", planes, ones, **attributes)
    return layout.from_planes(emit, sums, windows.up)


# ---- Maxima ----


@lowering("argmax_pool")
def argmax_pool_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Where the largest element lies along an axis."""
    layout = Layout(windows_of(op))
    elements = layout.take(emit, op.inputs[0], op.attributes["border"])
    lines, axis = layout.to_lines(emit, elements)
    index = emit("argmax_reduce", lines, axes=[axis], hint="largest")
    return [layout.from_planes(emit, index, layout.windows.down)]


@lowering("sample")
def sample_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The sum of the elements that are taken, with zeros for those that are not meant."""
    (x, index), windows = op.inputs, windows_of(op)
    source = emit.producer(index)
    if source and finds_small_maxima(source, windows):
        return [sample_maxima(emit, x, source, op.attributes["border"])]
    layout = Layout(windows)
    chosen = _chosen(emit, layout, index, windows)
    elements = layout.take(emit, x, op.attributes["border"])
    kept = emit("select", chosen, elements, 0.0, hint="kept")
    sampled = emit("sum_reduce", kept, axes=layout.axes, hint="sampled")
    return [layout.from_planes(emit, sampled, layout.windows.down)]


@lowering("desample")
def desample_lowered(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The value of a window goes back to where one of its elements was taken from."""
    (x, index), windows = op.inputs, windows_of(op)
    source = emit.producer(index)
    if source and finds_small_maxima(source, windows):
        return [desample_maxima(emit, x, source)]
    layout = Layout(windows)
    chosen = _chosen(emit, layout, index, windows)
    each = layout.to_single(emit, x, "each")
    return [layout.put(emit, emit("select", chosen, each, 0.0, hint="kept"))]


def _chosen(emit: Emitter, layout: Layout, index: Tensor, windows: Windows) -> Tensor:
    """Whether an element is meant. There is a runtime that does nothing with integers:
    an index that a maximum has made is not looked at, but what made it.
    """
    source = emit.producer(index)
    if source and finds_maxima(source, windows):
        return _first(emit, layout, source)
    index = layout.to_single(emit, index, "index")
    number = emit("cast", index, dtype="scalar", hint="number")
    places = layout.numbers(emit, range(layout.volume), "places")
    return emit("eq", number, places, hint="chosen")


def _first(emit: Emitter, layout: Layout, source: Operation) -> Tensor:
    """Whether an element is the first of the largest ones in its window."""
    elements = layout.take(emit, source.inputs[0], source.attributes["border"])
    largest = emit("max_reduce", elements, axes=layout.axes, hint="largest")
    hits = emit("eq", elements, largest, hint="hits")
    countdown = layout.numbers(emit, range(layout.volume, 0, -1), "countdown")
    priority = emit("select", hits, countdown, 0.0, hint="priority")
    highest = emit("max_reduce", priority, axes=layout.axes, hint="highest")
    return emit("eq", priority, highest, hint="first")


# ---- Tensors that windows slide over ----


class Layout:
    """A tensor that windows slide over, with the axes last that they slide along, or else
    its last one, and all others as one: [others, x1, x2].

    The elements of windows are [others, f1 * f2, x1, x2] or, where windows form blocks,
    [others, x1, f1, x2, f2].

    Attributes:
        windows: the windows along those axes.
        in_blocks: whether they form blocks.
        axes: the axes of the elements of one window.
        volume: the number of elements of a window.
    """

    def __init__(self, windows: Windows) -> None:
        self._shape, all_axes = windows.up, range(len(windows.up))
        self._last = moving_axes(windows) or tuple(all_axes)[-1:]
        self._others = [axis for axis in all_axes if axis not in self._last]
        self.windows = of_columns([windows.axes[axis] for axis in self._last])
        self.in_blocks = form_blocks(windows)
        last = 1 + 2 * len(self.windows.size)
        self.axes = tuple(range(2, last, 2)) if self.in_blocks else (1,)
        self.volume = prod(self.windows.size)

    def to_planes(
        self, emit: Emitter, x: Tensor, extents: Shape, hint: str = "planes"
    ) -> Tensor:
        """The tensor as [others, *extents], where the extents hold what is in the axes."""
        others = prod(x.shape[axis] for axis in self._others)
        ordered = transposed(emit, x, [*self._others, *self._last], hint="turned")
        return reshaped(emit, ordered, (others, *extents), hint)

    def from_planes(self, emit: Emitter, planes: Tensor, extents: Shape) -> Tensor:
        """The way back, to a tensor with these extents of the axes."""
        order = [*self._others, *self._last]
        others = (self._shape[axis] for axis in self._others)
        ordered = reshaped(emit, planes, (*others, *extents), hint="turned")
        return transposed(emit, ordered, [order.index(a) for a in range(len(order))])

    def take(self, emit: Emitter, x: Tensor, border: str) -> Tensor:
        """The elements of all windows: where they are, or by filters of one element."""
        windows = self.windows
        if self.in_blocks:
            extents = self._extents(windows.down, windows.size)
            return self.to_planes(emit, x, extents, hint="blocks")
        x = self.to_planes(emit, x, (1, *windows.up))
        patches = (x.shape[0], self.volume, *windows.down)
        if border != "constant":
            x, windows = surrounded(emit, x, windows, border, -LARGEST)
        for step in _steps(windows):
            planes = reshaped(emit, x, (prod(x.shape[:2]), 1, *step.up), "planes")
            filters = _one_hot(emit, step.size)
            x = emit("conv", planes, filters, **step.attributes, hint="patches")
        return reshaped(emit, x, patches, hint="patches")

    def put(self, emit: Emitter, x: Tensor) -> Tensor:
        """The same steps in reverse: the elements are added where windows overlap."""
        for step in [] if self.in_blocks else reversed(_steps(self.windows)):
            volume = prod(step.size)
            planes = prod(x.shape[:2]) // volume
            x = reshaped(emit, x, (planes, volume, *step.down), hint="patches")
            shape = step.output_shape(planes, 1)
            attributes = {**step.attributes, "output_shape": shape, "hint": "planes"}
            x = emit("deconv", x, _one_hot(emit, step.size), **attributes)
        return self.from_planes(emit, x, self.windows.up)

    def to_lines(self, emit: Emitter, elements: Tensor) -> tuple[Tensor, int]:
        """The elements of each window along one axis, and which that is."""
        if not self.in_blocks:
            return elements, 1
        order = [0, *range(1, elements.rank, 2), *self.axes]
        ordered = transposed(emit, elements, order, hint="turned")
        shape = (elements.shape[0], *self.windows.down, self.volume)
        return reshaped(emit, ordered, shape, hint="lines"), len(shape) - 1

    def to_single(self, emit: Emitter, y: Tensor, hint: str) -> Tensor:
        """A tensor with one value for each window, beside the elements."""
        down = self.windows.down
        return self.to_planes(emit, y, self._extents(down, (1,) * len(down)), hint)

    def numbers(self, emit: Emitter, values: Sequence[int], hint: str) -> Tensor:
        """A number for each element of a window, the same for all windows."""
        size = self.windows.size
        shape = (1, *self._extents((1,) * len(size), size))
        return emit("constant", shape=shape, value=list(map(float, values)), hint=hint)

    def _extents(self, down: Shape, size: Shape) -> Shape:
        """The extents after the first axis, for so many windows of that size."""
        if self.in_blocks:
            return tuple(chain(*zip(down, size, strict=True)))
        return (prod(size), *down)


# The filters for n elements hold n * n numbers. More elements than this are taken axis by
# axis.
MOST_AT_ONCE = 64


def _steps(windows: Windows) -> list[Windows]:
    """The windows all at once or, if they are large, along one axis after the other."""
    if prod(windows.size) <= MOST_AT_ONCE:
        return [windows]
    done, left = ([*map(still, extents)] for extents in (windows.down, windows.up))
    return [
        of_columns([*done[:axis], column, *left[axis + 1 :]])
        for axis, column in enumerate(windows.axes)
    ]


def _one_hot(emit: Emitter, size: Shape) -> Tensor:
    """For each element of a window, in row-major order, a filter that is 1 there."""
    volume = prod(size)
    value = [float(i == j) for i in range(volume) for j in range(volume)]
    return emit("constant", shape=[volume, 1, *size], value=value, hint="one_hot")
