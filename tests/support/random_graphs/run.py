"""Many graphs, side by side, and what was seen of them."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import NamedTuple

import torch

from nnef_grad.language.library import STDLIB

from . import oracle
from .compare import PASSED, SKIPPED, Outcome, compare
from .generate import make_graph
from .graphs import RandomGraph
from .minimise import minimise

CHUNK = 20
SECONDS = 10.0
SMALL_PER_KIND = 3
COLUMNS = 3


class Seen(NamedTuple):
    """One graph: its operations, those among them that gradients flow through, and a
    text about it where it failed.
    """

    name: str
    outcome: Outcome
    used: list[str]
    differentiated: list[str]
    report: str = ""


def examine(seed: int, number: int, twice: bool) -> Seen:
    """Makes a graph and compares."""
    graph = make_graph(seed, number)
    outcome = compare(graph, twice)
    active = graph.differentiated if outcome.kind == PASSED else []
    text = _about(graph, outcome, twice) if outcome.failed else ""
    used = [statement.operation for statement in graph.statements]
    return Seen(graph.name, outcome, used, active, text)


# How often each kind of failure was met in this process.
_met: Counter[str] = Counter()


def _about(graph: RandomGraph, outcome: Outcome, twice: bool) -> str:
    """The first to fail in some way are made small, which takes its time."""
    _met[outcome.kind] += 1
    small = _met[outcome.kind] <= SMALL_PER_KIND
    return report(graph, outcome, twice) if small else f"{graph.name}: {outcome.kind}"


def report(graph: RandomGraph, outcome: Outcome, twice: bool) -> str:
    """What failed, and the smallest graph found that fails in the same way."""

    def fails(smaller: RandomGraph) -> bool:
        return compare(smaller, twice).kind == outcome.kind

    small = minimise(graph, fails)
    last = compare(small, twice)
    order = "twice, " if twice else ""
    head = f"{graph.name}, {order}{small.options}: {last.kind}"
    return f"{head}\n{_brief(last.message)}\n{small.text}"


def _brief(message: str) -> str:
    """The first line and the last: between them is the text that was emitted."""
    first, *rest = message.strip().splitlines() or [""]
    return "\n".join([first, *rest[-1:]])


# ---- Many graphs ----


def run(seed: int, graphs: int, twice: int, jobs: int) -> Run:
    """The first graphs of a seed; so many of them are differentiated twice, evenly
    spread.
    """
    every = max(graphs // twice, 1) if twice else graphs + 1
    found = Run(seed)
    tasks = [(seed, k, min(k + CHUNK, graphs), every) for k in range(0, graphs, CHUNK)]
    if jobs == 1:
        for task in tasks:
            found.add(_chunk(task))
        return found
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context) as pool:
        for seen in pool.map(_chunk, tasks):
            found.add(seen)
    return found


def _chunk(task: tuple[int, int, int, int]) -> list[Seen]:
    torch.set_num_threads(1)
    seed, begin, end, every = task
    return [examine(seed, k, k % every == every - 1) for k in range(begin, end)]


@dataclass
class Run:
    """What was seen so far."""

    seed: int
    start: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)
    graphs: int = 0
    failures: int = 0
    worst: tuple[float, str] = (0.0, "none")
    used: Counter[str] = field(default_factory=Counter)
    differentiated: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, chunk: list[Seen]) -> None:
        """Counts some graphs, and prints a line now and then."""
        for seen in chunk:
            self._count(seen)
        if time.monotonic() - self.told > SECONDS:
            self.told = time.monotonic()
            print(self.line, flush=True)

    def _count(self, seen: Seen) -> None:
        self.graphs += 1
        self.used.update(seen.used)
        self.differentiated.update(seen.differentiated)
        self.worst = max(self.worst, (seen.outcome.error, seen.name))
        if seen.outcome.kind == SKIPPED:
            self.skipped[seen.outcome.message.partition(":")[0]] += 1
        if seen.outcome.failed:
            self.failures += 1
            self.kinds[seen.outcome.kind] += 1
            print(seen.report, flush=True)

    @property
    def line(self) -> str:
        """How far it is."""
        rate = self.graphs / (time.monotonic() - self.start)
        error, name = self.worst
        return (
            f"{self.graphs} graphs, {rate:.1f} a second, worst error {error:.2g} in"
            f" {name}, {self.failures} failed, {self.skipped.total()} skipped"
        )

    def summary(self) -> str:
        """What was seen: each operation with how often it was used, and how often a
        gradient flowed through it.
        """
        lines = ["operation, used, differentiated", *self._table()]
        lines += [f"{n:8} skipped: {what}" for what, n in self.skipped.most_common()]
        lines += [f"{n:8} failed: {what}" for what, n in self.kinds.most_common()]
        unknown = [name for name in STDLIB if not oracle.knows(name)]
        lines += [f"unknown to the oracle: {', '.join(unknown)}"] * bool(unknown)
        return "\n".join([*lines, f"seed {self.seed}: {self.line}"])

    def _table(self) -> list[str]:
        cells = [
            f"{name:32}{self.used[name]:7}{self.differentiated[name]:7}"
            for name in sorted(STDLIB)
        ]
        height = -(-len(cells) // COLUMNS)
        return ["   ".join(cells[row::height]) for row in range(height)]
