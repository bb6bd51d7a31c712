"""The dialect of tract, which torch-to-nnef writes.

A document is evaluated, not checked: its values have types that its declarations do not
say. What it computes from shapes and numbers is known when it is read, and what it computes
from tensors becomes operations of the standard.

header.py      its extension lines: registries, symbols, assertions
reading.py     a document to a graph
evaluation.py  expressions and invocations to values
values.py      the values, and their conversion to what a parameter wants
folding.py     operations on known values
step.py        the view of an invocation that the functions in operations/ get
operations/    a function for each operation that takes shapes or values
tract.nnef     the declarations of tract's operations, with bodies where these are enough
idioms.nnef    fragments of torch-to-nnef that are operations of the standard
tables.py      what differs from the standard, what is ignored, what is refused
"""
