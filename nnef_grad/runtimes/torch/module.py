"""The module: the variables of a model as parameters and buffers, its inputs as arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, Union

import torch
from torch import nn

from nnef_grad.base.choices import RuntimeName
from nnef_grad.base.errors import UsageError, refuse_unknown
from nnef_grad.base.source import Source
from nnef_grad.frontends import STANDARD, dialect_of
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.graph.ir import Graph, Tensor
from nnef_grad.graph.passes import replace_variables
from nnef_grad.interpreter.execution import Feeds, collect_feeds
from nnef_grad.language.labels import is_constant, label_key
from nnef_grad.model import (
    Options,
    Shapes,
    declared_variables,
    from_container,
    from_source,
    save_source,
    texts_of,
)
from nnef_grad.runtimes import find_runtime
from nnef_grad.runtimes.calls import by_name
from nnef_grad.runtimes.torch.programs import Program
from nnef_grad.storage import containers
from nnef_grad.storage.data import VariableData, arrays_of
from nnef_grad.storage.files import PathLike
from nnef_grad.targets.passes import copy_outputs

Model = Union[PathLike, Graph, TorchModel]
# The types of tensors in torch, in single precision.
DTYPES = {"scalar": torch.float32, "integer": torch.int64, "logical": torch.bool}
Outputs = Union[torch.Tensor, tuple[torch.Tensor, ...]]


class Module(nn.Module):  # type: ignore[misc]
    """An NNEF model as a PyTorch module, computed by a runtime on the CPU.

    The scalar variables of the model are its parameters, others its buffers. They are
    inputs of the graphs that the runtime gets, so a changed parameter takes effect at
    the next call. Gradients come from `nnef_grad.differentiate`, as graphs, so there
    are gradients of any order.

    The name of a parameter, in `state_dict()` and in `named_parameters()`, is the label
    of its variable. As usual in torch, 'layer1.0.weight' is the parameter `weight` of a
    submodule `0` of a submodule `layer1`; these submodules only hold parameters. A
    slash has no special meaning.

    Graphs are compiled when needed, once for each combination of input shapes and
    tensors that require gradients, and then kept. If something requires gradients, the
    forward pass saves tensors until the backward pass has used them; under
    `torch.no_grad()` it saves nothing. Gradients to be differentiated again
    (`create_graph=True`, `torch.func`) recompute the forward pass. `train()` and
    `eval()` have no effect, and no call changes a buffer: results of `update`
    operations are at most outputs.

    Args:
        model: a folder, an archive, or a text with data beside it; a `Graph`; or the
            result of `interop.from_torch`, with torch's parameters and their
            `requires_grad`; everything else is a buffer.
        runtime: "onnxruntime", "openvino", "tract", "khronos" (the PyTorch interpreter
            of nnef_tools), "numpy" (nnef-grad's evaluator, which is slow), or "fastest",
            the faster of the first two on the first inputs, which both compute in single
            precision; the others in the precision of parameters
            and inputs: `module.double()`.
        buffers: labels of scalar variables that are not parameters.
        data: an array for each variable of a `Graph`, by label.
        recompute: how much of its memory the backward pass may take, as in
            `nnef_grad.recompute`: what it computes again, the forward pass does not save.

    Raises:
        NnefGradError: the model cannot be read; data are missing, or do not fit; the
            runtime is unknown, or is not installed; a label is unknown, or cannot be the
            name of a parameter.
    """

    def __init__(
        self,
        model: Model,
        runtime: RuntimeName = "onnxruntime",
        *,
        buffers: Collection[str] = (),
        data: Feeds | None = None,
        recompute: float | None = None,
    ) -> None:
        super().__init__()
        self._runtime = find_runtime(runtime).name
        if recompute is not None and not recompute > 0:
            message = f"the limit of memory is positive, and not {recompute}"
            raise UsageError(message)
        self._recompute = recompute
        contents = read(model, data)
        self._source = contents.source
        graph = self._source.graph()
        self._inputs = dict(zip(graph.input_names, graph.inputs, strict=True))
        # Variables of one label, ignoring case, are one parameter.
        first: dict[str, str] = {}
        labels = graph.labels.values()
        self._labels = [first.setdefault(label_key(label), label) for label in labels]
        self._variables = dict(zip(self._labels, graph.variables, strict=True))
        self._programs: dict[tuple[tuple[int, ...], ...], Program] = {}
        refuse_unknown(buffers, self._variables, "no variable has the label")
        self._hold_all(graph, contents, buffers)

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> Outputs:
        """The output of the graph, or a tuple of its outputs.

        Args:
            args: the inputs of the graph, in order or by name, with the declared rank:
                in the precision of the parameters for scalar inputs, int64 for integer
                and bool for logical ones. Extents, such as the batch, may differ from
                the declared ones if the graph allows it.

        Raises:
            NnefGradError: inputs are missing, unknown, or do not fit; the runtime
                cannot run the graph.
        """
        fed, held = by_name(self._inputs, args, kwargs), self._held()
        self._refuse_misfits(fed, held)
        values = [held[label] for label in self._labels]
        results = self._program(fed)([*fed.values(), *values])
        return results if len(results) > 1 else results[0]

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes the model, with the original text of its graph and the current values
        of parameters and buffers. Writing is atomic.

        Args:
            path: a folder, or an archive, as in `nnef_grad.save`.
            overwrite: whether to replace what is there.

        Raises:
            NnefGradError: the path names a text, exists, or cannot be written; or
                values are not on the CPU, or are spread over several processes.
        """
        held = self._held()
        for label, value in held.items():
            _refuse_indirect(f"'{label}'", value)
        values = {label: value.detach().numpy() for label, value in held.items()}
        texts = self._source
        save_source(path, texts.text, texts.quantization, values, overwrite=overwrite)

    def extra_repr(self) -> str:
        """The text that `print` shows for the module itself."""
        inputs = ", ".join(
            f"{name}: {list(t.shape)}" for name, t in self._inputs.items()
        )
        return f"{inputs}; runtime={self._runtime}"

    def __getstate__(self) -> dict[str, Any]:
        """Without compiled graphs, for copies and other processes: they belong here."""
        return {**self.__dict__, "_programs": {}}

    # ---- Parameters ----

    def _held(self) -> dict[str, Any]:
        return {label: attrgetter(label)(self) for label in self._variables}

    def _hold_all(
        self, graph: Graph, contents: ReadModel, buffers: Collection[str]
    ) -> None:
        """Registers the values of variables, as parameters or as buffers."""
        values = _values(graph, contents.data)
        parameters, trainable = contents.parameters, contents.trainable
        for label, tensor in self._variables.items():
            name, value = graph.names[tensor], values[tensor]
            is_fixed = label in buffers or is_constant(label)
            is_free = tensor.dtype == "scalar" and not is_fixed
            if is_free and (parameters is None or name in parameters):
                is_trained = trainable is None or name in trainable
                value = nn.Parameter(value, requires_grad=is_trained)
            self._hold(label, value)

    def _hold(self, label: str, value: torch.Tensor) -> None:
        """Registers a parameter or a buffer under its label."""
        *holders, name = label.split(".")
        holder = self
        try:
            for step in holders:
                holder = _submodule(holder, step)
            if isinstance(value, nn.Parameter):
                holder.register_parameter(name, value)
            else:
                holder.register_buffer(name, value)
        except KeyError as error:
            message = f"the label '{label}' cannot be the name of a parameter"
            raise UsageError(f"{message}: {error.args[0]}") from None

    # ---- Calls ----

    def _refuse_misfits(
        self, inputs: Mapping[str, Any], held: Mapping[str, torch.Tensor]
    ) -> None:
        """Raises `UsageError` for what the runtime would misread: it gets memory."""
        fed = [
            (f"input '{name}'", self._inputs[name], value)
            for name, value in inputs.items()
        ]
        for label, value in held.items():
            tensor = self._variables[label]
            fed.append((f"'{label}'", tensor, value))
            if value.shape != tensor.shape:
                shapes = f"{list(tensor.shape)}, and not {list(value.shape)}"
                raise UsageError(f"'{label}' must have the shape {shapes}")
        for what, _, value in fed:
            _refuse_indirect(what, value)
        numbers = [value.dtype for _, t, value in fed if t.dtype == "scalar"]
        # Parameters come after inputs: the precision is theirs, if there are any.
        precision = numbers[-1] if numbers else torch.float32
        runtime = find_runtime(self._runtime)
        if str(precision).removeprefix("torch.") not in runtime.precisions:
            precisions = " and ".join(runtime.precisions)
            message = f"the runtime '{runtime.name}' computes in {precisions}"
            raise UsageError(f"{message}, and the model is in {precision}")
        for what, tensor, value in fed:
            wanted = precision if tensor.dtype == "scalar" else DTYPES[tensor.dtype]
            if value.dtype != wanted:
                raise UsageError(f"{what} must be {wanted}, and is {value.dtype}")

    def _program(self, inputs: Mapping[str, torch.Tensor]) -> Program:
        """The program for inputs of such shapes."""
        shapes = {name: tuple(value.shape) for name, value in inputs.items()}
        key = tuple(shapes.values())
        if key not in self._programs:
            graph, runtime = self._source.program(shapes), find_runtime(self._runtime)
            self._programs[key] = Program(graph, runtime, self._recompute)
        return self._programs[key]


def _refuse_indirect(what: str, value: Any) -> None:
    """Raises `UsageError` for what is no array, or on another device."""
    if type(value) not in (torch.Tensor, nn.Parameter) or value.is_sparse:
        kind = (
            "a sparse tensor" if type(value) is torch.Tensor else type(value).__name__
        )
        raise UsageError(f"{what} must be a plain tensor, and is {kind}")
    if value.device.type != "cpu":
        raise UsageError(f"{what} must be on the CPU, and is on {value.device}")


def _submodule(holder: nn.Module, name: str) -> nn.Module:
    """The submodule of a name, new or not; `KeyError` for a name that cannot be one."""
    if name not in holder._modules:
        holder.add_module(name, nn.Module())
    return holder._modules[name]


def _values(graph: Graph, data: Feeds) -> dict[Tensor, torch.Tensor]:
    """The data of all variables, checked and copied."""
    variables = tuple(op for op in graph.operations if op.name == "variable")
    alone = replace(graph, inputs=(), outputs=(), operations=variables)
    arrays = collect_feeds(alone, {}, data)
    for tensor in graph.variables:
        if tensor.dtype not in DTYPES:
            what = f"variable '{graph.names[tensor]}' of type {tensor.dtype}"
            raise UsageError(f"{what} cannot be a tensor of torch")
    types = {t: DTYPES[t.dtype] for t in graph.variables}
    return {t: torch.tensor(arrays[t], dtype=dtype) for t, dtype in types.items()}


# ---- The text of a model, to be read again for other shapes ----


@dataclass(frozen=True)
class ModelSource:
    """The texts of a model: of the graph, with its fragments and comments, and of its
    quantization info, if there is any.
    """

    text: Source
    quantization: Source | None

    def graph(self, shapes: Shapes | None = None) -> Graph:
        """The flat graph, with the declared shapes of inputs or others by name."""
        return from_source(self.text, self.quantization, Options(shapes))

    def program(self, shapes: Shapes) -> Graph:
        """The graph for such inputs, with variables as further inputs after its own."""
        # A variable that is an output would be an input and an output.
        return replace_variables(
            copy_outputs(from_source(self.text, None, Options(shapes)))
        )


class ReadModel(NamedTuple):
    """A model as the caller gave it: its texts, and the data of its variables by label."""

    source: ModelSource
    data: Feeds
    # The names of the variables that are parameters, and of those that require gradients;
    # None for all.
    parameters: Collection[str] | None = None
    trainable: Collection[str] | None = None


def read(model: Model, data: Feeds | None) -> ReadModel:
    """The texts and the data of a model, which may have its own."""
    if isinstance(model, Graph):
        return ReadModel(_printed(model), data or {})
    if data is not None:
        raise UsageError("this model has its own data: 'data' is for a Graph")
    if isinstance(model, TorchModel):
        parameters = set(model.parameters.values())
        return ReadModel(_printed(model.graph), model.data, parameters, model.trainable)
    container = containers.open_container(model)
    source = ModelSource(container.graph(), container.quantization())
    is_standard = dialect_of(container.graph(), None) == STANDARD
    # What a dialect computes with while it is read is known here only.
    graph = source.graph() if is_standard else from_container(container)
    arrays = arrays_of(declared_variables(graph), VariableData(container).of(graph))
    return ReadModel(source if is_standard else _printed(graph), arrays)


def _printed(graph: Graph) -> ModelSource:
    name = f"<{graph.name}>"
    text, info = texts_of(graph)
    quantization = None if info is None else Source(f"{name}.quant", info)
    return ModelSource(Source(name, text), quantization)
