"""Which figures are divided by which, and the goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.rows import Row

# Networks of many layers differ by this share where an element is near a kink.
TOLERANCE = 0.02


class Comparison(NamedTuple):
    """A ratio, in the rows of a part that have both programs."""

    part: str
    measure: str  # an attribute of Row
    program: str
    peer: str
    goal: float | None

    @property
    def name(self) -> str:
        what = "" if self.measure == "seconds" else "memory of "
        return f"{what}{self.program} / {self.peer}"


COMPARISONS = (
    Comparison("compiler", "seconds", "nnef-grad", "python with lark and click", None),
    *(
        Comparison("compiler", "seconds", program, peer, None)
        for peer, programs in {
            "tarfile": ("a folder", "an archive", "a compressed archive"),
            "nnef.parse_string": ("read", "differentiate", "lower", "write"),
        }.items()
        for program in programs
    ),
    Comparison("onnx", "seconds", "backward", "onnxruntime-training", 1.0),
    Comparison("onnx", "seconds", "backward", "forward", 3.5),
    Comparison("khronos", "seconds", "backward", "autograd", 1.0),
    Comparison("khronos", "mebibytes", "backward", "autograd", 1.0),
    Comparison("tract", "seconds", "backward", "forward", 4.0),
    Comparison("real", "seconds", "backward", "torch", 1.0),
)


class Ratio(NamedTuple):
    """A ratio of medians, and of the shortest times."""

    row: Row
    comparison: Comparison
    median: float
    least: float

    @property
    def verdict(self) -> str:
        """Nothing without a goal. Programs that compute different things are not
        compared.
        """
        if self.comparison.goal is None:
            return ""
        if (self.row.difference or 0) > TOLERANCE:
            return "other results"
        return "met" if self.median <= self.comparison.goal else "missed"


def ratios(rows: Sequence[Row]) -> Iterator[Ratio]:
    for comparison in COMPARISONS:
        for row in rows:
            figures = getattr(row, comparison.measure)
            if row.part == comparison.part and {*comparison[2:4]} <= {*figures}:
                ours, peer = figures[comparison.program], figures[comparison.peer]
                yield Ratio(row, comparison, *_divided(ours, peer))


def _divided(
    ours: float | Sequence[float], peer: float | Sequence[float]
) -> tuple[float, float]:
    if isinstance(ours, float) and isinstance(peer, float):
        return ours / peer, ours / peer
    assert not isinstance(ours, float)
    assert not isinstance(peer, float)
    median = statistics.median
    return median(ours) / median(peer), min(ours) / min(peer)
