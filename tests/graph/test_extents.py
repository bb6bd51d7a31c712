"""Extents with symbols: what holds of them holds for all numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from nnef_grad.graph.extents import (
    Extent,
    OpenExtentError,
    may_exceed,
    nominal,
    symbol,
    symbols_of,
)

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


@pytest.mark.parametrize("seed", range(100))
def test_the_text_of_an_extent_is_what_it_is(seed: int) -> None:
    extent = drawn(Random(seed))
    numbers = {"B": 7, "S": 11}
    assert eval(str(extent), {}, numbers) == at(extent, numbers)


def test_extents() -> None:
    assert str(2 * S + 1) == "2*S + 1"
    assert str(B * S - 3) == "B*S - 3"
    assert str(1 - B) == "-B + 1"
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
    "the quotient of S + 1 by 2 is not known": lambda: (S + 1) // 2,
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
