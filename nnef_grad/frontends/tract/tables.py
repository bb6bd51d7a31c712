"""How tract's dialect differs from the standard, and what is refused. The page
docs/dialects.md is made of these tables.
"""

from __future__ import annotations

from typing import NamedTuple

from nnef_grad.frontends.values import LARGEST

# Names of numbers that the grammar does not have. NNEF cannot write what is infinite.
NUMBERS = {"inf": LARGEST}


class Difference(NamedTuple):
    """Differences between documents of the dialect and strict ones.

    Attributes:
        what: the difference.
        example: a statement or a line with it.
        reading: what it is read as.
    """

    what: str
    example: str
    reading: str


LANGUAGE = (
    Difference(
        "extension lines of tract",
        "extension tract_registry tract_core;",
        "the dialect; `tract_assert` becomes a comment",
    ),
    Difference(
        "symbols as extents",
        "extension tract_symbol B;",
        "symbols, unless an operation needs a number or the caller gives one",
    ),
    Difference(
        "other extension lines", "extension vendor_thing;", "ignored, with a warning"
    ),
    Difference(
        "fragments and operator expressions without their extension lines",
        "y = 0.5 * x;",
        "as with these lines",
    ),
    Difference(
        "metadata",
        "fragment tract_core_properties() -> (...) {...}",
        "comments at the head of the graph",
    ),
    Difference(
        "fragments named like standard operations",
        "fragment silu(input: tensor<scalar>) -> (...) {...}",
        "the operation of that name, for the document",
    ),
    Difference(
        "attributes without keyword", "y = leaky_relu(x, 0.1);", "in declared order"
    ),
    Difference(
        "unknown keywords",
        "y = sigmoid(x, axes = [1]);",
        "ignored, with a warning",
    ),
    Difference(
        "one value instead of an array", "y = softmax(x, 1);", "an array of one"
    ),
    Difference(
        "arrays instead of tuples",
        "y = pad(x, padding = [[0, 0], [1, 1]]);",
        "tuples",
    ),
    Difference(
        "integers instead of scalars", "y = add(x, 2);", "scalars of that value"
    ),
    Difference(
        "literals instead of tensors",
        "y = unsqueeze(0.5, axes = [0]);",
        "a constant; operations on known values are computed",
    ),
    Difference(
        "a name assigned twice",
        "y = relu(x); y = neg(y);",
        "the last value has the name",
    ),
    Difference(
        "variables as attributes",
        "y = layer_norm(x, mean_axes = [1], eps = epsilon);",
        "the numbers in the data of the model",
    ),
    Difference(
        "variables of one number in double precision",
        "c = variable<scalar>(label = 'c', shape = []);",
        "the number: torch-to-nnef writes Python's numbers this way",
    ),
    Difference(
        "negative axes",
        "y = sum_reduce(x, axes = [-1]);",
        "counted from the end, as torch-to-nnef means them; tract fails",
    ),
    Difference(
        "variables of integers and truth values",
        "i = variable<scalar>(label = 'i', shape = [3]);",
        "constants of the data's type",
    ),
    Difference(
        "integers in arithmetic",
        "y = div(i, j);",
        "cast to scalars, and the result back; a quotient is truncated",
    ),
    Difference(
        "infinity",
        "y = select(m, x, -inf);",
        "the largest number of single precision",
    ),
)

# What operations of the standard compute in tract, where that is something else.
OPERATIONS = {
    "conv": "A bias may have any axes of extent 1, or only the channels.",
    "deconv": "The filter is [out, in / groups, ...]: the standard's, with the first two axes exchanged.",
    "linear": "Operands of any rank; a bias of one row.",
    "max_pool": "The border `constant` means `ignore`.",
    "max_pool_with_index": "As for max_pool.",
    "pad": "The border `replicated` means `replicate`.",
    "slice": "From 0 to 0 is empty, written or computed; from elsewhere to 0 is to the end.",
    "unsqueeze": "An axis named twice is inserted twice.",
    "variable": "It has the type of its data.",
}

_STATE = "it keeps state between runs; export the network without it"
_QUANTIZED = "quantized products have no derivative; export the network in f32"
_COMPLEX = "NNEF has no complex numbers; compute the parts separately"
_VALUES = "the shape of its result depends on values; use a mask, or topk"
_BITS = "bits of integers are not in NNEF; use comparisons and logic"

# Operations that are not read, and what to do.
REFUSED = {
    "tract_core_einsum_q": _QUANTIZED,
    "tract_core_qconv": _QUANTIZED,
    "tract_core_qmatmul": _QUANTIZED,
    "tract_core_matmul": "tract reads it differently than it writes it; use tract_core_einsum",
    "tract_shl": _BITS,
    "tract_shr": _BITS,
    "tract_core_fft": _COMPLEX,
    "tract_core_stft": _COMPLEX,
    "tract_core_inner_dim_to_complex": _COMPLEX,
    "tract_core_complex_to_inner_dim": _COMPLEX,
    "tract_core_submodel": "it is another model; export both as one",
    "tract_core_force_eval": "it is documented, but tract does not have it",
    "tract_core_load": _STATE,
    "tract_core_store": _STATE,
    "tract_resource_get": "its value is in another file; export it as a variable",
    "tract_extra_exp_unit_norm": _STATE,
    "tract_extra_exp_mean_norm": _STATE,
    "tract_onnx_ml_direct_lookup": "it reads strings; encode them first",
    "tract_onnx_ml_reverse_lookup": "it reads strings; encode them first",
    "tract_onnx_ml_tree_ensemble_classifier": "trees have no derivative",
    "tract_onnx_multinomial": "its result is random; draw it outside the network",
    "tract_onnx_random": "its result is random; make it an input",
    "tract_onnx_non_max_suppression": _VALUES,
    "tract_onnx_non_zero": _VALUES,
    "tract_pulse_delay": _STATE,
    "tract_pulse_mask": _STATE,
    "tract_pulse_pulse_pad": _STATE,
    "tract_transformers_dyn_kv_cache": _STATE,
    "tract_transformers_quantized_dyn_kv_cache": _STATE,
    "tract_transformers_window_kv_sdpa": _STATE,
    "tract_transformers_quantized_kv_sdpa": _STATE,
    "tract_transformers_causal_conv1d_update": _STATE,
    "tract_transformers_gdn_recurrent": _STATE,
}
