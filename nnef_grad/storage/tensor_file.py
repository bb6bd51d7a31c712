"""Tensor files: the format of a `.dat` file.

The header is checked before anything else is read, so that one that promises too much
data costs nothing. The nnef package reads and writes the arrays.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

from nnef_grad.base.errors import UsageError
from nnef_grad.storage.files import Readable
from nnef_grad.storage.parts import Part

# Checking and copying files does not need numpy.
if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

# ---- Headers ----

MAGIC = b"\x4e\xef"
VERSION = b"\x01\x00"
MAX_RANK = 8
HEADER = 128
MAX_LENGTH = 2**32 - 1
# Magic number, version, length of the data, rank, extents, bits per item, item type;
# the rest is deprecated or reserved.
_FIELDS = struct.Struct("<2s2sII8III")
assert _FIELDS.size + 76 == HEADER


class Items(NamedTuple):
    """A type of items.

    Attributes:
        name: its name.
        bits: the numbers of bits that an item may have.
        dtype: the data type of its tensors.
        is_quantized: whether items are codes, whose meaning is in another file.
        is_blocks: whether they are in blocks of 32, with a scale in each.
    """

    name: str
    bits: Sequence[int]
    dtype: str
    is_quantized: bool = False
    is_blocks: bool = False


_ANY_BITS = range(1, 65)
_UNSIGNED = 1
ITEMS = {
    0: Items("float", (16, 32, 64), "scalar"),
    1: Items("unsigned integer", _ANY_BITS, "integer"),
    2: Items("quantized unsigned integer", _ANY_BITS, "scalar", is_quantized=True),
    3: Items("quantized signed integer", _ANY_BITS, "scalar", is_quantized=True),
    4: Items("signed integer", _ANY_BITS, "integer"),
    5: Items("bool", (1, 8), "logical"),
    # What torch-to-nnef writes for tract, in place of a number of bits too.
    0x54523040: Items("Q4_0", (2**32 - 1,), "scalar", is_blocks=True),
}
# A block of Q4_0 is its scale, in half precision, and the items in four bits from -8 to 7:
# the first sixteen in the lower halves of bytes, the others in the upper ones.
_BLOCK, _BYTES = 32, 18


class Header(NamedTuple):
    """The header of a tensor file; `bits` is the number of bits per item."""

    items: Items
    bits: int
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        """The number of bytes of the data."""
        if self.items.is_blocks:
            return prod(self.shape) // _BLOCK * _BYTES
        return (prod(self.shape) * self.bits + 7) // 8


def read_header(part: Part) -> Header:
    """The header of a tensor file, checked for consistency, also with the file's size.

    Raises:
        UsageError: it is not a tensor file, or its size is not that of the header.
    """
    head, size = part.beginning(HEADER), part.size - HEADER
    if len(head) < HEADER:
        _fail(part, f"it has {part.size} bytes, but a header has {HEADER}")
    magic, version, length, rank, *extents, bits, code = _FIELDS.unpack_from(head)
    shape = tuple(extents[:rank])
    if magic != MAGIC:
        _fail(part, "it does not begin with the magic number")
    if version != VERSION:
        _fail(part, f"its version is {'.'.join(map(str, version))}, not 1.0")
    if rank > MAX_RANK:
        _fail(part, f"its rank is {rank}, but must be at most {MAX_RANK}")
    if 0 in shape:
        _fail(part, f"its extents are {list(shape)}, but must be positive")
    if code not in ITEMS:
        _fail(part, f"the type of its items, {code:#x}, is unknown")
    header = Header(ITEMS[code], bits, shape)
    if bits not in header.items.bits:
        _fail(part, f"its items are of type {header.items.name}, but have {bits} bits")
    promised = f"its header promises {length} bytes of data, but"
    if length != header.length:
        what = f"{bits} bits per item in shape {list(shape)} are {header.length}"
        _fail(part, f"{promised} {what}")
    if size != length:
        _fail(part, f"{promised} it has {size}")
    return header


def _fail(part: Part, problem: str) -> NoReturn:
    raise UsageError(f"'{part.name}' is not an NNEF tensor file: {problem}")


# ---- Arrays ----


def read_array(part: Part) -> Array:
    """The array in a tensor file.

    Raises:
        UsageError: it is not a tensor file, or its items are quantized codes, or of a
            type that numpy does not have.
    """
    import nnef

    header = read_header(part)
    if header.items.is_quantized:
        message = f"'{part.name}' contains quantized codes, not the values themselves"
        raise UsageError(message)
    if header.items.is_blocks:
        return _decoded(part, header)
    with part.open() as file:
        try:
            array: Array = nnef.read_tensor(_InOrder(file, header))
        except ValueError as error:
            raise UsageError(f"cannot read '{part.name}': {error}") from None
    if header.items.dtype == "logical":
        array = array.astype(bool, copy=False)
    array.flags.writeable = False
    return array


def _decoded(part: Part, header: Header) -> Array:
    """The numbers of a file in blocks, in single precision."""
    import numpy as np

    with part.open() as file:
        file.read(HEADER)
        read = bytes(file.read(header.length))
    blocks = np.frombuffer(read, np.uint8).reshape(-1, _BYTES)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    codes = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    array: Array = (scales * (codes.astype(np.float32) - 8.0)).reshape(header.shape)
    array.flags.writeable = False
    return array


class _InOrder:
    """A tensor file adapted to the reader of the nnef package: not seekable, so that
    the reader accepts any source of bytes; and with bools of eight bits, which it does
    not know, declared as numbers.
    """

    def __init__(self, file: Readable, header: Header) -> None:
        head = bytearray(file.read(HEADER))
        if header.items.dtype == "logical" and header.bits == 8:
            head[_FIELDS.size - 4] = _UNSIGNED
        self._head = BytesIO(head)
        self._file = file

    def seekable(self) -> bool:
        return False

    def read(self, size: int) -> bytes | bytearray:
        return self._head.read(size) or self._file.read(size)


# The type of items by the kind of a numpy type.
_CODES = {"f": 0, "u": 1, "i": 4, "b": 5}


def header_of(array: Array) -> Header:
    """The header of an array's tensor file.

    Raises:
        ValueError: the array cannot be stored; the message describes it.
    """
    code = _CODES.get(array.dtype.kind)
    bits = 1 if array.dtype.kind == "b" else 8 * array.dtype.itemsize
    if code is None or bits not in ITEMS[code].bits:
        raise ValueError(f"of type {array.dtype}")
    header = Header(ITEMS[code], bits, array.shape)
    if header.length > MAX_LENGTH or array.ndim > MAX_RANK:
        raise ValueError(f"of rank {array.ndim} and {header.length} bytes: too much")
    return header


def write_array(file: BinaryIO, array: Array) -> None:
    """Writes a tensor file; the array must have a valid header. Many zeros are a hole in the
    file, which takes no place on a disk.

    Raises:
        OSError: it cannot be written.
    """
    import nnef

    header = header_of(array)
    if header.length >= _HOLE and not (array[:1].any() or array.any()):
        _write_zeros(file, header, _CODES[array.dtype.kind])
        return
    nnef.write_tensor(file, array.astype(array.dtype.newbyteorder("="), copy=False))
    # Numpy writes without Python's checks: a full disk would go unnoticed.
    if os.fstat(file.fileno()).st_size != HEADER + header.length:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# A hole is worth it from so many bytes on.
_HOLE = 2**16


def _write_zeros(file: BinaryIO, header: Header, code: int) -> None:
    rank, extents = len(header.shape), (*header.shape, *[0] * MAX_RANK)[:MAX_RANK]
    fields = MAGIC, VERSION, header.length, rank, *extents, header.bits, code
    file.write(_FIELDS.pack(*fields).ljust(HEADER, b"\0"))
    file.truncate(HEADER + header.length)
