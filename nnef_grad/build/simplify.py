"""Rewrites that are tried on each operation of a derivative before it is emitted.

Every rewrite looks at the operation and at what made its operands, never at who uses
them. It returns an operand that equals the result, or None where it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnef_grad.build.arguments import Call
from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operand, Tensor, shape_of
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


def _literal(operand: Operand, value: float) -> bool:
    return type(operand) is float and operand == value


# ---- Neutral operands ----


def add_zero(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x + 0.0 and 0.0 + y"""
    return x if _literal(y, 0.0) else y if _literal(x, 0.0) else None


def subtract_zero(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x - 0.0"""
    return x if _literal(y, 0.0) else None


def subtract_from_zero(emit: Emitter, x: Operand, y: Operand) -> Any:
    """0.0 - y"""
    return emit("neg", y) if _literal(x, 0.0) and isinstance(y, Tensor) else None


def multiply_by_one(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x * 1.0 and 1.0 * y"""
    return x if _literal(y, 1.0) else y if _literal(x, 1.0) else None


def by_one(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x / 1.0 and x ^ 1.0"""
    return x if _literal(y, 1.0) else None


def negate_twice(emit: Emitter, x: Operand) -> Any:
    """-(-x)"""
    inner = emit.producer(x)
    return inner.operands[0] if inner is not None and inner.name == "neg" else None


def multiply_by_minus_one(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x * -1.0 and -1.0 * y"""
    negated = x if _literal(y, -1.0) else y if _literal(x, -1.0) else None
    return emit("neg", negated) if isinstance(negated, Tensor) else None


def choose(
    emit: Emitter, condition: Operand, true_value: Operand, false_value: Operand
) -> Any:
    """A condition that is a literal."""
    if isinstance(condition, bool):
        return true_value if condition else false_value
    return None


def convert(emit: Emitter, x: Operand) -> Any:
    """A number that is cast to a scalar."""
    return float(x) if isinstance(x, (bool, int)) else None


# ---- Shapes ----


def reshape_once(
    emit: Emitter,
    x: Operand,
    *,
    shape: tuple[int, ...],
    axis_start: int,
    axis_count: int,
) -> Any:
    """Two changes of shape in a row are one."""
    inner = emit.producer(x)
    is_whole = (axis_start, axis_count) == (0, -1) and all(n > 0 for n in shape)
    if inner is None or inner.name not in RESHAPING or not is_whole:
        return None
    if inner.origin is None:
        return None
    source = inner.operands[0]
    return source if shape_of(source) == shape else emit("reshape", source, shape=shape)


# ---- Reductions ----


def reduce_first(
    emit: Emitter, x: Operand, *, axes: tuple[int, ...], normalize: bool
) -> Any:
    """A factor that is the same along the axes of a sum is applied after the sum,
    where the tensor is smaller.
    """
    inner = emit.producer(x)
    if inner is None or inner.origin is None:
        return None
    if inner.name == "neg":
        return emit(
            "neg",
            emit(
                "sum_reduce",
                inner.operands[0],
                hint="sum",
                axes=axes,
                normalize=normalize,
            ),
        )
    if inner.name not in ("mul", "div"):
        return None
    left, right = inner.operands
    if inner.name == "mul" and _constant_along(left, axes):
        left, right = right, left
    if not _constant_along(right, axes) or shape_of(left) != shape_of(x):
        return None
    return emit(
        inner.name,
        emit("sum_reduce", left, hint="sum", axes=axes, normalize=normalize),
        right,
    )


def _constant_along(operand: Operand, axes: tuple[int, ...]) -> bool:
    shape = shape_of(operand)
    return all(axis >= len(shape) or shape[axis] == 1 for axis in axes)


# ---- Broadcasting ----


def broadcast_instead(name: str) -> Rewrite:
    """An element-wise operation repeats a singleton dimension by itself: a tile is
    needless where another operand has the extent.
    """

    def rewrite(emit: Emitter, *operands: Operand) -> Any:
        for index, operand in enumerate(operands):
            inner = emit.producer(operand)
            if inner is None or inner.name != "tile" or inner.origin is None:
                continue
            others = [shape_of(o) for i, o in enumerate(operands) if i != index]
            if shape_of(inner.operands[0]).count(1) and any(
                _covers(shape, operand, inner) for shape in others
            ):
                return emit(
                    name, *operands[:index], inner.operands[0], *operands[index + 1 :]
                )
        return None

    return rewrite


def _covers(shape: tuple[int, ...], tiled: Operand, tile: Any) -> bool:
    """Whether the other operand has the tiled extents, and what was tiled were
    singletons.
    """
    repeats = tile.attributes["repeats"]
    source = shape_of(tile.operands[0])
    return shape == shape_of(tiled) and all(
        r == 1 or s == 1 for r, s in zip(repeats, source, strict=True)
    )


REWRITES: dict[str, tuple[Rewrite, ...]] = {
    "add": (add_zero, broadcast_instead("add")),
    "sub": (subtract_zero, subtract_from_zero, broadcast_instead("sub")),
    "mul": (multiply_by_one, multiply_by_minus_one, broadcast_instead("mul")),
    "div": (by_one, broadcast_instead("div")),
    "pow": (by_one,),
    "neg": (negate_twice,),
    "select<scalar>": (choose,),
    "cast<scalar>": (convert,),
    "reshape<scalar>": (reshape_once,),
    "sum_reduce": (reduce_first,),
}
