"""Numbers in products are merged where an operation less is left, and nowhere else."""

from __future__ import annotations

import pytest
from support.checks import check_twice, document

import nnef_grad

# Statements with input x and output y, and what the backward graph computes besides them.
MERGED = {
    "m = mean_reduce(x, axes = [1]); y = sub(x, m);": ["mean_reduce", "sub"],
    "a = mul(x, 4.0); e = exp(a); n = neg(e); y = mul(n, 0.5);": ["mul", "mul"],
    "s = sqr(x); m = mean_reduce(s, axes = [1]); y = sqrt(m);": ["div", "div", "mul"],
    # Each factor has a number.
    "s = pow(x, 2.0); m = mean_reduce(s, axes = [0, 1]); y = sqrt(m);": ["div", "div", "mul"],
    "e = exp(x); s = mul(e, e); m = mean_reduce(s, axes = [0, 1]); y = copy(m);": ["div", "mul", "mul"],
}  # fmt: skip
# The numbers that are left.
LEFT = {
    # What is multiplied with the first number is used twice.
    "n = neg(x); e = exp(n); s = sin(n); t = mul(e, s); y = mul(t, 3.0);": ["3.0"],
    # The product of the two is not exact.
    "e = exp(x); a = mul(e, 0.1); y = mul(a, 0.3);": ["0.1", "0.3"],
    "e = exp(x); a = mul(e, 2.0); y = div(a, 0.3);": ["0.15"],
    # The product of the two is beyond single precision.
    "e = exp(x); a = mul(e, 16777216.0); b = mul(a, 281474976710656.0); c = mul(b, 68719476736.0); y = copy(c);": [
        "1.9342813113834067e+25",
        "16777216.0",
    ],
    # The tensor between them might become infinite, or zero.
    "e = exp(x); a = mul(e, 1048576.0); s = sin(a); y = mul(s, 1048576.0);": [
        "1048576.0",
        "1048576.0",
    ],
    "e = exp(x); a = div(e, 1048576.0); s = sin(a); y = div(s, 1048576.0);": [
        "1048576.0",
        "1048576.0",
    ],
    "e = exp(x); a = mul(e, 1024.0); s = sin(a); y = mul(s, 1024.0);": ["1048576.0"],
}


def emitted(statements: str) -> nnef_grad.Graph:
    text = document(f"x = external(shape = [2, 3]);\n{statements}")
    check_twice(text)
    return nnef_grad.differentiate(nnef_grad.loads(text)).graph


@pytest.mark.parametrize("statements", MERGED)
def test_what_is_merged(statements: str) -> None:
    found = [op.name for op in emitted(statements).operations if op.origin is not None]
    assert sorted(found) == MERGED[statements]


@pytest.mark.parametrize("statements", LEFT)
def test_what_is_left(statements: str) -> None:
    """In the order of the numbers."""
    operations = [op for op in emitted(statements).operations if op.origin is not None]
    numbers = [o for op in operations for o in op.operands if isinstance(o, float)]
    assert sorted(map(str, numbers)) == LEFT[statements]


# Statements with input x and variable w, and the operations of the gradient of the sum of
# all elements of y, besides those of the forward graph.
OF_SUMS = {
    "y = sigmoid(x);": ["mul", "sub"],
    "h = mul(x, 3.0); y = tanh(h);": ["mul", "sqr", "sub"],
    "s = sqr(x); n = neg(s); m = mean_reduce(n, axes = [1]); y = squeeze(m, axes = [1]);": ["mul"],
    "e = exp(x); y = mul(e, 2.0);": ["mul"],
    "p = gt(x, 0.0); l = log(x); m = mul(x, l); y = select(p, m, 0.0);": ["add", "div"],
}  # fmt: skip


@pytest.mark.parametrize("statements", OF_SUMS)
def test_no_tensor_of_ones_is_a_factor(statements: str) -> None:
    text = document(f"x = external(shape = [2, 3]);\n{statements}")
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, seed="ones")
    assert nnef_grad.check(graph, backward).passed
    emitted = [op.name for op in backward.graph.operations if op.origin is not None]
    assert sorted(emitted) == OF_SUMS[statements]
    assert "constant" not in {op.name for op in backward.graph.operations}


def test_a_copy_in_place_of_a_product_is_what_is_read_again() -> None:
    text = document(
        "x = external(shape = [2]);\nw = external(shape = [2]);\ny = mul(x, w);",
        inputs="x, w",
    )
    graph = nnef_grad.differentiate(nnef_grad.loads(text), seed="ones").graph
    again = nnef_grad.loads(str(graph))
    types = [[(op.name, op.dtype) for op in g.operations] for g in (graph, again)]
    assert types[0] == types[1]
    assert ("copy", "scalar") in types[0]


def test_numbers_times_ones_are_constants() -> None:
    text = document(
        "x = external(shape = [2, 3]);\ny = matmul(x, x, transposeB = true);\nz = mul(y, 3.0);",
        outputs="z",
    )
    backward = nnef_grad.differentiate(nnef_grad.loads(text), seed="ones")
    assert "grad_y = constant(shape = [2, 2], value = [3.0]);" in str(backward.graph)
    assert "mul" not in {op.name for op in backward.graph.operations}


def test_ones_stay_where_they_are_broadcast_or_summed() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [2]);\ny = mul(x, w);",
        inputs="x, w",
    )
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, seed="ones")
    assert nnef_grad.check(graph, backward).passed
    assert "grad_x = mul(grad_y, w);" in str(backward.graph)
    assert "grad_w_sum = sum_reduce(x, axes = [1]);" in str(backward.graph)


def test_a_half_of_a_derivative_gets_a_forward_tensor_that_is_a_gradient() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\ne = sin(x);\ny = mul(e, w);",
        inputs="x, w",
    )
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, wrt=["w"], seed="ones")
    halves = nnef_grad.split(graph, backward)
    assert halves.saved == ("saved_e",)
    assert [op.name for op in halves.backward.operations] == ["external", "copy"]
