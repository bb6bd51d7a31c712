"""What a rule of the user's returns, and what it asks for, is checked in number and
kind: a gradient that is silently wrong is the worst that a compiler of gradients can do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnef_grad

PRODUCT = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [2, 3]);
    w = variable(shape = [2, 3], label = 'w');
    y = mul(x, w);
}
"""
JOINED = """version 1.0;
graph net( a, b ) -> ( y )
{
    a = external(shape = [2, 3]);
    b = external(shape = [2, 3]);
    y = concat([a, b], axis = 0);
}
"""
HEADER = "version 1.0;\nextension KHR_enable_fragment_definitions;\n"
ONE = "fragment twist( x: tensor<scalar> ) -> ( y: tensor<scalar> );"
TWO = (
    "fragment twist( x: tensor<scalar> ) -> ( y: tensor<scalar>, z: tensor<logical> );"
)
MANY = "fragment twist( x: tensor<scalar> ) -> ( y: tensor<scalar>[] );"
INPUT = "graph net( x ) -> ( y )\n{\n    x = external(shape = [2, 3]);\n"
ONE_GRAPH = f"{HEADER}{ONE}\n{INPUT}    y = twist(x);\n}}\n"
TWO_GRAPH = f"{HEADER}{TWO}\n{INPUT}    (y, z) = twist(x);\n}}\n"
MANY_GRAPH = f"{HEADER}{MANY}\n{INPUT}    [y, z] = twist(x);\n}}\n"


def message_of(action: Callable[[], object], place: str) -> str:
    """What the user is told, at the operation that it is about."""
    with pytest.raises(nnef_grad.NnefGradError) as caught:
        action()
    assert caught.value.span is not None
    assert caught.value.span.text == place
    return caught.value.message


# ---- Gradients ----


STRANGER = nnef_grad.Tensor("scalar", (2, 3))
GRADIENTS: list[tuple[Callable[..., Any], str]] = [
    (lambda emit, op, dz: [dz], "1 gradient, and 2 are wanted, for x and y"),
    (lambda emit, op, dz: [dz] * 5, "5 gradients, and 2 are wanted, for x and y"),
    (lambda emit, op, dz: [], "0 gradients, and 2 are wanted, for x and y"),
    (lambda emit, op, dz: dz, "a tensor, and a list of 2 gradients is wanted, for x and y"),
    (lambda emit, op, dz: None, "None, and a list of 2 gradients is wanted, for x and y"),
    (lambda emit, op, dz: "zz", "a value of type str, and a list of 2 gradients is wanted, for x and y"),
    (lambda emit, op, dz: {0: dz, 1: dz}, "a value of type dict, and a list of 2 gradients is wanted, for x and y"),
    (lambda emit, op, dz: [dz, "z"], "a value of type str for y: a tensor, a number or None is wanted"),
    (lambda emit, op, dz: [dz, True], "a value of type bool for y: a tensor, a number or None is wanted"),
    (lambda emit, op, dz: [[dz], dz], "a value of type list for x: a tensor, a number or None is wanted"),
    (lambda emit, op, dz: [dz, float("nan")], "nan for y: a gradient is finite"),
    (lambda emit, op, dz: [dz, 10**400], "inf for y: a gradient is finite"),
    (lambda emit, op, dz: [dz, STRANGER], "a tensor of shape [2, 3] for y, which is not of this graph"),
    (lambda emit, op, dz: [dz, emit("gt", dz, 0.0)], "a tensor of type logical for y: a gradient is of type scalar"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "message"), GRADIENTS, ids=[m for _, m in GRADIENTS])
def test_gradients_of_the_wrong_number_or_kind(
    rule: Callable[..., Any], message: str
) -> None:
    rules = nnef_grad.Rules()
    rules.vjp("mul")(rule)
    graph = nnef_grad.loads(PRODUCT)
    told = message_of(lambda: nnef_grad.differentiate(graph, rules=rules), "mul")
    assert told == f"the rule 'mul_vjp' returns {message}"


@pytest.mark.parametrize(
    "emitted",
    [
        lambda emit, dz: emit("reshape", dz, shape=[6]),
        lambda emit, dz: emit("sum_reduce", dz, axes=[0]),
        lambda emit, dz: emit("concat", [dz, dz], axis=0),
    ],
)
def test_a_gradient_of_another_shape(emitted: Callable[..., Any]) -> None:
    rules = nnef_grad.Rules()
    rules.vjp("mul")(lambda emit, op, dz: [emitted(emit, dz), dz])
    graph = nnef_grad.loads(PRODUCT)
    told = message_of(lambda: nnef_grad.differentiate(graph, rules=rules), "mul")
    assert told.startswith("the rule 'mul_vjp' returns a gradient of shape")
    assert told.endswith("for operand 'x' of shape [2, 3]")


def test_a_gradient_of_neither_the_operands_nor_the_results_extent() -> None:
    rules = nnef_grad.Rules()
    rules.vjp("mul")(lambda emit, op, dz: [dz, emit("concat", [dz, dz], axis=0)])
    graph = nnef_grad.loads(PRODUCT.replace("[2, 3], label", "[1, 3], label"))
    told = message_of(lambda: nnef_grad.differentiate(graph, rules=rules), "mul")
    assert told.endswith("a gradient of shape [4, 3] for operand 'w' of shape [1, 3]")


JOINED_GRADIENTS: list[tuple[Callable[..., Any], str]] = [
    (lambda emit, op, dy: [[dy]], "1 gradient for the 2 tensors of values"),
    (lambda emit, op, dy: [dy], "a tensor for the 2 tensors of values: a list of gradients is wanted"),
    (lambda emit, op, dy: [1.0], "a value of type float for the 2 tensors of values: a list of gradients is wanted"),
    (lambda emit, op, dy: [["a", "b"]], "a value of type str for values[0]: a tensor, a number or None is wanted"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "message"), JOINED_GRADIENTS)
def test_gradients_of_an_array_of_tensors(
    rule: Callable[..., Any], message: str
) -> None:
    rules = nnef_grad.Rules()
    rules.vjp("concat")(rule)
    graph = nnef_grad.loads(JOINED)
    told = message_of(lambda: nnef_grad.differentiate(graph, rules=rules), "concat")
    assert told == f"the rule 'concat_vjp' returns {message}"


def test_numbers_and_tuples_are_gradients_too() -> None:
    rules = nnef_grad.Rules()
    rules.vjp("mul")(lambda emit, op, dz: (2, None))
    backward = nnef_grad.differentiate(nnef_grad.loads(PRODUCT), rules=rules)
    assert "grad_x = constant(shape = [2, 3], value = [2.0]);" in nnef_grad.dumps(
        backward
    )


CONCAT_VJP = "fragment concat_vjp<?>( values: tensor<?>[], value: tensor<?>, dvalue: tensor<scalar>, axis: integer )\n-> "


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            f"{CONCAT_VJP}( dvalues: tensor<scalar>[] ) {{ dvalues = [dvalue]; }}",
            "1 gradient for the 2 tensors of values",
        ),
        (
            f"{CONCAT_VJP}( dvalues: tensor<scalar> ) {{ dvalues = copy(dvalue); }}",
            "a tensor for the 2 tensors of values: a list of gradients is wanted",
        ),
    ],
)
def test_gradients_of_a_rule_in_nnef(rule: str, message: str) -> None:
    rules = nnef_grad.loads_rules(rule)
    graph = nnef_grad.loads(JOINED)
    told = message_of(lambda: nnef_grad.differentiate(graph, rules=rules), "concat")
    assert told == f"the rule 'concat_vjp' returns {message}"


# ---- Shapes ----

SHAPES: list[tuple[str, Any, str]] = [
    (ONE_GRAPH, None, "None for y: a shape is wanted"),
    (ONE_GRAPH, 6, "6 for y: a shape is wanted"),
    (ONE_GRAPH, "23", "'23' for y: a shape is wanted"),
    (ONE_GRAPH, (2, -3), "(2, -3) for y: an extent is not negative"),
    (ONE_GRAPH, (2, 3.0), "(2, 3.0) for y: a shape is wanted"),
    (ONE_GRAPH, (2, True), "(2, True) for y: a shape is wanted"),
    (ONE_GRAPH, [(2, 3)], "[(2, 3)] for y: a shape is wanted"),
    (TWO_GRAPH, [(2, 3)], "[(2, 3)], and a list of 2 shapes is wanted, for y and z"),
    (TWO_GRAPH, [(2, 3)] * 3, "[(2, 3), (2, 3), (2, 3)], and a list of 2 shapes is wanted, for y and z"),
    (TWO_GRAPH, (2, 3), "2 for y: a shape is wanted"),
    (TWO_GRAPH, None, "None, and a list of 2 shapes is wanted, for y and z"),
    (MANY_GRAPH, None, "None for y: a list of shapes is wanted"),
    (MANY_GRAPH, (2, 3), "2 for y: a shape is wanted"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shape", "message"), SHAPES)
def test_shapes_of_the_wrong_number_or_kind(
    text: str, shape: Any, message: str
) -> None:
    rules = nnef_grad.Rules()
    rules.shape("twist")(lambda x: shape)
    told = message_of(lambda: nnef_grad.loads(text, rules=rules), "twist")
    assert told == f"the rule 'twist_shape' returns {message}"


@pytest.mark.parametrize("shape", [(2, 3), [2, 3], tuple(np.array([2, 3]))])
def test_a_shape_may_be_a_list_and_of_numpys_integers(shape: Any) -> None:
    rules = nnef_grad.Rules()
    rules.shape("twist")(lambda x: shape)
    graph = nnef_grad.loads(ONE_GRAPH, rules=rules)
    assert nnef_grad.dumps(graph) == ONE_GRAPH.replace(f"{ONE}\n", f"\n{ONE}\n\n")
    assert repr(graph.tensors["y"].shape) == "(2, 3)"


# ---- Evaluations ----

FULL = np.ones((2, 3))
EVALUATIONS: list[tuple[str, Any, str]] = [
    (ONE_GRAPH, FULL[0], "an array of shape [3] for 'y', whose shape is [2, 3]"),
    (ONE_GRAPH, [FULL], "an array of shape [1, 2, 3] for 'y', whose shape is [2, 3]"),
    (ONE_GRAPH, None, "None for 'y', which is no array"),
    (ONE_GRAPH, "no", "an array of shape [] for 'y', whose shape is [2, 3]"),
    (ONE_GRAPH, [["a"] * 3] * 2, "an array of <U1 for 'y', whose type is scalar"),
    (ONE_GRAPH, [[1.0], [1.0, 2.0]], "a value of type list for 'y', which is no array"),
    (ONE_GRAPH, FULL * 1j, "an array of complex128 for 'y', whose type is scalar"),
    (ONE_GRAPH, FULL > 0, "an array of bool for 'y', whose type is scalar"),
    (TWO_GRAPH, [FULL], "1 result, and 2 are wanted"),
    (TWO_GRAPH, [FULL] * 3, "3 results, and 2 are wanted"),
    (TWO_GRAPH, FULL, "an array, and a list of 2 is wanted"),
    (TWO_GRAPH, None, "None, and a list of 2 is wanted"),
    (TWO_GRAPH, [FULL, FULL], "an array of float64 for 'z', whose type is logical"),
    (MANY_GRAPH, FULL, "an array, and a list of 2 is wanted"),
    (MANY_GRAPH, [FULL], "1 result, and 2 are wanted"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "message"), EVALUATIONS)
def test_evaluations_of_the_wrong_number_or_kind(
    text: str, value: Any, message: str
) -> None:
    shapes = {TWO_GRAPH: [(2, 3)] * 2, MANY_GRAPH: [(2, 3)] * 2}
    rules = nnef_grad.Rules()
    rules.shape("twist")(lambda x: shapes.get(text, x))
    rules.evaluation("twist")(lambda x: value)
    graph = nnef_grad.loads(text, rules=rules)
    told = message_of(
        lambda: nnef_grad.evaluate(graph, {"x": FULL}, rules=rules), "twist"
    )
    assert told == f"the evaluation of 'twist' gives {message}"


# ---- What a rule emits ----


def surrounded(emit: Callable[..., Any], x: Any) -> Any:
    """With zeros around it, which a simplified form does without."""
    return emit("pad", x, padding=[(0, 0), (1, 1)])


def repeated(emit: Callable[..., Any], x: Any) -> Any:
    total = emit("sum_reduce", x, axes=[1])
    return emit("tile", total, repeats=[1, 3])


EMISSIONS: list[tuple[Callable[..., Any], str]] = [
    (
        lambda emit, x: emit("pad", x, padding=[(0, 0), (1, 1)], boarder="constant", valeu=1.0),
        "'pad' has no attribute 'boarder'; did you mean 'border'?",
    ),
    (lambda emit, x: emit("slice", surrounded(emit, x), axes=[7], begin=[1], end=[4]), "slice: 'axes' must be in 0..1 for rank 2, but are [7]"),
    (lambda emit, x: emit("slice", surrounded(emit, x), axes=[1], begin=[], end=[4]), "slice: 'begin' must have an item for each of 1 axes, but has 0"),
    (lambda emit, x: emit("sum_reduce", surrounded(emit, x), axes=[1, 9]), "sum_reduce: 'axes' must be in 0..1 for rank 2, but are [1, 9]"),
    (lambda emit, x: emit("mul", repeated(emit, x), emit("constant", shape=[2, 4], value=(1.0,))), "mul: the shapes [2, 3] and [2, 4] cannot be broadcast: dimensions align from the left"),
    (lambda emit, x: emit("neg", x, colour=1), "'neg' has no attribute 'colour'"),
    (lambda emit, x: emit("sum_reduce", x, axis=[0]), "'sum_reduce' has no attribute 'axis'; did you mean 'axes'?"),
    (lambda emit, x: emit("mul", x, y=x), "'y' of 'mul' is an operand: give it in its place, without a keyword"),
    (lambda emit, x: emit("mull", x, x), "there is no operation 'mull'; did you mean 'mul'?"),
    (lambda emit, x: emit("neg", x, x), "'neg' takes 1 operand, and 2 are given"),
    (lambda emit, x: emit("sum_reduce", x, [0]), "'sum_reduce' takes 1 operand, and 2 are given: attributes need their keyword"),
    (lambda emit, x: emit("mul", x), "'mul' needs operand 'y'"),
    (lambda emit, x: emit("mul"), "'mul' needs operands 'x' and 'y'"),
    (lambda emit, x: emit("sum_reduce", x), "'sum_reduce' needs attribute 'axes'"),
    (lambda emit, x: emit("sum_reduce", x, axes=0), "argument 'axes' of 'sum_reduce' must be integer[], not 0"),
    (lambda emit, x: emit("sum_reduce", x, axes=[0.0]), "argument 'axes' of 'sum_reduce' must be integer[], not [0.0]"),
    (lambda emit, x: emit("mul", x, None), "argument 'y' of 'mul' must be tensor<scalar>, not None"),
    (lambda emit, x: emit("mul", x, [x, x]), "argument 'y' of 'mul' must be tensor<scalar>, not [tensor<scalar>, tensor<scalar>]"),
    (lambda emit, x: emit("mul", x, emit("gt", x, 0.0)), "argument 'y' of 'mul' must be tensor<scalar>, not tensor<logical>"),
    (lambda emit, x: emit("mul", x, STRANGER), "an operand of 'mul', a tensor<scalar> of shape [2, 3], is not of this graph"),
    (lambda emit, x: emit("concat", [x, STRANGER], axis=0), "an operand of 'concat', a tensor<scalar> of shape [2, 3], is not of this graph"),
    (lambda emit, x: emit("moments", x, axes=[0]), "'moments' has 2 results, and emit returns one"),
    (lambda emit, x: emit("cast", None, dtype="scalar"), "argument 'input' of 'cast' must be tensor<>, not None"),
    (lambda emit, x: emit("cast", x), "'cast' needs its data type: give dtype"),
    (lambda emit, x: emit("neg", x, dtype="scalar"), "there is no operation 'neg<scalar>'"),
    (lambda emit, x: emit("copy", x, dtype="real"), "there is no operation 'copy<real>'"),
    (lambda emit, x: emit("copy", x, dtype="integer"), "argument 'x' of 'copy' must be tensor<?>, not tensor<scalar>"),
    (lambda emit, x: emit("reshape", x, shape=[5]), "reshape: "),
]  # fmt: skip


@pytest.mark.parametrize(
    ("emitted", "message"), EMISSIONS, ids=[m for _, m in EMISSIONS]
)
def test_what_cannot_be_emitted(emitted: Callable[..., Any], message: str) -> None:
    rules = nnef_grad.Rules()
    rules.vjp("mul")(lambda emit, op, dz: [emitted(emit, dz), dz])
    graph = nnef_grad.loads(PRODUCT)
    told = message_of(lambda: nnef_grad.differentiate(graph, rules=rules), "mul")
    assert told.startswith(message)


# ---- Operations that there are not ----

KINDS = ("vjp", "shape", "evaluation")
MEETINGS: dict[str, Callable[[nnef_grad.Graph, nnef_grad.Rules], object]] = {
    "loads": lambda graph, rules: nnef_grad.loads(PRODUCT, rules=rules),
    "differentiate": lambda graph, rules: nnef_grad.differentiate(graph, rules=rules),
    "jacobian": lambda graph, rules: nnef_grad.jacobian(graph, rules=rules),
    "evaluate": lambda graph, rules: nnef_grad.evaluate(
        graph, {"x": FULL}, {"w": FULL}, rules=rules
    ),
    "check": lambda graph, rules: nnef_grad.check(
        graph, nnef_grad.differentiate(graph), rules=rules
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("meeting", MEETINGS)
def test_a_rule_for_an_operation_that_there_is_not(kind: str, meeting: str) -> None:
    rules = nnef_grad.Rules()
    getattr(rules, kind)("mull")(lambda *arguments, **attributes: None)
    with pytest.raises(nnef_grad.UsageError) as caught:
        MEETINGS[meeting](nnef_grad.loads(PRODUCT), rules)
    assert caught.value.message.startswith(
        f"the rules have the {kind} of 'mull', which is not an operation of the standard,"
        " of the rules or of the graph; did you mean 'mul'?"
    )


def rules_for_twist(*kinds: str) -> nnef_grad.Rules:
    functions: dict[str, Callable[..., Any]] = {
        "shape": lambda x: x,
        "vjp": lambda emit, op, dy: [dy],
        "evaluation": lambda x: x,
    }
    rules = nnef_grad.Rules()
    for kind in kinds:
        getattr(rules, kind)("twist")(functions[kind])
    return rules


def test_what_the_document_declares_is_known_to_its_backward_graph() -> None:
    graph = nnef_grad.loads(ONE_GRAPH, rules=rules_for_twist("shape"))
    rules = rules_for_twist("vjp")
    backward = nnef_grad.differentiate(graph, rules=rules)
    assert "twist" not in nnef_grad.dumps(backward)
    seeds = {"x": FULL, "grad_y": FULL}
    nnef_grad.evaluate(backward, seeds, rules=rules)
    nnef_grad.differentiate(backward.graph, wrt="grad_y", rules=rules)
    jacobian = nnef_grad.jacobian(graph, rules=rules)
    nnef_grad.evaluate(jacobian, {"x": FULL}, rules=rules)


def test_an_operation_whose_body_took_its_place_is_known() -> None:
    with_body = ONE_GRAPH.replace(ONE, f"{ONE[:-1]} {{ y = copy(x); }}")
    graph = nnef_grad.loads(with_body)
    nnef_grad.evaluate(graph, {"x": FULL}, rules=rules_for_twist("evaluation"))


@pytest.mark.parametrize("other", ["vjp", "evaluation"])
def test_rules_may_be_for_other_documents_too(other: str) -> None:
    rules = rules_for_twist("shape", other)
    nnef_grad.differentiate(nnef_grad.loads(PRODUCT, rules=rules), rules=rules)


def test_what_the_rules_declare_is_known_to_every_graph() -> None:
    rules = nnef_grad.loads_rules(ONE)
    rules.vjp("twist")(lambda emit, op, dy: [dy])
    assert nnef_grad.differentiate(nnef_grad.loads(PRODUCT), rules=rules).gradients


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_is_entered_under_a_name(kind: str) -> None:
    with pytest.raises(nnef_grad.UsageError) as caught:
        getattr(nnef_grad.Rules(), kind)(lambda emit, op, dz: [dz, dz])
    assert caught.value.message == (
        f"a rule needs the name of its operation: @rules.{kind}('mul'), say"
    )
