"""The speed of graphs as a figure: a panel for each comparison that has a goal."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.comparisons import Outcome, outcomes
from bench.report import Report

COLUMNS = 2
INCHES = (3.85, 0.22)  # the width of a panel, the height of a network in it
MARKS = ("o", "s", "^", "D")  # for extents of the batch
COLOR, GOAL_COLOR = "#1f5fa8", "#c0392b"
TICKS = (0.1, 0.3, 1, 3, 10, 30)
# Text remains text, and the same figures make the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "nnef-grad", "font.size": 8}

Panels = Mapping[str, Sequence[Outcome]]


def panels(report: Report) -> Panels:
    """The ratios with a goal, by the title of their panel. The compiler has tables only."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes(report.rows):
        comparison = outcome.comparison
        if comparison.goal is not None and comparison.part != "compiler":
            title = (
                f"{comparison.name}, goal {comparison.goal}\nin {outcome.row.runtime}"
            )
            found.setdefault(title, []).append(outcome)
    return found


def draw(report: Report, path: Path) -> None:
    """Writes the figure as SVG. It needs matplotlib."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    drawn = panels(report)
    rows = -(-len(drawn) // COLUMNS)
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        counts = [len({r.row.net for r in panel}) for panel in drawn.values()]
        tallest = (max(counts[i : i + COLUMNS]) for i in range(0, len(counts), COLUMNS))
        heights = [INCHES[1] * count + 1 for count in tallest]
        figure, axes = plt.subplots(
            rows,
            COLUMNS,
            figsize=(COLUMNS * INCHES[0], sum(heights)),
            squeeze=False,
            height_ratios=heights,
            layout="constrained",
        )
        for place, (title, panel) in zip(axes.flat, drawn.items(), strict=False):
            draw_panel(place, title, panel)
        for place in axes.flat[len(drawn) :]:
            place.axis("off")
        names, marks = axes[0, 0].get_legend_handles_labels()[::-1]
        figure.legend(marks, names, loc="outside upper center", ncols=len(names))
        figure.savefig(path, format="svg", metadata={"Date": None})
        plt.close(figure)


def draw_panel(axes: Any, title: str, panel: Sequence[Outcome]) -> None:
    nets = list(dict.fromkeys(outcome.row.net for outcome in panel))
    goal = panel[0].comparison.goal
    axes.axvline(goal, color=GOAL_COLOR, linewidth=1, label="goal")
    batches = sorted({outcome.row.batch for outcome in panel})
    for mark, batch in zip(MARKS, batches, strict=False):
        shown = [r for r in panel if r.row.batch == batch]
        axes.plot(
            [outcome.median for outcome in shown],
            [nets.index(outcome.row.net) for outcome in shown],
            *(mark,),
            color=COLOR,
            markersize=5,
            markerfacecolor=COLOR if batch > 1 else "white",
            label=f"batch {batch}",
        )
    axes.set_title(title, fontsize=8, loc="right")
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axes.set_xticks([], minor=True)
    axes.set_xlim(TICKS[0], TICKS[-1])
    axes.set_yticks(range(len(nets)), nets)
    axes.set_ylim(len(nets) - 0.5, -0.5)
    axes.grid(axis="x", color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
