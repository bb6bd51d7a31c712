"""The functions that read operations of ONNX, by family. Importing a family enters its
functions.
"""

from nnef_grad.frontends.onnx.operations import (
    control,
    elementwise,
    loops,
    losses,
    products,
    quantization,
    recurrent,
    reductions,
    resizing,
    selection,
    shapes,
    windows,
)

__all__ = [
    "control",
    "elementwise",
    "loops",
    "losses",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "resizing",
    "selection",
    "shapes",
    "windows",
]
