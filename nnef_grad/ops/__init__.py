"""The operations by family: the shape function of each, and its rule or body where that
needs shapes.

Importing this package enters all of them.
"""

from nnef_grad.ops import (
    conv,
    elementwise,
    matrix,
    normalize,
    pool,
    reduce,
    sampling,
    shape,
    tensors,
)
from nnef_grad.ops.registry import BODIES, RULES, SHAPES

__all__ = [
    "BODIES",
    "RULES",
    "SHAPES",
    "conv",
    "elementwise",
    "matrix",
    "normalize",
    "pool",
    "reduce",
    "sampling",
    "shape",
    "tensors",
]
