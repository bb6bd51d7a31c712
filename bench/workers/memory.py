"""The peak of memory of a call, as Linux counts it for the process."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

STATUS = Path("/proc/self/status")
RESET_PEAK = "5"


def peak(function: Callable[[], object]) -> float | None:
    """By how many MiB the memory of this process grows at most while the function runs;
    None where the system does not say. It counts everything, with the workspace of
    libraries, which an account of tensors leaves out.
    """
    if not STATUS.exists():
        return None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text(RESET_PEAK)
    before = mebibytes("VmRSS")
    function()
    return mebibytes("VmHWM") - before


def mebibytes(field: str) -> float:
    """A field of what Linux counts: VmRSS is now, VmHWM the most so far."""
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024
