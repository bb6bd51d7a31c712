"""Operations of the user's own: a body is enough; without one, rules say what is needed."""

from __future__ import annotations

from typing import Any

import nnef
import numpy as np
import pytest
import torch
from support.checks import check_gradients

import nnef_grad

HEADER = """version 1.0;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
"""
DECLARATION = (
    "fragment swish( x: tensor<scalar>, beta: scalar = 1.0 ) -> ( y: tensor<scalar> )"
)
BODY = "{ y = x * sigmoid(beta * x); }"
GRAPH = """
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [1, 3], label = 'w');
    h = swish(x, beta = 2.0);
    y = mul(h, w);
}
"""
RULES = f"""
{DECLARATION};

fragment swish_shape( x: tensor<scalar>, beta: scalar = 1.0 ) -> ( y: tensor<scalar> )
{{
    y = copy(x);
}}

fragment swish_vjp( x: tensor<scalar>, y: tensor<scalar>, dy: tensor<scalar>, beta: scalar )
-> ( dx: tensor<scalar> )
{{
    gate = sigmoid(beta * x);
    slope = gate + beta * y * (1.0 - gate);
    dx = dy * slope;
}}
"""


def test_a_body_is_enough() -> None:
    check_gradients(f"{HEADER}{DECLARATION}\n{BODY}\n{GRAPH}")


def test_without_a_body_the_shape_must_be_given() -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}")
    assert caught.value.message == (
        "the shape of what 'swish' returns is not known:"
        " give a rule 'swish_shape' that returns a tensor of that shape"
    )
    assert caught.value.span is not None
    assert caught.value.span.text == "swish"


def test_rules_differentiate_it_and_it_stays_with_its_declaration() -> None:
    rules = nnef_grad.loads_rules(RULES)
    graph = nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}", rules=rules)
    backward = nnef_grad.differentiate(graph, rules=rules)
    text = nnef_grad.dumps(backward)
    assert f"extension KHR_enable_fragment_definitions;\n\n{DECLARATION};\n" in text
    assert "    h = swish(x, beta = 2.0);\n" in text
    assert nnef_grad.loads(text, rules=rules) == backward.graph
    assert nnef.parse_string(text).name == "net_backward"


def test_the_rule_gives_the_gradients_of_the_body() -> None:
    rules = nnef_grad.loads_rules(RULES)
    graph = nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}", rules=rules)
    text = nnef_grad.dumps(nnef_grad.differentiate(graph, rules=rules))
    with_body = text.replace(f"{DECLARATION};", f"{DECLARATION}\n{BODY}").replace(
        "version 1.0;", "version 1.0;\nextension KHR_enable_operator_expressions;"
    )
    from support import reference

    feeds, variables = reference.random_feeds(
        with_body, torch.Generator().manual_seed(1)
    )
    computed = reference.outputs(with_body, feeds, variables)
    model = f"{HEADER}{DECLARATION}\n{BODY}\n{GRAPH}"
    inputs = {"x": feeds["x"]}
    expected = reference.gradients(
        model, inputs, variables, ["x", "w"], {"y": feeds["grad_y"]}
    )
    for actual, wanted in zip(computed, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-12)


def test_without_a_rule_it_has_no_derivative() -> None:
    shape_only = RULES[: RULES.index("fragment swish_vjp")]
    rules = nnef_grad.loads_rules(shape_only)
    graph = nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}", rules=rules)
    with pytest.raises(nnef_grad.NoDerivativeError, match="swish_vjp"):
        nnef_grad.differentiate(graph, rules=rules)
    assert nnef_grad.differentiate(graph, wrt="w", rules=rules).gradients


def test_the_document_and_the_rules_must_mean_the_same_operation() -> None:
    rules = nnef_grad.loads_rules(RULES)
    other = DECLARATION.replace("1.0", "2.0")
    with pytest.raises(nnef_grad.NnefGradError, match="differently"):
        nnef_grad.loads(f"{HEADER}{other};\n{GRAPH}", rules=rules)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("swish_shape( x", "swich_shape( x", "'swich' is not a standard operation: declare it here, without a body"),
        ("_shape( x: tensor<scalar>, beta", "_shape( z: tensor<scalar>, beta", "must be (x, beta)"),
        ("y = copy(x);", "y = copi(x);", "there is no operation 'copi'"),
    ],
)  # fmt: skip
def test_rules_that_do_not_fit(old: str, new: str, message: str) -> None:
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        nnef_grad.loads_rules(RULES.replace(old, new, 1))
    assert any(message in problem.message for problem in caught.value.problems)


# ---- Expansion of the standard's own ----


def test_compound_operations_stay_unless_they_are_named() -> None:
    text = "version 1.0;\ngraph net( x ) -> ( y )\n{\n    x = external(shape = [2, 3]);\n    h = sigmoid(x);\n    y = relu(h);\n}\n"
    assert [op.name for op in nnef_grad.loads(text).operations][1:] == [
        "sigmoid",
        "relu",
    ]
    expanded = nnef_grad.loads(text, expand=["sigmoid"])
    assert [op.name for op in expanded.operations][1:] == [
        "neg",
        "exp",
        "add",
        "div",
        "relu",
    ]
    assert expanded.tensors["h"].shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sigmoyd", "the standard has no operation 'sigmoyd'; did you mean 'sigmoid'?"),
        ("exp", "'exp' is a primitive operation: it has no body"),
    ],
)
def test_what_cannot_be_expanded(name: str, message: str) -> None:
    text = "version 1.0;\ngraph net( x ) -> ( y )\n{\n    x = external(shape = [2]);\n    y = exp(x);\n}\n"
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.loads(text, expand=[name])
    assert caught.value.message == message


# ---- Rules in Python ----


def python_rules() -> nnef_grad.Rules:
    rules = nnef_grad.Rules()
    rules.shape("swish")(lambda x, beta: x)

    @rules.vjp("swish")
    def swish_vjp(
        emit: Any, operation: nnef_grad.Operation, dy: nnef_grad.Tensor
    ) -> Any:
        (x,), (y,) = operation.operands, operation.results
        beta = operation.attributes["beta"]
        gate = emit("sigmoid", emit("mul", beta, x), hint="gate")
        rest = emit("mul", emit("mul", beta, y), emit("sub", 1.0, gate))
        return [emit("mul", dy, emit("add", gate, rest))]

    @rules.evaluation("swish")
    def swish(x: Any, beta: float) -> Any:
        return x / (1.0 + np.exp(-beta * x))

    return rules


def test_functions_differentiate_it() -> None:
    rules = python_rules()
    graph = nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}", rules=rules)
    backward = nnef_grad.differentiate(graph, rules=rules)
    assert nnef_grad.check(graph, backward, rules=rules).passed
    jacobian = nnef_grad.jacobian(graph, rules=rules)
    assert nnef_grad.check(graph, jacobian, rules=rules).passed


def test_a_function_replaces_a_rule_of_the_standard() -> None:
    rules = nnef_grad.Rules()
    rules.vjp("relu")(lambda emit, operation, dy: [dy])
    text = "version 1.0; graph net( x ) -> ( y ) { x = external(shape = [2]); y = relu(x); }"
    graph = nnef_grad.loads(text)
    emitted = nnef_grad.dumps(nnef_grad.differentiate(graph, rules=rules))
    assert "grad_x = copy(grad_y);" in emitted
    assert "select" not in emitted
    assert "select" in nnef_grad.dumps(nnef_grad.differentiate(graph))


def test_a_function_goes_before_the_rule_of_a_file() -> None:
    rules = nnef_grad.loads_rules(RULES)
    rules.vjp("swish")(lambda emit, operation, dy: [None])
    graph = nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}", rules=rules)
    backward = nnef_grad.differentiate(graph, wrt=["x"], rules=rules)
    assert "grad_x = constant(shape = [2, 3], value = [0.0]);" in nnef_grad.dumps(
        backward
    )


def test_what_cannot_be_evaluated_is_named() -> None:
    rules = nnef_grad.loads_rules(RULES)
    graph = nnef_grad.loads(f"{HEADER}{DECLARATION};\n{GRAPH}", rules=rules)
    backward = nnef_grad.differentiate(graph, rules=rules)
    with pytest.raises(nnef_grad.UsageError) as caught:
        nnef_grad.check(graph, backward, rules=rules)
    assert "'swish' has no evaluation" in caught.value.message
