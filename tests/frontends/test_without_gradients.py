"""What a module writes where no gradient is kept: right beside autograd, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, nn
from torch.nn import functional

import nnef_grad
from nnef_grad.interop import from_torch


class Module(nn.Module):  # type: ignore[misc]
    """A function of an input, a weight and a buffer."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.weight = function, nn.Parameter(torch.rand(4) + 0.5)
        self.register_buffer("buffer", torch.zeros(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.buffer)


def initialized(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    """As the states of a recurrent network are."""
    state = torch.zeros(4, 4)
    nn.init.xavier_uniform_(state)
    return state * x * w


def copied(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made, row = torch.zeros(4, 4), torch.zeros_like(x)
    with torch.no_grad():
        made.copy_(x * w)
        row[0] = x[1]
        row[x > 0] = 2.0
    return made * x * w + row * w


def parts(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = torch.zeros(4, 4)
    first, _ = made.chunk(2)
    with torch.no_grad():
        first.add_(x[:2] * w)
        for row, given in zip(made.unbind(0), x, strict=True):
            row.mul_(given)
    return made * x * w


def a_view_is_read(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    """The view of a buffer has no gradient either."""
    row = buffer[0]
    with torch.no_grad():
        buffer.copy_(x * w)
    return row * x * w


def by_data(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = torch.zeros(4, 4)
    row = made[1]
    made.data.copy_(x * w)
    buffer.data.copy_(x)
    return (row + buffer) * x * w


def then_with_gradients(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = torch.zeros(4, 4)
    with torch.no_grad():
        made.copy_(x)
    made.add_(x * w)
    return made * x


def nothing_is_dropped(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    """The result of dropout in evaluation is its operand."""
    y = x * w
    other = functional.dropout(y, 0.5, training=False)
    other += x
    third = functional.dropout2d(y[None, None], 0.5, training=False)
    third *= w
    return y * other


def scaled_by_a_weight(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    buffer.data.add_(w)
    with torch.no_grad():
        buffer.mul_(w).add_(x)
    return buffer * x * w


RIGHT = (
    scaled_by_a_weight, initialized, copied, parts, a_view_is_read, by_data, then_with_gradients,
    nothing_is_dropped,
)  # fmt: skip


def what_is_computed(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = x * w
    with torch.no_grad():
        made[0] = 0.0
    return made * made


def its_part(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = x * w
    first, _ = made.chunk(2)
    with torch.no_grad():
        first.zero_()
    return made * made


def what_was_written_into(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = torch.zeros(4, 4)
    made[0].add_(w)
    with torch.no_grad():
        made.mul_(2)
    return made * made * x


def by_a_hidden_view(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    """Of which no schema tells."""
    made = torch.zeros(4)
    torch.atleast_2d(made).add_(w)
    with torch.no_grad():
        made.mul_(2)
    return made * made * x


def by_data_after_a_write(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    made = torch.zeros(4, 4)
    made[0] = x[0] * w
    made.data[1] = x[1] * w
    return made * made * x


def a_buffer_that_carries_one(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x * w)
    with torch.no_grad():
        buffer.mul_(2)
    return buffer * x


def the_data_of_a_buffer_that_does(x: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x * w)
    buffer.data.mul_(2)
    return buffer * x


REFUSED = (
    a_buffer_that_carries_one, the_data_of_a_buffer_that_does, what_is_computed, its_part, what_was_written_into, by_a_hidden_view,
    by_data_after_a_write,
)  # fmt: skip


@pytest.mark.parametrize("function", RIGHT)
def test_right(function: Callable[..., Tensor]) -> None:
    compare(Module(function).eval(), (torch.randn(4, 4),), (torch.randn(4, 4),))


@pytest.mark.parametrize("function", REFUSED)
def test_refused(function: Callable[..., Tensor]) -> None:
    message = "a tensor is written (into where gradients are disabled|by its 'data')"
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        from_torch(Module(function).eval(), (torch.randn(4, 4),))
