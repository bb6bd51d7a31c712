"""Derivatives inside of modules: physics-informed networks, forces, penalties, steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.func import (
    functional_call,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
)

from support.torch_modules import Case, Cases

grad = partial(torch.autograd.grad, create_graph=True)


class Derived(nn.Module):  # type: ignore[misc]
    """A function of a network, `at`, and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(3, 3)
        with torch.no_grad():
            torch.arange(9.0, out=self.layer.weight.data.view(9)).sin_()
            self.layer.bias.fill_(0.1)

    def forward(self, *inputs: Any) -> Any:
        return self.function(lambda x: self.layer(x).tanh(), *inputs)


# Made before any module is read.
SLOPES = torch.vmap(torch.func.grad(lambda x: (x.sin() * x.flip(0)).sum()))


def laplacian(at: Any, x: Any) -> Any:
    (slopes,) = grad(at(x).sum(), x)
    return sum(grad(slopes[:, n].sum(), x)[0][:, n] for n in range(3))


def of_leaf(at: Any, x: Any) -> Any:
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        return grad(at(x).square().sum(), x)[0]


def of_value(at: Any, x: Any) -> Any:
    """With respect to one of two tensors that are the same numbers."""
    hidden = at(x)
    other = hidden * 1
    y = (other * hidden.sin()).sum()
    return grad(y, hidden)[0] + 2 * grad(y, other)[0]


def with_stop(at: Any, x: Any) -> Any:
    """What stops gradients inside of the function that is differentiated, and around it."""

    def inner(x: Any) -> Any:
        with torch.no_grad():
            factor = at(x).exp()
        return (factor * x.sin()).sum()

    with torch.no_grad():
        stopped = torch.func.grad(inner)(x)
    return stopped * x + torch.func.grad(inner)(x)


def written(at: Any, x: Any) -> Any:
    def inner(x: Any) -> Any:
        y = at(x).clone()
        y[:2] = x[1:]
        y += x
        return y.square().sum()

    return torch.func.grad(inner)(x)


class Adapted(nn.Module):  # type: ignore[misc]
    """A step of a learner inside of a model (MAML)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Any, y: Any) -> Any:
        parameters = dict(self.layer.named_parameters())

        def loss(parameters: Any) -> Any:
            return (functional_call(self.layer, parameters, (x,)) - y).square().mean()

        slopes, value = grad_and_value(loss)(parameters)
        moved = {n: p - 0.1 * slopes[n] for n, p in parameters.items()}
        return functional_call(self.layer, moved, (x,)), value


FUNCTIONS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "a gradient": (lambda at, x: grad(at(x).sum(), x)[0], ((4, 3),)),
    "one that is returned alone": (lambda at, x: torch.autograd.grad(at(x).sum(), x)[0] * x, ((4, 3),)),
    "from given cotangents": (lambda at, x, y: grad(at(x), x, grad_outputs=y)[0], ((4, 3), (4, 3))),
    "for several cotangents": (lambda at, x: grad(at(x), x, torch.eye(3), is_grads_batched=True)[0] * x, ((3,),)),
    "of one that is not used": (lambda at, x, y: grad(at(x).sum(), [x, y], allow_unused=True, materialize_grads=True), ((3,), (3,))),
    "a laplacian": (laplacian, ((4, 3),)),
    "of a new leaf": (of_leaf, ((4, 3),)),
    "of a value": (of_value, ((3,),)),
    "with stops": (with_stop, ((3,),)),
    "of what is written": (written, ((3,),)),
    "of a closure": (lambda at, x: torch.func.grad(lambda y: (at(y) * x).sum())(x), ((3,),)),
    "vmap of a gradient": (lambda at, x: SLOPES(x) * at(x), ((4, 3),)),
    "vmap of a hessian": (lambda at, x: torch.vmap(hessian(lambda y: at(y).sum()))(x), ((2, 3),)),
    "vmap of axes": (lambda at, x, y: torch.vmap(lambda x, y: {"a": at(x) * y, "b": y}, in_dims=(0, 1), out_dims={"a": 1, "b": 0})(x, y), ((4, 3), (3, 4))),
    "jacrev": (lambda at, x: jacrev(at)(x), ((3,),)),
    "jacfwd": (lambda at, x: jacfwd(at)(x), ((3,),)),
    "a jacobian of autograd": (lambda at, x: torch.autograd.functional.jacobian(at, x, create_graph=True), ((3,),)),
    "jvp": (lambda at, x, y: jvp(at, (x,), (y,)), ((4, 3), (4, 3))),
    "vjp": (lambda at, x, y: vjp(at, x)[1](y), ((4, 3), (4, 3))),
    "with more": (lambda at, x, y: grad_and_value(lambda x, y: ((at(x) * y).sum(), x * y), argnums=(0, 1), has_aux=True)(x, y), ((4, 3), (4, 3))),
}  # fmt: skip

REFUSED: dict[str, tuple[Any, str]] = {
    "of what is random": (lambda at, x: torch.func.grad(lambda x: nn.functional.dropout(at(x), 0.5, True).sum())(x), "drops elements at random"),
    "of what depends on each other": (lambda at, x: grad(at(y := x.sin()).sum(), [x, y]), "depend on each other"),
}  # fmt: skip


def case(function: Any, shapes: Any, **settings: Any) -> Case:
    """The case of a function of a network and inputs of some shapes."""
    return Case(
        lambda: Derived(function), lambda r: [r(*shape) for shape in shapes], **settings
    )


CASES: Cases = {
    **{name: case(*pair) for name, pair in FUNCTIONS.items()},
    **{name: case(f, ((3,),), refused=why) for name, (f, why) in REFUSED.items()},
    "a step inside": Case(Adapted, lambda r: [r(4, 3), r(4, 2)]),
}
