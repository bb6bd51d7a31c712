"""nnef-grad: a compiler from NNEF graphs to their backward graphs, in standard NNEF
1.0.

    import nnef_grad

    graph = nnef_grad.load("model.nnef")
    backward = nnef_grad.differentiate(graph)
    nnef_grad.save(backward, "model_bwd.nnef")
"""

from nnef_grad.differentiate import Backward, differentiate, summary
from nnef_grad.errors import (
    InvalidGraphError,
    NnefGradError,
    NnefSyntaxError,
    NoDerivativeError,
    Problem,
    UsageError,
)
from nnef_grad.ir import Graph, Operation, Tensor
from nnef_grad.jacobian import jacobian
from nnef_grad.model import dumps, load, loads, save
from nnef_grad.rules import Rules, load_rules, loads_rules
from nnef_grad.source import Source, Span

__version__ = "0.1.0"

__all__ = [
    "Backward",
    "Graph",
    "InvalidGraphError",
    "NnefGradError",
    "NnefSyntaxError",
    "NoDerivativeError",
    "Operation",
    "Problem",
    "Rules",
    "Source",
    "Span",
    "Tensor",
    "UsageError",
    "differentiate",
    "dumps",
    "jacobian",
    "load",
    "load_rules",
    "loads",
    "loads_rules",
    "save",
    "summary",
]
