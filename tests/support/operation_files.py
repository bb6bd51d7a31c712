"""docs/tables/files.csv: the files that know something of each standard operation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from nnef_grad.autodiff.rules import DERIVATIVES
from nnef_grad.autodiff.rules import SUFFIX as VJP
from nnef_grad.interpreter.registry import EVALUATIONS
from nnef_grad.language.library import STDLIB
from nnef_grad.ops import DECOMPOSITIONS, RULES, SHAPES
from nnef_grad.ops.batching import BATCHING
from nnef_grad.ops.costs import COSTS
from nnef_grad.ops.examples import PLACES, REPEATED
from nnef_grad.ops.linear import LINEAR
from nnef_grad.ops.ranges import RANGES
from nnef_grad.targets.registry import LOWERINGS, SUFFIX, WRITTEN
from support.tables import csv_of

COLUMNS = ("operation", "family", "entries", "rule", "evaluation", "other form")

# What a family enters of an operation, besides its shape.
TABLES: dict[str, dict[str, Any]] = {
    "vjp": RULES,
    "decomposition": DECOMPOSITIONS,
    "batching_rule": BATCHING,
    "place_rule": PLACES,
    "repeated_rule": REPEATED,
    "linearity_rule": LINEAR,
    "range_rule": RANGES,
    "cost_rule": COSTS,
}


def table() -> str:
    """A row for each operation."""
    return csv_of(COLUMNS, map(row, STDLIB))


def row(name: str) -> tuple[str, ...]:
    """The files that know an operation, and which tables of its family have it."""
    entries = " ".join(kind for kind, entered in TABLES.items() if name in entered)
    rule = "derivatives.nnef" if name + VJP in DERIVATIVES else ""
    own = LOWERINGS.get(name)
    form = _file(own.build) if own is not None else ""
    if not form and name + SUFFIX in WRITTEN:
        form = "targets/lowerings.nnef"
    return (
        f"`{name}`",
        _file(SHAPES[name]),
        entries,
        rule,
        " ".join(_evaluation(name)),
        form,
    )


def _evaluation(name: str) -> Iterator[str]:
    evaluation = EVALUATIONS.get(name)
    if evaluation is None:
        yield "its body"
    # Functions of numpy are entered for what is done element by element.
    elif _module(evaluation).startswith("numpy"):
        yield "interpreter/elementwise.py"
    else:
        yield _file(evaluation)


def _file(function: Any) -> str:
    return f"{_module(function).removeprefix('nnef_grad.').replace('.', '/')}.py"


def _module(function: Any) -> str:
    """Where a function is written, or what it calls in two steps."""
    module: str = getattr(function, "__module__", None) or type(function).__module__
    if module != "nnef_grad.interpreter.registry":
        return module
    held = inspect.getclosurevars(function).nonlocals["hold"]
    return _module(inspect.getclosurevars(held).nonlocals["function"])
