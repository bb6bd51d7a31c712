"""The oracle of the tests: NNEF text evaluated in float64 with torch, gradients by
torch autograd.

It must never import nnef_grad: what checks the compiler shares no code with it. The
Khronos parser reads the text, and every operation is written here from the NNEF
specification 1.0.5. Operations are functions of torch tensors without in-place updates,
so that autograd differentiates through them as often as wanted. Where a derivative is a
choice (ties, kinks), the definition of the operation in the standard library decides;
in the quantize operations, rounding has the derivative 1.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import nnef
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

Padding = Sequence[tuple[int, int]]

# --- the graph ---------------------------------------------------------------------------------


class Operation(NamedTuple):
    """An operation of the flat graph; arguments stand in the order of the
    declaration.
    """

    name: str
    inputs: list[Any]
    attributes: list[Any]
    outputs: list[str]
    dtype: str | None


class Graph(NamedTuple):
    inputs: list[str]
    outputs: list[str]
    operations: list[Operation]


@functools.lru_cache(maxsize=64)
def _parse(text: str) -> Graph:
    code = re.sub(r"""#[^\n\r]*|'[^']*'|"[^"]*\"""", " ", text)
    fragments = re.findall(r"\bfragment\s+(\w+)", code)
    parsed = nnef.parse_string(text, lowered=fragments)
    literals = _written_literals(code)
    operations = [
        Operation(
            operation.name,
            _exact(list(operation.inputs.values()), literals),
            _exact(list(operation.attribs.values()), literals),
            _flatten(operation.outputs.values()),
            operation.dtype,
        )
        for operation in parsed.operations
    ]
    return Graph(parsed.inputs, parsed.outputs, operations)


# Defaults of the standard library that have more digits than a float32 holds.
_LIBRARY_LITERALS = ["1.67326319", "1.05070102"]


def _written_literals(code: str) -> dict[float, float]:
    """The literals of the text, by the float32 that the Khronos parser makes of
    them.
    """
    tokens = re.findall(r"(?<!\w)\d+(?:\.\d*(?:[eE][+-]?\d+)?|[eE][+-]?\d+)", code)
    # Where two literals round to one float32, the shorter one is kept: the likelier
    # intention.
    written = sorted(tokens + _LIBRARY_LITERALS, key=len, reverse=True)
    literals = {_float32(float(token)): float(token) for token in written}
    literals[0.0] = 0.0  # a literal that underflows must not replace every zero
    return literals


def _exact(value: Any, literals: Mapping[float, float]) -> Any:
    """Undo the parser's rounding to float32: the literal as written, else the shortest
    decimal.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_exact(item, literals) for item in value)
    if not isinstance(value, float) or value != _float32(value):
        return value
    return math.copysign(
        literals.get(abs(value), float(str(np.float32(abs(value))))), value
    )


def _float32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


def _flatten(values: Any) -> list[Any]:
    nested = (
        value if isinstance(value, (list, tuple)) else [value] for value in values
    )
    return list(itertools.chain.from_iterable(nested))


_ZERO = torch.zeros((), dtype=torch.float64)

# --- broadcasting ------------------------------------------------------------------------------


def _align(*operands: Tensor) -> list[Tensor]:
    """Operands of one rank: NNEF aligns shapes from the left, so trailing axes are
    appended.
    """
    rank = max(operand.dim() for operand in operands)
    return [x.reshape(x.shape + (1,) * (rank - x.dim())) for x in operands]


def _elementwise(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *operands: function(*_align(*operands))


_add = _elementwise(torch.add)
_div = _elementwise(torch.div)
_select = _elementwise(torch.where)
_min = _elementwise(lambda x, y: torch.where(x < y, x, y))
_max = _elementwise(lambda x, y: torch.where(x > y, x, y))


@_elementwise
def _pow(x: Tensor, y: Tensor) -> Tensor:
    # No real derivative with respect to y exists where x <= 0: the exponent is a
    # constant there.
    positive = x > 0
    return torch.where(
        positive,
        torch.pow(torch.where(positive, x, 1.0), y),
        torch.pow(torch.where(positive, 1.0, x), y.detach()),
    )


def _clamp(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    return _max(_min(x, upper), lower)


def _add_n(operands: Sequence[Tensor]) -> Tensor:
    return functools.reduce(_add, operands, _ZERO)


# --- activations -------------------------------------------------------------------------------


def _relu(x: Tensor) -> Tensor:
    return torch.where(x > 0.0, x, 0.0)


def _prelu(x: Tensor, alpha: Tensor) -> Tensor:
    x, alpha = _align(x, alpha)
    return torch.where(x < 0.0, alpha * x, x)


def _leaky_relu(x: Tensor, alpha: float) -> Tensor:
    return torch.where(x < 0.0, alpha * x, x)


def _elu(x: Tensor, alpha: float) -> Tensor:
    # exp must not overflow in the branch that is not taken: 0 * inf in its gradient is
    # NaN.
    return torch.where(x < 0.0, alpha * torch.expm1(torch.where(x < 0.0, x, 0.0)), x)


def _selu(x: Tensor, alpha: float, scale: float) -> Tensor:
    return scale * _elu(x, alpha)


def _softplus(x: Tensor) -> Tensor:
    return -functional.logsigmoid(-x)


def _softmax(x: Tensor, axes: Sequence[int]) -> Tensor:
    # The maximum cancels out of the quotient, so its gradient is exactly zero.
    powers = torch.exp(x - _max_reduce(x, axes).detach())
    return powers / _sum_reduce(powers, axes)


# --- reductions --------------------------------------------------------------------------------


def _reduce(
    function: Callable[..., Tensor],
) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """A reduction that keeps the rank. Torch takes an empty list of axes for all of
    them.
    """
    return lambda x, axes: (
        function(x, dim=tuple(axes), keepdim=True) if axes else x.clone()
    )


_sum = _reduce(torch.sum)
_mean_reduce = _reduce(torch.mean)
_max_reduce = _reduce(torch.amax)
_min_reduce = _reduce(torch.amin)


def _sum_reduce(x: Tensor, axes: Sequence[int], normalize: bool = False) -> Tensor:
    return _mean_reduce(x, axes) if normalize else _sum(x, axes)


def _index_reduce(
    function: Callable[..., Tensor],
) -> Callable[[Tensor, Sequence[int]], Tensor]:
    """The index of the first extremum, in row-major order over the reduced axes."""

    def reduce(x: Tensor, axes: Sequence[int]) -> Tensor:
        kept = [axis for axis in range(x.dim()) if axis not in axes]
        rows = x.permute(*kept, *sorted(axes)).reshape(
            [*(x.shape[axis] for axis in kept), -1]
        )
        shape = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
        return function(rows, dim=-1).reshape(shape)

    return reduce


def _moments(x: Tensor, axes: Sequence[int]) -> list[Tensor]:
    mean = _mean_reduce(x, axes)
    return [mean, _mean_reduce((x - mean).square(), axes)]


# --- matrix products ---------------------------------------------------------------------------


def _matmul(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool) -> Tensor:
    if a.dim() != b.dim() or a.dim() < 2:
        raise ValueError(f"matmul of ranks {a.dim()} and {b.dim()}")
    return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _add(_matmul(x, weight, False, True), bias)


# --- borders -----------------------------------------------------------------------------------


def _extend(
    x: Tensor, axis: int, begin: int, end: int, border: str, outside: float = 0.0
) -> Tensor:
    """The elements [begin, end) along an axis of a tensor that its border extends
    endlessly.
    """
    extent = x.shape[axis]
    if (begin, end) == (0, extent):
        return x
    if border not in ("constant", "ignore"):
        return x.index_select(axis, _mirror(begin, end, extent, border))
    first, last = min(max(begin, 0), extent), min(max(end, 0), extent)
    before, after = max(min(end, 0) - begin, 0), max(end - max(begin, extent), 0)
    inner = x.narrow(axis, first, last - first)
    return functional.pad(
        inner, [0, 0] * (x.dim() - 1 - axis) + [before, after], value=outside
    )


def _mirror(begin: int, end: int, extent: int, border: str) -> Tensor:
    """The positions inside a tensor from which the elements [begin, end) take their
    values.
    """
    position = torch.arange(begin, end)
    if border == "replicate":
        return position.clamp(0, extent - 1)
    edge = {"reflect": 0, "reflect-even": 1}[border]
    position = torch.where(position < 0, -position - edge, position)
    position = torch.where(
        position >= extent, 2 * (extent - 1) - position + edge, position
    )
    if ((position < 0) | (position >= extent)).any():
        raise ValueError(
            f"border '{border}' from {begin} to {end} is wider than extent {extent}"
        )
    return position


def _pad(x: Tensor, padding: Padding, border: str, value: float) -> Tensor:
    for axis, (before, after) in enumerate(padding):
        x = _extend(x, axis, -before, x.shape[axis] + after, border, value)
    return x


# --- sliding windows ---------------------------------------------------------------------------


class Window(NamedTuple):
    """A sliding window along one axis; `up` and `down` are the extents of the two
    spaces.

    Window `i` covers the positions `i * stride + j * dilation - before` of the
    up-scaled space.
    """

    size: int
    stride: int
    dilation: int
    before: int
    up: int
    down: int

    @property
    def reach(self) -> int:
        return (self.size - 1) * self.dilation + 1

    @property
    def begin(self) -> int:
        return -self.before

    @property
    def end(self) -> int:
        return (self.down - 1) * self.stride + self.reach - self.before


def _windows(
    extents: Sequence[int],
    size: Sequence[int],
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[Window]:
    """The windows of a basic operation: `extents` are those of the up-scaled space."""
    arguments = _by_axis(extents, size, padding, stride, dilation)
    return [_window(*argument) for argument in arguments]


def _reverse_windows(
    extents: Sequence[int],
    size: Sequence[int],
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
    output_shape: Sequence[int],
) -> list[Window]:
    """The windows of a reverse operation: `extents` are those of the down-scaled
    space.
    """
    arguments = _by_axis(extents, size, padding, stride, dilation)
    upscaled = _one_each(output_shape, None, len(extents))
    return [
        _reverse_window(*argument, up)
        for argument, up in zip(arguments, upscaled, strict=True)
    ]


def _by_axis(
    extents: Sequence[int],
    size: Sequence[int],
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int, tuple[int, int] | None, int, int]]:
    rank = len(extents)
    columns = (
        extents,
        _one_each(size, None, rank),
        _one_each(padding, None, rank),
        _one_each(stride, 1, rank),
        _one_each(dilation, 1, rank),
    )
    return list(zip(*columns, strict=True))


def _one_each(values: Sequence[Any], default: Any, rank: int) -> Sequence[Any]:
    if len(values) not in (0, rank):
        raise ValueError(
            f"{rank} items expected, one for each axis, found {list(values)}"
        )
    return values or [default] * rank


def _window(
    up: int, size: int, padding: tuple[int, int] | None, stride: int, dilation: int
) -> Window:
    reach = (size - 1) * dilation + 1
    before, after = padding or _auto_padding(up, reach, stride)
    room = before + up + after - reach
    if room < 0:
        raise ValueError(
            f"window of extent {reach} on a padded extent of {before + up + after}"
        )
    return Window(size, stride, dilation, before, up, room // stride + 1)


def _reverse_window(
    down: int,
    size: int,
    padding: tuple[int, int] | None,
    stride: int,
    dilation: int,
    up: int | None,
) -> Window:
    reach = (size - 1) * dilation + 1
    if up is None:
        up = (down - 1) * stride + reach - sum(padding) if padding else down * stride
    before, _ = padding or _auto_padding(up, reach, stride)
    return Window(size, stride, dilation, before, up, down)


def _auto_padding(up: int, reach: int, stride: int) -> tuple[int, int]:
    down = -(-up // stride)
    total = max((down - 1) * stride + reach - up, 0)
    return total // 2, total - total // 2


def _gather_windows(
    x: Tensor, windows: list[Window], border: str, outside: float
) -> Tensor:
    """The content of all windows: [*down-scaled extents, volume of a window in
    row-major order].
    """
    for axis, window in enumerate(windows):
        x = _extend(x, axis, window.begin, window.end, border, outside)
    for axis, window in enumerate(windows):
        x = x.unfold(axis, window.reach, window.stride)[..., :: window.dilation]
    return x.flatten(len(windows))


def _source_range(window: Window, border: str) -> tuple[int, int]:
    """The elements of the extended down-scaled space that a reverse operation reads."""
    if border in ("constant", "ignore"):
        return 0, window.down
    begin = -((window.reach - 1 - window.before) // window.stride)
    return begin, max((window.up - 1 + window.before) // window.stride + 1, begin + 1)


# --- convolution -------------------------------------------------------------------------------

_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_CONV_TRANSPOSE = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    windows = _windows(x.shape[2:], weight.shape[2:], padding, stride, dilation)
    groups = groups or x.shape[1]
    for axis, window in enumerate(windows, 2):
        x = _extend(x, axis, window.begin, window.end, border)
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    convolve = _CONV[len(windows)]
    return _add(
        convolve(x, weight, stride=strides, dilation=dilations, groups=groups), bias
    )


def _deconv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    shape = output_shape[2:]
    windows = _reverse_windows(
        x.shape[2:], weight.shape[2:], padding, stride, dilation, shape
    )
    # Depth-wise: as many groups as channels of the output, which only output_shape can
    # tell from a channel multiplier.
    groups = groups or (output_shape[1] if output_shape else weight.shape[0])
    ranges = [_source_range(window, border) for window in windows]
    for axis, (begin, end) in enumerate(ranges, 2):
        x = _extend(x, axis, begin, end, border)
    strides, dilations = [w.stride for w in windows], [w.dilation for w in windows]
    spread = _CONV_TRANSPOSE[len(windows)]
    y = spread(x, weight, stride=strides, dilation=dilations, groups=groups)
    for axis, (window, (begin, _)) in enumerate(zip(windows, ranges, strict=True), 2):
        first = window.before - begin * window.stride
        y = _extend(y, axis, first, first + window.up, "constant")
    return _add(y, bias)


def _separable_conv(
    x: Tensor,
    plane: Tensor,
    point: Tensor,
    bias: Tensor,
    border: str,
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    filtered = _conv(x, plane, _ZERO, border, padding, stride, dilation, groups=0)
    return _conv(filtered, point, bias, groups=groups)


def _separable_deconv(
    x: Tensor,
    plane: Tensor,
    point: Tensor,
    bias: Tensor,
    border: str,
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
    output_shape: Sequence[int],
    groups: int,
) -> Tensor:
    filtered = _deconv(x, point, _ZERO, groups=groups)
    return _deconv(
        filtered, plane, bias, border, padding, stride, dilation, output_shape, groups=0
    )


# --- box filters and pooling -------------------------------------------------------------------


def _box(
    x: Tensor,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    normalize: bool = False,
) -> Tensor:
    windows = _windows(x.shape, size, padding, stride, dilation)
    total = _window_sum(x, windows, border)
    if not normalize:
        return total
    valid = (
        _window_sum(torch.ones_like(x), windows, border) if border == "ignore" else None
    )
    return total / (math.prod(size) if valid is None else valid)


def _window_sum(x: Tensor, windows: list[Window], border: str) -> Tensor:
    for axis, window in enumerate(windows):
        x = _extend(x, axis, window.begin, window.end, border)
        x = x.unfold(axis, window.reach, window.stride)[..., :: window.dilation].sum(-1)
    return x


def _debox(
    x: Tensor,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    normalize: bool = False,
) -> Tensor:
    windows = _reverse_windows(x.shape, size, padding, stride, dilation, output_shape)
    for axis, window in enumerate(windows):
        x = _spread(x, axis, window, border)
    return x / math.prod(size) if normalize else x


def _spread(x: Tensor, axis: int, window: Window, border: str) -> Tensor:
    """Add every element to all positions of its window along one axis."""
    begin, end = _source_range(window, border)
    first = torch.arange(begin, end)[:, None] * window.stride - window.before
    target = first + torch.arange(window.size) * window.dilation
    inside = (target >= 0) & (target < window.up)
    spread = _extend(x, axis, begin, end, border).index_select(
        axis, inside.nonzero()[:, 0]
    )
    shape = [*x.shape[:axis], window.up, *x.shape[axis + 1 :]]
    return torch.zeros(shape, dtype=x.dtype).index_add(axis, target[inside], spread)


def _max_pool_with_index(
    x: Tensor,
    size: Sequence[int],
    border: str,
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[Tensor]:
    outside = -math.inf if border == "ignore" else 0.0
    windows = _windows(x.shape, size, padding, stride, dilation)
    # torch.max returns the first of equal maxima, and sends the whole gradient there.
    return list(torch.max(_gather_windows(x, windows, border, outside), dim=-1))


def _max_pool(x: Tensor, *attributes: Any) -> Tensor:
    return _max_pool_with_index(x, *attributes)[0]


def _argmax_pool(x: Tensor, *attributes: Any) -> Tensor:
    return _max_pool_with_index(x, *attributes)[1]


def _avg_pool(
    x: Tensor,
    size: Sequence[int],
    border: str,
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    return _box(x, size, border, padding, stride, dilation, normalize=True)


def _rms_pool(x: Tensor, *attributes: Any) -> Tensor:
    return torch.sqrt(_avg_pool(x.square(), *attributes))


def _sample(
    x: Tensor,
    index: Tensor,
    size: Sequence[int],
    border: str,
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    windows = _windows(x.shape, size, padding, stride, dilation)
    content = _gather_windows(x, windows, border, 0.0)
    return content.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def _desample(
    x: Tensor,
    index: Tensor,
    size: Sequence[int],
    border: str,
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
    output_shape: Sequence[int],
) -> Tensor:
    if border != "constant":
        raise ValueError(
            f"border '{border}' of desample: the specification allows 'constant'"
        )
    windows = _reverse_windows(x.shape, size, padding, stride, dilation, output_shape)
    inside = (index >= 0) & (index < math.prod(size))
    offsets = torch.unravel_index(index.where(inside, 0), tuple(size))
    target = torch.zeros_like(index)
    for axis, (window, offset) in enumerate(zip(windows, offsets, strict=True)):
        first = torch.arange(window.down) * window.stride - window.before
        first = first.reshape([-1] + [1] * (x.dim() - 1 - axis))
        position = first + offset * window.dilation
        inside = inside & (position >= 0) & (position < window.up)
        target = target * window.up + position
    shape = [window.up for window in windows]
    flat = torch.zeros(math.prod(shape), dtype=x.dtype)
    return flat.index_add(0, target[inside], x[inside]).reshape(shape)


# --- resampling --------------------------------------------------------------------------------


def _nearest_downsample(x: Tensor, factor: Sequence[int]) -> Tensor:
    dims = 2 + len(factor)
    return _box(x, [1] * dims, padding=[(0, 0)] * dims, stride=[1, 1, *factor])


def _area_downsample(x: Tensor, factor: Sequence[int]) -> Tensor:
    steps, padding = [1, 1, *factor], [(0, 0)] * (2 + len(factor))
    return _box(x, steps, padding=padding, stride=steps, normalize=True)


def _nearest_upsample(x: Tensor, factor: Sequence[int]) -> Tensor:
    steps, padding = [1, 1, *factor], [(0, 0)] * (2 + len(factor))
    return _debox(x, steps, padding=padding, stride=steps)


def _multilinear_upsample(
    x: Tensor, factor: Sequence[int], method: str, border: str
) -> Tensor:
    for axis, scale in enumerate(factor, 2):
        extent = x.shape[axis]
        numerator, denominator = _coordinate(method, extent, scale)
        source = numerator.div(denominator, rounding_mode="floor")
        weight = (numerator % denominator).to(torch.float64) / denominator
        weight = weight.reshape([-1] + [1] * (x.dim() - 1 - axis))
        extended = _extend(x, axis, -1, extent + 1, border)
        lower, upper = (
            extended.index_select(axis, source + offset) for offset in (1, 2)
        )
        x = (1.0 - weight) * lower + weight * upper
    return x


def _coordinate(method: str, extent: int, factor: int) -> tuple[Tensor, int]:
    """The source coordinates of an up-scaled axis as exact fractions of one
    denominator.
    """
    position = torch.arange(extent * factor)
    if method == "asymmetric":
        return position, factor
    if method == "symmetric":
        return 2 * position - (factor - 1), 2 * factor
    if method == "aligned":
        return position * (extent - 1), max(extent * factor - 1, 1)
    raise ValueError(f"unknown method '{method}' of multilinear_upsample")


# --- regions of interest -----------------------------------------------------------------------


def _roi_pool(pool: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Pools what each cell has inside the feature map, from [channels, elements]; a
    cell with nothing inside is zero.
    """

    def pooled(
        x: Tensor, rois: Tensor, batch_index: Tensor, output_size: Sequence[int]
    ) -> Tensor:
        values = []
        for item, corners in zip(batch_index.flatten().tolist(), rois, strict=True):
            for cell in itertools.product(*_cells(corners, x.shape[2:], output_size)):
                inside = x[item][(slice(None), *cell)].flatten(1)
                empty = inside.shape[1] == 0
                values.append(x.new_zeros(x.shape[1]) if empty else pool(inside))
        return torch.stack(values).reshape(len(rois), *output_size, -1).movedim(-1, 1)

    return pooled


def _cells(
    corners: Tensor, extents: Sequence[int], output_size: Sequence[int]
) -> list[list[slice]]:
    """The cells of a region along each axis, cut off where the feature map ends."""
    rounded = torch.floor(corners.detach() + 0.5).long().tolist()
    axes = len(extents)
    columns = rounded[:axes], rounded[axes:], output_size, extents
    return [_cells_of_axis(*column) for column in zip(*columns, strict=True)]


def _cells_of_axis(first: int, last: int, count: int, extent: int) -> list[slice]:
    size, stride = -((first - last) // count), (last - first) // count
    begins = [first + i * stride for i in range(count)]
    return [slice(max(begin, 0), max(min(begin + size, extent), 0)) for begin in begins]


def _roi_resample(
    x: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    output_size: Sequence[int],
    method: str,
) -> Tensor:
    regions = []
    for item, corners in zip(batch_index.flatten().tolist(), rois, strict=True):
        region, axes = x[item], len(output_size)
        ends = zip(corners[:axes], corners[axes:], output_size, strict=True)
        for axis, (first, last, n) in enumerate(ends, 1):
            source = _roi_coordinates(first, last, n, method)
            region = _interpolated(region, axis, source)
        regions.append(region)
    return torch.stack(regions)


def _roi_coordinates(first: Tensor, last: Tensor, n: int, method: str) -> Tensor:
    position = torch.arange(n, dtype=torch.float64)
    if method == "asymmetric":
        return first + position * (last - first) / n
    if method == "symmetric":
        return first + (position + 0.5) * (last - first) / n - 0.5
    if method == "aligned":
        return first + position * (last - 1.0 - first) / max(n - 1, 1)
    raise ValueError(f"unknown method '{method}' of roi_resample")


def _interpolated(x: Tensor, axis: int, source: Tensor) -> Tensor:
    """The values at some coordinates along an axis; outside, those at the edge."""
    edge = torch.tensor(x.shape[axis] - 1.0, dtype=torch.float64)
    source = _clamp(source, _ZERO, edge)
    lower = torch.floor(source.detach())
    upper = torch.minimum(lower + 1.0, edge)
    weight = (source - lower).reshape([-1] + [1] * (x.dim() - 1 - axis))
    below, above = (x.index_select(axis, index.long()) for index in (lower, upper))
    return (1.0 - weight) * below + weight * above


def _roi_align(pool: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Pools the samples of each cell."""

    def aligned(
        x: Tensor,
        rois: Tensor,
        batch_index: Tensor,
        output_size: Sequence[int],
        rate: Sequence[int],
        method: str,
    ) -> Tensor:
        size = [count * each for count, each in zip(output_size, rate, strict=True)]
        points = _roi_resample(x, rois, batch_index, size, method)
        return pool(points, [1, 1, *rate], "constant", [], [1, 1, *rate], [])

    return aligned


# --- normalization -----------------------------------------------------------------------------


def _local_response_normalization(
    x: Tensor, size: Sequence[int], alpha: float, beta: float, bias: float
) -> Tensor:
    return x / (bias + alpha * _box(x.square(), size, normalize=True)) ** beta


def _local_mean_normalization(x: Tensor, size: Sequence[int]) -> Tensor:
    return x - _box(x, size, normalize=True)


def _local_variance_normalization(
    x: Tensor, size: Sequence[int], bias: float, epsilon: float
) -> Tensor:
    sigma = torch.sqrt(_box(x.square(), size, normalize=True))
    return x / _at_least(sigma + bias, epsilon)


def _local_contrast_normalization(
    x: Tensor, size: Sequence[int], bias: float, epsilon: float
) -> Tensor:
    centered = _local_mean_normalization(x, size)
    return _local_variance_normalization(centered, size, bias, epsilon)


def _l1_normalization(
    x: Tensor, axes: Sequence[int], bias: float, epsilon: float
) -> Tensor:
    return x / _at_least(_sum(torch.abs(x), axes) + bias, epsilon)


def _l2_normalization(
    x: Tensor, axes: Sequence[int], bias: float, epsilon: float
) -> Tensor:
    return x / _at_least(torch.sqrt(_sum(x.square(), axes)) + bias, epsilon)


def _at_least(x: Tensor, bound: float) -> Tensor:
    return torch.where(x > bound, x, bound)


def _batch_normalization(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    offset: Tensor,
    scale: Tensor,
    epsilon: float,
) -> Tensor:
    x, mean, variance, offset, scale = _align(x, mean, variance, offset, scale)
    return offset + scale * (x - mean) / torch.sqrt(variance + epsilon)


# --- quantization ------------------------------------------------------------------------------


def _straight_round(x: Tensor) -> Tensor:
    """Halves go up; the derivative is 1."""
    return torch.floor(x + 0.5).detach() + (x - x.detach())


def _min_max_linear_quantize(
    x: Tensor, low: Tensor, high: Tensor, bits: int, signed: bool, symmetric: bool
) -> Tensor:
    # The shift of signed codes cancels out.
    x, low, high = _align(x, low, high)
    steps = float(2**bits - 1 - (signed and symmetric))
    code = _straight_round((_clamp(x, low, high) - low) / (high - low) * steps)
    return code / steps * (high - low) + low


def _linear_quantize(x: Tensor, low: Tensor, high: Tensor, bits: int) -> Tensor:
    return _min_max_linear_quantize(x, low, high, bits, False, False)


def _zero_point_linear_quantize(
    x: Tensor,
    zero_point: Tensor,
    scale: Tensor,
    bits: int,
    signed: bool,
    symmetric: bool,
) -> Tensor:
    x, zero, scale = _align(x, zero_point.to(torch.float64), scale)
    highest = float(2 ** (bits - 1) - 1 if signed else 2**bits - 1)
    lowest = (-highest if symmetric else -highest - 1.0) if signed else 0.0
    code = _straight_round(x / scale) + zero
    # Codes at the bounds are inside, which torch.clamp says in some releases alone.
    inside = (code >= lowest) & (code <= highest)
    code = torch.where(inside, code, torch.clamp(code.detach(), lowest, highest))
    return (code - zero) * scale


def _logarithmic_quantize(x: Tensor, largest: Tensor, bits: int) -> Tensor:
    x, largest = _align(x, largest)
    highest = torch.ceil(torch.log2(largest.detach()))
    lowest = highest - float(2**bits - 1)
    size = torch.log2(x.detach().abs())
    inside = (size > lowest) & (size < highest)
    # Where it is clamped, log2 must not see a zero: 0 * inf in its gradient is NaN.
    exact = torch.log2(torch.where(inside, x.abs(), 1.0))
    code = _straight_round(
        torch.where(inside, exact, torch.maximum(lowest, torch.minimum(size, highest)))
    )
    return torch.sign(x) * torch.exp2(code)


# --- shapes ------------------------------------------------------------------------------------


def _reshape(
    x: Tensor, shape: Sequence[int], axis_start: int, axis_count: int
) -> Tensor:
    axis_end = x.dim() if axis_count == -1 else axis_start + axis_count
    affected = x.shape[axis_start:axis_end]
    inner = [affected[i] if extent == 0 else extent for i, extent in enumerate(shape)]
    if -1 in inner:
        known = math.prod(extent for extent in inner if extent != -1)
        inner[inner.index(-1)] = math.prod(affected) // known
    return x.reshape([*x.shape[:axis_start], *inner, *x.shape[axis_end:]])


def _transpose(x: Tensor, axes: Sequence[int]) -> Tensor:
    return x.permute((*axes, *range(len(axes), x.dim())))


def _squeeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    if any(x.shape[axis] != 1 for axis in axes):
        raise ValueError(f"squeeze of axes {list(axes)} of shape {list(x.shape)}")
    return x.reshape(
        [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    )


def _unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    extents = iter(x.shape)
    rank = x.dim() + len(axes)
    return x.reshape([1 if axis in axes else next(extents) for axis in range(rank)])


def _concat(values: Sequence[Tensor], axis: int) -> Tensor:
    return torch.cat(list(values), dim=axis)


def _split(x: Tensor, axis: int, ratios: Sequence[int]) -> list[Tensor]:
    if x.shape[axis] % sum(ratios):
        raise ValueError(f"split of extent {x.shape[axis]} by ratios {list(ratios)}")
    unit = x.shape[axis] // sum(ratios)
    return list(torch.split(x, [unit * ratio for ratio in ratios], dim=axis))


def _stack(values: Sequence[Tensor], axis: int) -> Tensor:
    return torch.stack(list(values), dim=axis)


def _unstack(x: Tensor, axis: int) -> list[Tensor]:
    return list(torch.unbind(x, dim=axis))


def _slice(
    x: Tensor,
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    stride = stride or [1] * len(axes)
    to_the_end = all(step == 1 for step in stride)
    for axis, first, last, step in zip(axes, begin, end, stride, strict=True):
        extent = x.shape[axis]
        last = extent if to_the_end and last == 0 else _offset(last, extent)
        positions = range(_offset(first, extent), last, step)
        if any(position not in range(extent) for position in positions):
            raise ValueError(
                f"slice [{first}:{last}:{step}] of extent {extent} begins outside"
            )
        x = x.index_select(axis, torch.tensor(positions, dtype=torch.int64))
    return x


def _offset(offset: int, extent: int) -> int:
    return min(max(offset + extent if offset < 0 else offset, -1), extent)


def _tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.repeat(tuple(repeats))


def _gather(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    shape = x.shape[:axis] + indices.shape + x.shape[axis + 1 :]
    return x.index_select(axis, indices.reshape(-1)).reshape(shape)


# --- data --------------------------------------------------------------------------------------

_DTYPES = {"scalar": torch.float64, "integer": torch.int64, "logical": torch.bool}


def _constant(shape: Sequence[int], value: Sequence[Any], dtype: str) -> Tensor:
    values = torch.tensor(value, dtype=_DTYPES[dtype])
    return values.expand(math.prod(shape)).reshape(shape).clone()


def _cast(x: Tensor, dtype: str) -> Tensor:
    if dtype == "integer":
        x = torch.floor(x) if x.is_floating_point() else x
    return x.to(_DTYPES[dtype], copy=True)


def _copy_n(x: Tensor, times: int) -> list[Tensor]:
    return [x.clone() for _ in range(times)]


def _update(variable: Tensor, value: Tensor) -> Tensor:
    if variable.shape != value.shape:
        raise ValueError(
            f"update of shape {list(variable.shape)} with {list(value.shape)}"
        )
    return value.clone()


# --- the table ---------------------------------------------------------------------------------

# Tensor arguments come first, then the attributes, each in the order of its
# declaration.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "constant": _constant,
    "cast": _cast,
    "copy": torch.clone,
    "copy_n": _copy_n,
    "update": _update,
    # arithmetic
    "neg": torch.neg,
    "rcp": torch.reciprocal,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "abs": torch.abs,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": lambda x: torch.floor(x + 0.5),
    "sqr": torch.square,
    "sqrt": torch.sqrt,
    "rsqr": lambda x: torch.pow(x, -2.0),
    "rsqrt": torch.rsqrt,
    "log2": torch.log2,
    "add": _add,
    "sub": _elementwise(torch.sub),
    "mul": _elementwise(torch.mul),
    "div": _div,
    "pow": _pow,
    "add_n": _add_n,
    "min": _min,
    "max": _max,
    "clamp": _clamp,
    # comparison and logic
    "lt": _elementwise(torch.lt),
    "gt": _elementwise(torch.gt),
    "le": _elementwise(torch.le),
    "ge": _elementwise(torch.ge),
    "eq": _elementwise(torch.eq),
    "ne": _elementwise(torch.ne),
    "and": _elementwise(torch.logical_and),
    "or": _elementwise(torch.logical_or),
    "not": torch.logical_not,
    "select": _select,
    # activations
    "sigmoid": torch.sigmoid,
    "relu": _relu,
    "prelu": _prelu,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "selu": _selu,
    "gelu": lambda x: x * torch.special.ndtr(x),
    "silu": lambda x: x * torch.sigmoid(x),
    "softplus": _softplus,
    "softabs": lambda x, epsilon: torch.sqrt(x.square() + epsilon),
    "softmax": _softmax,
    # reductions
    "sum_reduce": _sum_reduce,
    "mean_reduce": _mean_reduce,
    "max_reduce": _max_reduce,
    "min_reduce": _min_reduce,
    "argmax_reduce": _index_reduce(torch.argmax),
    "argmin_reduce": _index_reduce(torch.argmin),
    "any_reduce": _reduce(torch.any),
    "all_reduce": _reduce(torch.all),
    "moments": _moments,
    # matrix products and convolution
    "matmul": _matmul,
    "linear": _linear,
    "conv": _conv,
    "deconv": _deconv,
    "separable_conv": _separable_conv,
    "separable_deconv": _separable_deconv,
    # windows
    "box": _box,
    "debox": _debox,
    "max_pool": _max_pool,
    "argmax_pool": _argmax_pool,
    "max_pool_with_index": _max_pool_with_index,
    "avg_pool": _avg_pool,
    "rms_pool": _rms_pool,
    "sample": _sample,
    "desample": _desample,
    "nearest_downsample": _nearest_downsample,
    "area_downsample": _area_downsample,
    "nearest_upsample": _nearest_upsample,
    "multilinear_upsample": _multilinear_upsample,
    # regions of interest
    "avg_roi_pool": _roi_pool(lambda cell: cell.mean(dim=1)),
    # torch.max returns the first of equal maxima, and sends the whole gradient there.
    "max_roi_pool": _roi_pool(lambda cell: torch.max(cell, dim=1).values),
    "roi_resample": _roi_resample,
    "avg_roi_align": _roi_align(_avg_pool),
    "max_roi_align": _roi_align(_max_pool),
    # normalization
    "local_response_normalization": _local_response_normalization,
    "local_mean_normalization": _local_mean_normalization,
    "local_variance_normalization": _local_variance_normalization,
    "local_contrast_normalization": _local_contrast_normalization,
    "l1_normalization": _l1_normalization,
    "l2_normalization": _l2_normalization,
    "batch_normalization": _batch_normalization,
    # quantization
    "min_max_linear_quantize": _min_max_linear_quantize,
    "zero_point_linear_quantize": _zero_point_linear_quantize,
    "linear_quantize": _linear_quantize,
    "logarithmic_quantize": _logarithmic_quantize,
    # shapes
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "concat": _concat,
    "split": _split,
    "stack": _stack,
    "unstack": _unstack,
    "slice": _slice,
    "pad": _pad,
    "tile": _tile,
    "gather": _gather,
}

# --- evaluation --------------------------------------------------------------------------------

# Sees every tensor as it is computed; what it returns takes the tensor's place.
Visitor = Callable[[str, Tensor], Tensor]


def _run(
    text: str,
    feeds: Mapping[str, Tensor],
    variables: Mapping[str, Tensor],
    visit: Visitor = lambda name, tensor: tensor,
) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for operation in _parse(text).operations:
        results = _results(operation, tensors, feeds, variables)
        if len(results) != len(operation.outputs):
            raise ValueError(
                f"{operation.name} has {len(results)} results: {operation.outputs}"
            )
        for name, result in zip(operation.outputs, results, strict=True):
            tensors[name] = visit(name, result)
    return tensors


def _results(
    operation: Operation,
    tensors: Mapping[str, Tensor],
    feeds: Mapping[str, Tensor],
    variables: Mapping[str, Tensor],
) -> list[Tensor]:
    if operation.name == "external":
        return [_checked(feeds[operation.outputs[0]], operation)]
    if operation.name == "variable":
        return [_checked(variables[operation.attributes[1]], operation)]
    if operation.name not in _OPERATIONS:
        raise NotImplementedError(f"operation '{operation.name}'")
    arguments = [
        _operand(value, tensors) for value in operation.inputs
    ] + operation.attributes
    if operation.name in ("constant", "cast"):
        arguments.append(operation.dtype)
    results = _flatten([_OPERATIONS[operation.name](*arguments)])
    # A result is never the object of an operand: autograd would give both the same
    # gradient.
    return [
        x.clone() if any(x is operand for operand in arguments) else x for x in results
    ]


def _operand(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, str):
        return tensors[value]
    if isinstance(value, list):
        return [_operand(item, tensors) for item in value]
    return torch.tensor(
        value, dtype=torch.float64 if isinstance(value, float) else None
    )


def _checked(tensor: Tensor, operation: Operation) -> Tensor:
    shape = operation.attributes[0]
    if list(tensor.shape) != shape:
        raise ValueError(
            f"{operation.outputs[0]}: shape {shape} wanted, not {list(tensor.shape)}"
        )
    return tensor.to(_DTYPES[operation.dtype or "scalar"])


def evaluate(
    text: str, feeds: Mapping[str, Tensor], variables: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """All tensors of a graph by name; autograd can differentiate through them.

    `feeds` are the external tensors by name, `variables` the variables by label. Scalar
    tensors are float64, integer tensors int64, logical tensors bool.
    """
    return _run(text, feeds, variables)


def outputs(
    text: str, feeds: Mapping[str, Tensor], variables: Mapping[str, Tensor]
) -> list[Tensor]:
    """The results of the graph in the order of its signature."""
    tensors = _run(text, feeds, variables)
    return [tensors[name] for name in _parse(text).outputs]


# --- signatures and random data ----------------------------------------------------------------


class Signature(NamedTuple):
    """What a graph wants and returns: (dtype, shape) of inputs by name and variables by
    label.
    """

    inputs: dict[str, tuple[str, tuple[int, ...]]]
    variables: dict[str, tuple[str, tuple[int, ...]]]
    results: list[str]


def signature(text: str) -> Signature:
    """Inputs and results in the order of the signature, variables in that of their
    declaration.
    """
    graph = _parse(text)
    externals = {op.outputs[0]: op for op in graph.operations if op.name == "external"}
    variables = {
        op.attributes[1]: op for op in graph.operations if op.name == "variable"
    }
    return Signature(
        {name: _declared(externals[name]) for name in graph.inputs},
        {label: _declared(operation) for label, operation in variables.items()},
        graph.outputs,
    )


def _declared(operation: Operation) -> tuple[str, tuple[int, ...]]:
    return operation.dtype or "scalar", tuple(operation.attributes[0])


def random_feeds(
    text: str, generator: torch.Generator, high: int = 2
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random feeds and variables: standard normal scalars, integers in [0, high), fair
    logicals.
    """
    wanted = signature(text)

    def draw(dtype: str, shape: tuple[int, ...]) -> Tensor:
        if dtype == "scalar":
            return torch.randn(shape, generator=generator, dtype=torch.float64)
        bound = high if dtype == "integer" else 2
        return torch.randint(bound, shape, generator=generator).to(_DTYPES[dtype])

    feeds = {name: draw(*declared) for name, declared in wanted.inputs.items()}
    return feeds, {
        label: draw(*declared) for label, declared in wanted.variables.items()
    }


# --- gradients ---------------------------------------------------------------------------------


def gradients(
    text: str,
    feeds: Mapping[str, Tensor],
    variables: Mapping[str, Tensor],
    wrt: Sequence[str],
    seeds: Mapping[str, Tensor],
    create_graph: bool = False,
) -> list[Tensor]:
    """The vector-Jacobian products of the results with the seeds, by torch autograd.

    `wrt` names tensors: externals, variables (by tensor, not by label) or intermediate
    ones, whose gradient is that with respect to their value. `seeds` are cotangents by
    the name of a result; a result without one does not count. A tensor that no result
    depends on gets zeros. With `create_graph`, the gradients can be differentiated with
    respect to feeds and variables.
    """
    watched: dict[str, Tensor] = {}

    def watch(name: str, tensor: Tensor) -> Tensor:
        if name in wrt:
            # A tensor object of its own: two names of one value have separate
            # gradients.
            own = (
                tensor.view_as(tensor)
                if tensor.requires_grad
                else tensor.detach().clone()
            )
            tensor = watched[name] = own.requires_grad_()
        return tensor

    tensors = _run(text, feeds, variables, watch)
    reached = {
        name: seed for name, seed in seeds.items() if tensors[name].requires_grad
    }
    inputs = [watched[name] for name in wrt]
    if not reached:
        return [torch.zeros_like(tensor) for tensor in inputs]
    return list(
        torch.autograd.grad(
            [tensors[name] for name in reached],
            inputs,
            list(reached.values()),
            create_graph=create_graph,
            materialize_grads=True,
        )
    )


def central_difference(
    text: str,
    feeds: Mapping[str, Tensor],
    variables: Mapping[str, Tensor],
    wrt: str,
    direction: Tensor,
    seeds: Mapping[str, Tensor],
    step: float = 1e-6,
) -> float:
    """d/dt <seeds, results> at t = 0, with the tensor `wrt` replaced by wrt + t *
    direction.
    """

    def projection(t: float) -> float:
        def move(name: str, tensor: Tensor) -> Tensor:
            return tensor + t * direction if name == wrt else tensor

        tensors = _run(text, feeds, variables, move)
        return sum(float((seed * tensors[name]).sum()) for name, seed in seeds.items())

    with torch.no_grad():
        return (projection(step) - projection(-step)) / (2.0 * step)
