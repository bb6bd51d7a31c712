"""Texts in a model: the tables at its ends that turn them into numbers, and numbers into them.

A backward graph begins and ends with the numbers: NNEF has no tensors of texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnx import TensorProto
from onnx.helper import make_tensor_value_info

from nnef_grad.base.errors import Problem, UnsupportedError, listed
from nnef_grad.frontends.onnx.node import kind_of
from nnef_grad.frontends.onnx.validity import LEARNING

_TABLE = f"{LEARNING}.LabelEncoder"

# The data types of what a table returns, by the attribute that holds it. That of the first
# version has one list, for both directions.
_RETURNS = {
    "values_int64s": TensorProto.INT64,
    "values_floats": TensorProto.FLOAT,
    "values_strings": TensorProto.STRING,
    "classes_strings": TensorProto.INT64,
}


def without_texts(graph: Any, name: str) -> list[Problem]:
    """Takes the tables of texts off a graph, and returns warnings that name the numbers which
    are inputs, or results, in their place.

    Raises:
        UnsupportedError: no result but texts is left.
    """
    starts = [
        (table, x)
        for x in filter(_is_text, graph.input)
        for table in _tables_of(graph, x)
    ]
    ends = {value.name for value in graph.output if _is_text(value)}
    if ends and len(ends) == len(graph.output):
        message = f"'{name}' returns nothing but texts, which have no gradients: {listed(sorted(ends))}"
        raise UnsupportedError(message)
    gone = {text.name for _, text in starts}
    numbers = [_numbers(*start) for start in starts]
    tables = {table.output[0] for table, _ in starts} | ends
    told = [*_told(starts, sorted(ends))]
    keep(graph.input, [*(x for x in graph.input if x.name not in gone), *numbers])
    keep(graph.output, [x for x in graph.output if x.name not in ends])
    keep(graph.node, [n for n in graph.node if not tables.issuperset(n.output)])
    return told


def _told(starts: Sequence[tuple[Any, Any]], ends: list[str]) -> Iterator[Problem]:
    for table, text in starts:
        what = f"the input '{text.name}' is text: '{table.output[0]}', the numbers that"
        yield Problem(f"{what} '{_TABLE}' makes of it, is the input in its place")
    if ends:
        yield Problem(f"texts have no gradients, and are no results: {listed(ends)}")


def _is_text(value: Any) -> bool:
    return bool(value.type.tensor_type.elem_type == TensorProto.STRING)


def _tables_of(graph: Any, text: Any) -> list[Any]:
    """The tables that read a text; none if anything else reads it, or they return texts."""
    readers = [node for node in graph.node if text.name in node.input]
    is_all = all(kind_of(n) == _TABLE and _returned(n) in _NUMBERS for n in readers)
    return readers if is_all else []


_NUMBERS = {
    getattr(TensorProto, kind) for kind in ("INT32", "INT64", "FLOAT", "DOUBLE")
}


def _returned(table: Any) -> int:
    """The data type of what a table of texts returns."""
    for attribute in table.attribute:
        if attribute.name == "values_tensor":
            return int(attribute.t.data_type)
        if attribute.name in _RETURNS:
            return int(_RETURNS[attribute.name])
    return int(TensorProto.UNDEFINED)


def _numbers(table: Any, text: Any) -> Any:
    """The input of numbers that a table would return."""
    value = make_tensor_value_info(table.output[0], _returned(table), None)
    if text.type.tensor_type.HasField("shape"):
        value.type.tensor_type.shape.CopyFrom(text.type.tensor_type.shape)
    return value


def keep(field: Any, values: Sequence[Any]) -> None:
    """Lets a field of a protocol buffer have these values, which may be some of its own."""
    del field[:]
    field.extend(values)
