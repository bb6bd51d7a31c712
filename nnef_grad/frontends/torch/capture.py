"""A module to the program that PyTorch exports of it, before anything is decomposed, with a
mark wherever PyTorch lets no gradient through.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from pathlib import Path
from textwrap import shorten
from traceback import extract_stack, walk_tb
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from nnef_grad.base.errors import NnefGradError, UnsupportedError, UsageError
from nnef_grad.frontends.torch.nodes import is_network
from nnef_grad.frontends.torch.own_backward import watched
from nnef_grad.frontends.torch.randomness import without_draws

# The longest message of torch; some contain tensors.
_LONGEST = 400


def capture(
    module: nn.Module,
    given: Sequence[Any] | Mapping[str, Any],
    dynamic_shapes: Any,
    *,
    allow_own_backward: bool,
) -> tuple[Any, list[str]]:
    """The program of a module, as `torch.export` gives it, and warnings."""
    args, kwargs = _arguments(module, given)
    _refuse_hooks(module)
    seen = _Seen()
    try:
        with _exporting(module, seen, allow_own_backward):
            program = torch.export.export(
                module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
    except NnefGradError:
        raise
    except Exception as error:
        # Whatever torch raises, from its own code or from the module's.
        raise UnsupportedError(_message(error, seen)) from error
    paths = {part: path for path, part in module.named_modules()}
    for part, name in seen.states:
        path = f"{paths.get(part, '')}.{name}".lstrip(".")
        if path in program.constants:
            # The program has the first one for good.
            message = f"forward reads and replaces the tensor in the attribute '{path}'"
            raise UnsupportedError(f"{message}: make it a buffer, by register_buffer")
    named = ", ".join(map(repr, sorted({*seen.own})))
    what = f"the forward computation of {named} is differentiated, not its backward function"
    return program, [what] if seen.own else []


@dataclass
class _Seen:
    """Events during the export of a module.

    Attributes:
        own: the names of functions with a backward function of their own.
        derivatives: the lines where derivatives are taken.
        states: modules, and their attributes that were given other tensors.
    """

    own: list[str] = field(default_factory=list)
    derivatives: list[str] = field(default_factory=list)
    states: list[tuple[nn.Module, str]] = field(default_factory=list)


# What to write instead, by words of torch's message.
_ADVICE = {
    "data-dependent": "Python needs the values of tensors: decide by torch.where or"
    " torch.cond, and give an index an axis, as in x[i[None]]",
    ".numpy()": "the values of tensors leave PyTorch: compute with its functions",
}


def _message(error: Exception, seen: _Seen) -> str:
    """Why a module cannot be exported, and what to write."""
    why, place = reason(error), _place(error)
    if seen.derivatives:
        message = f"torch cannot export a derivative inside the module, at {seen.derivatives[0]}"
        return f"{message}: write it out, or differentiate the graph; {why}"
    advice = next((text for words, text in _ADVICE.items() if words in why), None)
    what = f"torch cannot export the module: {advice or why}{place}"
    return f"{what}; {why}" if advice else what


class _Watched:
    """A node of autograd, to which no hooks can be added."""

    def __init__(self, node: Any, refuse: Callable[..., Any]) -> None:
        self._node = node
        self.register_hook = self.register_prehook = refuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _if_known(leaf: Any) -> Any:
    """A result, unless torch.export does not know it, such as a cache."""
    is_known = isinstance(leaf, (torch.Tensor, int, float, str, torch.SymInt))
    return leaf if is_known else None


def plain(module: nn.Module) -> nn.Module:
    """The module inside of wrappers that compile it or spread it over devices."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while (
        isinstance(module, wrappers) or getattr(module, "_orig_mod", None) is not None
    ):
        name = "module" if isinstance(module, wrappers) else "_orig_mod"
        module = getattr(module, name)
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            what = f"'{name}' is a ScriptModule" if name else "this is a ScriptModule"
            raise UsageError(f"{what}: pass the module that it was made from")
    tensors = [*module.named_parameters(), *module.named_buffers()]
    lazy = ", ".join(repr(name) for name, x in tensors if nn.parameter.is_lazy(x))
    if lazy:
        message = f"the parameters {lazy} have no shape yet: call the module once"
        raise UsageError(message)
    return module


def _arguments(
    module: nn.Module, given: Sequence[Any] | Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `forward`, by position and by name."""
    if isinstance(given, torch.Tensor):
        given = (given,)
    args = () if isinstance(given, Mapping) else tuple(given)
    kwargs = dict(given) if isinstance(given, Mapping) else {}
    try:
        signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        message = f"the example inputs do not fit 'forward': {error}"
        raise UsageError(message) from None
    leaves = tree_leaves((args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise UsageError("there is no tensor among the example inputs")
    seen: set[int] = set()

    def own(leaf: torch.Tensor) -> torch.Tensor:
        """A tensor that is given twice as two, which torch.export takes for one."""
        is_again = id(leaf) in seen
        seen.add(id(leaf))
        return leaf.detach().clone() if is_again else leaf

    args, kwargs = tree_map_only(torch.Tensor, own, (args, kwargs))
    return args, kwargs


def _refuse_hooks(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            what = f"module '{name}'" if name else "the module"
            message = f"{what} has a hook that changes its gradients"
            raise UnsupportedError(f"{message}: remove the hook")
    for name, tensor in module.named_parameters():
        if tensor._backward_hooks:
            message = f"parameter '{name}' has a hook that changes its gradient"
            raise UnsupportedError(f"{message}: remove the hook")


# ---- What torch.export does not see ----


@contextmanager
def _exporting(
    module: nn.Module, seen: _Seen, allow_own_backward: bool
) -> Iterator[None]:
    """Makes what torch.export would pass over be seen while a module is exported."""
    set_attribute = nn.Module.__setattr__

    def assigned(part: Any, name: str, value: Any) -> None:
        before = vars(part).get(name)
        if isinstance(before, torch.Tensor) and value is not before:
            seen.states.append((part, name))
        set_attribute(part, name, value)

    derivative = torch.autograd.grad

    def slopes(*args: Any, create_graph: bool = False, **kwargs: Any) -> Any:
        seen.derivatives.append(_caller())
        gradients = derivative(*args, create_graph=create_graph, **kwargs)
        if create_graph:
            return gradients
        return tree_map_only(torch.Tensor, torch.Tensor.detach, gradients)

    forward = module.forward

    @wraps(forward)
    def plain_results(*args: Any, **kwargs: Any) -> Any:
        with without_draws(module):
            return tree_map(_if_known, forward(*args, **kwargs))

    patches = [
        *_refusals(),
        *watched(seen.own, _caller, allow_own_backward),
        (module, "forward", plain_results),
        (torch.autograd, "grad", slopes),
        (nn.Module, "__setattr__", assigned),
        (nn.modules.transformer, "_detect_is_causal_mask", _is_causal),
        (torch.inference_mode, "__enter__", _disable_gradients),
        (torch.inference_mode, "__exit__", _restore_gradients),
    ]
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        for owner, name, replacement in patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield


def _refusals() -> list[tuple[Any, str, Any]]:
    """The functions of torch that register hooks or replace data, which refuse it."""
    saving = torch.autograd.graph.saved_tensors_hooks
    enter, node_of = saving.__enter__, torch.Tensor.grad_fn.__get__

    def hooked(*_: Any, **__: Any) -> Any:
        message = f"a hook that changes gradients is registered at {_caller()}"
        raise UnsupportedError(f"{message}: compute without it")

    def replaced(*_: Any) -> None:
        message = f"the data of a tensor or parameter are replaced at {_caller()}"
        raise UnsupportedError(f"{message}: make a new tensor")

    def entered(hooks: Any) -> Any:
        # Torch's own, which inherit from it, change nothing.
        return hooked() if type(hooks) is saving else enter(hooks)

    def watched(x: Any) -> Any:
        node = node_of(x)
        # Inputs have no gradients while a module is exported, and will have some.
        return None if isinstance(node, nn.Parameter) else _Watched(node, hooked)

    return [
        (torch.autograd.graph, "register_multi_grad_hook", hooked),
        (saving, "__enter__", entered),
        (torch.Tensor, "grad_fn", property(watched)),
        (torch.Tensor, "register_hook", hooked),
        (torch.Tensor, "register_post_accumulate_grad_hook", hooked),
        (torch.Tensor, "data", property(lambda x: x.detach(), replaced)),
    ]


@contextmanager
def silence() -> Iterator[None]:
    """No warnings of torch about itself, and no logs of errors that it raises."""
    loggers = logging.root.manager.loggerDict.items()
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        for handler in [
            handler
            for name, log in loggers
            if "torch" in name and isinstance(log, logging.Logger)
            for handler in log.handlers
        ]:
            stack.enter_context(patch.object(handler, "filter", lambda _: False))
        yield


def _is_causal(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
    """The answer of the caller: it depends on values, and the mask has the same effect."""
    return bool(is_causal)


def _disable_gradients(mode: Any) -> None:
    mode.outer = torch.is_grad_enabled()
    torch.set_grad_enabled(not mode.mode and mode.outer)


def _restore_gradients(mode: Any, *_: Any) -> None:
    torch.set_grad_enabled(mode.outer)


def _caller() -> str:
    """The line of the network that runs now."""
    frames = (f for f in reversed(extract_stack()) if is_network(f.filename))
    frame = next(frames, None)
    return "an unknown line" if frame is None else f"{frame.filename}:{frame.lineno}"


def _place(error: Exception) -> str:
    """The line of the network that an exception comes from."""
    frames = [(f.f_code.co_filename, n) for f, n in walk_tb(error.__traceback__)]
    own = [frame for frame in frames if is_network(frame[0])]
    # The first frames are the caller's: the last one is the line of the network.
    return f"; at {own[-1][0]}:{own[-1][1]}" if own else ""


# A frame of this package in a traceback, and its line of code.
_OWN_FRAMES = re.compile(
    rf'^ *File "{re.escape(str(Path(__file__).parents[2]))}.*\n.*\n', re.MULTILINE
)


def reason(error: Exception) -> str:
    """The message of an exception, on one line, without frames of this package."""
    text = _OWN_FRAMES.sub("", str(error))
    lines = (line.strip() for line in text.splitlines())
    kept = [x for x in lines if x and not re.match("For (more|extended)", x)]
    message = "; ".join(kept) or type(error).__name__
    return shorten(message, _LONGEST, placeholder=" ...")
