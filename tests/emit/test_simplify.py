"""The forms that derivatives are emitted in: none holds an operation that a reader would
call needless.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checks import check_twice, document

import nnef_grad


def backward(text: str, **options: str) -> str:
    """The backward graph of a text. Its gradients are right, and so are theirs."""
    check_twice(text, **options)
    return nnef_grad.dumps(nnef_grad.differentiate(nnef_grad.loads(text), **options))  # type: ignore[arg-type]


# ---- Sums ----

SQUARED_ERROR = document(
    "x = external(shape = [4, 3]);\nw = external(shape = [3, 2]);\nb = external(shape = [1, 1]);\nt = external(shape = [4, 2]);\n"
    "p = matmul(x, w);\nq = add(p, b);\nr = sub(q, t);\ns = sqr(r);\ny = mean_reduce(s, axes = [0, 1]);",
    "x, w, b, t",
)
GROUPS = document(
    "x = external(shape = [2, 6, 4]);\ng = reshape(x, shape = [2, 2, 3, 4]);\n(m, v) = moments(g, axes = [2, 3]);\n"
    "d = sub(g, m);\nr = sqrt(v);\nn = div(d, r);\ny = exp(n);"
)


def test_a_gradient_that_is_there_is_summed() -> None:
    emitted = backward(SQUARED_ERROR)
    assert "grad_b = sum_reduce(grad_r, axes = [0, 1]);" in emitted
    assert emitted.count("sum_reduce(") == 1
    assert "grad_r = mul(single_s, r);" in emitted


def test_a_factor_is_taken_out_of_a_sum_where_nothing_else_needs_the_product() -> None:
    emitted = backward(SQUARED_ERROR, wrt="b")
    assert "sum_q = sum_reduce(r, axes = [0, 1]);" in emitted


def test_a_sum_that_serves_several_gradients_is_taken_once() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nm = external(shape = [1, 3]);\nk = variable(shape = [1, 3], label = 'k');\n"
        "b = external(shape = [1, 3]);\nd = sub(x, m);\ns = mul(d, k);\ny = add(s, b);",
        "x, m, b",
    )
    emitted = backward(text, wrt="inputs")
    assert emitted.count("sum_reduce(") == 1


def test_the_deviation_of_a_group_is_summed_as_it_is() -> None:
    emitted = backward(GROUPS)
    assert "mean_reduce(grad_d, axes = [2, 3]);" in emitted


# ---- Broadcasts ----


def test_a_choice_repeats_what_it_chooses() -> None:
    text = "x = external(shape = [2, 3]);\nr = relu(x);\ny = sum_reduce(r, axes = [1]);"
    emitted = backward(document(text))
    assert "grad_x = select(mask_r, grad_y, 0.0);" in emitted
    assert "tile" not in emitted


def test_a_row_repeats_a_column() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\np = mul(x, w);\ny = sum_reduce(p, axes = [1]);",
        "x, w",
    )
    assert "grad_x = mul(grad_y, w);" in backward(text, wrt="x")


DIFFERENCE = "x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\n"


@pytest.mark.parametrize(
    "step", ["neg(w)", "mul(w, 3.0)", "div(w, 3.0)", "relu(neg(w))", "sub(0.0, w)"]
)
def test_what_is_repeated_later_is_computed_before(step: str) -> None:
    body = f"e = exp(w);\nn = {step.replace('w', 'e')};\np = sub(x, n);\ny = mean_reduce(p, axes = [1]);"
    emitted = backward(document(f"{DIFFERENCE}{body}", "x, w"), wrt="w")
    assert "tile" not in emitted


def test_a_choice_along_other_axes_is_made_before_the_repetition() -> None:
    body = "m = lt(k, 0.0);\ne = exp(w);\ns = select(m, e, x);\ny = sum_reduce(s, axes = [1]);"
    k = "k = external(shape = [2, 1]);\n"
    emitted = backward(document(f"{DIFFERENCE}{k}{body}", "x, w, k"), wrt="w")
    assert "tile" not in emitted


def test_gradients_that_are_repeated_both_have_their_shape() -> None:
    text = document(
        f"{DIFFERENCE}d = sub(x, w);\ny = sum_reduce(d, axes = [1]);", "x, w"
    )
    emitted = backward(text)
    assert emitted.count("tile(") == emitted.count("neg(") == 1
    assert "grad_w = neg(grad_x);" in emitted


# ---- Powers ----


@pytest.mark.parametrize(
    "values",
    [
        "shape = [1, 1], value = [{}]",
        "shape = [2, 3], value = [{}]",
        "shape = [2], value = [{0}, {0}]",
    ],
)
@pytest.mark.parametrize("exponent", [3.0, 1.0, -0.5])
def test_whether_a_constant_exponent_is_zero_is_known(
    values: str, exponent: float
) -> None:
    constant = f"c = constant({values.format(exponent)});"
    body = f"x = external(shape = [2, 1]);\n{constant}\np = exp(x);\ny = pow(p, c);"
    emitted = backward(document(body))
    assert "select(" not in emitted
    assert "eq(" not in emitted


def test_what_is_chosen_has_the_shape_of_the_result() -> None:
    """A table of one row: its only index is known to be taken."""
    constant = "i = constant<integer>(shape = [3], value = [0]);"
    for indices in ("i", "0"):
        body = f"x = external(shape = [1, 2]);\n{constant}\ny = gather(x, {indices}, axis = 0);"
        graph = nnef_grad.loads(document(body))
        assert nnef_grad.check(graph, nnef_grad.differentiate(graph)).passed
    body = "x = external(shape = [2]);\nc = constant(shape = [1], value = [0.0]);\ny = pow(x, c);"
    graph = nnef_grad.loads(document(body))
    assert nnef_grad.check(graph, nnef_grad.differentiate(graph)).passed


@pytest.mark.parametrize(("chosen", "factor"), [("x", 1.0), ("2.0", 2.0)])
def test_what_a_literal_chooses_has_the_shape_of_the_result(
    chosen: str, factor: float, tmp_path: Path
) -> None:
    """It is broadcast to it, and what it was broadcast from gets the sum."""
    rules = tmp_path / "rules.nnef"
    rules.write_text(RULES_OF_MUL.format(chosen))
    body = (
        "x = external(shape = [2, 1]);\nw = external(shape = [2, 3]);\ny = mul(x, w);"
    )
    graph = nnef_grad.loads(document(body, "x, w"))
    backward = nnef_grad.differentiate(graph, rules=nnef_grad.load_rules(rules))
    feeds = {"x": np.ones((2, 1)), "w": np.ones((2, 3)), "grad_y": np.ones((2, 3))}
    (gradient, _) = nnef_grad.evaluate(backward.graph, feeds).values()
    assert gradient.tolist() == [[3.0 * factor], [3.0 * factor]]


RULES_OF_MUL = """version 1.0;
extension KHR_enable_fragment_definitions;
fragment mul_vjp( x: tensor<scalar>, y: tensor<scalar>, z: tensor<scalar>, dz: tensor<scalar> )
-> ( dx: tensor<scalar>, dy: tensor<scalar> )
{{
    dx = select(true, {}, dz);
    dy = mul(dz, x);
}}
"""


def test_a_derivative_depends_on_a_constant_exponent() -> None:
    """What is differentiated with respect to a constant later finds all of it."""
    body = "x = external(shape = [2]);\nc = constant(shape = [2], value = [3.0]);\np = exp(x);\nq = pow(p, c);\ny = mul(q, c);"
    graph = nnef_grad.loads(document(body))
    first = nnef_grad.differentiate(graph, wrt="x", with_outputs=True).graph
    second = nnef_grad.differentiate(first, wrt="c", outputs=["grad_x"])
    assert nnef_grad.check(first, second).passed


def test_other_exponents_are_looked_at() -> None:
    body = "x = external(shape = [2]);\nc = constant(shape = [2], value = [{}]);\np = exp(x);\ny = pow(p, c);"
    assert "select" in backward(document(body.format("0.0, 2.0")))
    text = document(body.format("2.0"))
    assert "log" in nnef_grad.dumps(
        nnef_grad.differentiate(nnef_grad.loads(text), wrt="c")
    )


# ---- Factors ----


NORMALIZATION = (
    "x = external(shape = [2, 3, 4, 4]);\nm = variable(shape = [1, 3], label = 'm');\nv = variable(shape = [1, 3], label = 'v');\n"
    "o = variable(shape = [1, 3], label = 'o');\n{}y = batch_normalization(x, m, v, o, {}, epsilon = 0.1);"
)
SCALE = "s = variable(shape = [1, 3], label = 's');\n"


@pytest.mark.parametrize(
    ("scale", "operand", "wrt", "count"),
    [("", "1.0", "all", 14), (SCALE, "s", "all", 16), ("", "1.0", "variables", 13), ("", "1.0", "m", 6)],
)  # fmt: skip
def test_a_batch_normalization_costs_few_operations(
    scale: str, operand: str, wrt: str, count: int
) -> None:
    text = document(NORMALIZATION.format(scale, operand))
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, wrt=wrt)
    sources = {"external", "variable"}
    assert sum(op.name not in sources for op in backward.graph.operations) == count
    assert nnef_grad.check(graph, backward).passed


# ---- Padding ----


@pytest.mark.parametrize(
    ("steps", "part"),
    [
        ("s = sqrt(e);", "axes = [1], begin = [1], end = [3]"),
        ("s = div(f, e);", "axes = [1], begin = [0], end = [2]"),
        ("l = log(e); s = mul(l, f);", "axes = [1], begin = [-2], end = [0]"),
    ],
)
def test_what_a_slice_left_out_is_padded_again(steps: str, part: str) -> None:
    names = "x = external(shape = [2, 3]);\nw = external(shape = [2, 1]);\n"
    body = f"{names}e = exp(x);\nf = exp(w);\n{steps}\ny = slice(s, {part});"
    emitted = backward(document(body, "x, w"), wrt="x")
    assert "constant(" not in emitted
    assert "select(" not in emitted


def test_what_equal_paddings_surround_is_padded_again_at_the_second_order() -> None:
    body = "s = softmax(x, axes = [1]);\nl = log(s);\ny = slice(l, axes = [1], begin = [1], end = [2]);"
    graph = nnef_grad.loads(document(f"x = external(shape = [2, 3]);\n{body}"))
    twice = nnef_grad.differentiate(nnef_grad.differentiate(graph).graph)
    assert "select(" not in nnef_grad.dumps(twice)


# ---- Detours ----

DETOUR = """x = external(shape = [2, 3, 4, 5]);
w = external(shape = [2, 3, 4, 5]);
there = {there};
back = {back};
y = mul(back, w);"""
AND_BACK = [
    ("transpose(x, axes = [1, 0, 2, 3])", "transpose(there, axes = [1, 0])"),
    ("transpose(x, axes = [1, 2, 0])", "transpose(there, axes = [2, 0, 1, 3])"),
    ("reshape(x, shape = [6, 20])", "reshape(there, shape = [2, 3, 4, 5])"),
    ("unsqueeze(x, axes = [0])", "squeeze(there, axes = [0])"),
    ("unsqueeze(x, axes = [4])", "reshape(there, shape = [2, 3, 4, 5])"),
]
ELSEWHERE = [
    ("transpose(x, axes = [1, 2, 0])", "transpose(there, axes = [1, 2, 0])"),
    ("transpose(x, axes = [1, 0])", "transpose(there, axes = [0, 1])"),
]


def detour(there: str, back: str) -> nnef_grad.Graph:
    text = document(DETOUR.format(there=there, back=back), "x, w")
    extents = {
        "transpose(there, axes = [1, 2, 0])": "4, 2, 3, 5",
        "axes = [0, 1])": "3, 2, 4, 5",
    }
    for end, shape in extents.items():
        if back.endswith(end):
            text = text.replace(
                "w = external(shape = [2, 3, 4, 5])", f"w = external(shape = [{shape}])"
            )
    return nnef_grad.loads(text)


@pytest.mark.parametrize(("there", "back"), AND_BACK)
def test_a_way_there_and_back_is_not_gone(there: str, back: str) -> None:
    graph = detour(there, back)
    backward = nnef_grad.differentiate(graph)
    names = {op.name for op in backward.graph.operations}
    assert names == {"external", "mul"}
    assert nnef_grad.check(graph, backward).passed
    lowered = nnef_grad.lower(graph, "onnx").graph
    assert {op.name for op in lowered.operations} == {"external", "mul"}


@pytest.mark.parametrize(("there", "back"), AND_BACK)
def test_a_way_to_a_tensor_that_is_named_is_gone(there: str, back: str) -> None:
    graph = detour(there, back)
    backward = nnef_grad.differentiate(graph, wrt=["there", "x"])
    assert backward.warnings == ()
    assert nnef_grad.check(graph, backward).passed


@pytest.mark.parametrize(("there", "back"), ELSEWHERE)
def test_a_way_that_leads_elsewhere_is_gone(there: str, back: str) -> None:
    graph = detour(there, back)
    backward = nnef_grad.differentiate(graph)
    assert "transpose" in {op.name for op in backward.graph.operations}
    assert nnef_grad.check(graph, backward).passed


def test_one_change_of_shape_is_in_the_place_of_several() -> None:
    """Whatever leads back on the way, or is an output. Lowering makes one of two."""
    graph = nnef_grad.loads(
        document(
            """
            x = external(shape = [2, 3, 4]);
            h = sqr(x);
            a = transpose(h, axes = [1, 0]);
            c = reshape(h, shape = [6, 4]);
            p = transpose(a, axes = [1, 0]);
            q = reshape(c, shape = [2, 3, 4]);
            u = unsqueeze(q, axes = [0]);
            v = squeeze(u, axes = [0]);
            r = add(v, h);
            s = transpose(x, axes = [1, 0, 2]);
            t = transpose(s, axes = [0, 2, 1]);
            w = reshape(h, shape = [24, 1]);
            z = squeeze(w, axes = [1]);
            """,
            "x",
            "p, r, t, z",
        )
    )
    names = ["external", "sqr", "add", "transpose", "reshape"]
    x = {"x": np.arange(24.0).reshape(2, 3, 4)}
    wanted = nnef_grad.evaluate(graph, x)
    for target in ("khronos", "tract", "onnx"):
        lowered = nnef_grad.lower(graph, target).graph
        assert [op.name for op in lowered.operations] == names
        found = nnef_grad.evaluate(lowered, x)
        assert all((found[name] == wanted[name]).all() for name in wanted)


def test_a_way_there_and_back_by_rules_of_the_users_is_gone() -> None:
    rules = nnef_grad.Rules()

    @rules.vjp("transpose")
    def transpose_vjp(emit: Any, op: Any, dy: Any) -> list[Any]:
        return [emit("mul", emit("transpose", dy, axes=op.attributes["axes"]), 2.0)]

    text = document(
        "x = external(shape = [2, 3]);\nh = transpose(x, axes = [1, 0]);\n"
        "b = transpose(h, axes = [1, 0]);\ny = neg(b);",
        "x",
    )
    backward = nnef_grad.differentiate(nnef_grad.loads(text), rules=rules)
    values = {"x": np.ones((2, 3)), "grad_y": np.ones((2, 3))}
    assert (nnef_grad.evaluate(backward.graph, values)["grad_x"] == -4.0).all()
