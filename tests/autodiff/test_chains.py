"""A backward graph grows as the chain of operations that it is the derivative of, and so
does the work: no rewrite follows a chain to its beginning for each of its operations.
"""

from __future__ import annotations

import sys

import pytest

import nnef_grad

# What is there before the first step.
BEFORE = """
    x = external(shape = [4]);
    w = variable(shape = [1], label = 'w');
    b = variable(shape = [1], label = 'b');
    v = variable(shape = [1, 4], label = 'v');
    k = add(x, b);
    h0 = mul(k, 1.5);
"""

# A step from h to the next h; the other tensors are its own.
STEPS = {
    "product": "h' = mul(h, w);",
    "number": "h' = mul(h, 2.0);",
    "negation": "h' = neg(h);",
    "quotient": "h' = div(h, w);",
    "divisor": "h' = div(w, h);",
    "difference": "h' = sub(2.0, h);",
    "addend twice": "h' = add(h, h);",
    "factor twice": "h' = mul(h, h);",
    "affine": "m = mul(h, w); h' = add(m, b);",
    "halves": "s = mul(h, 0.5); u = mul(s, s); n = neg(u); q = div(n, 3.0); h' = add(q, s);",
    "root": "h' = sqrt(h);",
    "power": "h' = pow(h, w);",
    "mean": "m = mean_reduce(h, axes = [0]); h' = mul(h, m);",
    "deviation": "s = sum_reduce(h, axes = [0]); d = div(s, 4.0); h' = sub(h, d);",
    "mean of squares": "q = sqr(h); m = mean_reduce(q, axes = [0]); r = sqrt(m); h' = sub(h, r);",
    "norm": "q = sqr(h); s = sum_reduce(q, axes = [0]); n = sqrt(s); h' = div(h, n);",
    "norm with epsilon": "h' = l2_normalization(h, axes = [0], epsilon = 0.001);",
    "norm that is positive": "q = sqr(h); s = sum_reduce(q, axes = [0]); n = sqrt(s); c = gt(n, 0.0); d = div(h, n); h' = select(c, d, 0.0);",
    "layer normalization": "m = mean_reduce(h, axes = [0]); d = sub(h, m); q = sqr(d); s = mean_reduce(q, axes = [0]); e = add(s, 0.001); r = rsqrt(e); n = mul(d, r); k = mul(n, w); h' = add(k, b);",
    "batch normalization": "r = reshape(h, shape = [1, 4]); n = batch_normalization(r, v, v, v, v, epsilon = 0.01); h' = reshape(n, shape = [4]);",
    "softmax": "m = max_reduce(h, axes = [0]); d = sub(h, m); e = exp(d); s = sum_reduce(e, axes = [0]); h' = div(e, s);",
    "logarithm of softmax": "s = softmax(h, axes = [0]); h' = log(s);",
    "part of a softmax": "s = softmax(h, axes = [0]); l = log(s); t = slice(l, axes = [0], begin = [0], end = [1]); h' = mul(h, t);",
    "gate": "f = mul(h, w); i = sigmoid(f); g = tanh(f); p = mul(i, g); q = mul(h, i); c = add(p, q); t = tanh(c); h' = mul(i, t);",
    "branch": "c = gt(h, 0.0); s = sqrt(h); h' = select(c, s, 0.0);",
    "branch that is not taken": "c = gt(h, 0.5); e = not(c); s = sqrt(h); h' = select(e, 0.0, s);",
    "branch of two conditions": "c = gt(h, 0.5); d = lt(h, 0.9); e = and(c, d); s = sqrt(h); h' = select(e, s, 0.0);",
    "branch in a branch": "c = gt(h, 0.5); d = lt(h, w); l = log(h); r = rcp(h); s = select(d, l, r); q = sqrt(h); h' = select(c, s, q);",
    "clamped logarithm": "l = log(h); h' = clamp(l, -5.0, 5.0);",
    "extrema": "l = log(h); r = sqrt(h); a = max(l, r); h' = min(a, h);",
    "slice and padding": "s = slice(h, axes = [0], begin = [1], end = [3]); m = mul(s, w); h' = pad(m, padding = [(1, 1)]);",
    "slice of a root": "s = sqrt(h); t = slice(s, axes = [0], begin = [1], end = [3]); h' = pad(t, padding = [(1, 1)]);",
    "residual slice": "s = slice(h, axes = [0], begin = [1], end = [3]); l = log(s); p = pad(l, padding = [(1, 1)]); h' = add(h, p);",
    "product of paddings": "s = slice(h, axes = [0], begin = [1], end = [3]); u = pad(s, padding = [(1, 1)]); p = mul(u, h); h' = div(p, w);",
    "layers": "[p, q, r, s] = unstack(h, axis = 0); e = sqrt(p); f = log(q); h' = stack([e, f, r, s], axis = 0);",
    "repetition": "s = sum_reduce(h, axes = [0]); t = tile(s, repeats = [4]); h' = mul(t, w);",
    "window": "u = box(h, size = [3], normalize = true); h' = sqrt(u);",
}  # fmt: skip


def chain(step: str, count: int) -> nnef_grad.Graph:
    return nnef_grad.loads(
        f"version 1.0;\ngraph net( x ) -> ( h{count} )\n{{{BEFORE}"
        + "\n".join(numbered(step, number) for number in range(count))
        + "\n}\n"
    )


def numbered(step: str, number: int) -> str:
    """A step with names of its own."""
    before = {"x", "w", "b", "v"}
    result = ""
    for word in step.replace("h'", "#").replace("(", "( ").replace("[", "[ ").split():
        stem = word.rstrip(",);]")
        is_own = len(stem) == 1 and stem.isalpha() and stem not in before
        result += f"{stem}{number}{word[len(stem) :]} " if is_own else f"{word} "
    return result.replace("#", f"h{number + 1}")


def operations(step: str, count: int) -> int:
    return len(nnef_grad.differentiate(chain(step, count)).graph.operations)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_the_graph_grows_as_the_chain(step: str) -> None:
    assert operations(step, 40) <= 2 * operations(step, 20) + 4


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_the_work_grows_as_the_chain(step: str) -> None:
    """In calls of functions, from the same beginning."""
    calls(step, 3)
    assert calls(step, 120) - calls(step, 60) <= 1.15 * (
        calls(step, 80) - calls(step, 20)
    )


def calls(step: str, count: int) -> int:
    graph, found = chain(step, count), 0

    def count_calls(_: object, event: str, __: object) -> None:
        nonlocal found
        found += event in ("call", "c_call")

    sys.setprofile(count_calls)
    try:
        nnef_grad.differentiate(graph)
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_calls_are_not_nested_as_deeply_as_the_chain(step: str) -> None:
    graph, limit = chain(step, 150), sys.getrecursionlimit()
    sys.setrecursionlimit(depth() + 120)
    try:
        nnef_grad.differentiate(graph)
    finally:
        sys.setrecursionlimit(limit)


def depth() -> int:
    """How deeply the calls are nested."""
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame, found = frame.f_back, found + 1
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_long_chain(step: str) -> None:
    assert operations(step, 1500) <= 3 * operations(step, 500) + 12
