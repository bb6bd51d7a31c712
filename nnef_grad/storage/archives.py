"""Archives: tar, plain or compressed with gzip, read and written member by member.

`tarfile` of the standard library reads the headers. What it lacks is here: limits, and
refusals of what no model has, before it follows a header. Nothing is ever extracted: a
member is a range of bytes of the archive. An archive is read once from end to end when
it is opened, so that a damaged or malicious one is refused before anything in it is used.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, BinaryIO, NoReturn

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
# The bytes of all files that no model has, such as a licence, and of extension headers.
# Those of data have no limit: gzip makes a file at most a thousand times larger.
MAX_OTHER = 2**26
OF_MODELS = (".nnef", ".quant", DATA)
# The padding after the end, with which tar fills its last record.
MAX_FILLING = 2**22

# Level 9 takes longer, and does not make the weights of a network any smaller.
LEVEL = 6

FILE = tarfile.AREGTYPE
TOO_SHORT = "the archive ends too early"
DAMAGED = "the archive is damaged"

# Headers that extend those of the next member, or of all members: by names, by records.
NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
RECORDS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
FILES = (FILE, tarfile.REGTYPE, tarfile.CONTTYPE)
KINDS = (*NAMES, *RECORDS, *FILES, tarfile.DIRTYPE)
# More digits than any name of a file has: some versions of the library take ages.
_DIGITS = re.compile(rb"[0-9]{256}")

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
    try:
        return head.startswith(GZIP) or bool(
            tarfile.TarInfo.frombuf(head[:BLOCK], "utf-8", "surrogateescape")
        )
    except tarfile.TarError:
        return False


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
            self.fail(f"{DAMAGED}: {error}")
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
    stream, seen = _Stream(archive), set[Steps]()
    for header in _headers(archive, stream):
        steps = _checked_steps(archive, header)
        if header.isdir():
            continue
        if steps in seen:
            archive.fail(f"it contains two files {'/'.join(steps)!r}")
        seen.add(steps)
        if not header.name.lower().endswith(OF_MODELS):
            stream.spend(header.size)
        member = Member(archive, steps, header.offset_data, header.size)
        member.read(0, KEPT)  # cheap now: the stream is there
        yield member


def _checked_steps(archive: Unpacked, header: tarfile.TarInfo) -> Steps:
    """The path of a member, whose size is checked too."""
    size = header.pax_headers.get("size", str(header.size))
    if header.size < 0 and "size" not in header.pax_headers:
        archive.fail(DAMAGED)
    if not (size.isascii() and size.isdecimal()):
        archive.fail(f"a size is given as {size!r}")
    if len(size) > len(str(MAX_SIZE)) or int(size) > MAX_SIZE:
        archive.fail(f"a file in it has {size} bytes according to its header")
    if len(header.name) > MAX_NAME:
        archive.fail(f"a name is longer than {MAX_NAME} characters")
    try:
        return member_steps(header.name)
    except UsageError as error:
        archive.fail(error.message)


def _headers(archive: Unpacked, stream: _Stream) -> Iterator[tarfile.TarInfo]:
    """The headers of files and folders, with what extends them."""
    try:
        tar = tarfile.TarFile(fileobj=stream, tarinfo=_Header, encoding="utf-8")  # type: ignore[arg-type]
        while stream.last != END and (header := tar.next()):
            yield header
            tar.members.clear()  # type: ignore[attr-defined]  # which take memory
        # The library takes a damaged header for the end.
        is_whole = stream.last == END
    except _RefusedError as error:
        archive.fail(str(error))
    except (tarfile.TarError, ValueError, RecursionError):
        if stream.tell() <= BLOCK:
            archive.fail("it does not contain a tar archive")
        is_whole = False
    if not is_whole:
        archive.fail(DAMAGED if len(stream.last) == BLOCK else TOO_SHORT)
    # To the end, so that the checksum of a compressed archive is verified.
    if len(archive.read(stream.tell(), MAX_FILLING)) == MAX_FILLING:
        archive.fail("it continues after its end")


class _RefusedError(tarfile.ReadError):
    """Says why a header is not followed."""


class _Header(tarfile.TarInfo):
    """A header, checked before the library follows it."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _Header:
        header: Any = super().frombuf(buf, encoding, errors)
        # The beginning of a long name may end in a slash: this does not make it a folder.
        if header.size and bytes(buf[156:157]) == FILE:
            header.type = FILE
        if header.type not in KINDS:
            kind = _REFUSED.get(header.type, f"of the unknown type {header.type!r}")
            only = "a model has files and folders only"
            raise _RefusedError(f"{header.name!r} is {kind}: {only}")
        return header  # type: ignore[no-any-return]


class _Stream:
    """The bytes of an archive, which the library reads forward. Versions of it would go
    around without end where a header leads back, or in the records of one.
    """

    def __init__(self, archive: Unpacked) -> None:
        self._archive = archive
        self._position = self._count = self._other = 0
        self._kind = self.last = b""

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if position < self._position:
            self._archive.fail(DAMAGED)
        self._position = position

    def read(self, size: int) -> bytes:
        """Reads a header, the body of one, or the last byte before one."""
        if not 0 <= size <= MAX_EXTENSION:
            self._archive.fail(f"a header is longer than {MAX_EXTENSION} bytes")
        self.last = data = self._archive.read(self._position, size)
        self._position += len(data)
        kind, self._kind = self._kind, b""
        if kind in RECORDS:
            self._check_records(kind, data.rstrip(b"\0"))
        elif kind not in NAMES:
            self._kind = data[156:157]
            self._count += size == BLOCK
        if self._count > MAX_FILES:
            self._archive.fail(f"it contains more than {MAX_FILES} files")
        return data

    def spend(self, size: int) -> None:
        """Counts bytes of what no model has."""
        self._other += size
        if self._other > MAX_OTHER:
            message = f"it contains more than {MAX_OTHER} bytes that no model has"
            self._archive.fail(message)

    def _check_records(self, kind: bytes, data: bytes) -> None:
        """Checks lines such as `20 path=graph.nnef`, where 20 is the length."""
        fail = self._archive.fail
        self.spend(len(data))
        start = 0
        while start < len(data):
            digits = data[start : start + 20].partition(b" ")[0]
            end = start + int(digits) if digits.isdigit() else 0
            key, _, value = data[start + len(digits) + 1 : end].partition(b"=")
            if end > len(data) or not (key and value.endswith(b"\n")):
                fail("a header is damaged")
            if _DIGITS.search(value):
                fail("a name in a header has too many digits")
            if key.startswith(b"GNU.sparse."):
                fail("it contains a sparse file: a model has none")
            if kind == tarfile.XGLTYPE and key in (b"path", b"size"):
                fail("a header gives all members the same name or size")
            start = end


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
