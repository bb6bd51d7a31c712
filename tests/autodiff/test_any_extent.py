"""Every operation with a symbol in the place of extents of its inputs: where the graph is
made at all, one backward graph has the gradients of each size, also of one element, and of
its text; where it is not, the message has its place and the cure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.errors import NnefGradError
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.symbols import symbols, with_numbers
from nnef_grad.interpreter.random_values import random_values

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
@pytest.mark.one_in(2)
def test_one_graph_has_the_gradients_of_each_size(model: Open) -> None:
    try:
        backward = gradients(model)
    except NnefGradError as error:
        is_refused(error, model)
        return
    texts = nnef_grad.loads(nnef_grad.dumps(backward))
    for size in SIZES:
        sized = gradients(model, size)
        values = random_values(sized, seed=size)
        try:
            wanted = nnef_grad.evaluate(sized, values.inputs, values.variables)
        except NnefGradError:
            # An index is beyond an axis that is this short.
            continue
        for graph in (backward, texts, with_numbers(backward, {"B": size})):
            found = nnef_grad.evaluate(graph, values.inputs, values.variables)
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-8, atol=1e-10)


def is_refused(error: NnefGradError, model: Open) -> None:
    """The problem has its place. It is the model's own, unless a number is the cure."""
    assert error.span is not None
    if error.problems[0].remedy == "symbol":
        assert re.search(r"\bB\b", error.message)
        return
    with pytest.raises(NnefGradError):
        for size in SIZES:
            gradients(model, size)


@every_model
@pytest.mark.one_in(4)
def test_what_tract_gets_computes_the_same(model: Open) -> None:
    try:
        backward = gradients(model)
        lowered = nnef_grad.lower(backward, "tract")
    except NnefGradError as error:
        assert error.span is not None or "cannot run" in error.message
        return
    assert symbols(lowered.graph) == symbols(backward)
    for size in SIZES:
        values = random_values(with_numbers(backward, {"B": size}), seed=size)
        data = {**values.variables, **lowered.data}
        try:
            wanted = nnef_grad.evaluate(backward, values.inputs, values.variables)
        except NnefGradError:
            continue
        found = nnef_grad.evaluate(lowered.graph, values.inputs, data)
        for name, array in wanted.items():
            # Constants that are stored have single precision.
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
