"""Derivatives for each example of random graphs and of all models, against loops."""

from __future__ import annotations

import pytest
from support import per_example_graphs as graphs
from support.all_models import all_models

import nnef_grad

SEED = 1
# Convolutions of what is shared with biases of examples, a choice that is known.
ODD = (6, 271, 663)


@pytest.mark.parametrize("number", [*range(40), *ODD])
def test_random_graphs(number: int) -> None:
    """And what comes out, differentiated again."""
    ((_, word, _),) = graphs.run(SEED, range(number, number + 1), order=2)
    assert not word.startswith("failed"), word
    if word != "equal":
        pytest.skip(word)


def test_most_random_graphs_are_equal() -> None:
    found = [word for _, word, _ in graphs.run(SEED, range(40), order=1)]
    assert found.count("equal") > 20


MODELS = all_models()


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    graph = MODELS[name]()
    if not graphs.has_batch(graph):
        pytest.skip("it has no batch")
    try:
        error = graphs.compare_model(graph)
    except (nnef_grad.NoDerivativeError, nnef_grad.UsageError) as refusal:
        pytest.skip(refusal.message)
    assert error <= graphs.TOLERANCE
