"""Modules of PyTorch as users write them: right, next to autograd in double precision, or
refused; at the inputs that they are traced with, and at others.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from support.torch_gradients import compare
from support.torch_modules import Draw, all_cases

import nnef_grad
from nnef_grad import interop

CASES = all_cases()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_modules(name: str) -> None:
    case = CASES[name]
    torch.manual_seed(0)
    module = case.module().train(case.trains)
    given, fresh = (case.inputs(Draw(seed)) for seed in (1, 2))
    if case.refused is not None:
        with pytest.raises(nnef_grad.NnefGradError, match=f"(?i){case.refused}"):
            interop.from_torch(module, given, **case.options)
        return
    uses_mode = "torch.cond" not in name
    compare(
        module,
        given,
        fresh,
        tolerance=case.tolerance,
        uses_mode=uses_mode,
        **case.options,
    )
