"""Runtimes: each makes a function of arrays from a graph.

No array is copied that a runtime can read or write where it is: ONNX Runtime, OpenVINO and
the interpreters read the memory of the caller, ONNX Runtime writes its results where they
are returned. tract copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from nnef_grad.errors import NnefGradError, UnsupportedError, UsageError, suggestion
from nnef_grad.graph.ir import Graph
from nnef_grad.graph.symbols import numbers_of, symbols, with_numbers
from nnef_grad.interop import to_onnx
from nnef_grad.interpreter import evaluate
from nnef_grad.model import save
from nnef_grad.public import public
from nnef_grad.targets import Lowered, lower
from nnef_grad.targets.tensors import DTYPES

Array = Any
Data = Mapping[str, Array]
# The results of a graph, in order, on inputs in order: contiguous arrays.
Run = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Runtime:
    """What runs graphs.

    Attributes:
        name: what the user calls it.
        packages: what has to be installed.
        precisions: the types of the numbers that it computes with.
        build: makes a function of a graph and the data of its variables, by label, with
            a number of threads.
    """

    name: str
    packages: tuple[str, ...]
    precisions: tuple[str, ...]
    build: Callable[[Graph, Data, int | None], Run]

    def compile(
        self, graph: Graph, data: Data | None = None, threads: int | None = None
    ) -> Run:
        """The function of a graph.

        Args:
            graph: the graph. Its scalar inputs are arrays of one of the precisions, its
                integer ones int64, its logical ones bool.
            data: the data of its variables, by label.
            threads: how many threads run it, where the runtime lets one choose; its own
                number, if not given.

        Raises:
            UnsupportedError: the runtime cannot load the graph; or, from the function,
                run it.
        """
        return self.build(graph, data or {}, threads)


@public
def find_runtime(name: str) -> Runtime:
    """The runtime of a name.

    Raises:
        UsageError: there is none, or a package that it needs is missing.
    """
    if name not in RUNTIMES:
        known = ", ".join(RUNTIMES)
        near = suggestion(name, list(RUNTIMES))
        raise UsageError(f"the runtime is one of {known}, and not '{name}'{near}")
    runtime = RUNTIMES[name]
    missing = [package for package in runtime.packages if find_spec(package) is None]
    if missing:
        wanted = " ".join(missing)
        raise UsageError(f"the runtime '{name}' needs {wanted}: pip install {wanted}")
    return runtime


# ---- ONNX Runtime ----


def _in_onnx_runtime(graph: Graph, data: Data, threads: int | None) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.log_severity_level = 3
    with TemporaryDirectory() as folder, _refusals("ONNX Runtime", "load", graph):
        path = Path(folder) / "graph.onnx"
        to_onnx(graph, path, data=data)
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    read = {node.name for node in session.get_inputs()}

    def run(inputs: Sequence[Array]) -> list[Array]:
        shapes = {n: x.shape for n, x in zip(graph.input_names, inputs, strict=True)}
        whole = with_numbers(graph, numbers_of(graph, shapes))
        results: list[Array] = [
            np.empty(t.shape, DTYPES[t.dtype]) for t in whole.outputs
        ]
        binding = session.io_binding()
        for name, value in zip(graph.input_names, inputs, strict=True):
            if name in read:
                _bind(binding.bind_input, name, value)
        for name, value in zip(graph.output_names, results, strict=True):
            _bind(binding.bind_output, name, value)
        with _refusals("ONNX Runtime", "run", graph):
            session.run_with_iobinding(binding)
        return results

    return run


def _bind(bind: Callable[..., None], name: str, value: Array) -> None:
    """Gives a runtime the memory of an array, for an input or an output."""
    bind(name, "cpu", 0, value.dtype.type, value.shape, value.ctypes.data)


# ---- OpenVINO ----


def _in_openvino(graph: Graph, data: Data, threads: int | None) -> Run:
    """A model for each size of the inputs: of open extents it computes some sums wrong, and
    refuses others.
    """

    @lru_cache(_SIZES)
    def of_size(*numbers: tuple[str, int]) -> Run:
        return _in_openvino_once(with_numbers(graph, dict(numbers)), data, threads)

    if not symbols(graph):
        of_size()

    def run(inputs: Sequence[Array]) -> list[Array]:
        shapes = {n: x.shape for n, x in zip(graph.input_names, inputs, strict=True)}
        return of_size(*numbers_of(graph, shapes).items())(inputs)

    return run


# So many models are kept.
_SIZES = 8


def _in_openvino_once(graph: Graph, data: Data, threads: int | None) -> Run:
    with TemporaryDirectory() as folder, _refusals("OpenVINO", "load", graph):
        path = Path(folder) / "graph.onnx"
        to_onnx(graph, path, data=data)
        model = compile_for_openvino(path, threads)
    read = {name: place for place, x in enumerate(model.inputs) for name in x.names}
    request = model.create_infer_request()

    def run(inputs: Sequence[Array]) -> list[Array]:
        fed = zip(graph.input_names, inputs, strict=True)
        given = {
            # It shares no memory that cannot be written to.
            read[name]: value if value.flags.writeable else value.copy()
            for name, value in fed
            if name in read
        }
        with _refusals("OpenVINO", "run", graph):
            request.infer(given, share_inputs=True)
        return [
            np.array(request.get_output_tensor(place).data, DTYPES[tensor.dtype])
            for place, tensor in enumerate(graph.outputs)
        ]

    return run


def compile_for_openvino(path: Path, threads: int | None) -> Any:
    """The model of OpenVINO for an ONNX file, which may be changed."""
    import openvino

    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    _copy_square_matrices(path)
    return openvino.Core().compile_model(path, "CPU", settings)


def _copy_square_matrices(path: Path) -> None:
    """Gives each way in which a square matrix is read one of its own. OpenVINO 2026.4 takes
    the one that it has rearranged for a product for the same matrix where it is transposed.
    """
    import onnx

    from nnef_grad.interop.onnx_storage import MOST_BYTES

    model = onnx.load(path)
    stored = {x.name: x for x in model.graph.initializer}
    square = {
        n for n, x in stored.items() if len(x.dims) > 1 and x.dims[-1] == x.dims[-2]
    }
    ways: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name not in square:
                continue
            way = node.op_type, place, [*map(str, node.attribute)]
            known = ways.setdefault(name, [])
            if way not in known:
                known.append(way)
            if number := known.index(way):
                node.input[place] = f"{name}/{number}"
    for name, known in ways.items():
        for number in range(1, len(known)):
            copy = model.graph.initializer.add()
            copy.CopyFrom(stored[name])
            copy.name = f"{name}/{number}"
    if any(len(known) > 1 for known in ways.values()):
        is_large = model.ByteSize() >= MOST_BYTES
        onnx.save(model, path, save_as_external_data=is_large)


# ---- tract ----


def _in_tract(graph: Graph, data: Data, threads: int | None) -> Run:
    import tract

    lowered = lower(graph, "tract")
    # It multiplies no matrices of different types.
    single = in_single(data)
    with _written(lowered, single) as folder, _refusals("tract", "load", graph):
        model = tract.nnef().load(str(folder))
        names = [model.input_name(index) for index in range(model.input_count())]
        runnable = model.into_runnable()
    made = lowered.graph

    def run(inputs: Sequence[Array]) -> list[Array]:
        fed = {
            # The lowered graph may have numbers for integers, and other names.
            made.names[tensor]: value.astype(DTYPES[tensor.dtype], copy=False)
            for tensor, value in zip(made.inputs, inputs, strict=True)
        }
        with _refusals("tract", "run", graph):
            found = runnable.run([fed[name] for name in names])
        return [
            result.to_numpy().astype(DTYPES[tensor.dtype], copy=False)
            for tensor, result in zip(graph.outputs, found, strict=True)
        ]

    return run


# ---- The interpreter of the Khronos group ----


def _in_interpreter(graph: Graph, data: Data, threads: int | None) -> Run:
    import torch
    from nnef_tools.interpreter.pytorch import NNEFModule

    lowered = lower(graph, "khronos")
    with (
        _written(lowered, data) as folder,
        _refusals("the PyTorch interpreter", "load", graph),
    ):
        module = NNEFModule(str(folder))

    def run(inputs: Sequence[Array]) -> list[Array]:
        # Of data that cannot be written to, as those of files, torch warns.
        fed = [_quietly(torch.from_numpy, [value]) for value in inputs]
        types = {**DTYPES, "scalar": _precision(inputs)}
        # Its constants are in single precision, whatever they are converted to.
        module.double() if types["scalar"] == np.float64 else module.float()
        with torch.no_grad(), _refusals("the PyTorch interpreter", "run", graph):
            found = _quietly(module, fed)
        return [
            result.numpy().astype(types[tensor.dtype], order="C", copy=False)
            for tensor, result in zip(graph.outputs, found, strict=True)
        ]

    return run


def _quietly(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Calls a function whose warnings are about its own code."""
    with catch_warnings():
        simplefilter("ignore")
        return function(*arguments)


@contextmanager
def _written(lowered: Lowered, data: Data) -> Iterator[Path]:
    """A folder with a graph and its data, for as long as it takes to load it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "graph"
        save(lowered.graph, path, data={**data, **lowered.data})
        yield path


# ---- The interpreter of this package ----


def _in_numpy(graph: Graph, data: Data, threads: int | None) -> Run:
    def run(inputs: Sequence[Array]) -> list[Array]:
        arrays = dict(zip(graph.input_names, inputs, strict=True))
        found = evaluate(graph, arrays, data, dtype=_precision(inputs))
        return [found[name] for name in graph.output_names]

    return run


def in_single(data: Data) -> dict[str, Array]:
    """Data with single precision in place of double."""
    return {
        label: array.astype(np.float32) if array.dtype == np.float64 else array
        for label, array in data.items()
    }


def _precision(arrays: Sequence[Array]) -> Any:
    """The data type of the numbers among the arrays."""
    return next(
        (array.dtype for array in arrays if array.dtype.kind == "f"), np.float32
    )


# ---- All of them ----


@contextmanager
def _refusals(runtime: str, step: str, graph: Graph) -> Iterator[None]:
    """Turns what a runtime raises, as it loads or runs a graph, into an error that names
    both.
    """
    try:
        yield
    except (NnefGradError, OSError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        message = f"{runtime} cannot {step} '{graph.name}': {reason}"
        raise UnsupportedError(message) from error


_SINGLE = ("float32",)
_EITHER = ("float32", "float64")
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("onnxruntime", ("onnx", "onnxruntime"), _SINGLE, _in_onnx_runtime),
        Runtime("openvino", ("onnx", "openvino"), _SINGLE, _in_openvino),
        Runtime("tract", ("tract",), _SINGLE, _in_tract),
        Runtime("interpreter", ("torch",), _EITHER, _in_interpreter),
        Runtime("numpy", (), _EITHER, _in_numpy),
    )
}
