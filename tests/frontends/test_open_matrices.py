"""Functions of matrices, of any number of them: one graph for all batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_gradients import compare
from support.torch_modules import Applied
from torch import Tensor
from torch.export import Dim


def square(x: Tensor) -> Tensor:
    return x[..., :5]


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "orthogonal and triangular": torch.linalg.qr,
    "complete": lambda x: torch.linalg.qr(x[..., :3].detach(), mode="complete")[0] * x[..., :1],
    "inverse": lambda x: torch.linalg.inv(square(x)),
    "determinant": lambda x: torch.linalg.det(square(x)),
    "solution": lambda x: torch.linalg.solve(square(x), x),
    "of a triangle": lambda x: torch.linalg.solve_triangular(square(x), x, upper=True),
    "pseudoinverse": torch.linalg.pinv,
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_number_of_matrices(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(n, 5, 6, generator=generator),) for n in (3, 2, 4)]
    compare(Applied(FUNCTIONS[name]), *batches, dynamic_shapes=(({0: Dim("n")},),))
