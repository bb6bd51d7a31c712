"""What torch takes in eager mode, and torch.export does not: other functions in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from itertools import repeat
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from nnef_grad.frontends.torch.internals import destination


def where(condition: Any, *values: Any) -> Any:
    """`torch.where`: a condition may be of bytes, which torch.export does not take."""
    is_byte = condition.dtype is torch.uint8
    return torch.where(condition.bool() if is_byte else condition, *values)


DROPOUTS: tuple[Callable[..., Any], ...] = (
    functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d,
    functional.alpha_dropout, functional.feature_alpha_dropout,
)  # fmt: skip


def dropout(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`torch.nn.functional.dropout`, whose result is its operand where nothing is dropped: what
    is written into one is in the other.
    """
    given = signature(original).bind(*args, **kwargs)
    given.apply_defaults()
    settings = given.arguments
    drops = settings["training"] and settings["p"] > 0
    return original(*args, **kwargs) if drops else settings["input"]


def for_each(function: Any) -> Callable[..., Any] | None:
    """What does for each tensor of a list what a function of lists does, if it is one."""
    name = getattr(function, "__name__", "")
    method = getattr(torch.Tensor, name.removeprefix("_foreach_"), None)
    if not name.startswith("_foreach_") or method is None:
        return None

    def each(first: Sequence[Any], *others: Any, **settings: Any) -> Any:
        lists = [x if isinstance(x, (list, tuple)) else repeat(x) for x in others]
        made = [method(*row, **settings) for row in zip(first, *lists)]  # noqa: B905
        return None if name.endswith("_") else tuple(made)

    return each


def moved(original: Any, module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """`Module.to`, which changes nothing where all is there, and of that type, already."""
    device, dtype = destination(*args, **kwargs)
    tensors = [*module.parameters(), *module.buffers()]
    is_there = all(device is None or x.device == device for x in tensors)
    floats = [x for x in tensors if x.is_floating_point()]
    is_same = is_there and all(dtype is None or x.dtype == dtype for x in floats)
    return module if is_same else original(module, *args, **kwargs)
