"""Draws the memory of gradients that compute the forward pass again, and of those that
save what they need of it:

    python -m bench.recomputation

Nothing is measured: which tensors are alive follows from the order of the operations, as
`--stats` says it.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import nnef_grad
from bench.figures import BATCH, PEER_COLOR, finish
from bench.nets import NETS
from bench.plot import COLOR, STYLE
from nnef_grad import Graph, Split
from nnef_grad.ops.costs import byte_size, memory_alive, memory_held, multiply_adds

FIGURE = Path(__file__).parents[1] / "docs" / "plots" / "recomputation.svg"
DRAWN = ("alexnet", "vgg", "resnet", "transformer")


class Pass(NamedTuple):
    """The graphs of a gradient, which run one after the other.

    Attributes:
        alive: bytes of the activations that are alive while each operation runs.
        start: the index of the first operation of the second graph.
        multiply_adds: of all operations.
    """

    alive: list[int]
    start: int
    multiply_adds: int


def computed_again(graph: Graph, backward: Graph) -> Pass:
    """The forward graph, of which nothing stays, then the backward graph."""
    first = alive(graph)
    return Pass([*first, *alive(backward)], len(first), cost(graph) + cost(backward))


def saved(halves: Split) -> Pass:
    """The first half, then the second, which drops what was saved after its last use."""
    first, second = halves.forward, halves.backward
    kept = [x for x in second.inputs if second.names[x] in halves.saved]
    still_held = memory_held(second, byte_size, kept)
    held = [a + b for a, b in zip(alive(second), still_held, strict=True)]
    begun = alive(first)
    return Pass([*begun, *held], len(begun), cost(first) + cost(second))


def alive(graph: Graph) -> list[int]:
    return memory_alive(graph, byte_size, kept=graph.outputs)


def cost(graph: Graph) -> int:
    return sum(map(multiply_adds, graph.operations))


def passes(name: str) -> dict[str, Pass]:
    """Both ways to the gradients of a network, by what the figure calls them."""
    graph = NETS[name](BATCH)
    backward = nnef_grad.differentiate(graph)
    return {
        "computed again": computed_again(graph, backward.graph),
        "saved": saved(nnef_grad.split(graph, backward)),
    }


def main() -> None:
    """Writes the figure as SVG. It needs matplotlib, and the networks of Khronos."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        figure = plt.figure(layout="constrained", figsize=(6.2, 4.6))
        for name, axes in zip(DRAWN, figure.subplots(2, 2).flat, strict=True):
            draw(name, axes)
        figure.supxlabel("operations, in the order in which they run", fontsize=8)
        figure.supylabel(f"MiB of activations, batches of {BATCH}", fontsize=8)
        figure.suptitle(
            f"What a gradient needs of the forward pass, {date.today()}", fontsize=8
        )
        figure.savefig(FIGURE, metadata={"Date": None})


def label(way: str, found: Pass) -> str:
    return f"{way}: {found.multiply_adds / 1e9:.3g} G multiply-adds"


def draw(name: str, axes: Any) -> None:
    """A panel: the memory over the operations, with what it costs."""
    ways = passes(name)
    for (way, found), color in zip(ways.items(), (COLOR, PEER_COLOR), strict=True):
        mebibytes = [n / 2**20 for n in found.alive]
        axes.plot(mebibytes, color=color, label=label(way, found), linewidth=1)
        axes.axvline(found.start, color=color, linestyle=":", linewidth=1)
    axes.set_title(name, fontsize=8)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.35)
    axes.legend(fontsize=7, loc="upper left")
    finish(axes)


if __name__ == "__main__":
    main()
