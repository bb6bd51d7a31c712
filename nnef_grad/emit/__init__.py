"""A syntax tree to a flat graph: expressions are evaluated, operations are emitted."""

from nnef_grad.emit import regions  # noqa: F401 (it is imported to be entered)
