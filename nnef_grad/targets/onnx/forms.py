"""Operations in forms for which ONNX Runtime has faster kernels.

grad_x = select(hit, grad_y, 0.0);   ->   kept = cast<scalar>(mask);
                                           grad_x = mul(kept, grad_y);
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt

from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, where
from nnef_grad.graph.ir import Operand, Operation, Tensor, shape_of
from nnef_grad.ops.traits import BROADCASTING, MOVING, PRODUCTS, UNARY
from nnef_grad.targets.elementwise import divided_gelu
from nnef_grad.targets.own_operations import found_by, tract_core


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
def _choice(op: Operation, near: DefUse) -> Decompose | None:
    """The probability in the derivative of gelu; products in place of a choice between
    gradients, or one and zero, which take an eighth of the time.

    A product lets through what is infinite or no number, where a choice leaves it out. The
    choice stays, unless all of the gradients come from products of matrices or
    convolutions, with nothing after them that has poles or overflows: what is not finite
    there is so in sums over many elements, and no gradient would be of use. Inputs and
    variables may be masks of infinite numbers.
    """
    gelu = divided_gelu(op, near)
    if gelu is not None:
        return partial(_probability, gelu)
    condition, *options = op.operands
    gradients = [x for x in options if not _is_zero(x)]
    if op.dtype != "scalar" or not isinstance(condition, Tensor) or not gradients:
        return None
    is_whole = all(shape_of(x) == condition.shape for x in gradients)
    return _masked if is_whole and all(_is_tame(x, near) for x in gradients) else None


def _is_zero(x: Operand) -> bool:
    return isinstance(x, float) and x == 0.0


def _masked(emit: Emitter, op: Operation) -> Sequence[Operand]:
    condition, kept, other = op.operands
    mask = emit("cast", condition, dtype="scalar", hint="mask")
    if _is_zero(other):
        return [emit("mul", mask, kept)]
    left = emit("mul", emit("sub", 1.0, mask, hint="rest"), other)
    if _is_zero(kept):
        return [left]
    return [emit("add", emit("mul", mask, kept, hint="kept"), left)]


# Element by element, they make what is infinite of finite numbers, or no number of zero.
_WILD = frozenset(
    {
        "div", "rcp", "exp", "log", "log2", "pow", "sqr", "sqrt", "rsqr", "rsqrt", "tan",
        "sinh", "cosh", "atanh", "acosh", "asin", "acos",
    }
)  # fmt: skip
_SUMS = {"sum_reduce", "mean_reduce", "sample", "desample", "box", "debox", "avg_pool"}
_CALM = (UNARY | BROADCASTING | MOVING | _SUMS | {"select", "constant"}) - _WILD
# So many operations are looked at.
_MOST = 64


def _is_tame(gradient: Operand, near: DefUse) -> bool:
    """Whether a gradient comes from products by what keeps numbers finite."""
    if not isinstance(gradient, Tensor):
        return False
    waiting, seen = [gradient], {gradient}
    while waiting:
        producer = near.producers[waiting.pop()]
        if producer.name in PRODUCTS:
            continue
        if not _is_calm(producer) or len(seen) > _MOST:
            return False
        further = [x for x in producer.inputs if x not in seen and x.dtype == "scalar"]
        waiting += further
        seen.update(further)
    return True


def _is_calm(op: Operation) -> bool:
    """Whether finite numbers stay finite; a divisor that is a number is not zero."""
    divides_by_number = op.name == "div" and isinstance(op.operands[1], float)
    return op.name in _CALM or (divides_by_number and op.operands[1] != 0.0)
