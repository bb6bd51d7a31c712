"""Copies that no gradient flows through, which a text has under names that say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.checks import document

import nnef_grad
from nnef_grad.targets import TARGETS, lower
from nnef_grad.training import training_step

TEXT = document(
    """
    x = external(shape = [2, 3]);
    w = variable(shape = [1, 3], label = 'w');
    a = mul(x, w);
    h = tanh(a);
    stop_gradient = copy(h);
    b = mul(stop_gradient, h);
    y = add(b, stop_gradient);
    """,
    "x",
)
RANDOM = np.random.default_rng(3)
FED = {"x": RANDOM.standard_normal((2, 3)), "grad_y": RANDOM.standard_normal((2, 3))}
DATA = {"w": RANDOM.standard_normal((1, 3))}


def slope(x: Any) -> Any:
    return 1.0 - np.tanh(x) ** 2


def wanted() -> Any:
    """The gradient of x, with one factor h held."""
    product = FED["x"] * DATA["w"]
    return FED["grad_y"] * np.tanh(product) * slope(product) * DATA["w"]


def test_no_gradient_flows() -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXT), wrt=["x"])
    found = nnef_grad.evaluate(backward.graph, FED, DATA)["grad_x"]
    np.testing.assert_allclose(found, wanted())


def test_the_text_says_it() -> None:
    graph = nnef_grad.loads(TEXT)
    text = nnef_grad.dumps(graph)
    assert "stop_gradient = copy(h);" in text
    assert nnef_grad.dumps(nnef_grad.loads(text)) == text
    plain = nnef_grad.loads(TEXT.replace("stop_gradient", "held"))
    assert plain != graph
    assert len(nnef_grad.differentiate(plain).graph.operations) > len(
        nnef_grad.differentiate(graph).graph.operations
    )


def test_it_is_what_stop_says() -> None:
    """The mark and `stop=` give the same graph, but for the mark."""
    plain = nnef_grad.loads(TEXT.replace("stop_gradient", "held"))
    by_name = nnef_grad.differentiate(plain, stop=["held"])
    marked = nnef_grad.differentiate(nnef_grad.loads(TEXT))
    text = nnef_grad.dumps(by_name).replace("held", "stop_gradient")
    assert nnef_grad.dumps(marked) == text


def test_second_order_keeps_it() -> None:
    """The derivative of the gradient of x with respect to x holds the factor as well."""
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXT), wrt=["x"])
    assert "stop_gradient = copy(h);" in nnef_grad.dumps(backward)
    second = nnef_grad.differentiate(backward.graph, wrt=["x"])
    again = nnef_grad.differentiate(
        nnef_grad.loads(nnef_grad.dumps(backward)), wrt=["x"]
    )
    assert second.graph == again.graph
    seed = RANDOM.standard_normal((2, 3))
    found = nnef_grad.evaluate(second.graph, {**FED, "grad_grad_x": seed}, DATA)
    product = FED["x"] * DATA["w"]
    curve = -2.0 * np.tanh(product) * slope(product) * DATA["w"] ** 2
    expected = seed * FED["grad_y"] * np.tanh(product) * curve
    np.testing.assert_allclose(found[second.gradients["x"]], expected)


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "nnef"])
def test_runtimes_do_not_see_it(target: str) -> None:
    backward = nnef_grad.differentiate(nnef_grad.loads(TEXT), wrt=["x"])
    found = lower(backward.graph, target)
    assert "stop_gradient" not in {op.name for op in found.graph.operations}
    computed = nnef_grad.evaluate(found.graph, FED, {**DATA, **found.data})
    np.testing.assert_allclose(computed["grad_x"], wanted())


def test_checks_hold_it() -> None:
    graph = nnef_grad.loads(TEXT)
    backward = nnef_grad.differentiate(graph)
    assert nnef_grad.check(graph, backward).passed


def test_a_result_has_its_name_and_the_mark_one_of_its_own() -> None:
    text = document(
        """
        x = external(shape = [2]);
        stop_gradient_here = copy(x);
        y = copy(stop_gradient_here);
        """,
        "x",
    )
    graph = nnef_grad.loads(text)
    assert nnef_grad.dumps(nnef_grad.loads(nnef_grad.dumps(graph))) == nnef_grad.dumps(
        graph
    )
    backward = nnef_grad.differentiate(graph)
    found = nnef_grad.evaluate(backward.graph, {"x": np.ones(2), "grad_y": np.ones(2)})
    assert not found["grad_x"].any()


def test_steps_are_without_it() -> None:
    graph = nnef_grad.loads(TEXT)
    step = training_step(
        graph, loss={"y": "mean_squared_error"}, optimizer="sgd", learning_rate=0.1
    )
    assert "stop_gradient" not in nnef_grad.dumps(step.graph)
