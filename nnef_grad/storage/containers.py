"""What a model is stored in: a text with its data beside it, a folder, or an archive.

A container gives the texts of a model, and the files of its data as parts, which are
opened only when they are wanted. Nothing here knows what is in them.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import Enum
from functools import cached_property
from io import BytesIO
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from nnef_grad.errors import UsageError
from nnef_grad.source import Source
from nnef_grad.storage.archives import (
    BLOCK,
    Member,
    MemberFile,
    Unpacked,
    compressed,
    is_archive,
    members,
    write_end,
    write_member,
)
from nnef_grad.storage.files import (
    PathLike,
    Readable,
    commit,
    commit_over,
    copy,
    reading,
    refuse_existing,
    text_of,
    unfinished_file,
    unfinished_folder,
    writing,
)
from nnef_grad.storage.paths import (
    DATA,
    Steps,
    files_inside,
    link_inside,
    names_inside,
    open_inside,
    same_in_lower_case,
)

GRAPH = "graph.nnef"
QUANTIZATION = "graph.quant"

# Of each file in an archive so many bytes are kept: the header of a tensor file.
KEPT = 128
# So many of the files that are there are named where one is missing.
NAMED = 4


# ---- The files of a model's data ----


class Part(ABC):
    """A file of a container, or what is to become one.

    Attributes:
        name: what error messages call it.
        order: where it stands among the parts of its container: to read them in this
            order is fastest.
    """

    name: str
    order = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """How many bytes it has."""

    @abstractmethod
    def open(self) -> AbstractContextManager[Readable]:
        """Its bytes, from the beginning."""

    def beginning(self, size: int) -> bytes:
        """Its first bytes, or all where it has fewer."""
        with self.open() as file:
            return bytes(file.read(size))

    def place(self, path: Path) -> None:
        """Makes a file of it, which is new."""
        with self.open() as source, path.open("xb") as target:
            copy(source, target, self.size)


class _File(Part):
    """A file in a folder."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self.name = str(folder.joinpath(*steps))
        self._folder = folder
        self._steps = steps

    @cached_property
    def size(self) -> int:
        with open_inside(self._folder, self._steps) as file:
            return os.fstat(file.fileno()).st_size

    def open(self) -> BinaryIO:
        return open_inside(self._folder, self._steps)

    def place(self, path: Path) -> None:
        """Shares the file, where that is possible."""
        if not link_inside(self._folder, self._steps, path):
            super().place(path)


class _Member(Part):
    """A member of an archive."""

    def __init__(self, archive: Unpacked, member: Member, beginning: bytes) -> None:
        self.name = f"{archive.name}/{'/'.join(member.steps)}"
        self.order = member.start
        self._archive = archive
        self._member = member
        self._beginning = beginning

    @property
    def size(self) -> int:
        return self._member.size

    def open(self) -> AbstractContextManager[Readable]:
        return nullcontext(MemberFile(self._archive, self._member))

    def beginning(self, size: int) -> bytes:
        """What was kept of it, if that is enough."""
        is_kept = len(self._beginning) >= min(size, self.size)
        return self._beginning[:size] if is_kept else super().beginning(size)


class Text(Part):
    """A text that is to become a file."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self._bytes)

    def open(self) -> BytesIO:
        """Its bytes."""
        return BytesIO(self._bytes)


# ---- Reading ----


class Container(ABC):
    """What a model is stored in, open for reading.

    Attributes:
        name: what the user called it.
    """

    name: str

    @abstractmethod
    def graph(self) -> Source:
        """The text of the graph.

        Raises:
            NnefGradError: there is none, or it cannot be read, or is not text.
        """

    @abstractmethod
    def quantization(self) -> Source | None:
        """The quantization info, if there is any.

        Raises:
            NnefGradError: it cannot be read, or is not text.
        """

    @abstractmethod
    def files(self) -> Iterator[Steps]:
        """Where all of its files are, in the order in which they are read fastest.

        Raises:
            UsageError: they cannot be read, or are too many.
        """

    @abstractmethod
    def find(self, steps: Steps) -> Part | None:
        """The file at a place, in upper or lower case.

        Raises:
            UsageError: there are several, or a link is on the way.
        """


class _Folder(Container):
    def __init__(self, name: str) -> None:
        self.name = name
        self._path = Path(name)
        self._listed: dict[Steps, dict[str, list[str]]] = {}

    def graph(self) -> Source:
        names = names_inside(self._path)
        if GRAPH not in names:
            raise _without_graph(self.name, names)
        return self._text(GRAPH)

    def quantization(self) -> Source | None:
        return self._optional_text(QUANTIZATION)

    def files(self) -> Iterator[Steps]:
        return files_inside(self._path)

    def find(self, steps: Steps) -> Part | None:
        found: list[Steps] = [()]
        for step in steps:
            found = [
                (*place, name) for place in found for name in self._same(place, step)
            ]
        place = same_in_lower_case(found, steps, self.name)
        return None if place is None else _File(self._path, place)

    def _same(self, folder: Steps, step: str) -> Sequence[str]:
        """What stands in a folder under a name, in upper or lower case."""
        if folder not in self._listed:
            listed = self._listed.setdefault(folder, {})
            for name in names_inside(self._path, folder):
                listed.setdefault(name.lower(), []).append(name)
        return self._listed[folder].get(step.lower(), ())

    def _optional_text(self, name: str) -> Source | None:
        path = self._path / name
        with reading(path):
            is_there = path.is_symlink() or path.exists()
        return self._text(name) if is_there else None

    def _text(self, name: str) -> Source:
        with open_inside(self._path, (name,)) as file:
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
        self._bytes = Unpacked(name, file)
        self._members: dict[Steps, Member] = {}
        self._beginnings: dict[Steps, bytes] = {}
        self._same: dict[str, list[Steps]] = {}
        self._texts: dict[str, Source] = {}
        for member in members(self._bytes):
            self._add(member)
        weakref.finalize(self._bytes, file.close)

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
        if place is None:
            return None
        return _Member(self._bytes, self._members[place], self._beginnings[place])

    def _add(self, member: Member) -> None:
        """Notes a member. The archive stands just there: to read its beginning, or all
        of a text, is for nothing now.
        """
        name = "/".join(member.steps)
        file = MemberFile(self._bytes, member)
        self._members[member.steps] = member
        self._beginnings[member.steps] = bytes(file.read(KEPT))
        self._same.setdefault(name.lower(), []).append(member.steps)
        if name in (GRAPH, QUANTIZATION):
            file = MemberFile(self._bytes, member)
            self._texts[name] = text_of(file, f"{self.name}/{name}")


# What models are not stored in, by how it begins.
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
}


def opened(path: PathLike) -> Container:
    """What stands at a path, by what it is: its name does not matter.

    Raises:
        NnefGradError: it cannot be read, or is nothing that a model is stored in.
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
            raise UsageError(f"'{name}' is an archive in a pipe: it must be a file")
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
    instead = f"it holds {', '.join(found[:NAMED])}{more}" if found else "it is empty"
    return UsageError(f"there is no {GRAPH} in '{name}': {instead}")


def quantization_path(path: PathLike) -> Path:
    """Where the quantization info of a graph stands that is stored as a text.

    Raises:
        UsageError: the graph has the name of such a file.
    """
    beside = Path(path).with_suffix(".quant")
    if beside == Path(path):
        raise UsageError(f"'{path}' is the name of a file of quantization info")
    return beside


# ---- Writing ----


class Form(Enum):
    """How a model is stored."""

    TEXT = "text"
    FOLDER = "folder"
    ARCHIVE = "archive"


ARCHIVES = (".tgz", ".tar.gz", ".tar")
# Nobody means a text by them, nor a tensor.
_OTHERS = (".zip", ".7z", ".gz", ".bz2", ".xz", ".zst", ".onnx", ".dat")
_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


def form_of(path: PathLike) -> Form:
    """What is written at a path, as its name has it: an archive by its ending; a folder
    where there is one, or the name ends with a separator, or has no suffix; or a text.

    Raises:
        UsageError: the name is that of something else.
    """
    name = os.fspath(path)
    if name.endswith(_SEPARATORS):
        return Form.FOLDER
    if name.lower().endswith(ARCHIVES):
        return Form.ARCHIVE
    with writing(path):
        is_new = not Path(name).exists()
        if Path(name).is_dir() or (is_new and not Path(name).suffix):
            return Form.FOLDER
    if name.lower().endswith(_OTHERS):
        message = f"'{name}' is no text, by its name, and the archives of NNEF are"
        raise UsageError(f"{message} {', '.join(ARCHIVES)}")
    return Form.TEXT


def refuse_output(path: PathLike, *, overwrite: bool) -> None:
    """Raises `UsageError` where something stands that must not be replaced."""
    with writing(path):
        if form_of(path) is Form.FOLDER:
            _refuse_folder(Path(path), overwrite)
        else:
            refuse_existing(Path(path), overwrite=overwrite)


def refuse_loss(path: PathLike, model: PathLike) -> None:
    """Raises `UsageError` where a folder or an archive would replace the model that it
    is made from: what the new one does not need would be lost.
    """
    place, source = _real(path), _real(model)
    if form_of(path) is not Form.TEXT and place in (source, *source.parents):
        raise UsageError(f"'{path}' is the model itself, or where it is stored")


def _real(path: PathLike) -> Path:
    """The path without links. That of pathlib has an error where they go in circles."""
    return Path(os.path.realpath(path))


def write_folder(
    path: PathLike, parts: Mapping[Steps, Part], *, overwrite: bool
) -> None:
    """Writes a folder, which appears whole or not at all.

    Args:
        path: the folder.
        parts: its files.
        overwrite: whether a model that stands there is replaced.

    Raises:
        UsageError: something stands there that must not be replaced, or the folder
            cannot be written.
    """
    place = _real(path)
    with writing(path):
        _refuse_folder(place, overwrite)
    with writing(path), unfinished_folder(place) as draft:
        for steps, part in parts.items():
            target = draft.joinpath(*steps)
            target.parent.mkdir(parents=True, exist_ok=True)
            # It is there already where the system does not tell upper from lower case.
            if not target.exists():
                part.place(target)
        if place.exists() and names_inside(place):
            commit_over(draft, place, lambda old: _refuse_folder(old, overwrite))
        else:
            commit(draft, place)


def write_archive(
    path: PathLike, parts: Mapping[Steps, Part], *, overwrite: bool
) -> None:
    """Writes an archive, which appears whole or not at all; otherwise as
    `write_folder`.
    """
    place = Path(path)
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
    with writing(path), unfinished_file(place) as draft:
        with draft.open("wb") as file, compressed(file, place.name) as target:
            for steps, part in parts.items():
                with part.open() as source:
                    write_member(target, steps, source, part.size)
            write_end(target)
        commit(draft, place)


def _refuse_folder(folder: Path, overwrite: bool) -> None:
    """Refuses to replace anything but a model, or a folder with nothing in it."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"'{folder}' is a file, and no folder")
    here = Path.cwd()
    if _real(folder) in (here, *here.parents):
        message = f"'{folder}' is the current folder, which cannot be replaced"
        raise UsageError(f"{message}: name a new one")
    if not names_inside(folder):
        return
    if not overwrite:
        raise UsageError(f"'{folder}' exists already: use --force to replace it")
    _refuse_foreign(folder)


def _refuse_foreign(folder: Path) -> None:
    files = list(files_inside(folder))
    foreign = [steps for steps in files if not _is_of_model(folder, steps)]
    if foreign or (GRAPH,) not in files:
        why = f"it holds '{'/'.join(foreign[0])}'" if foreign else f"it has no {GRAPH}"
        message = f"'{folder}' is not replaced, as it is not the folder of a model"
        raise UsageError(f"{message}: {why}")


def _is_of_model(folder: Path, steps: Steps) -> bool:
    is_known = steps in ((GRAPH,), (QUANTIZATION,)) or steps[-1].lower().endswith(DATA)
    return is_known and S_ISREG(folder.joinpath(*steps).lstat().st_mode)
