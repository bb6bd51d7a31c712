"""Expressions: what is computed as a graph is built, and what becomes operations."""

from __future__ import annotations

import pytest
from support.statements import FRAGMENTS, OPERATORS, graph_of, lines, round_trip

import nnef_grad


@pytest.mark.parametrize(
    ("expression", "written"),
    [
        ("x + w", ["y = add(x, w);"]),
        ("x - w - x", ["y_sub = sub(x, w);", "y = sub(y_sub, x);"]),
        ("x + w * x", ["y_mul = mul(w, x);", "y = add(x, y_mul);"]),
        ("(x + w) * x", ["y_add = add(x, w);", "y = mul(y_add, x);"]),
        ("-x ^ 2.0", ["y_pow = pow(x, 2.0);", "y = neg(y_pow);"]),
        ("x ^ -2.0", ["y = pow(x, -2.0);"]),
        ("x ^ 2.0 ^ 3.0", ["y_pow = pow(x, 2.0);", "y = pow(y_pow, 3.0);"]),
        ("x * (2.0 + 3.0 * 2.0)", ["y = mul(x, 8.0);"]),
        ("x * scalar(7 / 2)", ["y = mul(x, 3.0);"]),
        ("x * scalar(-7 / 2)", ["y = mul(x, -3.0);"]),
        ("x * 2.0 ^ 3.0", ["y = mul(x, 8.0);"]),
        ("x * (1.0 if 1 < 2 && !false else 0.0)", ["y = mul(x, 1.0);"]),
        ("x * (1.0 if (3 in [1, 2]) || 1 == 2 else 0.5)", ["y = mul(x, 0.5);"]),
        ("x * scalar(length_of([1, 2, 3]))", ["y = mul(x, 3.0);"]),
        ("x * scalar(length_of('abc' + 'd' * 2))", ["y = mul(x, 5.0);"]),
        ("reshape(x, shape = [1] * 2 + [6])", ["y = reshape(x, shape = [1, 1, 6]);"]),
        ("reshape(x, shape = [for i in [2, 3], j in [3, 2] yield i * j / 6] + [-1])",
         ["y = reshape(x, shape = [1, 1, -1]);"]),
        ("sum_reduce(x, axes = [for i in range_of([5, 6, 7]) if i < 2 yield i])",
         ["y = sum_reduce(x, axes = [0, 1]);"]),
        ("sum_reduce(x, axes = [3, 1, 0][1:])", ["y = sum_reduce(x, axes = [1, 0]);"]),
        ("add_n([x, w] + [x])", ["y = add_n([x, w, x]);"]),
        ("select(x < w, x, w)", ["y_lt = lt(x, w);", "y = select(y_lt, x, w);"]),
        ("select(!(x < w), x, w)",
         ["y_not_lt = lt(x, w);", "y_not = not(y_not_lt);", "y = select(y_not, x, w);"]),
    ],
)  # fmt: skip
def test_an_expression(expression: str, written: list[str]) -> None:
    graph = graph_of(f"y = {expression};", OPERATORS)
    assert lines(graph) == written
    round_trip(graph)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("x * (1 + 2.0)", "'+' does not apply to integer and scalar"),
        ("x * scalar(1 / 0)", "'/' has no value here"),
        ("x * [1.0][1]", "index 1 is out of range: there are 1 items"),
        ("x * (1.0 if 2 else 0.0)", "this must be logical, but is integer"),
        ("x * scalar('a')", "'a' is not the text of a scalar"),
        (f"reshape(x, shape = [integer('{'9' * 5000}')])", "'integer' has no value here: it is too large"),
        ("x * scalar(shape_of(x)[0])", "shape_of is deprecated"),
        ("[for i in [1], j in [1, 2] yield x][0]", "the arrays that are iterated together differ in length"),
        ("x * (0.0 - 1.0) ^ 0.5", "'^' has no value here"),
    ],
)  # fmt: skip
def test_an_expression_without_value(expression: str, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        graph_of(f"y = {expression};", OPERATORS)
    assert caught.value.message.startswith(message)
    assert caught.value.span is not None


def test_a_name_for_a_name_is_a_copy() -> None:
    assert lines(graph_of("z = relu(x);\ny = z;", OPERATORS)) == [
        "z = relu(x);",
        "y = copy(z);",
    ]


# ---- Branches with several results, as Khronos' converter writes the steps of an LSTM ----

STEPS = """fragment steps( x: tensor<scalar>, w: tensor<scalar>, n: integer )
-> ( xn: tensor<scalar>, wn: tensor<scalar> )
{
    x1 = tanh(x * w);
    w1 = x + w;
    xn, wn = steps(x1, w1, n = n - 1) if n > 1 else (x1, w1);
}
"""


def test_a_branch_is_a_call_with_several_results() -> None:
    statements = "a, b = steps(x, w, n = 2) if true else (x, w);\ny = a * b;"
    graph = graph_of(statements, FRAGMENTS + OPERATORS + STEPS)
    assert lines(graph) == [
        "a_x1_mul = mul(x, w);",
        "a_x1 = tanh(a_x1_mul);",
        "a_w1 = add(x, w);",
        "a_xn_x1_mul = mul(a_x1, a_w1);",
        "a = tanh(a_xn_x1_mul);",
        "b = add(a_x1, a_w1);",
        "y = mul(a, b);",
    ]
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert [gradient.verdict for gradient in checked.gradients] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("statements", "written"),
    [
        ("[a, y] = split(x, axis = 0, ratios = [1, 1]) if true else [x, x];",
         ["[a, y] = split(x, axis = 0, ratios = [1, 1]);"]),
        ("[a, y] = split(x, axis = 0, ratios = [1, 1]) if false else [x, w];",
         ["a = copy(x);", "y = copy(w);"]),
        ("a, y = (x, w) if false else steps(x, w, n = 1) if true else (w, x);",
         ["a_x1_mul = mul(x, w);", "a = tanh(a_x1_mul);", "y = add(x, w);"]),
    ],
)  # fmt: skip
def test_a_branch_is_chosen(statements: str, written: list[str]) -> None:
    graph = graph_of(statements, FRAGMENTS + OPERATORS + STEPS)
    assert lines(graph) == written


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("y = steps(x, w, n = 1) if true else (x, w);", "'y' is one name for 2 results"),
        ("y = split(x, axis = 0, ratios = [1, 1]) if true else [x, x];",
         "'y' is one name for the results of 'split'"),
        ("y = relu(steps(x, w, n = 1) if true else x);", "'steps' does not return one tensor"),
        ("y = relu(split(x, axis = 0, ratios = [1, 1]) if true else [x, x]);",
         "'split' does not return one tensor"),
        ("a, y = steps(x, w, n = 1) if true else x;", "the branches have different types"),
        ("y = external(shape = [1]) if true else x;", "external cannot be used in an expression"),
    ],
)  # fmt: skip
def test_results_of_branches_need_names(statements: str, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        graph_of(statements, FRAGMENTS + OPERATORS + STEPS)
    assert caught.value.message.startswith(message)
