"""The choice among forms: several ways to compute the same, of which one runtime is
faster at this, and another at that.

A form is a function like a lowering: it puts other operations in the place of one. The
operation as it is, is a form too. The model of costs.py says which is cheapest, among the
operations that it is found with: a transposition after it may be needless then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property, partial
from math import inf
from typing import Any, NamedTuple, TypeVar

from nnef_grad.base.process import Memo
from nnef_grad.emit.bodies import body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.rewriting import Decompose, DefUse, inline
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.extents import OpenExtentError
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.passes import prune
from nnef_grad.graph.rewriting import substitute
from nnef_grad.ops.registry import OpSet
from nnef_grad.targets.costs import SPEEDS, cost, data_of

Function = TypeVar("Function", bound=Decompose)


class Form(NamedTuple):
    """The function that emits a form, its settings, the producer that it needs, if any, and the
    runtimes that it is for, if it is not for all.
    """

    build: Decompose
    applies: Callable[[Operation], bool]
    source: str | None
    only: Set[str]


FORMS: dict[str, list[Form]] = {}

# What was chosen, by all that a choice depends on; None for the operation as it is.
_chosen: Memo[object, tuple[Decompose | None]] = Memo(10_000)


def form(
    name: str,
    applies: Callable[[Operation], bool],
    source: str | None = None,
    only: Set[str] = frozenset(),
) -> Callable[[Function], Function]:
    """Enters a form of the named operation, for the settings to which it applies."""

    def enter(function: Function) -> Function:
        FORMS.setdefault(name, []).append(Form(function, applies, source, only))
        return function

    return enter


def choose_forms(
    graph: Graph,
    runtimes: Sequence[str],
    lacks: Callable[[Operation], bool] = lambda op: False,
) -> Graph:
    """The graph with the form of each operation that costs the runtimes least, another one
    where they lack it as it is.
    """
    measured = [name for name in runtimes if name in SPEEDS]
    return inline(graph, _Choice(graph, measured, lacks).best) if measured else graph


def open_forms(graph: Graph) -> Iterator[tuple[Operation, Form]]:
    """The operations of a graph that have other forms, with each of these."""
    choice = _Choice(graph, ())
    for op in graph.operations:
        yield from ((op, form) for form in choice.forms(op))


class _Choice(DefUse):
    """The choice for the operations of a graph; most need no relations."""

    def __init__(
        self,
        graph: Graph,
        runtimes: Sequence[str],
        lacks: Callable[[Operation], bool] = lambda op: False,
    ) -> None:
        super().__init__(graph)
        self._runtimes, self._lacks = runtimes, lacks
        self._speeds = tuple([(name, SPEEDS[name]) for name in runtimes])

    @cached_property
    def _transpositions(self) -> Mapping[Tensor, Operation]:
        return {x: op for op in self.named("transpose") for x in op.inputs}

    @cached_property
    def _data(self) -> Set[Tensor]:
        return data_of(self._graph.operations)

    def best(self, op: Operation) -> Decompose | None:
        """The cheapest form of an operation; None for the operation as it is."""
        forms = tuple([form.build for form in self.forms(op)])
        if not forms:
            return None
        chain = self._chain(op)
        if any(0 in x.shape for step in chain for x in step.inputs):
            # A shape with a 0 keeps an extent, and nothing is no input.
            return None
        key = (self._speeds, forms, chain.index(op), *self._signature(chain))
        known = _chosen.get(key)
        if known is None:
            own = () if self._lacks(op) else (None,)
            best = min((*own, *forms), key=partial(self._cost, chain, op))
            known = _chosen.keep(key, (best,))
        return known[0]

    def forms(self, op: Operation) -> list[Form]:
        """The other forms of an operation."""
        return [form for form in FORMS.get(op.name, ()) if self._applies(form, op)]

    def _applies(self, form: Form, op: Operation) -> bool:
        """Whether a form is for an operation, whatever the numbers of symbols are."""
        if form.only and not form.only >= {*self._runtimes}:
            return False
        try:
            applies = form.applies(op)
        except OpenExtentError:
            return False
        return applies and (form.source is None or self._source(op) is not None)

    def _source(self, op: Operation) -> Operation | None:
        """The producer of the first operand, for nothing else, if there is a form of both."""
        source = self.producers[op.inputs[0]]
        is_own = source.name in {form.source for form in FORMS[op.name]}
        return source if is_own and self.uses[op.inputs[0]] == 1 else None

    def _chain(self, op: Operation) -> list[Operation]:
        """The operation, between its own source and its own transposition."""
        source, (y, *_) = self._source(op), op.outputs
        turned = self._transpositions.get(y) if self.uses[y] == 1 else None
        return [step for step in (source, op, turned) if step is not None]

    def _signature(self, chain: Sequence[Operation]) -> Iterator[object]:
        """Equal for chains that do the same with tensors of the same shapes."""
        numbers: dict[Tensor, int] = {}
        for op in chain:
            yield op.name, tuple(op.settings.items())
            for x in op.operands:
                if isinstance(x, Tensor):
                    number = numbers.setdefault(x, len(numbers))
                    yield number, x.shape, x in self._data
                else:
                    yield x
            for y in op.outputs:
                numbers[y] = len(numbers)

    def _cost(
        self, chain: Sequence[Operation], op: Operation, form: Decompose | None
    ) -> float:
        """The nanoseconds in all runtimes; infinite if open numbers are needed."""
        with suppress(OpenExtentError):
            operations = self._emitted(chain, op, form)
            return sum(cost(operations, name) for name in self._runtimes)
        return inf

    def _emitted(
        self, chain: Sequence[Operation], op: Operation, form: Decompose | None
    ) -> Sequence[Operation]:
        """The operations of a chain with a form of one of its operations."""
        emit = Emitter(OpSet(), simplify=simplify)
        places: dict[Tensor, Any] = {}
        for step in chain:
            for x in step.inputs:
                if x not in places:
                    places[x] = self._stand_in(emit, x)
            if step is op and form is not None:
                results = form(emit, substitute(step, places))
            else:
                body = body_of(step.inputs, [step], step.outputs, lambda _: "result")
                operands = [places[x] for x in step.inputs]
                results = instantiate(body, emit, operands, fill=True) or ()
            places.update(zip(step.outputs, results, strict=True))
        outputs = (places[chain[-1].outputs[0]],)
        return prune(Graph("chain", (), outputs, tuple(emit.operations), {})).operations

    def _stand_in(self, emit: Emitter, x: Tensor) -> Tensor:
        """A tensor like another, in place of it."""
        name = "variable" if x in self._data else "external"
        label = {"label": "data"} if x in self._data else {}
        return emit.emit_named(name, name, shape=x.shape, **label)
