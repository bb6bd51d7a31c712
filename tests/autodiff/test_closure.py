"""The calculus is closed: the backward graph of every operation can be differentiated
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.checks import check_twice, document
from support.operation_models import Model, models

import nnef_grad
from nnef_grad.interpreter.random_values import random_values
from nnef_grad.language.library import STDLIB


def test_every_operation_has_a_model() -> None:
    assert {model.operation for model in models()} == set(STDLIB)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.name)
def test_every_operation_twice(model: Model) -> None:
    values = random_values(nnef_grad.loads(model.text), seed=1)
    given: dict[str, Any] = {
        "feeds": {k: torch.from_numpy(v) for k, v in values.inputs.items()},
        "variables": {k: torch.from_numpy(v) for k, v in values.variables.items()},
    }
    check_twice(model.text, shapes=False, **given)


FILTERED = document(
    "{t}\nw = external(shape = [4, 1, 2, 2]);\ny = conv(t, w, padding = [(0, 0), (0, 0)]);",
    "{x}, w",
)
TURNED = "x = external(shape = [1, 3, 5, 5]);\nt = transpose(x, axes = [1, 0, 2, 3]);"
GIVEN = "t = external(shape = [3, 1, 5, 5]);"


def curvature(text: str, t: Any) -> Any:
    """The gradient with respect to t of what w receives."""
    given = {"x": t, "t": t}
    if "transpose" in text:
        given["x"] = t.transpose(1, 0, 2, 3)
    first = nnef_grad.differentiate(nnef_grad.loads(text), wrt=["t", "w"]).graph
    second = nnef_grad.differentiate(first, wrt=["t"], outputs=["grad_w"]).graph
    random = np.random.default_rng(0)
    drawn = {
        name: random.standard_normal(second.tensors[name].shape)
        for name in sorted({*second.input_names} - {"x", "t"})
    }
    fed = {n: v for n, v in (given | drawn).items() if n in second.input_names}
    return nnef_grad.evaluate(second, fed)[second.output_names[0]]


def test_what_is_named_is_not_looked_through() -> None:
    """A derivative with respect to a tensor on the way is that of its own uses, however
    short what made it would make it.
    """
    t = np.random.default_rng(1).standard_normal((3, 1, 5, 5))
    wanted = curvature(FILTERED.replace("{t}", GIVEN).replace("{x}", "t"), t)
    found = curvature(FILTERED.replace("{t}", TURNED).replace("{x}", "x"), t)
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted)
