"""The view of a node that the functions in operations/ get.

A function is called with the node and its operands, None for one that is left out. It reads
the attributes from the node, with the defaults of ONNX, and returns the value of the first
result, or a list of the values of several.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from onnx.defs import SchemaError, get_schema
from onnx.helper import get_attribute_value

from nnef_grad.base.errors import UnsupportedError
from nnef_grad.base.source import Span
from nnef_grad.frontends.onnx.model_values import ModelValues
from nnef_grad.frontends.step import Step, entering
from nnef_grad.frontends.values import dtype_of, is_known, shape_of
from nnef_grad.graph.ir import Tensor

T = TypeVar("T")

# What reads operations; where these have graphs of their own, it gets what is known outside
# of them, too.
OPERATIONS: dict[str, Callable[..., Any]] = {}
WITH_GRAPHS: dict[str, Callable[..., Any]] = {}
onnx_op, with_graphs = entering(OPERATIONS), entering(WITH_GRAPHS)

# The operator set whose attributes are known.
NEWEST = 21


@cache
def _known_attributes(kind: str) -> frozenset[str] | None:
    """The attributes of an operation; None if it is newer itself."""
    try:
        return frozenset(get_schema(kind, NEWEST, "").attributes)
    except SchemaError:
        return None


def described(node: Any) -> str:
    """The name of a node in messages."""
    return f"'{node.op_type}'" + (f" (node '{node.name}')" if node.name else "")


class Node(Step):
    """A node: see `Step`.

    Attributes:
        reading: the model that is read.
        kind: the name of its operation.
        version: the version of the operator set.
        operands: the values of its operands.
        attributes: those that it has, by name.
    """

    reading: ModelValues

    def __init__(
        self,
        reading: ModelValues,
        proto: Any,
        operands: list[Any],
        hint: str,
        span: Span,
    ) -> None:
        super().__init__(reading, described(proto), hint, span, None)
        self.proto = proto
        self.kind: str = proto.op_type
        self.version = reading.version
        self.operands = operands
        self.attributes = {a.name: get_attribute_value(a) for a in proto.attribute}
        self._refuse_new_attributes()

    def _refuse_new_attributes(self) -> None:
        """Refuses what a later operator set has added: its default would be taken."""
        if self.version <= NEWEST:
            return
        known = _known_attributes(self.kind)
        for name in self.attributes:
            message = f"'{name}' is newer than operator set {NEWEST}"
            self.require(known is None or name in known, message)

    def get(self, name: str, default: T) -> T:
        """An attribute, with its default in ONNX."""
        value = self.attributes.get(name, default)
        return cast("T", value.decode() if isinstance(value, bytes) else value)

    def operand(self, place: int) -> Any:
        """An operand, or None if it is left out."""
        return self.operands[place] if place < len(self.operands) else None

    def items(self, name: str, place: int, default: Any = None) -> list[Any]:
        """The items of an attribute that became an operand in later versions."""
        operand = self.operand(place)
        value = (
            self.get(name, default) if operand is None else self.known(operand, name)
        )
        if value is None:
            self.refuse(f"{name} is missing")
        found: list[Any] = np.ravel(np.asarray(value)).tolist()
        return found

    def known(self, value: Any, name: str) -> Any:
        """A value that must be known before the model is run."""
        found = (
            self.reading.values.get(value, value)
            if isinstance(value, Tensor)
            else value
        )
        self.require(is_known(found), f"{name} must be known before the model is run")
        return found

    def uses(self, place: int) -> bool:
        """Whether the graph reads or returns a result."""
        names = self.proto.output
        return place < len(names) and names[place] in self.reading.read

    def refuse(self, message: str) -> NoReturn:
        """Raises an error that says which node it is about."""
        operands = [list(shape_of(x)) for x in self.operands if x is not None]
        settings = f"attributes: {self._settings()}; operands: {operands}"
        what = f"{self.name} is not possible: {message}; {settings}"
        raise UnsupportedError(f"cannot convert '{self.reading.name}' to NNEF: {what}")

    def _settings(self) -> dict[str, Any]:
        kinds = (bool, int, float, str, list, bytes)
        return {k: v for k, v in self.attributes.items() if isinstance(v, kinds)}

    # ---- Values ----

    def scalars(self, x: Any) -> Any:
        """A tensor of scalars."""
        if dtype_of(x) == "scalar":
            return x
        return self.reading.converted(x, "scalar", self.hint, self.span)

    def row(self, x: Any) -> Any:
        """A vector of channels with a leading batch axis."""
        return self("unsqueeze", x, hint="row", axes=[0])
