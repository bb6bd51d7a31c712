"""Computes tensors again instead of keeping them, so that a graph needs less memory.

    a = conv(x, f);                a = conv(x, f);
    b = conv(a, g);                b = conv(a, g);
    ...                     to     ...
                                   after_grad_b = gt(grad_b_first, 0.0);
                                   f_later = select(after_grad_b, f, f);
                                   a_again = conv(x, f_later);
    grad_g = ... a ...             grad_g = ... a_again ...

schedule.py chooses what.

Runtimes merge operations that are equal, and run what is ready: `a_again` would be `a`,
kept. So it reads an operand that only exists once the latest tensor does, and that no
compiler sees through, though it is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import inf
from typing import NamedTuple

from nnef_grad.autodiff.backward import Backward
from nnef_grad.autodiff.schedule import (
    STRATEGIES,
    Lifetimes,
    Run,
    Schedule,
    cost_of,
    in_order_of_need,
    results_of,
    with_updates_last,
)
from nnef_grad.base.errors import UsageError
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.emit.emitter import Emitter
from nnef_grad.emit.verifier import verify_order
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.ir import Graph, Operation, Quantization, Tensor, map_tensors
from nnef_grad.graph.pipeline import told
from nnef_grad.ops.costs import (
    byte_size,
    byte_text,
    count_text,
    memory_alive,
    multiply_adds,
    views_of,
)
from nnef_grad.ops.registry import OpSet
from nnef_grad.ops.shape import reshaped

# Limits between one that cannot be kept and the peak itself that are tried.
TRIALS = 12
# How often everything may be computed.
MOST_WORK = 2.0
# Schedules are made for so many operations in all, and a few at least: a hundred thousand
# operations take minutes.
EFFORT = 2_000_000
LEAST_TRIALS = 8

# Called with how many schedules were made, and of how many at most.
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Recomputation:
    """A graph that computes tensors again, and what that costs.

    Attributes:
        graph: the graph.
        limit_bytes: the limit.
        peak_bytes: the most bytes that are alive at a time, besides inputs, variables and
            what the graph returns; above the limit, if no order was found that keeps it.
        peak_bytes_before: the same of the graph that computes everything once.
        multiply_adds: how many more it takes.
    """

    graph: Graph
    limit_bytes: int
    peak_bytes: int
    peak_bytes_before: int
    multiply_adds: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence, if the limit is not kept."""
        if self.peak_bytes <= self.limit_bytes:
            return ()
        peak, limit = map(byte_text, (self.peak_bytes, self.limit_bytes))
        what = f"{peak} are alive at a time besides inputs, variables and results"
        return (f"{what}, and not {limit}: no order was found that needs less",)

    def as_data(self) -> dict[str, int]:
        """The costs as plain data, for programs."""
        return {
            "limit_bytes": self.limit_bytes,
            "peak_bytes": self.peak_bytes,
            "peak_bytes_before": self.peak_bytes_before,
            "multiply_adds_added": self.multiply_adds,
        }

    def __str__(self) -> str:
        """A line."""
        peak, before = map(byte_text, (self.peak_bytes, self.peak_bytes_before))
        added = f"multiply-adds added: {count_text(self.multiply_adds)}"
        return f"alive besides results: {peak} instead of {before}, {added}"


@public
@collector_paused()
def recompute(
    graph: Graph, limit: float, *, report: Report | None = None
) -> Recomputation:
    """A graph with the same results that needs less memory and computes some tensors
    again.

    Args:
        graph: any flat graph, as a rule a backward graph or a training step.
        limit: the most memory for what is alive at a time, besides inputs, variables and
            what the graph returns: bytes, or, below 1, a share of what the graph takes.
        report: called for each schedule that was tried with their number, and the most
            that are tried: of large graphs there are fewer.

    Returns:
        The graph, with its costs. Where the limit cannot be kept, it is the one that
        takes the least memory of those that were found.

    Raises:
        UsageError: the limit is not positive.
    """
    if not limit > 0:
        raise UsageError(f"the limit of memory is positive, and not {limit}")
    if limit == inf:
        raise UsageError("the limit of memory is finite, and not inf")
    before = _peak(graph)
    allowed = int(limit * before if limit < 1 else limit)
    best = _best(graph, allowed, report or (lambda done, total: None))
    graphs = best.graph, graph
    after, once = (nominal(sum(map(multiply_adds, g.operations))) for g in graphs)
    return Recomputation(best.graph, allowed, best.peak, before, after - once)


def within(backward: Backward, limit: float) -> Backward:
    """A derivative whose graph keeps a limit, or a warning that it does not."""
    spared = recompute(backward.graph, limit)
    warnings = (*backward.warnings, *spared.warnings)
    return replace(backward, graph=spared.graph, warnings=warnings)


class _Candidate(NamedTuple):
    """A graph with the same results, its peak in bytes, and the cost of its work."""

    graph: Graph
    peak: int
    work: float


def _best(graph: Graph, allowed: int, report: Report) -> _Candidate:
    """The graph that keeps the limit with the least work, or takes the least memory."""
    best = _Candidate(graph, _peak(graph), sum(map(cost_of, graph.operations)))
    movable = with_updates_last(graph)
    if best.peak <= allowed or movable is None:
        return best
    graphs = (in_order_of_need(movable), movable)
    candidates = (_Candidate(g, _peak(g), best.work) for g in graphs)
    best = min(candidates, key=lambda c: c.peak)
    orders, once = [(g, Lifetimes(g)) for g in graphs], best.work
    # The limit, and, for where it cannot be kept, others up to what is needed anyway.
    room = best.peak - allowed
    trials = [*product(range(TRIALS if room > 0 else 0), orders, STRATEGIES)]
    del trials[max(EFFORT // len(graph.operations), LEAST_TRIALS) :]
    for step, own in groupby(enumerate(trials), key=lambda trial: trial[1][0]):
        limit, most = allowed + room * step // TRIALS, MOST_WORK * once
        kept: _Candidate | None = None
        for done, (_, (order, lifetimes), strategy) in own:
            report(done, len(trials))
            schedule = Schedule(lifetimes, limit, strategy, most)
            if not schedule.is_complete:
                continue
            rebuilt = _rebuilt(order, lifetimes, schedule.runs)
            candidate = _Candidate(rebuilt, _peak(rebuilt), schedule.work)
            if candidate.peak <= limit:
                kept, most = candidate, candidate.work
            elif candidate.peak < best.peak:
                best = candidate
        if kept is not None:
            return best if best.peak <= kept.peak and limit > allowed else kept
    return best


def _peak(graph: Graph) -> int:
    """The most bytes that are alive at a time, besides what enters and is returned."""
    views = views_of(graph)
    results = {views.get(tensor, tensor) for tensor in results_of(graph)}

    def size(tensor: Tensor) -> int:
        return 0 if tensor in results else nominal(byte_size(tensor))

    return max(memory_alive(graph, size), default=0)


# ---- The graph ----


def _rebuilt(graph: Graph, lifetimes: Lifetimes, runs: Sequence[Run]) -> Graph:
    """The graph with its operations in the order of their runs."""
    emit = Emitter(OpSet().extended(graph.fragments), graph.names)
    repeats = _Repeats(graph, lifetimes, emit)
    for run in runs:
        repeats.add(run)
    names = emit.assigned_names(emit.operations, graph.tensors)
    rebuilt = replace(graph, operations=tuple(emit.operations), names=names)
    verify_order(rebuilt)
    told("recompute", rebuilt)
    return replace(rebuilt, quantization=repeats.quantization(names))


def is_delay(operation: Operation) -> bool:
    """Whether an operation only makes its operand available later."""
    return operation.name == "select" and operation.operands[1] is operation.operands[2]


class Delays:
    """Makes tensors available later."""

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._conditions: dict[tuple[Tensor, int], Tensor] = {}

    def after(self, latest: Tensor, tensor: Tensor) -> Tensor:
        """A tensor, once the latest one is there, which has elements along an axis."""
        emit, name = self._emit, self._emit.called(latest)
        key = (latest, tensor.rank)
        if key not in self._conditions:
            axes, hint = [*range(latest.rank)], f"{name}_first"
            begin, end = [0] * latest.rank, [1] * latest.rank
            first = emit("slice", latest, axes=axes, begin=begin, end=end, hint=hint)
            first = reshaped(emit, first, (1,) * tensor.rank, hint=hint)
            self._conditions[key] = emit("gt", first, 0.0, hint=f"after_{name}")
        hint = f"{emit.called(tensor)}_later"
        return emit("select", self._conditions[key], tensor, tensor, hint=hint)


class _Repeats:
    """Operations in the order of their runs, so far."""

    def __init__(self, graph: Graph, lifetimes: Lifetimes, emit: Emitter) -> None:
        self._graph, self._lifetimes, self._emit = graph, lifetimes, emit
        self._before: set[int] = set()
        self._latest: Tensor | None = None
        self._delays = Delays(emit)
        self._originals: dict[Tensor, Tensor] = {}
        # For each tensor that was computed again, the one to read.
        self._versions: dict[Tensor, Tensor] = {}

    def add(self, run: Run) -> None:
        """Adds an operation, or a repetition of it."""
        operations, emit = self._graph.operations, self._emit
        op, origin = operations[run.operation], operations[run.for_operation].origin
        read, results = self._versions, dict[Tensor, Tensor]()
        delayed: dict[Tensor, Tensor] = {}
        if run.operation in self._before:
            operand = self._lifetimes.delayed[run.operation]
            if operand is not None and read.keys().isdisjoint(op.inputs):
                latest = self._latest
                assert latest is not None, "something is kept before it is computed"
                with emit.deriving(origin):
                    delayed[operand] = self._delays.after(latest, operand)
            for tensor in op.outputs:
                hint = f"{self._graph.names[tensor]}_again"
                again = emit.tensor(tensor.dtype, tensor.shape, hint)
                results[tensor], self._originals[again] = again, tensor
        operands = map_tensors(lambda t: delayed.get(t, read.get(t, t)), op.operands)
        written = map_tensors(lambda t: results.get(t, t), op.results)
        emit.append(replace(op, operands=operands, results=written, origin=origin))
        self._before.add(run.operation)
        self._versions.update(results)
        for tensor in op.outputs:
            is_moving = tensor in self._lifetimes.moving
            if is_moving and tensor.rank and tensor.dtype == "scalar":
                self._latest = results.get(tensor, tensor)

    def quantization(self, names: Mapping[Tensor, str]) -> dict[str, Quantization]:
        """That of the graph, and of what is computed again."""
        entries = dict(self._graph.quantization)
        for again, original in self._originals.items():
            if (entry := entries.get(names[original])) is not None:
                entries[names[again]] = replace(entry, tensor=names[again])
        return entries
