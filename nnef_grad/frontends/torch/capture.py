"""A module to the program that PyTorch exports of it, before anything is decomposed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from textwrap import shorten
from traceback import extract_tb
from typing import Any, NamedTuple

import torch
from torch import nn

from nnef_grad.base.errors import NnefGradError, UnsupportedError, UsageError
from nnef_grad.frontends.torch.choices import (
    Answers,
    Explorer,
    RaisedError,
    Ways,
    each_way,
)
from nnef_grad.frontends.torch.internals import compiled, hooks, pytree
from nnef_grad.frontends.torch.known import raises
from nnef_grad.frontends.torch.nodes import is_network
from nnef_grad.frontends.torch.states import empty_buffers_last
from nnef_grad.frontends.torch.symbols import is_of_data
from nnef_grad.frontends.torch.watching import PASSING_ON, Seen, watching

# The longest message of torch; some contain tensors.
_LONGEST = 400


class Captured(NamedTuple):
    """A program, as `torch.export` gives it.

    Attributes:
        warnings: what is otherwise in it than in the module.
        fixed: the buffers whose values it depends on.
        decides: whether it returns what Python has asked for besides its results.
    """

    program: Any
    warnings: Sequence[str] = ()
    fixed: Collection[str] = ()
    decides: bool = False


def capture(
    module: nn.Module,
    given: Sequence[Any] | Mapping[str, Any],
    dynamic_shapes: Any,
    allow_own_backward: bool,
    changed: Collection[str] = (),
) -> Ways[Captured]:
    """The program of a module. If it depends on values, those that depend on no input are
    computed, and there is a program for each way that others may decide for.

    Args:
        changed: the buffers whose values are not computed.
    """
    args, kwargs = _arguments(module, given)
    _refuse_hooks(module)

    def exported(answers: Answers | None = None) -> Captured:
        with (
            empty_buffers_last(module),
            watching(module, allow_own_backward, answers, changed) as seen,
            _from_the_left(dynamic_shapes),
        ):
            try:
                program = torch.export.export(
                    module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
                )
            except NnefGradError:
                raise
            except Exception as error:
                # Whatever torch raises, from its own code or from the module's.
                if _is_own(error):
                    raise
                kind = RaisedError if _is_raised(error) else UnsupportedError
                raise kind(_message(error)) from error
        fixed = seen.known.asked if seen.known else set()
        _refuse_states(module, seen, program)
        _notice_constants(module, seen, program)
        warnings = [*seen.unseen, *_told(seen, fixed)]
        return Captured(program, warnings, fixed, bool(seen.answers.conditions))

    try:
        captured = exported()
        depends = any(map(is_of_data, captured.program.range_constraints))
    except UnsupportedError as error:
        depends = error.__cause__ is not None
        if not depends:
            raise
    if not depends:
        return captured
    explorer = Explorer(exported)
    ways = explorer.explore()
    told = [*map(_not_checked, dict.fromkeys(explorer.passed))]
    return each_way(lambda x: x._replace(warnings=[*x.warnings, *told]), ways)


@contextmanager
def _from_the_left(dynamic_shapes: Any) -> Iterator[None]:
    """Lets `einsum` multiply from the left where shapes are dynamic: the package opt_einsum,
    if it is installed, chooses an order by extents, which have numbers then.
    """
    orders = torch.backends.opt_einsum
    before = orders.enabled
    if dynamic_shapes:
        orders.enabled = False
    try:
        yield
    finally:
        orders.enabled = before


def _told(seen: Seen, fixed: Collection[str]) -> Iterator[str]:
    """Warnings about what is otherwise in a program than in the module."""
    if seen.own:
        named = ", ".join(map(repr, seen.own))
        what = f"the forward computation of {named} is differentiated"
        yield f"{what}, not its backward function, as if nothing in it stopped gradients"
    for line in seen.strangers:
        what = f"parameters that are in no module are constants, at {line}"
        yield f"{what}: put their layers into nn.ModuleList or nn.ModuleDict"
    for name in seen.reshaped:
        what = f"the buffer '{name}' is given another shape"
        yield f"{what}: the graph begins with the present one each time"
    for line in dict.fromkeys(seen.passed):
        yield _not_checked(line)
    if fixed:
        named = ", ".join(map(repr, sorted(fixed)))
        yield f"the graph is for the present values of the buffers {named}"


def _not_checked(line: str) -> str:
    return f"what is checked at {line} is not checked in the graph"


def _refuse_states(module: nn.Module, seen: Seen, program: Any) -> None:
    """Refuses state that is read and replaced: the program has the first one for good."""
    paths = {part: path for path, part in module.named_modules()}
    for part, name in seen.states:
        path = f"{paths[part]}.{name}".lstrip(".")
        if path in program.constants:
            message = f"forward reads and replaces the tensor in the attribute '{path}'"
            raise UnsupportedError(f"{message}: make it a buffer, by register_buffer")


def _notice_constants(module: nn.Module, seen: Seen, program: Any) -> None:
    """Refuses parameters of the module that are constants of a branch, which has taken them
    from elsewhere; notices others.
    """
    names = {id(x): name for name, x in module.named_parameters()}
    parts = program.graph_module.modules()
    for x in {x for part in parts for x in part.parameters(recurse=False)}:
        if (name := names.get(id(x))) is not None:
            message = f"a branch takes the parameter '{name}' from a list or the like"
            raise UnsupportedError(f"{message}: take it from its module")
        if x.requires_grad and not seen.strangers:
            seen.strangers.append("a branch of torch.cond")


def plain(module: nn.Module) -> nn.Module:
    """The module inside of wrappers that compile it or spread it over devices."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while isinstance(module, wrappers) or compiled(module) is not None:
        module = module.module if isinstance(module, wrappers) else compiled(module)
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
        advice = (
            "" if args or kwargs else ": example_inputs=[...] has a tensor for each"
        )
        raise UsageError(message + advice) from None
    leaves = pytree.tree_leaves((args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise UsageError("there is no tensor among the example inputs")
    seen: set[int] = set()

    def own(leaf: torch.Tensor) -> torch.Tensor:
        """A tensor that is given twice as two, which torch.export takes for one."""
        is_again = id(leaf) in seen
        seen.add(id(leaf))
        return leaf.detach().clone() if is_again else leaf

    args, kwargs = pytree.tree_map_only(torch.Tensor, own, (args, kwargs))
    return args, kwargs


def _refuse_hooks(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if hooks(part):
            what = f"module '{name}'" if name else "the module"
            message = f"{what} has a hook, which could change its gradients"
            raise UnsupportedError(f"{message}: remove the hook")
    for name, tensor in module.named_parameters():
        if hooks(tensor):
            message = f"parameter '{name}' has a hook, which could change its gradient"
            raise UnsupportedError(f"{message}: remove the hook")


# ---- Why a module cannot be exported ----

# What to write instead, by words of torch's message.
_ADVICE = {
    "data-dependent": "Python needs the values of tensors: decide by torch.where or"
    " torch.cond, and give an index an axis, as in x[i[None]]",
    ".numpy()": "the values of tensors leave PyTorch: compute with its functions",
    "data is not allocated": "sparse tensors, and those made of numbers of others, are not"
    " traced: use dense ones, or torch.stack",
    "Cannot view a tensor": "what is written into is a view: write into a clone of it",
}


def _message(error: Exception) -> str:
    """Why a module cannot be exported, and what to write."""
    place = _place(error)
    advice, *more = explained(error)
    return "; ".join([f"torch cannot export the module: {advice}{place}", *more])


def _place(error: Exception) -> str:
    """The line of the network that an exception comes from."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_network(frame.filename)]
    # The first frames are the caller's: the last one is the line of the network.
    return f"; at {own[-1].filename}:{own[-1].lineno}" if own else ""


def _is_own(error: Exception) -> bool:
    """Whether an exception comes from this package, and not from what it passes on: whether
    the last line that is of either, before those of libraries, is of this package.
    """
    lasts = (
        is_own
        for frame in reversed(extract_tb(error.__traceback__))
        if (is_own := frame.filename.startswith(_OWN)) or is_network(frame.filename)
        if not (is_own and frame.name in PASSING_ON)
    )
    return next(lasts, False)


def _is_raised(error: Exception) -> bool:
    """Whether a statement of the network raises an exception, on account of no other one."""
    last = extract_tb(error.__traceback__)[-1]
    is_first = error.__cause__ is None and error.__context__ is None
    return is_first and is_network(last.filename) and raises(last.filename, last.lineno)


_OWN = str(Path(__file__).parents[2])
# A frame of this package in a traceback, and its line of code.
_OWN_FRAMES = re.compile(rf'^ *File "{re.escape(_OWN)}.*\n.*\n', re.MULTILINE)


def explained(error: Exception) -> list[str]:
    """What to write instead, if that is known, and the message of an exception."""
    why = reason(error)
    return [*[text for words, text in _ADVICE.items() if words in why][:1], why]


def reason(error: Exception) -> str:
    """The message of an exception, on one line, without frames of this package."""
    text = _OWN_FRAMES.sub("", str(error))
    lines = (line.strip() for line in text.splitlines())
    kept = [x for x in lines if x and not re.match("For (more|extended)", x)]
    message = "; ".join(kept) or type(error).__name__
    return shorten(message, _LONGEST, placeholder=" ...")
