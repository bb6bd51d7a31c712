"""Every operation with a symbol in the place of extents of its inputs: where the graph is
made at all, one backward graph has the gradients of each size, also of one element, and of
its text; where it is not, the message has its place and the cure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.base.errors import NnefGradError, UsageError
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.symbols import symbols, with_numbers
from nnef_grad.interpreter import EVALUATIONS
from nnef_grad.interpreter.random_values import Values, random_values

SIZES = (1, 2, 3, 5)
HEAD = "version 1.0;\n"
EXTENSIONS = "extension tract_registry tract_core;\nextension tract_symbol B;\n"
_EXTERNAL = re.compile(r"(external(?:<\w+>)?\(shape = \[)([\d, ]+)\]")


class Open(NamedTuple):
    """A model of which some extents are the symbol B.

    Attributes:
        name: the model, the number that is replaced, and along which axis.
        number: the number.
        text: a document of the dialect.
    """

    name: str
    number: int
    text: str


def opened(model: Model) -> Iterator[Open]:
    """The model with B in the place of each number in the shapes of its inputs: along each
    axis, and along all.
    """
    shapes = [shape for _, shape in _EXTERNAL.findall(model.text)]
    extents = [list(map(int, shape.split(","))) for shape in shapes]
    longest = max(map(len, extents), default=0)
    made = set()
    for number in sorted({extent for shape in extents for extent in shape}):
        for axis in (*range(longest), None):
            text = _EXTERNAL.sub(
                lambda found, n=number, a=axis: (  # type: ignore[misc]
                    f"{found[1]}{', '.join(_replaced(found[2], n, a))}]"
                ),
                model.text,
            )
            if "[B" in text or ", B" in text:
                if text not in made:
                    where = "all" if axis is None else axis
                    name = f"{model.name}-{number}-{where}"
                    yield Open(name, number, text.replace(HEAD, HEAD + EXTENSIONS))
                made.add(text)


def _replaced(shape: str, number: int, axis: int | None) -> Iterator[str]:
    for place, extent in enumerate(shape.split(", ")):
        yield "B" if int(extent) == number and axis in (None, place) else extent


def gradients(open_model: Open, size: int | None = None) -> Graph:
    given = None if size is None else {"B": size}
    graph = nnef_grad.loads(open_model.text, symbols=given)
    return nnef_grad.differentiate(graph).graph


OPENED = [each for model in models() for each in opened(model)]
every_model = pytest.mark.parametrize("model", OPENED, ids=lambda each: each.name)


@every_model
def test_one_graph_has_the_gradients_of_each_size(model: Open) -> None:
    backward = made(gradients, model)
    if backward is None:
        return
    read = nnef_grad.loads(nnef_grad.dumps(backward))
    for size in SIZES:
        if (sized := taken(model, size)) is None:
            continue
        values = random_values(sized, seed=size)
        wanted = evaluated(sized, values)
        for graph in (backward, read, with_numbers(backward, {"B": size})):
            try:
                found = evaluated(graph, values)
            except UsageError as error:
                # The only one of a batch is taken whatever an index says.
                if size > 1 or "'indices' must be in 0..0" not in error.message:
                    raise
                continue
            agree(found, wanted, 1e-10)


@every_model
def test_what_tract_gets_computes_the_same(
    model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EVALUATIONS, "tract_core_trilu", triangle)
    lowered = made(in_tract, model)
    if lowered is None:
        return
    backward = gradients(model)
    assert symbols(lowered.graph) == symbols(backward)
    for size in SIZES:
        if taken(model, size) is None:
            continue
        values = random_values(with_numbers(backward, {"B": size}), seed=size)
        data = {**values.variables, **lowered.data}
        found = evaluated(lowered.graph, Values(values.inputs, data))
        # Constants that are stored have single precision.
        agree(found, evaluated(backward, values), 1e-5)


def triangle(x: Any, k: Any, upper: bool) -> Any:
    return np.triu(x, int(k)) if upper else np.tril(x, int(k))


Made = TypeVar("Made")


def taken(model: Open, size: int) -> Graph | None:
    """The gradients for a size; None if the network itself does not take it."""
    try:
        return gradients(model, size)
    except NnefGradError:
        return None


def made(make: Callable[..., Made], model: Open) -> Made | None:
    """What is made of a model; None where the number is needed, and where a number does
    not help.
    """
    try:
        return make(model)
    except NnefGradError as error:
        problem = error.problems[0]
    if problem.remedy == "symbol":
        assert problem.span is not None
        assert "B" in problem.message
    else:
        assert not all(is_made(make, model, size) for size in SIZES)
    return None


def is_made(make: Callable[..., object], model: Open, size: int) -> bool:
    try:
        make(model, size)
    except NnefGradError:
        return False
    return True


def in_tract(model: Open, size: int | None = None) -> nnef_grad.Lowered:
    return nnef_grad.lower(gradients(model, size), "tract")


def evaluated(graph: Graph, values: Values) -> Mapping[str, Any]:
    return nnef_grad.evaluate(graph, values.inputs, values.variables)


def agree(found: Mapping[str, Any], wanted: Mapping[str, Any], most: float) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=most, atol=most)
