"""Random graphs: the first of them against torch, that all operations are among them,
and that a wrong derivative is found and made small.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from support.random_graphs import oracle
from support.random_graphs.__main__ import main
from support.random_graphs.compare import SKIPPED, compare
from support.random_graphs.generate import make_graph
from support.random_graphs.graphs import RandomGraph, Statement
from support.random_graphs.minimise import minimise
from support.random_graphs.operations import ROWS
from support.random_graphs.run import report

import nnef_grad
from nnef_grad.language.library import STDLIB
from nnef_grad.ops import RULES

SEED = 7
# `nnef_grad.differentiate` is the function; this is the module that it is in.
SWEEP = importlib.import_module("nnef_grad.autodiff.differentiate")


@pytest.mark.parametrize("number", range(100))
def test_gradients(number: int) -> None:
    graph, twice = make_graph(SEED, number), number % 5 == 0
    outcome = compare(graph, twice)
    if outcome.kind == SKIPPED:
        pytest.skip(outcome.message)
    assert not outcome.failed, report(graph, outcome, twice)


# ---- The graphs ----


def test_a_seed_and_a_number_stand_for_one_graph() -> None:
    first, again, other = (make_graph(1, number) for number in (5, 5, 6))
    assert first.text == again.text
    assert first.text != other.text
    assert all(bool((first.feeds[n] == again.feeds[n]).all()) for n in first.feeds)


def test_all_operations_are_in_the_table() -> None:
    assert set(ROWS) == set(STDLIB)


def test_all_operations_are_in_some_graph() -> None:
    used = {s.operation for graph in graphs() for s in graph.statements}
    assert used == {name for name in STDLIB if oracle.knows(name)}
    assert {len(graph.operations) // 10 for graph in graphs()} >= {0, 1, 2, 3, 4, 5}


def test_graphs_are_valid_and_gradients_flow_through_most_of_them() -> None:
    assert all(nnef_grad.loads(graph.text).outputs for graph in graphs()[:100])
    flowing = sum(len(graph.differentiated) for graph in graphs())
    assert flowing > 0.5 * sum(len(graph.operations) for graph in graphs())


def test_a_tensor_is_used_in_many_ways() -> None:
    statements = [s for graph in graphs() for s in graph.statements]
    assert any(len(s.inputs) > len(set(s.inputs)) for s in statements)
    assert any(s.operation == "split" and len(s.outputs) > 1 for s in statements)
    ranks = {
        len(s.attributes["shape"]) for s in statements if s.operation == "external"
    }
    assert ranks == {0, 1, 2, 3, 4, 5}


# ---- Planted errors ----

TRIES = 10
WRONG_NUMBER = "AssertionError in checks.py: close"


@lru_cache(maxsize=1)
def graphs() -> list[RandomGraph]:
    return [make_graph(SEED, number) for number in range(300)]


def first_failure(
    operation: str, least: int = 0, kind: str = WRONG_NUMBER, **options: Any
) -> RandomGraph:
    """The first graph that fails, in the expected way, among some in which a gradient
    flows through an operation.
    """
    found = [g for g in graphs() if operation in g.differentiated]
    for graph in [g for g in found if len(g.operations) >= least][:TRIES]:
        outcome = compare(graph, **options)
        if outcome.failed:
            assert kind in outcome.kind
            return graph
    raise AssertionError(f"none of {len(found)} graphs with {operation} fails")


def wrong_by_a_thousandth(rule: Callable[..., Any] | None) -> Callable[..., Any]:
    assert rule is not None

    def wrong(emit: Any, operation: Any, *gradients: Any) -> Any:
        return scaled(emit, rule(emit, operation, *gradients))

    return wrong


def scaled(emit: Any, gradient: Any) -> Any:
    if isinstance(gradient, (list, tuple)):
        return tuple(scaled(emit, item) for item in gradient)
    is_tensor = isinstance(gradient, nnef_grad.Tensor)
    return emit("mul", 1.001, gradient) if is_tensor else gradient


STANDARD = nnef_grad.Rules()
RULED = [
    name
    for name in STDLIB
    if (rule := STANDARD.rule(name)) is not None and not rule.is_zero
]


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Makes the rule of an operation wrong by a thousandth."""
    find = nnef_grad.Rules.rule

    def patched(self: nnef_grad.Rules, operation: str) -> Any:
        rule = find(self, operation)
        if rule is None or operation != name:
            return rule
        return replace(rule, vjp=wrong_by_a_thousandth(rule.vjp))

    monkeypatch.setattr(nnef_grad.Rules, "rule", patched)


@pytest.mark.parametrize("name", RULED)
def test_a_rule_that_is_wrong_by_a_thousandth_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, name)
    first_failure(name)


def test_a_rule_that_only_backward_graphs_need_is_found_by_the_second_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, "desample")
    graph = next(
        g
        for g in graphs()
        if "max_pool" in g.differentiated and "desample" not in g.operations
    )
    assert not compare(graph).failed
    assert compare(graph, twice=True).kind == WRONG_NUMBER


SIGN = """
fragment sin_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> )
-> ( dx: tensor<scalar> )
{
    dx = -dy * cos(x);
}
"""


def test_a_wrong_sign_in_a_rule_of_the_user_is_found() -> None:
    first_failure("sin", rules=nnef_grad.loads_rules(SIGN))


def no_reduction(emit: Any, gradient: Any, shape: Any) -> list[Any]:
    return [gradient]


def first_element(emit: Any, gradient: Any, shape: Any) -> list[Any]:
    """The right shape, but of each sum one term only."""
    extended = shape + (1,) * (gradient.rank - len(shape))
    axes = [i for i, n in enumerate(gradient.shape) if n > extended[i]]
    extra = list(range(len(shape), gradient.rank))
    if axes:
        ends = {"begin": [0] * len(axes), "end": [1] * len(axes)}
        gradient = emit("slice", gradient, axes=axes, **ends)
    return [emit("squeeze", gradient, axes=extra) if extra else gradient]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(no_reduction, "InvalidGraphError"), (first_element, WRONG_NUMBER)],
)
@pytest.mark.parametrize("operation", ["add", "mul", "batch_normalization", "linear"])
def test_a_forgotten_reduction_is_found(
    operation: str, wrong: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SWEEP, "unbroadcast", wrong)
    first_failure(operation, kind=kind)


def test_a_crash_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(emit: Any, operation: Any, *gradients: Any) -> list[Any]:
        raise KeyError("planted")

    monkeypatch.setitem(RULES, "transpose", crash)
    first_failure("transpose", kind="KeyError in test_random_graphs.py: crash")


# ---- Making small ----


def test_a_failing_graph_is_made_small() -> None:
    rules = nnef_grad.loads_rules(SIGN)

    def fails(graph: RandomGraph) -> bool:
        return compare(graph, rules=rules).failed

    graph = first_failure("sin", least=20, rules=rules)
    small = minimise(graph, fails)
    assert small.operations == ["sin"]
    assert len(small.statements) == 2
    assert fails(small)


def test_a_forgotten_reduction_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SWEEP, "unbroadcast", first_element)
    graph = first_failure("mul")
    text = report(graph, compare(graph), twice=False)
    assert text.count(";") <= 5
    assert "relative error" in text


def test_a_graph_that_nobody_reads_is_made_small_too() -> None:
    graph = graphs()[0]
    odd = Statement("sqrt", (graph.outputs[0], 2.0), {}, ("odd",))
    wrong = replace(
        graph, statements=(*graph.statements, odd), outputs=(*graph.outputs, "odd")
    )
    outcome = compare(wrong)
    assert "InvalidGraphError" in outcome.kind
    assert "odd = sqrt(" in report(wrong, outcome, twice=False)


# ---- The command ----


def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--graphs", "6", "--twice", "2", "--seed", "3", "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in STDLIB)
    assert "seed 3: 6 graphs" in printed


def test_a_run_with_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SWEEP, "unbroadcast", no_reduction)
    assert main(["--graphs", "8", "--twice", "0", "--jobs", "1"]) == 1
    assert "InvalidGraphError" in capsys.readouterr().out


def test_one_graph_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", "7:1"]) == 0
    assert capsys.readouterr().out == make_graph(7, 1).text + "\n"
    assert main(["--replay", "7:1"]) == 0
    assert "7:1: passed" in capsys.readouterr().out
