"""The operations by family: the shape function of each, and its rule or body where that
needs shapes.

Importing this package enters all of them.
"""

from nnef_grad.ops import (
    borders,
    conv,
    elementwise,
    matrix,
    normalize,
    pool,
    reduce,
    roi,
    sampling,
    shape,
    tensors,
)
from nnef_grad.ops.registry import BODIES, RULES, SHAPES

__all__ = [
    "BODIES",
    "RULES",
    "SHAPES",
    "borders",
    "conv",
    "elementwise",
    "matrix",
    "normalize",
    "pool",
    "reduce",
    "roi",
    "sampling",
    "shape",
    "tensors",
]
