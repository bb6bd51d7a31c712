"""What torch takes in eager mode, and torch.export does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, nn

import nnef_grad
from nnef_grad.interop import from_torch


class Module(nn.Module):  # type: ignore[misc]
    """A function with a layer and a weight."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(torch.rand(4, 4))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def moved(net: Any, x: Tensor) -> Tensor:
    net.weight.data = net.weight.data.to(x.device)
    return x @ net.weight


def replaced(net: Any, x: Tensor) -> Tensor:
    net.weight.data = net.weight.data * 2
    return x @ net.weight


def lists(net: Any, x: Tensor) -> Tensor:
    sums = torch._foreach_add([x, x + 1], [x, net.weight[0]], alpha=0.5)
    torch._foreach_mul_(sums, [2.0, 3.0])
    first, second = torch._foreach_mul(sums, sums)
    return first + second.sin()


RIGHT: dict[str, Callable[..., Tensor]] = {
    "data that are on the device": moved,
    "a layer that is on the device": lambda net, x: net.layer.to(x.device)(x),
    "a layer of that type": lambda net, x: net.layer.to(x)(x),
    "a tensor and itself": lambda net, x: x * 2 if torch.equal(x, x) else x,
    "tensors of other shapes": lambda net, x: x if torch.equal(x, x[:1]) else x * 2,
    "lists": lists,
    "a condition of bytes": lambda net, x: torch.where((x > 0).byte(), x, net.layer(x)),
    "bytes in a method": lambda net, x: x.where((x > 0).byte(), net.layer(x)),
    "tensors that may be equal": lambda net, x: (
        x * 2 if torch.equal(x, net.layer(x)) else x
    ),
    "a condition": lambda net, x: torch.where(x > 0, x, net.layer(x)),
}
REFUSED: dict[str, tuple[Callable[..., Tensor], str]] = {
    "other data": (replaced, "the data of a tensor or parameter are replaced"),
    "a layer of another type": (
        lambda net, x: net.layer.to(torch.float64)(x.double()).float(),
        "torch cannot export the module",
    ),
}


@pytest.mark.filterwarnings("ignore:where received a uint8")
@pytest.mark.parametrize("name", RIGHT)
def test_modules(name: str) -> None:
    compare(Module(RIGHT[name]).eval(), (torch.randn(3, 4),), (torch.randn(3, 4),))


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_values_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        from_torch(Module(function).eval(), (torch.randn(3, 4),))
