"""The acts of a module during its export that its program does not show: what torch.export
passes over would be missing in a gradient, without a word.

What tensors are asked for is seen by a mode of torch, which holds for one thread. The few
functions that no mode sees are replaced, for all threads: in others they do what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from threading import RLock
from traceback import extract_stack
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.frontends.torch import derivatives, eager, functions
from nnef_grad.frontends.torch.choices import Answers
from nnef_grad.frontends.torch.counts import counting, one_hot
from nnef_grad.frontends.torch.internals import (
    EXPORT,
    SET_GRAD_ENABLED,
    Piece,
    function_of_node,
    is_control,
    is_fake,
    pytree,
    replaced,
)
from nnef_grad.frontends.torch.known import KnownValues, decided
from nnef_grad.frontends.torch.nodes import is_network
from nnef_grad.frontends.torch.randomness import generators, without_draws
from nnef_grad.frontends.torch.silence import print_of_others
from nnef_grad.frontends.torch.states import (
    REAL,
    put_back,
    real_tensors,
    registered,
    states,
    without_new_attributes,
)


@dataclass
class Seen:
    """The record of the export of a module.

    Attributes:
        allows_own_backward: whether functions may have a backward function of their own.
        states: modules, and their attributes that were given other tensors.
        reshaped: the buffers that were given other shapes.
        unseen: warnings about what cannot be seen with this release of torch.
        strangers: the lines where parameters are used that are in no module.
        stand_ins: what torch has in the place of parameters and buffers, by their identity.
        passed: the lines of checks that no values are known for, which are passed.
        known: the values that depend on no input, if they are computed.
        answers: what Python is told of others.
        entered: the functions with a backward function of their own that were called.
        functions: what others of these are made of, whose backward functions are read.
        data: what tensors had as their data, and these.
        depth: in how many of these the module is.
        records: whether torch keeps gradients there.
        stack: what is put back when the module has been exported.
    """

    allows_own_backward: bool
    states: list[tuple[nn.Module, str]] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    stand_ins: dict[int, Any] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    known: KnownValues | None = None
    answers: Answers = field(default_factory=Answers)
    entered: set[Any] = field(default_factory=set)
    functions: dict[Any, functions.Own] = field(default_factory=dict)
    data: list[tuple[Any, Any]] = field(default_factory=list)
    depth: int = 0
    records: bool = True
    stack: ExitStack = field(default_factory=ExitStack)

    @property
    def own(self) -> list[str]:
        """The names of functions whose forward computation is read, in order."""
        return sorted({f.__name__ for f in self.entered})


# The functions of this package that call what they stand for: an exception there is not theirs.
PASSING_ON = (
    "exported", "watched", "__torch_function__", "unstopped", "applied", "made", "chosen",
    "_slopes", "_equal", "where", "dropout", "each", "moved", "_enter_hooks", "_bool", "decided",
    "__torch_dispatch__", "_computed", "place", "length", "extreme", "one_hot",
)  # fmt: skip

# What is seen of the module that runs in this context, if one does.
_SEEN: ContextVar[Seen | None] = ContextVar("_SEEN", default=None)
# A function can be replaced by one at a time, and put back.
_ONE_AT_A_TIME = RLock()


@contextmanager
def watching(
    module: nn.Module,
    allows_own_backward: bool,
    answers: Answers | None = None,
    changed: Collection[str] = (),
) -> Iterator[Seen]:
    """Sees what a module does each time that it is called until the context is left.

    Args:
        answers: what Python is told where it asks for values that depend on inputs, which it
            gets besides the results; without, those that depend on none are not computed.
        changed: the buffers whose values are not computed.
    """
    seen = Seen(allows_own_backward)
    buffers, own = dict(module.named_buffers()), dict(registered(module))
    forward = module.forward
    drawn_from = generators()

    def computing() -> Any:
        if answers is None:
            return nullcontext()
        answers.begin()
        seen.answers = answers
        traced = dict(module.named_buffers())
        kept = {n: (traced[n], x) for n, x in buffers.items() if n not in changed}
        seen.known = KnownValues(kept)
        return seen.known

    @wraps(forward)
    def watched(*args: Any, **kwargs: Any) -> Any:
        token = _SEEN.set(seen)
        traced, before = dict(registered(module)), dict(states(module))
        stand_ins = {id(x): traced[name] for name, x in own.items()}
        seen.stand_ins = {}
        try:
            with _Mode(), without_draws(drawn_from), computing(), counting():
                # Known values are computed of the real ones.
                seen.stand_ins = stand_ins
                results = forward(*args, **kwargs)
        finally:
            _SEEN.reset(token)
        seen.reshaped = [*put_back(module, traced)]
        now = dict(states(module))
        seen.states += [key for key, x in before.items() if now.get(key) is not x]
        results = pytree.tree_map(_if_known, results)
        conditions = seen.answers.conditions
        return (results, [*conditions]) if conditions else results

    with (
        _ONE_AT_A_TIME,
        without_new_attributes(module),
        replaced(_PIECES) as seen.unseen,
        patch.object(module, "forward", watched),
        patch.object(EXPORT, "print", print_of_others(), create=True),
        torch.enable_grad(),
        seen.stack,
    ):
        yield seen


def _if_known(leaf: Any) -> Any:
    """A result, unless torch.export does not know it, such as a cache."""
    is_known = isinstance(leaf, (torch.Tensor, int, float, str, torch.SymInt))
    return leaf if is_known else None


def caller() -> str:
    """The line of the network that runs now."""
    frames = (f for f in reversed(extract_stack()) if is_network(f.filename))
    frame = next(frames, None)
    return "an unknown line" if frame is None else f"{frame.filename}:{frame.lineno}"


# ---- What a mode sees ----


class _Mode(TorchFunctionMode):  # type: ignore[misc]
    """Calls other functions in place of some that tensors are given to."""

    def __torch_function__(
        self, function: Any, _: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # What torch.cond compiles is no place to look a function up.
        if not torch.compiler.is_dynamo_compiling():
            function = _WATCHED.get(function) or eager.for_each(function) or function
            if seen := _SEEN.get():
                function = _STOPS.get(function, function) if seen.depth else function
                args, kwargs = _of_module(seen, args, kwargs or {})
                if known := seen.known:
                    if function in _AT_PLACES:
                        args = (args[0], known.place(args[1]), *args[2:])
                    result = function(*args, **kwargs)
                    return pytree.tree_map_only(torch.Tensor, known.constant, result)
        return function(*args, **(kwargs or {}))


_AT_PLACES = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


def _of_module(seen: Seen, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """What is given to a function, with what torch has in the place of the parameters and buffers
    of the module that it holds elsewhere, too, as in a list. Others that are trained torch
    does not know: they are noticed.
    """
    real = [*real_tensors((*args, *kwargs.values()))]
    if any(id(x) in seen.stand_ins for x in real):
        stand_in = seen.stand_ins.get
        args, kwargs = pytree.tree_map_only(
            REAL, lambda x: stand_in(id(x), x), (args, kwargs)
        )
    is_strange = any(x.requires_grad and id(x) not in seen.stand_ins for x in real)
    if is_strange and not seen.strangers:
        seen.strangers.append(caller())
    return args, kwargs


def _hooked(*_: Any, **__: Any) -> Any:
    message = f"a hook, which could change gradients, is registered at {caller()}"
    raise UnsupportedError(f"{message}: compute without it")


def _data(x: Any) -> Any:
    seen = _SEEN.get()
    data = _same(x) if seen is not None and seen.depth else torch.Tensor.detach(x)
    if seen is not None:
        seen.data.append((data, x))
    return data


def _replaced(x: Any, data: Any) -> None:
    # Those that it has, as of `x.data = x.data.to(device)`, are no others.
    if (seen := _SEEN.get()) and any(a is data and b is x for a, b in seen.data):
        return
    message = f"the data of a tensor or parameter are replaced at {caller()}"
    raise UnsupportedError(f"{message}: make a new tensor")


class _Node:
    """A node of autograd, to which no hooks can be added."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.register_hook = self.register_prehook = _hooked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _node_of(x: Any) -> Any:
    # Inputs have no gradients while a module is exported, and will have some.
    return None if isinstance(x, nn.Parameter) else _Node(x.grad_fn)


def _has_gradient(x: Any) -> bool:
    """Whether a tensor has gradients: inputs will have some, and what is computed of them."""
    is_active = is_fake(x) and x.is_floating_point() and torch.is_grad_enabled()
    return x.requires_grad or (is_active and not isinstance(x, nn.Parameter))


def _bool(original: Callable[..., bool], x: Any) -> bool:
    """Whether something is true: once known values are computed, a check is passed, and what
    depends on inputs is answered.
    """
    if (seen := _SEEN.get()) is None or seen.known is None:
        return original(x)
    return decided(partial(original, x), seen.passed, partial(seen.answers.answer, x))


def _equal(x: Any, y: Any) -> bool:
    """Whether tensors are equal, which is known of a tensor and itself."""
    is_alike = x.shape == y.shape
    return x is y or (is_alike and _bool(torch.Tensor.__bool__, (x == y).all()))


_WATCHED: dict[Any, Callable[..., Any]] = {
    torch.Tensor.__bool__: partial(_bool, torch.Tensor.__bool__),
    torch.Tensor.register_hook: _hooked,
    torch.Tensor.register_post_accumulate_grad_hook: _hooked,
    torch.Tensor.data.__get__: _data,
    torch.Tensor.data.__set__: _replaced,
    torch.Tensor.grad_fn.__get__: _node_of,
    torch.Tensor.requires_grad.__get__: _has_gradient,
    # Where a gradient is kept changes none.
    torch.Tensor.retain_grad: lambda x: None,
    torch.autograd.grad: derivatives.grad,
    torch.equal: _equal,
    nn.functional.one_hot: one_hot,
    **eager.REPLACED,
}


def _record(mode: bool) -> None:
    """Notes whether torch keeps gradients: if it may, after blocks in which it does or not."""
    seen = _SEEN.get()
    assert seen is not None
    seen.records = mode


def _same(x: Any) -> Any:
    return torch.ops.aten.alias(x)


# What stops gradients, and does nothing inside of a function that has its own.
_STOPS: dict[Any, Callable[..., Any]] = {
    torch.detach: _same,
    torch.Tensor.detach: _same,
    torch.Tensor.detach_: lambda x: x,
    SET_GRAD_ENABLED: _record,
    derivatives.grad: derivatives.grad_unstopped,
    **eager.UNSTOPPED,
}


# ---- What is replaced ----


def _while_watching(
    other: Callable[..., Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Another function, given what it replaces, where a watched module runs."""

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            if _SEEN.get() is None:
                return original(*args, **kwargs)
            return other(original, *args, **kwargs)

        return chosen

    return replacement


def _made(original: Any) -> Any:
    """Makes the node of a function that has a backward function of its own: of it no program
    knows, and of how it was called, as by an `apply` that was stored before, no other piece.
    """

    def made(node: Any, *args: Any, **kwargs: Any) -> None:
        original(node, *args, **kwargs)
        if (seen := _SEEN.get()) is not None:
            _notice(seen, function_of_node(node))

    return made


def _applied(original: Any) -> Any:
    """`Function.apply`: inside of transforms such as vmap, torch makes no node, and fails. A
    checkpoint is what it runs, which is run again, with gradients, in the backward pass.
    """

    def applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if (seen := _SEEN.get()) is not None:
            if cls is CheckpointFunction:
                function, _, *operands = args
                return function(*operands)
            if not (seen.allows_own_backward or is_control(cls)):
                own = seen.functions.get(cls) or functions.own_of(cls)
                return _called(own, args, [*map(_is_active, args)])
            _notice(seen, cls)
        return original.__get__(None, cls)(*args, **kwargs)

    return classmethod(applied)


def _is_active(x: Any) -> bool:
    """Whether an argument is a tensor that has gradients."""
    is_one = isinstance(x, torch.Tensor) and x.is_floating_point()
    return is_one and _has_gradient(x)


def _notice(seen: Seen, function: Any) -> None:
    """Reads the backward function that a function has, or its forward computation."""
    if is_control(function):
        return
    if not seen.allows_own_backward:
        _replace(seen, function)
    elif function not in seen.entered:
        seen.entered.add(function)
        replacement = staticmethod(_without_stops(function.forward))
        seen.stack.enter_context(patch.object(function, "forward", replacement))


def _replace(seen: Seen, function: Any) -> None:
    """Replaces what a function is made of, which torch calls: its `apply` was stored before."""
    if function in seen.functions:
        return
    own = seen.functions[function] = functions.own_of(function)
    for name, part in functions.stand_ins(own, _called).items():
        seen.stack.enter_context(patch.object(function, name, staticmethod(part)))


def _called(own: functions.Own, args: Any, active: Any) -> Any:
    """What a function computes, with the gradients of its backward function, if torch keeps any:
    not inside of another backward function.
    """
    seen = _SEEN.get()
    if seen is not None and seen.depth and not seen.records:
        return functions.forward(own, args)
    return functions.call(own, args, active, _linearly)


def _without_stops(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward computation whose gradients PyTorch does not look at: nothing stops them."""

    @wraps(forward)
    def unstopped(*args: Any, **kwargs: Any) -> Any:
        if (seen := _SEEN.get()) is None:
            return forward(*args, **kwargs)
        seen.depth += 1
        try:
            return forward(*args, **kwargs)
        finally:
            seen.depth -= 1

    return unstopped


def _linearly(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward function in which nothing stops gradients, and nothing is decided by them."""

    def linear(seen: Seen, *args: Any) -> Any:
        answers, seen.answers = seen.answers, Answers(most=0)
        records, seen.records = seen.records, False
        try:
            return _without_stops(backward)(*args)
        finally:
            seen.answers, seen.records = answers, records

    seen = _SEEN.get()
    assert seen is not None
    return partial(linear, seen)


def _enter_hooks(enter: Any, hooks: Any) -> Any:
    # Torch's own, which inherit from it, change nothing.
    is_own = type(hooks) is not torch.autograd.graph.saved_tensors_hooks
    return enter(hooks) if is_own else _hooked()


def _other(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *args, **kwargs: function(*args, **kwargs)


def _backward(original: Any, *args: Any, **kwargs: Any) -> Any:
    """`autograd.backward`: inside of a backward function, where nothing stops gradients, there
    are no leaves that would keep them.
    """
    if (seen := _SEEN.get()) is not None and seen.depth:
        raise UnsupportedError("autograd runs in it")
    return original(*args, **kwargs)


_HOOKS = "hooks that change gradients may not be noticed"
_INFERENCE = "gradients may pass through its inference mode"
_PIECES = (
    Piece("nn.Module", "to", _while_watching(eager.moved), "modules that are moved are refused"),
    Piece(
        "autograd.function.BackwardCFunction", "__init__", _made,
        "functions with their own backward function are not noticed",
    ),
    *(
        Piece(
            owner, "apply", _applied,
            "those under vmap are not named, and reentrant checkpoints are refused",
        )
        # What was stored before calls the second one.
        for owner in ("autograd.Function", "autograd.function._SingleLevelFunction")
    ),
    *(
        Piece(owner, name, _while_watching(_other(function)), "torch.func is refused")
        for owner, name, function in derivatives.TRANSFORMS
    ),
    Piece("SymBool", "__bool__", _while_watching(_bool), "checks of numbers are refused"),
    Piece("autograd", "backward", _while_watching(_backward), "gradients may be missing"),
    Piece("autograd.graph", "register_multi_grad_hook", _while_watching(_hooked), _HOOKS),
    Piece("autograd.graph.saved_tensors_hooks", "__enter__", _while_watching(_enter_hooks), _HOOKS),
    Piece("autograd.graph.node_creation_hook", "__enter__", _while_watching(_hooked), ""),
    Piece("inference_mode", "__enter__", _while_watching(eager.disable_gradients), _INFERENCE),
    Piece("inference_mode", "__exit__", _while_watching(eager.restore_gradients), _INFERENCE),
    Piece(
        "nn.modules.transformer", "_detect_is_causal_mask", _while_watching(eager.is_causal),
        "nn.Transformer may look at the values of its masks",
    ),
)  # fmt: skip
