"""Values that depend on no input, computed beside the program that torch traces: what Python
asks of them is answered, and what has as many elements as they say has a known shape. Checks
of other values, which only raise errors, are passed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from linecache import getlines
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from nnef_grad.frontends.torch.internals import (
    DispatchMode,
    Operator,
    is_fake,
    pytree,
    schema,
    without_modes,
)


class _Twin(NamedTuple):
    """The real tensor of one that torch traces, and the buffers that it depends on."""

    real: torch.Tensor
    buffers: frozenset[str] = frozenset()


class KnownValues(DispatchMode):  # type: ignore[misc]
    """Computes each operation on known values a second time, with real ones.

    Attributes:
        asked: the buffers whose values have decided what the program is.
    """

    supports_higher_order_operators = True

    def __init__(self, buffers: Mapping[str, tuple[Any, torch.Tensor]]) -> None:
        """Takes the buffers by their names: the traced one, and the real one."""
        super().__init__()
        self.asked: set[str] = set()
        self._twins = WeakTensorKeyDictionary()
        self._counted = WeakTensorKeyDictionary()
        # What was there before, and what other values were written into.
        self._roots: dict[int, Any] = {}
        self._spoiled: dict[int, Any] = {}
        for name, (traced, real) in buffers.items():
            self._enter_root(traced, real, name)

    def _enter_root(self, traced: Any, real: Any, *names: str) -> None:
        twin = _Twin(_computed(torch.clone, (real,), {}), frozenset(names))
        self._roots[_memory(twin.real)] = twin.real
        self._twins[traced] = twin

    def __torch_dispatch__(
        self, function: Any, _: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # What stands for cotangents is known to nobody.
        is_mark = getattr(function, "namespace", "") == "nnef_grad"
        if is_mark or not isinstance(function, Operator):
            return function(*args, **kwargs)
        twins = self._twins_of(function, args, kwargs)
        if twins is None:
            return function(*args, **kwargs)
        real = _computed(function, *pytree.tree_map_only(
            torch.Tensor, lambda x: twins[id(x)].real, (args, kwargs)
        ))  # fmt: skip
        names = frozenset[str]().union(*(twin.buffers for twin in twins.values()))
        if not any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves(real)):
            self.asked |= names
            return real
        fake = next(filter(is_fake, _tensors(args)), None)
        is_counted = fake is not None and _counts(function, args)
        made = None if is_counted else function(*args, **kwargs)
        return self._entered(made, real, names, fake)

    def constant(self, x: Any) -> Any:
        """A tensor whose shape depends on values as a constant; another one as it is."""
        return self._counted.get(x, x)

    def place(self, x: Any) -> Any:
        """A place in a tensor, without known masks: with the places that they are true at."""
        is_tuple = isinstance(x, tuple)
        return tuple(part for y in (x if is_tuple else [x]) for part in self._places(y))

    def _places(self, x: Any) -> Sequence[Any]:
        is_mask = isinstance(x, torch.Tensor) and x.dtype is torch.bool and x.ndim > 0
        twin = self._twin(x) if is_mask else None
        if twin is None:
            return [x]
        self.asked |= twin.buffers
        places: Sequence[Any] = _computed(
            torch.nonzero, (twin.real,), {"as_tuple": True}
        )
        return places

    def _twins_of(self, function: Any, args: Any, kwargs: Any) -> Any:
        """The twins of all operands by their identity; None if one has none."""
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = _tensors(leaves)
        written = [*_written(function, args, kwargs)]
        twins = {id(x): self._twin(x) for x in tensors}
        is_random = torch.Tag.nondeterministic_seeded in function.tags
        is_open = any(isinstance(x, torch.SymInt) for x in leaves)
        memories = [_memory(t.real) for x in written if (t := twins[id(x)])]
        is_of_root = any(memory in self._roots for memory in memories)
        if is_random or is_open or is_of_root or None in twins.values():
            for x in written:
                if twin := twins[id(x)]:
                    self._spoiled[_memory(twin.real)] = twin.real
            return None
        return twins

    def _twin(self, x: Any) -> _Twin | None:
        if x not in self._twins and not is_fake(x) and not x.requires_grad:
            self._enter_root(x, x)
        twin: _Twin | None = self._twins.get(x)
        is_spoiled = twin is not None and _memory(twin.real) in self._spoiled
        return None if is_spoiled else twin

    def _entered(self, made: Any, real: Any, names: frozenset[str], fake: Any) -> Any:
        """The metadata that torch has traced; of real results, if it has not."""
        if made is None:
            made = pytree.tree_map(
                partial(fake.fake_mode.from_tensor, static_shapes=True), real
            )
            self._counted.update(zip(_tensors(made), _tensors(real), strict=True))
            self.asked |= names
        for x, y in zip(_tensors(made), _tensors(real), strict=True):
            self._twins[x] = _Twin(y, names)
        return made


def _tensors(values: Any) -> list[Any]:
    return [x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]


def _memory(x: torch.Tensor) -> int:
    return int(x.untyped_storage().data_ptr())


def _written(function: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """The tensors that an operation writes into."""
    parameters = schema(function).arguments
    named = dict(zip((p.name for p in parameters), args, strict=False)) | kwargs
    for p in parameters:
        if p.alias_info is not None and p.alias_info.is_write:
            yield from _tensors(named.get(p.name))


def _computed(function: Any, args: Any, kwargs: Any) -> Any:
    with without_modes(), torch.no_grad():
        return function(*args, **kwargs)


def _counts(function: Any, args: Any) -> bool:
    """Whether the shape of what an operation computes depends on values."""
    is_by_places = "aten.index." in str(function) and not any(
        x.dtype in (torch.bool, torch.uint8) for x in _tensors(args[1])
    )
    return torch.Tag.dynamic_output_shape in function.tags and not is_by_places


# ---- Checks ----


def decided(
    ask: Callable[[], bool],
    passed: list[str],
    other: Callable[[str], bool | None] = lambda _: None,
) -> bool:
    """A truth value that Python asks for. If it depends on inputs, and is asked for by a
    statement that can only raise an error, it is what raises none; the lines are kept.

    Args:
        other: the answer for another line, if there is one.
    """
    try:
        return ask()
    except Exception:  # as torch has it
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(_OWN) and frame.f_back is not None:
            frame = frame.f_back
        file, line = frame.f_code.co_filename, frame.f_lineno
        answers = {x.answer for x in _checks(file) if x.first <= line <= x.last}
        place = f"{file}:{line}"
        if len(answers) == 1:
            passed.append(place)
            return answers.pop()
        if (answer := other(place)) is None:
            raise
        return answer


_OWN = __file__.rpartition("torch")[0]


class _Check(NamedTuple):
    """The lines of a condition, and what a part of it must be that it raises no error."""

    first: int
    last: int
    answer: bool


@cache
def _nodes(file: str) -> list[Any]:
    return [*ast.walk(ast.parse("".join(getlines(file))))]


def raises(file: str, line: int | None) -> bool:
    """Whether a line of a file is of a statement that raises an error."""
    found = (node for node in _nodes(file) if isinstance(node, (ast.Raise, ast.Assert)))
    return any(x.lineno <= (line or 0) <= (x.end_lineno or x.lineno) for x in found)


@cache
def _checks(file: str) -> list[_Check]:
    """The conditions in a file that only decide whether an error is raised, by their parts."""
    nodes = _nodes(file)
    pairs = [(x.test, True) for x in nodes if isinstance(x, ast.Assert)]
    pairs += [(x.test, False) for x in nodes if isinstance(x, ast.If) and _raises(x)]
    return [
        _Check(test.lineno, test.end_lineno or test.lineno, answer)
        for test, wanted in pairs
        for answer in _answers(test, wanted)
    ]


def _raises(node: ast.If) -> bool:
    leaving = (ast.Return, ast.Break, ast.Continue, ast.Try)
    inner = (part for statement in node.body for part in ast.walk(statement))
    return isinstance(node.body[-1], ast.Raise) and not any(
        isinstance(part, leaving) for part in inner
    )


def _answers(test: ast.expr, wanted: bool) -> set[bool]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _answers(test.operand, not wanted)
    if isinstance(test, ast.BoolOp):
        return set[bool]().union(*(_answers(part, wanted) for part in test.values))
    return {wanted}
