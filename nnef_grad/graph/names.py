"""Fresh names: they never collide, and names that the user chose are never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from nnef_grad.base.errors import suggestion
from nnef_grad.graph.ir import Graph
from nnef_grad.language.identifiers import is_plain, plain_name
from nnef_grad.language.syntax import KEYWORDS


class NameSupply:
    """Generates unique names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {*KEYWORDS, *taken}
        self._next: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """The wished name, with the first free numeric suffix if it is taken."""
        name = wish
        if name in self.taken:
            number = self._next.get(wish, 1)
            while (name := f"{wish}_{number}") in self.taken:
                number += 1
            self._next[wish] = number + 1
        self.taken.add(name)
        return name


def with_suffix(name: str) -> Callable[[str], str]:
    """Names that end in one, which may be any text."""
    return lambda word: f"{word}_{name}"


def with_prefix(name: str) -> Callable[[str], str]:
    """Names that begin with one."""
    return lambda word: f"{name}_{word}"


def advice_on(graph: Graph, name: str, known: Sequence[str]) -> str:
    """Advice about an unknown name: labels and names are mixed up easily."""
    for tensor, label in graph.labels.items():
        if label == name:
            return f": this is a label, and the tensor is called '{tensor}'"
    return suggestion(name, known)


def with_names(
    graph: Graph, wishes: Mapping[str, str], reserved: Iterable[str] = ()
) -> Graph:
    """The graph with fresh names for some tensors: the wished ones by the old ones."""
    others = (name for name in graph.names.values() if name not in wishes)
    supply = NameSupply((*reserved, *others))
    names = {name: supply.fresh(wish) for name, wish in wishes.items()}
    return replace(
        graph,
        names={tensor: names.get(name, name) for tensor, name in graph.names.items()},
        quantization={
            names.get(name, name): replace(q, tensor=names.get(name, name))
            for name, q in graph.quantization.items()
        },
        datum_types={
            names.get(name, name): dtype for name, dtype in graph.datum_types.items()
        },
    )


def with_told_names(graph: Graph, wishes: Mapping[str, str]) -> Graph:
    """As `with_names`, with a note for each input and output that has another name."""
    if not wishes:
        return graph
    renamed = with_names(graph, wishes)
    ends = dict.fromkeys((*graph.inputs, *graph.outputs))
    pairs = [(graph.names[t], renamed.names[t]) for t in ends]
    notes = (
        f"  {new}: what '{old}' is called here" for old, new in pairs if old in wishes
    )
    return replace(renamed, notes=(*graph.notes, *notes))


def with_plain_names(graph: Graph) -> Graph:
    """The graph with names that the standard can spell."""
    odd = {name: plain_name(name) for name in graph.tensors if not is_plain(name)}
    named = with_told_names(graph, odd)
    return (
        named if is_plain(graph.name) else replace(named, name=plain_name(graph.name))
    )
