"""Uses of torch beyond the promises of its documentation. No other module here names
it, so that a release that moves a piece takes away what needs this piece, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cache
from importlib import import_module
from inspect import getattr_static
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn

from nnef_grad.base.errors import UnsupportedError

NAME = f"torch {torch.__version__}"


def _module(name: str) -> Any:
    """A module of torch that all else stands on, or `UnsupportedError`."""
    try:
        return import_module(name)
    except ImportError:
        advice = "use an older one, and please report this"
        raise UnsupportedError(f"{NAME} has no module '{name}': {advice}") from None


# Nested arguments and results, which torch.export describes with it.
pytree = _module("torch.utils._pytree")


# What prints the program that it has traced, where it cannot export a module.
EXPORT = _module("torch.export._trace")


def serialization() -> Any:
    """The function that makes a program of the document in a file of torch.export.save."""
    return _module("torch._export.serde.serialize")


def functions_of_extents() -> list[str]:
    """The functions that torch has beside those of sympy, in the extents of a program."""
    return list(_module("torch.utils._sympy.functions").__all__)


# What a program calls: an operation of a library, with the types of its arguments.
Operator: Any = type(torch.ops.aten.add.Tensor)


def find_operator(path: str) -> Any:
    """An operation of torch.ops; one that no node calls, if there is none."""
    try:
        return attrgetter(path)(torch.ops)
    except AttributeError:
        return f"{NAME} has no {path}"


def schema(target: Any) -> Any:
    """The arguments and results of an operation; None for what is none."""
    return getattr(target, "_schema", None)


def with_copies(program: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """A program that has copies of some of its tensors."""
    made = copy(program)
    for place in ("_state_dict", "_constants"):
        held = getattr(program, place)
        copies = {
            name: type(x)(x.detach().clone()).requires_grad_(x.requires_grad)
            for name, x in tensors.items()
            if name in held
        }
        setattr(made, place, {**held, **copies})
    return made


# What sees each operation, with the types of its arguments.
_DISPATCH = _module("torch.utils._python_dispatch")
DispatchMode: Any = _DISPATCH.TorchDispatchMode


def is_fake(x: Any) -> bool:
    """Whether a tensor has no numbers: torch.export traces it."""
    return hasattr(x, "fake_mode")


def bounds_of(asked: torch.SymBool, symbol: Any) -> tuple[float, float]:
    """The least and the largest that a symbol in a relation of numbers can be, as far as torch
    knows: sizes are not negative, and other integers may be.
    """
    found = asked.node.shape_env.bound_sympy(symbol)
    least = float(found.lower) if found.lower.is_Integer else -inf
    return least, float(found.upper) if found.upper.is_Integer else inf


def promise(relation: torch.SymBool) -> None:
    """Tells torch that a relation of numbers holds that depend on data."""
    torch._check(relation)


def is_transformed(x: Any) -> bool:
    """Whether a tensor is inside of `vmap`, or of a derivative of torch.func."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


def without_modes() -> Any:
    """A context in which operations on real tensors are not traced."""
    return _DISPATCH._disable_current_modes()


# What `no_grad`, and all that is like it, calls.
SET_GRAD_ENABLED = getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled)


def destination(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The device and the type that `Module.to` is given; None for one that is left."""
    device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
    return device, dtype


def is_control(function: Any) -> bool:
    """Whether a function is a branch or a loop of torch: its derivative is that of its parts."""
    return bool(function.__module__.startswith("torch._higher_order_ops"))


def function_of_node(node: Any) -> Any:
    """The class of functions, with a backward function of its own, that a node is made of."""
    return type(node)._forward_cls


def hooks(owner: Any) -> bool:
    """Whether a module or tensor has hooks that change gradients."""
    names = ("_backward_hooks", "_backward_pre_hooks")
    return any(getattr(owner, name, None) for name in names)


def compiled(module: nn.Module) -> nn.Module | None:
    """The module that torch.compile has wrapped; None for another one."""
    return getattr(module, "_orig_mod", None)


# Functions of one number whose derivative at 0 is a choice, which releases made in different
# ways: that of an extremum of two equal numbers.
_AT_TIES: dict[str, Callable[[Any], Any]] = {
    "clamp to a number": lambda x: torch.clamp(x, max=0.0),
    "clamp to a tensor": lambda x: torch.clamp(x, max=torch.zeros(())),
    "fmax": lambda x: torch.fmax(x, torch.zeros(())),
}


@cache
def slope_at_tie(name: str) -> float:
    """The derivative that the installed torch chooses: 1 in older releases; in newer ones
    1/2, as of `torch.maximum`, or 0 where the other one is a number.
    """
    x = torch.zeros((), requires_grad=True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(_AT_TIES[name](x), x)
    return float(slope)


# ---- Pieces that are replaced ----


class Piece(NamedTuple):
    """A function of torch that is replaced while a module is exported.

    Attributes:
        owner: the module or class of torch that has it.
        name: its name there.
        replacement: makes another function of it, which takes the same arguments.
        without: what happens where a release has no such function; nothing, if it is new.
    """

    owner: str
    name: str
    replacement: Callable[[Any], Any]
    without: str


@contextmanager
def replaced(pieces: Sequence[Piece]) -> Iterator[list[str]]:
    """Replaces the pieces that there are, and yields warnings about the others."""
    with ExitStack() as stack:
        missing = [piece for piece in pieces if not _replace(piece, stack)]
        yield [
            f"{NAME} has no {p.owner}.{p.name}: {p.without}"
            for p in missing
            if p.without
        ]


def _replace(piece: Piece, stack: ExitStack) -> bool:
    """Replaces a piece until a stack is left, if there is such a function."""
    try:
        owner = attrgetter(piece.owner)(torch)
        # As it stands in its class: methods are bound when they are looked up.
        original = getattr_static(owner, piece.name)
    except AttributeError:
        return False
    if not (callable(original) or hasattr(original, "__get__")):
        return False
    stack.enter_context(patch.object(owner, piece.name, piece.replacement(original)))
    return True
