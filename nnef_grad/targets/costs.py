"""The cost of operations in the runtimes: the one model by which forms are chosen.

An operation takes the time of its multiply-adds or of the bytes that it moves, by the
kind of kernel that does it, and some time for being there. The speeds were measured by
bench/forms.py, with two threads; only their ratios matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from math import inf, prod
from typing import NamedTuple

from nnef_grad.graph.bounds import nominal
from nnef_grad.graph.extents import has_symbols
from nnef_grad.graph.ir import Operation, Tensor, shape_of
from nnef_grad.ops.conv import groups_of
from nnef_grad.ops.costs import bytes_moved, multiply_adds
from nnef_grad.ops.traits import DATA, FED, PRODUCTS, RESHAPING
from nnef_grad.ops.windows import windows_of
from nnef_grad.targets.conditions import crowded, outer_factors, outer_product


class Speeds(NamedTuple):
    """Nanoseconds for a thousand multiply-adds, or bytes, and for an operation."""

    # Of matrices; and of many pairs of matrices, to small ones.
    product: float
    small_product: float
    # In one group, with a group for each channel, and with a filter that is computed.
    convolution: float
    depthwise_convolution: float
    dynamic_convolution: float
    # An element of a window that is collected for such a filter, whatever the number of filters.
    collection: float
    # So many of them as lie side by side are collected at once.
    collected_run: float
    # A convolution with longer rows in its windows than in its result; and with a filter for
    # each group.
    correlation: float
    depthwise_correlation: float
    # In whatever form the runtime has it.
    deconvolution: float
    depthwise_deconvolution: float
    # Bytes, from here on: one axis moves past others, or several do.
    transposition: float
    shuffle: float
    # Elements that stay side by side. With a stride, elements or long runs of them take as
    # long as a transposition, and short runs as a shuffle.
    copies: float
    # Element by element, and sums.
    arithmetic: float
    # An outer product over more than two axes, for each element of its last one.
    outer: float
    # A matrix that is the product of a column and a row.
    column_by_row: float
    # A product whose rows crowd in a cache.
    crowded: float
    # The time to begin with each pair of matrices that are multiplied, and with an operation.
    matrix: float
    operation: float


_ENGINES = Speeds(
    6, 10, 4, 80, 12, 320, 0, 80, 1_600, 9, 200, 60, 450, 40, 20, 15, 15, 40, 0, 5_000
)
_ONNX = _ENGINES._replace(
    product=8, dynamic_convolution=9, collection=280, collected_run=4_000,
    correlation=150, transposition=70,
)  # fmt: skip
_TRACT = Speeds(
    14, 60, 16, 200, 28, 0, 0, 230, 3_100, 16, 80, 110, 430, 34, 30, 2_000, 400, 500, 1_000,
    500,
)  # fmt: skip
_INTERPRETER = Speeds(
    24, 24, 15, 400, 15, 0, 0, 26, 700, 19, 580, 100, 100, 70, 10, 460, 2, 70, 0, 20_000
)

# By the name of a runtime. nnef.Session is not looked at: it has no kernels for speed.
SPEEDS: dict[str, Speeds] = {
    "interpreter": _INTERPRETER,
    "tract": _TRACT,
    "tract-standard": _TRACT,
    "onnx": _ONNX,
    "engines": _ENGINES,
    "openvino": _ENGINES,
    "converter": _ENGINES,
}

# What depends on data alone, they compute when a model is loaded.
FOLDING = {"tract", "tract-standard", "onnx", "engines", "openvino", "converter"}
# They collect the elements of the windows of a convolution, and multiply matrices.
COLLECTING = FOLDING
# A deconvolution is a convolution for them, with zeros between the elements.
SPREADING = {"tract", "tract-standard"}
# A computed filter may have extents that are known when they run.
OPEN_FILTERS = {"onnx"}


def data_of(operations: Iterable[Operation]) -> set[Tensor]:
    """The tensors that depend on nothing that a model is fed with."""
    data = set[Tensor]()
    for op in operations:
        if op.name in DATA or (op.inputs and data.issuperset(op.inputs)):
            data.update(op.outputs)
    return data


def cost(operations: Sequence[Operation], runtime: str) -> float:
    """The nanoseconds that a runtime takes for operations, in their order."""
    filters = (op.operands[1] for op in operations if op.name in _FILTERS)
    if runtime not in OPEN_FILTERS and any(has_symbols(shape_of(w)) for w in filters):
        return inf
    speeds: dict[str, float] = SPEEDS[runtime]._asdict()
    kinds = work(operations, runtime).items()
    return sum(speeds[kind] * amount for kind, amount in kinds)


def work(operations: Sequence[Operation], runtime: str) -> dict[str, float]:
    """Thousands of multiply-adds and bytes, and operations, by the kind of speed."""
    data = data_of(operations)
    done = data if runtime in FOLDING else set()
    total = dict.fromkeys(Speeds._fields, 0.0)
    for op in operations:
        if op.name in FED or op.outputs[0] in done:
            continue
        total["operation"] += 1.0
        kind, moved = _kind_of_memory(op), nominal(bytes_moved(op)) / 1000
        run = nominal(op.outputs[0].shape[-1]) if kind == "outer" else 1
        total[kind] += moved / run
        if op.name == "matmul":
            total["matrix"] += nominal(prod(op.outputs[0].shape[:-2]))
        if op.name in PRODUCTS:
            slowness = _slowness(op) if runtime in COLLECTING else 1.0
            if op.name == "deconv" and runtime in SPREADING:
                slowness *= prod(windows_of(op).stride)
            count = nominal(multiply_adds(op))
            kind = _kind_of_product(op, data)
            total[kind] += count * slowness / 1000
            if (
                kind == "dynamic_convolution"
                and nominal(prod(op.inputs[1].shape[2:])) > 1
            ):
                collected = count / _filters_of_group(op) / 1000
                total["collection"] += collected
                total["collected_run"] += collected / nominal(op.outputs[0].shape[-1])
    return total


# So many elements are copied faster as a run than one by one.
_SHORT = 16

_MEMORY = {
    **dict.fromkeys(("slice", "pad", "tile", "copy", *RESHAPING), "copies"),
    **dict.fromkeys(PRODUCTS, "copies"),
}


def _kind_of_memory(op: Operation) -> str:
    if op.name == "transpose":
        return "transposition" if _moves_one_axis(op) else "shuffle"
    if op.name == "slice" and max(op.attributes["stride"], default=1) > 1:
        run = nominal(prod(op.inputs[0].shape[max(op.attributes["axes"]) + 1 :]))
        return "shuffle" if 1 < run < _SHORT else "transposition"
    if op.name == "concat":
        run = nominal(prod(op.inputs[0].shape[op.attributes["axis"] :]))
        return "shuffle" if run < _SHORT else "copies"
    if op.name == "matmul" and outer_product(op):
        return "column_by_row"
    if op.name == "matmul" and crowded(op):
        return "crowded"
    return _MEMORY.get(op.name, "outer" if outer_factors(op) else "arithmetic")


def _moves_one_axis(op: Operation) -> bool:
    """Whether the axes are in order but for one; an axis of extent 1 has no place."""
    (x,) = op.inputs
    order = [axis for axis in op.attributes["axes"] if x.shape[axis] != 1]
    others = (order[:i] + order[i + 1 :] for i in range(len(order)))
    return any(rest == sorted(rest) for rest in others)


def _kind_of_product(op: Operation, data: Set[Tensor]) -> str:
    if op.name not in ("conv", "deconv"):
        *batch, rows, columns = 1, 1, *op.outputs[0].shape
        is_small = nominal(prod(batch)) > 1 and nominal(rows * columns) < _SMALL
        return "small_product" if is_small else "product"
    (_, w), groups = op.inputs[:2], groups_of(op)
    if _is_correlation(op):
        return "depthwise_correlation" if w.shape[0] == groups > 1 else "correlation"
    is_dynamic = op.name == "conv" and w not in data
    is_product = is_dynamic and _filters_of_group(op) > 1
    if w.shape[1] == 1 and groups > 1 and not is_product:
        return f"depthwise_{_FILTERS[op.name]}"
    return "dynamic_convolution" if is_dynamic else _FILTERS[op.name]


# Matrices with fewer elements are multiplied slower, where there are many.
_SMALL = 2**14

_FILTERS = {"conv": "convolution", "deconv": "deconvolution"}


# A result with more places gives a product as good as others.
_FEW_PLACES = 128


def _is_correlation(op: Operation) -> bool:
    """Whether the windows of a convolution have longer rows than its result, which is few
    places.
    """
    if op.name != "conv" or nominal(prod(op.outputs[0].shape[2:])) > _FEW_PLACES:
        return False
    return nominal(op.inputs[1].shape[-1]) > nominal(op.outputs[0].shape[-1])


# A correlation takes as long for fewer filters than these: then it takes its time to
# collect the elements of its windows.
_LEAST_FILTERS = 64


def _slowness(op: Operation) -> float:
    """How much longer a multiply-add of a correlation takes, for few filters, or less
    long for a wide result: the elements of a row of windows are collected at once.
    """
    if not _is_correlation(op):
        return 1.0
    each = _filters_of_group(op)
    # Groups of one filter have a speed of their own.
    filters = each if each > 1 else op.inputs[1].shape[0]
    return max(_LEAST_FILTERS / filters, 1.0) / nominal(op.outputs[0].shape[-1])


def _filters_of_group(op: Operation) -> float:
    return nominal(op.inputs[1].shape[0] // groups_of(op))
