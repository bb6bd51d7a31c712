"""Functions of PyTorch with a backward function of their own: gradients are what it makes of them,
beside torch; what is not linear is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import nnef_grad
from nnef_grad import interop


def made(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """A function of PyTorch."""
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type("Own", (Function,), members)
    return function.apply


def keeping(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward function that saves its operands."""

    def saved(ctx: Any, *operands: Any) -> Any:
        ctx.save_for_backward(*operands)
        return forward(*operands)

    return saved


def scaled(ctx: Any, x: Tensor, factor: float) -> Tensor:
    ctx.factor = factor
    return x.view_as(x)


reversed_ = made(scaled, lambda ctx, g: (-ctx.factor * g, None))
binary = made(keeping(torch.sign), lambda ctx, g: g * (ctx.saved_tensors[0].abs() < 1))
rounded = made(lambda ctx, x: x.round(), lambda ctx, g: g)
spike = made(
    keeping(lambda x: (x > 0).to(x.dtype)),
    lambda ctx, g: g / (1 + ctx.saved_tensors[0] ** 2),
)
clipped = made(lambda ctx, x: x * 1, lambda ctx, g: g.clamp(-1, 1))
signed = made(lambda ctx, x: x * 1, lambda ctx, g: g.sign())
penalized = made(
    keeping(lambda x: x * 1), lambda ctx, g: g + 0.1 * ctx.saved_tensors[0].sign()
)
where_large = made(lambda ctx, x: x * 1, lambda ctx, g: torch.where(g > 1, g, 0 * g))
squared = made(lambda ctx, x: x * 1, lambda ctx, g: g * g)


def in_place(ctx: Any, x: Tensor) -> Tensor:
    ctx.mark_dirty(x)
    return x.mul_(2)


def looked_at(ctx: Any, g: Tensor) -> Tensor:
    return g if bool(g.sum() > 0) else -g


def by_autograd(ctx: Any, g: Tensor) -> Tensor:
    with torch.enable_grad():
        x = ctx.saved_tensors[0].detach().requires_grad_()
        x.sin().backward(g)
    assert x.grad is not None
    return x.grad


@once_differentiable  # type: ignore[untyped-decorator]
def of_product(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
    x, w = ctx.saved_tensors
    return 2 * g @ w, g.t() @ x


class NewForm(Function):  # type: ignore[misc]
    """Two results, one of them a place, by a context that is set up apart."""

    @staticmethod
    def forward(x: Tensor) -> Any:
        values, places = x.max(1)
        return values, x * 2, places

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, places = output
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        ctx.size = inputs[0].shape[1]

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor, _: Any) -> Tensor:
        (places,) = ctx.saved_tensors
        hot = nn.functional.one_hot(places, ctx.size).to(first.dtype)
        return hot * first[:, None] * 3 + second.detach()


class NewRounded(Function):  # type: ignore[misc]
    """In the form that torch has for transforms."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def two(x: Tensor) -> Tensor:
    values, twice, places = NewForm.apply(x)
    return values * places + (twice * x).sum(1)


def unused(ctx: Any, first: Tensor, second: Any) -> Tensor:
    assert second is None
    return first * 5


def without_zeros(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    ctx.set_materialize_grads(False)
    kept = (x > 0).float()
    ctx.mark_non_differentiable(kept)
    return x * 2, kept


def wide(ctx: Any, g: Tensor) -> tuple[Any, Any]:
    """What torch sums to the shape of an operand."""
    x, w = ctx.saved_tensors
    needs = ctx.needs_input_grad
    return g * w if needs[0] else None, g * x if needs[1] else None


class Area(Function):  # type: ignore[misc]
    """An integral from 0, by three points: autograd runs in its backward function."""

    @staticmethod
    def forward(ctx: Any, f: Any, end: Tensor, *parameters: Tensor) -> Tensor:
        ctx.f = f
        ctx.save_for_backward(end, *parameters)
        return Area.of(f, end)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, g: Tensor) -> Any:
        end, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            area = Area.of(ctx.f, end)
        return None, ctx.f(end) * g, *torch.autograd.grad(area, parameters, g)

    @staticmethod
    def of(f: Any, end: Tensor) -> Tensor:
        return end * (f(0.1 * end) + f(0.5 * end) + f(0.9 * end)) / 3


def grown(x: Tensor, a: Tensor) -> Tensor:
    area: Tensor = Area.apply(lambda u: (a * u).exp(), x, a)
    return area * a


twice = made(lambda ctx, x: 2 * x, lambda ctx, g: 3 * g)


def of_a_part(ctx: Any, g: Tensor) -> Tensor:
    """The backward function of another one, of a part that is made again."""
    with torch.enable_grad():
        x = ctx.saved_tensors[0].detach().requires_grad_()
        y = twice(x.sin())
    return torch.autograd.grad(y, x, g)[0]


def recorded(ctx: Any, g: Tensor) -> Tensor:
    with torch.enable_grad():
        return twice(g)


RIGHT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "an integral": lambda net, x: Area.apply(lambda u: (1 + net.layer(x) * u).square(), x, *net.layer.parameters()),
    "an integral, of what is computed": lambda net, x: grown(x, net.layer(x)),
    "another one of gradients": lambda net, x: made(lambda ctx, x: x.sin(), lambda ctx, g: twice(g))(net.layer(x)),
    "another one of a part": lambda net, x: made(keeping(torch.sin), of_a_part)(net.layer(x)),
    "another one of operands": lambda net, x: made(keeping(torch.sin), lambda ctx, g: g * twice(ctx.saved_tensors[0]))(net.layer(x)),
    "numbers in a list": lambda net, x: made(lambda ctx, x: x * 1, lambda ctx, g: torch.tensor([g.sum(), 2 * g[1], g[0], g[3]]))(net.layer(x)[0]),
    "reversed": lambda net, x: reversed_(net.layer(x), 0.3).exp(),
    "binary": lambda net, x: binary(net.layer(x)) * net.weight,
    "rounded": lambda net, x: rounded(net.layer(x) * 3).sin(),
    "spikes": lambda net, x: net.layer(spike(net.layer(x))),
    "a product": lambda net, x: made(keeping(lambda x, w: x @ w.t()), of_product)(x, net.layer.weight).exp(),
    "new form": lambda net, x: two(net.layer(x)),
    "without zeros": lambda net, x: made(without_zeros, unused)(net.layer(x))[0].exp(),
    "summed": lambda net, x: made(keeping(torch.mul), wide)(net.layer(x), net.weight[:1]),
    "one that is not needed": lambda net, x: made(keeping(torch.mul), wide)(x, x.detach()),
    "within another": lambda net, x: made(lambda ctx, x: binary(x) * 2, lambda ctx, g: g * 7)(x) * x,
    "one after another": lambda net, x: rounded(binary(rounded(net.layer(x) * 2) / 2) * 1.4) * net.weight,
    "for each example": lambda net, x: torch.vmap(NewRounded.apply)(net.layer(x)) * x,
    "by a choice": lambda net, x: rounded(x) * 2 if x.sum() > 0 else reversed_(x, 2.0),
    "of no gradients": lambda net, x: rounded(x.detach()) * net.layer(x),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[Any, Tensor], Tensor], str]] = {
    "by autograd": (lambda net, x: made(keeping(torch.sin), by_autograd)(x), "cannot be traced"),
    "clipped": (lambda net, x: clipped(x), "not known to be linear"),
    "signs": (lambda net, x: signed(x), "not known to be linear"),
    "a penalty": (lambda net, x: penalized(x), "not known to be linear"),
    "where gradients are large": (lambda net, x: where_large(x), "not known to be linear"),
    "squares": (lambda net, x: squared(x), "not known to be linear"),
    "in place": (lambda net, x: made(in_place, lambda ctx, g: g * 2)(x * 1), "writes into its inputs"),
    "another one of gradients, recorded": (lambda net, x: made(lambda ctx, x: x.sin(), recorded)(x), "called on gradients"),
    "by values": (lambda net, x: made(lambda ctx, x: x * 1, looked_at)(x), "cannot be traced|not known to be linear"),
}  # fmt: skip


class Module(nn.Module):  # type: ignore[misc]
    """A function with a layer and a weight."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.rand(3, 4) + 0.5)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def inputs(seed: int) -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", RIGHT)
def test_gradients(name: str) -> None:
    given = ((inputs(seed),) for seed in range(4))
    compare(Module(RIGHT[name]), *given)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        interop.from_torch(Module(function), [inputs(0)])


def test_the_forward_computation_on_request() -> None:
    graph = interop.from_torch(
        Module(lambda net, x: clipped(x)), [inputs(0)], allow_own_backward=True
    ).graph
    assert [op.name for op in graph.operations] == ["external", "copy"]


@pytest.mark.parametrize("name", ["binary", "a product", "reversed"])
def test_targets_have_no_zeros(name: str) -> None:
    """Where an operand is infinite, it less itself is no number."""
    model = interop.from_torch(Module(RIGHT[name]), [inputs(0)])
    backward = nnef_grad.differentiate(model.graph)
    made = nnef_grad.lower(backward.graph, "onnx").graph
    assert "sub" not in {op.name for op in made.operations}
    assert len(made.operations) < len(backward.graph.operations)
    rng = np.random.default_rng(0)
    shapes = dict(zip(made.input_names, (x.shape for x in made.inputs), strict=True))
    fed = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    data = model.data
    wanted = nnef_grad.evaluate(backward.graph, fed, data)
    for name, y in nnef_grad.evaluate(made, fed, data).items():
        np.testing.assert_allclose(y, wanted[name], rtol=1e-12, atol=1e-12)


def test_texts_have_the_same_gradients() -> None:
    model = interop.from_torch(Module(RIGHT["spikes"]), [inputs(0)])
    again = nnef_grad.loads(nnef_grad.dumps(model.graph))
    first, second = map(nnef_grad.differentiate, (model.graph, again))
    assert first.graph == second.graph


def test_second_derivatives() -> None:
    """Those of a backward function that saves operands alone."""

    class Cube(Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return 3 * ctx.saved_tensors[0] ** 2 * g

    module = Module(lambda net, x: Cube.apply(x).sin().sum())
    model = interop.from_torch(module, [inputs(0)])
    hvp = nnef_grad.hvp(model.graph, wrt=["x"])
    x = inputs(1).double().requires_grad_()
    direction = inputs(2).double()
    (slope,) = torch.autograd.grad((x**3).sin().sum(), x, create_graph=True)
    (wanted,) = torch.autograd.grad((slope * direction).sum(), x)
    names = hvp.graph.input_names
    fed = dict(zip(names, (x.detach().numpy(), direction.numpy()), strict=False))
    fed |= {name: np.ones(()) for name in names[2:]}
    found = nnef_grad.evaluate(hvp.graph, fed)
    (key,) = [n for n, y in found.items() if y.shape == (3, 4)]
    np.testing.assert_allclose(found[key], wanted.numpy(), rtol=1e-9)
