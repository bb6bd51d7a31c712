"""Whole numbers in double precision, where single precision may lose digits of them: hashes,
numbers of places in large tensors. NNEF computes integers as scalars,

    number = cast<scalar>(token);  product = mul(number, 65599.0);  key = cast<integer>(product);

and ONNX has a wider type for those between the integers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from nnef_grad.autodiff.ranges import Ranges
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, map_tensors
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.ranges import EXACT, EXACT_IN_DOUBLE, INDEX
from nnef_grad.ops.traits import MOVING

# The data type of what is computed in double precision, in ONNX alone.
DOUBLE = "double"


def _total(op: Operation, size: float) -> float:
    """Of a sum: it is of as many elements as are gone, or of so many as an index may say."""
    given, kept = op.inputs[0].shape, op.outputs[0].shape
    return size * (INDEX if has_symbols(given) else prod(given) / max(prod(kept), 1))


def _product(op: Operation, *sizes: float) -> float:
    """Of a product of matrices: of as many products as the rows are long."""
    (length,) = op.inputs[0].shape[-2 if op.settings["transposeA"] else -1 :][:1]
    return prod(sizes) * (INDEX if has_symbols(length) else length)


def _running(op: Operation, size: float) -> float:
    """Of sums up to each element along an axis."""
    extent = op.outputs[0].shape[op.settings["axis"]]
    return size * (INDEX if has_symbols(extent) else extent)


# How far from zero results may be, given how far the operands are.
_SIZES: Mapping[str, Callable[..., float]] = {
    **dict.fromkeys(
        MOVING
        | {"abs", "cast", "ceil", "clamp", "copy", "div", "floor", "max", "min", "neg"}
        | {"round", "select", "sign"},
        lambda op, *sizes: max(sizes),
    ),
    **dict.fromkeys(("add", "sub"), lambda op, *sizes: sum(sizes)),
    "matmul": _product,
    "mul": lambda op, *sizes: prod(sizes),
    "sqr": lambda op, size: size**2,
    "sum_reduce": _total,
    "tract_core_cumsum": _running,
}
# What makes integers or truth values of scalars.
_SINKS = frozenset({"cast", "eq", "ge", "gt", "le", "lt", "ne"})


def in_double(graph: Graph) -> Graph:
    """The graph with double precision between integers, where these may be large."""
    sizes = _sizes(graph)
    inner = _between_integers(graph, sizes)
    around: dict[Tensor, list[Operation]] = defaultdict(list)
    for op in inner:
        for x in _scalars(op):
            around[x].append(op)
    chosen = {x for x in around if sizes[x] >= EXACT}
    pending = [*chosen]
    while pending:
        beside = {x for op in around[pending.pop()] for x in _scalars(op)} - chosen
        chosen |= beside
        pending += beside
    return _written(graph, chosen, {*inner}) if chosen else graph


def _scalars(op: Operation) -> Iterator[Tensor]:
    return (x for x in (*op.inputs, *op.outputs) if x.dtype == "scalar")


def _sizes(graph: Graph) -> dict[Tensor, float]:
    """How far from zero integers may be, and the scalars that are computed from these."""
    sizes, ranges = dict[Tensor, float](), Ranges(DefUse(graph).producers)
    for x in graph.inputs:
        sizes |= {x: float(INDEX)} if x.dtype == "integer" else {}
    for op in graph.operations:
        size = _size_of_results(op, sizes)
        for y in op.outputs:
            if y.dtype == "integer" and size is None:
                sizes[y] = ranges.of(y).integer_size
            elif y.dtype != "logical" and size is not None:
                sizes[y] = size
    return sizes


def _size_of_results(op: Operation, sizes: Mapping[Tensor, float]) -> float | None:
    """How far from zero results may be that are computed from whole numbers; else None."""
    if op.name == "constant":
        return _size(tuple(op.attributes["value"]), sizes)
    if op.name not in _SIZES:
        return None
    values = op.operands[1:] if op.name == "select" else op.operands
    own = [_size(value, sizes) for value in values]
    known = [size for size in own if size is not None]
    return _SIZES[op.name](op, *known) if len(known) == len(own) else None


def _size(value: Operand, sizes: Mapping[Tensor, float]) -> float | None:
    if isinstance(value, tuple):
        parts = [_size(part, sizes) for part in value]
        known = [size for size in parts if size is not None]
        return max(known, default=0.0) if len(known) == len(parts) else None
    if isinstance(value, Tensor):
        return 1.0 if value.dtype == "logical" else sizes.get(value)
    # A half is what rounding adds.
    if isinstance(value, str) or not (2.0 * value).is_integer():
        return None
    return abs(float(value)) if abs(value) < EXACT_IN_DOUBLE else None


def _between_integers(graph: Graph, sizes: Mapping[Tensor, float]) -> list[Operation]:
    """The operations on whole scalars that integers or truth values are computed from."""
    inner, needed = list[Operation](), set[Tensor]()
    for op in reversed(graph.operations):
        is_whole = all(_size(value, sizes) is not None for value in op.operands)
        is_sink = op.name in _SINKS and op.outputs[0].dtype != "scalar"
        if is_whole and (is_sink or not needed.isdisjoint(op.outputs)):
            inner.append(op)
            needed.update(x for x in op.inputs if x.dtype == "scalar")
    return inner


def _written(
    graph: Graph, chosen: Iterable[Tensor], inner: Iterable[Operation]
) -> Graph:
    """The graph with operations in double precision, and in single where others read them."""
    wide = {x: replace(x, dtype=DOUBLE) for x in chosen}
    others = {x for op in {*graph.operations} - {*inner} for x in op.inputs}
    narrow = (others | {*graph.outputs}) & wide.keys()
    supply, names = NameSupply(graph.names.values()), dict(graph.names)
    for x, y in wide.items():
        name = graph.names[x]
        names[y] = supply.fresh(f"{name}_{DOUBLE}") if x in narrow else name
    operations = list[Operation]()
    for op in graph.operations:
        if op not in inner or wide.keys().isdisjoint(_scalars(op)):
            operations.append(op)
            continue
        operands, results = (
            map_tensors(lambda x: wide.get(x, x), side)
            for side in (op.operands, op.results)
        )
        operations.append(op.rewired(operands, results))
        operations += [_cast(wide[y], y) for y in op.outputs if y in narrow]
    return replace(graph, operations=tuple(operations), names=names)


def _cast(x: Tensor, y: Tensor) -> Operation:
    return Operation(STDLIB["cast"], (x,), {}, (y,), y.dtype)
