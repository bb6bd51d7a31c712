"""The contents of a report: what its page shows, as plain data."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import prod
from typing import Any

from nnef_grad.autodiff.activity import find_activity
from nnef_grad.autodiff.backward import Backward, Broadcast, summary
from nnef_grad.autodiff.rules import Rules
from nnef_grad.autodiff.statistics import statistics
from nnef_grad.graph.ir import Graph, Operation, Tensor, tensors
from nnef_grad.graph.printer import print_operation, print_value
from nnef_grad.graph.symbols import refuse_symbols
from nnef_grad.ops import SHAPES
from nnef_grad.ops.costs import byte_size, bytes_moved, multiply_adds
from nnef_grad.ops.liveness import memory_alive
from nnef_grad.ops.traits import FED
from nnef_grad.reports.blocks import blocks, hosts, origin_of
from nnef_grad.reports.folds import Fold, Part, folds
from nnef_grad.reports.rule_texts import RuleText, of_update, rule_text
from nnef_grad.reports.values import json_number

Data = dict[str, Any]

# The characters that are shown of a text.
LONGEST = 4000
# What `unbroadcast` emits.
_REDUCTIONS = ("sum_reduce", "squeeze")


def contents(
    forward: Graph,
    backward: Backward,
    rules: Rules,
    values: Mapping[str, Data] | None = None,
    losses: Mapping[int, float] | None = None,
) -> Data:
    """The contents of the page for a graph and its backward graph.

    Args:
        forward: the graph.
        backward: its backward graph.
        rules: the rules that it was made with.
        values: what is known of the values of gradients; see `values_shown`.
        losses: those of a training, by the number of the step.

    Returns:
        Plain data, for JSON. Operations are named by their indices.

    Raises:
        InvalidGraphError: an extent has no number.
    """
    refuse_symbols(forward, "a report cannot count with")
    drawn = hosts(forward)
    texts = _RuleTexts(rules, {*rules.shapes, *SHAPES, *forward.custom_operations})
    beside = blocks(forward, backward)
    theirs = forward.tensors
    return {
        "title": forward.name,
        "summary": summary(forward, backward),
        "folds": _as_data(folds(forward, drawn)),
        "forward": {
            **_graph(forward, theirs, texts),
            "places": drawn,
            "active": _active(forward, backward, rules),
        },
        "backward": {
            **_graph(backward.graph, theirs, texts),
            "places": beside,
            "broadcasts": _broadcasts(forward, backward),
            "seeds": dict(backward.seeds),
            "gradients": dict(backward.gradients),
        },
        "rules": [list(text) for text in texts.found],
        "values": dict(values or {}),
        "losses": [
            [int(step), json_number(float(loss))]
            for step, loss in (losses or {}).items()
        ],
    }


def _active(forward: Graph, backward: Backward, rules: Rules) -> list[bool]:
    """For each operation of the forward graph, whether gradients flow through it; of what
    is added to it before it is differentiated, such as a score, nothing is known.
    """
    theirs = forward.tensors
    wrt, ends, stopped = (
        [theirs[name] for name in names if name in theirs]
        for names in (backward.gradients, backward.outputs, backward.stopped)
    )
    found = find_activity(forward, wrt, ends, rules, stopped)
    operations = {operation for operation, _ in found.operations}
    return [operation in operations for operation in forward.operations]


def _as_data(part: Part) -> Any:
    if isinstance(part, Fold):
        return {"name": part.name, "parts": [_as_data(p) for p in part.parts]}
    return part


def _graph(graph: Graph, theirs: Container[str], texts: _RuleTexts) -> Data:
    """The contents for one graph; `theirs` are the tensors of the forward graph."""
    names = graph.names
    alive = memory_alive(graph, byte_size, kept=graph.outputs)
    totals = statistics(graph).as_data(by_operation=False)
    return {
        "totals": totals,
        "inputs": list(graph.input_names),
        "outputs": list(graph.output_names),
        "tensors": [[n, t.dtype, list(t.shape)] for n, t in graph.tensors.items()],
        "operations": [
            _operation(op, names, origin_of(op, names, theirs), memory, texts)
            for op, memory in zip(graph.operations, alive, strict=True)
        ],
    }


def _operation(
    operation: Operation,
    names: Mapping[Tensor, str],
    origin: Operation | None,
    bytes_alive: int,
    texts: _RuleTexts,
) -> Data:
    return {
        "kind": operation.name,
        "text": _clipped(print_operation(operation, names)),
        "operands": _operands(operation, names),
        "results": [names[t] for t in operation.outputs],
        "attributes": _attributes(operation),
        "multiplyAdds": multiply_adds(operation),
        "bytesMoved": bytes_moved(operation),
        "bytesAlive": None if operation.name in FED else bytes_alive,
        "rule": texts.index(origin or operation),
        "isDerivative": origin is not None and texts.is_known(origin),
        "isUpdate": origin is not None and not texts.is_known(origin),
        "family": _family(operation),
    }


def _family(operation: Operation) -> str:
    """The family of an operation: that of its shape function."""
    shape = SHAPES.get(operation.name)
    return "" if shape is None else shape.__module__.rpartition(".")[2]


def _operands(
    operation: Operation, names: Mapping[Tensor, str]
) -> list[tuple[str, str]]:
    """The parameters that tensors are given for, each with the name of the tensor."""
    pairs = zip(operation.definition.operands, operation.operands, strict=True)
    return [(p.name, names[t]) for p, given in pairs for t in tensors((given,))]


def _attributes(operation: Operation) -> list[tuple[str, str]]:
    """The attributes with their values, defaults included."""
    return [
        (p.name, _clipped(print_value(p.type, operation.settings[p.name])))
        for p in operation.definition.attributes
    ]


def _clipped(text: str) -> str:
    """The text, or its head: constants may have thousands of items."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} \N{HORIZONTAL ELLIPSIS}"


class _RuleTexts:
    """The texts of rules, each once: operations of a kind share theirs."""

    def __init__(self, rules: Rules, operations: set[str]) -> None:
        self._rules = rules
        self._operations = operations
        self._indices: dict[RuleText, int] = {}
        self._known: dict[Operation, int] = {}

    @property
    def found(self) -> Sequence[RuleText]:
        """The texts, in the order of their indices."""
        return list(self._indices)

    def is_known(self, origin: Operation) -> bool:
        """Whether it is an operation that is differentiated: an optimizer is none."""
        return origin.name in self._operations

    def index(self, operation: Operation) -> int:
        """The index of the text about an operation."""
        if operation not in self._known:
            text = (
                rule_text(self._rules, operation)
                if self.is_known(operation)
                else of_update(operation.definition)
            )
            index = self._indices.setdefault(text, len(self._indices))
            self._known[operation] = index
        return self._known[operation]


def _broadcasts(forward: Graph, backward: Backward) -> list[str]:
    """For each operation of a backward graph, which broadcasts it undoes, if it does."""
    there, made = forward.tensors, backward.graph.tensors
    makers = {t: op for op in backward.graph.operations for t in op.outputs}
    said: dict[Operation, dict[str, None]] = {}
    for name, broadcasts in backward.broadcasts.items():
        sentences = dict.fromkeys(_said(b, there) for b in broadcasts)
        for reduction in _reductions(makers, made[name]) if name in made else ():
            said.setdefault(reduction, {}).update(sentences)
    return ["; ".join(said.get(op, ())) for op in backward.graph.operations]


def _reductions(
    makers: Mapping[Tensor, Operation], gradient: Tensor
) -> list[Operation]:
    """The operations that reduce a gradient, on the way to one of the shape of an operand: a
    sum may come before what is computed of it, where that is the same and cheaper. All of
    it is part of the derivative of one operation.
    """
    found, seen, waiting = [], set[Operation](), [makers[gradient]]
    origin = makers[gradient].origin
    while waiting:
        operation = waiting.pop()
        if operation in seen or operation.origin is not origin:
            continue
        seen.add(operation)
        if operation.name in _REDUCTIONS:
            found.append(operation)
        if operation.name != "sum_reduce":
            size = prod(operation.outputs[0].shape)
            waiting += [makers[t] for t in operation.inputs if prod(t.shape) == size]
    return found


def _said(broadcast: Broadcast, there: Mapping[str, Tensor]) -> str:
    """A broadcast in words. What the forward graph was decomposed into has no shapes."""
    operand, result = (
        f"{name} {list(there[name].shape)}" if name in there else name
        for name in broadcast
    )
    return f"{operand} was broadcast to {result}"
