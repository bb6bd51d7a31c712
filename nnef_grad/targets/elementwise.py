"""Element by element: what takes the ranks or the types of the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from nnef_grad.build.arguments import dtype_of
from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Operation, shape_of
from nnef_grad.targets.registry import lowering

# ---- Choices ----


@lowering("select")
def select_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """With all operands in the rank of the result; of logicals by logic. What is chosen
    by a literal needs no choice.
    """
    condition, chosen, otherwise = op.operands
    if isinstance(condition, bool):
        return [chosen if condition else otherwise]
    if op.dtype == "logical":
        return [_chosen(emit, *op.operands)]
    rank = op.outputs[0].rank
    names = [parameter.name for parameter in op.definition.operands]
    aligned = (
        _aligned(emit, o, rank, name)
        for o, name in zip(op.operands, names, strict=True)
    )
    return [emit("select", *aligned)]


def _aligned(emit: Emitter, x: Operand, rank: int, hint: str) -> Any:
    """The operand with trailing axes of extent 1, so that it has the rank."""
    if type(x) is int:
        ones = [1] * rank
        return emit("constant", shape=ones, value=[x], dtype="integer", hint=hint)
    axes = list(range(len(shape_of(x)), rank))
    hint = "zero" if x == 0.0 else hint
    return emit("unsqueeze", x, axes=axes, hint=hint) if axes else x


def _chosen(emit: Emitter, condition: Operand, yes: Operand, no: Operand) -> Any:
    """condition && yes || !condition && no"""
    other = emit("not", condition, hint="other")
    first = emit("and", condition, yes, hint="first")
    second = emit("and", other, no, hint="second")
    return emit("or", first, second)


# ---- Types ----

Cast = Callable[[Emitter, Operand], Any]


def _same(emit: Emitter, x: Operand) -> Any:
    return x


def _number(emit: Emitter, x: Operand) -> Any:
    return emit("select", x, 1.0, 0.0)


def _truth(emit: Emitter, x: Operand) -> Any:
    """Whether it is not zero."""
    return emit("not", emit("eq", x, 0.0, hint="zero"))


def _truth_of_integer(emit: Emitter, x: Operand) -> Any:
    return _truth(emit, emit("cast", x, dtype="scalar", hint="number"))


_CASTS: dict[tuple[str, str | None], Cast] = {
    ("scalar", "scalar"): _same,
    ("integer", "integer"): _same,
    ("logical", "logical"): _same,
    ("logical", "scalar"): _number,
    ("scalar", "logical"): _truth,
    ("integer", "logical"): _truth_of_integer,
}


def _types(op: Operation) -> tuple[str, str | None]:
    return dtype_of(op.operands[0]), op.dtype


@lowering("cast", when=lambda op: _types(op) in _CASTS)
def cast_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """By a comparison or a choice. Integers are made from nothing else, and nothing else
    is made from them: see integers.py.
    """
    return [_CASTS[_types(op)](emit, op.operands[0])]


# ---- Copies and sums ----


@lowering("copy")
def copy_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """x || x, and a constant for an integer."""
    (x,) = op.operands
    if op.dtype == "integer":
        return [emit("constant", shape=[], value=[x], dtype="integer")]
    return [emit("or", x, x)]


@lowering("copy_n")
def copy_n_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """As many copies, each of which gets its name."""
    return [op.operands * int(op.attributes["times"])]


@lowering("add_n")
def add_n_lowered(emit: Emitter, op: Operation) -> Sequence[Any]:
    """One after the other."""
    (terms,) = op.operands
    assert isinstance(terms, tuple)
    return [reduce(partial(emit, "add", hint="sum"), terms)]
