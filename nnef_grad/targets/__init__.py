"""Targets: graphs in forms that real runtimes have, and compute right.

A target is a set of runtimes. An operation that one of them lacks, as it is set
(facts.py, in the terms of conditions.py), is replaced by its lowering (registry.py),
again and again, until all of them have everything. There is one lowering of an operation,
whatever the target, and what it makes is standard NNEF that computes the same: a fragment
of lowerings.nnef, or a function in the file of its family where that takes shapes. Further
passes are about integers, and about what goes wrong next to something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from nnef_grad.base.arrays import Array
from nnef_grad.base.choices import Target
from nnef_grad.base.errors import Problem, Remedy, UnsupportedError, UsageError
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.emit.bodies import has_open_count
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, inline
from nnef_grad.emit.simplify import without_detours
from nnef_grad.emit.verifier import verify_order
from nnef_grad.emit.zeros import without_zeros
from nnef_grad.graph.ir import ARGSORT, WORDLESS, Graph, Operand, Operation, Tensor
from nnef_grad.graph.loops import is_loop, with_bodies
from nnef_grad.graph.names import with_plain_names
from nnef_grad.graph.passes import prune, put_inputs_first
from nnef_grad.graph.pipeline import run, told
from nnef_grad.graph.stops import without_stops
from nnef_grad.graph.symbols import number_needed_by, refuse_symbols

# Importing the families enters their lowerings.
from nnef_grad.targets import (  # noqa: F401
    borders,
    conv,
    conv_forms,
    elements,
    elementwise,
    filter_forms,
    matrix,
    maxima,
    onnx,
    orders,
    own_operations,
    passes,
    pool,
    rows,
    shape,
)
from nnef_grad.targets.elementwise import share_probabilities
from nnef_grad.targets.facts import (
    ALL,
    CONVERTER,
    RUNTIMES,
    STANDARD,
    TRACT_CORE,
    CommonSubset,
    Runtime,
)
from nnef_grad.targets.forms import choose_forms
from nnef_grad.targets.normalizations import fold_normalizations
from nnef_grad.targets.own_operations import put_own
from nnef_grad.targets.registry import find_lowering, refusal
from nnef_grad.targets.shape import fill
from nnef_grad.targets.tensors import store_constants
from nnef_grad.targets.tract import own, workarounds  # noqa: F401
from nnef_grad.targets.tract.dialect import refuse_quotients, rename_misread
from nnef_grad.targets.tract.filters import crop_before, has_open_filter
from nnef_grad.targets.tract.integers import make_inputs_scalar, move_casts_up
from nnef_grad.targets.tract.loading import hold_divided, split_large_variables

__all__ = ["TARGETS", "Lowered", "lower"]

# The runtimes that a graph must be right in.
TARGETS: dict[str, tuple[str, ...]] = {
    "nnef": (),
    "khronos": ("session", "interpreter"),
    "tract": ("tract",),
    "tract-standard": ("tract-standard",),
    "onnx": ("onnx",),
    "onnx-portable": ("engines",),
    "portable": ("session", "interpreter", "tract-standard", "converter"),
}
# With what the runtimes of this package have besides.
_ALL = {**TARGETS, "openvino": ("openvino",)}
# What else reads what is made for a target.
READERS: dict[str, tuple[Runtime, ...]] = {"portable": (CONVERTER,)}


@dataclass(frozen=True)
class Lowered:
    """A graph for a target.

    Attributes:
        graph: the graph, with the inputs, variables and outputs of the one lowered.
        data: an array for each further variable, by label: it was a constant.
    """

    graph: Graph
    data: dict[str, Array] = field(default_factory=dict)


@public
def lower(graph: Graph, target: Target) -> Lowered:
    """The graph in a form that the runtimes of a target support.

    Args:
        graph: a flat graph.
        target: one of TARGETS: "nnef" for the graph as it is; "khronos" for the PyTorch
            interpreter of nnef_tools and for nnef.Session; "tract", with operations of
            its own registry; "tract-standard" for tract without these; "onnx" for ONNX
            Runtime, as `interop.to_onnx` writes it; "onnx-portable" for ONNX in any engine;
            "portable" for standard NNEF that all of them run, ONNX Runtime through the
            converter of nnef_tools.

    Raises:
        UsageError: there is no such target.
        UnsupportedError: operations cannot be expressed there; the error names all of
            them.
    """
    return lower_beside((), graph, target)


@collector_paused()
def lower_beside(labels: Iterable[str], graph: Graph, target: str) -> Lowered:
    """As `lower`, with data that go beside those under other labels."""
    if target not in _ALL:
        names = ", ".join(TARGETS)
        raise UsageError(f"the target is one of {names}, and not '{target}'")
    runtimes = tuple(dict.fromkeys(RUNTIMES[name] for name in _ALL[target]))
    runtimes += READERS.get(target, ())
    types = graph.datum_types if target == "tract" else {}
    if graph.dialect or types != graph.datum_types:
        graph = replace(graph, dialect="", datum_types=types)
    if not runtimes:
        graph = with_plain_names(passes.in_standard_words(graph))
        wordless = (op for op in graph.operations if op.name in WORDLESS)
        # What has symbols is in the dialect already, which has loops over them.
        lacking = [op for op in wordless if not has_open_count(op)]
        _refuse(lacking, graph.names, [STANDARD])
        return Lowered(graph)
    graph = run(without_stops, run(without_zeros, graph))
    graph = run(without_detours, graph)
    common = CommonSubset(runtimes)
    if not common.registries:
        titles = " and ".join(runtime.title for runtime in runtimes)
        refuse_symbols(graph, f"{titles} cannot run", UnsupportedError)
    if TRACT_CORE in common.registries:
        in_rounds = partial(_in_rounds, target=target, common=common, last=_LAST)
        graph = with_bodies(
            graph, lambda body: run(passes.join_copies, in_rounds(body))
        )
        graph = run(passes.put_constants_before_loops, graph)
    graph = _in_rounds(graph, target, common, (*_LAST, *_OF_INPUTS))
    graph, data = store_constants(graph, common.lacks, labels)
    _refuse(common.lacking(graph.operations), graph.names, runtimes)
    graph = put_inputs_first(graph)
    verify_order(graph)
    told("lower", graph)
    # tract computes with codes what it has quantization info about.
    there = graph.labels if "tract" in common.names else graph.tensors
    quantization = {n: q for n, q in graph.quantization.items() if n in there}
    return Lowered(replace(graph, quantization=quantization), data)


# Further passes, with the names of the runtimes that want each, in a string: before forms are
# chosen, before all others, in every round, and when there is nothing else to do.
_Passes = Sequence[tuple[str, Callable[[Graph], Graph]]]
_BEFORE_FORMS: _Passes = (
    # What the first has folded, the second does not find.
    ("engines openvino", partial(fold_normalizations, is_shared=False)),
    ("onnx", fold_normalizations),
    ("tract", crop_before),
)
_FIRST: _Passes = (
    (ALL, passes.floor_casts),
    (ALL, passes.put_sampled),
    (ALL, passes.put_numbers),
    ("khronos tract converter", share_probabilities),
)
_ALWAYS: _Passes = (
    ("tract", move_casts_up),
    ("tract converter", passes.add_biases),
    ("engines", passes.add_computed_biases),
)
_LAST: _Passes = (
    (ALL, partial(without_detours, joins=True)),
    ("onnx converter", passes.copy_outputs),
    ("engines", passes.copy_reshaped),
    ("tract", split_large_variables),
    ("tract", hold_divided),
    ("tract", workarounds.put_steps_on_data),
    ("tract", workarounds.hold_steps),
    ("tract", workarounds.join_repeats),
    ("tract", workarounds.add_opposites),
    ("tract", workarounds.split_sums),
    ("onnx converter", passes.hold_zeros),
    ("tract", rename_misread),
    ("session interpreter tract-standard converter", with_plain_names),
)
# The inputs of the body of a loop stay what they are.
_OF_INPUTS: _Passes = (("tract", make_inputs_scalar), ("tract", refuse_quotients))


def _in_rounds(graph: Graph, target: str, common: CommonSubset, last: _Passes) -> Graph:
    """The graph with operations that all runtimes have, but for constants."""
    graph = run(passes.compute_literals, graph)
    graph = _applied(_BEFORE_FORMS, graph, common)
    graph = run(prune, run(matrix.join_products, graph))
    lacks = has_open_filter if "tract" in common.names else lambda op: False
    chosen = run(choose_forms, graph, _ALL[target], lacks)
    graph = graph if chosen is graph else run(prune, chosen)
    # MNN computes in the memory of a copy, which is that of what is copied.
    of_graph = () if "engines" in common.names else graph.operations
    kept = {t for op in of_graph if op.name == "copy" for t in op.outputs}
    graph = _applied(_FIRST, graph, common)
    for _ in range(_MOST_ROUNDS):
        changed = _round(graph, common, kept, last)
        if changed is graph:
            return graph
        graph = changed
    raise AssertionError(f"two forms for '{target}' take turns in place of each other")


# One that is lowered again and again would never end.
_MOST_ROUNDS = 200


def _round(
    graph: Graph, common: CommonSubset, kept: Set[Tensor], last: _Passes
) -> Graph:
    """The graph with operations replaced that a runtime lacks, once."""
    changed = run(passes.remove_copies, graph, kept)
    changed = run(passes.put_literals, changed, common.lacks)
    if TRACT_CORE in common.registries:
        changed = run(put_own, changed, common.names)
    changed = _applied(_ALWAYS, changed, common)
    if common.has_indices:
        common.keep(maxima.around_indices(changed, common.lacks))
    lacking = common.lacking(changed.operations)
    changed = run(inline, changed, {op: _lowering(op) for op in lacking}.get)
    if changed is graph:
        changed = _applied(last, changed, common)
    return graph if changed is graph else run(prune, changed)


def _applied(passes: _Passes, graph: Graph, common: CommonSubset) -> Graph:
    """The graph after those of the passes that a runtime wants."""
    for runtimes, change in passes:
        if not common.names.isdisjoint(runtimes.split()):
            graph = run(change, graph)
    return graph


def _lowering(operation: Operation) -> Decompose | None:
    """Puts other operations in the place of one that a runtime lacks."""
    with number_needed_by(operation):
        form = find_lowering(operation)
    return None if form is None else partial(_filled, form)


def _filled(form: Decompose, emit: Emitter, operation: Operation) -> Sequence[Operand]:
    """Values of the shapes of the results: a simplified one may have fewer elements."""
    pairs = zip(form(emit, operation), operation.results, strict=True)
    with number_needed_by(operation):
        return [
            fill(emit, value, result.shape) if isinstance(result, Tensor) else value
            for value, result in pairs
        ]


def _refuse(
    lacking: Iterable[Operation],
    names: Mapping[Tensor, str],
    runtimes: Sequence[Runtime],
) -> None:
    """Raises `UnsupportedError` where there are operations that runtimes still lack."""
    if problems := [_problem(op, names, runtimes) for op in lacking]:
        raise UnsupportedError.collect(problems)


def _problem(
    operation: Operation, names: Mapping[Tensor, str], runtimes: Sequence[Runtime]
) -> Problem:
    """The runtimes that still lack an operation, and why it has no other form."""
    lacking = " and ".join(
        r.title for r in runtimes if CommonSubset([r]).lacks(operation)
    )
    integers = [names[t] for t in operation.inputs if t.dtype == "integer"]
    whose = f" of the integers '{integers[0]}'" if integers else ""
    message = f"{lacking} cannot run '{operation.name}'{whose}{refusal(operation)}"
    remedy: Remedy | None = None
    if operation.name == ARGSORT:
        remedy = "onnx"
    elif is_loop(operation):
        remedy = "symbol" if has_open_count(operation) else "unroll"
    return Problem(message, operation.place, remedy)
