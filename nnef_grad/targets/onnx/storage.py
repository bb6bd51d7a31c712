"""ONNX models in files, an array at a time: protocol buffers in memory would hold all data
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import TensorProto, helper

from nnef_grad.base.arrays import Array
from nnef_grad.frontends.onnx.storage import GRAPH, INITIALIZER, RAW_DATA, tag
from nnef_grad.storage.files import new_files, writing

# The most bytes of a message: what is more has a file beside it, whose arrays begin at
# whole pages.
MOST_BYTES = 2**31 - 1
PAGE = 4096


def store(
    model: Any, arrays: Mapping[str, Array], place: Path, overwrite: bool
) -> None:
    """Writes a model, with arrays as further initializers. What is more than 2 GB is in
    another file, whose name ends in `.data`.
    """
    size = model.ByteSize() + sum(a.nbytes + 200 + len(n) for n, a in arrays.items())
    beside = place.with_name(f"{place.name}.data") if size > MOST_BYTES else None
    places = [place] if beside is None else [beside, place]
    with writing(place), new_files(*places, overwrite=overwrite) as drafts:
        if beside is not None:
            with drafts[beside].open("wb") as file:
                model.graph.initializer.extend(_put_beside(file, beside.name, arrays))
            arrays = {}
        with drafts[place].open("wb") as file:
            _write(file, model, arrays)


def _header(name: str, array: Array) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return TensorProto(name=name, data_type=kind, dims=array.shape)


def _put_beside(
    file: BinaryIO, name: str, arrays: Mapping[str, Array]
) -> Iterator[Any]:
    """Writes arrays to a file of their own, and gives the initializers that refer to it."""
    for label, array in arrays.items():
        file.write(bytes(-file.tell() % PAGE))
        header = _header(label, array)
        header.data_location = TensorProto.EXTERNAL
        place = {"location": name, "offset": file.tell(), "length": array.nbytes}
        for key, value in place.items():
            header.external_data.add(key=key, value=str(value))
        file.write(_bytes_of(array))
        yield header


def _write(file: BinaryIO, model: Any, arrays: Mapping[str, Array]) -> None:
    """Writes a message of the model, with the arrays at the end of its graph."""
    skeleton = model.graph.SerializeToString()
    model.ClearField("graph")
    heads = []
    for name, array in arrays.items():
        head = _header(name, array).SerializeToString() + tag(RAW_DATA, array.nbytes)
        heads.append(tag(INITIALIZER, len(head) + array.nbytes) + head)
    size = len(skeleton) + sum(map(len, heads)) + sum(a.nbytes for a in arrays.values())
    file.write(model.SerializeToString() + tag(GRAPH, size) + skeleton)
    for head, array in zip(heads, arrays.values(), strict=True):
        file.write(head)
        file.write(_bytes_of(array))


def _bytes_of(array: Array) -> Any:
    """The memory of an array, in the order of bytes of ONNX."""
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return np.ravel(little).view(np.uint8).data
