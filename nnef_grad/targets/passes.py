"""Passes over whole graphs: copies, constants, loops, and operations that are right by
themselves, and that several runtimes make wrong next to each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnef_grad.base.arrays import Array
from nnef_grad.emit.bodies import emit_loop, hoisted, is_short, unrolled
from nnef_grad.emit.emitter import Emitter, ValueTable
from nnef_grad.emit.rewriting import (
    Decompose,
    DefUse,
    each,
    inline,
    inline_fully,
    put_found,
    where,
)
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import (
    LOOP,
    WORDLESS,
    Graph,
    Operand,
    Operation,
    Tensor,
    tensors,
)
from nnef_grad.graph.loops import loop_of
from nnef_grad.graph.names import NameSupply
from nnef_grad.graph.rewriting import Fate, substitute, sweep
from nnef_grad.interpreter import evaluate
from nnef_grad.language.library import STDLIB
from nnef_grad.ops.join import positions_along
from nnef_grad.ops.traits import (
    BROADCASTING,
    DATA,
    ELEMENTWISE,
    LAYERS,
    LOGIC,
    REDUCTIONS,
    RESHAPING,
    SOURCES,
    STEPS,
    UNARY,
    UNIQUE,
)
from nnef_grad.targets.borders import join_zeros
from nnef_grad.targets.conditions import automatic, cropping, set_to
from nnef_grad.targets.own_operations import is_count, is_from_begin, whole_axis
from nnef_grad.targets.registry import find_lowering, lowering
from nnef_grad.targets.shape import fill
from nnef_grad.targets.tensors import When, is_cast, is_uniform

# ---- Copies and repetitions ----


def remove_copies(graph: Graph, kept: Set[Tensor]) -> Graph:
    """The graph without copies, but for the kept ones and the outputs, and without
    repeated operations: if they make an output, nothing else reads it.
    """
    outputs, values = set(graph.outputs), ValueTable()
    stays, again = outputs | kept, dict[Tensor, Tensor]()

    def change(op: Operation) -> Fate:
        op = substitute(op, again) if again else op
        is_copy = op.name == "copy" and isinstance(op.operands[0], Tensor)
        if is_copy and stays.isdisjoint(op.outputs):
            return {op.outputs[0]: op.operands[0]}
        earlier = op if op.name in UNIQUE else values.first(op)
        if earlier is op:
            return op
        same = dict(zip(op.outputs, earlier.outputs, strict=True))
        if outputs.isdisjoint(op.outputs):
            return same
        again.update(same)
        return op

    return sweep(graph, change)


def copy_outputs(graph: Graph) -> Graph:
    """The graph with copies as outputs where these are variables or constants."""
    return _copied(graph, [op for op in graph.operations if op.name in DATA])


# What is written as another view of the same numbers: reductions get back their axes.
_VIEWS = RESHAPING | REDUCTIONS | {"copy"}


def copy_reshaped(graph: Graph) -> Graph:
    """The graph with copies as outputs where something else reads what is reshaped, as sums
    and copies are when they are written, or a function of that: MNN has other values there.
    """
    reshaped, read = set[Tensor](), {t for op in graph.operations for t in op.inputs}
    makers = list[Operation]()
    for op in graph.operations:
        is_function = op.name in UNARY and not reshaped.isdisjoint(op.inputs)
        if is_function or op.name in _VIEWS:
            reshaped.update(op.outputs)
            if not read.isdisjoint(op.outputs):
                makers.append(op)
    return _copied(graph, makers)


def _copied(graph: Graph, makers: Iterable[Operation]) -> Graph:
    """The graph with copies as outputs where these are made by some operations."""
    made = {t for op in makers for t in op.outputs}
    copies = {t: Tensor(t.dtype, t.shape) for t in graph.outputs if t in made}
    if not copies:
        return graph
    supply, names = NameSupply(graph.tensors), dict(graph.names)
    operations = [*graph.operations]
    for tensor, copy in copies.items():
        names[copy] = names[tensor]
        names[tensor] = supply.fresh(f"{names[copy]}_data")
        definition = STDLIB["copy"]
        operations.append(Operation(definition, (tensor,), {}, (copy,), tensor.dtype))
    return replace(
        graph,
        outputs=tuple(copies.get(tensor, tensor) for tensor in graph.outputs),
        operations=tuple(operations),
        names=names,
    )


# ---- Constants and casts ----

# They take a literal wherever they take a tensor of numbers.
_OF_NUMBERS = BROADCASTING - LOGIC


def put_literals(graph: Graph, which: When) -> Graph:
    """The graph with literals in place of constants of one value, if broadcast."""
    literals: dict[Operand, Operand] = {
        op.outputs[0]: op.attributes["value"][0]
        for op in graph.operations
        if op.name == "constant" and op.dtype == "scalar"
        if which(op) and is_uniform(op)
    }

    def with_literals(emit: Emitter, op: Operation) -> Sequence[Operand]:
        operands = (literals.get(o, o) for o in op.operands)
        (value,) = emit.emit_again(op, operands, hints=(emit.naming("single"),))
        return [fill(emit, value, op.outputs[0].shape)]

    def find(op: Operation, near: DefUse) -> Decompose | None:
        return None if literals.keys().isdisjoint(op.inputs) else with_literals

    return put_found(graph, dict.fromkeys(_OF_NUMBERS, find)) if literals else graph


# Those element by element are lowered as they are, and `unsqueeze` is what lowerings emit.
_LEFT = ELEMENTWISE | SOURCES | {"unsqueeze"}


def compute_literals(graph: Graph) -> Graph:
    """The graph with constants for what is made of literals alone: forms and lowerings are
    those of tensors.
    """
    known = dict[Tensor, Operation]()
    for op in graph.operations:
        if not known.keys() >= {*op.inputs} or op.name in _LEFT:
            continue
        if op.name in STDLIB and not any(has_symbols(x.shape) for x in op.outputs):
            known.update(dict.fromkeys(op.outputs, op))
    if not known:
        return graph
    found = tuple(dict.fromkeys(known.values()))
    alone = replace(graph, inputs=(), outputs=tuple(known), operations=found)
    values = dict(zip(alone.outputs, evaluate(alone, {}).values(), strict=True))

    def constants(emit: Emitter, op: Operation) -> Sequence[Any]:
        results = [
            emit("constant", shape=x.shape, value=_listed(values[x]), dtype=x.dtype)
            for x in op.outputs
        ]
        return [results] if isinstance(op.results[0], tuple) else results

    # Texts have no name for what is not finite.
    finite = [
        op for op in found if all(np.isfinite(values[x]).all() for x in op.outputs)
    ]
    return inline(graph, dict.fromkeys(finite, constants).get)


def _listed(array: Array) -> list[Any]:
    """The elements of a constant: one, if all are the same to the bit."""
    flat = array.ravel()
    is_same = flat[1:].tobytes() == flat[:-1].tobytes()
    values: list[Any] = (flat[:1] if is_same else flat).tolist()
    return values


@each("box")
def put_numbers(op: Operation, near: DefUse) -> Decompose | None:
    """As many ones as there are up to a place are its number. Runtimes that make the sum of
    a mean are not exact, and whoever looks for a place finds none.
    """
    axis = whole_axis(op)
    if axis is None or has_symbols(op.outputs[0].shape) or not is_count(op, near):
        return None
    return partial(_numbers, axis)


def _numbers(axis: int, emit: Emitter, op: Operation) -> Sequence[Operand]:
    shape = op.outputs[0].shape
    places: Operand = positions_along(emit, shape[axis], axis, len(shape))
    is_forward = is_from_begin(op, axis)
    first, second = (places, 1.0) if is_forward else (float(shape[axis]), places)
    row = emit("add" if is_forward else "sub", first, second, hint="numbers")
    return [fill(emit, row, shape)]


@each("sample", "desample")
@where(lambda op, near: not isinstance(op.operands[0], Tensor))
def put_sampled(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """A literal is sampled where its only window is."""
    return [op.operands[0]]


def _may_have_fractions(op: Operation, near: DefUse) -> bool:
    is_open = is_cast(op, "scalar", "integer")
    return is_open and near.producers[op.inputs[0]].name not in STEPS


@each("cast")
@where(_may_have_fractions)
def floor_casts(emit: Emitter, op: Operation) -> Sequence[Tensor]:
    """Scalars are rounded down before they become integers; runtimes round to zero."""
    whole = emit("floor", op.operands[0], hint="whole")
    return [emit("cast", whole, dtype="integer")]


# ---- Loops ----


@lowering(LOOP, applies=is_short)
def loop_lowered(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Its steps."""
    return unrolled(emit, op)


def in_standard_words(graph: Graph) -> Graph:
    """The graph with steps in place of loops, inside of others too, and comparisons in place
    of orders, where these are not too many.
    """

    def other(op: Operation) -> Decompose | None:
        return find_lowering(op) if op.name in WORDLESS else None

    return inline_fully(graph, other)


@each("tile")
@where(lambda op, near: not has_symbols(op.attributes["repeats"]))
def join_copies(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """No `tile` is in the body of a loop. tract moves one that is collected out of the loop,
    with the shape of a step, and then refuses the graph.
    """
    (x,) = op.inputs
    for axis, count in enumerate(op.attributes["repeats"]):
        if count > 1:
            x = emit("concat", (x,) * count, axis=axis, hint="copies")
    return [x]


@each(LOOP)
@where()
def put_constants_before_loops(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """No constants are in the bodies of loops."""
    loop, operands = hoisted(emit, loop_of(op), op.inputs, constants=True)
    return emit_loop(emit, loop, operands)


# ---- Neighbours that are made wrong ----

# Operations that move elements about, and those that a filter may go through.
MOVES = frozenset(
    [
        "copy",
        "cast",
        "reshape",
        "squeeze",
        "unsqueeze",
        "transpose",
        "slice",
        "concat",
        "tile",
        "pad",
    ]
)
_PASSING = MOVES.union(["select", "add", "sub", "mul", "div", "pow", "min", "max"])


def leads_to_filter(op: Operation) -> bool:
    """Whether a filter may go through the operation."""
    return op.name in _PASSING


def sources(graph: Graph, ends: Iterable[Tensor], passes: When) -> set[Tensor]:
    """The tensors that come to some, through operations."""
    before = {*ends}
    for op in reversed(graph.operations if before else ()):
        if passes(op) and not before.isdisjoint(op.outputs):
            before.update(op.inputs)
    return before


_WITH_ZEROS = set_to(border="constant", value=0.0) & ~cropping


@each("pad")
@where(lambda op, near: op.outputs[0] in near.fact(_misreading) and _WITH_ZEROS(op))
def hold_zeros(emit: Emitter, op: Operation) -> Sequence[Operand]:
    """Zeros are joined to a tensor, not padded, where a pool or a filter would misread them.

    In ONNX, optimisers put zeros around a tensor into what reads it, as padding of its
    own: a pool ignores what it pads, or does not count it, and wants less of it than it
    has elements; and a convolution has the padding of its filter for that of its data.
    They look through what does nothing, and only they know what that is. The padding of
    the data of a convolution is right by itself, but not next to automatic padding.
    """
    return [join_zeros(emit, op.inputs[0], op.attributes["padding"])]


def _misreading(graph: Graph) -> set[Tensor]:
    """The tensors in which zeros would be misread."""
    read: list[Operand] = []
    for op in graph.operations:
        if op.name in ("max_pool", "avg_pool", "conv"):
            is_right = op.name == "conv" and not automatic(op)
            read += op.operands[1:] if is_right else op.operands
    return sources(graph, tensors(read), leads_to_filter)


@each(*LAYERS, "batch_normalization")
def add_biases(op: Operation, near: DefUse) -> Decompose | None:
    """Biases are added after their layers, but for variables that nothing else reads; and
    normalisations by constants are put together from single steps.

    In the converter to ONNX, the axes of a bias are squeezed wherever it is read, and a
    constant has none there. In tract a bias that is computed is moved as well.
    """
    if op.name == "batch_normalization":
        has_constant = "constant" in {near.producers[x].name for x in op.inputs}
        return find_lowering(op) if has_constant else None
    bias = near.producer(op.operands[2])
    if bias is None or (bias.name == "variable" and near.uses[bias.outputs[0]] == 1):
        return None
    return _added


@each("conv", "deconv")
def add_computed_biases(op: Operation, near: DefUse) -> Decompose | None:
    """Biases that are computed, or given, are added after filters that are not: MNN refuses
    them, or adds others.
    """
    makers = map(near.producer, op.operands[1:])
    w, bias = ("" if maker is None else maker.name for maker in makers)
    return None if w == "external" or bias in {"", *DATA} else _added


def _added(emit: Emitter, op: Operation) -> Sequence[Operand]:
    *operands, bias = op.operands
    unbiased = emit(op.name, *operands, **op.settings, hint="unbiased")
    return [emit("add", unbiased, bias)]
