"""Libraries of operations by name: those of the standard, and fragments of documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nnef_grad.base.source import Source
from nnef_grad.language.parser import parse_fragments
from nnef_grad.language.syntax import Fragment

Library = Mapping[str, Fragment]


class FragmentFile(Library):
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
        self._places = dict(
            zip(starts, zip(starts.values(), ends, strict=True), strict=True)
        )
        self._parsed: dict[str, Fragment] = {}

    @property
    def text(self) -> str:
        """The whole file."""
        return self._source.text

    def __getitem__(self, name: str) -> Fragment:
        if name not in self._parsed:
            (fragment,) = parse_fragments(self._source, *self._places[name])
            declaring = (r for r in self._registries if name.startswith(f"{r}_"))
            self._parsed[name] = replace(fragment, registry=next(declaring, None))
        return self._parsed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@lru_cache(maxsize=1)
def standard() -> FragmentFile:
    """The standard operations, from stdlib.nnef."""
    return FragmentFile(Path(__file__).parent / "stdlib.nnef")


@lru_cache(maxsize=1)
def extras() -> FragmentFile:
    """Operations that the standard lacks and several formats have, from extras.nnef."""
    return FragmentFile(Path(__file__).parent / "extras.nnef")


# The registries of tract, which a document names in its extension lines.
REGISTRIES = ("tract_core", "tract_onnx", "tract_transformers")


@lru_cache(maxsize=1)
def tract_library() -> FragmentFile:
    """The operations of tract's registries, from tract.nnef."""
    return FragmentFile(Path(__file__).parent / "tract.nnef", REGISTRIES)


class Joined(Library):
    """Several libraries, of which the first goes first."""

    def __init__(self, *libraries: Library) -> None:
        self._libraries = libraries
        # Most operations of a graph are of a few kinds.
        self._fragments: dict[str, Fragment] = {}

    def __getitem__(self, name: str) -> Fragment:
        if name not in self._fragments:
            having = (library for library in self._libraries if name in library)
            self._fragments[name] = next(having, {})[name]
        return self._fragments[name]

    def __contains__(self, name: object) -> bool:
        return any(name in library for library in self._libraries)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for lib in self._libraries for name in lib))

    def __len__(self) -> int:
        return len(list(iter(self)))


def extended(fragments: Iterable[Fragment], library: Library) -> Library:
    """The operations of a library and further ones, which go first."""
    return Joined({f.name: f for f in fragments}, library)


def with_fragments(fragments: Iterable[Fragment]) -> Library:
    """The standard operations and further ones."""
    return extended(fragments, standard())
