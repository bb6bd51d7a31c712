"""What stops or changes gradients where it is easily missed."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from support.torch_modules import Case, Cases, of, with_weight

WRITE = "written|write|writes"


def inference(x: Any) -> Any:
    with torch.inference_mode():
        y = x.exp()
    return y.clone() * x.shape[0] + x


@torch.inference_mode()  # type: ignore[untyped-decorator]
def inferred(x: Any) -> Any:
    return x.tanh() * 2


@torch.enable_grad()  # type: ignore[untyped-decorator]
def enabled(x: Any) -> Any:
    return x.tanh() * x


def enabled_in_a_function(x: Any) -> Any:
    with torch.no_grad():
        y = enabled(x)
    return y * x


def switched_by_a_number(x: Any) -> Any:
    for step in range(4):
        with torch.set_grad_enabled(step == 3):
            x = x + 0.1 * x.sin()
    return x


def last_iterations(x: Any) -> Any:
    """Deep equilibrium: the fixed point without gradients, one step with them."""
    z = torch.zeros_like(x)
    with torch.no_grad():
        for _ in range(5):
            z = torch.tanh(0.5 * z + x)
    return torch.tanh(0.5 * z + x)


def truncated(x: Any) -> Any:
    """Truncated backpropagation through time."""
    h = torch.zeros_like(x[0])
    made = []
    for step in range(x.shape[0]):
        if step % 2 == 0:
            h = h.detach()
        h = torch.tanh(x[step] + h)
        made.append(h)
    return torch.stack(made)


def write_of_data(x: Any) -> Any:
    y = x * 2
    y.data.mul_(3)
    return y + x


def write_of_detached(x: Any) -> Any:
    y = x * 2
    y.detach().mul_(3)
    return y + x


def write_of_detached_view(x: Any) -> Any:
    y = x * 2
    z = y.detach()[0]
    z += 1
    return y + x


def detached_in_place(x: Any) -> Any:
    y = x * 2
    y.detach_()
    return y * x


def written_with_gradient(x: Any, v: Any) -> Any:
    with torch.no_grad():
        y = torch.zeros(3, 2)
    y[1] = v
    return y * x


def written_before_detached(x: Any) -> Any:
    y = x * 2
    z = y.detach()
    y = y * 3
    return y * z


def copied_without(x: Any) -> Any:
    out = torch.zeros_like(x)
    with torch.no_grad():
        out.copy_(x * 2)
    return out * x


def copied_with(x: Any) -> Any:
    with torch.no_grad():
        out = torch.zeros_like(x)
    out.copy_(x * 2)
    return out * x


def rows_without(x: Any) -> Any:
    out = x.new_zeros(3, 2)
    with torch.no_grad():
        for row in range(3):
            out[row] = x[row].exp()
    return out * x


def slope(x: Any) -> Any:
    """The derivative of a function, made inside of the module."""
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((y**3).sum(), y)
    return g * x


def slope_with_graph(x: Any) -> Any:
    if not x.requires_grad:
        x = x.requires_grad_()
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g * x


def slope_without_graph(x: Any) -> Any:
    """The derivative of what is computed of an input, as a number."""
    y = x * 1.5
    if not y.requires_grad:
        y.requires_grad_()
    (g,) = torch.autograd.grad((y**3).sum(), y)
    return g * x


class Saliency(nn.Module):  # type: ignore[misc]
    """Weights of features by the gradient of a score, as in GradCAM."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.body(x))
        score = (self.head(h) ** 2).sum()
        (g,) = torch.autograd.grad(score, h, retain_graph=True)
        return (h * g).sum(1)


class SaliencyWithGraph(Saliency):
    def forward(self, x: Any) -> Any:
        h = torch.tanh(self.body(x))
        score = (self.head(h) ** 2).sum()
        (g,) = torch.autograd.grad(score, h, create_graph=True)
        return (h * g).sum(1)


def backward_inside(x: Any) -> Any:
    y = x.detach().clone().requires_grad_()
    (y**3).sum().backward()
    return y.grad * x


def node_hook(x: Any) -> Any:
    y = x.sin()
    if y.grad_fn is not None:
        y.grad_fn.register_hook(lambda given, _: (given[0] * 2,))
    return y * x


def retained(x: Any) -> Any:
    y = x.sin()
    if y.requires_grad:
        y.retain_grad()
    return y * x


def saved_changed(x: Any) -> Any:
    """What is saved for the backward pass is rounded."""
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.round(), lambda t: t):
        return x * x


def many_hooked(x: Any) -> Any:
    y = x.sin()
    torch.autograd.graph.register_multi_grad_hook([y], lambda gradients: None)
    return y


class Scaled(nn.Module):  # type: ignore[misc]
    """Asks whether gradients are wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        h = self.linear(x)
        if h.requires_grad:
            h = h * 2
        return h if torch.is_grad_enabled() else h * 5


class Clamped(nn.Module):  # type: ignore[misc]
    """WGAN: weights are clamped in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.linear.weight.clamp_(-0.2, 0.2)
        return self.linear(x)


class ClampedData(Clamped):
    def forward(self, x: Any) -> Any:
        for parameter in self.linear.parameters():
            parameter.data.clamp_(-0.2, 0.2)
        return self.linear(x)


class Renormalized(Clamped):
    """The weight is replaced by its data."""

    def forward(self, x: Any) -> Any:
        weight = self.linear.weight
        weight.data = weight.data / weight.data.norm(dim=1, keepdim=True)
        return self.linear(x)


class ScaledRate(nn.Module):  # type: ignore[misc]
    """StyleGAN: the weight times a number; gradients of half of the network scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        w = self.linear.weight
        h = F.linear(x, w * 0.1 + w.detach() * 0.9, self.linear.bias)
        return h * 0.5 + h.detach() * 0.5


class Momentum(nn.Module):  # type: ignore[misc]
    """MoCo: the encoder of keys follows that of queries, in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 3)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.ones(5, 3).cumsum(0), dim=1))

    def forward(self, a: Any, b: Any) -> Any:
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            k = F.normalize(self.key(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        logits = torch.cat([positive, q @ self.queue.clone().detach().t()], 1) / 0.07
        return F.cross_entropy(logits, torch.zeros(a.shape[0], dtype=torch.long))


class Following(Momentum):
    """The same, and parameters are written."""

    def forward(self, a: Any, b: Any) -> Any:
        with torch.no_grad():
            for q, k in zip(
                self.query.parameters(), self.key.parameters(), strict=True
            ):
                k.copy_(k * 0.9 + q * 0.1)
        return super().forward(a, b)


class Queue(nn.Module):  # type: ignore[misc]
    """A queue in a buffer, whose place is a number in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("queue", torch.ones(4, 2))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Any) -> Any:
        h = self.linear(x)
        y = h @ self.queue.clone().t()
        place = int(self.place)
        with torch.no_grad():
            self.queue[place : place + 2] = h
            self.place[0] = (place + 2) % 4
        return y


class Same(nn.Module):  # type: ignore[misc]
    """A buffer in the memory of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0) + 1)
        self.register_buffer("target", self.weight.data)

    def forward(self, x: Any) -> Any:
        return x * self.weight + x.exp() * self.target


class Two(nn.Module):  # type: ignore[misc]
    """Two parameters in the same memory have gradients of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.arange(3.0) + 1)
        self.b = nn.Parameter(self.a.data)

    def forward(self, x: Any) -> Any:
        return x * self.a + x.exp() * self.b


class HalfFrozen(nn.Module):  # type: ignore[misc]
    """A frozen parameter in the memory of a trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.arange(3.0) + 1, requires_grad=False)
        self.b = nn.Parameter(self.a.data)

    def forward(self, x: Any) -> Any:
        return x * self.a + x.exp() * self.b


class Kept(nn.Module):  # type: ignore[misc]
    """A result that is kept as an attribute, and read by the module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.features: Any = None

    def forward(self, x: Any) -> Any:
        self.features = self.linear(x)
        return self.features * x


class State(nn.Module):  # type: ignore[misc]
    """A state of a plain attribute, which the next call would read."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.state = torch.zeros(3)

    def forward(self, x: Any) -> Any:
        self.state = torch.tanh(self.linear(x).mean(0) + self.state)
        return self.state


class Fast(nn.Module):  # type: ignore[misc]
    """A frozen encoder in evaluation mode, where PyTorch has a path of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, dropout=0.0, batch_first=True, **options
        )
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, 2)

    def forward(self, x: Any, padding: Any = None) -> Any:
        with torch.no_grad():
            h = self.encoder(x, src_key_padding_mask=padding)
        return self.head(h.mean(1))


class FastAttention(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = (
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.Linear(8, 2),
        )

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            h, _ = self.attention(x, x, x, need_weights=False)
        return self.head(h)


class Inner(nn.Module):  # type: ignore[misc]
    """MAML: a step of gradient descent inside, by functions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, x: Any, y: Any) -> Any:
        parameters = dict(self.net.named_parameters())

        def loss(held: Any) -> Any:
            return F.mse_loss(functional_call(self.net, held, (x,)), y)

        gradients = torch.func.grad(loss)(parameters)
        moved = {n: p - 0.1 * gradients[n] for n, p in parameters.items()}
        return functional_call(self.net, moved, (x,))


class Called(nn.Module):  # type: ignore[misc]
    """A network with weights that another computes."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.hyper = nn.Linear(3, 2), nn.Linear(4, 8)
        self.main.requires_grad_(False)

    def forward(self, x: Any, z: Any) -> Any:
        made = self.hyper(z)
        held = {"weight": made[:6].view(2, 3), "bias": made[6:]}
        return functional_call(self.main, held, (x,)) + self.main(x)


class Penalized(nn.Module):  # type: ignore[misc]
    """WGAN-GP: the norm of the gradient at an input, in the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Any) -> Any:
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(self.critic(x).sum(), x, create_graph=True)
        return ((g.norm(2, dim=1) - 1) ** 2).mean()


class Energy(nn.Module):  # type: ignore[misc]
    """Forces as derivatives of an energy, without a graph of them."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            energy = self.net(at)
            (force,) = torch.autograd.grad(-energy.sum(), at)
        return self.net(x) + force.sum(1, keepdim=True)


class Segments(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *[nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(4)]
        )

    def forward(self, x: Any) -> Any:
        return checkpoint_sequential(self.body, 2, x, use_reentrant=False)


class Kinds(nn.Module):  # type: ignore[misc]
    """Checkpointing with several arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def _part(self, x: Any, y: Any = None, *, scale: float = 1.0) -> Any:
        h = self.linear(x) * scale
        return (h if y is None else h + y), h.detach()

    def forward(self, x: Any, y: Any) -> Any:
        a, b = checkpoint(self._part, x, y, scale=2.0, use_reentrant=False)
        c, d = checkpoint(self._part, a * b, use_reentrant=False)
        return c * d


class Reversed(torch.autograd.Function):  # type: ignore[misc]
    """The layer that turns gradients around (DANN)."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return -dy


class ReversedNew(torch.autograd.Function):  # type: ignore[misc]
    """The same, in the form with setup_context."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return -dy


class Several(torch.autograd.Function):  # type: ignore[misc]
    """Two results, one of them without gradient, saved numbers; the derivative is exact."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        places = x.argmax(-1)
        ctx.mark_non_differentiable(places)
        return x * scale, places

    @staticmethod
    def backward(ctx: Any, dy: Any, _: Any) -> Any:
        return dy * ctx.scale, None


def several(x: Any) -> Any:
    y, places = Several.apply(x, 3.0)
    return y * F.one_hot(places, 3)


def reversed_by_detach(x: Any) -> Any:
    """What users write in the place of such a function."""
    return 2 * x.detach() - x


def two_sided(x: Any, y: Any) -> Any:
    """Losses of a codebook with one detached side each, and perplexity without gradient."""
    with torch.no_grad():
        p = F.one_hot((x - y).abs().argmin(0), x.shape[0]).float().mean(0)
        perplexity = torch.exp(-(p * (p + 1e-10).log()).sum())
    loss = (x.detach() - y).pow(2).mean() + 0.25 * (x - y.detach()).pow(2).mean()
    return loss * perplexity, perplexity


def fake_quantized(x: Any) -> Any:
    scale = (x.max() - x.min()).detach() / 15
    q = torch.clamp(torch.round(x / scale), -8, 7) * scale
    return x + (q - x).detach()


def learned_step(step: Any, x: Any) -> Any:
    """LSQ: the gradient of the step is scaled."""
    scaled = step.abs() * 0.1
    step = (step - scaled).detach() + scaled
    v = (x / step).clamp(-4, 3)
    return (v.round() - v).detach() * step + v * step


def binarized(w: Any, x: Any) -> Any:
    """XNOR-Net."""
    alpha = w.abs().mean(1, keepdim=True)
    b = w.sign().detach() - w.clamp(-1, 1).detach() + w.clamp(-1, 1)
    return x @ (alpha * b)


def scheduled(x: Any) -> Any:
    """PPO: the ratio to old probabilities, clipped."""
    logp = x.log_softmax(-1)[:, 0]
    old = logp.detach() - 0.1
    ratio = (logp - old).exp()
    gain = torch.tensor([1.0, -1.0, 0.5])
    return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()


def distilled(w: Any, x: Any) -> Any:
    """DINO: a teacher that is sharpened and centred."""
    with torch.no_grad():
        teacher = ((x @ w - 0.1) / 0.04).softmax(-1)
    return -(teacher * (x @ w / 0.1).log_softmax(-1)).sum(-1).mean()


def stored(x: Any) -> Any:
    kept = {"y": x.sin(), "n": 0.0}
    kept["z"] = kept["y"].detach()
    return kept["y"] * kept["z"]


CASES: Cases = {
    "inference_mode": of(inference, lambda r: [r(3)]),
    "inference_mode, decorator": of(lambda x: inferred(x).clone() + x, lambda r: [r(3)]),
    "enabled by a decorator": of(enabled_in_a_function, lambda r: [r(3)]),
    "enabled by a number": of(switched_by_a_number, lambda r: [r(3)]),
    "a fixed point": of(last_iterations, lambda r: [r(3)]),
    "truncated steps": of(truncated, lambda r: [r(5, 3)]),
    "a write by data": of(write_of_data, lambda r: [r(2, 3)], refused=WRITE),
    "a write by detach": of(write_of_detached, lambda r: [r(2, 3)], refused=WRITE),
    "a write by a view of detach": of(write_of_detached_view, lambda r: [r(2, 3)], refused=WRITE),
    "detach_": of(detached_in_place, lambda r: [r(3)]),
    "zeros of a block are written": of(written_with_gradient, lambda r: [r(3, 2), r(2)]),
    "detached before": of(written_before_detached, lambda r: [r(3)]),
    "copy_ in a block": of(copied_without, lambda r: [r(3)]),
    "copy_ after a block": of(copied_with, lambda r: [r(3)]),
    "rows in a block": of(rows_without, lambda r: [r(3, 2)]),
    "a derivative inside": of(slope, lambda r: [r(3)]),
    "a derivative inside, with its graph": of(slope_with_graph, lambda r: [r(3)]),
    "backward inside": of(backward_inside, lambda r: [r(3)]),
    "a derivative inside, without graph": of(slope_without_graph, lambda r: [r(3)]),
    "saliency": Case(Saliency, lambda r: [r(2, 3)]),
    "saliency with its graph": Case(SaliencyWithGraph, lambda r: [r(2, 3)]),
    "a hook of a node": of(node_hook, lambda r: [r(3)], refused="hook"),
    "retain_grad": of(retained, lambda r: [r(3)]),
    "hooks of what is saved": of(saved_changed, lambda r: [r(3)], refused="hook"),
    "a hook of many": of(many_hooked, lambda r: [r(3)], refused="hook"),
    "requires_grad is asked": Case(Scaled, lambda r: [r(2, 3)]),
    "a weight is clamped": Case(Clamped, lambda r: [r(2, 3)], refused="writ|parameter"),
    "a weight is clamped by data": Case(ClampedData, lambda r: [r(2, 3)], refused="writ|parameter"),
    "a weight is replaced": Case(Renormalized, lambda r: [r(2, 3)], refused="writ|parameter"),
    "scaled gradients": Case(ScaledRate, lambda r: [r(2, 3)]),
    "keys": Case(Momentum, lambda r: [r(2, 4), r(2, 4)]),
    "keys that follow": Case(Following, lambda r: [r(2, 4), r(2, 4)], refused="writ|parameter"),
    "a queue": Case(Queue, lambda r: [r(2, 3)], refused="place|depend|integers|torch cannot export|which changes"),
    "a buffer in a parameter": Case(Same, lambda r: [r(3)]),
    "two parameters in one memory": Case(Two, lambda r: [r(3)]),
    "a frozen one in the same memory": Case(HalfFrozen, lambda r: [r(3)]),
    "a kept result": Case(Kept, lambda r: [r(2, 3)]),
    "a state": Case(State, lambda r: [r(2, 3)], refused="attribute|buffer|state"),
    "a frozen encoder": Case(Fast, lambda r: [r(2, 3, 8)]),
    "a frozen encoder, norm first": Case(lambda: Fast(norm_first=True, activation="gelu"), lambda r: [r(2, 3, 8)]),
    "a frozen attention": Case(FastAttention, lambda r: [r(2, 3, 8)]),
    "a step inside": Case(Inner, lambda r: [r(4, 3), r(4, 1)]),
    "weights that are computed": Case(Called, lambda r: [r(2, 3), r(4)]),
    "a penalty of gradients": Case(Penalized, lambda r: [r(2, 3)]),
    "forces": Case(Energy, lambda r: [r(2, 3)]),
    "checkpoints in a row": Case(Segments, lambda r: [r(2, 3)]),
    "checkpoints of several": Case(Kinds, lambda r: [r(2, 3), r(2, 3)]),
    "reversed gradients": of(lambda x: Reversed.apply(x) * x, lambda r: [r(3)]),
    "reversed gradients, new form": of(lambda x: ReversedNew.apply(x) * x, lambda r: [r(3)]),
    "several results of a function": of(several, lambda r: [r(2, 3)], options={"allow_own_backward": True}),
    "reversed by detach": of(reversed_by_detach, lambda r: [r(3)]),
    "two sides": of(two_sided, lambda r: [r(4), r(4)]),
    "quantized": of(fake_quantized, lambda r: [r(2, 4)]),
    "a learned step": with_weight(learned_step, (1,), lambda r: [r(6)]),
    "binary weights": with_weight(binarized, (3, 4), lambda r: [r(2, 3)]),
    "clipped ratios": of(scheduled, lambda r: [r(3, 4)]),
    "a teacher": with_weight(distilled, (3, 4), lambda r: [r(2, 3)]),
    "kept in a dictionary": of(stored, lambda r: [r(3)]),
}  # fmt: skip
