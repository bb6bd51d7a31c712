"""Conversions of the ONNX operations that nnef_tools does not convert, or not correctly
in all settings and versions: a function for each, which emits its replacement in NNEF.

Importing this package registers all of them.
"""

from nnef_grad.interop.onnx_files.node import CONVERSIONS
from nnef_grad.interop.onnx_files.operations import (
    einsum,
    elementwise,
    losses,
    products,
    recurrent,
    reductions,
    resizing,
    selection,
    shapes,
    windows,
)

__all__ = [
    "CONVERSIONS",
    "einsum",
    "elementwise",
    "losses",
    "products",
    "recurrent",
    "reductions",
    "resizing",
    "selection",
    "shapes",
    "windows",
]
