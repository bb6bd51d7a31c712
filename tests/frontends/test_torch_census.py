"""The core of ATen is read, but for what is listed with its reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from support.torch_census import LACKING, census

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_all_of_the_core_is_read() -> None:
    found = census()
    assert [name for name, how in found.items() if how == "lacking"] == []
    assert {name for name, how in found.items() if how in LACKING.values()} == {
        *LACKING
    }


def test_the_page_counts_them() -> None:
    found = census()
    read = sum(how == "read" for how in found.values())
    (counted,) = re.findall(r"(\d+) of the (\d+) operations", PAGE.read_text("utf-8"))
    assert tuple(map(int, counted)) == (read, len(found))
