"""ONNX files that begin or end with texts, which become numbers there; and numbers that are
known only where an input is a constant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import numpy_helper

from nnef_grad import check, differentiate, interop
from nnef_grad.base.errors import NnefGradError
from nnef_grad.interpreter import evaluate

WEIGHTS: dict[str, Any] = {
    "table": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32),
    "far": np.array([-1e9], np.float32),
    "off": np.array([0.25], np.float32),
    "on": np.array([2.0], np.float32),
    "one": np.array([1], np.int64),
    "zero": np.array([0], np.int64),
}
ENCODED = 'i = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b", "c"], values_int64s = [0, 1, 3]> (words)'
NAMED = 'name = ai.onnx.ml.LabelEncoder <keys_int64s = [0, 1], values_strings = ["no", "yes"]> (best)'


def _file(path: Path, inputs: str, outputs: str, *nodes: str) -> Path:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
    g ({inputs}) => ({outputs}) {{ {chr(10).join(nodes)} }}"""
    model = onnx.parser.parse_model(text)
    for name, array in WEIGHTS.items():
        if any(name in node.input for node in model.graph.node):
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def test_the_numbers_of_texts_are_the_input(tmp_path: Path) -> None:
    nodes = ENCODED, "e = Gather (table, i)", "y = Tanh (e)"
    path = _file(tmp_path / "m.onnx", "string[N] words", "float[N, 3] y", *nodes)
    graph, data = interop.from_onnx(path)
    assert [graph.names[x] for x in graph.inputs] == ["i"]
    (warning,) = graph.warnings
    assert "the input 'words' is text: 'i', the numbers" in warning.message
    told = check(graph, differentiate(graph), variables=data).conclusion
    assert told.endswith("all agree with central differences")
    (y,) = evaluate(graph, {"i": np.array([0, 3])}, data).values()
    np.testing.assert_allclose(y, np.tanh(WEIGHTS["table"][[0, 3]]), 1e-6)


def test_texts_are_no_results(tmp_path: Path) -> None:
    nodes = "s = Sigmoid (x)", "best = ArgMax <axis = 1, keepdims = 0> (s)", NAMED
    path = _file(
        tmp_path / "m.onnx", "float[N, 2] x", "string[N] name, float[N, 2] s", *nodes
    )
    read = interop.from_onnx(path)
    assert [read.graph.names[y] for y in read.graph.outputs] == ["s"]
    assert "'name'" in read.graph.warnings[0].message
    alone = _file(tmp_path / "n.onnx", "float[N, 2] x", "string[N] name", *nodes)
    with pytest.raises(NnefGradError, match=r"returns nothing but texts, .* 'name'"):
        interop.from_onnx(alone)


def test_what_else_reads_a_text_is_named(tmp_path: Path) -> None:
    nodes = (
        ENCODED,
        "e = Gather (table, i)",
        "n = StringNormalizer (words)",
        "y = Tanh (e)",
    )
    outputs = "float[N, 3] y, string[N] n"
    path = _file(tmp_path / "m.onnx", "string[N] words", outputs, *nodes)
    with pytest.raises(NnefGradError, match=r"'ai\.onnx\.ml\.LabelEncoder'"):
        interop.from_onnx(path)


ENDS = (
    "s = Shape <start = 1> (x)",
    "f = Cast <to = 1> (s)",
    "m = Max (f, far)",
    "e = Cast <to = 7> (m)",
    "p = Slice (x, one, e, one)",
    "y = Tanh (p)",
)


def test_sizes_stay_whole_where_floats_are_compared(tmp_path: Path) -> None:
    """As exporters write the ends of slices for versions whose Max has no integers."""
    path = _file(tmp_path / "m.onnx", "float[N, T] x", "float[N, M] y", *ENDS)
    graph, _ = interop.from_onnx(path)
    (y,) = graph.outputs
    assert [*map(str, y.shape)] == ["N", "T - 1"]
    assert not graph.variables


def test_values_of_one_hot_may_be_joined(tmp_path: Path) -> None:
    nodes = (
        "v = Concat <axis = 0> (off, on)",
        "d = Constant <value_int = 3> ()",
        "h = OneHot (i, d, v)",
        "y = Mul (h, x)",
    )
    inputs = "int64[2] i, float[2, 3] x"
    path = _file(tmp_path / "m.onnx", inputs, "float[2, 3] y", *nodes)
    graph, data = interop.from_onnx(path)
    fed: dict[str, Any] = {"i": np.array([2, 0]), "x": np.ones((2, 3))}
    (y,) = evaluate(graph, fed, data).values()
    np.testing.assert_allclose(y, [[0.25, 0.25, 2.0], [2.0, 0.25, 0.25]])


def test_a_size_that_is_fed_is_asked_for_as_a_constant(tmp_path: Path) -> None:
    nodes = "p = Slice (x, zero, n, one)", "y = Tanh (p)"
    inputs = "float[N, T] x, int64[1] n"
    path = _file(tmp_path / "m.onnx", inputs, "float[N, M] y", *nodes)
    with pytest.raises(NnefGradError) as caught:
        interop.from_onnx(path)
    assert "make 'n' a constant" in str(caught.value)
    assert "constants={name: x} makes an input one" in str(caught.value)
    graph, _ = interop.from_onnx(path, constants={"n": 3})
    assert str(graph.outputs[0].shape[1]) == "min(3, T)"


def test_messages_have_no_marks_of_symbols(tmp_path: Path) -> None:
    """A symbol that is known to be at least 3 is another one for the compiler alone."""
    nodes = "q = MaxPool <kernel_shape = [3]> (x)", "z = NonZero (q)"
    outputs = "float[N, 1, M] q, int64[3, K] z"
    path = _file(tmp_path / "m.onnx", "float[N, 1, T] x", outputs, *nodes)
    with pytest.raises(NnefGradError, match=r"operands: \[\[N, 1, T - 2\]\]"):
        interop.from_onnx(path)
