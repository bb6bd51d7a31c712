"""Where commands run: a folder with a model, what lies around it, and what is at the
output before.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import gettempdir

from fuzz.inputs import Command

# Nobody may create this file, which archives ask for.
EVIL = Path(gettempdir()) / "nnef-grad-fuzz-evil.dat"
# What is in a tensor file outside of the model, which has the shape of a variable. It must
# not get into an output.
MARK = b"a secret" * 2
# A file that is not of a model, in a folder that must not be replaced.
LETTER = "letter.txt"
_HEAD = b"\x4e\xef\x01\0" + len(MARK).to_bytes(4, "little") + (2).to_bytes(4, "little")
_SHAPE = (1).to_bytes(4, "little") + (len(MARK) // 4).to_bytes(4, "little") + bytes(24)
SECRET = _HEAD + _SHAPE + (32).to_bytes(4, "little") + bytes(80) + MARK

USUAL_OUTPUTS = ["-", "out", "out/", "out.nnef", "out.tgz", "out.tar"]
ODD_OUTPUTS = [
    *["out.TGZ", "out.tar.gz", "model", "model/", "model.nnef", "model/out.nnef", "."],
    *["no/out.nnef", "no/out", "out.zip", "", "..", "../beside", "../beside/kept.nnef"],
    *["link", "link/out.tgz", "out.quant", "out.dat", "o" * 300, "model.tgz"],
    *["out.nnef/", "\udcff.nnef"],
]

TEXT = b"version 1.0;\ngraph g( x ) -> ( x ) { x = external(shape = [1]); }\n"


def _text(path: Path) -> None:
    path.write_bytes(TEXT)


def _model(path: Path) -> None:
    (path / "deep").mkdir(parents=True)
    (path / "graph.nnef").write_bytes(TEXT)
    (path / "deep" / "old.dat").write_bytes(b"old")


def _other_folder(path: Path) -> None:
    path.mkdir()
    (path / LETTER).write_bytes(b"keep me")


EXISTING: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "text": _text,
    "empty file": lambda path: path.touch(),
    "empty folder": lambda path: path.mkdir(),
    "model": _model,
    "other folder": _other_folder,
    "link to a text": lambda path: path.symlink_to("../beside/kept.nnef"),
    "link to a folder": lambda path: path.symlink_to("../beside"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "pipe": lambda path: os.mkfifo(path),
}


def output(rng: Random) -> tuple[str, str]:
    """An output, mostly a usual one, and what is there before, mostly nothing."""
    name = rng.choice(USUAL_OUTPUTS if rng.random() < 0.75 else ODD_OUTPUTS)
    return name, rng.choice(list(EXISTING)) if rng.random() < 0.3 else "nothing"


def furnish(root: Path, data: bytes, command: Command) -> Path:
    """Makes everything that there is before, and returns the folder to run in."""
    here, beside = root / "here", root / "beside"
    here.mkdir()
    beside.mkdir()
    (root / "secret.dat").write_bytes(SECRET)
    (here / "secret.dat").write_bytes(SECRET)
    (beside / "kept.nnef").write_bytes(TEXT)
    (here / "link").symlink_to(beside)
    _put_model(here, data, command)
    place = here / command.output
    if place.parent == here and len(place.name) < 256 and not os.path.lexists(place):
        EXISTING[command.existing](place)
    return here


def _put_model(here: Path, data: bytes, command: Command) -> None:
    if command.form == "folder":
        unpack(data, here / command.model)
    elif command.form == "beside":
        unpack(data, here)
        # A user may name a pipe, and then waits for what comes out of it.
        if (here / command.model).is_fifo():
            (here / command.model).unlink()
    elif command.form == "file":
        (here / command.model).write_bytes(data)


def unpack(data: bytes, folder: Path) -> None:
    """Makes files, folders, links and pipes, all of them inside the folder."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        for member in archive:
            path = Path(os.path.normpath(folder / member.name))
            if folder in path.parents:
                _make(path, member, archive)


def _make(path: Path, member: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
    """Makes one thing, unless there is something, or the system does not allow it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_inside(path.parent) or os.path.lexists(path):
            return
        if member.issym() or member.islnk():
            path.symlink_to(member.linkname)
        elif member.isdir():
            path.mkdir()
        elif member.isfifo():
            os.mkfifo(path)
        else:
            file = archive.extractfile(member)
            path.write_bytes(file.read() if file else b"")
    except (OSError, ValueError, tarfile.TarError):
        return


def _is_inside(folder: Path) -> bool:
    """Whether no link leads to the folder."""
    return folder.resolve() == folder


def snapshot(root: Path) -> dict[str, tuple[int, str]]:
    """Everything there is: its mode, and what is in it or where it leads."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path)] = _content(path)
    return found


def _content(path: Path) -> tuple[int, str]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return mode, str(path.readlink())
    if stat.S_ISREG(mode):
        return mode, sha256(path.read_bytes()).hexdigest()
    return mode, ""
