"""Settings of layers and functions that an exporter may lose."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_modules import Case, Cases, of, with_weight


def ids(*numbers: int) -> Any:
    return torch.tensor(numbers)


class Shared(nn.Module):  # type: ignore[misc]
    """One embedding for the encoder, the decoder and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4, padding_idx=1)
        self.body = nn.Linear(4, 4)

    def forward(self, source: Any, target: Any) -> Any:
        h = self.body(self.words(source).mean(1, keepdim=True) + self.words(target))
        logits = h @ self.words.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=1)


class Bag(nn.Module):  # type: ignore[misc]
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(6, 3, mode=mode)

    def forward(self, i: Any) -> Any:
        return self.bag(i)


def put_at(x: Any, places: Any, row: Any) -> Any:
    """The same row at all places, some of which are equal."""
    y = x * 1
    y[places] = row.to(x.dtype)
    return y * x


def attention(**options: Any) -> Any:
    return lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, *m, **options)


def heads(r: Any) -> list[Any]:
    return [r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4)]


def whole_row_masked(r: Any) -> list[Any]:
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    mask[1] = False
    return [*heads(r), mask]


def image(r: Any) -> list[Any]:
    return [r(2, 3, 7, 6)]


def classes(r: Any) -> list[Any]:
    return [r(4, 5), r.ints(5, 4)]


def probabilities(r: Any) -> list[Any]:
    return [r(4, 5), r(4, 5).softmax(1)]


CASES: Cases = {
    "padding_idx": Case(lambda: nn.Embedding(6, 3, padding_idx=2), lambda r: [r.ints(6, 2, 5)]),
    "padding_idx, negative": Case(lambda: nn.Embedding(6, 3, padding_idx=-1), lambda r: [r.ints(6, 2, 5)]),
    "max_norm": Case(lambda: nn.Embedding(6, 3, max_norm=1.0), lambda r: [ids(1, 4, 2)], refused="max_norm|embedding_renorm|writes"),
    "scale_grad_by_freq": Case(lambda: nn.Embedding(6, 3, scale_grad_by_freq=True), lambda r: [ids(1, 1, 2)], refused="scale_grad_by_freq"),
    "shared embedding": Case(Shared, lambda r: [r.ints(7, 2, 3), r.ints(7, 2, 3, low=2)]),
    "bag of means": Case(lambda: Bag("mean"), lambda r: [r.ints(6, 2, 4)]),
    "bag of sums": Case(lambda: Bag("sum"), lambda r: [r.ints(6, 2, 4)]),
    "avg_pool, divisor": of(lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4), image),
    "avg_pool, padding": of(lambda x: F.avg_pool2d(x, 3, 2, 1), image),
    "avg_pool, padding does not count": of(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), image),
    "avg_pool, ceil": of(lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), image),
    "avg_pool, ceil and padding": of(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), image),
    "avg_pool1d": of(lambda x: F.avg_pool1d(x, 3, 2, 1), lambda r: [r(2, 3, 7)]),
    "avg_pool3d": of(lambda x: F.avg_pool3d(x, 2), lambda r: [r(1, 2, 4, 4, 5)]),
    "max_pool, ceil": of(lambda x: F.max_pool2d(x, 2, ceil_mode=True), image),
    "max_pool, dilation": of(lambda x: F.max_pool2d(x, 2, 1, dilation=2), image),
    "max_pool, padding of negatives": of(lambda x: F.max_pool2d(-x.abs() - 1, 3, 2, 1), image),
    "lp_pool": of(lambda x: F.lp_pool2d(x, 2, 2), lambda r: [r.positive(1, 2, 4, 4)]),
    "adaptive average": of(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), image),
    "adaptive average, one axis": of(lambda x: F.adaptive_avg_pool2d(x, (None, 3)), image),
    "adaptive maximum": of(lambda x: F.adaptive_max_pool2d(x, (3, 4)), image),
    "negative index": of(lambda x: x[:, -1] * x[-2], lambda r: [r(3, 3)]),
    "negative indices in a list": of(lambda x: x[[0, -1, -2]], lambda r: [r(4, 2)]),
    "negative indices that are fed": of(lambda x, i: x[i], lambda r: [r(4, 2), ids(-1, 0, -3)]),
    "pairs of indices": of(lambda x, i, j: x[i, j], lambda r: [r(4, 5), r.ints(4, 3), r.ints(5, 3)]),
    "an index and a slice": of(lambda x, i: x[:, i, 1:], lambda r: [r(2, 4, 3), r.ints(4, 3)]),
    "indices with a gap": of(lambda x, i: x[i, :, i], lambda r: [r(3, 2, 3), r.ints(3, 2)]),
    "indices that are broadcast": of(lambda x, i, j: x[i[:, None], j], lambda r: [r(4, 5), r.ints(4, 3), r.ints(5, 2)]),
    "take_along_dim": of(lambda x, i: x.take_along_dim(i, 1), lambda r: [r(3, 4), r.ints(4, 3, 2)]),
    "take_along_dim, from the end": of(lambda x, i: x.take_along_dim(i, 1), lambda r: [r(3, 4), r.ints(4, 3, 2, low=-4)]),
    "a row at indices that repeat": of(lambda x, i: put_at(x, i, torch.tensor([2.0, -3.0])), lambda r: [r(4, 2), r.ints(4, 3)]),
    "a column at indices that repeat": of(lambda x, i: put_at(x.T, i, torch.tensor([2.0, -3.0, 1.0])), lambda r: [r(3, 4), r.ints(4, 6, low=-4)]),
    "index_fill at indices that repeat": of(lambda x, i: x.index_fill(1, i, -2.5) * x, lambda r: [r(2, 4), r.ints(4, 6)]),
    "padding_idx from the end": of(lambda x: F.embedding_bag(torch.tensor([[1, 3], [0, 2]]), x, padding_idx=-1), lambda r: [r(4, 2)], refused="padding_idx"),
    "moments of a normalization": of(lambda x: torch.native_layer_norm(x, [3], None, None, 1e-5)[1] * x, lambda r: [r(2, 3)], refused="first result"),
    "gather": of(lambda x, i: x.gather(0, i), lambda r: [r(3, 4), r.ints(3, 2, 4)]),
    "index_select": of(lambda x, i: x.index_select(1, i), lambda r: [r(3, 4), r.ints(4, 3)]),
    "take": of(lambda x, i: x.take(i), lambda r: [r(3, 4), r.ints(12, 5)]),
    "hash of integers": of(lambda x, i: x[(i * 2654435761) % 4], lambda r: [r(4, 2), r.ints(1000, 3)]),
    "small arithmetic of integers": of(lambda x, i: x[(i * 3 + 1) % 4], lambda r: [r(4, 2), r.ints(100, 5)]),
    "integer division": of(lambda x, i: x[i // 3] * (i % 3).unsqueeze(1), lambda r: [r(4, 2), r.ints(12, 5)]),
    "cross entropy": of(F.cross_entropy, classes),
    "cross entropy of probabilities": of(F.cross_entropy, probabilities),
    "cross entropy, smoothed": of(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), classes),
    "cross entropy of probabilities, smoothed": of(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), probabilities),
    "cross entropy, ignored": of(lambda x, t: F.cross_entropy(x, t, ignore_index=2), lambda r: [r(6, 5), ids(0, 2, 1, 2, 4, 3)]),
    "cross entropy, weighted": with_weight(lambda w, x, t: F.cross_entropy(x, t, weight=w.abs().detach()), (5,), classes),
    "cross entropy, sum": of(lambda x, t: F.cross_entropy(x, t, reduction="sum"), classes),
    "cross entropy of images": of(F.cross_entropy, lambda r: [r(2, 4, 3, 3), r.ints(4, 2, 3, 3)]),
    "cross entropy, all": of(lambda x, t: F.cross_entropy(x, t, ignore_index=-100, label_smoothing=0.2, reduction="none"), classes),
    "nll": of(lambda x, t: F.nll_loss(x.log_softmax(1), t), classes),
    "bce": of(lambda x, t: F.binary_cross_entropy(x.sigmoid(), t), lambda r: [r(4, 3), r.unit(4, 3)]),
    "bce with logits, weights": of(lambda x, t, p: F.binary_cross_entropy_with_logits(x, t.detach(), pos_weight=p.detach()), lambda r: [r(4, 3), r.unit(4, 3), r.positive(3)]),
    "kl_div": of(lambda x, t: F.kl_div(x.log_softmax(1), t.softmax(1), reduction="batchmean"), lambda r: [r(4, 3), r(4, 3)]),
    "kl_div, log target": of(lambda x, t: F.kl_div(x.log_softmax(1), t.log_softmax(1), log_target=True, reduction="sum"), lambda r: [r(4, 3), r(4, 3)]),
    "smooth_l1, beta": of(lambda x, t: F.smooth_l1_loss(x, t, beta=0.3), lambda r: [r(4, 3), r(4, 3)]),
    "huber, delta": of(lambda x, t: F.huber_loss(x, t, delta=0.3), lambda r: [r(4, 3), r(4, 3)]),
    "mse, sum": of(lambda x, t: F.mse_loss(x, t, reduction="sum"), lambda r: [r(4, 3), r(4, 3)]),
    "triplet": of(F.triplet_margin_loss, lambda r: [r(4, 3), r(4, 3), r(4, 3)]),
    "triplet, swapped": of(lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=2.0, swap=True), lambda r: [r(4, 3), r(4, 3), r(4, 3)]),
    "margin ranking": of(lambda a, b: F.margin_ranking_loss(a, b, torch.ones(4), margin=0.5), lambda r: [r(4), r(4)]),
    "cosine embedding": of(lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1, 1, -1])), lambda r: [r(4, 3), r(4, 3)]),
    "hinge embedding": of(lambda a: F.hinge_embedding_loss(a, torch.tensor([1, -1, 1, -1])), lambda r: [r(4)]),
    "poisson": of(lambda x, t: F.poisson_nll_loss(x, t), lambda r: [r(4), r.positive(4)]),
    "gaussian": of(lambda x, t, v: F.gaussian_nll_loss(x, t, v), lambda r: [r(4), r(4), r.positive(4)], refused="torch cannot export"),
    "soft margin": of(lambda x, t: F.soft_margin_loss(x, t.sign().detach()), lambda r: [r(4), r(4)]),
    "multilabel soft margin": of(lambda x, t: F.multilabel_soft_margin_loss(x, t), lambda r: [r(4, 3), r.unit(4, 3)]),
    "ctc": of(lambda x: F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2]]), torch.tensor([5]), torch.tensor([2])), lambda r: [r(5, 1, 4)], refused="ctc"),
    "cdist, p = 1": of(lambda x, y: torch.cdist(x, y, p=1), lambda r: [r(3, 4), r(5, 4)]),
    "cdist, p = inf": of(lambda x, y: torch.cdist(x, y, p=float("inf")), lambda r: [r(3, 4), r(5, 4)]),
    "cdist of batches": of(torch.cdist, lambda r: [r(2, 3, 4), r(2, 5, 4)]),
    "attention": of(attention(), heads),
    "attention, causal": of(attention(is_causal=True), heads),
    "attention, scale": of(attention(scale=0.1), heads),
    "attention, a mask of numbers": of(attention(), lambda r: [*heads(r), r(3, 3)]),
    "attention, a whole row masked": of(attention(), whole_row_masked),
    "attention, groups of heads": of(attention(enable_gqa=True), lambda r: [r(2, 4, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4)]),
    "multihead, key padding": Case(lambda: nn.MultiheadAttention(4, 2, batch_first=True), lambda r: {"query": r(
        2, 3, 4), "key": r(2, 3, 4), "value": r(2, 3, 4), "key_padding_mask": torch.tensor([[False, False,
        True], [False, False, False]])}),
    "multihead, need_weights": Case(lambda: nn.MultiheadAttention(4, 2), lambda r: {"query": r(3, 2, 4), "key": r(3, 2, 4), "value": r(3, 2, 4), "need_weights": False}),
    "conv, same": Case(lambda: nn.Conv2d(3, 4, (3, 4), padding="same"), image),
    "conv, valid": Case(lambda: nn.Conv2d(3, 4, 3, padding="valid"), image),
    "conv, circular": Case(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), image),
    "conv, reflect": Case(lambda: nn.Conv2d(3, 4, 3, padding=2, padding_mode="reflect"), image),
    "conv, replicate": Case(lambda: nn.Conv1d(3, 4, 3, padding=1, padding_mode="replicate"), lambda r: [r(2, 3, 6)]),
    "conv, groups and dilation": Case(lambda: nn.Conv2d(4, 8, 3, stride=2, dilation=2, groups=2), lambda r: [r(1, 4, 9, 9)]),
    "conv, unbatched": Case(lambda: nn.Conv2d(3, 4, 3), lambda r: [r(3, 6, 6)]),
    "conv_transpose": Case(lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), image),
    "conv_transpose, groups": Case(lambda: nn.ConvTranspose1d(4, 6, 3, stride=3, groups=2, dilation=2), lambda r: [r(2, 4, 5)]),
    "conv3d": Case(lambda: nn.Conv3d(2, 3, 2, padding=1), lambda r: [r(1, 2, 3, 4, 3)]),
    "layer norm, no weight": Case(lambda: nn.LayerNorm((3, 4), elementwise_affine=False), lambda r: [r(2, 3, 4)]),
    "layer norm, no bias": Case(lambda: nn.LayerNorm(4, bias=False), lambda r: [r(2, 3, 4)]),
    "layer norm, epsilon": Case(lambda: nn.LayerNorm(4, eps=0.1), lambda r: [r(2, 3, 4)]),
    "rms norm": Case(lambda: nn.RMSNorm(4, eps=1e-5), lambda r: [r(2, 3, 4)]),
    "group norm": Case(lambda: nn.GroupNorm(2, 4), lambda r: [r(2, 4, 3, 3)]),
    "instance norm": Case(lambda: nn.InstanceNorm2d(3, affine=True), image),
    "instance norm, running": Case(lambda: nn.InstanceNorm1d(3, track_running_stats=True), lambda r: [r(2, 3, 5)]),
    "batch norm, not affine": Case(lambda: nn.BatchNorm2d(3, affine=False), image),
    "batch norm, no running": Case(lambda: nn.BatchNorm2d(3, track_running_stats=False), image),
    "batch norm, training": Case(lambda: nn.BatchNorm2d(3, momentum=0.3), image, trains=True),
    "local response": Case(lambda: nn.LocalResponseNorm(3, alpha=0.5), image),
    "weight norm": Case(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), lambda r: [r(2, 4)]),
    "spectral norm": Case(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), lambda r: [r(2, 4)]),
    "orthogonal, not square": Case(lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 5)), lambda r: [r(2, 3)], refused="linalg|NNEF does not have|orgqr|householder|there is no operation"),
    "resize, nearest": of(lambda x: F.interpolate(x, scale_factor=2), image),
    "resize, nearest, odd": of(lambda x: F.interpolate(x, size=(5, 9)), image),
    "resize, nearest exact": of(lambda x: F.interpolate(x, size=(5, 9), mode="nearest-exact"), image),
    "resize, bilinear": of(lambda x: F.interpolate(x, size=(5, 9), mode="bilinear"), image),
    "resize, aligned": of(lambda x: F.interpolate(x, size=(5, 9), mode="bilinear", align_corners=True), image),
    "resize, bicubic": of(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), image),
    "resize, antialiased": of(lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True), image),
    "resize, area": of(lambda x: F.interpolate(x, size=(3, 4), mode="area"), image),
    "resize, recomputed": of(lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True), image),
    "grid_sample, border": of(lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True), lambda r: [r(2, 3, 4, 5), r(2, 3, 3, 2) * 0.6]),
    "dropout, eval": Case(lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), lambda r: [r(2, 3)]),
    "LSTM": Case(lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), lambda r: [r(2, 3, 3)]),
    "LSTM, projection": Case(lambda: nn.LSTM(3, 4, proj_size=2), lambda r: [r(3, 2, 3)]),
    "GRU, no biases": Case(lambda: nn.GRU(3, 4, bias=False), lambda r: [r(3, 2, 3)]),
    "RNN, relu": Case(lambda: nn.RNN(3, 4, nonlinearity="relu"), lambda r: [r(3, 2, 3)]),
    "a state that is fed": Case(lambda: nn.GRU(3, 4), lambda r: [r(3, 2, 3), r(1, 2, 4)]),
}  # fmt: skip
