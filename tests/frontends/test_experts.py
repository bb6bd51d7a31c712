"""Rows that are sorted by their experts, each times the matrix of its own, as in PyTorch's
`grouped_mm` and in mixtures of experts of transformers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnef_grad
from nnef_grad.interop import from_torch

grouped_mm: Any = getattr(nn.functional, "grouped_mm", None)
pytestmark = pytest.mark.skipif(grouped_mm is None, reason="torch has no grouped_mm")


class Experts(nn.Module):  # type: ignore[misc]
    """It is exported in half precision alone."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(4, 8, 16, dtype=torch.bfloat16))

    def forward(self, rows: Tensor, ends: Tensor) -> Tensor:
        made: Tensor = grouped_mm(rows.bfloat16(), self.matrices, offs=ends)
        return made.float()


def one_by_one(rows: Tensor, matrices: Tensor, ends: list[int]) -> Tensor:
    parts = [
        rows[begin:end] @ matrix
        for begin, end, matrix in zip([0, *ends], ends, matrices, strict=False)
    ]
    return torch.cat(parts)


@pytest.mark.parametrize(
    "ends", [[2, 2, 5, 6], [0, 1, 4, 6], [6, 6, 6, 6], [0, 0, 0, 6]]
)
def test_rows_of_experts(ends: list[int]) -> None:
    torch.manual_seed(0)
    module, numbers = Experts(), torch.tensor(ends, dtype=torch.int32)
    model = from_torch(module, (torch.randn(6, 8), numbers))
    backward = nnef_grad.differentiate(model.graph, with_outputs=True)
    rows = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    matrices = module.matrices.detach().double().requires_grad_()
    wanted = one_by_one(rows, matrices, ends)
    cotangent = torch.randn_like(wanted)
    wanted.backward(cotangent)
    (seed,) = backward.seeds.values()
    fed = {
        "rows": rows.detach().numpy(),
        "ends": numbers.numpy(),
        seed: cotangent.numpy(),
    }
    found = nnef_grad.evaluate(backward, fed, model.data)
    pairs = (
        ("output", wanted.detach()),
        (backward.gradients["rows"], rows.grad),
        (backward.gradients["matrices"], matrices.grad),
    )
    for name, array in pairs:
        np.testing.assert_allclose(found[name], array, atol=1e-12)
