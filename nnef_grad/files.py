"""Text files: read as they are, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Union

from nnef_grad.errors import NnefSyntaxError, UsageError
from nnef_grad.source import Source, Span

PathLike = Union[str, "os.PathLike[str]"]


def read_source(path: PathLike) -> Source:
    """The text of a file.

    Raises:
        NnefGradError: the file cannot be read, or is not text.
    """
    name = os.fspath(path)
    try:
        return decode(Path(path).read_bytes(), name)
    except IsADirectoryError:
        raise UsageError(
            f"'{name}' is a folder: name the file in it, usually graph.nnef"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read '{name}': {error.strerror or error}") from None


def decode(data: bytes, name: str) -> Source:
    """The text in the bytes of a file.

    Raises:
        NnefSyntaxError: the bytes are not a text in UTF-8.
    """
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        valid = Source(
            name, data[: error.start].decode("utf-8-sig") + "\N{REPLACEMENT CHARACTER}"
        )
        end = len(valid.text)
        raise NnefSyntaxError(
            "this is not a text of NNEF: it is not UTF-8", Span(valid, end - 1, end)
        ) from None


def write_text(path: Path, text: str, *, overwrite: bool) -> None:
    """Writes a text file, which appears whole or not at all.

    Raises:
        UsageError: it exists and must not be replaced, or cannot be written.
    """
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' exists already: use --force to replace it")
    try:
        _replace(path, text)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror or error}") from None


def _replace(path: Path, text: str) -> None:
    """The text goes to a neighbour first: a reader sees the old file or the new one,
    and a full disk leaves the old one.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(_mode(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced; otherwise those of any new file."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
