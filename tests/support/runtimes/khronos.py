"""The Khronos parser, and the shapes that it infers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nnef

from support.runtimes.cases import Array
from support.runtimes.worker import Shapes, serve


def execute(folder: Path, inputs: Mapping[str, Array]) -> Shapes:
    """The shapes of the outputs."""
    graph = nnef.parse_string((folder / "graph.nnef").read_text("utf-8"))
    nnef.infer_shapes(graph)
    return Shapes(
        (name, tuple(graph.tensors[name].shape or ())) for name in graph.outputs
    )


if __name__ == "__main__":
    serve(execute)
