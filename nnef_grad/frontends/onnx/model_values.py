"""The values of an ONNX model, while it becomes a graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnef_grad.base.source import Source, Span
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.conversion import MOST_ELEMENTS, Conversion
from nnef_grad.frontends.reading import Later, valid_name
from nnef_grad.frontends.values import Array, converted, is_open, is_uniform
from nnef_grad.graph.ir import Shape, Tensor


class ModelValues(Conversion):
    """The state that the functions in operations/ share while a model is read.

    Attributes:
        name: what messages call the model.
        version: the version of the operator set of standard ONNX.
        shapes: the shapes that onnx has inferred, by name.
        read: the names of the tensors that something reads or returns.
        values: the values of variables that are initializers of the file.
        called: the names that tensors of the graph have in the file, where they differ.
    """

    def __init__(
        self, name: str, opsets: Any, version: int, shapes: Mapping[str, Shape]
    ) -> None:
        super().__init__(Path(__file__).parent / "onnx.nnef")
        # Of the graph; the body of a loop has another one, and no variables.
        self._outermost = self.emitter
        self.name = name
        self.opsets = opsets
        self.version = version
        self.shapes = shapes
        self.read: set[str] = set()
        self.values: dict[Tensor, Array] = {}
        self.called: dict[str, str] = {}
        self.span = Span(Source(name, ""), 0, 0)
        # The names of float constants of the file, by the identity of their values.
        self._named: dict[int, tuple[Array, str]] = {}
        self._made: dict[int, tuple[Array, Tensor]] = {}

    def value(self, known: Mapping[str, Any], name: str) -> Any:
        """The value of a tensor; None for one that is left out."""
        if not name:
            return None
        if name not in known:
            raise NoValueError(name)
        found = known[name]
        return found() if isinstance(found, Later) else found

    def stored(self, name: str, array: Array) -> Tensor:
        """The variable of an initializer."""
        made = self.variable(name, array.astype(np.float32, copy=False))
        self.values[made] = array
        return made

    def variable(self, name: str, array: Array, dtype: str = "scalar") -> Tensor:
        """The variable of an initializer."""
        return self.declare(self.fresh(name), name, array, dtype)

    def fresh(self, name: str) -> str:
        """A name of the graph for what has a name in the file."""
        made = self.supply.fresh(valid_name(name))
        if made != name:
            self.called[made] = name
        return made

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Conversion`; a constant of the file that may be a parameter is a variable,
        and a large table too.
        """
        if not isinstance(value, np.ndarray) or not value.size or not value.ndim:
            return super().materialize(value, dtype, hint, span)
        if id(value) in self._made:
            return self.cast(self._made[id(value)][1], dtype, hint, span)
        if not self.is_parameter(value, dtype) or self.emitter is not self._outermost:
            return super().materialize(value, dtype, hint, span)
        _, name = self._named.get(id(value), (None, None))
        kinds: dict[str, Any] = {"scalar": np.float32, "integer": np.int64}
        array = converted(value, dtype).astype(kinds.get(dtype, np.bool_))
        made = self.variable(name or hint, array, dtype)
        self._made[id(value)] = value, made
        return made

    def is_parameter(self, value: Any, dtype: str = "scalar") -> bool:
        """Whether a known value becomes a variable: a constant of the file, or a large
        table, of different numbers.
        """
        if not isinstance(value, np.ndarray) or not value.ndim or is_open(value):
            return False
        is_constant = id(value) in self._named and dtype == "scalar"
        is_wanted = is_constant or value.size > MOST_ELEMENTS
        return is_wanted and value.size > 0 and not is_uniform(value)
