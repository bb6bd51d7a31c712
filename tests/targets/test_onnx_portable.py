"""ONNX for any engine: what some lack, or compute wrong, is in no file of the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.runtimes import Case, compare, needs, run
from support.runtimes.engines import SAMPLES
from support.runtimes.harness import ENGINES

import nnef_grad
from nnef_grad import interop
from nnef_grad.autodiff.backward import Backward

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
onnxruntime = pytest.importorskip("onnxruntime")

Arrays = dict[str, npt.NDArray[Any]]

_CONV = "w = variable(shape = [3, 2, 3, 3], label = 'w'); "
# Their results are y, their operands x, and i, which is an index.
MODELS = {
    "pool": "y = max_pool(x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], padding ="
    " [(0, 0), (0, 0), (1, 1), (1, 1)], border = 'ignore');",
    "overlapping": "y = max_pool(x, size = [1, 1, 2, 2], stride = [1, 1, 1, 1],"
    " padding = [(0, 0), (0, 0), (0, 0), (0, 0)], border = 'ignore');",
    "conv": f"{_CONV} y = conv(x, w, stride = [2, 2], padding = [(1, 1), (1, 1)]);",
    "uneven": f"{_CONV} y = conv(x, w, stride = [1, 2], dilation = [1, 2],"
    " padding = [(1, 0), (2, 1)]);",
    "deconv": "w = variable(shape = [2, 3, 3, 3], label = 'w');"
    "y = deconv(x, w, stride = [2, 2], padding = [(1, 0), (1, 0)]);",
    "comparison": "m = mean_reduce(x, axes = [0, 1]); y = select(lt(x, m), x, m);",
    "result that is read": "y = tanh(sum_reduce(x, axes = [2]));",
    "dilated": "y = max_pool(x, size = [1, 1, 2, 2], dilation = [1, 1, 2, 2], padding ="
    " [(0, 0), (0, 0), (1, 1), (0, 1)], border = 'ignore');",
    "behind": "y = avg_pool(x, size = [1, 1, 3, 2], padding ="
    " [(0, 0), (0, 0), (0, 1), (0, 1)]);",
    "volumes": "v = reshape(x, shape = [2, 1, 2, 7, 7]); w = constant(shape ="
    " [3, 1, 2, 2, 2], value = [0.5]); c = conv(v, w, padding = [(1, 1), (0, 0), (0, 0)],"
    " dilation = [2, 1, 1]); m = max_pool(v, size = [1, 1, 1, 2, 2], padding ="
    " [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0)], border = 'ignore');"
    " n = avg_pool(m, size = [1, 1, 2, 2, 2], padding ="
    " [(0, 0), (0, 0), (0, 1), (1, 0), (0, 0)], border = 'ignore');"
    " y = add(mean_reduce(c, axes = [1, 2, 3, 4]), n);",
    "mirrors": "y = pad(x, padding = [(0, 0), (0, 0), (3, 2), (2, 4)], border = 'reflect');",
    "moments": "m, v = moments(x, axes = [0, 2]); y = add(m, v);",
    "one row": "w = variable(shape = [2, 1], label = 'w'); z = exp(gather(w, argmax_reduce("
    "sum_reduce(x, axes = [2]), axes = [2]), axis = 1)); y = mul(sin(z), z);",
    "given bias": "w = variable(shape = [2, 2, 2, 2], label = 'w');"
    " b = mean_reduce(squeeze(sum_reduce(x, axes = [2, 3]), axes = [2, 3]),"
    " axes = [0]); y = conv(x, w, b);",
    "given bias of a deconvolution": "w = variable(shape = [2, 3, 2, 2], label = 'w'); b ="
    " reshape(slice(x, axes = [0, 1, 2, 3], begin = [0, 0, 0, 0], end = [1, 1, 1, 3]),"
    " shape = [1, 3]); y = deconv(x, w, b);",
    "one element": "c = variable(shape = [1, 1, 1, 1], label = 'c'); w = variable(shape ="
    " [3, 2, 1, 1], label = 'w'); d = variable(shape = [1], label = 'd');"
    " y = div(c, exp(sub(d, conv(x, w, 0.0))));",
    "cut": "apart = reshape(x, shape = [4, 1, 49]); zeros = constant(shape = [4, 1, 49], value ="
    " [0.0]); between = reshape(concat([apart, zeros], axis = 1), shape = [8, 49]);"
    " y = slice(between, axes = [0], begin = [1], end = [7]);",
    "rows": "w = variable(shape = [7, 4], label = 'w');"
    "flat = squeeze(max_reduce(x, axes = [1, 2, 3]), axes = [1, 2, 3]);"
    "rows = gather(w, i, axis = 0); y = mul(rows, flat);",
}


def _document(name: str) -> nnef_grad.Graph:
    # Of what no gradient reaches, there is nothing to say.
    index = "i = external<integer>(shape = [2]);" if name == "rows" else ""
    inputs = "x, i" if name == "rows" else "x"
    return nnef_grad.loads(
        f"version 1.0; graph net({inputs}) -> (y) {{ x = external(shape = [2, 2, 7, 7]);"
        f" {index} {MODELS[name]} }}"
    )


def _written(folder: Path, name: str, target: str) -> tuple[Path, Arrays, Arrays]:
    """A file of gradients, what it is fed, and what it returns by the interpreter."""
    backward, fed, data = _example(name)
    path = folder / f"{name}.onnx"
    interop.to_onnx(backward, path, data, target=target)
    return path, fed, nnef_grad.evaluate(backward, fed, data)


def _example(name: str) -> tuple[Backward, Arrays, Arrays]:
    """A backward graph, and what it is fed: inputs by name, and variables by label."""
    graph, random = _document(name), np.random.default_rng(5)
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    variables = zip(graph.labels.values(), graph.variables, strict=True)
    data = {label: random.standard_normal(x.shape) for label, x in variables}
    fed = {
        n: random.integers(0, 7, x.shape)
        if x.dtype == "integer"
        else random.standard_normal(x.shape).astype(np.float32)
        for n, x in zip(backward.graph.input_names, backward.graph.inputs, strict=True)
    }
    return backward, fed, data


@pytest.mark.parametrize("name", MODELS)
def test_a_file_for_any_engine(tmp_path: Path, name: str) -> None:
    path, fed, wanted = _written(tmp_path, name, "onnx-portable")
    model = onnx.load(path)
    (version,) = (o.version for o in model.opset_import)
    assert version <= 18
    for node in model.graph.node:
        assert node.op_type not in ("ScatterND", "ScatterElements"), node
        assert node.op_type != "MaxPool" or len(node.output) == 1, node
        if node.op_type == "ConvTranspose":
            (pads,) = (a.ints for a in node.attribute if a.name == "pads")
            half = len(pads) // 2
            assert pads[:half] == pads[half:], "IREE has no other padding"
        assert node.op_type != "Less", "MNN compares bits"
    session = onnxruntime.InferenceSession(path)
    names = [x.name for x in session.get_outputs()]
    made = dict(zip(names, session.run(None, fed), strict=True))
    results = onnx.reference.ReferenceEvaluator(model).run(None, fed)
    for place, array in zip(names, results, strict=True):
        np.testing.assert_allclose(made[place], array, 1e-4, 1e-5)
    for place, array in wanted.items():
        np.testing.assert_allclose(made[place], array, 1e-4, 1e-5)


def test_files_for_onnx_runtime_have_what_is_fast_there(tmp_path: Path) -> None:
    kinds = set()
    for name in ("pool", "rows"):
        path, _, _ = _written(tmp_path, name, "onnx")
        kinds |= {node.op_type for node in onnx.load(path).graph.node}
    assert kinds & {"ScatterND", "ScatterElements"}


def test_other_targets_are_no_targets_of_files(tmp_path: Path) -> None:
    with pytest.raises(nnef_grad.UsageError, match="'onnx' or 'onnx-portable'"):
        interop.to_onnx(_document("conv"), tmp_path / "x.onnx", {}, target="tract")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MODELS)
def test_engines_compute_it_right(tmp_path: Path, engine: str, name: str) -> None:
    """Each in a process of its own: `pip install --group engines`, `make npm`."""
    needs(engine)
    _check(engine, *_example(name))


def _check(
    engine: str, graph: nnef_grad.Graph | Backward, fed: Arrays, data: Arrays
) -> None:
    """What an engine computes is what the interpreter does."""
    (outcome,) = run(engine, [Case(nnef_grad.dumps(graph), fed, data)])
    verdict = compare(outcome, nnef_grad.evaluate(graph, fed, data))
    assert verdict.word == "ok", verdict


SINGLE = """version 1.0;

graph net( x, g ) -> ( a, b, c )
{
    x = external(shape = [2, 4, 5, 6]);
    g = external(shape = [2, 4, 5, 6]);
    w = variable(shape = [4, 1, 1, 1], label = 'w');
    z = sigmoid(x);
    a = FIRST;
    b = mul(z, g);
    c = sin(g);
}
"""
BY_STRIDE = {
    "maxima": "max_pool(z, size = [1, 1, 1, 1], stride = [1, 1, 2, 2], border = 'ignore')",
    "means": "avg_pool(z, size = [1, 1, 1, 1], stride = [1, 1, 2, 1])",
    "filters": "conv(z, w, stride = [2, 2], groups = 0, padding = [(0, 0), (0, 0)])",
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", BY_STRIDE)
def test_windows_of_single_elements(engine: str, name: str) -> None:
    """IREE computes what they read for nobody else but where they read it."""
    needs(engine)
    random, text = np.random.default_rng(1), SINGLE.replace("FIRST", BY_STRIDE[name])
    fed = {name: random.standard_normal((2, 4, 5, 6)) for name in "xg"}
    data = {"w": random.standard_normal((4, 1, 1, 1))}
    _check(engine, nnef_grad.loads(text), fed, data)


@pytest.mark.parametrize("engine", ENGINES)
def test_copies_that_are_results(engine: str) -> None:
    """MNN writes what is computed of a copy where the copy is."""
    needs(engine)
    graph = nnef_grad.loads(
        "version 1.0; graph net(x) -> (c, z) { x = external(shape = [1, 2, 1, 2]);"
        " [a, b, c] = copy_n(x, times = 3); z = tanh(a); }"
    )
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    random, inputs = np.random.default_rng(4), backward.graph.input_names
    _check(
        engine, backward, {n: random.standard_normal((1, 2, 1, 2)) for n in inputs}, {}
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch_statistics", [None, 0.1])
def test_a_training_step(engine: str, batch_statistics: float | None) -> None:
    needs(engine)
    model = nnef_grad.load(SAMPLES / "convnet.nnef")
    step = nnef_grad.training_step(
        model,
        loss="softmax_cross_entropy_with_labels",
        optimizer="adam",
        state="inputs",
        batch_statistics=batch_statistics,
    )
    inputs = zip(step.graph.input_names, step.graph.inputs, strict=True)
    random = np.random.default_rng(8)
    fed = {
        n: random.integers(0, 10, x.shape)
        if x.dtype == "integer"
        else random.random(x.shape) / 8 + (0.5 if "variance" in n else 0.0)
        for n, x in inputs
    }
    labels = zip(step.graph.labels.values(), step.graph.variables, strict=True)
    data = {label: random.random(x.shape) + 0.5 for label, x in labels}
    _check(engine, step.graph, fed, data)


SQUARES = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [3, 8]);
    w = variable(shape = [8, 8], label = 'w');
    v = variable(shape = [8, 8], label = 'v');
    a = tanh(matmul(x, w));
    y = matmul(matmul(a, v, transposeB = true), w, transposeB = true);
}
""".replace("\n\n", "\n\nextension KHR_enable_operator_expressions;\n\n", 1)


def test_square_matrices_in_openvino(tmp_path: Path) -> None:
    """It computes wrong what reads one both as it is and transposed, without a word."""
    openvino = pytest.importorskip("openvino")
    random = np.random.default_rng(0)
    data = {label: random.standard_normal((8, 8)).astype("f") for label in "wv"}
    backward = nnef_grad.differentiate(nnef_grad.loads(SQUARES))
    path = tmp_path / "bwd.onnx"
    interop.to_onnx(backward, path, data, target="onnx-portable")
    names = backward.graph.input_names
    feeds = {name: random.standard_normal((3, 8)).astype("f") for name in names}
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    found = openvino.Core().compile_model(path, "CPU", settings)(feeds)
    expected = nnef_grad.evaluate(backward, feeds, data)
    for place, value in enumerate(expected.values()):
        np.testing.assert_allclose(found[place], value, rtol=1e-4, atol=1e-4)


def test_nodes_of_copies_have_names_of_their_own(tmp_path: Path) -> None:
    """ONNX Runtime in browsers refuses two nodes with one name."""
    data = {label: np.ones((8, 8), np.float16) for label in "wv"}
    backward = nnef_grad.differentiate(nnef_grad.loads(SQUARES))
    path = tmp_path / "bwd.onnx"
    interop.to_onnx(backward, path, data, target="onnx-portable")
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    names = {node.name for node in onnx.load(path).graph.node}
    assert kinds.count("Cast") > len(data)
    assert len(names) == len(kinds)
