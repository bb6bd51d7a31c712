"""What is run in one go, in parts, the first of which `make test` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
COUNT = 5
PARTS = [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, COUNT))]


def part_of(items: Sequence[T], part: int) -> Sequence[T]:
    """Every fifth of some items."""
    return items[part::COUNT]
