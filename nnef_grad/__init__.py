"""nnef-grad: a compiler from NNEF graphs to their backward graphs, in standard NNEF
1.0.

    import nnef_grad

    graph = nnef_grad.load("model.nnef")
    backward = nnef_grad.differentiate(graph)
    nnef_grad.save(backward, "model_bwd.nnef")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnef_grad.autodiff.backward import Backward, summary
    from nnef_grad.autodiff.differentiate import differentiate
    from nnef_grad.autodiff.jacobian import jacobian
    from nnef_grad.autodiff.rules import Rules
    from nnef_grad.errors import (
        InvalidGraphError,
        NnefGradError,
        NnefSyntaxError,
        NoDerivativeError,
        Problem,
        UnsupportedError,
        UsageError,
    )
    from nnef_grad.graph.ir import Graph, Operation, Tensor
    from nnef_grad.interpreter import evaluate
    from nnef_grad.interpreter.gradcheck import Checked, CheckedGradient, check
    from nnef_grad.model import dumps, load, load_rules, loads, loads_rules, save
    from nnef_grad.source import Source, Span
    from nnef_grad.storage.data import VariableData, load_data
    from nnef_grad.targets import Lowered, lower

__version__ = "0.1.0"

__all__ = [
    "Backward",
    "Checked",
    "CheckedGradient",
    "Graph",
    "InvalidGraphError",
    "Lowered",
    "NnefGradError",
    "NnefSyntaxError",
    "NoDerivativeError",
    "Operation",
    "Problem",
    "Rules",
    "Source",
    "Span",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "VariableData",
    "check",
    "differentiate",
    "dumps",
    "evaluate",
    "jacobian",
    "load",
    "load_data",
    "load_rules",
    "loads",
    "loads_rules",
    "lower",
    "save",
    "summary",
]

# Where each name comes from. A module is imported when a name of it is used.
_NAMES = {
    "autodiff.backward": ("Backward", "summary"),
    "autodiff.differentiate": ("differentiate",),
    "autodiff.jacobian": ("jacobian",),
    "autodiff.rules": ("Rules",),
    "errors": (
        "InvalidGraphError",
        "NnefGradError",
        "NnefSyntaxError",
        "NoDerivativeError",
        "Problem",
        "UnsupportedError",
        "UsageError",
    ),
    "graph.ir": ("Graph", "Operation", "Tensor"),
    "interpreter": ("evaluate",),
    "interpreter.gradcheck": ("Checked", "CheckedGradient", "check"),
    "model": ("dumps", "load", "load_rules", "loads", "loads_rules", "save"),
    "source": ("Source", "Span"),
    "storage.data": ("VariableData", "load_data"),
    "targets": ("Lowered", "lower"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
