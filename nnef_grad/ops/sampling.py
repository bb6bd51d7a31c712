"""Down- and up-sampling by integer factors: spatial axes change, batch and channels
stay.
"""

from __future__ import annotations

from functools import partial, reduce
from math import prod

from nnef_grad.graph.ir import Operation, Shape, Tensor
from nnef_grad.ops.registry import (
    Emit,
    decomposition,
    require,
    shape,
)
from nnef_grad.ops.shape import reshaped
from nnef_grad.ops.windows import BORDERS, check_border, check_positive, check_reach

METHODS = ("symmetric", "asymmetric", "aligned")


# ---- Shapes ----


@shape("nearest_downsample", "area_downsample")
def downsample_shape(input: Shape, factor: Shape) -> Shape:
    """[B, C, x * f...] gives [B, C, x...]."""
    check_spatial("factor", factor, input)
    spatial = input[2:]
    divides = all(extent % f == 0 for extent, f in zip(spatial, factor, strict=True))
    require(
        divides,
        f"'factor' must divide the spatial extents, and they are {list(factor)} and {list(spatial)}",
    )
    return (
        *input[:2],
        *(extent // f for extent, f in zip(spatial, factor, strict=True)),
    )


@shape("nearest_upsample")
def upsample_shape(input: Shape, factor: Shape) -> Shape:
    """[B, C, x...] gives [B, C, x * f...]."""
    check_spatial("factor", factor, input)
    return (
        *input[:2],
        *(extent * f for extent, f in zip(input[2:], factor, strict=True)),
    )


@shape("multilinear_upsample")
def multilinear_upsample_shape(
    input: Shape, factor: Shape, method: str, border: str
) -> Shape:
    """[B, C, x...] gives [B, C, x * f...]."""
    check_method("method", method)
    check_border(border, BORDERS)
    output = upsample_shape(input, factor)
    before, after = _OUTSIDE[method]
    outside = tuple((before, after) if f > 1 else (0, 0) for f in factor)
    check_reach(border, input[2:], outside)
    return output


# How many elements before and after its input an interpolation reads.
_OUTSIDE = {"symmetric": (1, 1), "asymmetric": (0, 1), "aligned": (0, 0)}


# ---- Multilinear interpolation ----

# Weights stand in the graph one by one.
MAX_WEIGHTS = 100_000


def _has_few_weights(op: Operation) -> bool:
    (output,) = op.outputs
    factor = op.attributes["factor"]
    aligned = op.attributes["method"] == "aligned"
    counts = output.shape[2:] if aligned else [2 * f for f in factor]
    return max(counts, default=0) <= MAX_WEIGHTS


@decomposition(
    "multilinear_upsample",
    when=_has_few_weights,
    limit=f"with more than {MAX_WEIGHTS} weights along an axis",
)
def multilinear_upsample_decomposition(emit: Emit, op: Operation) -> list[Tensor]:
    """A linear map along each axis that grows."""
    (x,), (y,) = op.inputs, op.outputs
    aligned = op.attributes["method"] == "aligned"
    if x.shape == y.shape:
        return [x]
    spread = _multiplied(emit, x, op) if aligned else _deconvolved(emit, x, op)
    return [reshaped(emit, spread, y.shape)]


# Weights that are the same for all elements: a deconvolution


def _deconvolved(emit: Emit, x: Tensor, op: Operation) -> Tensor:
    """Each element is spread around its place in the output, with weights that fall to
    zero where the next element has its place.
    """
    batch, channels, *extents = x.shape
    factor = op.attributes["factor"]
    kernel = _KERNELS[op.attributes["method"]]
    sizes, padding = zip(*map(kernel, factor), strict=True)
    return emit(
        "deconv",
        reshaped(emit, x, (batch * channels, 1, *extents), hint="planes"),
        _triangles(emit, factor, sizes),
        border=op.attributes["border"],
        padding=padding,
        stride=factor,
        hint="spread",
    )


# The number of weights for a factor, and what they reach over the ends of the output.
_KERNELS = {
    "symmetric": lambda f: (2 * f - f % 2, (f // 2, f // 2)),
    "asymmetric": lambda f: (2 * f - 1, (f - 1, 0)),
}


def _triangles(emit: Emit, factor: Shape, sizes: Shape) -> Tensor:
    """The weights: a product over the axes, so written axis by axis."""
    along = [
        emit(
            "constant",
            shape=[size if i == axis else 1 for i in range(len(sizes) + 2)],
            value=[(2 * f - abs(2 * k + 1 - size)) / (2 * f) for k in range(size)],
            hint=f"weights_{axis}",
        )
        for axis, (f, size) in enumerate(zip(factor, sizes, strict=True), start=2)
        if f > 1
    ]
    return reduce(partial(emit, "mul", hint="weights"), along)


# Weights that depend on the place: products with matrices


def _multiplied(emit: Emit, x: Tensor, op: Operation) -> Tensor:
    """The axes from the last to the first that grows, each with a product that brings
    it to the front: so the next one is the last. What is before the first that grows
    ends up after all others, and is brought back.
    """
    factor = op.attributes["factor"]
    extents, output = x.shape, op.outputs[0].shape
    first = next(axis for axis, f in enumerate(factor, start=2) if f > 1)
    after = [axis for axis in range(first + 1, x.rank) if output[axis] > 1]
    for axis in reversed(after):
        x = _brought_to_front(emit, x, extents[axis], factor[axis - 2])
    weights = _interpolation(emit, extents[first], factor[first - 2])
    lines = _lines(emit, x, extents[first])
    x = emit("matmul", lines, weights, transposeB=True, hint="grown")
    if not after:
        return x
    blocks = prod(output[first + 1 :]), prod(output[: first + 1])
    return _turned(emit, reshaped(emit, x, blocks, hint="blocks"))


def _brought_to_front(emit: Emit, x: Tensor, extent: int, f: int) -> Tensor:
    lines = _lines(emit, x, extent)
    if f == 1:
        return _turned(emit, lines)
    weights = _interpolation(emit, extent, f)
    return emit("matmul", weights, lines, transposeB=True, hint="grown")


def _lines(emit: Emit, x: Tensor, extent: int) -> Tensor:
    return reshaped(emit, x, (prod(x.shape) // extent, extent), hint="lines")


def _turned(emit: Emit, x: Tensor) -> Tensor:
    """A matrix with rows and columns exchanged; a line stays as it is."""
    return x if 1 in x.shape else emit("transpose", x, axes=[1, 0], hint="turned")


def _interpolation(emit: Emit, extent: int, f: int) -> Tensor:
    """A row for each element of the output: the nearness of each element of the input,
    which is 1 where the two coincide and 0 from the next element on.
    """
    last = extent * f - 1
    sources = [i * (extent - 1) / last for i in range(last + 1)]
    positions = [float(j) for j in range(extent)]
    source = emit("constant", shape=[last + 1, 1], value=sources, hint="source")
    position = emit("constant", shape=[1, extent], value=positions, hint="position")
    offset = emit("sub", source, position, hint="offset")
    distance = emit("abs", offset, hint="distance")
    nearness = emit("sub", 1.0, distance, hint="nearness")
    return emit("relu", nearness, hint="weights")


# ---- Checks ----


def check_spatial(name: str, values: Shape, input: Shape) -> None:
    """An attribute that has a positive item for each spatial dimension.

    Raises:
        ShapeError: it has not.
    """
    require(
        len(input) >= 2,
        f"the input must have batch and channels, but has the shape {list(input)}",
    )
    spatial = len(input) - 2
    require(
        len(values) == spatial,
        f"'{name}' must have an item for each of {spatial} spatial dimensions, but is {list(values)}",
    )
    check_positive(name, values)


def check_method(name: str, method: str) -> None:
    """How coordinates of input and output correspond.

    Raises:
        ShapeError: there is no such method.
    """
    choices = ", ".join(f"'{choice}'" for choice in METHODS)
    require(method in METHODS, f"'{name}' must be one of {choices}, but is '{method}'")
