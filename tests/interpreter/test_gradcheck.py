"""The check that users run: it passes where the rules are right, and finds what is wrong."""

from __future__ import annotations

import json
import sys
import tracemalloc
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.checks import document
from support.operation_models import Model, models
from support.planted import planted, scaled

import nnef_grad
from nnef_grad.autodiff.rules import Rules
from nnef_grad.commandline import cli
from nnef_grad.interpreter.gradcheck import ZERO
from nnef_grad.interpreter.random_values import random_values


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_every_operation_passes(model: Model) -> None:
    graph = nnef_grad.loads(model.text)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph), seed=3)
    assert {g.verdict for g in checked.gradients} <= {"ok", ZERO}
    assert max(g.error for g in checked.gradients) < 1e-6


# ---- Planted errors ----


def differentiable() -> list[Model]:
    """The models of operations that have a rule."""
    rules = Rules()
    return [
        model
        for model in models()
        if (rule := rules.rule(model.operation)) is not None
        and not rule.is_zero
        and model.number == 1
    ]


@pytest.mark.parametrize("factor", [1.001, -1.0])
@pytest.mark.parametrize("model", differentiable(), ids=lambda model: model.name)
def test_a_wrong_rule_is_found(model: Model, factor: float) -> None:
    if "cast<scalar>(m)" in model.text:
        pytest.skip("nothing flows through this cast")
    rules = planted(model.operation, scaled(factor))
    graph = nnef_grad.loads(model.text)
    backward = nnef_grad.differentiate(graph, rules=rules)
    checked = nnef_grad.check(graph, backward, rules=rules)
    assert not checked.passed, str(checked)


def test_a_forgotten_reduction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the terms, in place of their sum."""

    def first(emit: Any, gradient: Any, shape: Any) -> list[Any]:
        axes = [i for i, extent in enumerate(gradient.shape) if shape[i] != extent]
        ones = [1] * len(axes)
        zeros = [0] * len(axes)
        if not axes:
            return [gradient]
        return [emit("slice", gradient, axes=axes, begin=zeros, end=ones)]

    monkeypatch.setattr(
        sys.modules["nnef_grad.autodiff.differentiate"], "unbroadcast", first
    )
    text = document(
        "x = external(shape = [2, 3]);\nw = external(shape = [1, 3]);\ny = mul(x, w);",
        "x, w",
    )
    graph = nnef_grad.loads(text)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert [g.verdict for g in checked.gradients] == ["ok", "FAILED"]


SMALL_ERRORS = (
    "add sub mul div exp sigmoid tanh softmax matmul conv max_pool sum_reduce"
)


@pytest.mark.parametrize("error", [1e-4, 1e-6])
@pytest.mark.parametrize("operation", SMALL_ERRORS.split())
def test_a_rule_that_is_slightly_wrong_is_found(operation: str, error: float) -> None:
    model = next(model for model in models() if model.operation == operation)
    rules, graph = planted(operation, scaled(1.0 + error)), nnef_grad.loads(model.text)
    backward = nnef_grad.differentiate(graph, rules=rules)
    verdicts = {g.verdict for g in nnef_grad.check(graph, backward).gradients}
    assert "FAILED" in verdicts


# ---- What differences can tell ----

POWERS = "p = mul(x, x); q = add(p, 1e-10); l = log(q); "
NORMALIZED = (
    "lo = min_reduce(l, axes = [1]); hi = max_reduce(l, axes = [1]);"
    " a = sub(l, lo); b = sub(hi, lo); y = div(a, b);"
)
BENT = [
    "x = external(shape = [1, 100000]); " + POWERS + "y = copy(l);",
    "x = external(shape = [1, 1000]); " + POWERS + NORMALIZED,
]


@pytest.mark.parametrize("statements", BENT)
def test_a_narrow_bend_is_no_error(statements: str) -> None:
    """Of the logarithm of powers of a signal, where the signal is near zero."""
    graph = nnef_grad.loads(document(statements))
    backward = nnef_grad.differentiate(graph)
    for seed in range(6):
        (found,) = nnef_grad.check(graph, backward, seed=seed).gradients
        assert (found.verdict, found.error < 1e-7) == ("ok", True)


@pytest.mark.parametrize("error", [1e-3, 1e-6])
@pytest.mark.parametrize("operation", ["log", "add", "mul"])
@pytest.mark.parametrize("statements", BENT)
def test_an_error_in_a_narrow_bend_is_found(
    statements: str, operation: str, error: float
) -> None:
    graph = nnef_grad.loads(document(statements))
    rules = planted(operation, scaled(1.0 + error))
    backward = nnef_grad.differentiate(graph, rules=rules)
    for seed in range(6):
        (found,) = nnef_grad.check(graph, backward, seed=seed).gradients
        assert found.verdict == "FAILED"


EQUAL = (
    "x = external(shape = [3, 1]); e = tile(x, repeats = [1, 2]);"
    " m = mean_reduce(e, axes = [1]); d = sub(e, m); s = mul(d, d);"
    " v = mean_reduce(s, axes = [1]); w = add(v, 1e-5); r = rsqrt(w); y = mul(d, r);"
)


@pytest.mark.parametrize("seed", range(8))
def test_a_gradient_of_rounding_is_inconclusive(seed: int) -> None:
    """Of a normalization of two equal elements, which is zero whatever they are."""
    graph = nnef_grad.loads(document(EQUAL))
    (found,) = nnef_grad.check(
        graph, nnef_grad.differentiate(graph), seed=seed
    ).gradients
    assert found.verdict in ("inconclusive", ZERO)
    assert found.spread.norm < 1e-12


@pytest.mark.parametrize("error", [1e-3, 1e-6])
def test_an_error_in_a_gradient_of_zero_is_found(error: float) -> None:
    graph = nnef_grad.loads(document(EQUAL))
    rules = planted("mean_reduce", scaled(1.0 + error))
    backward = nnef_grad.differentiate(graph, rules=rules)
    assert not nnef_grad.check(graph, backward, seed=1).passed


def test_what_is_inconclusive_is_written_and_counted() -> None:
    text = document(EQUAL + " u = external(shape = [3]); z = sin(u);", "x, u", "y, z")
    for wrt, words in (
        ("x,u", "1 agrees with central differences, 1 inconclusive"),
        ("x", "central differences are inconclusive"),
    ):
        result = run("--check", "--check-seed", "2", "--wrt", wrt, text=text)
        assert (result.exit_code, result.stdout[:12]) == (0, "version 1.0;")
        _, *rows, last, _ = result.stderr.splitlines()
        verdicts = {row.split()[0]: row.split()[-1] for row in rows}
        assert verdicts["grad_x"] == "inconclusive"
        assert last.endswith(f" checked (seed 2): {words}")


@pytest.mark.parametrize(
    ("point", "factor", "verdict"),
    [
        ([0.0, 1.0], 1.0, "ok"),
        ([0.0, 1.0], 1.1, "inconclusive"),
        ([0.0, 1.0], 3.0, "FAILED"),
        ([1e-6, 1.0], 1.0, "ok"),
        ([1e-6, 1.0], 1.001, "FAILED"),
    ],
)
def test_a_kink_of_the_users_own(
    point: list[float], factor: float, verdict: str
) -> None:
    """At the point itself any slope between those of its sides may be meant."""
    rules = nnef_grad.Rules()
    rules.evaluation("abs")(np.abs)

    @rules.vjp("abs")
    def abs_vjp(emit: Any, operation: Any, dy: Any) -> Any:
        return [emit("mul", emit("mul", dy, emit("sign", *operation.inputs)), factor)]

    graph = nnef_grad.loads(document("x = external(shape = [2]); y = abs(x);"))
    backward = nnef_grad.differentiate(graph, rules=rules)
    (found,) = nnef_grad.check(
        graph, backward, inputs={"x": point}, rules=rules
    ).gradients
    assert found.verdict == verdict


# ---- What is compared ----

MODEL = document(
    "x = external(shape = [2, 3]);\nw = variable(shape = [3, 3], label = 'W');\n"
    "h = matmul(x, w);\na = relu(h);\ny = softmax(a);\nz = mul(a, x);",
    outputs="y, z",
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seed": "ones"},
        {"outputs": ["z"], "seed": "ones"},
        {"wrt": ["h", "a"]},
        {"stop": ["a"], "wrt": ["x", "a", "w"]},
        {"stop": ["h"], "wrt": ["h"]},
        {"with_outputs": True},
    ],
    ids=str,
)
def test_options_of_differentiate(options: dict[str, Any]) -> None:
    graph = nnef_grad.loads(MODEL)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph, **options))
    assert checked.passed, str(checked)


@pytest.mark.parametrize("options", [{}, {"stop": ["a"]}, {"wrt": ["h"]}], ids=str)
def test_jacobians(options: dict[str, Any]) -> None:
    graph = nnef_grad.loads(MODEL)
    backward = nnef_grad.jacobian(graph, outputs=["z"], **options)
    checked = nnef_grad.check(graph, backward)
    assert checked.passed, str(checked)
    other = nnef_grad.jacobian(graph, outputs=["y"], **options)
    wrong = replace(other, outputs=("z",))
    if wrong.graph.outputs[0].shape == backward.graph.outputs[0].shape:
        assert not nnef_grad.check(graph, wrong).passed


def test_values_may_be_given() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2]);\ny = sqrt(x);"))
    backward = nnef_grad.differentiate(graph)
    assert nnef_grad.check(graph, backward, inputs={"x": [4.0, 9.0]}).passed
    with pytest.raises(nnef_grad.UsageError, match="not finite at random values"):
        nnef_grad.check(graph, backward, inputs={"x": [-1.0, 1.0]})
    with pytest.raises(nnef_grad.UsageError, match="shape"):
        nnef_grad.check(graph, backward, inputs={"x": [1.0]})


def test_a_gradient_that_is_not_finite_fails() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2]);\ny = sqrt(x);"))
    backward = nnef_grad.differentiate(graph)
    checked = nnef_grad.check(graph, backward, inputs={"x": np.zeros(2)})
    assert [g.verdict for g in checked.gradients] == ["not finite"]
    assert not checked.passed


def test_a_point_at_the_edge_of_a_domain_is_inconclusive_without_a_warning() -> None:
    """0 to the power of less than 0 is infinite, and 0 to that of more is not."""
    graph = nnef_grad.loads(
        "version 1.0; graph net( x, p ) -> ( y ) { x = external(shape = [4]);"
        " p = external(shape = [4]); y = pow(x, p); }"
    )
    values = {"x": np.array([0.0, 0.0, 1.0, 0.0]), "p": np.zeros(4)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nnef_grad.check(graph, nnef_grad.differentiate(graph), inputs=values)
    assert [g.verdict for g in found.gradients] == [ZERO, "inconclusive"]


def test_an_infinite_point_is_inconclusive_without_a_warning() -> None:
    graph = nnef_grad.loads(
        "version 1.0; graph net( x, z ) -> ( y ) { x = external(shape = [2]);"
        " z = external(shape = [2]); y = exp(x); }"
    )
    values = {"z": np.array([-np.inf, 1.0])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nnef_grad.check(graph, nnef_grad.differentiate(graph), inputs=values)
    words = [(g.verdict, g.error) for g in found.gradients]
    assert words[1] == ("inconclusive", np.inf)


def test_inputs_are_kept_inside_the_domain() -> None:
    text = document(
        "x = external(shape = [2, 3]);\na = sub(x, 0.25);\nb = log(a);\nc = sqrt(b);\ny = acosh(c);"
    )
    graph = nnef_grad.loads(text)
    backward = nnef_grad.differentiate(graph)
    with pytest.raises(nnef_grad.UsageError, match="not finite at random values"):
        nnef_grad.check(graph, backward)


def test_half_of_a_mask_is_true() -> None:
    """So that a gradient that a mask selects is not zero, whatever the seed."""
    text = document(
        "mask = external<logical>(shape = [2, 2]);"
        "x = external(shape = [2, 2]); y = select(mask, x, 0.0);",
        inputs="mask, x",
    )
    graph = nnef_grad.loads(text)
    for seed in range(20):
        mask = random_values(graph, seed).inputs["mask"]
        assert mask.sum() == 2


# ---- The command line ----


def run(*arguments: str, text: str = MODEL) -> Any:
    return CliRunner().invoke(cli.main, ["-", *arguments], input=text)


def test_the_table() -> None:
    result = run("--check", "--check-seed", "5", "--wrt", "x,w")
    assert result.exit_code == 0
    first, *rows, last, summary = result.stderr.splitlines()
    assert first.split() == ["gradient", "shape", "error", "verdict"]
    assert [row.split()[0] for row in rows] == ["grad_w", "grad_x"]
    assert all(row.endswith("ok") for row in rows)
    assert last == "2 gradients checked (seed 5): all agree with central differences"
    assert summary.startswith("net: ")
    assert result.stdout.startswith("version 1.0;")


WRONG = """
fragment softmax_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar>, axes: integer[] )
-> ( dx: tensor<scalar> )
{
    dx = mul(dy, y);
}
"""


def test_nothing_is_written_when_a_gradient_is_wrong(tmp_path: Any) -> None:
    (tmp_path / "wrong.nnef").write_text(WRONG)
    (tmp_path / "model.nnef").write_text(MODEL)
    arguments = [
        "--rules",
        str(tmp_path / "wrong.nnef"),
        "-o",
        str(tmp_path / "out.nnef"),
    ]
    result = CliRunner().invoke(
        cli.main, [str(tmp_path / "model.nnef"), "--check", *arguments]
    )
    assert result.exit_code == 1
    assert "FAILED" in result.stderr
    assert "2 gradients checked (seed 0): 2 failed" in result.stderr
    assert not (tmp_path / "out.nnef").exists()


STEPS = """version 1.0;

graph net( x, z ) -> ( y )
{
    x = external(shape = [2, 3]);
    z = external(shape = [2, 3]);
    steps = round(x);
    y = mul(steps, z);
}
"""


def test_zero_that_is_right_proves_little() -> None:
    arguments = ["-", "--check", "--quiet", "-o", "-"]
    result = CliRunner().invoke(cli.main, arguments, input=STEPS)
    assert result.exit_code == 0
    _, *rows, last, _ = result.stderr.splitlines()
    words = {row.split()[0]: row.split(maxsplit=4)[-1] for row in rows}
    assert words == {"grad_x": "zero everywhere here", "grad_z": "ok"}
    assert last.endswith(
        "agree with central differences, 1 of them only in being zero here"
    )


def test_zero_where_there_is_a_slope_is_wrong() -> None:
    rules = nnef_grad.loads_rules(
        "fragment sin_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> )"
        " -> ( dx: tensor<scalar> ) { dx = mul(dy, 0.0); }"
    )
    body = "x = external(shape = [2]); y = sin(x);"
    graph = nnef_grad.loads(f"version 1.0; graph g( x ) -> ( y ) {{ {body} }}")
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph, rules=rules))
    assert [g.verdict for g in checked.gradients] == ["FAILED"]


def test_gradients_are_reported_as_they_are_compared() -> None:
    graph = nnef_grad.loads(MODEL)
    found: list[tuple[str, int, int]] = []
    checked = nnef_grad.check(
        graph,
        nnef_grad.differentiate(graph),
        report=lambda gradient, done, total: found.append(
            (gradient.gradient, done, total)
        ),
    )
    assert sorted(name for name, _, _ in found) == sorted(
        g.gradient for g in checked.gradients
    )
    assert [done for _, done, _ in found] == list(range(1, len(found) + 1))
    assert {total for _, _, total in found} == {len(found)}


LARGE = """version 1.0;

graph net( x ) -> ( y )
{
    x = external(shape = [100000, 100000]);
    y = sin(x);
}
"""


def test_a_check_that_takes_too_much_memory_is_refused() -> None:
    result = CliRunner().invoke(cli.main, ["-", "--check", "-q"], input=LARGE)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: the check takes about ")
    assert "try a smaller --batch or --input-shape" in result.stderr
    small = LARGE.replace("100000, 100000", "1000, 1000")
    for limit, code in (("0.01", 2), ("1", 0)):
        arguments = ["-", "--check", "--check-memory", limit, "-q"]
        assert CliRunner().invoke(cli.main, arguments, input=small).exit_code == code


def test_what_no_gradient_needs_takes_no_memory() -> None:
    """A tensor of 800 GB that no output is computed from is not computed."""
    statements = (
        "x = external(shape = [1, 1]);",
        "z = tile(x, repeats = [100000, 1000000]);",
        "y = sin(x);",
    )
    text = document(" ".join(statements))
    graph = nnef_grad.loads(text)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph), memory=1000)
    assert [g.verdict for g in checked.gradients] == ["ok"]


def test_the_estimate_of_memory_is_near() -> None:
    """Of what numpy allocates: neither much less than half of it nor twice."""
    graph = nnef_grad.loads(LARGE.replace("100000, 100000", "1000, 1000"))
    backward = nnef_grad.differentiate(graph)
    tracemalloc.start()
    nnef_grad.check(graph, backward)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for factor, fits in ((0.4, False), (2.0, True)):
        try:
            nnef_grad.check(graph, backward, memory=int(peak * factor))
        except nnef_grad.UsageError:
            assert not fits
        else:
            assert fits


def test_the_table_for_programs() -> None:
    result = run("--check", "--format", "json", "--wrt", "x")
    (checked, _) = map(json.loads, result.stderr.splitlines())
    (row,) = checked["check"]
    assert (row["tensor"], row["gradient"], row["shape"]) == ("x", "grad_x", [2, 3])
    assert row["verdict"] == "ok"


def test_a_seed_is_not_negative() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2]);\ny = exp(x);"))
    with pytest.raises(nnef_grad.UsageError, match="0 or more, and not -1"):
        nnef_grad.check(graph, nnef_grad.differentiate(graph), seed=-1)


def test_the_derivative_of_another_graph() -> None:
    one = document("x = external(shape = [2]);\ny = exp(x);")
    other = document("u = external(shape = [2]);\ny = exp(u);", inputs="u")
    backward = nnef_grad.differentiate(nnef_grad.loads(other))
    with pytest.raises(nnef_grad.UsageError, match="is not derived from this 'net'"):
        nnef_grad.check(nnef_grad.loads(one), backward)


def test_the_sizes_of_a_pyramid() -> None:
    """Its levels fit together at multiples of 32: others are no sizes of the model."""
    text = """version 1.0;
    extension tract_symbol T;
    graph net( x ) -> ( y )
    {
        x = external(shape = [1, 1, T]);
        fine = avg_pool(x, size = [1, 1, 2], stride = [1, 1, 2], padding = []);
        coarse = avg_pool(x, size = [1, 1, 32], stride = [1, 1, 32], padding = []);
        above = nearest_upsample(coarse, factor = [16]);
        y = mul(fine, above);
    }"""
    graph = nnef_grad.loads(text)
    checked = nnef_grad.check(graph, nnef_grad.differentiate(graph))
    assert [g.shape for g in checked.gradients] == [(1, 1, 32)]
    assert checked.gradients[0].verdict == "ok"
