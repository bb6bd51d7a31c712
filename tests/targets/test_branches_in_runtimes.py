"""A branch that is not taken has no gradient in the runtimes of the targets either."""

from __future__ import annotations

import numpy as np
import pytest
from support.expressions import COMPOSITIONS, EDGES, NORM, POINTS, WRAPPINGS, model
from support.parts import PARTS, part_of
from support.runtimes import Case, consumers_of, needs
from support.runtimes.cases import Array
from support.runtimes.matrix import Example, verdicts

import nnef_grad
from nnef_grad.targets import TARGETS

# In single precision a tanh or an exponential function is off by so much, and its
# derivatives by more.
TOLERANCE = 2e-3
ZERO_ROW = np.array([[0.5, 1.5, 2.0], [0.0, 0.0, 0.0]])
# The edge of a domain at -0.0 is that of the sign of zero, which runtimes need not keep.
POINTS_IN_RUNTIMES = [*POINTS[POINTS != 0.0], 0.0]

EXPRESSIONS = [
    *(
        (WRAPPINGS[index % len(WRAPPINGS)].format(edge), np.array(POINTS_IN_RUNTIMES))
        for index, edge in enumerate([*EDGES, *COMPOSITIONS])
    ),
    (f"select({NORM} > 0.0, x / {NORM}, 0.0)", ZERO_ROW),
    (f"max_reduce(select({NORM} > 0.0, log({NORM}), 0.0), axes = [0])", ZERO_ROW),
]


def example(expression: str, x: Array, order: int, target: str) -> Example:
    """The derivative of an order in the form of a target, and what it ought to be."""
    graph = nnef_grad.loads(model(expression, x.shape))
    for _ in range(order):
        graph = nnef_grad.differentiate(graph, wrt=["x"], seed="ones").graph
    expected = nnef_grad.evaluate(graph, {"x": x})
    assert all(np.isfinite(value).all() for value in expected.values())
    lowered = nnef_grad.lower(graph, target)
    text = nnef_grad.dumps(lowered.graph)
    data = {label: np.asarray(value) for label, value in lowered.data.items()}
    return Example(Case(text, {"x": x.astype(np.float32)}, data), expected)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("target", [target for target in TARGETS if target != "nnef"])
def test_no_edge_is_seen(target: str, order: int, part: int) -> None:
    needs(*consumers_of(target))
    chosen = part_of(EXPRESSIONS, part)
    examples = {e: example(e, x, order, target) for e, x in chosen}
    for runtime in consumers_of(target):
        found = verdicts(runtime, examples, tolerance=TOLERANCE)
        wrong = {e: (v.word, v.detail) for e, v in found.items() if v.word != "ok"}
        assert not wrong, runtime
