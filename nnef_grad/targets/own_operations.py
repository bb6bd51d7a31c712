"""Operations of a registry beside the standard, tract's, of which ONNX has some as well: what
they are, where they stand for others, and what they are where the registry is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.graph.ir import Graph, Operand, Operation, Shape, Tensor, shape_of
from nnef_grad.language.library import tract_library
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.opset import OpSet
from nnef_grad.ops.registry import SHAPES
from nnef_grad.ops.repeat import gather_shape, one_hot
from nnef_grad.targets.conditions import always, set_to
from nnef_grad.targets.facts import TRACT_CORE
from nnef_grad.targets.patterns import is_instance
from nnef_grad.targets.registry import Relations, lowering
from nnef_grad.targets.shape import fill

Function = TypeVar("Function", bound=Decompose)


# ---- What the operations are ----


def tract_core(
    emit: Emitter,
    name: str,
    *operands: Operand,
    dtype: str = "scalar",
    hint: str | None = None,
    **attributes: Any,
) -> Operand:
    """Emits an operation of the registry, and returns its result.

    Args:
        name: what it is called after the name of the registry.
        operands: its tensors, or literals in the place of some.
        dtype: the data type of the result.
        hint: what the result should be called.
        attributes: the attributes of the operation.
    """
    declaration = _declaration(name)
    named = zip(declaration.operand_names, operands, strict=True)
    call = bind(declaration, {**dict(named), **attributes}, dtype)
    (result,) = emit.emit_op(call, hints=(emit.naming(hint or name),))
    return result


@cache
def _declaration(name: str) -> Fragment:
    return replace(tract_library()[f"{TRACT_CORE}_{name}"], body=None)


def _same(shape: Shape, *others: Any, **attributes: Any) -> Shape:
    """That of the first operand."""
    return shape


def _given(input: Shape, shape: Shape) -> Shape:
    return shape


def _gathered(input: Shape, indices: Shape, axis: int, datum_type: str) -> Shape:
    return gather_shape(input, indices, axis)


def _counted(start: int, end: int, step: int) -> Shape:
    return (len(range(start, end, step)),)


OPSET = OpSet(
    shapes={
        **SHAPES,
        "tract_core_cast": _same,
        "tract_core_scatter_nd": _same,
        "tract_core_broadcast": _given,
        "tract_core_gather": _gathered,
        "tract_core_range": _counted,
        "tract_core_erf": _same,
        "tract_core_trilu": _same,
    }
)


# ---- What they are put in place of ----


# What takes the place of an operation, given the others of its graph; None if it stays.
Find = Callable[[Operation, Relations], "Decompose | None"]
# By the name of a runtime that has the registry, and the name of the operation.
OWN: dict[str, dict[str, Find]] = {"tract": {}, "onnx": {}}


def own(
    *names: str, applies: Callable[[Operation], bool] = always
) -> Callable[[Function], Function]:
    """Enters what takes the place of the named operations in tract, for the settings to
    which it applies.
    """

    def enter(function: Function) -> Function:
        def find(op: Operation, near: Relations) -> Decompose | None:
            return function if applies(op) else None

        OWN["tract"].update(dict.fromkeys(names, find))
        return function

    return enter


def found_by(*runtimes: str, name: str) -> Callable[[Find], Find]:
    """Enters, for some runtimes, what finds out what takes the place of an operation."""

    def enter(find: Find) -> Find:
        for runtime in runtimes:
            OWN[runtime][name] = find
        return find

    return enter


def put_own(runtime: str, graph: Graph) -> Graph:
    """The graph with operations of the registry in place of others."""
    near, found = Relations(graph), OWN[runtime]

    def find(op: Operation) -> Decompose | None:
        return found[op.name](op, near) if op.name in found else None

    return inline(graph, find, OPSET)


# ---- Rows that are added ----


@found_by("tract", "onnx", name="matmul")
def _scattered(op: Operation, near: Relations) -> Decompose | None:
    """Adds rows where a product with a matrix of zeros and ones would; see `one_hot`.
    None for another product.
    """
    index = near.chain(op.operands[0], "select", "eq", "cast")
    if index is None or not op.attributes["transposeA"] or op.outputs[0].rank != 2:
        return None
    (column,), (matrix, _) = index.inputs, op.inputs
    extent = op.outputs[0].shape[0]
    if column.shape != (matrix.shape[0], 1) or column.dtype != "integer":
        return None
    if not is_instance(near, matrix, partial(one_hot, extent=extent), column):
        return None
    return partial(_added_rows, column, _is_in_range(column, extent, near))


def _is_in_range(column: Tensor, extent: int, near: Relations) -> bool:
    """Whether indices are known to be less than an extent: they are constants, or rows of
    so many are read at them, too.
    """
    source = near.source(column)
    made = near.producer(source)
    if made is not None and made.name == "constant":
        return all(0 <= index < extent for index in made.attributes["value"])
    return any(
        near.source(op.operands[1]) is source and shape_of(op.operands[0])[0] <= extent
        for op in near.named("gather", "tract_core_gather")
        if op.attributes["axis"] == 0
    )


def _added_rows(
    column: Tensor, is_in_range: bool, emit: Emitter, op: Operation
) -> Sequence[Operand]:
    """The rows, added to zeros where they are from."""
    (_, rows), (y,) = op.inputs, op.outputs
    if not is_in_range:
        column, rows = _in_range(emit, column, rows, y.shape[0])
    zeros = tract_core(emit, "broadcast", 0.0, shape=y.shape, hint="zeros")
    return [tract_core(emit, "scatter_nd", zeros, column, rows, reduction="add")]


def _in_range(
    emit: Emitter, column: Tensor, rows: Tensor, extent: int
) -> tuple[Tensor, Tensor]:
    """Indices and rows, with zeros in place of those whose index is out of range: a product
    leaves them out, and tract would end the process. It reads numbers as indices.
    """
    index = emit("cast", column, dtype="scalar", hint="index")
    place = emit("clamp", index, 0.0, extent - 1.0, hint="place")
    inside = emit("eq", place, index, hint="in_range")
    return place, emit("select", inside, rows, 0.0, hint="rows")


# ---- What they are where the registry is not ----


@lowering("tract_core_cast")
def cast_again(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The type is that of the result."""
    return [emit("cast", op.operands[0], dtype=op.dtype)]


@lowering("tract_core_broadcast")
def repeated(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The element, or the tensor, as often as the shape says."""
    return [fill(emit, op.operands[0], op.outputs[0].shape)]


@lowering("tract_core_gather")
def gather_again(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The operation of the standard."""
    return [emit("gather", *op.operands, axis=op.attributes["axis"])]


@lowering("tract_core_scatter_nd", applies=set_to(reduction="add"))
def product_with_one_hot(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The derivative of a gather, as the calculus gives it."""
    x, indices, rows = op.inputs
    onehot = one_hot(emit, indices, x.shape[0])
    sums = emit("matmul", onehot, rows, transposeA=True, hint="sums")
    return [emit("add", x, sums)]
