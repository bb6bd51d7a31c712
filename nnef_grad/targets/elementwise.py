"""Element by element: forms that take the ranks, the types or the neighbours of operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import isqrt, prod

from nnef_grad.autodiff.rules import DERIVATIVES
from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import Evaluator, instantiate_body
from nnef_grad.emit.rewriting import Decompose, DefUse, each, is_instance
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.conditions import is_several, outer_factors
from nnef_grad.targets.forms import form
from nnef_grad.targets.registry import WRITTEN, lowering
from nnef_grad.targets.shape import fill

# ---- Choices ----


@lowering("select")
def select_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """In the rank of the result; of logicals by logic; a literal needs no choice. Where that
    changes nothing, the other way round.
    """
    condition, yes, no = op.operands
    if isinstance(condition, bool):
        return [yes if condition else no]
    if op.dtype == "logical":
        other = emit("not", condition, hint="other")
        first = emit("and", condition, yes, hint="first")
        return [emit("or", first, emit("and", other, no, hint="second"))]
    rank = op.outputs[0].rank
    names = (parameter.name for parameter in op.definition.operands)
    pairs = zip(op.operands, names, strict=True)
    # A number fits beside tensors that are whole, or one element.
    is_plain = all(prod(x.shape) in (1, prod(op.outputs[0].shape)) for x in op.inputs)
    kept = (float,) if is_plain else ()
    whole = [x if type(x) in kept else _aligned(emit, x, rank, n) for x, n in pairs]
    if tuple(whole) == op.operands:
        other = emit("not", condition, hint="other")
        return [emit("select", other, no, yes)]
    return [emit("select", *whole)]


@lowering("gt")
def gt_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With tensors of several elements as large as the result."""
    shape = op.outputs[0].shape
    filled = (
        fill(emit, x, shape) if is_several(shape_of(x)) else x for x in op.operands
    )
    return [emit("gt", *filled)]


def _aligned(emit: Emitter, x: Operand, rank: int, hint: str) -> Operand:
    """The operand with trailing axes of extent 1, so that it has the rank."""
    if type(x) is int:
        ones = [1] * rank
        return emit("constant", shape=ones, value=[x], dtype="integer", hint=hint)
    axes = list(range(len(shape_of(x)), rank))
    hint = "zero" if x == 0.0 else hint
    return emit("unsqueeze", x, axes=axes, hint=hint) if axes else x


# ---- Outer products ----


@form("mul", lambda op: outer_factors(op) is not None)
def outer_product_of_rows(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """[M..., 1...] and [1..., N...] as a column and a row: some runtimes go through each
    axis of a tensor that is broadcast.

    In tract, the product gets the axes of extent 1 of the result, unless either factor
    has more axes than the result has beside these.
    """
    factors = outer_factors(op)
    assert factors is not None
    shape = op.outputs[0].shape
    m, n = (prod(factor.shape) for factor in factors)
    is_plain = [extent for extent in shape if extent != 1] == [m, n]
    shapes = _parted(m, n) if is_plain else ((m, 1), (1, n))
    column, row = (
        reshaped(emit, factor, shape, hint)
        for factor, shape, hint in zip(factors, shapes, ("column", "row"), strict=True)
    )
    return [reshaped(emit, emit("mul", column, row, hint="outer_product"), shape)]


def _parted(m: Dimension, n: Dimension) -> tuple[Shape, Shape]:
    """The shapes of a column and a row, one of which has two axes, if it can."""
    if (part := _divisor(m)) > 1:
        return (part, m // part, 1), (1, 1, n)
    if (part := _divisor(n)) > 1:
        return (m, 1, 1), (1, part, n // part)
    return (m, 1), (1, n)


def _divisor(number: Dimension) -> int:
    """The least divisor of a number but 1; 1 if there is none but itself."""
    if has_symbols(number):
        return 1
    return next((d for d in range(2, isqrt(number) + 1) if number % d == 0), 1)


# ---- gelu ----


@lowering("gelu")
def gelu_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """x * P(x), where P is the distribution function of the normal distribution."""
    return [emit("mul", op.operands[0], *_probability(emit, op))]


def _probability(emit: Emitter, gelu: Operation) -> Sequence[Operand]:
    return instantiate_body(emit, gelu, WRITTEN["gelu_probability"])


@each("select")
def share_probabilities(op: Operation, near: DefUse) -> Decompose | None:
    """P(x) is from gelu(x) in the derivative of it, which divides by x to get there, as NNEF
    has no P:

    y = gelu(x);                                          p = P(x);
    divisor = select(small, 1.0, x);                to    y = mul(x, p);
    p = select(small, series, div(y, divisor));

    Where x is small, the derivative has the series of P.
    """
    gelu = divided_gelu(op, near)
    return None if gelu is None else lambda emit, _: _probability(emit, gelu)


def divided_gelu(op: Operation, near: DefUse) -> Operation | None:
    """The gelu of which a choice is the probability, as the derivative has it."""
    gelu = near.chain(op.operands[2], "div", "gelu")
    if gelu is None:
        return None
    around = (*gelu.inputs, *gelu.outputs)
    return gelu if is_instance(near, op.outputs[0], _divided, *around) else None


def _divided(emit: Emitter, x: Tensor, y: Tensor) -> Operand:
    """The probability in the derivative of y = gelu(x)."""
    rule, values = DERIVATIVES["gelu_vjp"], {"x": x, "y": y, "dy": 1.0}
    (slope,) = Evaluator(emit).instantiate(rule, values, str, None).values()
    product = emit.producer(slope)
    assert product is not None
    return product.operands[0]


# ---- Copies, casts and sums ----


def _has_cast(op: Operation) -> bool:
    """Integers are made from nothing else, and no numbers from them: see integers.py."""
    source = dtype_of(op.operands[0])
    others = {("scalar", "logical"), ("integer", "logical"), ("logical", "scalar")}
    return source == op.dtype or (source, op.dtype) in others


@lowering("cast", applies=_has_cast)
def cast_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By a choice, or by a comparison with zero."""
    (x,) = op.operands
    source = dtype_of(x)
    if source == op.dtype:
        return [x]
    if source == "logical":
        return [emit("select", x, 1.0, 0.0)]
    if source == "integer":
        x = emit("cast", x, dtype="scalar", hint="number")
    return [emit("not", emit("eq", x, 0.0, hint="zero"))]


@lowering("copy")
def copy_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """x || x, and a constant for an integer."""
    (x,) = op.operands
    if op.dtype == "integer":
        return [emit("constant", shape=[], value=[x], dtype="integer")]
    return [emit("or", x, x)]


@lowering("add_n")
def add_n_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """One after the other."""
    (terms,) = op.operands
    assert isinstance(terms, tuple)
    return [reduce(partial(emit, "add", hint="sum"), terms)]
