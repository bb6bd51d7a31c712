"""Random nodes of ONNX: what is read of them computes what ONNX Runtime does, and has the
gradients of differences, or is refused.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import nnef_grad

if not (find_spec("onnx") and find_spec("onnxruntime")):
    pytest.skip("the tests of ONNX files run them", allow_module_level=True)
compare: Any = import_module("support.random_nodes.compare")
SEED = 1


def outcomes(numbers: range) -> Counter[str]:
    """How many there were of each kind; none has failed."""
    found: Counter[str] = Counter()
    for number in numbers:
        outcome = compare.compare(SEED, number, with_gradient=number % 3 == 0)
        assert not outcome.failed, outcome.report()
        found[outcome.kind] += 1
    return found


def test_nodes_are_right_or_refused() -> None:
    found = outcomes(range(150))
    assert found["right"] > 50 > found["refused"]


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(150, 3150, 500))
def test_more_nodes(first: int) -> None:
    outcomes(range(first, first + 500))


def test_a_wrong_forward_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = nnef_grad.evaluate

    def wrong(*operands: Any, **options: Any) -> dict[str, Any]:
        results = evaluate(*operands, **options)
        return {n: np.asarray(a) * 1.01 + 0.001 for n, a in results.items()}

    monkeypatch.setattr(nnef_grad, "evaluate", wrong)
    with pytest.raises(AssertionError, match="wrong forward"):
        outcomes(range(20))
