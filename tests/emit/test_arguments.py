"""The arguments of operations: which of them are equal."""

from __future__ import annotations

from typing import Any

import pytest

from nnef_grad.base.source import Source
from nnef_grad.emit.arguments import Call, bind, settings_key
from nnef_grad.emit.emitter import operation_key
from nnef_grad.language.library import STDLIB
from nnef_grad.language.parser import parse_fragments

(OWN,) = parse_fragments(
    Source(
        "own", "fragment own( x: tensor<>, a: scalar[][] ) -> ( y: tensor<scalar> );"
    )
)


def key(x: Any, a: Any) -> object:
    return key_of(Call(OWN, (x,), {"a": a}, None))


def key_of(call: Call) -> object:
    return operation_key(call, settings_key(call))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, ()), (1.0, ())),
        ((1, ()), (True, ())),
        ((0, ()), (False, ())),
        ((0.0, ()), (-0.0, ())),
        ((1.0, ((0.0, 2.0),)), (1.0, ((-0.0, 2.0),))),
        (("", ()), (0.0, ())),
    ],
)
def test_values_that_python_has_for_equal(one: Any, other: Any) -> None:
    assert key(*one) == key(*one)
    assert key(*one) != key(*other)


def test_the_order_in_which_attributes_are_given_does_not_matter() -> None:
    fragment = STDLIB["constant"]
    values = {"shape": (2,), "value": (1.0,)}
    one = bind(fragment, values, "scalar")
    other = bind(fragment, dict(reversed(values.items())), "scalar")
    assert key_of(one) == key_of(other)
