"""Graphs of the Khronos tools and ONNX files, there and back."""

from __future__ import annotations

from typing import Any

import nnef
import numpy as np
import numpy.typing as npt
import pytest
from nnef_tools.model import Tensor
from support.checks import document
from support.operation_models import Model, models

import nnef_grad
from nnef_grad import interop
from nnef_grad.graph.ir import map_tensors
from nnef_grad.interpreter.random_values import random_values

Array = npt.NDArray[Any]


def rounded(value: Any) -> Any:
    """Numbers as the Khronos tools keep them, in 32 bits."""
    if isinstance(value, (tuple, list)):
        return tuple(map(rounded, value))
    return float(np.float32(value)) if isinstance(value, float) else value


def described(operation: nnef_grad.Operation, graph: nnef_grad.Graph) -> Any:
    """What an operation is, its tensors by their names."""

    def named(tensor: nnef_grad.Tensor) -> Any:
        return graph.names[tensor], tensor.dtype, tensor.shape

    values = map_tensors(named, (operation.operands, operation.results))
    return operation.name, operation.dtype, rounded(values)


def same(graph: nnef_grad.Graph, other: nnef_grad.Graph) -> None:
    """Equal graphs, but for the precision of numbers."""
    assert graph.input_names == other.input_names
    assert graph.output_names == other.output_names
    for one, two in zip(graph.operations, other.operations, strict=True):
        assert described(one, graph) == described(two, other)
        for name, value in one.settings.items():
            given, found = rounded(value), rounded(two.settings[name])
            # An empty list stands for as many ones.
            assert found == given or (given == () and set(found) == {1}), name


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_every_operation_there_and_back(model: Model) -> None:
    for graph in with_backward(model.text):
        data = dict(random_values(graph, seed=0).variables)
        there = interop.to_nnef(graph, data)
        found = interop.from_nnef(there)
        same(graph, found.graph)
        assert found.data.keys() == data.keys()
        there = interop.to_nnef_tools(graph, data)
        found = interop.from_nnef_tools(there)
        same(graph, found.graph)
        assert all(found.data[label] is data[label] for label in data)


def with_backward(text: str) -> list[nnef_grad.Graph]:
    graph = nnef_grad.loads(text)
    return [graph, nnef_grad.differentiate(graph).graph]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_what_the_khronos_parser_makes_is_the_same(model: Model) -> None:
    graph = nnef_grad.loads(model.text)
    same(graph, interop.from_nnef(nnef.parse_string(model.text)).graph)
    made, parsed = interop.to_nnef(graph), nnef.parse_string(nnef_grad.dumps(graph))
    for one, two in zip(made.operations, parsed.operations, strict=True):
        assert (one.name, one.outputs, one.dtype) == (two.name, two.outputs, two.dtype)
        assert rounded(list(one.inputs.items())) == rounded(list(two.inputs.items()))
        assert rounded(list(one.attribs.items())) == rounded(list(two.attribs.items()))


TEXT = document(
    "x = external(shape = [2, 3]);\nw = variable(shape = [1, 3], label = 'a/W');\ny = mul(x, w);"
)


def test_data_travel_by_label_and_are_not_copied() -> None:
    graph = nnef_grad.loads(TEXT)
    w = np.ones((1, 3), np.float32)
    backward = nnef_grad.differentiate(graph).graph
    assert interop.to_nnef(backward, {"A/w": w}).tensors["w"].data is w
    (found,) = [
        t.data
        for t in interop.to_nnef_tools(backward, {"a/W": w}).tensors
        if t.name == "w"
    ]
    assert found is w


def test_data_of_another_shape_are_refused() -> None:
    graph = nnef_grad.loads(TEXT)
    with pytest.raises(nnef_grad.UsageError, match="have the shape"):
        interop.to_nnef(graph, {"a/W": np.ones((3, 1))})


def test_quantization_travels() -> None:
    quant = '"y": zero_point_linear_quantize(zero_point = 3, scale = 0.5, bits = 8, signed = true, symmetric = false);'
    graph = nnef_grad.loads(TEXT, quant=quant)
    for there, back in (
        (interop.to_nnef, interop.from_nnef),
        (interop.to_nnef_tools, interop.from_nnef_tools),
    ):
        found = back(there(graph)).graph.quantization
        assert found["y"].attributes == graph.quantization["y"].attributes


def test_operations_of_other_formats_are_refused() -> None:
    graph = interop.to_nnef_tools(nnef_grad.loads(TEXT))
    graph.operations[-1].type = "Mul"
    with pytest.raises(nnef_grad.UsageError) as caught:
        interop.from_nnef_tools(graph)
    assert caught.value.message == "'Mul' is not a standard operation of NNEF"


def test_arrays_that_nothing_makes_are_refused() -> None:
    for data in (np.ones((1, 3)), None):
        graph = interop.to_nnef_tools(nnef_grad.loads(TEXT))
        tensor = Tensor(graph, "c", (1, 3), np.float32, data)
        multiply = graph.operations[-1]
        multiply.inputs = (multiply.inputs[0], tensor)
        with pytest.raises(nnef_grad.UsageError, match="nothing makes 'c'"):
            interop.from_nnef_tools(graph)
