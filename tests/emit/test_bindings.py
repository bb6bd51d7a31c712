"""Tests of calls that are checked once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nnef_grad.base.errors import InvalidGraphError
from nnef_grad.base.process import Memo
from nnef_grad.emit import arguments
from nnef_grad.emit.arguments import bind_call, settings_key
from nnef_grad.graph.ir import Tensor
from nnef_grad.language.library import STDLIB

X = Tensor("scalar", (2, 3))
Y = Tensor("scalar", (4, 5, 6))
SIZE = Tensor("integer", (2, 3))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations that are checked, none of which was before."""
    monkeypatch.setattr(arguments, "_checked", Memo(1000))
    checked: list[str] = []
    bound = arguments._refuse_wrong_types

    def counted(fragment: Any, *rest: Any) -> Any:
        checked.append(fragment.name)
        return bound(fragment, *rest)

    monkeypatch.setattr(arguments, "_refuse_wrong_types", counted)
    return checked


def bound(name: str, *operands: Any, **attributes: Any) -> Any:
    return bind_call(STDLIB[name], operands, attributes, None)


def test_other_tensors_are_not_checked_again(checks: list[str]) -> None:
    whole = {"axes": (1,), "normalize": False}
    for x in (X, Y, X):
        call, settings = bound("sum_reduce", x, axes=[1])
        assert call == (STDLIB["sum_reduce"], (x,), whole, None)
        assert settings == settings_key(call)
    assert checks == ["sum_reduce"]


def test_other_numbers_as_operands_are_not_checked_again(checks: list[str]) -> None:
    for number in (2.0, 3.0):
        call, _ = bound("mul", X, number)
        assert call.operands == (X, number)
    assert checks == ["mul"]


def test_operands_that_are_left_out_have_their_defaults(checks: list[str]) -> None:
    for x in (X, Y):
        call, _ = bound("conv", x, X, padding=[])
        assert call.operands == (x, X, 0.0)
    assert checks == ["conv"]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("exp", [X], [SIZE]),
        ("mul", [X, 2.0], [X, 2]),
        ("concat", [[X, Y]], [[X, SIZE]]),
    ],
)
@pytest.mark.usefixtures("checks")
def test_other_types_are_checked(name: str, right: list[Any], wrong: list[Any]) -> None:
    attributes = {"axis": 0} if name == "concat" else {}
    bound(name, *right, **attributes)
    with pytest.raises(InvalidGraphError, match="must be"):
        bound(name, *wrong, **attributes)


@pytest.mark.parametrize("value", [1, True, [1.0]])
@pytest.mark.usefixtures("checks")
def test_other_attributes_are_checked(value: object) -> None:
    bound("pad", X, padding=[(0, 0), (0, 1)], value=1.0)
    with pytest.raises(InvalidGraphError, match="value"):
        bound("pad", X, padding=[(0, 0), (0, 1)], value=value)


def test_another_declaration_is_checked(checks: list[str]) -> None:
    bound("exp", X)
    other = replace(STDLIB["exp"])
    call, _ = bind_call(other, (X,), {}, None)
    assert call.definition is other
    assert checks == ["exp", "exp"]


def test_no_more_than_a_number_of_calls_are_kept(
    checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "_checked", Memo(3))
    for begin in range(10):
        bound("slice", X, axes=[0], begin=[begin], end=[0])
        assert len(arguments._checked) <= 3
    assert len(checks) == 10
