"""Splits a derivative into two graphs: a forward graph that also returns what the
backward graph needs of it, and a backward graph that computes none of that again.

    y = tanh(x);                      y = tanh(x);    y = external(...);
    square = sqr(y);             to                   square = sqr(y);
    slope = sub(1.0, square);                         slope = sub(1.0, square);
    grad_x = mul(grad_y, slope);                      grad_x = mul(grad_y, slope);

What is saved is a minimum cut, in bytes, between the operations of the forward graph and
those that depend on gradients. Between them are the operations that may run on either
side. Those that rules add, such as masks, run backward, unless their results are smaller
than what they are made of. Those of the forward graph that cost next to nothing run on
both sides, if that saves bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from typing import NamedTuple, TypeVar

from nnef_grad.autodiff.backward import Backward, completed
from nnef_grad.autodiff.recompute import is_delay
from nnef_grad.base.errors import UsageError
from nnef_grad.base.process import collector_paused
from nnef_grad.base.public import public
from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.ir import Graph, Operation, Tensor
from nnef_grad.graph.loops import external
from nnef_grad.graph.names import with_names
from nnef_grad.graph.passes import prune
from nnef_grad.graph.rewriting import substitute, sweep, with_tensors
from nnef_grad.ops.costs import byte_size
from nnef_grad.ops.traits import (
    BROADCASTING,
    COPYING,
    FLAT,
    MOVING,
    RESHAPING,
    SOURCES,
)

# What these make is what they are made of.
_SAME = RESHAPING | COPYING | {"transpose"}
# What forward graphs compute with these is not saved for its own sake: it takes about as
# long as to read it from memory.
FREE = (SOURCES | _SAME | MOVING | BROADCASTING | FLAT | {
    "neg", "abs", "not", "sqr", "sqrt", "rcp", "rsqr", "rsqrt", "relu", "leaky_relu",
    "prelu", "add_n", "cast",
}) - {"pow"}  # fmt: skip


@dataclass(frozen=True)
class Split:
    """A forward and a backward graph that compute everything once.

    Attributes:
        forward: returns the outputs of the forward graph, then the other saved tensors.
        backward: takes the saved tensors, the needed inputs of the forward graph, and
            the gradients of the outputs; returns the gradients. It declares the
            variables that it needs.
        saved: the names of the saved tensors in both graphs, in the order of
            computation: `saved_<tensor>`, or the output's own name.
    """

    forward: Graph
    backward: Graph
    saved: tuple[str, ...]


@public
@collector_paused()
def split(graph: Graph, backward: Backward) -> Split:
    """Splits a backward graph, which recomputes a part of the forward graph, in two:
    the first graph saves what the second needs.

    Args:
        graph: the forward graph.
        backward: its derivative, from `differentiate` or `jacobian`. Without seeds, the
            backward half has everything that is not in the forward graph. Forward
            outputs that it also returns are left to the forward half.

    Returns:
        The two graphs. Run one after the other, they give the outputs of the forward
        graph and the gradients.

    Raises:
        UsageError: the backward graph is that of another graph.
    """
    backward = _derived(graph, backward)
    graph = with_loops_of(graph, backward)
    cut = find_cut(graph, backward)
    # An output keeps its name, by which its users know it.
    kept = {*graph.inputs, *graph.outputs, *backward.graph.outputs}
    wanted = (backward.graph.names[t] for t in cut.saved if t not in kept)
    wishes = {name: f"saved_{name}" for name in wanted}
    whole = with_names(backward.graph, wishes, graph.names.values())
    names = whole.names
    quantization = {**whole.quantization, **graph.quantization}
    graph = replace(graph, names={**graph.names, **names}, quantization=quantization)
    second = backward_half(graph, replace(backward, graph=whole), cut)
    return Split(_forward(graph, cut), second, tuple(names[t] for t in cut.saved))


class Cut(NamedTuple):
    """Where a derivative is split: the operations that are not of the forward graph,
    those of them that may run on either side, and the tensors that the second half gets
    of the first, in the order in which they are computed.
    """

    added: Sequence[Operation]
    movable: Sequence[Operation]
    saved: tuple[Tensor, ...]


def find_cut(graph: Graph, backward: Backward, lost: Collection[Tensor] = ()) -> Cut:
    """Where the derivative of a forward graph is split, whose second half does not have
    some inputs, unless they are saved.
    """
    own = {tensor for op in graph.operations for tensor in op.outputs}
    added = [op for op in backward.graph.operations if not own.issuperset(op.outputs)]
    late = _late(added, backward)
    movable = [op for op in added if late.isdisjoint(op.outputs)]
    read = {t for op in added if not late.isdisjoint(op.outputs) for t in op.inputs}
    return Cut(added, movable, _saved(graph, movable, read, lost))


def with_loops_of(graph: Graph, backward: Backward) -> Graph:
    """The forward graph with loops that collect what its backward graph needs."""
    if not backward.loops:
        return graph
    richer = {op.outputs[0]: op for op in backward.loops}
    return sweep(graph, lambda op: richer.get(op.outputs[0], op))


def _derived(graph: Graph, backward: Backward) -> Backward:
    """The backward graph with the tensors of the forward graph, by their names: it may
    be derived from another reading of this.
    """
    own, whole = graph.tensors, backward.graph
    shared = {t: own[n] for n, t in whole.tensors.items() if n in own}
    fits = all((t.dtype, t.shape) == (k.dtype, k.shape) for t, k in shared.items())
    if not fits or not {*backward.gradients, *backward.outputs} <= own.keys():
        raise UsageError(f"'{whole.name}' is not derived from this '{graph.name}'")
    return replace(
        backward,
        graph=with_tensors(whole, shared),
        loops=tuple(substitute(op, shared) for op in backward.loops),
    )


def _late(added: Sequence[Operation], backward: Backward) -> set[Tensor]:
    """The tensors that depend on gradients of outputs, and the gradients themselves."""
    tensors = backward.graph.tensors
    gradients = (*backward.seeds.values(), *backward.gradients.values())
    late = {tensors[name] for name in gradients}
    for op in added:
        reads_late = not late.isdisjoint((*op.inputs, *op.outputs))
        if reads_late or not backward.seeds or is_delay(op):
            late.update(op.outputs)
    return late


# ---- What is saved ----


def _saved(
    graph: Graph,
    movable: Sequence[Operation],
    read: Collection[Tensor],
    lost: Collection[Tensor],
) -> tuple[Tensor, ...]:
    """The tensors of the least size that what is read late can be computed from,
    besides inputs, variables and constants, which both graphs have, unless they are
    lost. Of cuts of as many bytes, the one that has the latest tensors, but for those
    that are rather made again. Of an index what it is made of is saved.
    """
    sizes: dict[Tensor, float] = {
        tensor: inf
        if _is_index(tensor) and tensor not in lost
        else nominal(byte_size(tensor))
        for op in (*graph.operations, *movable)
        for tensor in op.outputs
        if op.name not in SOURCES or tensor in lost
    }
    edges = [
        (operand, result)
        for op in (*filter(_is_free, graph.operations), *movable)
        for operand in op.inputs
        if operand in sizes
        for result in op.outputs
    ]
    costly = [t for op in graph.operations if not _is_free(op) for t in op.outputs]
    same = (op for op in graph.operations if op.name in _SAME)
    again = {tensor for op in (*movable, *same) for tensor in op.outputs}
    count = len(sizes)
    ranks = {t: count if t in again else count - i for i, t in enumerate(sizes)}
    unit = sum(ranks.values()) + 1
    ranked = {t: size * unit + ranks[t] for t, size in sizes.items()}
    cut = minimum_cut(ranked, edges, [*lost, *costly], sizes.keys() & read)
    return tuple(tensor for tensor in sizes if tensor in cut)


def _is_free(operation: Operation) -> bool:
    """Whether the results of an operation of a forward graph are computed again."""
    return operation.name in FREE or any(map(_is_index, operation.outputs))


def _is_index(tensor: Tensor) -> bool:
    """Whether the elements say where others are. No runtime has what makes use of an
    index, and it is replaced together with what makes the index.
    """
    return tensor.dtype == "integer"


# ---- The minimum cut, by augmenting paths (Ford and Fulkerson) ----
#
# A node is an edge from its entry to its exit, of its size as the capacity; an edge of the
# graph leads from an exit to an entry, and is never cut. Where no more flow passes, the
# nodes whose entry is still reached, and whose exit is not, are the cut.

N = TypeVar("N", bound=Hashable)

ENTRY, EXIT = 0, 1
End = tuple[N, int]
# How much more flow may pass from one end to another.
Residual = dict[End[N], dict[End[N], float]]


def minimum_cut(
    sizes: Mapping[N, float],
    edges: Collection[tuple[N, N]],
    sources: Collection[N],
    sinks: Collection[N],
) -> set[N]:
    """The nodes of the least total size such that each path from a source to a sink, which
    may be the same, goes through one of them; of several such cuts, the one nearest to the
    sources. Sizes are positive; infinite for a node that is not to be cut.
    """
    inner = (((node, ENTRY), (node, EXIT), size) for node, size in sizes.items())
    outer = (((one, EXIT), (other, ENTRY), inf) for one, other in edges)
    residual: Residual[N] = defaultdict(dict)
    for start, stop, capacity in chain(inner, outer):
        residual[start][stop] = capacity
        residual[stop].setdefault(start, 0)
    ends = {(sink, EXIT) for sink in sinks}
    reached: set[End[N]] = set()
    for source in sources:
        # No flow of a later source passes what an earlier one reached in vain.
        while path := _augmenting_path(residual, (source, ENTRY), ends, reached):
            amount = min(residual[start][stop] for start, stop in path)
            assert amount < inf, "a path has no node that may be cut"
            for start, stop in path:
                residual[start][stop] -= amount
                residual[stop][start] += amount
    return {n for n in sizes if (n, ENTRY) in reached and (n, EXIT) not in reached}


def _augmenting_path(
    residual: Residual[N], start: End[N], ends: set[End[N]], reached: set[End[N]]
) -> list[tuple[End[N], End[N]]]:
    """The steps of a shortest path on which more may flow, the last first; empty if
    there is none: then `reached` gets all that can be reached.
    """
    came_from = {start: start}
    queue = [start]
    for place in queue:
        if place in ends:
            steps = [(came_from[place], place)]
            while (before := steps[-1][0]) != start:
                steps.append((came_from[before], before))
            return steps
        for further, capacity in residual[place].items():
            if capacity and further not in came_from and further not in reached:
                came_from[further] = place
                queue.append(further)
    reached.update(came_from)
    return []


# ---- The graphs ----


def _forward(graph: Graph, cut: Cut) -> Graph:
    further = (tensor for tensor in cut.saved if tensor not in graph.outputs)
    notes = (f"  {graph.names[tensor]}: saved" for tensor in cut.saved)
    forward = replace(
        graph,
        outputs=(*graph.outputs, *further),
        operations=(*graph.operations, *cut.movable),
        notes=(f"'{graph.name}', with what its gradients need.", *notes),
        dialect="",
    )
    return completed(prune(forward), forward.quantization)


def backward_half(graph: Graph, backward: Backward, cut: Cut) -> Graph:
    """The operations that lead from the saved tensors to the gradients."""
    whole, saved, computed = backward.graph, cut.saved, set(cut.saved)
    every = (*graph.operations, *cut.added)
    later = (op for op in every if computed.isdisjoint(op.outputs))
    results, names = set(backward.gradients.values()), whole.names
    half = replace(
        whole,
        outputs=tuple(t for t in whole.outputs if names[t] in results),
        operations=(*map(external, saved), *later),
        notes=(*whole.notes, *(f"  {names[t]}: input, saved" for t in saved)),
    )
    half = prune(half)
    needed = {tensor for op in half.operations for tensor in op.inputs}
    needed.update(map(whole.tensors.__getitem__, backward.seeds.values()))
    needed -= computed
    inputs = (t for t in whole.inputs if t in needed)
    return completed(replace(half, inputs=(*saved, *inputs)), half.quantization)
