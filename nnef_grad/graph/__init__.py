"""The flat graph. Nothing here depends on documents, or on the meaning of operations."""

from nnef_grad.graph import display  # noqa: F401  Enters how a graph is shown.
