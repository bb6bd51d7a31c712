"""Graph networks: messages that are gathered, and reduced for each node by scatter_reduce."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of

# The last node has no neighbors, and the elements of one row are extrema several times.
EDGES = torch.tensor([[0, 1, 2, 2, 3, 1, 0], [1, 0, 1, 3, 3, 3, 3]])
NODES = 5
INDEX = torch.tensor([[0, 0, 2, 2, 3, 0], [1, 1, 1, 1, 1, 4]])
GIVEN = torch.tensor([[0.0, 0.3, 5.0, 2.0, -1.0], [1.0, 0.3, 5.0, 2.0, 0.0]])
NEW = torch.tensor([[0.0, -1.0, 5.0, 5.0, 0.0, 0.4], [0.1, 0.3, 0.3, 0.3, -0.2, 0.0]])
REDUCTIONS = ("sum", "mean", "prod", "amax", "amin")


def scatter(x: Any, index: Any, reduce: str, count: int = NODES) -> Any:
    """As in torch_geometric."""
    wide = index.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    size = x.new_zeros(count, *x.shape[1:])
    if reduce == "sum":
        return size.scatter_add_(0, wide, x)
    return size.scatter_reduce_(0, wide, x, reduce=reduce, include_self=False)


def softmax(x: Any, index: Any) -> Any:
    """Over the neighbors of each node, as in torch_geometric."""
    largest = scatter(x.detach(), index, "amax")
    out = (x - largest.index_select(0, index)).exp()
    return out / (scatter(out, index, "sum") + 1e-16).index_select(0, index)


class Attention(nn.Module):  # type: ignore[misc]
    """Attention to neighbors (GAT), with two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 8, bias=False)
        self.source, self.target = (nn.Parameter(torch.randn(1, 2, 4)) for _ in "st")

    def forward(self, x: Any, edges: Any) -> Any:
        h = self.linear(x).view(-1, 2, 4)
        source, target = edges
        s, t = (h * self.source).sum(-1), (h * self.target).sum(-1)
        alpha = softmax(F.leaky_relu(s[source] + t[target], 0.2), target)
        return scatter(h[source] * alpha.unsqueeze(-1), target, "sum").flatten(1)


class Edge(nn.Module):  # type: ignore[misc]
    """The largest of what a network makes of pairs of nodes (EdgeConv)."""

    def __init__(self, reduce: str) -> None:
        super().__init__()
        self.reduce = reduce
        self.network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        pairs = torch.cat([x[target], x[source] - x[target]], -1)
        return scatter(self.network(pairs), target, self.reduce)


class Several(nn.Module):  # type: ignore[misc]
    """Several reductions, scaled by degrees (PNA)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 3)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        h = x[source]
        mean, squares = (scatter(v, target, "mean") for v in (h, h * h))
        std = (squares - mean * mean).clamp(min=1e-5).sqrt()
        parts = [mean, std, scatter(h, target, "amax"), scatter(h, target, "amin")]
        degree = scatter(torch.ones_like(h[:, :1]), target, "sum")
        out = torch.cat(parts, -1)
        return self.linear(torch.cat([out, out * (degree + 1).log()], -1))


def reduced(reduce: str, includes: bool) -> dict[str, Case]:
    def f(x: Any, new: Any, index: Any) -> Any:
        return x.scatter_reduce(1, index, new, reduce, include_self=includes)

    name = f"{reduce}, {'with' if includes else 'without'} itself"
    return {
        name: of(f, lambda r: [GIVEN.clone(), NEW.clone(), INDEX.clone()]),
        f"{name}, random": of(f, lambda r: [r(2, 5), r(2, 6), r.ints(5, 2, 6)]),
        f"{name}, known indices": of(lambda x, y: f(x, y, INDEX), lambda r: [r(2, 5), r(2, 6)]),
        f"{name}, zeros": of(lambda y, i: f(torch.zeros_like(y), y.relu(), i), lambda r: [r(2, 6), r.ints(6, 2, 6)]),
        f"{name}, smallest": of(lambda y: f(torch.ones(2, 5), y, INDEX), lambda r: [torch.full((2, 6), torch.finfo(torch.float32).min if reduce[0] == "a" else 0.5)]),
    }  # fmt: skip


def with_loops(x: Any) -> Any:
    """The means of neighbors, without edges from a node to itself, and then with these."""
    edges = EDGES[:, EDGES[0] != EDGES[1]]
    loops = torch.arange(x.shape[0]).expand(2, -1)
    source, target = torch.cat([edges, loops], 1)
    return scatter(x[source], target, "mean")


def of_classes(x: Any) -> Any:
    """The rows of a known class."""
    classes = torch.tensor([1, 0, 2, 1, 1])
    return x[(classes == 1).nonzero().squeeze(1)] * x[classes == 1].sum(0)


CASES: Cases = {
    "edges without loops": of(with_loops, lambda r: [r(NODES, 3)]),
    "rows of a class": of(of_classes, lambda r: [r(NODES, 3)]),
    **{name: case for r in REDUCTIONS for i in (False, True) for name, case in reduced(r, i).items()},
    "mean of integers": of(lambda x, i: x.scatter_reduce(0, i, x, "mean"), lambda r: [r.ints(9, 4), r.ints(4, 4)], refused="mean of integers is rounded"),
    "largest of integers": of(lambda x, y, i: x.scatter_reduce(0, i, x + 1, "amax", include_self=False) * y, lambda r: [r.ints(9, 4), r(4), r.ints(4, 4)]),
    "softmax of neighbors": of(lambda x: softmax(x, EDGES[1]), lambda r: [r(7, 2)]),
    "attention": Case(Attention, lambda r: [r(NODES, 3), EDGES.clone()]),
    **{f"edges, {r}": Case(partial(Edge, r), lambda d: [d(NODES, 3), EDGES.clone()]) for r in REDUCTIONS},
    "several aggregations": Case(Several, lambda r: [r(NODES, 3), EDGES.clone()]),
}  # fmt: skip
