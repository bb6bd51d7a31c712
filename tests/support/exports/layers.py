"""Single operations, and a few layers after one another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from support.exports.modules import Exported, function, integers, layer, truths, x

Seq = nn.Sequential


class LastOf(nn.Module):
    """A linear layer on the last step of a recurrent network, the batch first."""

    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.head = nn.Linear(4, 2)

    def forward(self, steps: Tensor) -> Any:
        return self.head(self.recurrent(steps)[0][:, -1])


class WithState(nn.Module):
    """A recurrent network, or a cell of one, that gets its state."""

    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, steps: Tensor, *state: Tensor) -> Any:
        return self.recurrent(steps, state if len(state) > 1 else state[0])


def norm_of(kind: str, *args: Any, **settings: Any) -> Any:
    """A convolution before a normalization."""
    return lambda: Seq(nn.Conv2d(2, 4, 3), getattr(nn, kind)(*args, **settings))


CONVOLUTIONS = (
    layer("mlp", lambda: Seq(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), x(4, 5)),
    layer("mlp_rank_3", lambda: Seq(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3, bias=False)), x(2, 4, 5)),
    layer("bilinear", lambda: nn.Bilinear(3, 4, 5), x(2, 3), x(2, 4)),
    layer("conv1d", lambda: Seq(nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2)), x(2, 3, 8)),
    layer("conv1d_same", lambda: nn.Conv1d(3, 4, 4, padding="same"), x(2, 3, 8)),
    layer("conv2d", lambda: Seq(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU6()), x(2, 3, 8, 8)),
    layer("conv2d_groups", lambda: nn.Conv2d(4, 6, 3, groups=2, dilation=2, padding=2), x(2, 4, 8, 7)),
    layer("conv2d_reflect", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), x(1, 3, 6, 6)),
    layer("conv2d_replicate", lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="replicate"), x(1, 3, 6, 6)),
    layer("conv3d", lambda: Seq(nn.Conv3d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)), x(1, 2, 4, 4, 4)),
    layer("patches", lambda: Seq(nn.Conv2d(3, 8, 4, stride=4), nn.Flatten(2), nn.Linear(6, 5)), x(2, 3, 8, 12)),
    layer("large_windows", lambda: Seq(nn.Conv2d(2, 4, 7, padding=3), nn.ReLU(), nn.Conv2d(4, 4, 9, padding=4, groups=4)), x(2, 2, 12, 13)),
    layer("depthwise", lambda: Seq(nn.Conv2d(4, 4, 3, groups=4, padding=1), nn.Conv2d(4, 6, 1), nn.SiLU()), x(2, 4, 6, 6)),
    layer("deconv1d", lambda: nn.ConvTranspose1d(3, 4, 4, stride=2, padding=1), x(2, 3, 6)),
    layer("deconv2d", lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), x(2, 3, 5, 5)),
    layer("deconv2d_groups", lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, dilation=2), x(1, 4, 5, 5)),
    layer("deconv3d", lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), x(1, 2, 3, 3, 3)),
)  # fmt: skip

POOLS = (
    layer("avg_pool", lambda: Seq(nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, stride=2, padding=1)), x(1, 3, 9, 9)),
    layer("avg_pool_1d", lambda: nn.AvgPool1d(3, 2), x(1, 3, 9)),
    layer("avg_pool_3d", lambda: nn.AvgPool3d(2), x(1, 2, 4, 4, 4)),
    layer("max_pool_dilated", lambda: nn.MaxPool2d(3, stride=1, padding=1, dilation=2), x(1, 3, 9, 9)),
    layer("lp_pool", lambda: nn.LPPool2d(2, 2), x(1, 2, 6, 6)),
    layer("adaptive_average", lambda: nn.AdaptiveAvgPool2d((2, 3)), x(1, 3, 8, 9)),
    layer("adaptive_maximum", lambda: nn.AdaptiveMaxPool2d((2, 2)), x(1, 3, 8, 8)),
    layer("global_average", lambda: Seq(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), x(2, 3, 6, 6)),
)  # fmt: skip

RESIZING = (
    layer("up_nearest", lambda: nn.Upsample(scale_factor=3), x(1, 2, 3, 4)),
    layer("up_nearest_1d", lambda: nn.Upsample(scale_factor=2), x(1, 2, 5)),
    layer("up_bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), x(1, 2, 3, 4)),
    layer("up_aligned", lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), x(1, 2, 3, 4)),
    layer("up_linear_1d", lambda: nn.Upsample(scale_factor=2, mode="linear"), x(1, 2, 5)),
    layer("up_trilinear", lambda: nn.Upsample(scale_factor=2, mode="trilinear"), x(1, 2, 3, 3, 3)),
    layer("up_bicubic", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), x(1, 2, 4, 4)),
    layer("up_by_fraction", lambda: nn.Upsample(scale_factor=1.5, mode="bilinear"), x(1, 2, 4, 4)),
    layer("up_nearest_by_fraction", lambda: nn.Upsample(scale_factor=1.5), x(1, 2, 4, 4)),
    layer("down_bilinear", lambda: nn.Upsample(size=(3, 3), mode="bilinear"), x(1, 2, 6, 7)),
    layer("down_nearest", lambda: nn.Upsample(size=(4, 2)), x(1, 2, 6, 7)),
    function("aligned_to_size", lambda a: f.interpolate(a, size=(5, 7), mode="bilinear", align_corners=True), x(1, 2, 3, 4)),
    function("grid_sample", lambda a, g: f.grid_sample(a, g.tanh(), align_corners=False), x(1, 2, 4, 4), x(1, 3, 3, 2)),
    function("grid_sample_border", lambda a, g: f.grid_sample(a, 1.3 * g, padding_mode="border", align_corners=True), x(2, 2, 4, 5), x(2, 3, 3, 2)),
    function("grid_sample_cubic", lambda a, g: f.grid_sample(a, 0.5 * g.tanh(), mode="bicubic", align_corners=False), x(1, 2, 4, 4), x(1, 3, 3, 2)),
    function("spatial_transformer", lambda t, a: f.grid_sample(a, f.affine_grid(t, [1, 2, 4, 4], align_corners=False), align_corners=False), x(1, 2, 3), x(1, 2, 4, 4)),
    layer("pixel_shuffle", lambda: Seq(nn.Conv2d(2, 8, 3, padding=1), nn.PixelShuffle(2)), x(1, 2, 4, 4)),
    layer("pixel_unshuffle", lambda: nn.PixelUnshuffle(2), x(1, 2, 4, 4)),
    layer("channel_shuffle", lambda: nn.ChannelShuffle(2), x(1, 4, 3, 3)),
    layer("pad_constant", lambda: nn.ConstantPad2d((1, 2, 0, 1), 0.5), x(1, 2, 4, 5)),
    layer("pad_reflection", lambda: nn.ReflectionPad2d((1, 2, 1, 0)), x(1, 2, 4, 5)),
    layer("pad_replication", lambda: nn.ReplicationPad2d((1, 2, 1, 1)), x(1, 2, 4, 5)),
    function("unfold", lambda a: f.unfold(a, 2), x(1, 2, 4, 4)),
)  # fmt: skip

NORMALIZATIONS = (
    layer("layer_norm", lambda: nn.LayerNorm(6), x(2, 3, 6)),
    layer("layer_norm_plain", lambda: nn.LayerNorm((3, 4), elementwise_affine=False), x(2, 3, 4)),
    layer("group_norm", norm_of("GroupNorm", 2, 4), x(2, 2, 6, 6)),
    layer("instance_norm", norm_of("InstanceNorm2d", 4, affine=True), x(2, 2, 6, 6)),
    layer("rms_norm", lambda: nn.RMSNorm(6), x(2, 3, 6)),
    layer("local_response", lambda: nn.LocalResponseNorm(3), x(1, 5, 3, 3)),
    layer("batch_norm_of_rows", lambda: Seq(nn.Linear(4, 3), nn.BatchNorm1d(3)), x(5, 4)),
)  # fmt: skip

ACTIVATIONS = tuple(
    layer(type(made).__name__.lower(), lambda made=made: made, x(2, 3, 4))  # type: ignore[misc]
    for made in (
        nn.CELU(1.5), nn.ELU(), nn.GELU(approximate="tanh"), nn.GLU(-1), nn.Hardshrink(0.3),
        nn.Hardsigmoid(), nn.Hardswish(), nn.Hardtanh(-0.5, 0.7), nn.LeakyReLU(0.2),
        nn.LogSigmoid(), nn.LogSoftmax(-1), nn.Mish(), nn.PReLU(3), nn.SELU(), nn.Softmin(-1),
        nn.Softplus(), nn.Softshrink(0.3), nn.Softsign(), nn.Tanhshrink(), nn.Threshold(0.1, 0.5),
    )
)  # fmt: skip

RECURRENT = (
    layer("lstm", lambda: nn.LSTM(3, 4), x(5, 2, 3)),
    layer("lstm_both_directions", lambda: nn.LSTM(3, 4, bidirectional=True, batch_first=True), x(2, 5, 3)),
    layer("lstm_of_two_layers", lambda: nn.LSTM(3, 4, num_layers=2), x(5, 2, 3)),
    layer("lstm_with_state", lambda: WithState(nn.LSTM(3, 4)), x(5, 2, 3), x(1, 2, 4), x(1, 2, 4)),
    layer("lstm_with_head", lambda: LastOf(nn.LSTM(3, 4, batch_first=True)), x(2, 5, 3)),
    layer("lstm_projected", lambda: nn.LSTM(3, 4, proj_size=2), x(5, 2, 3)),
    layer("gru", lambda: nn.GRU(3, 4), x(5, 2, 3)),
    layer("gru_of_two_layers", lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True), x(2, 5, 3)),
    layer("rnn", lambda: nn.RNN(3, 4, nonlinearity="relu", num_layers=2), x(5, 2, 3)),
    layer("lstm_cell", lambda: WithState(nn.LSTMCell(3, 4)), x(2, 3), x(2, 4), x(2, 4)),
    layer("gru_cell", lambda: WithState(nn.GRUCell(3, 4)), x(2, 3), x(2, 4)),
)  # fmt: skip

ELEMENTS = (
    function("scales", lambda a: 2.5 * torch.sin(1.3 * a) - a / 3, x(3, 4)),
    function("trigonometry", lambda a: torch.atan(a) + torch.asinh(a) * torch.cos(a), x(3, 4)),
    function("erf", lambda a: torch.erf(a) + torch.expm1(0.3 * a) + torch.log1p(a.abs()), x(3, 4)),
    function("powers", lambda a, b: (a.abs() + 0.5) ** b + a**3, x(3, 4), x(3, 1)),
    function("clamp", lambda a: a.clamp(-0.5, 0.5) + a.clamp(min=0.1), x(3, 4)),
    function("comparison", lambda a, b: torch.where(a > b, a * 2, b) + (a >= b).float() * a, x(3, 4), x(3, 4)),
    function("masked_fill", lambda a, m: a.masked_fill(m, -1e9).softmax(-1), x(3, 4), truths(3, 4)),
    function("infinite_fill", lambda a: a.masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf")).softmax(-1), x(2, 4, 4)),
    function("logic", lambda a, m, n: ((m & n) | ~m).to(a.dtype) * a, x(3, 4), truths(3, 4), truths(3, 4)),
    function("integer_arithmetic", lambda i, a: a * ((i * 2 + 1) // 2 % 3), integers(9, 3, 4), x(3, 4)),
    function("several_results", lambda a, b: (a * b, (a + b).argmax(-1), a - b), x(3, 4), x(3, 4)),
)  # fmt: skip

REDUCTIONS = (
    function("sums", lambda a: (a.sum(1), a.mean((1, 2), keepdim=True), a.amax(-1)), x(2, 3, 4)),
    function("products", lambda a: (a.prod(1), a.cumprod(-1)), x(2, 3, 4)),
    function("deviations", lambda a: (a.std(-1), a.var(1, keepdim=True), a.var((1, 2), unbiased=False)), x(2, 3, 4)),
    function("norms", lambda a: (a.norm(dim=1), a.norm(p=1, dim=1), torch.linalg.vector_norm(a, dim=-1)), x(2, 3, 4)),
    function("log_sum_exp", lambda a: (a.logsumexp(-1), a.logsumexp(1)), x(2, 3, 4)),
    function("running", lambda a: (a.cumsum(1), a.logcumsumexp(-1), a.cummax(-1)[0]), x(2, 3, 4)),
    function("extremes", lambda a: (*a.max(1), a.min(-1).values, a.max()), x(2, 3, 4)),
)  # fmt: skip

SHAPES = (
    function("views", lambda a: a.view(a.shape[0], -1, 2).permute(2, 0, 1).flatten(1), x(2, 3, 4)),
    function("parts", lambda a: torch.cat([a[:, 1:, ::2], a[..., -2:][:, 1:]], 1), x(2, 3, 4)),
    function("flip_and_roll", lambda a: a.flip((0, 2)) + a.roll((1, -1), (1, 2)), x(2, 3, 4)),
    function("stack_and_repeat", lambda a: (torch.stack([a, a * 2], 1), a.repeat(1, 2, 3), a.repeat_interleave(2, 1)), x(2, 3, 4)),
    function("expand", lambda a: a[:, :1].expand(2, 5, 4) * 1.5, x(2, 3, 4)),
    function("splits", lambda a: (*a.split([1, 3], -1), *a.chunk(2, 2), *a.unbind(1)), x(2, 3, 4)),
    function("triangles", lambda a: a.triu() + a.tril(-1) * 2, x(2, 4, 4)),
    function("diagonals", lambda a: (a.diagonal(dim1=1, dim2=2), torch.diag_embed(a)), x(2, 3, 4)),
    function("windows", lambda a: a.unfold(2, 2, 1), x(2, 3, 4)),
    function("mesh", lambda a: a[0, 0][:, None] * torch.meshgrid(torch.arange(4.0), torch.arange(3.0), indexing="ij")[0], x(2, 3, 4)),
    function("extents_as_numbers", lambda a: a / a.size(-1) ** 0.5 + torch.arange(a.shape[1])[None, :, None], x(2, 3, 4)),
)  # fmt: skip

PRODUCTS = (
    function("matmul", lambda a, b: a @ b.transpose(-1, -2), x(2, 2, 3, 4), x(1, 2, 5, 4)),
    function("addmm", lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2.0), x(3, 5), x(3, 4), x(4, 5)),
    function("einsum_attention", lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), x(2, 3, 2, 4), x(2, 5, 2, 4)),
    function("einsum_ellipsis", lambda a, b: torch.einsum("...i,ij->...j", a, b), x(2, 3, 4), x(4, 5)),
    function("einsum_diagonal", lambda a: torch.einsum("bii->bi", a), x(2, 3, 3)),
    function("einsum_implicit", lambda a, b: torch.einsum("kj,ji", a, b), x(2, 3), x(3, 4)),
    function("distances", lambda a, b: torch.cdist(a, b), x(2, 3, 4), x(2, 5, 4)),
    function("cosine", lambda a, b: f.cosine_similarity(a, b), x(3, 4), x(3, 4)),
    function("attention", lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True), *[x(2, 2, 5, 4)] * 3),
    function("attention_of_rank_5", lambda q, k, v: f.scaled_dot_product_attention(q, k, v), x(1, 2, 2, 3, 4), *[x(1, 2, 2, 5, 4)] * 2),
    function("attention_mask", lambda q, k, v, m: f.scaled_dot_product_attention(q, k, v, attn_mask=m), *[x(2, 2, 5, 4)] * 3, x(1, 1, 5, 5)),
    function("attention_shared", lambda q, k, v: f.scaled_dot_product_attention(q, k, v, enable_gqa=True), x(2, 4, 5, 4), x(2, 2, 5, 4), x(2, 2, 5, 4)),
)  # fmt: skip


class KnownRows(nn.Module):
    """Rows of two tables at the same indices, as of relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(7, 5), nn.Embedding(7, 5)
        self.register_buffer("index", torch.tensor([0, 3, 2, 3]))

    def forward(self, x: Tensor) -> Tensor:
        moved = x + self.first.weight[self.index]
        return torch.tanh(moved) + self.second.weight[self.index]


INDICES = (
    layer("embedding", lambda: Seq(nn.Embedding(7, 4), nn.Linear(4, 2)), integers(7, 2, 3)),
    function("gather", lambda a, i: a.gather(1, i), x(3, 5), integers(5, 3, 2)),
    layer("known_rows", KnownRows, x(3, 4, 5)),
    function("rows", lambda a, i: (a[i], a.index_select(1, i), a[:, [0, 2, 1, -1]]), x(5, 5), integers(5, 4)),
    function("pairs", lambda a, i, j: a[i, j], x(4, 5, 2), integers(4, 3), integers(5, 3)),
    function("scatter", lambda a, u: a.scatter(1, torch.tensor([[0, 2], [1, 3], [4, 0]]), u), x(3, 5), x(3, 2)),
    function("scatter_add", lambda a, i, u: a.scatter_add(1, i, u), x(3, 5), integers(5, 3, 2), x(3, 2)),
    function("index_add", lambda a, i, u: a.index_add(0, i, u), x(5, 3), integers(5, 4), x(4, 3)),
    function("put", lambda a, u: torch.index_put(a, (torch.tensor([0, 2]),), u), x(4, 3), x(2, 3)),
    function("topk", lambda a: a.topk(2, -1), x(3, 5)),
    function("sort", lambda a: a.sort(-1, descending=True), x(3, 5)),
    function("one_hot", lambda i, a: f.one_hot(i, 5).to(a.dtype) @ a, integers(5, 3), x(5, 4)),
)  # fmt: skip

LOSSES = (
    function("cross_entropy", f.cross_entropy, x(3, 4), integers(4, 3)),
    function("binary_cross_entropy", lambda a, b: f.binary_cross_entropy_with_logits(a, b.sigmoid()), x(3, 4), x(3, 4)),
    function("huber", f.huber_loss, x(3, 4), x(3, 4)),
)  # fmt: skip

LAYERS: tuple[Exported, ...] = (
    *CONVOLUTIONS, *POOLS, *RESIZING, *NORMALIZATIONS, *ACTIVATIONS, *RECURRENT, *ELEMENTS,
    *REDUCTIONS, *SHAPES, *PRODUCTS, *INDICES, *LOSSES,
)  # fmt: skip
