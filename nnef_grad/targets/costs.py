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


class Speeds(NamedTuple):
    """Of a runtime: nanoseconds for a thousand multiply-adds, or for a thousand bytes, and
    for an operation.

    Attributes:
        product: of matrices.
        convolution: with a group for each channel, depthwise_convolution.
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
    depthwise_convolution: float
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
    "interpreter": Speeds(12, 6, 100, 8, 400, 6, 200, 150, 150, 150, 150, 10_000),
    "tract": Speeds(14, 16, 200, 150, 3_000, 16, 200, 110, 30, 70, 2_000, 500),
    "onnx": Speeds(6, 5, 60, 240, 12_000, 10, 180, 120, 60, 60, 60, 3_000),
}

# What depends on data alone, they compute when a model is loaded.
FOLDING = {"tract", "onnx"}


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
    speed: dict[str, float] = speeds._asdict()
    return sum(speed[kind] * amount for kind, amount in work(operation).items())


def work(operation: Operation) -> dict[str, float]:
    """How many thousands of multiply-adds and bytes an operation takes, by the kind of
    speed, and that it is one operation.
    """
    work = {"operation": 1.0, _kind_of_memory(operation): bytes_moved(operation) / 1000}
    if operation.name in PRODUCTS:
        amount = multiply_adds(operation) / 1000
        work[_kind_of_product(operation)] = amount * _slowness(operation)
    return work


_MEMORY = {
    "transpose": "transposition",
    **dict.fromkeys(("slice", "concat", "pad", "tile", "copy", *RESHAPING), "copies"),
    **dict.fromkeys(PRODUCTS, "copies"),
}


def _kind_of_memory(op: Operation) -> str:
    return _MEMORY.get(op.name, "outer" if outer_factors(op) else "arithmetic")


def _kind_of_product(op: Operation) -> str:
    if op.name not in ("conv", "deconv"):
        return "product"
    (_, w), groups = op.inputs[:2], groups_of(op)
    if _is_correlation(op):
        return "depthwise_correlation" if w.shape[0] == groups > 1 else "correlation"
    is_depthwise = w.shape[1] == 1 and groups > 1
    return f"depthwise_{_FILTERS[op.name]}" if is_depthwise else _FILTERS[op.name]


_FILTERS = {"conv": "convolution", "deconv": "deconvolution"}


def _is_correlation(op: Operation) -> bool:
    """Whether the windows of a convolution are larger than its result."""
    return op.name == "conv" and prod(op.inputs[1].shape[2:]) > prod(
        op.outputs[0].shape[2:]
    )


# A correlation takes as long for fewer filters than these: then it takes its time to
# collect the elements of its windows.
_LEAST_FILTERS = 64


def _slowness(op: Operation) -> float:
    """How much longer each multiply-add of a correlation takes, for few filters, or less
    long for a wide result: the elements of a row of windows are collected at once.
    """
    if not _is_correlation(op):
        return 1.0
    return max(_LEAST_FILTERS / op.inputs[1].shape[0], 1.0) / op.outputs[0].shape[-1]
