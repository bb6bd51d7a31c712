"""Modules of PyTorch, by the programs that torch.export makes of them.

model.py           what the call that users make returns
program.py         from a module to its graph: the steps, and the interface of the graph
functional.py      a module to programs without writes
capture.py         a module to programs of torch.export, one for each way through it
choices.py         what Python decides by values, and the ways that follow
watching.py        what the module does meanwhile that the program does not show
states.py          the tensors that a module holds, before and afterwards
silence.py         what torch says meanwhile
known.py           values that depend on no input, which Python may look at
derivatives.py     derivatives that the module takes of its own values
functions.py       functions that have a backward function of their own
linearity.py       whether that is linear
randomness.py      random numbers of Python and NumPy, which a program would hold for good
internals.py       what is used of torch beyond its documentation
archive.py         a program in a file, of which nothing is executed
nodes.py           where its nodes come from; marks where gradients stop
ways.py            the ways through a module to one graph
reading.py         the operations of a program, each by its function
call.py            the view of an operation that these functions get, and their state
symbols.py         extents that are open
operations/        a function for each operation of ATen that is read
aten.nnef          those that are formulas
torch.nnef         what functions and formulas use, written in NNEF
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.emit.bodies import LONGEST
from nnef_grad.frontends.torch.model import Drawn, TorchModel
from nnef_grad.storage.files import PathLike

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

__all__ = ["Drawn", "TorchModel", "from_torch"]


@public
def from_torch(
    module: nn.Module | ExportedProgram | PathLike,
    example_inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    batch: int | None = None,
    dynamic_shapes: Any = None,
    allow_own_backward: bool = False,
    constants: Mapping[str, Any] | None = None,
    unroll: int = LONGEST,
) -> TorchModel:
    """The graph of a PyTorch module in its current mode; call `module.eval()` for
    evaluation.

    Needs the package `torch`, whose `torch.export` traces the module. Where Python decides
    by the values of inputs or parameters, as in `if x.sum() > 0:`, it is traced for both
    answers, and the graph selects; a loop until a condition holds is an error.

    Args:
        module: a module, a program from `torch.export.export`, or its .pt2 file, in which
            nothing is executed.
        example_inputs: the arguments of `forward`, by position or by name; none for a
            program. Tensors become inputs of the graph, with their shapes; other values
            are constants.
        batch: another extent for the first axis of all inputs.
        dynamic_shapes: the axes with open extents, as for `torch.export.export`, which
            become symbols named after their `torch.export.Dim`.
        allow_own_backward: whether to differentiate the forward computation of a
            `torch.autograd.Function` instead of using its backward function, which must
            be linear in the gradients that it gets.
        constants: arrays for inputs of the graph that become constants, by name, or a
            number for all elements of one. What follows from constants alone is
            computed here.
        unroll: the most steps of a recurrent layer to unroll. Longer ones stay loops,
            which ONNX and tract run.

    Returns:
        The graph. Its outputs are the tensors that the module returns, in order, named
        after their paths: `output`, `output_0`, `logits`. Arguments that no output
        depends on are not inputs. What torch draws at random, such as a dropout mask, is
        an input, and in training mode the new value of each changed buffer an output.
        What is other than in PyTorch is in `graph.warnings`, and a `UserWarning` each.

    Raises:
        UsageError: torch is missing, or the inputs do not fit the module.
        UnsupportedError: torch cannot export the module, or operations cannot be read;
            the error names all of them, with their lines.
    """
    if find_spec("torch") is None:
        raise UsageError("modules of PyTorch need torch: pip install torch onnx")
    from nnef_grad.frontends.torch import program

    model = program.read(
        module,
        example_inputs,
        batch,
        dynamic_shapes,
        allow_own_backward,
        constants or {},
        unroll,
    )
    for problem in model.graph.warnings:
        # Of the line that calls this function.
        warnings.warn(problem.render("nnef-grad"), stacklevel=3)
    return model
