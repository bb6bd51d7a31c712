"""Modules of PyTorch, by the programs that torch.export makes of them.

entry.py           the call that users make
model.py           what it returns
program.py         from a module to its graph: the steps, and the interface of the graph
capture.py         a module to a program of torch.export
marks.py           places where gradients stop, marked before a program is made functional
reading.py         the operations of a program, each by its function
call.py            the view of an operation that these functions get
program_values.py  the variables, inputs and casts that they make
symbols.py         extents that are open
operations/        a function for each operation of ATen that is read
aten.nnef          those that are formulas
torch.nnef         what functions and formulas use, written in NNEF
"""

from nnef_grad.frontends.torch.entry import from_torch
from nnef_grad.frontends.torch.model import Drawn, TorchModel

__all__ = ["Drawn", "TorchModel", "from_torch"]
