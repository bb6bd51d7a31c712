"""Operations of a registry beside the standard, tract's, of which ONNX has some as well: what
they are and compute, where they stand for others, and what they are where the registry is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import fields
from functools import cache, partial
from math import erf, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.emit.arguments import bind
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, Find, put_found
from nnef_grad.graph.extents import Dimension, has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.interpreter.registry import Evaluation, enter
from nnef_grad.interpreter.shape import argsort, cast, gather
from nnef_grad.language.library import FragmentFile
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.join import gather_shape, one_hot
from nnef_grad.ops.registry import SHAPES, OpSet, ShapeFunction
from nnef_grad.ops.shape import reshaped, transposed, with_extent
from nnef_grad.ops.windows import windows_of
from nnef_grad.targets.conditions import set_to
from nnef_grad.targets.facts import TRACT_CORE
from nnef_grad.targets.registry import lowering
from nnef_grad.targets.shape import fill
from nnef_grad.targets.windows import are_side_by_side

# ---- What the operations are ----


def tract_core(
    emit: Emitter,
    name: str,
    *operands: Operand,
    dtype: str = "scalar",
    hint: str | None = None,
    **attributes: Any,
) -> Tensor:
    """Emits an operation of the registry, called without its prefix: its last result."""
    declared = declaration(f"{TRACT_CORE}_{name}")
    named = zip(declared.operand_names, operands, strict=True)
    call = bind(declared, {**dict(named), **attributes}, dtype)
    words = [r.name for r in declared.results[:-1]] + [hint or name]
    *_, result = emit.emit_op(call, hints=tuple(map(emit.naming, words)))
    assert isinstance(result, Tensor)
    return result


class _Declared(Fragment):
    """A declaration that pickles say the name of: who reads one imports this module, and so
    knows what the operation computes.
    """

    def __reduce__(self) -> Any:
        return declaration, (self.name,)


@cache
def declaration(name: str) -> Fragment:
    """The declaration of an operation."""
    own = _DECLARATIONS[name]
    return _Declared(**{part.name: getattr(own, part.name) for part in fields(own)})


_DECLARATIONS = FragmentFile(
    Path(__file__).parent / "own_operations.nnef", (TRACT_CORE,)
)


class _Own(NamedTuple):
    """The function of an operation on arrays, and its shape, by default that of x."""

    evaluate: Evaluation
    shape: ShapeFunction = lambda x, *others, **attributes: x


_NUMPY: dict[str, npt.DTypeLike] = {
    "f32": np.float64,
    "i64": np.int64,
    "bool": np.bool_,
}


def _scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """The updates, added to the blocks that the rows of indices name."""
    assert reduction == "add"
    sums = x.copy()
    np.add.at(sums, tuple(np.moveaxis(indices.astype(int), -1, 0)), updates)
    return sums


def _scatter_elements(
    x: Array, indices: Array, updates: Array, axis: int, reduction: str
) -> Array:
    """The updates, added to the elements at the indices along an axis."""
    assert reduction == "add"
    sums, places = x.copy(), np.indices(indices.shape)
    places[axis] = indices
    np.add.at(sums, tuple(places), updates)
    return sums


def _top(x: Array, k: int, axis: int, largest: bool) -> list[Array]:
    """The first elements in order, and their indices."""
    indices = argsort(x, axis, k, (), largest)
    return [np.take_along_axis(x, indices, axis), indices]


def _cumsum(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Sums up to each element along an axis, or from it on."""
    assert not exclusive
    ahead = np.flip(x, axis) if reverse else x
    sums = np.cumsum(ahead, axis)
    return np.flip(sums, axis) if reverse else sums


_OWN = {
    "broadcast": _Own(np.broadcast_to, lambda x, shape: shape),
    "cast": _Own(lambda x, to: cast(x, _NUMPY[to])),
    "cumsum": _Own(_cumsum),
    "erf": _Own(np.vectorize(erf, otypes=[np.float64])),
    "gather": _Own(
        lambda x, i, axis, datum_type: gather(x, i, axis),
        lambda x, i, axis, datum_type: gather_shape(x, i, axis),
    ),
    "gather_elements": _Own(
        lambda x, i, axis: np.take_along_axis(x, i.astype(int), axis),
        lambda x, i, axis: i,
    ),
    "range": _Own(
        lambda start, end, step: np.arange(start, end, step),
        lambda start, end, step: (len(range(start, end, step)),),
    ),
    "scatter_elements": _Own(_scatter_elements),
    "scatter_nd": _Own(_scatter_nd),
    "topk": _Own(_top, lambda x, k, axis, largest: [with_extent(x, axis, k)] * 2),
    "trilu": _Own(lambda x, k, upper: (np.triu if upper else np.tril)(x, k)),
}
enter({f"{TRACT_CORE}_{name}": own.evaluate for name, own in _OWN.items()})
OPSET = OpSet(
    shapes=SHAPES | {f"{TRACT_CORE}_{name}": own.shape for name, own in _OWN.items()}
)


# ---- What they are put in place of ----


# By the name of a runtime that has the registry, and the name of the operation: of several,
# the last goes first.
OWN: dict[str, dict[str, list[Find]]] = {
    name: defaultdict(list) for name in ("tract", "onnx", "onnxruntime")
}


def found_by(runtimes: str, *names: str) -> Callable[[Find], Find]:
    """Enters, for runtimes that a string names, what finds other forms of operations."""

    def enter(find: Find) -> Find:
        for runtime in runtimes.split():
            for name in names:
                OWN[runtime][name].append(find)
        return find

    return enter


def put_own(graph: Graph, runtimes: Container[str]) -> Graph:
    """The graph with operations of the registry in place of others, for these runtimes."""
    finds = defaultdict[str, list[Find]](list)
    for runtime, own in OWN.items():
        for name in own if runtime in runtimes else ():
            finds[name] += own[name]
    first = {name: partial(first_of, own) for name, own in finds.items()}
    return put_found(graph, first, OPSET)


def first_of(finds: Sequence[Find], op: Operation, near: DefUse) -> Decompose | None:
    """The finding of the last of several, or else of the one before it."""
    forms = (find(op, near) for find in reversed(finds))
    return next((form for form in forms if form is not None), None)


# ---- Sums from one end of an axis to each element ----


@found_by("onnxruntime", "box", "debox")
def _cumulative_sum(op: Operation, near: DefUse) -> Decompose | None:
    """A window of a whole axis: an operator, which adds each element once."""
    axis = whole_axis(op)
    return None if axis is None or is_count(op, near) else partial(_sums, axis)


@found_by("tract onnx", "box", "debox")
def _running_sum(op: Operation, near: DefUse) -> Decompose | None:
    """A window of a whole open axis: runtimes want numbers, but have open triangles."""
    axis = whole_axis(op)
    if axis is None or not has_symbols(op.attributes["size"][axis]):
        return None
    return partial(_counts if is_count(op, near) else _products, axis)


@found_by("onnx", "debox")
def _copies(op: Operation, near: DefUse) -> Decompose | None:
    """Windows side by side, whose elements are copies."""
    return _copied if _makes_copies(op) else None


def _makes_copies(op: Operation) -> bool:
    """Whether each element of an image is the only one of a window. Of a mean, lowering
    divides first.
    """
    if op.name != "debox" or not _IS_SUM(op):
        return False
    size, windows = op.attributes["size"], windows_of(op)
    return len(size) > 2 and {*size[:2]} == {1} and are_side_by_side(windows)


_IS_SUM = set_to(border="constant", normalize=False)


def _copied(emit: Emitter, op: Operation) -> Sequence[Operand]:
    return [emit("nearest_upsample", *op.operands, factor=op.attributes["size"][2:])]


def is_count(op: Operation, near: DefUse) -> bool:
    """Whether ones are added up."""
    source = near.producer(op.operands[0])
    is_of_ones = source is not None and source.attributes.get("value") == (1.0,)
    return is_of_ones and op.name == "box"


def whole_axis(op: Operation) -> int | None:
    """The axis that is added up along, from one of its ends."""
    size, padding = op.attributes["size"], op.attributes["padding"]
    axes = [axis for axis, extent in enumerate(size) if extent != 1]
    if len(axes) != 1 or not padding or op.attributes["normalize"]:
        return None
    (axis,) = axes
    extent, others = shape_of(op.operands[0])[axis], range(len(size))
    is_plain = all(padding[a] == (0, 0) for a in others if a != axis)
    is_plain &= not {*op.attributes["stride"], *op.attributes["dilation"]} - {1}
    is_plain &= op.attributes["border"] in ("constant", "ignore")
    is_whole = size[axis] == extent and {*padding[axis]} == {0, extent - 1}
    return axis if is_plain and is_whole else None


def is_from_begin(op: Operation, axis: int) -> bool:
    """Whether an element is added to those after it; in an adjoint, the other way back."""
    return bool((op.attributes["padding"][axis][1] == 0) == (op.name == "box"))


def _sums(axis: int, emit: Emitter, op: Operation) -> Sequence[Operand]:
    is_back = not is_from_begin(op, axis)
    settings: dict[str, Any] = {"axis": axis, "exclusive": False, "reverse": is_back}
    return [tract_core(emit, "cumsum", op.operands[0], **settings)]


def _triangle(emit: Emitter, op: Operation, axis: int) -> Tensor:
    """A one in row i and column j if j is the place of a sum with the element at i."""
    extent: Dimension = op.outputs[0].shape[axis]
    ones = tract_core(emit, "broadcast", 1.0, shape=[extent, extent], hint="ones")
    is_upper = is_from_begin(op, axis)
    return tract_core(emit, "trilu", ones, k=0, upper=is_upper, hint="triangle")


def _counts(axis: int, emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The sums of columns."""
    shape = op.outputs[0].shape
    triangle = _triangle(emit, op, axis)
    count = emit("sum_reduce", triangle, axes=[0], hint="count")
    row = tuple(n if a == axis else 1 for a, n in enumerate(shape))
    return [fill(emit, reshaped(emit, count, row), shape)]


def _products(axis: int, emit: Emitter, op: Operation) -> Sequence[Operand]:
    """The product of each line with the triangle."""
    (x,), shape = op.inputs, op.outputs[0].shape
    axes = [a for a in range(len(shape)) if a != axis] + [axis]
    back = sorted(range(len(axes)), key=axes.__getitem__)
    moved = transposed(emit, x, axes, hint="moved")
    lines = prod(moved.shape[:-1]), shape[axis]
    rows = reshaped(emit, moved, lines, hint="lines")
    sums = emit("matmul", rows, _triangle(emit, op, axis), hint="sums")
    return [transposed(emit, reshaped(emit, sums, moved.shape), back)]


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
