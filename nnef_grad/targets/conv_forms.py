"""Forms of convolutions, beside the operation as it is.

The gradient of a filter is a convolution with few windows, each nearly as large as the
input. Runtimes are made for the contrary. So the elements of a window are taken first:
with [N, C, X...] and filters of depth D, the elements of one window of each group,

    window = slice(x, ...)                                [N, D], for one place
    patches = concat([window, ...], axis = 1)             [N * places, D]
    product = matmul(rows, patches, transposeB = true)    [filters, N * places]

A deconvolution whose windows go step by step is a convolution with the filter turned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Integers, Operation, Shape, Tensor
from nnef_grad.graph.learning import equal
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.shape import Positions, reshaped, transposed
from nnef_grad.ops.windows import AxisWindows, Windows, windows_of
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition
from nnef_grad.targets.conv import cropped, turned_convolution, turned_filter
from nnef_grad.targets.forms import form
from nnef_grad.targets.maxima import interleaved
from nnef_grad.targets.shape import joined, take
from nnef_grad.targets.windows import surrounded

# A filter with more elements than this makes too many operations; one with open extents may
# not be possible otherwise.
MOST_PLACES = 128
MOST_OF_OPEN = 2048
# A result with more phases takes too many convolutions.
MOST_PHASES = 16

# Without a bias, over one to three axes.
_PLAIN = (
    when.touching
    & ~when.biased
    & ~when.repeating
    & ~when.no_space
    & ~when.above_rank(5)
)
_FEW_PLACES = _PLAIN & Condition(
    lambda op: (
        nominal(prod(windows_of(op).down))
        <= (MOST_OF_OPEN if has_symbols(op.inputs[1].shape) else MOST_PLACES)
    )
)
_ONE_GROUP = Condition(lambda op: groups_of(op) == 1)
# What is joined for the one product of each group is no more than the result: the elements of
# all windows, or of the filters at all places. Of many groups it would be there at once.
_SMALL_WINDOWS = _ONE_GROUP | Condition(
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
_FEW_FILTERS = _ONE_GROUP & Condition(
    lambda op: nominal(2 * op.inputs[1].shape[0]) <= nominal(op.inputs[0].shape[0])
)
_SINGLE_FILTERS = Condition(
    lambda op: op.inputs[0].shape[0] == 1 and op.inputs[1].shape[0] == groups_of(op)
)


def _each_axis(holds: Callable[[AxisWindows], bool]) -> Condition:
    """A condition on the windows along all of the axes."""
    return Condition(lambda op: all(map(holds, windows_of(op).axes)))


_STEP_BY_STEP = _each_axis(lambda c: c.stride == 1 or c.down == 1)
_FEW_PHASES = _each_axis(lambda c: c.stride <= c.up) & Condition(
    lambda op: 1 < prod(windows_of(op).stride) <= MOST_PHASES
)
_POINTWISE = _each_axis(lambda c: c.size == c.stride == 1 and c.padding == (0, 0))
_MOVES_BY_ONE = _each_axis(lambda c: c.stride == c.dilation == 1)
# The windows of a deconvolution cover its result, each element once.
_ARE_TILES = _each_axis(
    lambda c: c.dilation == 1 and c.size == c.stride and c.up == c.size * c.down
)

# A convolution meets the same element of each tile: the gradient of such a filter.
_MEETS_TILES = _each_axis(
    lambda c: (
        c.stride == 1
        and c.padding == (0, 0)
        and c.down == c.dilation
        and c.up == c.size * c.dilation
    )
)

# ---- Few large windows ----


@form("conv", _FEW_PLACES & _MOVES_BY_ONE & (~_ONE_GROUP | _FEW_FILTERS))
def product_for_each_shift(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """A product of whole images with the filters at each place, among zeros. In a gradient
    for each example the filters are what comes last: nothing is made before.
    """
    lines, shifted = _shifted(emit, op)
    return [_of_places(emit, op, ((rows, lines) for rows in shifted))]


@form(
    "conv",
    _FEW_PLACES & _MOVES_BY_ONE & (~_ONE_GROUP & _SMALL_SHIFTS | _FEW_FILTERS),
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
    around = tuple(
        (c.down - 1 - c.padding[0], c.down - 1 - c.padding[1]) for c in windows.axes
    )
    moved = replace(windows, up=windows.size, size=windows.up, padding=around)
    outer, images = _by_group(emit, op)
    depth = w.shape[1] * prod(windows.up)
    lines = reshaped(emit, images, (*outer, x.shape[0], depth), "lines")
    wide, moved = _padded(emit, w, moved)
    shape = (*outer, w.shape[0] // groups_of(op), depth)
    each = reversed([*_windows(emit, wide, moved, first=2)])
    return lines, (reshaped(emit, shifted, shape, "rows") for shifted in each)


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


@form("conv", _FEW_PLACES & _ONE_GROUP)
def product_with_images_last(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[C, X..., N]: slices of long runs, and a small result to transpose."""
    x, windows = _padded(emit, op.inputs[0], windows_of(op))
    count, depth = x.shape[0], prod(op.inputs[1].shape[1:])
    last = emit("transpose", x, axes=[*range(1, x.rank), 0], hint="last")
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


@form("conv", _FEW_PLACES & _ONE_GROUP & when.above_rank(3))
def rows_as_channels(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With the rows of a window as channels, and images along the last axis."""
    x, windows = _padded(emit, op.inputs[0], windows_of(op))
    w, (rows, *others) = op.inputs[1], windows.axes
    last = emit("transpose", x, axes=[*range(1, x.rank), 0], hint="last")
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


# ---- Windows side by side, as of patches ----


@form("deconv", _PLAIN & _ONE_GROUP & _ARE_TILES)
def product_for_each_tile(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[B * x..., c] and [c, C * f...] give [B, x..., C, f...], the tiles."""
    (x, w), (y,), half = op.inputs[:2], op.outputs, op.outputs[0].rank - 2
    count, filters, *places = x.shape
    last = emit("transpose", x, axes=[0, *range(2, x.rank), 1], hint="channels_last")
    lines = reshaped(emit, last, (count * prod(places), filters), "lines")
    rows = reshaped(emit, w, (filters, prod(w.shape[1:])), "rows")
    by_place = emit("matmul", lines, rows, hint="product")
    tiles = reshaped(emit, by_place, (count, *places, *w.shape[1:]), "tiles")
    order = [axis for i in range(1, 1 + half) for axis in (i, 1 + half + i)]
    moved = emit("transpose", tiles, axes=[0, 1 + half, *order], hint="side_by_side")
    return [reshaped(emit, moved, y.shape)]


@form("conv", _PLAIN & _ONE_GROUP & _MEETS_TILES)
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


# ---- The way back through a filter ----


@form("deconv", _PLAIN & _STEP_BY_STEP)
def convolution_with_turned_filter(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The sums that the elements of the result receive."""
    return [turned_convolution(emit, op, windows_of(op))]


@form("deconv", _PLAIN & _FEW_PHASES)
def convolution_for_each_phase(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """With a stride, elements at its distance are sums with one part of the filter."""
    windows = windows_of(op)
    parts = {
        place: _phase(emit, op, windows, place)
        for place in product(*map(range, windows.stride))
    }
    for axis in reversed(range(len(windows.axes))):
        lines: dict[Integers, list[Tensor]] = {}
        for place, part in parts.items():
            lines.setdefault(place[:axis], []).append(part)
        parts = {key: interleaved(emit, line, 2 + axis) for key, line in lines.items()}
    inside = {2 + axis: Positions(0, up) for axis, up in enumerate(windows.up)}
    return [take(emit, parts[()], inside)]


class _Taps(NamedTuple):
    """The positions of a filter that a phase meets, and their convolution."""

    kept: Positions
    padding: tuple[int, int]
    dilation: int


def _taps(axis: AxisWindows, phase: int) -> _Taps | None:
    """None where no window reaches an element of the phase.

    The element at stride * m + phase is the sum over the positions k in the windows at
    m + offset, where stride * offset = phase - begin - dilation * k.
    """
    distances = ((k, phase - axis.begin - axis.dilation * k) for k in range(axis.size))
    # By how much computed padding moves the phases may not be known.
    offsets = {k: n // axis.stride for k, n in distances if equal(n % axis.stride, 0)}
    if not offsets:
        return None
    (low, *_), (*_, high) = offsets, offsets
    first, end = offsets[high], offsets[low] + -(-axis.up // axis.stride)
    if end <= 0 or first >= axis.down:
        return None
    common = gcd(axis.stride, axis.dilation)
    kept = Positions(low, high + 1, axis.stride // common)
    return _Taps(kept, (-first, end - axis.down), axis.dilation // common)


def _phase(
    emit: Emitter,
    op: Operation,
    windows: Windows,
    place: Integers,
) -> Tensor:
    """The elements at a phase along each axis."""
    (x, w), groups = op.inputs[:2], groups_of(op)
    taps = [_taps(*pair) for pair in zip(windows.axes, place, strict=True)]
    reached = [tap for tap in taps if tap is not None]
    if len(reached) < len(taps):
        extents = (-(-c.up // c.stride) for c in windows.axes)
        shape = (x.shape[0], w.shape[1] * groups, *extents)
        return emit("constant", shape=shape, value=[0.0], hint="zeros")
    x, padding = cropped(emit, x, tuple(tap.padding for tap in reached))
    return emit(
        "conv",
        x,
        turned_filter(emit, w, groups, [tap.kept for tap in reached]),
        padding=padding,
        dilation=[tap.dilation if tap.kept.count > 1 else 1 for tap in reached],
        groups=groups,
        hint="phase",
    )


@form("deconv", _PLAIN & _POINTWISE)
def pixel_product(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """[groups, c / groups, C / groups] and [B, groups, c / groups, x], without ones."""
    (x, w), groups, (y,) = op.inputs[:2], groups_of(op), op.outputs
    batch, filters = x.shape[:2]
    each, channels = filters // groups, w.shape[1]
    outer = tuple(extent for extent in (batch, groups) if extent != 1)
    columns = reshaped(emit, x, (*outer, each, prod(x.shape[2:])), "columns")
    inner: Shape = (groups,) if groups > 1 else ()
    rows = reshaped(emit, w, (*inner, each, channels), "rows")
    if not outer:
        pixels = emit("matmul", rows, columns, transposeA=True, hint="product")
        return [reshaped(emit, pixels, y.shape)]
    last = len(inner)
    turned = emit("transpose", rows, axes=[*range(last), last + 1, last], hint="turned")
    missing = (1,) * (columns.rank - turned.rank)
    aligned = reshaped(emit, turned, (*missing, *turned.shape), "aligned")
    return [reshaped(emit, emit("matmul", aligned, columns, hint="product"), y.shape)]


# ---- Products as correlations ----

# A correlation with a larger result was measured to be slower than a product.
_LARGEST_RESULT = 2**20
_ARE_ROWS = (
    when.set_to(transposeA=False, transposeB=True)
    & ~when.above_rank(2)
    & Condition(lambda op: nominal(prod(op.outputs[0].shape)) <= _LARGEST_RESULT)
)


@form("matmul", _ARE_ROWS)
def correlation_of_rows(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Each row of the one is a filter for each row of the other."""
    images, filters = (
        reshaped(emit, x, (x.shape[0], 1, x.shape[1]), name)
        for x, name in zip(op.inputs, ("images", "filters"), strict=True)
    )
    rows = emit("conv", images, filters, padding=[(0, 0)], hint="correlation")
    return [reshaped(emit, rows, op.outputs[0].shape)]
