"""The rooms of the package stand in the order of the pipeline: each imports from itself and
from those before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nnef_grad"
ORDER = (
    "frozen",
    "source",
    "collector",
    "memo",
    "errors",
    "public",
    "language",
    "graph",
    "ops",
    "build",
    "autodiff",
    "interpreter",
    "storage",
    "frontends",
    "targets",
    "model",
    "reports",
    "interop",
    "runtimes",
    "torch",
    "training",
)
# They put the rooms together, and nobody imports them.
ENTRANCE = {
    *("__init__", "__main__", "cli", "command", "console", "fmt_cli", "options"),
    *("opening", "progress", "step_cli", "step_command", "step_options"),
}
FILES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 500


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(path: Path) -> Iterator[str]:
    """The rooms that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            package, *steps = name.split(".")
            if package == "nnef_grad" and steps:
                yield steps[0]


def test_every_file_is_in_a_room() -> None:
    assert {room_of(path) for path in FILES} == {*ORDER, *ENTRANCE}


@pytest.mark.parametrize(
    "path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES]
)
def test_imports_follow_the_order(path: Path) -> None:
    room = room_of(path)
    if room in ENTRANCE:
        return
    assert set(imported(path)) <= set(ORDER[: ORDER.index(room) + 1])


@pytest.mark.parametrize(
    "path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES]
)
def test_a_file_is_not_too_long_to_be_read(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST


def test_the_core_knows_no_option_of_the_command_line() -> None:
    for path in FILES:
        if room_of(path) not in ENTRANCE:
            assert not re.search(r'"[^"\n]*--[a-z]', path.read_text("utf-8")), path


PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "bench" / "README.md",
]


@pytest.mark.parametrize("page", sorted(str(p.relative_to(ROOT)) for p in PAGES))
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", path.read_text("utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
