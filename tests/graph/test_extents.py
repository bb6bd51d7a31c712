"""Extents with symbols: what holds of them holds for all numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest

from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import (
    Extent,
    OpenExtentError,
    bounds,
    may_exceed,
    symbol,
    symbols_of,
)
from nnef_grad.graph.learning import equal
from nnef_grad.graph.quotients import exact_quotient, maximum, minimum

B, S = symbol("B"), symbol("S")
OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
)


def drawn(draw: Random, depth: int = 2) -> Any:
    """A random extent."""
    if depth == 0:
        return draw.choice([B, S, 1, 2, 3, 5])
    function = draw.choice(OPERATORS[:3])
    return function(drawn(draw, depth - 1), drawn(draw, depth - 1))


def at(value: Any, numbers: dict[str, int]) -> Any:
    return value.at(numbers) if isinstance(value, Extent) else value


@pytest.mark.parametrize("seed", range(300))
def test_what_is_said_of_extents_holds_for_all_numbers(seed: int) -> None:
    draw = Random(seed)
    one, other = drawn(draw), drawn(draw)
    for function in OPERATORS:
        try:
            found = function(one, other)
        except (OpenExtentError, ZeroDivisionError):
            continue
        for _ in range(20):
            numbers = {"B": draw.randint(1, 9), "S": draw.randint(1, 9)}
            left, right = at(one, numbers), at(other, numbers)
            if function in OPERATORS[3:5] and right == 0:
                continue
            if function is operator.eq and not found:
                continue
            assert at(found, numbers) == function(left, right), (function, numbers)


def drawn_in_parts(draw: Random, depth: int = 3) -> Any:
    """A random extent of one symbol, with quotients and extremes."""
    if depth == 0:
        return draw.choice([S, S, 1, 2, 3])
    one, other = drawn_in_parts(draw, depth - 1), drawn_in_parts(draw, depth - 1)
    makers: list[Callable[[Any, Any], Any]] = [
        operator.add,
        operator.sub,
        lambda x, y: x // draw.choice([2, 3]),
        minimum,
        maximum,
    ]
    return draw.choice(makers)(one, other)


@pytest.mark.parametrize("seed", [*range(80), 132, 384, 389])
def test_parts_and_what_is_said_of_them(seed: int) -> None:
    draw = Random(seed)
    one, other = drawn_in_parts(draw), drawn_in_parts(draw)
    joined: dict[str, tuple[Any, Callable[[int, int], int]]] = {
        "//": (one // 2, lambda x, y: x // 2),
        "+": (one + 2 * (other // 3), lambda x, y: x + 2 * (y // 3)),
        "min": (minimum(one, other, 3 - one), lambda x, y: min(x, y, 3 - x)),
        "max": (maximum(one, other, 3 - one) // 3, lambda x, y: max(x, y, 3 - x) // 3),
    }
    answers = set[Any]()
    with suppress(OpenExtentError):
        answers = {equal(one, other)}
    least, most = bounds(one)
    for number in range(1, 20):
        x, y = (at(extent, {"S": number}) for extent in (one, other))
        assert least <= x <= most
        assert answers <= {x == y}
        for name, (found, function) in joined.items():
            assert at(found, {"S": number}) == function(x, y), name


def test_a_difference_that_is_always_one() -> None:
    """The three quotients are S, which their form does not show."""
    thirds = S // 3 + (S + 1) // 3 + (S + 2) // 3
    assert equal(thirds, S)
    assert not equal(thirds, S + 1)


def test_the_least_of_three_and_a_quotient_of_the_greatest() -> None:
    assert minimum(2 * minimum(S, 3), S, 3) == minimum(S, 3)
    assert (S + maximum(1, 3 * ((S + 2) // 3) - S)) // 3 == (S + 2) // 3


@pytest.mark.parametrize("seed", range(100))
def test_the_text_of_an_extent_is_what_it_is(seed: int) -> None:
    extent = drawn(Random(seed))
    numbers = {"B": 7, "S": 11}
    assert eval(str(extent), {}, numbers) == at(extent, numbers)


def test_extents() -> None:
    assert str(2 * S + 1) == "2*S + 1"
    assert str(B * S - 3) == "B*S - 3"
    assert str(1 - B) == "1 - B"
    assert B * S == S * B
    assert hash(B * S) == hash(S * B)
    assert symbols_of((3, (B * S, 1))) == ["B", "S"]
    assert np.int64(3) * B == B * np.int64(3) == 3 * B


@pytest.mark.parametrize(
    "found", [B - B, (4 * B) // B, (B * 6) % 3, (2 * S + 5) % 2, 0 * B]
)
def test_what_has_no_symbols_is_a_number(found: Any) -> None:
    assert type(found) is int


def test_exact_quotients() -> None:
    assert divmod(2 * S + 5, 2) == (S + 2, 1)
    assert (B * S) // S == B
    assert (B * S + S) // (B + 1) == S


def test_an_extent_is_no_number_but_another_one_too() -> None:
    assert B != 1
    assert B >= 1
    assert not B < 1
    assert B + S > 1
    assert bool(B)


UNDECIDED: dict[str, Callable[[], Any]] = {
    "whether B is greater than 1 is not known": lambda: B > 1,
    "whether B is less than S is not known": lambda: B < S,
    "whether B - 1 is zero is not known": lambda: bool(B - 1),
    "the quotient of S by B - 1 is not known": lambda: S // (B - 1),
    "the extent B has no number": lambda: range(B),
    "the extent 2*B has no number": lambda: 1.0 / (2 * B),
    "the extent B + 1 has no number": lambda: (B + 1) - 0.5,
    "the extent B + 2 has no number": lambda: np.float32(0.5) * (B + 2),
    "the extent B + 3 has no number": lambda: B + 3 < 0.5,
    "the extent S has no number": lambda: float(S),
}


@pytest.mark.parametrize("message", UNDECIDED)
def test_what_depends_on_the_number_is_refused(message: str) -> None:
    with pytest.raises(OpenExtentError) as caught:
        UNDECIDED[message]()
    assert caught.value.message == message
    assert caught.value.problems[0].remedy == "symbol"


def test_what_may_be() -> None:
    assert may_exceed(B, 5)
    assert may_exceed(B - 1, 0)
    assert not may_exceed(1 - B, 0)
    assert not may_exceed(3, 3)
    assert (nominal(3), nominal(2 * B + 1)) == (3, 17)


def test_a_cost_needs_no_numbers_that_fit_one_another() -> None:
    """As where a network says that two sizes together are a multiple of 105."""
    extent = exact_quotient(B * S, 105)
    assert nominal(extent) == nominal(B) * nominal(S) // 105
    assert nominal(2 * extent + B) == 2 * nominal(extent) + nominal(B)
