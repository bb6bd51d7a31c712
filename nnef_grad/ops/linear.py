"""Operations that are linear in some of their operands, if the others are given. Where each is
stands with it, in the file of its family.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from nnef_grad.graph.ir import Operand, Operation, Tensor
from nnef_grad.ops.registry import Function, enter

# Whether an operation is linear, given for each operand whether a part of it is, and whether all
# of it is.
LinearRule = Callable[[Operation, Sequence[bool], Sequence[bool]], bool]
LINEAR: dict[str, LinearRule] = {}


def linearity_rule(*names: str) -> Callable[[Function], Function]:
    """Enters where the named operations are linear."""
    return partial(enter, LINEAR, names)


def is_linear(op: Operation, linear: Collection[Tensor]) -> bool:
    """Whether the results of an operation are linear in what these tensors are linear in, some
    of which are operands, if its other operands do not depend on it; 0.0 is, in anything.
    """
    if (rule := LINEAR.get(op.name)) is None:
        return False
    parts = [x if isinstance(x, tuple) else (x,) for x in op.operands]
    some = [any(isinstance(x, Tensor) and x in linear for x in part) for part in parts]
    whole = [all(_is_in(x, linear) for x in part) for part in parts]
    return rule(op, some, whole)


def _is_in(x: Operand, linear: Collection[Tensor]) -> bool:
    return x in linear if isinstance(x, Tensor) else x == 0.0


# ---- Rules that several families have ----


def in_first(op: Operation, some: Sequence[bool], whole: Sequence[bool]) -> bool:
    """In the first operand alone."""
    return some[0] and not any(some[1:])


def in_one(op: Operation, some: Sequence[bool], whole: Sequence[bool]) -> bool:
    """In one of the first two, without an addend."""
    return sum(some[:2]) == 1 and op.operands[2:] in ((), (0.0,))


def in_all(op: Operation, some: Sequence[bool], whole: Sequence[bool]) -> bool:
    """In all of them together."""
    return all(whole)
