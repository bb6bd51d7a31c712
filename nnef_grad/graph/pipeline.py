"""Passes, one after the other. A pass takes a graph and returns one that computes the same, or the
same graph where there is nothing to do; what watches sees each that has changed, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from nnef_grad.graph.ir import Graph

Pass = Callable[..., Graph]
Watch = Callable[[str, Graph], None]

_WATCHES: ContextVar[tuple[Watch, ...]] = ContextVar("watches", default=())


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Calls `watch` inside with the name of each pass and the graph that it has changed."""
    token = _WATCHES.set((*_WATCHES.get(), watch))
    try:
        yield
    finally:
        _WATCHES.reset(token)


def name_of(change: Pass) -> str:
    """The name of a pass: that of its function, as in `put-literals`."""
    function: Any = change.func if isinstance(change, partial) else change
    return str(function.__name__).strip("_").replace("_", "-")


def run(change: Pass, graph: Graph, *settings: Any) -> Graph:
    """The graph after a pass."""
    changed = change(graph, *settings)
    if changed is not graph:
        told(name_of(change), changed)
    return changed


def told(name: str, graph: Graph) -> None:
    """Tells those that watch of a graph, which something called so has made."""
    for watch in _WATCHES.get():
        watch(name, graph)
