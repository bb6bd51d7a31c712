"""Ctrl-C and termination: who handles them, and where they have to wait."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Handlers = Mapping[signal.Signals, Any]

ENDING = (signal.SIGINT, signal.SIGTERM)


def set_handlers(handlers: Handlers) -> Handlers:
    """Sets handlers of signals, and returns those before. Nothing is set where Python
    cannot: outside of the main thread, and in place of a handler that is not Python's.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not None
    }


@contextmanager
def signals_delayed() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Delays what ends the process, but for where it is released: it could come when a
    folder is there and not yet in a variable, or half removed.
    """
    arrived: list[int] = []

    def release() -> None:
        set_handlers(usual)
        while arrived:
            signal.raise_signal(arrived.pop())

    @contextmanager
    def released() -> Iterator[None]:
        release()
        try:
            yield
        finally:
            set_handlers(delaying)

    delaying = dict.fromkeys(ENDING, lambda number, _: arrived.append(number))
    usual = set_handlers(delaying)
    try:
        yield released
    finally:
        release()
