"""Networks for sequences, text and sound, in small."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases
from support.torch_modules.networks import RMS, Attention, Block, seq, turned


class Alibi(nn.Module):  # type: ignore[misc]
    """Distances as a bias, with a slope for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q, k, v = (t.view(b, s, 2, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        places = torch.arange(s)
        slopes = torch.tensor([2.0 ** -(i + 1) for i in range(2)])
        bias = slopes[:, None, None] * (places[None] - places[:, None]).float()
        mask = torch.triu(torch.full((s, s), float("-inf")), diagonal=1)
        scores = q @ k.mT / 2 + bias + mask
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, w)


class Grouped(nn.Module):  # type: ignore[misc]
    """Mistral: groups of heads, a window, a cache of keys that is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        b, s, _ = x.shape
        q = self.q(x).view(b, s, 2, 4).transpose(1, 2)
        k = torch.cat([keys, self.k(x).view(b, s, 1, 4).transpose(1, 2)], 2)
        v = torch.cat([values, self.v(x).view(b, s, 1, 4).transpose(1, 2)], 2)
        k_all, v_all = (t.repeat_interleave(2, dim=1) for t in (k, v))
        total = k.shape[2]
        i = torch.arange(s)[:, None] + total - s
        j = torch.arange(total)[None]
        mask = (j <= i) & (j > i - 3)
        y = F.scaled_dot_product_attention(q, k_all, v_all, attn_mask=mask)
        return y.transpose(1, 2).reshape(b, s, 8), k, v


class Rope(nn.Module):  # type: ignore[misc]
    """Angles of places that are fed, in tables that grow with the length."""

    def __init__(self) -> None:
        super().__init__()
        rates = 1.0 / (10000 ** (torch.arange(0, 4, 2) / 4))
        self.register_buffer("rates", rates, persistent=False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def angles(self, places: Any) -> Any:
        rates = self.rates[None, :, None].float().expand(places.shape[0], -1, 1)
        turns = (rates @ places[:, None, :].float()).transpose(1, 2)
        both = torch.cat((turns, turns), dim=-1)
        return both.cos(), both.sin()

    def forward(self, q: Any, places: Any) -> Any:
        cos, sin = (t.unsqueeze(1).to(q.dtype) for t in self.angles(places))
        return q * cos + turned(q) * sin


class Neighbours(nn.Module):  # type: ignore[misc]
    """GPT-J: neighbours are turned, and interleaved again."""

    def forward(self, x: Any) -> Any:
        s = x.shape[1]
        turns = torch.arange(s)[:, None] * torch.tensor([1.0, 0.1])
        sin, cos = (t.repeat_interleave(2, 1)[None] for t in (turns.sin(), turns.cos()))
        even, odd = x[:, :, ::2], x[:, :, 1::2]
        other = torch.stack((-odd, even), -1).flatten(-2)
        return x * cos + other * sin


class Relative(nn.Module):  # type: ignore[misc]
    """Transformer-XL: scores of distances, shifted by a reshape."""

    def __init__(self) -> None:
        super().__init__()
        self.r = nn.Parameter(torch.arange(20.0).view(5, 4) / 20)
        self.u = nn.Parameter(torch.ones(4) * 0.1)

    def forward(self, x: Any) -> Any:
        ac = torch.einsum("bid,bjd->bij", x + self.u, x)
        bd = torch.einsum("bid,jd->bij", x, self.r)
        b, n, m = bd.shape
        padded = torch.cat([bd.new_zeros(b, n, 1), bd], -1).view(b, m + 1, n)
        shifted = padded[:, 1:].reshape(b, n, m)
        return (ac + shifted[..., :n]).softmax(-1) @ x


class Disentangled(nn.Module):  # type: ignore[misc]
    """DeBERTa: scores of contents and of places, gathered by distance."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(7, 4)

    def forward(self, x: Any) -> Any:
        s = x.shape[1]
        distance = torch.arange(s)[:, None] - torch.arange(s)[None]
        index = (distance + 3).clamp(0, 6)
        scores = x @ self.places.weight.t()
        picked = scores.gather(-1, index.expand(x.shape[0], s, s))
        return ((x @ x.mT + picked) / math.sqrt(12)).softmax(-1) @ x


class Linear(nn.Module):  # type: ignore[misc]
    """Attention without a softmax, causal by sums that run."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("bsd,bse->bsde", k, v).cumsum(1)
        z = torch.einsum("bsd,bsd->bs", q, k.cumsum(1))
        return torch.einsum("bsd,bsde->bse", q, kv) / (z.unsqueeze(-1) + 1e-6)


class Performer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("features", torch.arange(20.0).view(5, 4).sin())

    def forward(self, x: Any) -> Any:
        h = x @ self.features.t() - (x * x).sum(-1, keepdim=True) / 2
        phi = (h - h.amax((-1, -2), keepdim=True).detach()).exp() + 1e-4
        return (phi @ (phi.mT @ x)) / (phi @ phi.sum(1, keepdim=True).mT)


class Chunked(nn.Module):  # type: ignore[misc]
    """Longformer: blocks that look at their neighbours."""

    def forward(self, x: Any) -> Any:
        b, s, w = x.shape
        q = x.view(b, s // 2, 2, w)
        padded = F.pad(x, (0, 0, 2, 2))
        k = padded.unfold(1, 6, 2).transpose(2, 3)
        places = torch.arange(s).view(s // 2, 2)
        others = (torch.arange(s // 2) * 2 - 2)[:, None] + torch.arange(6)
        inside = (others >= 0) & (others < s)
        near = (places[:, :, None] - others[:, None]).abs() <= 2
        scores = torch.einsum("bnid,bnjd->bnij", q, k)
        scores = scores.masked_fill(~(inside[:, None] & near), -1e9)
        return (scores.softmax(-1) @ k).reshape(b, s, w)


class Copying(nn.Module):  # type: ignore[misc]
    """A pointer network: probabilities of words that are copied are added."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.gate = nn.Linear(4, 7), nn.Linear(4, 1)

    def forward(self, h: Any, weights: Any, source: Any) -> Any:
        gate = torch.sigmoid(self.gate(h))
        words = gate * self.out(h).softmax(-1)
        copied = (1 - gate) * weights.softmax(-1)
        return words.scatter_add(1, source, copied).clamp(min=1e-9).log()


class Captions(nn.Module):  # type: ignore[misc]
    """An LSTM of cells over packed lengths, with a mask in the place of packing."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.out = (
            nn.Embedding(9, 4, padding_idx=0),
            nn.LSTMCell(4, 5),
            nn.Linear(5, 9),
        )

    def forward(self, i: Any) -> Any:
        x, mask = self.words(i), (i != 0).float()
        h, c, made = x.new_zeros(x.size(0), 5), x.new_zeros(x.size(0), 5), []
        for step in range(x.size(1)):
            new = self.cell(x[:, step], (h, c))
            m = mask[:, step, None]
            h, c = (m * a + (1 - m) * b for a, b in zip(new, (h, c), strict=True))
            made.append(self.out(h))
        return torch.stack(made, 1)


class Packed(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Any, n: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, n, batch_first=True, enforce_sorted=False
        )
        return self.gru(packed)[1]


class Peephole(nn.Module):  # type: ignore[misc]
    """An LSTM by hand, with four gates in one product."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Linear(3, 16), nn.Linear(4, 16, bias=False)
        self.peep = nn.Parameter(torch.ones(3, 4) * 0.1)

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros(x.shape[0], 4)
        for xt in x.unbind(1):
            i, f, g, o = (self.w(xt) + self.u(h)).chunk(4, 1)
            i, f = (
                torch.sigmoid(i + self.peep[0] * c),
                torch.sigmoid(f + self.peep[1] * c),
            )
            c = f * c + i * torch.tanh(g)
            h = torch.sigmoid(o + self.peep[2] * c) * torch.tanh(c)
        return h


class Tree(nn.Module):  # type: ignore[misc]
    """Children are joined, from the leaves up."""

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Bilinear(3, 3, 3)

    def forward(self, x: Any) -> Any:
        level = list(x.unbind(0))
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=True)
            level = [torch.tanh(self.join(a, b)) for a, b in pairs]
        return level[0]


class Turing(nn.Module):  # type: ignore[misc]
    """A memory that is read, erased and written."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.erase, self.add = (nn.Linear(3, 4) for _ in range(3))

    def forward(self, x: Any, memory: Any) -> Any:
        for step in range(x.shape[1]):
            k = self.key(x[:, step])
            w = F.softmax(5 * F.cosine_similarity(memory, k.unsqueeze(1), dim=-1), 1)
            w = torch.roll(w, 1, 1) * 0.3 + w * 0.7
            w = w.pow(2) / w.pow(2).sum(1, keepdim=True)
            erase = torch.sigmoid(self.erase(x[:, step]))
            memory = memory * (1 - w.unsqueeze(2) * erase.unsqueeze(1))
            memory = memory + w.unsqueeze(2) * self.add(x[:, step]).unsqueeze(1)
        return memory


class Adaptive(nn.Module):  # type: ignore[misc]
    """Adaptive computation time, with masks in the place of a loop that ends."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.halt = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: Any) -> Any:
        left, total = torch.ones(x.shape[0], 1), torch.zeros_like(x)
        for step in range(4):
            x = torch.tanh(self.step(x))
            p = torch.sigmoid(self.halt(x)) if step < 3 else torch.ones(x.shape[0], 1)
            p = torch.minimum(p, left)
            total, left = total + p * x, left - p
        return total, left


class Switch(nn.Module):  # type: ignore[misc]
    """Mixtral: experts in a loop, each with the weight of its rank or zero; load balance."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3, bias=False)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        hot = F.one_hot(chosen, 3)
        total = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            share = (weights * (chosen == i)).sum(-1, keepdim=True)
            total = total + share * expert(x)
        load = hot.float().sum(1).mean(0)
        return total, (load * self.gate(x).softmax(-1).mean(0)).sum() * 3


class Routed(Switch):
    """The same by indices of the tokens of each expert, whose number depends on values."""

    def forward(self, x: Any) -> Any:
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == i)
            out.index_add_(0, rows, expert(x[rows]))
        return out


class Hyena(nn.Module):  # type: ignore[misc]
    """A long filter of a small network, by a causal convolution of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = seq(nn.Linear(1, 4), nn.SiLU(), nn.Linear(4, 3))

    def forward(self, x: Any) -> Any:
        s = x.shape[2]
        t = torch.linspace(0, 1, s).unsqueeze(1)
        kernel = (self.filter(t) * torch.exp(-3 * t)).t().unsqueeze(1)
        return F.conv1d(F.pad(x, (s - 1, 0)), kernel.flip(-1), groups=3) * x


class Conformer(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(4), nn.Conv1d(4, 8, 1)
        self.depth, self.stats = (
            nn.Conv1d(4, 4, 3, padding=1, groups=4),
            nn.BatchNorm1d(4),
        )
        self.attention = Attention(4)

    def forward(self, x: Any) -> Any:
        h = F.glu(self.up(self.norm(x).transpose(1, 2)), dim=1)
        h = F.silu(self.stats(self.depth(h))).transpose(1, 2)
        return self.attention(x + h) + x * 0.5


class Transducer(nn.Module):  # type: ignore[misc]
    """The joint network of an RNN-T."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 5)

    def forward(self, a: Any, b: Any) -> Any:
        return self.out(torch.tanh(a.unsqueeze(2) + b.unsqueeze(1))).log_softmax(-1)


class Spectrum(nn.Module):  # type: ignore[misc]
    """A filter bank with cosines and sines in a convolution."""

    def __init__(self) -> None:
        super().__init__()
        n, k = torch.arange(8.0), torch.arange(5.0)[:, None]
        turns = 2 * math.pi * n * k / 8
        self.register_buffer("bank", torch.cat([turns.cos(), -turns.sin()])[:, None])

    def forward(self, x: Any) -> Any:
        real, imaginary = F.conv1d(x[:, None], self.bank, stride=4).chunk(2, 1)
        return torch.log(real.square() + imaginary.square() + 1e-6)


class Smoothed(nn.Module):  # type: ignore[misc]
    """Label smoothing by hand, with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 6)

    def forward(self, x: Any, target: Any) -> Any:
        logp = self.out(x).log_softmax(-1)
        nll = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        loss = 0.9 * nll - 0.1 * logp.mean(-1)
        keep = target.ne(0)
        return (loss * keep).sum() / keep.sum().clamp(min=1)


class Preference(nn.Module):  # type: ignore[misc]
    """DPO: two sequences under a policy and a reference that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.reference = nn.Embedding(7, 7), nn.Embedding(7, 7)
        self.reference.requires_grad_(False)

    def score(self, model: Any, i: Any) -> Any:
        logp = model(i[:, :-1]).log_softmax(-1)
        return logp.gather(2, i[:, 1:, None]).squeeze(2).sum(1)

    def forward(self, good: Any, bad: Any) -> Any:
        with torch.no_grad():
            base = self.score(self.reference, good) - self.score(self.reference, bad)
        gain = self.score(self.policy, good) - self.score(self.policy, bad)
        return -F.logsigmoid(0.1 * (gain - base)).mean()


class Advantage(nn.Module):  # type: ignore[misc]
    """Generalized advantages, backwards in time, without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(3, 1)

    def forward(self, x: Any, reward: Any) -> Any:
        value = self.value(x).squeeze(-1)
        with torch.no_grad():
            advantage = torch.zeros(x.shape[0])
            made: list[Any] = []
            for t in reversed(range(x.shape[1] - 1)):
                delta = reward[:, t] + 0.9 * value[:, t + 1] - value[:, t]
                advantage = delta + 0.8 * advantage
                made.insert(0, advantage)
            target = torch.stack(made, 1) + value[:, :-1]
        return F.mse_loss(value[:, :-1], target)


class Distributional(nn.Module):  # type: ignore[misc]
    """QR-DQN: the loss of quantiles."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 4)

    def forward(self, x: Any, target: Any) -> Any:
        q = self.net(x)
        u = target.detach().unsqueeze(1) - q.unsqueeze(2)
        tau = (torch.arange(4) + 0.5) / 4
        loss = F.huber_loss(u, torch.zeros_like(u), reduction="none")
        return ((tau.view(1, -1, 1) - (u.detach() < 0).float()).abs() * loss).mean()


class Dueling(nn.Module):  # type: ignore[misc]
    """DQN: the target is the best of a network that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.v, self.target = nn.Linear(3, 4), nn.Linear(3, 1), nn.Linear(3, 4)

    def forward(self, x: Any, action: Any, reward: Any, after: Any, done: Any) -> Any:
        a = self.a(x)
        q = (self.v(x) + a - a.mean(1, keepdim=True)).gather(1, action[:, None])[:, 0]
        with torch.no_grad():
            best = self.target(after).max(1)[0]
            wanted = reward + 0.9 * best * ~done
        return F.smooth_l1_loss(q, wanted)


def tokens(high: int, *shape: int) -> Any:
    return lambda r: [r.ints(high, *shape)]


def at(*shape: int) -> Any:
    return lambda r: [r(*shape)]


def three(*shape: int) -> Any:
    return lambda r: [r(*shape), r(*shape), r(*shape)]


CASES: Cases = {
    "alibi": Case(Alibi, at(2, 4, 8)), "grouped, with a cache": Case(Grouped, lambda r: [r(1, 2, 8), r(1, 1, 3,
        4), r(1, 1, 3, 4)]), "rope": Case(Rope, lambda r: [r(2, 2, 3, 4), r.ints(9, 2, 3)]),
        "rope of neighbours": Case(Neighbours, at(2, 3, 4)), "relative": Case(Relative, at(2, 5, 4)),
        "disentangled": Case(Disentangled, at(2, 5, 4)), "linear attention": Case(Linear, three(2, 4, 3)),
        "performer": Case(Performer, at(2, 3, 4)), "chunked": Case(Chunked, at(1, 6, 4)), "copying": Case(
        Copying, lambda r: [r(3, 4), r(3, 5), r.ints(7, 3, 5)]),
    "captions": Case(Captions, tokens(9, 2, 3)), "packed": Case(Packed, lambda r: [r(2, 3, 3), torch.tensor([3,
        2])], refused="pack|pad|depend|torch cannot export"), "peepholes": Case(Peephole, at(2, 3, 3)), "tree": Case(
        Tree, at(4, 3)), "turing": Case(Turing, lambda r: [r(2, 2, 3), r(2, 5, 4)]), "adaptive": Case(Adaptive,
        at(3, 3)), "switch": Case(Switch, at(5, 4)), "routed": Case(Routed, at(5, 4)), "hyena": Case(Hyena, at(
        2, 3, 5)), "conformer": Case(Conformer, at(2, 3, 4)), "transducer": Case(Transducer, lambda r: [r(1, 3,
        4), r(1, 2, 4)]), "spectrum": Case(Spectrum, at(2, 16)),
    "smoothed": Case(Smoothed, lambda r: [r(2, 3, 4), r.ints(6, 2, 3)]), "preference": Case(Preference, lambda r: [
        r.ints(7, 2, 4), r.ints(7, 2, 4)]), "advantage": Case(Advantage, lambda r: [r(2, 4, 3), r(2, 4)]),
        "distributional": Case(Distributional, lambda r: [r(3, 3), r(3, 4)]), "dueling": Case(Dueling, lambda r: [
        r(3, 3), r.ints(4, 3), r(3), r(3, 3), r.bools(3)]), "normed": Case(lambda: seq(RMS(4), nn.Linear(4, 4),
        RMS(4)), at(2, 4)), "two blocks, train": Case(lambda: seq(Block(8, True), Block(8, True)), at(1, 3, 8),
        trains=True),
    "bidirectional, layers": Case(lambda: nn.LSTM(3, 2, 2, bidirectional=True), at(3, 2, 3)),
        "lstm, not batched": Case(lambda: nn.LSTM(3, 4), at(3, 3)), "lstm with states": Case(lambda: nn.LSTM(3,
        4), lambda r: [r(3, 2, 3), (r(1, 2, 4), r(1, 2, 4))]), "gru cell": Case(lambda: nn.GRUCell(3, 4),
        lambda r: [r(2, 3), r(2, 4)]), "rnn cell, no state": Case(lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
        at(2, 3)), "lstm, one step": Case(lambda: nn.LSTM(3, 4, batch_first=True), at(2, 1, 3)), "lstm, long": Case(
        lambda: nn.LSTM(2, 2, batch_first=True), at(1, 40, 2)),
    "encoder, causal": Case(lambda: Masked(), at(2, 4, 8)), "attention of two": Case(lambda: nn.MultiheadAttention(
        8, 2, kdim=3, vdim=5, batch_first=True), lambda r: [r(2, 3, 8), r(2, 4, 3), r(2, 4, 5)]),
        "attention, bias of keys": Case(lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
        three(3, 2, 8)), "attention, each head": Case(lambda: nn.MultiheadAttention(8, 2, bias=False), lambda r: {
        "query": r(3, 2, 8), "key": r(3, 2, 8), "value": r(3, 2, 8), "average_attn_weights": False}),
        "attention, mask of numbers": Case(lambda: nn.MultiheadAttention(8, 2), lambda r: {"query": r(3, 2, 8),
        "key": r(3, 2, 8), "value": r(3, 2, 8), "attn_mask": torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(
        1).bool(), float("-inf"))}), "attention, not batched": Case(lambda: nn.MultiheadAttention(8, 2), three(
        3, 8)),
}  # fmt: skip


class Masked(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.encoder(x, mask=mask, is_causal=True)
