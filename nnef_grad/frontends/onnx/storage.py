"""ONNX files, an array at a time: protocol buffers in memory would hold all data twice, and
no message may have more than 2 GB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data
from onnx.helper import get_all_tensor_dtypes, tensor_dtype_to_np_dtype
from onnx.numpy_helper import from_array, to_array

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import UsageError, brief
from nnef_grad.storage.paths import file_beside, open_file

# Fields of protocol buffers: the graph of a model, an initializer of a graph, the bytes of
# a tensor.
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
# Initializers of fewer bytes stay in the message: shapes may depend on them.
_SMALL = 2**16


class _Field(NamedTuple):
    """A field of a message: its number, and the places of its tag, content and end."""

    number: int
    begin: int
    content: int
    end: int


def load(path: Path) -> tuple[Any, dict[str, Array]]:
    """The model in a file, without the data of large initializers, and the arrays of all,
    in their order. No tensor in it names a file any more.
    """
    arrays: dict[str, Array] = {}
    with open_file(path) as file:
        parts = [
            _graph(file, field, arrays)
            if field.number == GRAPH
            else _bytes(file, field.begin, field.end)
            for field in _fields(file, 0, os.fstat(file.fileno()).st_size)
        ]
    model = onnx.load_model_from_string(b"".join(parts))
    for initializer in model.graph.initializer:
        name = initializer.name
        if uses_external_data(initializer):
            arrays[name] = _beside(initializer, path)
            if arrays[name].nbytes <= _SMALL:
                initializer.CopyFrom(from_array(arrays[name], name))
            _forget_place(initializer)
        elif name not in arrays:
            _data_type(initializer)
            arrays[name] = np.asarray(to_array(initializer))
    for tensor in _tensors(model):
        if uses_external_data(tensor):
            tensor.raw_data = _beside(tensor, path).tobytes()
            _forget_place(tensor)
    return model, {i.name: arrays[i.name] for i in model.graph.initializer}


def _tensors(message: Any) -> Iterator[Any]:
    """The tensors in a message, wherever: onnx would open the files that they name."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if isinstance(value, Sequence) else [value]:
                yield from _tensors(part)


def _forget_place(tensor: Any) -> None:
    """Takes from a tensor the name of the file that its data were read from."""
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _beside(tensor: Any, model: Path) -> Array:
    """The data of a tensor in a file beside the model: `ValueError` if they are not valid,
    `UsageError` if there is no such file.
    """
    stored = {entry.key: entry.value for entry in tensor.external_data}
    offset, whose = int(stored.get("offset", 0)), f"the data of '{tensor.name}'"
    size = prod(tensor.dims) * _data_type(tensor).itemsize
    if int(stored.get("length", size)) != size:
        raise ValueError(f"{whose} have {size} bytes, and not {stored['length']}")
    location = stored.get("location", "")
    try:
        data = file_beside(model, location)
    except UsageError as error:
        raise ValueError(f"{whose}: {error.message}") from None
    if not os.path.lexists(data.name):
        what = f"'{model}' needs the file '{location}', with {whose}"
        raise UsageError(brief(f"{what}: there is no '{Path(data.name).absolute()}'"))
    try:
        with data.open() as file:
            if not 0 <= offset <= os.fstat(file.fileno()).st_size - size:
                raise ValueError(f"{whose} are truncated")
            file.seek(offset)
            return _array(file, tensor)
    except UsageError as error:
        raise ValueError(f"{whose}: {error.message}") from None


def _array(file: BinaryIO, tensor: Any) -> Array:
    """The data of a tensor in a file, from its position, or `ValueError`."""
    kind, shape = _data_type(tensor), tuple(tensor.dims)
    array = np.fromfile(file, kind.newbyteorder("<"), prod(shape))
    return array.reshape(shape).astype(kind, copy=False)


def _data_type(tensor: Any) -> np.dtype[Any]:
    """The data type of a tensor, or `ValueError`."""
    if tensor.data_type not in get_all_tensor_dtypes():
        message = f"'{tensor.name}' has an unknown data type, {tensor.data_type}"
        raise ValueError(message)
    if min(tensor.dims, default=0) < 0:
        raise ValueError(f"an extent of '{tensor.name}' is negative")
    kind: np.dtype[Any] = tensor_dtype_to_np_dtype(tensor.data_type)
    return kind


def _graph(file: BinaryIO, field: _Field, arrays: dict[str, Array]) -> bytes:
    """The field of a graph, without the data of large initializers."""
    parts = [
        _initializer(file, inner, arrays)
        if inner.number == INITIALIZER and inner.end - inner.content > _SMALL
        else _bytes(file, inner.begin, inner.end)
        for inner in _fields(file, field.content, field.end)
    ]
    return tag(GRAPH, sum(map(len, parts))) + b"".join(parts)


def _initializer(file: BinaryIO, field: _Field, arrays: dict[str, Array]) -> bytes:
    """The field of an initializer without its data, of which it makes an array."""
    fields = list(_fields(file, field.content, field.end))
    heads = [f for f in fields if f.number != RAW_DATA]
    head = b"".join(_bytes(file, f.begin, f.end) for f in heads)
    raw = [f for f in fields if f.number == RAW_DATA]
    tensor = onnx.TensorProto.FromString(head)
    kind = _data_type(tensor)
    size = kind.itemsize * prod(tensor.dims)
    if kind.kind not in "fiub" or [size] != [f.end - f.content for f in raw]:
        return _bytes(file, field.begin, field.end)
    file.seek(raw[0].content)
    arrays[tensor.name] = _array(file, tensor)
    return tag(INITIALIZER, len(head)) + head


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    """A part of a file. Pages of a map would stay in memory, beside the arrays."""
    file.seek(begin)
    return file.read(end - begin)


def _fields(file: BinaryIO, begin: int, end: int) -> Iterator[_Field]:
    """The fields of a message, by their tags and lengths, or `ValueError`."""
    while begin < end:
        key, place = _read_varint(file, begin)
        number, kind = divmod(key, 8)
        size, after = _read_varint(file, place) if kind in (0, 2) else (0, place)
        after += {0: 0, 1: 8, 2: size, 5: 4}.get(kind, end)
        if after > end:
            raise ValueError("it is damaged, or no protocol buffer")
        yield _Field(number, begin, after - (size if kind == 2 else 0), after)
        begin = after


def _read_varint(file: BinaryIO, place: int) -> tuple[int, int]:
    """A number and the place after it: seven bits a byte, and one that says if there are
    more.
    """
    number = 0
    for shift, byte in enumerate(_bytes(file, place, place + 10)):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, place + shift + 1
    raise ValueError("it is damaged, or no protocol buffer")


def tag(number: int, size: int) -> bytes:
    """The beginning of a field of so many bytes."""
    return _varint(number << 3 | 2) + _varint(size)


def _varint(number: int) -> bytes:
    if number > 0x7F:
        return bytes([number & 0x7F | 0x80]) + _varint(number >> 7)
    return bytes([number])
