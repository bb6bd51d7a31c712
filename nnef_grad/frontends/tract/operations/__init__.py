"""The functions that expand operations of tract's dialect, by family. Importing a family
enters its functions.
"""

from __future__ import annotations

from nnef_grad.frontends.tract.operations import (
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

__all__ = [
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
