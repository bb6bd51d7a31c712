"""Which figures are compared with which, and the goals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench.rows import Row

# Networks of many layers differ by this share where an element is near a kink.
TOLERANCE = 0.02

# What a figure of a row is, in the name of a comparison.
_OF = {"seconds": "", "mebibytes": "memory of ", "operations": "operations of "}


class Comparison(NamedTuple):
    """A ratio, or a difference, in the rows of a part that have both programs.

    Attributes:
        part: the part of the benchmark.
        measure: an attribute of Row.
        program: what is divided, or what is subtracted from.
        peer: by what it is divided, or what is subtracted.
        goal: the most that it should be.
        is_difference: whether it is a difference.
    """

    part: str
    measure: str
    program: str
    peer: str
    goal: float | None
    is_difference: bool = False

    @property
    def name(self) -> str:
        symbol = "-" if self.is_difference else "/"
        return f"{_OF[self.measure]}{self.program} {symbol} {self.peer}"

    def of(self, ours: float, peer: float) -> float:
        return ours - peer if self.is_difference else ours / peer


TARGETS = ("khronos", "tract", "onnx", "portable")
STAGES = ("read", "differentiate", "write", *(f"lower to {name}" for name in TARGETS))
# The programs of the part `compiler` that are named in rows and comparisons alike.
PACKAGES = "python with lark and click"
BUILDER = "GradientGraphBuilder"
LIMIT = "1 GiB"
FEW, MANY = 1_000, 100_000

_PROCESSES = (
    Comparison(
        "compiler",
        "seconds",
        "nnef-grad resnet.nnef",
        PACKAGES,
        0.15,
        is_difference=True,
    ),
    Comparison(
        "compiler", "seconds", "nnef-grad --help", PACKAGES, 0.05, is_difference=True
    ),
    *(
        Comparison("compiler", "seconds", program, "tarfile", None)
        for program in ("a folder", "an archive", "a compressed archive")
    ),
)
_STAGES = (
    Comparison("compiler", "seconds", "read", "nnef.parse_string", 3.0),
    Comparison("compiler", "seconds", "differentiate", "nnef.parse_string", None),
    Comparison("compiler", "seconds", "differentiate", BUILDER, 1.0),
    Comparison("compiler", "seconds", "write", "nnef.format_graph", 2.0),
    *(
        Comparison("compiler", "seconds", f"lower to {name}", "differentiate", 1.0)
        for name in TARGETS
    ),
    Comparison(
        "compiler", "operations", "backward", "forward", 9_006, is_difference=True
    ),
)
_GROWTH = (
    *(
        Comparison("compiler", "seconds", f"{s}, {MANY:,}", f"{s}, {FEW:,}", 1.2)
        for s in STAGES
    ),
    Comparison("compiler", "mebibytes", "nnef-grad", LIMIT, 1.0),
)

COMPARISONS = (
    *_PROCESSES,
    *_STAGES,
    *_GROWTH,
    Comparison("onnx", "seconds", "backward", "onnxruntime-training", 1.0),
    Comparison("onnx", "seconds", "backward", "forward", 3.5),
    Comparison("onnx", "seconds", "portable", "backward", 1.15),
    Comparison("khronos", "seconds", "backward", "autograd", 1.0),
    Comparison("khronos", "mebibytes", "backward", "autograd", 1.0),
    Comparison("tract", "seconds", "backward", "forward", 4.0),
    Comparison("real", "seconds", "backward", "torch", 1.0),
    Comparison("real", "seconds", "backward", "torch.compile", None),
    *(
        Comparison("examples", measure, "onnxruntime", peer, 1.0)
        for measure in ("seconds", "mebibytes")
        for peer in ("torch.func", "opacus")
    ),
)


class Outcome(NamedTuple):
    """What a comparison gives for a row: of the medians, and of the shortest times."""

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


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    for comparison in COMPARISONS:
        for row in rows:
            figures = getattr(row, comparison.measure)
            if row.part == comparison.part and {*comparison[2:4]} <= {*figures}:
                yield _outcome(row, comparison)


def _outcome(row: Row, comparison: Comparison) -> Outcome:
    figures = getattr(row, comparison.measure)

    def by(summary: Callable[[Sequence[float]], float]) -> float:
        ours, peer = (
            summary(f) if isinstance(f, Sequence) else f
            for f in (figures[comparison.program], figures[comparison.peer])
        )
        return comparison.of(ours, peer)

    return Outcome(row, comparison, by(statistics.median), by(min))


def shown(number: float) -> str:
    """A ratio, or a difference, with as many digits as it deserves."""
    return f"{number:.2f}" if abs(number) < 1000 else f"{number:,.0f}"
