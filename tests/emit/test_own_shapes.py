"""Shapes of operations of the user's own are known wherever they come up: inside bodies
that are put in the place of their operation, inside shape rules, inside derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnef_grad
from nnef_grad.base.source import Source
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.language.library import STDLIB
from nnef_grad.language.parser import parse_fragments

HEADER = "version 1.0;\nextension KHR_enable_fragment_definitions;\n"
GRAPH = "graph net( x ) -> ( y )\n{\n    x = external(shape = [2, 3]);\n    y = twist(x);\n}\n"
SIGNATURE = "( x: tensor<scalar> ) -> ( y: tensor<scalar> )"
VJP_SIGNATURE = "( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar> ) -> ( dx: tensor<scalar> )"
GATE = f"fragment gate{SIGNATURE};"
TWIST = f"fragment twist{SIGNATURE};"
GATE_SHAPE = f"fragment gate_shape{SIGNATURE} {{ y = copy(x); }}"
TWIST_SHAPE = f"fragment twist_shape{SIGNATURE} {{ y = copy(x); }}"
TWIST_BY_GATE = f"fragment twist_shape{SIGNATURE} {{ y = gate(x); }}"
TWIST_VJP = f"fragment twist_vjp{VJP_SIGNATURE} {{ dx = dy * gate(x); }}"


def test_a_shape_rule_may_use_an_operation_of_the_users_own() -> None:
    rules = nnef_grad.loads_rules("\n".join([GATE, GATE_SHAPE, TWIST, TWIST_BY_GATE]))
    graph = nnef_grad.loads(f"{HEADER}{TWIST}\n{GRAPH}", rules=rules)
    assert graph.tensors["y"].shape == (2, 3)


def test_a_shape_rule_may_use_an_operation_whose_shape_is_a_function() -> None:
    rules = nnef_grad.loads_rules("\n".join([GATE, TWIST, TWIST_BY_GATE]))
    rules.shape("gate")(lambda x: (5, *x))
    graph = nnef_grad.loads(f"{HEADER}{TWIST}\n{GRAPH}", rules=rules)
    assert graph.tensors["y"].shape == (5, 2, 3)


def test_shape_rules_that_use_each_other() -> None:
    by_twist = GATE_SHAPE.replace("copy", "twist")
    rules = nnef_grad.loads_rules("\n".join([GATE, by_twist, TWIST, TWIST_BY_GATE]))
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        nnef_grad.loads(f"{HEADER}{TWIST}\n{GRAPH}", rules=rules)
    assert "use each other without end" in caught.value.message
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("derive", [nnef_grad.differentiate, nnef_grad.jacobian])
@pytest.mark.parametrize("is_python", [False, True])
def test_a_derivative_may_use_an_operation_that_the_graph_has_not(
    derive: object, is_python: bool
) -> None:
    parts = [GATE, GATE_SHAPE, TWIST, TWIST_SHAPE]
    rules = nnef_grad.loads_rules("\n".join([*parts, *[TWIST_VJP] * (not is_python)]))
    if is_python:
        rules.vjp("twist")(
            lambda emit, op, dy: [emit("mul", dy, emit("gate", op.operands[0]))]
        )
    graph = nnef_grad.loads(f"{HEADER}{TWIST}\n{GRAPH}", rules=rules)
    text = nnef_grad.dumps(derive(graph, rules=rules))  # type: ignore[operator]
    assert f"{GATE}\n" in text
    assert "= gate(x);" in text


def test_a_rule_is_no_operation() -> None:
    gate_vjp = f"fragment gate_vjp{VJP_SIGNATURE} {{ dx = dy * x; }}"
    twist_vjp = f"fragment twist_vjp{VJP_SIGNATURE} {{ dx = gate_vjp(x, y, dy); }}"
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        nnef_grad.loads_rules("\n".join([GATE, gate_vjp, TWIST, twist_vjp]))
    assert caught.value.message.startswith("there is no operation 'gate_vjp'")


# ---- Bodies ----

DECOMPOSITIONS = f"{GATE}\nfragment outer{SIGNATURE} {{ h = gate(x); y = h * 2.0; }}\n"


def graph_with_a_body() -> Graph:
    """A graph that was not read from a text: the body of `outer` is still to be put in
    its place, and holds an operation that the graph does not.
    """
    _, outer = parse_fragments(Source("bodies", DECOMPOSITIONS))
    x, y = Tensor("scalar", (2, 3)), Tensor("scalar", (2, 3))
    external = Operation(
        STDLIB["external"], (), {"shape": (2, 3)}, (x,), dtype="scalar"
    )
    operations = (external, Operation(outer, (x,), {}, (y,)))
    return Graph("net", (x,), (y,), operations, {x: "x", y: "y"})


def rules_for_gate() -> nnef_grad.Rules:
    rules = nnef_grad.loads_rules(GATE)
    rules.shape("gate")(lambda x: x)
    rules.vjp("gate")(lambda emit, op, dy: [emit("mul", dy, 3.0)])
    rules.evaluation("gate")(lambda x: 3.0 * x)
    return rules


def test_a_body_that_is_differentiated_holds_an_operation_of_the_users_own() -> None:
    graph, rules = graph_with_a_body(), rules_for_gate()
    backward = nnef_grad.differentiate(graph, rules=rules)
    assert nnef_grad.check(graph, backward, rules=rules).passed
    jacobian = nnef_grad.jacobian(graph, rules=rules)
    assert nnef_grad.check(graph, jacobian, rules=rules).passed


def test_a_body_that_is_evaluated_holds_an_operation_of_the_users_own() -> None:
    found = nnef_grad.evaluate(
        graph_with_a_body(), {"x": np.ones((2, 3))}, rules=rules_for_gate()
    )
    assert (found["y"] == 6.0).all()


def recorded(rules: nnef_grad.Rules, name: str) -> list[tuple[object, ...]]:
    """Enters a shape function of the user's that notes what it is called with."""
    seen: list[tuple[object, ...]] = []
    function = rules.shapes[name]

    @rules.shape(name)
    def shape(*shapes: object, **attributes: object) -> object:
        seen.append(shapes)
        return function(*shapes, **attributes)

    return seen


def test_a_shape_of_the_users_holds_in_a_body_of_the_standard() -> None:
    rules = nnef_grad.Rules()
    seen = recorded(rules, "sqr")
    text = f"version 1.0;\n{GRAPH}".replace(
        "twist(x)", "l2_normalization(x, axes = [1])"
    )
    graph = nnef_grad.loads(text, rules=rules)
    assert not seen
    nnef_grad.differentiate(graph, rules=rules)
    assert ((2, 3),) in seen


def test_a_shape_of_the_users_holds_in_a_body_inside_a_jacobian() -> None:
    rules = nnef_grad.loads_rules("\n".join([GATE, GATE_SHAPE, TWIST, TWIST_SHAPE]))
    square = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]

    @rules.vjp("twist")
    def twist_vjp(emit: Any, operation: Operation, dy: Tensor) -> list[Tensor]:
        return [emit("linear", dy, emit("constant", shape=[3, 3], value=square))]

    seen = recorded(rules, "matmul")
    graph = nnef_grad.loads(f"{HEADER}{TWIST}\n{GRAPH}", rules=rules)
    nnef_grad.jacobian(graph, rules=rules)
    assert ((2, 3), (3, 3)) in seen
