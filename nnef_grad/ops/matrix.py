"""Matrix products: the last two axes are the matrix, the axes before them are
batches.
"""

from __future__ import annotations

from nnef_grad.graph.ir import Shape
from nnef_grad.graph.learning import equal
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.registry import require, shape


@shape("matmul")
def matmul_shape(A: Shape, B: Shape, transposeA: bool, transposeB: bool) -> Shape:
    """The last two axes multiply as matrices; the axes before them are broadcast."""
    shapes = f"and their shapes are {list(A)} and {list(B)}"
    require(len(A) == len(B), f"the ranks of A and B must be equal, {shapes}")
    require(len(A) >= 2, f"A and B must have rank 2 at least, {shapes}")
    rows, inner = A[-2:][::-1] if transposeA else A[-2:]
    depth, columns = B[-2:][::-1] if transposeB else B[-2:]
    message = f"the inner extents must be equal, but are {inner} in A and {depth} in B"
    require(equal(inner, depth), message)
    return (*broadcast(A[:-2], B[:-2]), rows, columns)


@shape("linear")
def linear_shape(input: Shape, filter: Shape, bias: Shape) -> Shape:
    """The product with the transposed filter, to which the bias is broadcast."""
    product = matmul_shape(input, filter, transposeA=False, transposeB=True)
    return broadcast(product, bias)
