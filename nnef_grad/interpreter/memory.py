"""How much memory an evaluation will take, from shapes alone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import prod

from nnef_grad.errors import UsageError
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.interpreter import last_uses
from nnef_grad.ops.traits import FED

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
    needed = ITEM * (_elements(forward.tensors.values()) + _peak_elements(backward))
    if limit is not None and needed > limit:
        what = f"the check takes about {needed / GIB:,.1f} GiB of memory"
        message = f"{what}, more than {limit / GIB:,.1f} GiB"
        raise UsageError(message, remedy="smaller")


def _elements(tensors: Iterable[Tensor]) -> int:
    return sum(prod(tensor.shape) for tensor in tensors)


def _peak_elements(graph: Graph) -> int:
    """The most elements at a time, besides those of inputs and variables."""
    fed = {t for op in graph.operations if op.name in FED for t in op.outputs}
    live = peak = 0
    for operation, dead in zip(graph.operations, last_uses(graph), strict=True):
        if operation.name not in FED:
            live += _elements(operation.outputs)
            peak = max(peak, live)
        live -= _elements(dead - fed)
    return peak


def _memory_of_machine() -> int | None:
    """The bytes of memory, where the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
