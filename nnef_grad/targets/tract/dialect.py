"""Graphs as their text must have them where it is of tract's dialect: with symbols, or with
operations of tract's registries. A document of the dialect has some operations of the
standard otherwise; docs/tables/tract.csv lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from itertools import repeat
from typing import cast

from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.rewriting import Decompose, DefUse, inline
from nnef_grad.emit.whole import is_whole
from nnef_grad.graph.atoms import Quotient
from nnef_grad.graph.extents import (
    Dimension,
    Extent,
    OpenExtentError,
    atoms_in,
    bounds,
    has_symbols,
)
from nnef_grad.graph.ir import (
    ARGSORT,
    LOOP,
    Attributes,
    Graph,
    Operand,
    Operation,
    Result,
    Tensor,
)
from nnef_grad.graph.loops import is_loop, loops_in, with_bodies
from nnef_grad.graph.names import NameSupply, with_told_names
from nnef_grad.graph.passes import without_needless
from nnef_grad.graph.printer import has_plain_names, print_graph
from nnef_grad.graph.rewriting import substitute
from nnef_grad.graph.symbols import conditions, symbols
from nnef_grad.language.identifiers import is_plain
from nnef_grad.ops.conv import groups_of
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition
from nnef_grad.targets.conv import exchanged
from nnef_grad.targets.elements import sorted_elements
from nnef_grad.targets.facts import RUNTIMES, TRACT_CORE, CommonSubset
from nnef_grad.targets.own_operations import OPSET, declaration
from nnef_grad.targets.pool import max_pool_lowered
from nnef_grad.targets.tract.own import TYPES

# A loop, in the dialect.
SCAN = f"{TRACT_CORE}_scan"


def print_in_dialect(graph: Graph) -> str:
    """The text of a graph that means in the dialect what the graph computes."""
    spelled = _in_dialect(_with_datum_types(graph))
    graphs = (spelled, *(loop.body for loop in loops_in(spelled)))
    registries = {f.registry for g in graphs for f in g.fragments if f.registry}
    if graph.dialect or not has_plain_names(spelled):
        registries.add(TRACT_CORE)
    return print_graph(
        spelled,
        [
            *(f"tract_registry {registry}" for registry in sorted(registries)),
            *(f"tract_symbol {symbol}" for symbol in symbols(spelled)),
            *(f"tract_assert {condition}" for condition in conditions(spelled)),
        ],
    )


def _with_datum_types(graph: Graph) -> Graph:
    """The graph with inputs and results of the data types that they have in the file, which
    are cast:

    x = tract_core_external(shape = [4], datum_type = 'i32');
    x_i64 = tract_core_cast(x, to = 'i64');
    y = tract_core_cast(y_f32, to = 'f16');
    """
    typed, ends = (
        {t: dtype for t in tensors if (dtype := graph.datum_types.get(graph.names[t]))}
        for tensors in (graph.inputs, graph.outputs)
    )
    if not typed and not ends:
        return graph
    supply, names = NameSupply(graph.names.values()), dict(graph.names)
    made = {y: replace(y) for y in ends}
    for y, last in made.items():
        names[last] = names[y]
        names[y] = supply.fresh(f"{names[y]}_{TYPES[y.dtype]}")
    wider, operations = dict[Tensor, Tensor](), list[Operation]()
    for operation in graph.operations:
        (x, *_) = operation.outputs
        if x not in typed:
            operations.append(substitute(operation, wider))
            continue
        to = TYPES[x.dtype]
        wider[x] = replace(x)
        names[wider[x]] = supply.fresh(f"{names[x]}_{to}")
        settings = {"shape": list(x.shape), "datum_type": typed[x]}
        operations += [
            _own("external", (), settings, x),
            _own("cast", (x,), {"to": to}, wider[x]),
        ]
    operations += [
        _own("cast", (y,), {"to": ends[y]}, last) for y, last in made.items()
    ]
    outputs = tuple([made.get(y, y) for y in graph.outputs])
    return replace(graph, operations=tuple(operations), names=names, outputs=outputs)


def _own(
    name: str,
    operands: tuple[Operand, ...],
    settings: Mapping[str, object],
    result: Tensor,
) -> Operation:
    """An operation of the registry with one result."""
    definition = declaration(f"{TRACT_CORE}_{name}")
    attributes = cast("Attributes", settings)
    return Operation(definition, operands, attributes, (result,), result.dtype)


def _in_dialect(graph: Graph) -> Graph:
    """A graph for the printer. It is not to be evaluated: a deconvolution has the dialect's
    filter.
    """
    graph = with_bodies(graph, _in_dialect)
    spelled = inline(graph, _spelling, OPSET)
    graph = graph if spelled is graph else without_needless(spelled, graph)
    # One for all that is derived of a loop: it stands under one comment.
    scan = cache(_scan)
    codes = {t for n, t in graph.tensors.items() if n in graph.quantization}
    return replace(
        graph,
        operations=tuple(
            _called(scan, _recoded(_written(op), codes))
            if graph.dialect
            else _called(scan, op)
            for op in graph.operations
        ),
    )


def _recoded(operation: Operation, codes: Set[Tensor]) -> Operation:
    """The operation, but for a copy to or from a tensor that quantization info is about: tract
    computes with its codes.
    """
    ends = (*operation.inputs, *operation.outputs)
    if operation.name != "copy" or codes.isdisjoint(ends):
        return operation
    y = operation.outputs[0]
    settings = {"to": "" if y in codes else TYPES[y.dtype]}
    return _own("cast", operation.operands, settings, y)


def _written(operation: Operation) -> Operation:
    """The operation, but for a conversion, and a constant, which tract writes as nested
    arrays:

    c = constant(shape = [1, 2], value = [0.5, 1.0]);
    c = tract_core_cast([[0.5, 1.0]], to = 'f32');
    """
    if operation.name == "cast":
        (y,) = operation.outputs
        return _own("cast", operation.operands, {"to": TYPES[y.dtype]}, y)
    if operation.name != "constant":
        return operation
    (c,), values = operation.outputs, operation.attributes["value"]
    if c.dtype == "scalar" and len(values) == 1 and c.rank:
        return _own("broadcast", (values[0],), {"shape": list(c.shape)}, c)
    items = iter(values if len(values) > 1 else repeat(values[0]))
    return _own("cast", (_nested(items, c.shape),), {"to": TYPES[c.dtype]}, c)


def _nested(items: Iterator[Operand], shape: Sequence[Dimension]) -> Operand:
    """Arrays in arrays, of a shape."""
    if not shape:
        return next(items)
    return tuple([_nested(items, shape[1:]) for _ in range(shape[0])])


def lacks_its_words(graph: Graph) -> bool:
    """Whether a graph has operations that tract lacks, and that are not spelled here."""
    common = CommonSubset([RUNTIMES["tract"]])
    return any(
        not _is_spelled(op, DefUse(own))
        for own in (graph, *(loop.body for loop in loops_in(graph)))
        for op in common.lacking(own.operations)
    )


def _is_spelled(operation: Operation, near: DefUse) -> bool:
    """Whether the dialect has words for an operation that tract lacks."""
    if operation.name == "cast":
        (x,), (y,) = operation.operands, operation.outputs
        return (
            dtype_of(x) != "scalar"
            or y.dtype != "integer"
            or is_whole(x, near.producer)
        )
    if operation.name == "constant":
        return not has_symbols(operation.outputs[0].shape)
    # A loop of the document is what it is in tract.
    return operation.name in (*_SPELLINGS, LOOP)


def _called(scan: Callable[[Operation], Operation], operation: Operation) -> Operation:
    """The operation, with the word of the dialect for what is a loop."""
    origin = operation.origin
    if origin is not None and is_loop(origin):
        operation = replace(operation, origin=scan(origin))
    return scan(operation) if is_loop(operation) else operation


def _scan(loop: Operation) -> Operation:
    declared = replace(loop.definition, name=SCAN, registry=TRACT_CORE)
    return replace(loop, definition=declared)


def _spelling(operation: Operation) -> Decompose | None:
    """The function that emits an operation of the dialect; None where the standard has it."""
    build, differs = _SPELLINGS.get(operation.name, (None, when.always))
    return build if differs(operation) else None


def _deconvolution(emit: Emitter, op: Operation) -> Sequence[Result]:
    """The filter [in, out / groups, ...] as [out, in / groups, ...]."""
    x, w, *rest = op.operands
    assert isinstance(w, Tensor)
    groups, (filters, channels, *size) = groups_of(op), w.shape
    shape = (channels * groups, filters // groups, *size)
    turned = exchanged(emit, w, groups, w.shape, shape)
    # The shape function of the operation has the standard's filter.
    emit.append(op.rewired((x, turned, *rest), op.results))
    return op.results


_OVER_ZEROS = when.reading & when.other_than(border="ignore")
_SPELLINGS: dict[str, tuple[Decompose, Condition]] = {
    ARGSORT: (sorted_elements, when.always),
    "deconv": (_deconvolution, when.always),
    # Indices and samples are the standard's.
    "max_pool_with_index": (instantiate_body, _OVER_ZEROS),
    "max_pool": (max_pool_lowered, _OVER_ZEROS),
}


def refuse_quotients(graph: Graph) -> Graph:
    """The graph, unless it has sizes that tract does not read: what is divided by a symbol.
    What may be negative it divides toward zero.
    """
    for own in (graph, *(loop.body for loop in loops_in(graph))):
        for operation in own.operations:
            for atom in atoms_in(tuple(operation.settings.values())):
                if isinstance(atom, Quotient) and (
                    isinstance(atom.by, Extent) or bounds(atom.whole)[0] < 0
                ):
                    what = f"tract cannot divide by the extent {atom.by}, in {atom}"
                    raise OpenExtentError(what).of(operation.name, operation.place)
    return graph


# tract reads names that begin with these as literals.
_MISREAD = ("inf", "true", "false")


def rename_misread(graph: Graph) -> Graph:
    """The graph with other names for tensors whose names are misread."""
    plain = filter(is_plain, graph.tensors)
    return with_told_names(graph, {n: f"_{n}" for n in plain if n.startswith(_MISREAD)})
