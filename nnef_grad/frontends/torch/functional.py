"""A module to programs of torch.export without writes, of operations that are read here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from nnef_grad.base.errors import UnsupportedError, is_bug
from nnef_grad.frontends.torch.call import function_of
from nnef_grad.frontends.torch.capture import Captured, explained
from nnef_grad.frontends.torch.choices import Ways, each_way, list_of
from nnef_grad.frontends.torch.derivatives import GRADIENT, TRANSPOSED
from nnef_grad.frontends.torch.internals import is_fake, with_copies
from nnef_grad.frontends.torch.nodes import mark_stops, writes


def traced(trace: Callable[..., Ways[Captured]]) -> Ways[Captured]:
    """The programs of a module, without writes. What Python decides by buffers that change is
    decided by the graph.
    """
    ways = each_way(functional, trace())
    changed: set[str] = set()
    # What is decided by one may change others.
    while more := {*_changed(ways)} - changed:
        changed |= more
        ways = each_way(functional, trace(changed))
    assert changed.isdisjoint(_changed(ways))
    return ways


def _changed(ways: Ways[Captured]) -> Iterator[str]:
    """The buffers whose first values programs depend on for good, and that these change."""
    fixed = {name for way in list_of(ways) for name in way.fixed}
    for way in list_of(ways):
        for spec in way.program.graph_signature.output_specs:
            if spec.kind is OutputKind.BUFFER_MUTATION and spec.target in fixed:
                yield str(spec.target)


def functional(captured: Captured) -> Captured:
    """The program with operations that are read here, none of which writes into a tensor."""
    program = captured.program
    mark_stops(program.graph_module)
    program = _read_once(program)
    if any(map(_is_decomposed, calls_of(program))):
        program = _decomposed(program, {})
    written = [*_written(program)]
    if program.graph_module is not captured.program.graph_module:
        _take_writes(program)
    table = torch.export.default_decompositions()
    done: set[Any] = set()
    # What something is decomposed into may have to be decomposed itself.
    while missing := _not_read(program) & {*table} - done:
        program = _decomposed(program, {t: table[t] for t in missing})
        done |= missing
    return captured._replace(program=program, warnings=[*captured.warnings, *written])


def _written(program: ExportedProgram) -> Iterator[str]:
    """Warnings about inputs that a program writes into."""
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            message = f"the module writes into its input '{spec.target}'"
            yield f"{message}, which stays as it is here"


def _take_writes(program: ExportedProgram) -> None:
    """Takes from the results of a program those that are written into inputs: torch loses the
    names of such inputs when it decomposes the program again.
    """
    output, specs = program.graph.output_node(), program.graph_signature.output_specs
    pairs = zip([*specs], output.args[0], strict=True)
    kept = [p for p in pairs if p[0].kind is not OutputKind.USER_INPUT_MUTATION]
    specs[:] = [spec for spec, _ in kept]
    output.args = (tuple(result for _, result in kept),)
    program.graph_module.recompile()


def _read_once(program: ExportedProgram) -> ExportedProgram:
    """Reads by its first name what has several, as where a module is part of two: torch cannot
    decompose a program with one memory for two inputs.
    """
    first: dict[int, Any] = {}
    again: dict[str, Any] = {}
    nodes = {node.name: node for node in program.graph.nodes}
    for spec in program.graph_signature.input_specs:
        name = str(spec.target)
        x = program.state_dict.get(name, program.constants.get(name))
        if not isinstance(x, torch.Tensor) or is_fake(x):
            continue
        node = nodes[spec.arg.name]
        other = first.setdefault(id(x), node)
        if other is not node:
            node.replace_all_uses_with(other)
            again[name] = x
    return with_copies(program, again) if again else program


def _is_decomposed(node: Any) -> bool:
    """Whether a node writes; or differentiates, maybe from a block to another one."""
    return (
        writes(node)
        or _writes_statistics(node)
        or node.target in (GRADIENT, TRANSPOSED)
    )


def _decomposed(program: ExportedProgram, table: dict[Any, Any]) -> ExportedProgram:
    """The program without writes, and without the operations of a table."""
    try:
        return program.run_decompositions(table)
    except Exception as error:
        if is_bug(error):
            raise
        # As when a buffer that is written has two names.
        message = f"torch cannot decompose the module: {'; '.join(explained(error))}"
        raise UnsupportedError(message) from error


def _not_read(program: ExportedProgram) -> set[Any]:
    """The operations that are not read as they are."""
    return {
        node.target
        for node in calls_of(program)
        if function_of(node.target) is None or _writes_statistics(node)
    }


def nodes_of(program: ExportedProgram) -> Iterator[Any]:
    """The nodes of the graph, and then of its blocks."""
    for part in program.graph_module.modules():
        yield from part.graph.nodes if hasattr(part, "graph") else ()


def calls_of(program: ExportedProgram) -> Iterator[Any]:
    """The nodes that call an operation, also in blocks."""
    return (node for node in nodes_of(program) if node.op == "call_function")


def _writes_statistics(node: Any) -> bool:
    """Whether a normalization moves its running statistics, which its schema hides."""
    name = str(node.target)
    return name.startswith(("aten.batch_norm.", "aten.instance_norm.")) and bool(
        node.args[5] and node.args[3] is not None
    )
