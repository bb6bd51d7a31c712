"""ONNX as a target: the forms of operations that ONNX Runtime has, and files.

forms.py      operations in forms for which ONNX Runtime has faster kernels
writing.py    graphs to ONNX files
nodes.py      the nodes of a file, with their operands
operators.py  a function or a row of a table for each operation
storage.py    files, an array at a time
"""

from nnef_grad.targets.onnx import forms as _forms  # noqa: F401
