"""Integers, truth values and types: what a graph of real numbers could get wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of, with_weight

EXACT = r"integer|single precision|2\^24|uint8|int8|bits|range"


def number(function: Any, low: int = -9, high: int = 10, **settings: Any) -> Case:
    """The case of a function of integers, times an input."""
    return of(
        lambda i, x: function(i) * x,
        lambda r: [r.ints(high, 3, 4, low=low), r(3, 4)],
        **settings,
    )


def numbers(function: Any, low: int = 1, **settings: Any) -> Case:
    """The case of a function of two integer tensors, times an input."""
    return of(
        lambda i, j, x: function(i, j) * x,
        lambda r: [r.ints(10, 3, 4, low=-9), r.ints(10, 3, 4, low=low), r(3, 4)],
        **settings,
    )


def truth(function: Any) -> Case:
    return of(
        lambda a, b, x: function(a, b) * x,
        lambda r: [r.bools(3, 4), r.bools(3, 4), r(3, 4)],
    )


def bytes_of(r: Any) -> Any:
    return [r.ints(256, 3, 4).to(torch.uint8), r(3, 4)]


def normalized_image(image: Any, x: Any) -> Any:
    """Bytes of an image as numbers from -1 to 1."""
    return (image.float() / 255 - 0.5) / 0.5 * x


def hashed(i: Any, x: Any) -> Any:
    """Feature hashing with numbers that fit into 24 bits."""
    return x[(i * 31 + 7) % 4]


def mixed(i: Any) -> Any:
    i = i ^ (i >> 3)
    return ((i * 1103515245 + 12345) & 0x7FFFFFFF) % 4


def shifted_labels(x: Any, i: Any) -> Any:
    """The loss of a language model: each token from those before."""
    return F.cross_entropy(x[:, :-1].flatten(0, 1), i[:, 1:].flatten())


def ignored_labels(x: Any, i: Any) -> Any:
    labels = torch.where(i == 0, -100, i)
    return F.cross_entropy(x, labels)


def lengths_to_mask(x: Any, n: Any) -> Any:
    mask = torch.arange(x.shape[1])[None] < n[:, None]
    return (x * mask[..., None]).sum(1) / n[:, None]


def last_of_lengths(x: Any, n: Any) -> Any:
    return x[torch.arange(x.shape[0]), n - 1]


def last_by_gather(x: Any, n: Any) -> Any:
    i = (n - 1).view(-1, 1, 1).expand(-1, 1, x.shape[2])
    return x.gather(1, i).squeeze(1)


def position_ids(x: Any, mask: Any) -> Any:
    places = (mask.long().cumsum(-1) - 1).masked_fill_(mask == 0, 1)
    return F.embedding(places, x)


def from_padding(i: Any, x: Any) -> Any:
    """RoBERTa: positions of what is no padding."""
    mask = i.ne(1).int()
    places = (torch.cumsum(mask, 1).type_as(mask) * mask).long() + 1
    return x[places]


def end_of_text(i: Any, x: Any) -> Any:
    """CLIP: the token with the largest number."""
    return x[torch.arange(x.shape[0]), i.argmax(dim=-1)]


def last_non_padding(i: Any, x: Any) -> Any:
    """GPT for classification."""
    lengths = torch.eq(i, 0).int().argmax(-1) - 1
    return x[torch.arange(2), lengths % x.shape[1]]


def buckets(i: Any, x: Any) -> Any:
    """T5: near distances have buckets of their own, far ones those of logarithms."""
    relative = i[None, :] - i[:, None]
    n = relative.abs()
    is_small = n < 4
    large = 4 + (torch.log(n.float().clamp(min=1) / 4) / 1.4 * 4).to(torch.long)
    return x[
        torch.where(is_small, n, torch.minimum(large, torch.full_like(large, 7)))
        + (relative > 0) * 8
    ]


def accuracy(x: Any, i: Any) -> Any:
    return x.log_softmax(-1), (x.argmax(-1) == i).float().mean()


def dice(x: Any, i: Any) -> Any:
    p, t = x.softmax(1), F.one_hot(i, 3).movedim(-1, 1).float()
    overlap = (p * t).sum((0, 2))
    return 1 - (2 * overlap / (p.sum((0, 2)) + t.sum((0, 2)))).mean()


def confusion(x: Any, i: Any) -> Any:
    counts = torch.zeros(9).index_add(0, i * 3 + (i + 1) % 3, torch.ones(5))
    return counts.view(3, 3) * x


def packed(i: Any) -> Any:
    return (i.unsqueeze(-1) >> torch.arange(4)) & 1


def counted(x: Any) -> Any:
    n = (x > 0).sum(1)
    return x.sum(1) / n.clamp(min=1), n


def quantized(x: Any) -> Any:
    q = torch.round(x * 20).clamp(-128, 127).to(torch.int8)
    return x * (q.float() / 20)


class Codes(nn.Module):  # type: ignore[misc]
    """Weights that are stored as bytes, with a scale."""

    def __init__(self) -> None:
        super().__init__()
        codes = torch.tensor([[-128, 5, 127], [3, -7, 0]], dtype=torch.int8)
        self.register_buffer("codes", codes)
        self.scale = nn.Parameter(torch.tensor([0.1, 0.2]))

    def forward(self, x: Any) -> Any:
        return x @ (self.codes.to(x.dtype) * self.scale[:, None]).t()


class Nibbles(nn.Module):  # type: ignore[misc]
    """Two numbers in a byte."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.tensor([[18, 240]], dtype=torch.uint8))
        self.scale = nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Any) -> Any:
        w = torch.cat([self.codes & 15, self.codes >> 4], 1).to(x.dtype) - 8
        return x * w * self.scale


class Counter(nn.Module):  # type: ignore[misc]
    """A count in a buffer decides how warm the network is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("steps", torch.tensor(4))

    def forward(self, x: Any) -> Any:
        self.steps += 1
        return self.linear(x) * (self.steps / 10)


class Cumulative(nn.Module):  # type: ignore[misc]
    """An average over all batches so far."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, momentum=None)

    def forward(self, x: Any) -> Any:
        return self.norm(x)


CASES: Cases = {
    "sum": numbers(lambda i, j: i + j), "difference": numbers(lambda i, j: i - 2 * j), "product": numbers(
        lambda i, j: i * j), "true quotient": numbers(lambda i, j: i / j), "floor quotient": numbers(lambda i,
        j: i // j), "floor quotient by negatives": numbers(lambda i, j: i // -j), "truncated quotient": numbers(
        lambda i, j: torch.div(i, j, rounding_mode="trunc")), "remainder": numbers(lambda i, j: i % j),
        "remainder by negatives": numbers(lambda i, j: i % -j), "fmod": numbers(lambda i, j: torch.fmod(i, j)),
        "power": numbers(lambda i, j: i ** (j % 4)), "power of two": number(lambda i: 2**i, 0, 8), "square": number(
        lambda i: i.square()),
    "gcd": numbers(lambda i, j: torch.gcd(i, j), refused=EXACT + "|there is no operation"), "maximum": numbers(
        torch.maximum), "clamp": number(lambda i: i.clamp(-2, 5)), "clip by tensors": numbers(lambda i, j: torch.clamp(
        i, max=j)), "sign": number(torch.sign), "abs": number(torch.abs), "neg": number(lambda i: -i), "rsub": number(
        lambda i: 1 - i), "cumsum": number(lambda i: i.cumsum(1)), "cumprod": number(lambda i: i.clamp(1, 2).cumprod(
        1)), "sums": number(lambda i: i.sum(1, keepdim=True)), "prod": number(lambda i: i.prod(1, keepdim=True)),
        "maxima": number(lambda i: i.amax(1, keepdim=True) - i.min(0)[0]), "mean": number(lambda i: i.float().mean(
        )), "sorted": number(lambda i: i.sort(1)[0]), "topk": number(lambda i: i.float().topk(2, 1)[0].sum()),
        "where": number(lambda i: torch.where(i > 0, i, -i * 2)), "roll": number(lambda i: i.roll(1, 1)),
        "diff": number(lambda i: i.diff(dim=1).sum()), "tril": number(lambda i: i.tril()), "matrix product": number(
        lambda i: (i @ i.t()).sum()), "any": number(lambda i: (i == 3).any(1, keepdim=True)), "equal": number(
        lambda i: (i == i.flip(1)).long()),
    "and": numbers(lambda i, j: i & j, refused="use arithmetic"), "or": numbers(lambda i, j: i | j, refused=
        "use arithmetic"), "xor": numbers(lambda i, j: i ^ j, refused="use arithmetic"), "not": number(lambda i: ~i),
        "left shift": number(lambda i: i << 2), "right shift": number(lambda i: i >> 1), "bits": of(lambda i,
        x: packed(i) * x, lambda r: [r.ints(16, 3), r(3, 4)], refused="use arithmetic"), "and with a number": number(
        lambda i: i & 3, 0, 16, refused="use arithmetic"), "odd": number(lambda i: (i & 1).bool(), refused=
        "use arithmetic"),
    "truth, sum": truth(lambda a, b: a + b), "truth, product": truth(lambda a, b: a * b), "truth, and": truth(
        lambda a, b: a & b), "truth, or": truth(lambda a, b: a | b), "truth, xor": truth(lambda a, b: a ^ b),
        "truth, equal": truth(lambda a, b: a == b), "truth, less": truth(lambda a, b: a < b), "truth, maximum": truth(
        torch.maximum), "truth, sum of all": truth(lambda a, b: a.sum() + b.sum(1, keepdim=True)),
        "truth, cumsum": truth(lambda a, b: (a | b).cumsum(1)), "truth, mean": truth(lambda a, b: a.float().mean(
        ) + b.double().mean()), "truth, any": truth(lambda a, b: a.any() | b.all(1, keepdim=True)),
        "truth, minus": truth(lambda a, b: a.int() - b.int()), "truth, with a number": truth(lambda a, b: a +
        1 + b * 2), "truth, where": truth(lambda a, b: torch.where(a, b, ~b)), "truth, argmax": truth(lambda a,
        b: a.int().argmax(1, keepdim=True) + (~b).float().argmax(1, keepdim=True)), "truth, max": truth(lambda a,
        b: a.max(1, keepdim=True)[0]), "truth, prod": truth(lambda a, b: a.prod(1, keepdim=True)),
        "truth, sort": truth(lambda a, b: a.int().sort(1)[0]), "truth, amax": truth(lambda a, b: b.amax(1,
        keepdim=True)),
    "bytes": of(normalized_image, bytes_of), "bytes, sum": of(lambda i, x: (i + 200).float() * x, bytes_of,
        refused="wraps around"), "bytes, a mask": of(lambda x: ((x > 0).to(torch.uint8) * 255).float() * x,
        lambda r: [r(2, 3)]), "bytes, a mask too far": of(lambda x: ((x > 0).to(torch.int8) * 200).float() * x,
        lambda r: [r(2, 3)], refused="wraps around"), "bytes, product": of(lambda i, x: (i * 2) * x, bytes_of,
        refused="wraps around"), "bytes, difference": of(lambda i, x: (i - 100).float() * x, bytes_of, refused=
        "wraps around"), "bytes, negated": of(lambda i, x: (-i).float() * x, bytes_of, refused="wraps around"),
        "bytes, inverted": of(lambda i, x: (255 - i).float() * x, bytes_of), "bytes, not": of(lambda i, x: (~i).float(
        ) * x, bytes_of, refused="wraps around"), "bytes, cast": of(lambda i, x: (i.int() * 3).to(torch.uint8).float(
        ) * x, bytes_of, refused="wraps around"), "bytes, sum of all": of(lambda i, x: i.sum() * x, bytes_of),
        "bytes, cast to int8": of(lambda i, x: i.to(torch.int8).float() * x, bytes_of, refused="wraps around"),
        "words to bytes": of(lambda w, x: w.to(torch.uint8).float() * x, lambda r: [torch.zeros(2, dtype=torch.uint16),
        r(2)], refused="wraps around"), "fractions to bytes": of(lambda i, x: x * (x.clamp(0, 1) * 255).to(
        torch.uint8).float() + i, bytes_of), "fractions to int8, clamped": of(quantized, lambda r: [r(3, 4)]),
        "to int": of(lambda x: x * (x * 3).int(), lambda r: [r(3)]), "to long": of(lambda x: x * x.long() + x.to(
        torch.int32), lambda r: [r(3) * 3]), "to bool": of(lambda x: x * x.relu().bool() + x.to(torch.bool),
        lambda r: [r(3)]), "half inside": of(lambda x: x.half().float() * x, lambda r: [r(3)], tolerance=1e-2),
    "image": of(normalized_image, lambda r: [r.ints(256, 2, 3).to(torch.uint8), r(2, 3)]), "hash": of(hashed,
        lambda r: [r.ints(1000, 3), r(4, 2)]), "large hash": of(lambda i, x: x[mixed(i)], lambda r: [r.ints(
        1000, 3), r(4, 2)], refused=EXACT), "a large product": numbers(lambda i, j: (i * 5000) * (j * 5000) % 7),
        "a table of large numbers": of(lambda i, x: x[(torch.tensor([2**31 - 1, 2**40 + 3, 5]) % 4)[i]],
        lambda r: [r.ints(3, 3), r(4, 2)]), "a large number added": of(lambda i, x: x[((i + 2**33) % 4)],
        lambda r: [r.ints(9, 3), r(4, 2)]), "seconds": of(lambda i, x: ((i - 1_700_000_000) // 3600) * x,
        lambda r: [r.ints(100_000, 3) + 1_700_000_000, r(3)]),
    "shifted labels": of(shifted_labels, lambda r: [r(2, 4, 5), r.ints(5, 2, 4)]), "ignored labels": of(
        ignored_labels, lambda r: [r(6, 5), torch.tensor([0, 1, 2, 0, 3, 4])]), "lengths": of(lengths_to_mask,
        lambda r: [r(2, 4, 3), r.ints(5, 2, low=1)]), "the last of a length": of(last_of_lengths, lambda r: [r(
        2, 4, 3), r.ints(5, 2, low=1)]), "the last, gathered": of(last_by_gather, lambda r: [r(2, 4, 3), r.ints(
        5, 2, low=1)]), "places of a mask": of(position_ids, lambda r: [r(6, 3), torch.tensor([[0, 1, 1, 1], [
        1, 1, 0, 1]])]), "places after padding": of(from_padding, lambda r: [r.ints(5, 2, 4), r(7, 3)]),
        "end of text": of(end_of_text, lambda r: [r.ints(50, 2, 4), r(2, 4, 3)]),
        "the last that is no padding": of(last_non_padding, lambda r: [r.ints(3, 2, 4), r(2, 4, 3)]),
        "buckets": of(buckets, lambda r: [r.ints(30, 5), r(16, 2)]), "accuracy": of(accuracy, lambda r: [r(4,
        3), r.ints(3, 4)]), "dice": of(dice, lambda r: [r(2, 3, 4), r.ints(3, 2, 4)]), "confusion": of(
        confusion, lambda r: [r(3, 3), r.ints(3, 5)]), "counted": of(counted, lambda r: [r(3, 4)]),
    "codes": Case(Codes, lambda r: [r(2, 3)]), "nibbles": Case(Nibbles, lambda r: [r(2, 4)]), "a counter": Case(
        Counter, lambda r: [r(2, 3)]), "an average of all": Case(Cumulative, lambda r: [r(4, 3)], trains=True,
        refused="momentum|num_batches_tracked|needs the values"), "an average of all, eval": Case(Cumulative,
        lambda r: [r(4, 3)]),
    "a table that is searched": of(lambda x, t: t[torch.searchsorted(t.detach().sort()[0], x).clamp(max=3)],
        lambda r: [r(3), r(4)]), "unique of a known table": of(lambda x: x * torch.unique(torch.tensor([1, 3,
        1, 2])).float(), lambda r: [r(3)]), "nonzero of a known mask": of(lambda x: x[:, torch.nonzero(torch.tensor
        ([1, 0, 1])).squeeze(1)], lambda r: [r(2, 3)]), "a known mask as an index": of(lambda x: x[torch.tensor
        ([True, False, True])], lambda r: [r(3, 2)]), "a range of a shape": of(lambda x: x[torch.arange(x.shape[
        0] - 1, -1, -1)], lambda r: [r(3, 2)]), "a modulus of fractions": of(lambda x: x % 1.0 * x + (x * 3).floor
        (), lambda r: [r(5)]), "integers of a weight": with_weight(lambda w, x: x * w.argmax() + w.round().long(
        ).sum() * x, (4,), lambda r: [r(3)]),
    "bytes, sum with the largest": of(lambda i, x: (i + 255).float() * x, bytes_of, refused="wraps around"),
        "bytes, without the largest": of(lambda i, x: (i - 255).float() * x, bytes_of, refused="wraps around"),
        "bytes, times the largest": of(lambda i, x: (i * 255).float() * x, bytes_of, refused="wraps around"),
    "products of bytes": of(lambda i, x: (i @ i.mT).float().sum() * x, bytes_of, refused="wraps around"),
        "product of bytes": of(lambda i, x: i.prod(dtype=torch.uint8) * x, bytes_of, refused="wraps around"),
    "a product by fractions": of(lambda i, x: torch.addmm(i, i, i, beta=0.4, alpha=1.9) * x, lambda r: [r.ints(
        5, 3, 3), r(3, 3)]), "truth, a sum without": truth(lambda a, b: torch.add(a, b, alpha=False)),
    "bytes, resized": of(lambda i, x: F.interpolate(i[None, None], size=(4, 5), mode="bilinear").float().sum() * x,
        bytes_of, refused="bytes are rounded"), "bytes, antialiased": of(lambda i, x: F.interpolate(i[None,
        None], size=(4, 5), mode="bicubic", antialias=True).float().sum() * x, bytes_of, refused=
        "bytes are rounded"), "bytes, repeated": of(lambda i, x: F.interpolate(i[None, None], size=(4, 6)).float(
        ).mean() * x, bytes_of),
}  # fmt: skip
