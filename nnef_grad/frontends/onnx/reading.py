"""The nodes of an ONNX model, each by the function in operations/ that reads it: see node.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx.numpy_helper import to_array

from nnef_grad.base.errors import (
    ENDING,
    InternalError,
    NnefGradError,
    Problem,
    Remedy,
    UnsupportedError,
    is_bug,
)
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.conversion import MOST_ELEMENTS
from nnef_grad.frontends.onnx.evaluation import evaluate, work_of
from nnef_grad.frontends.onnx.narrow import in_bits
from nnef_grad.frontends.onnx.node import (
    OPERATIONS,
    ModelValues,
    Node,
    module_of,
    name_in_messages,
    source_of_type,
)
from nnef_grad.frontends.onnx.validity import (
    DOMAINS,
    NODE_WORK,
    fault_of_node,
    graphs_of,
)
from nnef_grad.frontends.values import (
    is_known,
    is_open,
    shape_of,
)
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Tensor
from nnef_grad.graph.learning import current_facts


class ModelReading(ModelValues):
    """Reads the nodes of a model."""

    def run(self, graph: Any, values: dict[str, Any]) -> list[Any]:
        """The values of the results of a graph; `values` has those of what it reads, by name."""
        self.spend(NODE_WORK)
        for stored in graph.initializer:
            values.setdefault(stored.name, to_array(stored))
        outer, self.makers = self.makers, _makers(graph, self.makers)
        for node in graph.node:
            self.take(values, node)
        self.makers, self.emitter.module = outer, None
        return [self.value(values, output.name) for output in graph.output]

    def take(self, values: dict[str, Any], node: Any) -> None:
        """Reads a node; if that fails, its results have no values."""
        self.failed.update(node.output)
        self.emitter.module = module_of(node)
        if self.work > self.most_work:
            return
        if (facts := current_facts()) is not None:
            facts.place = name_in_messages(node)
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
        except ENDING:
            raise
        except Exception as error:
            if not (fault := fault_of_node(node, self.opsets)):
                raise InternalError(name_in_messages(node), error) from error
            self._add_problem(node, f"it is not valid: {fault}")

    def _add_problem(
        self, node: Any, message: str, remedy: Remedy | None = None
    ) -> None:
        what = f"{name_in_messages(node)} is not possible: {message}"
        self.problems.append(Problem(self.refusal(what), None, remedy))

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
            if operands and source_of_type(node.kind, self.version) == 0:
                alike = node.like(operands[0], values[0])
                values[0] = in_bits(node, alike, operands)
        self.narrow[proto.output[0]] = self.narrow_type(proto, operands)
        results = dict(zip(proto.output, values, strict=False))
        for name, x in results.items():
            self._check(proto, name, x)
            self._note_name(name, x)
        return {name: x for name, x in results.items() if name}

    def _note_name(self, name: str, x: Any) -> None:
        """Keeps what a name means in the graph, if it is one tensor there."""
        if self.emitter is not self._outermost:
            self.made.setdefault(name, None)
        else:
            is_one = isinstance(x, Tensor) and name not in self.made
            self.made[name] = x if is_one else None

    def _is_computed(self, proto: Any, operands: Sequence[Any]) -> bool:
        if proto.op_type == "Constant":
            return True
        present = [x for x in operands if x is not None]
        are_known = all(not isinstance(x, list) and is_known(x) for x in present)
        is_own = proto.domain not in DOMAINS or proto.op_type in _NEVER_COMPUTED
        is_plain = not is_own and not graphs_of(proto)
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
            if is_bug(error):
                raise
            what = f"onnx cannot evaluate {name_in_messages(proto)}: {error}"
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
            message = (
                f"{name_in_messages(proto)} of '{self.name}' has the shape {shown}"
            )
            raise UnsupportedError(message)


# What onnx would compute as something else: the identity, weights that may be trained, and
# sequences, of which it would make arrays; and an element at a time, which takes long.
_NEVER_COMPUTED = (
    "DequantizeLinear", "Dropout", "SequenceConstruct", "SplitToSequence",
    "AveragePool", "Col2Im", "Conv", "ConvTranspose", "GRU", "GridSample", "LSTM",
    "LpPool", "MaxPool", "RNN", "Resize", "Upsample",
)  # fmt: skip


def _makers(graph: Any, around: Mapping[str, Any]) -> dict[str, Any]:
    """The nodes of a graph and those around it, by their results."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    outer = {name: node for name, node in around.items() if name not in own}
    return outer | {name: node for node in graph.node for name in node.output if name}


def _size(value: Any) -> int:
    """The items of a sequence, or the elements of a known value."""
    if isinstance(value, (list, tuple)):
        return len(value)
    return 0 if isinstance(value, Tensor) else int(np.size(value))
