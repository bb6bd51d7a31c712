"""Reading texts, the parts of models, and atomic writing: output appears whole or not at all.

A draft is written beside its destination, in or as a folder whose name ends in
`UNFINISHED`, and renamed when it is complete. Its process holds a lock on the folder:
one without a lock was left by a process that was killed, and is removed by the next one
that writes there.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from glob import escape
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Union

from nnef_grad.base.errors import NnefSyntaxError, UsageError
from nnef_grad.base.source import Source, Span

if sys.platform != "win32":
    import fcntl

PathLike = Union[str, os.PathLike[str]]

# No real document is longer than this.
MAX_TEXT = 256 * 2**20

PIECE = 2**20

UNFINISHED = ".nnef-grad-unfinished"
REPLACED = ".nnef-grad-replaced"
# The number of random characters in a temporary name.
RANDOM = 8

# How often to wait for another process that replaces a folder, and how many seconds.
WAITS = 1000
WAIT = 0.01


# ---- Reading ----


@contextmanager
def _translate_errors(verb: str, path: PathLike) -> Iterator[None]:
    """Turns operating system errors into errors about a file."""
    name = os.fspath(path)
    if "\0" in name:
        # For Python, that is no error of the operating system.
        raise UsageError(f"cannot {verb} {name!r}: no path has a null character")
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot {verb} '{name}': {error.strerror or error}") from None


reading = partial(_translate_errors, "read")
writing = partial(_translate_errors, "write")


def read_source(path: PathLike) -> Source:
    """The text of a file."""
    name = os.fspath(path)
    with reading(path):
        if Path(path).is_dir():
            message = f"'{name}' is a folder: name the file in it, usually graph.nnef"
            raise UsageError(message)
        with Path(path).open("rb") as file:
            return text_of(file, name)


def text_of(file: BinaryIO, name: str, before: bytes = b"") -> Source:
    """The rest of the text in an open file, after the bytes already read."""
    data = bytearray(before)
    while piece := file.read(PIECE):
        data += piece
        if len(data) > MAX_TEXT:
            message = f"'{name}' is too long for a text: more than {MAX_TEXT} bytes"
            raise UsageError(message)
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        valid = data[: error.start].decode("utf-8-sig")
        source = Source(name, f"{valid}\N{REPLACEMENT CHARACTER}")
        span = Span(source, len(valid), len(valid) + 1)
        raise NnefSyntaxError("this is not NNEF text: it is not UTF-8", span) from None


# ---- Parts of models ----


class Part(ABC):
    """The content of a file of a model, of so many bytes."""

    size: int
    # Its position in its container: reading in this order is fastest.
    order = 0

    @abstractmethod
    def write(self, target: BinaryIO) -> None:
        """Writes its bytes."""

    def place(self, path: Path) -> None:
        """Writes it to a new file, or shares the one that it is."""
        with path.open("xb") as target:
            self.write(target)


class Text(Part):
    """A text to be written to a file."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        self.size = len(self._bytes)

    def write(self, target: BinaryIO) -> None:
        target.write(self._bytes)


class StoredPart(Part):
    """A file of a container, read on demand; `name` is its name in error messages."""

    name: str

    @abstractmethod
    def read(self, start: int, size: int) -> bytes | bytearray:
        """Up to `size` of its bytes; fewer at its end."""

    def text(self) -> Source:
        """The text that it is."""
        return text_of(BytesIO(self.read(0, min(self.size, MAX_TEXT + 1))), self.name)

    def write(self, target: BinaryIO) -> None:
        for start in range(0, self.size, PIECE):
            size = min(PIECE, self.size - start)
            target.write(complete(self.read(start, size), size))


def complete(piece: bytes | bytearray, size: int) -> bytes | bytearray:
    """A piece of a file, or `UsageError` where it is shorter than the file was to be."""
    if len(piece) < size:
        raise UsageError("a file was truncated while it was being read")
    return piece


# ---- Writing ----


def write_texts(texts: Mapping[Path, str], *, overwrite: bool) -> None:
    """Writes text files atomically: all are complete before the first one appears."""
    with new_files(*texts, overwrite=overwrite) as drafts:
        for path, text in texts.items():
            with writing(path):
                drafts[path].write_text(text, "utf-8", newline="\n")


@contextmanager
def new_files(*paths: Path, overwrite: bool) -> Iterator[dict[Path, Path]]:
    """Places for files, by the paths where all appear after it, or none if it fails."""
    for path in paths:
        with writing(path):
            refuse_existing(path, overwrite=overwrite)
    with ExitStack() as stack:
        drafts: dict[Path, Path] = {}
        for path in paths:
            with writing(path):
                drafts[path] = stack.enter_context(unfinished_folder(path)) / path.name
        yield drafts
        with signals_delayed(), ExitStack() as undo:
            for path, draft in drafts.items():
                with writing(path):
                    _commit(draft, path, overwrite=overwrite)
                if not overwrite:
                    undo.callback(remove, path)
            undo.pop_all()


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raises `UsageError` if a file exists and must not be replaced."""
    if os.path.lexists(path) and not overwrite:
        raise UsageError(f"'{path}' exists already", remedy="overwrite")
    if path.exists() and not path.is_file():
        raise UsageError(f"'{path}' is not a file, and cannot be replaced by one")


# ---- Drafts ----


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """A new folder beside a path, for its owner alone; removed unless committed."""
    _remove_leftovers(path, UNFINISHED)
    is_ours = False
    while not is_ours:
        with signals_delayed() as released:
            draft = _new_folder(path, UNFINISHED)
            try:
                with _locked(draft, without=True) as is_ours, released():
                    # Before it was locked, another process may have removed it.
                    if is_ours:
                        yield draft
            finally:
                remove(draft)


def _commit(draft: Path, path: Path, *, overwrite: bool) -> None:
    """Moves a finished file to its path, with the permissions of what it replaces."""
    _set_permissions(draft, path, 0o666)
    if not overwrite:
        # Unlike renaming, linking never replaces what another process has written.
        try:
            os.link(draft, path)
            return
        except OSError:
            refuse_existing(path, overwrite=False)
    draft.replace(path)


def commit_folder(draft: Path, path: Path, refuse: Callable[[Path], None]) -> None:
    """Moves a finished folder to its path, with the permissions of what it replaces:
    nothing, an empty folder, or one for which `refuse` raises no error.
    """
    with exclusive(path), signals_delayed():
        _set_permissions(draft, path, 0o777)
        refuse(path)
        try:
            draft.replace(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # As a draft, too, it is kept while it is locked.
            with _locked(path, without=True):
                _exchange(draft, path)
                try:
                    # It may have changed since it was looked at.
                    refuse(draft)
                except BaseException:
                    _exchange(draft, path)
                    raise
        _remove_leftovers(path, REPLACED)


def _exchange(draft: Path, path: Path) -> None:
    """Exchanges two folders in one step. Where the system cannot, a process that is killed
    in between leaves what was at the path with the suffix `REPLACED`.
    """
    if _exchange_at_once(os.fsencode(draft), os.fsencode(path)):
        return
    replaced = _new_folder(path, REPLACED)
    replaced.rmdir()
    path.replace(replaced)
    try:
        draft.replace(path)
    except BaseException:
        replaced.replace(path)
        raise
    replaced.replace(draft)


def _exchange_at_once(one: bytes, other: bytes) -> bool:
    """Exchanges two names, if the system and the file system can."""
    import ctypes  # when a folder is replaced

    # The last argument is RENAME_EXCHANGE or RENAME_SWAP, the others the current folder.
    calls: dict[str, tuple[str, tuple[Any, ...]]] = {
        "linux": ("renameat2", (-100, one, -100, other, 2)),
        "darwin": ("renamex_np", (one, other, 2)),
    }
    name, arguments = calls.get(sys.platform, ("", ()))
    call = getattr(ctypes.CDLL(None), name, None) if name else None
    return call is not None and call(*arguments) == 0


def refuse_interrupted(path: Path) -> None:
    """Raises `UsageError` if a process was killed while it replaced what is missing here."""
    left = None if os.path.lexists(path) else next(_leftovers(path, REPLACED), None)
    if left is not None:
        message = f"a process that was killed while it replaced it left it as '{left}'"
        raise UsageError(f"cannot read '{path}': {message}")


def _set_permissions(draft: Path, path: Path, usual: int) -> None:
    mask = os.umask(0)
    os.umask(mask)
    draft.chmod(path.stat().st_mode & 0o777 if path.exists() else usual & ~mask)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Waits until no other process replaces a folder here."""
    for _ in range(WAITS):
        with _locked(path.parent, without=True) as is_alone:
            if is_alone:
                yield
                return
        time.sleep(WAIT)
    raise UsageError(f"cannot write '{path}': other processes keep writing it")


@contextmanager
def _locked(path: Path, *, without: bool) -> Iterator[bool]:
    """Locks a file or folder that exists, or says no; without locks, `without`."""
    with ExitStack() as stack:
        is_locked = without
        if sys.platform != "win32":
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = path.exists()
            except (FileNotFoundError, BlockingIOError):
                is_locked = False
            except OSError:
                pass
        yield is_locked


def _new_folder(path: Path, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(suffix, _prefix(path), path.parent))


def _prefix(path: Path) -> str:
    """The beginning of a temporary name, short enough for any file system."""
    return f".{path.name[:40]}."


def _leftovers(path: Path, suffix: str) -> Iterator[Path]:
    return path.parent.glob(escape(_prefix(path)) + RANDOM * "?" + suffix)


def _remove_leftovers(path: Path, suffix: str) -> None:
    """Removes the drafts of processes that were killed."""
    for leftover in _leftovers(path, suffix):
        with _locked(leftover, without=False) as is_left:
            if is_left:
                remove(leftover)


def remove(draft: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    with suppress(OSError):
        draft.unlink()


# ---- Ctrl-C and termination ----

ENDING = (signal.SIGINT, signal.SIGTERM)
Handlers = Mapping[signal.Signals, Any]


def set_handlers(handlers: Handlers) -> Handlers:
    """Sets handlers of signals where Python can, and returns those before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not None
    }


@contextmanager
def signals_delayed() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Delays what ends the process where a folder would be left, but if released."""
    arrived: list[int] = []

    def release() -> None:
        set_handlers(usual)
        while arrived:
            signal.raise_signal(arrived.pop())

    @contextmanager
    def released() -> Iterator[None]:
        release()
        try:
            yield
        finally:
            set_handlers(delaying)

    delaying = dict.fromkeys(ENDING, lambda number, _: arrived.append(number))
    usual = set_handlers(delaying)
    try:
        yield released
    finally:
        release()
