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

from nnef_grad.base.memo import Memo
from nnef_grad.emit.bodies import body_of, instantiate
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.inline import Decompose, inline
from nnef_grad.emit.simplify import simplify
from nnef_grad.graph.extents import OpenExtentError
from nnef_grad.graph.ir import Graph, Operand, Operation, Tensor
from nnef_grad.graph.names import substitute
from nnef_grad.ops.opset import OpSet
from nnef_grad.targets.costs import SPEEDS, cost, data_of
from nnef_grad.targets.registry import Relations

Function = TypeVar("Function", bound=Decompose)


class Form(NamedTuple):
    """A form of an operation.

    Attributes:
        build: emits it.
        applies: the settings that it is for.
        source: the operation that must make the first operand, if it is another form of
            both.
    """

    build: Decompose
    applies: Callable[[Operation], bool]
    source: str | None


FORMS: dict[str, list[Form]] = {}

# What was chosen, by all that a choice depends on; None for the operation as it is.
_chosen: Memo[object, tuple[Decompose | None]] = Memo(10_000)


def form(
    name: str, applies: Callable[[Operation], bool], source: str | None = None
) -> Callable[[Function], Function]:
    """Enters a form of the named operation, for the settings to which it applies."""

    def enter(function: Function) -> Function:
        FORMS.setdefault(name, []).append(Form(function, applies, source))
        return function

    return enter


def choose_forms(graph: Graph, runtimes: Sequence[str]) -> Graph:
    """The graph with the form of each operation that costs the runtimes least."""
    measured = [name for name in runtimes if name in SPEEDS]
    return inline(graph, _Choice(graph, measured).best) if measured else graph


def open_forms(graph: Graph) -> Iterator[tuple[Operation, Form]]:
    """The operations of a graph that have other forms, with each of these."""
    choice = _Choice(graph, ())
    for op in graph.operations:
        yield from ((op, form) for form in choice.forms(op))


class _Choice:
    """Facts about a graph."""

    def __init__(self, graph: Graph, runtimes: Sequence[str]) -> None:
        self._graph = graph
        self._runtimes = runtimes
        self._speeds = tuple([(name, SPEEDS[name]) for name in runtimes])

    # Most graphs have no operation with several forms, and need none of these.

    @cached_property
    def _uses(self) -> Mapping[Tensor, int]:
        return Relations(self._graph).uses

    @cached_property
    def _sources(self) -> Mapping[Tensor, Operation]:
        names = {form.source for forms in FORMS.values() for form in forms}
        made = (op for op in self._graph.operations if op.name in names)
        return {x: op for op in made for x in op.outputs}

    @cached_property
    def _transpositions(self) -> Mapping[Tensor, Operation]:
        found = (op for op in self._graph.operations if op.name == "transpose")
        return {x: op for op in found for x in op.inputs}

    @cached_property
    def _data(self) -> Set[Tensor]:
        return data_of(self._graph.operations)

    def best(self, op: Operation) -> Decompose | None:
        """The cheapest form of an operation; None for the operation as it is."""
        forms = tuple([form.build for form in self.forms(op)])
        if not forms:
            return None
        chain = self._chain(op)
        key = (self._speeds, forms, chain.index(op), *self._signature(chain))
        known = _chosen.get(key)
        if known is None:
            best = min((None, *forms), key=partial(self._cost, chain, op))
            known = _chosen.keep(key, (best,))
        return known[0]

    def forms(self, op: Operation) -> list[Form]:
        """The other forms of an operation."""
        applicable = [form for form in FORMS.get(op.name, ()) if _applies(form, op)]
        return [form for form in applicable if self._has_source(form, op)]

    def _has_source(self, form: Form, op: Operation) -> bool:
        if form.source is None:
            return True
        source = self._source(op)
        return source is not None and source.name == form.source

    def _source(self, op: Operation) -> Operation | None:
        """The source of a form that made the first operand, and for nothing else."""
        (x, *_) = op.inputs
        source = self._sources.get(x)
        return source if self._uses[x] == 1 else None

    def _chain(self, op: Operation) -> list[Operation]:
        """The operation, after a source that is for it alone, and before the
        transposition that its result is for.
        """
        source, (y, *_) = self._source(op), op.outputs
        after = self._transpositions.get(y) if self._uses[y] == 1 else None
        return [step for step in (source, op, after) if step is not None]

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
        """The nanoseconds of a chain with a form of one of its operations, in all
        runtimes together; infinite for a form that needs numbers of symbols.
        """
        with suppress(OpenExtentError):
            return self._cost_of_form(chain, op, form)
        return inf

    def _cost_of_form(
        self, chain: Sequence[Operation], op: Operation, form: Decompose | None
    ) -> float:
        emit = Emitter(OpSet(), simplify=simplify)
        made = {x for step in chain for x in step.outputs}
        read = dict.fromkeys(x for step in chain for x in step.inputs if x not in made)
        known: dict[Tensor, Any] = {x: self._stand_in(emit, x) for x in read}
        for step in chain:
            results: Sequence[Any] | None
            if step is op and form is not None:
                results = form(emit, substitute(step, known))
            else:
                body = body_of(step.inputs, [step], step.outputs, lambda _: "result")
                given = [known[x] for x in step.inputs]
                results = instantiate(body, emit, given, fill=True)
            known.update(zip(step.outputs, results or (), strict=True))
        operations = _needed(emit, known[chain[-1].outputs[0]])
        return sum(cost(operations, name) for name in self._runtimes)

    def _stand_in(self, emit: Emitter, x: Tensor) -> Tensor:
        """A tensor like another, in place of it."""
        name = "variable" if x in self._data else "external"
        label = {"label": "data"} if x in self._data else {}
        return emit.emit_named(name, name, shape=x.shape, **label)


def _applies(form: Form, op: Operation) -> bool:
    """Whether a form is for an operation, whatever the numbers of symbols are."""
    with suppress(OpenExtentError):
        return form.applies(op)
    return False


def _needed(emit: Emitter, result: Operand) -> list[Operation]:
    """The operations that a result comes from, in their order."""
    needed, kept = {result}, []
    for op in reversed(emit.operations):
        if not needed.isdisjoint(op.outputs):
            needed.update(op.inputs)
            kept.append(op)
    return kept[::-1]
