"""Operations in forms for which ONNX Runtime has faster kernels.

grad_x = select(hit, grad_y, 0.0);   ->   kept = cast<scalar>(mask);
                                           grad_x = mul(kept, grad_y);
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt

from nnef_grad.emit.bodies import Decompose
from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.traits import BROADCASTING, MOVING, PRODUCTS, UNARY
from nnef_grad.targets.elementwise import divided_gelu
from nnef_grad.targets.own_operations import found_by, tract_core
from nnef_grad.targets.registry import Relations, where


@found_by("onnx", "gelu")
@where()
def _gelu_by_erf(emit: Emitter, op: Operation) -> Sequence[Operand]:
    return [emit("mul", op.operands[0], *_probability(op, emit, op))]


def _probability(gelu: Operation, emit: Emitter, _: Operation) -> Sequence[Operand]:
    """The distribution function of the normal distribution, as PyTorch computes it."""
    scaled = emit("mul", gelu.operands[0], sqrt(0.5), hint="scaled")
    error = tract_core(emit, "erf", scaled, hint="error_function")
    risen = emit("add", error, 1.0, hint="risen")
    return [emit("mul", risen, 0.5, hint="probability")]


@found_by("onnx", "select")
def _choice(op: Operation, near: Relations) -> Decompose | None:
    """The probability in the derivative of gelu; a product in place of a choice between a
    gradient and zero, which takes an eighth of the time.

    A product lets through what is infinite or no number, where a choice leaves it out. The
    choice stays, unless all of the gradient comes from products of matrices or
    convolutions, with nothing after them that has poles or overflows: what is not finite
    there is so in sums over many elements, and no gradient would be of use. Inputs and
    variables may be masks of infinite numbers.
    """
    gelu = divided_gelu(op, near)
    if gelu is not None:
        return partial(_probability, gelu)
    condition, kept, other = op.operands
    if not isinstance(condition, Tensor) or not isinstance(kept, Tensor):
        return None
    is_mask = other == 0.0 and type(other) is float
    if not is_mask or condition.shape != kept.shape or not _is_tame(kept, near):
        return None
    return _masked


def _masked(emit: Emitter, op: Operation) -> Sequence[Operand]:
    mask, gradient, _ = op.operands
    return [emit("mul", emit("cast", mask, dtype="scalar", hint="mask"), gradient)]


# Element by element, they make what is infinite of finite numbers, or no number of zero.
_WILD = frozenset(
    {
        "div", "rcp", "exp", "log", "log2", "pow", "sqr", "sqrt", "rsqr", "rsqrt", "tan",
        "sinh", "cosh", "atanh", "acosh", "asin", "acos",
    }
)  # fmt: skip
_SUMS = {"sum_reduce", "mean_reduce", "sample", "desample"}
_CALM = (UNARY | BROADCASTING | MOVING | _SUMS) - _WILD
# So many operations are looked at.
_MOST = 64


def _is_tame(gradient: Tensor, near: Relations) -> bool:
    """Whether a gradient comes from products by what keeps numbers finite."""
    waiting, seen = [gradient], {gradient}
    while waiting:
        producer = near.producers[waiting.pop()]
        if producer.name in PRODUCTS:
            continue
        if producer.name not in _CALM or len(seen) > _MOST:
            return False
        further = [x for x in producer.inputs if x not in seen and x.dtype == "scalar"]
        waiting += further
        seen.update(further)
    return True
