"""Archives: tar, as it is or compressed with gzip, read and written member by member.

Nothing is ever extracted: a member is a range of the bytes of the archive. When an
archive is opened it is read once from end to end, so that one that is damaged, or that
holds what would do harm where it is unpacked, is refused before anything of it is used.
What is read at once is bounded, whatever the archive says of itself.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import BinaryIO, NamedTuple, NoReturn

from nnef_grad.errors import UsageError, brief
from nnef_grad.storage.files import PIECE, Readable, copy
from nnef_grad.storage.paths import MAX_FILES, Steps, member_steps

BLOCK = tarfile.BLOCKSIZE
END = bytes(BLOCK)
GZIP = b"\x1f\x8b"

# What goes before a member and says more of it, and the name that it may give.
MAX_EXTENSION = 2**20
MAX_NAME = 1024
# No file that a model has is as large: then the header is wrong.
MAX_SIZE = 2**40
# What follows the end: tar fills its last record up.
MAX_FILLING = 2**22

# Level 9 takes longer, and makes the weights of a network no smaller.
LEVEL = 6

FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
FOLDER = tarfile.DIRTYPE
TOO_SHORT = "the archive ends too early"

# What stands before a member and says more of it, or of all members.
LONG_NAME, LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
OF_NEXT = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
OF_ALL = (tarfile.XGLTYPE,)
EXTENSIONS = (LONG_NAME, LONG_LINK, *OF_NEXT, *OF_ALL)

_REFUSED = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a file with holes",
}


class Member(NamedTuple):
    """A file in an archive: the bytes `start` to `start + size`."""

    steps: Steps
    start: int
    size: int


def is_archive(head: bytes) -> bool:
    """Whether a file that begins like this is an archive."""
    return head.startswith(GZIP) or _parsed(head[:BLOCK]) is not None


# ---- Reading ----


class Unpacked:
    """The bytes of an archive, without its compression. They are read in order at best:
    going back in one that is compressed is to begin anew.
    """

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        self._stream = _without_compression(file)
        # Seeking and reading must not be parted where threads share an archive.
        self._lock = Lock()

    def read(self, start: int, size: int) -> bytes:
        """Some bytes; fewer where the archive ends."""
        with self._lock, self._reading():
            self._stream.seek(start)
            return self._stream.read(size)

    def fail(self, what: str) -> NoReturn:
        """Raises the error that tells what is wrong with the archive."""
        raise UsageError(brief(f"cannot read '{self.name}': {what}"))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except EOFError:
            self.fail(TOO_SHORT)
        except (gzip.BadGzipFile, zlib.error) as error:
            self.fail(f"the archive is damaged: {error}")
        except OSError as error:
            self.fail(error.strerror or str(error))


def _without_compression(file: BinaryIO) -> BinaryIO:
    file.seek(0)
    is_compressed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if is_compressed else file  # type: ignore[return-value]


class MemberFile:
    """A member of an archive, to be read from its beginning."""

    def __init__(self, archive: Unpacked, member: Member) -> None:
        self._archive = archive
        self._position = member.start
        self._left = member.size

    def read(self, size: int, /) -> bytes | bytearray:
        """So many bytes, or those that are left."""
        data = bytearray(min(size, self._left))
        # To unpack it at once would take twice the memory.
        for start in range(0, len(data), PIECE):
            end = min(start + PIECE, len(data))
            data[start:end] = self._next(end - start)
        return data

    def _next(self, size: int) -> bytes:
        piece = self._archive.read(self._position, size)
        if len(piece) < size:
            self._archive.fail(TOO_SHORT)
        self._position += size
        self._left -= size
        return piece


def members(archive: Unpacked) -> Iterator[Member]:
    """The files in an archive, in order. At the end the archive was read as a whole.

    Raises:
        UsageError: it is damaged, too large, or holds what a model does not have.
    """
    seen: set[Steps] = set()
    for count, member in enumerate(_entries(archive)):
        if count >= MAX_FILES:
            archive.fail(f"it holds more than {MAX_FILES} files")
        if member is None:
            continue
        if member.steps in seen:
            archive.fail(f"it holds two files {'/'.join(member.steps)!r}")
        seen.add(member.steps)
        yield member


def _entries(archive: Unpacked) -> Iterator[Member | None]:
    """The files, and None for each folder and extension."""
    position = 0
    extensions: dict[str, str] = {}
    while (header := _header(archive, position)) is not None:
        position += BLOCK
        size = header.size
        if header.type in EXTENSIONS:
            extensions |= _extension(archive, header, position)
            yield None
        else:
            member = _member(archive, header, extensions, position)
            size = member.size if member is not None else 0
            extensions = {}
            yield member
        position += size + -size % BLOCK
    _read_to_the_end(archive, position)


def _header(archive: Unpacked, position: int) -> tarfile.TarInfo | None:
    """The header that stands somewhere, or None for the end of the archive."""
    block = archive.read(position, BLOCK)
    if block == END:
        return None
    header = _parsed(block)
    if header is None and position == 0:
        archive.fail("it holds no tar archive")
    if header is None:
        is_short = len(block) < BLOCK
        archive.fail(TOO_SHORT if is_short else "the archive is damaged")
    return header


def _parsed(block: bytes) -> tarfile.TarInfo | None:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.TarError:
        return None
    return header if header.size >= 0 else None


def _member(
    archive: Unpacked, header: tarfile.TarInfo, extensions: dict[str, str], start: int
) -> Member | None:
    name = extensions.get("path", header.name)
    if header.type not in (*FILES, FOLDER):
        kind = _REFUSED.get(header.type, f"of the unknown type {header.type!r}")
        archive.fail(f"{name!r} is {kind}, and a model has files and folders only")
    if any(key.startswith("GNU.sparse.") for key in extensions):
        archive.fail(f"{name!r} is a file with holes, and a model has none")
    if len(name) > MAX_NAME:
        archive.fail(f"a name is longer than {MAX_NAME} characters")
    try:
        steps = member_steps(name)
    except UsageError as error:
        archive.fail(error.message)
    size = _number(archive, extensions.get("size", str(header.size)))
    return Member(steps, start, size) if header.type != FOLDER else None


def _number(archive: Unpacked, text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        archive.fail(f"a size is given as {text!r}")
    if len(text) > len(str(MAX_SIZE)) or int(text) > MAX_SIZE:
        archive.fail(f"it says that a file in it has {text} bytes")
    return int(text)


def _extension(
    archive: Unpacked, header: tarfile.TarInfo, position: int
) -> dict[str, str]:
    """What it says of the next member."""
    if header.size > MAX_EXTENSION:
        archive.fail(f"a header is longer than {MAX_EXTENSION} bytes")
    data = archive.read(position, header.size)
    if header.type == LONG_NAME:
        return {"path": _text(data.partition(b"\0")[0])}
    if header.type == LONG_LINK:
        return {}
    records = dict(_records(archive, data))
    if header.type not in OF_ALL:
        return records
    if {"path", "size"} & records.keys():
        archive.fail("a header gives one name or one size to all members")
    return {}


def _records(archive: Unpacked, data: bytes) -> Iterator[tuple[str, str]]:
    """The keys and values in lines like `20 path=graph.nnef`, which begin with their
    length.
    """
    start = 0
    while start < len(data):
        digits, _, _ = data[start : start + 20].partition(b" ")
        end = start + _number(archive, digits.decode("ascii", "replace"))
        record = data[start + len(digits) + 1 : end]
        key, equals, value = record.partition(b"=")
        if end > len(data) or not equals or not value.endswith(b"\n"):
            archive.fail("a header is damaged")
        yield _text(key), _text(value[:-1])
        start = end


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _read_to_the_end(archive: Unpacked, position: int) -> None:
    """The checksum of what is compressed stands after it."""
    filling = len(archive.read(position, MAX_FILLING))
    if filling == MAX_FILLING:
        archive.fail("it goes on after its end")


# ---- Writing ----


@contextmanager
def compressed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Where to write an archive of this name: compressed unless it is called .tar. The
    same bytes give the same file: it says neither who made it nor when.
    """
    if name.lower().endswith(".tar"):
        yield file
        return
    with gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as stream:
        yield stream  # type: ignore[misc]


def write_member(target: BinaryIO, steps: Steps, source: Readable, size: int) -> None:
    """Writes a member with so many bytes of a source.

    Raises:
        UsageError: there are fewer.
        OSError: it cannot be written.
    """
    header = tarfile.TarInfo("/".join(steps))
    header.size = size
    header.mode = 0o644
    target.write(header.tobuf(tarfile.PAX_FORMAT))
    copy(source, target, size)
    target.write(bytes(-size % BLOCK))


def write_end(target: BinaryIO) -> None:
    """Ends an archive."""
    target.write(2 * END)
