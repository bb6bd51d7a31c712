"""Messages of torch while a module is read, which are not for whoever has given it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any


@contextmanager
def silence() -> Iterator[None]:
    """No warnings of torch about itself, and no logs of errors that it raises."""
    thread = get_ident()
    loggers = logging.root.manager.loggerDict.items()
    handlers = [
        handler
        for name, log in loggers
        if "torch" in name and isinstance(log, logging.Logger)
        for handler in log.handlers
    ]

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        for handler in handlers:
            handler.addFilter(is_of_others)
            stack.callback(handler.removeFilter, is_of_others)
        yield


def print_of_others() -> Callable[..., None]:
    """Prints for other threads: the program that torch shows is that of no refusal of ours."""
    thread = get_ident()

    def shown(*args: Any, **kwargs: Any) -> None:
        if get_ident() != thread:
            print(*args, **kwargs)

    return shown
