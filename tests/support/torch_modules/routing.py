"""Routing and ranking as strangers write them: experts, sparse attention, pruning, losses of
orders, by topk, scatter, gather, index_add and cumsum; some with masks of the smallest number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of

INF, MIN = float("inf"), torch.finfo(torch.float32).min
CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()
SEEN = torch.tensor(
    [[True, True, False, False], [True, False, False, False], [True] * 4]
)


class Experts(nn.Module):  # type: ignore[misc]
    """A mixture of experts: each token is the sum of what a few make of it."""

    def __init__(self, choose: Callable[[Any], Any]) -> None:
        super().__init__()
        self.choose, self.gate = choose, nn.Linear(3, 4, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(4, 3, 3)) for _ in "ud")

    def forward(self, x: Any) -> Any:
        weights = self.choose(self.gate(x))
        h = torch.einsum("nd,edh->neh", x, self.up).relu()
        return torch.einsum("neh,ehd,ne->nd", h, self.down, weights)


def softmax_of_top(g: Any) -> Any:
    values, places = g.topk(2, -1)
    return torch.zeros_like(g).scatter(-1, places, values.softmax(-1))


def top_of_softmax(g: Any) -> Any:
    values, places = g.softmax(-1).topk(2, -1)
    return torch.zeros_like(g).scatter(
        -1, places, values / values.sum(-1, keepdim=True)
    )


def masked_top(g: Any) -> Any:
    kept = g.topk(2, -1)[0][..., -1:]
    return g.masked_fill(g < kept, -INF).softmax(-1)


def groups(g: Any) -> Any:
    """The best of the best groups."""
    best = g.view(-1, 2, 2).amax(-1).topk(1, -1)[1]
    mask = torch.zeros(g.shape[0], 2).scatter(1, best, 1.0)
    mask = mask[..., None].expand(-1, -1, 2).reshape(g.shape)
    values, places = g.masked_fill(mask == 0, MIN).topk(2, -1)
    return torch.zeros_like(g).scatter(-1, places, values.clamp(min=-5).sigmoid())


def one_hots(g: Any) -> Any:
    values, places = g.sigmoid().topk(2, dim=-1)
    return (F.one_hot(places, 4) * values[..., None]).sum(1)


def capacity(g: Any) -> Any:
    """Switch: of the tokens of an expert only the first ones are routed."""
    p = g.softmax(-1)
    chosen = F.one_hot(p.argmax(-1), 4)
    place = chosen.cumsum(0) * chosen
    return p * chosen * (place <= 1)


def straight_through(g: Any) -> Any:
    p = g.softmax(-1)
    hard = torch.zeros_like(p).scatter(-1, p.argmax(-1, keepdim=True), 1.0)
    return hard - p.detach() + p


def expert_choice(g: Any) -> Any:
    values, places = g.softmax(-1).topk(2, 0)
    return torch.zeros_like(g).scatter(0, places, values)


def gather_rows(g: Any) -> Any:
    order = g.argsort(-1, descending=True)[:, :3]
    return torch.zeros_like(g).scatter_add(
        1, order, g.gather(1, order) * torch.arange(3.0)
    )


def sparse(value: float, k: int) -> Any:
    """Causal attention to the best keys: the first rows see fewer than k."""

    def f(q: Any, k_: Any, v: Any) -> Any:
        scores = (q @ k_.mT).masked_fill(~CAUSAL, value)
        best, places = scores.topk(k, -1)
        weights = torch.zeros_like(scores).scatter(-1, places, best.softmax(-1))
        return weights @ v

    return of(f, lambda r: [r(2, 4, 3), r(2, 4, 3), r(2, 4, 3)])


def kept(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.mT).masked_fill(~CAUSAL, MIN)
    least = scores.topk(2, -1)[0][..., -1, None]
    return torch.where(scores < least, MIN, scores).softmax(-1) @ v


def rows_of_best(q: Any, k: Any, v: Any) -> Any:
    """Each query reads the rows of its best keys."""
    places = (q @ k.mT).masked_fill(~CAUSAL, MIN).topk(3, -1)[1]
    wide = places[..., None].expand(-1, -1, -1, 3)
    keys, values = (t[:, None].expand(-1, 4, -1, -1).gather(2, wide) for t in (k, v))
    future = places > torch.arange(4)[:, None]
    scores = (q[:, :, None] * keys).sum(-1).masked_fill(future, MIN)
    return (scores.softmax(-1)[..., None] * values).sum(2)


def margins(x: Any, y: Any) -> Any:
    """A hinge for each pair in a wrong order."""
    better = y[:, :, None] > y[:, None, :]
    return (F.relu(1 - (x[:, :, None] - x[:, None, :])) * better).sum((1, 2))


def list_mle(x: Any, y: Any) -> Any:
    ordered = x.gather(1, y.argsort(1, descending=True))
    return (ordered.flip(1).logcumsumexp(1).flip(1) - ordered).sum(1)


def list_net(x: Any, y: Any) -> Any:
    return -(y.softmax(-1) * x.masked_fill(~SEEN, MIN).log_softmax(-1)).sum(-1)


def ndcg(x: Any, y: Any) -> Any:
    ranks = 0.5 + (x[:, None, :] - x[:, :, None]).sigmoid().sum(-1)
    ideal = y.sort(dim=-1, descending=True)[0]
    discounts = (torch.arange(4.0) + 2).log2()
    return ((2**y - 1) / (ranks + 1).log2()).sum(-1) / ((2**ideal - 1) / discounts).sum(
        -1
    )


def hardest(x: Any, y: Any) -> Any:
    """Triplets of the farthest of the same class, and the nearest of another."""
    distances = (x[:, None] - x[None]).square().sum(-1)
    same = y[:, None] == y[None]
    far = distances.masked_fill(~same, -INF).amax(1)
    near = distances.masked_fill(same, INF).amin(1)
    return F.relu(far - near + 0.3)


def info_nce(x: Any, y: Any) -> Any:
    scores = F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T / 0.1
    return F.cross_entropy(scores, torch.arange(len(x)))


def hard_negatives(x: Any) -> Any:
    """Mining: the largest losses of what is no object count, three for each object."""
    loss = F.softplus(x)
    negative = loss.masked_fill(SEEN, MIN)
    best = negative.topk(2, 1)[0]
    return (loss * SEEN).sum(1) + best.clamp(min=0).sum(1)


def winners(x: Any) -> Any:
    threshold = x.abs().kthvalue(3, dim=1, keepdim=True)[0]
    return x * (x.abs() >= threshold)


def sparsemax(x: Any) -> Any:
    ordered, _ = x.sort(dim=-1, descending=True)
    counts = torch.arange(1.0, x.shape[-1] + 1)
    sums = ordered.cumsum(-1)
    support = (1 + counts * ordered > sums).sum(-1, keepdim=True)
    tau = (sums.gather(-1, support - 1) - 1) / support
    return (x - tau).clamp(min=0)


def entmax(x: Any) -> Any:
    x = (x - x.amax(-1, keepdim=True)) / 2
    ordered, _ = x.topk(4, -1)
    rho = torch.arange(1.0, 5)
    mean, squares = ordered.cumsum(-1) / rho, (ordered**2).cumsum(-1) / rho
    delta = (1 - rho * (squares - mean**2)) / rho
    tau = mean - delta.clamp(min=0).sqrt()
    support = (tau <= ordered).sum(-1, keepdim=True)
    return (x - tau.gather(-1, support - 1)).clamp(min=0) ** 2


def nucleus(x: Any) -> Any:
    p, order = x.softmax(-1).sort(dim=-1, descending=True)
    drop = p.cumsum(-1) - p > 0.7
    mask = torch.zeros_like(drop).scatter(-1, order, drop)
    return x.masked_fill(mask, MIN).softmax(-1)


def k_max_pooling(x: Any) -> Any:
    places = x.topk(2, -1)[1].sort(dim=-1)[0]
    return x.gather(-1, places)


def soft_rank(x: Any) -> Any:
    return (x[..., None, :] - x[..., :, None]).tanh().sum(-1)


def median_pool(x: Any) -> Any:
    return x.unfold(-1, 3, 1).median(-1)[0]


def trimmed(x: Any) -> Any:
    return x.sort(dim=-1)[0][:, 1:-1].mean(-1)


def last_seen(x: Any) -> Any:
    """The last token that is no padding."""
    length = SEEN.sum(1)
    return x[torch.arange(3), length - 1]


def best_masked(x: Any) -> Any:
    value, place = x.masked_fill(~SEEN, MIN).max(1)
    return value * place


def running(x: Any) -> Any:
    best, place = x.masked_fill(~SEEN, MIN).cummax(1)
    return best.clamp(min=-9) * (place + 1)


def pooled(x: Any) -> Any:
    return x.masked_fill(~SEEN[..., None], MIN).amax(1), (x * SEEN[..., None]).sum(
        1
    ) / SEEN.sum(1, keepdim=True)


def additive(x: Any) -> Any:
    bias = (1.0 - SEEN.float()) * MIN
    return (x + bias).softmax(-1) * x


def log_mask(x: Any) -> Any:
    return (x + (SEEN.float() + 1e-45).log()).logsumexp(-1)


def pooled_by_sorting(x: Any, batch: Any) -> Any:
    """The mean of the nodes of each graph, by index_add."""
    sums = torch.zeros(3, x.shape[1]).index_add(0, batch, x)
    counts = torch.zeros(3).index_add(0, batch, torch.ones(len(x)))
    return sums / counts.clamp(min=1)[:, None]


def propagated(x: Any, edges: Any) -> Any:
    """A graph convolution, normalized by degrees."""
    source, target = edges
    degree = torch.ones(5).index_add(0, target, torch.ones(len(target)))
    norm = degree.rsqrt()
    return x * (norm**2)[:, None] + torch.zeros_like(x).index_add(
        0, target, x[source] * (norm[source] * norm[target])[:, None]
    )


def top_pooling(x: Any) -> Any:
    """The best nodes, gated by their scores."""
    score = x.sum(-1).tanh()
    values, places = score.topk(3)
    return x[places] * values[:, None]


def voxels(x: Any, place: Any) -> Any:
    return torch.full((4, 3), -5.0).scatter_reduce(
        0, place[:, None].expand(-1, 3), x, "amax"
    )


def segments(x: Any) -> Any:
    starts = torch.tensor([0, 0, 1, 1, 1, 2])
    return torch.zeros(4, 3).index_reduce(0, starts, x, "mean", include_self=False)


def histogram(x: Any) -> Any:
    centers = torch.linspace(-1, 1, 4)
    return (-((x.reshape(-1, 1) - centers) ** 2)).softmax(-1).sum(0)


def codes(x: Any, book: Any) -> Any:
    """Vector quantization, with a commitment."""
    places = torch.cdist(x, book).argmin(-1)
    q = book[places]
    return x + (q - x).detach(), (q - x.detach()).square().mean() + (
        q.detach() - x
    ).square().mean()


def triple(x: Any, y: Any, z: Any) -> Any:
    return torch.ops.aten.einsum("ij,jk,kl->il", [x, y, z], path=[1, 2, 0, 1])


GATES = (softmax_of_top, top_of_softmax, masked_top, groups, one_hots, capacity, straight_through, expert_choice, gather_rows)  # fmt: skip
ATTENTIONS = (kept, rows_of_best)
OF_SCORES = (winners, sparsemax, entmax, nucleus, k_max_pooling, soft_rank, median_pool, trimmed, last_seen, best_masked, running, additive, log_mask, hard_negatives, histogram)  # fmt: skip
OF_LABELS = (margins, list_mle, list_net, ndcg)

CASES: Cases = {
    **{f"experts, {f.__name__}": Case(partial(Experts, f), lambda r: [r(5, 3)]) for f in GATES},
    **{f"attention, {f.__name__}": of(f, lambda r: [r(2, 4, 3), r(2, 4, 3), r(2, 4, 3)]) for f in ATTENTIONS},
    **{f"causal attention to {k} keys, masked by {v}": sparse(v, k) for k in (2, 3, 4) for v in (MIN, -INF, -1e9)},
    **{f.__name__: of(f, lambda r: [r(3, 4)]) for f in OF_SCORES},
    **{f.__name__: of(f, lambda r: [r(3, 4), r.unit(3, 4)]) for f in OF_LABELS},
    "hardest": of(hardest, lambda r: [r(5, 3), torch.tensor([0, 1, 0, 1, 1])]), "info_nce": of(info_nce, lambda r: [r(4, 3), r(4, 3)]),
    "pooled": of(pooled, lambda r: [r(3, 4, 2)]), "graphs, a mean": of(pooled_by_sorting, lambda r: [r(5, 3),
        r.ints(3, 5)]), "graphs, a convolution": of(propagated, lambda r: [r(5, 3), r.ints(5, 2, 7)]),
        "graphs, the best nodes": of(top_pooling, lambda r: [r(5, 3)]), "voxels": of(voxels, lambda r: [r(6, 3),
        r.ints(4, 6)]), "segments": of(segments, lambda r: [r(6, 3)], refused="index_reduce|reducing"),
        "codes": of(codes, lambda r: [r(5, 3), r(4, 3)]), "a product of three": of(triple, lambda r: [r(2, 3),
        r(3, 4), r(4, 2)]),
}  # fmt: skip
