"""Paths inside of a model: the only room that makes a place of a name.

Labels, and the names of the members of an archive, are written by whoever wrote the
model. They lead to a file in the model's folder and nowhere else: a name that leads out
is refused, and so is every symbolic link on the way, wherever it leads. Each step is
opened from the one before it, so that nobody can put a link in its place in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO, TypeVar, Union

from nnef_grad.errors import UsageError, brief
from nnef_grad.language.labels import label_steps
from nnef_grad.storage.files import reading

# The folders on the way, and the file: the parts of a path below the model's folder.
Steps = tuple[str, ...]

DATA = ".dat"
# What a folder or an archive may hold before it is no model that anybody wrote.
MAX_FILES = 100_000

# Some systems separate folders by the one, some by the other.
_SEPARATOR = re.compile(r"[/\\]")


# ---- Names to places ----


def data_steps(label: str) -> Steps:
    """Where the data of a variable are stored.

    Raises:
        UsageError: the label is not that of a file in the folder of the model.
    """
    try:
        *folders, file = label_steps(label)
    except ValueError as error:
        raise UsageError(brief(str(error))) from None
    return (*folders, file + DATA)


def label_of(steps: Steps) -> str | None:
    """The label whose data are stored there, if there is one."""
    path = "/".join(steps)
    label = path[: -len(DATA)]
    is_found_by_it = is_label(label) and data_steps(label)[:-1] == steps[:-1]
    return label if is_found_by_it and path.lower().endswith(DATA) else None


def is_label(label: str) -> bool:
    """Whether data may be stored under a label."""
    try:
        return bool(data_steps(label))
    except UsageError:
        return False


def member_steps(name: str) -> Steps:
    """Where a member of an archive is stored.

    Raises:
        UsageError: outside of the archive's folder.
    """
    steps = _SEPARATOR.split(name)
    if ".." in steps or steps[0] == "" or PureWindowsPath(name).drive or "\0" in name:
        raise UsageError(brief(f"member {name!r} leads out of the archive"))
    return tuple(step for step in steps if step not in ("", "."))


def same_in_lower_case(found: list[Steps], steps: Steps, where: str) -> Steps | None:
    """Which of some places is meant: upper and lower case are one, but the one that is
    written in the same way goes first.

    Raises:
        UsageError: there are several, and none is written in the same way.
    """
    if steps in found:
        return steps
    if len(found) > 1:
        names = " and ".join(repr("/".join(place)) for place in sorted(found)[:2])
        raise UsageError(f"'{where}' has both {names}: which one is meant?")
    return found[0] if found else None


# ---- Places to files ----

# A folder that is open: its descriptor, or its path where a system has no such thing.
Opened = Union[int, Path]

_BY_DESCRIPTOR = {os.open, os.stat, os.link} <= os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
# A pipe would be waited for, and a terminal would become the program's own.
_FILE = (
    os.O_RDONLY
    | _NO_LINK
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_inside(folder: Path, steps: Steps) -> BinaryIO:
    """Opens a file in a folder. The folder itself may be a link: the user named it.

    Raises:
        UsageError: what stands there is no file, or cannot be read.
    """
    place = folder.joinpath(*steps)
    with reading(place), _opened(folder, steps[:-1]) as parent:
        where = _at(parent, steps[-1])
        _refuse_other(place, os.stat(**where, follow_symlinks=False), stat.S_IFREG)
        file = os.fdopen(os.open(**where, flags=_FILE), "rb")
        try:
            _refuse_other(place, os.fstat(file.fileno()), stat.S_IFREG)
        except UsageError:
            file.close()
            raise
        return file


def link_inside(folder: Path, steps: Steps, target: Path) -> bool:
    """Gives a file in a folder a second name, which is new, and says whether that was
    possible: on another file system, or for a file of somebody else's, it is not.
    """
    with (
        open_inside(folder, steps) as file,
        _opened(folder, steps[:-1]) as parent,
    ):
        where = _at(parent, steps[-1], "src")
        try:
            os.link(**where, dst=target, follow_symlinks=False)
        except (OSError, NotImplementedError):
            return False
        if os.path.samestat(os.fstat(file.fileno()), target.lstat()):
            return True
        # Somebody has put another file in its place.
        target.unlink()
        return False


def names_inside(folder: Path, steps: Steps = ()) -> list[str]:
    """What stands in a folder of a folder, in order; nothing where that is no folder.

    Raises:
        UsageError: it cannot be read.
    """
    place = folder.joinpath(*steps)
    with reading(place):
        try:
            with _opened(folder, steps) as opened, os.scandir(opened) as entries:
                return sorted(entry.name for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            if not steps:
                raise
            return []


def files_inside(folder: Path) -> Iterator[Steps]:
    """Every file in a folder and its subfolders, in order. A link is a file here: who
    opens it is told.

    Raises:
        UsageError: they cannot be read, or are too many.
    """
    entries = _bounded(_entries(folder, ()), folder)
    return (steps for steps, is_folder in entries if not is_folder)


def _entries(folder: Path, above: Steps) -> Iterator[tuple[Steps, bool]]:
    """All that stands in a folder and its subfolders, and whether it is a folder."""
    waiting: list[tuple[Steps, bool]] = [(above, True)]
    while waiting:
        steps, is_folder = waiting.pop()
        if steps:
            yield steps, is_folder
        if is_folder:
            waiting += reversed(_children(folder, steps))


def _children(folder: Path, steps: Steps) -> list[tuple[Steps, bool]]:
    with (
        reading(folder.joinpath(*steps)),
        _opened(folder, steps) as opened,
        os.scandir(opened) as entries,
    ):
        return sorted(
            ((*steps, entry.name), entry.is_dir(follow_symlinks=False))
            for entry in _bounded(entries, folder)
        )


T = TypeVar("T")


def _bounded(entries: Iterator[T], folder: Path) -> Iterator[T]:
    for count, entry in enumerate(entries):
        if count >= MAX_FILES:
            raise UsageError(f"'{folder}' holds more than {MAX_FILES} files")
        yield entry


@contextmanager
def _opened(folder: Path, steps: Steps) -> Iterator[Opened]:
    """A folder of a folder, reached without following a link."""
    if not _BY_DESCRIPTOR:
        yield _checked(folder, steps)
        return
    flags = os.O_RDONLY | _FOLDER
    descriptor, place = os.open(folder, flags), folder
    try:
        for step in steps:
            place /= step
            where = _at(descriptor, step)
            _refuse_other(place, os.stat(**where, follow_symlinks=False), stat.S_IFDIR)
            inner = os.open(**where, flags=flags | _NO_LINK)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _checked(folder: Path, steps: Steps) -> Path:
    for step in steps:
        folder /= step
        _refuse_other(folder, folder.lstat(), stat.S_IFDIR)
    return folder


def _at(parent: Opened, name: str, key: str = "") -> dict[str, Any]:
    """The arguments that say where, for the functions of `os`."""
    path, descriptor = (key, f"{key}_dir_fd") if key else ("path", "dir_fd")
    if isinstance(parent, Path):
        return {path: parent / name}
    return {path: name, descriptor: parent}


def _refuse_other(place: Path, status: os.stat_result, wanted: int) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == wanted:
        return
    if (kind, wanted) == (stat.S_IFREG, stat.S_IFDIR):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    found = _KINDS.get(kind, "of an unknown kind")
    raise UsageError(f"'{place}' is {found}, and must be {_KINDS[wanted]}")
