"""The garbage collector of Python, paused."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector, as a context or as a decorator. The compiler makes many objects,
    but no cycles: looking for them again and again takes a third of a large graph's time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
