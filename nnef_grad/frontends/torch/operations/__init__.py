"""The functions that read operations of ATen, by family. Importing a family enters its
functions.
"""

from nnef_grad.frontends.torch.operations import (
    activations,
    attention,
    comparisons,
    creation,
    elementwise,
    embeddings,
    identities,
    indexing,
    integers,
    losses,
    normalizations,
    orders,
    products,
    random,
    recurrent,
    reductions,
    resizing,
    scans,
    shapes,
    windows,
)

__all__ = [
    "activations",
    "attention",
    "comparisons",
    "creation",
    "elementwise",
    "embeddings",
    "identities",
    "indexing",
    "integers",
    "losses",
    "normalizations",
    "orders",
    "products",
    "random",
    "recurrent",
    "reductions",
    "resizing",
    "scans",
    "shapes",
    "windows",
]
