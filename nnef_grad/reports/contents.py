"""The contents of a report: what its page shows, as plain data."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Mapping
from functools import cache, lru_cache, partial
from math import prod
from typing import Any

from nnef_grad.autodiff.activity import find_activity
from nnef_grad.autodiff.backward import Backward, Broadcast, summary
from nnef_grad.autodiff.rules import Rules
from nnef_grad.autodiff.statistics import statistics
from nnef_grad.emit.evaluation import instantiate_body
from nnef_grad.emit.rewriting import DefUse
from nnef_grad.graph.ir import Graph, Operation, Tensor, tensors
from nnef_grad.graph.printer import print_operation, print_value
from nnef_grad.graph.symbols import refuse_symbols
from nnef_grad.language.syntax import Fragment
from nnef_grad.ops import SHAPES
from nnef_grad.ops.costs import byte_size, bytes_moved, memory_alive, multiply_adds
from nnef_grad.ops.traits import FED, SOURCES, STEPS
from nnef_grad.reports.blocks import blocks, hosts
from nnef_grad.reports.folds import Fold, Part, folds
from nnef_grad.reports.values import json_number

Json = dict[str, Any]

# The characters that are shown of a text.
LONGEST = 4000
# What `unbroadcast` emits.
_REDUCTIONS = ("sum_reduce", "squeeze")
# A fragment has no braces but those of its body.
_DEFINITION = re.compile(r"fragment\b[^{]*\{[^}]*\}")
_NONE = {
    **dict.fromkeys(SOURCES, "it has no operands: there is nothing to differentiate"),
    **dict.fromkeys(
        STEPS, "a step function: the derivative is zero wherever it exists"
    ),
}


def contents(
    forward: Graph,
    backward: Backward,
    rules: Rules,
    values: Mapping[str, Json] | None = None,
    losses: Mapping[int, float] | None = None,
    called: Mapping[str, str] | None = None,
) -> Json:
    """The contents of the page for a graph and its backward graph: plain data, for JSON.
    Operations are named by their indices. The values of gradients are those of
    `values_shown`, the losses are by the number of the step. The names of a file are by those
    of the graphs, where they differ.
    """
    refuse_symbols(forward, "a report cannot count with")
    drawn = hosts(forward)
    texts = _RuleTexts(rules, {*rules.shapes, *SHAPES, *forward.custom_operations})
    theirs = forward.tensors
    return {
        "title": forward.name,
        **_headings(forward, backward),
        "folds": _as_data(folds(forward, drawn)),
        "forward": {
            **_graph(forward, theirs, texts),
            "places": drawn,
            "active": _active(forward, backward, rules),
        },
        "backward": {
            **_graph(backward.graph, theirs, texts),
            "places": blocks(forward, backward),
            "broadcasts": _broadcasts(forward, backward),
            "seeds": dict(backward.seeds),
            "gradients": dict(backward.gradients),
        },
        "rules": [list(text) for text in texts.indices],
        "called": dict(called or {}),
        "values": dict(values or {}),
        "losses": [
            [int(step), json_number(float(loss))]
            for step, loss in (losses or {}).items()
        ],
    }


# How the heads of steps begin, in training/step.py: their forward graph has the loss in it.
_STEPS = ("A training step", "The gradients of a batch")


def _headings(forward: Graph, backward: Backward) -> Json:
    """The title of the graphs, in a line; of a step, also by which loss and optimizer."""
    line = summary(forward, backward).removeprefix(f"{forward.name}: ")
    head = next(iter(backward.graph.notes), "")
    if not head.startswith(_STEPS):
        return {"summary": line, "step": ""}
    _, _, made = line.partition(" in, ")
    return {"summary": f"{head} {made}", "step": head}


def _active(forward: Graph, backward: Backward, rules: Rules) -> list[bool]:
    """For each operation of the forward graph, whether gradients flow through it; of what
    is added to it before it is differentiated, such as a score, nothing is known.
    """
    theirs = forward.tensors
    wrt, ends, stopped = (
        [theirs[name] for name in names if name in theirs]
        for names in (backward.gradients, backward.outputs, backward.stopped)
    )
    activity = find_activity(forward, wrt, ends, rules, stopped)
    operations = {operation for operation, _ in activity.operations}
    return [operation in operations for operation in forward.operations]


def _as_data(part: Part) -> Any:
    if isinstance(part, Fold):
        return {"name": part.name, "parts": [_as_data(p) for p in part.parts]}
    return part


def _graph(graph: Graph, theirs: Container[str], texts: _RuleTexts) -> Json:
    """The contents for one graph; `theirs` are the tensors of the forward graph."""
    names = graph.names
    alive = memory_alive(graph, byte_size, kept=graph.outputs)
    return {
        "totals": statistics(graph).as_data(by_operation=False),
        "inputs": list(graph.input_names),
        "outputs": list(graph.output_names),
        "tensors": [[n, t.dtype, list(t.shape)] for n, t in graph.tensors.items()],
        "operations": [
            # What is computed again has the origin that it had in the forward graph.
            _operation(op, names, names[op.outputs[0]] in theirs, memory, texts)
            for op, memory in zip(graph.operations, alive, strict=True)
        ],
    }


def _operation(
    operation: Operation,
    names: Mapping[Tensor, str],
    is_forward: bool,
    bytes_alive: int,
    texts: _RuleTexts,
) -> Json:
    definition, settings = operation.definition, operation.settings
    operands = zip(definition.operands, operation.operands, strict=True)
    shape = SHAPES.get(operation.name)
    origin = None if is_forward else operation.origin
    return {
        "kind": operation.name,
        "text": _clipped(print_operation(operation, names)),
        # The parameters that tensors are given for.
        "operands": [(p.name, names[t]) for p, x in operands for t in tensors((x,))],
        "results": [names[t] for t in operation.outputs],
        "attributes": [
            (p.name, _clipped(print_value(p.type, settings[p.name])))
            for p in definition.attributes
        ],
        "multiplyAdds": multiply_adds(operation),
        "bytesMoved": bytes_moved(operation),
        "bytesAlive": None if operation.name in FED else bytes_alive,
        "rule": texts.index(origin or operation),
        "isDerivative": origin is not None and texts.is_known(origin),
        # The optimizer that it is a part of.
        "update": "" if origin is None or texts.is_known(origin) else origin.name,
        # That of its shape function.
        "family": shape.__module__.rpartition(".")[2] if shape else "",
    }


def _clipped(text: str) -> str:
    """The text, or its head: constants may have thousands of items."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} \N{HORIZONTAL ELLIPSIS}"


def _broadcasts(forward: Graph, backward: Backward) -> list[str]:
    """For each operation of a backward graph, which broadcasts it undoes, if it does."""
    there, names = forward.tensors, backward.graph.tensors
    makers = DefUse(backward.graph).producers
    texts: dict[Operation, dict[str, None]] = {}
    for name, broadcasts in backward.broadcasts.items():
        sentences = dict.fromkeys(_said(b, there) for b in broadcasts)
        for reduction in _reductions(makers, names[name]) if name in names else ():
            texts.setdefault(reduction, {}).update(sentences)
    return ["; ".join(texts.get(op, ())) for op in backward.graph.operations]


def _reductions(
    makers: Mapping[Tensor, Operation], gradient: Tensor
) -> list[Operation]:
    """The operations that reduce a gradient, on the way to one of the shape of an operand: a
    sum may come before what is computed of it, where that is the same and cheaper. All of
    it is part of the derivative of one operation.
    """
    reductions, seen, waiting = [], set[Operation](), [makers[gradient]]
    origin = makers[gradient].origin
    while waiting:
        operation = waiting.pop()
        if operation in seen or operation.origin is not origin:
            continue
        seen.add(operation)
        if operation.name in _REDUCTIONS:
            reductions.append(operation)
        if operation.name != "sum_reduce":
            size = prod(operation.outputs[0].shape)
            waiting += [makers[t] for t in operation.inputs if prod(t.shape) == size]
    return reductions


def _said(broadcast: Broadcast, there: Mapping[str, Tensor]) -> str:
    """A broadcast in words. What the forward graph was decomposed into has no shapes."""
    operand, result = (
        f"{name} {list(there[name].shape)}" if name in there else name
        for name in broadcast
    )
    return f"{operand} was broadcast to {result}"


# ---- The texts of rules: how an operation was differentiated, for a reader ----


# A phrase, which rule it is, and its text, in NNEF or Python, if there is one.
_RuleText = tuple[str, str]


class _RuleTexts:
    """The texts of rules, each once: operations of a kind share theirs.

    Attributes:
        indices: the texts, in order, with their indices.
    """

    def __init__(self, rules: Rules, operations: set[str]) -> None:
        self._rules = rules
        self._operations = operations
        self.indices: dict[_RuleText, int] = {}
        self.index = cache(self._index)

    def is_known(self, origin: Operation) -> bool:
        """Whether it is an operation that is differentiated: an optimizer is none."""
        return origin.name in self._operations

    def _index(self, operation: Operation) -> int:
        """The index of the text about an operation."""
        is_known = self.is_known(operation)
        of_rule = _rule_text(self._rules, operation) if is_known else None
        text = of_rule or _of_update(operation.definition)
        return self.indices.setdefault(text, len(self.indices))


def _rule_text(rules: Rules, operation: Operation) -> _RuleText:
    """How the rules differentiate an operation."""
    name = operation.name
    if name in _NONE:
        return _NONE[name], ""
    derivation = rules.derivation(operation)
    vjp, decompose = derivation.vjp, derivation.decompose
    if isinstance(vjp, partial):
        (fragment,) = vjp.args
        place = f"{fragment.name} in {fragment.span.source.name}"
        return place, _definition(fragment)
    if vjp is not None:
        return _place(vjp), _source(vjp)
    if decompose is instantiate_body:
        body = _definition(operation.definition)
        return "differentiated through its definition", body
    if decompose is not None:
        how = "replaced by other operations, which are differentiated"
        return f"{how}: {_place(decompose)}", _source(decompose)
    return "it has no derivative: its results do not move with its operands", ""


def _of_update(recipe: Fragment) -> _RuleText:
    """The use that a training step makes of gradients: an optimizer, or clipping."""
    return f"part of {recipe.name}, in the training step", _definition(recipe)


def _definition(fragment: Fragment) -> str:
    """The definition of a fragment, as it was written."""
    text, place = fragment.span.source.text, fragment.span.start
    match = _DEFINITION.match(text, max(text.rfind("fragment", 0, place), 0))
    return "" if match is None else match[0]


def _place(function: Callable[..., Any]) -> str:
    """The name of a function, and the file that it is in."""
    name = getattr(function, "__name__", type(function).__name__)
    module = getattr(function, "__module__", None) or ""
    return f"{name} in {module.replace('.', '/')}.py" if module else name


@lru_cache(maxsize=256)
def _source(function: Callable[..., Any]) -> str:
    """The text of a function, where Python has it; otherwise what it says of itself."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return inspect.getdoc(function) or ""
