"""Masks that depend on data: what they take is computed row by row, put back by the same mask, or
summed; beside torch. Rows that meet, or are counted, are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, nn
from torch.nn import functional as f

import nnef_grad
from nnef_grad.interop import from_torch


class Module(nn.Module):  # type: ignore[misc]
    """A function with two linear layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 4)
        self.norm, self.moments = nn.LayerNorm(8), nn.BatchNorm1d(8)
        self.function = function

    def forward(self, x: Tensor, t: Tensor) -> Any:
        """The function, with a mask of all elements and one of rows."""
        return self.function(self, x, t, t > 0, t[..., 0] > 0)


def changed(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    y = x.clone()
    y[mask] = values
    return y


def log_tanh(x: Tensor) -> Tensor:
    middle, right, left = (x > -1) & (x < 1), x >= 1, x <= -1
    y = torch.zeros_like(x)
    y[middle] = torch.tanh(x[middle])
    y[right] = 0.3 * torch.log(2 * x[right])
    y[left] = -0.3 * torch.log(-2 * x[left])
    return y


def ends(rows: Tensor, last: Tensor) -> Tensor:
    """Rows that begin and end with numbers."""
    y = rows * 2
    y[..., 0] = -1.0
    y[..., -1] = last
    return y


def layers(net: Any, x: Tensor) -> Tensor:
    out: Tensor = net.outer(net.norm(net.inner(x)).relu())
    return out


def above(x: Tensor, number: float) -> Tensor:
    return x[x > number]


def asked_again(x: Tensor, rows: Tensor) -> Tensor:
    """What is asked again follows from the answers."""
    if len(rows) <= 1:
        return x.sum()
    y = rows.exp().mean() if len(rows) > 0 and len(rows) != 1 else x.prod()
    return y if len(rows) < 20 else y * len(rows)


def triples(x: Tensor, same: Tensor) -> Tensor:
    first, second, third = torch.where(same[:, :, None] & ~same[:, None])
    return above(x[first, second] - x[first, third], 0.1).sum()


def contrasted(x: Tensor, classes: Tensor) -> Any:
    """What metric learning minimizes: over pairs of one class, and of two."""
    apart = (x[:, None] - x[None]).pow(2).sum(-1)
    same = (classes[:, None] == classes[None]).byte()
    other = same ^ 1
    same.fill_diagonal_(0)
    loss: Any = 0
    for pairs, slope in ((torch.where(same), 1.0), (torch.where(other), -1.0)):
        if len(pairs[0]) > 0:
            found = above(torch.relu(slope * (apart[pairs] - 8.0)), 0.0)
            if len(found) >= 1:
                loss = loss + found.mean()
    return loss


RIGHT: dict[str, Callable[..., Any]] = {
    "branches of a function": lambda net, x, t, m, r: log_tanh(2 * x),
    "layers": lambda net, x, t, m, r: changed(x, r, layers(net, x[r])),
    "a row of all": lambda net, x, t, m, r: (x[r] - x.mean(0)).pow(2).mean(),
    "an axis behind": lambda net, x, t, m, r: x[:, t[0] > 0].sum(1),
    "added": lambda net, x, t, m, r: x.index_put((m,), x[m].exp(), accumulate=True),
    "of two tensors": lambda net, x, t, m, r: changed(x, m, x[m] * t[m].sin()),
    "in place of others": lambda net, x, t, m, r: changed(torch.ones_like(x), m, t[m].exp()),
    "two masks": lambda net, x, t, m, r: x[m].mean() + t[r].sum(),
    "squares": lambda net, x, t, m, r: f.mse_loss(x[m], t[m]),
    "a sum of distances": lambda net, x, t, m, r: f.l1_loss(x[m], t[m], reduction="sum"),
    "probabilities": lambda net, x, t, m, r: f.binary_cross_entropy_with_logits(x[m], t[m].sigmoid()),
    "classes of rows": lambda net, x, t, m, r: x[r].log_softmax(-1)[:, 1].mean(),
    "a mask that is broadcast": lambda net, x, t, m, r: torch.masked_select(x, r[:, None]).sum(),
    "elements": lambda net, x, t, m, r: torch.masked_select(x, m).mean(),
    "rows and columns": lambda net, x, t, m, r: x[r].mean((0, 1), keepdim=True),
    "beside one another": lambda net, x, t, m, r: torch.cat([x[r], t[r]], 1).mean(),
    "moments of a row": lambda net, x, t, m, r: x[r].var(1).sum(),
    "without their mean": lambda net, x, t, m, r: changed(x, m, x[m] - x[m].mean()),
    "none": lambda net, x, t, m, r: x[t > 100].sum() + x.sum(),
    "products of pairs": lambda net, x, t, m, r: (x[r].unsqueeze(1) @ t[r].unsqueeze(2)).sum(),
    "roots of what is taken": lambda net, x, t, m, r: changed(x, m, t[m].sqrt()),
    "a quotient": lambda net, x, t, m, r: (1 / t.relu()[m]).sum(),
    "logarithms into layers": lambda net, x, t, m, r: changed(x, r, layers(net, t[r, :1].log().expand(-1, 4))),
    "quotients into layers": lambda net, x, t, m, r: net.inner((1 / t.relu())[r][:, :1].expand(-1, 4)).sum(),
    "distances into layers": lambda net, x, t, m, r: (net.inner.weight @ t[r, :1].sqrt().expand(-1, 4).T).sum(1),
    "attention": lambda net, x, t, m, r: changed(x, r, f.scaled_dot_product_attention(x[r], t, t)),
    "a mask of a mean": lambda net, x, t, m, r: x[x > x[m].mean()].exp().sum(),
    "a number repeated": lambda net, x, t, m, r: x[:1, 0].expand(x[m].shape[0]).exp().sum(),
    "a row for each": lambda net, x, t, m, r: changed(x, r, t[:1].expand(x[r].shape[0], 4) * x[r]),
    "sums with an end": lambda net, x, t, m, r: changed(x, r, f.pad(x[r, :3].cumsum(1), (1, 0))),
    "written into": lambda net, x, t, m, r: changed(x, r, changed(x[r], ..., 2.0) * t[r]),
    "columns written into": lambda net, x, t, m, r: changed(x, r, ends(x[r], t[0, 0]).cumsum(1)),
    "numbers for rows": lambda net, x, t, m, r: changed(x, r, x.new_ones(x[r].shape)),
    "their number": lambda net, x, t, m, r: x[m].sum() / x[m].shape[0],
    "one by their number": lambda net, x, t, m, r: x[m].sum() * (1 / x[m].shape[0]),
    "to that power": lambda net, x, t, m, r: x.abs() ** x[m].shape[0],
    "their number returned": lambda net, x, t, m, r: (x.sum(), x[m].shape[0]),
    "at least one": lambda net, x, t, m, r: net.inner(x)[r].sum() / max(len(x[r]), 1),
    "numbers of several": lambda net, x, t, m, r: x[m].sum() * (len(x[m]) - 2 * x[r].shape[0]) / x.shape[0],
    "elements of rows": lambda net, x, t, m, r: x[r].exp().sum() / x[r].numel(),
    "if there are some": lambda net, x, t, m, r: x[m].mean() if len(x[m]) > 0 else x.sum(),
    "if there are more": lambda net, x, t, m, r: x[m].exp().sum() if len(x[m]) > len(x[~m]) else x[r].sum(),
    "as many as that": lambda net, x, t, m, r: asked_again(x, x[m]),
    "of what was taken": lambda net, x, t, m, r: above(above(net.inner(x)[r].sum(1), 0.0), 0.5).log().sum(),
    "a mean of what was taken": lambda net, x, t, m, r: x[m][t[m] > 0.5].mean(),
    "elements of rows taken": lambda net, x, t, m, r: x[r][t[r] > 0.5].exp().sum(),
    "where": lambda net, x, t, m, r: (x[torch.where(m)] * t[torch.where(m)].sin()).sum(),
    "where rows are": lambda net, x, t, m, r: layers(net, x[torch.where(r)[0]]).sum(),
    "where, along one axis": lambda net, x, t, m, r: (x[torch.where(m)[0]].sum(1) * t[m]).sum(),
    "where, the axes exchanged": lambda net, x, t, m, r: ((x @ t.T)[torch.where((x @ x.T) > 0)[::-1]]).exp().sum(),
    "where of triples": lambda net, x, t, m, r: triples(x @ t.T, (x @ x.T) > 0.3),
    "where bytes are": lambda net, x, t, m, r: x[torch.where(m.byte() ^ 1)].sum(),
    "in columns": lambda net, x, t, m, r: (x[m.nonzero()[:, 0], m.nonzero()[:, -1]] * t[m]).sum(),
    "in columns, each": lambda net, x, t, m, r: x[m.nonzero().unbind(1)].exp().sum(),
    "in one column": lambda net, x, t, m, r: layers(net, x[r.nonzero().squeeze(1)]).sum() + x[r.nonzero().view(-1)].exp().sum(),
    "a selection by places": lambda net, x, t, m, r: x.index_select(0, r.nonzero().flatten()).exp().mean(),
    "put where": lambda net, x, t, m, r: changed(x, torch.where(m), x[torch.where(m)].cos()),
    "ones where": lambda net, x, t, m, r: changed(torch.zeros_like(x), torch.where(m), 1.0) * x,
    "where what was taken is": lambda net, x, t, m, r: x[r][torch.where(t[r, 1] > 0)[0]].exp().sum(),
    "known numbers of rows": lambda net, x, t, m, r: (x[r] * torch.arange(6.0)[r][:, None]).sum(),
    "a loss of pairs": lambda net, x, t, m, r: contrasted(net.inner(x), t[:, 0] > 0),
    "into what was summed": lambda net, x, t, m, r: changed(x * x[m].sum(), m, x[m] * 2),
}  # fmt: skip


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_mask_takes(name: str) -> None:
    module = Module(RIGHT[name]).eval()
    given, fresh = ((normal(s, 6, 4), normal(s + 1, 6, 4)) for s in (0, 2))
    compare(module, given, fresh)


def test_axes_before_the_last_and_an_open_batch() -> None:
    """The axes of the mask become one, and are two again."""
    module = Module(RIGHT["layers"]).eval()
    compare(
        module,
        (normal(0, 2, 3, 4), normal(1, 2, 3, 4)),
        (normal(2, 2, 3, 4), normal(3, 2, 3, 4)),
    )
    n = torch.export.Dim("n", min=2)
    shapes = {"x": {0: n}, "t": {0: n}}
    model = from_torch(
        module, (normal(0, 5, 4), normal(1, 5, 4)), dynamic_shapes=shapes
    )
    x, t = normal(2, 7, 4), normal(3, 7, 4)
    fed = {n: v.numpy() for n, v in zip(model.graph.input_names, (x, t), strict=True)}
    (found,) = nnef_grad.evaluate(model.graph, fed, model.data).values()
    torch.testing.assert_close(
        torch.tensor(found), module(x, t).double(), rtol=1e-5, atol=1e-5
    )


def two_each(t: Tensor) -> Tensor:
    """A mask that takes two of each row."""
    return t >= t.topk(2, -1)[0][..., -1:]


def twelve(rows: Tensor) -> Tensor:
    torch._check(rows.shape[0] == 12)
    return rows


def largest(t: Tensor) -> Tensor:
    """A mask that takes one of each row."""
    mask = torch.zeros_like(t)
    mask[torch.arange(6), t.argmax(1)] = 1
    return mask == 1


# What torch finds a number for: how many rows there are.
COUNTED: dict[str, Callable[..., Any]] = {
    "checked": lambda net, x, t, m, r: twelve(x[two_each(t)]) * torch.arange(12.0),
    "of one row": lambda net, x, t, m, r: x[two_each(t)].view(6, 2).softmax(0),
    "one of each": lambda net, x, t, m, r: x * x[largest(t)][:, None],
    "others are infinite": lambda net, x, t, m, r: x + x.masked_fill(~largest(t), math.inf)[largest(t)][:, None],
    "where": lambda net, x, t, m, r: twelve(torch.stack(torch.where(two_each(t)), 1))[:, :1] * x.repeat(2, 1),
    "where, to read": lambda net, x, t, m, r: next(x[i] * x[i, j][:, None] for i, j in [map(twelve, torch.where(two_each(t)))]),
    "places": lambda net, x, t, m, r: x[twelve(two_each(t).nonzero())[:, 1] % 6] * two_each(t).nonzero()[:, :1],
    "planes": lambda net, x, t, m, r: x[None].expand(2, 6, 4)[:, largest(t)] * torch.arange(6.0),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_as_many_rows_as_the_module_says(name: str) -> None:
    given = ((normal(n, 6, 4), normal(n + 1, 6, 4)) for n in range(3))
    compare(Module(COUNTED[name]).eval(), *given)


SCATTERED: dict[str, Callable[..., Any]] = {
    "elements": lambda net, x, t, m, r: x.masked_scatter(m, t.exp()),
    "rows": lambda net, x, t, m, r: x.masked_scatter(r[:, None].expand(6, 4), net.inner(t)),
    "a broadcast mask": lambda net, x, t, m, r: x.masked_scatter(r[:, None], t.T),
    "a known mask": lambda net, x, t, m, r: x.masked_scatter(torch.eye(6, 4).bool(), t.sin()),
    "in place": lambda net, x, t, m, r: x.sin().masked_scatter_(m, t) * x,
}  # fmt: skip


@pytest.mark.parametrize("name", SCATTERED)
def test_elements_one_after_the_other(name: str) -> None:
    given = ((normal(n, 6, 4), normal(n + 1, 6, 4)) for n in range(3))
    compare(Module(SCATTERED[name]).eval(), *given)


def codes(t: Tensor) -> Tensor:
    return (t.abs() * 2).long()


HOT: dict[str, Callable[..., Any]] = {
    "at least": lambda net, x, t, m, r: x[..., None] * f.one_hot(codes(t), max(codes(t).max() + 1, 3))[..., :3],
    "fewer": lambda net, x, t, m, r: x[..., None] * f.one_hot(codes(t), max(5, codes(t).max() + 1))[..., 0:2].float(),
    "as a word": lambda net, x, t, m, r: x[..., None] * f.one_hot(codes(t), num_classes=max(codes(t).max() + 2, 4))[..., :4],
    "all": lambda net, x, t, m, r: x[..., None] * f.one_hot(codes(t).clamp(max=2), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", HOT)
def test_one_hot_of_as_many_classes_as_there_are(name: str) -> None:
    given = ((normal(n, 6, 4) * n, normal(n + 1, 6, 4) * n) for n in (1, 2, 0, 3))
    compare(Module(HOT[name]).eval(), *given)


HOT_REFUSED: dict[str, Callable[..., Any]] = {
    "all of them": lambda net, x, t, m, r: f.one_hot(codes(t), max(codes(t).max() + 1, 3)).sum() * x,
    "more than there may be": lambda net, x, t, m, r: f.one_hot(codes(t), max(codes(t).max() + 1, 3))[..., :4],
    "no least number": lambda net, x, t, m, r: f.one_hot(codes(t))[..., :3] * x[..., None],
    "the last": lambda net, x, t, m, r: f.one_hot(codes(t), max(codes(t).max() + 1, 3))[..., -1] * x,
    "every second": lambda net, x, t, m, r: f.one_hot(codes(t), max(codes(t).max() + 1, 3))[..., :3:2] * x[..., None],
    "of rows": lambda net, x, t, m, r: f.one_hot(codes(t), max(codes(t).max() + 1, 3))[:2] * x[:2, :, None],
    "returned": lambda net, x, t, m, r: (x, f.one_hot(codes(t), max(codes(t).max() + 1, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOT_REFUSED)
def test_other_classes_are_refused(name: str) -> None:
    with pytest.raises(nnef_grad.UnsupportedError, match=f"{MEET}|how many classes"):
        from_torch(Module(HOT_REFUSED[name]).eval(), (normal(0, 6, 4), normal(1, 6, 4)))


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_branch_takes_rows(is_alone: bool) -> None:
    def then(x: Tensor, t: Tensor) -> Any:
        y = x[t > 0].exp().sum()
        return y if is_alone else (y,)

    def otherwise(x: Tensor, t: Tensor) -> Any:
        y = (x * t).sum()
        return y if is_alone else (y,)

    def branches(net: Any, x: Tensor, t: Tensor, *_: Tensor) -> Any:
        y = torch.cond(x.sum() > 0, then, otherwise, (x, t))
        return y if is_alone else y[0]

    module = Module(branches).eval()
    model = from_torch(module, (normal(0, 6, 4), normal(1, 6, 4)))
    # What torch 2.13 keeps of such a branch disturbs the export of later ones.
    torch._dynamo.reset()
    for sign in (1, -1):
        x, t = sign * normal(2, 6, 4).abs(), normal(3, 6, 4)
        fed = {
            n: v.numpy() for n, v in zip(model.graph.input_names, (x, t), strict=True)
        }
        (found,) = nnef_grad.evaluate(model.graph, fed, model.data).values()
        wanted = (x[t > 0].exp() if sign > 0 else x * t).sum()
        assert found == pytest.approx(wanted.item(), rel=1e-5)


# By torch, or here.
MEET = "needs the values of tensors|the shape would depend|rows meet"


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "returned": (lambda net, x, t, m, r: x[m], "the shape would depend"),
    "the largest": (lambda net, x, t, m, r: x[m].max(), "the shape would depend"),
    "a softmax of rows": (
        lambda net, x, t, m, r: changed(x, r, x[r].softmax(0)),
        "computed row by row: rows meet in 'softmax'",
    ),
    "running sums": (
        lambda net, x, t, m, r: changed(x, m, x[m].cumsum(0)),
        "computed row by row: rows meet in",
    ),
    "moments of rows": (
        lambda net, x, t, m, r: changed(x, r, net.outer(net.moments.train()(net.inner(x[r])))),
        MEET,
    ),
    "their numbers": (
        lambda net, x, t, m, r: changed(x, m, x[m] * torch.arange(x[m].shape[0]).float()),
        "the shape would depend",
    ),
    "the first of them": (lambda net, x, t, m, r: x[m][:1].sum(), MEET),
    "turned around": (lambda net, x, t, m, r: changed(x, m, x[m].flip(0)), "rows meet"),
    "each with each": (lambda net, x, t, m, r: (x[r] @ x[r].T).sum(), MEET),
    "added so often": (lambda net, x, t, m, r: torch.add(x, t, alpha=x[m].shape[0]), MEET),
    "moved so far": (lambda net, x, t, m, r: torch.roll(x, [x[m].shape[0]], [0]), MEET),
    "at least": (lambda net, x, t, m, r: x.clamp(min=x[m].shape[0]), MEET),
    "a part of it": (lambda net, x, t, m, r: x.reshape(-1)[: x[m].shape[0]].sum(), MEET),
    "ones in a row": (lambda net, x, t, m, r: x[m].sum() / torch.ones(x[m].shape[0]).sum(), MEET),
    "ones like them": (lambda net, x, t, m, r: x[m].sum() / torch.ones_like(x[m]).sum(), MEET),
    "places": (
        lambda net, x, t, m, r: changed(x, m, torch.ones(x[m].shape[0]).cumsum(0)),
        MEET,
    ),
    "a table of zeros": (
        lambda net, x, t, m, r: x[m].sum() + x.new_zeros(x[m].shape[0], 2).add(1).sum(),
        MEET,
    ),
    "one more": (lambda net, x, t, m, r: torch.cat([x[m], x.new_zeros(1)]).sum(), MEET),
    "in a row with others": (lambda net, x, t, m, r: torch.cat([x[r], t[r]]).mean(), MEET),
    "a standard deviation": (lambda net, x, t, m, r: x[m].std(), MEET),
    "into what met": (lambda net, x, t, m, r: changed(x * x[m].norm(), m, x[m] * 2), MEET),
    "into what met in others": (lambda net, x, t, m, r: changed(x * x[m].prod(), x > 0, x[x > 0]), MEET),
    "a mask of what met": (lambda net, x, t, m, r: x[x > x[m].norm() - 2].sum(), MEET),
    "a mask of the first": (lambda net, x, t, m, r: changed(x, x > x[r][0], 2 * x[x > x[r][0]]), MEET),
    "their number in words": (lambda net, x, t, m, r: x.sum() * torch.full((4,), x[m].shape[0]), MEET),
    "half as many": (lambda net, x, t, m, r: x.sum() * (len(x[m]) // 2), MEET),
    "the root of it": (lambda net, x, t, m, r: x.sum() / math.sqrt(len(x[m])), MEET),
    "numbers up to it": (lambda net, x, t, m, r: sum(x.sum() for _ in range(len(x[m]))), MEET),
    "where, and one more": (lambda net, x, t, m, r: x[torch.where(r)[0] - 1].sum(), MEET),
    "where, as numbers": (lambda net, x, t, m, r: x.sum() * torch.where(r)[0].sum(), MEET),
    "where, returned": (lambda net, x, t, m, r: (x.sum(), torch.where(r)[0]), MEET),
    "where in another table": (lambda net, x, t, m, r: x[:3][torch.where(r)[0]].sum(), MEET),
    "in rows": (lambda net, x, t, m, r: x[r.nonzero()].sum(), MEET),
    "the first place": (lambda net, x, t, m, r: x[r.nonzero()[0]].sum(), MEET),
    "where, along the last axis": (lambda net, x, t, m, r: x.index_select(1, (t[0] > 0).nonzero()[:, 0]).sum(), MEET),
    "where two masks are": (lambda net, x, t, m, r: x[torch.where(r)[0], torch.where(m[0])[0]].sum(), MEET),
    "one place twice": (lambda net, x, t, m, r: (x @ x.T)[(torch.where(r)[0],) * 2].sum(), MEET),
    "put along one axis": (lambda net, x, t, m, r: changed(x, torch.where(m)[0], 1.0), MEET),
    "pairs of places": (lambda net, x, t, m, r: (torch.where(m)[0][:, None] == torch.where(m)[0]).sum() * x, MEET),
    "as many as of others": (lambda net, x, t, m, r: (x[m] * x[~m][: len(x[m])]).sum(), MEET),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_meet_are_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        from_torch(Module(function).eval(), (normal(0, 6, 4), normal(1, 6, 4)))
