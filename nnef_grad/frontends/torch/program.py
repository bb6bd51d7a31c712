"""A program of torch.export to a graph: its inputs, its parameters, its results."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
)

from nnef_grad.base.errors import (
    Problem,
    UnsupportedError,
    UsageError,
    refuse_unknown,
)
from nnef_grad.base.source import NOWHERE
from nnef_grad.emit.evaluation import NoValueError
from nnef_grad.frontends.constants import Constants, known_input
from nnef_grad.frontends.conversion import declare_as_read
from nnef_grad.frontends.reading import WORK_PER_ELEMENT, Later
from nnef_grad.frontends.torch import archive
from nnef_grad.frontends.torch.call import array_of, dtype_name, value_of
from nnef_grad.frontends.torch.capture import Captured, capture, plain
from nnef_grad.frontends.torch.choices import Ways, list_of
from nnef_grad.frontends.torch.complexes import counts, in_parts, is_complex
from nnef_grad.frontends.torch.functional import calls_of, functional, nodes_of, traced
from nnef_grad.frontends.torch.internals import pytree
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.frontends.torch.nodes import USERS, reachable
from nnef_grad.frontends.torch.reading import ProgramReading
from nnef_grad.frontends.torch.silence import silence
from nnef_grad.frontends.torch.symbols import of_batch, program_symbols
from nnef_grad.frontends.torch.ways import Number, Returned, read_ways
from nnef_grad.frontends.values import is_known, shape_of
from nnef_grad.graph.facts import Facts
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.learning import with_facts
from nnef_grad.graph.passes import put_inputs_first
from nnef_grad.language.identifiers import plain_name
from nnef_grad.storage.files import PathLike

_HALF = (torch.float16, torch.bfloat16)
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@silence()
def read(
    module: nn.Module | ExportedProgram | PathLike,
    given: Sequence[Any] | Mapping[str, Any],
    batch: int | None,
    dynamic_shapes: Any,
    allow_own_backward: bool,
    constants: Constants,
    unroll: int,
) -> TorchModel:
    """See `from_torch`."""
    own: dict[str, Any] = {}
    name = "program"
    is_file = isinstance(module, (str, os.PathLike))
    if isinstance(module, (str, os.PathLike)):
        module, name = archive.load(module), Path(module).stem
    if isinstance(module, ExportedProgram):
        own = _places(module)
        ways: Ways[Captured] = functional(Captured(module))
    elif not isinstance(module, nn.Module):
        what = f"it is of type {type(module).__name__}"
        raise UsageError(f"from_torch takes a module, a program or its file: {what}")
    else:
        module = plain(module)
        # A program knows the memory of parameters and buffers alone, which some share.
        parameters = module.named_parameters(remove_duplicate=False)
        buffers = module.named_buffers(remove_duplicate=False)
        own = {name: id(tensor) for name, tensor in (*parameters, *buffers)}
        name = type(module).__name__
        shapes = of_batch(module, given) if batch is not None else dynamic_shapes
        ways = traced(partial(capture, module, given, shapes, allow_own_backward))
    programs = [way.program for way in list_of(ways)]
    inputs = programs[0].graph_signature.user_inputs
    refuse_unknown(constants, [*map(str, inputs)], "the program has no input")

    def read_with(facts: Facts) -> TorchModel:
        made = _Program(ways, dynamic_shapes, batch, own, constants)
        made.reading.unroll = unroll
        if not is_file:
            # Whoever has a module could compute as much in it.
            made.reading.most_work = sys.maxsize
        return made.model(name)

    model = with_facts(read_with)
    told = [text for way in list_of(ways) for text in way.warnings]
    told += [text for program in programs for text in _conversions(program)]
    problems = tuple(map(Problem, dict.fromkeys(told)))
    graph = replace(model.graph, warnings=(*model.graph.warnings, *problems))
    return replace(model, graph=graph)


def _conversions(program: ExportedProgram) -> list[str]:
    """A warning if the module, or a part of it, is of another precision than the graph."""
    dtypes = {x.dtype for x in _stored(program)} & {*_HALF, torch.float64}
    fakes = (pytree.tree_leaves(node.meta.get("val")) for node in calls_of(program))
    results = (x for several in fakes for x in several if isinstance(x, torch.Tensor))
    dtypes |= {x.dtype for x in results if x.dtype in _HALF}
    named = ", ".join(sorted(map(str, dtypes)))
    return [f"{named} becomes single precision in the graph"] if named else []


def _stored(program: ExportedProgram) -> Iterator[torch.Tensor]:
    """The tensors that a program has."""
    values = (*program.state_dict.values(), *program.constants.values())
    return (x for x in values if isinstance(x, torch.Tensor))


# ---- The graph ----


class _Program:
    """The programs of a module, one for each way through it, and what is made of them.

    Attributes:
        captured: the one that is read.
        inputs: the inputs of the graph, by their names.
        parameters: what makes the variables of parameters and buffers, by the names of these.
        counters: the buffers of integers that are both changed and read.
    """

    def __init__(
        self,
        ways: Ways[Captured],
        dynamic_shapes: Any,
        batch: int | None,
        own: Mapping[str, Any],
        constants: Constants,
    ) -> None:
        self.ways = ways
        self.captured, *_ = every = list_of(ways)
        self.constants = constants
        self._symbols = partial(
            program_symbols, dynamic_shapes=dynamic_shapes, batch=batch
        )
        self.reading = ProgramReading(self._symbols(self.program))
        self.reading.tensors = tuple(x for way in every for x in _stored(way.program))
        stored = sum(x.numel() for x in _stored(self.program))
        self.reading.most_work += WORK_PER_ELEMENT * stored
        self.inputs: dict[str, Tensor] = {}
        self.parameters: dict[str, Later] = {}
        self.names: dict[str, list[str]] = _tied(self.program, own)
        self.counters = _counters([way.program for way in every])

    @property
    def program(self) -> ExportedProgram:
        """The program that is read."""
        program: ExportedProgram = self.captured.program
        return program

    def model(self, name: str) -> TorchModel:
        """The graph, and what torch calls its variables."""
        returned = read_ways(self.ways, self._read, self._buffer, self.reading)
        results = [(n, x) for n, x in returned.results if not isinstance(x, Number)]
        return self._finished(name, results, returned.updates)

    def _read(self, captured: Captured) -> Returned:
        """The results of the module on one of the ways."""
        self.captured = captured
        program = captured.program
        self.reading.begin(self._symbols(program), tuple(nodes_of(program)))
        signature = program.graph_signature
        fakes = {n.name: n.meta.get("val") for n in program.graph.nodes}
        values = [self._value(spec, fakes) for spec in signature.input_specs]
        try:
            returned = self.reading.run(program.graph_module, values)
        except NoValueError:
            returned = None
        if problems := self.reading.problems:
            # What is said of one place once.
            distinct = {(p.message, str(p.span)): p for p in problems}
            raise UnsupportedError.collect([*distinct.values()])
        return self._results(signature.output_specs, returned)

    @property
    def moved(self) -> list[OutputSpec]:
        """The new values of buffers that are no counters which nothing reads."""
        return [
            spec
            for spec in self.program.graph_signature.output_specs
            if spec.kind is OutputKind.BUFFER_MUTATION
            and self._is_state(str(spec.target))
        ]

    def _is_state(self, name: str) -> bool:
        """Whether a buffer is a variable if it changes; other integers are constants."""
        return name in self.counters or not counts(self._stored(name))

    def _value(self, spec: InputSpec, fakes: Mapping[str, Any]) -> Any:
        """The value of a placeholder: that of a parameter is made when it is needed."""
        argument, kind, target = spec.arg, spec.kind, str(spec.target)
        if isinstance(argument, ConstantArgument):
            return argument.value
        if kind is InputKind.USER_INPUT:
            name, fake = argument.name, fakes[argument.name]
            if name in self.inputs:
                return self.inputs[name]
            if not isinstance(fake, torch.Tensor):
                raise UnsupportedError(f"the input '{name}' is a number: fix it")
            dtype, shape = dtype_name(fake.dtype), self.reading.symbols.shape(fake)
            if name in self.constants:
                known = self.constants[name]
                return known_input(self.reading, name, known, dtype, shape)
            self.inputs[name] = self.reading.input(name, dtype, shape)
            return self.inputs[name]
        if kind not in _STATE:
            return None
        tensor, is_parameter = self._stored(target), kind is InputKind.PARAMETER
        is_kept = kind is InputKind.BUFFER and target in self.program.state_dict
        has_numbers = self._is_state(target) and tensor.numel() > 0
        is_fixed = target in self.captured.fixed
        if not has_numbers or is_fixed or not (is_parameter or is_kept):
            return Later(partial(value_of, tensor))
        first = self.names[target][0]
        made = (
            self.reading.complex_variable
            if tensor.is_complex()
            else self.reading.variable
        )
        later = Later(partial(made, first, tensor))
        return self.parameters.setdefault(first, later)

    def _stored(self, name: str) -> torch.Tensor:
        tensor = self.program.state_dict.get(name, self.program.constants.get(name))
        assert isinstance(tensor, torch.Tensor)
        return tensor

    # Results

    def _results(self, specs: Sequence[OutputSpec], returned: Any) -> Returned:
        """The tensors that the module returns, with names; the new values of buffers."""
        paths, results = iter(self._paths()), []
        conditions: list[Any] = []
        updates: dict[str, Any] = {}
        inputs = self.program.graph_signature.input_specs
        plain = {s.target for s in inputs if s.kind is InputKind.CONSTANT_TENSOR}
        for spec, value in zip(specs, returned, strict=True):
            target = str(spec.target)
            if spec.kind is OutputKind.USER_OUTPUT:
                path = next(paths, None)
                if path is None:
                    conditions.append(value)
                elif isinstance(spec.arg, ConstantArgument):
                    if isinstance(value, (int, float)):
                        results.append(("_".join(path) or "output", Number(value)))
                elif not isinstance(spec.arg, SymIntArgument):
                    name = "_".join(path) or "output"
                    if is_complex(value):
                        message = f"the output '{name}' is complex"
                        raise UnsupportedError(f"{message}: torch.view_as_real(y)")
                    if 0 in shape_of(value):
                        message = f"the output '{name}' has no elements"
                        self._warn(f"{message}: the graph is without it")
                        continue
                    results.append((name, value))
            elif spec in self.moved and self._differs(target, value):
                if target in plain:
                    # From one call to the next nobody would give it back.
                    message = f"forward assigns a new value to the attribute '{target}'"
                    advice = "make it a buffer, by register_buffer"
                    raise UnsupportedError(f"{message}: {advice}")
                if is_complex(value):
                    message = f"the complex buffer '{target}' is changed"
                    raise UnsupportedError(f"{message}: hold torch.view_as_real of it")
                updates[target] = value
        return Returned(results, updates, conditions)

    def _warn(self, message: str) -> None:
        self.reading.warnings.append(Problem(message))

    def _buffer(self, name: str) -> Any:
        """The value of a buffer that nothing has changed."""
        return self.parameters[self.names[name][0]]()

    def _differs(self, name: str, value: Any) -> bool:
        """Whether this is not what a buffer has anyway, as where it is assigned to itself."""
        if is_known(value):
            return not np.array_equal(value, array_of(self._stored(name)))
        first, *_ = self.names.get(name, [name])
        is_made = first in self.reading.variables
        return not is_made or value is not self.parameters[first]()

    def _paths(self) -> list[list[str]]:
        """The path to each leaf of what the module returns."""
        spec = self.program.call_spec.out_spec
        whole = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
        if self.captured.decides:
            whole, _ = whole
        try:
            leaves, _ = pytree.tree_flatten_with_path(whole)
            paths = [list(map(_word, path)) for path, _ in leaves]
        except ValueError:
            # The parts of a class may have no names.
            count = len(pytree.tree_leaves(whole))
            paths = [[str(i)] * (count > 1) for i in range(count)]
        return [
            ["output", *path] if path and path[0].isdigit() else path for path in paths
        ]

    def _finished(
        self, name: str, results: list[tuple[str, Any]], updates: Mapping[str, Any]
    ) -> TorchModel:
        """The model. An output is no input, and is returned once."""
        reading = self.reading
        news = [
            (f"new_{n}", reading.converted(x, "scalar", plain_name(n), NOWHERE))
            for n, x in updates.items()
        ]
        wishes = [*results, *news]
        outputs = [
            reading.returned(value, reading.supply.fresh(plain_name(wish)))
            for wish, value in wishes
        ]
        if not outputs:
            raise UsageError("the module returns no tensor")
        reading.settle(outputs)
        inputs = (*self.inputs.values(), *reading.drawn)
        graph = _without_unused(reading.graph_of(name, inputs, outputs))
        # The new value of a buffer has the shape that the buffer has in torch.
        kept = {reading.variables.get(name) for name in updates}
        graph = declare_as_read(put_inputs_first(graph), kept)
        places = {graph.names[x]: n for n, x in enumerate(self.inputs.values())}
        moved = zip(updates, graph.output_names[len(results) :], strict=True)
        parameters, buffers, trainable, shapes = self._called(graph)
        return TorchModel(
            graph,
            reading.data_of(graph),
            parameters,
            buffers,
            trainable,
            shapes,
            {name: places[name] for name in graph.input_names if name in places},
            dict(moved),
            {
                graph.names[t]: how
                for t, how in reading.drawn.items()
                if t in graph.inputs
            },
        )

    def _called(self, graph: Graph) -> tuple[Any, ...]:
        """The variables that are left, by the names of torch: those of parameters, and of
        buffers; those that are trained; and the shapes in torch.
        """
        # A variable may have been declared in another shape.
        kept = {graph.names[variable] for variable in graph.variables}
        parameters: dict[str, str] = {}
        buffers: dict[str, str] = {}
        trainable: list[str] = []
        shapes: dict[str, Any] = {}
        are_parameters = {*self.program.graph_signature.parameters}
        for first, variable in self.reading.variables.items():
            called = self.reading.emitter.names[variable]
            if called not in kept or first not in self.names:
                continue
            stored, is_first = self._stored(first), first in are_parameters
            for own in self.names[first]:
                is_parameter = is_first or own in are_parameters
                (parameters if is_parameter else buffers)[own] = called
                shapes[own] = tuple(in_parts(stored).shape)
            trainable += [called] if is_first and stored.requires_grad else []
        return parameters, buffers, tuple(trainable), shapes


def _word(step: Any) -> str:
    """A step of the path to a result, such as a key or an index, as a word."""
    return str(getattr(step, "key", getattr(step, "idx", getattr(step, "name", step))))


def _counters(programs: Sequence[ExportedProgram]) -> set[str]:
    """The buffers of integers that some programs change, and on whose values results of some
    depend, or what they return for Python to decide by.
    """
    changed, read = set[str](), set[str]()
    for program in programs:
        signature, graph = program.graph_signature, program.graph
        pairs = [*zip(signature.output_specs, graph.output_node().args[0], strict=True)]
        nodes = {node.name: node for node in graph.nodes}
        for spec in signature.input_specs:
            name = str(spec.target)
            stored = program.state_dict.get(name, program.constants.get(name))
            if spec.kind is InputKind.PARAMETER or not _is_count(stored):
                continue
            reached = reachable([nodes[spec.arg.name]], USERS)
            for result, x in pairs:
                is_new = result.kind is OutputKind.BUFFER_MUTATION
                if is_new and result.target == spec.target:
                    changed.add(name)
                elif x in reached:
                    read.add(name)
    return changed & read


def _is_count(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and counts(x)


def _places(program: ExportedProgram) -> dict[str, Any]:
    """The same for names of the same tensor: that of a parameter or of a buffer."""
    parameters = {*program.graph_signature.parameters}
    return {
        name: (x.data_ptr(), x.shape, x.stride(), name in parameters, x.requires_grad)
        for name, x in program.state_dict.items()
        if x.numel()
    }


def _tied(program: ExportedProgram, own: Mapping[str, Any]) -> dict[str, list[str]]:
    """For each name of a parameter or buffer all names of the same tensor, in order."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for name in program.state_dict:
        groups[own.get(name, name)].append(name)
    return {name: names for names in groups.values() for name in names}


def _without_unused(graph: Graph) -> Graph:
    """The graph without inputs that nothing depends on."""
    used = {tensor for op in graph.operations for tensor in op.inputs}
    kept = tuple(x for x in graph.inputs if x in used)
    gone = {*graph.inputs} - {*kept}
    operations = tuple(op for op in graph.operations if gone.isdisjoint(op.outputs))
    return replace(graph, inputs=kept, operations=operations)
