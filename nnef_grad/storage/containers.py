"""Containers of models: a folder, an archive, or a text with its data beside it.

A container gives access to the texts of a model, and to its data files as parts, which
are opened on demand. Nothing here knows the content of the files.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from nnef_grad.base.errors import UsageError
from nnef_grad.base.source import Source
from nnef_grad.storage import paths
from nnef_grad.storage.archives import BLOCK, Member, Unpacked, is_archive, members
from nnef_grad.storage.files import PathLike, reading, text_of
from nnef_grad.storage.parts import FileInFolder, Part
from nnef_grad.storage.paths import Steps, same_in_lower_case

GRAPH = "graph.nnef"
QUANTIZATION = "graph.quant"
# The subfolder with the second document of a training step that has two.
APPLY = "apply"

# The bytes kept of each file in an archive: the header of a tensor file.
KEPT = 128
# The number of files listed when the graph is missing.
NAMED = 4


class Container(ABC):
    """A stored model, open for reading; `name` is its path as the user gave it. What
    cannot be read raises an `NnefGradError`.
    """

    name: str

    @abstractmethod
    def graph(self) -> Source:
        """The text of the graph."""

    @abstractmethod
    def quantization(self) -> Source | None:
        """The quantization info, if there is any."""

    @abstractmethod
    def files(self) -> Iterator[Steps]:
        """The paths of all its files, in the order in which they are read fastest."""

    @abstractmethod
    def find(self, steps: Steps) -> Part | None:
        """The file at a path, ignoring case: the exact match, or the only one."""


class _Folder(Container):
    def __init__(self, name: str) -> None:
        self.name = name
        self._path = Path(name)
        self._listed: dict[Steps, dict[str, list[str]]] = {}

    def graph(self) -> Source:
        names = paths.names_inside(self._path)
        if GRAPH not in names:
            raise _without_graph(self.name, names)
        return self._text(GRAPH)

    def quantization(self) -> Source | None:
        return self._optional_text(QUANTIZATION)

    def files(self) -> Iterator[Steps]:
        return paths.files_inside(self._path)

    def find(self, steps: Steps) -> Part | None:
        found: list[Steps] = [()]
        for step in steps:
            found = [(*at, name) for at in found for name in self._same(at, step)]
        place = same_in_lower_case(found, steps, self.name)
        return None if place is None else FileInFolder(self._path, place)

    def _same(self, folder: Steps, step: str) -> Sequence[str]:
        """The entries of a folder with a name, ignoring case."""
        if folder not in self._listed:
            listed = self._listed.setdefault(folder, {})
            for name in paths.names_inside(self._path, folder):
                listed.setdefault(name.lower(), []).append(name)
        return self._listed[folder].get(step.lower(), ())

    def _optional_text(self, name: str) -> Source | None:
        path = self._path / name
        with reading(path):
            is_there = path.is_symlink() or path.exists()
        return self._text(name) if is_there else None

    def _text(self, name: str) -> Source:
        with paths.open_inside(self._path, (name,)) as file:
            return text_of(file, str(self._path / name))


class _TextInFolder(_Folder):
    """A text, which may have data and quantization info beside it."""

    def __init__(self, name: str, source: Source) -> None:
        super().__init__(str(Path(name).parent))
        self.name = name
        self._source = source

    def graph(self) -> Source:
        return self._source

    def quantization(self) -> Source | None:
        return self._optional_text(quantization_path(self.name).name)


class _Archive(Container):
    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._members: dict[Steps, Member] = {}
        self._same: dict[str, list[Steps]] = {}
        self._texts: dict[str, Source] = {}
        unpacked = Unpacked(name, file)
        for member in members(unpacked):
            self._add(member)
        weakref.finalize(unpacked, file.close)

    def graph(self) -> Source:
        if GRAPH not in self._texts:
            raise _without_graph(self.name, map("/".join, self._members))
        return self._texts[GRAPH]

    def quantization(self) -> Source | None:
        return self._texts.get(QUANTIZATION)

    def files(self) -> Iterator[Steps]:
        return iter(self._members)

    def find(self, steps: Steps) -> Part | None:
        found = self._same.get("/".join(steps).lower(), [])
        place = same_in_lower_case(found, steps, self.name)
        return None if place is None else self._members[place]

    def _add(self, member: Member) -> None:
        """Adds a member. Reading its header, or a text, is cheap now: the stream is at
        its position.
        """
        name = "/".join(member.steps)
        member.beginning(KEPT)
        self._members[member.steps] = member
        self._same.setdefault(name.lower(), []).append(member.steps)
        if name in (GRAPH, QUANTIZATION):
            with member.open() as file:
                self._texts[name] = text_of(file, member.name)


# Formats that models are not stored in, by their first bytes.
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}


def open_container(path: PathLike) -> Container:
    """The container at a path, detected from its content, not from its name.

    Raises:
        NnefGradError: it cannot be read, or is not a model.
    """
    name = os.fspath(path)
    with reading(path), ExitStack() as stack:
        if Path(path).is_dir():
            return _Folder(name)
        file = stack.enter_context(Path(path).open("rb"))
        head = file.read(BLOCK)
        _refuse_other_formats(name, head)
        if not is_archive(head):
            return _TextInFolder(name, text_of(file, name, head))
        if not file.seekable():
            raise UsageError(f"'{name}' is an archive in a pipe: save it to a file")
        archive = _Archive(name, file)
        stack.pop_all()
        return archive


def _refuse_other_formats(name: str, head: bytes) -> None:
    for beginning, what in _FOREIGN.items():
        if head.startswith(beginning):
            message = f"'{name}' is {what}: a model is a text, a folder, .tar or .tgz"
            raise UsageError(message)


def _without_graph(name: str, names: Iterable[str]) -> UsageError:
    found = sorted(names)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    instead = f"it has {', '.join(found[:NAMED])}{more}" if found else "it is empty"
    return UsageError(f"there is no {GRAPH} in '{name}': {instead}")


def quantization_path(path: PathLike) -> Path:
    """The path of the quantization info of a graph that is stored as a text.

    Raises:
        UsageError: the path of the graph ends in .quant itself.
    """
    beside = Path(path).with_suffix(".quant")
    if beside == Path(path):
        raise UsageError(f"'{path}' is the name of a file of quantization info")
    return beside
