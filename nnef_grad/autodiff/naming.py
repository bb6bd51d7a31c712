"""The names of gradients, decided once, when the backward graph is whole.

grad_x                  the gradient of x
grad_x_from_y           what x receives from its use in y, where it has several uses
grad_x_from_y_full      the same, before it is summed down to the shape of x
grad_x_sum              a sum of some of these
grad_x_unmasked         the gradient of x, before it is confined to its support
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from nnef_grad.emit.emitter import Emitter
from nnef_grad.graph.ir import Operation, Tensor


class GradientNames:
    """The roles that tensors were given while the backward graph was emitted.

    Attributes:
        uses: how many uses give each tensor of the forward graph a gradient.
    """

    def __init__(self) -> None:
        self._roles: dict[Tensor, tuple[Tensor, Operation | None, str]] = {}
        self.uses = Counter[Tensor]()

    def add(
        self, made: Tensor, tensor: Tensor, use: Operation | None, suffix: str = ""
    ) -> None:
        """Gives a tensor of the backward graph a role, unless it has one.

        Args:
            made: the tensor of the backward graph.
            tensor: the tensor of the forward graph.
            use: the operation that it is used by; None for a sum over uses.
            suffix: what is added to the name of a step on the way to it.
        """
        self._roles.setdefault(made, (tensor, use, suffix))

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
        for made, (tensor, use, suffix) in self._roles.items():
            name = f"grad_{emit.names[tensor]}"
            if gradients.get(tensor) is not made:
                if use is not None and self.uses[tensor] > 1:
                    name = f"{name}_from_{emit.names[use.outputs[0]]}"
                name += suffix
            emit.set_hint(made, name)
        for cotangent, inside in confined.items():
            hint = emit.hints.get(cotangent)
            if hint is not None:
                emit.set_hint(cotangent, f"{hint}_unmasked")
            if hint is not None and inside not in self._roles:
                emit.set_hint(inside, hint)
