"""Lowered graphs with operations of registries, as the readers of their dialects read them
again: as graphs of standard operations, which can be evaluated and differentiated.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import nnef_grad
from nnef_grad import Graph
from nnef_grad.targets import Lowered


def reread(lowered: Lowered, variables: Mapping[str, Any] | None = None) -> Graph:
    """The graph itself, if it is standard.

    Args:
        lowered: a lowered graph.
        variables: the data of its variables, by label; zeros, if not given.
    """
    graph = lowered.graph
    if not any(fragment.registry for fragment in graph.fragments):
        return graph
    labels = {
        op.attributes["label"]: op for op in graph.operations if op.name == "variable"
    }
    zeros = {label: np.zeros(op.outputs[0].shape) for label, op in labels.items()}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        data = {**zeros, **(variables or {}), **lowered.data}
        nnef_grad.save(graph, path, data={label: data[label] for label in labels})
        return nnef_grad.load(path)
