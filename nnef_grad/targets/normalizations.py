"""Batch normalizations after convolutions, folded into their filters, with their gradients.

    c = conv(x, w, b);   y = (c - mean) * slope + offset;   slope = scale * rsqrt(variance + e)

The filter times the slope gives y at once. Let G be what the gradient of the filter would be
if that of c were dy. A factor of each channel is taken out of the sums over images:

    dw = slope * G
    dx = deconv(dy, slope * w)
    sum(dy * (c - mean)) = sum(w * G) + (b - mean) * sum(dy)

So nothing as large as an image is made for the normalization, and c is not made at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from math import prod
from typing import Any, NamedTuple, TypeGuard

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, inline, is_instance
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.ops.conv import Sides, filter_gradient, groups_of
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import windows_of
from nnef_grad.targets import conditions as when

# The gradient of a filter takes no more operations.
_LONGEST = 8


class _Moment(NamedTuple):
    """total = sum(dy * (c - mean)), of which the gradient of a scale is made."""

    total: Operation
    dy: Tensor
    mean: Operand


class _Scaled(NamedTuple):
    """The product dy * slope, and what is made of it: gradients of the input, of the filter,
    and of the bias.
    """

    dy: Tensor
    slope: Tensor
    inputs: Sequence[Operation]
    filters: Sequence[Operation]
    biases: Sequence[Operation]


def fold_normalizations(graph: Graph, *, is_shared: bool = True) -> Graph:
    """The graph with normalizations folded where images are larger than filters. The filter
    times the slope may be shared by a convolution and its way back: OpenVINO 2026.4 takes
    one that it has rearranged for the first for that of the other, where they are equal.
    """
    near, forms = DefUse(graph), dict[Operation, Decompose]()
    for conv in near.named("conv"):
        if _is_worth_it(conv):
            forms.update(_forms(conv, near, is_shared))
    return inline(graph, forms.get) if forms else graph


def _is_worth_it(conv: Operation) -> bool:
    """Whether a filter has no more elements than what is made with it, among zeros."""
    (x, w, _), (c,) = conv.operands, conv.outputs
    if not isinstance(x, Tensor) or not isinstance(w, Tensor) or has_symbols(w.shape):
        return False
    is_small = nominal(prod(w.shape)) <= nominal(prod(c.shape))
    return is_small and conv.attributes["border"] == "constant"


def _forms(
    conv: Operation, near: DefUse, is_shared: bool
) -> dict[Operation, Decompose]:
    """The replacements of operations; none where others read the result."""
    (c,) = conv.outputs
    readers = near.readers.get(c, ())
    norms = [op for op in readers if _is_normalization(op, c)]
    moments = [found for op in readers if (found := _moment(op, c, near))]
    if near.uses[c] != len(norms) + len(moments) or max(len(norms), len(moments)) > 1:
        return {}
    for scaled in _scaled(conv, moments, near):
        if scaled.filters or not moments:
            own = scaled if is_shared else scaled._replace(inputs=())
            return dict(_folded(conv, norms, moments, own))
    return {}


def _is_normalization(op: Operation, c: Tensor) -> bool:
    if op.name != "batch_normalization" or op.operands[0] is not c:
        return False
    _, mean, variance, offset, scale = op.operands
    tensors = [x for x in (mean, variance, offset, scale) if isinstance(x, Tensor)]
    is_by_channel = all(_is_of_channels(x, c) for x in tensors)
    return is_by_channel and (variance in tensors or scale in tensors)


def _is_of_channels(x: Operand, c: Tensor) -> TypeGuard[Tensor]:
    """Whether a tensor has an element for each channel of another one."""
    if not isinstance(x, Tensor) or x.rank < 2:
        return False
    return prod(x.shape) == x.shape[1] == c.shape[1]


def _moment(centered: Operation, c: Tensor, near: DefUse) -> _Moment | None:
    """What a difference to a mean leads to, and leads to alone."""
    if centered.name != "sub" or centered.operands[0] is not c:
        return None
    product = _only(near, centered)
    total = _only(near, product)
    if product is None or product.name != "mul":
        return None
    if total is None or not _sums_images(total):
        return None
    others, mean = {*product.inputs} - {*centered.outputs}, centered.operands[1]
    if len(others) != 1 or not _is_of_channels(mean, c):
        return None
    (dy,) = others
    return _Moment(total, dy, mean) if dy.shape == c.shape else None


def _only(near: DefUse, op: Operation | None) -> Operation | None:
    """The only reader of the result of an operation."""
    if op is None or near.uses[op.outputs[0]] != 1:
        return None
    return next(iter(near.readers.get(op.outputs[0], ())), None)


def _sums_images(op: Operation) -> bool:
    """Whether all but the channels is summed over."""
    if op.name != "sum_reduce" or op.attributes["normalize"]:
        return False
    kept = {axis for axis, extent in enumerate(op.inputs[0].shape) if extent != 1}
    return kept - {*op.attributes["axes"]} <= {1} and 1 not in op.attributes["axes"]


def _scaled(
    conv: Operation, moments: Sequence[_Moment], near: DefUse
) -> Iterator[_Scaled]:
    """The products that gradients of a convolution may be made of."""
    products: Iterable[Operation | None]
    if moments:
        products = near.readers[moments[0].dy]
    else:
        readers = near.readers[conv.inputs[1]]
        back = (op for op in readers if _is_input_gradient(op, conv))
        products = [near.producer(op.operands[0]) for op in back]
    for op in products:
        if op is not None and op.name == "mul" and near.uses[op.outputs[0]]:
            yield from _of_product(conv, op, near)


def _of_product(conv: Operation, op: Operation, near: DefUse) -> Iterator[_Scaled]:
    """What is made of a product, if it is one with a slope, and nothing else is."""
    (c,), (y,) = conv.outputs, op.outputs
    for dy, slope in (op.operands, op.operands[::-1]):
        if not _is_of_channels(slope, c) or y.shape != c.shape:
            continue
        if not isinstance(dy, Tensor) or dy.shape != c.shape or dy is slope:
            continue
        readers = near.readers.get(y, [])
        inputs = [op for op in readers if _is_input_gradient(op, conv)]
        biases = [op for op in readers if _sums_images(op)]
        others = [op for op in readers if op not in inputs and op not in biases]
        filters = _filter_gradients(conv, y, others, near)
        if near.uses[y] == len(readers) and bool(others) == bool(filters):
            yield _Scaled(dy, slope, inputs, filters, biases)


def _is_input_gradient(op: Operation, conv: Operation) -> bool:
    if op.name != "deconv" or when.biased(op):
        return False
    return op.operands[1] is conv.operands[1]


def _filter_gradients(
    conv: Operation, scaled: Tensor, begin: Sequence[Operation], near: DefUse
) -> list[Operation]:
    """The operation that makes the gradient of a filter of what some others begin with."""
    ends, waiting = list[Operation](), [*begin]
    for _ in range(_LONGEST):
        ends += [op for op in waiting if op.outputs[0].shape == conv.inputs[1].shape]
        further = (near.readers.get(op.outputs[0], ()) for op in waiting)
        waiting = [*dict.fromkeys(chain.from_iterable(further))]
    pattern, x = partial(_gradient, conv), conv.inputs[0]
    found = (op for op in ends if is_instance(near, op.outputs[0], pattern, x, scaled))
    return [*islice(found, 1)]


def _gradient(conv: Operation, emit: Any, x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the filter, as the calculus gives it."""
    sides = Sides(x, dy, windows_of(conv), groups_of(conv), ("input", "grad"))
    return filter_gradient(emit, sides)


# ---- What is put in their places ----


def _folded(
    conv: Operation,
    norms: Sequence[Operation],
    moments: Sequence[_Moment],
    scaled: _Scaled,
) -> Iterator[tuple[Operation, Decompose]]:
    yield from ((op, partial(_normalized, conv)) for op in norms)
    yield from ((m.total, partial(_total, conv, m)) for m in moments)
    yield from ((op, partial(_back, scaled)) for op in scaled.inputs)
    yield from ((op, partial(_filters, conv, scaled)) for op in scaled.filters)
    yield from ((op, partial(_biases, scaled)) for op in scaled.biases)


def _normalized(conv: Operation, emit: Emitter, norm: Operation) -> Sequence[Tensor]:
    """A convolution with the filter times the slope."""
    (x, w), b = conv.inputs[:2], conv.operands[2]
    _, mean, variance, offset, scale = norm.operands
    spread = emit("add", variance, norm.attributes["epsilon"], hint="spread")
    inverse = emit("rsqrt", spread, hint="inverse_deviation")
    slope = emit("mul", scale, inverse, hint="slope")
    risen = emit("mul", emit("sub", b, mean, hint="shift"), slope, hint="risen")
    bias = emit("add", risen, offset, hint="bias")
    shape = (1, conv.outputs[0].shape[1])
    filters = _times(emit, w, slope)
    return [emit("conv", x, filters, reshaped(emit, bias, shape), **conv.settings)]


def _times(emit: Emitter, w: Tensor, slope: Tensor) -> Tensor:
    """Each filter times the slope of its channel."""
    column = reshaped(emit, slope, (w.shape[0], *(1,) * (w.rank - 1)), "by_channel")
    return emit("mul", w, column, hint="filter")


def _total(
    conv: Operation, moment: _Moment, emit: Emitter, op: Operation
) -> Sequence[Tensor]:
    """The sum over the filter, and what is the same at each place."""
    (x, w), b, dy = conv.inputs[:2], conv.operands[2], moment.dy
    by_channel = (1, w.shape[0], *(1,) * (w.rank - 2))
    products = emit("mul", w, _gradient(conv, emit, x, dy), hint="products")
    each = emit("sum_reduce", products, axes=[*range(1, w.rank)], hint="sums")
    seen = emit("sum_reduce", dy, axes=op.attributes["axes"], hint="seen")
    shift = emit("sub", b, moment.mean, hint="shift")
    shifted = emit(
        "mul", seen, reshaped(emit, shift, by_channel, "by_channel"), hint="shifted"
    )
    return [emit("add", reshaped(emit, each, by_channel, "by_channel"), shifted)]


def _back(scaled: _Scaled, emit: Emitter, op: Operation) -> Sequence[Tensor]:
    filters = _times(emit, op.inputs[1], scaled.slope)
    return [emit("deconv", scaled.dy, filters, op.operands[2], **op.settings)]


def _filters(
    conv: Operation, scaled: _Scaled, emit: Emitter, op: Operation
) -> Sequence[Tensor]:
    unscaled = _gradient(conv, emit, conv.inputs[0], scaled.dy)
    return [_times(emit, unscaled, scaled.slope)]


def _biases(scaled: _Scaled, emit: Emitter, op: Operation) -> Sequence[Tensor]:
    total = emit("sum_reduce", scaled.dy, axes=op.attributes["axes"], hint="seen")
    return [emit("mul", total, reshaped(emit, scaled.slope, total.shape, "by_channel"))]
