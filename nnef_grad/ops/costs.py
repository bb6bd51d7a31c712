"""The costs of an operation, from shapes alone.

A multiply-add is a step of a sum: an element times its weight, added to what is there.
These are counted wherever an operation sums over a window, an axis or a row:

    products    convolutions and matrix products: all that most networks spend
    sums        box filters, means and reductions: the weight of an element is one
    samples     interpolation: two elements along each axis that grows

Windows are counted whole, as if the padding were stored: most runtimes compute them so,
and a convolution costs the same whichever way it is written. A reverse operation costs
what its adjoint does. A bias, what is done element by element, maxima, comparisons and
what only moves elements count nothing: their cost is the memory that they move. So does
an operation of the user's own, of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from nnef_grad.graph.ir import LOOP, Operation, Tensor, shape_of
from nnef_grad.graph.loops import loop_of, steps_of
from nnef_grad.ops.traits import RESHAPING, SOURCES
from nnef_grad.ops.windows import is_reverse, windows_of

# The bytes of an element by its type. Scalars are stored in single precision.
ITEM_BYTES = {"scalar": 4, "integer": 4, "logical": 1, "string": 0}

Count = Callable[[Operation], int]


def multiply_adds(operation: Operation) -> int:
    """How many multiply-adds an operation takes."""
    return MULTIPLY_ADDS.get(operation.name, _nothing)(operation)


# They are there already, or the same memory as another tensor.
_UNMOVED = SOURCES | RESHAPING


def bytes_moved(operation: Operation) -> int:
    """How many bytes an operation reads and writes. What the graph is fed with and
    constants are there already, and a tensor in another shape is the same memory.
    """
    if operation.name in _UNMOVED:
        return 0
    return READ.get(operation.name, _operands)(operation) + _results(operation)


def byte_size(tensor: Tensor) -> int:
    """How many bytes a tensor takes."""
    return ITEM_BYTES[tensor.dtype] * prod(tensor.shape)


# ---- Multiply-adds ----


def _nothing(op: Operation) -> int:
    return 0


def _filtered(op: Operation) -> int:
    """Each window in each item of the batch, times all elements of its filters. The
    steps of a separable convolution have as many windows.
    """
    _, *filters, _ = op.operands
    down = (op.inputs if is_reverse(op) else op.outputs)[0].shape
    return down[0] * prod(down[2:]) * sum(prod(shape_of(f)) for f in filters)


def _multiplied(op: Operation) -> int:
    """The inner extent for each element of the product."""
    inner = -2 if op.settings.get("transposeA") else -1
    return _elements(op) * op.inputs[0].shape[inner]


def _summed_windows(op: Operation) -> int:
    """Each window, times all of its elements."""
    windows = windows_of(op)
    return prod(windows.down) * prod(windows.size)


def _summed_around(op: Operation) -> int:
    """A window around each element."""
    return _elements(op) * prod(op.attributes["size"])


def _summed(op: Operation) -> int:
    """Each element of the operand once."""
    return prod(shape_of(op.operands[0]))


def _interpolated(op: Operation) -> int:
    """For each element the two next to it along each axis that grows."""
    return _elements(op) * prod(2 for factor in op.attributes["factor"] if factor > 1)


def _regions(op: Operation) -> int:
    """Regions are data: each may be the whole of the feature maps."""
    features, rois, _ = op.inputs
    return rois.shape[0] * prod(features.shape[1:])


def _sampled_regions(op: Operation) -> int:
    """For each sample the two elements next to it along each spatial axis."""
    samples = _elements(op) * prod(op.attributes.get("sampling_rate", ()))
    return samples * prod(2 for _ in op.attributes["output_size"])


def _averaged_regions(op: Operation) -> int:
    """The samples, and the sum of those of a cell."""
    return _sampled_regions(op) + _elements(op) * prod(op.attributes["sampling_rate"])


def _steps(op: Operation) -> int:
    """Those of the body of a loop, at each step."""
    return steps_of(op) * sum(map(multiply_adds, loop_of(op).body.operations))


def _twice(count: Count, op: Operation) -> int:
    return 2 * count(op)


MULTIPLY_ADDS: dict[str, Count] = {
    LOOP: _steps,
    **dict.fromkeys(
        ("conv", "deconv", "separable_conv", "separable_deconv"), _filtered
    ),
    **dict.fromkeys(("matmul", "linear"), _multiplied),
    **dict.fromkeys(("box", "debox", "avg_pool", "rms_pool"), _summed_windows),
    **dict.fromkeys(("sum_reduce", "mean_reduce", "area_downsample"), _summed),
    # Elements that meet are added.
    "desample": _summed,
    "moments": partial(_twice, _summed),
    **dict.fromkeys(("softmax", "l1_normalization", "l2_normalization"), _summed),
    "local_response_normalization": _summed_around,
    "local_mean_normalization": _summed_around,
    "local_variance_normalization": _summed_around,
    "local_contrast_normalization": partial(_twice, _summed_around),
    "multilinear_upsample": _interpolated,
    "avg_roi_pool": _regions,
    **dict.fromkeys(("roi_resample", "max_roi_align"), _sampled_regions),
    "avg_roi_align": _averaged_regions,
}


# ---- Memory ----


def _operands(op: Operation) -> int:
    """One that is used twice is read once."""
    return sum(map(byte_size, set(op.inputs)))


def _results(op: Operation) -> int:
    return sum(map(byte_size, op.outputs))


def _indices_and_results(op: Operation) -> int:
    """Of the operand, only what becomes an element of the result."""
    return sum(map(byte_size, op.inputs[1:])) + _results(op)


# The operations that read a part of their first operand.
READ: dict[str, Count] = dict.fromkeys(
    ("slice", "gather", "sample", "nearest_downsample"), _indices_and_results
)


def _elements(op: Operation) -> int:
    return prod(op.outputs[0].shape)


# ---- For people ----


def _scaled(factor: int, units: Sequence[str], number: int) -> str:
    """Four digits of a number, in the unit that it has most ones of."""
    power = 0
    while number >= factor ** (power + 1) and power + 1 < len(units):
        power += 1
    return f"{number / factor**power:.4g} {units[power]}".rstrip()


count_text = partial(_scaled, 1000, ("", "K", "M", "G", "T"))
byte_text = partial(_scaled, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))
