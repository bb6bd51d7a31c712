"""Parameters that a module holds in lists and dictionaries, too, and results that it keeps."""

from __future__ import annotations

import pytest
import torch
from support.torch_gradients import compare
from torch import nn

import nnef_grad
from nnef_grad.interop import from_torch


class Held(nn.Module):  # type: ignore[misc]
    """Parameters that are in a list and a dictionary, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.rand(4) + 0.5)
        self.register_buffer("shift", torch.rand(4))
        self.held = {"scale": self.scale, "shift": self.shift}
        self.listed = [self.layer.weight, self.layer.bias]


class FromElsewhere(Held):
    def __init__(self) -> None:
        super().__init__()
        self.again = self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.listed
        wide = torch.cat([bias, self.held["scale"]])[2:6]
        y = torch.nn.functional.linear(x, weight, bias=bias) + self.held["shift"]
        return y.exp() * self.held["scale"] * self.again + wide * self.scale


class InABranch(Held):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            x.sum() > 0,
            lambda x: self.layer(x) * self.held["scale"],
            lambda x: x * 2.0,
            (x,),
        )


class ByAMethod(Held):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = lambda x: self.scaled(x)  # noqa: E731
        return torch.cond(x.sum() > 0, scaled, lambda x: x * self.scale, (x,))

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.held["scale"] + self.shift


class Kept(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.layer(x)
        self.all = [self.last]
        return self.last * 2


def test_a_parameter_is_itself_wherever_it_is_held() -> None:
    compare(FromElsewhere().eval(), (torch.randn(3, 4),), (torch.randn(3, 4),))


def test_a_branch_takes_parameters_from_everywhere() -> None:
    """From a dictionary, a module and the module itself."""
    module, x = InABranch().eval(), torch.rand(3, 4)
    model = from_torch(module, (x,))
    # What torch 2.13 keeps of branches disturbs the export of later ones.
    torch._dynamo.reset()
    labels = model.graph.labels.values()
    assert {*labels} == {"scale", "layer.weight", "layer.bias"}
    for sign in (1, -1):
        fed = {model.graph.input_names[0]: (sign * x).numpy()}
        (found,) = nnef_grad.evaluate(model.graph, fed, model.data).values()
        wanted = module.layer(x) * module.scale if sign > 0 else -2.0 * x
        torch.testing.assert_close(torch.tensor(found).float(), wanted.detach())


def test_a_parameter_is_no_constant_of_a_branch() -> None:
    """Where torch would make it one."""
    with pytest.raises(
        nnef_grad.UnsupportedError, match="the parameter 'scale' from a"
    ):
        from_torch(ByAMethod().eval(), (torch.rand(3, 4),))
    torch._dynamo.reset()


def test_a_module_is_left_as_it_was() -> None:
    module = Kept().eval()
    before = {*vars(module)}
    compare(module, (torch.randn(2, 3),), (torch.randn(2, 3),))
    assert {*vars(module)} == before
    module(torch.randn(2, 3))
    assert type(module.last) is torch.Tensor
    assert from_torch(module, (torch.randn(2, 3),)).graph.labels
    assert type(module.last) is torch.Tensor
