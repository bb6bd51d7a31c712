"""Documents are read, and written as they were read."""

from __future__ import annotations

import nnef
import pytest
from support.statements import graph_of, lines, round_trip

import nnef_grad
from bench.published import PUBLISHED
from nnef_grad.base.source import Source
from nnef_grad.language.parser import parse_document


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_networks_are_read_as_the_khronos_parser_reads_them(name: str) -> None:
    text = PUBLISHED[name]()
    graph = nnef_grad.loads(text)
    round_trip(graph)
    khronos = nnef.parse_string(text)
    nnef.infer_shapes(khronos)
    assert [op.name for op in graph.operations] == [
        op.name for op in khronos.operations
    ]
    shapes = {name: tuple(tensor.shape) for name, tensor in khronos.tensors.items()}
    assert {name: tensor.shape for name, tensor in graph.tensors.items()} == shapes


@pytest.mark.parametrize(
    "statement",
    [
        "y = add(x, w);",
        "y = leaky_relu(x, alpha = 0.1);",
        "y = elu(x);",
        "y = elu(x, alpha = 1e-05);",
        "y = pow(x, -2.0);",
        "y = sum_reduce(x, axes = [0, 1], normalize = true);",
        "y = concat([x, w], axis = 1);",
        "y = pad(x, padding = [(0, 1), (2, 0)], value = -1.5);",
        "y = cast<integer>(x);",
        "y = constant<logical>(shape = [2], value = [true, false]);",
        "y = variable<integer>(shape = [], label = 'n');",
        "y = matmul(x, w, transposeB = true);",
        "y = clamp(x, -1.0, 1.0);",
    ],
)
def test_a_flat_statement_is_written_as_it_is_read(statement: str) -> None:
    graph = graph_of(statement)
    assert lines(graph) == [statement]
    round_trip(graph)


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("y = elu(x, alpha = 1.0);", "y = elu(x);"),
        ("y = elu(alpha = 2.0, x = x);", "y = elu(x, alpha = 2.0);"),
        ("(y) = relu(x);", "y = relu(x);"),
        ("y = external<scalar>(shape = [1]);", None),
        ("y = relu<>(x);", None),
        ("y=relu(x)   ;", "y = relu(x);"),
        ("y = relu(x); # done", "y = relu(x);"),
        ("y = leaky_relu(x, alpha = 1E-5);", "y = leaky_relu(x, alpha = 1e-05);"),
        ("y = leaky_relu(x, alpha = 007.50);", "y = leaky_relu(x, alpha = 7.5);"),
        ("y = leaky_relu(x, alpha = - 1.0);", "y = leaky_relu(x, alpha = -1.0);"),
        ("y = exp(neg(x));", "y_neg = neg(x);\ny = exp(y_neg);"),
    ],
)
def test_canonical_form(statement: str, written: str | None) -> None:
    if written is None:
        with pytest.raises(nnef_grad.NnefGradError):
            graph_of(statement)
        return
    assert "\n".join(lines(graph_of(statement))) == written


def test_places_are_those_of_the_text() -> None:
    text = "version 1.0;\n\ngraph net( x ) -> ( y )\n{\n  x = external(shape = [1]);\n\ty = relu(x);\n}\n"
    statement = parse_document(Source("t", text)).graph.body[1]
    assert (statement.value.span.line, statement.value.span.column) == (6, 6)
    assert statement.value.span.text == "relu"
