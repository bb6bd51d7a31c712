from __future__ import annotations

import shutil
import signal
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest
import torch

from nnef_grad.emit.verifier import Verifier
from nnef_grad.graph.pipeline import watching

# The tests run side by side: threads of one would wait for those of another.
torch.set_num_threads(1)

# A shell lets what it starts in the background ignore this one, and so would the programs
# that tests start, and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-cases",
        action="store_true",
        help="write what the compiler says now into tests/cases and the pages",
    )
    parser.addoption(
        "--some",
        type=int,
        default=5,
        help="how many parametrizations of a test are not thorough: those of `make test`",
    )
    parser.addoption(
        "--share",
        default="0/1",
        metavar="K/N",
        help="of the thorough tests run one in N: each is in the share of one K below N",
    )


# Before pytest looks for the marks that it is to leave out.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Marks as thorough what is left to `make test-all`: of each test all but some of its
    parametrizations. They are chosen by their names, since every third of a product of three
    borders and ten shapes were always the same border.
    """
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("thorough") is None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for alike in tests.values():
        alike.sort(key=lambda item: crc32(item.name.encode()))
        for item in alike[config.getoption("--some") :]:
            item.add_marker("thorough")
    _leave_out_other_shares(config, items)


def _leave_out_other_shares(config: pytest.Config, items: list[pytest.Item]) -> None:
    share, _, shares = config.getoption("--share").partition("/")
    others = [
        item
        for item in items
        if item.get_closest_marker("thorough")
        and crc32(item.nodeid.encode()) % int(shares) != int(share)
    ]
    config.hook.pytest_deselected(items=others)
    out = set(others)
    items[:] = [item for item in items if item not in out]


@pytest.fixture(autouse=True, scope="session")
def _verified() -> Iterator[None]:
    """What each pass makes is verified in all tests."""
    with watching(Verifier()):
        yield


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium of the system, driven by Playwright from PyPI."""
    playwright = pytest.importorskip(
        "playwright.sync_api",
        reason="Playwright is not here, which drives a browser: pip install --group browser",
    )
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium is here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        # A frame in a process of its own is now and then missed by the driver.
        found = driver.chromium.launch(
            executable_path=path, args=["--disable-site-isolation-trials"]
        )
        yield found
        found.close()
