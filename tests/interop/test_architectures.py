"""Networks of torchvision, timm and transformers: their gradients, through all stages to
ONNX Runtime, next to those of torch.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from support.architectures.arrival import MOST, arrive_within
from support.architectures.catalog import ARRIVING, REFUSED, make, package_of
from support.architectures.page import PAGE

import nnef_grad
from nnef_grad import interop

# Those of the packages.
pytestmark = pytest.mark.filterwarnings("ignore")

# The largest error in double precision: what a network computes from no input is a constant
# of single precision in its graph.
EXACT = 1e-6


def made(name: str, seed: int = 0) -> tuple[Any, Any]:
    pytest.importorskip("onnx", reason="torch exports modules by the package onnx")
    try:
        return make(name, seed)
    except ModuleNotFoundError as error:
        if error.name != package_of(name):
            raise
        pytest.skip(f"{error.name} is missing: pip install '.[models]'")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ARRIVING)
def test_the_gradients_are_those_of_torch(name: str) -> None:
    pytest.importorskip("onnxruntime")
    found = arrive_within(partial(made, name))
    assert found.exact < EXACT
    errors = found.errors
    assert {n: error for n, error in errors.items() if not error <= MOST} == {}


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with pytest.raises(nnef_grad.UnsupportedError, match=r"\.py:\d+"):
        interop.from_torch(*made(name))


def test_the_page_lists_the_architectures() -> None:
    listed = re.findall(r"^\| `(\w+/\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert listed == [*REFUSED, *ARRIVING]
