"""The functions that expand operations of tract, by family, which enter themselves; and those
that other formats have too.
"""

from importlib import import_module
from pkgutil import iter_modules

from nnef_grad.frontends.expansions import orders, reductions, resizing, selection
from nnef_grad.frontends.tract.evaluation import EXPANSIONS

for family in iter_modules(__path__):
    import_module(f"{__name__}.{family.name}")

EXPANSIONS |= {
    "tract_core_gather": selection.gather,
    "tract_core_gather_elements": selection.gather_elements,
    "tract_core_gather_nd": selection.gather_blocks,
    "tract_core_grid_sample": resizing.grid_sample,
    "tract_core_one_hot": selection.one_hot,
    "tract_core_product_reduce": reductions.product,
    "tract_core_scatter_elements": selection.scatter_elements,
    "tract_core_scatter_nd": selection.scatter_blocks,
    "tract_core_topk": orders.largest,
    "tract_core_trilu": selection.triangle,
    "tract_onnx_grid_sample": resizing.grid_sample,
    "tract_onnx_lrn": reductions.local_response,
}
