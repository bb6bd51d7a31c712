"""The driver of rewrites that emit operations: `inline` puts bodies in the place of operations,
`each` and `where` make a pass of a body and of what must stand around an operation, and
`is_instance` tells whether a tensor was made as a pattern says. What needs no new tensors is a
`sweep` of graph/rewriting.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from nnef_grad.base.errors import InvalidGraphError, located
from nnef_grad.emit.arguments import settings_key
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor, shape_of
from nnef_grad.graph.learning import all_equal
from nnef_grad.graph.passes import count_uses
from nnef_grad.graph.rewriting import substitute
from nnef_grad.graph.symbols import number_needed_by
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.traits import RESHAPING

Fact = TypeVar("Fact")

# Emits what takes the place of an operation, and returns a value for each of its results.
Decompose = Callable[[Emitter, Operation], Sequence[Any]]

# ---- Bodies in the place of operations ----


def inline(
    graph: Graph,
    body: Callable[[Operation], Decompose | None],
    opset: OpSet | None = None,
    distinct: Set[Tensor] = frozenset(),
) -> Graph:
    """The graph with bodies in the place of operations, by what `body` returns for one: it
    emits the body, and returns a value for each result; None, where the operation stays.
    Tensors keep their names, and new ones are called after the result that they lead to.
    Bodies may hold operations of the opset, the standard's if not given, and share no
    `distinct` tensors, though they compute the same.
    """
    bodies = [body(op) for op in graph.operations]
    if not any(bodies):
        return graph
    declared = (opset or OpSet()).extended(graph.fragments)
    emitter = Emitter(declared, graph.names, simplify, opaque=distinct)
    results: dict[Tensor, Tensor] = {}
    for operation, build in zip(graph.operations, bodies, strict=True):
        if build is None:
            is_shared = not distinct or distinct.isdisjoint(operation.outputs)
            emitter.append(operation, is_shared=is_shared)
        else:
            _put(build, operation, emitter, results)
    operations = tuple([substitute(op, results) for op in emitter.operations])
    names = emitter.assigned_names(operations, reserved=graph.tensors)
    return replace(graph, operations=operations, names=names)


def inline_fully(
    graph: Graph,
    body: Callable[[Operation], Decompose | None],
    opset: OpSet | None = None,
    distinct: Set[Tensor] = frozenset(),
) -> Graph:
    """As `inline`, also for operations of the bodies, until all stay."""
    while (inlined := inline(graph, body, opset, distinct)) is not graph:
        graph = inlined
    return graph


def _put(
    build: Decompose,
    operation: Operation,
    emitter: Emitter,
    results: dict[Tensor, Tensor],
) -> None:
    """Emits a body in the place of an operation, and pairs what it made with the results."""
    declared = operation.definition.results
    subject = emitter.names[operation.outputs[0]]
    # A single result has the name of the operation's.
    own = {declared[0].name: subject} if len(declared) == 1 else {}

    def naming(name: str) -> str:
        return own.get(name) or f"{subject}_{name}"

    with (
        located(operation.span),
        number_needed_by(operation),
        emitter.replacing(operation, naming),
    ):
        values = build(emitter, operation)
    for result, value in zip(operation.results, values, strict=True):
        is_array = isinstance(result, tuple)
        whole = (result, value) if is_array else ((result,), (value,))
        for tensor, part in zip(*whole, strict=True):
            if not all_equal(shape := shape_of(part), tensor.shape):
                message = (
                    f"the body of '{operation.name}' gives a tensor of shape {list(shape)}"
                    f" for '{emitter.names[tensor]}' of shape {list(tensor.shape)}"
                )
                raise InvalidGraphError(message, operation.span)
            is_new = isinstance(part, Tensor) and emitter.is_new(part)
            if is_new and part not in results:
                results[part] = tensor
            elif part is not tensor:
                emitter.emit_to(tensor, "copy", part)
    emitter.note_producer(operation)


# ---- What stands around an operation ----


class DefUse:
    """Which operations make and read the tensors of a graph, found on demand."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._facts: dict[object, object] = {}

    @cached_property
    def producers(self) -> Mapping[Tensor, Operation]:
        """The operation that made each tensor."""
        return {x: op for op in self._graph.operations for x in op.outputs}

    def producer(self, operand: Operand) -> Operation | None:
        """The operation that made a tensor; None for a literal."""
        return self.producers.get(operand) if isinstance(operand, Tensor) else None

    def chain(self, operand: Operand, *names: str) -> Operation | None:
        """The last of some operations: the first made an operand, each further one the
        first operand of the one before. None where there are others.
        """
        step = None
        for name in names:
            step = self.producer(operand)
            if step is None or step.name != name:
                return None
            operand = step.operands[0]
        return step

    def source(self, operand: Operand, through: Container[str] = RESHAPING) -> Operand:
        """The tensor whose elements an operand has, in their order; or what it was made of
        by other operations.
        """
        producer = self.producer(operand)
        if producer is None or producer.name not in through:
            return operand
        return self.source(producer.operands[0], through)

    def named(self, *names: str) -> Iterator[Operation]:
        """The operations of some names."""
        return (op for op in self._graph.operations if op.name in names)

    def fact(self, find: Callable[[Graph], Fact]) -> Fact:
        """The analysis of the whole graph by a function, done once."""
        if find not in self._facts:
            self._facts[find] = find(self._graph)
        return cast("Fact", self._facts[find])

    @cached_property
    def readers(self) -> Mapping[Tensor, list[Operation]]:
        """The operations that read each tensor."""
        readers = defaultdict[Tensor, list[Operation]](list)
        for op in self._graph.operations:
            for x in {*op.inputs}:
                readers[x].append(op)
        return readers

    @cached_property
    def uses(self) -> Mapping[Tensor, int]:
        """How often each tensor is an operand or an output."""
        return count_uses(self._graph)


# What takes the place of an operation, given the others of its graph; None if it stays.
Find = Callable[[Operation, DefUse], "Decompose | None"]


def put_found(
    graph: Graph, finds: Mapping[str, Find], opset: OpSet | None = None
) -> Graph:
    """The graph with what is found in place of operations, by their names."""
    near = DefUse(graph)
    named = [op for op in graph.operations if op.name in finds]
    forms = {op: form for op in named if (form := finds[op.name](op, near))}
    return inline(graph, forms.get, opset) if forms else graph


def where(
    applies: Callable[[Operation, DefUse], object] = lambda op, near: True,
) -> Callable[[Decompose], Find]:
    """Makes what finds a form of the form, and of where it takes the place."""

    def make(form: Decompose) -> Find:
        @wraps(form)
        def find(op: Operation, near: DefUse) -> Decompose | None:
            return form if applies(op, near) else None

        return find

    return make


def each(*names: str) -> Callable[[Find], Callable[[Graph], Graph]]:
    """Makes a pass of what finds the other form of an operation of these names."""

    def make(find: Find) -> Callable[[Graph], Graph]:
        finds = dict.fromkeys(names, find)

        @wraps(find)
        def change(graph: Graph) -> Graph:
            return put_found(graph, finds)

        return change

    return make


# ---- Known patterns of operations, recognized by their structure alone ----

# Emits a pattern for stand-ins, and returns the tensor that is compared.
Pattern = Callable[..., Operand]


def is_instance(near: DefUse, x: Operand, pattern: Pattern, *around: Tensor) -> bool:
    """Whether a tensor was made of some others as a pattern is of stand-ins."""
    emit = Emitter(OpSet(), simplify=simplify)
    stand_ins: list[Operand] = [emit.stand_in(tensor) for tensor in around]
    wanted = pattern(emit, *stand_ins)
    # What stands where a tensor of the pattern stands.
    places = dict(zip(stand_ins, around, strict=True))

    def agree(x: Operand, wanted: Operand) -> bool:
        if isinstance(x, tuple) and isinstance(wanted, tuple):
            return len(x) == len(wanted) and all(map(agree, x, wanted))
        if not (isinstance(x, Tensor) and isinstance(wanted, Tensor)):
            return type(x) is type(wanted) and repr(x) == repr(wanted)
        if wanted not in places:
            ours, theirs = near.producer(x), emit.producer(wanted)
            if ours is None or theirs is None or _kind(ours) != _kind(theirs):
                return False
            if not agree(ours.operands, theirs.operands):
                return False
            places[wanted] = x
        return places[wanted] is x

    return agree(x, wanted)


def _kind(op: Operation) -> object:
    return op.name, op.dtype, settings_key(op)
