"""The interpreter: every standard operation against the torch reference, against its
own body, and against the formulas of the specification written as loops.
"""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import reference
from support.checks import document

import nnef_grad
from nnef_grad import interpreter
from nnef_grad.interpreter import EVALUATIONS, evaluate, execute, step
from nnef_grad.language.library import standard

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Shape = list[int]

ROOT = Path(__file__).parents[2]
MODELS = ROOT.parent / "shared" / "models"
TOLERANCE = 1e-12

# What an input is, by the first letter of its name; others are scalar.
TYPES = {"i": "integer", "m": "logical"}


def model(statement: str, **shapes: Shape) -> str:
    """A graph of one operation on inputs of the given shapes, in their order."""
    targets, operation = statement.split(" = ", 1)
    declared = [
        f"    {name} = external<{TYPES.get(name[0], 'scalar')}>(shape = {list(shape)});"
        for name, shape in shapes.items()
    ]
    body = "\n".join([*declared, f"    {targets} = {operation};"])
    outputs = targets.strip("[]()")
    return document(body, inputs=", ".join(shapes), outputs=outputs)


def operation_of(statement: str) -> str:
    return statement.split(" = ", 1)[1].split("(")[0].split("<")[0]


def feeds(text: str, seed: int = 0, high: int = 2) -> dict[str, Array]:
    generator = torch.Generator().manual_seed(seed)
    fed, _ = reference.random_feeds(text, generator, high=high)
    return {name: value.numpy() for name, value in fed.items()}


def torch_values(text: str, fed: Arrays) -> dict[str, Array]:
    """What the reference computes for all tensors."""
    tensors = {name: torch.from_numpy(np.array(value)) for name, value in fed.items()}
    return {k: v.numpy() for k, v in reference.evaluate(text, tensors, {}).items()}


def close(actual: Array, expected: Array, tolerance: float = TOLERANCE) -> None:
    """Equal shapes and types; integers, infinities and NaN in the same places, and
    otherwise a small error, relative to the largest element.
    """
    assert actual.shape == expected.shape
    assert actual.dtype.kind == expected.dtype.kind
    if actual.dtype.kind != "f":
        assert np.array_equal(actual, expected)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    scale = max(np.abs(expected[finite]).max(initial=0.0), 1e-3)
    np.testing.assert_allclose(
        actual[finite], expected[finite], rtol=tolerance, atol=tolerance * scale
    )


def all_close(actual: Arrays, expected: Arrays, tolerance: float = TOLERANCE) -> None:
    for name, value in actual.items():
        close(value, expected[name], tolerance)


# ---- Every operation ----

X = [2, 3, 8, 7]
W = [4, 3, 3, 3]
N = [2, 3]
MANY = [5, 20]
RANKS = [[], [3], [2, 3], [2, 3, 4], [2, 3, 4, 2], [2, 1, 3, 2, 2]]

UNARY = [
    "copy", "neg", "rcp", "abs", "sign", "exp", "log", "log2", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sqr",
    "sqrt", "rsqr", "rsqrt", "floor", "ceil", "round", "sigmoid", "relu", "elu", "selu",
    "gelu", "silu", "softplus",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "pow", "lt", "gt", "le", "ge", "eq", "ne", "min", "max",
    "prelu",
]  # fmt: skip
BROADCASTS = [
    ([], []), ([2, 3], []), ([], [2, 3]), ([2, 3], [2]), ([2], [2, 3]), ([2, 1], [1, 3]),
    ([2, 3, 4], [1, 3]), ([1, 3], [2, 3, 4, 5]), ([2, 1, 1, 2, 1], [1, 2, 3]),
]  # fmt: skip

Case = tuple[str, dict[str, Shape]]
CASES: list[Case] = [
    *((f"y = {name}(x)", {"x": MANY}) for name in UNARY),
    *(("y = exp(x)", {"x": shape}) for shape in RANKS),
    *((f"y = {name}(x, w)", {"x": x, "w": w}) for name in BINARY for x, w in BROADCASTS),
    *((f"y = {name}(m, m2)", {"m": x, "m2": w}) for name in ("and", "or") for x, w in BROADCASTS),
    ("y = add(x, 1.5)", {"x": N}),
    ("y = sub(2.5, x)", {"x": N}),
    ("y = not(m)", {"m": [2, 3]}),
    ("y = leaky_relu(x, alpha = 0.1)", {"x": MANY}),
    ("y = elu(x, alpha = 0.3)", {"x": MANY}),
    ("y = selu(x, alpha = 0.3, lambda = 1.5)", {"x": MANY}),
    ("y = softabs(x, epsilon = 0.01)", {"x": MANY}),
    ("y = select(m, x, w)", {"m": [2, 3], "x": [2, 3], "w": [2, 3]}),
    ("y = select(m, x, w)", {"m": [2], "x": [2, 3], "w": []}),
    ("y = select(m, x, 0.0)", {"m": [2, 1, 4], "x": [1, 3]}),
    ("y = select(m, i, 7)", {"m": [2, 3], "i": [2]}),
    ("y = clamp(x, -0.5, 0.5)", {"x": MANY}),
    ("y = clamp(x, a, b)", {"x": [2, 3, 4], "a": [2], "b": [1, 3]}),
    ("y = add_n([x])", {"x": N}),
    ("y = add_n([x, w, b])", {"x": N, "w": N, "b": N}),
    ("[y, z, u] = copy_n(x, times = 3)", {"x": N}),
    ("y = constant(shape = [2, 3], value = [1.5])", {"x": N}),
    ("y = constant(shape = [2, 3], value = [1.0, 2.0, 3.0, 4.0, 5.0, 6.5])", {"x": N}),
    ("y = constant<integer>(shape = [2, 1], value = [3, 4])", {"x": N}),
    ("y = constant<logical>(shape = [2], value = [true, false])", {"x": N}),
    ("y = cast<integer>(x)", {"x": MANY}),
    ("y = cast<logical>(x)", {"x": MANY}),
    ("y = cast<scalar>(i)", {"i": N}),
    ("y = cast<scalar>(m)", {"m": N}),
    ("y = cast<integer>(m)", {"m": N}),
    ("y = cast<logical>(i)", {"i": N}),
    ("y = cast<integer>(i)", {"i": N}),
    # Reductions
    *(
        (f"y = {name}(x, axes = {axes})", {"x": [2, 3, 4]})
        for name in ("sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "argmax_reduce", "argmin_reduce")
        for axes in ([0], [1], [2], [0, 2], [2, 1], [2, 0, 1], [])
        if axes or not name.startswith("arg")
    ),
    *((f"y = {name}(m, axes = {axes})", {"m": [2, 3, 2]}) for name in ("all_reduce", "any_reduce") for axes in ([1], [0, 2], [2, 1])),
    ("y = sum_reduce(x, axes = [0, 2], normalize = true)", {"x": [2, 3, 4]}),
    ("y, z = moments(x, axes = [0, 2])", {"x": [2, 3, 4]}),
    ("y = softmax(x)", {"x": [2, 3, 4]}),
    ("y = softmax(x, axes = [2, 0])", {"x": [2, 3, 4]}),
    # Matrix products
    ("y = matmul(x, w)", {"x": [2, 3], "w": [3, 4]}),
    ("y = matmul(x, w, transposeA = true)", {"x": [3, 2], "w": [3, 4]}),
    ("y = matmul(x, w, transposeB = true)", {"x": [5, 2, 3], "w": [5, 4, 3]}),
    ("y = matmul(x, w, transposeA = true, transposeB = true)", {"x": [1, 5, 3, 2], "w": [4, 1, 6, 3]}),
    ("y = linear(x, w)", {"x": [2, 3], "w": [4, 3]}),
    ("y = linear(x, w, b)", {"x": [2, 3], "w": [4, 3], "b": [1, 4]}),
    ("y = linear(x, w, b)", {"x": [2, 3], "w": [4, 3], "b": []}),
    # Convolutions
    ("y = conv(x, w)", {"x": X, "w": W}),
    ("y = conv(x, w, b, stride = [2, 3], dilation = [1, 2])", {"x": X, "w": W, "b": [1, 4]}),
    ("y = conv(x, w, 0.5, padding = [(1, 0), (-1, 2)])", {"x": X, "w": W}),
    ("y = conv(x, w, groups = 0)", {"x": X, "w": [6, 1, 2, 3]}),
    ("y = conv(x, w, groups = 2)", {"x": [2, 4, 5], "w": [6, 2, 3]}),
    ("y = conv(x, w, border = 'replicate')", {"x": X, "w": W}),
    ("y = conv(x, w, border = 'reflect', padding = [(2, 3), (0, 4)])", {"x": X, "w": W}),
    ("y = conv(x, w, border = 'reflect-even', stride = [2, 1])", {"x": X, "w": W}),
    ("y = conv(x, w, stride = [2, 1, 2])", {"x": [1, 2, 4, 3, 5], "w": [3, 2, 3, 1, 2]}),
    ("y = deconv(x, w)", {"x": [2, 4, 5, 3], "w": W}),
    ("y = deconv(x, w, b, stride = [2, 3], dilation = [2, 1])", {"x": [2, 4, 5, 3], "w": W, "b": [1, 3]}),
    ("y = deconv(x, w, stride = [3], padding = [(1, 1)], output_shape = [2, 4, 14], groups = 2)", {"x": [2, 6, 5], "w": [6, 2, 3]}),
    ("y = deconv(x, w, groups = 0)", {"x": [2, 4, 5], "w": [4, 1, 3]}),
    ("y = deconv(x, w, groups = 0, padding = [(0, 0)], output_shape = [2, 2, 7])", {"x": [2, 4, 5], "w": [4, 1, 3]}),
    ("y = deconv(x, w, border = 'replicate', padding = [(0, 1), (2, 0)])", {"x": [2, 4, 5, 3], "w": W}),
    ("y = deconv(x, w, border = 'reflect', stride = [2, 1])", {"x": [2, 4, 5, 3], "w": W}),
    ("y = deconv(x, w, border = 'reflect-even', padding = [(-1, 0), (1, 1)])", {"x": [2, 4, 5, 3], "w": W}),
    ("y = separable_conv(x, w, v)", {"x": X, "w": [6, 1, 3, 2], "v": [5, 6, 1, 1]}),
    ("y = separable_conv(x, w, v, b, border = 'replicate', stride = [2, 1], groups = 2)", {"x": X, "w": [6, 1, 3, 2], "v": [4, 3, 1, 1], "b": [1, 4]}),
    ("y = separable_deconv(x, w, v, b, stride = [2, 1], groups = 2)", {"x": [2, 4, 5, 3], "w": [6, 1, 3, 2], "v": [4, 3, 1, 1], "b": [1, 6]}),
    # Windows
    *(
        (f"y = {name}(x, size = [1, 2, 3, 2], border = '{border}'{rest})", {"x": X})
        for name in ("box", "avg_pool", "rms_pool", "max_pool", "argmax_pool")
        for border in ("constant", "ignore", "replicate", "reflect", "reflect-even")
        for rest in ("", ", padding = [(0, 0), (1, 0), (1, 2), (-1, 1)], stride = [1, 1, 2, 3], dilation = [1, 2, 1, 2]")
    ),
    ("y = box(x, size = [2, 1, 3], normalize = true)", {"x": [4, 3, 6]}),
    ("y = box(x, size = [2, 1, 3], normalize = true, border = 'ignore', stride = [1, 2, 1])", {"x": [4, 3, 6]}),
    ("y = box(x, size = [])", {"x": []}),
    ("y = box(x, size = [3])", {"x": [5]}),
    ("y, i = max_pool_with_index(x, size = [1, 1, 3, 2], border = 'ignore', stride = [1, 1, 2, 2])", {"x": X}),
    ("y = sample(x, i, size = [1, 1, 1, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 1)])", {"x": X, "i": X}),
    ("y = sample(x, i, size = [1, 2, 1, 1], border = 'reflect-even')", {"x": X, "i": X}),
    ("y = desample(x, i, size = [1, 1, 1, 2], stride = [1, 1, 1, 2])", {"x": X, "i": X}),
    ("y = desample(x, i, size = [1, 2], padding = [(0, 0), (1, 0)], output_shape = [3, 5])", {"x": [3, 5], "i": [3, 5]}),
    *(
        (f"y = debox(x, size = [1, 2, 3], border = '{border}'{rest})", {"x": [2, 4, 5]})
        for border in ("constant", "ignore", "replicate", "reflect", "reflect-even")
        for rest in ("", ", padding = [(0, 0), (1, 0), (-1, 1)], stride = [1, 1, 3], normalize = true", ", dilation = [1, 2, 2], padding = [(0, 0), (1, 1), (2, 2)]")
    ),
    # Sampling
    ("y = nearest_downsample(x, factor = [2, 3])", {"x": [2, 3, 4, 6]}),
    ("y = area_downsample(x, factor = [2, 3])", {"x": [2, 3, 4, 6]}),
    ("y = nearest_upsample(x, factor = [2, 3])", {"x": [2, 3, 4, 5]}),
    *(
        (f"y = multilinear_upsample(x, factor = [{f}, 2], method = '{method}', border = '{border}')", {"x": [2, 3, 4, 5]})
        for f in (1, 3, 4)
        for method in ("symmetric", "asymmetric", "aligned")
        for border in ("constant", "replicate", "reflect", "reflect-even")
    ),
    ("y = multilinear_upsample(x, factor = [3], method = 'aligned')", {"x": [2, 3, 1]}),
    # Normalization
    ("y = local_response_normalization(x, size = [1, 3, 1, 1], alpha = 0.5, beta = 0.75, bias = 2.0)", {"x": X}),
    ("y = local_mean_normalization(x, size = [1, 1, 3, 4])", {"x": X}),
    ("y = local_variance_normalization(x, size = [1, 1, 3, 4], bias = 0.1, epsilon = 0.8)", {"x": X}),
    ("y = local_contrast_normalization(x, size = [1, 1, 3, 4], bias = 0.1, epsilon = 0.8)", {"x": X}),
    ("y = l1_normalization(x, axes = [1, 2], bias = 0.1, epsilon = 6.0)", {"x": [5, 3, 2]}),
    ("y = l2_normalization(x, axes = [1], bias = 0.1, epsilon = 1.5)", {"x": [5, 3]}),
    ("y = batch_normalization(x, a, v, b, s, epsilon = 0.5)", {"x": X, "a": [1, 3], "v": [], "b": [2], "s": [1, 3, 1, 1]}),
    # Shapes
    ("y = reshape(x, shape = [3, -1])", {"x": [2, 3, 4]}),
    ("y = reshape(i, shape = [0, 2, -1], axis_start = 0, axis_count = 2)", {"i": [2, 4, 3]}),
    ("y = reshape(x, shape = [])", {"x": [1, 1]}),
    ("y = squeeze(x, axes = [2, 0])", {"x": [1, 3, 1, 4]}),
    ("y = unsqueeze(m, axes = [3, 0])", {"m": [2, 3]}),
    ("y = transpose(x, axes = [2, 0, 1])", {"x": [2, 3, 4, 5]}),
    ("y = concat([x, w], axis = 1)", {"x": [2, 3], "w": [2, 1]}),
    ("[y, z] = split(x, axis = 1, ratios = [1, 2])", {"x": [2, 6, 3]}),
    ("y = stack([i, i2], axis = 2)", {"i": [2, 3], "i2": [2, 3]}),
    ("[y, z] = unstack(x, axis = 1)", {"x": [3, 2, 4]}),
    ("[y, z] = unstack(x, axis = 0)", {"x": [2]}),
    ("[y, z] = unstack(x, axis = 2)", {"x": [3, 4, 2]}),
    ("y = slice(x, axes = [1], begin = [1], end = [0])", {"x": [2, 5]}),
    ("y = slice(x, axes = [2, 0], begin = [-1, 1], end = [-9, 9], stride = [-2, 1])", {"x": [3, 2, 6]}),
    *(
        (f"y = pad(x, padding = [(1, 0), (2, 2), (0, -1)], border = '{border}', value = 1.5)", {"x": [2, 3, 4]})
        for border in ("constant", "ignore", "replicate", "reflect-even")
    ),
    ("y = pad(x, padding = [(0, 0), (2, 2), (-2, 3)], border = 'reflect')", {"x": [2, 3, 6]}),
    ("y = pad(x, padding = [(7, -5)])", {"x": [4]}),
    ("y = tile(x, repeats = [2, 1, 3])", {"x": [2, 3, 2]}),
    ("y = gather(x, i, axis = 1)", {"x": [3, 2, 4], "i": [2, 3]}),
    ("y = gather(x, i)", {"x": [3, 2], "i": []}),
    ("y = gather(x, 1, axis = 1)", {"x": [3, 2]}),
]  # fmt: skip

# These are held against their bodies, and against loops further down.
ROIS = {"x": [2, 3, 6, 5], "r": [4, 4], "i": [4, 1]}
APART: list[Case] = [
    ("y = avg_roi_pool(x, r, i, output_size = [2, 3])", ROIS),
    ("y = max_roi_pool(x, r, i, output_size = [2, 3])", ROIS),
    ("y = roi_resample(x, r, i, output_size = [2, 3], method = 'aligned')", ROIS),
    ("y = avg_roi_align(x, r, i, output_size = [2, 1], sampling_rate = [1, 3])", ROIS),
    ("y = max_roi_align(x, r, i, output_size = [2, 1], sampling_rate = [2, 3], resize_method = 'asymmetric')", ROIS),
    *(
        (f"y = min_max_linear_quantize(x, -1.5, w, bits = {bits}, signed = {signed}, symmetric = {symmetric})", {"x": MANY, "w": [5]})
        for bits in (2, 8) for signed in ("true", "false") for symmetric in ("true", "false")
    ),
    *(
        (f"y = zero_point_linear_quantize(x, i, 0.03, bits = {bits}, signed = {signed}, symmetric = {symmetric})", {"x": MANY, "i": [5]})
        for bits in (2, 8) for signed in ("true", "false") for symmetric in ("true", "false")
    ),
    ("y = linear_quantize(x, -1.5, 2.0, bits = 4)", {"x": MANY}),
    ("y = logarithmic_quantize(x, w, bits = 2)", {"x": MANY, "w": [1, 20]}),
]  # fmt: skip


def test_every_standard_operation_has_an_evaluation() -> None:
    assert set(EVALUATIONS) == set(standard())


def test_every_standard_operation_is_tested() -> None:
    tested = {operation_of(statement) for statement, _ in [*CASES, *APART]}
    of_graphs = {"external", "variable", "update"}
    assert tested | of_graphs == set(standard())


def identity(case: Any) -> str | None:
    return case if isinstance(case, str) else None


@pytest.mark.parametrize(("statement", "shapes"), CASES, ids=identity)
def test_the_reference_agrees(statement: str, shapes: dict[str, Shape]) -> None:
    text = model(statement, **shapes)
    graph = nnef_grad.loads(text)
    for seed in range(2):
        fed = feeds(text, seed)
        all_close(evaluate(graph, fed), torch_values(text, fed))


@pytest.mark.parametrize("band", [1, 50, 400])
def test_a_convolution_is_the_same_band_by_band(
    band: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [(s, shapes) for s, shapes in CASES if operation_of(s) == "conv"]
    for statement, shapes in statements:
        text = model(statement, **shapes)
        whole = evaluate(nnef_grad.loads(text), feeds(text))
        monkeypatch.setattr(interpreter.conv, "_BAND", band)
        all_close(evaluate(nnef_grad.loads(text), feeds(text)), whole)
        monkeypatch.undo()
    assert len(statements) > 3


COMPOUND = [
    (statement, shapes)
    for statement, shapes in [*CASES, *APART]
    if standard()[operation_of(statement)].body is not None
]


@pytest.mark.parametrize(("statement", "shapes"), COMPOUND, ids=identity)
def test_the_body_agrees(statement: str, shapes: dict[str, Shape]) -> None:
    text, name = model(statement, **shapes), operation_of(statement)
    fed = feeds(text)
    expanded = nnef_grad.loads(text, expand=[name])
    assert name not in {operation.name for operation in expanded.operations}
    # The body of gelu is an approximation.
    tolerance = 0.03 if name == "gelu" else TOLERANCE
    all_close(evaluate(nnef_grad.loads(text), fed), evaluate(expanded, fed), tolerance)


@pytest.mark.parametrize(("statement", "shapes"), [*CASES, *APART], ids=identity)
def test_single_precision_is_near(statement: str, shapes: dict[str, Shape]) -> None:
    text = model(statement, **shapes)
    graph = nnef_grad.loads(text)
    single = {
        name: value.astype(np.float32) if value.dtype.kind == "f" else value
        for name, value in feeds(text).items()
    }
    outputs = evaluate(graph, single, dtype=np.float32)
    assert all(value.dtype != np.float64 for value in outputs.values())
    all_close(outputs, evaluate(graph, single), 1e-4)


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


@pytest.mark.one_in(4)
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


@pytest.mark.one_in(4)
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


@pytest.mark.one_in(4)
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


# ---- Regions of interest, as loops ----


def rois(seed: int, extents: Shape) -> dict[str, Array]:
    """Regions inside of the maps, across their edges, and without elements."""
    draw = np.random.default_rng(seed)
    ends = np.sort(draw.uniform(-2.0, 9.0, (12, 2, len(extents))), axis=1)
    ends[0, 0], ends[0, 1] = 0.0, extents
    ends[1, 1] = ends[1, 0]
    ends[2] = ends[2, ::-1]
    ends[3] = np.round(ends[3]) + 0.5
    return {
        "x": draw.standard_normal((3, 2, *extents)),
        "r": ends.reshape(12, -1),
        "i": draw.integers(0, 3, (12, 1)),
    }


def cell(first: float, last: float, count: int, index: int, extent: int) -> range:
    """The positions of one of the cells along an axis."""
    begin, end = math.floor(first + 0.5), math.floor(last + 0.5)
    start = begin + index * ((end - begin) // count)
    return range(max(start, 0), min(start + math.ceil((end - begin) / count), extent))


def roi_pool_loop(
    function: Callable[[list[float]], float], x: Array, r: Array, i: Array, size: Shape
) -> Array:
    axes = len(size)
    y = np.zeros((len(r), x.shape[1], *size))
    for n, channel, *place in np.ndindex(*y.shape):
        cells = [
            cell(
                r[n, axis],
                r[n, axes + axis],
                size[axis],
                place[axis],
                x.shape[2 + axis],
            )
            for axis in range(axes)
        ]
        held = [float(x[(i[n, 0], channel, *at)]) for at in itertools.product(*cells)]
        y[(n, channel, *place)] = function(held) if held else 0.0
    return y


def roi_resample_loop(x: Array, r: Array, i: Array, size: Shape, method: str) -> Array:
    axes = len(size)
    y = np.zeros((len(r), x.shape[1], *size))
    for n, channel, *place in np.ndindex(*y.shape):
        terms = []
        for axis, (index, count) in enumerate(zip(place, size, strict=True)):
            first, extent = r[n, axis], r[n, axes + axis] - r[n, axis]
            point = (
                first
                + {
                    "symmetric": (index + 0.5) * extent / count - 0.5,
                    "asymmetric": index * extent / count,
                    "aligned": index * (extent - 1) / (count - 1) if count > 1 else 0.0,
                }[method]
            )
            last = x.shape[2 + axis] - 1
            point = min(max(point, 0.0), last)
            low = math.floor(point)
            terms.append([(low, low + 1 - point), (min(low + 1, last), point - low)])
        y[(n, channel, *place)] = sum(
            math.prod(weight for _, weight in corner)
            * x[(i[n, 0], channel, *(at for at, _ in corner))]
            for corner in itertools.product(*terms)
        )
    return y


def roi_model(name: str, axes: int, attributes: str) -> nnef_grad.Graph:
    shapes = {"x": [3, 2, *[6, 5, 7][:axes]], "r": [12, 2 * axes], "i": [12, 1]}
    return nnef_grad.loads(model(f"y = {name}(x, r, i, {attributes})", **shapes))


POOLS: dict[str, Callable[[list[float]], float]] = {
    "avg_roi_pool": lambda held: sum(held) / len(held),
    "max_roi_pool": max,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", POOLS)
def test_roi_pools_by_loops(name: str, axes: int, seed: int) -> None:
    size = [2, 3, 1][:axes]
    fed = rois(seed, [6, 5, 7][:axes])
    (y,) = evaluate(roi_model(name, axes, f"output_size = {size}"), fed).values()
    close(y, roi_pool_loop(POOLS[name], **fed, size=size))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("method", ["symmetric", "asymmetric", "aligned"])
def test_roi_resampling_by_loops(method: str, axes: int, seed: int) -> None:
    size = [2, 3, 1][:axes]
    fed = rois(seed, [6, 5, 7][:axes])
    attributes = f"output_size = {size}, method = '{method}'"
    (y,) = evaluate(roi_model("roi_resample", axes, attributes), fed).values()
    close(y, roi_resample_loop(**fed, size=size, method=method))


@pytest.mark.parametrize("method", ["symmetric", "asymmetric", "aligned"])
def test_the_whole_map_resampled_is_the_map_upsampled(method: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5))
    whole = {"x": x, "r": [[0.0, 0.0, 4.0, 5.0]], "i": [0]}
    shapes = {"x": [1, 2, 4, 5], "r": [1, 4], "i": [1]}
    roi = f"y = roi_resample(x, r, i, output_size = [12, 10], method = '{method}')"
    (resampled,) = run(roi, whole, **shapes)
    up = f"y = multilinear_upsample(x, factor = [3, 2], method = '{method}', border = 'replicate')"
    (upsampled,) = run(up, {"x": x}, x=[1, 2, 4, 5])
    close(resampled, upsampled)


def run(statement: str, fed: Mapping[str, Any], **shapes: Shape) -> list[Array]:
    return list(evaluate(nnef_grad.loads(model(statement, **shapes)), fed).values())


# ---- Special values ----

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("operation", "x", "y"),
    [
        ("round(x)", [0.5, 1.5, -0.5, -1.5, -0.4, INF, NAN], [1, 2, 0, -1, 0, INF, NAN]),
        ("sign(x)", [-2.0, 0.0, INF, NAN], [-1, 0, 1, NAN]),
        ("rcp(x)", [0.0, -0.0, INF], [INF, -INF, 0]),
        ("log(x)", [0.0, -1.0, INF], [-INF, NAN, INF]),
        ("log2(x)", [0.0, 8.0, 2.0**-1074], [-INF, 3, -1074]),
        ("sqrt(x)", [-1.0, 0.0, INF], [NAN, 0, INF]),
        ("rsqrt(x)", [0.0, 4.0, INF], [INF, 0.5, 0]),
        ("rsqr(x)", [0.0, 2.0, 1e200], [INF, 0.25, 0]),
        ("exp(x)", [1000.0, -1000.0], [INF, 0]),
        ("sigmoid(x)", [1000.0, -1000.0, INF, -INF, NAN], [1, 0, 1, 0, NAN]),
        ("silu(x)", [1000.0, -1000.0], [1000, 0]),
        ("gelu(x)", [1000.0, -1000.0, -10.0, INF], [1000, 0, -7.619853024160525e-23, INF]),
        ("softplus(x)", [1000.0, -1000.0, 0.0, INF, -INF], [1000, 0, math.log(2), INF, 0]),
        ("elu(x)", [1000.0, -1000.0, -1e-20, -INF], [1000, -1, -1e-20, -1]),
        ("selu(x)", [1000.0, -1000.0], [1050.70102, -1.67326319 * 1.05070102]),
        ("relu(x)", [INF, -INF, NAN, 0.0], [INF, 0, 0, 0]),
        ("leaky_relu(x, alpha = 0.5)", [INF, -INF, NAN, -2.0], [INF, -INF, NAN, -1]),
        ("softmax(x, axes = [0])", [1000.0, 1000.0, -1000.0, -INF], [0.5, 0.5, 0, 0]),
        ("min(x, 1.0)", [INF, NAN, 1.0, -INF], [1, 1, 1, -INF]),
        ("max(x, 1.0)", [INF, NAN, 1.0, -INF], [INF, 1, 1, 1]),
        ("min(1.0, x)", [INF, NAN, 2.0], [1, NAN, 1]),
        ("max(1.0, x)", [-INF, NAN, 0.0], [1, NAN, 1]),
        ("clamp(x, 2.0, 1.0)", [0.0, 1.5, 3.0], [2, 2, 2]),
        ("pow(x, 0.5)", [-1.0, 0.0, 4.0], [NAN, 0, 2]),
        ("pow(x, 0.0)", [-1.0, 0.0, INF, NAN], [1, 1, 1, 1]),
        ("pow(x, -2.0)", [0.0, -2.0], [INF, 0.25]),
        ("div(x, 0.0)", [1.0, -1.0, 0.0], [INF, -INF, NAN]),
        ("max_reduce(x, axes = [0])", [1.0, NAN, INF], [NAN]),
        ("argmax_reduce(x, axes = [0])", [1.0, 3.0, 3.0, -INF], [1]),
        ("argmin_reduce(x, axes = [0])", [3.0, -INF, -INF], [1]),
        ("cast<integer>(x)", [-1.5, 1.5, -0.0], [-2, 1, 0]),
        ("cast<logical>(x)", [0.0, -0.0, 1e-300, NAN], [False, False, True, True]),
        ("argmax_pool(x, size = [3])", [1.0, 1.0, -1.0, -1.0, -1.0], [1, 0, 0, 0, 2]),
        ("argmax_pool(x, size = [3], border = 'ignore')", [-INF, -INF, -1.0, -1.0, -1.0], [1, 2, 1, 0, 0]),
        ("max_pool(x, size = [3], border = 'ignore')", [-INF, -INF, -1.0, NAN, INF], [-INF, -1, NAN, NAN, NAN]),
        ("max_pool(x, size = [1], padding = [(1, 1)], border = 'ignore')", [3.0], [-INF, 3, -INF]),
        ("avg_pool(x, size = [1], padding = [(1, 1)], border = 'ignore')", [3.0], [NAN, 3, NAN]),
        ("box(x, size = [3], border = 'ignore', normalize = true)", [1.0, 2.0, 6.0], [1.5, 3, 4]),
        ("box(x, size = [3], normalize = true)", [1.0, 2.0, 6.0], [1, 3, 8 / 3]),
        ("logarithmic_quantize(x, 6.0, bits = 2)", [0.0, -5.0, 100.0, 0.01], [0, -4, 8, 1]),
        ("min_max_linear_quantize(x, 0.0, 3.0, bits = 2, signed = false, symmetric = false)", [-1.0, 0.5, 1.4, 9.0], [0, 1, 1, 3]),
        ("zero_point_linear_quantize(x, 1, 0.5, bits = 8, signed = true, symmetric = false)", [-100.0, 0.25, 100.0], [-64.5, 0.5, 63]),
        ("zero_point_linear_quantize(x, 1, 0.5, bits = 8, signed = true, symmetric = true)", [-100.0, 100.0], [-64, 63]),
    ],
)  # fmt: skip
def test_special_values(operation: str, x: list[float], y: list[float]) -> None:
    (found,) = run(f"y = {operation}", {"x": x}, x=[len(x)])
    np.testing.assert_allclose(found, y, rtol=1e-14)


def test_indices_in_row_major_order() -> None:
    x = np.zeros((2, 3, 2))
    x[1, 0, 1] = x[1, 1, 0] = 1.0
    (index,) = run("i = argmax_reduce(x, axes = [2, 0])", {"x": x}, x=[2, 3, 2])
    assert index.ravel().tolist() == [3, 2, 0]
    (index,) = run("i = argmax_pool(x, size = [2, 3, 2], padding = [(0, 0), (0, 0), (0, 0)])", {"x": x}, x=[2, 3, 2])  # fmt: skip
    assert index.ravel().tolist() == [7]


def test_nothing_is_left_of_an_empty_slice() -> None:
    empty = "    x = external(shape = [2, 3]);\n    e = slice(x, axes = [1], begin = [1], end = [1]);\n"
    outputs = {
        "sum_reduce(e, axes = [1])": [0.0, 0.0],
        "mean_reduce(e, axes = [1])": [NAN, NAN],
        "max_reduce(e, axes = [1])": [-INF, -INF],
        "min_reduce(e, axes = [1])": [INF, INF],
        "pad(e, padding = [(0, 0), (1, 0)], value = 2.0)": [2.0, 2.0],
        "concat([e, e], axis = 1)": [],
        "relu(e)": [],
    }
    for operation, expected in outputs.items():
        graph = nnef_grad.loads(document(f"{empty}    y = {operation};"))
        (y,) = evaluate(graph, {"x": np.ones((2, 3))}).values()
        np.testing.assert_array_equal(y.ravel(), expected)


def test_texts_are_cast_as_built_in_functions_do() -> None:
    text = """
    s = external<string>(shape = [2]);
    m = external<logical>(shape = [2]);
    a = cast<scalar>(s);
    b = cast<integer>(s);
    c = cast<logical>(s);
    d = cast<string>(m);
    e = cast<string>(1.5);
    f = constant<string>(shape = [2], value = ['long']);
    """
    graph = nnef_grad.loads(document(text, "s, m", "a, b, c, d, e, f"))
    found = evaluate(graph, {"s": ["12", "-3"], "m": [True, False]})
    assert {name: value.tolist() for name, value in found.items()} == {
        "a": [12.0, -3.0],
        "b": [12, -3],
        "c": [True, True],
        "d": ["true", "false"],
        "e": "1.5",
        "f": ["long", "long"],
    }
    with pytest.raises(nnef_grad.UsageError, match="a string is not a number"):
        evaluate(graph, {"s": ["12", ""], "m": [True, False]})


# ---- Graphs ----

NETWORK = """
    x = external(shape = [2, 3]);
    w = variable(shape = [4, 3], label = 'Layer/Weight');
    b = variable(shape = [1, 4], label = 'layer/bias');
    h = linear(x, w, b);
    y = relu(h);
"""


def network_data() -> tuple[dict[str, Array], dict[str, Array]]:
    draw = np.random.default_rng(0)
    variables = {
        "layer/weight": draw.standard_normal((4, 3)),
        "LAYER/BIAS": draw.standard_normal((1, 4)),
    }
    return {"x": draw.standard_normal((2, 3))}, variables


def test_variables_are_found_by_label_in_upper_and_lower_case() -> None:
    inputs, variables = network_data()
    spare = {**variables, "of/another/graph": np.zeros(7)}
    outputs = evaluate(nnef_grad.loads(document(NETWORK)), inputs, spare)
    weight, bias = variables.values()
    assert list(outputs) == ["y"]
    close(outputs["y"], np.maximum(inputs["x"] @ weight.T + bias, 0.0))


def test_variables_of_one_label_share_their_data() -> None:
    text = """
    x = external(shape = [2]);
    v = variable(shape = [2], label = 'a/B');
    w = variable(shape = [2], label = 'A/b');
    s = add(v, w);
    y = add(x, s);
    """
    outputs = evaluate(nnef_grad.loads(document(text)), {"x": [0.0, 1.0]}, {"a/b": [1.0, 2.0]})  # fmt: skip
    assert outputs["y"].tolist() == [2.0, 5.0]


def test_update_returns_the_new_value_and_the_variable_keeps_the_old_one() -> None:
    text = """
    x = external(shape = [2]);
    v = variable(shape = [2], label = 'v');
    s = add(v, x);
    u = update(v, s);
    y = copy(v);
    """
    graph = nnef_grad.loads(document(text, outputs="u, y"))
    outputs = evaluate(graph, {"x": [1.0, 2.0]}, {"v": [10.0, 20.0]})
    assert outputs["u"].tolist() == [11.0, 22.0]
    assert outputs["y"].tolist() == [10.0, 20.0]


def test_outputs_share_no_memory_with_what_was_fed() -> None:
    text = document(
        "    x = external(shape = [2, 3]);\n    y = transpose(x, axes = [1, 0]);"
    )
    x = np.zeros((2, 3))
    (y,) = evaluate(nnef_grad.loads(text), {"x": x}).values()
    y += 1.0
    assert not x.any()


def test_lists_and_other_precisions_do() -> None:
    graph = nnef_grad.loads(model("y = add(x, w)", x=[2], w=[]))
    for x in (
        [1, 2],
        [1.0, 2.0],
        np.array([1, 2], np.float16),
        np.array([1, 2], np.uint8),
    ):
        (y,) = evaluate(graph, {"x": x, "w": 0.5}).values()
        assert y.dtype == np.float64
        assert y.tolist() == [1.5, 2.5]


def test_what_nobody_reads_any_more_is_released() -> None:
    seen: list[weakref.ref[Array]] = []

    def swish(x: Array, beta: float) -> Array:
        assert all(array() is None for array in seen)
        seen.append(weakref.ref(x))
        return np.asarray(x * EVALUATIONS["sigmoid"](beta * x))

    evaluate(own_graph("h1 = swish(x); h2 = swish(h1); h3 = swish(h2); y = swish(h3);"), {"x": [1.0, 2.0]}, rules=own_rules(swish))  # fmt: skip
    assert len(seen) == 4


@pytest.mark.parametrize(
    "sample", ["linear", "broadcast", "mlp", "convnet", "residual"]
)
def test_backward_graphs(sample: str) -> None:
    graph = nnef_grad.load(ROOT / "samples" / f"{sample}.nnef")
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    text = nnef_grad.dumps(nnef_grad.loads(nnef_grad.dumps(graph)))
    generator = torch.Generator().manual_seed(1)
    fed, variables = reference.random_feeds(text, generator)
    variables = {label: value.abs() + 0.1 for label, value in variables.items()}
    forward = reference.evaluate(text, fed, variables)
    seeds = {name: torch.randn(forward[name].shape, generator=generator, dtype=torch.float64) for name in backward.seeds}  # fmt: skip
    expected = reference.gradients(
        text, fed, variables, list(backward.gradients), seeds
    )

    grads = {backward.seeds[name]: seed for name, seed in seeds.items()}
    outputs = evaluate(backward, {k: v.numpy() for k, v in {**fed, **grads}.items()}, {k: v.numpy() for k, v in variables.items()})  # fmt: skip
    for name, gradient in zip(backward.gradients.values(), expected, strict=True):
        close(outputs[name], gradient.numpy(), 1e-10)
    for name in seeds:
        close(outputs[name], forward[name].numpy())


def test_a_network() -> None:
    path = MODELS / "resnet.nnef"
    if not path.exists():
        pytest.skip(f"{path} is published by Khronos, and not part of this project")
    text = path.read_text().replace("[1, 3, 224, 224]", "[1, 3, 64, 64]")
    fed, variables = reference.random_feeds(text, torch.Generator().manual_seed(0))
    for label, value in variables.items():
        scale = math.sqrt(2.0 / value[0].numel())
        variables[label] = value * scale if value.dim() == 4 else value.abs() + 0.5
    (expected,) = reference.outputs(text, fed, variables)
    inputs = {name: value.numpy() for name, value in fed.items()}
    data = {label: value.numpy() for label, value in variables.items()}
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-4)):
        (found,) = evaluate(nnef_grad.loads(text), inputs, data, dtype=dtype).values()
        assert found.dtype == dtype
        close(found, expected.numpy(), tolerance)


# ---- Operations of one's own ----

OWN = """
fragment swish( x: tensor<scalar>, beta: scalar = 1.0 ) -> ( y: tensor<scalar> );
fragment swish_shape( x: tensor<scalar>, beta: scalar = 1.0 ) -> ( y: tensor<scalar> )
{ y = copy(x); }
"""


def own_graph(body: str = "y = swish(x, beta = 2.0);") -> nnef_grad.Graph:
    declaration = OWN.strip().splitlines()[0]
    header = (
        f"version 1.0;\nextension KHR_enable_fragment_definitions;\n{declaration}\n"
    )
    text = f"{header}graph net( x ) -> ( y )\n{{\n    x = external(shape = [2]);\n    {body}\n}}\n"
    return nnef_grad.loads(text, rules=nnef_grad.loads_rules(OWN))


def own_rules(swish: Any) -> nnef_grad.Rules:
    rules = nnef_grad.Rules()
    rules.evaluation("swish")(swish)
    return rules


def test_an_evaluation_of_ones_own() -> None:
    def swish(x: Array, beta: float) -> Array:
        return x / (1.0 + np.exp(-beta * x))

    outputs = evaluate(own_graph(), {"x": [1.0, 2.0]}, rules=own_rules(swish))
    np.testing.assert_allclose(outputs["y"], [1 / (1 + math.exp(-2)), 2 / (1 + math.exp(-4))])  # fmt: skip


def test_without_an_evaluation_it_is_an_error() -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(own_graph(), {"x": [1.0, 2.0]})
    assert caught.value.message == "'swish' has no evaluation"
    assert caught.value.span is not None
    assert caught.value.span.text == "swish"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0, 2.0, 3.0], "the evaluation of 'swish' gives an array of shape [3] for 'y', whose shape is [2]"),
        (0.0, "the evaluation of 'swish' gives an array of shape [] for 'y', whose shape is [2]"),
    ],
)  # fmt: skip
def test_an_evaluation_that_does_not_fit(result: Any, message: str) -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(own_graph(), {"x": [1.0, 2.0]}, rules=own_rules(lambda x, beta: result))  # fmt: skip
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("statement", "shapes"),
    [case for case in COMPOUND if operation_of(case[0]) in ("softmax", "moments", "copy_n", "max_pool", "avg_roi_align")],
    ids=identity,
)  # fmt: skip
def test_a_body_stands_in_for_an_evaluation(
    statement: str, shapes: dict[str, Shape], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = model(statement, **shapes)
    graph, fed = nnef_grad.loads(text), feeds(text)
    expected = evaluate(graph, fed)
    monkeypatch.delitem(EVALUATIONS, operation_of(statement))
    all_close(evaluate(graph, fed), expected)


# ---- One operation at a time ----


def test_execute_and_step() -> None:
    graph = nnef_grad.loads(model("y, z = moments(x, axes = [0])", x=[2]))
    external, moments = graph.operations
    x = np.array([1.0, 3.0], np.float32)
    (fed,) = execute(external, [x])
    assert isinstance(fed, np.ndarray)
    assert fed.dtype == np.float64
    assert np.array_equal(execute(moments, [fed]), [[2.0], [1.0]])
    tensors = step(external, {"x": x}, np.float32)
    assert tensors["x"] is x
    found = step(moments, tensors, np.float32)
    assert {name: value.tolist() for name, value in found.items()} == {
        "y": [2.0],
        "z": [1.0],
    }


def test_execute_takes_and_gives_arrays_of_tensors() -> None:
    concat = nnef_grad.loads(model("y = concat([x, w], axis = 0)", x=[1], w=[2]))
    (y,) = execute(concat.operations[-1], [(np.zeros(1), np.ones(2))])
    assert np.array_equal(y, [0.0, 1.0, 1.0])
    unstack = nnef_grad.loads(model("[y, z] = unstack(x, axis = 0)", x=[2]))
    ((y, z),) = execute(unstack.operations[-1], [np.array([1.0, 2.0])])
    assert (y, z) == (1.0, 2.0)


def test_an_evaluation_of_the_standard_gives_the_inferred_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(EVALUATIONS, "relu", lambda x: x[:1])
    with pytest.raises(AssertionError, match="gives an array of shape"):
        run("y = relu(x)", {"x": [1.0, 2.0]}, x=[2])


def test_the_compiler_does_without_numpy() -> None:
    program = (
        "import sys, nnef_grad; text = sys.argv[1]\n"
        "nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(text)))\n"
        "assert 'numpy' not in sys.modules"
    )
    text = model("y = relu(x)", x=[2])
    done = subprocess.run(
        [sys.executable, "-c", program, text], capture_output=True, text=True, check=False, cwd=ROOT
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# ---- Errors ----


def messages(error: nnef_grad.NnefGradError) -> list[str]:
    return [problem.message for problem in error.problems]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, "input 'x' of type scalar and shape [2, 3] has no data"),
        ({"x": np.zeros((3, 2))}, "input 'x' of type scalar and shape [2, 3] is given data of shape [3, 2]"),
        ({"x": 1.0}, "input 'x' of type scalar and shape [2, 3] is given data of shape []"),
        ({"x": np.zeros((2, 3), np.bool_)}, "input 'x' of type scalar and shape [2, 3] is given data of type bool"),
        ({"x": np.zeros((2, 3), np.complex128)}, "input 'x' of type scalar and shape [2, 3] is given data of type complex128"),
        ({"x": np.full((2, 3), None)}, "input 'x' of type scalar and shape [2, 3] is given data of type object"),
        ({"x": np.zeros((2, 3)), "xx": 1.0}, "the graph has no input 'xx'"),
        ({"x": np.zeros((2, 3)), "w": 1.0}, "the graph has no input 'w'"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(inputs: Any, expected: str) -> None:
    _, variables = network_data()
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(nnef_grad.loads(document(NETWORK)), inputs, variables)
    assert messages(caught.value) == [expected]


def test_everything_that_is_wrong_is_told() -> None:
    graph = nnef_grad.loads(document(NETWORK))
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(graph, {"X": 0.0}, {"layer/bias": [1, 2, 3, 4]})
    assert messages(caught.value) == [
        "the graph has no input 'X'",
        "input 'x' of type scalar and shape [2, 3] has no data",
        "variable 'Layer/Weight' of type scalar and shape [4, 3] has no data",
        "variable 'layer/bias' of type scalar and shape [1, 4] is given data of shape [4]",
    ]
    spans = [problem.span for problem in caught.value.problems]
    assert [span.text for span in spans if span] == ["external", "variable", "variable"]


def test_data_that_are_no_array() -> None:
    graph = nnef_grad.loads(model("y = relu(x)", x=[2]))
    with pytest.raises(nnef_grad.UsageError, match="are not an array"):
        evaluate(graph, {"x": [[1.0], [1.0, 2.0]]})


@pytest.mark.parametrize(
    ("data", "expected"),
    [(1.5, "float64"), (True, "bool"), (np.uint64(1), "uint64")],
)
def test_integers_are_never_made_of_other_types(data: Any, expected: str) -> None:
    graph = nnef_grad.loads(model("y = cast<scalar>(i)", i=[]))
    with pytest.raises(nnef_grad.UsageError, match=f"is given data of type {expected}"):
        evaluate(graph, {"i": data})


def test_two_variables_of_one_label() -> None:
    graph = nnef_grad.loads(document(NETWORK))
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(graph, {}, {"a/B": 0.0, "A/b": 0.0})
    assert caught.value.message == "there are two variables with the label 'a/b'"


@pytest.mark.parametrize("dtype", [np.float16, "int64", None, "nonsense"])
def test_scalars_are_of_single_or_double_precision(dtype: Any) -> None:
    graph = nnef_grad.loads(model("y = relu(x)", x=[2]))
    with pytest.raises(
        nnef_grad.UsageError, match="'dtype' must be float32 or float64"
    ):
        evaluate(graph, {"x": [1.0, 2.0]}, dtype=dtype)


@pytest.mark.parametrize(
    ("operation", "shapes", "data", "expected"),
    [
        ("gather(x, i)", {"x": [3], "i": [2]}, {"i": [0, 3]}, "gather: the items of 'indices' must be in 0..2, the positions on axis 0"),
        ("gather(x, i)", {"x": [3], "i": [2]}, {"i": [0, -1]}, "gather: the items of 'indices' must be in 0..2, the positions on axis 0"),
        ("sample(x, i, size = [2])", {"x": [3], "i": [3]}, {"i": [0, 1, 2]}, "sample: the items of 'index' must be in 0..1, the elements of a window"),
        ("cast<integer>(x)", {"x": [2]}, {"x": [1.0, NAN]}, "cast: only finite numbers of 63 bits can be cast to integers"),
        ("cast<integer>(x)", {"x": [2]}, {"x": [1.0, 1e19]}, "cast: only finite numbers of 63 bits can be cast to integers"),
        ("max_roi_pool(x, r, i, output_size = [2])", {"x": [2, 1, 3], "r": [1, 2], "i": [1]}, {"i": [2]}, "max_roi_pool: the items of 'batch_index' must be in 0..1"),
        ("roi_resample(x, r, i, output_size = [2])", {"x": [2, 1, 3], "r": [1, 2], "i": [1]}, {"r": [[0.0, INF]]}, "roi_resample: the items of 'rois' must be finite"),
    ],
)  # fmt: skip
def test_values_that_have_no_result(
    operation: str, shapes: dict[str, Shape], data: dict[str, Any], expected: str
) -> None:
    text = model(f"y = {operation}", **shapes)
    with pytest.raises(nnef_grad.UsageError) as caught:
        evaluate(nnef_grad.loads(text), {**feeds(text), **data})
    assert caught.value.message == expected
    assert caught.value.span is not None
    assert caught.value.span.text == operation.split("(")[0].split("<")[0]


@pytest.mark.parametrize(
    ("operation", "extent"),
    [
        ("pad(x, padding = [(3, 0)], border = 'reflect')", 3),
        ("pad(x, padding = [(0, 4)], border = 'reflect-even')", 3),
        ("max_pool(x, size = [3], border = 'reflect')", 1),
    ],
)
def test_there_is_one_reflection_on_each_side(operation: str, extent: int) -> None:
    text = model(f"y = {operation}", x=[extent])
    with pytest.raises(nnef_grad.NnefGradError, match="border 'reflect"):
        evaluate(nnef_grad.loads(text), feeds(text))


def test_an_index_that_desample_does_not_have_puts_nothing_anywhere() -> None:
    fed = {"x": [1.0, 2.0], "i": [1, 5]}
    (y,) = run("y = desample(x, i, size = [2], stride = [2])", fed, x=[2], i=[2])
    assert y.tolist() == [0.0, 1.0, 0.0, 0.0]
