"""The state of the whole process: results that are kept, and the garbage collector.

Few results are kept: graphs are made of the same few operations again and again, and what a
declaration, a shape function, a cost or the tables of the grammar say of one depends on
nothing but what it is asked for by. All else goes with the compilation that remembers it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(Generic[Key, Value]):
    """Values by keys, at most so many. Threads may share it: values are never changed, and
    when it is full, it begins anew, as a thread may look into what another one drops.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Key) -> Value | None:
        """The value that is kept for a key, if there is one."""
        return self._known.get(key)

    def keep(self, key: Key, value: Value) -> Value:
        """Keeps a value, and returns it."""
        if len(self._known) >= self._most:
            self._known = {}
        self._known[key] = value
        return value


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
