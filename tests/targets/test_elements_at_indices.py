"""Elements in order and at computed indices: operations of registries where they are, and
comparisons with all positions elsewhere, forward and backward.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser
from onnx.reference import ReferenceEvaluator

import nnef_grad
from nnef_grad.commandline.cli import main
from nnef_grad.graph.symbols import symbols, with_numbers
from nnef_grad.interop import from_onnx, to_onnx
from nnef_grad.runtimes import find_runtime
from nnef_grad.targets import lower

# Each is a network of x [3, 9] and of indices, some of which are those of no position.
BODIES = {
    "the largest": "v, p = TopK <axis = 1> (t, four)\n y = Mul(v, v)",
    "the smallest": "v, p = TopK <axis = 0, largest = 0> (t, two)\n y = Mul(v, v)",
    "all in order": "v, p = TopK <axis = 1> (t, nine)\n y = Mul(v, v)",
    "other elements at them": "v, p = TopK <axis = 1> (t, four)\n g = GatherElements <axis = 1> (x, p)\n y = Mul(g, v)",
    "where one was found": "a = ArgMax <axis = 1> (t)\n s = LogSoftmax <axis = 1> (x)\n y = GatherElements <axis = 1> (s, a)",
    "elements": "y = GatherElements <axis = 1> (t, i)",
    "elements of fewer rows": "r = Slice(i, zero, two, zero)\n y = GatherElements <axis = 1> (t, r)",
    "elements along the first axis": "c = Clip(i, zero_0, two_0)\n y = GatherElements <axis = 0> (t, c)",
    "sums": 'u = Tanh(x)\n y = ScatterElements <axis = 1, reduction = "add"> (t, i, u)',
    "put at the largest": "v, p = TopK <axis = 1> (t, four)\n w = Exp(v)\n y = ScatterElements <axis = 1> (t, p, w)",
    "sums of rows": (
        "r = Slice(i, zero, three, one)\n k = Reshape(r, column)\n w = Transpose(t)\n"
        ' u = Transpose(x)\n y = ScatterND <reduction = "add"> (w, k, u)'
    ),
}
HEAD = '<ir_version: 9, opset_import: ["" : 18]>'
BODY = """
g (float[3, 9] x, int64[3, COUNT] i) => (y)
<int64[1] two = {2}, int64[1] four = {4}, int64[1] nine = {9}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[2] column = {9, 1}, int64 zero_0 = {0}, int64 two_0 = {2}>
{
 t = Tanh(x)
BODY
}
"""
KEPT = {"sums": 9}


def network(name: str) -> nnef_grad.Graph:
    """The network, without indices where it has none."""
    text = BODY.replace("BODY", BODIES[name]).replace("COUNT", str(KEPT.get(name, 4)))
    if ", i" not in BODIES[name] and "(i" not in BODIES[name]:
        text = text.replace(", int64[3, 4] i", "")
    return read(text)


def read(text: str) -> nnef_grad.Graph:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "g.onnx"
        onnx.save(parser.parse_model(HEAD + text), path)
        return from_onnx(path).graph


def words(graph: nnef_grad.Graph) -> set[str]:
    return {op.name.removeprefix("tract_core_") for op in graph.operations}


def feeds(graph: nnef_grad.Graph) -> dict[str, Any]:
    """Random inputs, and indices from both ends, or outside."""
    random = np.random.default_rng(0)
    fed: dict[str, Any] = {
        n: random.standard_normal(x.shape).astype(np.float32)
        for n, x in zip(graph.input_names, graph.inputs, strict=True)
    }
    if "i" in fed:
        fed["i"] = random.integers(-9, 9, fed["i"].shape)
    return fed


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "tract", "khronos"])
@pytest.mark.parametrize("name", BODIES)
def test_gradients_in_runtimes(runtime: str, name: str) -> None:
    """As the interpreter has them, which differences confirm."""
    for package in find_runtime(runtime).packages:
        pytest.importorskip(package)
    graph = network(name)
    backward = nnef_grad.differentiate(graph, wrt=["x"])
    fed = feeds(backward.graph)
    given = {n: fed[n] for n in graph.input_names if n in fed}
    assert nnef_grad.check(graph, backward, inputs=given).passed
    wanted = nnef_grad.evaluate(backward, fed)["grad_x"]
    run = find_runtime(runtime).compile(backward.graph)
    (found,) = run([fed[n] for n in backward.graph.input_names])
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BODIES)
def test_gradients_in_any_engine(name: str, tmp_path: Path) -> None:
    backward = nnef_grad.differentiate(network(name), wrt=["x"])
    to_onnx(backward, tmp_path / "g.onnx", target="onnx-portable")
    fed = feeds(backward.graph)
    (found,) = ReferenceEvaluator(str(tmp_path / "g.onnx")).run(None, fed)
    wanted = nnef_grad.evaluate(backward, fed)["grad_x"]
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-5)


ORDERED = {"<argsort>", "gather_elements"}
ADDED = {*ORDERED, "scatter_elements"}


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("onnx", ADDED),
        ("tract", {"topk", *ADDED} - {"<argsort>"}),
        ("onnx-portable", ORDERED),
    ]
    + [(name, set()) for name in ("nnef", "portable", "khronos", "tract-standard")],
)
def test_operations_of_targets(target: str, wanted: set[str]) -> None:
    """Some engines lose what is added to one place twice."""
    graph = network("other elements at them")
    backward = nnef_grad.differentiate(graph, wrt=["x"])
    lowered = lower(backward.graph, target).graph
    assert words(lowered) & {"topk", *ADDED} == wanted
    if target in ("onnx", "tract"):
        assert not words(lowered) & {"eq", "select", "sum_reduce"}


@pytest.mark.parametrize("runtime", ["onnxruntime", "tract"])
def test_many_in_order(runtime: str) -> None:
    """More than could be compared: some are equal, of which the first goes first."""
    for package in find_runtime(runtime).packages:
        pytest.importorskip(package)
    graph = many()
    backward = nnef_grad.differentiate(graph, wrt=["x"])
    random = np.random.default_rng(0)
    x = np.floor(100 * random.standard_normal((2, 3000))).astype(np.float32)
    dv = random.standard_normal((2, 1500)).astype(np.float32)
    run = find_runtime(runtime).compile(backward.graph)
    (found,) = run([{"x": x}.get(n, dv) for n in backward.graph.input_names])
    order = np.argsort(-x, 1, kind="stable")[:, :1500]
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, order, dv, 1)
    assert np.array_equal(found, wanted)


def many() -> nnef_grad.Graph:
    return read(
        "g (float[2, 3000] x) => (v) <int64[1] k = {1500}> {\n v, p = TopK <axis = 1> (x, k)\n}"
    )


def test_too_many_to_compare_are_refused_where_there_is_no_operation() -> None:
    backward = nnef_grad.differentiate(many(), wrt=["x"])
    message = "'<argsort>' of more than 1,024 elements; ONNX Runtime and tract can"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        lower(backward.graph, "nnef")
    text = nnef_grad.dumps(backward)
    assert "extension tract_registry tract_core" in text
    assert "tract_core_topk" in text
    assert "tract_core_topk" in nnef_grad.dumps(nnef_grad.loads(text))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-o", "m.nnef"], "-o m.onnx"),
        (["--out=m.nnef", "--target", "khronos"], "-o m.onnx"),
        (
            ["--target=portable", "--out", "m.nnef", "--seed", "ones"],
            "--seed ones -o m.onnx",
        ),
        ([], "-o m_bwd.onnx"),
    ],
)
def test_the_command_for_an_onnx_file(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model in another folder, with the name of what is written, stays what it is."""
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    Path("a/m.nnef").write_text(nnef_grad.dumps(many()))
    result = CliRunner().invoke(main, ["a/m.nnef", *words], prog_name="nnef-grad")
    assert result.exit_code == 2
    assert f"as an ONNX file: nnef-grad a/m.nnef {told}" in result.stderr.splitlines()
    assert not Path("m.nnef").exists()


def test_texts_have_the_words_of_the_standard() -> None:
    """The graph itself has those of tract."""
    graph = network("the largest")
    again = nnef_grad.loads(nnef_grad.dumps(graph))
    assert words(lower(again, "onnx").graph) == words(lower(graph, "onnx").graph)
    text = nnef_grad.dumps(lower(graph, "nnef").graph)
    assert "extension" not in text
    assert text.count("argmax_reduce") == 4
    again = nnef_grad.loads(text)
    x = np.random.default_rng(0).standard_normal((3, 9))
    one, other = (nnef_grad.evaluate(g, {"x": x})["y"] for g in (graph, again))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "tract", "khronos"])
@pytest.mark.parametrize("extent", [1, 5, 13, 49])
def test_positions_along_an_axis_that_gets_a_number(runtime: str, extent: int) -> None:
    """They are whole, though some runtimes make sums of ones of their mean."""
    for package in find_runtime(runtime).packages:
        pytest.importorskip(package)
    graph = read(
        "g (float[2, n] x) => (v) {\n s = Shape <start = 1> (x)\n"
        " v, p = TopK <axis = 1> (x, s)\n}"
    )
    closed = nnef_grad.loads(nnef_grad.dumps(graph))
    backward = nnef_grad.differentiate(closed, wrt=["x"]).graph
    assert symbols(backward) == ["n"]
    numbered = with_numbers(backward, {"n": extent})
    random = np.random.default_rng(extent)
    x, dv = random.standard_normal((2, 2, extent)).astype(np.float32)
    (found,) = find_runtime(runtime).compile(numbered)([x, dv])
    wanted = np.zeros_like(x)
    np.put_along_axis(wanted, np.argsort(-x, 1), dv, 1)
    assert np.array_equal(found, wanted)


def test_rows_are_read_and_added() -> None:
    """In place of products with as many columns as there are positions."""
    backward = nnef_grad.differentiate(network("sums of rows"), wrt=["x"])
    second = nnef_grad.differentiate(backward.graph, wrt=["grad_y"])
    for graph, wanted in ((backward.graph, "gather"), (second.graph, "scatter_nd")):
        found = words(lower(graph, "onnx").graph)
        assert wanted in found
        assert "matmul" not in found


@pytest.mark.parametrize("target", ["onnx", "tract"])
@pytest.mark.parametrize("name", BODIES)
def test_what_was_lowered_is_lowered_again(name: str, target: str) -> None:
    """Where the operations are not there is what they compute."""
    backward = nnef_grad.differentiate(network(name), wrt=["x"])
    lowered = lower(backward.graph, target)
    again = lower(lowered.graph, "khronos")
    assert not [word for word in words(again.graph) if "_elements" in word]
    fed = feeds(lowered.graph)
    found = nnef_grad.evaluate(again.graph, fed, {**lowered.data, **again.data})
    wanted = nnef_grad.evaluate(lowered.graph, fed, lowered.data)
    assert np.allclose(found["grad_x"], wanted["grad_x"])
