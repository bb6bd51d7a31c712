"""Conversion of an ONNX model to an NNEF graph: first the operations that are converted
here, then the rest by nnef_tools, then names and constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nnef_grad.errors import Problem, UnsupportedError
from nnef_grad.graph.names import NameSupply
from nnef_grad.interop.khronos import Array, Model, finite, from_nnef_tools
from nnef_grad.interop.onnx_files import converter
from nnef_grad.interop.onnx_files.folding import dtype_of
from nnef_grad.interop.onnx_files.node import Node
from nnef_grad.interop.onnx_files.operations import CONVERSIONS
from nnef_grad.interop.onnx_files.reading import DOMAINS, refuse_unknown_shapes
from nnef_grad.interop.onnx_files.refusals import translate_errors
from nnef_grad.language.library import standard

# Larger constants would make the text unreadable.
_MAX_CONSTANT = 10_000


def convert(model: Any, name: str) -> Model:
    """The graph of a model from `reading.complete`, and its data. The name of the model
    is for messages.

    Raises:
        UnsupportedError: it has operations, or settings of them, that cannot be
            converted, or shapes that are not known before it is run.
    """
    _refuse_operations(model.graph, name)
    refuse_unknown_shapes(model, name)
    (version,) = (o.version for o in model.opset_import if o.domain in DOMAINS)
    with translate_errors(f"nnef_tools cannot convert '{name}' to NNEF"):
        source = converter.read_graph(model)
        arrays = {t.name: t.data for t in source.tensors}
        named = {n: a for n, a in arrays.items() if isinstance(a, np.ndarray)}
        _convert_operations(source, version, name)
        made = converter.convert_rest(source)
        _make_constants(made, named)
        _name_variables(made, named)
        _make_names_valid(made)
        graph, data = from_nnef_tools(made, fragments=_fragments(made))
    scalars = (i for i in model.graph.initializer if dtype_of(i).kind == "f")
    numbers = (
        Problem(f"'{scalar.name}' is a number of the graph, and has no gradient")
        for scalar in scalars
        if not scalar.dims
    )
    return Model(replace(graph, warnings=(*graph.warnings, *numbers)), data)


def _refuse_operations(graph: Any, name: str) -> None:
    kinds = dict.fromkeys(node.op_type for node in graph.node)
    known = CONVERSIONS.keys() | converter.KNOWN
    missing = ", ".join(f"'{kind}'" for kind in kinds if kind not in known)
    if missing:
        what = f"nnef_tools cannot convert '{name}' to NNEF"
        message = f"{what}: it does not have the ONNX operations {missing}"
        raise UnsupportedError(message)


def _convert_operations(graph: Any, version: int, name: str) -> None:
    """Converts in place the operations that have a function here. Each operation is
    moved from the front to the end, where new ones are added, so that their order is
    kept.
    """
    problems = []
    for operation in graph.operations[:]:
        if operation.type not in CONVERSIONS:
            graph.move_operation(0, len(graph.operations) - 1)
            continue
        node = Node(operation, version)
        node.convert()
        if node.refusals:
            problems.append(_about_refusals(node, name))
        graph.remove_operation(operation, unlink=True)
    if problems:
        raise UnsupportedError.collect(problems)


def _about_refusals(node: Node, name: str) -> Problem:
    what, why = node.operation, ", ".join(node.refusals)
    sides = (what.inputs, what.outputs)
    operands, results = ([list(t.shape) for t in side if t.name] for side in sides)
    return Problem(
        f"cannot convert '{name}' to NNEF: '{node.kind}' is not possible: {why};"
        f" attributes: {what.attribs}; operands: {operands}; results: {results}"
    )


def _make_constants(graph: Any, named: Mapping[str, Array]) -> None:
    """Turns variables made by nnef_tools into constants: integers, truth values, and
    arrays of one value that are not initializers of the file. They are not trained, and
    not all runtimes have integer variables.
    """
    for operation in _variables(graph):
        array = operation.output.data
        if array is None or array.size == 0:
            continue
        is_uniform = not _name(array, named) and bool((array == array.flat[0]).all())
        if is_uniform or (array.dtype.kind != "f" and array.size <= _MAX_CONSTANT):
            operation.type = "constant"
            del operation.attribs["label"]
            values = array.reshape(-1)[: 1 if is_uniform else None].tolist()
            operation.attribs["value"] = list(map(finite, values))


def _name_variables(graph: Any, named: Mapping[str, Array]) -> None:
    """Gives variables the names of their data in the file. The labels are those names,
    in characters that file names allow.
    """
    labels = NameSupply()
    for operation in _variables(graph):
        name = _name(operation.output.data, named)
        if name:
            operation.output.name = name
            operation.attribs["label"] = _label(name)
        # Labels that differ in case only would be the same file.
        label = operation.attribs["label"]
        suffix = labels.fresh(label.lower())[len(label) :]
        operation.attribs["label"] = f"{label}{suffix}"


def _variables(graph: Any) -> Iterator[Any]:
    return (op for op in graph.operations if op.type == "variable")


def _name(array: Array, named: Mapping[str, Array]) -> str:
    """The name of the data in the file, if any."""
    return next((n for n, data in named.items() if np.shares_memory(array, data)), "")


def _label(name: str) -> str:
    """A valid label: a path inside the folder of a model."""
    steps = re.sub(r"[^\w./-]+", "_", name, flags=re.ASCII).split("/")
    return "/".join(step for step in steps if step.strip(".")) or "variable"


def _make_names_valid(graph: Any) -> None:
    """Renames tensors to valid NNEF names: letters, digits and underscores."""
    supply = NameSupply()
    for tensor in graph.tensors:
        if tensor.name is not None:
            name = re.sub(r"\W+", "_", tensor.name, flags=re.ASCII)
            tensor.name = supply.fresh(f"_{name}" if name[:1].isdigit() else name)


def _fragments(graph: Any) -> str:
    """The fragments that a graph uses, if it uses any."""
    used = {op.type for op in graph.operations}.difference(standard())
    theirs = converter.fragments()
    found = [text for name, text in theirs.items() if name in used]
    ours = (Path(__file__).parent / "fragments.nnef").read_text("utf-8")
    return "".join([ours, *found]) if used else ""
