"""Where lowerings are entered.

A lowering puts other operations in the place of one: a function of what emits operations
and the operation, which returns a value for each result. What it emits is standard NNEF
and computes the same numbers, whatever the target. It may emit operations that are
lowered in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nnef_grad.build.emitter import Emitter
from nnef_grad.graph.ir import Operation
from nnef_grad.ops.registry import Decomposition
from nnef_grad.targets.conditions import When, always

Lowering = Callable[[Emitter, Operation], Sequence[Any]]
Function = TypeVar("Function", bound=Lowering)

LOWERINGS: dict[str, Decomposition] = {}


class Inexpressible(Exception):
    """Raised by a lowering for settings of its operation that have no other form; the
    message says which.
    """


def lowering(*names: str, when: When = always) -> Callable[[Function], Function]:
    """Enters the lowering of the named operations, for the settings that `when` says:
    with others they have no other form, in themselves.
    """

    def enter(function: Function) -> Function:
        for name in names:
            assert name not in LOWERINGS, f"{name} is entered twice"
            LOWERINGS[name] = Decomposition(function, when)
        return function

    return enter
