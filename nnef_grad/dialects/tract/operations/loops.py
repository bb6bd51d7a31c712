"""Loops over an axis, unrolled: the body of the loop takes its place, once for each step."""

from __future__ import annotations

from typing import Any

from nnef_grad.dialects.tract.step import Step, expansion
from nnef_grad.dialects.tract.values import shape_of
from nnef_grad.language.syntax import Fragment

# A loop that is longer would make a graph that takes minutes to load.
LONGEST = 1000


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
    """The results of a loop: what each step makes, side by side, or the last of it."""
    step.require(skip == 0, "no steps can be skipped: it is read as a whole")
    fragment = _body(step, body)
    count = _count(step, scanned)
    states = {name: value for name, value, _ in state}
    made: list[dict[str, Any]] = []
    for index in range(count):
        parts = {
            name: _part(step, x, axis, chunk, index, count)
            for name, x, axis, chunk in scanned
        }
        given = {**dict(full), **states, **parts}
        _refuse_missing(step, fragment, given)
        own = {p.name: given[p.name] for p in fragment.parameters}
        hint = f"{step.hint}_{index + 1}"
        made.append(step.reading.results_of(fragment, own, hint, step.span))
        states = {name: _result(step, made[-1], result) for name, _, result in state}
    results = tuple(_collected(step, made, *line) for line in output)
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
    limit = f"{count} steps are more than {LONGEST}"
    step.require(count <= LONGEST, f"{limit}: export the network for shorter sequences")
    return count


def _part(step: Step, x: Any, axis: int, chunk: int, index: int, count: int) -> Any:
    """What a step sees of something that is scanned, from its end if it goes backward."""
    place = index if chunk > 0 else count - 1 - index
    if count == 1:
        return x
    begin, end = place * abs(chunk), (place + 1) * abs(chunk)
    return step("slice", x, hint="part", axes=[axis], begin=[begin], end=[end])


def _refuse_missing(step: Step, fragment: Fragment, given: dict[str, Any]) -> None:
    missing = [p.name for p in fragment.parameters if p.name not in given]
    names = " and ".join(f"'{name}'" for name in missing)
    step.require(not missing, f"the body '{fragment.name}' needs {names}")


def _result(step: Step, made: dict[str, Any], name: str) -> Any:
    if name not in made:
        step.refuse(f"the body has no result '{name}'")
    return made[name]


def _collected(
    step: Step, made: list[dict[str, Any]], name: str, kind: str, axis: int, chunk: int
) -> Any:
    """A result of the loop."""
    values = [_result(step, results, name) for results in made]
    step.require(kind in ("full", "last"), f"'{kind}' is neither full nor last")
    if kind == "last":
        return values[-1]
    step.require(chunk >= -1, "tract puts parts of several elements elsewhere backward")
    ordered = values if chunk > 0 else values[::-1]
    return step("concat", ordered, hint=name, axis=axis)
