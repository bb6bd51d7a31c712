"""The module that each operation is of, as PyTorch and exporters say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nnef_grad
from nnef_grad import interop
from nnef_grad.ops.traits import FED


def modules(graph: nnef_grad.Graph) -> dict[str, tuple[str, ...] | None]:
    """By kinds of operations, each of which is once in a graph."""
    return {op.name: op.module for op in graph.operations if op.name not in FED}


def test_of_a_pytorch_module() -> None:
    """Neither the addition nor the mean belongs to the layers before it."""
    pytest.importorskip("torch")
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())

        def forward(self, x: Any) -> Any:
            return (x + self.layers(x)).mean(1, keepdim=True)

    found = modules(interop.from_torch(Net(), [torch.ones(2, 4)]).graph)
    assert found == {
        "linear": ("layers", "layers.0"),
        "tanh": ("layers", "layers.1"),
        "add": (),
        "mean_reduce": (),
    }


@pytest.mark.parametrize("exporter", ["names", "metadata"])
def test_of_an_onnx_file(exporter: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    scopes = {"Tanh": ["", "layer1", "layer1.0", "layer1.0.act"], "Add": [""]}
    names = {"Tanh": "/layer1/layer1.0/act/Tanh", "Add": "/Add"}
    nodes = []
    for kind, ends in (("Tanh", ("x", "h")), ("Add", ("h", "y"))):
        inputs = [ends[0]] * (2 if kind == "Add" else 1)
        node = onnx.helper.make_node(kind, inputs, [ends[1]], name=f"node_{kind}")
        if exporter == "names":
            node.name = names[kind]
        else:
            entry = node.metadata_props.add()
            entry.key = "pkg.torch.onnx.name_scopes"
            entry.value = str([*scopes[kind], node.name])
        nodes.append(node)
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in ("x", "y"))
    graph = onnx.helper.make_graph(nodes, "net", [x], [y])
    opset = onnx.helper.make_opsetid("", 21)
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
    found = modules(interop.from_onnx(path).graph)
    assert found["tanh"] == ("layer1", "layer1.0", "act")
    assert found["add" if "add" in found else "mul"] == ()


def test_of_a_file_that_tract_has_written_of_one() -> None:
    graph = nnef_grad.loads("""version 1.0;
extension tract_registry tract_core;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    i"/layer1/layer1.0/act/Tanh" = tanh(x);
    y = exp(i"/layer1/layer1.0/act/Tanh");
}
""")
    assert modules(graph) == {"tanh": ("layer1", "layer1.0", "act"), "exp": None}
