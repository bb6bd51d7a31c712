"""Rewrites that are tried on each operation of a derivative before it is emitted.

Every rewrite looks at the operation and at what made its operands, never at who uses
them. It returns an operand that equals the result, or None where it does not apply. Those
that turn out not to pay are taken back when the graph is whole: see `restore`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from nnef_grad.emit.arguments import Call
from nnef_grad.emit.emitter import LITERAL, Emitter
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import (
    Graph,
    Operand,
    Operation,
    Shape,
    Tensor,
    shape_of,
    tensors,
)
from nnef_grad.graph.passes import count_uses, prune, without_needless
from nnef_grad.graph.rewriting import Fate, sweep
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.elementwise import broadcast
from nnef_grad.ops.parts import inside, slice_positions
from nnef_grad.ops.shape import Positions
from nnef_grad.ops.traits import ARRANGING, RESHAPING


class Rewrite(NamedTuple):
    """A rewrite, and what makes the operands that it looks for, by name."""

    wanted: frozenset[str]
    apply: Callable[..., Any]


def wants(*wanted: str) -> Callable[[Callable[..., Any]], Rewrite]:
    """Makes a rewrite of a function of the emitter, the operands and the attributes."""
    return partial(Rewrite, frozenset(wanted))


def simplify(emit: Emitter, call: Call) -> Operand | None:
    """An operand that equals the result of an operation; None if it is needed."""
    name = call.definition.name
    key = name if call.dtype is None else f"{name}<{call.dtype}>"
    rewrites = REWRITES.get(key, ())
    makers = emit.makers(call.operands) if rewrites else ()
    for rewrite in rewrites:
        if not rewrite.wanted.isdisjoint(makers):
            result = emit.attempt(rewrite.apply, call)
            if result is not None:
                return result
    return None


def restore(graph: Graph, simplified: Mapping[Tensor, Call]) -> Graph:
    """The graph without the rewrites that did not pay: what an operation is a simpler
    form of takes its place where all that this needs is there anyway, and an operand of
    the operation has no other use. All results in the graph are used.
    """
    if not any(op.outputs[0] in simplified for op in graph.operations):
        return graph
    uses, earlier = count_uses(graph), set[Tensor]()

    def restored(op: Operation) -> Operation:
        call = simplified.get(op.outputs[0])
        wanted = () if call is None else tensors(call.operands)
        is_own = any(uses[t] == 1 and t not in wanted for t in op.inputs)
        is_there = is_own and earlier.issuperset(wanted)
        earlier.update(op.outputs)
        return op if call is None or not is_there else replace(op, **call._asdict())

    changed = sweep(graph, restored)
    return graph if changed is graph else prune(changed)


def without_detours(
    graph: Graph, kept: Set[Tensor] = frozenset(), joins: bool = False
) -> Graph:
    """The graph without transpositions, or changes of shape, that lead back to a tensor: in
    a document of a dialect, filters go such a way. The kept tensors stay; `joins` says
    whether there is one operation in place of two in a row that lead elsewhere.
    """
    stays = kept | {*graph.outputs}
    fixed = stays | {*graph.inputs, *graph.variables}
    made_by, gone = dict[Tensor, Operation](), set[Tensor]()

    def straight(operation: Operation) -> Fate:
        is_arranging = operation.name in ARRANGING and operation.inputs
        if not is_arranging or not kept.isdisjoint(operation.outputs):
            return operation
        (x,), (result,) = operation.inputs, operation.outputs
        joined = _joined(operation, None if x in stays else made_by.get(x))
        made_by[result], (x,) = joined, joined.inputs
        old, new = (x, result) if result in stays else (result, x)
        is_gone = joined is not operation and _changes_nothing(joined)
        if is_gone and not (old in fixed or old in gone):
            gone.add(old)
            return {old: new}
        return joined if joins else operation

    changed = sweep(graph, straight)
    return graph if changed is graph else without_needless(changed, graph)


def _joined(operation: Operation, maker: Operation | None) -> Operation:
    """One operation in place of two of a kind in a row; otherwise the last itself."""
    if maker is None or (operation.name == "transpose") != (maker.name == "transpose"):
        return operation
    changed = partial(replace, operation, operands=maker.operands)
    if operation.name == "transpose":
        axes = _joined_order(maker, operation.attributes["axes"])
        return changed(attributes={"axes": tuple(axes)})
    whole = {"shape": operation.outputs[0].shape, "axis_start": 0, "axis_count": -1}
    # Not every runtime makes a tensor without axes by a reshape.
    is_whole = operation.outputs[0].rank > 0
    reshape = STDLIB["reshape"]
    return changed(definition=reshape, attributes=whole) if is_whole else operation


def _changes_nothing(operation: Operation) -> bool:
    if operation.name == "transpose":
        axes = operation.attributes["axes"]
        return tuple(axes) == tuple(sorted(axes))
    return operation.inputs[0].shape == operation.outputs[0].shape


def _joined_order(transposition: Operation, axes: Shape) -> list[int]:
    """The order of all axes after two transpositions, the second one by `axes`: those at
    the end may be left out where they stay.
    """
    first, rank = transposition.attributes["axes"], transposition.outputs[0].rank
    order = [*first, *range(len(first), rank)]
    return [order[axis] for axis in (*axes, *range(len(axes), rank))]


def _literal(operand: Operand, value: float) -> bool:
    return type(operand) is float and operand == value


# ---- Neutral operands ----


def _beside(value: float, x: Operand, y: Operand) -> Operand | None:
    """The operand whose other one is a literal."""
    if _literal(y, value):
        return x
    return y if _literal(x, value) else None


def neutral(value: float) -> Rewrite:
    """x + 0.0 and 0.0 + y, x * 1.0 and 1.0 * y"""
    return wants(LITERAL)(lambda emit, x, y: _beside(value, x, y))


def neutral_on_the_right(value: float) -> Rewrite:
    """x - 0.0, x / 1.0 and x ^ 1.0"""
    return wants(LITERAL)(lambda emit, x, y: x if _literal(y, value) else None)


@wants(LITERAL)
def subtract_from_zero(emit: Emitter, x: Operand, y: Operand) -> Any:
    """0.0 - y"""
    return emit("neg", y) if _literal(x, 0.0) and isinstance(y, Tensor) else None


@wants("neg")
def negate_twice(emit: Emitter, x: Operand) -> Any:
    """-(-x)"""
    inner = emit.made_by(x, "neg")
    return None if inner is None else inner.operands[0]


@wants(LITERAL)
def multiply_by_minus_one(emit: Emitter, x: Operand, y: Operand) -> Any:
    """x * -1.0 and -1.0 * y"""
    negated = _beside(-1.0, x, y)
    return emit("neg", negated) if isinstance(negated, Tensor) else None


@wants("min")
def compare_directly(emit: Emitter, x: Operand, y: Operand) -> Any:
    """min(x, b) > a where b > a: x is what may be smaller than a. What is not a number is
    not larger than a: a minimum with it is not a number either.
    """
    least = emit.made_by(x, "min")
    if least is None or not isinstance(y, float):
        return None
    inner, bound = least.operands
    is_above = isinstance(bound, float) and bound > y
    return emit("gt", inner, y) if is_above else None


@wants(LITERAL, "eq")
def choose(
    emit: Emitter, condition: Operand, true_value: Operand, false_value: Operand
) -> Any:
    """A condition that is a literal, or the comparison of a constant."""
    is_true = condition if isinstance(condition, bool) else _is_equal(emit, condition)
    if is_true is None:
        return None
    choice, other = (true_value, false_value) if is_true else (false_value, true_value)
    # A number, as a gradient, has any shape.
    if isinstance(condition, bool) and not isinstance(choice, Tensor):
        return choice
    shapes = shape_of(condition), shape_of(other)
    has_shape = all(_fits_into(shape, shape_of(choice)) for shape in shapes)
    return choice if has_shape else None


def _is_equal(emit: Emitter, condition: Operand) -> bool | None:
    """Whether a condition is true, if it compares numbers. Nothing else is computed from
    the value of a constant: the result may yet be differentiated with respect to it.
    """
    equality = emit.made_by(condition, "eq")
    if equality is None:
        return None
    left, right = (_number(emit, operand) for operand in equality.operands)
    return None if left is None or right is None else left == right


def _number(emit: Emitter, operand: Operand) -> float | None:
    """The number that a literal is, or that a constant is full of."""
    if isinstance(operand, float):
        return operand
    maker = emit.producer(operand)
    if maker is None or maker.name != "constant":
        return None
    value, *others = set(maker.attributes["value"])
    return None if others else value


@wants(LITERAL)
def convert(emit: Emitter, x: Operand) -> Any:
    """A number that is cast to a scalar."""
    return float(x) if isinstance(x, (bool, int)) else None


def _fits_into(operand: Shape, result: Shape) -> bool:
    """Whether an operand is broadcast to a result, as they are written: nothing is learned of
    open extents.
    """
    pairs = zip(operand, result, strict=False)
    return len(operand) <= len(result) and all(o in (1, r) for o, r in pairs)


# ---- Shapes ----


@wants(*RESHAPING)
def reshape_once(
    emit: Emitter, x: Operand, *, shape: Shape, axis_start: int, axis_count: int
) -> Any:
    """Two changes of shape in a row are one."""
    inner = emit.made_by(x, *RESHAPING)
    is_whole = (axis_start, axis_count) == (0, -1)
    # A 0 keeps an extent, and -1 is what is left.
    if inner is None or not is_whole or any(may_exceed(1, n) for n in shape):
        return None
    source = inner.operands[0]
    return source if shape_of(source) == shape else emit("reshape", source, shape=shape)


@wants("transpose")
def transpose_once(emit: Emitter, x: Operand, *, axes: Shape) -> Any:
    """Two changes of the order in a row are one."""
    inner = emit.made_by(x, "transpose")
    if inner is None:
        return None
    source, order = inner.operands[0], _joined_order(inner, axes)
    return source if order == sorted(order) else emit("transpose", source, axes=order)


# ---- Padding ----


@wants("pad")
def slice_inside(emit: Emitter, x: Operand, **window: Any) -> Any:
    """The inside of a padded tensor is the tensor itself."""
    padding = emit.made_by(x, "pad")
    if padding is None:
        return None
    taken = slice_positions(shape_of(x), **window)
    positions = [taken.get(a, Positions(0, n)) for a, n in enumerate(shape_of(x))]
    return padding.operands[0] if positions == inside(padding) else None


@wants("pad")
def sum_what_is_padded(
    emit: Emitter, x: Operand, *, axes: Shape, normalize: bool
) -> Any:
    """Zeros along the axes of a sum add nothing to it."""
    padding = emit.made_by(x, "pad")
    if padding is None or normalize or not _adds_zeros(padding, axes):
        return None
    source = padding.operands[0]
    several = [axis for axis in axes if shape_of(source)[axis] != 1]
    return emit("sum_reduce", source, axes=several, hint="sum") if several else source


def _adds_zeros(padding: Operation, axes: Shape) -> bool:
    """Whether a padding adds zeros along some axes, and nothing along others."""
    attributes = padding.attributes
    outside = enumerate(attributes["padding"])
    is_zero = attributes["border"] == "constant" and attributes["value"] == 0.0
    return is_zero and all(
        (axis in axes or pair == (0, 0)) and not any(may_exceed(0, n) for n in pair)
        for axis, pair in outside
    )


# ---- Factors ----

FACTORS = frozenset({"neg", "mul", "div"})


@wants(*FACTORS)
def reduce_first(emit: Emitter, x: Operand, *, axes: Shape, normalize: bool) -> Any:
    """A factor that is the same along the axes of a sum is applied after the sum."""
    total = partial(emit, "sum_reduce", hint="sum", axes=axes, normalize=normalize)
    return _factor_last(
        emit, x, total, lambda s: all(a >= len(s) or s[a] == 1 for a in axes)
    )


@wants(*FACTORS)
def squeeze_first(emit: Emitter, x: Operand, *, axes: Shape) -> Any:
    """A factor without the axes that are removed is applied when they are gone."""
    squeezed = partial(emit, "squeeze", hint="sum", axes=axes)
    return _factor_last(emit, x, squeezed, lambda s: all(a >= len(s) for a in axes))


def _factor_last(
    emit: Emitter,
    x: Operand,
    linear: Callable[[Operand], Tensor],
    is_factor: Callable[[Shape], bool],
) -> Any:
    """A linear operation on what a factor is applied to, then the factor. Those further
    away stay: each of a chain of products would pull out all those before it.
    """
    product = emit.made_by(x, *FACTORS)
    if product is None:
        return None
    if product.name == "neg":
        return emit("neg", linear(product.operands[0]))
    left, right = product.operands
    if product.name == "mul" and is_factor(shape_of(left)):
        left, right = right, left
    is_last = shape_of(left) == shape_of(x) and is_factor(shape_of(right))
    return emit(product.name, linear(left), right) if is_last else None


# ---- Broadcasting ----


def broadcast_instead(name: str) -> Rewrite:
    """An element-wise operation repeats a singleton dimension by itself: a tile is
    needless where another operand has the extent. Where none has, it comes after the
    operation: what follows may have it.
    """

    @wants("tile")
    def rewrite(emit: Emitter, *operands: Operand) -> Any:
        for index, operand in enumerate(operands):
            before, after = operands[:index], operands[index + 1 :]
            tile = emit.made_by(operand, "tile")
            if tile is None or not _repeats_singletons(tile):
                continue
            source, others = tile.operands[0], [*map(shape_of, (*before, *after))]
            if broadcast(shape_of(source), *others) == broadcast(
                shape_of(operand), *others
            ):
                return emit(name, *before, source, *after)
            if all(_fits_into(shape, shape_of(source)) for shape in others):
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
    "gt": (compare_directly,),
    "select<scalar>": (choose, broadcast_instead("select")),
    "cast<scalar>": (convert,),
    "reshape<scalar>": (reshape_once,),
    "reshape<integer>": (reshape_once,),
    "transpose<scalar>": (transpose_once,),
    "slice<scalar>": (slice_inside,),
    "squeeze<scalar>": (squeeze_first,),
    "sum_reduce": (sum_what_is_padded, reduce_first),
}
