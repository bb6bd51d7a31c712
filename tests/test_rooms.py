"""The rooms of the package stand in the order of the pipeline: each imports from itself and
from those before it.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Container, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nnef_grad"
ORDER = (
    "base",
    "language",
    "graph",
    "ops",
    "emit",
    "autodiff",
    "interpreter",
    "storage",
    "frontends",
    "targets",
    "model",
    "opening",
    "reports",
    "runtimes",
    "torch",
    "training",
)
# They put the rooms together, and nobody imports them.
ENTRANCE = {"__init__", "__main__", "commandline", "interop"}
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


# Atoms have extents in them; operators of extents divide and compare them.
DEFERRED = {
    ("nnef_grad.graph.atoms", "nnef_grad.graph.extents"),
    ("nnef_grad.graph.extents", "nnef_grad.graph.quotients"),
    ("nnef_grad.graph.extents", "nnef_grad.graph.bounds"),
}


def test_no_imports_go_in_a_circle() -> None:
    known = {_module(path): path for path in FILES}
    needed = {name: _modules_of(path, known) for name, path in known.items()}
    for name, others in needed.items():
        needed[name] = {other for other in others if (name, other) not in DEFERRED}
    list(TopologicalSorter(needed).static_order())


def _module(path: Path) -> str:
    steps = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


def _modules_of(path: Path, known: Container[str]) -> set[str]:
    """The modules that a file imports from, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in known else node.module for name in names)
    return {name for name in found if name in known and name != _module(path)}


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


def test_the_table_says_how_large_the_package_is() -> None:
    """Parts in hundreds of lines; what they give is for the reader to judge."""
    path = PACKAGE.parent / "docs" / "tables" / "lines.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    told = sum(int(row["lines"].replace(",", "")) for row in rows)
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in FILES)
    assert told == pytest.approx(lines, rel=0.02)
    parts = " ".join(row["part"] for row in rows)
    small = {"interop", "torch", "model", "opening"}
    assert all(
        room in parts for room in {*ORDER, *ENTRANCE} - small - {"__init__", "__main__"}
    )
