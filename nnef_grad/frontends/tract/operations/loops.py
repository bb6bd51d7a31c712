"""Loops over an axis: the body of a short one takes its place, once for each step; a longer
one stays a loop, whose body is a graph.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from nnef_grad.frontends.expansions.loops import Weights, loop, scan_along
from nnef_grad.frontends.expansions.products import linear
from nnef_grad.frontends.tract.evaluation import document, expansion, spelling
from nnef_grad.frontends.values import is_known, shape_of
from nnef_grad.frontends.view import View
from nnef_grad.graph.extents import may_exceed
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.graph.learning import equal
from nnef_grad.graph.loops import ScanAxis
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops.shape import with_extent


class _Scan(NamedTuple):
    """The lists of an invocation: names are those of parameters and results of the body.

    Attributes:
        scanned: the parameter, the value, the axis, and how many elements of it a step
            sees, from the end where this is negative.
        full: the parameter, the value.
        state: the parameter, the first value, the result that is the next one, in the
            order of the parameters.
        output: the result, 'full' or 'last', the axis, the elements as for `scanned`.
    """

    scanned: list[tuple[str, Any, int, int]]
    full: list[tuple[str, Any]]
    state: list[tuple[str, Any, str]]
    output: list[tuple[str, str, int, int]]


@expansion("tract_core_scan")
def scan(
    view: View,
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
    view.require(skip == 0, "no steps can be skipped: it is read as a whole")
    view.require(reset_every_turn or not document(view).is_in_loop, _KEPT)
    fragment = view.reading.fragments.get(body)
    if fragment is None:
        view.refuse(f"the document has no fragment '{body}'")
    count = _count(view, scanned)
    places = {p.name: place for place, p in enumerate(fragment.parameters)}
    made = {r.name for r in fragment.results}
    scanned = [(_meant(n, places), x, axis, chunk) for n, x, axis, chunk in scanned]
    full = [(_meant(n, places), x) for n, x in full]
    state = [(_meant(n, places), x, _meant(r, made)) for n, x, r in state]
    output = [(_meant(r, made), kind, axis, chunk) for r, kind, axis, chunk in output]
    # tract takes no notice of others.
    scanned = [line for line in scanned if line[0] in places]
    full = [line for line in full if line[0] in places]
    state = sorted(state, key=lambda line: places.get(line[0], 0))
    wanted = _Scan(scanned, full, state, output)
    _check(view, fragment, wanted)
    with document(view).in_loop():
        if may_exceed(count, view.reading.unroll):
            results = _Kept(view, fragment, wanted).results(count)
        else:
            results = _unrolled(view, fragment, wanted, count)
    return results[0] if len(results) == 1 else results


@expansion("tract_core_gru_seq")
def gru(
    view: View,
    x: Any,
    w: Any,
    r: Any,
    b: Any,
    start: Any,
    hidden: int,
    chunk: int,
    has_bias: bool,
    reset_every_turn: bool,
    emit_y: bool,
    projected: bool,
) -> Any:
    """A layer of gated units: all states, and the last one. What is projected are the
    products of the input already, without a bias.
    """
    view.require(reset_every_turn or not document(view).is_in_loop, _KEPT)
    shape = shape_of(x)
    view.require(len(shape) == 3, "the operand must be [batch, steps, elements]")
    weights = Weights(None if projected else w, r)
    if has_bias:
        own = view.reshaped(b, [2, 3 * hidden], "biases")
        first, last = view("unstack", own, axis=0)
        weights = weights._replace(input_bias=first, state_bias=last)

    def cell(_: View, states: list[Any], part: Any, own: Weights) -> list[Any]:
        product = linear(view, states[0], own.of_state, own.state_bias)
        operands = part, product, states[0]
        return [view.expand("tract_core_gru_epilogue", *operands, hidden=hidden)]

    states = [view.reshaped(start, [shape[0], hidden], "start")]
    rows, (end,) = scan_along(view, cell, x, 1, states, weights, is_back=chunk < 0)
    # tract leaves what is not emitted empty.
    return rows if emit_y else None, view("unsqueeze", end, axes=[1])


_KEPT = "in a loop it keeps its states from turn to turn, unless reset_every_turn"


def _meant(name: str, names: Collection[str]) -> str:
    """The name that another one stands for: without extended identifiers, tract writes those
    of the body with underscores, and leaves strings as they are.
    """
    plain = spelling(name)
    return plain if name not in names and plain in names else name


def _count(view: View, scanned: list[tuple[str, Any, int, int]]) -> int:
    """The number of steps, which all that is scanned must agree in."""
    counts: list[Any] = []
    for name, x, axis, chunk in scanned:
        view.require(chunk != 0, f"the step of '{name}' must not be zero")
        view.require(axis < len(shape_of(x)), f"'{name}' has no axis {axis}")
        count, rest = divmod(shape_of(x)[axis], abs(chunk))
        view.require(equal(rest, 0), f"the steps of '{name}' do not end with it")
        counts.append(count)
    message = "what is scanned must have one number of steps"
    view.require(all(equal(counts[0], other) for other in counts[1:]), message)
    steps: int = counts[0]
    return steps


def _check(view: View, fragment: Fragment, wanted: _Scan) -> None:
    """Refuses unknown names, and what tract computes otherwise than it is written."""
    names = [line[0] for line in (*wanted.scanned, *wanted.full, *wanted.state)]
    parameters = [p.name for p in fragment.parameters]
    body = f"the body '{fragment.name}'"
    missing = " and ".join(f"'{name}'" for name in parameters if name not in names)
    view.require(not missing, f"{body} needs {missing}")
    view.require(bool(wanted.scanned), "it scans nothing")
    for name in names:
        view.require(names.count(name) == 1, f"{body} gets '{name}' twice")
        view.require(name in parameters, f"{body} has no parameter '{name}'")
    results = [result.name for result in fragment.results]
    for name in (*(line[2] for line in wanted.state), *(o[0] for o in wanted.output)):
        view.require(name in results, f"the body has no result '{name}'")
    for _, kind, _, chunk in wanted.output:
        view.require(kind in ("full", "last"), f"'{kind}' is neither full nor last")
        is_put = kind == "last" or chunk >= -1
        view.require(is_put, "tract puts parts of several elements elsewhere backward")
    places = {n: results.index(result) for n, _, result in wanted.state}
    order = [places[name] for name in parameters if name in places]
    message = "the results that become states must differ, and be in their order"
    view.require(order == sorted(set(order)), message)


# ---- Steps one after the other ----


def _unrolled(
    view: View, fragment: Fragment, wanted: _Scan, count: int
) -> tuple[Any, ...]:
    states = {name: value for name, value, _ in wanted.state}
    steps: list[dict[str, Any]] = []
    for index in range(count):
        values = {**dict(wanted.full), **states}
        for name, x, axis, chunk in wanted.scanned:
            # From the end if it goes backward.
            begin = (index if chunk > 0 else count - 1 - index) * abs(chunk)
            if count > 1:
                x = view.piece(x, axis, begin, begin + abs(chunk), "part")
            values[name] = x
        own = {p.name: values[p.name] for p in fragment.parameters}
        naming = view.reading.naming_of(fragment, f"{view.hint}_{index + 1}")
        steps.append(view.reading.results_of(fragment, own, naming, view.span))
        states = {name: steps[-1][result] for name, _, result in wanted.state}
    outputs = []
    for name, kind, axis, chunk in wanted.output:
        rows = [results[name] for results in steps]
        if kind == "full":
            rows = rows[:: _scan_axis(axis, chunk).direction]
            rows.append(view("concat", rows, hint=name, axis=axis))
        outputs.append(rows[-1])
    return tuple(outputs)


# ---- A loop ----


def _scan_axis(axis: int, chunk: int) -> ScanAxis:
    return ScanAxis(axis, 1 if chunk > 0 else -1)


class _Kept:
    """A loop that stays one. Its steps are an element each: where they are several, these
    are rows of an axis of their own.
    """

    def __init__(self, view: View, fragment: Fragment, wanted: _Scan) -> None:
        self.view = view
        self.fragment = fragment
        self.known = {name: x for name, x in wanted.full if is_known(x)}
        self.full = {name: x for name, x in wanted.full if not is_known(x)}
        self.states = {name: self._tensor(x) for name, x, _ in wanted.state}
        self.next = {result: name for name, _, result in wanted.state}
        self.scanned = {n: (self._tensor(x), a, c) for n, x, a, c in wanted.scanned}
        self.output = wanted.output
        # The last of what is no state is the end of all of it.
        self.gathered = {
            name: _scan_axis(axis, chunk)
            for wish in ("last", "full")
            for name, kind, axis, chunk in wanted.output
            if kind == wish and (kind == "full" or name not in self.next)
        }
        # The shape of a part of each.
        self.parts: dict[str, Shape] = {}

    def results(self, count: int) -> tuple[Any, ...]:
        """The results of the loop, as the document lists them."""
        view, supply = self.view, NameSupply(p.name for p in self.fragment.parameters)
        operands = {**self.full, **self.states}
        for name, (x, axis, chunk) in self.scanned.items():
            if abs(chunk) != 1:
                # As rows.
                shape = (*x.shape[:axis], count, abs(chunk), *x.shape[axis + 1 :])
                name, x = supply.fresh(f"{name}_row"), view.reshaped(x, shape, "steps")
            operands[name] = x
        hints = [f"{view.hint}_{name}_last" for name in self.next]
        hints += [f"{view.hint}_{name}" for name in self.gathered]
        names = tuple(hints) if len(hints) > 1 else (view.hint,)
        scan_axes = [_scan_axis(*place) for _, *place in self.scanned.values()]
        reserved = [result.name for result in self.fragment.results]
        body, name = self._body, self.fragment.name
        outputs = loop(view, name, operands, scan_axes, body, names, reserved)
        last = dict(zip(self.next, outputs, strict=False))
        whole = dict(zip(self.gathered, outputs[len(last) :], strict=True))
        return tuple(
            last[name]
            if kind == "last" and name in last
            else self._gathered(name, whole[name], kind == "last")
            for name, kind, _, _ in self.output
        )

    def _tensor(self, x: Any) -> Tensor:
        tensor = self.view.constant(x) if is_known(x) else x
        if not isinstance(tensor, Tensor):
            self.view.refuse(f"a loop carries and scans tensors, and {x} is none")
        return tensor

    def _body(
        self, inputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[tuple[Tensor, ScanAxis]]]:
        """The body; a state that is collected too is the same tensor, even if it is a copy."""
        names = [*self.full, *self.states, *self.scanned]
        values: dict[str, Any] = {**self.known, **dict(zip(names, inputs, strict=True))}
        for name, (x, axis, chunk) in self.scanned.items():
            shape = with_extent(x.shape, axis, abs(chunk))
            values[name] = self.view.reshaped(values[name], shape, name)
        own = {p.name: values[p.name] for p in self.fragment.parameters}
        reading = self.view.reading
        results = reading.results_of(self.fragment, own, str, self.view.span)
        new = {name: self._pinned(results[name], name) for name in self.next}
        collected = [
            (self._row(new.get(name, results[name]), name, along), along)
            for name, along in self.gathered.items()
        ]
        return [*new.values()], collected

    def _pinned(self, value: Any, name: str) -> Tensor:
        """A result under its name: a copy, if the tensor has another one."""
        return self.view.reading.emitter.pin_name(self._tensor(value), name)

    def _row(self, value: Any, name: str, along: ScanAxis) -> Tensor:
        """The part of a result that each step collects: one element along the axis."""
        part = self._pinned(value, name)
        self.view.axis(along.axis, part.rank)
        self.parts[name] = part.shape
        if along.fits(part.shape):
            return part
        shape = (*part.shape[: along.axis], 1, *part.shape[along.axis :])
        emitter = self.view.reading.emitter
        row: Tensor = emitter("reshape", part, shape=shape, hint=f"{name}_row")
        return row

    def _gathered(self, name: str, whole: Tensor, is_last: bool) -> Any:
        """All parts of a result side by side, or the last one."""
        shape, (axis, direction) = self.parts[name], self.gathered[name]
        count = whole.shape[axis]
        if is_last:
            place = count - 1 if direction > 0 else 0
            whole = self.view.piece(whole, axis, place, place + 1, "last")
        else:
            shape = with_extent(shape, axis, shape[axis] * count)
        return self.view.reshaped(whole, shape)
