"""The dialect of tract, which torch-to-nnef writes.

A document is evaluated, not checked: its values have types that its declarations do not
say. What it computes from shapes and numbers is known when it is read, and what it computes
from tensors becomes operations of the standard.

language/tract.nnef declares tract's operations, with bodies where these are enough; what
other formats have too is in frontends/expansions/.

library.py     the operations that it may use, and those that are refused
reading.py     a document to a graph, with its extension lines
evaluation.py  expressions and invocations to values
operations/    a function for each operation that takes shapes or values
idioms.nnef    fragments of torch-to-nnef that are operations of the standard
"""
