"""The table: how the operands and attributes of each operation are drawn.

A row is a function of the graph in the making and the operation's name. What does not
fit is no matter: the operation is rejected, and another is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from . import windows
from .domains import OPERANDS
from .draw import EXTENTS, RANK, Draw, Rejected, Value, meet
from .graphs import Shape

Make = Callable[[Draw, str], Any]


class Row(NamedTuple):
    """Alike operations; the weight is that of each of them."""

    names: str
    make: Make
    weight: float = 1.0


def _domain(name: str, index: int, operand: Any, draw: Draw) -> Any:
    domains = OPERANDS.get(name, ())
    return draw.within(domains[index], operand) if index < len(domains) else operand


# ---- Element by element ----


def unary(draw: Draw, name: str) -> None:
    draw.emit(name, _domain(name, 0, draw.tensor(), draw))


def with_attributes(**ranges: tuple[float, float]) -> Make:
    def make(draw: Draw, name: str) -> None:
        drawn = {key: draw.number(*limits) for key, limits in ranges.items()}
        optional = name in ("elu", "selu")
        draw.emit(name, draw.tensor(), **(draw.kept(**drawn) if optional else drawn))

    return make


EXPONENTS = (2.0, 3.0, -1.0, 1.0, 0.0, -2.0, 0.5, -0.5, 1.5)


def binary(draw: Draw, name: str) -> None:
    """Two operands that meet, in either order, or the same one twice."""
    x = draw.tensor()
    operands = [x, x if draw.chance(0.08) else draw.partner(x.shape)]
    draw.random.shuffle(operands)
    if name == "pow" and draw.chance(0.4):
        draw.emit(name, x, draw.pick(EXPONENTS))
        return
    draw.emit(name, *(_domain(name, i, x, draw) for i, x in enumerate(operands)))


def truth(draw: Draw, shape: Shape) -> Any:
    """A logical tensor that meets a shape: one of the graph, or a comparison."""
    if draw.chance(0.4):
        return draw.partner(shape, dtype="logical")
    x = draw.tensor(where=lambda s: meet(s, shape) is not None)
    found = draw.emit(draw.pick(("lt", "gt", "le", "ge", "ne")), x, draw.literal())
    return draw.emit("not", found) if draw.chance(0.2) else found


def logic(draw: Draw, name: str) -> None:
    x = truth(draw, draw.shape(most=3))
    if name == "not":
        draw.emit(name, x)
        return
    literal = draw.chance(0.1)
    draw.emit(name, x, draw.chance(0.5) if literal else truth(draw, x.shape))


def select(draw: Draw, name: str) -> None:
    x = draw.any_type()
    y = draw.partner(x.shape, dtype=x.dtype)
    both = meet(x.shape, y.shape if isinstance(y, Value) else ())
    if both is None:
        raise Rejected
    condition = draw.chance(0.5) if draw.chance(0.03) else truth(draw, both)
    draw.emit(name, condition, *draw.some([x, y], 2))


def clamp(draw: Draw, name: str) -> None:
    x = draw.tensor()
    a = draw.partner(x.shape)
    b = draw.partner(x.shape, *([a.shape] if isinstance(a, Value) else []))
    draw.emit(name, x, a, b)


def prelu(draw: Draw, name: str) -> None:
    x = draw.tensor()
    draw.emit(name, x, draw.partner(x.shape))


def copy_n(draw: Draw, name: str) -> None:
    draw.emit(name, draw.any_type(), times=draw.between(1, 3))


def add_n(draw: Draw, name: str) -> None:
    x = draw.tensor()
    more = [draw.fitting(x.shape) for _ in range(draw.between(0, 2))]
    if draw.chance(0.3):
        more.append(draw.partner(x.shape))
    draw.emit(name, draw.some([x, *more, *more[:1]], 1 + len(more)))


def cast(draw: Draw, name: str) -> None:
    x = draw.any_type()
    draw.emit(name, x, dtype=draw.pick(("scalar", "scalar", "integer", "logical")))


def update(draw: Draw, name: str) -> None:
    updated = [s.inputs[0] for s in draw.statements if s.operation == name]
    variables = [s.outputs[0] for s in draw.statements if s.operation == "variable"]
    free = [v for v in variables if v not in updated]
    if not free:
        raise Rejected
    variable = draw.values[draw.pick(free)]
    draw.emit(name, variable, draw.fitting(variable.shape, variable.dtype))


def source(draw: Draw, name: str) -> None:
    dtype = draw.pick(("scalar", "scalar", "integer", "logical"))
    draw.fresh(draw.shape(volume=12 if name == "constant" else 60), dtype, source=name)


# ---- Reductions and matrix products ----


def axes_of(draw: Draw, rank: int, least: int = 0) -> list[int]:
    return draw.some(range(rank), least if draw.chance(0.1) else 1)


def reduction(draw: Draw, name: str) -> None:
    dtype = "logical" if name in ("any_reduce", "all_reduce") else "scalar"
    least = 1 if name.startswith("arg") else 0
    x = truth(draw, draw.shape()) if dtype == "logical" else draw.tensor(least)
    more = draw.kept(normalize=draw.chance(0.6)) if name == "sum_reduce" else {}
    draw.emit(name, x, axes=axes_of(draw, x.rank), **more)


def softmax(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    given = x.rank < 2 or draw.chance(0.7)
    draw.emit(name, x, **({"axes": axes_of(draw, x.rank, 1)} if given else {}))


def matmul(draw: Draw, name: str) -> None:
    a = draw.tensor(2, 4)
    flags = [draw.chance(0.4), draw.chance(0.4)]
    *batch, rows, columns = a.shape
    inner, outer = rows if flags[0] else columns, draw.between(1, 4)
    matrix = (outer, inner) if flags[1] else (inner, outer)
    b = draw.fitting((*_batch(draw, batch), *matrix))
    given = zip(("transposeA", "transposeB"), flags, strict=True)
    draw.emit(name, a, b, **{k: v for k, v in given if v or draw.chance(0.2)})


def _batch(draw: Draw, extents: Sequence[int]) -> list[int]:
    """What can be broadcast with some extents, of the same rank."""
    ones = [1 if draw.chance(0.3) else extent for extent in extents]
    return [
        draw.pick(EXTENTS) if whole == 1 and draw.chance(0.5) else one
        for whole, one in zip(extents, ones, strict=True)
    ]


def linear(draw: Draw, name: str) -> None:
    x = draw.tensor(2, 2) if draw.chance(0.8) else draw.tensor(2, 4)
    outer = draw.between(1, 4)
    kernel = draw.fitting((*x.shape[:-2], outer, x.shape[-1]))
    bias = draw.pick([(), (1,), (1, 1), (*(1,) * (x.rank - 1), outer)])
    draw.emit(name, x, kernel, *_bias(draw, bias))


def _bias(draw: Draw, shape: Shape) -> list[Any]:
    """A bias of a shape, a literal, or none at all."""
    choice = draw.random.random()
    if choice < 0.15:
        return []
    return [draw.literal() if choice < 0.3 else draw.fitting(shape)]


# ---- Convolutions ----


def channel_bias(draw: Draw, channels: int, rank: int) -> list[Any]:
    whole = (1, channels, *(1,) * (rank - 2))
    shapes: list[Shape] = [(1, channels), (1, channels), whole, (), (1,), (1, 1)]
    return _bias(draw, draw.pick(shapes))


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def conv(draw: Draw, name: str) -> None:
    x = draw.tensor(3)
    axes = windows.basic(draw, x.shape[2:])
    groups = draw.pick(divisors(x.shape[1]))
    filters = groups * draw.between(1, 2)
    kernel = draw.fitting((filters, x.shape[1] // groups, *sizes(axes)))
    bias = channel_bias(draw, filters, x.rank)
    zero = groups == x.shape[1] and draw.chance(0.5)
    attributes = windows.basic_attributes(draw, axes, windows.ZEROS)
    draw.emit(name, x, kernel, *bias, **attributes, **_groups(draw, groups, zero))


def deconv(draw: Draw, name: str) -> None:
    x = draw.tensor(3)
    axes = windows.reverse(draw, x.shape[2:])
    groups = draw.pick(divisors(x.shape[1]))
    inside = draw.between(1, 2)
    channels = groups * inside
    kernel = draw.fitting((x.shape[1], inside, *sizes(axes)))
    bias = channel_bias(draw, channels, x.rank)
    attributes = windows.reverse_attributes(draw, axes, windows.ZEROS)
    attributes |= windows.output_shape(draw, axes, x.shape[0], channels)
    # 0 stands for a group for each channel of the input, unless the shape says more.
    told = "output_shape" in attributes or groups == x.shape[1]
    zero = inside == 1 and told and draw.chance(0.5)
    draw.emit(name, x, kernel, *bias, **attributes, **_groups(draw, groups, zero))


def _groups(draw: Draw, groups: int, zero: bool) -> dict[str, Any]:
    if zero or groups > 1 or draw.chance(0.2):
        return {"groups": 0 if zero else groups}
    return {}


def separable_conv(draw: Draw, name: str) -> None:
    x = draw.tensor(3)
    axes = windows.basic(draw, x.shape[2:])
    middle = x.shape[1] * draw.between(1, 2)
    groups = draw.pick(divisors(middle))
    filters = groups * draw.between(1, 2)
    plane = draw.fitting((middle, 1, *sizes(axes)))
    point = draw.fitting((filters, middle // groups, *(1 for _ in axes)))
    bias = channel_bias(draw, filters, x.rank)
    attributes = windows.basic_attributes(draw, axes, windows.ZEROS)
    draw.emit(
        name, x, plane, point, *bias, **attributes, **_groups(draw, groups, False)
    )


def separable_deconv(draw: Draw, name: str) -> None:
    x = draw.tensor(3)
    axes = windows.reverse(draw, x.shape[2:])
    groups = draw.pick(divisors(x.shape[1]))
    middle = groups * draw.between(1, 2)
    point = draw.fitting((x.shape[1], middle // groups, *(1 for _ in axes)))
    plane = draw.fitting((middle, 1, *sizes(axes)))
    bias = channel_bias(draw, middle, x.rank)
    attributes = windows.reverse_attributes(draw, axes, windows.ZEROS)
    attributes |= windows.output_shape(draw, axes, x.shape[0], middle)
    draw.emit(
        name, x, plane, point, *bias, **attributes, **_groups(draw, groups, False)
    )


# ---- Sliding windows ----


def spatial(draw: Draw, rank: int) -> int:
    """Over how many of the first axes windows do not move, or nothing is padded."""
    return draw.pick((0, 1, 2, 2)) if rank > 2 else draw.between(0, rank - 1)


def sizes(axes: Sequence[windows.Axis]) -> list[int]:
    return [axis.size for axis in axes]


def box_normalize(draw: Draw, name: str) -> dict[str, Any]:
    return draw.kept(normalize=draw.chance(0.7)) if name.endswith("box") else {}


def pool(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    axes = windows.basic(draw, x.shape, spatial(draw, x.rank))
    attributes = windows.basic_attributes(draw, axes, windows.ANY)
    attributes |= box_normalize(draw, name)
    draw.emit(name, x, size=sizes(axes), **attributes)


def debox(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    axes = windows.reverse(draw, x.shape, spatial(draw, x.rank))
    attributes = windows.reverse_attributes(draw, axes, windows.ANY)
    attributes |= windows.output_shape(draw, axes) | box_normalize(draw, name)
    draw.emit(name, x, size=sizes(axes), **attributes)


def indices(draw: Draw, down: Shape, below: int) -> Value:
    values = torch.randint(below, down, generator=draw.torch)
    return draw.fresh(down, "integer", values)


def sample(draw: Draw, name: str) -> None:
    """The index is that of a maximum, or any."""
    x = draw.tensor(1)
    axes = windows.basic(draw, x.shape, spatial(draw, x.rank))
    attributes = windows.basic_attributes(draw, axes, windows.ZEROS)
    attributes |= {"size": sizes(axes)}
    if draw.chance(0.6):
        index = draw.emit("argmax_pool", draw.fitting(x.shape), **attributes)
    else:
        down = tuple(axis.down for axis in axes)
        index = indices(draw, down, math.prod(sizes(axes)))
    draw.emit(name, x, index, **attributes)


def desample(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    axes = windows.reverse(draw, x.shape, spatial(draw, x.rank))
    attributes = {"size": sizes(axes), **windows.attributes(draw, axes)}
    if draw.chance(0.6):
        larger = draw.fitting(tuple(axis.up for axis in axes))
        index = draw.emit("argmax_pool", larger, **attributes)
    else:
        index = indices(draw, x.shape, math.prod(sizes(axes)))
    draw.emit(name, x, index, **attributes, **windows.output_shape(draw, axes))


def downsample(draw: Draw, name: str) -> None:
    x = draw.tensor(3)
    draw.emit(name, x, factor=[draw.pick(divisors(extent)) for extent in x.shape[2:]])


def upsample(draw: Draw, name: str) -> None:
    x = draw.tensor(3)
    factor = [draw.pick((1, 2, 2, 3)) for _ in x.shape[2:]]
    draw.emit(name, x, factor=factor, **multilinear(draw, name))


METHODS = ("symmetric", "asymmetric", "aligned")
BORDERS = ("constant", *windows.REPEATING)


def multilinear(draw: Draw, name: str) -> dict[str, Any]:
    if name != "multilinear_upsample":
        return {}
    return draw.kept(method=draw.pick(METHODS), border=draw.pick(BORDERS))


# ---- Normalization ----


def local(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    size = [draw.pick((1, 1, 2, 3)) for _ in x.shape]
    bias, epsilon = draw.number(0.1, 1.0), draw.pick((0.0, 0.01, 0.5, 20.0))
    attributes = {
        "local_response_normalization": draw.kept(
            alpha=draw.number(0.1, 1.0), beta=draw.number(0.3, 1.0), bias=bias + 0.5
        ),
        "local_mean_normalization": {},
    }.get(name, draw.kept(bias=bias, epsilon=epsilon))
    draw.emit(name, x, size=size, **attributes)


def norm(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    attributes = draw.kept(
        bias=draw.number(0.0, 1.0), epsilon=draw.pick((0.0, 0.01, 0.5, 20.0))
    )
    draw.emit(name, x, axes=axes_of(draw, x.rank), **attributes)


def batch_normalization(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    mean, variance, offset, scale = (parameter(draw, x.shape) for _ in range(4))
    variance = draw.within("positive", variance)
    operands = (x, mean, variance, offset, scale)
    draw.emit(name, *operands, epsilon=draw.pick((0.0, 0.001, 0.5)))


def parameter(draw: Draw, shape: Shape) -> Any:
    """What is broadcast to a shape: one value for each channel as a rule."""
    if draw.chance(0.1):
        return draw.literal()
    if draw.chance(0.6):
        return draw.fitting((1, *shape[1:2])[: len(shape)])
    ones = tuple(1 if draw.chance(0.5) else extent for extent in shape)
    return draw.fitting(ones[: draw.between(0, len(ones))])


# ---- Shapes ----


def factors(draw: Draw, volume: int) -> list[int]:
    """Extents of a given volume."""
    found: list[int] = []
    while volume > 1 and len(found) < 3:
        found.append(draw.pick(divisors(volume)))
        volume //= found[-1]
    found += [volume] if volume > 1 else []
    draw.random.shuffle(found)
    return found


def reshape(draw: Draw, name: str) -> None:
    x = draw.any_type()
    start = draw.between(0, x.rank) if draw.chance(0.5) else 0
    end = draw.between(start, x.rank) if draw.chance(0.5) else x.rank
    count = -1 if end == x.rank and draw.chance(0.7) else end - start
    given = draw.kept(axis_start=start, axis_count=count)
    given |= {"axis_start": start} if start else {}
    given |= {"axis_count": count} if count != -1 else {}
    draw.emit(name, x, shape=_items(draw, x.shape[start:end]), **given)


def _items(draw: Draw, affected: Shape) -> list[int]:
    """New extents for some: 0 keeps an extent, -1 takes what remains."""
    items = factors(draw, math.prod(affected))
    same = [i for i, n in enumerate(items[: len(affected)]) if n == affected[i]]
    for index in same:
        items[index] = 0 if draw.chance(0.5) else items[index]
    if items and draw.chance(0.4):
        items[draw.between(0, len(items) - 1)] = -1
    return items


def squeeze(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    if not ones:
        raise Rejected
    draw.emit(name, x, axes=draw.some(ones, 1))


def unsqueeze(draw: Draw, name: str) -> None:
    x = draw.any_type(most=RANK - 1)
    rank = draw.between(x.rank + 1, RANK)
    draw.emit(name, x, axes=draw.random.sample(range(rank), rank - x.rank))


def transpose(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    count = x.rank if draw.chance(0.7) else draw.between(0, x.rank)
    draw.emit(name, x, axes=draw.random.sample(range(count), count))


def split(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    axis = draw.between(0, x.rank - 1)
    total = draw.pick(divisors(x.shape[axis]))
    ratios = [draw.between(1, total)]
    while sum(ratios) < total:
        ratios.append(draw.between(1, total - sum(ratios)))
    draw.emit(name, x, axis=axis, ratios=ratios)


def concat(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    axis = draw.between(0, x.rank - 1)

    def joins(shape: Shape) -> bool:
        other = (*shape[:axis], x.shape[axis], *shape[axis + 1 :])
        return len(shape) == x.rank and other == x.shape

    more = [draw.tensor(where=joins, dtype=x.dtype) for _ in range(draw.between(0, 2))]
    draw.emit(name, draw.some([x, *more], 1 + len(more)), axis=axis)


def stack(draw: Draw, name: str) -> None:
    x = draw.any_type(most=RANK - 1)
    more = [draw.fitting(x.shape, x.dtype) for _ in range(draw.between(0, 2))]
    draw.emit(name, draw.some([x, *more], 1 + len(more)), axis=draw.between(0, x.rank))


def unstack(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    draw.emit(name, x, axis=draw.between(0, x.rank - 1))


def slice_(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    axes = axes_of(draw, x.rank)
    steps = [draw.pick((1, 1, 2, 3, -1, -2)) for _ in axes]
    steps = [1] * len(axes) if draw.chance(0.5) else steps
    old = set(steps) <= {1}
    ends = [
        _ends(draw, x.shape[a], step, old) for a, step in zip(axes, steps, strict=True)
    ]
    attributes = {"stride": steps} if not old or draw.chance(0.3) else {}
    begin, end = [first for first, _ in ends], [last for _, last in ends]
    draw.emit(name, x, axes=axes, begin=begin, end=end, **attributes)


def _ends(draw: Draw, extent: int, step: int, old: bool) -> tuple[int, int]:
    """Begin and end in any of the ways to write them: from the end, or beyond it."""
    low = draw.between(0, extent - 1)
    high = draw.between(low, extent - 1)
    if step < 0:
        first = high if draw.chance(0.5) else high - extent
        return first, low - 1 if low > 0 else -1 - extent
    whole = high == extent - 1
    last = draw.pick([extent, extent + 2, *[0] * old]) if whole else high + 1
    last = last - extent if 0 < last < extent and draw.chance(0.3) else last
    return (low if draw.chance(0.6) else low - extent), last


def pad(draw: Draw, name: str) -> None:
    x = draw.tensor(1)
    still = spatial(draw, x.rank)
    padding = [(0, 0)] * still + [
        (draw.pick(windows.PADDING), draw.pick(windows.PADDING))
        for _ in x.shape[still:]
    ]
    extents = [
        n + before + after for n, (before, after) in zip(x.shape, padding, strict=True)
    ]
    if min(extents) < 1:
        raise Rejected
    value = draw.kept(value=draw.literal()) if draw.chance(0.5) else {}
    outside = [(n, max(sides)) for n, sides in zip(x.shape, padding, strict=True)]
    border = windows.border(draw, windows.ZEROS, outside)
    draw.emit(name, x, padding=padding, **border, **value)


def tile(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    draw.emit(name, x, repeats=[draw.pick((1, 1, 2, 3)) for _ in x.shape])


def gather(draw: Draw, name: str) -> None:
    x = draw.any_type(1)
    axis = draw.between(0, x.rank - 1)
    draw.emit(name, x, _positions(draw, x.shape[axis]), **_axis(draw, axis))


def _axis(draw: Draw, axis: int) -> dict[str, int]:
    return {"axis": axis} if axis or draw.chance(0.5) else {}


def _positions(draw: Draw, extent: int) -> Any:
    """Indices below an extent: some of the graph, the place of a maximum, or any."""
    known = draw.existing(lambda v: _are_below(draw, v, extent), "integer")
    choice = draw.random.random()
    if known and choice < 0.5:
        return known
    if choice < 0.6:
        return draw.between(0, extent - 1)
    if choice < 0.8:
        return _place_of_extremum(draw, extent)
    return indices(draw, draw.shape(most=3, volume=8), extent)


def _are_below(draw: Draw, value: Value, extent: int) -> bool:
    numbers = draw.worlds[0][value.name]
    return int(numbers.min()) >= 0 and int(numbers.max()) < extent


def _place_of_extremum(draw: Draw, extent: int) -> Any:
    x = draw.tensor(1, where=lambda shape: any(n <= extent for n in shape))
    axes = [axis for axis, n in enumerate(x.shape) if n <= extent]
    name = draw.pick(("argmax_reduce", "argmin_reduce"))
    return draw.emit(name, x, axes=[draw.pick(axes)])


# ---- Regions of interest ----


def regions(draw: Draw, x: Value) -> tuple[Value, Value]:
    """Some regions inside of the spatial extents, and the items they lie in."""
    count = draw.between(1, 3)
    extents = torch.tensor(x.shape[2:], dtype=torch.float64)
    shares = torch.rand(
        (2, count, x.rank - 2), generator=draw.torch, dtype=torch.float64
    )
    first = shares[0] * 0.5 * extents
    corners = torch.cat([first, first + 0.6 + shares[1] * 0.5 * extents], dim=1)
    rois = draw.fresh(tuple(corners.shape), values=corners)
    rows = (count, 1) if draw.chance(0.7) else (count,)
    return rois, indices(draw, rows, x.shape[0])


def roi(draw: Draw, name: str) -> None:
    x = draw.tensor(3, 5 if draw.chance(0.3) else 4)
    rois, index = regions(draw, x)
    attributes: dict[str, Any] = {
        "output_size": [draw.between(1, 3) for _ in x.shape[2:]]
    }
    if name.endswith("align"):
        attributes["sampling_rate"] = [draw.between(1, 2) for _ in x.shape[2:]]
    if not name.endswith("pool"):
        key = "method" if name == "roi_resample" else "resize_method"
        attributes |= draw.kept(**{key: draw.pick(METHODS)})
    draw.emit(name, x, rois, index, **attributes)


# ---- Quantization ----


def bounds(draw: Draw, shape: Shape) -> tuple[Any, Any]:
    """A lower and an upper bound, each broadcast to a shape."""
    low = -draw.number(0.5, 2.0) if draw.chance(0.4) else parameter(draw, shape)
    high = draw.number(0.5, 2.0) if draw.chance(0.4) else parameter(draw, shape)
    if isinstance(low, Value):
        low = draw.emit("sub", low, 3.0)
    if isinstance(high, Value):
        high = draw.within("positive", high)
    return low, high


def linear_quantize(draw: Draw, name: str) -> None:
    x = draw.tensor()
    more = {"signed": draw.chance(0.5), "symmetric": draw.chance(0.5)}
    more = more if name.startswith("min_max") else {}
    draw.emit(name, x, *bounds(draw, x.shape), bits=draw.between(2, 8), **more)


def zero_point_quantize(draw: Draw, name: str) -> None:
    x = draw.tensor()
    scale = draw.within("positive", parameter(draw, x.shape))
    shape = draw.pick([(), (1, *x.shape[1:2]) if x.rank else ()])
    zero = draw.between(0, 3) if draw.chance(0.3) else indices(draw, shape, 4)
    signed, symmetric = draw.chance(0.5), draw.chance(0.5)
    attributes = {"bits": draw.between(2, 8), "signed": signed, "symmetric": symmetric}
    draw.emit(name, x, zero, scale, **attributes)


def logarithmic_quantize(draw: Draw, name: str) -> None:
    x = draw.within("nonzero", draw.tensor())
    high = draw.within("positive", parameter(draw, x.shape))
    draw.emit(name, x, high, bits=draw.between(2, 5))


# ---- All of them ----

TABLE = [
    Row("external variable constant", source, 0.3),
    Row("copy neg sin cos tanh atan asinh sqr sigmoid softplus silu gelu", unary),
    Row("rcp exp log tan asin acos sinh cosh acosh atanh sqrt rsqr rsqrt log2", unary),
    Row("abs relu", unary),
    Row("sign floor ceil round", unary, 0.6),
    Row("leaky_relu elu", with_attributes(alpha=(0.1, 1.5))),
    Row("selu", with_attributes(**{"alpha": (0.5, 2.0), "lambda": (0.5, 1.5)})),
    Row("softabs", with_attributes(epsilon=(0.1, 1.0))),
    Row("prelu", prelu),
    Row("add sub mul div pow min max", binary, 1.5),
    Row("lt gt le ge eq ne", binary, 0.4),
    Row("and or not", logic, 0.6),
    Row("select", select, 2.0),
    Row("clamp", clamp, 2.0),
    Row("copy_n", copy_n),
    Row("add_n", add_n),
    Row("cast", cast),
    Row("update", update),
    Row("sum_reduce mean_reduce max_reduce min_reduce", reduction, 1.5),
    Row("argmax_reduce argmin_reduce all_reduce any_reduce", reduction, 0.5),
    Row("moments", reduction),
    Row("softmax", softmax, 1.5),
    Row("matmul", matmul, 2.0),
    Row("linear", linear, 2.0),
    Row("conv", conv, 3.0),
    Row("deconv", deconv, 3.0),
    Row("separable_conv", separable_conv, 1.5),
    Row("separable_deconv", separable_deconv, 1.5),
    Row("box avg_pool rms_pool max_pool max_pool_with_index argmax_pool", pool, 1.5),
    Row("debox", debox, 1.5),
    Row("sample", sample, 1.5),
    Row("desample", desample, 1.5),
    Row("nearest_downsample area_downsample", downsample),
    Row("nearest_upsample", upsample),
    Row("multilinear_upsample", upsample, 1.5),
    Row("local_response_normalization local_mean_normalization", local),
    Row("local_variance_normalization local_contrast_normalization", local),
    Row("l1_normalization l2_normalization", norm),
    Row("batch_normalization", batch_normalization, 1.5),
    Row("reshape", reshape, 1.5),
    Row("squeeze", squeeze),
    Row("unsqueeze", unsqueeze),
    Row("transpose", transpose, 1.5),
    Row("split", split, 1.5),
    Row("concat", concat, 1.5),
    Row("stack", stack),
    Row("unstack", unstack),
    Row("slice", slice_, 1.5),
    Row("pad", pad, 1.5),
    Row("tile", tile),
    Row("gather", gather, 1.5),
    Row("avg_roi_pool max_roi_pool roi_resample avg_roi_align max_roi_align", roi, 1.5),
    Row("min_max_linear_quantize linear_quantize", linear_quantize),
    Row("zero_point_linear_quantize", zero_point_quantize),
    Row("logarithmic_quantize", logarithmic_quantize),
]

ROWS = {name: row for row in TABLE for name in row.names.split()}
