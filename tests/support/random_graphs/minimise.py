"""A graph that fails, made small: whole parts of it are replaced by inputs that are fed
with what they computed, as long as it fails in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from support import reference

from .graphs import SOURCES, RandomGraph, Statement

Fails = Callable[[RandomGraph], bool]
Change = Callable[[RandomGraph, Sequence[str]], "RandomGraph | None"]


def minimise(graph: RandomGraph, fails: Fails) -> RandomGraph:
    """A small graph that fails as well."""
    before = None
    while before is None or _differ(before, graph):
        before = graph
        for change, items in _CHANGES:
            graph = _without(graph, change, items, fails)
    return graph


def _differ(one: RandomGraph, other: RandomGraph) -> bool:
    return (one.text, one.options) != (other.text, other.options)


def _without(
    graph: RandomGraph,
    change: Change,
    items: Callable[[RandomGraph], Sequence[str]],
    fails: Fails,
) -> RandomGraph:
    """Takes away as many items as possible: halves first, then quarters, then one by
    one, the last first.
    """
    count = len(items(graph))
    while count:
        start = 0
        while start < len(found := items(graph)[::-1]):
            smaller = change(graph, found[start : start + count])
            if smaller and _differ(smaller, graph) and fails(smaller):
                graph = smaller
            else:
                start += count
        count //= 2
    return graph


# ---- What is taken away ----


def _outputs(graph: RandomGraph) -> Sequence[str]:
    return graph.outputs


def _without_outputs(graph: RandomGraph, names: Sequence[str]) -> RandomGraph | None:
    kept = tuple(name for name in graph.outputs if name not in names)
    options = {k: v for k, v in graph.options.items() if k != "outputs"}
    return pruned(replace(graph, outputs=kept, options=options)) if kept else None


def _targets(graph: RandomGraph) -> Sequence[str]:
    return graph.targets


def _without_targets(graph: RandomGraph, names: Sequence[str]) -> RandomGraph | None:
    kept = [name for name in graph.targets if name not in names]
    options = {**graph.options, "wrt": kept}
    return pruned(replace(graph, options=options)) if kept else None


def _options(graph: RandomGraph) -> Sequence[str]:
    return [key for key in graph.options if key != "wrt"]


def _without_options(graph: RandomGraph, keys: Sequence[str]) -> RandomGraph:
    kept = {key: v for key, v in graph.options.items() if key not in keys}
    return replace(graph, options=kept)


def _made(graph: RandomGraph) -> Sequence[str]:
    """What could be fed instead, each operation by its first result."""
    return [s.outputs[0] for s in graph.statements if s.operation != "external"]


def _last(graph: RandomGraph) -> Sequence[str]:
    """The operations that make the outputs, each by its first result."""
    makers = [
        s for s in graph.statements if not set(s.outputs).isdisjoint(graph.outputs)
    ]
    return [statement.outputs[0] for statement in makers]


def _earlier(graph: RandomGraph, names: Sequence[str]) -> RandomGraph | None:
    """Some outputs give way to the operands that they were made of."""
    makers = {name: s for s in graph.statements for name in s.outputs}
    found: list[str] = []
    for output in graph.outputs:
        maker = makers[output]
        found += maker.inputs if maker.outputs[0] in names else [output]
    made = [name for name in found if makers[name].operation not in SOURCES]
    outputs = tuple(dict.fromkeys(made))
    return pruned(replace(graph, outputs=outputs)) if outputs else None


def _later(graph: RandomGraph, names: Sequence[str]) -> RandomGraph | None:
    """Some targets give way to the tensors that are made of them."""
    tensors = _values(graph)
    kept = [name for name in graph.targets if name not in names]
    users = [s for s in graph.statements if not set(s.inputs).isdisjoint(names)]
    made = [name for user in users for name in user.outputs]
    scalars = [name for name in made if name in tensors]
    scalars = [name for name in scalars if tensors[name].is_floating_point()]
    targets = list(dict.fromkeys([*kept, *scalars]))
    options = {**graph.options, "wrt": targets}
    return pruned(replace(graph, options=options)) if targets else None


def _fed(graph: RandomGraph, names: Sequence[str]) -> RandomGraph | None:
    """Some operations replaced by inputs of the values that they compute."""
    tensors = _values(graph)
    feeds, statements = dict(graph.feeds), []
    for statement in graph.statements:
        if statement.outputs[0] in names and statement.outputs[0] in tensors:
            for name in statement.outputs:
                feeds[name] = tensors[name].detach()
                statements.append(_external(name, feeds[name]))
        else:
            statements.append(statement)
    whole = replace(graph, statements=tuple(statements), feeds=feeds)
    outputs = tuple(n for n in graph.outputs if n not in feeds)
    return pruned(replace(whole, outputs=outputs)) if outputs else None


def _values(graph: RandomGraph) -> Mapping[str, Any]:
    """All tensors; none where the graph cannot be evaluated, which may be the failure."""
    try:
        return reference.evaluate(graph.text, graph.feeds, graph.variables)
    except Exception:
        return {}


_DTYPES = {"torch.float64": None, "torch.int64": "integer", "torch.bool": "logical"}


def _external(name: str, value: Any) -> Statement:
    attributes = {"shape": list(value.shape)}
    return Statement("external", (), attributes, (name,), _DTYPES[str(value.dtype)])


_CHANGES: Sequence[tuple[Change, Callable[[RandomGraph], Sequence[str]]]] = (
    (_without_outputs, _outputs),
    (_without_targets, _targets),
    (_earlier, _last),
    (_later, _targets),
    (_fed, _made),
    (_without_options, _options),
)


# ---- What nothing depends on ----


def pruned(graph: RandomGraph) -> RandomGraph | None:
    """The graph without what no output needs, and no target; None where it is none."""
    wrt = graph.options["wrt"]
    needed = {*graph.outputs, *(wrt if wrt != "all" else ())}
    statements: list[Statement] = []
    for statement in reversed(graph.statements):
        if not needed.isdisjoint(statement.outputs):
            needed.update(statement.inputs)
            statements.append(statement)
    kept = replace(graph, statements=tuple(reversed(statements)))
    return _with_data(_with_outputs(kept))


def _with_outputs(graph: RandomGraph) -> RandomGraph:
    """Outputs that are differentiated must still be outputs."""
    options = dict(graph.options)
    chosen = [n for n in options.pop("outputs", []) if n in graph.outputs]
    return replace(
        graph, options={**options, **({"outputs": chosen} if chosen else {})}
    )


def _with_data(graph: RandomGraph) -> RandomGraph | None:
    externals = _names(graph, "external")
    variables = [s for s in graph.statements if s.operation == "variable"]
    labels = {s.attributes["label"] for s in variables}
    if not externals:
        return None
    return replace(
        graph,
        feeds=_only(graph.feeds, externals),
        variables=_only(graph.variables, labels),
    )


def _names(graph: RandomGraph, operation: str) -> list[str]:
    return [s.outputs[0] for s in graph.statements if s.operation == operation]


def _only(table: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name in names}
