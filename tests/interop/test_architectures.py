"""Networks of torchvision, timm and transformers: their gradients, through all stages to
ONNX Runtime, next to those of torch.
"""

from __future__ import annotations

import re

import pytest

import nnef_grad
from nnef_grad import interop
from support.architectures.catalog import ARRIVING, REFUSED, make, package_of
from support.architectures.page import PAGE

pytest.importorskip("torch")
for _package in ("onnx", "onnxruntime"):
    pytest.importorskip(_package, reason="the graphs run in ONNX Runtime")

from support.architectures.arrival import arrive

# Those of the packages.
pytestmark = pytest.mark.filterwarnings("ignore")

# Multiples of the error that torch itself makes in single precision.
MOST = 10


def made(name: str) -> tuple[object, object]:
    if package_of(name) == "torchvision":
        pytest.importorskip("torch")
    else:
        pytest.importorskip(package_of(name), reason="pip install '.[models]'")
    return make(name)


@pytest.mark.one_in(30)
@pytest.mark.parametrize("name", ARRIVING)
def test_the_gradients_are_those_of_torch(name: str) -> None:
    arrival = arrive(*made(name))
    assert {n: error for n, error in arrival.errors.items() if not error <= MOST} == {}


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    with pytest.raises(nnef_grad.UnsupportedError, match=r"\.py:\d+"):
        interop.from_torch(*made(name))


def test_the_page_lists_the_architectures() -> None:
    listed = re.findall(r"^\| `(\w+/\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert listed == [*ARRIVING, *REFUSED]
