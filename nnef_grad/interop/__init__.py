"""Conversion from and to graphs of the Khronos tools in memory, and ONNX files; from PyTorch
modules.

    graph, data = interop.from_nnef_tools(converted)
    backward = nnef_grad.differentiate(graph)
    result = interop.to_nnef_tools(backward.graph, data)

Data are the values of variables, by label; arrays are passed on without being copied.
"""

from nnef_grad.frontends.onnx.entry import from_onnx
from nnef_grad.frontends.torch import TorchModel, from_torch
from nnef_grad.interop.khronos import (
    Model,
    from_nnef,
    from_nnef_tools,
    to_nnef,
    to_nnef_tools,
)
from nnef_grad.interop.onnx_writing import to_onnx

__all__ = [
    "Model",
    "TorchModel",
    "from_nnef",
    "from_nnef_tools",
    "from_onnx",
    "from_torch",
    "to_nnef",
    "to_nnef_tools",
    "to_onnx",
]
