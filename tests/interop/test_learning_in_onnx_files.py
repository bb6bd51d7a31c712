"""ONNX files of classical learning, as converters of scikit-learn write them, against ONNX
Runtime; and quantization to any number of bits, as QONNX says it, against torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import onnx
import torch
from onnx import numpy_helper
from support.onnx_files import run

from nnef_grad import check, differentiate, evaluate, interop
from nnef_grad.base.errors import UnsupportedError

ROWS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
FIVE = (
    "support_vectors = [0.5, -1.0, 0.25, 1.0, 0.5, -0.5], coefficients = [0.75, -1.5]"
)
BINARY = "coefficients = [0.5, -1.0, 2.0, -0.5, 1.0, -2.0], intercepts = [0.25, -0.25]"
SCALED = "ai.onnx.ml.Scaler <offset = [0.5, -1.0, 0.25], scale = [2.0, 0.5, 1.5]> (x)"
# What makes `y` of the rows `x`.
MODELS: dict[str, str] = {
    "features": f"y = {SCALED}",
    "a scale for all": "y = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (x)",
    **{
        f"norms, {kind}": f'y = ai.onnx.ml.Normalizer <norm = "{kind}"> (x)'
        for kind in ("L1", "L2", "MAX")
    },
    "a line": """s = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (x)
        y = ai.onnx.ml.LinearRegressor <coefficients = [0.5, -1.0, 2.0], intercepts = [0.25]> (s)""",
    "two lines": "y = ai.onnx.ml.LinearRegressor "
    "<coefficients = [0.5, -1.0, 2.0, 1.0, 0.5, 0.25], targets = 2> (x)",
    **{
        f"classes, {kind}": "name, y = ai.onnx.ml.LinearClassifier "
        f'<{BINARY}, classlabels_ints = [3, 7], post_transform = "{kind}"> (x)'
        for kind in ("NONE", "SOFTMAX", "LOGISTIC")
    },
    **{
        f"kernels, {kind}": f'y = ai.onnx.ml.SVMRegressor <{FIVE}, kernel_type = "{kind}", '
        "kernel_params = [0.5, 0.25, 3.0], n_supports = 2, rho = [0.125]> (x)"
        for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")
    },
    "kernels, none": "y = ai.onnx.ml.SVMRegressor <coefficients = [0.5, -1.0, 2.0], "
    'kernel_type = "LINEAR", kernel_params = [0.0, 0.0, 3.0], rho = [0.125]> (x)',
    "what is missing": "y = ai.onnx.ml.Imputer <imputed_value_floats = [0.5, -1.0, 0.25], "
    "replaced_value_float = 2.0> (x)",
    "some features": """i = Constant <value_ints = [2, 0]> ()
        f = ai.onnx.ml.ArrayFeatureExtractor (x, i)
        y = Tanh (f)""",
    "thresholds": """b = ai.onnx.ml.Binarizer <threshold = 0.25> (x)
        y = Mul (b, x)""",
}


def _file(path: Path, nodes: str, **weights: Any) -> Path:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1,
        "qonnx.custom_op.general" : 1]>
        g (float[N, 3] x) => (float[N, M] y) {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    for name, array in weights.items():
        stored = numpy_helper.from_array(np.asarray(array, np.float32), name)
        model.graph.initializer.append(stored)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_classical_models(name: str, tmp_path: Path) -> None:
    path = _file(tmp_path / "model.onnx", MODELS[name])
    graph, data = interop.from_onnx(path)
    found = evaluate(graph, {"x": ROWS}, data)["y"]
    np.testing.assert_allclose(found, run(path, {"x": ROWS})["y"], rtol=2e-5)
    checked = check(graph, differentiate(graph), inputs={"x": ROWS}, variables=data)
    assert checked.passed, checked.conclusion


def test_what_a_line_has_learned_is_trained_further(tmp_path: Path) -> None:
    graph, data = interop.from_onnx(_file(tmp_path / "m.onnx", MODELS["a line"]))
    assert [*data] == ["y_coefficients", "y_intercepts"]
    assert {*differentiate(graph).gradients} == {"x", *graph.labels}


def test_missing_numbers_are_imputed(tmp_path: Path) -> None:
    nodes = "y = ai.onnx.ml.Imputer <imputed_value_floats = [0.5], replaced_value_float = 7.0> (x)"
    path = _file(tmp_path / "model.onnx", nodes)
    model = onnx.load(path)
    (attribute,) = (a for a in model.graph.node[0].attribute if a.name[0] == "r")
    attribute.f = np.nan
    onnx.save(model, path)
    graph, data = interop.from_onnx(path)
    rows = np.where(ROWS > 1, np.nan, ROWS)
    found = evaluate(graph, {"x": rows}, data)["y"]
    np.testing.assert_array_equal(found, run(path, {"x": rows})["y"])


def test_a_row_of_zeros_has_no_norm(tmp_path: Path) -> None:
    graph, _ = interop.from_onnx(_file(tmp_path / "m.onnx", MODELS["norms, L2"]))
    assert (evaluate(graph, {"x": np.zeros((2, 3))})["y"] == 0).all()


def test_scores_are_in_the_place_of_dictionaries(tmp_path: Path) -> None:
    nodes = f"""name, s = ai.onnx.ml.LinearClassifier
        <{BINARY}, classlabels_strings = ["no", "yes"], post_transform = "SOFTMAX"> (x)
        z = ai.onnx.ml.ZipMap <classlabels_strings = ["no", "yes"]> (s)"""
    path = _file(tmp_path / "model.onnx", nodes)
    model = onnx.load(path)
    del model.graph.output[:]
    name = onnx.helper.make_tensor_value_info("name", onnx.TensorProto.STRING, ["N"])
    number = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    kind = onnx.helper.make_map_type_proto(onnx.TensorProto.STRING, number)
    several = onnx.helper.make_sequence_type_proto(kind)
    scores = onnx.helper.make_value_info("z", several)
    model.graph.output.extend([name, scores])
    onnx.save(model, path)
    graph, data = interop.from_onnx(path)
    assert [graph.names[y] for y in graph.outputs] == ["z"]
    told = [warning.message for warning in graph.warnings]
    assert any("texts have no gradients" in message for message in told)
    assert any("in the place of each dictionary" in message for message in told)
    rows = [[*row.values()] for row in run(path, {"x": ROWS})["z"]]
    found = evaluate(graph, {"x": ROWS}, data)["z"]
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    assert check(graph, differentiate(graph), variables=data).passed


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            "name, y = ai.onnx.ml.LinearClassifier <coefficients = [0.5, -1.0, 2.0],"
            " intercepts = [0.25], classlabels_ints = [0, 1]> (x)",
            "a class without a score of its own",
        ),
        (MODELS["classes, NONE"].replace("NONE", "PROBIT"), "transformation PROBIT"),
        (MODELS["features"].replace("offset", "shift"), "offset is missing"),
    ],
)
def test_what_is_refused(nodes: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        interop.from_onnx(_file(tmp_path / "model.onnx", nodes))


# ---- Quantization to any number of bits ----


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    ("settings", "first", "last"),
    [
        (
            "signed = 1, narrow = 0",
            lambda n: -(2 ** (n - 1)),
            lambda n: 2 ** (n - 1) - 1,
        ),
        (
            "signed = 1, narrow = 1",
            lambda n: 1 - 2 ** (n - 1),
            lambda n: 2 ** (n - 1) - 1,
        ),
        ("signed = 0, narrow = 0", lambda n: 0, lambda n: 2**n - 1),
        ("signed = 0, narrow = 1", lambda n: 0, lambda n: 2**n - 2),
    ],
)
def test_numbers_of_so_many_bits(
    settings: str, first: Any, last: Any, bits: int, tmp_path: Path
) -> None:
    nodes = f"""y = qonnx.custom_op.general.Quant
        <{settings}, rounding_mode = "ROUND"> (x, scale, zero, bits)"""
    given = {"scale": 0.25, "zero": 1.0, "bits": bits}
    graph, data = interop.from_onnx(_file(tmp_path / "model.onnx", nodes, **given))
    backward = differentiate(graph, wrt="inputs")
    seed = np.random.default_rng(1).standard_normal(ROWS.shape)
    x = torch.tensor(ROWS, requires_grad=True)
    y = torch.fake_quantize_per_tensor_affine(x, 0.25, 1, first(bits), last(bits))
    y.backward(torch.tensor(seed, dtype=torch.float32))
    found = evaluate(graph, {"x": ROWS}, data)["y"]
    np.testing.assert_allclose(found, y.detach().numpy(), atol=1e-6)
    fed: dict[str, Any] = {"x": ROWS, backward.seeds["y"]: seed}
    made = evaluate(backward.graph, fed, data)[backward.gradients["x"]]
    assert x.grad is not None
    np.testing.assert_allclose(made, x.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", ["CEIL", "FLOOR"])
def test_other_roundings(mode: str, tmp_path: Path) -> None:
    nodes = f"""y = qonnx.custom_op.general.Quant
        <signed = 1, rounding_mode = "{mode}"> (x, scale, zero, bits)"""
    given: dict[str, Any] = {"scale": [0.25, 0.5, 0.125], "zero": 0.0, "bits": 4.0}
    graph, data = interop.from_onnx(_file(tmp_path / "model.onnx", nodes, **given))
    scale = np.array(given["scale"])
    rounded = getattr(np, mode.lower())(np.clip(ROWS / scale, -8, 7))
    found = evaluate(graph, {"x": ROWS}, data)["y"]
    np.testing.assert_allclose(found, rounded * scale, rtol=1e-6)
    other = nodes.replace(mode, "HALF_UP")
    with pytest.raises(UnsupportedError, match="rounding mode HALF_UP"):
        interop.from_onnx(_file(tmp_path / "other.onnx", other, **given))
