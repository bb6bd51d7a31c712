"""Rules are traced: operations that are alike get what the rule of one emits, and the
backward graph is the one that has each rule applied each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from support.checks import document
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.autodiff.rules import Traces
from nnef_grad.emit.evaluation import Evaluator
from nnef_grad.graph.ir import Graph, Operation, Tensor

X = "x = external(shape = [2, 3]);\n"


def chain(step: str, length: int, name: str = "h") -> Graph:
    """A step with {h} for its operand, again and again."""
    names = [name, *(f"{name}{i}" for i in range(length))]
    steps = (
        f"{after} = {step.format(h=before)};\n" for before, after in pairwise(names)
    )
    body = f"{X}{name} = copy(x);\n{''.join(steps)}y = copy({names[-1]});\n"
    return nnef_grad.loads(document(body, "x", "y"))


def untraced(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backward graph, with every rule applied each time."""

    def apply(
        self: Traces, key: object, build: Any, inputs: Sequence[Tensor], *rest: Any
    ) -> Any:
        return build(self._emit, inputs)

    with monkeypatch.context() as patch:
        patch.setattr(Traces, "apply", apply)
        return nnef_grad.dumps(nnef_grad.differentiate(graph))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traces every rule where it is met first."""

    class All(set[object]):
        def __contains__(self, key: object) -> bool:
            return True

    original = Traces.__init__

    def init(self: Traces, *arguments: Any) -> None:
        original(self, *arguments)
        self._met = All()

    monkeypatch.setattr(Traces, "__init__", init)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("given", models(), ids=lambda given: given.name)
def test_a_trace_emits_what_the_rule_does(
    given: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nnef_grad.loads(given.text)
    traced = nnef_grad.dumps(nnef_grad.differentiate(graph))
    assert traced == untraced(graph, monkeypatch)


def test_the_rules_are_applied_as_often_for_many_operations_as_for_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied: list[str] = []
    instantiate = Evaluator.instantiate

    def counted(self: Evaluator, fragment: Any, *arguments: Any) -> dict[str, Any]:
        applied.append(fragment.name)
        return instantiate(self, fragment, *arguments)

    monkeypatch.setattr(Evaluator, "instantiate", counted)
    counts = []
    for length in (5, 50):
        applied.clear()
        nnef_grad.differentiate(chain("tanh({h})", length))
        counts.append(applied.count("tanh_vjp"))
    # Once for what is met first, once to trace it.
    assert counts == [2, 2]


@pytest.mark.parametrize("length", [1, 20, 40, 50, 55, 59, 60, 70])
def test_steps_are_called_as_they_are_without_a_trace(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words that are added to a name depend on its length."""
    graph = chain("pow({h}, x)", 4, "n" * length)
    traced = nnef_grad.dumps(nnef_grad.differentiate(graph))
    assert traced == untraced(graph, monkeypatch)


def test_what_is_simplified_is_another_thing_for_each_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside an operation that negates, and under a condition, there are shorter forms."""
    body = f"""{X}
        w = external(shape = [2, 3]);
        m = gt(x, w);
        a = mul(x, w);
        b = neg(a);
        c = mul(b, w);
        d = select(m, c, 0.0);
        e = mul(d, w);
        f = select(m, e, 0.0);
        y = mul(f, w);
    """
    graph = nnef_grad.loads(document(body, "x, w", "y"))
    traced = nnef_grad.dumps(nnef_grad.differentiate(graph))
    assert traced == untraced(graph, monkeypatch)


def test_a_rule_of_the_user_in_python_is_called_for_each_operation() -> None:
    rules, called = nnef_grad.Rules(), list[Tensor]()

    @rules.vjp("tanh")
    def tanh_vjp(emit: Any, operation: Operation, dy: Tensor) -> list[Tensor]:
        called.append(operation.outputs[0])
        return [emit("mul", dy, 2.0)]

    graph = chain("tanh({h})", 4)
    nnef_grad.differentiate(graph, rules=rules)
    assert [graph.names[tensor] for tensor in called] == ["h3", "h2", "h1", "h0"]
