"""ONNX files.

entry.py         the call that users make
model.py         what it returns
storage.py       files, an array at a time
validity.py      files that make no sense, or ask for too much
graph.py         a file to a graph: its inputs, its initializers, its results
reading.py       its nodes, each by its function
node.py          the view of a node that these functions get, what they share, and their table
evaluation.py    nodes whose operands are all known, computed by onnx
idioms.py        chains of nodes that stand for one operation
parameters.py    warnings about initializers that are no single parameter
operations/      a function for each operation that is read
onnx.nnef        operations of ONNX, written in NNEF
"""
