"""Inverses, determinants and the like of small matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from support.torch_modules import Case, Cases, Make, of, with_weight

SIZES = (1, 2, 3, 4, 7)


def regular(n: int, *others: tuple[int, ...]) -> Make:
    """Two matrices with inverses, whose determinants have both signs, and more."""

    def make(r: Any) -> list[Any]:
        x = r(2, n, n) + 3 * torch.eye(n)
        return [torch.stack([x[0], x[1].flip(0)]), *(r(*shape) for shape in others)]

    return make


def square(n: int) -> Make:
    return lambda r: [r(5, n, n)]


def shaped(*shape: int) -> Make:
    return lambda r: [r(*shape)]


def definite(function: Any, n: int) -> Case:
    """Of symmetric matrices with positive eigenvalues."""
    return of(lambda x: function(x @ x.mT + torch.eye(n)), lambda r: [r(2, n, n)])


def exponentials(x: Any) -> Any:
    """Of several norms, each of which is halved another number of times; one is zero."""
    sizes = torch.tensor([0.0, 0.01, 1.0, 5.0, 40.0])[:, None, None]
    return torch.matrix_exp((x - x.mT) * sizes)


def coupled(weight: Any, x: Any) -> Any:
    """An invertible product of channels, with its logarithm (Glow)."""
    return x @ weight, torch.linalg.slogdet(weight)[1], x @ weight.inverse()


class Density(nn.Module):  # type: ignore[misc]
    """A normal distribution whose covariance a network computes."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.scale = nn.Linear(3, 2), nn.Linear(3, 4)

    def forward(self, x: Any, y: Any) -> Any:
        scale = self.scale(x).view(-1, 2, 2)
        covariance = scale @ scale.mT + 0.5 * torch.eye(2)
        cholesky = torch.linalg.cholesky(covariance)
        normal = torch.distributions.MultivariateNormal(
            self.mean(x), scale_tril=cholesky, validate_args=False
        )
        return normal.log_prob(y), normal.entropy()


class Moving(nn.Module):  # type: ignore[misc]
    """Whitens, and moves a mean in a buffer: the program is decomposed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        x = x - self.mean
        cov = x.T @ x / len(x) + torch.eye(3)
        y = x @ torch.linalg.inv(cov), torch.linalg.cholesky(cov), torch.linalg.det(cov)
        return *y, torch.linalg.solve(cov, x.T), torch.linalg.slogdet(cov)[1]


def orthogonal(n: int, name: str) -> Any:
    return nn.utils.parametrizations.orthogonal(nn.Linear(n, n), orthogonal_map=name)


def by_triangle(upper: bool, x: Any, y: Any) -> Any:
    solve = partial(torch.linalg.solve_triangular, upper=upper)
    z = solve(x, y) + solve(x.triu() if upper else x.tril(), y.mT, left=False).mT
    return z, solve(x, y, unitriangular=True)


def by_product(upper: bool, x: Any, y: Any) -> Any:
    return torch.cholesky_solve(y, x, upper), torch.cholesky_inverse(x, upper)


def has_qr() -> bool:
    """Whether torch has the older function: it is there, and only raises, in newer ones."""
    try:
        torch.qr(torch.eye(1))
    except RuntimeError:
        return False
    return True


SHAPES = ((4, 4), (5, 3), (3, 5), (2, 3, 1), (1, 4))


def outside(size: str) -> str:
    return f"the matrices are {size}, and there are formulas .*compute it outside"


CASES: Cases = {
    **{f"inverse, {n}": of(torch.linalg.inv, regular(n)) for n in SIZES},
    **{f"determinant, {n}": of(lambda x: (torch.det(x), torch.slogdet(x), torch.logdet(x @ x.mT)), regular(n)) for n in SIZES},
    **{f"solution, {n}": of(torch.linalg.solve, regular(n, (2, n, 3))) for n in SIZES},
    **{f"cholesky, {n}": definite(torch.linalg.cholesky, n) for n in SIZES},
    **{f"exponential, {n}": of(exponentials if n > 1 else torch.matrix_exp, square(n)) for n in SIZES},
    "singular": of(lambda x: torch.det(x @ torch.tensor([[1.0, 2, 0], [0, 1, 1], [1, 3, 1]])), lambda r: [r(2, 3, 3)]),
    "permutations": of(lambda x: torch.inverse(x * torch.eye(4)[[2, 0, 3, 1]]), lambda r: [r.positive(4, 4)]),
    "a vector": of(torch.linalg.solve, regular(3, (3,))),
    "vectors": of(torch.linalg.solve, regular(3, (2, 3))),
    "from the right": of(lambda x, y: torch.linalg.solve(x, y, left=False), regular(3, (4, 3))),
    "of broadcast matrices": of(torch.linalg.solve, regular(3, (5, 1, 3, 2))),
    "upper triangles": definite(lambda x: torch.linalg.cholesky(x, upper=True), 3),
    "of one triangle": of(lambda x: torch.linalg.cholesky(x.tril() + 4 * torch.eye(3)), lambda r: [r(3, 3)]),
    "solutions of lower triangles": of(partial(by_triangle, False), regular(3, (2, 3, 3))),
    "solutions of upper triangles": of(partial(by_triangle, True), lambda r: [r(3, 3) + 3 * torch.eye(3), r(2, 3, 3)]),
    "solutions by lower triangles": of(partial(by_product, False), lambda r: [(r(2, 3, 3) + 3 * torch.eye(3)).tril(), r(2, 3, 2)]),
    "solutions by upper triangles": of(partial(by_product, True), lambda r: [(r(2, 3, 3) + 3 * torch.eye(3)).triu(), r(2, 3, 2)]),
    "products of channels": with_weight(coupled, (4, 4), lambda r: [r(5, 4)]),
    "a density": Case(Density, lambda r: [r(4, 3), r(4, 2)]),
    "moved statistics": Case(Moving, lambda r: [r(5, 3)]),
    "orthogonal": Case(lambda: orthogonal(4, "matrix_exp"), lambda r: [r(2, 4)]),
    "orthogonal, cayley": Case(lambda: orthogonal(3, "cayley"), lambda r: [r(2, 3)]),
    **{f"orthogonal and triangular, {shape}": of(torch.linalg.qr, shaped(*shape)) for shape in SHAPES},
    **({"orthogonal and triangular, old": of(torch.qr, shaped(4, 3))} if has_qr() else {}),
    "orthogonal, complete": of(lambda x: (*torch.linalg.qr(x.detach(), mode="complete"), x), lambda r: [r(4, 2)]),
    "triangular alone": of(lambda x: torch.linalg.qr(x.detach(), mode="r")[1] * x[:3], lambda r: [r(4, 3)]),
    "of what is triangular": of(torch.linalg.qr, lambda r: [r(2, 4, 4).triu() * torch.tensor([[1.0], [-1]])[..., None]]),
    "of what is a permutation": of(torch.linalg.qr, lambda r: [torch.eye(5)[[2, 0, 4, 1, 3]]]),
    "of zeros": of(lambda x: torch.linalg.qr(x.detach() * 0)[0] + x, lambda r: [r(3, 3)]),
    "determinant of a permutation": of(torch.det, lambda r: [torch.eye(7)[[2, 0, 4, 1, 3, 6, 5]] * r.positive(7)]),
    **{f"pseudoinverse, {shape}": of(torch.linalg.pinv, shaped(*shape)) for shape in SHAPES},
    "pseudoinverse, with a bound": of(lambda x: torch.linalg.pinv(x, rtol=0.1), lambda r: [r(4, 3)], refused="singular values"),
    "large": of(torch.linalg.inv, regular(65), refused=outside("65 x 65")),
    "wide": of(lambda x: torch.linalg.qr(x)[0], lambda r: [r(65, 65)], refused=outside("65 x 65")),
    "whether there is an inverse": of(lambda x: x * torch.linalg.inv_ex(x)[1].sum(), lambda r: [r(3, 3)], refused="only the first result"),
}  # fmt: skip
