"""Conversion of an ONNX model to an NNEF graph: first the operations that are converted
here, then the rest by nnef_tools, then names and constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnef_grad.errors import Problem, UnsupportedError
from nnef_grad.graph.names import NameSupply
from nnef_grad.interop.khronos import Array, Model, finite, from_nnef_tools
from nnef_grad.interop.onnx_files import converter
from nnef_grad.interop.onnx_files.casts import cast_integers
from nnef_grad.interop.onnx_files.folding import DOMAINS, FOLDED
from nnef_grad.interop.onnx_files.node import Node
from nnef_grad.interop.onnx_files.operations import CONVERSIONS
from nnef_grad.interop.onnx_files.parameters import warnings
from nnef_grad.interop.onnx_files.reading import refuse_unknown_shapes
from nnef_grad.interop.onnx_files.refusals import translate_errors
from nnef_grad.language.library import Library, extras, standard, with_fragments
from nnef_grad.language.parser import parse_fragments
from nnef_grad.source import Source

# Operations that NNEF cannot say, as it has fixed shapes.
_OF_VALUES = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}

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
        folded = [op.attribs["value"] for op in source.operations if op.name == FOLDED]
        _convert_operations(source, version, name)
        made = converter.convert_rest(source)
        cast_integers(made, _library())
        _name_variables(made, named, folded)
        _make_finite(made)
        _make_names_valid(made)
        graph, data = from_nnef_tools(made, fragments=_fragments(made))
    found = (*graph.warnings, *warnings(model.graph))
    return Model(replace(graph, warnings=found), data)


def _refuse_operations(graph: Any, name: str) -> None:
    kinds = dict.fromkeys(node.op_type for node in graph.node)
    known = CONVERSIONS.keys() | converter.KNOWN
    missing = ", ".join(f"'{kind}'" for kind in kinds if kind not in known)
    if missing:
        what = f"nnef_tools cannot convert '{name}' to NNEF"
        message = f"{what}: it does not have the ONNX operations {missing}"
        raise UnsupportedError(message + _advice(graph, kinds))


def _advice(graph: Any, kinds: Iterable[str]) -> str:
    """What to write instead of operations whose results have shapes that depend on
    values.
    """
    if not _OF_VALUES.intersection(kinds):
        return ""
    nodes = (n.name or n.op_type for n in graph.node if n.op_type in _OF_VALUES)
    named = ", ".join(f"'{node}'" for node in nodes)
    instead = "multiply by a mask, or choose with torch.where or torch.topk"
    return f"; the shapes of the results of {named} depend on values: {instead}"


def _convert_operations(graph: Any, version: int, name: str) -> None:
    """Converts in place the operations that have a function here. Each operation moves
    from the front to the end, where new ones are added: their order is kept.
    """
    problems = []
    for operation in graph.operations[:]:
        if operation.type not in CONVERSIONS:
            graph.move_operation(0, len(graph.operations) - 1)
            continue
        node = Node(operation, version)
        node.convert()
        if node.refusals:
            message = f"cannot convert '{name}' to NNEF: {_about_refusals(node)}"
            problems.append(Problem(message))
        graph.remove_operation(operation, unlink=True)
    if problems:
        raise UnsupportedError.collect(problems)


def _about_refusals(node: Node) -> str:
    why, attributes = ", ".join(node.refusals), node.operation.attribs
    sides = (node.operation.inputs, node.results)
    operands, results = ([list(t.shape) for t in side if t.name] for side in sides)
    settings = f"attributes: {attributes}; operands: {operands}; results: {results}"
    label = node.operation.name
    shown = f"'{node.kind}'" + (f" (node '{label}')" if label else "")
    return f"{shown} is not possible: {why}; {settings}"


def _name_variables(
    graph: Any, named: Mapping[str, Array], folded: Sequence[Array]
) -> None:
    """Gives variables the names of their data in the file, or turns them into constants.
    The labels are those names, in characters that file names allow.
    """
    labels = NameSupply()
    for operation in (op for op in graph.operations if op.type == "variable"):
        array = operation.output.data
        name = _name(array, named)
        is_folded = any(np.shares_memory(array, data) for data in folded)
        constant = _as_constant(array, name, is_folded)
        if constant is not None:
            operation.type = "constant"
            operation.attribs["value"] = constant
            del operation.attribs["label"]
            continue
        if name:
            operation.output.name = name
            operation.attribs["label"] = _label(name)
        # Labels that differ in case only would be the same file.
        label = operation.attribs["label"]
        suffix = labels.fresh(label.lower())[len(label) :]
        operation.attribs["label"] = f"{label}{suffix}"


def _as_constant(array: Array | None, name: str, is_folded: bool) -> list[Any] | None:
    """The items of integers, of truth values, of what was computed from constants, and
    of arrays of one value that are not initializers of the file. They are not trained,
    and not all runtimes have integer variables.
    """
    if array is None or array.size == 0:
        return None
    is_uniform = not name and bool((array == array.flat[0]).all())
    is_trained = array.dtype.kind == "f" and not is_folded
    if not is_uniform and (is_trained or array.size > _MAX_CONSTANT):
        return None
    return list(array.reshape(-1)[: 1 if is_uniform else None].tolist())


def _make_finite(graph: Any) -> None:
    """Replaces infinite numbers in constants, which NNEF cannot write."""
    for operation in graph.operations:
        if operation.type == "constant":
            items = np.ravel(operation.attribs["value"]).tolist()
            operation.attribs["value"] = list(map(finite, items))


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


@cache
def _library() -> Library:
    """The operations of NNEF, and those of ONNX written in NNEF."""
    return with_fragments(parse_fragments(Source("<fragments>", _own_fragments())))


def _own_fragments() -> str:
    """Those of ONNX, after those that it shares with other formats."""
    own = (Path(__file__).parent / "fragments.nnef").read_text("utf-8")
    return f"{extras().text}\n{own}"


def _fragments(graph: Any) -> str:
    """The fragments that a graph uses, if it uses any."""
    used = {op.type for op in graph.operations}.difference(standard())
    theirs = converter.fragments()
    found = [text for name, text in theirs.items() if name in used]
    return "".join([_own_fragments(), *found]) if used else ""
