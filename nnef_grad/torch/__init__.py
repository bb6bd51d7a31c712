"""NNEF models as PyTorch modules: torch trains them, a runtime of NNEF computes them.

    from nnef_grad.torch import Module

    module = Module("model/", runtime="onnxruntime")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

The code stands in runtimes/torch/.
"""

from __future__ import annotations

from nnef_grad.base.errors import UsageError

try:
    from nnef_grad.runtimes.torch.module import Module
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    message = "nnef_grad.torch needs torch: pip install torch onnx"
    raise UsageError(message) from None

# Where it is found by its users, and by their pickles.
Module.__module__ = __name__

__all__ = ["Module"]
