"""Operations on known values, which PyTorch itself computes while a program is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nnef_grad.frontends.torch.call import Call
from nnef_grad.frontends.torch.tensors import value_of
from nnef_grad.frontends.values import is_known, is_open


def computed(call: Call, known: Mapping[Any, Any]) -> Any:
    """The results of an operation whose arguments are all known; None for another one, for
    one that draws numbers or only reserves memory, and for one that gives no tensors.

    Args:
        known: the value of each node before it.
    """
    node = call.node
    given = [known.get(argument) for argument in node.all_input_nodes]
    fakes = call.fake if isinstance(call.fake, (list, tuple)) else [call.fake]
    if not (
        isinstance(node.target, torch._ops.OpOverload)
        and all(isinstance(fake, torch.Tensor) for fake in fakes)
        and all(is_known(value) and not _is_open(value) for value in given)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and "empty" not in node.target.__name__
    ):
        return None
    args, kwargs = torch.fx.node.map_arg(
        (node.args, node.kwargs), lambda argument: _tensor(argument, known[argument])
    )
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "cpu"}
    with torch.no_grad():
        results = node.target(*args, **kwargs)
    return pytree.tree_map_only(torch.Tensor, value_of, results)


def _is_open(value: Any) -> bool:
    return any(map(_is_open, value)) if isinstance(value, list) else is_open(value)


def _tensor(node: Any, value: Any) -> Any:
    """A known value with the data type that it has in PyTorch."""
    fake = node.meta.get("val")
    is_tensor = isinstance(fake, torch.Tensor)
    return torch.as_tensor(value, dtype=fake.dtype) if is_tensor else value
