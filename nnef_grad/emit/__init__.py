"""A syntax tree to a flat graph: expressions are evaluated, operations are emitted."""
