"""The names of gradients, decided once, when the backward graph is whole.

grad_x                  the gradient of x
grad_x_from_y           what x receives from its use in y, where it has several uses
grad_x_from_y_full      the same, before it is summed down to the shape of x
grad_x_sum              a sum of some of these
grad_x_unmasked         the gradient of x, before it is confined to its support
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor


class Role(NamedTuple):
    """The relation of a tensor of the backward graph to a tensor of the forward graph.

    Attributes:
        made: the tensor of the backward graph.
        tensor: the tensor of the forward graph.
        use: the operation that it is used by; None for a sum over uses.
        suffix: what is added to the name of a step on the way to it.
    """

    made: Tensor
    tensor: Tensor
    use: Operation | None
    suffix: str = ""


class GradientNames:
    """The roles that tensors were given while the backward graph was emitted."""

    def __init__(self) -> None:
        self._roles: dict[Tensor, Role] = {}
        self._uses: dict[Tensor, int] = {}

    def add(self, role: Role) -> None:
        """Gives a tensor a role, unless it has one."""
        self._roles.setdefault(role.made, role)

    def count_use(self, tensor: Tensor) -> None:
        """Counts a use that gives a tensor of the forward graph a gradient."""
        self._uses[tensor] = self._uses.get(tensor, 0) + 1

    def assign(
        self,
        emit: Emitter,
        gradients: Mapping[Tensor, Tensor],
        confined: Mapping[Tensor, Tensor],
    ) -> None:
        """Sets the hints of all tensors that have a role.

        Args:
            emit: keeps names and hints.
            gradients: the gradients of the tensors of the forward graph.
            confined: for cotangents that were confined to their supports, the result.
        """
        for role in self._roles.values():
            is_whole = gradients.get(role.tensor) is role.made
            emit.set_hint(role.made, self._name(role, emit.names, is_whole))
        for cotangent, inside in confined.items():
            hint = emit.hints.get(cotangent)
            if hint is not None:
                emit.set_hint(cotangent, f"{hint}_unmasked")
            if hint is not None and inside not in self._roles:
                emit.set_hint(inside, hint)

    def _name(self, role: Role, names: Mapping[Tensor, str], is_whole: bool) -> str:
        name = f"grad_{names[role.tensor]}"
        if is_whole:
            return name
        if role.use is not None and self._uses[role.tensor] > 1:
            name = f"{name}_from_{names[role.use.outputs[0]]}"
        return f"{name}{role.suffix}"
