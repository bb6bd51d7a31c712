"""The figures of a run: for each kind of input, how many there were and what came of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fuzz.broken import ACCEPTED


@dataclass
class Figures:
    """The figures of a run.

    Attributes:
        verdicts: how many inputs of a kind were accepted, refused, or found a bug.
        outcomes: how many inputs had an outcome.
        slowest: of each kind, the input that took the largest part of its budget.
    """

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of inputs."""
        return self.verdicts.total()

    def add(self, seed: str, reply: dict[str, Any]) -> None:
        """Counts an input."""
        kind, outcome = reply["kind"], reply["outcome"]
        self.outcomes[outcome] += 1
        self.verdicts[kind, _verdict(reply)] += 1
        taken = reply.get("taken", 1.0)
        self.slowest[kind] = max(self.slowest.get(kind, (0.0, "")), (taken, seed))

    def table(self, kinds: list[str]) -> list[str]:
        """The lines of a table, a row for each kind, and how often each outcome was."""
        titles = ("cases", ACCEPTED, "refused", "findings")
        rows = ["kind      " + "".join(f"{title:>10}" for title in titles)]
        rows[0] += "  slowest, of its budget"
        rows += [self._row(kind) for kind in kinds if kind in self.slowest]
        return rows + [f"{n:8} {name}" for name, n in self.outcomes.most_common()]

    def _row(self, kind: str) -> str:
        counts = [self.verdicts[kind, v] for v in (ACCEPTED, "refused", "findings")]
        cells = "".join(f"{count:10}" for count in (sum(counts), *counts))
        taken, seed = self.slowest[kind]
        return f"{kind:10}{cells}  {taken:.0%} ({seed})"


def _verdict(reply: dict[str, Any]) -> str:
    if "place" in reply:
        return "findings"
    return ACCEPTED if reply["outcome"] == ACCEPTED else "refused"
