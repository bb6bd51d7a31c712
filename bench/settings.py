"""What is measured, and how often."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The options of a run.

    Attributes:
        models: a regular expression; the networks that it is found in are measured.
        batches: the extents of the batch.
        runs: how often each program is run, at most.
        seconds: when no further run begins, for each row, after three.
        threads: how many threads a program has.
        profile: whether the operators that take most of the time are printed.
        training: the interpreter of an environment with onnxruntime-training.
    """

    models: str = ""
    batches: tuple[int, ...] = (1, 8)
    runs: int = 7
    seconds: float = 20.0
    threads: int = 2
    profile: bool = False
    training: str | None = None

    def wants(self, net: str) -> bool:
        return re.search(self.models, net) is not None
