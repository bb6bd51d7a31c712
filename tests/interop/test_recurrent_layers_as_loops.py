"""Recurrent layers and loops of ONNX and PyTorch, of a known length, that stay loops: what
they compute and their derivatives are those of their steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner
from onnx import TensorProto, helper

import nnef_grad
from nnef_grad.autodiff.backward import Backward
from nnef_grad.commandline.cli import main
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.loops import is_loop
from nnef_grad.interop import from_onnx, from_torch
from nnef_grad.runtimes import find_runtime

Read = Callable[[Path, int], Any]
STEPS, BATCH, SIZE = 9, 2, 3


def has_loop(graph: Graph) -> bool:
    return any(map(is_loop, graph.operations))


def layer(kind: str, **settings: Any) -> Read:
    """A layer of PyTorch."""

    def read(_: Path, unroll: int) -> Any:
        torch.manual_seed(0)
        module = getattr(torch.nn, kind)(SIZE, 4, **settings).double()
        x = torch.zeros(STEPS, BATCH, SIZE, dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return from_torch(module, (x,), unroll=unroll)

    return read


def _value(name: str, *shape: int, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _saved(path: Path, nodes: Any, inputs: Any, outputs: Any) -> Path:
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def with_lengths(path: Path, unroll: int) -> Any:
    """Sequences of different lengths."""
    lengths = helper.make_tensor("lengths", TensorProto.INT32, [BATCH], [STEPS, 4])
    nodes = [
        helper.make_node("Constant", [], ["lengths"], value=lengths),
        helper.make_node("GRU", ["x", "w", "r", "", "lengths"], ["y", "last"], hidden_size=4),
    ]  # fmt: skip
    inputs = [_value("x", STEPS, BATCH, SIZE), _value("w", 1, 12, 3), _value("r", 1, 12, 4)]  # fmt: skip
    outputs = [_value("y", STEPS, 1, BATCH, 4), _value("last", 1, BATCH, 4)]
    return from_onnx(_saved(path / "x.onnx", nodes, inputs, outputs), unroll=unroll)


def loop_of_onnx(path: Path, unroll: int) -> Any:
    """A Loop that runs to its end."""
    flag = {"dtype": TensorProto.BOOL}
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["goes_on"]),
            helper.make_node("Mul", ["h", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [_value("i", dtype=TensorProto.INT64), _value("on", **flag), _value("h", 2, 3)],
        [_value("goes_on", **flag), _value("next", 2, 3), _value("row", 2, 3)],
    )
    count = helper.make_tensor("count", TensorProto.INT64, [], [STEPS])
    nodes = [
        helper.make_node("Constant", [], ["count"], value=count),
        helper.make_node("Loop", ["count", "", "x"], ["last", "y"], body=body),
    ]
    inputs = [_value("x", 2, 3), _value("w", 3)]
    outputs = [_value("last", 2, 3), _value("y", STEPS, 2, 3)]
    return from_onnx(_saved(path / "x.onnx", nodes, inputs, outputs), unroll=unroll)


MODELS: Mapping[str, Read] = {
    "lstm": layer("LSTM"),
    "two layers, both directions": layer("LSTM", num_layers=2, bidirectional=True),
    "gru": layer("GRU", bidirectional=True),
    "rnn": layer("RNN", nonlinearity="relu", bias=False),
    "lengths": with_lengths,
    "loop": loop_of_onnx,
}
DERIVATIVES: Mapping[str, Callable[[Graph], Backward]] = {
    "gradient": nnef_grad.differentiate,
    "jvp": nnef_grad.jvp,
    "hvp": nnef_grad.hvp,
    "recomputed": lambda graph: nnef_grad.differentiate(graph, recompute=0.5),
    "by outputs": lambda graph: nnef_grad.differentiate(graph, with_outputs=True),
}


def fed_to(graph: Graph) -> dict[str, Any]:
    random = np.random.default_rng(1)
    pairs = sorted(zip(graph.input_names, graph.inputs, strict=True))
    return {name: random.standard_normal(x.shape) for name, x in pairs}


@pytest.mark.parametrize("derive", DERIVATIVES.values(), ids=DERIVATIVES)
@pytest.mark.parametrize("read", MODELS.values(), ids=MODELS)
def test_a_loop_computes_what_its_steps_do(
    read: Read, derive: Callable[[Graph], Backward], tmp_path: Path
) -> None:
    loop, steps = read(tmp_path, STEPS - 1), read(tmp_path, STEPS)
    assert has_loop(loop.graph)
    assert not has_loop(steps.graph)
    found, wanted = (
        nnef_grad.evaluate(made, fed_to(made), model.data)
        for model, made in ((m, derive(m.graph).graph) for m in (loop, steps))
    )
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "tract", "khronos"])
@pytest.mark.parametrize("read", MODELS.values(), ids=MODELS)
def test_in_a_runtime(read: Read, runtime: str, tmp_path: Path) -> None:
    model = read(tmp_path, 0)
    graph = nnef_grad.differentiate(model.graph).graph
    fed = fed_to(graph)
    wanted = nnef_grad.evaluate(graph, fed, model.data)
    run = find_runtime(runtime).compile(graph, model.data)
    found = run([fed[n].astype(np.float32) for n in graph.input_names])
    for name, array in zip(graph.output_names, found, strict=True):
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)


def number_of_nodes(path: Path) -> int:
    return len(onnx.load(path).graph.node)


@pytest.mark.parametrize(("options", "is_kept"), [
    ([], True), (["--unroll", "70"], False), (["--unroll", "3"], True),
])  # fmt: skip
def test_long_loops_stay_loops_in_onnx_files(
    options: list[str], is_kept: bool, tmp_path: Path
) -> None:
    with_lengths(tmp_path, 0)
    path = _saved(
        tmp_path / "long.onnx",
        [helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4)],
        [_value("x", 70, 1, 3), _value("w", 1, 4, 3), _value("r", 1, 4, 4)],
        [_value("y", 70, 1, 1, 4)],
    )
    written = tmp_path / "out.onnx"
    result = CliRunner().invoke(main, [str(path), "-o", str(written), *options])
    assert result.exit_code == 0, result.stderr
    assert (number_of_nodes(written) < 60) == is_kept


def test_a_function_keeps_them_for_its_runtime() -> None:
    module = torch.nn.RNN(3, 4)
    x = torch.zeros(70, 1, 3)
    for runtime, is_kept in (("onnxruntime", True), ("numpy", False)):
        made = nnef_grad.function(module, example_inputs=(x,), runtime=runtime)
        assert has_loop(made.backward.graph) == is_kept
