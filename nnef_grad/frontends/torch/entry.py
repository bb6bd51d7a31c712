"""From a PyTorch module to its graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.frontends.torch.model import TorchModel
from nnef_grad.storage.files import PathLike

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram


@public
def from_torch(
    module: nn.Module | ExportedProgram | PathLike,
    example_inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    batch: int | None = None,
    dynamic_shapes: Any = None,
    allow_own_backward: bool = False,
) -> TorchModel:
    """The graph of a PyTorch module as it is: in evaluation mode after `module.eval()`.

    Needs the package `torch`, whose `torch.export` gives the program of the module. What
    depends on the values of tensors in Python, such as a condition on one, is an error
    there, and one here.

    Args:
        module: a module; or a program that `torch.export.export` made of one, or the
            .pt2 file of one.
        example_inputs: the arguments of `forward`, by position or by name; none for a
            program. Tensors are the inputs of the graph, with their shapes; other values
            are constants.
        batch: the extent of the first axis of all inputs, if it is another.
        dynamic_shapes: the axes whose extents stay open, as for `torch.export.export`: they
            become symbols of the graph, named after their `torch.export.Dim`.
        allow_own_backward: whether the derivative of what a `torch.autograd.Function`
            computes is taken in place of its own backward function. Otherwise a module
            with one is refused.

    Returns:
        The graph, whose outputs are the tensors in what the module returns, in order, called
        after their paths there: `output`, `output_0`, `logits`. An argument that no output
        depends on is no input. A module in training mode has an input for what each dropout
        keeps, and an output for the new value of each buffer that it changes.

    Raises:
        UsageError: torch is missing, or the inputs do not fit the module.
        UnsupportedError: torch cannot export the module, or operations of it cannot be
            read; all of these are named, with their lines.
    """
    if find_spec("torch") is None:
        raise UsageError("modules of PyTorch need torch: pip install nnef-grad[torch]")
    from nnef_grad.frontends.torch import program

    return program.read(
        module, example_inputs, batch, dynamic_shapes, allow_own_backward
    )
