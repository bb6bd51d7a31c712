"""How much memory an evaluation will take, from shapes alone."""

from __future__ import annotations

import os
from math import prod

from nnef_grad.base.errors import UsageError
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.ops.liveness import memory_alive

# The bytes of an element: evaluations for a check are in double precision.
ITEM = 8
GIB = 2**30


def refuse_too_large(forward: Graph, backward: Graph, limit: int | None) -> None:
    """Refuses a check that would take too much memory, before it takes any.

    Args:
        forward: the forward graph, of which every tensor is kept.
        backward: the backward graph, which reads the same inputs and variables.
        limit: the most bytes; None for the memory of this machine.

    Raises:
        UsageError: it takes more.
    """
    limit = limit if limit is not None else _memory_of_machine()
    peak = max(memory_alive(backward, _elements), default=0)
    needed = ITEM * (sum(map(_elements, forward.tensors.values())) + peak)
    if limit is not None and needed > limit:
        what = f"the check takes about {needed / GIB:,.1f} GiB of memory"
        message = f"{what}, more than {limit / GIB:,.1f} GiB"
        raise UsageError(message, remedy="smaller")


def _elements(tensor: Tensor) -> int:
    return prod(tensor.shape)


def _memory_of_machine() -> int | None:
    """The bytes of memory, where the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
