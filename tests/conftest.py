from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-cases", action="store_true", help="write what the compiler says now into tests/cases, for review")
