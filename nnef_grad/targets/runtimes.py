"""What real runtimes lack, or compute wrong: facts, by measurement.

For each operation the settings that are not in the common subset, which all runtimes have
and compute right. Where another form is longer, only those runtimes are kept from the
operation that need to be. What stands for it then is not said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union

from nnef_grad.graph.ir import Operation
from nnef_grad.language.library import standard
from nnef_grad.ops.windows import REPEATING
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition

# The settings that must not reach any runtime, or those that must not reach one or
# several, which are named in a string.
Fact = Union[Condition, Mapping[str, Condition]]


@dataclass(frozen=True)
class Runtime:
    """A runtime, or several that are used together.

    Attributes:
        name: its name in the tables.
        title: what messages call it.
        casts_integers: whether it can make scalars of integers.
        returns_data: whether a variable or a constant can be an output.
        takes_constants_as_biases: whether the bias of a layer can be a constant.
        moves_operations: whether it moves operations over each other, and gets that
            wrong.
        fuses_padding: whether it puts padding into what reads it, and gets that wrong.
        misread: beginnings of names that it reads as literals.
    """

    name: str
    title: str
    casts_integers: bool = True
    returns_data: bool = True
    takes_constants_as_biases: bool = True
    moves_operations: bool = False
    fuses_padding: bool = False
    misread: tuple[str, ...] = ()

    def lacks(self, operation: Operation) -> bool:
        """Whether the operation, as it is set, must not reach the runtime."""
        if operation.name not in standard():
            return True
        fact = LACKING.get(operation.name, {})
        if isinstance(fact, Condition):
            return fact(operation)
        return any(
            self.name in names.split() and condition(operation)
            for names, condition in fact.items()
        )


# nnef.Session, and the PyTorch interpreter of nnef_tools
KHRONOS = Runtime("khronos", "the Khronos runtimes")

RUNTIMES: dict[str, Runtime] = {
    "session": KHRONOS,
    "interpreter": KHRONOS,
    "tract": Runtime(
        "tract",
        "tract",
        casts_integers=False,
        moves_operations=True,
        misread=("inf", "true", "false"),
    ),
    "onnx": Runtime(
        "onnx",
        "ONNX Runtime",
        returns_data=False,
        takes_constants_as_biases=False,
        fuses_padding=True,
    ),
}

ALL = "khronos tract onnx"


# ---- Element by element, shapes, matrices, reductions, normalisation ----

_SELU = when.other_than(**{"alpha": 1.67326319, "lambda": 1.05070102})
_TRANSPOSED = when.other_than(transposeA=False, transposeB=False)
_REDUCTION = when.unsorted | when.no_axes
_NORM = {"khronos onnx": when.always, "tract": when.unsorted}

ELEMENTS: Mapping[str, Fact] = {
    # Element by element
    "rcp": when.always,
    "rsqrt": {"onnx": when.always},
    "rsqr": {"onnx": when.always},
    "log2": {"onnx": when.always},
    "ne": {"onnx": when.always},
    "le": {"onnx": when.always},
    "ge": {"onnx": when.always},
    "clamp": {"khronos onnx": when.always},
    # Halves go up in the standard; elsewhere away from zero, or to the even neighbour.
    "round": when.always,
    "select": {
        "khronos": when.runs_out_of_axes,
        "tract": when.literal_integers | when.literal_condition,
        "onnx": when.literal_integers | when.of_type("logical"),
    },
    # Activations
    "softplus": {"khronos tract": when.always},  # infinite from 89 on
    "softabs": {"khronos onnx": when.always},
    "silu": when.always,
    "gelu": when.always,  # another function in nnef.Session
    "elu": {"tract onnx": when.other_than(alpha=1.0)},
    "selu": {"tract": when.always, "khronos onnx": _SELU},
    "prelu": {"khronos": when.always, "onnx": when.broadcast_operand},
    "softmax": {
        "khronos": when.not_one_axis,
        "onnx": when.not_one_axis | when.not_last,
    },
    # Tensors
    "constant": {
        "khronos": when.splat & (when.of_type("logical") | when.of_type("integer")),
        "tract": when.always,
        "onnx": when.splat,
    },
    "update": when.always,
    "cast": {"khronos": when.of_type("logical"), "tract": when.always},
    # It copies floats, whatever the type is.
    "copy": {"khronos": when.of_type("logical") | when.literal_integers},
    "copy_n": when.always,
    "add_n": when.always,
    # Reductions
    "sum_reduce": _REDUCTION | when.other_than(normalize=False),
    "mean_reduce": _REDUCTION,
    "max_reduce": _REDUCTION,
    "min_reduce": _REDUCTION,
    "any_reduce": when.always,
    "all_reduce": when.always,
    "argmax_reduce": when.not_one_axis,
    "argmin_reduce": when.not_one_axis,
    "moments": _NORM,
    # Matrices
    # A reshape after broadcast batches is folded into the product in tract, and fails; so
    # does one after a single number.
    "matmul": {
        "khronos": when.different_batches,
        "tract": when.different_batches | when.inner_product,
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
    "local_mean_normalization": when.always,
    "local_variance_normalization": when.always,
    "local_contrast_normalization": when.always,
    # Shapes
    "reshape": when.empty_shape | when.of_some_axes,
    "squeeze": when.unsorted | when.no_axes,
    "unsqueeze": when.unsorted | when.no_axes,
    "transpose": {ALL: when.rank_0 | when.fewer_axes, "khronos": when.above_rank(5)},
    "split": {"tract": when.always},
    "stack": {"onnx": when.always},
    "unstack": {"onnx": when.always},
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
    "gather": {"tract": when.always},
    # Quantisation: it rounds.
    "min_max_linear_quantize": when.always,
    "zero_point_linear_quantize": when.always,
    "linear_quantize": when.always,
    "logarithmic_quantize": when.always,
    # Regions of interest
    "avg_roi_pool": when.always,
    "max_roi_pool": when.always,
    "roi_resample": when.always,
    "avg_roi_align": when.always,
    "max_roi_align": when.always,
}


# ---- Windows: convolutions, pooling, boxes, sampling ----

_OUTSIDE = when.reading & when.with_border("constant", *REPEATING)
_EMPTY = when.empty & when.ignoring
_FILTER = (
    when.repeating
    | when.no_space
    | when.above_rank(5)
    | when.cropping
    | when.bias_not_by_channel
)
_BOX = (
    when.repeating
    | when.cropping
    | when.dilated
    | _EMPTY
    | when.along_four_axes
    | when.above_rank(5)
)
_POOL = (
    when.repeating
    | when.cropping
    | _EMPTY
    | when.across
    | when.no_space
    | when.above_rank(5)
    | when.automatic & (when.dilated | when.spaced)
)

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
        ALL: _FILTER
        | when.biased & when.uncovered
        | when.automatic & (when.sized | when.spaced | when.dilated),
        "tract": when.always,
        "onnx": when.number_as_bias,
    },
    "separable_conv": when.always,
    "separable_deconv": when.always,
    # Pools and boxes
    "max_pool": {ALL: _POOL, "tract": _OUTSIDE, "onnx": _OUTSIDE | when.wide},
    "avg_pool": {ALL: _POOL | when.dilated, "onnx": when.wide},
    "rms_pool": when.always,
    "box": {ALL: _BOX, "tract": when.across | when.no_space, "onnx": when.always},
    "debox": {
        "khronos": when.repeating
        | when.cropping
        | when.across
        | when.no_space
        | when.above_rank(5)
        | when.other_than(normalize=False),
        "tract onnx": when.always,
    },
    # Maxima and where they are: another index, and one value in place of a sum
    "argmax_pool": when.always,
    "max_pool_with_index": when.always,
    "sample": when.always,
    "desample": when.always,
    # Sampling
    "nearest_downsample": when.always,
    "area_downsample": when.always,
    "nearest_upsample": {"khronos tract": when.always},
    "multilinear_upsample": {
        "khronos": when.above_rank(4)
        | when.not_by_two
        | when.other_than(method="symmetric", border="replicate"),
        "tract": when.always,
        "onnx": when.other_than(method="aligned")
        & when.with_border("constant", "reflect"),
    },
}


LACKING: Mapping[str, Fact] = {**ELEMENTS, **WINDOWS}
