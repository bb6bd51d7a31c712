from __future__ import annotations

import pytest
import torch

# The tests run side by side: threads of one would wait for those of another.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-cases",
        action="store_true",
        help="write what the compiler says now into tests/cases and the README",
    )
