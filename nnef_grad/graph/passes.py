"""Passes over whole graphs: dead code elimination, and the order that consumers expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress

from nnef_grad.graph.ir import Graph, Operation, Quantization, Tensor
from nnef_grad.graph.loops import Loop, as_loop, external, is_loop, loop_of
from nnef_grad.graph.rewriting import sweep


def count_uses(graph: Graph) -> Counter[Tensor]:
    """How often each tensor is an operand or an output."""
    uses = Counter([tensor for op in graph.operations for tensor in op.inputs])
    uses.update(graph.outputs)
    return uses


def prune(graph: Graph) -> Graph:
    """The graph without operations that no output needs; the same, if none is."""
    needed = {*graph.outputs}
    kept: list[Operation] = []
    is_narrowed = False
    for before in reversed(graph.operations):
        operation = before
        is_needed = operation.name == "external"
        for tensor in operation.outputs:
            is_needed = is_needed or tensor in needed
        if is_needed:
            if is_loop(operation):
                operation = _narrowed(operation, needed)
                is_narrowed = is_narrowed or operation is not before
            kept.append(operation)
            needed.update(operation.inputs)
    if len(kept) == len(graph.operations) and not is_narrowed:
        return graph
    return replace(graph, operations=tuple(reversed(kept)))


def without_needless(after: Graph, before: Graph) -> Graph:
    """The graph without operations that a pass has made needless."""
    used = {op.outputs for op in prune(after).operations}
    were = {op.outputs for op in prune(before).operations}
    operations = [
        op for op in after.operations if op.outputs in used or op.outputs not in were
    ]
    return replace(after, operations=tuple(operations))


def _narrowed(operation: Operation, needed: Collection[Tensor]) -> Operation:
    """A loop without what is for no needed result; of what it scans, one stays."""
    loop = loop_of(operation)
    last, gathered = operation.outputs[: loop.states], operation.outputs[loop.states :]
    kept = [tensor in needed for tensor in gathered]
    collected = list(compress(loop.collected, kept))
    live, body, read = _live_part(
        loop,
        [tensor in needed for tensor in last],
        [loop.body.outputs[one.output] for one in collected],
    )
    read.update(compress(loop.state_inputs, live))
    if read.isdisjoint(loop.parts):
        read.add(loop.parts[0])
    used = [tensor in read for tensor in loop.body.inputs]
    if all(used) and all(kept) and body is loop.body:
        return operation
    inputs = tuple(compress(loop.body.inputs, used))
    fewer = tuple(
        op for op in body.operations if op.name != "external" or op.outputs[0] in inputs
    )
    other = Loop(
        replace(body, inputs=inputs, operations=fewer),
        sum(live),
        tuple(compress(loop.scanned, used[-len(loop.scanned) :])),
        tuple(
            one._replace(output=body.outputs.index(loop.body.outputs[one.output]))
            for one in collected
        ),
    )
    operands = compress(operation.inputs, used)
    results = (*compress(last, live), *compress(gathered, kept))
    return as_loop(operation, other, operands, results)


def _live_part(
    loop: Loop, live: list[bool], gathered: list[Tensor]
) -> tuple[list[bool], Graph, set[Tensor]]:
    """The live states of a loop, its body without the rest, and what that reads."""
    while True:
        wanted = dict.fromkeys([*compress(loop.next_values, live), *gathered])
        body = prune(replace(loop.body, outputs=tuple(wanted)))
        read = {tensor for op in body.operations for tensor in op.inputs}
        pairs = zip(live, loop.state_inputs, strict=True)
        wanted_states = [is_live or state in read for is_live, state in pairs]
        if wanted_states == live:
            is_whole = body.operations == loop.body.operations
            same = is_whole and body.outputs == loop.body.outputs
            return live, loop.body if same else body, read
        live = wanted_states


def put_inputs_first(graph: Graph) -> Graph:
    """The graph with its externals first, in the order of the signature."""
    externals = {op.outputs[0]: op for op in graph.operations if op.name == "external"}
    others = [op for op in graph.operations if op.name != "external"]
    return replace(graph, operations=(*(externals[t] for t in graph.inputs), *others))


def replace_variables(graph: Graph, variables: Sequence[Tensor] | None = None) -> Graph:
    """The graph with its variables, or some, as further inputs, after its own."""
    further = graph.variables if variables is None else variables
    replaced = {*further}

    def given(op: Operation) -> Operation:
        is_replaced = op.name == "variable" and op.outputs[0] in replaced
        return replace(external(op.outputs[0]), span=op.span) if is_replaced else op

    inputs = (*graph.inputs, *further)
    return put_inputs_first(replace(sweep(graph, given), inputs=inputs))


def carry_quantization(
    entries: Mapping[str, Quantization], graph: Graph
) -> dict[str, Quantization]:
    """The entries for tensors of a graph: forward tensors keep their names."""
    names = graph.tensors if entries else ()
    return {name: entries[name] for name in names if name in entries}
