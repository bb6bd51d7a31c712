"""Where lowerings are entered, and found; and what stands around an operation, where that
decides about another form.

A lowering puts other operations in the place of one: a function of what emits operations
and the operation, which returns a value for each result. What it emits is standard NNEF
and computes the same numbers, whatever the target. It may emit operations that are
lowered in their turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TypeVar, cast

from nnef_grad.emit.arguments import settings_key
from nnef_grad.emit.bodies import LONGEST, Decompose, has_open_count, inline, is_short
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.ir import ARGSORT, LOOP, Graph, Operand, Operation, Tensor
from nnef_grad.graph.passes import count_uses
from nnef_grad.language.library import FragmentFile
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.ops.registry import Decomposition, OpSet
from nnef_grad.ops.traits import RESHAPING
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition

Function = TypeVar("Function", bound=Decompose)
Fact = TypeVar("Fact")
SUFFIX = "_lowered"
LOWERINGS: dict[str, Decomposition] = {}


def lowering(
    *names: str, applies: Callable[[Operation], bool] = when.always
) -> Callable[[Function], Function]:
    """Enters the lowering of operations, for settings; with others they have none."""

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in LOWERINGS, f"{name} is entered twice"
            LOWERINGS[name] = Decomposition(function, applies)
        return function

    return enter


_MAXIMA = "max_pool argmax_pool max_pool_with_index sample"
_INDEXED = "argmax_pool sample desample"
_POOLS = f"{_MAXIMA} avg_pool rms_pool box debox desample"
_EMPTY = when.ignoring & when.empty
_LONG = ~when.blocks & when.long

# For the operations, named in a string, settings that no exporter writes and that have no
# other form, and what messages say of them.
REFUSED: Sequence[tuple[str, Condition, str]] = (
    ("slice tile", when.above_rank(5), "along more than 5 axes"),
    ("conv deconv", when.no_space, "without spatial axes"),
    ("conv deconv", when.above_rank(5), "with more than 3 spatial axes"),
    ("conv deconv", ~when.touching, "with windows that all lie outside"),
    (_POOLS, when.along_four_axes, "with windows along more than 3 axes"),
    (
        f"{_MAXIMA} avg_pool rms_pool",
        _EMPTY,
        "with windows that have no element inside",
    ),
    (_POOLS, when.cropping, "with negative padding"),
    (LOOP, when.Condition(has_open_count), "of a number of steps that is not known"),
    (LOOP, ~when.Condition(is_short), f"of more than {LONGEST:,} steps"),
    (
        ARGSORT,
        when.ordering_many,
        "of more than 1,024 elements; ONNX Runtime and tract can",
    ),
    (_INDEXED, _LONG, "with windows of more than 300 elements along an axis"),
)


def refusal(operation: Operation) -> str:
    """The settings of the operation that have no other form; empty if none."""
    for names, condition, phrase in REFUSED:
        if operation.name in names.split() and condition(operation):
            return f" {phrase}"
    return ""


# Their borders that repeat elements are padded first.
_PADDED = {"conv", "deconv", "debox"}


# The lowerings of lowerings.nnef, by the name of the fragment.
WRITTEN = FragmentFile(Path(__file__).parent / "lowerings.nnef")


def find_lowering(operation: Operation) -> Decompose | None:
    """Puts other operations in the place of one; None where it has no other form. First
    the Python lowering, then that of lowerings.nnef, then the body of the operation.
    """
    name = operation.name
    own, body = LOWERINGS.get(name), DECOMPOSITIONS.get(name)
    if refusal(operation):
        return None
    if body is not None and not body.applies(operation):
        body = None
    if own is not None and not (body is not None and name in _PADDED):
        return own.build if own.applies(operation) else None
    if name + SUFFIX in WRITTEN:
        return partial(instantiate_body, fragment=WRITTEN[name + SUFFIX])
    if body is not None:
        return body.build
    return instantiate_body if operation.definition.body is not None else None


class Relations:
    """Relations between the operations of a graph, found on demand."""

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
        """What a function finds out about the whole graph, once."""
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


# ---- Replacements by what stands around an operation ----

# What takes the place of an operation, given the others of its graph; None if it stays.
Find = Callable[[Operation, Relations], "Decompose | None"]


def put_found(
    graph: Graph, finds: Mapping[str, Find], opset: OpSet | None = None
) -> Graph:
    """The graph with what is found in place of operations, by their names."""
    near = Relations(graph)
    named = [op for op in graph.operations if op.name in finds]
    forms = {op: form for op in named if (form := finds[op.name](op, near))}
    return inline(graph, forms.get, opset) if forms else graph


def where(
    applies: Callable[[Operation, Relations], object] = lambda op, near: True,
) -> Callable[[Decompose], Find]:
    """Makes what finds a form of the form, and of where it takes the place."""

    def make(form: Decompose) -> Find:
        @wraps(form)
        def find(op: Operation, near: Relations) -> Decompose | None:
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


def is_instance(near: Relations, x: Operand, pattern: Pattern, *around: Tensor) -> bool:
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
