"""tract writes parameters of up to eight elements into its documents, as numbers: who trains one
is told.
"""

from __future__ import annotations

import pytest

import nnef_grad
from nnef_grad import training

STATEMENTS = {
    "a sum": "z = matmul(x, w); t = unsqueeze(z, axes = [0]); y = t + [[[0.5, -1.0]]];",
    "a product with a bias": "y = linear(x, v, [[0.5, -1.0]]);",
    "one number": "y = matmul(x, w) + 0.25;",
}
OTHERS = {
    "zeros": "y = matmul(x, w) + [[0.0, 0.0]];",
    "what is no product": "y = relu(matmul(x, w)) + 0.25;",
    "a variable": "b = variable(shape = [1, 2], label = 'b'); y = linear(x, v, b);",
}
HEAD = "version 1.0;\nextension tract_registry tract_core;\n"


def warnings(statements: str, head: str = HEAD) -> list[str]:
    text = f"""{head}graph net( x ) -> ( y )
{{
    x = external(shape = [4, 3]);
    w = variable(shape = [3, 2], label = 'w');
    v = variable(shape = [2, 3], label = 'v');
    {statements}
}}
"""
    step = training.training_step(
        nnef_grad.loads(text), loss="mean_squared_error", optimizer="sgd"
    )
    return [w for w in step.warnings if "nnef-extern-all-constants" in w]


@pytest.mark.parametrize("statements", STATEMENTS.values(), ids=STATEMENTS)
def test_numbers_that_are_added_to_products(statements: str) -> None:
    (warning,) = warnings(statements)
    assert "the numbers that 'y' adds are not trained" in warning


@pytest.mark.parametrize("statements", OTHERS.values(), ids=OTHERS)
def test_other_numbers(statements: str) -> None:
    assert warnings(statements) == []


def test_numbers_of_the_standard() -> None:
    head = "version 1.0;\nextension KHR_enable_operator_expressions;\n"
    assert warnings(STATEMENTS["one number"], head) == []
