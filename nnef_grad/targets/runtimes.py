"""What real runtimes lack, or compute wrong: facts, by measurement.

For an operation the runtimes that it must not reach, each with the settings for which that
is so. What stands for the operation then is not said here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnef_grad.graph.ir import Operation
from nnef_grad.language.library import standard
from nnef_grad.targets.conditions import (
    When,
    above_rank,
    across_channels,
    always,
    beside_space,
    both,
    broadcast_operand,
    cropping,
    cropping_all,
    cropping_reflection,
    different_batches,
    either,
    empty_shape,
    fewer_axes,
    inner_product,
    literal_condition,
    literal_integers,
    needless_stride,
    no_axes,
    no_plain_layer,
    no_plain_range,
    no_space,
    not_across_channels,
    not_by_channel,
    not_last,
    not_one_axis,
    of_some_axes,
    of_type,
    open_ended,
    other_than,
    rank_0,
    repeated_once,
    runs_out_of_axes,
    scattered,
    several_slopes,
    shared_parameters,
    splat,
    splat_of_no_scalar,
    transposed_batches,
    unequal_terms,
    unsorted,
    with_border,
)
from nnef_grad.targets.window_conditions import (
    across,
    aligned,
    along_four_axes,
    apart,
    automatic,
    bias_beyond_channels,
    bias_not_by_channel,
    biased,
    dilated,
    empty,
    idle,
    multiplying,
    not_by_two,
    number_as_bias,
    outside,
    repeating,
    sized,
    skipping,
    uncovered,
    wide,
)

Facts = Mapping[str, Mapping[str, When]]


@dataclass(frozen=True)
class Runtime:
    """A runtime.

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
        when = LACKING.get(operation.name, {}).get(self.name)
        return when is not None and when(operation)


RUNTIMES: dict[str, Runtime] = {
    "session": Runtime("session", "nnef.Session"),
    "interpreter": Runtime("interpreter", "the PyTorch interpreter"),
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


def in_all(when: When = always) -> Mapping[str, When]:
    """The same in all runtimes."""
    return dict.fromkeys(RUNTIMES, when)


def in_some(names: str, when: When = always) -> Mapping[str, When]:
    """The same in some runtimes, named in a string."""
    return dict.fromkeys(names.split(), when)


# ---- Element by element, shapes, matrices, reductions, normalisation ----

_SELU = {"alpha": 1.67326319, "lambda": 1.05070102}
_REDUCTION = {"tract": unsorted, "onnx": no_axes}
_LOGICAL_REDUCTION = {"tract": unsorted, "onnx": always}
_POSITION = {
    "session": not_one_axis,
    "interpreter": scattered,
    "tract": unsorted,
    "onnx": not_one_axis,
}
_NORM = {"session": always, "tract": unsorted, "onnx": always}
_LOCAL = {"session": always, "tract": across_channels, "onnx": always}

ELEMENTS: Facts = {
    # Element by element
    "rcp": in_some("tract onnx"),
    "rsqrt": in_some("onnx"),
    "rsqr": in_some("onnx"),
    "log2": in_some("onnx"),
    "ne": in_some("onnx"),
    "le": in_some("onnx"),
    "ge": in_some("onnx"),
    "clamp": in_some("session onnx"),
    # Halves go up in the standard; elsewhere away from zero, or to the even neighbour.
    "round": in_all(),
    "select": {
        "session": runs_out_of_axes,
        "tract": either(literal_integers, literal_condition),
        "onnx": either(of_type("logical"), literal_integers),
    },
    # Activations
    "softplus": in_some("session interpreter tract"),  # infinite from 89 on
    "softabs": in_some("session onnx"),
    "silu": in_some("tract onnx"),
    "gelu": in_some("session tract onnx"),  # another function in session
    "elu": in_some("tract onnx", other_than(alpha=1.0)),
    "selu": {"tract": always, **in_some("interpreter onnx", other_than(**_SELU))},
    "prelu": {
        "session": always,
        "interpreter": several_slopes,
        "onnx": broadcast_operand,
    },
    "softmax": {**in_some("session interpreter", not_one_axis), "onnx": not_last},
    # Tensors
    "constant": {"session": splat_of_no_scalar, "tract": always, "onnx": splat},
    "update": in_some("tract onnx"),
    "cast": {"interpreter": of_type("logical"), "tract": always},
    # It copies floats, whatever the type is.
    "copy": in_some("session", either(of_type("logical"), literal_integers)),
    "copy_n": in_some("session tract onnx"),
    "add_n": {**in_some("session tract"), "onnx": unequal_terms},
    # Reductions
    "sum_reduce": {
        "tract": unsorted,
        "onnx": either(no_axes, other_than(normalize=False)),
    },
    "mean_reduce": _REDUCTION,
    "max_reduce": _REDUCTION,
    "min_reduce": _REDUCTION,
    "any_reduce": _LOGICAL_REDUCTION,
    "all_reduce": _LOGICAL_REDUCTION,
    "argmax_reduce": _POSITION,
    "argmin_reduce": _POSITION,
    "moments": _NORM,
    # Matrices
    # A reshape after broadcast batches is folded into the product in tract, and fails; so
    # does one after a single number.
    "matmul": {
        "session": different_batches,
        "tract": either(different_batches, inner_product),
        "onnx": transposed_batches,
    },
    "linear": in_some("session onnx", no_plain_layer),
    # Normalisation
    "batch_normalization": {
        "session": always,
        "interpreter": not_by_channel,
        "onnx": either(not_by_channel, no_space, shared_parameters),
    },
    "l1_normalization": _NORM,
    "l2_normalization": _NORM,
    "local_response_normalization": {**_LOCAL, "onnx": not_across_channels},
    "local_mean_normalization": _LOCAL,
    "local_variance_normalization": _LOCAL,
    "local_contrast_normalization": _LOCAL,
    # Shapes
    "reshape": {"tract": empty_shape, "onnx": of_some_axes},
    "squeeze": in_some("onnx", no_axes),
    "unsqueeze": {"interpreter": unsorted, "onnx": either(no_axes, unsorted)},
    "transpose": {
        "session": either(rank_0, above_rank(5)),
        "interpreter": rank_0,
        "onnx": fewer_axes,
    },
    "split": in_some("tract"),
    "stack": in_some("onnx"),
    "unstack": in_some("onnx"),
    "slice": {
        "session": either(rank_0, above_rank(5)),
        "interpreter": rank_0,
        "tract": either(no_plain_range, needless_stride),
        "onnx": either(rank_0, open_ended),
    },
    "pad": {
        "session": either(rank_0, above_rank(5), with_border("ignore")),
        "interpreter": either(
            beside_space,
            with_border("reflect-even", "ignore"),
            both(with_border("reflect", "replicate"), other_than(value=0.0)),
        ),
        "tract": either(cropping, with_border("replicate", "reflect-even", "ignore")),
        "onnx": either(
            rank_0,
            with_border("reflect-even", "ignore"),
            cropping_reflection,
            cropping_all,
        ),
    },
    "tile": {
        "session": either(rank_0, above_rank(5)),
        "interpreter": rank_0,
        "tract": repeated_once,  # it ends in an error where it is left out
        "onnx": rank_0,
    },
    "gather": in_some("tract"),
    # Quantisation: it rounds.
    "min_max_linear_quantize": in_all(),
    "zero_point_linear_quantize": in_all(),
    "linear_quantize": in_all(),
    "logarithmic_quantize": in_all(),
    # Regions of interest
    "avg_roi_pool": in_all(),
    "max_roi_pool": in_all(),
    "roi_resample": in_all(),
    "avg_roi_align": in_all(),
    "max_roi_align": in_all(),
}


# ---- Windows: convolutions, pooling, boxes, sampling ----

_POOL = {
    "session": either(repeating, above_rank(5)),
    "interpreter": either(dilated, empty, with_border("reflect-even"), along_four_axes),
    "tract": either(repeating, cropping, across, no_space),
}

_MISSING = {**in_some("session tract onnx"), "interpreter": above_rank(5)}

WINDOWS: Facts = {
    # Convolutions
    "conv": {
        "session": either(repeating, no_space, above_rank(5), bias_beyond_channels),
        "interpreter": either(
            no_space, above_rank(5), with_border("reflect-even"), bias_not_by_channel
        ),
        # It takes elements that a stride skips out of what is before the convolution,
        # and fails if that is a reshape. It leaves out the padding of a filter of one
        # element, if a matrix product follows.
        "tract": either(repeating, no_space, cropping, skipping, multiplying, idle),
        "onnx": either(
            repeating,
            no_space,
            cropping,
            both(automatic, dilated),
            bias_not_by_channel,
            number_as_bias,
        ),
    },
    "deconv": {
        "session": either(repeating, no_space, above_rank(5), bias_beyond_channels),
        "interpreter": either(
            no_space,
            above_rank(5),
            with_border("reflect", "reflect-even"),
            bias_not_by_channel,
            both(biased, uncovered),
        ),
        # It takes the filter for another way round, and cannot fuse a product with ones.
        "tract": always,
        "onnx": either(
            repeating,
            no_space,
            cropping,
            both(automatic, either(sized, apart)),
            bias_not_by_channel,
            number_as_bias,
        ),
    },
    "separable_conv": _MISSING,
    "separable_deconv": _MISSING,
    # Pools and boxes
    "max_pool": {
        "session": either(repeating, above_rank(5)),
        "interpreter": either(with_border("reflect-even"), along_four_axes),
        "tract": either(repeating, outside, cropping, across, no_space, empty),
        "onnx": either(
            outside,
            cropping,
            wide,
            both(automatic, either(dilated, apart)),
            across,
            no_space,
            above_rank(5),
        ),
    },
    "avg_pool": {
        **_POOL,
        "onnx": either(
            repeating,
            cropping,
            wide,
            both(automatic, apart),
            dilated,
            across,
            no_space,
            above_rank(5),
        ),
    },
    "rms_pool": {**_POOL, **in_some("session onnx")},
    "box": {**_POOL, **in_some("onnx")},
    "debox": {
        "session": either(repeating, other_than(normalize=False), above_rank(5)),
        "interpreter": either(repeating, across, no_space, above_rank(5)),
        **in_some("tract onnx"),
    },
    # Maxima and where they are: another index, and one value in place of a sum
    "argmax_pool": in_all(),
    "max_pool_with_index": in_all(),
    "sample": in_all(),
    "desample": in_all(),
    # Sampling
    "nearest_downsample": _MISSING,
    "area_downsample": _MISSING,
    "nearest_upsample": {**in_some("session tract"), "interpreter": above_rank(5)},
    "multilinear_upsample": {
        "session": either(
            not_by_two,
            above_rank(4),
            aligned,
            with_border("reflect", "reflect-even"),
        ),
        "interpreter": either(
            above_rank(4),
            both(
                other_than(method="aligned"),
                other_than(method="symmetric", border="replicate"),
            ),
        ),
        "tract": always,
        "onnx": both(other_than(method="aligned"), with_border("constant", "reflect")),
    },
}


LACKING: Facts = {**ELEMENTS, **WINDOWS}
