"""PyTorch's own database of operators, with inputs that PyTorch tests them with: each is right
next to autograd, or refused.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest")

import torch
from support.torch_gradients import compare
from torch.utils import _pytree as pytree

import nnef_grad
from nnef_grad import interop

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

# What draws numbers, or has complex ones, or none that are defined: parts of names.
LEFT_OUT = (
    "dropout", "rand", "bernoulli", "multinomial", "normal", "empty", "uniform",
    "exponential", "cauchy", "geometric", "fft", "linalg", "sparse", "complex", "jiterator",
    "stft", "polar", "view_as", "signal", "lu", "cholesky", "svd", "qr", "masked.",
    "new_empty", "lowrank",
)  # fmt: skip
# What is other than in PyTorch, and why.
OTHERWISE = {
    "as_strided_scatter": "PyTorch's gradient is that of what is replaced",
    "bfloat16": "a graph does not round to fewer bits",
    "half": "a graph does not round to fewer bits",
    "resize_": "PyTorch refuses it for what has a gradient",
    "sgn": "PyTorch's gradient has no storage",
    "special.entr": "the largest number is infinity",
    "__rpow__": "logarithms of negative numbers have no gradient",
    "torch.ops.aten._safe_softmax.default": "rows of minus infinity that are fed",
}
OPS = {
    f"{op.name} {op.variant_test_name}".strip(): op
    for op in op_db
    if op.supports_dtype(torch.float32, "cpu")
    and op.name not in OTHERWISE
    and not any(part in op.name for part in LEFT_OUT)
}


class Called(torch.nn.Module):  # type: ignore[misc]
    """A function of the tensors among its arguments."""

    def __init__(self, function: Any, sample: Any) -> None:
        super().__init__()
        self.function = function
        leaves, self.spec = pytree.tree_flatten(
            ((sample.input, *sample.args), sample.kwargs)
        )
        self.others = {i: v for i, v in enumerate(leaves) if not _is_tensor(v)}
        self.places = [i for i, v in enumerate(leaves) if _is_tensor(v)]
        self.given = [leaves[place].detach().clone() for place in self.places]

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known = {**self.others, **dict(zip(self.places, given, strict=True))}
        leaves = [known[place] for place in range(self.spec.num_leaves)]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = pytree.tree_leaves(self.function(*args, **kwargs))
        return tuple(filter(_is_tensor, results))


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPS)
def test_a_sample(name: str) -> None:
    """The middle one of PyTorch's list."""
    op = OPS[name]
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
    torch.manual_seed(0)
    module = Called(op.op, samples[len(samples) // 2]).eval()
    if _is_defined(module):
        _check(module)


def _is_defined(module: Called) -> bool:
    """Whether there are real numbers to compare, and PyTorch computes them."""
    try:
        results = module(*(x.clone() for x in module.given))
    except RuntimeError:
        return False
    is_real = not any(x.is_complex() or x.is_sparse for x in [*module.given, *results])
    has_elements = all(x.numel() for x in module.given)
    return bool(module.given and results) and is_real and has_elements


# What is said of that which has no gradient.
NO_GRADIENT = "not differentiable", "derivative", "is named"


def _check(module: Called) -> None:
    try:
        compare(module, module.given)
    except (RuntimeError, nnef_grad.NnefGradError) as error:
        if any(words in str(error) for words in NO_GRADIENT):
            with suppress(nnef_grad.NnefGradError):
                _check_values(module)
        elif not isinstance(error, nnef_grad.NnefGradError):
            raise


def _check_values(module: Called) -> None:
    """Of what has no gradient in PyTorch."""
    model = interop.from_torch(module, module.given)
    graph = model.graph
    names = [f"given_{place}" for place in range(len(module.given))]
    fed = dict(zip(names, (x.numpy() for x in module.given), strict=True))
    found = nnef_grad.evaluate(
        graph, {name: fed[name] for name in graph.input_names}, model.data
    )
    wanted = module(*(x.clone() for x in module.given))
    for array, result in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(array, result.detach(), 1e-4, 1e-5)
