"""The files of a model, which are opened on demand; those of archives are in archives.py."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

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

    @cached_property
    def size(self) -> int:
        """The number of bytes."""
        raise NotImplementedError

    @abstractmethod
    def open(self) -> AbstractContextManager[Readable]:
        """Its bytes, from the beginning."""

    def beginning(self, size: int) -> bytes:
        """Its first bytes, or all if it has fewer."""
        with self.open() as file:
            return bytes(file.read(size))

    def place(self, path: Path) -> None:
        """Writes it to a new file, or shares the one that it is."""
        with self.open() as source, path.open("xb") as target:
            copy(source, target, self.size)


class FileInFolder(Part):
    """A file in a folder."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self.name = str(folder.joinpath(*steps))
        self._place = folder, steps

    @cached_property
    def size(self) -> int:
        with self.open() as file:
            return os.fstat(file.fileno()).st_size

    def open(self) -> BinaryIO:
        return open_inside(*self._place)

    def place(self, path: Path) -> None:
        if not link_inside(*self._place, path):
            super().place(path)


class Text(Part):
    """A text to be written to a file."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        self.size = len(self._bytes)

    def open(self) -> BytesIO:
        return BytesIO(self._bytes)
