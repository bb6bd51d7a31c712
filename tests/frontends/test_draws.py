"""Random numbers that a module draws: inputs of the graph, at which torch is compared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.torch_gradients import compare
from torch import Tensor, nn
from torch.distributions import (
    Categorical,
    Independent,
    Laplace,
    Normal,
    RelaxedBernoulli,
)
from torch.nn import functional

import nnef_grad
from nnef_grad.frontends.torch.model import Drawn
from nnef_grad.interop import from_torch


class Module(nn.Module):  # type: ignore[misc]
    """A function of a scaled input."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.scale = function, nn.Parameter(torch.rand(4) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * self.scale)


def empty(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def coins(x: Tensor) -> Tensor:
    return x * empty(x).bernoulli_(x.sigmoid().detach())


# The function, the distributions of what it draws, and where they lie.
DRAWS: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "randn": (lambda x: x * torch.randn(3, 4), ["normal"]),
    "randn_like, twice": (
        lambda x: x * torch.randn_like(x) + torch.randn_like(x).sin(),
        ["normal", "normal"],
    ),
    "randn_like, used twice": (
        lambda x: (z := torch.randn_like(x)) * x + z,
        ["normal"],
    ),
    "rand": (lambda x: x * torch.rand(x.shape[0], 1), ["uniform"]),
    "rand_like": (lambda x: (x > torch.rand_like(x)) * x, ["uniform"]),
    "normal_": (lambda x: x * empty(x).normal_(1, 2), ["normal"]),
    "uniform_": (lambda x: x * empty(x).uniform_(-1, 1), ["uniform"]),
    "cauchy_": (lambda x: x * empty(x).cauchy_(), ["cauchy"]),
    "log_normal_": (lambda x: x * empty(x).log_normal_(0.5, 0.2), ["log_normal"]),
    "geometric_": (lambda x: x * empty(x).geometric_(0.4), ["geometric"]),
    "exponential_": (lambda x: x * empty(x).exponential_(2.0), ["exponential"]),
    "gumbel": (lambda x: functional.gumbel_softmax(x, 0.7), ["exponential"]),
    "hard gumbel": (lambda x: functional.gumbel_softmax(x, hard=True), ["exponential"]),
    "randint": (lambda x: x[torch.randint(0, 3, (5,))], ["integers"]),
    "randint_like": (lambda x: x * torch.randint_like(x, 2, 5), ["integers"]),
    "randperm": (lambda x: x[torch.randperm(x.shape[0])], ["permutation"]),
    "bernoulli": (lambda x: x * torch.bernoulli(x.sigmoid()), ["uniform"]),
    "bernoulli_ of data": (coins, ["uniform"]),
    "bernoulli_": (lambda x: x * empty(x).bernoulli_(0.3), ["kept"]),
    "normal of means": (lambda x: x + torch.normal(x, 0.5), ["normal"]),
    "normal of deviations": (lambda x: x + torch.normal(0.5, x.exp()), ["normal"]),
    "normal of both": (lambda x: x + torch.normal(x, x.exp()), ["normal"]),
    "normal of a shape": (lambda x: x * torch.normal(1.0, 2.0, (3, 4)), ["normal"]),
    "multinomial": (
        lambda x: x.gather(1, torch.multinomial(x.softmax(-1), 2)),
        ["exponential"],
    ),
    "multinomial, replaced": (
        lambda x: x.gather(1, torch.multinomial(x.softmax(-1), 6, replacement=True)),
        ["exponential"],
    ),
    "multinomial of a row": (
        lambda x: x[:, torch.multinomial(x[0].softmax(-1), 5, replacement=True)],
        ["exponential"],
    ),
    "rrelu": (lambda x: functional.rrelu(x, training=True), ["uniform"]),
    "Normal": (lambda x: Normal(x, x.exp()).rsample(), ["normal"]),
    "Laplace": (lambda x: Laplace(x, x.exp()).rsample((2,)), ["uniform"]),
    "Independent": (
        lambda x: (d := Independent(Normal(x, x.exp()), 1)).log_prob(d.rsample()),
        ["normal"],
    ),
    "Categorical": (
        lambda x: (d := Categorical(logits=x)).log_prob(d.sample()),
        ["exponential"],
    ),
    "RelaxedBernoulli": (
        lambda x: RelaxedBernoulli(torch.tensor(0.5), logits=x).rsample(),
        ["uniform"],
    ),
    "a derivative": (
        lambda x: torch.func.grad(lambda y: (y.sin() * torch.randn(3, 4)).sum())(x),
        ["normal"],
    ),
    "a derivative of what is as large": (
        lambda x: torch.autograd.grad(
            (x.sin() * torch.randn_like(x)).sum(), x, create_graph=True
        )[0],
        ["normal"],
    ),
    "beside dropout": (
        lambda x: functional.dropout(x + torch.randn_like(x), 0.4),
        ["normal", "kept"],
    ),
}
REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "poisson": (lambda x: torch.poisson(x.exp()), "has no formula: make what is drawn"),
    "dropout in a derivative": (
        lambda x: torch.func.grad(lambda y: functional.dropout(y.sin()).sum())(x),
        "what is differentiated drops elements at random",
    ),
    "the same for each example": (
        lambda x: torch.func.vmap(lambda row: row * torch.randn(4), randomness="same")(
            x
        ),
        "draw outside of it",
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_torch_at_what_is_drawn(name: str) -> None:
    function, distributions = DRAWS[name]
    model = compare(Module(function), (torch.randn(3, 4),), (torch.randn(3, 4),))
    assert [drawn.distribution for drawn in model.random.values()] == distributions


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(nnef_grad.UnsupportedError, match=message):
        from_torch(Module(function), (torch.randn(3, 4),))


def test_open_extents() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * torch.randn_like(x))[torch.randperm(x.shape[0])]

    shapes = ({0: torch.export.Dim("n", min=2)},)
    module, given = Module(function), (torch.randn(3, 4),)
    fresh = (torch.randn(5, 4),)
    model = compare(module, given, fresh, dynamic_shapes=shapes)
    assert {a.shape for a in model.draw(extents={"n": 7}).values()} == {(7, 4), (7,)}


def test_a_bound_may_be_an_extent() -> None:
    def function(x: Tensor) -> Tensor:
        return x[torch.randint(0, x.shape[0], (6,))]

    shapes = ({0: torch.export.Dim("n", min=2)},)
    model = compare(
        Module(function),
        (torch.randn(3, 4),),
        (torch.randn(5, 4),),
        dynamic_shapes=shapes,
    )
    draws = np.stack([*(model.draw(extents={"n": 2})["randint"] for _ in range(50))])
    assert {*draws.flat} == {0, 1}


# Distributions, their parameters, and the mean and deviation that they have.
MOMENTS = {
    "kept": ((0.25, 2.0), 0.5, 0.75**0.5),
    "uniform": ((-1.0, 3.0), 1.0, 4 / 12**0.5),
    "normal": ((1.0, 2.0), 1.0, 2.0),
    "log_normal": ((0.0, 0.5), np.exp(0.125), (np.exp(0.5) - np.exp(0.25)) ** 0.5),
    "exponential": ((2.0,), 0.5, 0.5),
    "geometric": ((0.4,), 2.5, 0.6**0.5 / 0.4),
    "integers": ((2, 6), 3.5, 1.25**0.5),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_what_is_drawn_is_so_distributed(name: str) -> None:
    parameters, mean, deviation = MOMENTS[name]
    drawn = Drawn((100_000,), name, parameters).draw(np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(mean, abs=0.02 * max(1.0, deviation))
    assert drawn.std() == pytest.approx(deviation, rel=0.03)


def test_categories_have_their_probabilities() -> None:
    """Those of a row that is fed often, with replacement and without."""
    p = torch.tensor([0.1, 0.2, 0.7])

    class Draws(nn.Module):  # type: ignore[misc]
        def forward(self, p: Tensor) -> Tensor:
            return torch.multinomial(p.expand(20_000, 3), 2, replacement=True)

    model = from_torch(Draws(), (p,))
    fed = {"p": p.numpy(), **model.draw(np.random.default_rng(0))}
    (places,) = nnef_grad.evaluate(model.graph, fed, model.data).values()
    shares = np.bincount(places.astype(int).ravel(), minlength=3) / places.size
    np.testing.assert_allclose(shares, p.numpy(), atol=0.01)


def test_a_function_draws_by_itself() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x * torch.randn_like(x)

    run = nnef_grad.function(from_torch(Module(noisy), (torch.ones(3, 4),)))
    x = np.ones((3, 4), np.float32)
    first, second = (run(x, seed=1).gradients["scale"] for _ in range(2))
    assert np.abs(first - second).min() > 0


def test_each_example_draws() -> None:
    def noisy(x: Tensor) -> Tensor:
        draw = torch.func.vmap(lambda row: row * torch.randn(4), randomness="different")
        return draw(x)

    model = from_torch(Module(noisy), (torch.ones(3, 4),))
    assert [drawn.shape for drawn in model.random.values()] == [(4,)] * 3


def test_the_check_draws_what_may_be_drawn(tmp_path: Path) -> None:
    """A logarithm of what is exponentially distributed."""
    program = torch.export.export(
        Module(functional.gumbel_softmax), (torch.randn(3, 4),)
    )
    torch.export.save(program, tmp_path / "net.pt2")
    line = [sys.executable, "-m", "nnef_grad", "net.pt2", "-o", "out.nnef", "--check"]
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 gradients checked" in done.stderr + done.stdout
