"""Where lowerings are entered, and found.

A lowering puts other operations in the place of one: a function of what emits operations
and the operation, which returns a value for each result. What it emits is standard NNEF
and computes the same numbers, whatever the target. It may emit operations that are
lowered in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TypeVar

from nnef_grad.emit.evaluation import instantiate, instantiate_body
from nnef_grad.emit.inline import Decompose, put_bodies
from nnef_grad.emit.loops import LONGEST, has_open_count, is_short
from nnef_grad.graph.ir import LOOP, Graph, Operand, Operation, Tensor
from nnef_grad.graph.passes import count_uses
from nnef_grad.language.library import FragmentFile
from nnef_grad.ops import DECOMPOSITIONS
from nnef_grad.ops.registry import Decomposition
from nnef_grad.ops.traits import RESHAPING
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition

Function = TypeVar("Function", bound=Decompose)
SUFFIX = "_lowered"
LOWERINGS: dict[str, Decomposition] = {}


def lowering(
    *names: str, applies: Callable[[Operation], bool] = when.always
) -> Callable[[Function], Function]:
    """Enters the lowering of the named operations, for the settings to which it applies:
    with others they have no other form, in themselves.
    """

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in LOWERINGS, f"{name} is entered twice"
            LOWERINGS[name] = Decomposition(function, applies)
        return function

    return enter


_MAXIMA = "max_pool argmax_pool max_pool_with_index sample"
_INDEXED = "argmax_pool sample desample"
_POOLS = f"{_MAXIMA} avg_pool rms_pool box debox desample"
_EMPTY = when.empty & when.ignoring
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
    (_INDEXED, _LONG, "with windows of more than 300 elements along an axis"),
)


def refusal(operation: Operation) -> str:
    """The settings of the operation for which there is no other form; empty where there
    are none.
    """
    for names, condition, phrase in REFUSED:
        if operation.name in names.split() and condition(operation):
            return f" {phrase}"
    return ""


# Their borders that repeat elements are padded first.
_PADDED = {"conv", "deconv", "debox"}


@lru_cache(maxsize=1)
def written() -> FragmentFile:
    """The lowerings of lowerings.nnef, by the name of the fragment."""
    return FragmentFile(Path(__file__).parent / "lowerings.nnef")


def find_lowering(operation: Operation) -> Decompose | None:
    """Puts other operations in the place of one; None where it has no other form.

    In this order: the Python lowering; the one in lowerings.nnef; the body of the
    operation, in Python or in the standard library.
    """
    name = operation.name
    own, body = LOWERINGS.get(name), DECOMPOSITIONS.get(name)
    if refusal(operation):
        return None
    if body is not None and not body.applies(operation):
        body = None
    if own is not None and not (body is not None and name in _PADDED):
        return own.build if own.applies(operation) else None
    if name + SUFFIX in written():
        return partial(instantiate, written()[name + SUFFIX])
    if body is not None:
        return body.build
    return instantiate_body if operation.definition.body is not None else None


def replaced(
    graph: Graph,
    names: Container[str],
    form: Decompose,
    which: Callable[[Operation], bool],
) -> Graph:
    """The graph with another form of some of the operations of these names."""
    bodies = [
        form if op.name in names and which(op) else None for op in graph.operations
    ]
    return put_bodies(graph, bodies)


class Relations:
    """Relations between the operations of a graph, found on demand."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def producers(self) -> Mapping[Tensor, Operation]:
        """The operation that made each tensor."""
        return {x: op for op in self._graph.operations for x in op.outputs}

    def producer(self, operand: Operand) -> Operation | None:
        """The operation that made a tensor; None for a literal."""
        return self.producers.get(operand) if isinstance(operand, Tensor) else None

    def chain(self, operand: Operand, *names: str) -> Operation | None:
        """The last of some operations, of which the first made an operand, and each further
        one the first operand of the one before; None where there are others.
        """
        made = None
        for name in names:
            made = self.producer(operand)
            if made is None or made.name != name:
                return None
            operand = made.operands[0]
        return made

    def source(self, operand: Operand) -> Operand:
        """The tensor whose elements an operand has, in their order."""
        made = self.producer(operand)
        if made is None or made.name not in RESHAPING:
            return operand
        return self.source(made.operands[0])

    def named(self, *names: str) -> Iterator[Operation]:
        """The operations of some names."""
        return (op for op in self._graph.operations if op.name in names)

    @cached_property
    def uses(self) -> Mapping[Tensor, int]:
        """How often each tensor is an operand or an output."""
        return count_uses(self._graph)
