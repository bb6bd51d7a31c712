"""Functions in place of those that torch has in eager mode, and torch.export does not take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from inspect import signature
from itertools import repeat
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from nnef_grad.frontends.torch.internals import destination, is_fake, pytree


def where(condition: Any, *values: Any) -> Any:
    """`torch.where`: a condition may be of bytes, which torch.export does not take."""
    is_byte = condition.dtype is torch.uint8
    return torch.where(condition.bool() if is_byte else condition, *values)


_DROPOUTS: tuple[Callable[..., Any], ...] = (
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


def to(original: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to`, whose result is its operand where it is of that type already: what holds
    it then holds no other tensor.
    """
    if is_fake(x) or args[2:] or kwargs.get("copy"):
        return original(x, *args, **kwargs)
    device, dtype = destination(*args, **kwargs)
    is_there = device is None or torch.device(device).type == x.device.type
    return x if is_there and dtype in (None, x.dtype) else original(x, *args, **kwargs)


def tensor(
    original: Callable[..., Any],
    stop: Callable[[Any], Any],
    data: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """`torch.tensor` and `torch.as_tensor`, also of lists with numbers of tensors in them,
    through which no gradient flows.
    """
    leaves = pytree.tree_leaves(data)
    is_list = isinstance(data, (list, tuple))
    if args or not (is_list and any(map(is_fake, leaves))):
        return original(data, *args, **kwargs)
    dtype = kwargs.get("dtype") or reduce(torch.promote_types, map(_type_of, leaves))
    return _stacked(data, dtype, stop)


def _stacked(data: Any, dtype: torch.dtype, stop: Callable[[Any], Any]) -> torch.Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(x, dtype, stop) for x in data])
    if isinstance(data, torch.Tensor):
        number: torch.Tensor = stop(data).reshape(()).to(dtype)
        return number
    return torch.scalar_tensor(data, dtype=dtype)


def _type_of(x: Any) -> torch.dtype:
    """The type of a number in a list."""
    if isinstance(x, torch.Tensor):
        return x.dtype
    if isinstance(x, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    return torch.int64 if isinstance(x, torch.SymInt) else torch.as_tensor(x).dtype


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


def disable_gradients(_: Any, mode: Any) -> None:
    """The beginning of `torch.inference_mode`."""
    mode.outer = torch.is_grad_enabled()
    torch.set_grad_enabled(not mode.mode and mode.outer)


def restore_gradients(_: Any, mode: Any, *__: Any) -> None:
    """The end of `torch.inference_mode`."""
    torch.set_grad_enabled(mode.outer)


def is_causal(_: Any, mask: Any, is_causal: Any = None, size: Any = None) -> bool:
    """The answer of the caller: it depends on values, and the mask has the same effect."""
    return bool(is_causal)


_OF_LISTS: tuple[Callable[..., Any], ...] = (torch.tensor, torch.as_tensor)

# What is called in the place of functions of tensors.
REPLACED: dict[Any, Callable[..., Any]] = {
    torch.where: where,
    torch.Tensor.where: lambda x, condition, y: where(condition, x, y),
    torch.Tensor.to: partial(to, torch.Tensor.to),
    **{f: partial(dropout, f) for f in _DROPOUTS},
    **{f: partial(tensor, f, torch.Tensor.detach) for f in _OF_LISTS},
}
# What takes the place of some of these where nothing stops gradients.
UNSTOPPED: dict[Any, Callable[..., Any]] = {
    REPLACED[f]: partial(tensor, f, lambda x: x) for f in _OF_LISTS
}
