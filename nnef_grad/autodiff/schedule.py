"""Orders in which the operations of a graph run, some of them more than once, so that
little is alive at a time.

The operations run in their order, in thought. What an operation reads and is not there any
more is computed again. What is dropped is chosen in two ways:

    by loss      where more would be alive than allowed, the tensor goes that is cheapest to
                 compute again for the bytes and the time that it frees. That is dynamic
                 tensor rematerialization (Kirisame et al. 2021), with what that guesses
                 known: when each tensor is read next
    segments     of the first part, in which memory grows, only what crosses the narrowest
                 places between some segments is kept (Chen et al. 2016); each segment is
                 computed again when its end is needed. Where that is too much, tensors go
                 by loss

What is dropped or kept is memory: a tensor, with its views. It is called by the tensor.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from heapq import heappop, heappush
from itertools import accumulate, chain, compress, count, product, starmap
from operator import or_
from typing import NamedTuple

from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.ops.costs import (
    byte_size,
    bytes_moved,
    memory_alive,
    multiply_adds,
    views_of,
)
from nnef_grad.ops.traits import PRODUCTS, SOURCES, UNIQUE

UPDATE = "update"
# What it costs to move a byte, in multiply-adds.
BYTE = 1 / 16


class Run(NamedTuple):
    """A run of an operation, for itself or for another one that needs it again; by index."""

    operation: int
    for_operation: int


class Strategy(NamedTuple):
    """How to choose what is dropped."""

    # What a tensor frees is its bytes times this power of how long it is not read.
    patience: float = 1.0
    # Whether tensors are worth keeping that are not read again, but make what is read.
    keeps_sources: bool = True
    # How many there are; 0 for dropping by loss alone.
    segments: int = 0


STRATEGIES = (
    *starmap(Strategy, product((2.0, 1.0, 0.5, 0.0), (False, True))),
    *(Strategy(segments=count) for count in (2, 3, 4, 6, 8, 12, 16, 24, 32)),
)


def with_updates_last(graph: Graph) -> Graph | None:
    """The graph with the updates of its variables last: some runtimes change a variable
    at once. None if something reads the result of an update.
    """
    updates = [op for op in graph.operations if op.name == UPDATE]
    others = [op for op in graph.operations if op.name != UPDATE]
    changed = {tensor for op in updates for tensor in op.outputs}
    if not all(changed.isdisjoint(op.inputs) for op in graph.operations):
        return None
    return replace(graph, operations=(*others, *updates)) if updates else graph


def results_of(graph: Graph) -> tuple[Tensor, ...]:
    """The outputs of a graph, and the new values of its variables."""
    updates = [op for op in graph.operations if op.name == UPDATE]
    return (*graph.outputs, *(tensor for op in updates for tensor in op.inputs))


def in_order_of_need(graph: Graph) -> Graph:
    """The graph with each operation just before the first that reads its result; its
    updates are last. Results that need less come first: a layer's own gradients before
    that of the layer below.
    """
    makers = _makers(graph)
    there, order = set[Tensor](), list[int]()
    updates = [i for i, op in enumerate(graph.operations) if op.name == UPDATE]
    for index in (*_by_need(graph, makers), *updates):
        if there.isdisjoint(graph.operations[index].outputs):
            needed = _needed(graph.operations, makers, index, there.__contains__)
            order += needed
            there.update(t for i in needed for t in graph.operations[i].outputs)
    return replace(graph, operations=tuple(graph.operations[index] for index in order))


def _by_need(graph: Graph, makers: Mapping[Tensor, int]) -> list[int]:
    """The operations that make results, or what enters, by how many others they need."""
    # A bit for each operation.
    needs, ends = list[int](), {makers[tensor] for tensor in results_of(graph)}
    for index, operation in enumerate(graph.operations):
        inputs = (needs[makers[tensor]] for tensor in operation.inputs)
        needs.append(reduce(or_, inputs, 1 << index))
        if operation.name in UNIQUE:
            ends.add(index)
    kept = (index for index in ends if graph.operations[index].name != UPDATE)
    return sorted(kept, key=lambda index: (needs[index].bit_count(), index))


def _makers(graph: Graph) -> dict[Tensor, int]:
    return {t: i for i, op in enumerate(graph.operations) for t in op.outputs}


def _needed(
    operations: Sequence[Operation],
    makers: Mapping[Tensor, int],
    index: int,
    is_there: Callable[[Tensor], bool],
) -> list[int]:
    """The operations that must run for one to run, in their order, it itself the last."""
    needed, waiting = {index}, [index]
    while waiting:
        for tensor in operations[waiting.pop()].inputs:
            maker = makers[tensor]
            if not is_there(tensor) and maker not in needed:
                needed.add(maker)
                waiting.append(maker)
    return sorted(needed)


def that_enter(operations: Sequence[Operation]) -> set[Tensor]:
    """The tensors that depend on an input of the graph."""
    entering: set[Tensor] = set()
    for op in operations:
        if op.name == "external" or not entering.isdisjoint(op.inputs):
            entering.update(op.outputs)
    return entering


class Lifetimes:
    """The operations of a graph, what they make, and when that is read."""

    def __init__(self, graph: Graph) -> None:
        self.operations = operations = graph.operations
        self.costs = [*map(cost_of, operations)]
        self.makers = _makers(graph)
        self._views = views_of(graph)
        self.moving = that_enter(operations)
        # Of each operation what is made to be there later, where it runs again.
        self.delayed = [_delayed_operand(op, self.moving) for op in operations]
        # What is there anyway, or has an effect, is never dropped.
        fixed = [op.name in SOURCES | UNIQUE for op in operations]
        self.lasting = {t for op in compress(operations, fixed) for t in op.outputs}
        pairs = zip(operations, self.delayed, strict=True)
        repeated = {t for op, operand in pairs if operand for t in op.outputs}
        # What depends on no input is computed by runtimes when they load the graph.
        self.repeatable = repeated & self.moving - self.lasting
        self.read = [self._all(op.inputs) for op in operations]
        self.written = [self._all(op.outputs) for op in operations]
        results = self._all(results_of(graph))
        self.results = self.lasting.union(graph.outputs)
        uncounted = self.lasting.union(results)
        self.sizes = {
            memory: 0 if memory in uncounted else nominal(byte_size(memory))
            for memory in chain(*self.written)
        }
        # The operations that read each memory; for results, the end too.
        self.reads = defaultdict[Tensor, list[int]](list)
        for index, read in enumerate((*self.read, results)):
            for memory in read:
                self.reads[memory].append(index)
        # The operation at which the most is alive.
        alive = memory_alive(graph, lambda tensor: self.sizes.get(tensor, 0))
        self.turn = alive.index(max(alive)) if alive else 0
        self._ends = dict[Strategy, Mapping[Tensor, int]]()
        # What becomes cheaper to compute again while a memory is there.
        self.dependent = defaultdict[Tensor, list[Tensor]](list)
        for memory in self.repeatable & self.sizes.keys():
            for operand in self.read[self.makers[memory]]:
                self.dependent[operand].append(memory)

    def of(self, tensor: Tensor) -> Tensor:
        """The memory of a tensor."""
        return self._views.get(tensor, tensor)

    def _all(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Each once, in an order that is always the same."""
        return tuple(dict.fromkeys(map(self.of, tensors)))

    def next_read(self, memory: Tensor, index: int) -> int | None:
        """The next operation that reads a memory, after one."""
        reads = self.reads.get(memory, [])
        place = bisect_right(reads, index)
        return reads[place] if place < len(reads) else None

    # ---- Until when memory is worth keeping ----

    def ends(self, strategy: Strategy) -> Mapping[Tensor, int]:
        """Until which operation each memory is kept, if there is room."""
        if strategy not in self._ends:
            self._ends[strategy] = self._found_ends(strategy)
        return self._ends[strategy]

    def _found_ends(self, strategy: Strategy) -> dict[Tensor, int]:
        ends = {memory: reads[-1] for memory, reads in self.reads.items()}
        segments = strategy.segments
        kept = self._checkpoints(segments) if segments else set[Tensor]()
        # What is kept is not computed from anything again.
        for index in reversed(range(self.turn)) if strategy.keeps_sources else ():
            later = [ends.get(m, -1) for m in self.written[index] if m not in kept]
            for memory in self.read[index]:
                ends[memory] = max(ends[memory], *later, -1)
        # What is dropped before the turn and read after it is computed again then.
        for m in (self.repeatable - kept) & ends.keys() if segments else ():
            ends[m] = max((r for r in self.reads[m] if r < self.turn), default=-1)
        return ends

    def _checkpoints(self, segments: int) -> set[Tensor]:
        """The tensors alive at the narrowest places between segments before the turn."""
        spans = dict[Tensor, tuple[int, int]]()
        for index in range(self.turn):
            for memory in {*self.written[index]} - self.lasting - spans.keys():
                reads = self.reads.get(memory, [])
                place = bisect_left(reads, self.turn)
                spans[memory] = index, max(index, reads[place - 1] if place else 0)
        new, changes = [0] * self.turn, [0] * (self.turn + 1)
        for memory, (begin, end) in spans.items():
            new[begin] += self.sizes[memory]
            changes[begin] += self.sizes[memory]
            changes[end] -= self.sizes[memory]
        total, alive, kept = [*accumulate(new)], [*accumulate(changes)], set[Tensor]()
        for place in range(1, segments if total else 0):
            ends = (total[-1] * (place + half) / segments for half in (-0.5, 0.5))
            low, high = (bisect_left(total, end) for end in ends)
            at = min(range(low, max(high, low + 1)), key=alive.__getitem__)
            kept.update(m for m, (begin, end) in spans.items() if begin <= at < end)
        return kept


def _delayed_operand(operation: Operation, moving: set[Tensor]) -> Tensor | None:
    """The smallest scalar operand. Of a product, one that depends on an input: runtimes
    arrange a constant filter for their kernels when they load the graph.
    """
    scalars = [tensor for tensor in operation.inputs if tensor.dtype == "scalar"]
    if operation.name in PRODUCTS:
        scalars = [tensor for tensor in scalars if tensor in moving] or scalars
    return min(scalars, key=lambda t: nominal(byte_size(t)), default=None)


class _Loss(NamedTuple):
    """The loss of a memory, which is not less than that; its number in the order in which
    memories came.
    """

    loss: float
    number: int
    memory: Tensor


class Schedule:
    """The runs of the operations of a graph in their order, and what they cost: no more
    than some bytes are alive at a time, if that is possible. What enters and is
    returned does not count. It is not complete where it would have cost more than the
    most.
    """

    def __init__(
        self, lifetimes: Lifetimes, limit: int, strategy: Strategy, most: float
    ) -> None:
        self._memory = lifetimes
        self._limit, self._patience = limit, strategy.patience
        self._ends = lifetimes.ends(strategy)
        # What there is of each memory: a tensor, and those of its views that were made.
        self._present: dict[Tensor, set[Tensor]] = {}
        self._alive = 0
        self._pins: Counter[Tensor] = Counter()
        self._numbers = count()
        # The losses of what may be dropped, or less, the least first; and the latest of each.
        self._losses: list[_Loss] = []
        self._latest: dict[Tensor, _Loss] = {}
        # Of what was dropped, what it cost to compute it again.
        self._prices: dict[Tensor, float] = {}
        self.runs: list[Run] = []
        self.work = 0.0
        self.is_complete = self._fill(most)
        if self.is_complete:
            self.runs = self._useful()
            self.work = sum(lifetimes.costs[run.operation] for run in self.runs)

    def _useful(self) -> list[Run]:
        """The runs without those whose results were dropped before anything read them."""
        read, useful = set[int](), list[Run]()
        for run in reversed(self.runs):
            operation = self._memory.operations[run.operation]
            is_result = not self._memory.results.isdisjoint(operation.outputs)
            if is_result or run.operation in read:
                useful.append(run)
                read.discard(run.operation)
                read.update(self._memory.makers[t] for t in operation.inputs)
        return useful[::-1]

    def _fill(self, most: float) -> bool:
        memory = self._memory
        for index in range(len(memory.operations)):
            self._enter_lower(memory.read[index], index)
            plan = _needed(memory.operations, memory.makers, index, self._is_present)
            # What they read stays until they did.
            self._pins = Counter(m for i in plan for m in memory.read[i])
            for operation in plan:
                self.work += memory.costs[operation]
                self._run(operation, index)
            if self.work >= most:
                return False
        return True

    def _is_present(self, tensor: Tensor) -> bool:
        return tensor in self._present.get(self._memory.of(tensor), ())

    def _run(self, operation: int, index: int) -> None:
        """Runs an operation for another one, or for itself."""
        op = self._memory.operations[operation]
        written, read = self._memory.written[operation], self._memory.read[operation]
        new = sum(self._memory.sizes[m] for m in written if m not in self._present)
        delay = self._memory.delayed[operation] if operation != index else None
        self._make_room(new + nominal(byte_size(delay)) if delay else new, index)
        self._alive += new
        for tensor in op.outputs:
            self._add(self._memory.of(tensor), index)
            self._present[self._memory.of(tensor)].add(tensor)
        self.runs.append(Run(operation, index))
        self._pins.subtract(read)
        for memory in (*written, *read):
            if self._is_over(memory, index):
                self._drop(memory)

    def _add(self, memory: Tensor, index: int) -> None:
        if memory in self._present:
            return
        self._present[memory] = set()
        is_droppable = memory in self._memory.repeatable and memory in self._ends
        if is_droppable and self._memory.sizes[memory]:
            self._enter(memory, index, next(self._numbers))
        self._enter_lower(self._memory.dependent.get(memory, ()), index)

    def _is_over(self, memory: Tensor, index: int) -> bool:
        """Whether a memory is not kept after an operation."""
        is_pinned = self._pins[memory] > 0 or memory in self._memory.lasting
        if is_pinned or self._ends.get(memory, -1) > index:
            return False
        is_read = self._memory.next_read(memory, index) is not None
        return index < self._memory.turn or not is_read

    def _drop(self, memory: Tensor) -> None:
        if memory in self._present:
            self._prices[memory] = self._price(memory)
            self._alive -= self._memory.sizes[memory]
            del self._present[memory]
            self._latest.pop(memory, None)

    def _make_room(self, needed: int, index: int) -> None:
        """Drops what is the least loss, until there is room or nothing is left to drop."""
        alive, chosen, pinned = self._alive, list[Tensor](), list[_Loss]()
        while alive + needed > self._limit and self._losses:
            least = heappop(self._losses)
            memory = least.memory
            if self._latest.get(memory) != least:
                continue
            if self._pins[memory] > 0:
                pinned.append(least)
            elif self._loss(memory, index) > least.loss:
                self._enter(memory, index, least.number)
            else:
                chosen.append(memory)
                del self._latest[memory]
                alive -= self._memory.sizes[memory]
        for least in pinned:
            heappush(self._losses, least)
        for memory in chosen:
            self._drop(memory)

    def _enter(self, memory: Tensor, index: int, number: int) -> None:
        """Enters the loss of a memory. Until it is entered again, the loss only grows: its
        next read comes closer, and what it is made of is dropped.
        """
        loss = _Loss(self._loss(memory, index), number, memory)
        self._latest[memory] = loss
        heappush(self._losses, loss)

    def _enter_lower(self, memories: Iterable[Tensor], index: int) -> None:
        """Enters the losses again that may have become lower."""
        for memory in memories:
            if (latest := self._latest.get(memory)) is not None:
                self._enter(memory, index, latest.number)

    def _loss(self, memory: Tensor, index: int) -> float:
        """The price for the bytes and the time that dropping a memory frees."""
        after = self._memory.next_read(memory, index)
        time = max(1, (self._ends[memory] if after is None else after) - index)
        freed = self._memory.sizes[memory] * float(time) ** self._patience
        return float(self._price(memory) / freed)

    def _price(self, memory: Tensor) -> float:
        """The cost of computing a memory again, and of what it is made of that is absent."""
        maker = self._memory.makers[memory]
        absent = (m for m in self._memory.read[maker] if m not in self._present)
        return self._memory.costs[maker] + sum(self._prices.get(m, 0.0) for m in absent)


def cost_of(operation: Operation) -> float:
    """The cost of an operation, in multiply-adds."""
    return nominal(multiply_adds(operation)) + BYTE * nominal(bytes_moved(operation))
