"""The backward graphs of random graphs run in the runtimes of each target; what would be
wrong there is found and made small.
"""

from __future__ import annotations

import pytest
from support import reference
from support.random_graphs import open_compare, open_images_compare
from support.random_graphs.runtimes import failures
from support.runtimes import consumers_of, needs

from nnef_grad.targets import TARGETS
from nnef_grad.targets.facts import LACKING

SEED = 11


@pytest.mark.parametrize(
    "numbers",
    [range(8), pytest.param(range(8, 25), marks=pytest.mark.thorough)],
    ids=str,
)
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "nnef"])
def test_backward_graphs(target: str, numbers: range) -> None:
    needs(*consumers_of(target))
    assert list(failures(SEED, numbers, target)) == []


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("target", "numbers"),
    [
        ("onnx", range(6)),
        ("tract", range(6)),
        pytest.param("onnx", range(6, 40), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_symbols_and_loops(target: str, order: int, numbers: range) -> None:
    """One document for all numbers of the batch and of the steps."""
    needs(*consumers_of(target))
    assert list(open_compare.failures(SEED, numbers, target, order)) == []


@pytest.mark.parametrize(
    ("order", "numbers"),
    [
        (1, range(20)),
        (2, range(20, 24)),
        pytest.param(1, range(30, 200), marks=pytest.mark.thorough),
        pytest.param(2, range(200, 250), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_images_of_any_size(order: int, numbers: range) -> None:
    """One document for all numbers of the batch, of the height and of the width."""
    pytest.importorskip("onnxruntime")
    tally = open_images_compare.Tally()
    found = open_images_compare.failures(SEED, numbers, "onnx", order, tally)
    assert list(found) == []
    assert tally.open > 0.8 * tally.graphs
    assert tally.sessions > 0.7 * tally.graphs


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sine = reference._OPERATIONS["sin"]
    monkeypatch.setitem(reference._OPERATIONS, "sin", lambda x: sine(1.001 * x))
    first = next(open_compare.failures(SEED, range(60), "onnx"))
    assert "relative error" in first
    assert "sin(" in first


def test_what_a_runtime_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    needs(*consumers_of("khronos"))
    monkeypatch.delitem(LACKING, "clamp")
    first = next(failures(SEED, range(60), "khronos"))
    assert "khronos in session" in first
    assert "operation not implemented: clamp" in first
    assert first.count(";\n") < 6
