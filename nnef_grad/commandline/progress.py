"""Progress: a line on a terminal that says what takes its time, and how much is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from nnef_grad.commandline.console import print_message, write_message

# The seconds before anything is shown, and between two changes.
DELAY = 2.0
INTERVAL = 0.25
# Back to the beginning of the line, and clear it.
CLEAR = "\r\x1b[K"


class Progress:
    """A line on stderr, which is gone when the work is done. Nothing is written unless
    stderr is a terminal.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown and sys.stderr is not None and sys.stderr.isatty()
        self._lock = Lock()
        self._label = ""
        self._start = 0.0
        self._done, self._total = 0, 0

    @contextmanager
    def stage(self, label: str) -> Iterator[None]:
        """Shows what is being done, if it takes longer than a moment."""
        self._label, self._start, self._total = label, time.monotonic(), 0
        if not self._shown:
            yield
            return
        finished = Event()
        thread = Thread(target=self._show_until, args=(finished,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()
            write_message(CLEAR)

    def update(self, done: int, total: int) -> None:
        """Says how much of the stage is done."""
        self._done, self._total = done, total

    def print(self, text: str) -> None:
        """Writes a line to stderr that stays."""
        with self._lock:
            print_message(f"{CLEAR if self._shown else ''}{text}")

    def _show_until(self, finished: Event) -> None:
        wait = DELAY
        while not finished.wait(wait):
            wait = INTERVAL
            with self._lock:
                write_message(f"{CLEAR}{self._text()}")

    def _text(self) -> str:
        seconds = time.monotonic() - self._start
        if not self._total:
            return f"{self._label} ... {seconds:.0f} s"
        text = f"{self._label} ... {self._done} of {self._total}"
        if not self._done:
            return f"{text}, {seconds:.0f} s"
        left = seconds / self._done * (self._total - self._done)
        return f"{text}, about {left:.0f} s left"
