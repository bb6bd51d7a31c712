"""Every standard operation against the reference, against its own body, and at special
values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from support.checks import document
from support.evaluations import (
    INF,
    NAN,
    TOLERANCE,
    Case,
    Shape,
    all_close,
    feeds,
    model,
    operation_of,
    run,
    torch_values,
)

import nnef_grad
from nnef_grad import interpreter
from nnef_grad.graph.ir import STOP, WORDLESS
from nnef_grad.interpreter import EVALUATIONS, evaluate
from nnef_grad.language.library import STDLIB

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


# Compound operations that are evaluated by their bodies; the others have an evaluation.
BY_BODY = {
    *("separable_conv", "separable_deconv", "rms_pool", "linear_quantize"),
    *("nearest_downsample", "area_downsample", "nearest_upsample"),
    *("local_mean_normalization", "local_variance_normalization"),
    *("local_contrast_normalization", "local_response_normalization"),
    *("l1_normalization", "l2_normalization", "avg_roi_align", "max_roi_align"),
}


def test_every_standard_operation_has_an_evaluation() -> None:
    own = {name for name in EVALUATIONS if name.startswith("tract_core_")}
    assert set(EVALUATIONS) - own - {STOP, *WORDLESS} == set(STDLIB) - BY_BODY
    assert all(STDLIB[name].body is not None for name in BY_BODY)


def test_every_standard_operation_is_tested() -> None:
    tested = {operation_of(statement) for statement, _ in [*CASES, *APART]}
    of_graphs = {"external", "variable", "update"}
    assert tested | of_graphs == set(STDLIB)


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
        monkeypatch.setattr(interpreter.windows, "_BAND", band)
        all_close(evaluate(nnef_grad.loads(text), feeds(text)), whole)
        monkeypatch.undo()
    assert len(statements) > 3


COMPOUND = [
    (statement, shapes)
    for statement, shapes in [*CASES, *APART]
    if STDLIB[operation_of(statement)].body is not None
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


@pytest.mark.parametrize(
    ("statement", "shapes"),
    [case for case in COMPOUND if operation_of(case[0]) in ("softmax", "moments", "copy_n", "max_pool", "batch_normalization")],
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


# ---- Special values ----


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
