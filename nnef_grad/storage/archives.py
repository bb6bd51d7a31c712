"""Archives: tar, plain or compressed with gzip, read and written member by member.

Nothing is ever extracted: a member is a range of bytes of the archive. An archive is
read once from end to end when it is opened, so that a damaged or malicious one is
refused before anything in it is used. The size of each read is bounded, whatever the
headers say.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import BinaryIO, NoReturn

from nnef_grad.base.errors import UsageError, brief
from nnef_grad.storage.files import PIECE, Part, StoredPart
from nnef_grad.storage.paths import DATA, MAX_FILES, Steps, member_steps

BLOCK = tarfile.BLOCKSIZE
END = bytes(BLOCK)
GZIP = b"\x1f\x8b"

# The bytes kept of each file: the header of a tensor file.
KEPT = 128
# The limits of extension headers, and of names.
MAX_EXTENSION = 2**20
MAX_NAME = 1024
# A header with a larger size is taken to be wrong.
MAX_SIZE = 2**40
# The bytes of all files that no model has: a licence, a page to read.
MAX_OTHER = 2**26
OF_MODELS = (".nnef", ".quant", DATA)
# The padding after the end, with which tar fills its last record.
MAX_FILLING = 2**22

# Level 9 takes longer, and does not make the weights of a network any smaller.
LEVEL = 6

FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
FOLDER = tarfile.DIRTYPE
TOO_SHORT = "the archive ends too early"

# Headers that extend those of the next member, or of all members.
LONG_NAME, LONG_LINK = tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK
OF_ALL = tarfile.XGLTYPE
EXTENSIONS = (LONG_NAME, LONG_LINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, OF_ALL)

_REFUSED = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


def is_archive(head: bytes) -> bool:
    """Whether a file with this beginning is an archive."""
    return head.startswith(GZIP) or _parse_header(head[:BLOCK]) is not None


# ---- Reading ----


class Unpacked:
    """The bytes of an archive. Going back in a compressed one starts over."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name = name
        file.seek(0)
        is_compressed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        self._stream = gzip.GzipFile(fileobj=file) if is_compressed else file
        # Seeking and reading must be atomic where threads share an archive.
        self._lock = Lock()

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the archive."""
        try:
            with self._lock:
                self._stream.seek(start)
                return self._stream.read(size)
        except EOFError:
            self.fail(TOO_SHORT)
        except (gzip.BadGzipFile, zlib.error) as error:
            self.fail(f"the archive is damaged: {error}")
        except OSError as error:
            self.fail(error.strerror or str(error))

    def fail(self, what: str) -> NoReturn:
        """Raises an error about the archive."""
        raise UsageError(brief(f"cannot read '{self.name}': {what}"))


class Member(StoredPart):
    """A file in an archive: `size` bytes from `start`. Its beginning is kept."""

    def __init__(self, archive: Unpacked, steps: Steps, start: int, size: int) -> None:
        self.name = f"{archive.name}/{'/'.join(steps)}"
        self.size = size
        self.order = self.start = start
        self.steps = steps
        self._archive = archive
        self._kept = b""

    def read(self, start: int, size: int) -> bytes | bytearray:
        end = max(start, min(start + size, self.size))
        if end <= len(self._kept):
            return self._kept[start:end]
        data = bytearray(end - start)
        # Decompressing it in one piece would take twice the memory.
        for place in range(0, len(data), PIECE):
            wanted = min(PIECE, len(data) - place)
            piece = self._archive.read(self.start + start + place, wanted)
            if len(piece) < wanted:
                self._archive.fail(TOO_SHORT)
            data[place : place + wanted] = piece
        if start == 0:
            self._kept = bytes(data[:KEPT])
        return data


def members(archive: Unpacked) -> Iterator[Member]:
    """The files in an archive, in order. Iterating to the end reads the whole archive."""
    seen: set[Steps] = set()
    other = 0
    for count, member in enumerate(_entries(archive)):
        if count >= MAX_FILES:
            archive.fail(f"it contains more than {MAX_FILES} files")
        if member is None:
            continue
        if member.steps in seen:
            archive.fail(f"it contains two files {'/'.join(member.steps)!r}")
        seen.add(member.steps)
        if not "/".join(member.steps).lower().endswith(OF_MODELS):
            other += member.size
        if other > MAX_OTHER:
            archive.fail(f"it contains more than {MAX_OTHER} bytes that no model has")
        member.read(0, KEPT)  # cheap now: the stream is there
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
    # To the end, so that the checksum of a compressed archive is verified.
    if len(archive.read(position, MAX_FILLING)) == MAX_FILLING:
        archive.fail("it continues after its end")


def _header(archive: Unpacked, position: int) -> tarfile.TarInfo | None:
    """The header at a position, or None at the end of the archive."""
    block = archive.read(position, BLOCK)
    if block == END:
        return None
    header = _parse_header(block)
    if header is None and position == 0:
        archive.fail("it does not contain a tar archive")
    if header is None:
        archive.fail(TOO_SHORT if len(block) < BLOCK else "the archive is damaged")
    return header


def _parse_header(block: bytes) -> tarfile.TarInfo | None:
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
        archive.fail(f"{name!r} is {kind}: a model has files and folders only")
    if any(key.startswith("GNU.sparse.") for key in extensions):
        archive.fail(f"{name!r} is a sparse file: a model has none")
    if len(name) > MAX_NAME:
        archive.fail(f"a name is longer than {MAX_NAME} characters")
    try:
        steps = member_steps(name)
    except UsageError as error:
        archive.fail(error.message)
    size = _number(archive, extensions.get("size", str(header.size)))
    return Member(archive, steps, start, size) if header.type != FOLDER else None


def _number(archive: Unpacked, text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        archive.fail(f"a size is given as {text!r}")
    if len(text) > len(str(MAX_SIZE)) or int(text) > MAX_SIZE:
        archive.fail(f"a file in it has {text} bytes according to its header")
    return int(text)


def _extension(
    archive: Unpacked, header: tarfile.TarInfo, position: int
) -> dict[str, str]:
    """The fields of the next member in an extension header."""
    if header.size > MAX_EXTENSION:
        archive.fail(f"a header is longer than {MAX_EXTENSION} bytes")
    data = archive.read(position, header.size)
    if header.type == LONG_NAME:
        return {"path": _text(data.partition(b"\0")[0])}
    if header.type == LONG_LINK:
        return {}
    records = dict(_records(archive, data))
    if header.type != OF_ALL:
        return records
    if {"path", "size"} & records.keys():
        archive.fail("a header gives all members the same name or size")
    return {}


def _records(archive: Unpacked, data: bytes) -> Iterator[tuple[str, str]]:
    """The keys and values of lines such as `20 path=graph.nnef`: 20 is the length."""
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


# ---- Writing ----


@contextmanager
def compressed(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """A stream to write an archive to: equal content gives equal files, without times."""
    if name.lower().endswith(".tar"):
        yield file
        return
    with gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as stream:
        yield stream  # type: ignore[misc]


def write_member(target: BinaryIO, steps: Steps, part: Part) -> None:
    """Writes a member with the bytes of a part."""
    header = tarfile.TarInfo("/".join(steps))
    header.size = part.size
    header.mode = 0o644
    target.write(header.tobuf(tarfile.PAX_FORMAT))
    start = target.tell()
    part.write(target)
    if target.tell() - start != part.size:
        raise UsageError(f"'{header.name}' has changed while it was being written")
    target.write(bytes(-part.size % BLOCK))


def write_end(target: BinaryIO) -> None:
    """Ends an archive."""
    target.write(2 * END)
