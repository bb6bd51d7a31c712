"""Findings that are no exceptions of the compiler."""

from __future__ import annotations

import re
import signal
from pathlib import Path

ACCEPTED = "accepted"


class Broken(Exception):
    """A property that every document must have does not hold. What identifies the bug
    comes first, the details of this input after it.
    """

    def __init__(self, what: str, details: str = "") -> None:
        self.what = what
        super().__init__(f"{what}: {details}" if details else what)


class OverBudget(Exception):
    """A process was killed; the stack that it printed tells where."""

    def __init__(self, trace: str, code: int) -> None:
        self.trace = trace
        self.is_hang = code in (-signal.SIGPROF, -signal.SIGALRM)
        super().__init__(f"exit code {code}")


def place_in(trace: str, *, innermost: int = 0) -> str:
    """A function of the compiler in a stack that was printed: the innermost one is the
    first that faulthandler prints, and the last one of a traceback.
    """
    found = re.findall(r'File ".*nnef_grad/(\S+)", line \d+,? in (\w+)', trace)
    return f"{Path(found[innermost][0]).name}:{found[innermost][1]}" if found else "?"
