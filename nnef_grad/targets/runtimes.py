"""Facts about real runtimes, by measurement: the operations that they lack, or compute
wrong.

For each operation the settings that are not in the common subset, which all runtimes have
and compute right. Where another form is longer, only those runtimes are kept from the
operation that need to be. The other forms are not given here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnef_grad.graph.ir import Operation
from nnef_grad.language.library import standard
from nnef_grad.ops.windows import REPEATING
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition

# The settings that must not reach runtimes, which are named in a string.
Fact = Mapping[str, Condition]


@dataclass(frozen=True)
class Runtime:
    """A runtime, or several that are used together.

    Attributes:
        name: its name in the tables.
        title: what messages call it.
    """

    name: str
    title: str

    def lacks(self, operation: Operation) -> bool:
        """Whether the operation, as it is set, must not reach the runtime."""
        if operation.name not in standard():
            return True
        return any(
            self.name in names.split() and condition(operation)
            for names, condition in LACKING.get(operation.name, {}).items()
        )


# nnef.Session, and the PyTorch interpreter of nnef_tools
KHRONOS = Runtime("khronos", "the Khronos runtimes")

RUNTIMES: dict[str, Runtime] = {
    "session": KHRONOS,
    "interpreter": KHRONOS,
    "tract": Runtime("tract", "tract"),
    "onnx": Runtime("onnx", "ONNX Runtime"),
}

ALL = "khronos tract onnx"


# ---- Whatever the settings are ----

# Halves go up in the standard: they are rounded away from zero, or to the even neighbour.
# nnef.Session has another function for gelu; softplus is infinite from 89 on in some. The
# index of a maximum is another one, and desample puts one value in place of a sum.
_WHOLLY: Mapping[str, str] = {
    ALL: """
        rcp round silu gelu copy_n add_n update any_reduce all_reduce separable_conv
        separable_deconv rms_pool argmax_pool max_pool_with_index sample desample
        nearest_downsample area_downsample local_mean_normalization
        local_variance_normalization local_contrast_normalization avg_roi_pool
        max_roi_pool roi_resample avg_roi_align max_roi_align min_max_linear_quantize
        zero_point_linear_quantize linear_quantize logarithmic_quantize
    """,
    "khronos onnx": "clamp softabs",
    "khronos tract": "softplus nearest_upsample",
    "tract": "split gather",
    "onnx": "rsqrt rsqr log2 ne le ge stack unstack",
}


# ---- Element by element, shapes, matrices, reductions, normalisation ----

_SELU = when.other_than(**{"alpha": 1.67326319, "lambda": 1.05070102})
_TRANSPOSED = when.other_than(transposeA=False, transposeB=False)
_REDUCTION = {ALL: when.unsorted | when.no_axes}
_POSITION = {ALL: when.not_one_axis}
_NORM = {"khronos onnx": when.always, "tract": when.unsorted}
_NO_SCALAR = when.of_type("logical") | when.of_type("integer")

ELEMENTS: Mapping[str, Fact] = {
    # Element by element
    "select": {
        "khronos": when.runs_out_of_axes,
        "tract": when.literal_integers | when.literal_condition,
        "onnx": when.literal_integers | when.of_type("logical"),
    },
    "elu": {"tract onnx": when.other_than(alpha=1.0)},
    "selu": {"tract": when.always, "khronos onnx": _SELU},
    "prelu": {"khronos": when.always, "onnx": when.broadcast_operand},
    "softmax": {"khronos onnx": when.not_one_axis, "onnx": when.not_last},
    # Tensors
    "constant": {
        "khronos": when.splat & _NO_SCALAR,
        "tract": when.always,
        "onnx": when.splat,
    },
    "cast": {"khronos": when.of_type("logical"), "tract": when.always},
    # It copies floats, whatever the type is.
    "copy": {"khronos": when.of_type("logical") | when.literal_integers},
    # Reductions
    "sum_reduce": {**_REDUCTION, "onnx": when.other_than(normalize=False)},
    "mean_reduce": _REDUCTION,
    "max_reduce": _REDUCTION,
    "min_reduce": _REDUCTION,
    "argmax_reduce": _POSITION,
    "argmin_reduce": _POSITION,
    "moments": _NORM,
    # Matrices
    # A reshape after broadcast batches is folded into the product in tract, and fails; so
    # does one after a single number.
    "matmul": {
        "khronos tract": when.different_batches,
        "tract": when.inner_product,
        "onnx": when.several_batches & _TRANSPOSED,
    },
    "linear": {"khronos onnx": when.no_plain_layer},
    # Normalisation
    "batch_normalization": {
        "khronos": when.always,
        "onnx": when.not_by_channel | when.no_space | when.shared_parameters,
    },
    "l1_normalization": _NORM,
    "l2_normalization": _NORM,
    "local_response_normalization": {
        "khronos tract": when.always,
        "onnx": when.not_across_channels,
    },
    # Shapes
    "reshape": {ALL: when.empty_shape | when.of_some_axes},
    "squeeze": _REDUCTION,
    "unsqueeze": _REDUCTION,
    "transpose": {ALL: when.rank_0 | when.fewer_axes, "khronos": when.above_rank(5)},
    "slice": {
        ALL: when.rank_0 | when.open_ended,
        "khronos": when.above_rank(5),
        "tract": when.no_plain_range | when.needless_stride,
    },
    "pad": {
        ALL: when.rank_0 | when.cropping | when.with_border("reflect-even", "ignore"),
        "khronos": when.beside_space
        | when.with_border("reflect", "replicate") & when.other_than(value=0.0),
        "tract": when.with_border("replicate"),
    },
    # One without repetitions ends in an error of tract where it is left out.
    "tile": {ALL: when.repeated_once, "khronos": when.above_rank(5)},
}


# ---- Windows: convolutions, pooling, boxes, sampling ----

_OUTSIDE = when.reading & when.with_border("constant", *REPEATING)
_CROPPED = when.repeating | when.cropping | when.above_rank(5)
_FILTER = _CROPPED | when.no_space | when.bias_not_by_channel
_EMPTY = when.empty & when.ignoring
_POOL = _CROPPED | _EMPTY | when.across | when.no_space | when.automatic & when.spaced

WINDOWS: Mapping[str, Fact] = {
    # tract takes elements that a stride skips out of what is before the convolution, and
    # fails if that is a reshape. It leaves out the padding of a filter of one element, if
    # a matrix product follows.
    "conv": {
        ALL: _FILTER,
        "tract": when.skipping | when.multiplying | when.idle,
        "onnx": when.number_as_bias | when.automatic & when.dilated,
    },
    # tract takes the filter for another way round, and cannot fuse a product with ones.
    "deconv": {
        ALL: _FILTER | when.biased & when.uncovered,
        "tract": when.always,
        "onnx": when.number_as_bias | when.automatic & (when.sized | when.spaced),
    },
    "max_pool": {
        ALL: _POOL,
        "tract onnx": _OUTSIDE,
        "onnx": when.wide | when.automatic & when.dilated,
    },
    "avg_pool": {ALL: _POOL | when.dilated, "onnx": when.wide},
    "box": {
        ALL: _CROPPED | _EMPTY | when.dilated | when.along_four_axes,
        "tract": when.across | when.no_space,
        "onnx": when.always,
    },
    "debox": {
        "khronos": _CROPPED
        | when.across
        | when.no_space
        | when.other_than(normalize=False),
        "tract onnx": when.always,
    },
    "multilinear_upsample": {
        "khronos": when.above_rank(4)
        | when.not_by_two
        | when.other_than(method="symmetric", border="replicate"),
        "tract": when.always,
        "onnx": when.other_than(method="aligned")
        & when.with_border("constant", "reflect"),
    },
}


LACKING: Mapping[str, Fact] = {
    **{
        operation: {runtimes: when.always}
        for runtimes, operations in _WHOLLY.items()
        for operation in operations.split()
    },
    **ELEMENTS,
    **WINDOWS,
}
