"""Changes of shape, parts, and what puts parts together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import gcd, prod
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.expansions.selection import from_begin
from nnef_grad.frontends.torch.call import Call, aten, without_elements
from nnef_grad.frontends.torch.operations.masks import count_read
from nnef_grad.frontends.torch.symbols import is_number_of_data
from nnef_grad.frontends.values import converted, shape_of
from nnef_grad.graph.extents import as_number, has_symbols
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.graph.quotients import maximum, minimum
from nnef_grad.ops.windows import added_border, has_border

# ---- The same elements in another shape ----


@aten(
    "view", "view_copy", "reshape", "_unsafe_view", "_reshape_alias",
    "_reshape_alias_copy", "view_as", "reshape_as", "flatten", "unflatten", "ravel",
    "atleast_1d", "atleast_2d", "atleast_3d",
)  # fmt: skip
def reshape(call: Call, x: Any, size: Any = None, _other: Any = None) -> Any:
    """The same elements in the shape that is asked for, or that PyTorch finds."""
    # PyTorch may write an open extent as what is left by the others.
    is_asked = call.packet in _ASKING and has_symbols(shape_of(x)) and 0 not in size
    return call.reshaped(x, size if is_asked else call.result_shape)


_ASKING = ("view", "view_copy", "reshape", "_unsafe_view", "_reshape_alias")


@aten("atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence")
def _reshape_each(call: Call, tensors: Sequence[Any]) -> Any:
    return list(map(call.reshaped, tensors, call.result_shapes))


@aten("squeeze", "squeeze_copy")
def _squeeze(call: Call, x: Any, axes: Any = None) -> Any:
    shape = shape_of(x)
    rank = len(shape)
    several = np.ravel(range(rank) if axes is None else axes).tolist()
    named = {call.axis(axis, max(rank, 1)) for axis in several}
    before = call.node.args[0].meta["val"].shape
    # How many rows a mask takes, torch does not know: there may be others than one.
    gone = [
        axis
        for axis in range(rank)
        if axis in named and shape[axis] == 1 and not is_number_of_data(before[axis])
    ]
    return call("squeeze", x, axes=gone) if gone else x


@aten("unsqueeze", "unsqueeze_copy")
def _unsqueeze(call: Call, x: Any, axis: int) -> Any:
    return call("unsqueeze", x, axes=[call.axis(axis, len(shape_of(x)) + 1)])


@aten("sym_size", "sym_numel", "sym_stride", "sym_storage_offset")
def measure(call: Call, _: Any, _axis: int = 0) -> Any:
    """An extent, or another number that PyTorch knows of a tensor."""
    if (count := count_read(call)) is not None:
        return count
    if isinstance(call.fake, (list, tuple)):
        return list(map(call.reading.symbols.extent, call.fake))
    return call.reading.symbols.extent(call.fake)


@aten("_shape_as_tensor")
def _shape_as_tensor(call: Call, x: Any) -> Any:
    return np.array(shape_of(x))


# ---- Elements several times ----


@aten("expand", "expand_copy", "expand_as", "broadcast_to")
def _expand(call: Call, x: Any, _size: Any, _implicit: bool = False) -> Any:
    return call.broadcast(x, call.result_shape)


@aten("broadcast_tensors")
def _as_wide_as_all(call: Call, tensors: Sequence[Any]) -> Any:
    return [*map(call.broadcast, tensors, call.result_shapes)]


@aten("repeat", "tile")
def _repeat(call: Call, x: Any, repeats: Sequence[Any]) -> Any:
    rank = max(len(repeats), len(shape_of(x)))
    counts = [*[1] * (rank - len(repeats)), *repeats]
    wide = call.of_rank(x, rank)
    return wide if set(counts) <= {1} else call("tile", wide, repeats=counts)


@aten("repeat_interleave.self_Tensor")
def repeat_by(
    call: Call, x: Any, counts: Any, axis: int | None = None, _size: Any = None
) -> Any:
    """Each row as many times as is known for it."""
    x, axis = (flat(call, x), 0) if axis is None else (x, axis)
    along = call.axis(axis, len(shape_of(x)))
    times = np.asarray(call.known(counts, "the number of repeats"))
    return rows(
        call, x, np.repeat(np.arange(as_number(shape_of(x)[along])), times), along
    )


def flat(call: Call, x: Any) -> Any:
    """All elements on one axis."""
    return call.reshaped(x, [prod(shape_of(x))], "flat")


# ---- Another order ----


@aten(
    "transpose", "transpose_copy", "swapaxes", "swapdims", "t", "t_copy", "mT", "mH",
    "matrix_H", "adjoint",
)  # fmt: skip
def swap(call: Call, x: Any, first: int = -2, second: int = -1) -> Any:
    """Two axes change places, the last two if none are named."""
    order = [*range(len(shape_of(x)))]
    if len(order) > 1:
        order[first], order[second] = order[second], order[first]
    return call.transposed(x, order)


@aten("numpy_T")
def _transpose_all(call: Call, x: Any) -> Any:
    return call.transposed(x, [*reversed(range(len(shape_of(x))))])


@aten("permute", "permute_copy")
def _permute(call: Call, x: Any, order: Sequence[int]) -> Any:
    return call.transposed(x, [call.axis(axis, len(order)) for axis in order])


@aten("movedim", "moveaxis")
def move_axes(call: Call, x: Any, source: Any, destination: Any) -> Any:
    """Some axes at other places, the others as they follow each other."""
    rank = len(shape_of(x))
    if not rank:
        return x
    old, new = ((np.ravel(n) % rank).tolist() for n in (source, destination))
    moved = dict(zip(new, old, strict=True))
    others = (axis for axis in range(rank) if axis not in old)
    return call.transposed(
        x, [moved[a] if a in moved else next(others) for a in range(rank)]
    )


@aten("flip")
def _flip(call: Call, x: Any, axes: Sequence[int]) -> Any:
    shape = shape_of(x)
    along = [a for axis in axes if shape[a := call.axis(axis, len(shape))] != 1]
    if not along:
        return x
    ends, back = [-shape[axis] - 1 for axis in along], [-1] * len(along)
    return call("slice", x, axes=along, begin=back, end=ends, stride=back)


# ---- Parts ----


def part_between(
    call: Call, x: Any, axis: int, begin: Any, end: Any, stride: int = 1
) -> Any:
    """The part between two places along an axis; one without elements is known."""
    shape = shape_of(x)
    if (begin, end, stride) == (0, shape[axis], 1):
        return x
    if begin == end:
        return without_elements([0 if a == axis else n for a, n in enumerate(shape)])
    outer = call.reading.emitter.made_by(x, "slice")
    if outer is None or axis in outer.attributes["axes"]:
        return call.piece(x, axis, begin, end, stride=stride)
    # A slice of a slice along other axes is one.
    window: Any = outer.attributes
    strides = window["stride"] or [1] * len(window["axes"])
    own = {"axes": axis, "begin": begin, "end": end}
    both: dict[str, Any] = {name: [*window[name], value] for name, value in own.items()}
    return call("slice", outer.inputs[0], **both, stride=[*strides, stride])


def rows(call: Call, x: Any, numbers: Any, axis: int) -> Any:
    """The rows with some numbers along an axis: a slice if their distances are equal."""
    if isinstance(numbers, Tensor):
        whole = numbers
        if numbers.dtype != "integer":
            whole = call("cast", numbers, hint="numbers", dtype="integer")
        return call("gather", x, whole, axis=axis)
    shape, places = shape_of(x), np.asarray(numbers, int)
    new = [*shape[:axis], *places.shape, *shape[axis + 1 :]]
    if not places.size:
        return np.zeros(new)
    steps = {*np.diff(places.ravel()).tolist()} or {1}
    if len(steps) > 1 or 0 in steps or has_symbols(shape[axis]):
        return call("gather", x, places, axis=axis)
    (step,) = steps
    first, last = (int(places.ravel()[i]) for i in (0, -1))
    # An end before the first element is one that stays negative.
    end = last + 1 if step > 0 else (last or -int(shape[axis])) - 1
    part = part_between(call, x, axis, first, end, step)
    return call.reshaped(part, new)


@aten("slice", "slice_copy", "narrow", "narrow_copy")
def slice_(call: Call, x: Any, axis: int = 0, start: Any = None, *_: Any) -> Any:
    """Every element, or some at equal distances, between two bounds."""
    begin, step = call.known(start or 0, "the start"), call.args.get("step", 1)
    return part_between(
        call, x, *slice_bounds(call, x, axis, begin, call.result_shape, step)
    )


def slice_bounds(
    call: Call, x: Any, axis: int, start: Any, made: Shape, step: int
) -> tuple[int, Any, Any, int]:
    """The axis of a slice, its begin, its end, its stride: its extent is known."""
    along = call.axis(axis, len(shape_of(x)))
    begin = start or 0
    if isinstance(begin, int) and begin < 0:
        extent = shape_of(x)[along]
        begin = begin + extent if has_symbols(extent) else max(begin + extent, 0)
    count = made[along]
    return along, begin, begin + (count - 1) * step + 1 if count != 0 else begin, step


@aten("select", "select_copy")
def select(call: Call, x: Any, axis: int, index: Any) -> Any:
    """The row at an index."""
    along = call.axis(axis, len(shape_of(x)))
    if isinstance(index, Tensor):
        return rows(call, x, from_begin(call, index, shape_of(x)[along]), along)
    begin = index + shape_of(x)[along] if index < 0 else index
    part = part_between(call, x, along, begin, begin + 1)
    return call("squeeze", part, axes=[along])


@aten(
    "split", "split_copy", "split_with_sizes", "split_with_sizes_copy", "unsafe_split",
    "unsafe_split_with_sizes", "chunk", "unsafe_chunk",
)  # fmt: skip
def split(call: Call, x: Any, _sizes: Any, axis: int = 0) -> Any:
    """Parts of the lengths that PyTorch finds."""
    along = call.axis(axis, len(shape_of(x)))
    lengths = [shape[along] for shape in call.result_shapes]
    return _parts(call, x, along, [*accumulate(lengths, initial=0)])


@aten("tensor_split", "hsplit", "vsplit", "dsplit")
def _tensor_split(call: Call, x: Any, where: Any, axis: int = 0) -> Any:
    sides = {"vsplit": 0, "dsplit": 2, "hsplit": min(len(shape_of(x)) - 1, 1)}
    where, axis = call.known(where, "where to split"), sides.get(call.packet, axis)
    if not shape_of(where):
        return split(call, x, where, axis)
    along = call.axis(axis, len(shape_of(x)))
    extent = shape_of(x)[along]
    places = [min(max(n + extent if n < 0 else n, 0), extent) for n in where]
    return _parts(call, x, along, [0, *places, extent])


def _parts(call: Call, x: Any, axis: int, places: Sequence[Any]) -> list[Any]:
    """The parts between places along an axis."""
    ends = [*pairwise(places)]
    lengths = [end - begin for begin, end in ends]
    if len(ends) == 1 or not all(isinstance(n, int) and n > 0 for n in lengths):
        return [
            part_between(call, x, axis, begin, maximum(begin, end))
            for begin, end in ends
        ]
    unit = gcd(*lengths)
    parts: list[Any] = call("split", x, axis=axis, ratios=[n // unit for n in lengths])
    return parts


@aten("unbind", "unbind_copy")
def _unbind(call: Call, x: Any, axis: int = 0) -> Any:
    return call("unstack", x, axis=call.axis(axis, len(shape_of(x))))


@aten("unfold", "unfold_copy")
def _unfold(call: Call, x: Any, axis: int, size: int, step: int) -> Any:
    shape = shape_of(x)
    if not shape:
        return call.reshaped(x, call.result_shape)
    along = call.axis(axis, len(shape))
    count = (shape[along] - size) // step + 1
    order = [*range(along + 1), *range(along + 2, len(shape) + 1), along + 1]
    if size == step:
        whole = part_between(call, x, along, 0, count * size)
        extents = [*shape[:along], count, size, *shape[along + 1 :]]
        return call.transposed(call.reshaped(whole, extents, "windows"), order)
    if has_symbols(count):
        last = (count - 1) * step + 1
        ends = ((n, n + last) for n in range(size))
        parts = [part_between(call, x, along, *pair, stride=step) for pair in ends]
        return call("stack", parts, axis=len(shape))
    places = step * np.arange(int(count))[:, None] + np.arange(size)
    return call.transposed(rows(call, x, places, along), order)


@aten("as_strided", "as_strided_copy")
def _as_strided(
    call: Call, x: Any, size: Sequence[Any], strides: Sequence[Any], offset: Any = None
) -> Any:
    return rows(call, flat(call, x), in_memory(call, x, size, strides, offset), 0)


def in_memory(
    call: Call, x: Any, size: Sequence[Any], strides: Sequence[Any], offset: Any
) -> Array:
    """The places of the elements of a view, in a tensor that is as in memory."""
    call.require_known(shape_of(x), tuple(size), tuple(strides))
    base = call.node.args[0].meta["val"]
    is_plain = base.is_contiguous() and base.storage_offset() == 0
    call.require(is_plain, "the tensor must be contiguous: use slices and reshape")
    places = np.full([*map(int, size)], offset or 0)
    for stride, numbers in zip(strides, np.indices(places.shape), strict=True):
        places += stride * numbers
    inside = bool((places < prod(shape_of(x))).all())
    call.require(inside, "there are places outside of the tensor")
    return places


@aten("diagonal", "diagonal_copy")
def diagonal(
    call: Call, x: Any, offset: int = 0, first: int = 0, second: int = 1
) -> Any:
    """A diagonal of matrices, as a last axis: elements at equal distances."""
    last = move_axes(call, x, [first, second], [-2, -1])
    *outer, height, width = shape_of(last)
    row = call.reshaped(last, [*outer, height * width], "rows")
    begin = offset if offset > 0 else -offset * width
    end = begin + (call.result_shape[-1] - 1) * (width + 1) + 1
    return part_between(call, row, len(outer), begin, end, width + 1)


# ---- Borders ----


_REPEATING = {
    **{f"reflection_pad{n}d": "reflect" for n in "123"},
    **{f"replication_pad{n}d": "replicate" for n in "123"},
    "_pad_circular": "circular",
}


@aten("pad", "constant_pad_nd", *_REPEATING)
def pad(call: Call, x: Any, pads: Sequence[Any], *_: Any) -> Any:
    """A border along the last axes, of a number or of what is inside. The sides are given
    from the last one; a negative side is cut off.
    """
    mode = call.args.get("mode", _REPEATING.get(call.packet, "constant"))
    value = call.args.get("value")
    still = [(0, 0)] * (len(shape_of(x)) - len(pads) // 2)
    sides = [*still, *reversed([*zip(pads[::2], pads[1::2], strict=True)])]
    for axis, (before, after) in enumerate(sides):
        end = shape_of(x)[axis] + minimum(after, 0)
        x = part_between(call, x, axis, -minimum(before, 0), end)
    padding = added_border(tuple(sides))
    if mode == "circular":
        return _wrapped(call, x, padding)
    number = float(converted(value or 0.0, "scalar"))
    if not has_border(padding):
        return x
    return call("pad", x, padding=padding, border=mode, value=number)


def _wrapped(call: Call, x: Any, padding: Sequence[tuple[Any, Any]]) -> Any:
    """With what is at the other end on each side."""
    for axis, (before, after) in enumerate(padding):
        extent = shape_of(x)[axis]
        ends = [(extent - before, extent), (0, extent), (0, after)]
        parts = [part_between(call, x, axis, *end) for end in ends if end[0] != end[1]]
        x = call.joined(parts, axis)
    return x


# ---- Several tensors ----


@aten("cat", "concat", "concatenate")
def concat(call: Call, tensors: Sequence[Any], axis: int = 0) -> Any:
    """One after the other along an axis; some may have no elements."""
    dtype = call.result_dtype
    parts = [call.typed(x, dtype) for x in tensors if 0 not in shape_of(x)]
    along = call.axis(axis, len(call.result_shape))
    return call.joined(parts, along)


@aten("stack")
def _stack(call: Call, tensors: Sequence[Any], axis: int = 0) -> Any:
    parts = [call.typed(x, call.result_dtype) for x in tensors]
    return call("stack", parts, axis=call.axis(axis, len(call.result_shape)))


@aten("cartesian_prod")
def _cartesian_product(call: Call, tensors: Sequence[Any]) -> Any:
    extents = tuple(shape_of(x)[0] for x in tensors)
    columns = []
    for place, x in enumerate(tensors):
        own = [n if axis == place else 1 for axis, n in enumerate(extents)]
        wide = call.broadcast(call.reshaped(x, own), extents)
        columns.append(call.reshaped(wide, [prod(extents), 1]))
    return call.reshaped(call.joined(columns, 1), call.result_shape)
