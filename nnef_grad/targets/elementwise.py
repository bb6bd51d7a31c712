"""Element by element: lowerings that take the ranks or the types of the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from nnef_grad.build.arguments import dtype_of
from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, shape_of
from nnef_grad.targets.registry import lowering

# ---- Choices ----


@lowering("select")
def select_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """With all operands in the rank of the result; of logicals by logic. A literal
    condition needs no choice.
    """
    condition, yes, no = op.operands
    if isinstance(condition, bool):
        return [yes if condition else no]
    if op.dtype == "logical":
        return [_by_logic(emit, condition, yes, no)]
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


def _by_logic(emit: Emitter, condition: Operand, yes: Operand, no: Operand) -> Operand:
    """condition && yes || !condition && no"""
    other = emit("not", condition, hint="other")
    first = emit("and", condition, yes, hint="first")
    second = emit("and", other, no, hint="second")
    return emit("or", first, second)


# ---- Types ----


def _number(emit: Emitter, x: Operand) -> Operand:
    return emit("select", x, 1.0, 0.0)


def _truth(emit: Emitter, x: Operand) -> Operand:
    """Whether it is not zero."""
    return emit("not", emit("eq", x, 0.0, hint="zero"))


_CASTS: dict[tuple[str, str | None], Callable[[Emitter, Operand], Operand]] = {
    **{(dtype, dtype): lambda _, x: x for dtype in ("scalar", "integer", "logical")},
    ("logical", "scalar"): _number,
    ("scalar", "logical"): _truth,
    ("integer", "logical"): lambda emit, x: _truth(
        emit, emit("cast", x, dtype="scalar", hint="number")
    ),
}


def _types(op: Operation) -> tuple[str, str | None]:
    return dtype_of(op.operands[0]), op.dtype


@lowering("cast", applies=lambda op: _types(op) in _CASTS)
def cast_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """By a comparison or a choice. Integers are made from nothing else, and nothing else
    is made from them: see integers.py.
    """
    return [_CASTS[_types(op)](emit, op.operands[0])]


# ---- Copies and sums ----


@lowering("copy")
def copy_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """x || x, and a constant for an integer."""
    (x,) = op.operands
    if op.dtype == "integer":
        return [emit("constant", shape=[], value=[x], dtype="integer")]
    return [emit("or", x, x)]


@lowering("copy_n")
def copy_n_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """As many copies, each of which gets its name."""
    return [op.operands * op.attributes["times"]]


@lowering("add_n")
def add_n_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """One after the other."""
    (terms,) = op.operands
    assert isinstance(terms, tuple)
    return [reduce(partial(emit, "add", hint="sum"), terms)]
