"""Conversion from and to graphs of the Khronos tools in memory, and ONNX files; from PyTorch
modules.

    graph, data = interop.from_nnef_tools(converted)
    backward = nnef_grad.differentiate(graph)
    result = interop.to_nnef_tools(backward.graph, data)

Data are the values of variables, by label; arrays are passed on without being copied.
"""

from __future__ import annotations

from nnef_grad.base.lazy import names_of_stub

__all__, __getattr__ = names_of_stub(__name__, __file__)


def __dir__() -> list[str]:
    return __all__
