"""Targets: graphs in forms that real runtimes have, and compute right.

    runtimes.py         what each runtime lacks, or has wrong: facts, by measurement
    conditions.py       the settings for which that is so
    lowerings.nnef      what stands for an operation then, written in NNEF
    elementwise.py ...  the same where it needs shapes, a family a file
    neighbours.py       what is wrong only next to something else
    integers.py ...     what is not a matter of one operation: integers, names, results

A target is a set of runtimes. An operation that one of them lacks, as it is set, is
replaced by its lowering, again and again, until all of them have everything. There is one
lowering of an operation, whatever the target, and what it makes is standard NNEF that
computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.inline import Decompose, inline
from nnef_grad.errors import Problem, UnsupportedError, UsageError
from nnef_grad.graph.ir import Graph, Operation, Result, Tensor
from nnef_grad.graph.order import put_inputs_first
from nnef_grad.graph.prune import prune
from nnef_grad.graph.verify import verify
from nnef_grad.targets.conditions import When
from nnef_grad.targets.integers import casts_moved_up, floored_casts, scalar_inputs
from nnef_grad.targets.interface import (
    computed_outputs,
    copies,
    without_copies,
    without_prefixes,
    without_repetitions,
)
from nnef_grad.targets.lookup import find_lowering
from nnef_grad.targets.neighbours import (
    computed_biases_added,
    constant_biases_added,
    differences_turned,
    repeats_joined,
    steps_held,
    sums_parted,
    zeros_held,
)
from nnef_grad.targets.registry import Inexpressible
from nnef_grad.targets.runtimes import RUNTIMES, Runtime
from nnef_grad.targets.tensors import (
    Data,
    constants_as_variables,
    in_full,
    literal_operands,
)

# The runtimes that a graph must be right in.
TARGETS: dict[str, tuple[str, ...]] = {
    "nnef": (),
    "khronos": ("session", "interpreter"),
    "tract": ("tract",),
    "onnx": ("onnx",),
    "portable": ("session", "interpreter", "tract", "onnx"),
}


@dataclass(frozen=True)
class Lowered:
    """A graph for a target.

    Attributes:
        graph: the graph, which has the inputs, the variables and the outputs of the one
            that was lowered.
        data: an array for each variable that it has besides, by label: what was a
            constant.
    """

    graph: Graph
    data: Data = field(default_factory=Data)


def lower(graph: Graph, target: str) -> Lowered:
    """The graph in a form that the runtimes of a target have.

    Args:
        graph: a flat graph.
        target: one of TARGETS: "nnef" for the graph as it is; "khronos" for the PyTorch
            interpreter of nnef_tools and for nnef.Session; "tract"; "onnx" for ONNX
            Runtime by the converter of nnef_tools; "portable" for all of them.

    Raises:
        UsageError: there is no such target.
        UnsupportedError: operations cannot be expressed there; the error names all of
            them.
    """
    if target not in TARGETS:
        raise UsageError(
            f"the target is one of {', '.join(TARGETS)}, and not '{target}'"
        )
    runtimes = [RUNTIMES[name] for name in TARGETS[target]]
    if not runtimes:
        return Lowered(graph)
    graph, kept = floored_casts(graph), copies(graph)
    while (changed := _round(graph, runtimes, kept)) is not graph:
        graph = changed
    return _settled(graph, runtimes, kept)


Wanted = Callable[[Runtime], bool]
Pass = Callable[[Graph], Graph]

# What is done besides, if one of the runtimes wants it: in every round, or when there is
# nothing else to do.
_ALWAYS: tuple[tuple[Wanted, Pass], ...] = (
    (lambda runtime: not runtime.casts_integers, casts_moved_up),
    (lambda runtime: not runtime.takes_constants_as_biases, constant_biases_added),
    (lambda runtime: runtime.moves_operations, computed_biases_added),
)
_LAST: tuple[tuple[Wanted, Pass], ...] = (
    (lambda runtime: not runtime.returns_data, computed_outputs),
    (lambda runtime: runtime.moves_operations, steps_held),
    (lambda runtime: runtime.moves_operations, repeats_joined),
    (lambda runtime: runtime.moves_operations, differences_turned),
    (lambda runtime: runtime.moves_operations, sums_parted),
    (lambda runtime: runtime.fuses_padding, zeros_held),
)


def _round(
    graph: Graph, runtimes: Sequence[Runtime], kept: Collection[Tensor]
) -> Graph:
    """The graph with operations replaced that a runtime lacks, once."""
    lacks = partial(_is_lacking, runtimes)
    found = without_repetitions(without_copies(graph, kept))
    found = literal_operands(found, lacks)
    found = _applied(_ALWAYS, found, runtimes)
    problems: list[Problem] = []
    found = inline(found, partial(_build, lacks, problems))
    if problems:
        raise UnsupportedError.collect(problems)
    if found is graph:
        found = _applied(_LAST, found, runtimes)
    return graph if found is graph else prune(found)


def _applied(
    passes: Sequence[tuple[Wanted, Pass]], graph: Graph, runtimes: Sequence[Runtime]
) -> Graph:
    """The graph after those of the passes that a runtime wants."""
    for is_wanted, change in passes:
        if any(map(is_wanted, runtimes)):
            graph = change(graph)
    return graph


def _settled(
    graph: Graph, runtimes: Sequence[Runtime], kept: Collection[Tensor]
) -> Lowered:
    """The graph with what is not a matter of single operations."""
    if not all(runtime.casts_integers for runtime in runtimes):
        graph = without_copies(scalar_inputs(graph), kept)
    graph, data = constants_as_variables(graph, partial(_is_lacking, runtimes))
    prefixes = [prefix for runtime in runtimes for prefix in runtime.misread]
    graph = put_inputs_first(without_prefixes(graph, prefixes))
    problems = [p for op in graph.operations for p in _problems(op, runtimes)]
    if problems:
        raise UnsupportedError.collect(problems)
    verify(graph)
    there = graph.tensors
    quantization = {n: q for n, q in graph.quantization.items() if n in there}
    return Lowered(replace(graph, quantization=quantization), data)


def _is_lacking(runtimes: Sequence[Runtime], operation: Operation) -> bool:
    return any(runtime.lacks(operation) for runtime in runtimes)


def _build(
    lacks: When, problems: list[Problem], operation: Operation
) -> Decompose | None:
    """What puts other operations in the place of one that a runtime lacks."""
    lowering = find_lowering(operation) if lacks(operation) else None
    return None if lowering is None else partial(_lowered, lowering, problems)


def _lowered(
    lowering: Decompose, problems: list[Problem], emit: Emitter, operation: Operation
) -> Sequence[Any]:
    try:
        values = lowering(emit, operation)
    except Inexpressible as error:
        message = f"'{operation.name}' cannot be expressed {error}"
        problems.append(Problem(message, operation.span))
        return operation.results
    return [
        _in_full(emit, *pair) for pair in zip(values, operation.results, strict=True)
    ]


def _in_full(emit: Emitter, value: Any, result: Result) -> Any:
    """A value of the shape of the result: what was simplified may have fewer elements."""
    if isinstance(result, Tensor):
        return in_full(emit, value, result.shape)
    return value


def _problems(operation: Operation, runtimes: Sequence[Runtime]) -> Iterator[Problem]:
    """What is left that a runtime does not have."""
    lacking = " and ".join(r.title for r in runtimes if r.lacks(operation))
    if lacking:
        message = f"{lacking} cannot run {_called(operation)}"
        yield Problem(message, operation.span)


def _called(operation: Operation) -> str:
    """What messages call an operation: it may be one of the compiler's own."""
    for tensor in operation.inputs:
        if tensor.dtype == "integer":
            return f"'{operation.name}' of the integers '{tensor.name}'"
    return f"'{operation.name}'"
