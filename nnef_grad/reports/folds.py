"""Folds: parts of a forward graph that a reader may see as one.

A fold is an interval of the order of the operations, so no cycle arises when it is
closed. Folds are the modules that operations were read from. Where no file says these, they
are found in the labels of variables, which exporters make of the names of modules
(`layer1.0.conv1.weight`, `block1/unit_1/conv1/kernel`). Where there are too many parts side
by side, there are folds between the places that the fewest tensors cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, takewhile
from typing import Union

from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.modules import Path, path_of_label

# The most parts that are drawn side by side.
WIDEST = 24
# An operation is its index in the graph.
Part = Union[int, "Fold"]


@dataclass(frozen=True)
class Fold:
    """Operations that may be drawn as one: what the module is called, empty where it has no
    name, and the operations and folds in it, in order.
    """

    name: str
    parts: tuple[Part, ...]


def folds(graph: Graph, hosts: Sequence[int]) -> Fold:
    """The whole graph as a fold; the hosts are, for each operation, the index of the one
    that it is drawn with.
    """
    drawn = [index for index, host in enumerate(hosts) if index == host]
    paths = _paths(graph, hosts, drawn)
    # Without what all of them begin with; what is known to be in no module begins with nothing.
    known = [i for i, path in paths.items() if path or graph.operations[i].module == ()]
    root = len(_common([paths[index] for index in known]))
    named = _nested([(paths[index][root:], index) for index in drawn])
    return Fold(graph.name, _narrow(named, _crossings(graph, hosts)))


def _paths(graph: Graph, hosts: Sequence[int], drawn: Sequence[int]) -> dict[int, Path]:
    """The module that each operation is in, as a path."""
    own = _modules(graph, hosts) | {
        index: module
        for index in drawn
        if (module := graph.operations[index].module) is not None
    }
    around: dict[int, Path] = {}
    makers: dict[Tensor, int] = {}
    for index in drawn:
        operation = graph.operations[index]
        origins = sorted({makers[t] for t in operation.inputs if t in makers})
        module = _module_around([around[origin] for origin in origins])
        around[index] = own[index][:-1] if index in own else module
        makers.update((t, index) for t in operation.outputs)
    paths = {index: own.get(index, around[index]) for index in drawn}
    return _without_gaps(paths, own)


def _modules(graph: Graph, hosts: Sequence[int]) -> dict[int, Path]:
    """The modules of the operations that have variables, from their labels."""
    labels: dict[int, list[Path]] = {}
    for operation, host in zip(graph.operations, hosts, strict=True):
        if operation.name == "variable":
            module = path_of_label(str(operation.attributes["label"]))
            labels.setdefault(host, []).append(module)
    return {index: _common(paths) for index, paths in labels.items()}


def _module_around(operands: Sequence[Path]) -> Path:
    """The module of an operation without variables: that of its last operand, or one
    around it that is the module of another operand.
    """
    if not operands:
        return ()
    *others, last = operands
    outer = [path for path in others if path and last[: len(path)] == path]
    return min([last, *outer], key=len)


def _without_gaps(paths: dict[int, Path], own: dict[int, Path]) -> dict[int, Path]:
    """The paths, where an operation without variables that stands in the middle of a
    module is in it: it may read from another one, as a shortcut does.
    """
    after: Path = ()
    following: dict[int, Path] = {}
    for index in reversed(paths):
        following[index] = after
        after = own.get(index, after)
    before: Path = ()
    whole = {}
    for index, path in paths.items():
        between = _common([before, following[index]])
        is_inside = index not in own and len(between) >= len(path)
        whole[index] = before = between if is_inside else path
    return whole


def _common(paths: Sequence[Path]) -> Path:
    """The common beginning of all paths."""
    pairs = zip(min(paths, default=()), max(paths, default=()), strict=False)
    return tuple(step for step, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _nested(items: Sequence[tuple[Path, int]]) -> tuple[Part, ...]:
    """Folds of the operations that follow one another in a module."""
    parts: list[Part] = []
    for step, run in groupby(items, key=lambda item: item[0][:1]):
        inside = [(path[1:], index) for path, index in run]
        parts += _fold(step[0], _nested(inside)) if step else [i for _, i in inside]
    return tuple(parts)


def _fold(name: str, parts: tuple[Part, ...]) -> list[Part]:
    """A fold with a name; of a single part it is that part."""
    if len(parts) > 1:
        return [Fold(name, parts)]
    (part,) = parts
    if isinstance(part, Fold):
        return [Fold(f"{name}/{part.name}" if part.name else name, part.parts)]
    return [part]


# ---- Where there are too many parts side by side ----


def _narrow(parts: Sequence[Part], crossings: Sequence[int]) -> tuple[Part, ...]:
    """The parts with those that follow one another put together, and all folds likewise,
    so that none has more parts than `WIDEST`.
    """
    parts = [
        Fold(part.name, _narrow(part.parts, crossings))
        if isinstance(part, Fold)
        else part
        for part in parts
    ]
    while len(parts) > WIDEST:
        parts = _grouped(parts, crossings)
    return tuple(parts)


def _grouped(parts: Sequence[Part], crossings: Sequence[int]) -> list[Part]:
    """Groups of parts that follow one another, cut where the fewest tensors cross."""
    groups: list[Part] = []
    start = 0
    while start < len(parts):
        end = len(parts)
        if end - start > WIDEST:
            ends = range(start + WIDEST // 3, start + WIDEST + 1)
            end = min(ends, key=lambda e: (crossings[_last(parts[e - 1])], -e))
        group = tuple(parts[start:end])
        groups.append(Fold("", group) if len(group) > 1 else group[0])
        start = end
    return groups


def _last(part: Part) -> int:
    """The last operation of a part."""
    return _last(part.parts[-1]) if isinstance(part, Fold) else part


def _crossings(graph: Graph, hosts: Sequence[int]) -> list[int]:
    """For each operation, how many tensors are made up to it and read after it."""
    changes = [0] * (len(graph.operations) + 1)
    last_reads = {
        t: index
        for index, operation in enumerate(graph.operations)
        for t in operation.inputs
    }
    for index, operation in enumerate(graph.operations):
        if hosts[index] == index:
            for tensor in operation.outputs:
                changes[index] += 1
                changes[last_reads.get(tensor, index)] -= 1
    return list(accumulate(changes[:-1]))
