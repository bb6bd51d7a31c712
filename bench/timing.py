"""Interleaved runs of programs that are compared with each other."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

LEAST_RUNS = 3


def interleaved(
    programs: Mapping[str, Callable[[], object]], runs: int, seconds: float
) -> dict[str, list[float]]:
    """The times of each program, in seconds. They take turns, so that a slow phase of
    the machine affects all of them.

    Args:
        programs: what to call, by name; each was called before, to warm up.
        runs: how often each is called.
        seconds: after this time no round begins, once there were three.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    end = time.perf_counter() + seconds
    for done in range(runs):
        if done >= LEAST_RUNS and time.perf_counter() > end:
            break
        for name, program in programs.items():
            gc.collect()
            start = time.perf_counter()
            program()
            times[name].append(time.perf_counter() - start)
    return times
