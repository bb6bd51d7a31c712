"""The clock of a worker: a step that takes more than its budget ends the process."""

from __future__ import annotations

import signal
import time

from fuzz.budget import seconds_for


class Clock:
    """Ends the process when a step takes more than its budget."""

    def __init__(self, *, running: bool = True) -> None:
        self._running = running
        self._start = 0.0
        self._seconds = 1.0
        self.most = 0.0

    def __call__(self, size: int, *, check: bool = False) -> None:
        """Starts a step on so many bytes, which may be a comparison of gradients."""
        self.stop()
        self._seconds = seconds_for(size, check=check)
        self._start = time.process_time()
        if self._running:
            signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def stop(self) -> None:
        """Ends a step, and notes the part of its budget that it took."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        if self._start:
            taken = (time.process_time() - self._start) / self._seconds
            self.most, self._start = max(self.most, taken), 0.0
