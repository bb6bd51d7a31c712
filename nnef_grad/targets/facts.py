"""Facts about real runtimes, by measurement: the operations that they lack, or compute
wrong.

For each operation the settings that are not in the common subset, which all runtimes have
and compute right. Where another form is longer, only those runtimes are kept from the
operation that need to be. The other forms are not given here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from nnef_grad.graph.extents import OpenExtentError
from nnef_grad.graph.ir import ARGSORT, LOOP, WORDLESS, Operation
from nnef_grad.graph.loops import is_loop, loop_of
from nnef_grad.language.library import STDLIB
from nnef_grad.targets import conditions as when
from nnef_grad.targets.conditions import Condition


class Runtime(NamedTuple):
    """A runtime, or several that are used together."""

    # Its name in the table, or several, in a string: the facts of each are its own.
    names: str
    # What messages call it.
    title: str
    # Those whose operations it may be given, beside the standard's; and those of these
    # operations that it has, if not all. Where there are any, it may be given loops and symbols.
    registries: frozenset[str] = frozenset()
    own: frozenset[str] | None = None
    # It has the index of a maximum, and `sample` and `desample` at it. What such an index
    # counts is its own affair: nothing else may read one.
    has_indices: bool = False

    def knows(self, operation: Operation) -> bool:
        """Whether it knows an operation beside the standard by its name."""
        if operation.name in WORDLESS:
            return bool(self.registries)
        is_there = operation.definition.registry in self.registries
        return is_there and (self.own is None or operation.name in self.own)


# nnef.Session, and the PyTorch interpreter of nnef_tools
KHRONOS = Runtime("khronos", "the Khronos runtimes")

# nnef_tools' converter to NNEF 2.0, whose runtimes are yet to come
CONVERTER = Runtime("nnef-2", "the converter to NNEF 2.0")

# Whatever reads NNEF, and nothing else.
STANDARD = Runtime("standard", "the standard")

# The registry of tract's own operations, and those that are operators of ONNX as well.
TRACT_CORE = "tract_core"
ONNX_OWN = frozenset(
    f"{TRACT_CORE}_{name}"
    for name in (
        "broadcast", "cumsum", "erf", "gather_elements", "scatter_elements", "scatter_nd",
        "trilu",
    )
)  # fmt: skip

_ONNX = Runtime(
    "onnx onnxruntime", "ONNX Runtime", frozenset({TRACT_CORE}), ONNX_OWN, True
)
# What reads files of ONNX besides: TVM, IREE, MNN, tinygrad, ONNX Runtime in browsers. Some have
# no index of a maximum, or compute another one, or lose what is scattered to one place twice.
_ENGINES = _ONNX._replace(
    names="onnx engines",
    title="every engine of ONNX",
    own=ONNX_OWN
    - {f"{TRACT_CORE}_{name}" for name in ("scatter_elements", "scatter_nd", "cumsum")},
    has_indices=False,
)

RUNTIMES: dict[str, Runtime] = {
    "session": KHRONOS,
    "interpreter": KHRONOS,
    "tract": Runtime("tract", "tract", frozenset({TRACT_CORE})),
    "tract-standard": Runtime("tract", "tract"),
    "onnx": _ONNX,
    # It reads the same files. What scatters elements to an index is slow there.
    "openvino": _ONNX._replace(
        names=f"{_ONNX.names} openvino", title="OpenVINO", has_indices=False
    ),
    "engines": _ENGINES,
    "converter": Runtime("converter", "the converter of nnef_tools to ONNX"),
}


class CommonSubset:
    """The operations that all of some runtimes have, and compute right.

    Many passes ask about the same operation. One that was found to be in the subset is
    looked up by its identity, since attributes have no hash; it is kept alive, so that no
    other operation gets the same identity.

    Attributes:
        names: the names of the runtimes in the table.
        registries: those whose operations all of them may be given.
        has_indices: whether all of them have the index of a maximum.
    """

    def __init__(self, runtimes: Collection[Runtime]) -> None:
        self._runtimes, self._standard = runtimes, STDLIB.table
        self.registries = frozenset.intersection(*(r.registries for r in runtimes))
        self.names = {name for r in runtimes for name in r.names.split()}
        self.has_indices = all(runtime.has_indices for runtime in runtimes)
        # The settings that must not reach these runtimes, by operation.
        self._exceptions = {
            name: [c.holds for where, c in facts if not self.names.isdisjoint(where)]
            for name, facts in LACKING.items()
        }
        self._had: set[Operation] = set()

    def keep(self, operations: Iterable[Operation]) -> None:
        """Takes operations for such that all runtimes have, beside what they stand."""
        self._had.update(operations)

    def lacks(self, operation: Operation) -> bool:
        """Whether a runtime lacks the operation, as it is set."""
        if operation in self._had:
            return False
        if operation.name not in self._standard and not self._knows(operation):
            return True
        try:
            for holds in self._exceptions.get(operation.name, ()):
                if holds(operation):
                    return True
        except OpenExtentError as error:
            raise error.of(operation.name, operation.place) from None
        self._had.add(operation)
        return False

    def _knows(self, operation: Operation) -> bool:
        """Whether all runtimes know an operation beside the standard, and what is in it."""
        inner = loop_of(operation).body.operations if is_loop(operation) else ()
        is_there = all(runtime.knows(operation) for runtime in self._runtimes)
        return is_there and not any(map(self.lacks, inner))

    def lacking(self, operations: Iterable[Operation]) -> list[Operation]:
        """The operations that a runtime lacks; most were found to be there before."""
        return [op for op in operations if op not in self._had and self.lacks(op)]


ALL = "khronos tract onnx converter"

# Halves go up in the standard: they are rounded away from zero, or to the even neighbour.
# nnef.Session has another function for gelu. The index of a maximum is another one, and
# desample puts one value in place of a sum.
_RIGHT_NOWHERE = """
    rcp round silu gelu copy_n add_n update any_reduce all_reduce separable_conv
    separable_deconv rms_pool argmax_pool max_pool_with_index sample desample
    nearest_downsample area_downsample local_mean_normalization
    local_variance_normalization local_contrast_normalization avg_roi_pool
    max_roi_pool roi_resample avg_roi_align max_roi_align min_max_linear_quantize
    zero_point_linear_quantize linear_quantize logarithmic_quantize
"""

_SELU = when.other_than(**{"alpha": 1.67326319, "lambda": 1.05070102})
_TRANSPOSED = when.other_than(transposeA=False, transposeB=False)
_UNALIGNED = when.other_than(method="aligned")
_CROPPED = when.repeating | when.cropping | when.above_rank(5)
_FILTER = _CROPPED | when.no_space | when.bias_not_by_channel
_EMPTY = when.ignoring & when.empty
_POOL = _CROPPED | _EMPTY | when.across | when.no_space | when.automatic & when.spaced

# Operations, runtimes, and the settings of the operations that must not reach them.
FACTS: Sequence[tuple[str, str, Condition]] = (
    (_RIGHT_NOWHERE, ALL, when.always),
    # Element by element. softplus is infinite from 89 on in some runtimes.
    ("clamp softabs", "khronos converter", when.always),
    ("clamp", "onnx", ~when.with_number_bounds),
    ("softabs", "onnx", when.always),
    ("rsqrt rsqr log2 ne", "onnx converter", when.always),
    ("le ge", "converter", when.always),
    # MNN compares the bits of negative numbers; with `gt` it does so in broadcasts alone.
    ("lt", "engines", when.always),
    ("gt le ge", "engines", when.broadcast_tensor),
    ("softplus", "khronos tract", when.always),
    # Of one element that is known, IREE gives back the element.
    ("softplus", "engines", when.of_one),
    ("select", "khronos", when.runs_out_of_axes),
    # It aligns axes from the right, but for the operations that it knows better.
    ("select", "nnef-2", when.unequal_ranks),
    ("select", "tract converter", when.literal_integers),
    ("select", "tract", when.literal_condition),
    ("select", "onnx converter", when.of_type("logical")),
    # MNN reads other elements, and right ones the other way round.
    ("select", "engines", when.second_choice_broadcast),
    ("elu", "tract converter", when.other_than(alpha=1.0)),
    ("selu", "tract", when.always),
    ("selu", "khronos converter", _SELU),
    ("prelu", "khronos", when.always),
    ("prelu", "onnx converter", when.broadcast_operand),
    # TVM looks for the axis of channels.
    ("prelu", "engines", ~when.above_rank(0)),
    ("softmax", "khronos onnx converter", when.not_one_axis),
    ("softmax", "converter", when.not_last),
    # Tensors. The Khronos runtimes copy floats, whatever the type is.
    ("constant", "khronos", when.splat & ~when.of_type("scalar")),
    ("constant cast", "tract", when.always),
    ("constant", "converter", when.splat),
    ("cast copy", "khronos", when.of_type("logical")),
    ("copy", "khronos", when.literal_integers),
    # Reductions
    ("sum_reduce mean_reduce max_reduce min_reduce", ALL, when.unsorted | when.no_axes),
    ("sum_reduce", "onnx converter", when.other_than(normalize=False)),
    ("argmax_reduce argmin_reduce", ALL, when.not_one_axis),
    # Matrices. A reshape after broadcast batches is folded into the product in tract, and
    # fails; so does one after a single number.
    ("matmul", "khronos tract", when.different_batches),
    ("matmul", "tract", when.inner_product),
    ("matmul", "onnx converter", when.above_rank(2) & _TRANSPOSED),
    ("linear", "khronos onnx converter", when.no_plain_layer),
    # Normalisation
    (
        "moments l1_normalization l2_normalization",
        "khronos onnx converter",
        when.always,
    ),
    ("moments l1_normalization l2_normalization", "tract", when.unsorted),
    ("batch_normalization", "khronos", when.always),
    # MNN ends where the mean or another parameter is computed.
    ("batch_normalization", "engines", when.always),
    ("batch_normalization", "onnx converter", when.not_by_channel | when.no_space),
    ("batch_normalization", "onnx converter", when.shared_parameters),
    ("local_response_normalization", "khronos tract", when.always),
    ("local_response_normalization", "onnx converter", when.not_across_channels),
    # Shapes. A tile without repetitions ends in an error of tract where it is left out.
    ("split gather", "tract", when.always),
    # In IREE a function of a function of it is the first one.
    ("gather", "engines", when.of_one_row),
    ("stack unstack", "onnx converter", when.always),
    ("reshape", ALL, when.set_to(shape=()) | when.of_some_axes),
    ("squeeze unsqueeze", ALL, when.unsorted | when.no_axes),
    ("transpose slice pad", ALL, when.rank_0),
    ("transpose slice tile", "khronos", when.above_rank(5)),
    ("transpose", ALL, when.fewer_axes),
    ("slice", ALL, when.open_ended),
    ("slice", "openvino", when.no_axes),
    ("slice", "tract", when.no_plain_range | when.needless_stride),
    ("tile", ALL, when.repeated_once),
    ("pad", ALL, when.cropping | when.with_border("reflect-even", "ignore")),
    ("pad", "khronos", when.beside_space),
    ("pad", "khronos", when.repeating & when.other_than(value=0.0)),
    ("pad", "tract", when.with_border("replicate") | when.open_padding),
    # Filters. tract takes elements that a stride skips out of what is before the
    # convolution, and fails if that is a reshape. It leaves out the padding of a filter
    # of one element, if a matrix product follows. It takes the filter of a deconvolution
    # for another way round, and cannot fuse a product with ones.
    ("conv deconv box max_pool avg_pool", ALL, when.open_windows),
    ("conv deconv", ALL, _FILTER),
    ("conv deconv", "onnx converter", when.number_as_bias),
    ("conv", "tract", when.skipping | when.multiplying | when.idle),
    # Of one channel, it reads beside the data where they are not next to a window, or where
    # there is one window along an axis, and a stride.
    ("conv", "openvino", when.idle | when.single),
    # IREE refuses what a stride leaves over after the only window along an axis.
    ("conv max_pool avg_pool", "engines", when.single),
    # It computes what they read, and what else reads that gets, where they read it alone.
    ("max_pool avg_pool", "engines", when.sampling),
    ("conv", "engines", when.sampling & when.by_channel),
    # MNN knows no dilation here, mixes up the items of a batch, and leaves out padding that is
    # longer after the data than before.
    ("conv deconv", "engines", when.dilated_in_depth),
    ("max_pool", "engines", when.dilated),
    ("max_pool avg_pool", "engines", when.several_volumes),
    ("avg_pool", "engines", when.trailing & ~when.ignoring),
    ("avg_pool", "engines", when.reading & when.above_rank(4)),
    ("conv", "converter", when.automatic & when.dilated),
    ("deconv", ALL, when.biased & when.uncovered),
    ("deconv", "tract", when.always),
    # Of groups onnx.reference computes others, and IREE has none; and it computes other sums
    # where more is cropped than a window has.
    ("deconv", "engines", when.other_than(groups=1) | when.idle),
    ("deconv", "converter", when.automatic & (when.sized | when.spaced)),
    # Pools and boxes. tract makes filters of windows.
    ("max_pool avg_pool box", "tract", when.no_channels),
    ("max_pool avg_pool", ALL, _POOL),
    ("max_pool avg_pool", "onnx converter", when.wide),
    (
        "max_pool",
        "tract onnx converter",
        when.reading & when.other_than(border="ignore"),
    ),
    ("max_pool", "onnx converter", when.automatic & when.dilated),
    ("avg_pool", ALL, when.dilated),
    ("box", "onnx converter", when.always),
    ("box", ALL, _CROPPED | _EMPTY | when.dilated | when.along_four_axes),
    ("box", "tract", when.across | when.no_space),
    ("debox", "khronos", _CROPPED | when.across | when.no_space),
    ("debox", "khronos", when.other_than(normalize=False)),
    ("debox", "tract onnx converter", when.always),
    # Loops. What a step makes of what is collected as well is made after the loop, with the
    # parts in the order of that; so is what is the same at each step, which fails, as does a
    # loop that reads no parts.
    (
        LOOP,
        "tract",
        when.collecting_several_ways | when.making_constants | when.scanning_in_vain,
    ),
    # A state that is made element by element of a part, in its memory, is lost.
    (LOOP, "openvino", when.always),
    # Elements in order: tract has an operation for it by another name. OpenVINO changes the
    # order of equal elements, if they are more than a few.
    (ARGSORT, "tract", when.always),
    (ARGSORT, "openvino", ~when.taking_two_to_four),
    # Sampling
    ("nearest_upsample", "khronos tract", when.always),
    ("multilinear_upsample", "khronos", when.above_rank(4) | when.not_by_two),
    ("multilinear_upsample", "khronos", when.other_than(method="symmetric")),
    ("multilinear_upsample", "khronos", when.other_than(border="replicate")),
    ("multilinear_upsample", "tract", when.always),
    # IREE has images alone.
    ("multilinear_upsample", "engines", ~when.above_rank(3) | when.above_rank(4)),
    (
        "multilinear_upsample",
        "onnx converter",
        _UNALIGNED & when.with_border("constant", "reflect"),
    ),
)

# The same for each operation.
LACKING: dict[str, list[tuple[Sequence[str], Condition]]] = defaultdict(list)
for _names, _runtimes, _condition in FACTS:
    for _name in _names.split():
        LACKING[_name].append((_runtimes.split(), _condition))
