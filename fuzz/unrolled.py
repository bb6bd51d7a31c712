"""What must hold of a document with loops: it is refused with a message; or what is written
of it can be read again, and its gradients are those of differences, and of its steps one
after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import BytesIO
from math import prod
from typing import Any, NamedTuple

import numpy as np

import nnef_grad
from fuzz.broken import Broken
from fuzz.budget import MEMORY_OF_A_CHECK
from fuzz.clock import Clock
from fuzz.inputs import Input
from fuzz.written import LONG, read_again, statements, text_of_graph
from nnef_grad.autodiff.backward import Backward
from nnef_grad.base.errors import NnefGradError
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.symbols import symbols, with_numbers
from nnef_grad.storage.files import text_of

# A mutation may make a tensor, or a number of steps, as large as it likes.
MOST_ELEMENTS = 20_000
# Sums are in another order.
TOLERANCE = 1e-9
LEAST_WRONG = 1e-5

Array = Any
Numbers = Mapping[str, int]


def examine_loop(item: Input, clock: Clock) -> None:
    """Reads, differentiates and writes, and compares gradients.

    Raises:
        NnefGradError: the document is refused.
        Broken: something that must hold does not.
    """
    text, options = text_of(BytesIO(item.data), "<fuzz>").text, item.options["loop"]
    size = len(text)
    clock(size)
    graph = nnef_grad.loads(text, unroll=0)
    clock(size, check=True)
    backward = nnef_grad.differentiate(graph, wrt=options["wrt"])
    for made in (graph, backward.graph):
        written = text_of_graph(made)
        if len(written) < LONG and read_again(written, unroll=0) != statements(written):
            raise Broken("what is written is read as another graph")
    for given in options["numbers"]:
        numbers = {name: given.get(name, 2) for name in symbols(graph)}
        # Not all of them follow from the shapes of inputs: 2 * T does not give T.
        sized = with_numbers(graph, numbers)
        derived = replace(backward, graph=with_numbers(backward.graph, numbers))
        if _is_small(sized) and _is_small(derived.graph):
            clock(size, check=True)
            _compare(derived, _steps(text, numbers, options["wrt"]), f"{numbers}")


def _is_small(graph: Graph) -> bool:
    return sum(prod(t.shape) for t in graph.tensors.values()) <= MOST_ELEMENTS


class Steps(NamedTuple):
    """The steps of a loop, one after the other, and their derivative."""

    graph: Graph
    backward: Backward


def _steps(text: str, numbers: Numbers, wrt: str) -> Steps:
    try:
        graph = nnef_grad.loads(text, symbols=numbers)
        return Steps(graph, nnef_grad.differentiate(graph, wrt=wrt))
    except NnefGradError as error:
        raise Broken("refused with numbers for its symbols", error.message) from error


def _compare(backward: Backward, steps: Steps, where: str) -> None:
    graph = steps.graph
    fed = _drawn(1, zip(backward.graph.input_names, backward.graph.inputs, strict=True))
    data = _drawn(2, zip(graph.labels.values(), graph.variables, strict=True))
    with np.errstate(all="ignore"):
        _check(steps, {name: fed[name] for name in graph.input_names}, data)
        found = nnef_grad.evaluate(backward, fed, data)
        wanted = nnef_grad.evaluate(steps.backward, fed, data)
    for name, array in wanted.items():
        if not _agree(found[name], array):
            raise Broken("the steps have other gradients", f"{name} at {where}")


def _check(
    steps: Steps, inputs: Mapping[str, Array], data: Mapping[str, Array]
) -> None:
    """Compares the gradients of the steps with differences. A mutation may make a function
    that is curved more than these can follow, by a little: a wrong gradient is off by more.
    """
    memory = MEMORY_OF_A_CHECK // 2
    checked = nnef_grad.check(*steps, inputs=inputs, variables=data, memory=memory)
    failed = [g for g in checked.gradients if g.verdict == "FAILED"]
    wrong = [g for g in failed if g.error > LEAST_WRONG]
    if wrong:
        raise Broken("a gradient is not that of differences", f"{wrong}")


def _agree(found: Array, wanted: Array) -> bool:
    """Whether arrays are the same, but for rounding. Where one is not finite, a choice
    after the loop may be the reason: docs/dialects.md.
    """
    if found.shape != wanted.shape:
        return False
    if not (np.isfinite(found).all() and np.isfinite(wanted).all()):
        return True
    most = TOLERANCE * (1.0 + np.abs(wanted).max(initial=0.0))
    return bool(np.abs(found - wanted).max(initial=0.0) <= most)


# ---- Values ----

_DRAWN: Mapping[str, Any] = {
    "scalar": lambda random, shape: random.standard_normal(shape),
    "integer": lambda random, shape: random.integers(0, 2, shape),
    "logical": lambda random, shape: random.integers(0, 2, shape) > 0,
}


def _drawn(seed: int, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Array]:
    """An array for each tensor, by name."""
    random = np.random.default_rng(seed)
    return {name: _DRAWN[t.dtype](random, t.shape) for name, t in tensors}
