"""Libraries of fragments."""

from __future__ import annotations

from collections.abc import Iterator

from nnef_grad.language.library import Library
from nnef_grad.language.syntax import Fragment


class Joined(Library):
    """Several libraries, of which the first goes first."""

    def __init__(self, *libraries: Library) -> None:
        self._libraries = libraries

    def __getitem__(self, name: str) -> Fragment:
        for library in self._libraries:
            if name in library:
                return library[name]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(name in library for library in self._libraries)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for lib in self._libraries for name in lib))

    def __len__(self) -> int:
        return len(list(iter(self)))
