"""Functions with a backward function of their own: refused, or read as they compute forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.checkpoint import CheckpointFunction

from nnef_grad.base.errors import UnsupportedError

_Patches = tuple[tuple[Any, str, Any], ...]


def watched(own: list[str], place: Callable[[], str], allows: bool) -> _Patches:
    """What to put in place while a module is exported, so that its functions are noticed.

    Args:
        own: gets the names of those with a backward function of their own.
        place: finds the line of the network that runs.
        allows: whether they are read; otherwise they are refused.
    """

    def noticing(apply: Callable[..., Any]) -> Any:
        def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if cls is CheckpointFunction:
                # What it computes again in the backward pass is what is computed here.
                function, _, *operands = args
                return function(*operands)
            if not allows:
                message = (
                    f"'{cls.__name__}' has its own backward function, at {place()}"
                )
                advice = (
                    "allow_own_backward=True differentiates its forward computation"
                )
                raise UnsupportedError(f"{message}: {advice}")
            own.append(cls.__name__)
            with _without_stops():
                return apply(cls, *args, **kwargs)

        return classmethod(applied)

    # The method of a class that is stored calls that of the base.
    function = torch.autograd.Function
    base = function.__base__
    return (
        (function, "apply", noticing(function.__dict__["apply"].__func__)),
        (base, "apply", noticing(lambda cls, *args: super(base, cls).apply(*args))),
    )


def _same(x: Any) -> Any:
    return torch.ops.aten.alias(x)


def _nothing(*_: Any) -> None:
    """Sets no mode."""


# PyTorch looks at no gradients inside of such a function: what stops them does nothing.
_STOPS: _Patches = (
    (torch, "detach", _same),
    (torch.Tensor, "detach", _same),
    (torch.Tensor, "detach_", lambda x: x),
    # no_grad and inference_mode call it.
    (torch.set_grad_enabled, "__init__", _nothing),
    *(
        (mode, name, _nothing)
        for mode in (torch.set_grad_enabled, torch.enable_grad)
        for name in ("__enter__", "__exit__")
    ),
)


@contextmanager
def _without_stops() -> Iterator[None]:
    with ExitStack() as stack:
        for stop in _STOPS:
            stack.enter_context(patch.object(*stop))
        yield
