"""What is equal where a condition is known, and what is not."""

from __future__ import annotations

import pytest

import nnef_grad
from nnef_grad.emit.assumed import are_equal_where

# What follows from `c`, the condition, and `m`, of which it is made; the other value is `x`.
EQUAL = {
    "put": "y = select(m, sin(x), x);",
    "put in another shape": "y = reshape(select(reshape(m, shape = [12]), 0.0, reshape(x, shape = [12])), shape = [3, 4]);",
    "put twice": "p = select(m, 0.0, x); y = select(m && (x > 0.0), exp(p), p);",
    "not the others": "y = select(!m, x, sin(x));",
    "a sum": "y = x + sum_reduce(select(m, exp(x), 0.0), axes = [0, 1]);",
    "copies": "y = copy(copy(x));",
}
OTHER = {
    "a function": "y = select(m, x, sin(x));",
    "another mask": "y = select(x < 1.0, sin(x), x);",
    "also outside": "y = select(m || (x < -1.0), sin(x), x);",
    "a sum of others": "y = x + sum_reduce(select(m, exp(x), 1.0), axes = [0, 1]);",
    "a mean of ones": "y = x + sum_reduce(select(m, 0.0, 1.0), axes = [0, 1]);",
    "no gradient": "stop_gradient = copy(x); y = select(m, sin(x), stop_gradient);",
    "a number of each": "y = x * select(m, 0.0, 2.0);",
}
# Conditions, and the values at which no element of `m` is true.
CONDITIONS = {
    "any": ("any_reduce(m, axes = [0, 1])", False),
    "not any": ("!any_reduce(m, axes = [0, 1])", True),
    "all others": ("all_reduce(!m, axes = [0, 1])", True),
    "a number": ("sum_reduce(select(m, 1.0, 0.0), axes = [0, 1]) > 0.0", False),
    "no number": ("sum_reduce(select(m, 1.0, 0.0), axes = [0, 1]) == 0.0", True),
    "any of two": ("any_reduce(m || (x > 9.0), axes = [0, 1])", False),
}
# These say less of `m`.
LESS = {
    "all": ("all_reduce(m, axes = [0, 1])", False),
    "any of both": ("any_reduce(m && (x > 9.0), axes = [0, 1])", False),
    "some": ("any_reduce(m, axes = [0, 1])", True),
    "a row": ("any_reduce(m, axes = [1])", True),
    "a mean": ("mean_reduce(select(m, 1.0, -1.0), axes = [0, 1]) > 0.0", False),
}


def is_seen(condition: str, value: bool, statements: str) -> bool:
    """Whether y is seen to be x where a condition has a value."""
    graph = nnef_grad.loads(
        f"""version 1.0; extension KHR_enable_operator_expressions;
        graph g( x ) -> ( y, c ) {{
            x = external(shape = [3, 4]);
            m = x > 1.0;
            c = {condition};
            {statements}
        }}"""
    )
    names = graph.tensors
    pairs = [(names["x"], names["y"])]
    return are_equal_where(names["c"], value, graph.operations, pairs)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str, condition: str) -> None:
    assert is_seen(*CONDITIONS[condition], EQUAL[name])


@pytest.mark.parametrize("name", OTHER)
def test_other(name: str) -> None:
    assert not is_seen(*CONDITIONS["any"], OTHER[name])


@pytest.mark.parametrize("condition", LESS)
def test_conditions_that_say_less(condition: str) -> None:
    assert not is_seen(*LESS[condition], EQUAL["put"])
