"""Tar archives, member by member, also such as no program would write."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from fuzz.documents import flip

BLOCK = 512
SIZE = 124
CHECKSUM = 148
END = bytes(2 * BLOCK)


class Member(NamedTuple):
    """A member of an archive, or a file of a folder."""

    name: str
    data: bytes = b""
    type: bytes = tarfile.REGTYPE
    link: str = ""


def packed(members: Sequence[Member]) -> bytes:
    """The archive, without its end."""
    return b"".join(map(_stored, members))


def _stored(member: Member) -> bytes:
    info = tarfile.TarInfo(member.name)
    info.size, info.type, info.linkname = len(member.data), member.type, member.link
    header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return header + member.data + bytes(-len(member.data) % BLOCK)


def extended(key: str, value: str, type: bytes = tarfile.XHDTYPE) -> Member:
    """A header that gives the next member another name, size or form."""
    rest = f" {key}={value}\n".encode("utf-8", "surrogateescape")
    length = len(rest) + len(str(len(rest)))
    length = len(rest) + len(str(length))
    return Member("header", str(length).encode() + rest, type)


# ---- Damage ----


def truncate(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


SIZES = [
    *[b"77777777777\0", b"00000100000\0", b"17777777777\0", b"-0000000001\0"],
    *[b"x" * 12, b"\xff" * 12, b"\x80" + b"\x7f" * 11, b"00000000000\0", b"\0" * 12],
]


def resize(rng: Random, data: bytes) -> bytes:
    """A header gives another size, with a checksum that is right."""
    starts = [
        i for i in range(0, len(data) - BLOCK, BLOCK) if b"ustar" in data[i : i + BLOCK]
    ]
    if not starts:
        return data
    start = rng.choice(starts)
    header = bytearray(data[start : start + BLOCK])
    header[SIZE : SIZE + 12] = rng.choice(SIZES)
    header[CHECKSUM : CHECKSUM + 8] = b" " * 8
    header[CHECKSUM : CHECKSUM + 8] = b"%06o\0 " % sum(header)
    return data[:start] + bytes(header) + data[start + BLOCK :]


def append(rng: Random, data: bytes) -> bytes:
    more = [b"garbage", END, bytes(2**16), b"\x1f\x8b", data[:BLOCK]]
    return data + rng.choice(more)


def drop(rng: Random, data: bytes) -> bytes:
    """Without one of the blocks."""
    start = BLOCK * rng.randrange(len(data) // BLOCK + 1)
    return data[:start] + data[start + BLOCK :]


def without_end(_: Random, data: bytes) -> bytes:
    return data.removesuffix(END)


def bomb(rng: Random, data: bytes) -> bytes:
    """Much more than it looks, once it is packed."""
    return data + bytes(rng.choice([2**20, 2**24, 2**27]))


DAMAGE: list[Callable[[Random, bytes], bytes]] = [
    *[truncate, flip, flip, resize, resize, append, drop, without_end],
]


def compress(rng: Random, data: bytes) -> bytes:
    """A .tgz, sometimes of more than there is, or damaged."""
    if rng.random() < 0.03:
        data = bomb(rng, data)
    whole = gzip.compress(data, 1, mtime=0)
    if rng.random() < 0.85:
        return whole
    return rng.choice([truncate, flip, append, _again, _twice])(rng, whole)


def _again(_: Random, data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def _twice(_: Random, data: bytes) -> bytes:
    return data + data
