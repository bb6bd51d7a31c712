"""Down- and up-sampling by integer factors: spatial axes change, batch and channels
stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod
from typing import Any

from nnef_grad.graph.extents import Dimension, has_symbols, may_exceed
from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.graph.learning import equal, reaches
from nnef_grad.ops.batching import Many, batching_rule
from nnef_grad.ops.costs import cost_rule, each_element, elements
from nnef_grad.ops.examples import Place, Use, apart, place_rule
from nnef_grad.ops.join import positions
from nnef_grad.ops.linear import in_first, linearity_rule
from nnef_grad.ops.ranges import of_first, range_rule
from nnef_grad.ops.registry import Emit, decomposition, require, shape
from nnef_grad.ops.shape import in_batch, line, number, reshaped, turned
from nnef_grad.ops.traits import SAMPLING
from nnef_grad.ops.windows import BORDERS, check_choice, check_positive, check_reach

METHODS = ("symmetric", "asymmetric", "aligned")


# ---- Shapes ----


@shape("nearest_downsample", "area_downsample")
def downsample_shape(input: Shape, factor: Shape) -> Shape:
    """[B, C, x * f...] gives [B, C, x...]."""
    check_spatial("factor", factor, input)
    pairs = list(zip(input[2:], factor, strict=True))
    message = (
        "'factor' must divide the spatial extents, and they are"
        f" {list(factor)} and {list(input[2:])}"
    )
    require(all(equal(extent % f, 0) for extent, f in pairs), message)
    return (*input[:2], *(extent // f for extent, f in pairs))


@shape("nearest_upsample")
def upsample_shape(input: Shape, factor: Shape) -> Shape:
    """[B, C, x...] gives [B, C, x * f...]."""
    check_spatial("factor", factor, input)
    pairs = list(zip(input[2:], factor, strict=True))
    message = f"there must be elements to repeat, and the extents are {list(input[2:])}"
    require(all(reaches(extent, 1) for extent, _ in pairs), message)
    return (*input[:2], *(extent * f for extent, f in pairs))


@shape("multilinear_upsample")
def multilinear_upsample_shape(
    input: Shape, factor: Shape, method: str, border: str
) -> Shape:
    """[B, C, x...] gives [B, C, x * f...]."""
    check_choice("method", method, METHODS)
    check_choice("border", border, BORDERS)
    output = upsample_shape(input, factor)
    outside = tuple(_OUTSIDE[method] if f > 1 else (0, 0) for f in factor)
    check_reach(border, input[2:], outside)
    return output


# How many elements before and after its input an interpolation reads.
_OUTSIDE = {"symmetric": (1, 1), "asymmetric": (0, 1), "aligned": (0, 0)}


# ---- Multilinear interpolation ----

# Weights stand in the graph one by one.
MAX_WEIGHTS = 100_000


def _has_few_weights(op: Operation) -> bool:
    aligned = op.attributes["method"] == "aligned"
    factor, extents = op.attributes["factor"], op.outputs[0].shape[2:]
    counts = extents if aligned else [2 * f for f in factor]
    return all(has_symbols(count) or count <= MAX_WEIGHTS for count in counts)


@decomposition(
    "multilinear_upsample",
    when=_has_few_weights,
    limit=f"with more than {MAX_WEIGHTS} weights along an axis",
)
def multilinear_upsample_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """A linear map along each axis that grows."""
    (x,), (y,) = op.inputs, op.outputs
    if x.shape == y.shape:
        return [x]
    is_aligned = op.attributes["method"] == "aligned"
    spread = (_multiplied if is_aligned else _deconvolved)(emit, x, op)
    return [reshaped(emit, spread, y.shape)]


def _deconvolved(emit: Emit, x: Tensor, op: Operation) -> Tensor:
    """Each element is spread: its weights fall to zero at the next element."""
    (batch, channels, *extents), factor = x.shape, op.attributes["factor"]
    sizes, padding = zip(*map(_KERNELS[op.attributes["method"]], factor), strict=True)
    planes = reshaped(emit, x, (batch * channels, 1, *extents), hint="planes")
    weights, border = _triangles(emit, factor, sizes), op.attributes["border"]
    sliding: Any = {"padding": padding, "stride": factor}
    return emit("deconv", planes, weights, border=border, **sliding, hint="spread")


# The number of weights for a factor, and what they reach over the ends of the output.
_KERNELS = {
    "symmetric": lambda f: (2 * f - f % 2, (f // 2, f // 2)),
    "asymmetric": lambda f: (2 * f - 1, (f - 1, 0)),
}


def _triangles(emit: Emit, factor: Shape, sizes: Shape) -> Tensor:
    """The weights: a product over the axes, so written axis by axis."""
    along = []
    for axis, (f, size) in enumerate(zip(factor, sizes, strict=True), start=2):
        weights = [(2 * f - abs(2 * k + 1 - size)) / (2 * f) for k in range(size)]
        if f > 1:
            along.append(line(emit, weights, f"weights_{axis}", axis, 2 + len(sizes)))
    return reduce(partial(emit, "mul", hint="weights"), along)


def _multiplied(emit: Emit, x: Tensor, op: Operation) -> Tensor:
    """A product for each axis, from the last to the first that grows, brings it to the
    front. What is before that one ends up after all others, and is brought back.
    """
    factor = (1, 1, *op.attributes["factor"])
    extents, output = x.shape, op.outputs[0].shape
    first = next(axis for axis, f in enumerate(factor) if f > 1)
    after = [axis for axis in range(first + 1, x.rank) if may_exceed(output[axis], 1)]
    for axis in reversed(after):
        lines = _lines(emit, x, extents[axis])
        if factor[axis] > 1:
            weights = _interpolation(emit, extents[axis], factor[axis])
            x = emit("matmul", weights, lines, transposeB=True, hint="grown")
        else:
            x = turned(emit, lines, lines.shape)
    weights = _interpolation(emit, extents[first], factor[first])
    lines = _lines(emit, x, extents[first])
    grown = emit("matmul", lines, weights, transposeB=True, hint="grown")
    if not after:
        return grown
    return turned(emit, grown, (prod(output[first + 1 :]), prod(output[: first + 1])))


def _lines(emit: Emit, x: Tensor, extent: Dimension) -> Tensor:
    return reshaped(emit, x, (prod(x.shape) // extent, extent), hint="lines")


def _interpolation(emit: Emit, extent: Dimension, f: Dimension) -> Tensor:
    """[new, old]: the nearness of each element of the input, from 1 down to 0."""
    source, position = _sources(emit, extent, f), positions(emit, extent)
    offset = emit("sub", source, position, hint="offset")
    distance = emit("abs", offset, hint="distance")
    nearness = emit("sub", 1.0, distance, hint="nearness")
    return emit("relu", nearness, hint="weights")


def _sources(emit: Emit, extent: Dimension, f: Dimension) -> Tensor:
    """[new, 1]: where each element of the output lies among those of the input."""
    last = extent * f - 1
    if not has_symbols(extent):
        sources = [i * (extent - 1) / last for i in range(last + 1)]
        return line(emit, sources, "source", axis=0)
    ends = (number(emit, n) for n in (extent - 1, last))
    step = emit("div", *ends, hint="step")
    column = reshaped(emit, positions(emit, last + 1), (last + 1, 1), hint="new")
    return emit("mul", column, step, hint="source")


# ---- Checks ----


def check_spatial(name: str, values: Shape, input: Shape) -> None:
    """Raises `ShapeError` unless each spatial dimension has a positive item."""
    message = f"the input must have batch and channels, but has the shape {list(input)}"
    require(len(input) >= 2, message)
    message = (
        f"'{name}' must have an item for each of {len(input) - 2} spatial dimensions,"
        f" but is {list(values)}"
    )
    require(len(values) == len(input) - 2, message)
    check_positive(name, values)


# ---- Regions of interest: parts of feature maps, brought to one size ----

# A region has a row in `rois`: its first corner and then its last, each with a coordinate
# for each spatial axis. The same row of `batch_index` says in which item of the batch it
# lies. They are put together from other operations in emit/regions.py.


@shape("avg_roi_pool", "max_roi_pool", "roi_resample")
def roi_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    method: str = "symmetric",
) -> Shape:
    """[B, C, M spatial axes], [N, 2 * M] and [N, 1] give [N, C, *output_size]."""
    check_choice("method", method, METHODS)
    check_spatial("output_size", output_size, input)
    width = 2 * (len(input) - 2)
    message = (
        f"'rois' must have {width} columns, two for each spatial dimension,"
        f" but has the shape {list(rois)}"
    )
    require(len(rois) == 2 and rois[1] == width, message)
    message = (
        f"'batch_index' must have the shape [{rois[0]}, 1] or [{rois[0]}],"
        f" but has {list(batch_index)}"
    )
    # The specification says [N, 1], the Khronos tools want [N].
    require(batch_index in ((rois[0],), (rois[0], 1)), message)
    return (rois[0], input[1], *output_size)


@shape("avg_roi_align", "max_roi_align")
def roi_align_shape(
    input: Shape,
    rois: Shape,
    batch_index: Shape,
    output_size: Shape,
    sampling_rate: Shape,
    resize_method: str,
) -> Shape:
    """As for `roi_shape`: the samples of a cell are pooled."""
    check_choice("resize_method", resize_method, METHODS)
    check_spatial("sampling_rate", sampling_rate, input)
    return roi_shape(input, rois, batch_index, output_size)


# ---- Batching, linearity, ranges, costs ----

linearity_rule(*SAMPLING)(in_first)
range_rule("nearest_downsample", "area_downsample", "nearest_upsample")(of_first)
cost_rule("area_downsample")(each_element)


@batching_rule(*SAMPLING)
def sampling_batching(op: Many) -> Sequence[Any]:
    """The new axis goes into the batch, which is an axis like any other."""
    (resized,) = op.again(in_batch(op, op.operation.inputs[0]))
    return (reshaped(op.emit, resized, op.whole),)


@cost_rule("multilinear_upsample")
def upsample_cost(op: Operation) -> Any:
    """For each element the two next to it along each axis that grows."""
    return elements(op) * prod(2 for factor in op.attributes["factor"] if factor > 1)


@cost_rule("avg_roi_pool")
def region_cost(op: Operation) -> Any:
    """Regions are data: each may be the whole of the feature maps."""
    return op.inputs[1].shape[0] * prod(op.inputs[0].shape[1:])


@cost_rule("roi_resample", "max_roi_align")
def _sampled_regions(op: Operation) -> Any:
    """For each sample the two elements next to it along each spatial axis."""
    samples = elements(op) * prod(op.attributes.get("sampling_rate", ()))
    return samples * prod(2 for _ in op.attributes["output_size"])


@cost_rule("avg_roi_align")
def align_cost(op: Operation) -> Any:
    """The samples, and the sum of those of a cell."""
    return _sampled_regions(op) + elements(op) * prod(op.attributes["sampling_rate"])


@place_rule(*SAMPLING)
def sampling_place(use: Use) -> Place:
    """Batch and channels stay apart."""
    return apart(use.one(), range(2, len(use.result)))
