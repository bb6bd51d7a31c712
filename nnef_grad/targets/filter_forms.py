"""Forms of the gradient of a filter, beside the convolution as it is.

The gradient of a filter is a convolution with few windows, each nearly as large as the
input. Runtimes are made for the contrary. So the elements of a window are taken first:
with [N, C, X...] and filters of depth D, the elements of one window of each group,

    window = slice(x, ...)                                [N, D], for one place
    patches = concat([window, ...], axis = 1)             [N * places, D]
    product = matmul(rows, patches, transposeB = true)    [filters, N * places]

or a convolution gets more windows: over one image, of all images side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.parts import mirrored
from nnef_grad.ops.shape import Positions, reshaped, transposed
from nnef_grad.ops.windows import Windows, windows_of
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition
from nnef_grad.targets.conv import cropped
from nnef_grad.targets.forms import form
from nnef_grad.targets.shape import joined, take
from nnef_grad.targets.windows import surrounded

# A filter with more elements than this makes too many operations; one with open extents may
# not be possible otherwise.
MOST_PLACES = 128
MOST_OF_OPEN = 2048

_FEW_PLACES = when.plain & Condition(
    lambda op: (
        nominal(prod(windows_of(op).down))
        <= (MOST_OF_OPEN if has_symbols(op.inputs[1].shape) else MOST_PLACES)
    )
)
# What is joined for the one product of each group is no more than the result: the elements of
# all windows, or of the filters at all places. Of many groups it would be there at once.
_SMALL_WINDOWS = when.of_one_group | Condition(
    lambda op: (
        nominal(groups_of(op) * prod(op.inputs[1].shape[1:]))
        <= nominal(op.outputs[0].shape[1])
    )
)
_SMALL_SHIFTS = Condition(
    lambda op: (
        nominal(op.inputs[1].shape[1] * prod(op.inputs[0].shape[2:]))
        <= nominal(op.inputs[0].shape[0])
    )
)
# Of one group: less is copied of the filters than of the images.
_FEW_FILTERS = when.of_one_group & Condition(
    lambda op: nominal(2 * op.inputs[1].shape[0]) <= nominal(op.inputs[0].shape[0])
)
_SINGLE_FILTERS = Condition(
    lambda op: op.inputs[0].shape[0] == 1 and op.inputs[1].shape[0] == groups_of(op)
)
_MOVES_BY_ONE = when.on_each_axis(lambda c: c.stride == c.dilation == 1)
_LAST_MOVES_BY_ONE = Condition(lambda op: windows_of(op).stride[-1] == 1)
# A convolution meets the same element of each tile: the gradient of such a filter.
_MEETS_TILES = when.on_each_axis(
    lambda c: (
        c.stride == 1
        and c.padding == (0, 0)
        and c.down == c.dilation
        and c.up == c.size * c.dilation
    )
)


def _are_several(place: int) -> Condition:
    """There are several images, or filters, and their number is no symbol: a dilation is none."""

    def holds(op: Operation) -> bool:
        count = op.inputs[place].shape[0]
        return not has_symbols(count) and count > 1

    return Condition(holds)


# ---- Few large windows ----


@form("conv", _FEW_PLACES & _MOVES_BY_ONE & (~when.of_one_group | _FEW_FILTERS))
def product_for_each_shift(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """A product of whole images with the filters at each place, among zeros. In a gradient
    for each example the filters are what comes last: nothing is made before.
    """
    lines, shifted = _shifted(emit, op)
    return [_of_places(emit, op, ((rows, lines) for rows in shifted))]


@form(
    "conv",
    _FEW_PLACES & _MOVES_BY_ONE & (~when.of_one_group & _SMALL_SHIFTS | _FEW_FILTERS),
)
def one_product_of_shifts(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The filters at all places, and one product for each group."""
    (lines, shifted), (y,) = _shifted(emit, op), op.outputs
    each = [
        reshaped(emit, rows, (*rows.shape[:-1], 1, rows.shape[-1]), "row")
        for rows in shifted
    ]
    *outer, filters, _, depth = each[0].shape
    shape = (*outer, filters * len(each), depth)
    rows = reshaped(emit, joined(emit, each, len(outer) + 1), shape, "rows")
    product = emit("matmul", lines, rows, transposeB=True, hint="product")
    if outer:
        product = transposed(emit, product, [1, 0, 2], "by_image")
    return [reshaped(emit, product, y.shape)]


def _shifted(emit: Emitter, op: Operation) -> tuple[Tensor, Iterator[Tensor]]:
    """The elements of the images, and of the filters at each place: for each group."""
    (x, w), windows = op.inputs[:2], windows_of(op)
    moved = _exchanged(windows)
    outer, images = _by_group(emit, op)
    depth = w.shape[1] * prod(windows.up)
    lines = reshaped(emit, images, (*outer, x.shape[0], depth), "lines")
    wide, moved = _padded(emit, w, moved)
    shape = (*outer, w.shape[0] // groups_of(op), depth)
    each = reversed([*_windows(emit, wide, moved, first=2)])
    return lines, (reshaped(emit, shifted, shape, "rows") for shifted in each)


def _exchanged(windows: Windows) -> Windows:
    """The windows of the images over the filters, from the last place to the first."""
    around = tuple(
        (c.down - 1 - c.padding[0], c.down - 1 - c.padding[1]) for c in windows.axes
    )
    return replace(windows, up=windows.size, size=windows.up, padding=around)


@form("conv", _FEW_PLACES & _SMALL_WINDOWS)
def one_product(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The elements of all windows, and one product for each group."""
    outer, x = _by_group(emit, op)
    x, windows = _padded(emit, x, windows_of(op))
    count, depth = op.inputs[0].shape[0], prod(op.inputs[1].shape[1:])
    each = [
        reshaped(emit, window, (*outer, count, 1, depth), "line")
        for window in _windows(emit, x, windows, first=2)
    ]
    lines = (*outer, count * len(each), depth)
    patches = reshaped(emit, joined(emit, each, len(outer) + 1), lines, "patches")
    return [_by_image(emit, _product(emit, op, patches, are_lines=True), op)]


@form("conv", _FEW_PLACES)
def product_for_each_place(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """A product for each window: nothing but its elements is copied at a time."""
    outer, x = _by_group(emit, op)
    x, windows = _padded(emit, x, windows_of(op))
    rows, count = _rows(emit, op), op.inputs[0].shape[0]
    lines = (
        reshaped(emit, window, (*outer, count, rows.shape[-1]), "lines")
        for window in _windows(emit, x, windows, first=2)
    )
    return [_of_places(emit, op, ((rows, each) for each in lines))]


def _by_group(emit: Emitter, op: Operation) -> tuple[Shape, Tensor]:
    """The images of all groups, [groups, N * depth, X...], if there are some, and the
    extents before those of one group.
    """
    x, groups = op.inputs[0], groups_of(op)
    if groups == 1:
        return (), x
    count, depth, extents = x.shape[0], x.shape[1] // groups, x.shape[2:]
    parts = reshaped(emit, x, (count, groups, depth * prod(extents)), "parts")
    moved = emit("transpose", parts, axes=[1, 0, 2], hint="by_group")
    return (groups,), reshaped(emit, moved, (groups, count * depth, *extents), "images")


def _of_places(
    emit: Emitter, op: Operation, pairs: Iterable[tuple[Tensor, Tensor]]
) -> Tensor:
    """The products of the rows of filters with those of images, for each place."""
    each = []
    for rows, lines in pairs:
        column = emit("matmul", rows, lines, transposeB=True, hint="product")
        each.append(reshaped(emit, column, (*column.shape, 1), "column"))
    return _by_image(emit, joined(emit, each, each[0].rank - 1), op)


@form("conv", _FEW_PLACES & when.of_one_group)
def product_with_images_last(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[C, X..., N]: slices of long runs, and a small result to transpose."""
    x, windows = _padded(emit, op.inputs[0], windows_of(op))
    count, depth = x.shape[0], prod(op.inputs[1].shape[1:])
    last = _images_last(emit, x)
    each = [*_windows(emit, last, windows, first=1)]
    columns = (depth, len(each) * count)
    patches = reshaped(emit, joined(emit, each, x.rank - 1), columns, "patches")
    filtered = _product(emit, op, patches, are_lines=False)
    shape = (filtered.shape[0], len(each), count)
    by_place = reshaped(emit, filtered, shape, "by_place")
    return [_by_image(emit, transposed(emit, by_place, [0, 2, 1], "turned"), op)]


def _product(
    emit: Emitter, op: Operation, patches: Tensor, *, are_lines: bool
) -> Tensor:
    """The product of the filters with the elements of windows, for each group."""
    rows = _rows(emit, op)
    return emit("matmul", rows, patches, transposeB=are_lines, hint="product")


def _rows(emit: Emitter, op: Operation) -> Tensor:
    """The elements of each filter."""
    w, groups = op.inputs[1], groups_of(op)
    outer = (groups,) if groups > 1 else ()
    shape = (*outer, w.shape[0] // groups, prod(w.shape[1:]))
    return reshaped(emit, w, shape, "rows")


@form("conv", _FEW_PLACES & when.of_one_group & when.above_rank(3))
def rows_as_channels(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With the rows of a window as channels, and images along the last axis."""
    x, windows = _padded(emit, op.inputs[0], windows_of(op))
    w, (rows, *others) = op.inputs[1], windows.axes
    last = _images_last(emit, x)
    channels = w.shape[1] * rows.size
    each = [
        reshaped(emit, taken, (1, channels, *taken.shape[2:]), "image")
        for place in range(rows.down)
        for taken in (take(emit, last, {1: rows.positions(place)}),)
    ]
    shape = (w.shape[0], channels, *w.shape[3:], 1)
    images_last = emit(
        "conv",
        joined(emit, each, 0),
        reshaped(emit, w, shape, "rows"),
        padding=[(0, 0)] * (w.rank - 2),
        stride=[*(axis.stride for axis in others), 1],
        dilation=[*(axis.dilation for axis in others), 1],
        hint="product",
    )
    axes = [x.rank - 1, 1, 0, *range(2, x.rank - 1)]
    return [emit("transpose", images_last, axes=axes)]


@form("conv", _FEW_PLACES & _SINGLE_FILTERS)
def sum_for_each_place(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """One filter for each group is no matrix. Sums along several axes are faster."""
    x, windows = _padded(emit, op.inputs[0], windows_of(op))
    w, groups, each = op.inputs[1], groups_of(op), []
    axes = [axis for axis in range(1, w.rank) if w.shape[axis] != 1] or [1]
    for window in _windows(emit, x, windows, first=2):
        elements = reshaped(emit, window, w.shape, "elements")
        products = emit("mul", w, elements, hint="products")
        total = emit("sum_reduce", products, axes=axes, hint="total")
        each.append(reshaped(emit, total, (groups, 1), "sum"))
    return [reshaped(emit, joined(emit, each, 1), op.outputs[0].shape)]


# What grows by the square of an extent is no form for one that may be large.
_KNOWN_COLUMNS = Condition(lambda op: not has_symbols(op.inputs[1].shape[-1]))


@form(
    "conv",
    _FEW_PLACES
    & _SINGLE_FILTERS
    & _KNOWN_COLUMNS
    & when.above_rank(3)
    & ~when.above_rank(4),
)
def sums_along_diagonals(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """For each row of places, a product of the columns of each filter with those of its
    group, [groups, columns of w, columns of x]. A place is the sum along a diagonal,
    which is a column with zeros after each row, so many as the distance of windows.
    """
    x, windows = _padded(emit, op.inputs[0], windows_of(op))
    w, groups, (rows, columns) = op.inputs[1], groups_of(op), windows.axes
    depth, (height, width) = prod(w.shape[1:3]), (rows.down, columns.down)
    lines = reshaped(emit, w, (groups, depth, columns.size), "lines")
    turned = emit("transpose", lines, axes=[0, 2, 1], hint="turned")
    row = (groups, 1, columns.size * x.shape[3])
    each = []
    for place in range(height):
        taken = take(emit, x, {2: rows.positions(place)})
        elements = reshaped(emit, taken, (groups, depth, x.shape[3]), "elements")
        pairs = emit("matmul", turned, elements, hint="products")
        each.append(reshaped(emit, pairs, row, "row"))
    products = joined(emit, each, 1)
    more = columns.size * columns.dilation
    longer = emit("pad", products, padding=[(0, 0), (0, 0), (0, more)], hint="longer")
    skewed = (groups, height, columns.size, x.shape[3] + columns.dilation)
    end = columns.begin + (width - 1) * columns.stride + 1
    inside = {3: Positions(columns.begin, end, columns.stride)}
    kept = take(emit, reshaped(emit, longer, skewed, "skewed"), inside)
    total = emit("sum_reduce", kept, axes=[2], hint="sums")
    return [reshaped(emit, total, op.outputs[0].shape)]


def _images_last(emit: Emitter, x: Tensor) -> Tensor:
    """[C, X..., N]; nothing moves where there is one image."""
    if x.shape[0] == 1:
        return reshaped(emit, x, (*x.shape[1:], 1), "images_last")
    axes = [*range(1, x.rank), 0]
    return emit("transpose", x, axes=axes, hint="images_last")


def _padded(emit: Emitter, x: Tensor, windows: Windows) -> tuple[Tensor, Windows]:
    """A tensor with the zeros that windows read, and the windows over that."""
    x, padding = cropped(emit, x, windows.padding)
    inside = replace(windows, up=x.shape[2:], padding=padding)
    return surrounded(emit, x, inside, "constant")


def _windows(
    emit: Emitter, x: Tensor, windows: Windows, first: int
) -> Iterator[Tensor]:
    """The elements of each window, by shared slices, from those of whole rows on."""
    slices: dict[Shape, Tensor] = {(): x}
    for place in product(*map(range, windows.down)):
        for axis in reversed(range(len(place))):
            if place[axis:] not in slices:
                positions = windows.axes[axis].positions(place[axis])
                wider = slices[place[axis + 1 :]]
                slices[place[axis:]] = take(emit, wider, {first + axis: positions})
        yield slices[place]


def _by_image(emit: Emitter, by_filter: Tensor, op: Operation) -> Tensor:
    """[filters, N, places] to the result, [N, filters, x...]."""
    count, filters, *extents = op.outputs[0].shape
    by_filter = reshaped(emit, by_filter, (filters, count, *extents), "by_filter")
    return transposed(emit, by_filter, [1, 0, *range(2, by_filter.rank)])


# ---- All images side by side ----

# They collect the elements of windows that lie side by side, and multiply matrices: ONNX
# Runtime is as fast at this as at a convolution of a network. OpenVINO takes twice as long as
# for products.
_COLLECTING = {"onnx", "tract", "tract-standard"}


@form("conv", _FEW_PLACES & _are_several(0) & _LAST_MOVES_BY_ONE, only=_COLLECTING)
def convolution_of_images_last(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[filters, places..., N]: each filter slides over all images at once."""
    (x, w), windows = op.inputs[:2], windows_of(op)
    last = _of_images_last(emit, x, w, windows, groups_of(op))
    axes = [last.rank - 1, *range(last.rank - 1)]
    return [emit("transpose", last, axes=axes)]


@form(
    "conv",
    _FEW_PLACES & when.of_one_group & _are_several(1) & _MOVES_BY_ONE,
    only={"onnx"},
)
def convolution_of_filters_last(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[N, places..., filters]: each image slides over all filters, from the last place on."""
    (x, w), windows = op.inputs[:2], _exchanged(windows_of(op))
    backward = _of_images_last(emit, w, x, windows, 1)
    ends = {axis: (0, n) for axis, n in enumerate(windows.down, start=1)}
    last = mirrored(emit, backward, ends, "last")
    axes = [0, last.rank - 1, *range(1, last.rank - 1)]
    return [emit("transpose", last, axes=axes)]


def _of_images_last(
    emit: Emitter, x: Tensor, w: Tensor, windows: Windows, groups: Dimension
) -> Tensor:
    """[filters, places..., N], of [1, C, ..., X * N]: windows go by N along the last axis."""
    x, padding = cropped(emit, x, windows.padding)
    count, channels, *extents = x.shape
    last = _images_last(emit, x)
    wide = (1, channels, *extents[:-1], extents[-1] * count)
    (begin, end), step = padding[-1], windows.dilation[-1]
    places = emit(
        "conv",
        reshaped(emit, last, wide, "side_by_side"),
        w,
        padding=[*padding[:-1], (begin * count, end * count)],
        stride=windows.stride,
        dilation=[*windows.dilation[:-1], step * count],
        groups=groups,
        hint="places",
    )
    return reshaped(emit, places, (w.shape[0], *windows.down, count), "by_filter")


# ---- Windows side by side, as of patches ----


@form("conv", when.plain & when.of_one_group & _MEETS_TILES)
def product_over_tiles(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[c, B * x...] and [B * x..., C * f...] give [c, C * f...]."""
    (x, w), (y,), axes = op.inputs[:2], op.outputs, windows_of(op).axes
    count, batch = x.shape[:2]
    apart = (count, batch, *(n for c in axes for n in (c.size, c.dilation)))
    tiles = reshaped(emit, x, apart, "tiles")
    places, elements = range(2, tiles.rank, 2), range(3, tiles.rank, 2)
    moved = emit("transpose", tiles, axes=[1, *places, 0, *elements], hint="by_place")
    lines = (prod(w.shape[1:]), count * prod(y.shape[2:]))
    patches = reshaped(emit, moved, lines, "lines")
    return [_by_image(emit, _product(emit, op, patches, are_lines=False), op)]
