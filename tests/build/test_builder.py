"""Fragments of a document, put in the place of what calls them."""

from __future__ import annotations

from support.statements import FRAGMENTS, OPERATORS, lines, round_trip

import nnef_grad


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
