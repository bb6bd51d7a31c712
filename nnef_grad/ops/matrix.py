"""Matrix products: the last two axes are the matrix, the axes before them are
batches.
"""

from __future__ import annotations

from nnef_grad.graph.ir import Shape
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.registry import require, shape


@shape("matmul")
def matmul_shape(A: Shape, B: Shape, transposeA: bool, transposeB: bool) -> Shape:
    """The last two axes multiply as matrices; the axes before them are broadcast."""
    rank = len(A)
    require(
        rank == len(B),
        f"the ranks of A and B must be equal, and their shapes are {list(A)} and {list(B)}",
    )
    require(
        rank >= 2,
        f"A and B must have rank 2 at least, and their shapes are {list(A)} and {list(B)}",
    )
    rows, inner = _matrix(A, transposeA)
    depth, columns = _matrix(B, transposeB)
    require(
        inner == depth,
        f"the inner extents must be equal, but are {inner} in A and {depth} in B",
    )
    return (*broadcast(A[:-2], B[:-2]), rows, columns)


def _matrix(shape: Shape, transpose: bool) -> tuple[int, int]:
    rows, columns = shape[-2:]
    return (columns, rows) if transpose else (rows, columns)


@shape("linear")
def linear_shape(input: Shape, filter: Shape, bias: Shape) -> Shape:
    """The product with the transposed filter, to which the bias is broadcast."""
    product = matmul_shape(input, filter, transposeA=False, transposeB=True)
    return broadcast(product, bias)
