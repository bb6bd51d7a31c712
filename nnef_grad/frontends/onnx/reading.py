"""The nodes of an ONNX model, each by the function that reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.build.emitter import Emitter
from nnef_grad.build.evaluation import NoValueError
from nnef_grad.build.simplify import simplify
from nnef_grad.errors import NnefGradError, Problem, Remedy, UnsupportedError
from nnef_grad.frontends.library import Joined
from nnef_grad.frontends.onnx import operations as _operations  # noqa: F401
from nnef_grad.frontends.onnx.evaluation import evaluate
from nnef_grad.frontends.onnx.extents import compute
from nnef_grad.frontends.onnx.node import OPERATIONS, WITH_GRAPHS, Node, described
from nnef_grad.frontends.reading import Later, Reading, valid_name
from nnef_grad.frontends.values import (
    Array,
    converted,
    is_known,
    is_open,
    shape_of,
    simple,
)
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Shape, Tensor
from nnef_grad.graph.names import NameSupply
from nnef_grad.language.library import FragmentFile, extras, standard
from nnef_grad.ops.opset import OpSet
from nnef_grad.source import Source, Span

# Operations with a different result in each run.
_RANDOM = ("Random", "Bernoulli", "Multinomial")

# Larger constants would make the text unreadable: they are variables.
MOST = 10_000


class NodeReading(Reading):
    """Reads the nodes of a model.

    Attributes:
        name: what messages call the model.
        version: the version of the operator set of standard ONNX.
        data: the data of variables, by label.
        shapes: the shapes that onnx has inferred, by name.
        read: the names of the tensors that something reads or returns.
        values: the values of variables that are initializers of the file.
        problems: what cannot be read.
        called: the names that tensors of the graph have in the file, where they differ.
    """

    def __init__(
        self, name: str, opsets: Any, version: int, shapes: Mapping[str, Shape]
    ) -> None:
        super().__init__(Emitter(OpSet(), simplify=simplify), _library())
        # Of the graph; the body of a loop has another one, and no variables.
        self._outermost = self.emitter
        self.name = name
        self.opsets = opsets
        self.version = version
        self.shapes = shapes
        self.read: set[str] = set()
        self.data: dict[str, Array] = {}
        self.values: dict[Tensor, Array] = {}
        self.problems: list[Problem] = []
        self.supply = NameSupply()
        self.called: dict[str, str] = {}
        self.span = Span(Source(name, ""), 0, 0)
        # The names of float constants of the file, by the identity of their values.
        self._named: dict[int, tuple[Array, str]] = {}
        self._made: dict[int, tuple[Array, Tensor]] = {}
        self._labels = NameSupply()

    # ---- Graphs ----

    def run(self, graph: Any, known: dict[str, Any]) -> list[Any]:
        """The values of the results of a graph; `known` has those of its inputs, and of
        what is known outside of it, by name.
        """
        for stored in graph.initializer:
            known.setdefault(stored.name, to_array(stored))
        for node in graph.node:
            self._take(known, node)
        return [self.value(known, output.name) for output in graph.output]

    def value(self, known: Mapping[str, Any], name: str) -> Any:
        """The value of a tensor; None for one that is left out."""
        if not name:
            return None
        if name not in known:
            raise NoValueError(name)
        found = known[name]
        return found() if isinstance(found, Later) else found

    def _take(self, known: dict[str, Any], node: Any) -> None:
        """Reads a node; if that fails, its results have no values."""
        try:
            operands = [self.value(known, name) for name in node.input]
            known.update(self._results(known, node, operands))
        except NoValueError:
            pass
        except UnsupportedError as error:
            self.problems += error.problems
        except NnefGradError as error:
            for problem in error.problems:
                self._add_problem(node, problem.message, problem.remedy)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            self._add_problem(node, f"{type(error).__name__}: {error}")

    def _add_problem(
        self, node: Any, message: str, remedy: Remedy | None = None
    ) -> None:
        what = f"{described(node)} is not possible: {message}"
        message = f"cannot convert '{self.name}' to NNEF: {what}"
        self.problems.append(Problem(message, None, remedy))

    def _results(
        self, known: dict[str, Any], proto: Any, operands: list[Any]
    ) -> dict[str, Any]:
        if self._is_computed(proto, operands):
            found = self._evaluated(proto, operands)
        elif (extents := self._of_extents(proto, operands)) is not None:
            found = [extents]
        else:
            node = Node(self, proto, operands, valid_name(proto.output[0]), self.span)
            if proto.op_type in WITH_GRAPHS:
                made = WITH_GRAPHS[proto.op_type](node, known)
            else:
                if proto.op_type.startswith(_RANDOM):
                    node.refuse("random numbers must be inputs")
                made = OPERATIONS[proto.op_type](node, *operands)
            found = made if isinstance(made, list) else [made]
        results = dict(zip(proto.output, found, strict=False))
        for name, x in results.items():
            self._check(proto, name, x)
        return {name: x for name, x in results.items() if name}

    def _is_computed(self, proto: Any, operands: Sequence[Any]) -> bool:
        if proto.op_type == "Constant":
            return True
        given = [x for x in operands if x is not None]
        are_known = all(
            is_known(x) and not isinstance(x, list) and not is_open(x) for x in given
        )
        is_plain = proto.op_type not in WITH_GRAPHS and proto.op_type in OPERATIONS
        is_random = proto.op_type.startswith((*_RANDOM, "Dropout"))
        return bool(given) and are_known and is_plain and not is_random

    @staticmethod
    def _of_extents(proto: Any, operands: Sequence[Any]) -> Array | None:
        """What is computed of extents with symbols, if that is all."""
        if not all(map(is_known, operands)) or not any(map(is_open, operands)):
            return None
        return compute(proto.op_type, operands)

    def _evaluated(self, proto: Any, operands: Sequence[Any]) -> list[Any]:
        arrays = [None if x is None else np.asarray(x) for x in operands]
        try:
            found = evaluate(proto, arrays, self.opsets)
        except Exception as error:  # of whatever type onnx raises
            what = f"onnx cannot evaluate {described(proto)}: {error}"
            message = f"cannot convert '{self.name}' to NNEF: {what}"
            raise UnsupportedError(message) from error
        if proto.op_type == "Constant" and found[0].dtype.kind == "f":
            self._named[id(found[0])] = found[0], proto.output[0]
        return found

    def _check(self, proto: Any, name: str, x: Any) -> None:
        """Raises an error if a result has another shape than onnx has inferred."""
        wanted = self.shapes.get(name)
        if wanted is None or x is None or isinstance(x, list):
            return
        if tuple(shape_of(x)) != wanted and not has_symbols(shape_of(x)):
            shown = f"{list(shape_of(x))}, and not {list(wanted)}"
            message = f"{described(proto)} of '{self.name}' has the shape {shown}"
            raise UnsupportedError(message)

    # ---- Values ----

    def converted(self, x: Any, dtype: str, hint: str, span: Span) -> Any:
        """A value as one of a data type; scalars are truncated to integers."""
        if is_known(x) and is_open(x) and dtype == "scalar":
            return self.materialize(x, dtype, hint, span)
        if is_known(x):
            return simple(converted(x, dtype))
        if (x.dtype, dtype) == ("scalar", "integer"):
            return self.library("truncate", [x], {}, hint, span)
        return self.cast(x, dtype, hint, span)

    def stored(self, name: str, array: Array) -> Tensor:
        """The variable of an initializer."""
        made = self.variable(name, array.astype(np.float32, copy=False))
        self.values[made] = array
        return made

    def variable(self, name: str, array: Array, dtype: str = "scalar") -> Tensor:
        """The variable of an initializer."""
        label = self._label(name)
        self.data[label] = array
        return self.emitter.emit_named(
            self.fresh(name),
            "variable",
            dtype,
            shape=list(array.shape),
            label=label,
        )

    def fresh(self, name: str) -> str:
        """A name of the graph for what has a name in the file."""
        made = self.supply.fresh(valid_name(name))
        if made != name:
            self.called[made] = name
        return made

    def materialize(self, value: Any, dtype: str, hint: str, span: Span) -> Any:
        """As in `Reading`; a constant of the file that may be a parameter is a variable,
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
        if not isinstance(value, np.ndarray) or is_open(value):
            return False
        if not value.size or not value.ndim:
            return False
        is_uniform = bool((value == value.flat[0]).all())
        is_variable = (
            id(value) in self._named and dtype == "scalar"
        ) or value.size > MOST
        return is_variable and not is_uniform

    def _label(self, name: str) -> str:
        """A valid label: a path inside the folder of a model. Labels that differ in case
        only would be the same file.
        """
        steps = re.sub(r"[^\w./-]+", "_", name, flags=re.ASCII).split("/")
        wish = "/".join(step for step in steps if step.strip(".")) or "variable"
        return f"{wish}{self._labels.fresh(wish.lower())[len(wish) :]}"


@cache
def _library() -> Joined:
    own = FragmentFile(Path(__file__).parent / "onnx.nnef")
    return Joined(own, extras(), standard())
