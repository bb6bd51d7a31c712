"""Windows by the formulas of the specification, written as loops, and at random
beside the reference.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from support.evaluations import (
    Array,
    Case,
    Shape,
    all_close,
    close,
    feeds,
    model,
    torch_values,
)

import nnef_grad
from nnef_grad.interpreter import evaluate

# ---- Windows, by the formulas of the specification ----


class Axis:
    """Random windows along an axis. `padding` is None where it is automatic."""

    def __init__(self, random: random.Random, automatic: bool) -> None:
        self.size, self.stride = random.randint(1, 3), random.randint(1, 3)
        self.dilation = random.choice([1, 1, 2])
        reach = (self.size - 1) * self.dilation + 1
        self.down, rest = random.randint(1, 4), random.randint(0, self.stride - 1)
        self.padding = None
        self.before, self.up = 0, self.down * self.stride - rest
        if automatic:
            self.before = max((self.down - 1) * self.stride + reach - self.up, 0) // 2
            return
        natural = (self.down - 1) * self.stride + reach + rest
        most = min(reach, natural - 1)
        self.before = random.randint(-1, most)
        self.padding = (
            self.before,
            random.randint(-1, min(most, natural - 1 - self.before)),
        )
        self.up = natural - sum(self.padding)


def draw_axes(seed: int, rank: int) -> tuple[random.Random, list[Axis]]:
    draw = random.Random(seed)
    automatic = draw.random() < 0.3
    return draw, [Axis(draw, automatic) for _ in range(rank)]


def attributes_of(axes: Sequence[Axis]) -> str:
    padding = [axis.padding for axis in axes if axis.padding is not None]
    return (
        f"padding = {padding}, stride = {[axis.stride for axis in axes]},"
        f" dilation = {[axis.dilation for axis in axes]}"
    )


class NowhereError(IndexError):
    """The specification says nothing of this place in a border."""


def read(x: Array, position: int, border: str) -> float | None:
    """The input as its border extends it; None where an element is to be ignored."""
    extent = len(x)
    if 0 <= position < extent:
        return float(x[position])
    if border in ("constant", "ignore"):
        return 0.0 if border == "constant" else None
    source = {
        "replicate": 0 if position < 0 else extent - 1,
        "reflect": -position if position < 0 else 2 * (extent - 1) - position,
        "reflect-even": -1 - position if position < 0 else 2 * extent - 1 - position,
    }[border]
    if not 0 <= source < extent:
        raise NowhereError(position)
    return float(x[source])


def window(x: Array, axis: Axis, i: int, border: str) -> list[float | None]:
    """What the window i of a basic operation holds."""
    start = i * axis.stride - axis.before
    places = range(start, start + axis.size * axis.dilation, axis.dilation)
    return [read(x, place, border) for place in places]


def sources(axis: Axis, i: int) -> list[tuple[int, int]]:
    """For the element i of what a reverse operation gives: each j of the filter, and
    the element of the input that meets it there.
    """
    pairs = [(j, i + axis.before - j * axis.dilation) for j in range(axis.size)]
    return [(j, at // axis.stride) for j, at in pairs if at % axis.stride == 0]


def total(values: Sequence[float | None], weights: Array | None = None) -> float:
    weights = np.ones(len(values)) if weights is None else weights
    scaled = zip(values, weights, strict=True)
    return sum(value * float(weight) for value, weight in scaled if value is not None)


def box_loop(x: Array, axis: Axis, border: str, normalize: bool) -> list[float]:
    found = []
    for i in range(axis.down):
        held = window(x, axis, i, border)
        count = sum(value is not None for value in held)
        mean = total(held) / count if count else math.nan
        found.append(mean if normalize else total(held))
    return found


def conv_loop(x: Array, w: Array, axis: Axis, border: str) -> list[float]:
    return [total(window(x, axis, i, border), w) for i in range(axis.down)]


def deconv_loop(x: Array, w: Array, axis: Axis, border: str) -> list[float]:
    found = []
    for i in range(axis.up):
        met = sources(axis, i)
        found.append(
            total([read(x, at, border) for _, at in met], w[[j for j, _ in met]])
        )
    return found


def argmax_loop(x: Array, axis: Axis, border: str) -> list[int]:
    found = []
    for i in range(axis.down):
        held = [
            (v, -j) for j, v in enumerate(window(x, axis, i, border)) if v is not None
        ]
        found.append(-max(held)[1] if held else 0)
    return found


def sample_loop(x: Array, index: Array, axis: Axis, border: str) -> list[float]:
    taken = [window(x, axis, i, border)[index[i]] for i in range(axis.down)]
    return [-math.inf if value is None else value for value in taken]


def desample_loop(x: Array, index: Array, axis: Axis) -> list[float]:
    return [
        sum(
            float(x[at])
            for j, at in sources(axis, i)
            if 0 <= at < axis.down and index[at] == j
        )
        for i in range(axis.up)
    ]


def check_loop(
    statement: str,
    shapes: dict[str, Shape],
    seed: int,
    high: int,
    loop: Callable[..., Any],
) -> None:
    """Compares with a loop over the values of the operands, in one dimension; both may
    find that the specification gives no result.
    """
    text = model(statement, **shapes)
    fed = feeds(text, seed, high)
    try:
        expected = loop(*(value.ravel() for value in fed.values()))
    except NowhereError:
        with pytest.raises(nnef_grad.NnefGradError, match="border 'reflect"):
            evaluate(nnef_grad.loads(text), fed)
        return
    (actual,) = evaluate(nnef_grad.loads(text), fed).values()
    close(actual, np.array(expected, actual.dtype).reshape(actual.shape))


BORDERS = ["constant", "ignore", "replicate", "reflect", "reflect-even"]


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("border", BORDERS)
def test_windows_of_pools_by_the_formulas(border: str, seed: int) -> None:
    _, (axis,) = draw_axes(seed, 1)
    attributes = f"size = [{axis.size}], border = '{border}', {attributes_of([axis])}"
    up: Shape = [axis.up]
    for normalize in (False, True):
        check_loop(
            f"y = box(x, {attributes}, normalize = {str(normalize).lower()})",
            {"x": up}, seed, 2, lambda x: box_loop(x, axis, border, normalize),  # noqa: B023
        )  # fmt: skip
    check_loop(
        f"i = argmax_pool(x, {attributes})",
        {"x": up}, seed, 2, lambda x: argmax_loop(x, axis, border),
    )  # fmt: skip
    check_loop(
        f"y = sample(x, i, {attributes})",
        {"x": up, "i": [axis.down]}, seed, axis.size,
        lambda x, index: sample_loop(x, index, axis, border),
    )  # fmt: skip
    reverse = f"{attributes}, output_shape = [{axis.up}]"
    ones = np.ones(axis.size)
    check_loop(
        f"y = debox(x, {reverse})",
        {"x": [axis.down]}, seed, 2, lambda x: deconv_loop(x, ones, axis, border),
    )  # fmt: skip
    if border == "constant":
        check_loop(
            f"y = desample(x, i, {reverse})",
            {"x": [axis.down], "i": [axis.down]}, seed, axis.size,
            lambda x, index: desample_loop(x, index, axis),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("border", [b for b in BORDERS if b != "ignore"])
def test_windows_of_convolutions_by_the_formulas(border: str, seed: int) -> None:
    _, (axis,) = draw_axes(seed, 1)
    attributes = f"border = '{border}', {attributes_of([axis])}"
    weights = [1, 1, axis.size]
    check_loop(
        f"y = conv(x, w, {attributes})",
        {"x": [1, 1, axis.up], "w": weights}, seed, 2,
        lambda x, w: conv_loop(x, w, axis, border),
    )  # fmt: skip
    check_loop(
        f"y = deconv(x, w, {attributes}, output_shape = [1, 1, {axis.up}])",
        {"x": [1, 1, axis.down], "w": weights}, seed, 2,
        lambda x, w: deconv_loop(x, w, axis, border),
    )  # fmt: skip


# ---- Windows in several dimensions, at random ----


def random_convolution(seed: int) -> Case:
    draw, axes = draw_axes(seed, 1 + seed % 3)
    operation, border = (
        draw.choice(["conv", "deconv"]),
        draw.choice(["constant", "replicate"]),
    )
    groups, inside, filters = draw.randint(1, 3), draw.randint(1, 2), draw.randint(1, 2)
    up = [draw.randint(1, 2), groups * inside, *(axis.up for axis in axes)]
    down = [up[0], groups * filters, *(axis.down for axis in axes)]
    x, y = (up, down) if operation == "conv" else (down, up)
    weights = [groups * filters, inside, *(axis.size for axis in axes)]
    shapes: dict[str, Shape] = {
        "x": x,
        "w": weights,
        "b": draw.choice([[], [1, y[1]], [1]]),
    }
    attributes = f"border = '{border}', {attributes_of(axes)}"
    attributes += f", groups = {0 if inside == 1 and draw.random() < 0.5 else groups}"
    attributes += f", output_shape = {up}" if operation == "deconv" else ""
    return f"y = {operation}(x, w, b, {attributes})", shapes


def random_pool(seed: int) -> Case:
    draw, axes = draw_axes(seed, 1 + seed % 4)
    operation = draw.choice(
        ["box", "debox", "argmax_pool", "max_pool", "sample", "desample"]
    )
    up, down = [axis.up for axis in axes], [axis.down for axis in axes]
    borders = (
        ["constant"] if "sample" in operation else ["constant", "ignore", "replicate"]
    )
    attributes = f"size = {[axis.size for axis in axes]}, border = '{draw.choice(borders)}', {attributes_of(axes)}"
    attributes += f", output_shape = {up}" if operation.startswith("de") else ""
    attributes += (
        f", normalize = {draw.choice(['true', 'false'])}" if "box" in operation else ""
    )
    index: dict[str, Shape] = {"i": down} if "sample" in operation else {}
    shapes = {"x": down if operation.startswith("de") else up, **index}
    return f"y = {operation}(x, {'i, ' if index else ''}{attributes})", shapes


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("case", [random_convolution, random_pool])
def test_random_windows(case: Callable[[int], Case], seed: int) -> None:
    statement, shapes = case(seed)
    text = model(statement, **shapes)
    size = (
        [1]
        if "size" not in statement
        else statement.split("size = [")[1].split("]")[0].split(",")
    )
    fed = feeds(text, seed, high=math.prod(map(int, size)))
    all_close(evaluate(nnef_grad.loads(text), fed), torch_values(text, fed))
