"""Python's collector of cyclic garbage, and work that makes none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pauses the collector, if it runs.

    Reading makes objects by the hundred thousand, which stay and are in no cycle. The
    collector would look through them again and again, for a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
