"""Interleaved runs of programs that are compared with each other."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from functools import partial

LEAST_RUNS = 3


def interleaved(
    programs: Mapping[str, Callable[[], object]], runs: int, seconds: float
) -> dict[str, list[float]]:
    """The times of each program, in seconds; each was called before, to warm up."""
    return in_turns(
        {name: partial(timed, program) for name, program in programs.items()},
        runs,
        seconds,
    )


def timed(program: Callable[[], object]) -> float:
    """The seconds that a program takes."""
    gc.collect()
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


def in_turns(
    programs: Mapping[str, Callable[[], float]], runs: int, seconds: float
) -> dict[str, list[float]]:
    """The times of each program, in seconds. They take turns, so that a slow phase of
    the machine affects all of them.

    Args:
        programs: by name, what runs a program once and returns the seconds.
        runs: how often each is called.
        seconds: after this time no round begins, once there were three.
    """
    times: dict[str, list[float]] = {name: [] for name in programs}
    end = time.perf_counter() + seconds
    for done in range(runs):
        if done >= LEAST_RUNS and time.perf_counter() > end:
            break
        for name, program in programs.items():
            times[name].append(program())
    return times
