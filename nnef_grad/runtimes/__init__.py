"""Runtimes: each makes a function of arrays from a graph.

No array is copied that a runtime can read or write where it is.
"""

from __future__ import annotations

from importlib.util import find_spec

from nnef_grad.base.errors import UsageError, suggestion
from nnef_grad.base.public import public
from nnef_grad.runtimes.runtime import EITHER, SINGLE, Data, Run, Runtime, in_single

__all__ = ["RUNTIMES", "Data", "Run", "Runtime", "find_runtime", "in_single"]

RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("onnxruntime", ("onnx", "onnxruntime"), SINGLE),
        Runtime("openvino", ("onnx", "openvino"), SINGLE),
        Runtime("tract", ("tract",), SINGLE),
        Runtime("khronos", ("torch",), EITHER),
        Runtime("numpy", (), EITHER),
    )
}


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
