"""The calculus is closed: the backward graph of every operation can be differentiated
again.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.checks import check_twice
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.language.library import standard


def test_every_operation_has_a_model() -> None:
    assert {model.operation for model in models()} == set(standard())


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_every_operation_twice(model: Model) -> None:
    values = random_values(nnef_grad.loads(model.text), seed=1)
    given: dict[str, Any] = {
        "feeds": {k: torch.from_numpy(v) for k, v in values.inputs.items()},
        "variables": {k: torch.from_numpy(v) for k, v in values.variables.items()},
    }
    check_twice(model.text, shapes=False, **given)
