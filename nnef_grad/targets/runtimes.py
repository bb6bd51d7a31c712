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
from nnef_grad.targets.conditions import (
    Condition,
    above_rank,
    across,
    along_four_axes,
    always,
    automatic,
    beside_space,
    bias_not_by_channel,
    biased,
    broadcast_operand,
    cropping,
    different_batches,
    dilated,
    empty,
    empty_shape,
    fewer_axes,
    idle,
    inner_product,
    literal_condition,
    literal_integers,
    multiplying,
    needless_stride,
    no_axes,
    no_plain_layer,
    no_plain_range,
    no_space,
    not_across_channels,
    not_by_channel,
    not_by_two,
    not_last,
    not_one_axis,
    number_as_bias,
    of_some_axes,
    of_type,
    open_ended,
    other_than,
    outside,
    rank_0,
    repeated_once,
    repeating,
    runs_out_of_axes,
    shared_parameters,
    sized,
    skipping,
    spaced,
    splat,
    transposed_batches,
    uncovered,
    unsorted,
    wide,
    with_border,
)

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

_SELU = other_than(**{"alpha": 1.67326319, "lambda": 1.05070102})
_REDUCTION = unsorted | no_axes
_NORM = {"khronos onnx": always, "tract": unsorted}

ELEMENTS: Mapping[str, Fact] = {
    # Element by element
    "rcp": always,
    "rsqrt": {"onnx": always},
    "rsqr": {"onnx": always},
    "log2": {"onnx": always},
    "ne": {"onnx": always},
    "le": {"onnx": always},
    "ge": {"onnx": always},
    "clamp": {"khronos onnx": always},
    # Halves go up in the standard; elsewhere away from zero, or to the even neighbour.
    "round": always,
    "select": {
        "khronos": runs_out_of_axes,
        "tract": literal_integers | literal_condition,
        "onnx": literal_integers | of_type("logical"),
    },
    # Activations
    "softplus": {"khronos tract": always},  # infinite from 89 on
    "softabs": {"khronos onnx": always},
    "silu": always,
    "gelu": always,  # another function in nnef.Session
    "elu": {"tract onnx": other_than(alpha=1.0)},
    "selu": {"tract": always, "khronos onnx": _SELU},
    "prelu": {"khronos": always, "onnx": broadcast_operand},
    "softmax": {"khronos": not_one_axis, "onnx": not_last},
    # Tensors
    "constant": {
        "khronos": splat & (of_type("logical") | of_type("integer")),
        "tract": always,
        "onnx": splat,
    },
    "update": always,
    "cast": {"khronos": of_type("logical"), "tract": always},
    # It copies floats, whatever the type is.
    "copy": {"khronos": of_type("logical") | literal_integers},
    "copy_n": always,
    "add_n": always,
    # Reductions
    "sum_reduce": _REDUCTION | other_than(normalize=False),
    "mean_reduce": _REDUCTION,
    "max_reduce": _REDUCTION,
    "min_reduce": _REDUCTION,
    "any_reduce": always,
    "all_reduce": always,
    "argmax_reduce": not_one_axis,
    "argmin_reduce": not_one_axis,
    "moments": _NORM,
    # Matrices
    # A reshape after broadcast batches is folded into the product in tract, and fails; so
    # does one after a single number.
    "matmul": {
        "khronos": different_batches,
        "tract": different_batches | inner_product,
        "onnx": transposed_batches,
    },
    "linear": {"khronos onnx": no_plain_layer},
    # Normalisation
    "batch_normalization": {
        "khronos": always,
        "onnx": not_by_channel | no_space | shared_parameters,
    },
    "l1_normalization": _NORM,
    "l2_normalization": _NORM,
    "local_response_normalization": {
        "khronos tract": always,
        "onnx": not_across_channels,
    },
    "local_mean_normalization": always,
    "local_variance_normalization": always,
    "local_contrast_normalization": always,
    # Shapes
    "reshape": empty_shape | of_some_axes,
    "squeeze": unsorted | no_axes,
    "unsqueeze": unsorted | no_axes,
    "transpose": {ALL: rank_0 | fewer_axes, "khronos": above_rank(5)},
    "split": {"tract": always},
    "stack": {"onnx": always},
    "unstack": {"onnx": always},
    "slice": {
        ALL: rank_0 | open_ended,
        "khronos": above_rank(5),
        "tract": no_plain_range | needless_stride,
    },
    "pad": {
        ALL: rank_0 | cropping | with_border("reflect-even", "ignore"),
        "khronos": beside_space
        | with_border("reflect", "replicate") & other_than(value=0.0),
        "tract": with_border("replicate"),
    },
    # One without repetitions ends in an error of tract where it is left out.
    "tile": {ALL: repeated_once, "khronos": above_rank(5)},
    "gather": {"tract": always},
    # Quantisation: it rounds.
    "min_max_linear_quantize": always,
    "zero_point_linear_quantize": always,
    "linear_quantize": always,
    "logarithmic_quantize": always,
    # Regions of interest
    "avg_roi_pool": always,
    "max_roi_pool": always,
    "roi_resample": always,
    "avg_roi_align": always,
    "max_roi_align": always,
}


# ---- Windows: convolutions, pooling, boxes, sampling ----

_FILTER = (
    repeating
    | no_space
    | above_rank(5)
    | cropping
    | bias_not_by_channel
    | automatic & dilated
)
_BOX = repeating | cropping | dilated | empty | along_four_axes | above_rank(5)
_POOL = (
    repeating
    | cropping
    | empty
    | across
    | no_space
    | above_rank(5)
    | automatic & (dilated | spaced)
)

WINDOWS: Mapping[str, Fact] = {
    # tract takes elements that a stride skips out of what is before the convolution, and
    # fails if that is a reshape. It leaves out the padding of a filter of one element, if
    # a matrix product follows.
    "conv": {
        ALL: _FILTER,
        "tract": skipping | multiplying | idle,
        "onnx": number_as_bias,
    },
    # tract takes the filter for another way round, and cannot fuse a product with ones.
    "deconv": {
        ALL: _FILTER | biased & uncovered | automatic & (sized | spaced),
        "tract": always,
        "onnx": number_as_bias,
    },
    "separable_conv": always,
    "separable_deconv": always,
    # Pools and boxes
    "max_pool": {ALL: _POOL, "tract": outside, "onnx": outside | wide},
    "avg_pool": {ALL: _POOL | dilated, "onnx": wide},
    "rms_pool": always,
    "box": {ALL: _BOX, "tract": across | no_space, "onnx": always},
    "debox": {
        "khronos": repeating
        | cropping
        | across
        | no_space
        | above_rank(5)
        | other_than(normalize=False),
        "tract onnx": always,
    },
    # Maxima and where they are: another index, and one value in place of a sum
    "argmax_pool": always,
    "max_pool_with_index": always,
    "sample": always,
    "desample": always,
    # Sampling
    "nearest_downsample": always,
    "area_downsample": always,
    "nearest_upsample": {"khronos tract": always},
    "multilinear_upsample": {
        "khronos": above_rank(4)
        | not_by_two
        | other_than(method="symmetric", border="replicate"),
        "tract": always,
        "onnx": other_than(method="aligned") & with_border("constant", "reflect"),
    },
}


LACKING: Mapping[str, Fact] = {**ELEMENTS, **WINDOWS}
