"""Paths of modules: of PyTorch, or what an exporter calls by their names.

They are for a reader of the graph, who sees the operations of a module as one, and decide
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

# The most modules in one another: a label may have any number of slashes.
DEEPEST = 20

Path = tuple[str, ...]


def path_of(module: str) -> Path:
    """The path of a module, `layer1.0.conv1` or `block1/unit_1/conv1`. One that has a
    number for its name is called after the one around it as well: layer1.0.
    """
    steps = [step for step in re.split(r"[/.]", module) if step]
    pairs = zip(["", *steps], steps, strict=False)
    path = (f"{outer}.{s}" if s.isdigit() and outer else s for outer, s in pairs)
    return tuple(islice(path, DEEPEST))


def path_of_label(label: str) -> Path:
    """The path of the module that a variable with this label belongs to."""
    *steps, _ = re.split(r"[/.]", label)
    return path_of(".".join(steps))


def path_of_node(name: str) -> Path | None:
    """The path of the module of an operation, if an exporter of ONNX files has written it
    into the name, as in `/layer1/layer1.0/conv1/Conv`.
    """
    return path_of_scopes(name.split("/")[1:-1]) if name.startswith("/") else None


def path_of_scopes(scopes: Sequence[str]) -> Path:
    """The path of a module, from the scopes around an operation: an exporter writes one
    that is in a list with its name, as in `layer1/layer1.0/conv1`.
    """
    steps: list[str] = []
    for scope in filter(None, scopes):
        if steps and scope.startswith(f"{steps[-1]}."):
            steps.pop()
        steps.append(scope)
    return path_of(".".join(steps))
