"""Forms of deconvolutions, and of products, beside the operation as it is.

A deconvolution whose windows go step by step is a convolution with the filter turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.ir import Integers, Operation, Shape, Tensor
from nnef_grad.graph.learning import equal
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.shape import Positions, reshaped
from nnef_grad.ops.windows import AxisWindows, Windows, windows_of
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition
from nnef_grad.targets.conv import cropped, turned_convolution, turned_filter
from nnef_grad.targets.forms import form
from nnef_grad.targets.maxima import interleaved
from nnef_grad.targets.shape import take

# A result with more phases takes too many convolutions.
_MOST_PHASES = 16

_STEP_BY_STEP = when.on_each_axis(lambda c: c.stride == 1 or c.down == 1)
_FEW_PHASES = when.on_each_axis(lambda c: c.stride <= c.up) & Condition(
    lambda op: 1 < prod(windows_of(op).stride) <= _MOST_PHASES
)
_POINTWISE = when.on_each_axis(
    lambda c: c.size == c.stride == 1 and c.padding == (0, 0)
)
# The windows of a deconvolution cover its result, each element once.
_ARE_TILES = when.on_each_axis(
    lambda c: c.dilation == 1 and c.size == c.stride and c.up == c.size * c.down
)

# ---- Windows side by side, as of patches ----


@form("deconv", when.plain & when.of_one_group & _ARE_TILES)
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


# ---- The way back through a filter ----


@form("deconv", when.plain & _STEP_BY_STEP)
def convolution_with_turned_filter(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """The sums that the elements of the result receive."""
    return [turned_convolution(emit, op, windows_of(op))]


@form("deconv", when.plain & _FEW_PHASES)
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


@form("deconv", when.plain & _POINTWISE)
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
