"""What was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union


@dataclass(frozen=True)
class Row:
    """Programs that were run in turns, on one network.

    Attributes:
        part: the part of the benchmark.
        net: the network.
        batch: how many samples it is given at once.
        runtime: what ran the programs, with its version; of the compiler, what is
            measured.
        seconds: the times of each program, by its name.
        mebibytes: the peak of memory of each program, where it was measured.
        operations: how many operations the graph of each program has that compute
            something, where they were counted.
        difference: the largest error of a gradient relative to that of the peer, as a
            share of the largest number in it, where the results were compared.
    """

    part: str
    net: str
    batch: int
    runtime: str
    seconds: Mapping[str, Sequence[float]]
    mebibytes: Mapping[str, float] = field(default_factory=dict)
    operations: Mapping[str, int] = field(default_factory=dict)
    difference: float | None = None


@dataclass(frozen=True)
class Skipped:
    """What could not be measured, and why."""

    part: str
    what: str
    why: str


Measured = Iterator[Union[Row, Skipped]]
