"""The interface of a backward graph, and how broadcasts are undone: what design
documents call the contract.
"""

from __future__ import annotations

import os
import subprocess
import sys

import nnef
import numpy as np
import pytest
import torch
from support import reference
from support.checks import check_gradients, document

import nnef_grad
from nnef_grad import NoDerivativeError, UsageError

F64 = torch.float64
TWO_LAYERS = document(
    "x = external(shape = [2, 3]);\nw = variable(shape = [1, 3], label = 'w');\nk = variable(shape = [2, 3], label = 'k');\n"
    "h = mul(x, w);\ns = exp(h);\ny = mul(s, k);\nz = tanh(h);",
    outputs="y, z",
)


def backward(text: str, **options: object) -> nnef_grad.Backward:
    return nnef_grad.differentiate(nnef_grad.loads(text), **options)  # type: ignore[arg-type]


def names(graph: nnef_grad.Graph) -> list[str]:
    return [op.name for op in graph.operations]


def signature(graph: nnef_grad.Graph) -> tuple[list[str], list[str]]:
    return [*graph.input_names], [*graph.output_names]


# ---- The interface ----


def test_inputs_are_those_of_the_forward_graph_and_a_seed_for_each_output() -> None:
    result = backward(TWO_LAYERS)
    assert signature(result.graph) == (
        ["x", "grad_y", "grad_z"],
        ["grad_x", "grad_w", "grad_k"],
    )
    assert result.graph.name == "net_backward"
    assert result.seeds == {"y": "grad_y", "z": "grad_z"}
    assert result.gradients == {"x": "grad_x", "w": "grad_w", "k": "grad_k"}
    assert result.warnings == ()


def test_externals_are_declared_in_the_order_of_the_signature() -> None:
    text = document(
        "b = external(shape = [2]);\na = external(shape = [2]);\ny = add(a, b);", "a, b"
    )
    assert [*backward(text).graph.tensors][:3] == ["a", "b", "grad_y"]


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ("all", ["x", "w", "k"]),
        ("inputs", ["x"]),
        ("variables", ["w", "k"]),
        ("w", ["w"]),
        (["k", "x"], ["k", "x"]),
        (["h"], ["h"]),
        (["s", "w", "h"], ["s", "w", "h"]),
        (["y"], ["y"]),
        (["z", "y", "x"], ["z", "y", "x"]),
    ],
)
def test_wrt(wrt: str | list[str], expected: list[str]) -> None:
    assert list(check_gradients(TWO_LAYERS, wrt=wrt).gradients) == expected


@pytest.mark.parametrize("outputs", [["y"], ["z"], ["z", "y"]])
def test_chosen_outputs(outputs: list[str]) -> None:
    checked = check_gradients(TWO_LAYERS, outputs=outputs)
    assert list(checked.backward.seeds) == outputs


@pytest.mark.parametrize("outputs", [None, ["y"], ["z"]])
def test_seed_of_ones_is_the_gradient_of_the_sum(outputs: list[str] | None) -> None:
    result = backward(TWO_LAYERS, seed="ones", outputs=outputs)
    assert result.seeds == {}
    assert signature(result.graph)[0] == ["x"]
    feeds, variables = reference.random_feeds(
        TWO_LAYERS, torch.Generator().manual_seed(1)
    )
    computed = reference.outputs(nnef_grad.dumps(result), feeds, variables)
    values = reference.evaluate(TWO_LAYERS, feeds, variables)
    seeds = {name: torch.ones_like(values[name]) for name in (outputs or ["y", "z"])}
    expected = reference.gradients(TWO_LAYERS, feeds, variables, ["x", "w", "k"], seeds)
    for actual, wanted in zip(computed, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=0.0)


def test_forward_outputs_on_demand() -> None:
    result = backward(TWO_LAYERS, with_outputs=True)
    assert signature(result.graph)[1] == ["grad_x", "grad_w", "grad_k", "y", "z"]
    feeds, variables = reference.random_feeds(
        TWO_LAYERS, torch.Generator().manual_seed(1)
    )
    seeds = {name: torch.ones(2, 3, dtype=F64) for name in ("grad_y", "grad_z")}
    computed = reference.outputs(nnef_grad.dumps(result), {**feeds, **seeds}, variables)
    for actual, wanted in zip(
        computed[3:], reference.outputs(TWO_LAYERS, feeds, variables), strict=True
    ):
        assert torch.equal(actual, wanted)


def test_only_what_the_gradients_need_is_kept() -> None:
    result = backward(TWO_LAYERS, wrt="k", outputs=["y"])
    assert names(result.graph) == [
        "external",
        "external",
        "variable",
        "mul",
        "exp",
        "mul",
    ]


def test_an_unused_input_stays_in_the_signature() -> None:
    text = document(
        "x = external(shape = [2]);\nw = external(shape = [2]);\ny = add(x, w);", "x, w"
    )
    assert signature(backward(text, wrt="x").graph)[0] == ["x", "w", "grad_y"]


def test_a_tensor_without_influence_gets_zeros_and_a_warning() -> None:
    text = document(
        "x = external(shape = [2]);\nw = external(shape = [3, 1]);\nf = floor(w);\ny = exp(x);",
        "x, w",
    )
    checked = check_gradients(text)
    assert checked.gradients["w"].tolist() == [[0.0], [0.0], [0.0]]
    assert checked.backward.warnings == (
        "'w' does not influence 'y': its gradient is zeros",
    )


def test_a_zero_derivative_gives_zeros_and_a_warning() -> None:
    checked = check_gradients(
        document("x = external(shape = [2]);\nf = round(x);\ny = exp(f);")
    )
    assert checked.gradients["x"].tolist() == [0.0, 0.0]
    assert checked.backward.warnings == (
        "'x' does not influence 'y': its gradient is zeros",
    )


def test_a_gradient_that_is_an_input_or_doubled_goes_through_copy() -> None:
    text = document(
        "x = external(shape = [2]);\nw = external(shape = [2]);\ny = add(x, w);", "x, w"
    )
    result = check_gradients(text).backward
    assert names(result.graph) == ["external", "external", "external", "copy", "copy"]


def test_two_gradients_that_are_one_tensor_are_computed_once() -> None:
    text = document(
        "x = external(shape = [2]);\nw = external(shape = [2]);\ns = add(x, w);\ny = exp(s);",
        "x, w",
    )
    result = check_gradients(text).backward
    assert names(result.graph)[-3:] == ["exp", "mul", "copy"]


def test_a_tensor_that_only_a_gradient_is_made_of_has_its_name() -> None:
    text = document(
        "x = external(shape = [2]);\nzeros = constant(shape = [2], value = [0.0]);\nt = floor(x);\ny = add(t, zeros);"
    )
    result = backward(text)
    assert names(result.graph) == ["external", "external", "constant"]


def test_an_output_of_the_model_that_is_a_copy_stays_one() -> None:
    text = document("x = external(shape = [2]);\nh = floor(x);\ny = copy(h);")
    assert "y = copy(h);" in nnef_grad.dumps(backward(text, with_outputs=True))


@pytest.mark.parametrize("step", ["sign", "floor", "ceil", "round"])
def test_both_sides_of_a_step(step: str) -> None:
    text = document(f"x = external(shape = [3]);\nt = {step}(x);\ny = sin(t);")
    checked = check_gradients(text, wrt=["x", "t"])
    assert checked.gradients["x"].abs().max() == 0.0
    assert checked.gradients["t"].abs().max() > 0.0


def test_logical_and_integer_inputs_have_no_gradient() -> None:
    text = document(
        "x = external(shape = [2]);\nm = external<logical>(shape = [2]);\ni = external<integer>(shape = [3]);\n"
        "s = select(m, x, 0.0);\ny = gather(s, i);",
        "x, m, i",
    )
    result = check_gradients(text).backward
    assert result.gradients == {"x": "grad_x"}
    assert signature(result.graph)[0] == ["x", "m", "i", "grad_y"]


def test_the_head_of_the_text_tells_which_tensor_is_what() -> None:
    text = nnef_grad.dumps(backward(TWO_LAYERS))
    assert "#   grad_z: input, the gradient of z\n" in text
    assert "#   grad_k: the gradient with respect to k\n" in text


def test_each_derivative_stands_under_the_forward_operation() -> None:
    text = nnef_grad.dumps(backward(TWO_LAYERS))
    assert "\n    # y = mul(s, k)\n    grad_s = mul(grad_y, k);\n" in text


# ---- Broadcasts ----


def test_a_row_that_was_repeated_over_four_rows_is_summed() -> None:
    text = document(
        "a = external(shape = [1, 3]);\nb = external(shape = [4, 3]);\nc = mul(a, b);",
        "a, b",
        "c",
    )
    b = torch.tensor([[4.0, 5, 6], [7, 8, 9], [1, 2, 3], [4, 5, 6]], dtype=F64)
    ones = torch.ones(4, 3, dtype=F64)
    checked = check_gradients(text, feeds={"b": b}, seeds={"c": ones})
    assert checked.gradients["a"].tolist() == [[16.0, 20.0, 24.0]]
    assert checked.backward.reductions == 1
    assert checked.backward.broadcasts == {"grad_a": (("a", "c"),)}


def test_a_singular_bias_is_summed_over_both_axes() -> None:
    text = document(
        "x = external(shape = [4, 3]);\nw = variable(shape = [2, 3], label = 'w');\nb = variable(shape = [1, 1], label = 'b');\n"
        "y = linear(x, w, b);"
    )
    assert (
        "grad_b = sum_reduce(grad_y, axes = [0, 1]);"
        in check_gradients(text, shapes=False).text
    )


def test_rank_one_against_rank_four_is_summed_over_three_axes_and_squeezed() -> None:
    text = document(
        "x = external(shape = [2, 3, 4, 5]);\nw = external(shape = [2]);\ny = add(x, w);",
        "x, w",
    )
    emitted = check_gradients(text).text
    assert "grad_w_sum = sum_reduce(grad_y, axes = [1, 2, 3]);" in emitted
    assert "grad_w = squeeze(grad_w_sum, axes = [1, 2, 3]);" in emitted


def test_a_missing_axis_of_extent_one_is_squeezed_and_not_summed() -> None:
    text = document(
        "x = external(shape = [2, 1]);\nw = external(shape = [2]);\ny = mul(x, w);",
        "x, w",
    )
    result = check_gradients(text).backward
    assert result.reductions == 0
    assert "sum_reduce" not in names(result.graph)


def test_nothing_is_emitted_where_nothing_was_broadcast() -> None:
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [2, 3]);\ny = mul(x, w);",
        "x, w",
    )
    result = check_gradients(text).backward
    assert names(result.graph) == ["external", "external", "external", "mul", "mul"]
    assert result.reductions == 0


def test_the_sum_is_taken_before_the_factor_that_is_constant_along_it() -> None:
    text = document("x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\nk = external(shape = [1, 3]);\n"
                    "s = sub(x, w);\ny = mul(s, k);", "x, w, k")  # fmt: skip
    result = check_gradients(text, wrt="w").backward
    assert names(result.graph)[-3:] == ["sum_reduce", "mul", "neg"]


# ---- Sums over several uses ----


def test_a_tensor_that_is_used_often_gets_the_sum() -> None:
    text = document(
        "x = external(shape = [2]);\na = sin(x);\nb = cos(x);\nc = mul(a, b);\nd = mul(c, x);\ny = add(d, x);"
    )
    emitted = check_gradients(text).text
    assert "grad_x_from_a" in emitted
    assert "grad_x = add(grad_x_sum_1, grad_x_from_a);" in emitted


def test_an_unused_result_of_split() -> None:
    check_gradients(
        document(
            "x = external(shape = [2, 6]);\n[a, b, c] = split(x, axis = 1, ratios = [1, 3, 2]);\ny = exp(b);"
        )
    )


def test_a_chain_of_a_thousand_operations() -> None:
    steps = "\n".join(f"h{i + 1} = tanh(h{i});" for i in range(1000))
    check_gradients(
        document(f"h0 = external(shape = [2]);\n{steps}\ny = exp(h1000);", "h0")
    )


# ---- What cannot be differentiated ----


# Weights of an interpolation stand in the graph, and these are too many.
HUGE = "factor = [50001, 1]"


def test_all_operations_without_derivative_are_named_at_once() -> None:
    text = document(
        "x = external(shape = [1, 2, 1, 1]);\n"
        f"u = multilinear_upsample(x, {HUGE});\n"
        "p = exp(u);\n"
        "y = multilinear_upsample(p, factor = [1, 50001]);"
    )
    with pytest.raises(NoDerivativeError) as caught:
        backward(text)
    lines = [problem.span.line for problem in caught.value.problems if problem.span]
    assert lines == [5, 7]
    assert (
        "'multilinear_upsample' has no derivative with more than 100000 weights along an axis:"
        " write a rule 'multilinear_upsample_vjp'"
    ) in caught.value.message


def test_an_operation_without_derivative_off_the_way_does_no_harm() -> None:
    text = document(
        f"x = external(shape = [1, 2, 1, 1]);\nw = external(shape = [1, 2, 50001, 1]);\nu = multilinear_upsample(x, {HUGE});\n"
        "y = mul(u, w);",
        "x, w",
    )
    assert names(backward(text, wrt="w").graph)[-1] == "mul"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrt": "nothing"}, "the graph has no tensor 'nothing'"),
        ({"wrt": []}, "no tensor is named"),
        ({"wrt": ["x", "x"]}, "tensor 'x' is named twice"),
        ({"outputs": ["h"]}, "the graph has no output 'h'"),
        ({"outputs": []}, "no output is named"),
        ({"seed": "zeros"}, "the seed is 'input' or 'ones', not 'zeros'"),
    ],
)
def test_requests_that_do_not_fit_the_graph(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        backward(TWO_LAYERS, **options)
    assert caught.value.message == message


def test_compiling_twice_gives_the_same_text() -> None:
    assert nnef_grad.dumps(backward(TWO_LAYERS)) == nnef_grad.dumps(
        backward(TWO_LAYERS)
    )


def test_the_emitted_graph_is_a_fixed_point_of_reading_and_writing() -> None:
    text = nnef_grad.dumps(backward(TWO_LAYERS))
    graph = nnef_grad.loads(text)
    assert nnef_grad.loads(nnef_grad.dumps(graph)) == graph
    assert nnef_grad.dumps(nnef_grad.loads(nnef_grad.dumps(graph))) == nnef_grad.dumps(
        graph
    )
    assert nnef.parse_string(text).name == "net_backward"


# ---- The check can fail ----


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("exp", "dx = 1.001 * dy * y;"),
        ("exp", "dx = -(dy * y);"),
        ("exp", "dx = dy * x;"),
        ("tanh", "dx = dy * (1.0 - y);"),
    ],
)
def test_a_planted_error_is_caught(rule: str, body: str) -> None:
    planted = nnef_grad.loads_rules(
        f"fragment {rule}_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> )\n{{ {body} }}"
    )
    with pytest.raises(AssertionError, match="relative error"):
        check_gradients(
            document(f"x = external(shape = [3]);\ny = {rule}(x);"),
            rules=planted,
            tolerance=1e-6,
        )


@pytest.mark.parametrize("wrt", ["x", "w"])
def test_central_differences_agree(wrt: str) -> None:
    generator = torch.Generator().manual_seed(3)
    checked = check_gradients(TWO_LAYERS)
    gradient = checked.gradients[wrt]
    direction = torch.randn(gradient.shape, generator=generator, dtype=F64)
    slope = reference.central_difference(
        TWO_LAYERS, checked.feeds, checked.variables, wrt, direction, checked.seeds
    )
    assert float((gradient * direction).sum()) == pytest.approx(float(slope), rel=1e-6)


# ---- What is stopped ----

STOPPED = document(
    "x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\nh = mul(x, w);\n"
    "[a, b] = split(h, axis = 0, ratios = [1, 1]);\nc = mul(a, b);\ny = mul(c, w);",
    "x, w",
)


def test_a_stopped_tensor_is_a_constant() -> None:
    """What torch calls detach."""
    emitted = nnef_grad.dumps(backward(STOPPED, stop=["a"]))
    generator = torch.Generator().manual_seed(0)
    feeds, _ = reference.random_feeds(STOPPED, generator)
    x, w = (feeds[name].requires_grad_() for name in ("x", "w"))
    seed = torch.randn(1, 3, generator=generator, dtype=torch.float64)
    h = x * w
    y = h[:1].detach() * h[1:] * w
    expected = torch.autograd.grad(y, [x, w], seed)
    found = reference.outputs(
        emitted, {"x": x.detach(), "w": w.detach(), "grad_y": seed}, {}
    )
    for gradient, wanted in zip(found, expected, strict=True):
        assert torch.allclose(gradient, wanted, rtol=1e-12)


def test_a_stopped_tensor_has_a_gradient_of_its_own() -> None:
    plain = backward(STOPPED, wrt=["c", "a"])
    stopped = backward(STOPPED, wrt=["c", "a"], stop=["c", "a"])
    assert nnef_grad.dumps(plain).count("grad_a = mul(grad_c, b)") == 1
    assert stopped.warnings == (
        "'a' does not influence 'y' other than through what is stopped: its gradient is zeros",
    )
    assert stopped.gradients == {"c": "grad_c", "a": "grad_a"}


def test_only_tensors_of_the_graph_are_stopped() -> None:
    with pytest.raises(UsageError) as caught:
        backward(STOPPED, stop=["missing"])
    assert caught.value.message == "the graph has no tensor 'missing'"


# ---- Tensors that bodies compute, too ----

SQUARES = """
version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [1, 3, 4]);
    z = sqr(x);
    y = local_variance_normalization(x, size = [1, 3, 1], bias = 0.6);
}
"""


def test_a_tensor_is_not_one_that_a_body_computes() -> None:
    graph = nnef_grad.loads(SQUARES)
    backward = nnef_grad.differentiate(graph, wrt=["x", "z"])
    assert backward.warnings == ("'z' does not influence 'y': its gradient is zeros",)
    assert nnef_grad.check(graph, backward).passed


def test_what_is_stopped_is_not_what_a_body_computes() -> None:
    graph = nnef_grad.loads(SQUARES)
    backward = nnef_grad.differentiate(graph, wrt=["x"], stop=["z"])
    feeds = {
        "x": np.random.default_rng(1).standard_normal((1, 3, 4)),
        "grad_y": np.random.default_rng(2).standard_normal((1, 3, 4)),
    }
    free = nnef_grad.differentiate(graph, wrt=["x"])
    found, expected = (nnef_grad.evaluate(b, feeds)["grad_x"] for b in (backward, free))
    np.testing.assert_allclose(found, expected)


# ---- The same text every time ----

TWICE = """
import nnef_grad

text = '''
version 1.0;
graph net( x, p ) -> ( y )
{
    x = external(shape = [3]);
    p = external(shape = [3]);
    y = pow(x, p);
}
'''
backward = nnef_grad.differentiate(nnef_grad.loads(text))
print(nnef_grad.dumps(nnef_grad.differentiate(backward.graph)))
"""


def test_the_text_does_not_depend_on_the_hash_of_names() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-c", TWICE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "1234"
    }
    assert len(texts) == 1


def test_names_of_what_an_operation_is_made_of_are_taken() -> None:
    """The mean in `share_y` and the share of the mean in `y` have two names."""
    text = document(
        "x = external(shape = [1, 1, 4, 3]);\n"
        "y = local_mean_normalization(x, size = [3, 1, 3, 2]);\n"
        "share_y = local_mean_normalization(x, size = [3, 2, 3, 1]);",
        outputs="y, share_y",
    )
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph, with_outputs=True)
    fed = {"x": np.random.default_rng(0).standard_normal((1, 1, 4, 3))}
    again = nnef_grad.loads(nnef_grad.dumps(backward))
    seeds = {s: np.ones((1, 1, 4, 3)) for s in backward.seeds.values()}
    found = nnef_grad.evaluate(again, {**fed, **seeds})
    for name, array in nnef_grad.evaluate(graph, fed).items():
        np.testing.assert_allclose(found[name], array)
