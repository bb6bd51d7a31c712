"""Safe paths inside a model. No other module turns names of a model into paths.

Labels, the names of archive members, and the places of external data come from the author
of the model, who is not trusted. A name that leads out of the model's folder is refused,
and so is every symbolic link on the path. Each step is opened relative to the one before
it, so that no link can be put in its place in between.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from nnef_grad.base.errors import UsageError, brief
from nnef_grad.language.labels import label_steps, path_steps
from nnef_grad.storage.files import PIECE, PathLike, StoredPart, complete, reading

# The folders on the way, and the file: the parts of a path below the model's folder.
Steps = tuple[str, ...]

DATA = ".dat"
# The most files that a folder or an archive may have.
MAX_FILES = 100_000

_IS_WINDOWS = os.name == "nt"
# What Windows takes for a stream, a drive or a device, or for another name.
_OTHER_ON_WINDOWS = re.compile(
    r'[<>:"|?*]|[. ]$|^(con|prn|aux|nul|(com|lpt)[0-9\u00b9\u00b2\u00b3]|con(in|out)\$) *(\.|$)',
    re.IGNORECASE,
)


# ---- Names to paths ----


def data_steps(label: str) -> Steps:
    """The path of the data of a variable."""
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
    """The path of a member of an archive."""
    if (steps := _inner_steps(name)) is None:
        raise UsageError(brief(f"member {name!r} leads out of the archive"))
    return steps


def _inner_steps(name: str) -> Steps | None:
    """The path that a name means inside of a folder, if it does not lead out."""
    steps = path_steps(name)
    if steps is None or "\0" in name:
        return None
    return tuple(step for step in steps if step not in ("", "."))


def refuse_other_name(steps: Steps) -> None:
    """Raises `UsageError` if the system would take a path for that of something else."""
    if _IS_WINDOWS and any(map(_OTHER_ON_WINDOWS.search, steps)):
        name = "/".join(steps)
        message = f"Windows has no file with the name {name!r}, but an archive may"
        raise UsageError(brief(message))


def file_beside(model: Path, name: str) -> FileInFolder:
    """The file that a model names, in its folder. Hubs keep a model and its files as links
    into one folder: where the model is a link, so may be a file that lies beside it there.
    """
    if not (steps := _inner_steps(name)):
        raise UsageError(brief(f"{name!r} names no file in the folder of the model"))
    refuse_other_name(steps)
    place = model.parent.joinpath(*steps)
    if model.is_symlink() and place.is_symlink():
        real, beside = (Path(os.path.realpath(path)) for path in (place, model))
        if real.parent == beside.parent:
            return FileInFolder(real.parent, (real.name,))
    return FileInFolder(model.parent, steps)


# ---- Paths to files ----

_BY_DESCRIPTOR = {os.open, os.stat, os.link} <= os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
# Opening a pipe would block, and a terminal would become the controlling one.
_FILE = (
    os.O_RDONLY
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


class FileInFolder(StoredPart):
    """A file in a folder. The folder itself may be a link: the user named it."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        self._place = folder.joinpath(*steps)
        self._inside = folder, steps[:-1]
        self.name = str(self._place)

    @cached_property
    def size(self) -> int:  # type: ignore[override]
        with self.open() as file:
            return os.fstat(file.fileno()).st_size

    def read(self, start: int, size: int) -> bytes:
        with reading(self._place), self.open() as file:
            file.seek(start)
            return file.read(size)

    def write(self, target: BinaryIO) -> None:
        # Another file may take its place meanwhile: one is open all the time.
        with self.open() as file:
            for start in range(0, self.size, PIECE):
                size = min(PIECE, self.size - start)
                with reading(self._place):
                    piece = complete(file.read(size), size)
                target.write(piece)

    def open(self) -> BinaryIO:
        """The file, open for reading."""
        with reading(self._place), _open_folder(*self._inside) as parent:
            path = self._at(parent)
            status = os.stat(path, dir_fd=parent, follow_symlinks=False)
            _refuse_other(self._place, status, stat.S_IFREG)
            return _checked(self._place, os.open(path, _FILE | _NO_LINK, dir_fd=parent))

    def place(self, path: Path) -> None:
        if not self._link(path):
            super().place(path)

    def _link(self, target: Path) -> bool:
        """Links it to a new name, if that is possible: not across file systems."""
        with self.open() as file, _open_folder(*self._inside) as parent:
            path = self._at(parent)
            try:
                os.link(src=path, dst=target, src_dir_fd=parent, follow_symlinks=False)
            except (OSError, NotImplementedError):
                return False
            if os.path.samestat(os.fstat(file.fileno()), target.lstat()):
                return True
            # The file was replaced in the meantime.
            target.unlink()
            return False

    def _at(self, parent: int | None) -> Path | str:
        """Its path, relative to its open folder."""
        return self._place if parent is None else self._place.name


def open_file(path: PathLike) -> BinaryIO:
    """Opens a file that the user named, which may be a link, but no pipe or device."""
    place = Path(path)
    with reading(path):
        _refuse_other(place, place.stat(), stat.S_IFREG)
        return _checked(place, os.open(place, _FILE))


def _checked(place: Path, descriptor: int) -> BinaryIO:
    """The open file, if it is one: something else may have taken its place."""
    try:
        _refuse_other(place, os.fstat(descriptor), stat.S_IFREG)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def files_inside(folder: Path) -> Iterator[Steps]:
    """Every file in a folder and its subfolders, in order, and links, to be refused."""
    waiting: list[tuple[Steps, bool]] = [((), True)]
    count = 0
    while waiting:
        steps, is_folder = waiting.pop()
        if not is_folder:
            yield steps
            continue
        entries = entries_inside(folder, steps)
        count += len(entries)
        if count > MAX_FILES:
            raise UsageError(f"'{folder}' contains more than {MAX_FILES} files")
        waiting += (((*steps, name), entries[name]) for name in reversed(entries))


def entries_inside(folder: Path, steps: Steps = ()) -> dict[str, bool]:
    """The sorted names in a subfolder, if it is one, and which of them are folders."""
    place = folder.joinpath(*steps)
    with reading(place):
        try:
            with (
                _open_folder(folder, steps) as opened,
                os.scandir(place if opened is None else opened) as entries,
            ):
                is_folder = {e.name: e.is_dir(follow_symlinks=False) for e in entries}
                return dict(sorted(is_folder.items()))
        except (FileNotFoundError, NotADirectoryError):
            if not steps:
                raise
            return {}


@contextmanager
def _open_folder(folder: Path, steps: Steps) -> Iterator[int | None]:
    """Opens a subfolder without links: a descriptor, or None on systems without any."""
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


def _refuse_other(place: Path, status: os.stat_result, wanted: int) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == wanted:
        return
    if (kind, wanted) == (stat.S_IFREG, stat.S_IFDIR):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    is_instead = _KINDS.get(kind, "of an unknown kind")
    raise UsageError(f"'{place}' is {is_instead}, but must be {_KINDS[wanted]}")
