"""The memory that torch.autograd takes for a network, counted without computing anything.

The network runs forward and backward on tensors without data. Every operation that torch
dispatches is seen, and so is the memory that its results bring, until the last reference
to it is gone. The network is written as one would write it for torch: with its own
convolution, pooling and normalization, dropping each tensor after its last use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import nnef_grad
from bench.workers import min_cut
from nnef_grad.graph.extents import as_numbers
from nnef_grad.ops.costs import last_uses
from nnef_grad.ops.traits import FED
from nnef_grad.ops.windows import windows_of


class Allocations(TorchDispatchMode):  # type: ignore[misc]
    """Counts the bytes that are alive, and the most of them at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.peak: int = 0

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        results = function(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                self._hold(result.untyped_storage())
        self.peak = max(self.peak, sum(self.sizes.values()))
        return results

    def _hold(self, storage: torch.UntypedStorage) -> None:
        """A view has the storage of another tensor."""
        if storage._cdata not in self.sizes:
            self.sizes[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self.sizes.pop, storage._cdata)


def saved_bytes(graph: nnef_grad.Graph, wrt: Collection[str]) -> int:
    """The bytes between the passes of a network that torch has split by a minimum cut of
    its own, besides inputs and variables.
    """
    fed = [t for op in graph.operations if op.name in FED for t in op.outputs]

    def network(*given: Tensor) -> Tensor:
        values = dict(zip(fed, given, strict=True))
        for operation in graph.operations:
            if operation.name not in FED:
                operands = [values[t] for t in operation.inputs]
                values[operation.outputs[0]] = TORCH[operation.name](
                    operation, *operands
                )
        return values[graph.outputs[0]]

    given = [
        torch.empty(t.shape, device="meta", requires_grad=graph.names[t] in wrt)
        for t in fed
    ]
    return min_cut.saved_bytes(network, given)


def peak_bytes(graph: nnef_grad.Graph, wrt: Collection[str]) -> int:
    """The most bytes that are alive at a time, besides inputs, variables and seed, while
    the one output of a network and its gradients are computed.
    """
    values = {
        t: torch.empty(t.shape, device="meta", requires_grad=graph.names[t] in wrt)
        for op in graph.operations
        if op.name in FED
        for t in op.outputs
    }
    leaves = [values[graph.tensors[name]] for name in wrt]
    (output,) = graph.outputs
    seed = torch.empty(output.shape, device="meta")
    with Allocations() as allocations:
        for operation, dead in zip(graph.operations, last_uses(graph), strict=True):
            if operation.name not in FED:
                operands = [values[t] for t in operation.inputs]
                result = TORCH[operation.name](operation, *operands)
                values[operation.outputs[0]] = result
                del operands, result
            for tensor in dead - {output}:
                del values[tensor]
        gradients = torch.autograd.grad([values.pop(output)], leaves, [seed])
    assert len(gradients) == len(wrt)
    peak: int = allocations.peak
    return peak


# ---- The operations of the networks ----


def _conv(op: nnef_grad.Operation, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    windows = windows_of(op)
    before = [p for p, _ in windows.padding]
    if windows.padding != tuple((p, p) for p in before):
        x = functional.pad(
            x, [p for sides in reversed(windows.padding) for p in as_numbers(sides)]
        )
        before = [0] * len(before)
    groups = op.attributes["groups"]
    sliding = windows.stride, before, windows.dilation
    return functional.conv2d(x, weight, bias.flatten(), *sliding, groups)


def _max_pool(op: nnef_grad.Operation, x: Tensor) -> Tensor:
    windows = windows_of(op)
    before = [p for p, _ in windows.padding]
    return functional.max_pool2d(x, windows.size[2:], windows.stride[2:], before[2:])


def _batch_normalization(
    op: nnef_grad.Operation, x: Tensor, mean: Tensor, variance: Tensor, offset: Tensor
) -> Tensor:
    """That of torch has no gradients of the mean and the variance."""
    epsilon = op.attributes["epsilon"]
    if not mean.requires_grad:
        statistics = mean.flatten(), variance.flatten(), None, offset.flatten()
        return functional.batch_norm(x, *statistics, eps=epsilon)
    m, v, o = (t[..., None, None] for t in (mean, variance, offset))
    return (x - m) * torch.rsqrt(v + epsilon) + o


TORCH: dict[str, Callable[..., Tensor]] = {
    "conv": _conv,
    "max_pool": _max_pool,
    "batch_normalization": _batch_normalization,
    "relu": lambda op, x: functional.relu(x),
    "add": lambda op, x, y: x + y,
    "mean_reduce": lambda op, x: x.mean(op.attributes["axes"], keepdim=True),
}
