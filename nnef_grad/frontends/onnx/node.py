"""The view of a node of an ONNX model that the functions in operations/ get, the state that they
share, and the table of these functions.

A function is called with the node and its operands, None for one that is left out. It reads
the attributes from the node, with the defaults of ONNX, and returns the value of the first
result, or a list of the values of several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from onnx.defs import SchemaError, get_schema
from onnx.helper import get_attribute_value, np_dtype_to_tensor_dtype

from nnef_grad.base.arrays import Array
from nnef_grad.base.errors import Problem, Remedy, UnsupportedError
from nnef_grad.base.source import Source, Span
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.conversion import MOST_ELEMENTS, Conversion
from nnef_grad.frontends.onnx.validity import DOMAINS, version_of
from nnef_grad.frontends.reading import Later
from nnef_grad.frontends.values import (
    converted,
    dtype_of,
    is_known,
    is_open,
    is_uniform,
    shape_of,
)
from nnef_grad.frontends.view import View, entering
from nnef_grad.graph.ir import Operation, Shape, Tensor, map_tensors
from nnef_grad.graph.modules import path_of, path_of_node
from nnef_grad.interpreter.execution import execute
from nnef_grad.language.identifiers import plain_name
from nnef_grad.language.library import FragmentFile
from nnef_grad.ops.traits import MOVING

T = TypeVar("T")

# What reads operations.
OPERATIONS: dict[str, Callable[..., Any]] = {}
onnx_op = entering(OPERATIONS)

# Operations of one operand that are written in NNEF, with their names and their attributes
# in ONNX; and fragments that other operations use, in small letters.
FRAGMENTS = Path(__file__).parent / "onnx.nnef"
FORMULAS = {n: f for n, f in FragmentFile(FRAGMENTS).items() if n[0].isupper()}

# Of longer names, which are paths, the last steps are names in a text.
_LONGEST_NAME = 60

# The operator set whose attributes are known.
NEWEST = 21


def short_name(name: str) -> str:
    """A name of NNEF for a name in a file: of a long path, the last steps."""
    steps = name.split("/")
    while len(steps) > 1 and len("/".join(steps)) > _LONGEST_NAME:
        steps = steps[1:]
    return plain_name("/".join(steps))


def kind_of(node: Any) -> str:
    """The operation of a node: one that is not of the standard with its domain."""
    is_standard = node.domain in DOMAINS
    return str(node.op_type) if is_standard else f"{node.domain}.{node.op_type}"


def name_in_messages(node: Any) -> str:
    """The name of a node in messages."""
    return f"'{kind_of(node)}'" + (f" (node '{node.name}')" if node.name else "")


# Where torch.onnx.export says the modules around a node, a list as Python writes it: the
# first is the network, the last the node itself.
_SCOPES = "pkg.torch.onnx.name_scopes"


def module_of(node: Any) -> tuple[str, ...] | None:
    """The path of the module that a node is of, by what exporters say: metadata, or a name
    such as `/layer1/layer1.0/conv1/Conv`.
    """
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            scopes = re.findall(r"'([^']*)'", entry.value)
            return path_of(scopes[-2]) if len(scopes) > 1 else None
    return path_of_node(node.name)


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
def source_of_type(kind: str, version: int) -> int | None:
    """The place of the first operand whose data type the first result has. What a loop scans
    and returns are of types of their own, by one name.
    """
    try:
        schema = get_schema(kind, version, "")
    except SchemaError:
        return None
    kept = str(schema.outputs[0].type_str)
    own = (x.is_homogeneous and str(x.type_str) == kept for x in schema.inputs)
    return next((place for place, is_one in enumerate(own) if is_one), None)


# The least integer of fewer than 64 bits, and how many there are, by the numbers that ONNX
# has for types.
NARROW = {
    2: (0, 2**8), 3: (-(2**7), 2**8), 4: (0, 2**16), 5: (-(2**15), 2**16),
    6: (-(2**31), 2**32), 12: (0, 2**32),
}  # fmt: skip


class ModelValues(Conversion):
    """The state that the functions in operations/ share while a model is read.

    Attributes:
        shapes: the shapes that onnx has inferred, by name.
        read: the names of the tensors that something reads or returns.
        values: the values of variables that are initializers of the file.
        called: the names that tensors of the graph have in the file, where they differ.
        types: the data types of initializers that became variables, by their names.
        narrow: those of fewer than 64 bits of inputs and results, by their names.
        made: the results of nodes, by their names in the file; None for one that is not a
            tensor, or several.
        failed: the names of tensors that have no value, as their nodes have failed.
        makers: the nodes of the graph that is read, and those around it, by their results.
    """

    def __init__(self, name: str, opsets: Any, shapes: Mapping[str, Shape]) -> None:
        super().__init__(FRAGMENTS)
        # Of the graph; the body of a loop has another one, and no variables.
        self._outermost = self.emitter
        self.name = name
        self.opsets = opsets
        self.version = version_of(opsets, name)
        self.shapes = shapes
        self.read: set[str] = set()
        self.values: dict[Tensor, Array] = {}
        self.called: dict[str, str] = {}
        self.types: dict[str, int] = {}
        self.narrow: dict[str, int] = {}
        self.made: dict[str, Tensor | None] = {}
        self.failed: set[str] = set()
        self.makers: Mapping[str, Any] = {}
        # Numbers of inputs with which one branch is read instead of two, by their names.
        self.constants: dict[str, float] = {}
        self.span = Span(Source(name, ""), 0, 0)
        # The names of float constants of the file, by the identity of their values.
        self._named: dict[int, tuple[Array, str]] = {}
        self._materialized: dict[int, tuple[Array, Tensor]] = {}

    def run(self, graph: Any, values: dict[str, Any]) -> list[Any]:
        """The values of the results of a graph; `values` has those of what it reads, by name."""
        raise NotImplementedError

    def take(self, values: dict[str, Any], node: Any) -> None:
        """Reads a node; if that fails, its results have no values."""
        raise NotImplementedError

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

    def narrow_type(self, proto: Any, operands: Sequence[Any]) -> int:
        """The data type of the first result of a node, if it has fewer than 64 bits, or 0."""
        place = source_of_type(kind_of(proto), self.version)
        if proto.op_type == "Cast":
            kind = next((a.i for a in proto.attribute if a.name == "to"), 0)
        elif place is None or place >= len(operands):
            return 0
        elif isinstance(x := operands[place], (np.ndarray, np.generic)) and not is_open(
            x
        ):
            kind = np_dtype_to_tensor_dtype(x.dtype)
        else:
            kind = self.narrow.get(proto.input[place], 0)
        return kind if kind in NARROW else 0

    def refusal(self, what: str) -> str:
        """A message that says why the model cannot be read."""
        return f"cannot convert '{self.name}' to NNEF: {what}"

    def numbers_of(self, tensor: Tensor, span: Span) -> Array | None:
        """Those of an initializer, or of several in another shape or order."""
        made = self.emitter.producer(tensor)
        if tensor in self.values or made is None or made.name not in MOVING:
            return self.values.get(tensor)
        found = {x: self.numbers_of(x, span) for x in made.inputs}
        sizes = [MOST_ELEMENTS + 1 if x is None else x.size for x in found.values()]
        if sum(sizes) > MOST_ELEMENTS or len(made.outputs) > 1:
            return None
        (numbers,) = execute(made, map_tensors(found.__getitem__, made.operands))
        return np.asarray(numbers)

    def settings_behind(self, value: Any) -> str:
        """The names of inputs that a value depends on, and that could be constants."""
        behind, seen = [value], {value}
        names = []
        while behind:
            made = self.emitter.producer(behind.pop())
            if made is not None and made.name == "external" and _may_be_known(made):
                own = self.emitter.names[made.outputs[0]]
                names.append(self.called.get(own, own))
            inputs = made.inputs if made is not None else ()
            behind += [x for x in dict.fromkeys(inputs) if x not in seen]
            seen.update(inputs)
        return " and ".join(f"'{name}'" for name in sorted(names))

    def constant_for(self, condition: Any) -> dict[str, float]:
        """The number that an input is compared with, by the name of the input, as an example of
        a constant that decides a condition; nothing where it is made otherwise.
        """
        compared = self.emitter.made_by(condition, "eq")
        operands = () if compared is None else compared.operands
        for x, number in zip(operands, reversed(operands), strict=True):
            while (moved := self.emitter.made_by(x, *MOVING, "cast")) is not None:
                x = moved.operands[0]
            given = self.emitter.made_by(x, "external")
            if given is not None and isinstance(number, (int, float)):
                own = self.emitter.names[given.outputs[0]]
                return {self.called.get(own, own): float(number)}
        return {}

    @contextmanager
    def blaming(self, node: Node, what: str, condition: Any) -> Iterator[None]:
        """Adds to problems of the branches of a node, and of the node with these, why both are
        computed; the remedy is a constant that decides its condition, if there is one.
        """
        remedy: Remedy | None = "constant" if self.settings_behind(condition) else None
        before = len(self.problems)

        def blamed(problem: Problem) -> Problem:
            message = f"{problem.message}; of {node.name} {what}"
            return problem._replace(message=message, remedy=problem.remedy or remedy)

        try:
            yield
        except UnsupportedError as error:
            self.constants |= self.constant_for(condition)
            error.problems = tuple(map(blamed, error.problems))
            raise
        finally:
            if inner := self.problems[before:]:
                self.constants |= self.constant_for(condition)
                self.problems[before:] = map(blamed, inner)

    # ---- Variables ----

    def stored(self, name: str, array: Array) -> Tensor:
        """The variable of an initializer."""
        if array.dtype.kind not in "fV":
            what = f"'{name}' is of type {array.dtype}, which NNEF does not have"
            raise UnsupportedError(self.refusal(what))
        self.types[name] = np_dtype_to_tensor_dtype(array.dtype)
        kept = np.float16 if array.dtype == np.float16 else np.float32
        variable = self.variable(name, array.astype(kept, copy=False))
        self.values[variable] = array
        return variable

    def variable(self, name: str, array: Array, dtype: str = "scalar") -> Tensor:
        """A variable that is called as something in the file."""
        return self.declare(self.fresh(name), name, array, dtype)

    def fresh(self, name: str) -> str:
        """A name of the graph for what has a name in the file."""
        valid = self.supply.fresh(short_name(name))
        if valid != name:
            self.called[valid] = name
        return valid

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`; a possible parameter, or a large table, is a variable. Extents
        with symbols stay known beside the numbers that they become.
        """
        if is_open(value):
            numbers = super().materialize(value, dtype, hint, span)
            self.values[numbers] = np.asarray(value)
            return numbers
        if id(value) in self._materialized:
            return self.cast(self._materialized[id(value)][1], dtype, hint, span)
        if not self.is_parameter(value, dtype) or self.emitter is not self._outermost:
            return super().materialize(value, dtype, hint, span)
        _, name = self._named.get(id(value), (None, None))
        kinds: dict[str, Any] = {"scalar": np.float32, "integer": np.int64}
        array = converted(value, dtype).astype(kinds.get(dtype, np.bool_))
        make = partial(self.variable, name) if name else partial(self.table, hint)
        variable = make(array, dtype)
        self._materialized[id(value)] = value, variable
        return variable

    def is_parameter(self, value: Any, dtype: str = "scalar") -> bool:
        """Whether it is a constant of the file, or a large table, of different numbers."""
        if not isinstance(value, np.ndarray) or not value.ndim or is_open(value):
            return False
        is_constant = id(value) in self._named and dtype == "scalar"
        is_wanted = is_constant or value.size > MOST_ELEMENTS
        return is_wanted and value.size > 0 and not is_uniform(value)


def _may_be_known(operation: Operation) -> bool:
    """Whether an input is a setting, and not what the network computes with."""
    (x,) = operation.outputs
    return x.dtype != "scalar" or not x.rank


class Node(View):
    """A node: see `View`. Around it is what its own graphs may read, by name."""

    reading: ModelValues

    def __init__(
        self,
        reading: ModelValues,
        proto: Any,
        operands: list[Any],
        around: Mapping[str, Any],
    ) -> None:
        hint = short_name(proto.output[0])
        super().__init__(reading, name_in_messages(proto), hint, reading.span, None)
        self.proto = proto
        self.kind = kind_of(proto)
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

    def other(
        self,
        kind: str,
        *operands: Any,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """The result of another operation, with the attributes of this one or others."""
        node = copy(self)
        node.kind, node.operands = kind, [*operands]
        node.attributes = self.attributes if attributes is None else dict(attributes)
        return OPERATIONS[kind](node, *operands)

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
            numbers = self.reading.numbers_of(value, self.span)
            value = value if numbers is None else numbers
        if not is_known(value):
            message = f"{name} must be known before the model is run"
            if not (settings := self.reading.settings_behind(value)):
                self.refuse(f"{message}: export the network with a fixed one")
            self.refuse(f"{message}: make {settings} a constant", "constant")
        return value

    def uses(self, place: int) -> bool:
        """Whether the graph reads or returns a result."""
        name = dict(enumerate(self.proto.output)).get(place)
        return bool(name) and name in self.reading.read

    def refuse(self, message: str, remedy: Remedy | None = None) -> NoReturn:
        """Raises an error that says which node it is about."""
        kinds = (bool, int, float, str, list, bytes)
        plain = {k: v for k, v in self.attributes.items() if isinstance(v, kinds)}
        operands = [list(shape_of(x)) for x in self.operands if x is not None]
        settings = f"attributes: {plain}; operands: {operands}"
        what = f"{self.name} is not possible: {message}; {settings}"
        raise UnsupportedError(self.reading.refusal(what), remedy=remedy)

    def warn(self, message: str, *, is_repeated: bool = True) -> None:
        """Adds a warning that says which node it is about, or one for all nodes."""
        problem = Problem(f"{self.name}: {message}" if is_repeated else message)
        if is_repeated or problem not in self.reading.warnings:
            self.reading.warnings.append(problem)

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
