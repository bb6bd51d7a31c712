"""The files of a model, in a folder or an archive; they are opened on demand."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from nnef_grad.storage.archives import Member, MemberFile, Unpacked
from nnef_grad.storage.files import Readable, copy
from nnef_grad.storage.paths import Steps, link_inside, open_inside


class Part(ABC):
    """A file of a container, or one to be written.

    Attributes:
        name: its name in error messages.
        order: its position in the container: reading in this order is fastest.
    """

    name: str
    order = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes."""

    @abstractmethod
    def open(self) -> AbstractContextManager[Readable]:
        """Its bytes, from the beginning."""

    def beginning(self, size: int) -> bytes:
        """Its first bytes, or all if it has fewer."""
        with self.open() as file:
            return bytes(file.read(size))

    def place(self, path: Path) -> None:
        """Writes it to a new file."""
        with self.open() as source, path.open("xb") as target:
            copy(source, target, self.size)


class FileInFolder(Part):
    """A file in a folder."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self.name = str(folder.joinpath(*steps))
        self._folder = folder
        self._steps = steps

    @cached_property
    def size(self) -> int:
        """The number of bytes."""
        with open_inside(self._folder, self._steps) as file:
            return os.fstat(file.fileno()).st_size

    def open(self) -> BinaryIO:
        """Its bytes."""
        return open_inside(self._folder, self._steps)

    def place(self, path: Path) -> None:
        """Shares the file if possible, or copies it."""
        if not link_inside(self._folder, self._steps, path):
            super().place(path)


class MemberOfArchive(Part):
    """A member of an archive."""

    def __init__(self, archive: Unpacked, member: Member, beginning: bytes) -> None:
        self.name = f"{archive.name}/{'/'.join(member.steps)}"
        self.order = member.start
        self._archive = archive
        self._member = member
        self._beginning = beginning

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self._member.size

    def open(self) -> AbstractContextManager[Readable]:
        """Its bytes."""
        return nullcontext(MemberFile(self._archive, self._member))

    def beginning(self, size: int) -> bytes:
        """Its first bytes: those that were kept, if they are enough."""
        is_kept = len(self._beginning) >= min(size, self.size)
        return self._beginning[:size] if is_kept else super().beginning(size)


class Text(Part):
    """A text to be written to a file."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self._bytes)

    def open(self) -> BytesIO:
        """Its bytes."""
        return BytesIO(self._bytes)
