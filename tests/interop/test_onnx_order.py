"""Nodes that a file does not have in order: engines take such files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from support.open_files import OpenFile

from nnef_grad import interop
from nnef_grad.base.errors import NnefGradError

NODES = """a = Tanh (x)
    b = Mul (a, x)
    s = Greater (t, u)
    c = If (s) <
        then_branch = p () => (p1) { p1 = Add (a, b) },
        else_branch = e () => (e1) { e1 = Sub (a, b) }
    >
    y = Sum (a, b, c)
    t = Constant <value = float {2.0}> ()
    u = Constant <value = float {1.0}> ()"""


def file(path: Path, nodes: str) -> Path:
    head = '<ir_version: 8, opset_import: ["" : 17]>\nnet (float[N, 3] x) => (float[N, 3] y)'
    model = onnx.parser.parse_model(f"{head} {{ {nodes} }}")
    listed = [*model.graph.node][::-1]
    del model.graph.node[:]
    model.graph.node.extend(listed)
    onnx.save(model, path)
    return path


def test_nodes_in_any_order(tmp_path: Path) -> None:
    opened = OpenFile(file(tmp_path / "model.onnx", NODES), tmp_path)
    for count in (1, 4):
        opened.compare({"N": count})


def test_nodes_that_need_each_other(tmp_path: Path) -> None:
    path = file(
        tmp_path / "model.onnx", "a = Add (x, b)\n b = Mul (a, x)\n y = Tanh (b)"
    )
    with pytest.raises(NnefGradError, match="which nothing makes"):
        interop.from_onnx(path)


def test_what_is_in_order_stays() -> None:
    from nnef_grad.frontends.onnx.validity import topological

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\nnet (float[3] x) => (float[3] y)'
        " { a = Tanh (x)\n b = Mul (x, x)\n y = Add (b, a) }"
    )
    assert topological(model.graph.node) == [*model.graph.node]
