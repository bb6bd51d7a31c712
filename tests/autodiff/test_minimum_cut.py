"""The minimum cut, next to all cuts of small graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, combinations
from math import inf
from random import Random

import pytest

from nnef_grad.autodiff.split import minimum_cut

Edges = Collection[tuple[int, int]]


def is_cut(
    nodes: Collection[int], edges: Edges, sources: Collection[int], sinks: set[int]
) -> bool:
    """Whether no path leads from a source to a sink around some nodes."""
    reached = [source for source in sources if source not in nodes]
    for node in reached:
        reached += [b for a, b in edges if a == node and b not in {*nodes, *reached}]
    return sinks.isdisjoint(reached)


def subsets(nodes: Collection[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(nodes, n) for n in range(len(nodes) + 1))


@pytest.mark.parametrize("seed", range(200))
def test_next_to_all_cuts(seed: int) -> None:
    random = Random(seed)
    nodes = range(7)
    sizes: dict[int, float] = {node: random.randint(1, 5) for node in nodes}
    edges = [(a, b) for a in nodes for b in range(a + 1, 7) if random.random() < 0.4]
    sources, sinks = random.sample(nodes, 2), set(random.sample(nodes, 2))
    for node in {*nodes} - {*sources, *sinks}:
        sizes[node] = random.choice([sizes[node], inf])
    found = minimum_cut(sizes, edges, sources, sinks)
    assert is_cut(found, edges, sources, sinks)
    cuts = [cut for cut in subsets(nodes) if is_cut(cut, edges, sources, sinks)]
    least = min(sum(sizes[node] for node in cut) for cut in cuts)
    assert sum(sizes[node] for node in found) == least


def test_of_several_the_nearest_to_the_sources() -> None:
    sizes = dict.fromkeys("abcd", 3.0)
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    assert minimum_cut(sizes, edges, ["a"], ["d"]) == {"a"}
    assert minimum_cut({**sizes, "a": 4.0}, edges, ["a"], ["d"]) == {"b"}


def test_a_path_that_cannot_be_cut() -> None:
    with pytest.raises(AssertionError, match="no node that may be cut"):
        minimum_cut({"a": inf, "b": inf}, [("a", "b")], ["a"], ["b"])


def test_without_paths() -> None:
    assert minimum_cut({"a": 1, "b": 1}, [("a", "b")], ["b"], ["a"]) == set()
    assert minimum_cut({"a": 1}, [], ["a"], []) == set()
