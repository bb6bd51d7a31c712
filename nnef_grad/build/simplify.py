"""Rewrites that are tried on each operation of a derivative before it is emitted.

Every rewrite looks at the operation and at what made its operands, never at who uses
them. It returns an operand that equals the result, or None where it does not apply. Those
that turn out not to pay are taken back when the graph is whole: see `restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nnef_grad.build.arguments import Call
from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import (
    Graph,
    Operand,
    Operation,
    Shape,
    Tensor,
    shape_of,
    tensors,
)
from nnef_grad.graph.passes import count_uses, prune
from nnef_grad.ops.elementwise import fits_into
from nnef_grad.ops.traits import RESHAPING

Rewrite = Callable[..., Any]


def simplify(emit: Emitter, call: Call) -> Operand | None:
    """An operand that equals the result of an operation, or None if the operation is
    needed.
    """
    name = call.definition.name
    key = name if call.dtype is None else f"{name}<{call.dtype}>"
    for rewrite in REWRITES.get(key, ()):
        result: Operand | None = rewrite(emit, *call.operands, **call.attributes)
        if result is not None:
            return result
    return None


def restore(graph: Graph, simplified: Mapping[Tensor, Call]) -> Graph:
    """The graph without the rewrites that did not pay: what an operation is a simpler
    form of takes its place where all that this needs is there anyway, and an operand of
    the operation has no other use.

    Args:
        graph: a graph without operations whose results are not used.
        simplified: what tensors are a simpler form of.
    """
    uses, known = count_uses(graph), set[Tensor]()
    operations = []
    for op in graph.operations:
        call = simplified.get(op.outputs[0])
        wanted = () if call is None else tensors(call.operands)
        is_own = any(uses[t] == 1 and t not in wanted for t in op.inputs)
        if call is not None and is_own and known.issuperset(wanted):
            op = replace(op, **call._asdict())
        operations.append(op)
        known.update(op.outputs)
    return prune(replace(graph, operations=tuple(operations)))


def _literal(operand: Operand, value: float) -> bool:
    return type(operand) is float and operand == value


def _made_by(
    emit: Emitter, operand: Operand, names: Collection[str]
) -> Operation | None:
    """The operation of a derivative that made an operand, if it is one of some."""
    made = emit.producer(operand)
    is_one = made is not None and made.origin is not None and made.name in names
    return made if is_one else None


# ---- Neutral operands ----


def _beside(value: float, x: Operand, y: Operand) -> Operand | None:
    """The operand whose other one is a literal."""
    if _literal(y, value):
        return x
    return y if _literal(x, value) else None


def neutral(value: float) -> Rewrite:
    """x + 0.0 and 0.0 + y, x * 1.0 and 1.0 * y"""
    return lambda emit, x, y: _beside(value, x, y)


def neutral_on_the_right(value: float) -> Rewrite:
    """x - 0.0, x / 1.0 and x ^ 1.0"""
    return lambda emit, x, y: x if _literal(y, value) else None


def subtract_from_zero(emit: Emitter, x: Operand, y: Operand) -> Any:
    """0.0 - y"""
    return emit("neg", y) if _literal(x, 0.0) and isinstance(y, Tensor) else None


def negate_twice(emit: Emitter, x: Operand) -> Any:
    """-(-x)"""
    inner = emit.producer(x)
    return inner.operands[0] if inner is not None and inner.name == "neg" else None


def multiply_by_minus_one(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x * -1.0 and -1.0 * y"""
    negated = _beside(-1.0, x, y)
    return emit("neg", negated) if isinstance(negated, Tensor) else None


def choose(
    emit: Emitter, condition: Operand, true_value: Operand, false_value: Operand
) -> Any:
    """A condition that is a literal; or the comparison of a constant, where the choice
    has the shape of the result.
    """
    if isinstance(condition, bool):
        return true_value if condition else false_value
    known = _compared(emit, condition)
    choice, other = (true_value, false_value) if known else (false_value, true_value)
    shapes = shape_of(condition), shape_of(other)
    has_shape = all(fits_into(shape, shape_of(choice)) for shape in shapes)
    return choice if known is not None and has_shape else None


def _compared(emit: Emitter, condition: Operand) -> bool | None:
    """Whether two numbers are equal, where both are known. Nothing else is computed from
    the value of a constant: the result may yet be differentiated with respect to it.
    """
    equality = _made_by(emit, condition, ("eq",))
    if equality is None:
        return None
    left, right = (_number(emit, operand) for operand in equality.operands)
    return None if left is None or right is None else left == right


def _number(emit: Emitter, operand: Operand) -> float | None:
    """The number that a literal is, or that a constant is full of."""
    if isinstance(operand, float):
        return operand
    made = emit.producer(operand)
    if made is None or made.name != "constant":
        return None
    value, *others = set(made.attributes["value"])
    return None if others else value


def convert(emit: Emitter, x: Operand) -> Any:
    """A number that is cast to a scalar."""
    return float(x) if isinstance(x, (bool, int)) else None


# ---- Shapes ----


def reshape_once(
    emit: Emitter, x: Operand, *, shape: Shape, axis_start: int, axis_count: int
) -> Any:
    """Two changes of shape in a row are one."""
    inner = _made_by(emit, x, RESHAPING)
    is_whole = (axis_start, axis_count) == (0, -1) and all(n > 0 for n in shape)
    if inner is None or not is_whole:
        return None
    source = inner.operands[0]
    return source if shape_of(source) == shape else emit("reshape", source, shape=shape)


def transpose_once(emit: Emitter, x: Operand, *, axes: Shape) -> Any:
    """Two changes of the order in a row are one."""
    inner = _made_by(emit, x, ("transpose",))
    if inner is None or not len(axes) == len(inner.attributes["axes"]) == len(
        shape_of(x)
    ):
        return None
    order = [inner.attributes["axes"][axis] for axis in axes]
    source = inner.operands[0]
    return source if order == sorted(order) else emit("transpose", source, axes=order)


# ---- Reductions ----


def reduce_first(emit: Emitter, x: Operand, *, axes: Shape, normalize: bool) -> Any:
    """A factor that is the same along the axes of a sum is applied after the sum,
    where the tensor is smaller.
    """
    total = partial(emit, "sum_reduce", hint="sum", axes=axes, normalize=normalize)
    inner = _made_by(emit, x, ("neg", "mul", "div"))
    if inner is None:
        return None
    if inner.name == "neg":
        return emit("neg", total(inner.operands[0]))
    left, right = inner.operands
    if inner.name == "mul" and _constant_along(left, axes):
        left, right = right, left
    if not _constant_along(right, axes) or shape_of(left) != shape_of(x):
        return None
    return emit(inner.name, total(left), right)


def _constant_along(operand: Operand, axes: Shape) -> bool:
    shape = shape_of(operand)
    return all(axis >= len(shape) or shape[axis] == 1 for axis in axes)


# ---- Broadcasting ----


def broadcast_instead(name: str) -> Rewrite:
    """An element-wise operation repeats a singleton dimension by itself: a tile is
    needless where another operand has the extent. Where none has, it comes after the
    operation: what follows may have it.
    """

    def rewrite(emit: Emitter, *operands: Operand) -> Any:
        for index, operand in enumerate(operands):
            before, after = operands[:index], operands[index + 1 :]
            tile = _made_by(emit, operand, ("tile",))
            if tile is None or not _repeats_singletons(tile):
                continue
            source, others = tile.operands[0], [*map(shape_of, (*before, *after))]
            if shape_of(operand) in others:
                return emit(name, *before, source, *after)
            if all(fits_into(shape, shape_of(source)) for shape in others):
                single = emit(name, *before, source, *after, hint="single")
                return emit("tile", single, **tile.settings)
        return None

    return rewrite


def _repeats_singletons(tile: Operation) -> bool:
    source = shape_of(tile.operands[0])
    pairs = zip(tile.attributes["repeats"], source, strict=True)
    return 1 in source and all(r == 1 or s == 1 for r, s in pairs)


REWRITES: dict[str, tuple[Rewrite, ...]] = {
    "add": (neutral(0.0), broadcast_instead("add")),
    "sub": (neutral_on_the_right(0.0), subtract_from_zero, broadcast_instead("sub")),
    "mul": (neutral(1.0), multiply_by_minus_one, broadcast_instead("mul")),
    "div": (neutral_on_the_right(1.0), broadcast_instead("div")),
    "pow": (neutral_on_the_right(1.0),),
    "neg": (negate_twice, broadcast_instead("neg")),
    "select<scalar>": (choose, broadcast_instead("select")),
    "cast<scalar>": (convert,),
    "reshape<scalar>": (reshape_once,),
    "transpose<scalar>": (transpose_once,),
    "sum_reduce": (reduce_first,),
}
