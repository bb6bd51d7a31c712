"""One call: a model of any format and its derivatives, as a function of arrays with names."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

import numpy as np

from nnef_grad.autodiff import compositions, laplacians
from nnef_grad.autodiff.backward import Backward, Wrt
from nnef_grad.autodiff.differentiate import differentiate
from nnef_grad.autodiff.example_axes import PerExample
from nnef_grad.autodiff.rules import Rules
from nnef_grad.base.arrays import Array, Data
from nnef_grad.base.choices import Dialect, RuntimeName
from nnef_grad.base.errors import UsageError, listed, refuse_unknown
from nnef_grad.base.frozen import NOTHING
from nnef_grad.base.public import public
from nnef_grad.base.source import Source
from nnef_grad.emit.bodies import most_steps
from nnef_grad.frontends.onnx.model import Model as OnnxModel
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.graph.extents import as_numbers
from nnef_grad.graph.ir import Graph, Shape
from nnef_grad.graph.symbols import numbers_of, with_numbers
from nnef_grad.model import Options, Shapes, from_source
from nnef_grad.opening import Opened, open_model
from nnef_grad.runtimes import Compiled, find_runtime
from nnef_grad.runtimes.calls import by_name
from nnef_grad.storage.files import PathLike
from nnef_grad.targets.tensors import DTYPES

if TYPE_CHECKING:
    from torch import nn

Derivative = Literal[
    "gradient", "jacobian", "jvp", "hvp", "hessian", "saliency", "laplacian",
    "divergence", "gradient_penalty",
]  # fmt: skip
AnyModel = Union[PathLike, Graph, Backward, TorchModel, OnnxModel, "nn.Module"]

_FUNCTIONS: Mapping[str, Any] = {
    "gradient": differentiate,
    **{
        name: getattr(compositions, name)
        for name in (
            "jacobian",
            "jvp",
            "hvp",
            "hessian",
            "saliency",
            "gradient_penalty",
        )
    },
    **{name: getattr(laplacians, name) for name in ("laplacian", "divergence")},
}


@public
def function(
    model: AnyModel,
    derivative: Derivative | None = "gradient",
    *,
    wrt: Wrt | None = None,
    outputs: Sequence[str] | None = None,
    stop: Sequence[str] = (),
    per_example: PerExample = False,
    runtime: RuntimeName = "fastest",
    example_inputs: Sequence[Any] | Mapping[str, Any] = (),
    data: Data | None = None,
    input_shapes: Shapes | None = None,
    batch: int | None = None,
    symbols: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
    lenient: bool = False,
    dialect: Dialect | None = None,
    rules: Rules | None = None,
    threads: int | None = None,
) -> Function:
    """A model and its derivative, compiled: `f(x=image).gradients["x"]`.

    Args:
        model: the path of an ONNX or a TFLite file, of an NNEF text, folder or archive, or of a .pt2
            file; an NNEF text itself; a PyTorch module, with `example_inputs`; what
            `interop.from_onnx` or `interop.from_torch` returns; a `Graph`; or a `Backward`.
        derivative: the function of this package that makes it, `differentiate` for
            "gradient"; None for the outputs alone.
        wrt: as for that function, by the names that tensors have in the model; by default
            all inputs and variables for "gradient", and what the function says for others.
        outputs, stop, per_example, rules: as for that function.
        runtime: "onnxruntime" or "openvino", in single precision; "tract"; "khronos", or
            "numpy", which is exact and slow, in the precision of the inputs; "fastest"
            times the first two, as far as they are installed, on the first inputs, and
            keeps the faster one, or takes "numpy".
        example_inputs: the arguments of a module's `forward`, as for `interop.from_torch`.
        data: an array for each variable of a `Graph` or a `Backward`, by label.
        input_shapes, batch, symbols, constants, lenient, dialect: how a file is read; see
            `load` and `interop.from_onnx`.
        threads: the number of threads, if the runtime allows a choice.

    Raises:
        NnefGradError: the model cannot be read or differentiated; a name is unknown; the
            runtime is unknown, is not installed, or cannot load the graph.
    """
    used = find_runtime(runtime)
    options = Options(
        *(input_shapes, batch, (), rules, lenient, dialect, symbols),
        unroll=most_steps(used.target),
        constants=constants,
    )
    opened, backward = _opened(model, options, data, example_inputs), None
    arrays = opened.arrays
    _refuse_without_data(opened.graph, arrays)
    if isinstance(model, Backward):
        if (wrt, outputs) != (None, None) or derivative != "gradient":
            raise UsageError("a Backward is differentiated: differentiate its graph")
        backward = model
    elif derivative is None:
        backward = Backward(opened.graph, {}, {}, (), 0, ())
    else:
        settings = {"wrt": wrt, "outputs": outputs, "stop": stop}
        backward = _derived(opened, derivative, settings, per_example)
    names = _Names.of(opened, backward)
    run = used.compile(backward.graph, arrays, threads)
    return Function(opened, backward, names, run)


def _opened(
    model: Any,
    options: Options,
    data: Data | None,
    example_inputs: Sequence[Any] | Mapping[str, Any],
) -> Opened:
    """The model, whatever it is."""
    if isinstance(model, (Graph, Backward)):
        graph = model.graph if isinstance(model, Backward) else model
        return Opened(graph, options.rules, data or {})
    if data is not None:
        raise UsageError("this model has its own data: 'data' is for a Graph")
    if isinstance(model, TorchModel):
        return Opened(model.graph, options.rules, model.data, model)
    if isinstance(model, OnnxModel):
        return Opened(model.graph, options.rules, model.data, in_file=model.in_file)
    if isinstance(model, str) and "\n" in model:
        return Opened(
            from_source(Source("<string>", model), None, options), options.rules
        )
    if isinstance(model, (str, os.PathLike)):
        return open_model(os.fspath(model), options)
    from nnef_grad.frontends.torch import from_torch

    read = from_torch(
        model,
        example_inputs,
        batch=options.batch,
        constants=options.constants,
        unroll=options.unroll,
    )
    return _opened(read, options, None, ())


def _refuse_without_data(graph: Graph, arrays: Data) -> None:
    """Raises `UsageError` for a text alone, whose variables have no data."""
    labels = [*graph.labels.values()]
    if labels and not arrays:
        what = f"there are no data for the variables {listed(labels)}"
        raise UsageError(
            f"{what}: function(load(text), data={{label: array}}) has them"
        )


def _derived(
    opened: Opened,
    derivative: str,
    settings: Mapping[str, Any],
    per_example: PerExample,
) -> Backward:
    """The derivative of a model, with its outputs where these can be had."""
    if derivative not in _FUNCTIONS:
        known = ", ".join(_FUNCTIONS)
        raise UsageError(f"the derivative is one of {known}, and not '{derivative}'")
    function = _FUNCTIONS[derivative]
    allowed = inspect.signature(function).parameters
    given: dict[str, Any] = {
        name: _named(opened, value) for name, value in settings.items() if value
    }
    if derivative == "gradient":
        given.setdefault("wrt", opened.wrt)
    if per_example is not False:
        if "per_example" not in allowed:
            raise UsageError(f"the derivative '{derivative}' has no 'per_example'")
        given["per_example"] = _named_axes(opened, per_example)
    if "with_outputs" in allowed:
        given["with_outputs"] = True
    derived: Backward = function(opened.graph, rules=opened.rules, **given)
    return derived


def _named(opened: Opened, names: str | Sequence[str]) -> str | list[str]:
    """The names in the graph of what the model may call otherwise."""
    torch = opened.torch
    own = {} if torch is None else {**torch.parameters, **torch.buffers}
    if isinstance(names, str):
        return opened.named([own.get(names, names)])[0]
    return opened.named([own.get(name, name) for name in names])


def _named_axes(opened: Opened, per_example: PerExample) -> PerExample:
    """The axes that count examples, by the names in the graph."""
    if not isinstance(per_example, Mapping):
        return per_example
    return {_named(opened, [x])[0]: axis for x, axis in per_example.items()}


class _Names(NamedTuple):
    """The names of tensors in the model, by their names in the graph.

    Attributes:
        names: those that differ.
        shapes: the shapes that the model has them in, where these differ.
        leading: how many axes gradients have before these.
    """

    names: Mapping[str, str]
    shapes: Mapping[str, Shape]
    leading: int

    @classmethod
    def of(cls, opened: Opened, backward: Backward) -> _Names:
        """Those of a model."""
        names: Mapping[str, str] = {}
        shapes: Mapping[str, Shape] = {}
        if (torch := opened.torch) is not None:
            pairs = {**torch.buffers, **torch.parameters}.items()
            names = {own: name for name, own in pairs}
            shapes = {own: torch.shapes[name] for own, name in names.items()}
        elif opened.in_file is not None:
            names, shapes = opened.in_file.names, opened.in_file.shapes
        # A Jacobian has more axes than the tensor.
        known = shapes if backward.is_like_operands else {}
        return cls(names, known, int(backward.per_example))

    def __call__(self, name: str) -> str:
        return self.names.get(name, name)

    def shaped(self, name: str, gradient: Any) -> Any:
        """A gradient in the shape that the model has its tensor in."""
        if name not in self.shapes:
            return gradient
        return gradient.reshape((*gradient.shape[: self.leading], *self.shapes[name]))


@dataclass(frozen=True, repr=False)
class Results:
    """The results of a function.

    Attributes:
        outputs: the outputs of the model, by name.
        gradients: the derivatives, by the names of the tensors that they are with respect to.
    """

    outputs: Mapping[str, Any] = field(default_factory=dict)
    gradients: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """`outputs, gradients = f(x)`."""
        return iter((self.outputs, self.gradients))

    def __repr__(self) -> str:
        parts = (
            f"{what}: {', '.join(f'{n} {[*x.shape]}' for n, x in arrays.items()) or 'none'}"
            for what, arrays in (
                ("outputs", self.outputs),
                ("gradients", self.gradients),
            )
        )
        return f"<{'; '.join(parts)}>"


class Function:
    """A model and its derivative; see `function`.

    Attributes:
        backward: the derivative, as a graph with the names of its interface.
        inputs: the names of the inputs.
        seeds: the names of what may be given a seed: outputs, or the tensors that a
            tangent or a vector belongs to.
    """

    def __init__(
        self, opened: Opened, backward: Backward, names: _Names, run: Compiled
    ) -> None:
        self.backward = backward
        self._forward, self._names, self._run = opened.graph, names, run
        self._torch = opened.torch
        fed = {*backward.seeds.values()}
        self._inputs = {names(n): n for n in opened.graph.input_names if n not in fed}
        self._seeds = {names(name): own for name, own in backward.seeds.items()}
        self.inputs = tuple(self._inputs)
        self.seeds = tuple(self._seeds)
        self.__signature__ = _signature(self.inputs, bool(self.seeds))

    def __call__(self, *args: Any, seed: Any = None, **kwargs: Any) -> Results:
        """The outputs and the derivatives.

        Args:
            args, kwargs: an array, a number or a tensor of torch for each input, in order
                or by name. Masks that a module draws are drawn where they are not given.
            seed: what gradients begin with: for the one output or for several by name, an
                array of its shape, or a number for all elements. By default it is one for
                outputs of one element; others need it. For "jvp" and "hvp" it is the
                tangent or the vector of each tensor.

        Returns:
            The results: tensors of torch if one was given, and arrays of numpy otherwise.

        Raises:
            NnefGradError: inputs or seeds are missing, unknown, or do not fit; the runtime
                cannot run the graph.
        """
        given = self._given(args, kwargs)
        is_torch = any(_is_tensor(x) for x in given.values())
        feeds = {name: _array(x) for name, x in given.items()}
        shapes = {name: x.shape for name, x in feeds.items()}
        whole = self._whole(shapes)
        feeds |= self._drawn(feeds, shapes)
        feeds |= self._seeded(seed, whole)
        results = self._run(self._in_order(feeds, whole))
        back = _tensor if is_torch else np.asarray
        named = dict(zip(self.backward.graph.output_names, results, strict=True))
        return self._results({name: back(array) for name, array in named.items()})

    def __repr__(self) -> str:
        derivative = repr(self.backward)[1:-1] if self.backward.gradients else "forward"
        signature = ", ".join(
            f"{name}: {list(self._forward.tensors[own].shape)}"
            for name, own in self._inputs.items()
        )
        return f"<function({signature}) in {self._run.runtime}: {derivative}>"

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs, by their names in the graph."""
        drawn = self._torch.random if self._torch is not None else {}
        optional = [name for name, own in self._inputs.items() if own in drawn]
        given = by_name(self.inputs, args, kwargs, optional)
        return {self._inputs[name]: value for name, value in given.items()}

    def _whole(self, shapes: Mapping[str, Shape]) -> Graph:
        """The compiled graph for inputs of such shapes, which have to fit."""
        numbers = numbers_of(self._forward, shapes)
        forward = with_numbers(self._forward, numbers)
        for name, shape in shapes.items():
            if shape != forward.tensors[name].shape:
                declared = list(self._forward.tensors[name].shape)
                what = f"input '{self._names(name)}' has the shape {declared}"
                raise UsageError(f"{what}, and not {list(shape)}")
        return with_numbers(self.backward.graph, numbers)

    def _drawn(
        self, feeds: Mapping[str, Array], shapes: Mapping[str, Shape]
    ) -> Mapping[str, Array]:
        """Random numbers for the inputs that stand for them and are not given."""
        if self._torch is None:
            return NOTHING
        drawn = self._torch.draw(None, numbers_of(self._forward, shapes))
        return {name: array for name, array in drawn.items() if name not in feeds}

    def _seeded(self, seed: Any, whole: Graph) -> dict[str, Array]:
        """The seeds, by the names of their inputs."""
        if seed is not None and not self.seeds:
            raise UsageError("this derivative has no seed")
        if not isinstance(seed, Mapping):
            if seed is not None and len(self.seeds) > 1:
                known = ", ".join(self.seeds)
                raise UsageError(f"the seed is a mapping, with one for each of {known}")
            seed = {} if seed is None else dict.fromkeys(self.seeds, seed)
        refuse_unknown(seed, self.seeds, "there is no seed for")
        return {
            own: _seed(name, seed.get(name), whole.tensors[own].shape, self.backward)
            for name, own in self._seeds.items()
        }

    def _in_order(self, feeds: Mapping[str, Array], whole: Graph) -> list[Array]:
        """The inputs of the compiled graph, in the precision of the runtime."""
        precisions = find_runtime(self._run.name).precisions
        kinds = (x.dtype.name for x in feeds.values() if x.dtype.kind == "f")
        precision = next((k for k in kinds if k in precisions), precisions[0])
        types = {**DTYPES, "scalar": precision}
        return [
            np.asarray(feeds[name], types[tensor.dtype])
            for name, tensor in zip(whole.input_names, whole.inputs, strict=True)
        ]

    def _results(self, found: Mapping[str, Any]) -> Results:
        """What is what, by the names and in the shapes of the model."""
        gradients = {
            self._names(name): self._names.shaped(name, found[own])
            for name, own in self.backward.gradients.items()
        }
        own = {*self.backward.gradients.values()}
        outputs = {self._names(n): x for n, x in found.items() if n not in own}
        return Results(outputs, gradients)


def _seed(name: str, given: Any, shape: Shape, backward: Backward) -> Array:
    """A seed, of the shape of its input."""
    if given is None:
        if backward.kind != "gradient" or prod(shape) != 1:
            what = f"'{name}' has the shape {list(shape)} and needs a seed"
            raise UsageError(f"{what}: seed=1 for the gradient of its sum, or an array")
        given = 1.0
    array = _array(given)
    if array.ndim and array.shape != shape:
        message = f"the seed of '{name}' has the shape {list(shape)}"
        raise UsageError(f"{message}, and not {list(array.shape)}")
    return np.broadcast_to(array, as_numbers(shape))


def _signature(inputs: Sequence[str], has_seed: bool) -> inspect.Signature:
    """The call, as an editor shows it; names that Python does not allow are left out."""
    usual = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name in inputs if name.isidentifier() and name != "seed"]
    parameters = [inspect.Parameter(name, usual) for name in names]
    if has_seed:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("seed", keyword, default=None))
    return inspect.Signature(parameters)


def _is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch, which need not be installed."""
    return type(value).__module__.partition(".")[0] == "torch"


def _array(value: Any) -> Array:
    return np.asarray(value.detach().cpu() if _is_tensor(value) else value)


def _tensor(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))
