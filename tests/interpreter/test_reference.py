"""The oracle itself, where its torch code does not say at first sight that it is right:
held against loops over single elements, central differences and what torch has ready.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from support import reference
from support.checks import document

F64 = torch.float64


def value(operation: str, **feeds: torch.Tensor) -> torch.Tensor:
    """What the oracle computes for one operation on the tensors."""
    (result,) = reference.outputs(model(operation, **feeds), feeds, {})
    return result


def slopes(
    operation: str, seed: torch.Tensor, wrt: Sequence[str], **feeds: torch.Tensor
) -> list[torch.Tensor]:
    """The gradients of one operation, for the gradient of its result."""
    text = model(operation, **feeds)
    return reference.gradients(text, feeds, {}, wrt, {"y": seed})


def model(operation: str, **feeds: torch.Tensor) -> str:
    dtypes = {torch.int64: "<integer>", F64: ""}
    declared = [
        f"{name} = external{dtypes[feed.dtype]}(shape = {list(feed.shape)});"
        for name, feed in feeds.items()
    ]
    return document("\n".join([*declared, f"y = {operation};"]), ", ".join(feeds))


def random(shape: Sequence[int], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=F64)


def f64(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


# ---- Regions of interest ----

# The shape of the feature maps, the regions, and into how many cells they are divided.
# The regions lie inside, partly outside and all outside; their corners are to be rounded,
# in the wrong order, equal.
REGIONS = [
    ([2, 3, 7], [[1.2, 5.7], [-2.5, 3.5], [4.0, 11.0], [9.0, 12.0]], [3]),
    ([1, 2, 7], [[5.0, 2.0], [3.0, 3.0], [-6.0, -1.0], [0.0, 7.0], [2.5, 3.5]], [2]),
    ([2, 2, 6, 5], [[0.4, 1.6, 5.5, 4.2], [-1.0, 2.0, 9.0, 4.0]], [2, 3]),
    ([3, 1, 4, 4], [[1.0, 1.0, 2.0, 3.0], [0.0, 0.0, 4.0, 4.0]], [3, 1]),
    ([2, 2, 3, 4, 5], [[0.0, 1.0, 1.0, 3.0, 4.0, 4.0], [1.3, -2.0, 2.0, 2.6, 1.0, 9.0]], [2, 2, 3]),
]  # fmt: skip


def fed(shape: Sequence[int], regions: Sequence[Sequence[float]]) -> dict[str, Any]:
    items = [[number % shape[0]] for number in range(len(regions))]
    return {"x": random(shape), "r": f64(regions), "i": torch.tensor(items)}


def positions(counts: Iterable[int]) -> Iterable[tuple[int, ...]]:
    return itertools.product(*map(range, counts))


def corners(row: Sequence[float]) -> list[tuple[float, float]]:
    """The first and the last coordinate along each axis."""
    axes = len(row) // 2
    return list(zip(row[:axes], row[axes:], strict=True))


def in_cell(at: int, cell: int, count: int, ends: tuple[float, float]) -> bool:
    first, last = (math.floor(end + 0.5) for end in ends)
    begin = first + cell * math.floor((last - first) / count)
    return begin <= at < begin + math.ceil((last - first) / count)


def cell_content(
    plane: torch.Tensor, row: list[float], cell: Sequence[int], output_size: list[int]
) -> list[float]:
    """The elements of a cell, row by row."""
    settings = list(zip(cell, output_size, corners(row), strict=True))
    return [
        float(plane[at])
        for at in positions(plane.shape)
        if all(in_cell(a, *setting) for a, setting in zip(at, settings, strict=True))
    ]


@pytest.mark.parametrize(("shape", "regions", "size"), REGIONS)
@pytest.mark.parametrize("flat", [False, True])
def test_pools_of_regions(
    shape: list[int], regions: list[list[float]], size: list[int], flat: bool
) -> None:
    feeds = fed(shape, regions)
    average, largest = (
        value(
            f"{pool}_roi_pool(x, r, i, output_size = {size})",
            **{**feeds, "i": feeds["i"].flatten() if flat else feeds["i"]},
        )
        for pool in ("avg", "max")
    )
    assert average.shape == largest.shape == (len(regions), shape[1], *size)
    for n, c in positions((len(regions), shape[1])):
        for cell in positions(size):
            plane = feeds["x"][int(feeds["i"][n]), c]
            content = cell_content(plane, regions[n], cell, size) or [0.0]
            assert float(largest[(n, c, *cell)]) == max(content)
            mean = sum(content) / len(content)
            assert float(average[(n, c, *cell)]) == pytest.approx(mean, abs=1e-12)


SOURCES = {
    "symmetric": lambda i, n, first, last: first + (i + 0.5) / n * (last - first) - 0.5,
    "asymmetric": lambda i, n, first, last: first + i / n * (last - first),
    "aligned": lambda i, n, first, last: (
        first + (i / (n - 1) * (last - 1.0 - first) if n > 1 else 0.0)
    ),
}


def tent(source: float, at: int, extent: int) -> float:
    """What an element weighs for a coordinate."""
    inside = min(max(source, 0.0), extent - 1.0)
    return max(1.0 - abs(inside - at), 0.0)


@pytest.mark.parametrize("method", SOURCES)
@pytest.mark.parametrize(("shape", "regions", "size"), REGIONS)
def test_resampled_regions(
    shape: list[int], regions: list[list[float]], size: list[int], method: str
) -> None:
    feeds = fed(shape, regions)
    computed = value(
        f"roi_resample(x, r, i, output_size = {size}, method = '{method}')", **feeds
    )
    assert computed.shape == (len(regions), shape[1], *size)
    for n, c in positions((len(regions), shape[1])):
        plane = feeds["x"][int(feeds["i"][n]), c]
        for point in positions(size):
            columns = zip(point, size, corners(regions[n]), strict=True)
            sources = [SOURCES[method](i, p, *ends) for i, p, ends in columns]
            wanted = sum(
                float(plane[at]) * math.prod(map(tent, sources, at, plane.shape))
                for at in positions(plane.shape)
            )
            assert float(computed[(n, c, *point)]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("method", SOURCES)
@pytest.mark.parametrize("factor", [[1, 1], [2, 3], [3, 4]])
def test_a_region_that_is_all_of_a_feature_map_is_upsampled(
    method: str, factor: list[int]
) -> None:
    x, size = random([2, 3, 4, 5]), [4 * factor[0], 5 * factor[1]]
    resampled = value(
        f"roi_resample(x, r, i, output_size = {size}, method = '{method}')",
        x=x,
        r=f64([[0.0, 0.0, 4.0, 5.0]] * 2),
        i=torch.tensor([[0], [1]]),
    )
    upsampled = f"multilinear_upsample(x, factor = {factor}, method = '{method}', border = 'replicate')"
    torch.testing.assert_close(resampled, value(upsampled, x=x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", SOURCES)
@pytest.mark.parametrize("operation", ["avg", "max"])
def test_aligned_regions_are_pooled_samples(operation: str, method: str) -> None:
    feeds = fed([2, 3, 6, 5], [[0.4, 1.6, 5.5, 4.2], [-1.0, 2.0, 9.0, 4.0]])
    points = value(
        f"roi_resample(x, r, i, output_size = [4, 9], method = '{method}')", **feeds
    )
    cells = points.reshape(2, 3, 2, 2, 3, 3)
    wanted = {"avg": cells.mean(dim=(3, 5)), "max": cells.amax(dim=(3, 5))}
    aligned = f"{operation}_roi_align(x, r, i, output_size = [2, 3], sampling_rate = [2, 3], resize_method = '{method}')"
    torch.testing.assert_close(value(aligned, **feeds), wanted[operation])


@pytest.mark.parametrize(
    "operation",
    [
        "avg_roi_pool(x, r, i, output_size = [2, 3])",
        "max_roi_pool(x, r, i, output_size = [2, 3])",
        *(
            f"roi_resample(x, r, i, output_size = [2, 3], method = '{method}')"
            for method in SOURCES
        ),
        "avg_roi_align(x, r, i, output_size = [2, 3], sampling_rate = [2, 2])",
        "max_roi_align(x, r, i, output_size = [2, 3], sampling_rate = [2, 2])",
    ],
)
@pytest.mark.parametrize("wrt", ["x", "r"])
def test_slopes_of_regions(operation: str, wrt: str) -> None:
    feeds = fed([2, 3, 6, 5], [[0.43, 1.61, 5.72, 4.27], [-1.12, 2.03, 8.91, 3.84]])
    check_central_difference(operation, wrt, feeds)


def check_central_difference(
    operation: str, wrt: str, feeds: dict[str, torch.Tensor]
) -> None:
    text, direction = model(operation, **feeds), random(feeds[wrt].shape, seed=1)
    seed = random(value(operation, **feeds).shape, seed=2)
    (slope,) = slopes(operation, seed, [wrt], **feeds)
    measured = reference.central_difference(
        text, feeds, {}, wrt, direction, {"y": seed}
    )
    assert float((slope * direction).sum()) == pytest.approx(measured, abs=1e-7)


@pytest.mark.parametrize(
    ("first", "slope"),
    # Inside it is that of the segment after; at the edges and outside it is 0.
    [(1.0, 4.0), (1.5, 4.0), (2.0, 8.0), (0.0, 0.0), (3.0, 0.0), (-0.5, 0.0), (3.5, 0.0)],
)  # fmt: skip
def test_the_slope_where_a_coordinate_is_on_an_element(
    first: float, slope: float
) -> None:
    feeds = {
        "x": f64([[[1.0, 3.0, 7.0, 15.0]]]),
        "r": f64([[first, 9.0]]),
        "i": torch.tensor([[0]]),
    }
    operation = "roi_resample(x, r, i, output_size = [1], method = 'asymmetric')"
    (gradient,) = slopes(operation, f64([[[1.0]]]), ["r"], **feeds)
    assert gradient.tolist() == [[slope, 0.0]]


def test_the_first_of_equal_maxima_of_a_cell_gets_the_gradient() -> None:
    plane = [[1.0, 1.0, 5.0, 0.0], [5.0, 5.0, 5.0, 0.0]]
    feeds = {
        "x": f64([[plane]]),
        "r": f64([[0.0, 0.0, 2.0, 4.0]]),
        "i": torch.tensor([[0]]),
    }
    operation = "max_roi_pool(x, r, i, output_size = [1, 1])"
    (gradient,) = slopes(operation, f64([[[[2.0]]]]), ["x"], **feeds)
    assert gradient.tolist() == [[[[0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]


# ---- Quantization ----


def rounding(exact: float) -> float:
    """By how much rounding moves a number. Straight through means that this is held
    fixed in differentiating.
    """
    return math.floor(exact + 0.5) - exact


class MinMax:
    """min_max_linear_quantize of a number, which remembers how it was rounded."""

    def __init__(self, bits: int, narrow: bool) -> None:
        self.steps = 2.0**bits - 1.0 - narrow
        self.moved: float | None = None

    def __call__(self, x: float, low: float, high: float) -> float:
        exact = (max(min(x, high), low) - low) / (high - low) * self.steps
        self.moved = rounding(exact) if self.moved is None else self.moved
        return (exact + self.moved) / self.steps * (high - low) + low


class ZeroPoint:
    """zero_point_linear_quantize, likewise. It remembers too whether the code was in its
    range: one at a bound of the range is inside.
    """

    def __init__(self, bits: int, signed: bool, symmetric: bool, zero: int) -> None:
        self.highest = 2.0 ** (bits - signed) - 1.0
        self.lowest = -self.highest - (not symmetric) if signed else 0.0
        self.zero = float(zero)
        self.moved: float | None = None

    def __call__(self, x: float, scale: float) -> float:
        exact = x / scale
        if self.moved is None:
            self.moved = rounding(exact)
            self.code = math.floor(exact + 0.5) + self.zero
        if self.lowest <= self.code <= self.highest:
            return (exact + self.moved) * scale
        return (min(max(self.code, self.lowest), self.highest) - self.zero) * scale


class Logarithmic:
    """logarithmic_quantize, likewise; the bounds are powers of two and stay."""

    def __init__(self, bits: int, largest: float) -> None:
        self.highest = float(math.ceil(math.log2(largest)))
        self.lowest = self.highest - (2.0**bits - 1.0)
        self.moved: float | None = None

    def __call__(self, x: float) -> float:
        exact = min(max(math.log2(abs(x)), self.lowest), self.highest)
        self.moved = rounding(exact) if self.moved is None else self.moved
        return math.copysign(2.0 ** (exact + self.moved), x)


def quantized(scheme: Any, *arguments: float) -> tuple[float, list[float]]:
    """The value of a scheme, and its slope in each argument, by central differences."""
    result, step = scheme(*arguments), 1e-6
    moves = (
        [a + step * (i == moved) * sign for i, a in enumerate(arguments)]
        for moved in range(len(arguments))
        for sign in (1, -1)
    )
    ends = [scheme(*move) for move in moves]
    return result, [
        (a - b) / (2 * step) for a, b in zip(ends[::2], ends[1::2], strict=True)
    ]


# Inside and outside of every range below, on both sides of zero.
POINTS = [-40.3, -3.21, -1.63, -0.91, -0.37, -0.02, 0.11, 0.41, 0.68, 0.97, 1.83, 3.37, 51.2]  # fmt: skip


def check_quantized(operation: str, schemes: list[Any], **arguments: float) -> None:
    """For each point, an element of x and of every argument of its own."""
    count = len(POINTS)
    feeds = {name: f64([number] * count) for name, number in arguments.items()}
    feeds = {"x": f64(POINTS), **feeds}
    seed = random([count])
    computed = value(operation, **feeds)
    gradients = slopes(operation, seed, list(feeds), **feeds)
    for at, (point, scheme) in enumerate(zip(POINTS, schemes, strict=True)):
        result, wanted = quantized(scheme, point, *arguments.values())
        assert float(computed[at]) == pytest.approx(result, abs=1e-12)
        actual = [float(gradient[at] / seed[at]) for gradient in gradients]
        assert actual == pytest.approx(wanted, abs=1e-6), point


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_quantization_between_bounds(bits: int, signed: bool, symmetric: bool) -> None:
    narrow = signed and symmetric
    flags = f"bits = {bits}, signed = {signed}, symmetric = {symmetric}".lower()
    check_quantized(
        f"min_max_linear_quantize(x, low, high, {flags})",
        [MinMax(bits, narrow) for _ in POINTS],
        low=-1.0,
        high=1.7,
    )


def test_the_old_name_of_quantization_between_bounds() -> None:
    check_quantized(
        "linear_quantize(x, low, high, bits = 3)",
        [MinMax(3, False) for _ in POINTS],
        low=-1.0,
        high=1.7,
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("zero", [0, 3, -2])
def test_quantization_around_a_zero_point(
    zero: int, signed: bool, symmetric: bool
) -> None:
    flags = f"bits = 4, signed = {signed}, symmetric = {symmetric}".lower()
    check_quantized(
        f"zero_point_linear_quantize(x, {zero}, scale, {flags})",
        [ZeroPoint(4, signed, symmetric, zero) for _ in POINTS],
        scale=0.23,
    )


@pytest.mark.parametrize("largest", [0.7, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("bits", [1, 2, 3])
def test_logarithmic_quantization(bits: int, largest: float) -> None:
    check_quantized(
        f"logarithmic_quantize(x, {largest}, bits = {bits})",
        [Logarithmic(bits, largest) for _ in POINTS],
    )


def test_zero_is_quantized_to_zero_in_powers_of_two() -> None:
    feeds = {"x": f64([0.0])}
    operation = "logarithmic_quantize(x, 4.0, bits = 2)"
    assert value(operation, **feeds).tolist() == [0.0]
    assert slopes(operation, f64([1.0]), ["x"], **feeds)[0].tolist() == [0.0]


def test_the_largest_of_a_logarithmic_quantization_has_no_slope() -> None:
    feeds = {"x": random([5]), "m": f64([3.0])}
    operation = "logarithmic_quantize(x, m, bits = 2)"
    assert slopes(operation, random([5]), ["m"], **feeds)[0].tolist() == [0.0]


def test_codes_at_the_bounds_are_inside_as_in_the_fake_quantization_of_torch() -> None:
    scale, zero, lowest, highest = 0.25, 3, -8, 7
    x = (torch.arange(-60, 60, dtype=F64) / 20.0 + 0.003).requires_grad_()
    feeds = {"x": x, "z": torch.tensor([zero])}
    operation = f"zero_point_linear_quantize(x, z, {scale}, bits = 4, signed = true, symmetric = false)"
    wanted = torch.fake_quantize_per_tensor_affine(x, scale, zero, lowest, highest)
    torch.testing.assert_close(value(operation, **feeds), wanted)
    seed = random(x.shape)
    (passed,) = torch.autograd.grad(wanted, x, seed)
    assert slopes(operation, seed, ["x"], **feeds)[0].tolist() == passed.tolist()


@pytest.mark.parametrize(
    ("x", "wanted"),
    [(-1.0, [0.0, 1.0, 0.0]), (1.0, [0.0, 0.0, 1.0]), (0.0, [1.0, 0.0, 0.0])],
)
def test_a_bound_takes_what_lies_on_it(x: float, wanted: list[float]) -> None:
    feeds = {"x": f64([x]), "low": f64([-1.0]), "high": f64([1.0])}
    operation = "min_max_linear_quantize(x, low, high, bits = 2, signed = true, symmetric = true)"
    gradients = slopes(operation, f64([1.0]), ["x", "low", "high"], **feeds)
    assert [float(gradient) for gradient in gradients] == wanted


def test_quantization_broadcasts_from_the_left() -> None:
    x, low, high = random([2, 3, 4]), -random([1, 3]).abs() - 0.1, f64([1.0, 2.0])
    operation = "linear_quantize(x, low, high, bits = 3)"
    together = value(operation, x=x, low=low, high=high)
    for n, c in positions((2, 3)):
        apart = value(operation, x=x[n, c], low=low[0, c], high=high[n])
        torch.testing.assert_close(together[n, c], apart, rtol=0, atol=1e-15)
