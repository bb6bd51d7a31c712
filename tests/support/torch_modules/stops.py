"""What lets no gradient through."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from support.torch_modules import Case, Cases, of, with_weight


def block(x: Any) -> Any:
    with torch.no_grad():
        y = x.exp()
    return x * y


@torch.no_grad()  # type: ignore[untyped-decorator]
def decorated(x: Any) -> Any:
    return x.sigmoid() * 2


def disabled(x: Any) -> Any:
    with torch.set_grad_enabled(False):
        y = x.tanh()
    return y + x


def switched(x: Any) -> Any:
    torch.set_grad_enabled(False)
    y = x * 3
    torch.set_grad_enabled(True)
    return y * x


def enabled_inside(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x.tanh() * y
        w = z * 2
    return z * w * x


def view_inside(x: Any) -> Any:
    with torch.no_grad():
        y = x.t().reshape(-1)
    return y * x.reshape(-1)


def several_results(x: Any) -> Any:
    with torch.no_grad():
        mean, deviation = x.mean(), x.std()
    return (x - mean) / deviation


def in_a_loop(x: Any) -> Any:
    total = x
    for _ in range(3):
        with torch.no_grad():
            scale = total.abs().amax()
        total = total / (scale + 1.0)
    return total


def straight_through(x: Any) -> Any:
    return x + (x.round() - x).detach()


def straight_through_block(x: Any) -> Any:
    with torch.no_grad():
        rest = x.sign() - x
    return x + rest


def gumbel_hard(x: Any) -> Any:
    soft = x.softmax(-1)
    hard = F.one_hot(soft.argmax(-1), x.shape[-1]).float()
    return hard - soft.detach() + soft


def momentum_pair(weight: Any, x: Any) -> Any:
    return F.mse_loss(x @ weight, (x @ weight.detach()).tanh())


def activation_without(weight: Any, x: Any) -> Any:
    with torch.no_grad():
        h = F.relu(x @ weight)
    return h @ weight


class Target(nn.Module):  # type: ignore[misc]
    """BYOL: a network that is trained, and one that follows it without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        self.target = copy.deepcopy(self.online)
        self.predictor = nn.Linear(3, 3)

    def forward(self, a: Any, b: Any) -> Any:
        p = self.predictor(self.online(a))
        with torch.no_grad():
            z = self.target(b)
        return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1)


class SimSiam(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.predictor = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, a: Any, b: Any) -> Any:
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        first = F.cosine_similarity(pa, zb.detach()).mean()
        return -(first + F.cosine_similarity(pb, za.detach()).mean()) * 0.5


class Frozen(nn.Module):  # type: ignore[misc]
    """A backbone that is not trained, and a head that is."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Linear(4, 5), nn.Linear(5, 2)
        self.backbone.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.backbone(x)))


class Average(nn.Module):  # type: ignore[misc]
    """A moving average that is updated in place, and read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        h = self.linear(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(h.mean(0), alpha=0.1)
        return h - self.mean


class Assigned(Average):
    """The same, by an assignment."""

    def forward(self, x: Any) -> Any:
        h = self.linear(x)
        self.mean: Any = 0.9 * self.mean + 0.1 * h.detach().mean(0)
        return h - self.mean


class Copied(Average):
    """The same, by copy_."""

    def forward(self, x: Any) -> Any:
        h = self.linear(x)
        with torch.no_grad():
            self.mean.copy_(torch.lerp(self.mean, h.mean(0), 0.1))
        return h * self.mean


class Codebook(nn.Module):  # type: ignore[misc]
    """VQ-VAE: the nearest code, straight through, and two losses."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Embedding(6, 4)

    def forward(self, z: Any) -> Any:
        distance = (z.unsqueeze(1) - self.codes.weight).pow(2).sum(-1)
        q = self.codes(distance.argmin(1))
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), loss


class ActorCritic(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(4, 3), nn.Linear(4, 1)

    def forward(self, x: Any, action: Any, reward: Any) -> Any:
        value = self.value(x).squeeze(-1)
        advantage = (reward - value).detach()
        chosen = (
            self.policy(x).log_softmax(-1).gather(1, action.unsqueeze(1)).squeeze(1)
        )
        return -(chosen * advantage).mean() + F.smooth_l1_loss(value, reward)


class Clipped(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2.0

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy.clamp(-0.1, 0.1)


class Exact(torch.autograd.Function):  # type: ignore[misc]
    """One whose backward function is the derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.sigmoid()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (y,) = ctx.saved_tensors
        return dy * y * (1 - y)


STORED = Clipped.apply


class ExactNew(torch.autograd.Function):  # type: ignore[misc]
    """The same, in the form that torch.func takes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x.sigmoid()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    backward = Exact.backward


def exactly(function: Any) -> Any:
    """A function with the backward function of exp(2 x), whatever stops gradients inside."""

    class Doubled(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = function(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (y,) = ctx.saved_tensors
            return dy * 2 * y

    return Doubled.apply


def inside_no_grad(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y.exp()


def inside_inference(x: Any) -> Any:
    with torch.inference_mode():
        y = (x * 2).exp()
    return y * 1


def inside_enabled(x: Any) -> Any:
    with torch.enable_grad():
        y = x * 2
    return y.exp()


def inside_set(x: Any) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    with torch.set_grad_enabled(False):
        return y.exp()


@torch.no_grad()  # type: ignore[untyped-decorator]
def inside_decorated(x: Any) -> Any:
    return (x * 2).exp()


def inside_written(x: Any) -> Any:
    y = x.detach().clone()
    y.mul_(2)
    return y.exp().detach_()


INSIDE = {
    "no_grad": inside_no_grad, "inference_mode": inside_inference, "enable_grad": inside_enabled,
    "set_grad_enabled": inside_set, "decorated": inside_decorated, "writes": inside_written,
    "detach": lambda x: (x.detach() * 2).exp(), "data": lambda x: (x.data * 2).exp(),
    "torch.detach": lambda x: (torch.detach(x) * 2).exp(), "nothing": lambda x: (x * 2).exp(),
    "another one": lambda x: exactly(lambda x: x.detach())(x * 2).exp(),
}  # fmt: skip


def hooked(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return y * x


class Hooked(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.register_full_backward_hook(lambda module, given, made: None)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


class HookedParameter(nn.Linear):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.weight.register_hook(lambda gradient: gradient * 2)


class ForwardHook(nn.Module):  # type: ignore[misc]
    """A hook that changes results is a part of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.linear.register_forward_hook(lambda module, given, made: made * 2)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


class Checkpointed(nn.Module):  # type: ignore[misc]
    def __init__(self, is_reentrant: bool) -> None:
        super().__init__()
        self.is_reentrant = is_reentrant
        self.body = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x: Any) -> Any:
        return checkpoint(self.body, x, use_reentrant=self.is_reentrant) * x


def stopped_in_checkpoint(x: Any) -> Any:
    """What is run again in the backward pass stops gradients there."""

    def part(v: Any) -> Any:
        with torch.no_grad():
            scale = v * v
        return scale * v.detach() * v.sin() + v.data * scale

    with torch.no_grad():
        known = checkpoint(part, x, use_reentrant=True)
    return checkpoint(part, x, use_reentrant=True) * known


def written_without(x: Any) -> Any:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y * x


def noise_scale(x: Any) -> Any:
    scale = x.data.abs().mean()
    return x / scale


CASES: Cases = {
    "block": of(block, lambda r: [r(2, 3)]),
    "decorated": of(lambda x: decorated(x) * x, lambda r: [r(2, 3)]),
    "set_grad_enabled": of(disabled, lambda r: [r(3)]),
    "switched off and on": of(switched, lambda r: [r(3)]),
    "enabled inside": of(enabled_inside, lambda r: [r(2, 2)]),
    "a view inside": of(view_inside, lambda r: [r(3, 2)]),
    "several results": of(several_results, lambda r: [r(3, 4)]),
    "in a loop": of(in_a_loop, lambda r: [r(3, 2)]),
    "straight through": of(straight_through, lambda r: [r(5)]),
    "straight through a block": of(straight_through_block, lambda r: [r(5)]),
    "gumbel": of(gumbel_hard, lambda r: [r(3, 4)]),
    "one weight twice": with_weight(momentum_pair, (3, 3), lambda r: [r(4, 3)]),
    "an activation": with_weight(activation_without, (3, 3), lambda r: [r(2, 3)]),
    "detach": of(lambda x: x * x.detach(), lambda r: [r(3)]),
    "torch.detach": of(lambda x: x * torch.detach(x).exp(), lambda r: [r(3)]),
    "the operation": of(lambda x: x * torch.ops.aten.detach(x), lambda r: [r(3)]),
    "of an input": of(lambda x, y: x.detach() * y + y.detach() * x, lambda r: [r(3), r(3)]),
    "of all": of(lambda x: x.exp().detach() + 0 * x, lambda r: [r(3)]),
    "data": of(noise_scale, lambda r: [r(3, 3)]),
    "twice": of(lambda x: x.detach().detach() * x, lambda r: [r(3)]),
    "a view of it": of(lambda x: x.detach().reshape(-1)[:2] * x[0, 0], lambda r: [r(2, 2)]),
    "of a mask": of(lambda x: torch.where((x > 0).detach(), x * x, x), lambda r: [r(6)]),
    "softmax weights": of(lambda x: (x.softmax(-1).detach() * x).sum(-1), lambda r: [r(2, 4)]),
    "normalized by": of(lambda x: x / x.norm().detach(), lambda r: [r(4)]),
    "clamped like": of(lambda x: x + (x.clamp(-0.5, 0.5) - x).detach(), lambda r: [r(6)]),
    "residual": with_weight(lambda w, x: x + (x @ w).detach() + x @ w, (3, 3), lambda r: [r(2, 3)]),
    "of a parameter": with_weight(lambda w, x: x * w.detach() + w, (3,), lambda r: [r(2, 3)]),
    "of a product": with_weight(lambda w, x: (x @ w).detach() @ w.t(), (3, 4), lambda r: [r(2, 3)]),
    "item": of(lambda x: x * x.sum().item(), lambda r: [r(3)]),
    "tensor of a parameter": with_weight(lambda w, x: x * torch.tensor(w) * w, (3,), lambda r: [r(3)]),
    "requires_grad_": of(lambda x: x.detach().requires_grad_() * x, lambda r: [r(3)]),
    "target network": Case(Target, lambda r: [r(2, 4), r(2, 4)]),
    "simsiam": Case(SimSiam, lambda r: [r(3, 4), r(3, 4)]),
    "frozen backbone": Case(Frozen, lambda r: [r(2, 4)]),
    "moving average": Case(Average, lambda r: [r(4, 3)]),
    "moving average by assignment": Case(Assigned, lambda r: [r(4, 3)]),
    "moving average by copy": Case(Copied, lambda r: [r(4, 3)]),
    "codebook": Case(Codebook, lambda r: [r(3, 4)]),
    "actor and critic": Case(ActorCritic, lambda r: [r(5, 4), r.ints(3, 5), r(5)]),
    "own backward": of(lambda x: Clipped.apply(x) * x, lambda r: [r(3)], refused="'Clipped' is not known to be linear in the gradients: allow"),
    "own backward, allowed": of(lambda x: Exact.apply(x) * x, lambda r: [r(3)], options={"allow_own_backward": True}),
    "own backward, stored": of(lambda x: STORED(x) * x, lambda r: [r(3)], refused="'Clipped' is not known to be linear in the gradients: allow"),
    "own backward, vmap": of(lambda x: torch.vmap(ExactNew.apply)(x) * x, lambda r: [r(3)]),
    **{f"own backward, {name}": of(lambda x, f=f: (exactly(f)(x * 2) + x) * x, lambda r: [r(3)], options={"allow_own_backward": True}) for name, f in INSIDE.items()},
    "own backward, and stops outside": of(lambda x: exactly(lambda x: (x.detach() * 2).exp())(x.detach()) * x, lambda r: [r(3)], options={"allow_own_backward": True}),
    "hook of a tensor": of(hooked, lambda r: [r(3)], refused="a hook, which could change gradients"),
    "hook of a module": Case(Hooked, lambda r: [r(2, 3)], refused="module 'linear' has a hook"),
    "hook of a parameter": Case(HookedParameter, lambda r: [r(2, 3)], refused="parameter 'weight' has a hook"),
    "forward hook": Case(ForwardHook, lambda r: [r(2, 3)]),
    "checkpoint": Case(lambda: Checkpointed(False), lambda r: [r(2, 3)]),
    "checkpoint, with stops": of(stopped_in_checkpoint, lambda r: [r(3)]),
    "checkpoint, reentrant": Case(lambda: Checkpointed(True), lambda r: [r(2, 3)]),
    "a write in a block": of(written_without, lambda r: [r(3)], refused="written into where gradients are disabled"),
    "no_grad over argmax": of(lambda x: x.gather(1, x.argmax(1, keepdim=True)), lambda r: [r(3, 4)]),
    "of an integer": of(lambda x, i: x[i.detach()], lambda r: [r(5, 2), r.ints(5, 3)]),
}  # fmt: skip
