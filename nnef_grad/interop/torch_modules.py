"""PyTorch modules: their graphs, with what torch calls each parameter.

The conversion of the exported module renames variables, and changes the layout of some.
So each parameter has values of its own while it is converted: whatever became of a
variable, its values tell where they come from. The true values are put in place
afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nnef_grad.errors import UsageError
from nnef_grad.graph.ir import Graph, Shape
from nnef_grad.interop.khronos import Array
from nnef_grad.interop.onnx_files.refusals import require_onnx

if TYPE_CHECKING:
    from torch import nn

    from nnef_grad.interop.torch_export import Mark


class Layout(NamedTuple):
    """How the values of a tensor of a module lie in a variable.

    Attributes:
        shape: the shape of the tensor.
        axes: its axes, in the order that they have in the variable.
        reshaped: the shape of the variable, which may have further axes of extent 1.
    """

    shape: Shape
    axes: Shape
    reshaped: Shape

    def to_variable(self, values: Array) -> Array:
        """Values of the tensor, as they are in the variable."""
        moved = np.asarray(values).reshape(self.shape).transpose(self.axes)
        return np.ascontiguousarray(moved).reshape(self.reshaped)

    def to_tensor(self, values: Array) -> Array:
        """Values of the variable, or its gradient, as they are in the tensor."""
        moved = np.asarray(values).reshape([self.shape[axis] for axis in self.axes])
        return moved.transpose(np.argsort(self.axes))


@dataclass(frozen=True)
class TorchModel:
    """The graph of a PyTorch module.

    Attributes:
        graph: the graph.
        data: the values of its variables, by label.
        parameters: the name of the variable of each parameter, by the parameter's name
            in torch. A tied parameter has several names, and one variable; a parameter
            that no output depends on has none.
        buffers: the same for buffers.
        trainable: the names of the variables of parameters that require gradients.
        layouts: how parameters and buffers lie in their variables, by the names of these.
    """

    graph: Graph
    data: dict[str, Array]
    parameters: dict[str, str]
    buffers: dict[str, str]
    trainable: tuple[str, ...]
    layouts: Mapping[str, Layout] = field(repr=False)

    def gradients_to_torch(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients of parameters by their names in torch, in torch's shapes.

        Args:
            gradients: by the names of variables; those of anything else are left out.
        """
        return {
            name: self.layouts[variable].to_tensor(gradients[variable])
            for name, variable in self.parameters.items()
            if variable in gradients
        }


def from_torch(
    module: nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    *,
    batch: int | None = None,
) -> TorchModel:
    """The graph of a PyTorch module as it is: in evaluation mode after `module.eval()`.

    Needs the packages `torch` and `onnx`. The module is traced by torch's ONNX exporter.
    What Python computes meanwhile, such as a number from `tensor.item()`, is a constant of
    the graph.

    Args:
        module: a module on the CPU, of single precision.
        example_inputs: the arguments of `forward`, by position or by name. Tensors are
            the inputs of the graph, with their shapes; other values are constants.
        batch: the extent of the first axis of all inputs, if it is another.

    Returns:
        The graph, whose outputs are the tensors in what the module returns, in order. An
        argument that no output depends on is no input.

    Raises:
        UsageError: a package is missing, or an argument is no tensor or unknown.
        UnsupportedError: torch cannot export the module, or an operation of it cannot be
            converted.
    """
    if find_spec("torch") is None:
        raise UsageError("modules of PyTorch need torch: pip install nnef-grad[torch]")
    require_onnx()
    from nnef_grad.interop import torch_export

    call = torch_export.Call(module, example_inputs)
    marks = torch_export.marks_of(module)
    model = torch_export.export(call, marks, batch)
    graph, data = torch_export.convert(model, call, batch)
    found = _recognised(graph, data, marks)
    torch_export.refuse_lost(model, marks, [mark for mark, _ in found.values()])
    labels = graph.labels
    for variable, (mark, layout) in found.items():
        data[labels[variable]] = layout.to_variable(mark.values)
    return TorchModel(
        graph,
        data,
        _variables(found, is_parameter=True),
        _variables(found, is_parameter=False),
        tuple(v for v, (mark, _) in found.items() if mark.is_trained),
        {variable: layout for variable, (_, layout) in found.items()},
    )


# The mark whose values a variable has, and how they lie in it.
Found = dict[str, tuple["Mark", Layout]]


def _recognised(
    graph: Graph, data: Mapping[str, Array], marks: Sequence[Mark]
) -> Found:
    """What is known of each variable that has the values of a mark."""
    by_digest = {mark.digest: mark for mark in marks}
    found: Found = {}
    for variable, label in graph.labels.items():
        mark = by_digest.get(digest(data[label]))
        layout = None if mark is None else _layout(mark.stand_in, data[label])
        if mark is not None and layout is not None:
            found[variable] = mark, layout
    return found


def digest(values: Array) -> tuple[int, int]:
    """Equal for the same numbers in any order, and for hardly any others."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return values.size, int(words.sum(dtype=np.uint64))


def _layout(mark: Array, values: Array) -> Layout | None:
    """How the values of a mark lie in a variable; None if they are others."""
    flat = np.ravel(values)
    for axes in permutations(range(mark.ndim)):
        if np.array_equal(mark.transpose(axes).reshape(-1), flat):
            return Layout(mark.shape, axes, values.shape)
    return None


def _variables(found: Found, *, is_parameter: bool) -> dict[str, str]:
    return {
        name: variable
        for variable, (mark, _) in found.items()
        if mark.is_parameter == is_parameter
        for name in mark.names
    }
