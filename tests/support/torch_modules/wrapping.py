"""How modules are made, wrapped, called and put together."""

from __future__ import annotations

import functools
import math
import types
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from support.torch_modules import Case, Cases, of, with_weight


def linear() -> nn.Module:
    return nn.Linear(3, 3)


def seq(*layers: Any) -> nn.Sequential:
    return nn.Sequential(*layers)


class Holds(nn.Module):  # type: ignore[misc]
    """A module inside, whatever wraps it."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x) * x


@torch.jit.script  # type: ignore[untyped-decorator]
def scripted_swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def scripted_if_tracing(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0


@torch.compile  # type: ignore[untyped-decorator]
def compiled(x: Any) -> Any:
    return x * torch.sigmoid(x)


@functools.lru_cache
def table(n: int) -> Any:
    return torch.arange(float(n))


# As it is after the first call of a module.
table(3)


class Symmetric(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).transpose(-1, -2)


class Positive(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return F.softplus(x)

    def right_inverse(self, x: Any) -> Any:
        return x + (-torch.expm1(-x)).log()


def parametrized(kind: Any) -> Any:
    def make() -> nn.Module:
        layer = nn.Linear(3, 3)
        nn.init.uniform_(layer.weight, 0.1, 1.0)
        parametrize.register_parametrization(layer, "weight", kind())
        return layer

    return make


@torch.no_grad()  # type: ignore[untyped-decorator]
def pruned() -> nn.Module:
    return prune.l1_unstructured(nn.Linear(3, 3), "weight", amount=4)


@torch.no_grad()  # type: ignore[untyped-decorator]
def pruned_twice() -> nn.Module:
    layer = prune.random_unstructured(nn.Linear(4, 3), "weight", amount=3)
    return prune.ln_structured(layer, "weight", amount=1, n=2, dim=0)


@torch.no_grad()  # type: ignore[untyped-decorator]
def weight_norm_of_old() -> nn.Module:
    return nn.utils.weight_norm(nn.Linear(3, 2))


def with_pre_hook() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    return layer


def with_keyword_hook() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(
        lambda module, given, named, made: made + given[0], with_kwargs=True
    )
    return layer


class Features(nn.Module):  # type: ignore[misc]
    """A hook that collects what layers make."""

    def __init__(self) -> None:
        super().__init__()
        self.net = seq(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.made: list[Any] = []
        self.net[1].register_forward_hook(self._keep)

    def _keep(self, module: Any, given: Any, made: Any) -> None:
        self.made.append(made)

    def forward(self, x: Any) -> Any:
        self.made.clear()
        y = self.net(x)
        return y, self.made[0]


def patched() -> nn.Module:
    """A forward that was put in the place of another."""
    layer = nn.Linear(3, 3)
    layer.forward = types.MethodType(
        lambda self, x: F.linear(x, self.weight * 2), layer
    )
    return layer


def standardized() -> nn.Module:
    """A weight that is standardized in forward."""

    class Conv(nn.Conv2d):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            w = self.weight
            mean = w.mean((1, 2, 3), keepdim=True)
            deviation = w.std((1, 2, 3), keepdim=True) + 1e-5
            return F.conv2d(x, (w - mean) / deviation, self.bias, self.stride)

    return Conv(2, 3, 3)


class Subclass(nn.Linear):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return super().forward(x.relu()) + 1


class Property(nn.Module):  # type: ignore[misc]
    """A weight that is computed by a property."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.ones(3, 3))

    @property
    def weight(self) -> Any:
        return self.raw.softmax(-1)

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.weight.sum()


class Methods(nn.Module):  # type: ignore[misc]
    """An encoder and a decoder that are called as methods."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(3, 2), nn.Linear(2, 3)

    def encode(self, x: Any) -> Any:
        return self.down(x).tanh()

    def decode(self, z: Any) -> Any:
        return self.up(z)

    def forward(self, x: Any) -> Any:
        z = self.encode(x)
        return self.decode(z), z


class Chosen(nn.Module):  # type: ignore[misc]
    """Layers by a setting, some of which are not used."""

    def __init__(self, kind: str = "b") -> None:
        super().__init__()
        self.kind = kind
        self.by_kind = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 4)})

    def forward(self, x: Any, kind: str | None = None) -> Any:
        return self.by_kind[kind or self.kind](x)


class Skipped(nn.Module):  # type: ignore[misc]
    """Options that leave layers out: None, Identity, an empty Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.norm: Any = None
        self.drop, self.act, self.empty = nn.Identity(), nn.Sequential(), None
        self.register_parameter("bias", None)
        self.register_buffer("mask", None)
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        x = self.act(self.drop(x)) * self.weight
        x = x if self.norm is None else self.norm(x)
        return x if self.bias is None else x + self.bias


class Recursive(nn.Module):  # type: ignore[misc]
    """One layer, as often as a setting says."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.layer, self.depth = nn.Linear(3, 3), depth

    def forward(self, x: Any, depth: int = 0) -> Any:
        if depth == self.depth:
            return x
        return self.forward(torch.tanh(self.layer(x)), depth + 1) + x


class Optional(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(
        self,
        x: Any,
        mask: Any = None,
        scale: float = 1.0,
        mode: str = "mean",
        returns_all: bool = False,
    ) -> Any:
        y = self.linear(x) * scale
        if mask is not None:
            y = y.masked_fill(mask.unsqueeze(-1), 0.0)
        made = getattr(y, mode)(1)
        return (made, y) if returns_all else made


class Listed(nn.Module):  # type: ignore[misc]
    """Inputs in a list, of which there may be any number."""

    def forward(self, xs: list[Any]) -> Any:
        return torch.cat([x * (i + 1) for i, x in enumerate(xs)], -1)


class Star(nn.Module):  # type: ignore[misc]
    def forward(self, first: Any, *rest: Any, weight: float = 1.0, **named: Any) -> Any:
        total = first
        for x in rest:
            total = total * x
        return total * weight + sum(named.values())


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Made:
    logits: Any
    loss: Any = None
    hidden: Any = field(default=())


torch.utils._pytree.register_dataclass(Made)


class Norms(nn.Module):  # type: ignore[misc]
    """Inputs in a named tuple, results in a data class."""

    def forward(self, p: Point) -> Made:
        return Made(p.x * p.y, (p.x - p.y).norm(), (p.x.sin(), p.y.cos()))


class Deep(nn.Module):  # type: ignore[misc]
    def forward(self, batch: Any) -> Any:
        (a, (b, named)), d = batch["first"], batch["second"]
        return {"out": [(a * b, {"x": named["c"] + d}), d.exp()]}


class Sorted(nn.Module):  # type: ignore[misc]
    """Keys in another order than that of the alphabet."""

    def forward(self, named: Any) -> Any:
        return OrderedDict(z=named["z"] * 2 - named["a"], b=named["a"].sin())


class Plain(nn.Module):  # type: ignore[misc]
    """Tensors and numbers that are plain attributes, lists of them, a table of a class."""

    TABLE = torch.tensor([1.0, 2.0, 4.0])

    def __init__(self) -> None:
        super().__init__()
        self.tables = [torch.ones(3) * i for i in range(1, 3)]
        self.numbers = {"scale": 0.5, "shift": math.pi}
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        x = x * self.TABLE * self.numbers["scale"] + self.numbers["shift"]
        return sum(x * t for t in self.tables) * self.weight * table(3)


class Shared(nn.Module):  # type: ignore[misc]
    """One layer under two names, and a weight that is the transpose of another."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 3)
        self.again = self.encoder
        self.decoder = nn.Linear(3, 4)
        self.list = nn.ModuleList([self.encoder, self.decoder])

    def forward(self, x: Any) -> Any:
        h = self.again(self.decoder(torch.relu(self.encoder(x))))
        return h @ self.encoder.weight + F.linear(h, self.list[0].weight.t())


class Ensemble(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList([nn.Linear(3, 2) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        made = torch.stack([net(x).softmax(-1) for net in self.nets])
        return made.mean(0), made.var(0)


class Mapped(nn.Module):  # type: ignore[misc]
    """Higher functions of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
        self.act = functools.partial(F.leaky_relu, negative_slope=0.3)

    def forward(self, x: Any) -> Any:
        made = functools.reduce(lambda h, f: self.act(f(h)), self.layers, x)
        return made + sum(map(lambda f: f(x), reversed(self.layers)))  # noqa: C417


class Checked(nn.Module):  # type: ignore[misc]
    """Assertions on shapes and types."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        assert x.dim() == 2, "two axes"
        if x.size(-1) != self.linear.in_features:
            raise ValueError("features")
        torch._assert(x.shape[1] == 3, "features")
        if not torch.is_floating_point(x) or x.is_complex():
            x = x.float()
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            return x
        if torch.compiler.is_compiling():
            x = x * 1
        return self.linear(x.to(self.linear.weight.dtype).to(x.device))


class CheckedValues(nn.Module):  # type: ignore[misc]
    """An assertion on values."""

    def forward(self, x: Any) -> Any:
        assert not torch.isnan(x).any(), "no numbers"
        return x * 2


class Sparse(nn.Module):  # type: ignore[misc]
    """An embedding with sparse gradients, which are the same numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 3, sparse=True)

    def forward(self, i: Any) -> Any:
        return self.words(i)


class Cast(nn.Module):  # type: ignore[misc]
    """A part in another precision."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3).double()

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x).double()).float()


def autocast(w: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return y.float()


def autocast_off(w: Any, x: Any) -> Any:
    with torch.autocast("cpu", enabled=False):
        return x.float() @ w.float()


def einops_like(x: Any) -> Any:
    """b (h p) (w q) c to b (h w) (p q c)."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(b, (h // 2) * (w // 2), -1).softmax(-1)


def profiled(x: Any) -> Any:
    with torch.profiler.record_function("part"):
        y = x.sin()
    return y * x


def seen(x: Any) -> Any:
    y = x.exp()
    print(end="")
    return y * x


def caught(x: Any) -> Any:
    try:
        y = x.view(7)
    except RuntimeError:
        y = x.reshape(-1)
    return y * 2


def generated(x: Any) -> Any:
    def parts() -> Any:
        for i in range(x.shape[0]):
            yield x[i] * i

    return torch.stack(list(parts()))


def by_size(x: Any) -> Any:
    n = x.numel() // x.size(0)
    return x / math.sqrt(n) + len(x) + x.ndim + x.stride(0)


CASES: Cases = {
    "compiled": Case(lambda: torch.compile(linear()), lambda r: [r(2, 3)]), "compiled inside": Case(lambda: Holds(
        torch.compile(linear())), lambda r: [r(2, 3)]), "a compiled function": of(lambda x: compiled(x) * x,
        lambda r: [r(3)]), "compiled in place": Case(lambda: compiled_in_place(), lambda r: [r(2, 3)]),
    "data parallel inside": Case(lambda: Holds(nn.DataParallel(linear())), lambda r: [r(2, 3)]),
        "scripted inside": Case(lambda: Holds(torch.jit.script(linear())), lambda r: [r(2, 3)], refused=
        "ScriptModule|script"), "traced": Case(lambda: torch.jit.trace(linear(), torch.ones(2, 3)), lambda r: [
        r(2, 3)], refused="ScriptModule"), "a scripted function": of(lambda x: scripted_swish(x) * x, lambda r: [
        r(3)]), "scripted if tracing": of(lambda x: scripted_if_tracing(x) * x, lambda r: [r(3)]),
    "symmetric": Case(parametrized(Symmetric), lambda r: [r(2, 3)]), "positive": Case(parametrized(Positive),
        lambda r: [r(2, 3)]), "pruned": Case(pruned, lambda r: [r(2, 3)]), "pruned twice": Case(pruned_twice,
        lambda r: [r(2, 4)]), "weight norm, old": Case(weight_norm_of_old, lambda r: [r(2, 3)]),
        "weight norm of a convolution": Case(lambda: parametrizations.weight_norm(nn.Conv1d(2, 3, 2), dim=0),
        lambda r: [r(1, 2, 4)]), "weight norm of all": Case(lambda: parametrizations.weight_norm(nn.Linear(3,
        2), dim=None), lambda r: [r(2, 3)]),
    "a hook before": Case(with_pre_hook, lambda r: [r(2, 3)]), "a hook with names": Case(with_keyword_hook,
        lambda r: [r(2, 3)]), "features by a hook": Case(Features, lambda r: [r(2, 3)]), "a patched forward": Case(
        patched, lambda r: [r(2, 3)]), "a standardized weight": Case(standardized, lambda r: [r(1, 2, 5, 5)]),
        "a subclass": Case(lambda: Subclass(3, 2), lambda r: [r(2, 3)]), "a property": Case(Property, lambda r: [
        r(2, 3)]), "methods": Case(Methods, lambda r: [r(2, 3)]), "chosen": Case(Chosen, lambda r: [r(2, 3)]),
        "chosen by an argument": Case(Chosen, lambda r: {"x": r(2, 3), "kind": "a"}), "left out": Case(Skipped,
        lambda r: [r(2, 3)]), "recursive": Case(Recursive, lambda r: [r(2, 3)]),
    "options": Case(Optional, lambda r: [r(2, 4, 3), r.bools(2, 4), 0.5, "sum", True]), "options by name": Case(
        Optional, lambda r: {"x": r(2, 4, 3), "returns_all": True}), "options that are None": Case(Optional,
        lambda r: [r(2, 4, 3), None, 2.0]), "a list": Case(Listed, lambda r: [[r(2, 3), r(2, 2), r(2, 1)]]),
        "stars": Case(Star, lambda r: [r(3), r(3), r(3)]), "stars and names": Case(Star, lambda r: {"first": r(
        3), "extra": r(3), "weight": 2.0}), "a named tuple": Case(Norms, lambda r: [Point(r(3), r(3))]),
        "deep": Case(Deep, lambda r: [{"first": (r(3), [r(3), {"c": r(3)}]), "second": r(3)}]),
        "keys in their order": Case(Sorted, lambda r: [{"z": r(3), "a": r(3)}]), "one tensor": of(lambda x: x * 2,
        lambda r: [r(3)]),
    "plain attributes": Case(Plain, lambda r: [r(2, 3)]), "shared layers": Case(Shared, lambda r: [r(2, 4)]),
        "an ensemble": Case(Ensemble, lambda r: [r(2, 3)]), "higher functions": Case(Mapped, lambda r: [r(2, 3)]),
        "checks": Case(Checked, lambda r: [r(2, 3)]), "checks of values": Case(CheckedValues, lambda r: [r(3)]),
        "sparse gradients": Case(Sparse, lambda r: [r.ints(5, 4)]), "two precisions": Case(Cast, lambda r: [r(
        2, 3)]), "autocast": with_weight(autocast, (3, 3), lambda r: [r(2, 3)], tolerance=2e-2),
        "autocast off": with_weight(autocast_off, (3, 3), lambda r: [r(2, 3)]), "half of a network": Case(
        lambda: seq(nn.Linear(3, 4), nn.ReLU()).half(), lambda r: [r(2, 3).half()], tolerance=1e-2),
    "einops": of(einops_like, lambda r: [r(2, 4, 4, 3)]), "profiled": of(profiled, lambda r: [r(3)]),
        "printed": of(seen, lambda r: [r(3)]), "a caught error": of(caught, lambda r: [r(2, 3)]),
        "a generator": of(generated, lambda r: [r(3, 2)]), "sizes": of(by_size, lambda r: [r(2, 3)]),
        "deep copies": of(lambda x: x.clone().detach().clone() * x.clone(), lambda r: [r(3)]),
        "a number of 64 bits": of(lambda x: x * torch.tensor(0.1, dtype=torch.float64).float(), lambda r: [r(3)]),
        "numpy of a constant": of(lambda x: x * torch.from_numpy(np.arange(3) + 1.0).to(x.dtype), lambda r: [r(
        3)]), "a tensor of results": of(lambda x: torch.stack([x.sum(), x.max(), torch.tensor(1.0)]), lambda r: [
        r(3)]), "a tensor of tensors": of(lambda x: torch.tensor([x.sum(), x.max()]) * x[:2], lambda r: [r(3)]),
        "a tensor of lists of tensors": of(lambda x: torch.tensor([[(x > 0).sum(), 1], [2, (x > 1).sum()]]) * x,
        lambda r: [r(2)]), "a tensor of numbers of numpy": of(lambda x: torch.tensor([x.sum(), np.float32(0.5),
        np.float64(1.5)]) * x, lambda r: [r(3)]), "a tensor of whole numbers": of(lambda x: torch.tensor([(x > 0).sum(
        ).int(), 2]) / 4 * x, lambda r: [r(2)]), "a sparse tensor": of(lambda x: torch.sparse_coo_tensor(torch.tensor
        ([[0, 1]]), x[:2], (3,)).to_dense(), lambda r: [r(3)], refused="use dense ones"),
        "a tensor of answers": of(lambda x: torch.as_tensor((x.sum() > 0, True)) * x, lambda r: [r(2)]),
        "a tensor of tensors and numbers": of(lambda x: torch.as_tensor([x.prod(), 0.5], dtype=torch.float64).float(
        ) * x, lambda r: [r(2)]),
    "vmap over a layer": Case(lambda: Holds(Mapping()), lambda r: [r(2, 3)]), "an ensemble by vmap": Case(
        lambda: Vectorized(), lambda r: [r(2, 3)]), "jacobian": of(lambda x: torch.func.jacrev(torch.sin)(x) @ x,
        lambda r: [r(3)]), "hessian": of(lambda x: torch.func.hessian(lambda y: (y**3).sum())(x) @ x, lambda r: [
        r(3)]), "polar numbers": of(lambda x: torch.view_as_real(torch.polar(x.abs(), x)), lambda r: [r(3)]),
        "fft of a signal": of(lambda x: torch.fft.rfft(x).abs(), lambda r: [r(4)]), "stft": of(lambda x: torch.stft(
        x, 4, return_complex=True).abs(), lambda r: [r(16)]), "rotary by complex numbers": of(lambda x: torch.view_as_complex(
        x.view(2, 2, 2)).abs(), lambda r: [r(2, 4)]), "nested tensors": of(lambda x: torch.nested.nested_tensor
        ([x[0], x[1, :2]]).to_padded_tensor(0.0), lambda r: [r(2, 3)], refused="nested|pad"), "sparse product": of(
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), x[0, :2], (2, 2)) @ x, lambda r: [r(
        2, 3)], refused="sparse"), "sparse by to_sparse": of(lambda x: torch.sparse.sum(x.to_sparse()) * x,
        lambda r: [r(2, 3)], refused="sparse"),
    "eigenvalues": of(lambda x: torch.linalg.eigvalsh(x @ x.t()), lambda r: [r(3, 3)], refused="outside"),
        "svd": of(lambda x: torch.linalg.svdvals(x), lambda r: [r(3, 3)], refused="outside"), "solve": of(
        lambda x: torch.linalg.solve(x, x[0]), lambda r: [r(3, 3)]), "cholesky": of(lambda x: torch.linalg.cholesky(
        x @ x.t() + torch.eye(3)), lambda r: [r(3, 3)]), "det": of(torch.det, lambda r: [r(3, 3)]), "slogdet": of(
        lambda x: torch.linalg.slogdet(x)[1], lambda r: [r(3, 3)]), "matrix power": of(lambda x: torch.linalg.matrix_power(
        x, 3), lambda r: [r(3, 3)]), "lgamma": of(torch.lgamma, lambda r: [r.positive(3)], refused=
        "outside|NNEF"), "digamma": of(torch.digamma, lambda r: [r.positive(3)], refused="outside|NNEF"), "i0": of(
        torch.i0, lambda r: [r(3)], refused="outside|NNEF"), "ctc": Case(lambda: Ctc(), lambda r: [r(6, 2, 4)],
        refused="outside|loss"), "a custom operation": of(lambda x: doubled(x) * x, lambda r: [r(3)], refused=
        "own::doubled|own.doubled"), "a loop of torch": of(lambda x: torch._higher_order_ops.while_loop(lambda i,
        y: i < 3, lambda i, y: (i + 1, y.sin()), (torch.tensor(0), x))[1], lambda r: [r(3)], refused=
        "while_loop|loop"),
}  # fmt: skip


class Mapping(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return torch.vmap(self.linear)(x)


class Vectorized(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(4, 3, 2))

    def forward(self, x: Any) -> Any:
        return torch.vmap(lambda w, y: y @ w, in_dims=(0, None))(self.weights, x)


class Ctc(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.loss = nn.CTCLoss()

    def forward(self, x: Any) -> Any:
        n, m = torch.full((2,), 6), torch.full((2,), 2)
        return self.loss(x.log_softmax(-1), torch.tensor([[1, 2], [3, 1]]), n, m)


def compiled_in_place() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.compile()
    return layer


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


doubled: Any = torch.library.custom_op("own::doubled", twice, mutates_args=())


doubled.register_fake(lambda x: torch.empty_like(x))
doubled.register_autograd(lambda ctx, dy: dy * 2)
