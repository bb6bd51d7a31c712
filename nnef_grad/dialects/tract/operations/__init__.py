"""The functions that expand operations of tract's dialect, by family. Importing a family
enters its functions.
"""

from __future__ import annotations

from nnef_grad.dialects.tract.operations import (
    attention,
    inputs,
    logic,
    loops,
    products,
    reductions,
    resizing,
    selection,
    shapes,
    windows,
)
from nnef_grad.dialects.tract.step import EXPANSIONS

__all__ = [
    "EXPANSIONS",
    "attention",
    "inputs",
    "logic",
    "loops",
    "products",
    "reductions",
    "resizing",
    "selection",
    "shapes",
    "windows",
]
