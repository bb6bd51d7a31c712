"""Libraries of operations by name: those of the standard, and fragments of documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nnef_grad.base.source import Source
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.syntax import Fragment

Library = Mapping[str, Fragment]


class _Table(Library):
    """A library with a table, which says something about each of its names."""

    table: Mapping[str, object]

    def __contains__(self, name: object) -> bool:
        return name in self.table

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


class FragmentFile(_Table):
    """A file of fragment definitions, each of which is parsed on first use.

    A graph uses a few of the standard's operations: reading all of them would take
    longer than compiling it. A definition begins with the word `fragment` at the
    beginning of a line, and no other line does. An operation is declared by the one of
    the registries that its name begins with.
    """

    def __init__(self, path: Path, registries: Sequence[str] = ()) -> None:
        self.path = path
        self._registries = registries
        self._source = Source(path.name, path.read_text("utf-8"))
        begins = re.finditer(r"^fragment (\w+)", self._source.text, re.MULTILINE)
        starts = {match[1]: match.start() for match in begins}
        ends = [*starts.values(), len(self._source.text)][1:]
        places = zip(starts.values(), ends, strict=True)
        self.table: dict[str, tuple[int, int]] = dict(zip(starts, places, strict=True))
        self._parsed: dict[str, Fragment] = {}

    @property
    def text(self) -> str:
        """The whole file."""
        return self._source.text

    def __getitem__(self, name: str) -> Fragment:
        if name not in self._parsed:
            (fragment,) = parse_fragments(self._source, *self.table[name])
            declaring = (r for r in self._registries if name.startswith(f"{r}_"))
            self._parsed[name] = replace(fragment, registry=next(declaring, None))
        return self._parsed[name]


# The standard operations.
STDLIB = FragmentFile(Path(__file__).parent / "stdlib.nnef")
# Operations that the standard lacks and several formats have.
EXTRAS = FragmentFile(Path(__file__).parent / "extras.nnef")


class Joined(_Table):
    """Several libraries, of which the first goes first."""

    def __init__(self, *libraries: Library) -> None:
        self.table: dict[str, Library] = {}
        for library in libraries:
            for name in library:
                self.table.setdefault(name, library)

    def __getitem__(self, name: str) -> Fragment:
        return self.table[name][name]


def extended(fragments: Iterable[Fragment], library: Library) -> Library:
    """The operations of a library and further ones, which go first."""
    return Joined({f.name: f for f in fragments}, library)


def with_fragments(fragments: Iterable[Fragment]) -> Library:
    """The standard operations and further ones."""
    return extended(fragments, STDLIB)
