"""A seed and a number to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import oracle
from .draw import Draw, Value
from .graphs import SOURCES, RandomGraph
from .operations import ROWS

SIZES = (6, 10, 14, 18, 24, 40, 60)
ATTEMPTS = 40
# What is seldom met is not in every graph.
RARE = frozenset(
    [name for name in ROWS if "roi" in name or "quantize" in name]
    + ["multilinear_upsample"]
)
# What pads, and what reads padding: in some graphs they stand next to each other.
_POOLS = "box debox avg_pool rms_pool max_pool max_pool_with_index sample desample"
WINDOWS = frozenset(f"conv deconv pad copy {_POOLS}".split())
PREFERENCE = 6.0


def make_graph(seed: int, number: int) -> RandomGraph:
    """The graph that a seed and a number stand for."""
    draw = Draw(f"{seed}:{number}")
    return graph_of(draw)


def graph_of(draw: Draw, size: int | None = None) -> RandomGraph:
    """A graph of so many operations at most, or of any size."""
    for _ in range(draw.between(1, 3)):
        draw.fresh(draw.shape(3 if draw.mostly_windows else 1), source="external")
    _fill(draw, size or draw.between(5, draw.pick(SIZES)))
    if not any(value.moves for value in _made(draw)):
        draw.emit("copy", next(iter(draw.values.values())))
    outputs = _outputs(draw)
    feeds, variables = _data(draw)
    moving = frozenset(name for name, value in draw.values.items() if value.moves)
    return RandomGraph(
        name=draw.seed,
        statements=tuple(draw.statements),
        outputs=outputs,
        feeds=feeds,
        variables=variables,
        moving=moving,
        options=_options(draw, outputs),
    )


def _fill(draw: Draw, size: int) -> None:
    """Operations up to a number. Each graph has some of the operations only, so that
    those which it has meet each other more often.
    """
    names = [n for n in ROWS if oracle.knows(n)]
    left_out = frozenset() if draw.chance(0.3) else RARE
    chosen = [n for n in names if n not in left_out and draw.chance(0.5)]
    weights = [_weight(draw, name) for name in chosen]
    for _ in range(ATTEMPTS * size):
        if draw.count >= size:
            return
        (name,) = draw.random.choices(chosen, weights)
        with draw.attempt():
            ROWS[name].make(draw, name)


def _weight(draw: Draw, name: str) -> float:
    is_preferred = draw.mostly_windows and name in WINDOWS
    return ROWS[name].weight * (PREFERENCE if is_preferred else 1.0)


def _outputs(draw: Draw) -> tuple[str, ...]:
    """Most of the tensors that nothing uses, and some that are used. The last of the
    former is one in any case.
    """
    used = {name for statement in draw.statements for name in statement.inputs}
    values = _made(draw)
    sure = next(v for v in reversed(values) if v.moves)
    chosen = [v for v in values if v is sure or draw.chance(_odds(v, v.name in used))]
    return tuple(v.name for v in draw.some(chosen, len(chosen)))


def _made(draw: Draw) -> list[Value]:
    """The results of operations."""
    made = [s for s in draw.statements if s.operation not in SOURCES]
    return [draw.values[name] for statement in made for name in statement.outputs]


def _odds(value: Value, is_used: bool) -> float:
    if is_used:
        return 0.05
    return 0.9 if value.moves else 0.1


def _data(draw: Draw) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The values of the externals and of the variables."""
    here, _ = draw.worlds
    feeds, variables = {}, {}
    for statement in draw.statements:
        if statement.operation == "external":
            feeds[statement.outputs[0]] = here[statement.outputs[0]]
        if statement.operation == "variable":
            variables[statement.attributes["label"]] = here[statement.outputs[0]]
    return feeds, variables


def _options(draw: Draw, outputs: tuple[str, ...]) -> Mapping[str, Any]:
    """How the graph is differentiated: as a rule with respect to all that enters it."""
    scalars = [v.name for v in draw.values.values() if v.dtype == "scalar"]
    sources = [name for name in outputs if draw.values[name].dtype == "scalar"]
    options: dict[str, Any] = {"wrt": "all"}
    if draw.chance(0.35):
        options["wrt"] = draw.some(scalars, 1)[:4]
    if draw.chance(0.1):
        options["outputs"] = draw.some(sources, 1)
    if draw.chance(0.1):
        options["with_outputs"] = True
    return options
