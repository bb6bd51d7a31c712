"""Text files: read as they are, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
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
    write_texts({path: text}, overwrite=overwrite)


def write_texts(texts: Mapping[Path, str], *, overwrite: bool) -> None:
    """Writes text files that belong together: all are complete before one appears.

    Raises:
        UsageError: one exists and must not be replaced, or cannot be written.
    """
    for path in texts:
        refuse_existing(path, overwrite=overwrite)
    written: list[tuple[Path, Path]] = []
    try:
        for path, text in texts.items():
            written.append((_complete(path, text), path))
        for temporary, path in written:
            temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror or error}") from None
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raises `UsageError` where a file exists and must not be replaced."""
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' exists already: use --force to replace it")


def _complete(path: Path, text: str) -> Path:
    """A neighbour of the file with the whole text: a full disk leaves the old file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(_mode(path))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced; otherwise those of any new file."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
