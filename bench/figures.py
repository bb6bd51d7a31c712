"""The figures that explain: how compile time grows, and gradients beside their peers in
time and in memory, each with its date. `plot.py` draws the ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.comparisons import FEW, MANY
from bench.plot import COLOR, GOAL_COLOR, STYLE
from bench.report import Report
from bench.rows import Row

PEER_COLOR = "#9aa7b5"
# The stages of the compiler that are drawn, of those that were measured.
STAGES = ("read", "differentiate", "write", "lower to portable")
# The extent of the batch that is drawn.
BATCH = 8


class Pairs(NamedTuple):
    """Gradients and those of a peer on the networks of a part.

    Attributes:
        title: what is compared.
        nets: the networks.
        ours: a number for each network.
        peers: a number for each network.
        peer: what the peer is called.
    """

    title: str
    nets: list[str]
    ours: list[float]
    peers: list[float]
    peer: str


# The parts in which a gradient has a peer, and what it is called.
PEERS = {"onnx": "onnxruntime-training", "real": "torch", "khronos": "autograd"}


def times(report: Report) -> Iterator[Pairs]:
    """Milliseconds of gradients, for each peer and runtime."""
    for part, peer in PEERS.items():
        by_runtime: dict[str, list[Row]] = {}
        for row in rows_of(report, part):
            if {"backward", peer} <= row.seconds.keys():
                by_runtime.setdefault(row.runtime, []).append(row)
        for found in by_runtime.values():
            yield Pairs(
                title(report, part, found[0]),
                [row.net for row in found],
                [1000 * statistics.median(row.seconds["backward"]) for row in found],
                [1000 * statistics.median(row.seconds[peer]) for row in found],
                peer,
            )


def memories(report: Report) -> Iterator[Pairs]:
    """Mebibytes of gradients, beside those of autograd."""
    found = [r for r in rows_of(report, "khronos") if "autograd" in r.mebibytes]
    if found:
        yield Pairs(
            title(report, "khronos", found[0]),
            [row.net for row in found],
            [row.mebibytes["backward"] for row in found],
            [row.mebibytes["autograd"] for row in found],
            "autograd",
        )


def title(report: Report, part: str, row: Row) -> str:
    """Where and when a part was measured."""
    return f"{row.runtime}, {report.parts[part].date}"


def rows_of(report: Report, part: str) -> list[Row]:
    return [row for row in report.rows if row.part == part and row.batch == BATCH]


def growth(report: Report) -> Mapping[str, Sequence[float]]:
    """For each stage, the seconds for a short chain and for a long one."""
    (row,) = (r for r in report.rows if r.runtime == "long chains")
    return {
        stage: [
            count * statistics.median(row.seconds[f"{stage}, {count:,}"])
            for count in (FEW, MANY)
        ]
        for stage in STAGES
    }


# ---- Drawing ----


def draw_pairs(
    measure: Callable[[Report], Iterator[Pairs]], unit: str, report: Report, figure: Any
) -> None:
    """A panel for each peer and runtime, with two points for each network."""
    panels = list(measure(report))
    heights = [len(panel.nets) + 2 for panel in panels]
    figure.set_size_inches(6.2, 0.22 * sum(heights) + 0.5)
    places = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
    for axes, panel in zip(places[:, 0], panels, strict=True):
        rows = range(len(panel.nets))
        axes.hlines(rows, panel.ours, panel.peers, color=PEER_COLOR, linewidth=1)
        axes.plot(panel.ours, rows, "o", color=COLOR, label="nnef-grad")
        axes.plot(panel.peers, rows, "s", color=PEER_COLOR, label=panel.peer)
        axes.set_yticks(rows, panel.nets)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.set_title(f"{panel.title}: {unit}", fontsize=8)
        axes.legend(fontsize=7)
        finish(axes)


def draw_growth(report: Report, figure: Any) -> None:
    """Seconds over operations, with the line of what would grow in proportion."""
    figure.set_size_inches(6, 3.6)
    axes = figure.subplots()
    drawn = growth(report)
    for stage, mark in zip(drawn, "os^D", strict=True):
        axes.plot(
            (FEW, MANY),
            drawn[stage],
            mark + "-",
            label=stage,
            markersize=5,
            linewidth=1.2,
        )
    start = drawn["differentiate"][0]
    proportion = (start, start * MANY / FEW)
    axes.plot(
        (FEW, MANY),
        proportion,
        "--",
        color=GOAL_COLOR,
        linewidth=1,
        label="in proportion",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations of the forward graph")
    axes.set_ylabel("seconds")
    axes.set_title(
        f"Stages of the compiler, {report.parts['compiler'].date}", fontsize=8
    )
    axes.legend(fontsize=7)
    finish(axes)


def finish(axes: Any) -> None:
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


Draw = Callable[[Report, Any], None]
# Each figure by the name of its file, with the part of the benchmark that it is of.
FIGURES: dict[str, tuple[str, Draw]] = {
    "gradient-time": ("onnx", partial(draw_pairs, times, "milliseconds")),
    "gradient-memory": ("khronos", partial(draw_pairs, memories, "MiB")),
    "compile-time": ("compiler", draw_growth),
}


def draw(report: Report, folder: Path) -> None:
    """Writes the figures as SVG. It needs matplotlib."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    with mpl.rc_context(STYLE):
        for name, (part, drawn) in FIGURES.items():
            figure = plt.figure(layout="constrained")
            drawn(report, figure)
            where = report.parts[part].machine
            if drawn is not draw_growth:
                where += f"; batches of {BATCH}"
            figure.supxlabel(where, fontsize=7, color="#667788")
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
