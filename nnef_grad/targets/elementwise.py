"""Element by element: lowerings that take the ranks or the types of the operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import prod

from nnef_grad.build.arguments import dtype_of
from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, shape_of
from nnef_grad.ops.elementwise import outer_factors
from nnef_grad.ops.shape import reshaped
from nnef_grad.targets.forms import form
from nnef_grad.targets.registry import lowering


@lowering("select")
def select_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With all operands in the rank of the result; of logicals by logic. A literal
    condition needs no choice.
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
    return [emit("select", *(_aligned(emit, x, rank, name) for x, name in pairs))]


def _aligned(emit: Emitter, x: Operand, rank: int, hint: str) -> Operand:
    """The operand with trailing axes of extent 1, so that it has the rank."""
    if type(x) is int:
        ones = [1] * rank
        return emit("constant", shape=ones, value=[x], dtype="integer", hint=hint)
    axes = list(range(len(shape_of(x)), rank))
    hint = "zero" if x == 0.0 else hint
    return emit("unsqueeze", x, axes=axes, hint=hint) if axes else x


def _has_cast(op: Operation) -> bool:
    """Integers are made from nothing else, and no numbers from them: see integers.py."""
    source = dtype_of(op.operands[0])
    others = {("scalar", "logical"), ("integer", "logical"), ("logical", "scalar")}
    return source == op.dtype or (source, op.dtype) in others


@form("mul", lambda op: outer_factors(op) is not None)
def outer_product_of_rows(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """[M..., 1...] and [1..., N...] as a column and a row: some runtimes go through each
    axis of a tensor that is broadcast.
    """
    factors = outer_factors(op)
    assert factors is not None
    column, row = factors
    rows = reshaped(emit, column, (prod(column.shape), 1), "column")
    columns = reshaped(emit, row, (1, prod(row.shape)), "row")
    product = emit("mul", rows, columns, hint="outer_product")
    return [reshaped(emit, product, op.outputs[0].shape)]


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
