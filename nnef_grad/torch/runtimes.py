"""The runtimes of modules: each makes a function of tensors from a graph without
variables.

No array is copied that a runtime can read or write where it is: ONNX Runtime and the
interpreter read the memory of torch, ONNX Runtime writes its results there. tract copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from nnef_grad.errors import NnefGradError, UnsupportedError, UsageError, suggestion
from nnef_grad.graph.ir import Graph
from nnef_grad.interop import to_onnx
from nnef_grad.interpreter import evaluate
from nnef_grad.model import save
from nnef_grad.targets import lower

# The results of a graph, in order, on inputs in order: contiguous tensors on the CPU.
Run = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]


@dataclass(frozen=True)
class Runtime:
    """What runs graphs.

    Attributes:
        name: what the user calls it.
        packages: what has to be installed.
        dtypes: the precisions it computes in.
        compile: makes a function of a graph.
    """

    name: str
    packages: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    compile: Callable[[Graph], Run]


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


def _in_onnx_runtime(graph: Graph) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    with TemporaryDirectory() as folder, _refusals("ONNX Runtime", "load", graph):
        path = Path(folder) / "graph.onnx"
        to_onnx(graph, path)
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    read = {node.name for node in session.get_inputs()}

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = [torch.empty(t.shape, dtype=DTYPES[t.dtype]) for t in graph.outputs]
        binding = session.io_binding()
        for tensor, value in zip(graph.inputs, inputs, strict=True):
            if tensor.name in read:
                _bind(binding.bind_input, tensor.name, value)
        for tensor, value in zip(graph.outputs, results, strict=True):
            _bind(binding.bind_output, tensor.name, value)
        with _refusals("ONNX Runtime", "run", graph):
            session.run_with_iobinding(binding)
        return results

    return run


def _bind(bind: Callable[..., None], name: str, value: torch.Tensor) -> None:
    """Gives a runtime the memory of a tensor, for an input or an output."""
    element = _ELEMENTS[value.dtype]
    bind(name, "cpu", 0, element, tuple(value.shape), value.data_ptr())


# ---- tract ----


def _in_tract(graph: Graph) -> Run:
    import tract

    lowered = lower(graph, "tract")
    with TemporaryDirectory() as folder, _refusals("tract", "load", graph):
        save(lowered.graph, f"{folder}/graph/", data=lowered.data)
        model = tract.nnef().load(f"{folder}/graph")
        names = [model.input_name(index) for index in range(model.input_count())]
        runnable = model.into_runnable()

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        fed = {
            # The lowered graph may have numbers for integers, and other names.
            tensor.name: value.to(DTYPES[tensor.dtype]).numpy()
            for tensor, value in zip(lowered.graph.inputs, inputs, strict=True)
        }
        with _refusals("tract", "run", graph):
            found = runnable.run([fed[name] for name in names])
        return [
            torch.from_numpy(result.to_numpy()).to(DTYPES[tensor.dtype])
            for tensor, result in zip(graph.outputs, found, strict=True)
        ]

    return run


# ---- The interpreter ----


def _in_interpreter(graph: Graph) -> Run:
    names = [tensor.name for tensor in graph.inputs]

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        arrays = {n: v.numpy() for n, v in zip(names, inputs, strict=True)}
        found = evaluate(graph, arrays, dtype=_precision(arrays))
        return [torch.from_numpy(found[tensor.name]) for tensor in graph.outputs]

    return run


def _precision(arrays: Mapping[str, Any]) -> Any:
    """The data type of the numbers among the arrays."""
    return next((a.dtype for a in arrays.values() if a.dtype.kind == "f"), np.float32)


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


# The types of tensors in torch, in single precision.
DTYPES = {"scalar": torch.float32, "integer": torch.int64, "logical": torch.bool}
_ELEMENTS = {torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
_SINGLE = (torch.float32,)
_EITHER = (torch.float32, torch.float64)
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("onnxruntime", ("onnx", "onnxruntime"), _SINGLE, _in_onnx_runtime),
        Runtime("tract", ("tract",), _SINGLE, _in_tract),
        Runtime("interpreter", (), _EITHER, _in_interpreter),
    )
}
