"""What operations cost the runtimes: the one model by which forms are chosen.

An operation takes the time of its multiply-adds or of the bytes that it moves, by the
kind of kernel that does it, and some time for being there. The speeds were measured by
bench/forms.py, with two threads; only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from nnef_grad.graph.ir import Operation, Tensor
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.costs import bytes_moved, multiply_adds
from nnef_grad.ops.elementwise import outer_factors
from nnef_grad.ops.traits import DATA, FED, PRODUCTS, RESHAPING
from nnef_grad.ops.windows import windows_of


class Speeds(NamedTuple):
    """Of a runtime: nanoseconds for a thousand multiply-adds, or for a thousand bytes, and
    for an operation.

    Attributes:
        product: of matrices.
        convolution: with a group for each channel, depthwise.
        correlation: a convolution with windows larger than its result; with a filter for
            each group, depthwise_correlation.
        deconvolution: in whatever form the runtime has it; with a group for each channel,
            depthwise_deconvolution.
        transposition: bytes; so are the next two.
        copies: elements that stay side by side.
        arithmetic: element by element, and sums.
        outer: an outer product over more than two axes.
        operation: the time to begin with it.
    """

    product: float
    convolution: float
    depthwise: float
    correlation: float
    depthwise_correlation: float
    deconvolution: float
    depthwise_deconvolution: float
    transposition: float
    copies: float
    arithmetic: float
    outer: float
    operation: float


# By the name of a runtime. nnef.Session is not looked at: it has no kernels for speed.
SPEEDS: dict[str, Speeds] = {
    "interpreter": Speeds(12, 6, 100, 6, 130, 6, 200, 150, 150, 150, 150, 10_000),
    "tract": Speeds(15, 14, 170, 50, 500, 15, 170, 200, 100, 100, 5_000, 2_000),
    "onnx": Speeds(6, 5, 60, 80, 4_000, 10, 180, 120, 60, 60, 60, 3_000),
}

# What depends on data alone, they compute when a model is loaded.
FOLDING = {"tract", "onnx"}

_FILTERS = {"conv", "deconv"}
_KINDS = {
    "transpose": "transposition",
    **dict.fromkeys(("slice", "concat", "pad", "tile", "copy", *RESHAPING), "copies"),
}


def data_of(operations: Iterable[Operation]) -> set[Tensor]:
    """The tensors that depend on nothing that a model is fed with."""
    data = set[Tensor]()
    for op in operations:
        if op.name in DATA or (op.inputs and data.issuperset(op.inputs)):
            data.update(op.outputs)
    return data


def cost(operations: Sequence[Operation], runtime: str) -> float:
    """The nanoseconds that a runtime takes for operations, in their order."""
    done = data_of(operations) if runtime in FOLDING else set()
    counted = (
        op for op in operations if op.name not in FED and done.isdisjoint(op.outputs)
    )
    return sum(map(partial(_duration, SPEEDS[runtime]), counted))


def _duration(speeds: Speeds, operation: Operation) -> float:
    kind, amount = work(operation)
    speed: float = getattr(speeds, kind)
    return speed * amount / 1000 + speeds.operation


def work(operation: Operation) -> tuple[str, int]:
    """The kind of speed that counts for an operation, and how many multiply-adds or bytes."""
    if operation.name in PRODUCTS:
        kind = _kind_of_filter(operation) if operation.name in _FILTERS else "product"
        factor = _idle_part(operation) if kind == "correlation" else 1
        return kind, factor * multiply_adds(operation)
    kind = "arithmetic" if outer_factors(operation) is None else "outer"
    return _KINDS.get(operation.name, kind), bytes_moved(operation)


# The filters that a correlation takes as long for as for fewer: then it takes its time to
# collect the elements of its windows.
_LEAST_FILTERS = 64


def _idle_part(op: Operation) -> int:
    return max(_LEAST_FILTERS // op.inputs[1].shape[0], 1)


def _kind_of_filter(op: Operation) -> str:
    windows, (_, w), groups = windows_of(op), op.inputs[:2], groups_of(op)
    if op.name == "conv" and prod(windows.size) > prod(windows.down):
        return "depthwise_correlation" if w.shape[0] == groups > 1 else "correlation"
    is_depthwise = w.shape[1] == 1 and groups > 1
    if op.name == "deconv":
        return "depthwise_deconvolution" if is_depthwise else "deconvolution"
    return "depthwise" if is_depthwise else "convolution"
