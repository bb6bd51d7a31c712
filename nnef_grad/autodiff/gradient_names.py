"""The names of gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor


class GradientNames:
    """The names of gradients, decided once, when the backward graph is whole, by the roles
    that tensors were given while it was emitted.

    grad_x                  the gradient of x
    grad_x_from_y           what x receives from its use in y, where it has several uses
    grad_x_from_y_full      the same, before it is summed down to the shape of x
    grad_x_sum              a sum of some of these
    grad_x_unmasked         the gradient of x, before it is confined to its support
    """

    def __init__(self) -> None:
        self._roles: dict[Tensor, tuple[Tensor, Operation | None, str]] = {}
        # How many uses give each tensor of the forward graph a gradient.
        self.uses = Counter[Tensor]()

    def add(
        self, step: Tensor, tensor: Tensor, use: Operation | None, suffix: str = ""
    ) -> None:
        """Gives a step to the gradient of a tensor, from a use or a sum, a role."""
        self._roles.setdefault(step, (tensor, use, suffix))

    def assign(
        self,
        emit: Emitter,
        gradients: Mapping[Tensor, Tensor],
        confined: Mapping[Tensor, Tensor],
    ) -> None:
        """Sets the hints of what has a role, given all gradients and what was confined."""
        for step, (tensor, use, suffix) in self._roles.items():
            name = f"grad_{emit.names[tensor]}"
            if gradients.get(tensor) is not step:
                if use is not None and self.uses[tensor] > 1:
                    name = f"{name}_from_{emit.names[use.outputs[0]]}"
                name += suffix
            emit.set_hint(step, name)
        for cotangent, inside in confined.items():
            if (hint := emit.hints.get(cotangent)) is not None:
                emit.set_hint(cotangent, f"{hint}_unmasked")
                if inside not in self._roles:
                    emit.set_hint(inside, hint)


def step_name(emit: Emitter, operation: Operation, name: str) -> str:
    """The name in the graph of a value inside a rule."""
    if name.startswith("d"):
        operands = zip(operation.definition.operands, operation.operands, strict=True)
        for parameter, operand in operands:
            if name[1:] == parameter.name and isinstance(operand, Tensor):
                return f"grad_{emit.names[operand]}"
    return f"{name}_{emit.names[operation.outputs[0]]}"
