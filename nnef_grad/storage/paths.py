"""Safe paths inside a model. No other module turns names of a model into paths.

Labels, and the names of archive members, come from the author of the model, who is not
trusted. A name that leads out of the model's folder is refused, and so is every
symbolic link on the path. Each step is opened relative to the one before it, so that no
link can be put in its place in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from nnef_grad.base.errors import UsageError, brief
from nnef_grad.language.labels import label_steps
from nnef_grad.storage.files import reading

# The folders on the way, and the file: the parts of a path below the model's folder.
Steps = tuple[str, ...]

DATA = ".dat"
# The most files that a folder or an archive may have.
MAX_FILES = 100_000

# Folders are separated by either, depending on the system.
_SEPARATOR = re.compile(r"[/\\]")


# ---- Names to paths ----


def data_steps(label: str) -> Steps:
    """The path of the data of a variable.

    Raises:
        UsageError: the label is not the path of a file in the folder of the model.
    """
    try:
        *folders, file = label_steps(label)
    except ValueError as error:
        raise UsageError(brief(str(error))) from None
    return (*folders, file + DATA)


def label_of(steps: Steps) -> str | None:
    """The label whose data are stored at a path, if there is one."""
    path = "/".join(steps)
    label = path[: -len(DATA)]
    is_found_by_it = is_label(label) and data_steps(label)[:-1] == steps[:-1]
    return label if is_found_by_it and path.lower().endswith(DATA) else None


def is_label(label: str) -> bool:
    """Whether a label is valid."""
    try:
        return bool(data_steps(label))
    except UsageError:
        return False


def member_steps(name: str) -> Steps:
    """The path of a member of an archive.

    Raises:
        UsageError: it is outside the archive's folder.
    """
    steps = _SEPARATOR.split(name)
    if ".." in steps or steps[0] == "" or PureWindowsPath(name).drive or "\0" in name:
        raise UsageError(brief(f"member {name!r} leads out of the archive"))
    return tuple(step for step in steps if step not in ("", "."))


def same_in_lower_case(found: list[Steps], steps: Steps, where: str) -> Steps | None:
    """The path among some that are equal but for case: the exact match, or the only
    one.

    Raises:
        UsageError: there are several, and none matches exactly.
    """
    if steps in found:
        return steps
    if len(found) > 1:
        names = " and ".join(repr("/".join(place)) for place in sorted(found)[:2])
        raise UsageError(f"'{where}' has both {names}: which one is meant?")
    return found[0] if found else None


# ---- Paths to files ----

_BY_DESCRIPTOR = {os.open, os.stat, os.link} <= os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
# Opening a pipe would block, and a terminal would become the controlling one.
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
        UsageError: it is not a file, or cannot be read.
    """
    place = folder.joinpath(*steps)
    with reading(place), _open_folder(folder, steps[:-1]) as parent:
        path = _at(place, parent)
        status = os.stat(path, dir_fd=parent, follow_symlinks=False)
        _refuse_other(place, status, stat.S_IFREG)
        file = os.fdopen(os.open(path, _FILE, dir_fd=parent), "rb")
        try:
            _refuse_other(place, os.fstat(file.fileno()), stat.S_IFREG)
        except UsageError:
            file.close()
            raise
        return file


def link_inside(folder: Path, steps: Steps, target: Path) -> bool:
    """Links a file in a folder to a new name, and returns whether that was possible:
    not across file systems, nor for the file of another user.
    """
    with (
        open_inside(folder, steps) as file,
        _open_folder(folder, steps[:-1]) as parent,
    ):
        path = _at(folder.joinpath(*steps), parent)
        try:
            os.link(src=path, dst=target, src_dir_fd=parent, follow_symlinks=False)
        except (OSError, NotImplementedError):
            return False
        if os.path.samestat(os.fstat(file.fileno()), target.lstat()):
            return True
        # The file was replaced in the meantime.
        target.unlink()
        return False


def names_inside(folder: Path, steps: Steps = ()) -> list[str]:
    """The sorted names in a subfolder; none if it is not a folder.

    Raises:
        UsageError: it cannot be read.
    """
    with reading(folder.joinpath(*steps)):
        try:
            with _scan(folder, steps) as entries:
                return sorted(entry.name for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            if not steps:
                raise
            return []


def files_inside(folder: Path) -> Iterator[Steps]:
    """Every file in a folder and its subfolders, in order. Links are listed too;
    opening one is an error.

    Raises:
        UsageError: they cannot be read, or are too many.
    """
    waiting: list[tuple[Steps, bool]] = [((), True)]
    count = 0
    while waiting:
        steps, is_folder = waiting.pop()
        if not is_folder:
            yield steps
            continue
        found = _children(folder, steps)
        count += len(found)
        if count > MAX_FILES:
            raise UsageError(f"'{folder}' contains more than {MAX_FILES} files")
        waiting += reversed(found)


def _children(folder: Path, steps: Steps) -> list[tuple[Steps, bool]]:
    """The entries of a folder, each with whether it is a folder; not all, where they are
    too many.
    """
    with reading(folder.joinpath(*steps)), _scan(folder, steps) as entries:
        return sorted(
            ((*steps, entry.name), entry.is_dir(follow_symlinks=False))
            for entry in islice(entries, MAX_FILES + 1)
        )


@contextmanager
def _scan(folder: Path, steps: Steps) -> Iterator[Iterator[os.DirEntry[str]]]:
    with _open_folder(folder, steps) as opened:
        place = folder.joinpath(*steps) if opened is None else opened
        with os.scandir(place) as entries:
            yield entries


@contextmanager
def _open_folder(folder: Path, steps: Steps) -> Iterator[int | None]:
    """Opens a subfolder without following links: its descriptor, or None on systems
    without descriptors of folders.
    """
    if not _BY_DESCRIPTOR:
        for step in steps:
            folder /= step
            _refuse_other(folder, folder.lstat(), stat.S_IFDIR)
        yield None
        return
    flags = os.O_RDONLY | _FOLDER
    descriptor, place = os.open(folder, flags), folder
    try:
        for step in steps:
            place /= step
            status = os.stat(step, dir_fd=descriptor, follow_symlinks=False)
            _refuse_other(place, status, stat.S_IFDIR)
            above = descriptor
            descriptor = os.open(step, flags | _NO_LINK, dir_fd=above)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _at(place: Path, parent: int | None) -> Path | str:
    """The path of a file, relative to its open folder."""
    return place if parent is None else place.name


def _refuse_other(place: Path, status: os.stat_result, wanted: int) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == wanted:
        return
    if (kind, wanted) == (stat.S_IFREG, stat.S_IFDIR):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    found = _KINDS.get(kind, "of an unknown kind")
    raise UsageError(f"'{place}' is {found}, but must be {_KINDS[wanted]}")
