"""Multilinear upsampling: its gradients held against torch, its weights against
fractions, and what is written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from support.checks import check_gradients, check_twice, close
from support.windows import Shape, backward_of, model, written
from torch.nn import functional

import nnef_grad

METHODS = ["symmetric", "asymmetric", "aligned"]
BORDERS = ["constant", "replicate", "reflect", "reflect-even"]


def upsample(factor: Shape, method: str, border: str = "replicate") -> str:
    return (
        f"multilinear_upsample(x, factor = {list(factor)}, method = '{method}',"
        f" border = '{border}')"
    )


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("factor", "shape"),
    [
        ([2], [2, 3, 4]),
        ([3], [1, 1, 3]),
        ([5], [1, 2, 2]),
        ([1], [2, 3, 4]),
        ([2, 2], [2, 3, 4, 5]),
        ([4, 3], [1, 2, 2, 3]),
        ([1, 2], [2, 2, 3, 2]),
        ([3, 1], [2, 2, 3, 2]),
        ([1, 1], [2, 2, 3, 2]),
        ([2, 2, 2], [2, 1, 2, 3, 2]),
        ([2, 3, 1], [1, 2, 2, 2, 3]),
        ([1, 3, 2], [1, 2, 2, 2, 3]),
        ([2, 1, 2], [1, 2, 3, 2, 2]),
    ],
)
def test_upsampling(factor: Shape, shape: Shape, method: str, border: str) -> None:
    check_twice(model(upsample(factor, method, border), x=shape))


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect-even"])
@pytest.mark.parametrize("method", METHODS)
def test_a_single_element(method: str, border: str) -> None:
    check_twice(model(upsample([3], method, border), x=[1, 1, 1]))
    check_twice(model(upsample([2, 4], method, border), x=[2, 3, 1, 2]))


@pytest.mark.parametrize(
    ("factor", "method"), [([1, 2], "symmetric"), ([2, 2], "aligned")]
)
def test_a_border_that_is_not_read_need_not_exist(factor: Shape, method: str) -> None:
    def gradient(border: str) -> str:
        return backward_of(upsample(factor, method, border), x=[1, 1, 1, 3])

    steps = written(gradient("reflect"))
    assert steps[-1] == written(gradient("reflect-even"))[-1]
    assert not any("axes = [2]" in step for step in steps)


@pytest.mark.parametrize("seed", range(60))
def test_random_settings(seed: int) -> None:
    draw = random.Random(seed)
    rank = 1 + seed % 3
    factor = [draw.randint(1, 6 if rank < 3 else 3) for _ in range(rank)]
    shape = [draw.randint(1, 3), draw.randint(1, 3)]
    shape += [draw.randint(2, 4) for _ in range(rank)]
    operation = upsample(factor, draw.choice(METHODS), draw.choice(BORDERS))
    check_gradients(model(operation, x=shape), seed=seed, tolerance=1e-12)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(
    ("mode", "factor", "shape"),
    [
        ("linear", [3], [2, 3, 4]),
        ("bilinear", [2, 2], [2, 3, 4, 5]),
        ("bilinear", [3, 4], [1, 2, 3, 2]),
        ("trilinear", [2, 3, 2], [1, 2, 3, 2, 2]),
    ],
)
def test_torch_interpolates_likewise(
    mode: str, factor: Shape, shape: Shape, aligned: bool
) -> None:
    method = "aligned" if aligned else "symmetric"
    checked = check_gradients(model(upsample(factor, method), x=shape))
    x = checked.feeds["x"].clone().requires_grad_()
    extents = [n * f for n, f in zip(shape[2:], factor, strict=True)]
    y = functional.interpolate(x, extents, mode=mode, align_corners=aligned)
    (expected,) = torch.autograd.grad(y, x, checked.seeds["y"])
    close(checked.gradients["x"], expected, 1e-12, mode)


# ---- The weights ----


def constants(operation: str, shape: Shape) -> list[tuple[float, ...]]:
    """The constants of a backward graph."""
    graph = nnef_grad.loads(backward_of(operation, x=shape))
    return [op.attributes["value"] for op in graph.operations if op.name == "constant"]


def symmetric(f: int) -> list[Fraction]:
    """What the element at 0 contributes to each element that it reaches."""
    places = (Fraction(2 * i - f + 1, 2 * f) for i in range(-2 * f, 3 * f))
    return [1 - abs(place) for place in places if abs(place) < 1]


def asymmetric(f: int) -> list[Fraction]:
    return [1 - abs(Fraction(i, f)) for i in range(1 - f, f)]


@pytest.mark.parametrize("f", range(2, 12))
@pytest.mark.parametrize(
    ("method", "weights"), [("symmetric", symmetric), ("asymmetric", asymmetric)]
)
def test_weights_of_a_deconvolution(
    method: str, weights: Callable[[int], list[Fraction]], f: int
) -> None:
    expected = tuple(map(float, weights(f)))
    assert constants(upsample([f], method, "constant"), [1, 1, 3]) == [expected]


def test_weights_of_the_examples_in_the_specification() -> None:
    assert constants(upsample([2], "symmetric"), [1, 1, 3]) == [
        (0.25, 0.75, 0.75, 0.25)
    ]
    assert constants(upsample([2], "asymmetric"), [1, 1, 3]) == [(0.5, 1.0, 0.5)]


@pytest.mark.parametrize(("extent", "f"), [(2, 2), (3, 7), (7, 3), (100, 2)])
def test_places_of_aligned_elements(extent: int, f: int) -> None:
    last = extent * f - 1
    places = (Fraction(i * (extent - 1), last) for i in range(last + 1))
    assert constants(upsample([f], "aligned"), [1, 1, extent]) == [
        tuple(map(float, places)),
        tuple(map(float, range(extent))),
    ]


def test_upsampling_by_much() -> None:
    text = model(upsample([50_000], "symmetric"), x=[1, 1, 2])
    backward = nnef_grad.differentiate(nnef_grad.loads(text))
    (weights,) = (op for op in backward.graph.operations if op.name == "constant")
    assert len(weights.attributes["value"]) == 100_000


@pytest.mark.parametrize(
    ("factor", "method", "shape"),
    [
        ([50_001], "symmetric", [1, 1, 1]),
        ([1, 50_001], "asymmetric", [1, 1, 1, 1]),
        ([10, 2], "aligned", [1, 1, 10_001, 1]),
    ],
)
def test_upsampling_by_more_than_anyone_writes_out(
    factor: Shape, method: str, shape: Shape
) -> None:
    graph = nnef_grad.loads(model(upsample(factor, method), x=shape))
    with pytest.raises(
        nnef_grad.NoDerivativeError,
        match="no derivative with more than 100000 weights along an axis",
    ):
        nnef_grad.differentiate(graph)


# ---- What is written ----


def names(operation: str, shape: Shape) -> list[str]:
    statements = written(backward_of(operation, x=shape))
    return [statement.split(" = ")[1].split("(")[0] for statement in statements]


def test_planes_share_their_weights() -> None:
    assert written(
        backward_of(upsample([2], "symmetric", "constant"), x=[2, 3, 4])
    ) == [
        "y_weights_2 = constant(shape = [1, 1, 4], value = [0.25, 0.75, 0.75, 0.25]);",
        "grad_y_spread = reshape(grad_y, shape = [6, 1, 8]);",
        "grad_y_planes = conv(grad_y_spread, y_weights_2, padding = [(1, 1)], stride = [2]);",
        "grad_x = reshape(grad_y_planes, shape = [2, 3, 4]);",
    ]


@pytest.mark.parametrize("method", METHODS)
def test_what_does_not_grow_is_not_touched(method: str) -> None:
    assert names(upsample([1, 1], method), [2, 3, 4, 5]) == ["copy"]


def test_a_single_plane_is_not_reshaped() -> None:
    operation = upsample([2, 1], "asymmetric", "constant")
    assert names(operation, [2, 1, 4, 5]) == ["constant", "conv"]


WEIGHTS = ["constant", "constant", "sub", "abs", "sub", "relu"]


@pytest.mark.parametrize(
    ("factor", "shape", "expected"),
    [
        ([2], [2, 3, 4], ["reshape", "matmul", "reshape"]),
        ([2, 1], [2, 3, 4, 1], ["reshape", "matmul", "reshape"]),
        ([1, 2], [2, 3, 4, 5], ["reshape", "matmul", "reshape"]),
        # Both axes have the same weights.
        (
            [2, 2],
            [2, 3, 4, 4],
            [
                "reshape",
                "transpose",
                "reshape",
                "matmul",
                "reshape",
                "matmul",
                "reshape",
            ],
        ),
    ],
)
def test_products_of_matrices(factor: Shape, shape: Shape, expected: list[str]) -> None:
    assert names(upsample(factor, "aligned"), shape) == [*WEIGHTS, *expected]
