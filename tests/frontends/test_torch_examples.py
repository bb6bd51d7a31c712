"""PyTorch's own examples of what torch.export takes, and the table of them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from support.tables import FOLDER, csv_of, hold
from support.torch_gradients import compare
from torch import nn
from torch.utils import _pytree as pytree

import nnef_grad
from nnef_grad import interop

TABLE = FOLDER / "torch-examples.csv"
# The release that the table is of.
RELEASE = "2.13."

# What a message must have, and what the table says of it: another message is a bug.
REFUSED = {
    "assume_constant_result": ("depends on input values", "an extent depends on the values of an input"),
    "autograd_function": ("not known to be linear", "its backward function adds 1, which is not linear: `allow_own_backward=True`"),
    "cond_operands": ("is not known", "whether an open axis is longer than 2 is not known: `batch=`"),
    "constrain_as_size_example": ("depends on input values", "an extent depends on the values of an input"),
    "dynamic_shape_map": ("write out", "`map`: an operation with an axis for the batch"),
    "dynamic_shape_round": ("Constraints violated", "torch cannot export it: what it rounds is not known to be in range"),
    "scalar_output": ("returns no tensor", "it returns a number, no tensor"),
}  # fmt: skip
# Of which there is nothing to differentiate.
WITHOUT_GRADIENT = {"dynamic_shape_constructor"}


class Called(nn.Module):  # type: ignore[misc]
    """A module whose arguments, by position and by name, are given in order."""

    def __init__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.module = module
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))

    def forward(self, *leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(leaves), self.spec)
        return self.module(*args, **kwargs)


def examples() -> dict[str, Any]:
    from torch._export.db.examples import all_examples

    return dict(sorted(all_examples().items()))


def outcome(name: str, case: Any) -> str:
    """What the table says of an example, which is compared with torch."""
    module, given = case.model, [*case.example_args]
    if case.example_kwargs:
        module = Called(module, case.example_args, case.example_kwargs)
        given = module.leaves
    options = {"dynamic_shapes": case.dynamic_shapes}
    if name in REFUSED:
        message, what = REFUSED[name]
        with pytest.raises(nnef_grad.NnefGradError, match=message):
            interop.from_torch(module, given, **options)
        return f"refused: {what}"
    if name in WITHOUT_GRADIENT:
        interop.from_torch(module, given, **options)
        return "read; there is nothing to differentiate"
    compare(module, given, uses_mode="torch.cond" not in case.tags, **options)
    return "right"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    not torch.__version__.startswith(RELEASE), reason=f"of torch {RELEASE}x"
)
def test_the_table_lists_the_examples(request: pytest.FixtureRequest) -> None:
    rows = [(f"`{name}`", outcome(name, case)) for name, case in examples().items()]
    text = csv_of(("example", "outcome"), rows)
    hold({TABLE: text}, rewrite=request.config.getoption("--rewrite-cases"))
