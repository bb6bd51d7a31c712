"""Fragments of a document, put in the place of what calls them; statements that are
alike.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.checks import document
from support.statements import FRAGMENTS, OPERATORS, lines, round_trip

import nnef_grad
from nnef_grad.base.source import Span
from nnef_grad.emit.evaluation import Evaluator
from nnef_grad.language.syntax import Invocation


def test_a_fragment_is_inlined_and_its_tensors_are_named_after_the_result() -> None:
    graph = nnef_grad.loads(f"""version 1.0;
        {FRAGMENTS} {OPERATORS}
        fragment scaled( x: tensor<scalar>, by: scalar = 2.0 ) -> ( y: tensor<scalar> )
        {{
            half = x * (by / 2.0);
            y = half + half;
        }}
        fragment pair( x: tensor<scalar> ) -> ( a: tensor<scalar>, b: tensor<scalar> )
        {{
            a = scaled(x, by = 6.0);
            b = scaled(a);
        }}
        graph net( x ) -> ( y, z )
        {{
            x = external(shape = [2]);
            y, z = pair(x);
        }}
        """)  # fmt: skip
    assert lines(graph) == [
        "y_a_half = mul(x, 3.0);",
        "y = add(y_a_half, y_a_half);",
        "y_b_half = mul(y, 1.0);",
        "z = add(y_b_half, y_b_half);",
    ]
    round_trip(graph)


def test_a_generic_fragment_hands_its_type_on() -> None:
    graph = nnef_grad.loads(f"""version 1.0;
        {FRAGMENTS}
        fragment zeros<? = scalar>( shape: integer[], value: ?[] ) -> ( y: tensor<?> )
        {{
            y = constant<?>(shape = shape, value = value);
        }}
        graph net( x ) -> ( y )
        {{
            x = external(shape = [2]);
            y = zeros<integer>(shape = [2], value = [0]);
        }}
        """)
    assert lines(graph) == ["y = constant<integer>(shape = [2], value = [0]);"]


def test_statements_that_are_alike_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluated: list[str] = []
    evaluate = Evaluator.evaluate

    def counted(self: Evaluator, expression: Any, *rest: Any) -> Any:
        if isinstance(expression, Invocation):
            evaluated.append(expression.name)
        return evaluate(self, expression, *rest)

    monkeypatch.setattr(Evaluator, "evaluate", counted)
    statements = [
        "f = conv(x, w);",
        "g = conv(x, v);",
        "a = add(f, g);",
        "b = add(g, a);",
        "c = add(b, x);",
        "d = lt(f, g);",
        "e = lt(g, f);",
        "y = select(d, a, b);",
        "z = select(e, b, a);",
    ]
    graph = nnef_grad.loads(f"""version 1.0;
        graph net( x ) -> ( y, z, c )
        {{
            x = external(shape = [1, 3, 4]);
            w = variable(shape = [3, 3, 1], label = 'w');
            v = variable(shape = [3, 3, 1], label = 'v');
            {" ".join(statements)}
        }}
        """)
    assert [line for line in lines(graph) if "variable" not in line] == statements
    invocations = [s.split(" = ")[1].removesuffix(";") for s in statements]
    places = [op.span for op in graph.operations[3:]]
    assert [p.text for p in places if isinstance(p, Span)] == [
        invocation.split("(")[0] for invocation in invocations
    ]
    assert evaluated == [
        *("external", "variable", "variable"),
        *("conv", "add", "lt", "select"),
    ]
    round_trip(graph)


def test_further_shapes_and_types_are_no_repetition() -> None:
    graph = nnef_grad.loads("""version 1.0;
        graph net( x, k ) -> ( y, z, i, j )
        {
            x = external(shape = [2, 1]);
            k = external<integer>(shape = [2, 1]);
            w = variable(shape = [1, 3], label = 'w');
            y = add(x, x);
            z = add(x, w);
            i = copy(x);
            j = copy(k);
        }
        """)  # fmt: skip
    assert [(t.dtype, t.shape) for t in graph.outputs] == [
        ("scalar", (2, 1)), ("scalar", (2, 3)), ("scalar", (2, 1)), ("integer", (2, 1)),
    ]  # fmt: skip


def test_fragments_are_expanded_again_and_mistakes_repaired_again() -> None:
    graph = nnef_grad.loads(
        f"""version 1.0;
        {FRAGMENTS}
        fragment twice( x: tensor<scalar> ) -> ( y: tensor<scalar> )
        {{
            h = add(x, x);
            y = add(x, h);
        }}
        graph net( x ) -> ( y, z, f, g )
        {{
            x = external(shape = [1, 3, 4]);
            w = variable(shape = [3, 3, 1], label = 'w');
            b = variable(shape = [3], label = 'b');
            y = twice(x);
            z = twice(y);
            f = conv(x, w, b);
            g = conv(x, w, b);
        }}
        """,
        lenient=True,
    )
    assert [line for line in lines(graph) if "variable" not in line] == [
        "y_h = add(x, x);",
        "y = add(x, y_h);",
        "z_h = add(y, y);",
        "z = add(y, z_h);",
        "b_row = unsqueeze(b, axes = [0]);",
        "f = conv(x, w, b_row);",
        "b_row_1 = unsqueeze(b, axes = [0]);",
        "g = conv(x, w, b_row_1);",
    ]
    assert len(graph.warnings) == 2


def test_a_statement_like_an_earlier_one_has_its_own_operands() -> None:
    body = """
    x = external(shape = [2]);
    w = external(shape = [2]);
    a = mul(x, x);
    b = mul(x, w);
    c = mul(w, x);
    """
    graph = nnef_grad.loads(document(body, "x, w", "a, b, c"))
    names = [[graph.names[t] for t in op.inputs] for op in graph.operations[2:]]
    assert names == [["x", "x"], ["x", "w"], ["w", "x"]]


def test_a_copy_in_a_fragment_that_is_called_a_stop_is_one() -> None:
    """As in the text of the graph."""
    graph = nnef_grad.loads(f"""version 1.0;
        {FRAGMENTS} {OPERATORS}
        fragment same( x: tensor<scalar> ) -> ( y: tensor<scalar> )
        {{
            y = copy(x);
        }}
        graph net( x ) -> ( y )
        {{
            x = external(shape = [2]);
            stop_gradient_x = same(x);
            y = mul(x, stop_gradient_x);
        }}
        """)
    gradient = nnef_grad.dumps(nnef_grad.differentiate(graph))
    read_again = nnef_grad.loads(nnef_grad.dumps(graph))
    assert gradient == nnef_grad.dumps(nnef_grad.differentiate(read_again))
