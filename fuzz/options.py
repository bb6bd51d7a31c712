"""Random options of the library, and of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.budget import MEMORY_OF_A_CHECK
from fuzz.documents import NAMES, Scope, operations

# ---- Of the library ----


def library_options(rng: Random) -> dict[str, Any]:
    """Random options, mostly none."""
    if rng.random() < 0.6:
        return {}
    names = list(_OPTIONS)
    return {n: _OPTIONS[n](rng) for n in rng.sample(names, rng.choice([1, 1, 2, 3]))}


def _some_names(rng: Random) -> list[str]:
    known = [*NAMES, *Scope().tensors, "y0", "y1", "", "é", "x,w", "weight", "image"]
    return [rng.choice(known) for _ in range(rng.choice([0, 1, 1, 2, 5]))]


def _some_shapes(rng: Random) -> dict[str, list[int]]:
    extents = [1, 2, 2, 3, 4, 4, 0, -1, 2**31, 10**30]
    shape = [rng.choice(extents) for _ in range(rng.choice([0, 2, 4, 4, 4, 9]))]
    return {rng.choice(["x", "image", "w", ""]): shape}


_OPTIONS: dict[str, Callable[[Random], Any]] = {
    "wrt": lambda rng: (
        rng.choice(["all", "inputs", "variables", "x", "odd"])
        if rng.random() < 0.5
        else _some_names(rng)
    ),
    "outputs": _some_names,
    "seed": lambda rng: rng.choice(["ones", "ones", "input", "zeros"]),
    "with_outputs": lambda rng: rng.random() < 0.8,
    "input_shapes": _some_shapes,
    "batch": lambda rng: rng.choice([1, 2, 3, 0, -1, 2**31, 10**30]),
    "lenient": lambda _: True,
}


# ---- Of the command line ----

_ODD_NAMES = [
    "",
    "é",
    "\udcff",
    "x,w",
    ",",
    "nothing",
    "all",
    "inputs",
    "variables",
    " y",
]
_TARGETS = ["nnef", "khronos", "tract", "onnx", "portable"]


def names_of(document: str) -> list[str]:
    """The names that a document defines, or so."""
    return re.findall(r"(\w+)\s*=", document) or ["x"]


def _names(rng: Random, names: list[str]) -> str:
    """One or more names of a document, rarely others."""
    count = rng.choice([1, 1, 1, 2, 3])
    known = _ODD_NAMES if rng.random() < 0.15 else names
    return ",".join(rng.choice(known) for _ in range(count))


def _shape(rng: Random, names: list[str]) -> str:
    extents = [
        "1",
        "2",
        "3",
        "4",
        "0",
        "-1",
        str(2**31),
        "9" * 5000,
        "",
        "a",
        " 2",
        "1_0",
    ]
    weights = [9, 9, 9, 9, 1, 1, 1, 0.1, 1, 1, 1, 1]
    shape = ",".join(rng.choices(extents, weights, k=rng.choice([0, 1, 2, 2, 4, 9])))
    return (
        f"{rng.choice([_names(rng, names), 'x', 'x', 'x'])}{rng.choice('==== ')}{shape}"
    )


Argument = Callable[[Random, list[str]], list[str]]

_ARGUMENTS: dict[str, Argument] = {
    "wrt": lambda rng, names: [
        "--wrt",
        _names(rng, rng.choice([names, ["all", "inputs", "variables"]])),
    ],
    "outputs": lambda rng, names: ["--outputs", _names(rng, [*names, "y", "y"])],
    "stop": lambda rng, names: ["--stop", _names(rng, names)],
    "jacobian": lambda _, __: ["--jacobian"],
    "seed": lambda rng, _: ["--seed", rng.choice(["ones", "ones", "input", "twos"])],
    "with outputs": lambda _, __: ["--with-outputs"],
    "per example": lambda _, __: ["--per-example"],
    "example axis": lambda rng, names: [
        "--example-axis",
        f"{_names(rng, names)}={rng.choice(['0', '1', '7', '-1', 'shared', 'a', ''])}",
    ],
    "input shape": lambda rng, names: ["--input-shape", _shape(rng, names)],
    "batch": lambda rng, _: [
        "--batch",
        rng.choice(["1", "2", "3", "7", "0", "-1", "a", str(2**31), "9" * 5000]),
    ],
    "rules": lambda rng, _: [
        "--rules",
        rng.choice(["model.nnef", "missing", ".", "/dev/null", "secret.dat"]),
    ],
    "expand": lambda rng, names: [
        "--expand",
        _names(rng, rng.choice([operations(), operations(), names])),
    ],
    "gelu": lambda _, __: ["--gelu", "sigmoid"],
    "lenient": lambda _, __: ["--lenient"],
    "target": lambda rng, _: ["--target", rng.choice([*_TARGETS, "nothing"])],
    "stats": lambda rng, _: rng.choice([["--stats"], ["--stats", "full"]]),
    "format": lambda _, __: ["--format", "json"],
    "quiet": lambda _, __: ["-q"],
}


def _some(
    rng: Random, table: dict[str, Argument], document: str, counts: list[int]
) -> list[list[str]]:
    names = names_of(document)
    chosen = rng.sample(list(table), rng.choice(counts))
    return [table[name](rng, names) for name in chosen]


def command_options(rng: Random, document: str) -> list[list[str]]:
    """Random options, with names of the document or nonsense."""
    found = _some(rng, _ARGUMENTS, document, [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 5])
    return found + [["--force"]] * (rng.random() < 0.4)


_MODEST: dict[str, Argument] = {
    **{n: _ARGUMENTS[n] for n in ("wrt", "outputs", "stop", "jacobian", "seed")},
    **{n: _ARGUMENTS[n] for n in ("with outputs", "target", "expand", "format")},
    "batch": lambda rng, _: ["--batch", rng.choice(["1", "2", "3"])],
    "input shape": lambda rng, _: [
        "--input-shape",
        rng.choice(["x=4,3", "x=2,3", "x=3"]),
    ],
    "check seed": lambda rng, _: [
        "--check-seed",
        rng.choice(["1", "7", "-1", "9" * 30]),
    ],
}


def check_options(rng: Random, document: str) -> list[list[str]]:
    """--check within the memory of budget.py, of which the estimate may be half, and
    options that do not make the graph large.
    """
    gib = str(MEMORY_OF_A_CHECK / 2**31)
    return [
        ["--check"],
        ["--check-memory", gib],
        *_some(rng, _MODEST, document, [0, 1, 1, 2, 3]),
    ]
