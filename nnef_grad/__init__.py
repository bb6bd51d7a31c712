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

from nnef_grad.base.lazy import names_on_use

if TYPE_CHECKING:
    from nnef_grad.autodiff.backward import Backward as Backward
    from nnef_grad.autodiff.backward import summary as summary
    from nnef_grad.autodiff.compositions import gradient_penalty as gradient_penalty
    from nnef_grad.autodiff.compositions import hessian as hessian
    from nnef_grad.autodiff.compositions import hvp as hvp
    from nnef_grad.autodiff.compositions import jacobian as jacobian
    from nnef_grad.autodiff.compositions import jvp as jvp
    from nnef_grad.autodiff.compositions import saliency as saliency
    from nnef_grad.autodiff.differentiate import differentiate as differentiate
    from nnef_grad.autodiff.recompute import Recomputation as Recomputation
    from nnef_grad.autodiff.recompute import recompute as recompute
    from nnef_grad.autodiff.rules import Rules as Rules
    from nnef_grad.autodiff.split import Split as Split
    from nnef_grad.autodiff.split import split as split
    from nnef_grad.autodiff.statistics import OperationCost as OperationCost
    from nnef_grad.autodiff.statistics import SplitCosts as SplitCosts
    from nnef_grad.autodiff.statistics import Statistics as Statistics
    from nnef_grad.autodiff.statistics import split_costs as split_costs
    from nnef_grad.autodiff.statistics import statistics as statistics
    from nnef_grad.base.errors import InvalidGraphError as InvalidGraphError
    from nnef_grad.base.errors import NnefGradError as NnefGradError
    from nnef_grad.base.errors import NnefSyntaxError as NnefSyntaxError
    from nnef_grad.base.errors import NoDerivativeError as NoDerivativeError
    from nnef_grad.base.errors import Problem as Problem
    from nnef_grad.base.errors import UnsupportedError as UnsupportedError
    from nnef_grad.base.errors import UsageError as UsageError
    from nnef_grad.base.source import Source as Source
    from nnef_grad.base.source import Span as Span
    from nnef_grad.graph.ir import Graph as Graph
    from nnef_grad.graph.ir import Operation as Operation
    from nnef_grad.graph.ir import Tensor as Tensor
    from nnef_grad.interpreter import evaluate as evaluate
    from nnef_grad.interpreter.gradcheck import Checked as Checked
    from nnef_grad.interpreter.gradcheck import CheckedGradient as CheckedGradient
    from nnef_grad.interpreter.gradcheck import check as check
    from nnef_grad.model import dumps as dumps
    from nnef_grad.model import load as load
    from nnef_grad.model import load_rules as load_rules
    from nnef_grad.model import loads as loads
    from nnef_grad.model import loads_rules as loads_rules
    from nnef_grad.model import save as save
    from nnef_grad.reports import report as report
    from nnef_grad.storage.data import VariableData as VariableData
    from nnef_grad.storage.data import load_data as load_data
    from nnef_grad.targets import Lowered as Lowered
    from nnef_grad.targets import lower as lower
    from nnef_grad.training.forms import Step as Step
    from nnef_grad.training.step import training_step as training_step

__version__ = "0.1.0"

# The names of each module.
_NAMES = {
    "autodiff.backward": ("Backward", "summary"),
    "autodiff.compositions": (
        "gradient_penalty",
        "hessian",
        "hvp",
        "jacobian",
        "jvp",
        "saliency",
    ),
    "autodiff.differentiate": ("differentiate",),
    "autodiff.recompute": ("Recomputation", "recompute"),
    "autodiff.rules": ("Rules",),
    "autodiff.split": ("Split", "split"),
    "autodiff.statistics": (
        "OperationCost",
        "SplitCosts",
        "Statistics",
        "split_costs",
        "statistics",
    ),
    "base.errors": (
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
    "reports": ("report",),
    "base.source": ("Source", "Span"),
    "storage.data": ("VariableData", "load_data"),
    "targets": ("Lowered", "lower"),
    "training.forms": ("Step",),
    "training.step": ("training_step",),
}
__all__ = sorted(name for names in _NAMES.values() for name in names)

# What is used by its own name: nnef_grad.training.run.
_PACKAGES = ("interop", "training")
_get = names_on_use(__name__, _NAMES)


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _PACKAGES else _get(name)


def __dir__() -> list[str]:
    return __all__
