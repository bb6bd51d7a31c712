"""docs/tables/files.csv: the files that know something of each standard operation."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import nnef_grad
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
from nnef_grad.targets.onnx import operators
from nnef_grad.targets.onnx.nodes import WRITERS
from nnef_grad.targets.registry import LOWERINGS, SUFFIX, WRITTEN
from support.tables import csv_of

COLUMNS = (
    "operation", "family", "entries", "rule", "evaluation", "lowering", "ONNX", "also named in"
)  # fmt: skip
# They name operations for a reason of their own, those of formats under other names.
ROOMS = {"ops", "emit", "autodiff", "interpreter", "targets", "training", "frontends"}
# What emits an operation, which it names first.
EMITTING = {"emit", "emit_to", "view", "call", "tract_core", "node"}

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
    known = (
        _file(SHAPES[name]),
        entries,
        rule,
        " ".join(_evaluation(name)),
        form,
        _path(operators.__name__) if name in WRITERS else "",
    )
    others = sorted(_naming()[name].difference(known))
    return (f"`{name}`", *known, " ".join(others))


@cache
def _naming() -> Mapping[str, set[str]]:
    """The files that compare an operation with a name, or list it, by the name."""
    root, files = Path(nnef_grad.__file__).parent, defaultdict[str, set[str]](set)
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root)
        for name in _names(path) if file.parts[0] in ROOMS else ():
            files[name].add(file.as_posix())
    return files


def _names(path: Path) -> Iterator[str]:
    """The operations in the strings of a module that name nothing else, or their operands, as
    "conv.filter" does, but for what it emits.
    """
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    calls = (n for n in nodes if isinstance(n, ast.Call) and _called(n) in EMITTING)
    emitted = {argument for call in calls for argument in call.args}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [word.partition(".")[0] for word in node.value.split()]
            if node not in emitted and all(name in STDLIB for name in names):
                yield from names


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "id", None) or getattr(call.func, "attr", ""))


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
    return _path(_module(function))


def _path(module: str) -> str:
    return f"{module.removeprefix('nnef_grad.').replace('.', '/')}.py"


def _module(function: Any) -> str:
    """Where a function is written, or what it calls in two steps."""
    module: str = getattr(function, "__module__", None) or type(function).__module__
    if module != "nnef_grad.interpreter.registry":
        return module
    held = inspect.getclosurevars(function).nonlocals["hold"]
    return _module(inspect.getclosurevars(held).nonlocals["function"])
