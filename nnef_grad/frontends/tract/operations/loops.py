"""Loops over an axis: the body of a short one takes its place, once for each step; a longer
one stays a loop, whose body is a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nnef_grad.frontends.loops import loop
from nnef_grad.frontends.step import Step, expansion
from nnef_grad.frontends.tract.evaluation import document
from nnef_grad.frontends.values import is_known, shape_of
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.graph.loops import Way
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.shape import with_extent


class Scan(NamedTuple):
    """The lists of an invocation: names are those of parameters and results of the body.

    Attributes:
        scanned: the parameter, the value, the axis, and how many elements of it a step
            sees, from the end where this is negative.
        full: the parameter, the value.
        state: the parameter, the first value, the result that is the next one.
        output: the result, 'full' or 'last', the axis, the elements as for `scanned`.
    """

    scanned: list[tuple[str, Any, int, int]]
    full: list[tuple[str, Any]]
    state: list[tuple[str, Any, str]]
    output: list[tuple[str, str, int, int]]


@expansion("tract_core_scan")
def scan(
    step: Step,
    body: str,
    scanned: list[tuple[str, Any, int, int]],
    full: list[tuple[str, Any]],
    state: list[tuple[str, Any, str]],
    output: list[tuple[str, str, int, int]],
    skip: int,
    reset_every_turn: bool,
    external_state: bool,
) -> Any:
    """Its steps, one after the other, if there are few; otherwise a loop."""
    step.require(skip == 0, "no steps can be skipped: it is read as a whole")
    message = "in a loop it keeps its states from turn to turn, unless reset_every_turn"
    step.require(reset_every_turn or not document(step).is_in_loop, message)
    fragment = _body(step, body)
    count = _count(step, scanned)
    # tract takes no notice of others.
    names = {p.name for p in fragment.parameters}
    wanted = Scan(
        [line for line in scanned if line[0] in names],
        [line for line in full if line[0] in names],
        state,
        output,
    )
    _check(step, fragment, wanted)
    with document(step).in_loop():
        if not may_exceed(count, document(step).given.unroll):
            results = _unrolled(step, fragment, wanted, count)
        else:
            results = _Kept(step, fragment, wanted).results(count)
    return results[0] if len(results) == 1 else results


def _body(step: Step, name: str) -> Fragment:
    fragment = step.reading.fragments.get(name)
    if fragment is None:
        step.refuse(f"the document has no fragment '{name}'")
    return fragment


def _count(step: Step, scanned: list[tuple[str, Any, int, int]]) -> int:
    """The number of steps, which all that is scanned must agree in."""
    counts = set()
    for name, x, axis, chunk in scanned:
        step.require(chunk != 0, f"the step of '{name}' must not be zero")
        step.require(axis < len(shape_of(x)), f"'{name}' has no axis {axis}")
        count, rest = divmod(shape_of(x)[axis], abs(chunk))
        step.require(rest == 0, f"the steps of '{name}' do not end with it")
        counts.add(count)
    step.require(len(counts) == 1, "what is scanned must have one number of steps")
    (count,) = counts
    return count


def _check(step: Step, fragment: Fragment, wanted: Scan) -> None:
    """Refuses names that the body does not have, and what tract computes otherwise than
    it is written.
    """
    given = [line[0] for line in (*wanted.scanned, *wanted.full, *wanted.state)]
    parameters = [p.name for p in fragment.parameters]
    missing = [f"'{name}'" for name in parameters if name not in given]
    message = f"the body '{fragment.name}' needs {' and '.join(missing)}"
    step.require(not missing, message)
    step.require(bool(wanted.scanned), "it scans nothing")
    for name in given:
        step.require(
            given.count(name) == 1, f"the body '{fragment.name}' gets '{name}' twice"
        )
        message = f"the body '{fragment.name}' has no parameter '{name}'"
        step.require(name in parameters, message)
    places = {result.name: place for place, result in enumerate(fragment.results)}
    for name in (*(line[2] for line in wanted.state), *(o[0] for o in wanted.output)):
        step.require(name in places, f"the body has no result '{name}'")
    for _, kind, _, chunk in wanted.output:
        step.require(kind in ("full", "last"), f"'{kind}' is neither full nor last")
        is_put = kind == "last" or chunk >= -1
        step.require(is_put, "tract puts parts of several elements elsewhere backward")
    states = sorted(wanted.state, key=lambda line: parameters.index(line[0]))
    order = [places[result] for _, _, result in states]
    message = "the results that become states must differ, and be in their order"
    step.require(order == sorted(set(order)), message)


# ---- Steps one after the other ----


def _unrolled(
    step: Step, fragment: Fragment, wanted: Scan, count: int
) -> tuple[Any, ...]:
    states = {name: value for name, value, _ in wanted.state}
    made: list[dict[str, Any]] = []
    for index in range(count):
        parts = {
            name: _part(step, x, axis, chunk, index, count)
            for name, x, axis, chunk in wanted.scanned
        }
        given = {**dict(wanted.full), **states, **parts}
        own = {p.name: given[p.name] for p in fragment.parameters}
        naming = step.reading.naming_of(fragment, f"{step.hint}_{index + 1}")
        made.append(step.reading.results_of(fragment, own, naming, step.span))
        states = {name: made[-1][result] for name, _, result in wanted.state}
    return tuple(_collected(step, made, *line) for line in wanted.output)


def _part(step: Step, x: Any, axis: int, chunk: int, index: int, count: int) -> Any:
    """The part of a scanned value that a step sees, from its end if it goes backward."""
    place = index if chunk > 0 else count - 1 - index
    if count == 1:
        return x
    return step.piece(x, axis, place * abs(chunk), (place + 1) * abs(chunk), "part")


def _collected(
    step: Step, made: list[dict[str, Any]], name: str, kind: str, axis: int, chunk: int
) -> Any:
    """A result of the loop."""
    values = [results[name] for results in made]
    if kind == "last":
        return values[-1]
    ordered = values if chunk > 0 else values[::-1]
    return step("concat", ordered, hint=name, axis=axis)


# ---- A loop ----


class _Kept:
    """A loop that stays one. Its steps are an element each: where they are several, these
    are rows of an axis of their own.
    """

    def __init__(self, step: Step, fragment: Fragment, wanted: Scan) -> None:
        names = [p.name for p in fragment.parameters]
        self.step = step
        self.fragment = fragment
        self.known = {name: x for name, x in wanted.full if is_known(x)}
        self.full = {name: x for name, x in wanted.full if not is_known(x)}
        states = sorted(wanted.state, key=lambda line: names.index(line[0]))
        self.states = {name: self._tensor(x) for name, x, _ in states}
        self.next = {result: name for name, _, result in states}
        self.scanned = {
            name: (self._tensor(x), a, c) for name, x, a, c in wanted.scanned
        }
        self.output = wanted.output
        # The last of what is no state is the end of all of it.
        self.gathered = {
            name: Way(axis, 1 if chunk > 0 else -1)
            for wish in ("last", "full")
            for name, kind, axis, chunk in wanted.output
            if kind == wish and (kind == "full" or name not in self.next)
        }
        # The shape of a part of each.
        self.parts: dict[str, Shape] = {}

    def results(self, count: int) -> tuple[Any, ...]:
        """The results of the loop, as the document lists them."""
        step, supply = self.step, NameSupply(p.name for p in self.fragment.parameters)
        operands = {**self.full, **self.states}
        for name, (x, axis, chunk) in self.scanned.items():
            own = name if abs(chunk) == 1 else supply.fresh(f"{name}_row")
            operands[own] = self._by_step(x, axis, chunk)
        hints = [f"{step.hint}_{name}_last" for name in self.next]
        hints += [f"{step.hint}_{name}" for name in self.gathered]
        names = tuple(hints) if len(hints) > 1 else (step.hint,)
        ways = [Way(a, 1 if c > 0 else -1) for _, a, c in self.scanned.values()]
        reserved = [result.name for result in self.fragment.results]
        body, name = self._body, self.fragment.name
        made = loop(step, name, operands, ways, body, names, reserved)
        last = dict(zip(self.next, made, strict=False))
        whole = dict(zip(self.gathered, made[len(last) :], strict=True))
        return tuple(
            self._whole(name, whole[name])
            if kind == "full"
            else last[name]
            if name in last
            else self._last(name, whole[name], count)
            for name, kind, _, _ in self.output
        )

    # Operands

    def _tensor(self, x: Any) -> Tensor:
        tensor = self.step.constant(x) if is_known(x) else x
        if not isinstance(tensor, Tensor):
            self.step.refuse(f"a loop carries and scans tensors, and {x} is none")
        return tensor

    def _by_step(self, x: Tensor, axis: int, chunk: int) -> Any:
        if abs(chunk) == 1:
            return x
        count = x.shape[axis] // abs(chunk)
        shape = (*x.shape[:axis], count, abs(chunk), *x.shape[axis + 1 :])
        return self.step.reshaped(x, shape, "steps")

    # The body

    def _body(
        self, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[tuple[Tensor, Way]]]:
        """The body, of which a state that is collected too is the same tensor, even if it
        is a copy.
        """
        reading = self.step.reading
        given = self._parameters(inputs)
        results = reading.results_of(self.fragment, given, str, self.step.span)
        new = {name: self._pinned(results[name], name) for name in self.next}
        collected = [
            (self._row(new.get(name, results[name]), name, way.axis), way)
            for name, way in self.gathered.items()
        ]
        return [*new.values()], collected

    def _parameters(self, inputs: Sequence[Tensor]) -> dict[str, Any]:
        """The values of the parameters: where a step sees several elements, these are an
        axis of their own.
        """
        names = [*self.full, *self.states, *self.scanned]
        given: dict[str, Any] = {**self.known, **dict(zip(names, inputs, strict=True))}
        for name, (x, axis, chunk) in self.scanned.items():
            if abs(chunk) != 1:
                shape = with_extent(x.shape, axis, abs(chunk))
                given[name] = self.step.reshaped(given[name], shape, name)
        return {p.name: given[p.name] for p in self.fragment.parameters}

    def _pinned(self, value: Any, name: str) -> Tensor:
        """A result under its name: a copy, if the tensor has another one."""
        return self.step.reading.emitter.pin_name(self._tensor(value), name)

    def _row(self, value: Any, name: str, axis: int) -> Tensor:
        """The part of a result that each step collects: one element along the axis."""
        part = self._pinned(value, name)
        self.parts[name] = part.shape
        if part.shape[axis : axis + 1] == (1,):
            return part
        shape = (*part.shape[:axis], 1, *part.shape[axis:])
        emitter = self.step.reading.emitter
        row: Tensor = emitter("reshape", part, shape=shape, hint=f"{name}_row")
        return row

    # Results

    def _whole(self, name: str, whole: Tensor) -> Any:
        """All parts of a result side by side."""
        part, axis = self.parts[name], self.gathered[name].axis
        if part[axis] == 1:
            return whole
        shape = with_extent(part, axis, part[axis] * whole.shape[axis])
        return self.step.reshaped(whole, shape)

    def _last(self, name: str, whole: Tensor, count: int) -> Any:
        """The last part of a result."""
        axis, direction = self.gathered[name]
        place = count - 1 if direction > 0 else 0
        part = self.step.piece(whole, axis, place, place + 1, "last")
        return self.step.reshaped(part, self.parts[name])
