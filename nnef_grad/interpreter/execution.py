"""Execution of single operations on arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.base.errors import UsageError
from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.rule_results import counted, kind
from nnef_grad.graph.ir import Graph, Operand, Operation, Result, Tensor
from nnef_grad.graph.loops import is_loop
from nnef_grad.interpreter.registry import (
    EVALUATIONS,
    KINDS,
    Array,
    Evaluation,
    UndefinedError,
    Value,
)
from nnef_grad.ops.traits import FED

Operations = Mapping[str, Evaluation]
Names = Mapping[Tensor, str]


def numpy_type(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The numpy data type of the tensors of a data type; `dtype` is that of scalars."""
    types: dict[str, npt.DTypeLike] = {
        "scalar": dtype,
        "integer": np.int64,
        "logical": np.bool_,
        "string": np.str_,
    }
    return np.dtype(types[name])


def step(
    operation: Operation,
    tensors: Mapping[Tensor, Array],
    dtype: npt.DTypeLike = np.float64,
    operations: Operations | None = None,
    names: Names | None = None,
) -> dict[Tensor, Array]:
    """The result tensors of an operation.

    Args:
        operation: an operation of a flat graph.
        tensors: the tensors that it reads; for one that introduces a tensor, the array
            fed for it.
        dtype, operations, names: see `execute`.

    Raises:
        UsageError: see `execute`.
    """
    operands = operands_of(operation, tensors, dtype)
    results = execute(operation, operands, dtype, operations, names)
    return dict(zip(operation.outputs, _arrays(results), strict=True))


def execute(
    operation: Operation,
    operands: Sequence[Value],
    dtype: npt.DTypeLike = np.float64,
    operations: Operations | None = None,
    names: Names | None = None,
) -> tuple[Value, ...]:
    """The results of an operation.

    Args:
        operation: an operation of a flat graph.
        operands: an array of the right shape for each operand; a tuple of arrays for an
            array of tensors; the array fed for an operation that introduces a tensor.
        dtype: the numpy data type of scalar tensors.
        operations: evaluations that take precedence over the standard ones, by name.
        names: what errors call tensors.

    Returns:
        For each result an array of its shape, or a tuple of them. They may share memory
        with the operands.

    Raises:
        UsageError: the operation has no evaluation, or no result for these values; or
            an evaluation of the user returns wrong results.
    """
    evaluation = find_evaluation(operation.name, operations)
    if evaluation is None:
        message = f"'{operation.name}' has no evaluation"
        advice = "give it a body, or register one with @rules.evaluation in Python"
        raise UsageError(f"{message}: {advice}", operation.span)
    attributes = {**operation.attributes, **_generic_type(operation, dtype)}
    if is_loop(operation):
        attributes["apply"] = partial(_apply, dtype=dtype, operations=operations)
    try:
        with np.errstate(all="ignore"):
            found = evaluation(*operands, **attributes)
            values = found if len(operation.results) > 1 else [found]
            return tuple(_fitting(operation.results, values, dtype, names or {}))
    except UndefinedError as error:
        message = f"{operation.name}: {error}"
        raise UsageError(message, operation.span) from None
    except _MisfitError as error:
        message = f"the evaluation of '{operation.name}' gives {error}"
        assert operation.name in (operations or {}), message
        raise UsageError(message, operation.span) from None


def find_evaluation(name: str, operations: Operations | None) -> Evaluation | None:
    """The evaluation of an operation: the user's, or else the standard one."""
    return (operations or {}).get(name) or EVALUATIONS.get(name)


def _apply(
    body: Graph,
    given: Iterable[Array],
    dtype: npt.DTypeLike,
    operations: Operations | None,
) -> list[Array]:
    """The outputs of the body of a loop."""
    found = dict(zip(body.inputs, given, strict=True))
    for operation in body.operations:
        if operation.name != "external":
            found.update(step(operation, found, dtype, operations, body.names))
    return [found[tensor] for tensor in body.outputs]


def _generic_type(operation: Operation, dtype: npt.DTypeLike) -> dict[str, Any]:
    """The explicit generic data type of an operation, if its operands do not bind it."""
    definition = operation.definition
    if definition.generic is None or definition.deduces_dtype:
        return {}
    assert operation.dtype is not None
    return {"dtype": numpy_type(operation.dtype, dtype)}


# ---- Operands ----


def operands_of(
    operation: Operation,
    tensors: Mapping[Tensor, Array],
    dtype: npt.DTypeLike = np.float64,
) -> list[Value]:
    """A value for each operand of an operation: see `step` and `execute`."""
    operands: Sequence[Operand] = operation.operands
    if operation.name in FED:
        operands = operation.outputs
    with np.errstate(all="ignore"):
        return [_value(operand, tensors, dtype) for operand in operands]


def _value(
    operand: Operand, tensors: Mapping[Tensor, Array], dtype: npt.DTypeLike
) -> Value:
    if isinstance(operand, Tensor):
        return tensors[operand]
    if isinstance(operand, tuple):
        return tuple(_value(item, tensors, dtype) for item in operand)
    return np.array(operand, numpy_type(dtype_of(operand), dtype))


# ---- Results ----


class _MisfitError(ValueError):
    """The results of an evaluation do not fit; the message describes them."""


def _fitting(
    results: tuple[Result, ...], values: Any, dtype: npt.DTypeLike, names: Names
) -> Iterator[Value]:
    """The values as arrays of the data types and the shapes of the results."""
    if not isinstance(values, (list, tuple)):
        raise _MisfitError(f"{_kind(values)}, and a list of {len(results)} is wanted")
    if len(values) != len(results):
        verb = "is" if len(results) == 1 else "are"
        found = counted(len(values), "result")
        raise _MisfitError(f"{found}, and {len(results)} {verb} wanted")
    for result, value in zip(results, values, strict=True):
        if isinstance(result, tuple):
            yield tuple(_fitting(result, value, dtype, names))
        else:
            name = f"'{names[result]}'" if result in names else "a result"
            yield _fitting_array(result, name, value, dtype)


def _kind(value: Any) -> str:
    return "an array" if isinstance(value, np.ndarray) else kind(value)


def _fitting_array(
    tensor: Tensor, name: str, value: Any, dtype: npt.DTypeLike
) -> Array:
    array = _as_array(name, value)
    if array.shape != tensor.shape:
        given = f"an array of shape {list(array.shape)} for {name}"
        raise _MisfitError(f"{given}, whose shape is {list(tensor.shape)}")
    if array.dtype.kind not in KINDS[tensor.dtype]:
        given = f"an array of {array.dtype} for {name}"
        raise _MisfitError(f"{given}, whose type is {tensor.dtype}")
    return array.astype(numpy_type(tensor.dtype, dtype), copy=False)


def _as_array(name: str, value: Any) -> Array:
    """An array of any data type; numpy makes an object array of anything else."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty((), object)
    if array.dtype.kind == "O":
        raise _MisfitError(f"{_kind(value)} for {name}, which is no array")
    return array


def _arrays(values: Sequence[Value]) -> Iterator[Array]:
    """The arrays among values, in order."""
    for value in values:
        if isinstance(value, tuple):
            yield from _arrays(value)
        else:
            yield value
