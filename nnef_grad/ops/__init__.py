"""The operations by family: the shape function of each, its rule or decomposition where that
needs shapes, and what batching, examples, linearity, value ranges and costs take.

Importing this package enters all of them.
"""

from nnef_grad.ops import (  # noqa: F401 (they are imported to be entered)
    borders,
    conv,
    elementwise,
    join,
    matrix,
    normalize,
    orders,
    parts,
    pool,
    reduce,
    sampling,
    shape,
)
from nnef_grad.ops.registry import DECOMPOSITIONS, RULES, SHAPES

__all__ = ["DECOMPOSITIONS", "RULES", "SHAPES"]
