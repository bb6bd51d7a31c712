"""What the expressions in the table of transforms call. nnef_tools gives them its converter
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nnef_tools import model as tools


def _reduced(converter: Any, axes: Any, inputs: Any, keeps_all: bool) -> list[int]:
    """The axes of a reduction: an attribute, in later versions an operand, or all."""
    rank = inputs[0].rank
    if axes is None and _given(converter, inputs, 1):
        axes = converter.as_const(inputs[1])
    if not axes and not keeps_all:
        axes = range(rank)
    return [axis % rank for axis in axes or ()]


def _items(converter: Any, inputs: Any, place: int, otherwise: Any) -> Any:
    """An operand that is a list of numbers, or what stands for it if it is missing."""
    is_given = _given(converter, inputs, place)
    return converter.as_const(inputs[place]) if is_given else otherwise


def _bound(converter: Any, inputs: Any, place: int, otherwise: Any) -> Any:
    """An operand that is a number, or what stands for it if it is missing."""
    if _given(converter, inputs, place):
        return inputs[place]
    if otherwise is None:
        return None
    return converter.as_tensor(float(otherwise), np.float32, inline=True)


def _counted_from_zero(converter: Any, indices: Any, extent: int) -> Any:
    """Indices from zero on. In ONNX, negative ones count from the end."""
    if not converter._is_constant(converter._tensor_map[indices]):
        return indices
    array = np.asarray(converter.as_const(indices), np.int64).reshape(indices.shape)
    if not (array < 0).any():
        return indices
    return converter.as_tensor(
        np.where(array < 0, array + extent, array), np.int64, inline=array.ndim == 0
    )


def _of_rank(converter: Any, tensor: Any, rank: int) -> Any:
    """A tensor with axes of extent 1 in front."""
    return converter.unsqueeze_input(tensor, axes=list(range(rank - tensor.rank)))


def _paddings(
    converter: Any, pads: Sequence[int], axes: Any, rank: int
) -> list[tuple[int, int]]:
    """Pads by axis: in ONNX, first the ones before all axes, then the ones after."""
    places = [axis % rank for axis in axes] if axes else range(rank)
    given = dict(zip(places, _sides(pads), strict=True))
    return [given.get(axis, (0, 0)) for axis in range(rank)]


def _sides(pads: Sequence[int]) -> list[tuple[int, int]]:
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


def _given(converter: Any, tensors: Any, place: int) -> bool:
    """Whether an optional operand, or result, is there."""
    return len(tensors) > place and bool(tensors[place].name)


def _or_zeros(converter: Any, inputs: Any, place: int, *shape: int) -> Any:
    if _given(converter, inputs, place):
        return inputs[place]
    return converter.as_tensor(np.zeros(shape, np.float32), np.float32)


def _or_unused(converter: Any, outputs: Any, place: int, *shape: int) -> Any:
    if _given(converter, outputs, place):
        return outputs[place]
    return converter.new_tensor(shape, np.float32)


def _slices(
    converter: Any,
    shape: Sequence[int],
    axes: Sequence[int],
    *bounds: Sequence[int],
) -> list[tuple[int, int]]:
    """Where slices begin and end: ONNX lets both lie outside."""
    found = [
        slice(*each).indices(shape[axis])
        for axis, *each in zip(axes, *bounds, strict=True)
    ]
    # What goes down to the first element ends before it, where no position is.
    return [(begin, end if end >= 0 else -_FAR) for begin, end, _ in found]


def _in_scalars(converter: Any, tensor: Any) -> Any:
    """A constant of integers as one of scalars: ONNX has powers of mixed types."""
    is_known = converter._is_constant(converter._tensor_map[tensor])
    if not is_known or np.dtype(tensor.dtype).kind not in "iu":
        return tensor
    array = np.asarray(converter.as_const(tensor), np.float32).reshape(tensor.shape)
    return converter.as_tensor(array, np.float32, inline=array.ndim == 0)


def _window_paddings(
    converter: Any,
    inputs: Any,
    outputs: Any,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    pads: Sequence[int],
    is_apart: bool,
) -> list[tuple[int, int]]:
    """The padding of a pool whose size is rounded up, which takes more of it at the
    end; only that, where the pads themselves stand apart.
    """
    extents = zip(inputs[0].shape[2:], outputs[0].shape[2:], *window, strict=True)
    found = [(0, 0), (0, 0)]
    columns = zip(_sides(pads), extents, strict=True)
    for (before, after), (n, made, size, stride, step) in columns:
        # A last window that begins after the end is none.
        made -= (made - 1) * stride >= n + before
        reach = (made - 1) * stride + (size - 1) * step + 1
        more = max(0, reach - n - before - after)
        found.append((0, more) if is_apart else (before, after + more))
    return found


def _same_paddings(
    converter: Any,
    inputs: Any,
    outputs: Any,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    is_lower: bool,
) -> list[tuple[int, int]]:
    """The padding that makes a size that only the strides divide; what is odd of it
    goes to the end, or to the beginning.
    """
    extents = zip(inputs[0].shape[2:], outputs[0].shape[2:], *window, strict=True)
    return [
        _halves(max(0, (made - 1) * stride + (size - 1) * step + 1 - n), is_lower)
        for n, made, size, stride, step in extents
    ]


def _transposed_paddings(
    converter: Any,
    inputs: Any,
    outputs: Any,
    window: tuple[Sequence[int], Sequence[int], Sequence[int]],
    pads: Sequence[int],
    auto_pad: str,
    is_given: bool,
) -> list[tuple[int, int]]:
    """The padding of a transposed convolution that leaves what it is to make: that says
    what there is of output padding too.
    """
    extents = zip(inputs[0].shape[2:], outputs[0].shape[2:], *window, strict=True)
    totals = [
        (n - 1) * stride + (size - 1) * step + 1 - made
        for n, made, size, stride, step in extents
    ]
    if is_given or auto_pad.startswith("SAME"):
        return [_halves(total, auto_pad != "SAME_UPPER") for total in totals]
    sides = zip(_sides(pads), totals, strict=True)
    return [(before, total - before) for (before, _), total in sides]


def _halves(total: int, is_lower: bool) -> tuple[int, int]:
    less, more = total // 2, total - total // 2
    return (more, less) if is_lower else (less, more)


def _zeros_around(converter: Any, tensor: Any, pads: Sequence[int]) -> Any:
    """A tensor between the zeros that its padding stands for."""
    padding = [(0, 0), (0, 0), *_sides(pads)]
    shape = tuple(n + sum(pair) for n, pair in zip(tensor.shape, padding, strict=True))
    padded = tools.Tensor(tensor.graph, dtype=tensor.dtype, shape=shape)
    attributes = {"padding": padding, "border": "constant", "value": 0.0}
    tools.Operation(
        tensor.graph, type="pad", inputs=tensor, outputs=padded, attribs=attributes
    )
    return padded


def _repeats_nearest(
    converter: Any, inputs: Any, outputs: Any, mode: str, nearest: str
) -> bool:
    """Whether a resize takes the elements that NNEF takes: each so many times, or the
    first of each block.
    """
    return all(
        _nearest(n, made, mode, nearest)
        == [i // (made // n) if made >= n else i * (n // made) for i in range(made)]
        for n, made in zip(inputs[0].shape, outputs[0].shape, strict=True)
    )


def _nearest(n: int, made: int, mode: str, nearest: str) -> list[int]:
    places = np.arange(made) * (n / made)
    if mode.endswith("half_pixel"):
        places += 0.5 * n / made - 0.5
    if mode == "align_corners":
        places = np.arange(made) * ((n - 1) / max(made - 1, 1))
    rounded = {
        "floor": np.floor(places),
        "ceil": np.ceil(places),
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
    }
    found: list[int] = np.clip(rounded[nearest], 0, n - 1).astype(int).tolist()
    return found


# Farther than any position.
_FAR = 2**31 - 1


FUNCTIONS = {
    "reduced": _reduced,
    "items": _items,
    "bound": _bound,
    "counted_from_zero": _counted_from_zero,
    "of_rank": _of_rank,
    "paddings": _paddings,
    "window_paddings": _window_paddings,
    "zeros_around": _zeros_around,
    "repeats_nearest": _repeats_nearest,
    "same_paddings": _same_paddings,
    "transposed_paddings": _transposed_paddings,
    "slices": _slices,
    "given": _given,
    "or_zeros": _or_zeros,
    "or_unused": _or_unused,
    "in_scalars": _in_scalars,
}
