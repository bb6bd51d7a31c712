"""The nodes of an ONNX model, each by the function that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.base.errors import NnefGradError, Problem, Remedy, UnsupportedError
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.onnx import operations as _operations  # noqa: F401
from nnef_grad.frontends.onnx.evaluation import evaluate
from nnef_grad.frontends.onnx.model_values import ModelValues
from nnef_grad.frontends.onnx.node import OPERATIONS, WITH_GRAPHS, Node, described
from nnef_grad.frontends.reading import valid_name
from nnef_grad.frontends.values import (
    is_known,
    is_open,
    shape_of,
)
from nnef_grad.graph.extents import has_symbols

# Operations with a different result in each run.
_RANDOM = ("Random", "Bernoulli", "Multinomial")


class NodeReading(ModelValues):
    """Reads the nodes of a model."""

    def run(self, graph: Any, known: dict[str, Any]) -> list[Any]:
        """The values of the results of a graph; `known` has those of its inputs, and of
        what is known outside of it, by name.
        """
        for stored in graph.initializer:
            known.setdefault(stored.name, to_array(stored))
        for node in graph.node:
            self._take(known, node)
        return [self.value(known, output.name) for output in graph.output]

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
