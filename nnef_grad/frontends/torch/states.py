"""The tensors that a module holds, before it runs and afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from nnef_grad.frontends.torch.internals import is_fake


@contextmanager
def without_new_attributes(module: nn.Module) -> Iterator[None]:
    """Removes what `forward` has put into new attributes and buffers, and into the place of
    others: a fake tensor is of no use there, and cannot be copied.
    """
    parts = [*module.modules()]
    held = [vars(part) for part in parts] + [part._buffers for part in parts]
    before = [{**values} for values in held]
    try:
        yield
    finally:
        for values, old in zip(held, before, strict=True):
            for name in values.keys() - old.keys():
                del values[name]
            values.update((n, x) for n, x in old.items() if is_fake(values.get(n)))


@contextmanager
def empty_buffers_last(module: nn.Module) -> Iterator[None]:
    """Puts the buffers that are None behind the others: torch.export counts these alone, and
    looks for them by their places among all.
    """
    held = [part._buffers for part in module.modules()]
    before = [[*buffers] for buffers in held]
    empty = ([n for n, x in buffers.items() if x is None] for buffers in held)
    _put_last(held, empty)
    try:
        yield
    finally:
        _put_last(held, before)


def _put_last(held: Sequence[dict[str, Any]], names: Iterable[list[str]]) -> None:
    """Puts buffers, by their names, behind the others, in this order."""
    for buffers, last in zip(held, names, strict=True):
        for name in last:
            if name in buffers:
                buffers[name] = buffers.pop(name)


def put_back(module: nn.Module, before: Mapping[str, Any]) -> Iterator[str]:
    """Puts back buffers in whose place are tensors of other shapes, which none can hold: their
    names.
    """
    for path, part in module.named_modules():
        for name, x in part._buffers.items():
            own = f"{path}.{name}".lstrip(".")
            old = before.get(own)
            if old is not None and x is not None and x.shape != old.shape:
                setattr(part, name, old.clone())
                yield own


def registered(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The parameters and buffers, also those with several names, by these."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def states(module: nn.Module) -> Iterator[tuple[tuple[nn.Module, str], Any]]:
    """The tensors in attributes, but for parameters and buffers: whose they are, and what."""
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                yield (part, name), value


# What torch.export has of a module is fake.
REAL = (torch.Tensor, nn.Parameter)


def real_tensors(values: Iterable[Any]) -> Iterator[Any]:
    """The real tensors among values, and in lists of them: few calls have any."""
    for x in values:
        if type(x) in REAL:
            yield x
        elif isinstance(x, (list, tuple)):
            yield from real_tensors(x)
