"""The operations that a document of tract's dialect may use, and those that are refused."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from nnef_grad.language.library import (
    EXTRAS,
    STDLIB,
    FragmentFile,
    Joined,
    Library,
)
from nnef_grad.language.syntax import Fragment

# What a document names in its extension lines.
REGISTRIES = ("tract_core", "tract_onnx", "tract_transformers")


# The operations of tract's registries, from tract.nnef.
TRACT_LIBRARY = FragmentFile(Path(__file__).parent / "tract.nnef", REGISTRIES)


# The fragments that stand for operations of the standard, from idioms.nnef.
IDIOM_FILE = FragmentFile(Path(__file__).parent / "idioms.nnef")


def idiom_of(fragment: Fragment) -> str | None:
    """The operation of the standard that a fragment of a document is, if it is one."""
    is_idiom = IDIOM_FILE.get(fragment.name) == fragment
    return IDIOMS.get(fragment.name, fragment.name) if is_idiom else None


# Those that have another name in the standard.
IDIOMS = {"tract_gelu": "gelu"}


@lru_cache(maxsize=1)
def builtin() -> Library:
    """The fragments that the bodies of tract.nnef may use."""
    return Joined(TRACT_LIBRARY, EXTRAS, STDLIB)


# ---- Refused ----

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
    "tract_pulse_cumsum": _STATE,
    "tract_pulse_delay": _STATE,
    "tract_pulse_mask": _STATE,
    "tract_pulse_pulse_pad": _STATE,
    "tract_transformers_dyn_kv_cache": _STATE,
    "tract_transformers_quantized_dyn_kv_cache": _STATE,
    "tract_transformers_window_kv_sdpa": _STATE,
    "tract_transformers_quantized_kv_sdpa": _STATE,
}
