"""nnef-grad: a compiler from NNEF graphs to their backward graphs, in standard NNEF
1.0.

    import nnef_grad

    graph = nnef_grad.load("model.nnef")
    backward = nnef_grad.differentiate(graph)
    nnef_grad.save(backward, "model_bwd.nnef")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nnef_grad.base.lazy import names_of_stub

__version__ = "0.1.0"

# What is used by its own name: nnef_grad.training.run.
_PACKAGES = ("interop", "training")
__all__, _get = names_of_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _PACKAGES else _get(name)


def __dir__() -> list[str]:
    return __all__
