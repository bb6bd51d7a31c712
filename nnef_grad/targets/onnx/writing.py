"""Graphs to ONNX files."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from nnef_grad.autodiff.backward import Backward
from nnef_grad.base.arrays import Data
from nnef_grad.base.choices import Target
from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.verifier import verify
from nnef_grad.frontends.onnx.entry import require_onnx
from nnef_grad.frontends.onnx.model import InFile
from nnef_grad.graph.ir import Graph
from nnef_grad.language.labels import label_key
from nnef_grad.storage.files import PathLike, refuse_existing, writing
from nnef_grad.storage.output import ONNX_TARGETS
from nnef_grad.targets import lower
from nnef_grad.targets.tensors import DTYPES


@public
def to_onnx(
    graph: Graph | Backward,
    path: PathLike,
    data: Data | None = None,
    *,
    overwrite: bool = False,
    in_file: InFile | None = None,
    target: Target = "onnx",
) -> None:
    """Writes a graph to an ONNX file, lowered for a target. Writing is atomic.

    Symbols become named dimensions, loops become Scan. Data beyond 2 GB are in a second
    file, whose name ends in `.onnx.data`. The metadata of a backward graph,
    `nnef_grad.gradients` and `nnef_grad.seeds`, name the gradient of each tensor and
    the seed of each output. The doc string of a node names the operation that it
    differentiates.

    Needs the package `onnx`.

    Args:
        graph: the graph, or a backward graph.
        path: the file.
        data: the data of its variables, by label.
        overwrite: whether to replace an existing file.
        in_file: how tensors appear in an original file, from `from_onnx`: their names, and
            the types and shapes of inputs, outputs, initializers and gradients.
        target: "onnx" for what is fastest in ONNX Runtime, or "onnx-portable" for what any
            engine computes right.

    Raises:
        UnsupportedError: ONNX does not have an operation.
        UsageError: the data of a variable are missing or do not fit, or the file exists
            and must not be replaced.
    """
    metadata: dict[str, Any] = {}
    if isinstance(graph, Backward):
        metadata = {"gradients": graph.gradients, "seeds": graph.seeds}
        in_file = _with_shapes(in_file or InFile(), graph)
        graph = graph.graph
    settings: dict[str, Any] = {"in_file": in_file, "target": target}
    write(graph, path, data or {}, overwrite=overwrite, **settings, **metadata)


def write(
    graph: Graph,
    path: PathLike,
    data: Data,
    *,
    overwrite: bool,
    defaults: Data | None = None,
    trained: Iterable[str] = (),
    in_file: InFile | None = None,
    target: Target = "onnx",
    is_portable: bool = False,
    **metadata: Mapping[str, str],
) -> None:
    """Writes a graph, lowered for a target; see `to_onnx`. `defaults` are the values of
    inputs that need not be fed, `metadata` what tensors are to each other, by name. What is
    portable may be read by other engines than ONNX Runtime: what a loop sees is carried as its
    state (see `Nodes`), reductions keep no axes, and square matrices are separated.
    """
    require_onnx()
    from nnef_grad.targets.onnx import operators as _operators  # noqa: F401
    from nnef_grad.targets.onnx.nodes import Nodes
    from nnef_grad.targets.onnx.precision import in_double
    from nnef_grad.targets.onnx.squares import with_separated
    from nnef_grad.targets.onnx.storage import store

    place = Path(path)
    with writing(path):
        refuse_existing(place, overwrite=overwrite)
    if target not in ONNX_TARGETS:
        names = " or ".join(f"'{name}'" for name in ONNX_TARGETS)
        raise UsageError(f"the target of an ONNX file is {names}, and not '{target}'")
    lowered = lower(graph, target)
    verify(lowered.graph)
    arrays = {label_key(label): array for label, array in data.items()} | lowered.data
    labels = lowered.graph.labels.values()
    missing = ", ".join(
        f"'{label}'" for label in labels if label_key(label) not in arrays
    )
    if missing:
        message = f"there are no data for the variables with the labels {missing}"
        raise UsageError(message)
    appearance = _with_gradients(
        in_file or InFile(), metadata, {*trained, *(defaults or ())}
    )
    whole = in_double(lowered.graph)
    is_portable = is_portable or target == "onnx-portable"
    nodes = Nodes(whole, arrays, appearance, is_portable=is_portable)
    tensors = whole.tensors
    for name, value in (defaults or {}).items():
        tensor = tensors[name]
        nodes.put(tensor, value, f"the input '{name}'", DTYPES[tensor.dtype])
    model, kept = nodes.model(whole, metadata), dict(nodes.arrays)
    if is_portable:
        kept = with_separated(model, kept)
    store(model, kept, place, overwrite)


def _with_gradients(
    own: InFile, metadata: Mapping[str, Mapping[str, str]], trained: Container[str]
) -> InFile:
    """How tensors appear, and those that are called after them, such as gradients. What is
    trained stays in single precision: a step moves it by less than half precision tells
    apart.
    """
    names, shapes = dict(own.names), dict(own.shapes)
    types = {name: kind for name, kind in own.types.items() if name not in trained}
    for what, related in metadata.items():
        for name, other in related.items():
            if (called := own.after(name, other)) != other:
                names[other] = called
            if name in own.shapes and what != "gradients":
                shapes[other] = own.shapes[name]
            if name in types:
                types[other] = types[name]
    return own._replace(names=names, shapes=shapes, types=types)


def _with_shapes(own: InFile, backward: Backward) -> InFile:
    """How tensors appear, and their gradients."""
    found = own.shapes_of_gradients(backward)
    shapes = {backward.gradients[name]: shape for name, shape in found.items()}
    return own._replace(shapes={**own.shapes, **shapes})
