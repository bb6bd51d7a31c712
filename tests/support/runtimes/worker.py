"""What the processes of all consumers have in common: they read the folder of a case a
line, and write an answer a line.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import nnef
import numpy as np
import numpy.typing as npt

from support.runtimes.cases import Array, Shape

READY = "ready"
_SIGNATURE = re.compile(r"^graph\s+\w+\s*\(([^)]*)\)\s*->\s*\(([^)]*)\)", re.MULTILINE)
MEMORY = 8 << 30


class Shapes(dict[str, Shape]):
    """The shapes of outputs, by name, from a consumer that computes no numbers."""


# Runs the graph in a folder on inputs by name: outputs by name.
Execute = Callable[[Path, Mapping[str, Array]], Mapping[str, Array] | Shapes]


def serve(
    execute: Execute, integer: npt.DTypeLike = np.int64, **others: Execute
) -> None:
    """Answers questions until there are no more.

    Args:
        execute: runs a graph. What it raises is a refusal.
        integer: the data type of integer tensors.
        others: run it in other settings, after that, by the names of these.
    """
    _limit_memory()
    answers = _own_answers()
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        answer = _answer(execute, folder, np.dtype(integer))
        answer["others"] = {
            setting: _answer(other, folder, np.dtype(integer), setting)
            for setting, other in others.items()
        }
        print(json.dumps(answer), file=answers, flush=True)


def signature(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the inputs and of the outputs, as the graph declares them."""
    text = (folder / "graph.nnef").read_text("utf-8")
    found = _SIGNATURE.search(text)
    if found is None:
        raise ValueError("the document has no graph")
    inputs, outputs = (re.findall(r"\w+", names) for names in found.groups())
    return inputs, outputs


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # It is not to be had everywhere.
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _own_answers() -> TextIO:
    """Where answers go. What the runtimes print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _answer(
    execute: Execute, folder: Path, integer: np.dtype[Any], setting: str = ""
) -> dict[str, Any]:
    try:
        _write_variables(folder, integer)
        outputs = execute(folder, _load(folder / "inputs.npz", integer))
    except (Exception, SystemExit) as error:
        # Where the folder is says nothing.
        message = str(error).replace(f"{folder}/", "").replace(str(folder), ".")
        return {"refused": f"{type(error).__name__}: {message}"}
    if isinstance(outputs, Shapes):
        return {"shapes": outputs}
    # By number: not every name is good for a key.
    np.savez(folder / f"outputs{setting}.npz", *outputs.values())
    return {"outputs": list(outputs)}


def _write_variables(folder: Path, integer: np.dtype[Any]) -> None:
    for label, data in _load(folder / "variables.npz", integer).items():
        path = folder / f"{label}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            nnef.write_tensor(file, data)


def _load(path: Path, integer: np.dtype[Any]) -> dict[str, Array]:
    """Arrays by name, in the data types of the consumer. The names are an array too."""
    types = {"f": np.dtype(np.float32), "i": integer, "b": np.dtype(np.bool_)}
    with np.load(path) as archive:
        names, *arrays = (archive[name] for name in archive.files)
    return {
        str(name): np.array(array, types[array.dtype.kind], order="C")
        for name, array in zip(names, arrays, strict=True)
    }
