"""Functions of torch that its ONNX exporter refuses or gets wrong in some settings, in
terms of others. The values and the derivatives are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from traceback import extract_stack
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from nnef_grad.errors import UnsupportedError

# What is called in the place of a function of torch. The result None means that its
# arguments are none of those that the exporter gets wrong.
_REPLACEMENTS: dict[Any, Callable[..., Any]] = {}


class Replacements(TorchFunctionMode):  # type: ignore[misc]
    """Replaces calls of functions while a module is traced."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The result of a call, by the replacement of its function if there is one."""
        replacement, named = _REPLACEMENTS.get(function), kwargs or {}
        result = None if replacement is None else replacement(*args, **named)
        return function(*args, **named) if result is None else result


def replaces(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the replacement of others."""

    def registered(replacement: Callable[..., Any]) -> Callable[..., Any]:
        _REPLACEMENTS.update(dict.fromkeys(functions, replacement))
        return replacement

    return registered


# ---- What the exporter leaves out ----


@replaces(Tensor.detach, Tensor.detach_, Tensor.data.__get__)
def _detach(input: Tensor) -> None:
    """NNEF has no operation without a derivative that returns its operand."""
    if input.requires_grad and torch.is_grad_enabled():
        message = f"NNEF cannot say that no gradient flows through a tensor, which is detached at {_caller()}"
        instead = "leave it out there, and name the tensor in differentiate(stop=...)"
        raise UnsupportedError(f"{message}: {instead}")


def _caller() -> str:
    """The line of the network that calls a replacement."""
    calls = (f for f in reversed(extract_stack()) if f.filename != __file__)
    call = next(calls)
    return f"{call.filename}:{call.lineno}"


# ---- Axes counted from the last one ----


@replaces(torch.permute, Tensor.permute)
def _permute(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """The exporter writes them into the file, where they are not valid."""
    given = axes if dims is None else (dims,)
    order = given[0] if isinstance(given[0], Sequence) else given
    return input.permute([axis % input.ndim for axis in order])


@replaces(torch.movedim, Tensor.movedim, torch.moveaxis, Tensor.moveaxis)
def _movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """As in `permute`."""
    sides = (
        [side] if isinstance(side, int) else side for side in (source, destination)
    )
    return input.movedim(*([axis % input.ndim for axis in side] for side in sides))


@replaces(Tensor.mT.__get__)
def _matrix_transpose(input: Tensor) -> Tensor:
    """The exporter does not have it."""
    return input.transpose(-2, -1)


# ---- Parts and windows ----


@replaces(torch.tensor_split, Tensor.tensor_split)
def _tensor_split(
    input: Tensor, places: Any = None, dim: int = 0, **named: Any
) -> tuple[Tensor, ...]:
    """The exporter makes a loop of it, and crashes on what reads the parts."""
    (given,) = named.values() if places is None else (places,)
    cuts = given.tolist() if isinstance(given, Tensor) else given
    parts = np.array_split(np.arange(int(input.shape[dim])), cuts)
    return tuple(input.split([len(part) for part in parts], dim))


@replaces(Tensor.unfold)
def _unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The exporter needs the shape, which it may have lost, and gets wrong an axis that
    is counted from the last one.
    """
    axis = dimension % input.ndim
    starts = range(0, int(input.shape[axis]) - size + 1, step)
    windows = [input.narrow(axis, start, size) for start in starts]
    # Contiguous, so that it may be viewed in every shape that the original may.
    return torch.stack(windows, axis).movedim(axis + 1, input.ndim).contiguous()


@replaces(torch.as_strided, Tensor.as_strided)
def _as_strided(
    input: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    """The exporter takes every operand for contiguous."""
    first = input.storage_offset()
    offset = first if storage_offset is None else storage_offset
    held = _places(input.shape, input.stride(), first)
    wanted = _places(size, stride, offset)
    order = np.full(1 + max(held.max(), wanted.max()), -1)
    order[held] = np.arange(held.size).reshape(held.shape)
    if (order[wanted] < 0).any():
        raise NotImplementedError("as_strided: elements that its operand does not have")
    return input.flatten()[torch.from_numpy(order[wanted])]


def _places(shape: Any, strides: Any, offset: int) -> Any:
    """The places of the elements of a tensor in memory."""
    steps = [
        np.arange(int(n)) * int(step) for n, step in zip(shape, strides, strict=True)
    ]
    return reduce(np.add.outer, steps, np.array(offset))


# ---- Repetitions ----


@replaces(torch.repeat_interleave, Tensor.repeat_interleave)
def _repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, **settings: Any
) -> Tensor | None:
    """For a negative axis, the exporter changes the constant in place that it shares with
    other operations: their axes are then others.
    """
    if dim is None:
        return None
    if isinstance(repeats, int):
        return _repeated(input, repeats, dim)
    return torch.repeat_interleave(input, repeats, dim % input.ndim, **settings)


def _repeated(x: Tensor, repeats: int, dim: Any) -> Tensor:
    axis = dim % x.ndim
    shape = [-1] * (x.ndim + 1)
    shape[axis + 1] = repeats
    return x.unsqueeze(axis + 1).expand(shape).flatten(axis, axis + 1)


@replaces(functional.scaled_dot_product_attention)
def _attention(
    query: Tensor, key: Tensor, value: Tensor, *args: Any, **settings: Any
) -> Tensor | None:
    """The exporter has no heads that share their keys."""
    if not settings.pop("enable_gqa", False):
        return None
    shared = int(query.shape[-3]) // int(key.shape[-3])
    key, value = (_repeated(x, shared, -3) for x in (key, value))
    return functional.scaled_dot_product_attention(query, key, value, *args, **settings)


# ---- Tensors without elements ----


@replaces(torch.cat, torch.concat, torch.concatenate)
def _cat(tensors: Any, *axis: int, **settings: Any) -> Tensor | None:
    """The exporter counts an extent of 0 as 1."""
    filled = [x for x in tensors if 0 not in x.shape]
    if not filled or len(filled) == len(tensors):
        return None
    return torch.cat(filled, *axis, **settings)


# ---- Pools of a given number of windows ----


def _windows(extent: int, count: int) -> list[slice]:
    """The windows of an adaptive pool, along an axis."""
    return [
        slice(extent * i // count, math.ceil(extent * (i + 1) / count))
        for i in range(count)
    ]


def _counts(x: Tensor, size: Any, rank: int) -> list[tuple[int, int]] | None:
    """The extent and the number of windows of each axis; None if the windows of all axes
    are alike, which the exporter can do.
    """
    sizes = [size] * rank if isinstance(size, int) else list(size)
    extents = [int(extent) for extent in x.shape[-rank:]]
    counts = [
        n if wanted is None else wanted
        for n, wanted in zip(extents, sizes, strict=True)
    ]
    pairs = list(zip(extents, counts, strict=True))
    return None if all(extent % count == 0 for extent, count in pairs) else pairs


def _averages(rank: int) -> Callable[..., Tensor | None]:
    """The average pool along the last axes: a product with a matrix along each."""

    def pool(input: Tensor, output_size: Any) -> Tensor | None:
        x, counts = input, _counts(input, output_size, rank)
        if counts is None:
            return None
        for axis, (extent, count) in zip(range(-rank, 0), counts, strict=True):
            weights = x.new_zeros(extent, count)
            for i, window in enumerate(_windows(extent, count)):
                weights[window, i] = 1 / (window.stop - window.start)
            x = (x.transpose(axis, -1) @ weights).transpose(axis, -1)
        return x

    return pool


def _maxima(rank: int) -> Callable[..., Tensor | None]:
    """The maximum pool along the last axes: a pool for each window."""
    one = getattr(functional, f"max_pool{rank}d")

    def pool(
        input: Tensor, output_size: Any, return_indices: bool = False
    ) -> Tensor | None:
        counts = _counts(input, output_size, rank)
        if counts is None or return_indices:
            return None
        places = product(*(_windows(*pair) for pair in counts))
        maxima = [_maximum(one, input, window) for window in places]
        return torch.cat(maxima, -1).unflatten(-1, [count for _, count in counts])

    return pool


def _maximum(pool: Any, x: Tensor, window: tuple[slice, ...]) -> Tensor:
    extents = [axis.stop - axis.start for axis in window]
    return pool(x[(..., *window)], extents).flatten(-len(window))


for _rank in (1, 2, 3):
    replaces(getattr(functional, f"adaptive_avg_pool{_rank}d"))(_averages(_rank))
    replaces(getattr(functional, f"adaptive_max_pool{_rank}d"))(_maxima(_rank))
