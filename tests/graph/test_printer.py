"""What is printed is read as it was, whatever the values are."""

from __future__ import annotations

import pickle
import struct
from copy import deepcopy
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from support.checks import document
from support.documents import generate
from support.documents.corpus import Document, corpus, differences

import nnef_grad
from nnef_grad.graph.printer import print_operation, print_value
from nnef_grad.language import syntax
from nnef_grad.language.library import STDLIB
from nnef_grad.language.matching import match
from nnef_grad.language.parser import parse_document
from nnef_grad.language.types import ArrayType, Primitive, TensorType, TupleType, Type

PRIMITIVES = ("scalar", "integer", "logical", "string")


def same(left: Any, right: Any) -> bool:
    """Deep equality that tells 1 from 1.0 from true, and 0.0 from -0.0."""
    return repr(left) == repr(right)


# ---- Values ----

_SPECIAL = (
    0.0,
    -0.0,
    1e-45,
    5e-324,
    1e300,
    -1e300,
    1e16,
    1e22,
    0.1,
    1.7976931348623157e308,
)
VALUES: dict[str, SearchStrategy[Any]] = {
    "scalar": st.sampled_from(_SPECIAL)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(width=32, allow_nan=False, allow_infinity=False),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "logical": st.booleans(),
    "string": st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
    | st.text("'\"\\n", max_size=5),
}  # fmt: skip

types = st.recursive(
    st.sampled_from([Primitive(name) for name in PRIMITIVES]),
    lambda inner: (
        inner.map(ArrayType)
        | st.lists(inner, min_size=2, max_size=3).map(lambda ts: TupleType(tuple(ts)))
    ),
    max_leaves=5,
)


def values(type_: Type, dtype: str = "scalar") -> SearchStrategy[Any]:
    """Values of a type, as operations keep them; `?` is the given data type."""
    if isinstance(type_, ArrayType):
        return st.lists(values(type_.item, dtype), max_size=3).map(tuple)
    if isinstance(type_, TupleType):
        return st.tuples(*(values(item, dtype) for item in type_.items))
    assert isinstance(type_, Primitive)
    return VALUES[dtype if type_.dtype == "?" else type_.dtype]


@st.composite
def typed_values(draw: DrawFn) -> tuple[Type, Any]:
    type_ = draw(types)
    return type_, draw(values(type_))


@given(typed_values())
@example((Primitive("string"), "'\"\\"))
@example((Primitive("integer"), -(2**31)))
@example((ArrayType(ArrayType(Primitive("scalar"))), ((), (-0.0, 1e-45))))
def test_a_value_is_read_as_it_was(typed: tuple[Type, Any]) -> None:
    type_, value = typed
    printed = print_value(type_, value)
    (statement,) = statements(f"y = f(a = {printed})")
    assert isinstance(statement.value, syntax.Invocation)
    read = syntax.literal_value(statement.value.values[0])
    assert same(read, value)


def statements(text: str) -> tuple[syntax.Assignment, ...]:
    """The statements of a text, which need not make sense."""
    source = nnef_grad.Source("t", f"version 1.0; graph g( x ) -> ( y ) {{ {text}; }}")
    return parse_document(source).graph.body


# ---- Operations ----


@st.composite
def operations(draw: DrawFn, name: str) -> nnef_grad.Operation:
    """An operation with any arguments of the right types; the shapes need not fit."""
    fragment = STDLIB[name]
    dtype = draw(st.sampled_from(PRIMITIVES)) if fragment.generic else None
    attributes = {
        p.name: draw(maybe_default(p, values(p.type, dtype or "scalar")))
        for p in fragment.attributes
    }
    operands = tuple(
        draw(maybe_default(p, tensors(p.type, dtype or "scalar")))
        for p in fragment.operands
    )
    results = tuple(
        called(f"r{i}", "scalar", ())
        if isinstance(r.type, TensorType)
        else tuple(called(f"r{i}_{j}", "scalar", ()) for j in range(2))
        for i, r in enumerate(fragment.results)
    )
    return nnef_grad.Operation(
        fragment, operands, cast("Any", attributes), results, dtype
    )


NAMES: dict[nnef_grad.Tensor, str] = {}


def called(name: str, dtype: str, shape: tuple[int, ...]) -> nnef_grad.Tensor:
    """A new tensor of a name."""
    made = nnef_grad.Tensor(dtype, shape)
    NAMES[made] = name
    return made


def maybe_default(
    parameter: syntax.Parameter, strategy: SearchStrategy[Any]
) -> SearchStrategy[Any]:
    """The default of a parameter now and then, which is left out when printed."""
    if parameter.default is None:
        return strategy
    return st.just(syntax.literal_value(parameter.default)) | strategy


def tensors(type_: Type, dtype: str) -> SearchStrategy[Any]:
    """Tensors, and literals in their place."""
    if isinstance(type_, ArrayType):
        return st.lists(tensors(type_.item, dtype), max_size=3).map(tuple)
    assert isinstance(type_, TensorType)
    actual = dtype if type_.dtype in (None, "?") else type_.dtype
    assert actual is not None
    names = st.sampled_from(["x", "w", "_1"])
    return names.map(lambda n: called(n, actual, (2,))) | VALUES[actual]


@pytest.mark.parametrize("name", list(STDLIB))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_operation_is_read_as_it_was(name: str, data: st.DataObject) -> None:
    operation = data.draw(operations(name))
    (statement,) = statements(print_operation(operation, NAMES))
    invocation = statement.value
    assert isinstance(invocation, syntax.Invocation)
    assert invocation.name == name
    given_values = {**operation.definition.defaults, **arguments(invocation)}
    wanted = dict(
        zip(
            (p.name for p in operation.definition.operands),
            operation.operands,
            strict=True,
        )
    )
    assert same(given_values, {**given_values, **named(wanted), **operation.attributes})
    assert same(targets(statement.target), [named_value(r) for r in operation.results])
    if invocation.dtype is not None:
        assert invocation.dtype == operation.dtype


class Name(str):
    """The name of a tensor, beside a string."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"%{self}"


def arguments(invocation: syntax.Invocation) -> dict[str, Any]:
    """The values of the arguments by parameter."""
    names = match(STDLIB[invocation.name], invocation)
    return dict(zip(names, map(read_value, invocation.values), strict=True))


def read_value(expression: syntax.Expression) -> Any:
    if isinstance(expression, syntax.Identifier):
        return Name(expression.name)
    if isinstance(expression, (syntax.Array, syntax.Tuple)):
        return tuple(map(read_value, expression.items))
    return syntax.literal_value(expression)


def named(values: dict[str, Any]) -> dict[str, Any]:
    return {key: named_value(value) for key, value in values.items()}


def named_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(named_value, value))
    return Name(NAMES[value]) if isinstance(value, nnef_grad.Tensor) else value


def targets(target: syntax.Target) -> list[Any]:
    read = read_value(target)
    return list(read) if isinstance(target, syntax.Tuple) else [read]


# ---- Graphs ----


def round_trip(graph: nnef_grad.Graph) -> None:
    text = nnef_grad.dumps(graph)
    again = nnef_grad.loads(text)
    assert again == graph
    assert nnef_grad.dumps(again) == text


VALID = [
    *(d for d in corpus() if d.valid),
    *(d for group in differences() for d in group.documents if d.valid),
]


@pytest.mark.parametrize("document", [pytest.param(d, id=d.name) for d in VALID])
def test_a_document_is_read_as_it_was(document: Document) -> None:
    round_trip(nnef_grad.loads(document.text, expand=document.expanded))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_random_flat_document_is_read_as_it_was(seed: int) -> None:
    round_trip(nnef_grad.loads(generate.flat(seed)))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_a_random_compositional_document_is_read_as_it_was(seed: int) -> None:
    round_trip(nnef_grad.loads(generate.compositional(seed)))


def bits(value: float) -> bytes:
    return struct.pack("d", value)


@given(VALUES["scalar"])
def test_a_scalar_keeps_its_bits(value: float) -> None:
    text = (
        "version 1.0; graph g( x ) -> ( y ) { x = external(shape = [2]);"
        f" y = leaky_relu(x, alpha = {print_value(Primitive('scalar'), value)}); }}"
    )
    graph = nnef_grad.loads(text)
    assert bits(graph.operations[-1].attributes["alpha"]) == bits(value)
    round_trip(graph)


# ---- Equality ----


def test_graphs_of_one_text_are_equal() -> None:
    text = document("x = external(shape = [2]); y = neg(x);", "x")
    graph, again = nnef_grad.loads(text), nnef_grad.loads(text)
    assert graph == again
    assert hash(graph) == hash(again)
    assert graph.outputs != again.outputs
    assert graph != nnef_grad.loads(text.replace("neg", "exp"))
    assert graph != nnef_grad.loads(text.replace("[2]", "[3]"))


def test_a_graph_is_copied_with_its_names() -> None:
    graph = nnef_grad.loads(document("x = external(shape = [2]); y = neg(x);", "x"))
    for copied in (deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert copied == graph
        assert copied.output_names == ("y",)


def test_operations_of_users_may_be_called_loop() -> None:
    text = """version 1.0;
extension KHR_enable_fragment_definitions;

fragment loop( x: tensor<scalar>, loop: integer = 2 ) -> ( y: tensor<scalar> );

graph net( x ) -> ( y )
{
    x = external(shape = [2]);
    y = loop(x, loop = 3);
}
"""
    rules = nnef_grad.Rules()
    rules.shape("loop")(lambda x, loop: x)
    graph = nnef_grad.loads(text, rules=rules)
    assert nnef_grad.dumps(graph) == text
