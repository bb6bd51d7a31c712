"""Convolutions: tensors are [batch, channels, spatial...], the filter is [c, C /
groups, spatial...].

C channels are on the up-scaled side, c on the down-scaled one: `conv` reads C channels
and writes c, `deconv` goes the other way with the same filter. Each is the adjoint of
the other. The gradient of the filter pairs the two sides: it is a convolution too, with
stride and dilation exchanged, or a product of matrices where nothing slides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operation, Shape, Tensor, shape_of
from nnef_grad.graph.learning import all_equal, equal
from nnef_grad.ops.batching import Many, batching_rule
from nnef_grad.ops.costs import cost_rule
from nnef_grad.ops.elementwise import fits_into
from nnef_grad.ops.examples import MAY_MEET, MeetError, Place, Use, divided, place_rule
from nnef_grad.ops.linear import in_one, linearity_rule
from nnef_grad.ops.parts import section
from nnef_grad.ops.registry import Emit, ShapeError, require, shape, vjp
from nnef_grad.ops.shape import in_batch, reshaped, transposed
from nnef_grad.ops.windows import (
    BORDERS,
    Windows,
    check_choice,
    check_positive,
    downscaling,
    has_border,
    is_reverse,
    up_side,
    upscaling,
    windows_of,
)

# ---- Shapes ----


@shape("conv")
def conv_shape(
    input: Shape, filter: Shape, bias: Shape, border: str, groups: int, **sliding: Any
) -> Shape:
    """[B, C, X...] and [c, C / groups, f...] give [B, c, x...]."""
    _check_filter(input, filter, border, groups)
    count = group_count(input, groups)
    message = (
        f"the filter has {filter[1]} channels for each of {count} groups,"
        f" and the input has {input[1]} channels in all"
    )
    require(equal(filter[1] * count, input[1]), message)
    _check_channels(count, filter, bias, filter[0])
    windows = downscaling(input[2:], filter[2:], border=border, **sliding)
    return (input[0], filter[0], *windows.down)


@shape("deconv")
def deconv_shape(
    input: Shape,
    filter: Shape,
    bias: Shape,
    border: str,
    output_shape: Shape,
    groups: int,
    **sliding: Any,
) -> Shape:
    """[B, c, x...] and [c, C / groups, f...] give [B, C, X...]."""
    _check_filter(input, filter, border, groups)
    message = f"there are {filter[0]} filters, and the input has {input[1]} channels"
    require(equal(filter[0], input[1]), message)
    message = f"'output_shape' must have {len(input)} items, or none at all, but is {list(output_shape)}"
    require(len(output_shape) in (0, len(input)), message)
    check_positive("output_shape", output_shape)
    message = (
        f"with 'groups' = 0 the filter must have 1 channel, and it has {filter[1]}"
    )
    require(groups > 0 or filter[1] == 1, message)
    count = group_count(input, groups, output_shape)
    channels = filter[1] * count
    _check_channels(count, filter, bias, channels)
    message = (
        f"'output_shape' must begin with {[input[0], channels]}, batch and channels,"
        f" but is {list(output_shape)}"
    )
    wanted = (input[0], channels)
    require(not output_shape or all_equal(output_shape[:2], wanted), message)
    sliding.update(border=border, output_shape=output_shape[2:])
    windows = upscaling(input[2:], filter[2:], **sliding)
    return (input[0], channels, *windows.up)


@shape("separable_conv")
def separable_conv_shape(
    input: Shape, planes: Shape, points: Shape, bias: Shape, groups: int, **plane: Any
) -> Shape:
    """The shape after the two steps of its body."""
    inner = _step("plane_filter", conv_shape, input, planes, (), groups=0, **plane)
    along: Any = {"border": "constant", "groups": groups}
    return _step("point_filter", conv_shape, inner, points, bias, **along)


@shape("separable_deconv")
def separable_deconv_shape(
    input: Shape, planes: Shape, points: Shape, bias: Shape, groups: int, **plane: Any
) -> Shape:
    """The shape after the two steps of its body."""
    along: Any = {"border": "constant", "output_shape": (), "groups": groups}
    inner = _step("point_filter", deconv_shape, input, points, (), **along)
    return _step("plane_filter", deconv_shape, inner, planes, bias, groups=0, **plane)


def _step(
    name: str, shape_of_step: Callable[..., Shape], *shapes: Shape, **attributes: Any
) -> Shape:
    """A message says of which filter of a separable convolution it speaks."""
    try:
        return shape_of_step(*shapes, **attributes)
    except ShapeError as error:
        message = f"with '{name}', {error}"
        raise ShapeError(message, remedy=error.remedy) from None


def group_count(input: Shape, groups: int, output_shape: Shape = ()) -> Dimension:
    """The number of groups; 0 stands for one for each channel of the up-scaled side."""
    return groups or (output_shape or input)[1]


def _check_filter(input: Shape, filter: Shape, border: str, groups: int) -> None:
    check_choice("border", border, BORDERS)
    message = f"the input must have batch and channels, but has the shape {list(input)}"
    require(len(input) >= 2, message)
    message = (
        "the filter must have the rank of the input, and their shapes are"
        f" {list(filter)} and {list(input)}"
    )
    require(len(filter) == len(input), message)
    require(groups >= 0, f"'groups' must not be negative, but is {groups}")


def _check_channels(
    groups: Dimension, filter: Shape, bias: Shape, channels: Dimension
) -> None:
    """The filters are divided into groups, and the bias is one of the channels written."""
    message = f"'groups' must divide the number of filters, and they are {groups} and {filter[0]}"
    require(filter[0] % groups == 0, message)
    if not fits_into(bias, (1, channels, *(1,) * (len(filter) - 2))):
        message = (
            f"the bias must have the shape [1, {channels}], or be a single element,"
            f" but has the shape {list(bias)}"
        )
        raise ShapeError(message, remedy="lenient" if len(bias) == 1 else None)


# ---- Gradients ----


@vjp("conv", "deconv")
def conv_vjp(emit: Emit, op: Operation, dy: Tensor) -> list[Tensor | None]:
    """dinput goes back through the same filter; dbias is dy, which the sweep sums."""
    (x, w, *_), windows, groups = op.inputs, windows_of(op), groups_of(op)
    if not windows.touch_data:
        return [None, None, dy]
    attributes = {**windows.attributes, "groups": groups}
    if is_reverse(op):
        sides = Sides(dy, x, windows, groups, ("grad", "input"))
        dx = emit("conv", dy, w, **attributes)
    else:
        sides = Sides(x, dy, windows, groups, ("input", "grad"))
        attributes["output_shape"] = windows.output_shape(*x.shape[:2])
        dx = emit("deconv", dy, w, **attributes)
    return [dx, filter_gradient(emit, sides), dy]


def groups_of(op: Operation) -> Dimension:
    """The number of groups of an operation."""
    return op.attributes["groups"] or up_side(op)[1]


# ---- The gradient of a filter ----


class Sides(NamedTuple):
    """The two sides of a filter and its windows: the up-scaled [B, C, X...] and the
    down-scaled one [B, c, x...], of which one is the input and the other a gradient.
    """

    up: Tensor
    down: Tensor
    windows: Windows
    groups: Dimension
    names: tuple[str, str]


def filter_gradient(emit: Emit, sides: Sides) -> Tensor:
    """[c, C / groups, f...], in its most readable form."""
    windows = sides.windows
    if has_border(windows.padding):
        return _correlation(emit, sides)
    # The filter is as large as the up-scaled side, and is at one place.
    is_whole = windows.size == windows.up and prod(windows.down) == 1
    if is_whole and sides.groups == 1:
        return _layer_product(emit, sides)
    # A filter of one element takes every stride-th.
    is_point = prod(windows.size) == 1
    return (_pixel_product if is_point else _correlation)(emit, sides)


def _layer_product(emit: Emit, sides: Sides) -> Tensor:
    """As in a fully connected layer: [B, c] and [B, C * X...] give [c, C * X...]."""
    (up, down, *_), names = sides, sides.names
    if up.shape[0] == 1:
        return emit("mul", _exchanged(emit, down, f"{names[1]}_by_channel"), up)
    rows = [
        reshaped(emit, side, (side.shape[0], prod(side.shape[1:])), hint=f"{name}_rows")
        for side, name in zip((down, up), reversed(names), strict=True)
    ]
    product = emit("matmul", *rows, transposeA=True, hint="filter_grad_matrix")
    return reshaped(emit, product, (down.shape[1], *up.shape[1:]))


def _pixel_product(emit: Emit, sides: Sides) -> Tensor:
    """[B, groups, c / groups, x] and [B, groups, C / groups, x] give matrices that are
    summed over B. Neither B nor groups has an axis if it is 1.
    """
    up, down, windows, groups, names = sides
    batch, pixels = down.shape[0], prod(windows.down)
    if windows.down != windows.up:
        axes, begin = list(range(2, up.rank)), [0] * (up.rank - 2)
        end, step = [axis.end for axis in windows.axes], windows.stride
        up = emit("slice", up, axes=axes, begin=begin, end=end, stride=step, hint="met")
    outer = tuple(extent for extent in (batch, groups) if extent != 1)
    rows = [
        reshaped(emit, side, (*outer, side.shape[1] // groups, pixels), f"{name}_rows")
        for side, name in zip((down, up), reversed(names), strict=True)
    ]
    product = emit("matmul", *rows, transposeB=True, hint="filter_grad_matrix")
    if batch != 1:
        product = emit("sum_reduce", product, axes=[0], hint="filter_grad_matrix")
    shape = (down.shape[1], up.shape[1] // groups, *windows.size)
    return reshaped(emit, product, shape)


def _correlation(emit: Emit, sides: Sides) -> Tensor:
    """With batch and channels exchanged, a convolution whose filter is the down-scaled
    side: where the forward filter moved by the stride, this one is stretched by it, and
    it moves by what was the dilation.
    """
    up, down, windows, groups, names = sides
    images = _by_channel(emit, up, groups, names[0])
    kernels = _by_channel(emit, down, 1, names[1])
    attributes = {**windows.pairing.attributes, "groups": groups}
    hint = "filter_grad_by_channel"
    if has_symbols(attributes["padding"]):
        # What a stride leaves over is not known: it meets places beyond the filter.
        attributes["padding"] = windows.padding
        places = emit("conv", images, kernels, **attributes, hint="places")
        ends = {axis: (0, size) for axis, size in enumerate(windows.size, start=2)}
        product = section(emit, places, ends, hint=hint)
    else:
        product = emit("conv", images, kernels, **attributes, hint=hint)
    return _exchanged(emit, product)


def _by_channel(emit: Emit, x: Tensor, groups: Dimension, side: str) -> Tensor:
    """To [C / groups, groups * B, X...]: a group's channels become the batch."""
    hint = f"{side}_by_channel"
    if groups == 1:
        return _exchanged(emit, x, hint)
    batch, channels, *spatial = x.shape
    shape = (batch, groups, channels // groups, *spatial)
    apart = reshaped(emit, x, shape, hint=f"{side}_groups")
    order = [2, 1, 0, *range(3, apart.rank)]
    moved = emit("transpose", apart, axes=order, hint=f"{side}_groups_by_channel")
    return reshaped(emit, moved, (channels // groups, groups * batch, *spatial), hint)


def _exchanged(emit: Emit, x: Tensor, hint: str | None = None) -> Tensor:
    """Batch and channels change places."""
    return emit("transpose", x, axes=[1, 0, *range(2, x.rank)], hint=hint)


# ---- Batching ----

# A filter with more elements than this makes too many operations.
_MOST_PLACES = 1000


@batching_rule("conv", "deconv")
def conv_batching(op: Many) -> Sequence[Any]:
    """The new axis goes into the batch or, with many filters, into the channels."""
    x, w, *_ = op.operation.inputs
    if w in op.many:
        convolved = _by_groups(op, x, w) if x in op.many else _by_channels(op, x, w)
    elif x in op.many:
        batched = _convolved(op, in_batch(op, x), w, op.whole[2])
        convolved = reshaped(op.emit, batched, op.whole)
    else:
        convolved = op.aligned(*op.again(x, w))
    return (op.emit("add", convolved, op.aligned(op.operation.operands[2])),)


def _by_groups(op: Many, x: Tensor, w: Tensor) -> Tensor:
    """Many filters on as many images make as many times the groups; these have a number."""
    if has_symbols(op.count):
        return _by_places(op, x, w)
    many, order, (batch, channels, *extents) = op.count, (1, 0, 2), x.shape
    merged = (batch, many * channels, *extents)
    images = _rearranged(op.emit, op.many[x], (many, batch), order, merged, "images")
    shape = (many * w.shape[0], *w.shape[1:])
    filters = reshaped(op.emit, op.many[w], shape, hint="filters")
    groups = many * groups_of(op.operation)
    convolved = _convolved(op, images, filters, many * op.whole[2], groups=groups)
    return _rearranged(op.emit, convolved, (batch, many), order, op.whole, "channels")


def _by_places(op: Many, x: Tensor, w: Tensor) -> Tensor:
    """Each element of the result is a product of many filters and as many images."""
    emit, groups, windows = op.emit, groups_of(op.operation), windows_of(op.operation)
    is_whole = op.operation.name == "conv" and not has_symbols(windows.down)
    if not is_whole or prod(windows.down) > _MOST_PLACES:
        raise op.refusal(f"filters, whose number '{op.count}' is open,")
    batch, depth = x.shape[0], w.shape[1]
    padding = [(0, 0)] * 3 + [*windows.padding]
    padded = emit("pad", op.many[x], padding=padding, hint="padded")
    shape = (op.count, batch, groups, depth, *padded.shape[3:])
    images = transposed(emit, reshaped(emit, padded, shape, "apart"), (0, 2, 1))
    elements = depth * prod(windows.size)
    shape = (op.count, groups, w.shape[0] // groups, elements)
    filters = reshaped(emit, op.many[w], shape, hint="filters")
    places = []
    for at in product(*map(range, windows.down)):
        begin = [i * axis.stride for i, axis in zip(at, windows.axes, strict=True)]
        reach = [(axis.size - 1) * axis.dilation + 1 for axis in windows.axes]
        end = [i + extent for i, extent in zip(begin, reach, strict=True)]
        axes, stride = [*range(4, images.rank)], windows.dilation
        window = emit("slice", images, axes=axes, begin=begin, end=end, stride=stride)
        shape = (op.count, groups, batch, elements)
        rows = reshaped(emit, window, shape, hint="rows")
        places.append(emit("matmul", rows, filters, transposeB=True, hint="place"))
    by_group = emit("stack", places, axis=4, hint="places")
    by_image = transposed(emit, by_group, (0, 2, 1), hint="by_image")
    return reshaped(emit, by_image, op.whole)


def _by_channels(op: Many, x: Tensor, w: Tensor) -> Tensor:
    """Many filters on the same images give as many times the channels."""
    many, groups, (first, second, *window) = op.count, groups_of(op.operation), w.shape
    if op.operation.name == "deconv":
        apart, shape = (many, first), (first, many * second, *window)
    else:
        apart, shape = (many, groups), (many * first, second, *window)
    filters = _rearranged(op.emit, op.many[w], apart, (1, 0, 2), shape, "filters")
    convolved = _convolved(op, x, filters, many * op.whole[2], groups=groups)
    parts, order = (x.shape[0], groups, many), (2, 0, 1, 3)
    return _rearranged(op.emit, convolved, parts, order, op.whole, "channels")


def _convolved(
    op: Many, images: Tensor, filters: Tensor, channels: Dimension, **attributes: Any
) -> Tensor:
    """The operation on other images, with other filters, which give some channels."""
    shape = op.operation.settings.get("output_shape")
    if shape:
        attributes["output_shape"] = (images.shape[0], channels, *shape[2:])
    convolved: Tensor
    (convolved,) = op.again(images, filters, hint="convolved", **attributes)
    return convolved


def _rearranged(
    emit: Emit, x: Tensor, apart: Shape, order: Shape, shape: Shape, hint: str
) -> Tensor:
    """The elements in another order of the leading axes that they are split into."""
    extents = (*apart, prod(x.shape) // prod(apart))
    moved = reshaped(emit, x, extents, hint=f"{hint}_apart")
    proper = [axis for axis in order if extents[axis] != 1]
    if proper != sorted(proper):
        moved = emit("transpose", moved, axes=order, hint=f"{hint}_in_order")
    return reshaped(emit, moved, shape, hint=hint)


# ---- Linearity, costs ----

linearity_rule("conv", "deconv")(in_one)


@cost_rule("conv", "deconv", "separable_conv", "separable_deconv")
def filter_cost(op: Operation) -> Any:
    """Each window in each item of the batch, times all elements of its filters."""
    _, *filters, _ = op.operands
    down = (op.inputs if is_reverse(op) else op.outputs)[0].shape
    return down[0] * prod(down[2:]) * sum(prod(shape_of(f)) for f in filters)


@place_rule("conv", "deconv")
def conv_place(use: Use) -> Place:
    """The examples are images; or groups of channels, with filters of their own."""
    x, w, *bias = use.operation.inputs
    if any(b in use.at for b in bias):
        raise MeetError(MAY_MEET)
    if w not in use.at and use.at[x].axis == 0:
        return use.at[x]
    whole = (groups_of(use.operation), x.shape[1], w.shape[0], use.result[1])
    groups, above, filters, below = (divided(n, use.count) for n in whole)
    places = {x: Place(1, above), w: Place(0, filters)}
    is_grouped = {**places, **use.at} == places and not bias
    if not is_grouped or None in (groups, above, filters, below):
        raise MeetError(MAY_MEET)
    use.own.update({t: place for t, place in places.items() if t not in use.at})
    return Place(1, below)
