"""From a PyTorch module to its graph, with what torch calls each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nnef_grad.base.errors import UsageError
from nnef_grad.base.public import public
from nnef_grad.graph.extents import Extent
from nnef_grad.graph.ir import Graph, Shape
from nnef_grad.storage.files import PathLike

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

Array = npt.NDArray[Any]


class Drawn(NamedTuple):
    """An input that stands for random numbers: what dropout keeps.

    Attributes:
        shape: the shape of the input.
        kept: the share of elements that are kept.
        value: what these are; others are 0.
    """

    shape: Shape
    kept: float
    value: float

    def draw(
        self, random: np.random.Generator, extents: Mapping[str, int] | None = None
    ) -> Array:
        """Other numbers at every call, for some numbers of the symbols in the shape."""
        given: Sequence[Any] = self.shape
        shape = [n.at(extents or {}) if isinstance(n, Extent) else n for n in given]
        keeps = random.random(shape) < self.kept
        return np.where(keeps, np.float32(self.value), np.float32(0.0))


@dataclass(frozen=True)
class TorchModel:
    """The graph of a PyTorch module.

    Attributes:
        graph: the graph.
        data: the values of its variables, by label.
        parameters: the variable of each parameter, by its name in torch. A parameter that
            no output depends on has none.
        buffers: the same for buffers.
        trainable: the names of the variables of parameters that require gradients.
        shapes: the shapes that parameters and buffers have in torch, by their names there:
            a variable may have further axes of extent 1.
        places: the place of each input among the tensors in the arguments of the module.
        updates: the output that is the new value of a buffer, by its name in torch, where
            the module changes it.
        random: the inputs that stand for random numbers, by name.
    """

    graph: Graph
    data: dict[str, Array]
    parameters: dict[str, str]
    buffers: dict[str, str]
    trainable: tuple[str, ...]
    shapes: Mapping[str, Shape] = field(repr=False)
    places: Mapping[str, int] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    random: Mapping[str, Drawn] = field(default_factory=dict)

    def gradients_to_torch(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients of parameters by their names in torch, in torch's shapes.

        Args:
            gradients: by the names of variables; those of anything else are left out.
        """
        return {
            name: np.asarray(gradients[variable]).reshape(self.shapes[name])
            for name, variable in self.parameters.items()
            if variable in gradients
        }

    def draw(
        self,
        random: np.random.Generator | None = None,
        extents: Mapping[str, int] | None = None,
    ) -> dict[str, Array]:
        """Values for the inputs that stand for random numbers, by name.

        Args:
            random: where they are drawn from.
            extents: the numbers of the symbols that shapes have.
        """
        generator = random or np.random.default_rng()
        return {n: drawn.draw(generator, extents) for n, drawn in self.random.items()}


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
