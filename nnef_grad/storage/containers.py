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
from nnef_grad.storage.archives import BLOCK, Member, Unpacked, is_archive, members
from nnef_grad.storage.files import (
    PathLike,
    StoredPart,
    reading,
    refuse_interrupted,
    text_of,
)
from nnef_grad.storage.paths import FileInFolder, Steps, entries_inside, files_inside

GRAPH = "graph.nnef"
QUANTIZATION = "graph.quant"
# The subfolder with the second document of a training step that has two.
APPLY = "apply"

# The number of files listed when the graph is missing.
NAMED = 4


class Container(ABC):
    """A stored model, open for reading; `name` is its path as the user gave it."""

    name: str

    def graph(self) -> Source:
        """The text of the graph."""
        text = self.text(GRAPH)
        if text is not None:
            return text
        names = sorted(self.names())
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        instead = f"it has {', '.join(names[:NAMED])}{more}" if names else "it is empty"
        raise UsageError(f"there is no {GRAPH} in '{self.name}': {instead}")

    def quantization(self) -> Source | None:
        """The quantization info, if there is any."""
        return self.text(QUANTIZATION)

    def find(self, steps: Steps) -> StoredPart | None:
        """The file at a path, ignoring case: the exact match, or the only one."""
        places = self.same(steps)
        if steps in places:
            return self.part(steps)
        if len(places) > 1:
            names = " and ".join(repr("/".join(place)) for place in sorted(places)[:2])
            raise UsageError(f"'{self.name}' has both {names}: which one is meant?")
        return self.part(places[0]) if places else None

    @abstractmethod
    def files(self) -> Iterator[Steps]:
        """The paths of all its files, in the order in which they are read fastest."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """The names of what is in it, for messages."""

    @abstractmethod
    def same(self, steps: Steps) -> list[Steps]:
        """The paths that are equal to this one but for case."""

    @abstractmethod
    def part(self, steps: Steps) -> StoredPart:
        """The file at a path."""

    @abstractmethod
    def text(self, name: str) -> Source | None:
        """One of the texts of the model, if it is there."""


class _Folder(Container):
    def __init__(self, name: str) -> None:
        self.name = name
        self._path = Path(name)
        self._listed: dict[Steps, dict[str, list[str]]] = {}

    def files(self) -> Iterator[Steps]:
        return files_inside(self._path)

    def names(self) -> Iterable[str]:
        return entries_inside(self._path)

    def same(self, steps: Steps) -> list[Steps]:
        places: list[Steps] = [()]
        for step in steps:
            places = [(*at, name) for at in places for name in self._same(at, step)]
        return places

    def _same(self, folder: Steps, step: str) -> Sequence[str]:
        """The entries of a folder with a name, ignoring case."""
        if folder not in self._listed:
            listed = self._listed.setdefault(folder, {})
            for name in entries_inside(self._path, folder):
                listed.setdefault(name.lower(), []).append(name)
        return self._listed[folder].get(step.lower(), ())

    def part(self, steps: Steps) -> StoredPart:
        return FileInFolder(self._path, steps)

    def text(self, name: str) -> Source | None:
        path = self._path / name
        with reading(path):
            is_there = path.is_symlink() or path.exists()
        return self.part((name,)).text() if is_there else None


class _TextInFolder(_Folder):
    """A text, which may have data and quantization info beside it."""

    def __init__(self, name: str, source: Source) -> None:
        super().__init__(str(Path(name).parent))
        self.name = name
        self._source = source

    def graph(self) -> Source:
        return self._source

    def quantization(self) -> Source | None:
        return self.text(quantization_path(self.name).name)


class _Archive(Container):
    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._members: dict[Steps, Member] = {}
        self._same: dict[str, list[Steps]] = {}
        self._texts: dict[str, Source] = {}
        unpacked = Unpacked(name, file)
        for member in members(unpacked):
            path = "/".join(member.steps)
            self._members[member.steps] = member
            self._same.setdefault(path.lower(), []).append(member.steps)
            # Reading a text is cheap now: the stream is at its position.
            if path in (GRAPH, QUANTIZATION):
                self._texts[path] = member.text()
        weakref.finalize(unpacked, file.close)

    def files(self) -> Iterator[Steps]:
        return iter(self._members)

    def names(self) -> Iterable[str]:
        return map("/".join, self._members)

    def same(self, steps: Steps) -> list[Steps]:
        return self._same.get("/".join(steps).lower(), [])

    def part(self, steps: Steps) -> StoredPart:
        return self._members[steps]

    def text(self, name: str) -> Source | None:
        return self._texts.get(name)


_INSTEAD = "a model is a text, a folder, .tar or .tgz"
# Formats that models are not stored in, by their first bytes.
_FOREIGN = {
    b"PK\x03\x04": f"a zip archive: {_INSTEAD}",
    b"BZh": f"compressed by bzip2: {_INSTEAD}",
    b"\xfd7zXZ": f"compressed by xz: {_INSTEAD}",
    b"\x28\xb5\x2f\xfd": f"compressed by zstd: {_INSTEAD}",
}
_WEIGHTS = "weights without a graph: load them into their module, which interop.from_torch reads"
_OF_TENSORFLOW = "a model of TensorFlow: tf2onnx makes an ONNX file of it"
# The same by the endings of binary files, and who reads them.
_OTHERS = {
    ".onnx": "an ONNX file: interop.from_onnx reads it",
    ".tflite": "a TFLite file: interop.from_tflite reads it",
    ".pt2": "a program of PyTorch: interop.from_torch reads it",
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt", ".safetensors"), _WEIGHTS),
    **dict.fromkeys((".npz", ".npy"), "arrays without a graph"),
    **dict.fromkeys((".h5", ".keras", ".pb"), _OF_TENSORFLOW),
}
# Below these, no character of a text is.
_LEAST = ord("\t")


def open_container(path: PathLike) -> Container:
    """The container at a path, detected from its content, not from its name."""
    name = os.fspath(path)
    with reading(path), ExitStack() as stack:
        refuse_interrupted(Path(path))
        if Path(path).is_dir():
            return _Folder(name)
        file = stack.enter_context(Path(path).open("rb"))
        head = file.read(BLOCK)
        if what := _foreign(name, head):
            raise UsageError(f"'{name}' is {what}")
        if not is_archive(head):
            return _TextInFolder(name, text_of(file, name, head))
        if not file.seekable():
            raise UsageError(f"'{name}' is an archive in a pipe: save it to a file")
        archive = _Archive(name, file)
        stack.pop_all()
        return archive


def _foreign(name: str, head: bytes) -> str | None:
    """The kind of a file that no model is stored in, by its name and its first bytes."""
    found = (what for start, what in _FOREIGN.items() if head.startswith(start))
    what = next(found, None)
    is_binary = what is not None or min(head, default=_LEAST) < _LEAST
    if is_binary and not is_archive(head):
        return _OTHERS.get(Path(name).suffix.lower(), what)
    return what


def quantization_path(path: PathLike) -> Path:
    """The path of the quantization info of a graph that is stored as a text."""
    beside = Path(path).with_suffix(".quant")
    if beside == Path(path):
        raise UsageError(f"'{path}' is the name of a file of quantization info")
    return beside
