"""Operators of ONNX Runtime, which its optimizers and quantizers write: what they compute is
that of ONNX Runtime, and gradients agree with central differences; those of quantized
operators with rounding that gradients go straight through, in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import numpy_helper
from support.onnx_files import run

import nnef_grad
from nnef_grad import interop
from nnef_grad.base.frozen import NOTHING

Array = npt.NDArray[Any]


def normal(seed: int, *shape: int) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32)


def codes(seed: int, kind: Any, *shape: int) -> Array:
    """Codes of seven bits: products of others are cut off by some processors."""
    first, last = (0, 128) if kind == np.uint8 else (-64, 64)
    return np.random.default_rng(seed).integers(first, last, shape).astype(kind)


def saved(folder: Path, text: str, **weights: Any) -> Path:
    """A file of a graph in ONNX's text."""
    opsets = '["": 17, "com.microsoft": 1]'
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: {opsets}> {text}")
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()]
    model.graph.initializer.extend(stored)
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


class Case(NamedTuple):
    """A graph of some nodes, its inputs with their shapes, and its weights."""

    nodes: str
    inputs: dict[str, Any]
    weights: Mapping[str, Any] = NOTHING
    outputs: str = "float[N] y"
    tolerance: float = 1e-5


X = {"x": normal(0, 2, 5, 8)}
GAMMA = {"gamma": normal(1, 8), "beta": normal(2, 8)}
WIDE = {"w": normal(3, 8, 24) / 3, "b": normal(4, 24)}
IDS = np.array([[1, 4, 0, 2, 2], [3, 3, 1, 0, 4]], np.int32)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
QKV = {n: normal(i, 2, 5, 8) for i, n in enumerate("qkv", 5)}
GROUPED = {
    "q": normal(5, 2, 5, 64),
    "k": normal(6, 2, 5, 32),
    "v": normal(7, 2, 5, 32),
}
ANGLES = np.outer(np.arange(9), [1.0, 0.1]).astype(np.float32)
TABLES = {"cos": np.cos(ANGLES), "sin": np.sin(ANGLES)}
LONG = {n: np.tile(table, (1, 4)) for n, table in TABLES.items()}
PLACES = np.array([[0, 3, 2, 1, 8], [4, 4, 5, 6, 7]], np.int64)
CASES = {
    "Gelu": Case("y = com.microsoft.Gelu (x)", X),
    "BiasGelu": Case("y = com.microsoft.BiasGelu (x, beta)", X, GAMMA),
    "FastGelu": Case("y = com.microsoft.FastGelu (x)", X),
    "FastGelu, bias": Case("y = com.microsoft.FastGelu (x, beta)", X, GAMMA),
    "QuickGelu": Case("y = com.microsoft.QuickGelu <alpha = 1.5> (x)", X),
    "FusedMatMul": Case(
        "y = com.microsoft.FusedMatMul <alpha = 0.5, transA = 1> (x, z)",
        {**X, "z": normal(9, 2, 5, 3)},
    ),
    "FusedMatMul, transB": Case(
        "y = com.microsoft.FusedMatMul <transB = 1> (x, w)", X, {"w": normal(9, 4, 8)}
    ),
    "FusedGemm": Case(
        """y = com.microsoft.FusedGemm <activation = "LeakyRelu",
        activation_alpha = 0.2, transB = 1, alpha = 2.0> (x, w, b)""",
        {"x": normal(0, 3, 4)}, {"w": normal(1, 5, 4), "b": normal(2, 5)},
    ),
    "FusedConv": Case(
        """y = com.microsoft.FusedConv <activation = "Relu", pads = [1, 1, 1, 1],
        strides = [2, 2]> (x, w, b)""",
        {"x": normal(0, 2, 3, 7, 6)}, {"w": normal(1, 4, 3, 3, 3), "b": normal(2, 4)},
    ),
    "FusedConv, sum": Case(
        """y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b, z)""",
        {"x": normal(0, 2, 3, 5, 5), "z": normal(3, 2, 4, 3, 3)},
        {"w": normal(1, 4, 3, 3, 3), "b": normal(2, 4)},
    ),
    "FusedConv, Clip": Case(
        """y = com.microsoft.FusedConv <activation = "Clip",
        activation_params = [-0.5, 1.0]> (x, w)""",
        {"x": normal(0, 2, 3, 5, 5)}, {"w": normal(1, 4, 3, 3, 3)},
    ),
    "SkipLayerNormalization": Case(
        """y, , , s = com.microsoft.SkipLayerNormalization <epsilon = 1e-3>
        (x, z, gamma, beta, b)""",
        {**X, "z": normal(9, 2, 5, 8)}, {**GAMMA, "b": normal(4, 8)},
        "float[N] y, float[N] s",
    ),
    "SkipSimplifiedLayerNormalization": Case(
        "y = com.microsoft.SkipSimplifiedLayerNormalization (x, z, gamma)",
        {**X, "z": normal(9, 2, 5, 8)}, {"gamma": normal(1, 8)},
    ),
    "SimplifiedLayerNormalization": Case(
        "y = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-3> (x, gamma)",
        X, {"gamma": normal(1, 8)},
    ),
    "EmbedLayerNormalization": Case(
        """y, m, s = com.microsoft.EmbedLayerNormalization <epsilon = 1e-3>
        (ids, kinds, words, places, table, gamma, beta, mask)""",
        {"ids": IDS, "kinds": IDS % 2, "mask": MASK},
        {"words": normal(1, 6, 8), "places": normal(2, 9, 8), "table": normal(3, 2, 8),
         **GAMMA},
        "float[N] y, int32[N] m, float[N] s",
    ),
    "Attention": Case("y = com.microsoft.Attention <num_heads = 2> (x, w, b)", X, WIDE),
    "Attention, mask": Case(
        "y = com.microsoft.Attention <num_heads = 2> (x, w, b, mask)",
        {**X, "mask": MASK}, WIDE,
    ),
    "Attention, lengths": Case(
        "y = com.microsoft.Attention <num_heads = 4> (x, w, b, lengths)",
        {**X, "lengths": np.array([5, 3], np.int32)}, WIDE,
    ),
    "Attention, causal": Case(
        """y = com.microsoft.Attention <num_heads = 2, unidirectional = 1, scale = 0.3>
        (x, w, b)""",
        X, WIDE,
    ),
    "Attention, added": Case(
        "y = com.microsoft.Attention <num_heads = 2> (x, w, b, , , a)",
        {**X, "a": normal(9, 2, 2, 5, 5)}, WIDE,
    ),
    "MultiHeadAttention": Case(
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)", QKV
    ),
    "MultiHeadAttention, bias": Case(
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, b)", QKV,
        {"b": normal(4, 24)},
    ),
    "MultiHeadAttention, mask": Case(
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, , mask)",
        {**QKV, "mask": MASK},
    ),
    "GroupQueryAttention": Case(
        """y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 4,
        kv_num_heads = 2> (q, k, v, , , last, total)""",
        {**GROUPED, "last": np.array([4, 4], np.int32)}, {"total": np.int32(5)},
        "float[N] y, float[N] pk, float[N] pv",
    ),
    "GroupQueryAttention, rotary": Case(
        """y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 4,
        kv_num_heads = 2, do_rotary = 1> (q, k, v, , , last, total, cos, sin)""",
        {**GROUPED, "last": np.array([4, 4], np.int32)},
        {"total": np.int32(5), **LONG},
        "float[N] y, float[N] pk, float[N] pv",
    ),
    "GroupQueryAttention, window": Case(
        """y, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 4,
        kv_num_heads = 2, local_window_size = 3> (q, k, v, , , last, total)""",
        {**GROUPED, "last": np.array([4, 4], np.int32)}, {"total": np.int32(5)},
        "float[N] y, float[N] pk, float[N] pv",
    ),
    "RotaryEmbedding": Case(
        "y = com.microsoft.RotaryEmbedding (x, places, cos, sin)",
        {"x": normal(0, 2, 5, 8), "places": PLACES}, TABLES,
    ),
    "RotaryEmbedding, neighbours": Case(
        "y = com.microsoft.RotaryEmbedding <interleaved = 1> (x, first, cos, sin)",
        {"x": normal(0, 2, 2, 5, 4)}, {"first": np.array([2]), **TABLES},
    ),
    "RotaryEmbedding, a part": Case(
        """y = com.microsoft.RotaryEmbedding <num_heads = 2, rotary_embedding_dim = 4>
        (x, places, cos, sin)""",
        {"x": normal(0, 2, 5, 12), "places": PLACES}, TABLES,
    ),
    "MatMulNBits": Case(
        """y = com.microsoft.MatMulNBits <K = 40, N = 3, bits = 4, block_size = 32>
        (x, w, s)""",
        {"x": normal(0, 2, 40)},
        {"w": np.random.default_rng(1).integers(0, 256, (3, 2, 16)).astype(np.uint8),
         "s": np.abs(normal(2, 6))},
        tolerance=1e-4,
    ),
    "MatMulNBits, zero points": Case(
        """y = com.microsoft.MatMulNBits <K = 40, N = 3, bits = 4, block_size = 32>
        (x, w, s, z)""",
        {"x": normal(0, 2, 40)},
        {"w": np.random.default_rng(1).integers(0, 256, (3, 2, 16)).astype(np.uint8),
         "s": np.abs(normal(2, 6)), "z": np.array([0x53, 0x71, 0x28], np.uint8)},
        tolerance=1e-4,
    ),
}  # fmt: skip


def model_of(case: Case, folder: Path) -> Path:
    kinds = {"f": "float", "i": "int32", "u": "uint8"}
    named = (
        f"{'int64' if x.dtype == np.int64 else kinds[x.dtype.kind]}"
        f"[{', '.join(map(str, x.shape))}] {name}"
        for name, x in case.inputs.items()
    )
    text = f"net ({', '.join(named)}) => ({case.outputs}) {{ {case.nodes} }}"
    return saved(folder, text, **case.weights)


@pytest.mark.parametrize("name", CASES)
def test_an_operator(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = model_of(case, tmp_path)
    model = interop.from_onnx(path)
    found = nnef_grad.evaluate(model.graph, case.inputs, model.data)
    for output, y in run(path, case.inputs).items():
        np.testing.assert_allclose(
            found[output], y, rtol=case.tolerance, atol=case.tolerance * 10
        )
    backward = nnef_grad.differentiate(model.graph)
    assert len(backward.gradients) >= sum(
        x.dtype.kind == "f" for x in case.inputs.values()
    )
    checked = nnef_grad.check(
        model.graph, backward, inputs=case.inputs, variables=model.data
    )
    assert checked.passed, checked


def test_operators_that_the_processor_has_not(tmp_path: Path) -> None:
    """ONNX Runtime has these for other devices: by their definitions."""
    b = normal(8, 1, 5, 8)
    path = saved(
        tmp_path,
        """net (float[2, 5, 8] x) => (float[N] y) { y = com.microsoft.BiasSoftmax
        <axis = 2, is_inner_broadcast = 0> (x, b) }""",
        b=b,
    )
    graph, data = interop.from_onnx(path)
    found = nnef_grad.evaluate(graph, X, data)["y"]
    shares = np.exp(X["x"].astype(float) + b)
    wanted = shares / shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("is_both", [True, False])
def test_buckets_of_distances(tmp_path: Path, is_both: bool) -> None:
    """As in T5: its table is stored with its heads first."""
    torch = pytest.importorskip("torch")
    table = normal(0, 32, 2)
    text = f"""net (float[1, 2, 30, 50] x) => (float[N] y) {{
        p = com.microsoft.RelativePositionBias <max_distance = 40,
        is_bidirectional = {int(is_both)}> (t, rows, columns) y = Add (x, p) }}"""
    sizes = {"rows": np.array([30]), "columns": np.array([50])}
    stored = np.ascontiguousarray(table.T).reshape(32, 2)
    graph, data = interop.from_onnx(saved(tmp_path, text, t=stored, **sizes))
    found = nnef_grad.evaluate(graph, {"x": np.zeros((1, 2, 30, 50))}, data)["y"]
    far = torch.arange(50)[None, :] - torch.arange(30)[:, None]
    count = 16 if is_both else 32
    first = (far > 0).long() * count if is_both else torch.zeros_like(far)
    size = far.abs() if is_both else -torch.clamp(far, max=0)
    growth = torch.log(size.clamp(min=1) / (count // 2)) / np.log(40 / (count // 2))
    last = count // 2 + (growth * (count - count // 2)).long()
    last = torch.clamp(last, max=count - 1)
    bucket = first + torch.where(size < count // 2, size, last)
    wanted = table[bucket.numpy()].transpose(2, 0, 1)[None]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# ---- Quantized operators ----

SCALES = {
    "xs": np.float32(0.05), "xz": np.uint8(60), "ys": np.float32(0.07),
    "yz": np.uint8(90), "ws": np.float32(0.02), "wz": np.int8(0),
    "zs": np.float32(0.04), "zz": np.uint8(50),
}  # fmt: skip
READ = "c = QuantizeLinear (x, xs, xz)"
MEANT = "y = DequantizeLinear (d, ys, yz)"
BOTH = "e = QuantizeLinear (z, zs, zz)"
IMAGE = {"x": normal(0, 2, 3, 6, 6)}
QUANTIZED = {
    "QLinearMatMul": Case(
        f"{READ} d = QLinearMatMul (c, xs, xz, w, ws, wz, ys, yz) {MEANT}",
        {"x": normal(0, 4, 8)}, {"w": codes(1, np.int8, 8, 3)},
    ),
    "QLinearMatMul, columns": Case(
        f"{READ} d = QLinearMatMul (c, xs, xz, w, ws, wz, ys, yz) {MEANT}",
        {"x": normal(0, 4, 8)},
        {"w": codes(1, np.int8, 8, 3), "ws": np.array([0.01, 0.02, 0.03], np.float32),
         "wz": np.zeros(3, np.int8)},
    ),
    "QLinearConv": Case(
        f"""{READ} d = QLinearConv <pads = [1, 1, 1, 1], strides = [2, 2]>
        (c, xs, xz, w, ws, wz, ys, yz, b) {MEANT}""",
        IMAGE,
        {"w": codes(1, np.int8, 4, 3, 3, 3), "ws": np.array([0.01, 0.02, 0.03, 0.01], np.float32),
         "wz": np.zeros(4, np.int8), "b": np.array([100, -50, 0, 30], np.int32)},
    ),
    "QGemm": Case(
        f"""{READ} d = com.microsoft.QGemm <transB = 1>
        (c, xs, xz, w, ws, wz, b, ys, yz) {MEANT}""",
        {"x": normal(0, 4, 8)},
        {"w": codes(1, np.int8, 3, 8), "b": np.array([100, -50, 0], np.int32)},
    ),
    "QLinearAdd": Case(
        f"{READ} {BOTH} d = com.microsoft.QLinearAdd (c, xs, xz, e, zs, zz, ys, yz) {MEANT}",
        {"x": normal(0, 4, 8), "z": normal(1, 4, 8)},
    ),
    "QLinearMul": Case(
        f"{READ} {BOTH} d = com.microsoft.QLinearMul (c, xs, xz, e, zs, zz, ys, yz) {MEANT}",
        {"x": normal(0, 4, 8), "z": normal(1, 4, 8)},
    ),
    "QLinearSigmoid": Case(
        f"{READ} d = com.microsoft.QLinearSigmoid (c, xs, xz, ps, pz) y = DequantizeLinear (d, ps, pz)",
        {"x": normal(0, 4, 8)}, {"ps": np.float32(1 / 256), "pz": np.uint8(0)},
    ),
    "QLinearLeakyRelu": Case(
        f"{READ} d = com.microsoft.QLinearLeakyRelu <alpha = 0.1> (c, xs, xz, ys, yz) {MEANT}",
        {"x": normal(0, 4, 8)},
    ),
    "QLinearSoftmax": Case(
        f"""{READ} d = com.microsoft.QLinearSoftmax <axis = -1, opset = 13>
        (c, xs, xz, ps, pz) y = DequantizeLinear (d, ps, pz)""",
        {"x": normal(0, 4, 8)}, {"ps": np.float32(1 / 256), "pz": np.uint8(0)},
    ),
    "QLinearGlobalAveragePool": Case(
        f"{READ} d = com.microsoft.QLinearGlobalAveragePool (c, xs, xz, ys, yz) {MEANT}",
        IMAGE,
    ),
    "QLinearAveragePool": Case(
        f"""{READ} d = com.microsoft.QLinearAveragePool <kernel_shape = [2, 2],
        strides = [2, 2]> (c, xs, xz, ys, yz) {MEANT}""",
        IMAGE,
    ),
    "QLinearConcat": Case(
        f"""{READ} {BOTH} d = com.microsoft.QLinearConcat <axis = 1>
        (ys, yz, c, xs, xz, e, zs, zz) {MEANT}""",
        {"x": normal(0, 4, 8), "z": normal(1, 4, 3)},
    ),
    "MatMulInteger": Case(
        """c, cs, cz = DynamicQuantizeLinear (x) d = MatMulInteger (c, w, cz, wz)
        f = Cast <to = 1> (d) g = Mul (cs, ws) y = Mul (f, g)""",
        {"x": normal(0, 4, 8)}, {"w": codes(1, np.int8, 8, 3)},
    ),
    "ConvInteger": Case(
        """c, cs, cz = DynamicQuantizeLinear (x)
        d = ConvInteger <pads = [1, 1, 1, 1]> (c, w, cz, wz)
        f = Cast <to = 1> (d) g = Mul (cs, ws) y = Mul (f, g)""",
        IMAGE, {"w": codes(1, np.int8, 4, 3, 3, 3)},
    ),
    "DynamicQuantizeMatMul": Case(
        "y = com.microsoft.DynamicQuantizeMatMul (x, w, ws, wz, b)",
        {"x": normal(0, 4, 8)}, {"w": codes(1, np.int8, 8, 3), "b": normal(2, 3)},
    ),
    "MatMulIntegerToFloat": Case(
        f"{READ} y = com.microsoft.MatMulIntegerToFloat (c, w, xs, ws, xz, wz, b)",
        {"x": normal(0, 4, 8)}, {"w": codes(1, np.int8, 8, 3), "b": normal(2, 3)},
    ),
    "QAttention": Case(
        f"{READ} y = com.microsoft.QAttention <num_heads = 2> (c, w, b, xs, ws, , xz, wz)",
        {"x": normal(0, 2, 5, 8)},
        {"w": codes(1, np.int8, 8, 24), "b": normal(2, 24)}, tolerance=1e-4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_operator(name: str, tmp_path: Path) -> None:
    """At most one code away from ONNX Runtime, for few numbers; nearly all are the same."""
    case = QUANTIZED[name]
    path = model_of(case._replace(weights={**SCALES, **case.weights}), tmp_path)
    model = interop.from_onnx(path)
    assert "gradients go straight through the rounding" in str(model.graph.warnings)
    found = nnef_grad.evaluate(model.graph, case.inputs, model.data, dtype=np.float32)
    (y,) = run(path, case.inputs).values()
    differences = np.abs(found["y"] - y)
    assert differences.max() <= 0.0701
    assert (differences > case.tolerance * 10).mean() < 0.1


def fake(x: Any, scale: float, zero: int, first: int = 0, last: int = 255) -> Any:
    """Numbers as codes and back, in PyTorch."""
    import torch

    return torch.fake_quantize_per_tensor_affine(
        x, float(scale), int(zero), first, last
    )


@pytest.mark.parametrize("has_kinds", [True, False])
def test_an_embedding_of_codes(has_kinds: bool, tmp_path: Path) -> None:
    """Whose tables are variables."""
    shapes = {
        "words": (6, 8),
        "places": (9, 8),
        "table": (2, 8),
        "gamma": (8,),
        "beta": (8,),
    }
    tables = {n: codes(i, np.uint8, *s) for i, (n, s) in enumerate(shapes.items())}
    weights = {**tables, "s": np.float32(0.03), "z": np.uint8(60)}
    kinds, table = ("kinds", "table") if has_kinds else ("", "")
    given = [
        "s",
        "s",
        "s" if has_kinds else "",
        "s",
        "s",
        "z",
        "z",
        "z" if has_kinds else "",
        "z",
        "z",
    ]
    nodes = f"""y, m = com.microsoft.QEmbedLayerNormalization <epsilon = 1e-3>
        (ids, {kinds}, words, places, {table}, gamma, beta, mask, {", ".join(given)})"""
    fed = {"ids": IDS, "mask": MASK} | ({"kinds": IDS % 2} if has_kinds else {})
    path = model_of(Case(nodes, fed, weights, "float[N] y, int32[N] m"), tmp_path)
    graph, data = interop.from_onnx(path)
    assert {*graph.labels} == tables.keys() - (set() if has_kinds else {"table"})
    found, wanted = nnef_grad.evaluate(graph, fed, data), run(path, fed)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["QLinearMatMul", "QLinearConv", "QLinearAdd"])
def test_gradients_of_codes_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    case = QUANTIZED[name]
    weights = {**SCALES, **case.weights}
    model = interop.from_onnx(model_of(case._replace(weights=weights), tmp_path))
    backward = nnef_grad.differentiate(model.graph)
    leaves = {n: torch.tensor(x, requires_grad=True) for n, x in case.inputs.items()}
    x = fake(leaves["x"], 0.05, 60)
    if name == "QLinearAdd":
        y = x + fake(leaves["z"], 0.04, 50)
    else:
        w = torch.tensor(weights["w"] * np.float32(0.02), requires_grad=True)
        factor = torch.tensor(np.float32(weights["ws"]))
        if name == "QLinearConv":
            w = torch.tensor(weights["w"] * np.reshape(weights["ws"], (4, 1, 1, 1)), requires_grad=True)  # fmt: skip
            bias = torch.tensor(weights["b"]) * factor * 0.05
            y = torch.nn.functional.conv2d(x, w, bias, 2, 1)
        else:
            y = x @ w
        leaves["w"] = w
    y = fake(y, 0.07, 90)
    seed = normal(9, *y.shape)
    wanted = torch.autograd.grad(y, [*leaves.values()], torch.tensor(seed))
    found = nnef_grad.evaluate(
        backward.graph, {**case.inputs, "grad_y": seed}, model.data, dtype=np.float32
    )
    for leaf, gradient in zip(leaves, wanted, strict=True):
        array = found[backward.gradients[leaf]]
        np.testing.assert_allclose(array, gradient, rtol=1e-4, atol=1e-5)


def test_an_lstm_of_codes(tmp_path: Path) -> None:
    """What is multiplied with the weights is rounded there, and not here."""
    case = Case(
        """y, h, c = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4>
        (x, w, r, b, , , , , ws, wz, rs, rz)""",
        {"x": normal(0, 5, 2, 3)},
        {"w": codes(1, np.int8, 1, 3, 16), "r": codes(2, np.int8, 1, 4, 16),
         "b": normal(3, 1, 32), "ws": np.array([0.01], np.float32), "wz": np.array([0], np.int8),
         "rs": np.array([0.02], np.float32), "rz": np.array([0], np.int8)},
        "float[N] y, float[N] h, float[N] c",
    )  # fmt: skip
    path = model_of(case, tmp_path)
    model = interop.from_onnx(path)
    found = nnef_grad.evaluate(model.graph, case.inputs, model.data)
    for name, y in run(path, case.inputs).items():
        np.testing.assert_allclose(found[name], y, atol=0.02)
    assert "is not rounded" in str(model.graph.warnings)
    backward = nnef_grad.differentiate(model.graph)
    assert nnef_grad.check(model.graph, backward, variables=model.data).passed


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            "a = com.microsoft.Foo (x) b = com.microsoft.Foo (a) y = own.Bar (b)",
            r"'com.microsoft.Foo' \(2 times\), 'own.Bar'",
        ),
        (
            "y = com.microsoft.nchwc.Conv (x)",
            "save it with the level 'extended' of optimizations",
        ),
        ("y = com.microsoft.FusedMatMul <transBatchA = 1> (x, x)", "axes of the batch"),
        ('y = com.microsoft.FusedConv <activation = "Sin"> (x, x)', "no activation 'Sin'"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_said(nodes: str, message: str, tmp_path: Path) -> None:
    path = saved(tmp_path, f"net (float[2, 3, 3] x) => (float[N] y) {{ {nodes} }}")
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_onnx(path)
