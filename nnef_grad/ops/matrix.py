"""Matrix products: the last two axes are the matrix, the axes before them are
batches.
"""

from __future__ import annotations

from typing import Any

from nnef_grad.graph.ir import Operation, Shape
from nnef_grad.graph.learning import equal
from nnef_grad.ops.batching import batching_rule, elementwise
from nnef_grad.ops.costs import cost_rule, elements
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.examples import MAY_MEET, MEET, MeetError, Place, Use, place_rule
from nnef_grad.ops.linear import in_one, linearity_rule
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


# ---- Batching, linearity, costs ----

# The new axis is a batch of matrices.
batching_rule("matmul")(elementwise)
linearity_rule("matmul", "linear")(in_one)


@cost_rule("matmul", "linear")
def product_cost(op: Operation) -> Any:
    """The inner extent for each element of the product."""
    inner = -2 if op.settings.get("transposeA") else -1
    return elements(op) * op.inputs[0].shape[inner]


@place_rule("matmul")
def matmul_place(use: Use) -> Place:
    """The examples are batches of matrices, rows of the first or columns of the second."""
    a, b = use.operation.inputs
    rank, settings = a.rank, use.settings
    if any(place.axis < rank - 2 for place in use.at.values()):
        return use.aligned()
    rows = rank - 1 if settings["transposeA"] else rank - 2
    columns = rank - 2 if settings["transposeB"] else rank - 1
    place = use.one()
    if len(use.at) == 2 or a is b or place.axis != (rows if a in use.at else columns):
        raise MeetError(MEET)
    return place._replace(axis=rank - 2 if a in use.at else rank - 1)


@place_rule("linear")
def linear_place(use: Use) -> Place:
    """The examples are rows."""
    x, w, *bias = use.operation.inputs
    if x not in use.at or w in use.at:
        raise MeetError(MAY_MEET)
    if use.at[x].axis != 0:
        raise MeetError(MEET)
    return use.aligned(x, *bias)
