"""Modules of PyTorch, by the programs that torch.export makes of them.

model.py      what a module becomes, and how it is asked for
program.py    from a module to its graph: the steps, and the interface of the graph
capture.py    a module to a program of torch.export
marks.py      what stops gradients, marked before a program is made functional
reading.py    the operations of a program, each by its function
call.py       the view of an operation that these functions get
symbols.py    extents that are open
operations/   a function for each operation of ATen that is read
torch.nnef    operations of PyTorch, written in NNEF
"""

from nnef_grad.frontends.torch.model import Drawn, TorchModel, from_torch

__all__ = ["Drawn", "TorchModel", "from_torch"]
