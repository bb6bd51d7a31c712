"""Tensor files: the format of a `.dat` file.

The header is checked before anything else is read, so that one that promises too much
data costs nothing. Checking and copying files does not need numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, NoReturn

from nnef_grad.base.errors import UsageError
from nnef_grad.graph.ir import Quantization, Shape
from nnef_grad.storage.files import PIECE, StoredPart

if TYPE_CHECKING:
    from nnef_grad.base.arrays import Array

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
    """A type of items, the numbers of bits that one may have, and their tensors' type."""

    name: str
    bits: Sequence[int]
    dtype: str
    # The kind of their numpy type, if items are numbers of one.
    kind: str = ""
    # Whether items are codes, whose meaning is in another file.
    is_quantized: bool = False
    # Whether they are in blocks of 32, with a scale in each; whether neighbours in a block
    # share a byte.
    is_blocks: bool = False
    are_pairs: bool = False


_ANY_BITS, _NO_BITS = range(1, 65), (2**32 - 1,)
ITEMS = {
    0: Items("float", (16, 32, 64), "scalar", "f"),
    1: Items("unsigned integer", _ANY_BITS, "integer", "u"),
    2: Items("quantized unsigned integer", _ANY_BITS, "scalar", "u", is_quantized=True),
    3: Items("quantized signed integer", _ANY_BITS, "scalar", "i", is_quantized=True),
    4: Items("signed integer", _ANY_BITS, "integer", "i"),
    5: Items("bool", (1, 8), "logical", "b"),
    # Of tract, with this in place of a number of bits: as it writes them with
    # torch-to-nnef, and as it did before it took the order of GGML.
    0x54523040: Items("Q4_0", _NO_BITS, "scalar", is_blocks=True),
    0x54522040: Items("Q4_0", _NO_BITS, "scalar", is_blocks=True, are_pairs=True),
}
_CODES = {x.kind: n for n, x in ITEMS.items() if x.kind and not x.is_quantized}
# A block of Q4_0 is its scale, in half precision, and the items in four bits from -8 to 7:
# the first sixteen in the lower halves of bytes, the others in the upper ones, or pairs of
# neighbours in the two halves of a byte.
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

    def fits(self, shape: Shape) -> bool:
        """Whether it is that of a tensor of this shape. tract writes blocks as a matrix."""
        is_matrix = self.items.is_blocks and len(shape) > 1
        flat = (prod(shape[:-1]), shape[-1]) if is_matrix else shape
        return self.shape in (shape, flat)


def read_header(part: StoredPart) -> Header:
    """The header of a tensor file, checked for consistency, also with the file's size."""
    head, size = part.read(0, HEADER), part.size - HEADER
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
    if header.items.is_blocks and (rank < 2 or prod(shape[1:]) % _BLOCK):
        what = f"but its shape is {list(shape)}"
        _fail(part, f"its items are in rows of blocks of {_BLOCK}, {what}")
    promised = f"its header promises {length} bytes of data, but"
    if length != header.length:
        what = f"{bits} bits per item in shape {list(shape)} are {header.length}"
        _fail(part, f"{promised} {what}")
    if size != length:
        _fail(part, f"{promised} it has {size}")
    return header


def _fail(part: StoredPart, problem: str) -> NoReturn:
    raise UsageError(f"'{part.name}' is not an NNEF tensor file: {problem}")


# ---- Arrays ----


def read_array(
    part: StoredPart,
    quantization: Quantization | None = None,
    are_integers: bool = False,
    shape: Shape | None = None,
) -> Array:
    """The array in a tensor file: of quantized codes the numbers that they mean, or the
    codes, where they are integers; of blocks those of a tensor of the shape.
    """
    header = read_header(part)
    if header.items.is_quantized and quantization is None and not are_integers:
        message = f"'{part.name}' contains quantized codes, not the values themselves"
        raise UsageError(message)
    array = _items(part, header)
    if header.items.is_quantized and quantization is not None:
        # Reading numbers does not need the interpreter.
        from nnef_grad.interpreter.quantize import dequantized

        array = dequantized(array, quantization)
    if shape is not None and header.fits(shape):
        array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _items(part: StoredPart, header: Header) -> Array:
    import numpy as np

    items, bits = header.items, header.bits
    if bits not in (1, 8, 16, 32, 64) and not items.is_blocks:
        what = f"numpy has no {items.name} of {bits} bits"
        raise UsageError(f"cannot read '{part.name}': {what}")
    head, data = part.read(0, HEADER), part.read(HEADER, header.length)
    if len(data) < header.length:
        _fail(part, f"it ends after {len(data)} of {header.length} bytes of data")
    read = np.frombuffer(data, np.uint8)
    array: Array
    if items.is_blocks:
        array = _decoded(read, items.are_pairs)
    elif bits == 1:
        array = np.unpackbits(read, count=prod(header.shape)).astype(bool)
    elif items.dtype == "logical":
        array = read.astype(bool)
    else:
        # Old files have a flag instead of a type for integers with signs.
        has_sign = items.kind == "u" and any(head[_FIELDS.size :][:4])
        array = read.view(f"<{'i' if has_sign else items.kind}{bits // 8}")
    return array.reshape(header.shape)


def _decoded(data: Array, are_pairs: bool) -> Array:
    """The numbers in blocks, in single precision."""
    import numpy as np

    blocks = data.reshape(-1, _BYTES)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    halves = np.stack([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1 + are_pairs)
    codes = halves.reshape(-1, _BLOCK)
    return np.asarray(scales * (codes.astype(np.float32) - 8.0))


def header_of(array: Array) -> Header:
    """The header of an array's tensor file; `ValueError` describes one without."""
    code = _CODES.get(array.dtype.kind)
    bits = 1 if array.dtype.kind == "b" else 8 * array.dtype.itemsize
    if code is None or bits not in ITEMS[code].bits:
        raise ValueError(f"of type {array.dtype}")
    header = Header(ITEMS[code], bits, array.shape)
    if header.length > MAX_LENGTH or array.ndim > MAX_RANK:
        raise ValueError(f"of rank {array.ndim} and {header.length} bytes: too much")
    return header


def write_array(file: BinaryIO, array: Array) -> None:
    """Writes a tensor file. In a file of its own, many zeros are a hole on the disk."""
    import numpy as np

    header = header_of(array)
    rank, extents = array.ndim, (*array.shape, *[0] * MAX_RANK)[:MAX_RANK]
    code = _CODES[array.dtype.kind]
    fields = MAGIC, VERSION, header.length, rank, *extents, header.bits, code
    is_alone = file.tell() == 0
    file.write(_FIELDS.pack(*fields).ljust(HEADER, b"\0"))
    if is_alone and header.length >= _HOLE and not (array[:1].any() or array.any()):
        file.truncate(HEADER + header.length)
        return
    if header.bits == 1:
        array = np.packbits(array)
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    data = ordered.reshape(-1).view(np.uint8).data
    # Compressing it in one piece would take as much memory again.
    file.writelines(
        data[start : start + PIECE] for start in range(0, header.length, PIECE)
    )


# A hole is worth it from so many bytes on.
_HOLE = 2**16
