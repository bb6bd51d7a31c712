"""Every model, forward and backward, through every consumer.

What a graph ought to compute is what `nnef_grad.evaluate` computes in double precision
for the graph as it is, before it is lowered for a target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

import nnef_grad
from nnef_grad.interpreter.random_values import random_values
from support.operation_models import Model
from support.runtimes.cases import TOLERANCE, Array, Case, Verdict, compare
from support.runtimes.harness import CONSUMERS, SECONDS, run

# The graph to run for a model, as text.
Make = Callable[[Model], str]
# A verdict by model and consumer.
Matrix = dict[str, dict[str, Verdict]]

SEED = 7


class Lowered(Protocol):
    """A graph as it was rewritten for a target, and data of variables that it has
    besides, by label.
    """

    @property
    def graph(self) -> nnef_grad.Graph: ...

    @property
    def data(self) -> Mapping[str, Array]: ...


# Rewrites a graph for a target, such that the consumers of the target run it.
Lower = Callable[[nnef_grad.Graph], Lowered]


class Example(NamedTuple):
    """A graph with its data, and its outputs."""

    case: Case
    expected: Mapping[str, Array]


# ---- Graphs ----


def forward(model: Model) -> str:
    """The graph of the model, as we print it."""
    return nnef_grad.dumps(nnef_grad.loads(model.text))


def backward(model: Model) -> str:
    """Its backward graph."""
    return nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(model.text)))


DIRECTIONS: dict[str, Make] = {"forward": forward, "backward": backward}


def example(
    model: Model,
    make: Make,
    lower: Lower | None = None,
    data: Mapping[str, Array] | None = None,
) -> Example:
    """A graph of a model on random values.

    Args:
        model: its values are such that its operations are defined for them.
        make: makes the graph of it, whose further inputs are normally distributed.
        lower: rewrites that graph, which keeps the names of inputs and outputs, and the
            labels of variables.
        data: values for some variables, by label, in place of random ones.
    """
    graph = nnef_grad.loads(make(model))
    inputs, variables = _values(graph, nnef_grad.loads(model.text))
    variables.update((label, rounded(array)) for label, array in (data or {}).items())
    expected = nnef_grad.evaluate(graph, inputs, variables)
    if lower is None:
        return Example(Case(nnef_grad.dumps(graph), inputs, variables), expected)
    lowered = lower(graph)
    text, fed = nnef_grad.dumps(lowered.graph), retyped(inputs, lowered.graph)
    return Example(Case(text, fed, {**variables, **lowered.data}), expected)


def retyped(inputs: Mapping[str, Array], graph: nnef_grad.Graph) -> dict[str, Array]:
    """Integers as numbers where they have become scalars."""
    scalars = {graph.names[t] for t in graph.inputs if t.dtype == "scalar"}
    return {
        name: array.astype(np.float64) if name in scalars else array
        for name, array in inputs.items()
    }


def _values(
    graph: nnef_grad.Graph, model: nnef_grad.Graph
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs by name and variables by label. Those of the model get its values: what
    they are used for shows there.
    """
    ours, theirs = random_values(graph, SEED), random_values(model, SEED)
    inputs = {**ours.inputs, **_present(theirs.inputs, ours.inputs)}
    by_label = {**ours.variables, **theirs.variables}
    labels = [
        str(operation.attributes["label"])
        for operation in graph.operations
        if operation.name == "variable"
    ]
    variables = {label: rounded(by_label[label.lower()]) for label in labels}
    return {name: rounded(array) for name, array in inputs.items()}, variables


def _present(values: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
    return {name: array for name, array in values.items() if name in names}


def rounded(array: Array) -> Array:
    """Numbers that are the same in single precision."""
    is_float = array.dtype.kind == "f"
    return array.astype(np.float32).astype(np.float64) if is_float else array


# ---- Verdicts ----


def matrix(
    models: Iterable[Model],
    make: Make,
    *,
    lower: Lower | None = None,
    consumers: Sequence[str] = tuple(CONSUMERS),
    seconds: float = SECONDS,
) -> Matrix:
    """The verdict on each consumer for a graph of each model.

    Args:
        models: the models.
        make: makes the graph of a model, such as `forward` and `backward`.
        lower: rewrites it. Where it raises an `NnefGradError`, nobody is asked.
        consumers: who is asked.
        seconds: the time limit of a graph.
    """
    examples: dict[str, Example] = {}
    table: Matrix = {}
    for model in models:
        table[model.name] = {}
        try:
            examples[model.name] = example(model, make, lower)
        except nnef_grad.NnefGradError as error:
            verdict = Verdict("not lowered", error.message)
            table[model.name] = dict.fromkeys(consumers, verdict)
    for consumer in consumers:
        for name, verdict in verdicts(consumer, examples, seconds).items():
            table[name][consumer] = verdict
    return table


def verdicts(
    consumer: str,
    examples: Mapping[str, Example],
    seconds: float = SECONDS,
    tolerance: float = TOLERANCE,
) -> dict[str, Verdict]:
    """The verdict on a consumer for each example."""
    cases = [example.case for example in examples.values()]
    return {
        name: compare(outcome, example.expected, tolerance)
        for (name, example), outcome in zip(
            examples.items(), run(consumer, cases, seconds), strict=True
        )
    }
