"""What is written into tensors and views of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from support.torch_modules import Case, Cases, of, with_weight


def view_of_zeros(x: Any) -> Any:
    z = torch.zeros(2, 3)
    z.view(-1)[::2].add_(1)
    return z * x


def transposed_view(x: Any) -> Any:
    y = x.clone()
    y.t()[0].mul_(2)
    return y * x


def reshaped_view(x: Any) -> Any:
    y = x * 1
    y.reshape(-1)[1:4] += 1
    return y * y


def column(x: Any) -> Any:
    y = x.clone()
    y[:, 0] = 0
    return y * x


def rows_from(x: Any, v: Any) -> Any:
    y = x.clone()
    y[1] = v
    return y.exp()


def by_mask(x: Any) -> Any:
    y = x.clone()
    y[y < 0] = 0.5
    return y * x


def by_mask_of_another(x: Any, m: Any) -> Any:
    y = x * 2
    y.masked_fill_(m, -1.0)
    return y * x


def slices_added(x: Any) -> Any:
    y = torch.zeros(5, 3)
    y[1:3] += x
    y[2:4] += 2 * x
    return y


def accumulated(x: Any, i: Any) -> Any:
    return torch.zeros(4, 2).index_put((i,), x, accumulate=True) * 2


def placed(x: Any, i: Any) -> Any:
    return torch.ones(5).index_put((i,), x) * 3


def scattered_value(x: Any, i: Any) -> Any:
    return x * torch.zeros(2, 5).scatter(1, i, 1.0)


def scattered_in_place(x: Any, i: Any) -> Any:
    out = x.clone()
    out.scatter_add_(1, i, x)
    return out * x


def one_hot_by_scatter(x: Any, i: Any) -> Any:
    return (torch.zeros(3, 4).scatter_(1, i.unsqueeze(1), 1) * x).sum(1)


def buffer_of_steps(x: Any) -> Any:
    out = torch.empty(4, 3)
    h = x
    for step in range(4):
        h = torch.tanh(h + step)
        out[step] = h
    return out


def stacked_steps(x: Any) -> Any:
    states = []
    for _ in range(3):
        x = x.sin()
        states.append(x)
    return torch.stack(states, 1)


def diagonal(x: Any) -> Any:
    y = x.clone()
    y.fill_diagonal_(0)
    return y @ x


def diagonal_view(x: Any) -> Any:
    y = x.clone()
    torch.diagonal(y).add_(1)
    return y * y


def swapped(x: Any) -> Any:
    y = x.clone()
    y[[0, 1]] = y[[1, 0]]
    return y * x


def narrow(x: Any) -> Any:
    y = x.clone()
    y.narrow(1, 1, 2).mul_(3)
    return y * x


def chain_in_place(x: Any) -> Any:
    y = x * 2
    y.sub_(1).mul_(2).clamp_(-1, 1).neg_()
    return y


def causal_fill(x: Any) -> Any:
    mask = torch.full((3, 3), float("-inf")).triu_(1)
    return (x + mask).softmax(-1)


def causal_zero(x: Any) -> Any:
    y = x.clone()
    y.tril_()
    return y


def into_input(x: Any) -> Any:
    x.add_(1)
    return x * 2


def relu_in_place(x: Any) -> Any:
    return torch.relu_(x) * 2


def copied(x: Any, v: Any) -> Any:
    y = x.clone()
    y[:, :2].copy_(v)
    return y * x


def chunks(x: Any) -> Any:
    y = x.clone()
    for i in range(2):
        y.narrow(1, 2 * i, 2).mul_(i + 2)
    return y * x


def nested_slices(x: Any) -> Any:
    y = x.clone()
    y[1:][:, ::2][0] = 1.0
    return y * y


def expanded(x: Any) -> Any:
    y = x.unsqueeze(0).expand(3, -1).clone()
    y[1] += 1
    return y * x


def shift_channels(x: Any) -> Any:
    """TSM: a part of the channels comes from the step before."""
    out = torch.zeros_like(x)
    out[:-1, :1] = x[1:, :1]
    out[1:, 1:2] = x[:-1, 1:2]
    out[:, 2:] = x[:, 2:]
    return out * x


def pasted(x: Any, y: Any) -> Any:
    canvas = torch.zeros(1, 1, 6, 6)
    canvas[:, :, 1:4, 2:5] = x
    canvas[..., 3:6, 0:3] += y
    return canvas.sum((2, 3)) + canvas.amax()


class Tied(nn.Module):  # type: ignore[misc]
    """Writes into what it computes of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(3, 3, generator=torch.Generator().manual_seed(3))
        )

    def forward(self, x: Any) -> Any:
        w = self.weight * 1
        w[0] = self.weight[0] / self.weight[0].norm()
        return x @ w


class Masked(nn.Module):  # type: ignore[misc]
    """A matrix that is multiplied by a mask in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(4, 4).tril())

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.linear.weight * self.mask, self.linear.bias)


class Cache(nn.Module):  # type: ignore[misc]
    """Keys that are kept in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(4, 3))

    def forward(self, x: Any) -> Any:
        keys = self.keys.clone()
        keys[:2] = x
        return keys @ x.t()


def written(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that writes into a part of a clone."""

    def forward(x: Any) -> Any:
        y = x * 2.0
        write(y)
        return y * x

    return forward


def rows_of_nothing(x: Any, y: Any) -> Any:
    x, mask = x * 2.0, torch.zeros(3, dtype=torch.bool)
    x[mask] = y[mask]
    return x * y


class Listed(nn.Module):  # type: ignore[misc]
    """A function with a buffer, that writes by an operation with a list of tensors."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("stored", torch.zeros(4, 3))

    def forward(self, x: Any) -> Any:
        return self.function(self.stored, x)


def foreach(stored: Any, x: Any) -> Any:
    parts = [x * 1, x * 2]
    torch._foreach_add_(parts, 1.0)
    return parts[0] * parts[1]


def foreach_detached(stored: Any, x: Any) -> Any:
    y = x * 1
    torch._foreach_mul_([stored, y.detach()], 2.0)
    return y * x


def foreach_without(stored: Any, x: Any) -> Any:
    parts = [stored, x * 2]
    with torch.no_grad():
        torch._foreach_add_(parts, 1.0)
    return parts[1] * x


def cat_without(stored: Any, x: Any) -> Any:
    with torch.no_grad():
        torch.cat([x, x * 2], out=stored)
    return stored[1:3] * x


CASES: Cases = {
    "a view of zeros": of(view_of_zeros, lambda r: [r(2, 3)]),
    "a transposed view": of(transposed_view, lambda r: [r(2, 3)]),
    "a reshaped view": of(reshaped_view, lambda r: [r(2, 3)]),
    "a column": of(column, lambda r: [r(2, 3)]),
    "a row": of(rows_from, lambda r: [r(3, 2), r(2)]),
    "by a mask": of(by_mask, lambda r: [r(3, 3)]),
    "masked_fill_": of(by_mask_of_another, lambda r: [r(3, 3), r.bools(3, 3)]),
    "slices are added": of(slices_added, lambda r: [r(2, 3)]),
    "index_put, accumulated": of(accumulated, lambda r: [r(5, 2), r.ints(4, 5)]),
    "index_put": of(placed, lambda r: [r(2), torch.tensor([1, 3])]),
    "scatter of a value": of(scattered_value, lambda r: [r(2, 5), torch.tensor([[0, 2], [1, 4]])]),
    "scatter_add_": of(scattered_in_place, lambda r: [r(2, 3), r.ints(3, 2, 3)]),
    "one-hot by scatter_": of(one_hot_by_scatter, lambda r: [r(3, 4), r.ints(4, 3)]),
    "a buffer of steps": of(buffer_of_steps, lambda r: [r(3)]),
    "stacked steps": of(stacked_steps, lambda r: [r(2, 3)]),
    "fill_diagonal_": of(diagonal, lambda r: [r(3, 3)]),
    "a view of the diagonal": of(diagonal_view, lambda r: [r(3, 3)]),
    "rows are swapped": of(swapped, lambda r: [r(3, 2)]),
    "narrow": of(narrow, lambda r: [r(2, 4)]),
    "a chain in place": of(chain_in_place, lambda r: [r(5)]),
    "a causal mask": of(causal_fill, lambda r: [r(2, 3, 3)]),
    "tril_": of(causal_zero, lambda r: [r(3, 3)]),
    "into an input": of(into_input, lambda r: [r(3)]),
    "relu_ of an input": of(relu_in_place, lambda r: [r(3)]),
    "copy_ into a slice": of(copied, lambda r: [r(2, 3), r(2, 2)]),
    "chunks": of(chunks, lambda r: [r(2, 4)]),
    "slices of slices": of(nested_slices, lambda r: [r(3, 4)]),
    "an expanded copy": of(expanded, lambda r: [r(4)]),
    "shifted channels": of(shift_channels, lambda r: [r(3, 4)]),
    "pasted": of(pasted, lambda r: [r(1, 1, 3, 3), r(1, 1, 3, 3)]),
    "of a weight": Case(Tied, lambda r: [r(2, 3)]),
    "a masked weight": Case(Masked, lambda r: [r(2, 4)]),
    "a cache": Case(Cache, lambda r: [r(2, 3)]),
    "relu_": of(lambda x: torch.relu_(x * 2), lambda r: [r(5)]),
    "activation in place": Case(lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2), nn.Hardswish(inplace=True)), lambda r: [r(2, 3)]),
    "add_ of a product": of(lambda x, y: (x * 1).addcmul_(x, y, value=0.5), lambda r: [r(3), r(3)]),
    "zero_": of(lambda x: (x * 1).zero_() + x, lambda r: [r(3)]),
    "fill_": of(lambda x: torch.empty_like(x).fill_(2.0) * x, lambda r: [r(3)]),
    "index_fill_": of(lambda x: (x * 1).index_fill_(1, torch.tensor([0, 2]), -1.0) * x, lambda r: [r(2, 3)]),
    "index_add_": of(lambda x, y: (x * 1).index_add_(0, torch.tensor([0, 2]), y) * x, lambda r: [r(3, 2), r(2, 2)]),
    "index_copy_": of(lambda x, y: (x * 1).index_copy_(0, torch.tensor([2, 0]), y) * x, lambda r: [r(3, 2), r(2, 2)]),
    "put at negative places": with_weight(lambda w, v: w.index_put((torch.tensor([-1, 0]),), v) * w, (3,), lambda r: [r(2)]),
    "select_scatter": of(lambda x, v: torch.select_scatter(x, v, 1, 0) * x, lambda r: [r(2, 3), r(2)]),
    "slice_scatter": of(lambda x, v: torch.slice_scatter(x, v, 1, 0, 4, 2) * x, lambda r: [r(2, 5), r(2, 2)]),
    "diagonal_scatter": of(lambda x, v: torch.diagonal_scatter(x, v) * x, lambda r: [r(3, 3), r(3)]),
    "masked_scatter by where": of(lambda x, m: torch.where(m, x * 2, x), lambda r: [r(3, 3), r.bools(3, 3)]),
    "past the end": of(written(lambda x: x[10:].fill_(1.0)), lambda r: [r(3, 4)]),
    "a list": Case(lambda: Listed(foreach), lambda r: [r(2, 3)]),
    "a list, of detached": Case(lambda: Listed(foreach_detached), lambda r: [r(2, 3)], refused="by its 'data' or a detached tensor"),
    "a list, in a block": Case(lambda: Listed(foreach_without), lambda r: [r(2, 3)], refused="written into where gradients are disabled"),
    "out of a list, in a block": Case(lambda: Listed(cat_without), lambda r: [r(2, 3)]),
    "where nothing is": of(written(lambda x: x[2:1].add_(1.0)), lambda r: [r(3, 4)]),
    "a diagonal outside": of(written(lambda x: x.diagonal(9).fill_(1.0)), lambda r: [r(3, 4)]),
    "rows of an empty mask": of(rows_of_nothing, lambda r: [r(3, 4), r(3, 4)]),
    "scattered nowhere": of(lambda x: x.scatter(1, torch.zeros(3, 0, dtype=torch.long), 2.0) * x, lambda r: [r(3, 4)]),
}  # fmt: skip
