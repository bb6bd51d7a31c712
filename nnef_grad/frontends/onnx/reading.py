"""The nodes of an ONNX model, each by the function in operations/ that reads it.

A function is called with the node and its operands, None for one that is left out. It reads
the attributes from the node, with the defaults of ONNX, and returns the value of the first
result, or a list of the values of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from onnx.defs import SchemaError, get_schema
from onnx.helper import get_attribute_value
from onnx.numpy_helper import to_array

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import NnefGradError, Problem, Remedy, UnsupportedError
from nnef_grad.base.source import Source, Span
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.conversion import MOST_ELEMENTS, Conversion
from nnef_grad.frontends.onnx.evaluation import evaluate, work_of
from nnef_grad.frontends.onnx.validity import (
    NODE_WORK,
    fault_of_node,
    graphs_of,
    version_of,
)
from nnef_grad.frontends.reading import Later, valid_name
from nnef_grad.frontends.values import (
    converted,
    dtype_of,
    is_known,
    is_open,
    is_uniform,
    shape_of,
)
from nnef_grad.frontends.view import View, entering
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.language.library import FragmentFile

T = TypeVar("T")

# Errors that values of a node may be the reason for.
_OF_VALUES = (ArithmeticError, LookupError, TypeError, ValueError)

# What reads operations.
OPERATIONS: dict[str, Callable[..., Any]] = {}
onnx_op = entering(OPERATIONS)

# Operations of one operand that are written in NNEF, with their names and their attributes
# in ONNX; and fragments that other operations use, in small letters.
_FRAGMENTS = Path(__file__).parent / "onnx.nnef"
FORMULAS = {n: f for n, f in FragmentFile(_FRAGMENTS).items() if n[0].isupper()}

# The operator set whose attributes are known.
NEWEST = 21


class ModelReading(Conversion):
    """Reads the nodes of a model.

    Attributes:
        shapes: the shapes that onnx has inferred, by name.
        read: the names of the tensors that something reads or returns.
        values: the values of variables that are initializers of the file.
        called: the names that tensors of the graph have in the file, where they differ.
        failed: the names of tensors that have no value, as their nodes have failed.
    """

    def __init__(self, name: str, opsets: Any, shapes: Mapping[str, Shape]) -> None:
        super().__init__(_FRAGMENTS)
        # Of the graph; the body of a loop has another one, and no variables.
        self._outermost = self.emitter
        self.name = name
        self.opsets = opsets
        self.version = version_of(opsets, name)
        self.shapes = shapes
        self.read: set[str] = set()
        self.values: dict[Tensor, Array] = {}
        self.called: dict[str, str] = {}
        self.failed: set[str] = set()
        self.span = Span(Source(name, ""), 0, 0)
        # The names of float constants of the file, by the identity of their values.
        self._named: dict[int, tuple[Array, str]] = {}
        self._made: dict[int, tuple[Array, Tensor]] = {}

    # ---- Nodes ----

    def run(self, graph: Any, values: dict[str, Any]) -> list[Any]:
        """The values of the results of a graph; `values` has those of what it reads, by name."""
        self.spend(NODE_WORK)
        for stored in graph.initializer:
            values.setdefault(stored.name, to_array(stored))
        for node in graph.node:
            self._take(values, node)
        return [self.value(values, output.name) for output in graph.output]

    def value(self, values: Mapping[str, Any], name: str) -> Any:
        """The value of a tensor; None for one that is left out."""
        if not name:
            return None
        if name in self.failed and name not in values:
            raise NoValueError(name)
        if name not in values:
            message = f"'{self.name}' reads '{name}', which nothing makes"
            raise UnsupportedError(message)
        value = values[name]
        return value() if isinstance(value, Later) else value

    def _take(self, values: dict[str, Any], node: Any) -> None:
        """Reads a node; if that fails, its results have no values."""
        self.failed.update(node.output)
        if self.work > self.most_work:
            return
        try:
            self.spend(NODE_WORK)
            operands = [self.value(values, name) for name in node.input]
            values.update(self._results(values, node, operands))
            self.failed.difference_update(node.output)
        except NoValueError:
            pass
        except UnsupportedError as error:
            self.problems += error.problems
        except NnefGradError as error:
            for problem in error.problems:
                self._add_problem(node, problem.message, problem.remedy)
        except Exception as error:
            if fault := fault_of_node(node, self.opsets):
                self._add_problem(node, f"it is not valid: {fault}")
            elif isinstance(error, _OF_VALUES):
                self._add_problem(node, f"{type(error).__name__}: {error}")
            else:
                raise

    def _add_problem(
        self, node: Any, message: str, remedy: Remedy | None = None
    ) -> None:
        what = f"{_described(node)} is not possible: {message}"
        self.problems.append(Problem(self.refusal(what), None, remedy))

    def refusal(self, what: str) -> str:
        """A message that says why the model cannot be read."""
        return f"cannot convert '{self.name}' to NNEF: {what}"

    def _results(
        self, known: dict[str, Any], proto: Any, operands: list[Any]
    ) -> dict[str, Any]:
        if self._is_computed(proto, operands):
            values: Any = self._evaluated(proto, operands)
        else:
            node = Node(self, proto, operands, known)
            values = OPERATIONS[node.kind](node, *operands)
            values = values if isinstance(values, list) else [values]
            self.spend(sum(_size(x) for x in values))
            if operands and _keeps_type(node.kind, self.version):
                values[0] = node.like(operands[0], values[0])
        results = dict(zip(proto.output, values, strict=False))
        for name, x in results.items():
            self._check(proto, name, x)
        return {name: x for name, x in results.items() if name}

    def _is_computed(self, proto: Any, operands: Sequence[Any]) -> bool:
        if proto.op_type == "Constant":
            return True
        present = [x for x in operands if x is not None]
        are_known = all(not isinstance(x, list) and is_known(x) for x in present)
        is_plain = proto.op_type not in _NEVER_COMPUTED and not graphs_of(proto)
        is_closed = are_known and not any(map(is_open, present))
        return bool(present) and is_plain and is_closed

    def _evaluated(self, proto: Any, operands: Sequence[Any]) -> list[Any]:
        arrays = [None if x is None else np.asarray(x) for x in operands]
        try:
            self.spend(work_of(proto, arrays, self.version))
            results = evaluate(proto, arrays, self.opsets)
        except NnefGradError:
            raise
        except Exception as error:  # of whatever type onnx raises
            what = f"onnx cannot evaluate {_described(proto)}: {error}"
            raise UnsupportedError(self.refusal(what)) from error
        # What is computed of a large weight, such as its transpose, takes its place.
        is_large = results[0].size > MOST_ELEMENTS
        is_weight = is_large and any(id(x) in self._named for x in arrays)
        if (proto.op_type == "Constant" or is_weight) and results[0].dtype.kind == "f":
            self._named[id(results[0])] = results[0], proto.output[0]
        return results

    def _check(self, proto: Any, name: str, x: Any) -> None:
        """Raises an error if a result has another shape than onnx has inferred."""
        wanted = self.shapes.get(name)
        if wanted is None or x is None or isinstance(x, list):
            return
        if tuple(shape_of(x)) != wanted and not has_symbols(shape_of(x)):
            shown = f"{list(shape_of(x))}, and not {list(wanted)}"
            message = f"{_described(proto)} of '{self.name}' has the shape {shown}"
            raise UnsupportedError(message)

    # ---- Variables ----

    def stored(self, name: str, array: Array) -> Tensor:
        """The variable of an initializer."""
        if array.dtype.kind not in "fV":
            what = f"'{name}' is of type {array.dtype}, which NNEF does not have"
            raise UnsupportedError(self.refusal(what))
        variable = self.variable(name, array.astype(np.float32, copy=False))
        self.values[variable] = array
        return variable

    def variable(self, name: str, array: Array, dtype: str = "scalar") -> Tensor:
        """A variable that is called as something in the file."""
        return self.declare(self.fresh(name), name, array, dtype)

    def fresh(self, name: str) -> str:
        """A name of the graph for what has a name in the file."""
        valid = self.supply.fresh(valid_name(name))
        if valid != name:
            self.called[valid] = name
        return valid

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`; a possible parameter, or a large table, is a variable."""
        if id(value) in self._made:
            return self.cast(self._made[id(value)][1], dtype, hint, span)
        if not self.is_parameter(value, dtype) or self.emitter is not self._outermost:
            return super().materialize(value, dtype, hint, span)
        _, name = self._named.get(id(value), (None, None))
        kinds: dict[str, Any] = {"scalar": np.float32, "integer": np.int64}
        array = converted(value, dtype).astype(kinds.get(dtype, np.bool_))
        make = partial(self.variable, name) if name else partial(self.table, hint)
        variable = make(array, dtype)
        self._made[id(value)] = value, variable
        return variable

    def is_parameter(self, value: Any, dtype: str = "scalar") -> bool:
        """Whether it is a constant of the file, or a large table, of different numbers."""
        if not isinstance(value, np.ndarray) or not value.ndim or is_open(value):
            return False
        is_constant = id(value) in self._named and dtype == "scalar"
        is_wanted = is_constant or value.size > MOST_ELEMENTS
        return is_wanted and value.size > 0 and not is_uniform(value)


# What onnx would compute as something else: the identity, weights that may be trained, and
# sequences, of which it would make arrays; and an element at a time, which takes long.
_NEVER_COMPUTED = (
    "DequantizeLinear", "Dropout", "SequenceConstruct", "SplitToSequence",
    "AveragePool", "Col2Im", "Conv", "ConvTranspose", "GRU", "GridSample", "LSTM",
    "LpPool", "MaxPool", "RNN", "Resize", "Upsample",
)  # fmt: skip


def _size(value: Any) -> int:
    """The items of a sequence, or the elements of a known value."""
    if isinstance(value, (list, tuple)):
        return len(value)
    return 0 if isinstance(value, Tensor) else int(np.size(value))


def _described(node: Any) -> str:
    """The name of a node in messages."""
    return f"'{node.op_type}'" + (f" (node '{node.name}')" if node.name else "")


@cache
def _known_attributes(kind: str) -> frozenset[str] | None:
    """The attributes of an operation; None if it is newer itself."""
    try:
        return frozenset(get_schema(kind, NEWEST, "").attributes)
    except SchemaError:
        return None


@cache
def _attribute_types(kind: str, version: int) -> dict[str, int]:
    """The types of the attributes of an operation, by name."""
    try:
        attributes = get_schema(kind, version, "").attributes
    except SchemaError:
        return {}
    return {name: attribute.type.value for name, attribute in attributes.items()}


@cache
def _keeps_type(kind: str, version: int) -> bool:
    """Whether the first result has the data type of the first operand. What a loop scans and
    returns are of types of their own, by one name.
    """
    try:
        schema = get_schema(kind, version, "")
    except SchemaError:
        return False
    operand, result = schema.inputs[0], schema.outputs[0]
    return operand.is_homogeneous and str(operand.type_str) == str(result.type_str)


class Node(View):
    """A node: see `View`. Around it is what its own graphs may read, by name."""

    reading: ModelReading

    def __init__(
        self,
        reading: ModelReading,
        proto: Any,
        operands: list[Any],
        around: Mapping[str, Any],
    ) -> None:
        hint = valid_name(proto.output[0])
        super().__init__(reading, _described(proto), hint, reading.span, None)
        self.proto = proto
        self.kind: str = proto.op_type
        self.version = reading.version
        self.operands = operands
        self.around = around
        self.attributes = {a.name: get_attribute_value(a) for a in proto.attribute}
        # What a later operator set has added is not read.
        attributes = _known_attributes(self.kind) if self.version > NEWEST else None
        for name in self.attributes:
            message = f"'{name}' is newer than operator set {NEWEST}"
            self.require(attributes is None or name in attributes, message)
        types = _attribute_types(self.kind, self.version)
        for a in proto.attribute:
            is_right = types.get(a.name, a.type) == a.type
            self.require(is_right, f"'{a.name}' is of a wrong type")

    def get(self, name: str, default: T) -> T:
        """An attribute, with its default in ONNX."""
        value = self.attributes.get(name, default)
        return cast("T", value.decode() if isinstance(value, bytes) else value)

    def operand(self, place: int) -> Any:
        """An operand, or None if it is left out."""
        return self.operands[place] if place < len(self.operands) else None

    def items(self, name: str, place: int, default: Any = None) -> list[Any]:
        """The items of an attribute that became an operand in later versions."""
        value = self.get(name, default)
        if (operand := self.operand(place)) is not None:
            value = self.known(operand, name)
        if value is None:
            self.refuse(f"{name} is missing")
        return list(np.ravel(np.asarray(value)).tolist())

    def along(self, default: int, x: Any) -> int:
        """The axis of an operand that an attribute names, counted from the first."""
        return self.axis(self.get("axis", default), len(shape_of(x)))

    def known(self, value: Any, name: str) -> Any:
        """A value that must be known before the model is run."""
        if isinstance(value, Tensor):
            value = self.reading.values.get(value, value)
        self.require(is_known(value), f"{name} must be known before the model is run")
        return value

    def uses(self, place: int) -> bool:
        """Whether the graph reads or returns a result."""
        names = self.proto.output
        return place < len(names) and names[place] in self.reading.read

    def refuse(self, message: str) -> NoReturn:
        """Raises an error that says which node it is about."""
        kinds = (bool, int, float, str, list, bytes)
        plain = {k: v for k, v in self.attributes.items() if isinstance(v, kinds)}
        operands = [list(shape_of(x)) for x in self.operands if x is not None]
        settings = f"attributes: {plain}; operands: {operands}"
        what = f"{self.name} is not possible: {message}; {settings}"
        raise UnsupportedError(self.reading.refusal(what))

    # ---- Values ----

    def converted(self, x: Any, dtype: str) -> Any:
        """A value as one of a data type; scalars are truncated to integers."""
        return self.reading.converted(x, dtype, self.hint, self.span)

    def scalars(self, x: Any) -> Any:
        """A tensor of scalars."""
        return x if dtype_of(x) == "scalar" else self.converted(x, "scalar")

    def like(self, operand: Any, x: Any) -> Any:
        """A value that is whole if an operand is: NNEF may have computed it in scalars."""
        is_scalar = isinstance(x, Tensor) and x.dtype == "scalar"
        is_value = isinstance(operand, Tensor) or is_known(operand)
        is_whole = is_value and dtype_of(operand) == "integer"
        return self("cast", x, dtype="integer") if is_scalar and is_whole else x

    def row(self, x: Any, default: float = 0.0) -> Any:
        """A vector of channels with a leading batch axis; or a number in its place."""
        return default if x is None else self("unsqueeze", x, hint="row", axes=[0])
