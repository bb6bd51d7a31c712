"""The garbage collector of Python, paused."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector, as a context or as a decorator.

    The compiler makes many objects, and no cycles of them: everything is freed without
    the collector, which would look for cycles again and again while there are more and
    more objects. That takes a third of the time of a large graph.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
