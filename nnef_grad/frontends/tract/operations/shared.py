"""Operations of tract that other formats have too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnef_grad.frontends.expansions import reductions, resizing, selection
from nnef_grad.frontends.step import expansion

SHARED: dict[str, Callable[..., Any]] = {
    "tract_core_gather": selection.gather,
    "tract_core_gather_elements": selection.gather_elements,
    "tract_core_gather_nd": selection.gather_blocks,
    "tract_core_grid_sample": resizing.grid_sample,
    "tract_core_one_hot": selection.one_hot,
    "tract_core_product_reduce": reductions.product,
    "tract_core_range": selection.numbers,
    "tract_core_scatter_elements": selection.scatter_elements,
    "tract_core_scatter_nd": selection.scatter_blocks,
    "tract_core_topk": selection.largest,
    "tract_core_trilu": selection.triangle,
    "tract_onnx_grid_sample": resizing.grid_sample,
    "tract_onnx_lrn": reductions.local_response,
}
for name, function in SHARED.items():
    expansion(name)(function)
