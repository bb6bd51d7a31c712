"""The minimum cut of a graph whose nodes have sizes, by augmenting paths (Ford and
Fulkerson).

A node is an edge from its entry to its exit, of its size as the capacity; an edge of the
graph leads from an exit to an entry, and is never cut. Where no more flow passes, the
nodes whose entry is still reached, and whose exit is not, are the cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from itertools import chain
from math import inf
from typing import TypeVar

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
    """The nodes of the least total size such that each path from a source to a sink goes
    through one of them; of several such cuts, the one nearest to the sources.

    Args:
        sizes: of each node, positive; infinite for one that is not to be cut.
        edges: pairs of nodes, each from the first to the second.
        sources, sinks: nodes, which may be in the cut themselves; one may be both.

    Raises:
        AssertionError: a path has no node of finite size.
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
