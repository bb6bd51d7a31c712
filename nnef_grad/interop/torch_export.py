"""The export of a PyTorch module: a module to an ONNX model, whose initializers have
torch's names, and that to a graph.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from textwrap import shorten
from traceback import walk_tb
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.utils import _pytree as pytree

from nnef_grad.errors import NnefGradError, Problem, UnsupportedError, UsageError
from nnef_grad.interop.khronos import Array, Model
from nnef_grad.interop.onnx_files import conversion, reading
from nnef_grad.interop.onnx_files.refusals import reason
from nnef_grad.interop.torch_modules import digest
from nnef_grad.interop.torch_replacements import Replacements

OPSET = 17


@dataclass(frozen=True, eq=False)
class Mark:
    """A parameter or buffer, and the values that its variable has until it is found.

    Attributes:
        names: in torch; several if it is tied.
        values: its own.
        stand_in: those of nothing else.
        is_parameter: and no buffer.
        is_trained: whether it requires a gradient.
    """

    names: tuple[str, ...]
    values: Array
    stand_in: Array
    is_parameter: bool
    is_trained: bool

    @cached_property
    def digest(self) -> tuple[int, int]:
        """What the stand-in is recognised by, however it lies."""
        return digest(self.stand_in)


def marks_of(module: nn.Module) -> list[Mark]:
    """The marks of the parameters and buffers of a module that torch's exporter makes
    variables of: those in its state. What has integers, infinities or no elements has
    none, as its values may mean something.

    Raises:
        UsageError: they are not on the CPU, or not of single precision.
        UnsupportedError: a parameter that requires a gradient is not in the state.
    """
    names: dict[int, list[str]] = {}
    tensors: dict[int, torch.Tensor] = {}
    for found in (module.named_parameters, module.named_buffers):
        for name, tensor in found(remove_duplicate=False):
            _refuse_kind(name, tensor)
            tensors[id(tensor)] = tensor
            names.setdefault(id(tensor), []).append(name)
    stored = {id(t) for t in module.state_dict(keep_vars=True).values()}
    _refuse_unstored(
        names[key][0]
        for key in names
        if tensors[key].requires_grad and key not in stored
    )
    draw = np.random.default_rng(0)
    marks = (
        _mark(tuple(names[key]), tensors[key], draw) for key in tensors if key in stored
    )
    return [mark for mark in marks if mark is not None]


def _mark(
    names: tuple[str, ...], tensor: torch.Tensor, draw: np.random.Generator
) -> Mark | None:
    """The mark of a tensor; None if it keeps its values."""
    values = tensor.detach().numpy().copy()
    if values.dtype != np.float32 or values.size == 0 or not np.isfinite(values).all():
        return None
    stand_in = draw.uniform(0.5, 1.5, values.shape).astype(np.float32)
    is_parameter = isinstance(tensor, nn.Parameter)
    return Mark(names, values, stand_in, is_parameter, tensor.requires_grad)


def _refuse_unstored(names: Iterable[str]) -> None:
    """The exporter takes for a constant what is not in the state: it would have no
    gradient, and nothing would say so.
    """
    named = ", ".join(map(repr, names))
    if named:
        message = f"the parameters {named} are not in module.state_dict()"
        raise UnsupportedError(f"{message}: torch would export them as constants")


def _refuse_kind(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        message = f"'{name}' is on the device '{tensor.device}': use module.cpu()"
        raise UsageError(message)
    if tensor.is_floating_point() and tensor.dtype != torch.float32:
        message = f"'{name}' is of {tensor.dtype}: use module.float()"
        raise UsageError(message)


# ---- Arguments and results ----


class Call(nn.Module):  # type: ignore[misc]
    """A module, called with tensors alone, whose results are tensors alone.

    Attributes:
        inputs: the tensors among the arguments, by name. Others are part of the call.
        own_derivatives: functions whose derivatives the module gives itself, after a call.
    """

    def __init__(
        self, module: nn.Module, given: Sequence[Any] | Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.module, self.training = module, module.training
        self.own_derivatives: list[str] = []
        parameters = signature(module.forward)
        try:
            if isinstance(given, Mapping):
                self._bound = parameters.bind(**given)
            else:
                self._bound = parameters.bind(*given)
        except TypeError as error:
            message = f"the example inputs do not fit 'forward': {error}"
            raise UsageError(message) from None
        paths, self._structure = pytree.tree_flatten_with_path(self._bound.arguments)
        self._leaves = [leaf for _, leaf in paths]
        self.inputs = {
            "_".join(map(_step, path)): leaf
            for path, leaf in paths
            if isinstance(leaf, torch.Tensor)
        }
        if not self.inputs:
            raise UsageError("there is no tensor among the example inputs")

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors in what the module returns."""
        fed = iter(inputs)
        leaves = [
            next(fed) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in self._leaves
        ]
        self._bound.arguments = pytree.tree_unflatten(leaves, self._structure)
        with Replacements():
            result = self.module(*self._bound.args, **self._bound.kwargs)
        leaves = pytree.tree_leaves(result)
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        self.own_derivatives = _own_derivatives(tensors)
        return tensors


def _own_derivatives(results: Iterable[torch.Tensor]) -> list[str]:
    """The functions of `torch.autograd.Function` that results are computed with."""
    found, queue = {}, [result.grad_fn for result in results]
    while queue:
        node = queue.pop()
        if node is not None and node not in found:
            found[node] = type(node)
            queue.extend(before for before, _ in node.next_functions)
    kinds = (kind for kind in found.values() if issubclass(kind, BackwardCFunction))
    return sorted({kind.__name__.removesuffix("Backward") for kind in kinds})


def _step(key: Any) -> str:
    """A step of the path to a tensor."""
    return str(getattr(key, "key", getattr(key, "idx", key)))


# ---- Export ----

# What `Call` adds to the names of parameters.
_PREFIX = "module."

# The longest message of torch; some contain tensors.
_LONGEST = 400

# Folders without the code of a network.
_NO_NETWORKS = str(Path(torch.__file__).parent), str(Path(__file__).parents[1])


def export(call: Call, marks: Sequence[Mark], batch: int | None) -> Any:
    """The ONNX model of a call, whose initializers have the names and the stand-ins of
    the marks.

    Raises:
        UnsupportedError: torch cannot export it.
    """
    file, names = io.BytesIO(), list(call.inputs)
    axes = {name: {0: "batch"} for name, x in call.inputs.items() if x.ndim}
    try:
        with _silence():
            torch.onnx.export(
                call,
                tuple(call.inputs.values()),
                file,
                dynamo=False,
                # As it is: for inference, normalizations would be folded.
                training=torch.onnx.TrainingMode.PRESERVE,
                do_constant_folding=False,
                # Otherwise parameters of equal values become one.
                keep_initializers_as_inputs=True,
                input_names=names,
                dynamic_axes=None if batch is None else axes,
                opset_version=OPSET,
            )
    except NnefGradError:
        raise
    except Exception as error:
        # Whatever torch raises, from its own code or from the module's.
        why = shorten(reason(error), _LONGEST, placeholder=" ...")
        message = f"torch cannot export the module: {why}{_place(error)}"
        raise UnsupportedError(message) from error
    model = onnx.load_from_string(file.getvalue())
    _mark_initializers(model.graph, marks)
    _rename(model.graph)
    _give_axes(model.graph)
    return model


def _place(error: Exception) -> str:
    """The line of the network that an exception is about, as far as it says so: that of
    a node of torch's graph, or the one that was run.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    stacks = [
        re.findall(r"^(.+)\((\d+)\): ", value.sourceRange(), re.MULTILINE)
        for frame in frames
        for value in frame.f_locals.values()
        if isinstance(value, torch._C.Node)
    ]
    run = [(f.f_code.co_filename, f.f_lineno) for f in reversed(frames)]
    lines = (line for stack in (*stacks, run) for line in stack)
    found = next((line for line in lines if not line[0].startswith(_NO_NETWORKS)), None)
    return "" if found is None else f"; at {found[0]}:{found[1]}"


@contextmanager
def _silence() -> Iterator[None]:
    """No warnings of the exporter, nor the graphs that it prints before it fails."""
    log = torch._C._jit_onnx_log
    torch._C._jit_onnx_log = lambda *_: None  # which it enables, whatever is asked for
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch._C._jit_onnx_log = log


def _mark_initializers(graph: Any, marks: Sequence[Mark]) -> None:
    """Puts the stand-ins of the marks in the place of their values. Initializers are no
    inputs.
    """
    by_name = {_PREFIX + name: mark for mark in marks for name in mark.names}
    stored = {initializer.name for initializer in graph.initializer}
    fed = [value for value in graph.input if value.name not in stored]
    del graph.input[:]
    graph.input.extend(fed)
    for initializer in graph.initializer:
        if initializer.name in by_name:
            stand_in = by_name[initializer.name].stand_in
            initializer.raw_data = stand_in.tobytes()


def _rename(graph: Any) -> None:
    """Gives initializers the names that torch has for them, and results plain ones."""
    names = {i.name: i.name.removeprefix(_PREFIX) for i in graph.initializer}
    fed = {value.name for value in graph.input}
    computed = [v.name for v in graph.output if v.name not in fed | names.keys()]
    for place, name in enumerate(computed):
        names[name] = "output" if len(graph.output) == 1 else f"output_{place}"
    taken = fed | {name for node in graph.node for name in node.output} - names.keys()
    names = {old: new for old, new in names.items() if new not in taken}
    for value in (*graph.initializer, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]


def _give_axes(graph: Any) -> None:
    """Initializers without axes get one, which is removed again: they are parameters,
    and no numbers of the graph.
    """
    numbers = {}
    for initializer in graph.initializer:
        if not initializer.dims and initializer.data_type == onnx.TensorProto.FLOAT:
            initializer.dims.append(1)
            numbers[initializer.name] = f"{initializer.name}_number"
    for node in graph.node:
        node.input[:] = [numbers.get(name, name) for name in node.input]
    for name, number in numbers.items():
        shape = onnx.numpy_helper.from_array(np.array([], np.int64), f"{name}_shape")
        reshape = onnx.helper.make_node("Reshape", [name, shape.name], [number])
        constant = onnx.helper.make_node("Constant", [], [shape.name], value=shape)
        graph.node.insert(0, reshape)
        graph.node.insert(0, constant)


def convert(model: Any, call: Call, batch: int | None) -> Model:
    """The graph of a model, and its data.

    Raises:
        UnsupportedError: an operation cannot be converted.
    """
    kind = type(call.module).__name__
    shapes = {
        name: (batch, *x.shape[1:])
        for name, x in call.inputs.items()
        if batch is not None and x.ndim and name in {v.name for v in model.graph.input}
    }
    graph, data = conversion.convert(reading.complete(model, shapes, kind), kind)
    if not call.own_derivatives:
        return Model(graph, data)
    named = ", ".join(map(repr, call.own_derivatives))
    message = f"the derivative of what {named} computes is taken, not its own backward function"
    return Model(replace(graph, warnings=(*graph.warnings, Problem(message))), data)


def refuse_lost(model: Any, marks: Sequence[Mark], found: Sequence[Mark]) -> None:
    """Raises `UnsupportedError` if a parameter that an output depends on is no variable:
    it would have no gradient, and nothing would say so.
    """
    needed = {value.name for value in model.graph.output}
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
    lost = [
        m.names[0]
        for m in marks
        if m.is_parameter and m not in found and m.names[0] in needed
    ]
    if lost:
        named = ", ".join(map(repr, lost))
        raise UnsupportedError(f"there are no variables of the parameters {named}")
