"""The operations of ONNX that nnef_tools does not have, or not right in all settings
and versions: a function for each, which emits the operations of NNEF that take its place.

Importing this package enters all of them.
"""

from nnef_grad.interop.onnx_files.node import CONVERSIONS
from nnef_grad.interop.onnx_files.operations import (
    elementwise,
    products,
    reductions,
    shapes,
    windows,
)

__all__ = ["CONVERSIONS", "elementwise", "products", "reductions", "shapes", "windows"]
