"""Names: those of the user stay, those that are made are free."""

from __future__ import annotations

from support.checks import check_gradients, document
from support.statements import OPERATORS, graph_of, lines

import nnef_grad


def test_the_users_names_are_never_changed() -> None:
    graph = graph_of("y_mul = exp(x);\nz = x * w + y_mul;\ny = relu(x * w);", OPERATORS)
    assert lines(graph) == [
        "y_mul = exp(x);",
        "z_mul = mul(x, w);",
        "z = add(z_mul, y_mul);",
        "y_mul_1 = mul(x, w);",
        "y = relu(y_mul_1);",
    ]


def test_names_that_are_taken_get_a_suffix_and_the_users_names_stay() -> None:
    text = document(
        "x = external(shape = [2]);\ngrad_x = exp(x);\ngrad_y = mul(grad_x, x);\ny = tanh(grad_y);"
    )
    result = check_gradients(text).backward
    assert result.seeds == {"y": "grad_y_1"}
    assert result.gradients == {"x": "grad_x_1"}
    assert "grad_x = exp(x);" in nnef_grad.dumps(result)
