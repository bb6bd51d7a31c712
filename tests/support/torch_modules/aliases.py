"""Views, their memory, and what is written into them: the rarer forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of, with_weight


def write(change: Any, *shape: int, after: Any = None) -> Case:
    """The case of a change of a copy, which is multiplied by the input."""

    def function(x: Any) -> Any:
        y = x.clone()
        change(y)
        return y * x

    return of(function, lambda r: [r(*(shape or (3, 4)))])


def assigned(place: Any, value: Any, *shape: int) -> Case:
    """The case of `y[place] = value`, the value a number or a function of what is there."""

    def change(y: Any) -> Any:
        y[place] = value(y) if callable(value) else value

    return write(change, *shape)


def fed(change: Any, inputs: Any, **settings: Any) -> Case:
    """The case of a change of a copy of the first input by the others."""

    def function(x: Any, *others: Any) -> Any:
        y = x.clone()
        change(y, *others)
        return y * x

    return of(function, inputs, **settings)


def assign(y: Any, place: Any, value: Any) -> None:
    y[place] = value


def add_at(y: Any, place: Any, value: Any) -> None:
    y[place] += value


def of_transposed_memory(x: Any) -> Any:
    """as_strided counts in memory, not in elements of the view."""
    return x.t().as_strided((2, 2), (1, 3)) * 2


def of_sliced_memory(x: Any) -> Any:
    return x[:, 1:].as_strided((3, 2), (4, 2)) * 2


def of_computed_memory(x: Any) -> Any:
    y = (x * 2).t().contiguous()
    return y.as_strided((2, 2), (1, 2), 1)


def windows_of_memory(x: Any) -> Any:
    return x.as_strided((x.shape[0] - 2, 3), (1, 1)).mean(1)


def strided_write(x: Any) -> Any:
    y = x.clone()
    y.as_strided((3,), (5,)).add_(1)
    return y * x


def same_twice(x: Any) -> Any:
    y = x.clone()
    a, b = y[0], y[:, 0]
    a += 1
    b *= 2
    return y * x + a.sum() * b.sum()


def base_after_view(x: Any) -> Any:
    y = x.clone()
    row = y[1]
    y.mul_(2)
    return row * x[0] + y.sum()


def view_of_a_view(x: Any) -> Any:
    y = x * 1
    v = y.view(2, 2, 3).transpose(0, 1)[1]
    v.exp_()
    return y * x


def reshaped_copy(x: Any) -> Any:
    """The reshape of what is transposed is a copy: the write does not arrive."""
    y = x.clone()
    z = y.t().reshape(-1)
    z.add_(1)
    return y * x + z.sum()


def flattened_view(x: Any) -> Any:
    """flatten is a view, here."""
    y = x.clone()
    y.flatten()[3] = 7.0
    return y * x


def indexed_copy(x: Any) -> Any:
    """What is indexed by a list is a copy."""
    y = x.clone()
    z = y[[0, 1]]
    z.zero_()
    return y * x + z.sum()


def contiguous_same(x: Any) -> Any:
    """contiguous() of what is contiguous is the same tensor."""
    y = x.clone()
    y.contiguous().add_(1)
    return y * x


def to_same(x: Any) -> Any:
    """to() without a change is the same tensor."""
    y = x * 2
    y.to(y.dtype).add_(1)
    return y * x


def iterated(x: Any) -> Any:
    out = torch.zeros_like(x)
    for i in range(1, x.shape[1]):
        out[:, i] = 0.5 * out[:, i - 1] + x[:, i]
    return out


def prefix(x: Any) -> Any:
    y = x.clone()
    for i in range(1, y.shape[0]):
        y[i] += y[i - 1]
    return y


def table(x: Any, y: Any) -> Any:
    """Dynamic time warping, softly."""
    cost = (x[:, None] - y[None]) ** 2
    n, m = cost.shape
    made = torch.full((n + 1, m + 1), 1e4)
    made[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            near = torch.stack([made[i - 1, j], made[i, j - 1], made[i - 1, j - 1]])
            made[i, j] = cost[i - 1, j - 1] - torch.logsumexp(-near, 0)
    return made[n, m]


def transposed_write(x: Any) -> Any:
    y = torch.zeros(4, 3)
    y.T[1:, :2] = x[:2, :2]
    return y.T * x


def flipped_write(x: Any) -> Any:
    y = x.clone()
    y[:, 1::2] = y[:, 1::2].flip(1)
    return y * x


def interleaved(x: Any, v: Any) -> Any:
    out = torch.empty(3, 8)
    out[:, 0::2], out[:, 1::2] = x.sin(), v.cos()
    return out


def rotary(x: Any) -> Any:
    """Pairs of neighbours are turned, in place."""
    y = x.clone()
    y[..., ::2], y[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return y * 0.5 + x


def padded_by_hand(x: Any) -> Any:
    out = x.new_full((5, 6), 0.25)
    out[1:-1, 1:-1] = x
    return out.unfold(0, 3, 1).sum(-1)


def ragged(x: Any) -> Any:
    out = torch.zeros(2, 3, 4)
    for i, n in enumerate([2, 3]):
        out[i, :n] = x[i, :n]
    return out


def outs(x: Any, y: Any) -> Any:
    out = torch.empty(3, 4)
    with torch.no_grad():
        torch.add(x, y, out=out)
        torch.mul(out, x, out=out)
    return out * x


def out_of_parts(x: Any) -> Any:
    out = torch.zeros(3, 4)
    with torch.no_grad():
        torch.exp(x[:, :2], out=out[:, 2:])
    return out * x


def several_names(x: Any) -> Any:
    a = b = x * 1
    a += 1
    return a * b


def default_argument(x: Any, parts: Any = None) -> Any:
    parts = [] if parts is None else parts
    for i in range(3):
        parts.append(x[i] * (parts[-1] if parts else 1))
    return torch.stack(parts).sum(0)


def lower_from_vector(v: Any) -> Any:
    """A matrix of the elements below its diagonal."""
    m = torch.zeros(v.shape[0], 3, 3)
    i, j = torch.tril_indices(3, 3)
    m[:, i, j] = v
    return m @ m.transpose(1, 2)


def softplus_diagonal(v: Any) -> Any:
    m = torch.tril(v.view(3, 3))
    d = torch.diagonal(m)
    d.copy_(F.softplus(d.clone()))
    return m @ m.t()


def skew(v: Any) -> Any:
    k = torch.zeros(3, 3)
    k[0, 1], k[0, 2], k[1, 2] = -v[2], v[1], -v[0]
    k = k - k.t()
    return torch.eye(3) + k + k @ k


def masked_rows(x: Any, m: Any) -> Any:
    y = x.clone()
    y[m] = 0.0
    return y * x


def adjacency(x: Any, edges: Any) -> Any:
    a = torch.zeros(4, 4)
    a[edges[0], edges[1]] = 1.0
    return a @ x


def histogram(x: Any, bins: Any) -> Any:
    return torch.zeros(5).scatter_add_(0, bins, x).cumsum(0)


def means_of_groups(x: Any, group: Any) -> Any:
    total = torch.zeros(3, 2).index_add_(0, group, x)
    count = torch.zeros(3).index_add_(0, group, torch.ones(5))
    return total / count.clamp(min=1).unsqueeze(1)


def beams(x: Any, i: Any) -> Any:
    """The best hypotheses are moved into their places."""
    y = torch.zeros_like(x)
    y.scatter_(1, i.unsqueeze(-1).expand(-1, -1, x.shape[2]), x)
    return y * x


def reduced(how: str, includes: bool = True) -> Case:
    def function(x: Any, i: Any, v: Any) -> Any:
        return x.scatter_reduce(1, i, v, how, include_self=includes)

    return of(function, lambda r: [r.positive(2, 3), r.ints(3, 2, 4), r.positive(2, 4)])


class Written(nn.Module):  # type: ignore[misc]
    """A padding row that is made zero in a copy of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3)

    def forward(self, i: Any) -> Any:
        weight = self.words.weight.clone()
        weight[0] = 0
        return F.embedding(i, weight)


class Positions(nn.Module):  # type: ignore[misc]
    """A table of sines that is made in forward."""

    def forward(self, x: Any) -> Any:
        s, w = x.shape[1:]
        table = torch.zeros(s, w)
        places = torch.arange(0, s, dtype=torch.float).unsqueeze(1)
        rates = torch.exp(torch.arange(0, w, 2).float() * (-4.0 / w))
        table[:, 0::2] = torch.sin(places * rates)
        table[:, 1::2] = torch.cos(places * rates)
        return x + table


def unique_pairs(r: Any) -> Any:
    return [r(3, 4), torch.tensor([0, 2]), torch.tensor([3, 1])]


CASES: Cases = {
    "memory of what is transposed": of(of_transposed_memory, lambda r: [r(3, 3)], refused="contiguous: use slices"),
    "memory of a slice": of(of_sliced_memory, lambda r: [r(3, 4)], refused="contiguous: use slices"),
    "memory of what is computed": of(of_computed_memory, lambda r: [r(3, 2)]),
    "windows of memory": of(windows_of_memory, lambda r: [r(6)]),
    "memory of an input that is transposed": of(lambda x: x.as_strided((2, 2), (1, 2)) * 1, lambda r: [r(3, 4).t()], refused="stride|memory|contiguous"),
    "an input that is transposed": of(lambda x: x.reshape(-1) * x.flatten(), lambda r: [r(3, 4).t()]),
    "an input with channels last": Case(lambda: nn.Conv2d(3, 2, 3), lambda r: [r(1, 3, 5, 5).to(memory_format=torch.channels_last)]),
    "an input that is expanded": of(lambda x: x.contiguous().view(-1) * 2, lambda r: [r(1, 4).expand(3, 4)]),
    "a strided write": of(strided_write, lambda r: [r(3, 4)]), "two views": of(same_twice, lambda r: [r(3, 3)]),
    "a view before the write": of(base_after_view, lambda r: [r(3, 4)]), "a view of a view": of(view_of_a_view, lambda r: [r(4, 3)]),

    "a copy by reshape": of(reshaped_copy, lambda r: [r(2, 3)]), "a view by flatten": of(flattened_view, lambda r: [r(2, 3)]),
    "a copy by a list": of(indexed_copy, lambda r: [r(3, 2)]), "contiguous": of(contiguous_same, lambda r: [r(3)]), "to": of(to_same, lambda r: [r(3)]),
    "a recurrence": of(iterated, lambda r: [r(2, 4)]), "a running sum": of(prefix, lambda r: [r(4, 2)]), "a table": of(table, lambda r: [r(3), r(2)]),
    "a write into a transposed view": of(transposed_write, lambda r: [r(3, 4)]), "a flipped part": of(flipped_write, lambda r: [r(2, 4)]),
    "interleaved": of(interleaved, lambda r: [r(3, 4), r(3, 4)]), "rotary": of(rotary, lambda r: [r(2, 4)]), "padded by hand": of(padded_by_hand, lambda r: [r(3, 4)]),
    "ragged": of(ragged, lambda r: [r(2, 3, 4)]), "out=": of(outs, lambda r: [r(3, 4), r(3, 4)]),
    "out= of a part": of(out_of_parts, lambda r: [r(3, 4)]), "two names": of(several_names, lambda r: [r(3)]), "a list of parts": of(default_argument, lambda r: [r(3, 4)]),
    "below the diagonal": of(lower_from_vector, lambda r: [r(2, 6)]), "softplus of the diagonal": of(softplus_diagonal, lambda r: [r(9)]), "a skew matrix": of(skew, lambda r: [r(3)]),
    "masked rows": of(masked_rows, lambda r: [r(3, 2), torch.tensor([True, False, True])]), "masked rows, others": of(masked_rows, lambda r: [r(4, 2), r.bools(4)]),
    "a mask of columns": fed(lambda y, m: assign(y, (slice(None), m), 2.0), lambda r: [r(3, 4), r.bools(4)]),
    "a mask of pixels": fed(lambda y, m: assign(y, (slice(None), slice(None), m), 2.0), lambda r: [r(1, 2, 3, 4), r.bools(3, 4)]),
    "a mask and a number": fed(lambda y, m: assign(y, (m, 1), 2.0), lambda r: [r(3, 4), r.bools(3)]),
    "a mask, a tensor without axes": fed(lambda y, m, v: assign(y, m, v), lambda r: [r(3, 4), r.bools(3, 4), r()]),
    "a mask, a row": fed(lambda y, m, v: assign(y, m, v), lambda r: [r(3, 4), r.bools(3), r(4)]),
    "a mask, of itself": fed(lambda y, m: assign(y, m, y[m] * 2), lambda r: [r(3, 4), r.bools(3, 4)]),
    "a mask, added": fed(lambda y, m: add_at(y, m, 1.0), lambda r: [r(3, 4), r.bools(3, 4)]),
    "a mask, elements": fed(lambda y, m, v: assign(y, m, v), lambda r: [r(3), torch.tensor([True, False, True]), r(2)], refused="where|masked|mask"),
    "masked_scatter_": fed(lambda y, m, v: y.masked_scatter_(m, v), lambda r: [r(3, 4), r.bools(3, 4), r(12)]),
    "adjacency": of(adjacency, lambda r: [r(4, 2), r.ints(4, 2, 5)]), "histogram": of(histogram, lambda r: [r(
        7), r.ints(5, 7)]), "means of groups": of(means_of_groups, lambda r: [r(5, 2), r.ints(3, 5)]),
    "beams": of(beams, lambda r: [r(2, 3, 4), torch.stack([torch.randperm(3, generator=r.generator) for _ in range(2)])]),
    "pairs are written": fed(lambda y, i, j: assign(y, (i, j), 2.0), unique_pairs), "pairs are added": fed(lambda y, i, j: add_at(y, (i, j), 2.0), unique_pairs),
    "columns are written": fed(lambda y, i: assign(y, (slice(None), i), y[:, :2].exp()), lambda r: [r(3, 4), torch.tensor([3, 1])]),
    "an ellipsis is written": fed(lambda y, i: assign(y, (..., i), 5.0), lambda r: [r(2, 3, 4), torch.tensor([0, -1])]),
    "a place that is fed": fed(lambda y, i: assign(y, i, 5.0), lambda r: [r(4, 2), r.ints(4).reshape(())], refused="axis|index"),
    "a row that is fed": of(lambda x, i: x[i] * x, lambda r: [r(4, 2), r.ints(4).reshape(())]),
    "negative places that are fed": fed(lambda y, i: assign(y, i, 5.0), lambda r: [r(4, 2), torch.tensor([-1, 0])]),
    "added twice": fed(lambda y, i, v: y.index_put_((i,), v, accumulate=True), lambda r: [r(4, 2), torch.tensor([1, 1, -1]), r(3, 2)]),
    "a row of zeros": assigned(1, 0.0), "the last column": assigned((slice(None), -1), 3.0), "a column of a row": assigned((slice(None), 1), lambda y: y[:, 0].exp()),
    "every second": assigned((slice(None), slice(None, None, 2)), lambda y: y[:, 1::2] * 2), "a new axis": assigned(
        (None, 0), 1.5), "an element": assigned((1, 2), lambda y: y.sum()), "all": assigned(slice(None),
        lambda y: y.flip(0)), "an ellipsis": assigned((..., 0), lambda y: y[..., 1]),
    "a list": assigned([0, 2], lambda y: y[[2, 0]]), "a list of columns": assigned((slice(None), [0, -1]), 2.0),
        "a triangle": assigned(torch.ones(3, 4).triu().bool(), -1.0), "an expanded value": assigned(slice(0, 2),
        lambda y: y[2]),
    "fill_diagonal_, wrap": write(lambda y: y.fill_diagonal_(2.0, wrap=True), 7, 3), "fill_diagonal_, wide": write(
        lambda y: y.fill_diagonal_(2.0), 3, 4), "fill_diagonal_, cube": write(lambda y: y.fill_diagonal_(2.0),
        3, 3, 3),
    "triu_": write(lambda y: y.triu_(1)), "clamp_": write(lambda y: y.clamp_(-0.5, 0.5)), "exp_ of a part": write(
        lambda y: y[:, 1:3].exp_()), "pow_": write(lambda y: y.pow_(2)), "t_": write(lambda y: y.t_().add_(1),
        3, 3), "squeeze_": write(lambda y: y.unsqueeze_(0).squeeze_(0).mul_(2)), "transpose_": write(lambda y: y.transpose_(
        0, 1), 3, 3), "addmm_": write(lambda y: y.addmm_(torch.eye(3), torch.eye(3), alpha=0.5), 3, 3),
        "lerp_": write(lambda y: y.lerp_(torch.ones(4), 0.3)), "addcdiv_": write(lambda y: y.addcdiv_(torch.ones(
        4), torch.arange(4.0) + 1)), "cumsum_": write(lambda y: y.cumsum_(1)),
    "masked_fill_ by itself": write(lambda y: y.masked_fill_(y > 0, 0.5)), "where_": write(lambda y: y.copy_(
        torch.where(y > 0, y, -y))), "tanh_ of a diagonal": write(lambda y: y.diagonal().tanh_(), 3, 3),
        "swapaxes": write(lambda y: y.swapaxes(0, 1)[0].neg_()), "movedim": write(lambda y: y.movedim(0, -1)[1].mul_(
        3)), "unfolded": write(lambda y: y.unfold(1, 2, 2).mul_(3)), "unflattened": write(lambda y: y.unflatten(
        1, (2, 2))[:, 1].mul_(0.5)),
    "dropout of columns by hand": with_weight(lambda w, x: (w.masked_fill(torch.tensor([False, True, False]), 0.0) * x), (2, 3), lambda r: [r(2, 3)]),
    "sum": reduced("sum"), "prod": reduced("prod"), "mean": reduced("mean"), "amax": reduced("amax"), "amin": reduced(
        "amin"), "amax, without itself": reduced("amax", False), "mean, without itself": reduced("mean", False),
        "sum, without itself": reduced("sum", False),
    "index_reduce": of(lambda x, i, v: x.index_reduce(0, i, v, "amax"), lambda r: [r.positive(3, 2), r.ints(3, 4), r.positive(4, 2)], refused="use scatter_add"),
    "scatter, add": of(lambda x, i: x.scatter(1, i, 2.0, reduce="add") * x, lambda r: [r(2, 3), r.ints(3, 2, 2)],
        refused="use scatter_add"), "scatter, multiply": of(lambda x, i: x.scatter(1, i, 2.0, reduce=
        "multiply") * x, lambda r: [r(2, 3), r.ints(3, 2, 2)], refused="use scatter_add"),
    "put_": of(lambda x, v: (x * 1).put_(torch.tensor([1, 4]), v) * x, lambda r: [r(2, 3), r(2)]),
        "take_along, put along": of(lambda x, i: x.scatter(1, i, x.gather(1, i) * 2), lambda r: [r(2, 3), r.ints(
        3, 2, 1)]),
    "a row of a table": Case(Written, lambda r: [r.ints(5, 2, 3)]), "positions": Case(Positions, lambda r: [r(2, 3, 4)]),
    "bits of another type": of(lambda x: x.view(torch.int32).float() * x, lambda r: [r(3)], refused="bits|view|dtype"),

}  # fmt: skip
