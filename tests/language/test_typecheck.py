"""The static rules of the language: what is refused, at which place, in which words.

What is at fault stands between the marks of a row, « and ». Whole documents, with the
report as users see it, are in tests/cases/errors; what the standard accepts and what it
refuses is in tests/support/documents/corpus.txt, beside the Khronos parser.
"""

from __future__ import annotations

from typing import NoReturn

import pytest
from support.statements import FRAGMENTS, OPERATORS

import nnef_grad
from nnef_grad.autodiff.rules import DERIVATIVES
from nnef_grad.base.source import Source
from nnef_grad.language.check_document import check_fragments
from nnef_grad.language.library import STDLIB
from nnef_grad.language.parser import parse_invocation
from nnef_grad.language.typecheck import ExpressionChecker
from nnef_grad.language.types import TensorType, Type

HEADER = f"version 1.0;\n{OPERATORS}{FRAGMENTS}"
GRAPH = "graph net( x ) -> ( y ) {{ x = external(shape = [4]); {} }}"


def assert_refused(text: str, message: str) -> None:
    """A document in which the part between the marks alone is at fault."""
    before, part = text.split("«")
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(text.replace("«", "").replace("»", ""))
    (problem,) = caught.value.problems
    assert problem.message == message
    assert problem.span is not None
    assert problem.span.text == part.split("»")[0]
    assert problem.span.line == 1 + before.count("\n")
    assert problem.span.column == len(before) - before.rfind("\n")


# ---- The graph ----


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("y = relu(«missing»);", "'missing' is not defined"),
        ("y = «reluu»(x);", "there is no operation 'reluu'; did you mean 'relu'?"),
        ("y = relu(x); «y» = exp(x);", "'y' is already defined"),
        ("y = relu(x); «z» = external(shape = [1]);", "external 'z' is not an input of the graph: name it in the signature"),
        ("«(y, z)» = relu(x);", "the names expect several results, but this is one tensor"),
        ("«[y, z]» = relu(x);", "the names expect an array, but this is one tensor"),
        ("«(y, z, v)» = max_pool_with_index(x, size = [1]);", "3 names for 2 results"),
        ("«y» = max_pool_with_index(x, size = [1]);", "'y' is one name for 2 results: give each a name"),
        ("«y» = [1.0];", "'y' must be a tensor, but this is scalar[]"),
        ("y = relu(«split»(x, axis = 0, ratios = [1, 1]));", "'split' does not return one tensor: name its results"),
        ("y = relu(«external»(shape = [1]));", "external cannot be used in an expression: its result is an input"),
        ("y = relu(x); z = update(«x», y);", "only a variable can be updated"),
    ],
)  # fmt: skip
def test_statements(statements: str, message: str) -> None:
    assert_refused(HEADER + GRAPH.format(statements), message)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("graph net( x, «x» ) -> ( y ) { x = external(shape = [4]); y = relu(x); }", "'x' is declared twice"),
        ("graph net( x ) -> ( y, «y» ) { x = external(shape = [4]); y = relu(x); }", "'y' is declared twice"),
        ("graph net( x, «w» ) -> ( y ) { x = external(shape = [4]); y = relu(x); }", "input 'w' of the graph is not defined: give it an external operation"),
        ("graph net( x ) -> ( y, «z» ) { x = external(shape = [4]); y = relu(x); }", "output 'z' of the graph is not assigned"),
    ],
)  # fmt: skip
def test_the_interface_of_a_graph(graph: str, message: str) -> None:
    assert_refused(HEADER + graph, message)


# ---- Arguments ----


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("leaky_relu(x, alpha = «1»)", "argument 'alpha' of 'leaky_relu' must be scalar, not integer: write 1.0"),
        ("sum_reduce(x, axes = «0»)", "argument 'axes' of 'sum_reduce' must be integer[], not integer: write [0]"),
        ("transpose(x, axes = [0, «1.0»])", "the items of an array must be of one type, but this is scalar"),
        ("pad(x, padding = [(0, «1.0»)])", "argument 'padding' of 'pad' must be (integer, integer)[], not (integer, scalar)[]"),
        ("relu(«'a'»)", "argument 'x' of 'relu' must be tensor<scalar>, not string"),
        ("select(«x», x, x)", "argument 'condition' of 'select' must be tensor<logical>, not tensor<scalar>"),
        ("«relu»<scalar>(x)", "'relu' takes no data type"),
    ],
)  # fmt: skip
def test_arguments(expression: str, message: str) -> None:
    assert_refused(HEADER + GRAPH.format(f"y = {expression};"), message)


# ---- Expressions ----


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("x * «2147483648»", "integer 2147483648 does not fit in 32 bits"),
        ("x * «1e400»", "this scalar is too large"),
        ("add_n([x, «1»])", "the items of an array must be of one type, but this is integer"),
        ("x * («1 + 2.0»)", "'+' does not apply to integer and scalar: write 1.0"),
        ("x * (1.0 if «2» else 0.0)", "this must be logical, but is integer"),
        ("x * («1.0 if true else 2»)", "the branches have different types, scalar and integer"),
        ("add_n([for i in «2» yield x])", "this must be an array, but is integer"),
        ("add_n([for i in [1, 2] if «i» yield x])", "this must be logical, but is integer"),
        ("x * [1.0][«0.0»]", "this must be integer, but is scalar"),
        ("x * «1.0»[0]", "scalar has no items"),
        ("x * (1.0, 2.0)[«1 - 1»]", "the index of a tuple must be a literal"),
        ("x * (1.0, 2.0)[«2»]", "index 2 is out of range: the tuple has 2 items"),
        ("sum_reduce(x, axes = [0][«0.0»:])", "this must be integer, but is scalar"),
        ("sum_reduce(x, axes = «x»[0:])", "tensor<scalar> has no range of items"),
        ("x * scalar(«shape_of(x)»[0])", "shape_of is deprecated: shapes are not known to the language"),
        ("x * scalar(length_of(«1»))", "length_of does not apply to integer"),
    ],
)  # fmt: skip
def test_expressions(expression: str, message: str) -> None:
    assert_refused(HEADER + GRAPH.format(f"y = {expression};"), message)


# ---- Fragments ----


@pytest.mark.parametrize(
    ("fragment", "message"),
    [
        ("fragment f( a: tensor<scalar>, «a»: scalar ) -> ( b: tensor<scalar> ) { b = copy(a); }", "'a' is declared twice"),
        ("fragment f( «a»: (tensor<scalar>, scalar) ) -> ( b: tensor<scalar> );", "'a' mixes tensors and attributes"),
        ("fragment f( a: scalar, «b»: tensor<scalar> ) -> ( c: tensor<scalar> );", "tensor 'b' must come before the attributes"),
        ("fragment f( a: tensor<scalar> ) -> ( «b»: scalar );", "result 'b' must be a tensor"),
        ("fragment f( a: tensor<scalar> ) -> ( «b»: tensor<> );", "result 'b' must have a data type"),
        ("fragment «f»( a: tensor<?> ) -> ( b: tensor<?> );", "'f' uses the type '?': declare f<?>"),
        ("fragment «f»<?>( a: tensor<scalar> ) -> ( b: tensor<scalar> );", "'f' is generic, but no type in it is '?'"),
        ("fragment f( a: tensor<scalar>, b: scalar = «1» ) -> ( c: tensor<scalar> );", "the default of 'b' must be scalar, but is integer"),
        ("fragment f( a: tensor<scalar> ) -> ( b: tensor<scalar>, «c»: tensor<scalar> ) { b = copy(a); }", "result 'c' is not assigned"),
        ("fragment f( a: tensor<scalar> ) -> ( b: tensor<scalar> ) { «b» = lt(a, 0.0); }", "result 'b' is tensor<scalar>, but this is tensor<logical>"),
        ("fragment f( a: tensor<scalar> ) -> ( b: tensor<scalar> ) { b = «variable»(shape = [1], label = 'b'); }", "'variable' cannot be used in a fragment, only in the graph"),
        ("fragment g<?>( a: tensor<scalar> ) -> ( c: tensor<?> ); "
            "fragment f( a: tensor<scalar> ) -> ( b: tensor<scalar> ) { c = «g»<?>(a); b = copy(a); }",
            "the type '?' has a meaning in a generic fragment only"),
        ("fragment g<?>( a: tensor<scalar>, b: ? = 1.0 ) -> ( c: tensor<?> ); "
            "fragment f( a: tensor<scalar> ) -> ( b: tensor<integer> ) { b = «g»<integer>(a); }",
            "the default of 'b' is not integer: give a value"),
        ("fragment g<?>( a: tensor<scalar> ) -> ( c: tensor<?> ); fragment f( a: tensor<scalar> ) -> ( b: tensor<scalar> ) { b = «g»(a); }", "'g' needs a data type: write g<scalar>(...)"),
    ],
)  # fmt: skip
def test_fragments(fragment: str, message: str) -> None:
    assert_refused(f"{HEADER}{fragment}\n{GRAPH.format('y = relu(x);')}", message)


# ---- Nesting ----

DEEP = 10_000
NESTED = [
    "relu(" * DEEP + "x" + ")" * DEEP,
    "x" + " + x" * DEEP,
    "-" * DEEP + "x",
    "add_n(" + "[" * DEEP + "x" + "]" * DEEP + ")",
]


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("expression", NESTED, ids=["calls", "sum", "signs", "arrays"])
def test_deep_nesting(expression: str, lenient: bool) -> None:
    text = f"{HEADER}{GRAPH.format(f'y = {expression};')}"
    with pytest.raises(nnef_grad.InvalidGraphError) as caught:
        nnef_grad.loads(text, lenient=lenient)
    (problem,) = caught.value.problems
    assert problem.message == "this is nested too deeply"
    assert problem.span is not None
    assert problem.span.text.startswith("y = ")


@pytest.mark.parametrize(
    "expression", ["relu(" * 100 + "x" + ")" * 100, "x" + " + x" * 200]
)
def test_nesting_that_somebody_may_write(expression: str) -> None:
    text = f"{HEADER}{GRAPH.format(f'y = {expression};')}"
    assert len(nnef_grad.loads(text).operations) > 100


# ---- What is well typed ----


class Uncopied(dict[str, Type]):
    """Names that nobody goes through."""

    def __iter__(self) -> NoReturn:
        pytest.fail("these names are many, and so are the comprehensions")

    keys = __iter__


def test_a_comprehension_copies_no_names() -> None:
    checker = ExpressionChecker(STDLIB)
    checker.types = Uncopied(x=TensorType("scalar"))
    source = Source("<string>", "add_n([for k in [1, 2] yield x])")
    assert checker.type_of(parse_invocation(source)) == TensorType("scalar")


def test_the_rules_and_the_standard_library_are_well_typed() -> None:
    rules = {**STDLIB, **DERIVATIVES}
    assert check_fragments(rules.values(), rules) == []
