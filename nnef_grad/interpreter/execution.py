"""Execution of single operations on arrays, and the arrays that graphs are fed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import NnefGradError, Problem, UsageError, suggestion
from nnef_grad.emit.arguments import dtype_of
from nnef_grad.emit.rule_results import counted, kind
from nnef_grad.graph.ir import LOOP, Graph, Operand, Operation, Result, Tensor
from nnef_grad.graph.loops import Loop, ScanAxis, is_loop
from nnef_grad.graph.printer import Names
from nnef_grad.interpreter.registry import (
    EVALUATIONS,
    KINDS,
    Evaluation,
    UndefinedError,
    Value,
    evaluation,
)
from nnef_grad.language.labels import label_key
from nnef_grad.ops.traits import FED

Operations = Mapping[str, Evaluation]

_TYPES: dict[str, Any] = {"integer": np.int64, "logical": np.bool_, "string": np.str_}


def numpy_type(name: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The numpy data type of the tensors of a data type; `dtype` is that of scalars."""
    return np.dtype(dtype if name == "scalar" else _TYPES[name])


def step(
    operation: Operation,
    tensors: Mapping[Tensor, Array],
    dtype: npt.DTypeLike = np.float64,
    operations: Operations | None = None,
    names: Names | None = None,
) -> dict[Tensor, Array]:
    """The results of an operation, from what it reads or is fed: see `execute`."""
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
    """The results of an operation of a flat graph: an array of its shape for each, or a
    tuple of them, which may share memory with the operands.

    Args:
        operation: the operation.
        operands: an array of the right shape for each operand; a tuple of arrays for an
            array of tensors; the array fed for an operation that introduces a tensor.
        dtype: the numpy data type of scalar tensors.
        operations: evaluations that take precedence over the standard ones, by name.
        names: what errors call tensors.

    Raises:
        UsageError: the operation has no evaluation, or no result for these values; or
            an evaluation of the user returns wrong results.
    """
    function = find_evaluation(operation.name, operations)
    if function is None:
        message = f"'{operation.name}' has no evaluation"
        advice = "give it a body, or register one with @rules.evaluation in Python"
        raise UsageError(f"{message}: {advice}", operation.span)
    attributes = {**operation.attributes}
    definition = operation.definition
    if definition.generic is not None and not definition.deduces_dtype:
        assert operation.dtype is not None
        attributes["dtype"] = numpy_type(operation.dtype, dtype)
    if is_loop(operation):
        attributes["apply"] = partial(_apply, dtype=dtype, operations=operations)
    try:
        with np.errstate(all="ignore"):
            value = function(*operands, **attributes)
            values = value if len(operation.results) > 1 else [value]
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


# ---- Loops: their bodies are applied to one step after the other ----

Apply = Callable[[Graph, Sequence[Array]], "list[Array]"]


@evaluation(LOOP)
def scan(*operands: Array, loop: Loop, apply: Apply) -> Any:
    """The last values of states, then what was collected; `apply` evaluates bodies."""
    whole = len(operands) - len(loop.scanned)
    full, states = operands[: len(loop.full)], list(operands[len(loop.full) : whole])
    scan_axes = list(zip(operands[whole:], loop.scanned, strict=True))
    outputs: list[list[Array]] = []
    for step in range(scan_axes[0][0].shape[scan_axes[0][1].axis]):
        parts = [_part(x, along, step) for x, along in scan_axes]
        outputs.append(apply(loop.body, [*full, *states, *parts]))
        states = outputs[-1][: loop.states]
    gathered = [
        np.concatenate([o[i] for o in outputs][:: along.direction], along.axis)
        for i, along in loop.collected
    ]
    results = [*states, *gathered]
    return results if len(results) > 1 else results[0]


def _part(x: Array, along: ScanAxis, step: int) -> Array:
    place = step if along.direction > 0 else x.shape[along.axis] - 1 - step
    return x.take([place], along.axis)


def _apply(
    body: Graph,
    inputs: Iterable[Array],
    dtype: npt.DTypeLike,
    operations: Operations | None,
) -> list[Array]:
    """The outputs of the body of a loop."""
    tensors = dict(zip(body.inputs, inputs, strict=True))
    for operation in body.operations:
        if operation.name != "external":
            tensors.update(step(operation, tensors, dtype, operations, body.names))
    return [tensors[tensor] for tensor in body.outputs]


# ---- Feeds: the data of inputs by name, and of variables by label ----

Feeds = Mapping[str, npt.ArrayLike]


def of_graph(variables: Feeds, graph: Graph) -> Feeds:
    """The data of variables: those that are stored know by the graph what codes mean."""
    of = getattr(variables, "of", None)
    return variables if of is None else of(graph)


def collect_feeds(graph: Graph, inputs: Feeds, variables: Feeds) -> dict[Tensor, Array]:
    """The data of the inputs of a flat graph, by name, and of its variables, by label, in
    any case; further labels are ignored. The error about what does not fit lists it all.
    """
    names = graph.input_names
    problems = [
        Problem(f"the graph has no input '{name}'{suggestion(name, names)}")
        for name in inputs
        if name not in names
    ]
    labelled: dict[str, npt.ArrayLike] = {}
    for label, data in of_graph(variables, graph).items():
        if label_key(label) in labelled:
            message = f"there are two variables with the label '{label_key(label)}'"
            raise UsageError(message)
        labelled[label_key(label)] = data
    fed: dict[Tensor, Array] = {}
    for operation in graph.operations:
        if operation.name in FED:
            (tensor,) = operation.outputs
            try:
                fed[tensor] = _data(operation, graph.names[tensor], inputs, labelled)
            except NnefGradError as error:
                problems += error.problems
    if problems:
        raise UsageError.collect(problems)
    return fed


def _data(operation: Operation, name: str, inputs: Feeds, labelled: Feeds) -> Array:
    """The data of a tensor as an array, checked against the tensor."""
    (tensor,) = operation.outputs
    what, source = f"input '{name}'", inputs
    if operation.name == "variable":
        label = str(operation.attributes["label"])
        what, name, source = f"variable '{label}'", label_key(label), labelled
    what += f" of type {tensor.dtype} and shape {list(tensor.shape)}"
    if name not in source:
        raise UsageError(f"{what} has no data", operation.span)
    try:
        array = np.asarray(source[name])
    except ValueError as error:
        message = f"the data of {what} are not an array: {error}"
        raise UsageError(message, operation.span) from None
    is_whole = tensor.dtype != "integer" or np.can_cast(array.dtype, np.int64)
    if array.shape != tensor.shape:
        misfit = f"shape {list(array.shape)}"
    elif array.dtype.kind not in KINDS[tensor.dtype] or not is_whole:
        misfit = f"type {array.dtype}"
    else:
        return array
    raise UsageError(f"{what} is given data of {misfit}", operation.span)


# ---- Operands ----


def operands_of(
    operation: Operation,
    tensors: Mapping[Tensor, Array],
    dtype: npt.DTypeLike = np.float64,
) -> list[Value]:
    """A value for each operand of an operation, as `execute` takes it."""

    def value(operand: Operand) -> Value:
        if isinstance(operand, Tensor):
            return tensors[operand]
        if isinstance(operand, tuple):
            return tuple(map(value, operand))
        return np.array(operand, numpy_type(dtype_of(operand), dtype))

    is_fed = operation.name in FED
    with np.errstate(all="ignore"):
        return [*map(value, operation.outputs if is_fed else operation.operands)]


# ---- Results ----


class _MisfitError(ValueError):
    """The message describes the results of an evaluation that do not fit."""


def _fitting(
    results: tuple[Result, ...], values: Any, dtype: npt.DTypeLike, names: Names
) -> Iterator[Value]:
    """The values as arrays of the data types and the shapes of the results."""
    if not isinstance(values, (list, tuple)):
        raise _MisfitError(f"{_kind(values)}, and a list of {len(results)} is wanted")
    if len(values) != len(results):
        verb = "is" if len(results) == 1 else "are"
        count = counted(len(values), "result")
        raise _MisfitError(f"{count}, and {len(results)} {verb} wanted")
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
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty((), object)
    # numpy makes an object array of what is no array.
    if array.dtype.kind == "O":
        raise _MisfitError(f"{_kind(value)} for {name}, which is no array")
    if array.shape != tensor.shape:
        what = f"an array of shape {list(array.shape)} for {name}"
        raise _MisfitError(f"{what}, whose shape is {list(tensor.shape)}")
    if array.dtype.kind not in KINDS[tensor.dtype]:
        what = f"an array of {array.dtype} for {name}"
        raise _MisfitError(f"{what}, whose type is {tensor.dtype}")
    return array.astype(numpy_type(tensor.dtype, dtype), copy=False)


def _arrays(values: Sequence[Value]) -> Iterator[Array]:
    """The arrays among values, in order."""
    for value in values:
        if isinstance(value, tuple):
            yield from _arrays(value)
        else:
            yield value
