"""Conversion from and to graphs of the Khronos tools in memory, and ONNX files; from PyTorch
modules.

    graph, data = interop.from_nnef_tools(converted)
    backward = nnef_grad.differentiate(graph)
    result = interop.to_nnef_tools(backward.graph, data)

Data are the values of variables, by label; arrays are passed on without being copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnef_grad.base.lazy import names_on_use

if TYPE_CHECKING:
    from nnef_grad.frontends.khronos import Model as Model
    from nnef_grad.frontends.khronos import from_nnef as from_nnef
    from nnef_grad.frontends.khronos import from_nnef_tools as from_nnef_tools
    from nnef_grad.frontends.khronos import to_nnef as to_nnef
    from nnef_grad.frontends.khronos import to_nnef_tools as to_nnef_tools
    from nnef_grad.frontends.onnx.entry import from_onnx as from_onnx
    from nnef_grad.frontends.torch import TorchModel as TorchModel
    from nnef_grad.frontends.torch import from_torch as from_torch
    from nnef_grad.targets.onnx.writing import to_onnx as to_onnx

# The names of each module.
_NAMES = {
    "frontends.onnx.entry": ("from_onnx",),
    "frontends.torch": ("TorchModel", "from_torch"),
    "frontends.khronos": (
        "Model",
        "from_nnef",
        "from_nnef_tools",
        "to_nnef",
        "to_nnef_tools",
    ),
    "targets.onnx.writing": ("to_onnx",),
}
__all__ = sorted(name for names in _NAMES.values() for name in names)
__getattr__ = names_on_use(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
